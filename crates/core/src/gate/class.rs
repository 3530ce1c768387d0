//! One class at the gate: its queue, its limit, its egress bucket, and whether its next request may go.

use std::time::Duration;

use super::pages::Pages;
use super::{ClassConfig, GateConfig, ShedReason};
use crate::bucket::Bucket;
use crate::queue::{Full, Lane, Queue, QueueHandle, Waiting};
use crate::scheduler::Head;
use crate::units::{ClassId, Cost, Timestamp};

#[derive(Clone, Copy, Default)]
pub(super) struct Backlog {
    pub(super) count: usize,
    pub(super) cost: Cost,
}

pub(super) struct Class {
    id: ClassId,
    queue: Queue,
    queued_cost: Cost,
    /// Part of `queued_cost` of admitted sessions, also of their first requests.
    admitted_cost: Cost,
    /// Part of `admitted_cost` of sessions under way.
    session_cost: Cost,
    egress: Bucket,
    pub(super) in_flight: u32,
    limit: Option<u32>,
    patience: Duration,
    /// The reason of refusals after that wait.
    impatient: ShedReason,
    /// The class's part of [`super::Totals::held`].
    pub(super) held: Backlog,
    /// The class's part of [`super::Totals::admitted`].
    pub(super) admitted: Backlog,
    /// The class's part of [`super::Totals::entering_cost`].
    pub(super) entering_cost: Cost,
    /// The class's part of [`super::Totals::of_sessions`].
    pub(super) of_sessions: usize,
    /// Whether requests of admitted sessions waited at the last update.
    pub(super) had_admitted: bool,
}

/// Whether a request of a class may go, as far as the class's own limits are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClassState {
    Empty,
    /// Only newcomers wait, and none may go.
    Closed,
    Ready(Lane, Head),
    Full,
    /// The egress bucket lets the next request pass at that time.
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
            session_cost: Cost::ZERO,
            egress: Bucket::new(&here.egress),
            in_flight: 0,
            limit: None,
            patience: Duration::ZERO,
            impatient: ShedReason::QueueTimeout,
            held: Backlog::default(),
            admitted: Backlog::default(),
            entering_cost: Cost::ZERO,
            of_sessions: 0,
            had_admitted: false,
        };
        class.set(&here, config);
        class
    }

    pub(super) fn reconfigure(&mut self, config: &GateConfig, now: Timestamp) {
        let here = config.class(self.id);
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

    /// Whether a new request of that lane may go before all of the class that wait.
    pub(super) fn is_next(&self, lane: Lane, pages: &Pages) -> bool {
        let ahead = self.next_lane(pages);
        match lane {
            Lane::Ordinary => ahead.is_none(),
            Lane::Admitted | Lane::Page => ahead.is_none_or(|ahead| !pages.goes_first(ahead)),
            Lane::Newcomer => pages.are_open() && ahead.is_none_or(|ahead| ahead == Lane::Ordinary),
        }
    }

    /// The lane of the next request; `None`: none waits that may go.
    pub(super) fn next_lane(&self, pages: &Pages) -> Option<Lane> {
        let newcomer = self.queue.first_of(Lane::Newcomer).filter(|_| pages.are_open());
        match (self.queue.first_of(Lane::Admitted), newcomer) {
            (Some(of_session), Some(newcomer))
                if pages.goes_first(Lane::Newcomer) && newcomer.turn < of_session.turn =>
            {
                Some(Lane::Newcomer)
            }
            (Some(_), _) => Some(Lane::Admitted),
            (None, Some(_)) => Some(Lane::Newcomer),
            (None, None) => self.has_queued(Lane::Ordinary).then_some(Lane::Ordinary),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.in_flight >= limit)
    }

    pub(super) fn state(&self, pages: &Pages, now: Timestamp) -> ClassState {
        let Some(next) = self.peek(pages, now) else {
            return if self.is_empty() { ClassState::Empty } else { ClassState::Closed };
        };
        if self.is_full() {
            return ClassState::Full;
        }
        let wait = self.egress.wait(next.cost, now);
        if !wait.is_zero() {
            return ClassState::Later(now + wait);
        }
        let longest = if next.lane == Lane::Ordinary { self.queue.oldest() } else { None };
        let turn = longest.unwrap_or(&next).turn;
        ClassState::Ready(next.lane, Head { turn, cost: next.cost })
    }

    pub(super) fn patience_ends(&self) -> Option<Timestamp> {
        self.queue.oldest().map(|oldest| oldest.since + self.patience.min(LONGEST))
    }

    /// Appends a request to the queue.
    ///
    /// # Errors
    /// The queue is at its bound.
    pub(super) fn push(&mut self, waiting: Waiting) -> Result<QueueHandle, Full> {
        let handle = self.queue.push(waiting)?;
        self.queued_cost += waiting.cost;
        if waiting.lane != Lane::Ordinary {
            self.admitted_cost += waiting.cost;
        }
        if waiting.lane.is_of_session() {
            self.session_cost += waiting.cost;
        }
        Ok(handle)
    }

    pub(super) fn pop(&mut self, lane: Lane, now: Timestamp) -> Option<(QueueHandle, Waiting)> {
        let popped = self.queue.pop(lane, now);
        popped.inspect(|(_, waiting)| self.removed(waiting))
    }

    pub(super) fn pop_oldest(&mut self) -> Option<(QueueHandle, Waiting)> {
        let popped = self.queue.pop_oldest();
        popped.inspect(|(_, waiting)| self.removed(waiting))
    }

    /// Removes a request whose visitor has left; `None`: it has been removed before.
    pub(super) fn remove(&mut self, handle: QueueHandle) -> Option<Waiting> {
        let removed = self.queue.remove(handle);
        removed.inspect(|waiting| self.removed(waiting))
    }

    fn removed(&mut self, waiting: &Waiting) {
        self.queued_cost = self.queued_cost - waiting.cost;
        if waiting.lane != Lane::Ordinary {
            self.admitted_cost = self.admitted_cost - waiting.cost;
        }
        if waiting.lane.is_of_session() {
            self.session_cost = self.session_cost - waiting.cost;
        }
    }

    pub(super) fn peek(&self, pages: &Pages, now: Timestamp) -> Option<Waiting> {
        self.queue.peek(self.next_lane(pages)?, now).copied()
    }

    /// Why the next request is refused although it is its turn, if it is; `next` is [`Class::peek`]. The
    /// gate's own longest wait is checked on the tick only.
    pub(super) fn refuses(&mut self, next: &Waiting, now: Timestamp) -> Option<ShedReason> {
        match self.refusal(next, now) {
            Some(ShedReason::Patience) => Some(ShedReason::Patience),
            _ => (next.lane == Lane::Ordinary && self.queue.is_refused(now)).then_some(ShedReason::CoDel),
        }
    }

    /// Why a waiting request has waited for too long, if it has.
    pub(super) fn refusal(&self, waiting: &Waiting, now: Timestamp) -> Option<ShedReason> {
        if waiting.until.is_some_and(|until| until <= now) {
            return Some(ShedReason::Patience);
        }
        let is_over = waiting.lane == Lane::Ordinary && now.since(waiting.since) >= self.patience;
        is_over.then_some(self.impatient)
    }

    /// Lets `cost` pass the egress bucket, if it may pass now.
    pub(super) fn pass_egress(&mut self, cost: Cost, now: Timestamp) -> bool {
        self.egress.take(cost, now).is_ok()
    }

    pub(super) fn finish(&mut self) {
        assert!(self.in_flight > 0, "finish without forward in class {}", self.id.0);
        self.in_flight -= 1;
    }

    pub(super) fn queued(&self) -> Backlog {
        Backlog { count: self.queue.len(), cost: self.queued_cost }
    }

    pub(super) fn queued_admitted(&self) -> Backlog {
        let count = self.queue.len_of(Lane::Admitted) + self.queue.len_of(Lane::Newcomer);
        Backlog { count, cost: self.admitted_cost }
    }

    /// Work that waits and is not of sessions under way.
    pub(super) fn queued_entering(&self) -> Cost {
        self.queued_cost.saturating_sub(self.session_cost)
    }

    /// Requests that wait and are of sessions under way.
    pub(super) fn queued_of_sessions(&self) -> usize {
        self.queue.len_of(Lane::Admitted)
    }

    pub(super) fn has_queued(&self, lane: Lane) -> bool {
        self.queue.len_of(lane) > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Longer than any patience; adding it to a timestamp does not overflow.
const LONGEST: Duration = Duration::from_secs(1 << 40);
