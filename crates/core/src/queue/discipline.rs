//! Queue disciplines: which end of a class's queue is served next. The configuration chooses one by name.
//!
//! - FIFO is the order that people in a queue think fair, and it keeps the longest wait shortest. Under
//!   overload it serves everybody too late.
//! - LIFO (MASTH 2.3) serves some at once under overload and the others not at all. Requests at the old
//!   end are refused when their patience ends.
//! - Adaptive LIFO (Maurer, "Fail at scale", ACM Queue 13(8), 2015) is FIFO while the queue moves and LIFO
//!   once it stands: the visitor who came last most probably still waits, the oldest one least. The source
//!   switches "when a queue is starting to form"; here that is
//!
//!   ```text
//!   newest first  iff  now - (arrival of the oldest) > target
//!   ```
//!
//!   which needs no length that depends on the speed of the origin. When the requests at the old end have
//!   been served or refused, the oldest is young again and the order returns to FIFO by itself.
//! - [`CoDel`](super::CoDel) is FIFO with refusals; it has its own file.

use std::time::Duration;

use super::list::{End, List};
use crate::mutants::{self, Mutant};
use crate::units::Timestamp;

/// The configuration of one class's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    pub discipline: DisciplineKind,
    /// Requests that may wait; `None`: as many as the gate's `max_queue` allows.
    pub max_length: Option<usize>,
    /// Longest wait; `None`: the gate's `max_queue_wait`.
    pub patience: Option<Duration>,
    /// CoDel: the wait it aims at. Adaptive LIFO: the newest goes first once the oldest has waited longer.
    pub target: Duration,
    /// CoDel: how long the shortest wait may be above the target before requests are refused.
    pub interval: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            discipline: DisciplineKind::Fifo,
            max_length: None,
            patience: None,
            target: DEFAULT_TARGET,
            interval: DEFAULT_INTERVAL,
        }
    }
}

/// RFC 8289 has 5 ms for packets; requests take longer, and a standing queue of a few is no fault yet.
pub const DEFAULT_TARGET: Duration = Duration::from_millis(100);
/// Long enough for several services (RFC 8289, 4.2), and a twentieth of the wait after which visitors leave.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(500);

/// The disciplines by name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DisciplineKind {
    #[default]
    Fifo,
    Lifo,
    /// First come, first served until the oldest has waited for `target`; then the newest first.
    AdaptiveLifo,
    /// First come, first served; refusals keep the wait near `target`.
    CoDel,
}

/// The order in which waiting requests are served.
pub trait Discipline: Send {
    /// The end of `list` that is served next.
    fn next(&self, list: &List, now: Timestamp) -> End;

    /// Whether the next request, which has waited for `waited`, is refused instead of served right now.
    fn is_refused(&mut self, _waited: Duration, _now: Timestamp) -> bool {
        false
    }

    /// The last waiting request has left the queue.
    fn emptied(&mut self) {}

    /// Changes the parameters and keeps the state.
    fn configure(&mut self, _config: &QueueConfig) {}
}

pub(super) struct Fifo;

impl Discipline for Fifo {
    fn next(&self, _list: &List, _now: Timestamp) -> End {
        if mutants::is(Mutant::QueueLifo) { End::Newest } else { End::Oldest }
    }
}

pub(super) struct Lifo;

impl Discipline for Lifo {
    fn next(&self, _list: &List, _now: Timestamp) -> End {
        End::Newest
    }
}

pub(super) struct AdaptiveLifo {
    pub(super) target: Duration,
}

impl Discipline for AdaptiveLifo {
    fn next(&self, list: &List, now: Timestamp) -> End {
        match list.at(End::Oldest) {
            Some(oldest) if now.since(oldest.since) > self.target => End::Newest,
            _ => End::Oldest,
        }
    }

    fn configure(&mut self, config: &QueueConfig) {
        self.target = config.target;
    }
}
