//! One class at the gate: its queue, its limit and its egress bucket, and what keeps who waits there from going.

use std::time::Duration;

use super::{ClassConfig, GateConfig, Lane, ShedReason};
use crate::bucket::Bucket;
use crate::queue::{Queue, Waiting};
use crate::scheduler::Head;
use crate::units::{ClassId, Cost, Timestamp};

pub(super) struct Class {
    pub(super) id: ClassId,
    pub(super) queue: Queue,
    pub(super) queued_cost: Cost,
    /// Of it, that of admitted sessions.
    pub(super) admitted_cost: Cost,
    pub(super) egress: Bucket,
    pub(super) in_flight: u32,
    limit: Option<u32>,
    patience: Duration,
    /// What whoever waited for that long is told.
    impatient: ShedReason,
    /// What of it is counted as held back.
    pub(super) held: (usize, Cost),
    /// What of it is counted as admitted sessions' that wait for the origin alone.
    pub(super) admitted: (usize, Cost),
    /// Somebody of an admitted session waited when it was last looked at.
    pub(super) had_admitted: bool,
}

/// Whether somebody of a class may go, as far as the class is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClassState {
    /// Nobody waits.
    Empty,
    /// The next one may.
    Ready(Lane, Head),
    /// As many are at the origin as may be.
    Full,
    /// The egress bucket lets the next one pass then.
    Later(Timestamp),
}

impl Class {
    pub(super) fn new(id: ClassId, config: &GateConfig) -> Self {
        let here = config.class(id);
        let mut class = Self {
            id,
            queue: Queue::new(&here.queue, config.max_queue),
            queued_cost: Cost::ZERO,
            admitted_cost: Cost::ZERO,
            egress: Bucket::new(&here.egress),
            in_flight: 0,
            limit: None,
            patience: Duration::ZERO,
            impatient: ShedReason::QueueTimeout,
            held: (0, Cost::ZERO),
            admitted: (0, Cost::ZERO),
            had_admitted: false,
        };
        class.set(&here, config);
        class
    }

    pub(super) fn reconfigure(&mut self, id: ClassId, config: &GateConfig, now: Timestamp) {
        let here = config.class(id);
        self.queue.configure(&here.queue, config.max_queue);
        self.egress.reconfigure(&here.egress, now);
        self.set(&here, config);
    }

    fn set(&mut self, here: &ClassConfig, config: &GateConfig) {
        self.limit = here.max_in_flight;
        self.patience = here.queue.patience.unwrap_or(config.max_queue_wait);
        self.impatient =
            if here.queue.patience.is_some() { ShedReason::Patience } else { ShedReason::QueueTimeout };
    }

    /// Whether nobody of the class goes before one who comes in that lane.
    pub(super) fn is_next(&self, lane: Lane) -> bool {
        match lane {
            Lane::Ordinary => self.queue.is_empty(),
            Lane::Admitted => self.queue.len_of(Lane::Admitted) == 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.in_flight >= limit)
    }

    pub(super) fn standing(&self, now: Timestamp) -> ClassState {
        let Some(next) = self.queue.peek(now) else { return ClassState::Empty };
        if self.is_full() {
            return ClassState::Full;
        }
        let wait = self.egress.wait(next.cost, now);
        if !wait.is_zero() {
            return ClassState::Later(now + wait);
        }
        let longest = if next.lane == Lane::Admitted { None } else { self.queue.oldest() };
        let turn = longest.unwrap_or(next).turn;
        ClassState::Ready(next.lane, Head { turn, cost: next.cost })
    }

    /// When the patience of whoever has waited longest ends.
    pub(super) fn patience_ends(&self) -> Option<Timestamp> {
        self.queue.oldest().map(|oldest| oldest.since + self.patience.min(FOR_EVER))
    }

    /// Why one whose turn it is is not sent to the origin, if it is not. The wait that holds for all classes is looked at on the
    /// tick only: whoever gets a place in its last tenth of a second is served.
    pub(super) fn is_too_late(&self, waiting: &Waiting, now: Timestamp) -> Option<ShedReason> {
        self.gives_up(waiting, now).filter(|reason| *reason == ShedReason::Patience)
    }

    /// Why one who waits is given up now, if it is.
    pub(super) fn gives_up(&self, waiting: &Waiting, now: Timestamp) -> Option<ShedReason> {
        if waiting.until.is_some_and(|until| until <= now) {
            return Some(ShedReason::Patience);
        }
        let is_over = waiting.lane == Lane::Ordinary && now.since(waiting.since) >= self.patience;
        is_over.then_some(self.impatient)
    }

    /// One has joined the queue.
    pub(super) fn joined(&mut self, waiting: &Waiting) {
        self.queued_cost += waiting.cost;
        if waiting.lane == Lane::Admitted {
            self.admitted_cost += waiting.cost;
        }
    }

    /// One has left it.
    pub(super) fn left(&mut self, waiting: &Waiting) {
        self.queued_cost = self.queued_cost - waiting.cost;
        if waiting.lane == Lane::Admitted {
            self.admitted_cost = self.admitted_cost - waiting.cost;
        }
    }
}

/// Longer than any patience; its microseconds can be added to a point in time.
const FOR_EVER: Duration = Duration::from_secs(1 << 40);
