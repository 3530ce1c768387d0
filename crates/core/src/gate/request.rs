//! Requests as they enter and leave the gate.

use std::time::Duration;

use crate::measure::Event;
use crate::queue::{Lane, QueueHandle, Waiting};
use crate::units::{ClassId, Cost, Timestamp};

/// A request at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The caller's identifier; it means nothing to the gate.
    pub id: u64,
    pub class: ClassId,
    pub cost: Cost,
}

/// What to do with a request that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueDecision {
    /// Send it to the origin now; report its end with [`super::Gate::finish`].
    Forward,
    /// It waits: [`super::Gate::next`] or [`super::Gate::tick`] will return it, unless
    /// [`super::Gate::abandon`] comes first.
    Queued(QueueHandle),
    Shed(ShedReason),
}

/// Why the gate refused a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShedReason {
    QueueFull,
    /// It waited for the longest wait of the gate.
    QueueTimeout,
    /// It waited for the patience of its class or of its visitor.
    Patience,
    /// CoDel keeps its class's queue short, and it had waited for too long.
    CoDel,
}

impl ShedReason {
    /// The metrics event that counts it.
    pub const fn event(self) -> Event {
        match self {
            Self::QueueFull => Event::QueueFull,
            Self::QueueTimeout => Event::QueueTimeout,
            Self::Patience => Event::QueuePatience,
            Self::CoDel => Event::QueueCodel,
        }
    }
}

/// What to do with a request that leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Send it to the origin; counted as in flight from here on.
    Forward(Woken),
    Shed(Woken, ShedReason),
}

impl Leaving {
    /// The request that goes to the origin, if it does.
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
    pub id: u64,
    /// The handle it waited under; it is not valid any more.
    pub handle: QueueHandle,
    pub class: ClassId,
    pub lane: Lane,
    pub cost: Cost,
    pub waited: Duration,
}

impl Woken {
    pub(super) fn new(handle: QueueHandle, w: &Waiting, now: Timestamp) -> Self {
        Self { id: w.id, handle, class: w.class, lane: w.lane, cost: w.cost, waited: now.since(w.since) }
    }
}

/// How the origin served a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    pub sent: Timestamp,
    /// Requests in flight then, itself included: [`super::Gate::in_flight_now`] right after it was forwarded.
    pub in_flight: u32,
    /// Whether the origin served it (status below 500).
    pub ok: bool,
}
