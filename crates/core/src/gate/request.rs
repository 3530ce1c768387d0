//! What goes into the gate and comes out of it.

use std::time::Duration;

use crate::measure::Event;
use crate::queue::{QueueHandle, Waiting};
use crate::units::{ClassId, Cost, Timestamp};

/// A request at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The caller's name for it, which means nothing to the gate.
    pub id: u64,
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
}

/// Whose request it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Lane {
    /// Anybody's.
    #[default]
    Ordinary,
    /// An admitted session's: before all others, and never refused for load.
    Admitted,
}

/// What to do with a request that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueDecision {
    /// Send it to the origin now; report its end with [`Gate::finish`].
    Forward,
    /// It waits there: [`Gate::next`] or [`Gate::tick`] will name it, unless [`Gate::abandon`] comes first.
    Queued(QueueHandle),
    /// Refuse it.
    Shed(ShedReason),
}

/// Why the gate refused a request on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShedReason {
    /// As many wait as may.
    QueueFull,
    /// It waited as long as anybody may.
    QueueTimeout,
    /// It waited as long as its class or its visitor has patience.
    Patience,
    /// Its class's queue is kept short, and it had waited for too long already.
    CoDel,
}

impl ShedReason {
    /// What is counted.
    pub const fn event(self) -> Event {
        match self {
            Self::QueueFull => Event::QueueFull,
            Self::QueueTimeout => Event::QueueTimeout,
            Self::Patience => Event::QueuePatience,
            Self::CoDel => Event::QueueCodel,
        }
    }
}

/// Somebody leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Send it to the origin; counted as in flight from here on.
    Forward(Woken),
    /// Refuse it.
    Shed(Woken, ShedReason),
}

impl Leaving {
    /// Who goes to the origin, if it is one.
    pub fn forwarded(self) -> Option<Woken> {
        match self {
            Self::Forward(woken) => Some(woken),
            Self::Shed(..) => None,
        }
    }
}

/// A request that leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// The caller's name for it.
    pub id: u64,
    /// Where it waited; another may wait there from now on.
    pub spot: QueueHandle,
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
    /// Time it spent in the queue.
    pub waited: Duration,
}

impl Woken {
    pub(super) fn new(spot: QueueHandle, w: &Waiting, now: Timestamp) -> Self {
        Self { id: w.id, spot, class: w.class, cost: w.cost, waited: now.since(w.since) }
    }
}

/// What the origin made of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// When it was sent to the origin.
    pub sent: Timestamp,
    /// Requests at the origin then, itself included: [`Gate::in_flight_now`] right after it was forwarded.
    pub in_flight: u32,
    /// Whether the origin served it (status below 500).
    pub ok: bool,
}
