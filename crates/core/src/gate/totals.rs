//! The gate's counts.

use std::time::Duration;

use super::ShedReason;
use crate::mutants::{self, Mutant};
use crate::units::{Cost, Timestamp};

/// Counts of the gate since its creation, its present contents and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub arrived: u64,
    /// Requests sent to the origin, at once or out of the queue.
    pub forwarded: u64,
    /// Requests that the origin has finished.
    pub finished: u64,
    pub shed_full: u64,
    pub shed_timeout: u64,
    pub shed_patience: u64,
    pub shed_codel: u64,
    pub abandoned: u64,
    pub queued: usize,
    pub queued_cost: Cost,
    /// Of the waiting requests, those held back by their class's own limit or egress bucket.
    pub held: usize,
    pub held_cost: Cost,
    /// Of the requests that wait for the origin alone, those of admitted sessions, also first ones.
    pub admitted: usize,
    pub admitted_cost: Cost,
    /// Of the requests that wait for the origin alone, those of sessions under way.
    pub of_sessions: usize,
    /// Work of the requests that wait for the origin alone, but for those of sessions under way.
    pub entering_cost: Cost,
    /// Of the waiting requests, those that begin a session. They may wait while in-flight slots are free.
    pub newcomers: usize,
    pub in_flight: u32,
    pub in_flight_cost: Cost,
    /// Its integral over time up to `in_flight_until`, in hundredths times microseconds, modulo 2^64.
    pub in_flight_cost_us: u64,
    pub in_flight_until: Timestamp,
    pub forwarded_cost: Cost,
    /// Of it, what was not of sessions under way.
    pub forwarded_entering: Cost,
    /// In-flight limit; `None`: no limit.
    pub limit: Option<u32>,
    pub max_queue: usize,
    pub max_queue_wait: Duration,
}

impl Totals {
    /// Requests refused, for all reasons.
    pub fn shed(&self) -> u64 {
        self.shed_full + self.shed_timeout + self.shed_patience + self.shed_codel
    }

    /// The integral of the work in flight up to `now`.
    pub fn in_flight_cost_us(&self, now: Timestamp) -> u64 {
        let since_us = now.since(self.in_flight_until).as_micros() as u64;
        self.in_flight_cost_us.wrapping_add(self.in_flight_cost.hundredths().wrapping_mul(since_us))
    }

    /// The work in flight changes after `now`.
    pub(super) fn integrate_until(&mut self, now: Timestamp) {
        self.in_flight_cost_us = self.in_flight_cost_us(now);
        self.in_flight_until = self.in_flight_until.max(now);
    }

    /// Requests that wait for the origin alone: the backlog that an estimator may count.
    pub fn backlog(&self) -> usize {
        self.queued - self.held
    }

    /// Work of the requests of [`Totals::backlog`].
    pub fn backlog_cost(&self) -> Cost {
        self.queued_cost.saturating_sub(self.held_cost)
    }

    pub(super) fn count_shed(&mut self, reason: ShedReason) {
        *match reason {
            ShedReason::QueueFull => &mut self.shed_full,
            ShedReason::QueueTimeout => &mut self.shed_timeout,
            ShedReason::Patience => &mut self.shed_patience,
            ShedReason::CoDel => &mut self.shed_codel,
        } += 1;
    }

    /// Whether an in-flight slot is free.
    pub fn has_room(&self) -> bool {
        let beyond = u32::from(mutants::is(Mutant::LimitOffByOne));
        self.limit.is_none_or(|limit| self.in_flight < limit + beyond)
    }
}
