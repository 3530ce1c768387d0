//! The gate's counts.

use std::time::Duration;

use super::ShedReason;
use crate::mutants::{self, Mutant};
use crate::units::Cost;

/// Counts of the gate since its creation, its present contents and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests sent to the origin, at once or out of the queue.
    pub forwarded: u64,
    /// Requests that the origin has finished.
    pub finished: u64,
    /// Requests refused because the queue was full.
    pub shed_full: u64,
    /// Requests refused because they waited for the longest wait of the gate.
    pub shed_timeout: u64,
    /// Requests refused because the patience of their class or their visitor ended.
    pub shed_patience: u64,
    /// Requests refused by CoDel.
    pub shed_codel: u64,
    /// Requests whose visitor left the queue.
    pub abandoned: u64,
    /// Requests that wait.
    pub queued: usize,
    /// Work that waits.
    pub queued_cost: Cost,
    /// Of the waiting requests, those held back by their class's own limit or egress bucket.
    pub held: usize,
    /// Their work.
    pub held_cost: Cost,
    /// Of the requests that wait for the origin alone, those of admitted sessions.
    pub admitted: usize,
    /// Their work.
    pub admitted_cost: Cost,
    /// Requests in flight at the origin.
    pub in_flight: u32,
    /// Work in flight at the origin.
    pub in_flight_cost: Cost,
    /// Work sent to the origin, at once or out of the queue.
    pub forwarded_cost: Cost,
    /// In-flight limit; `None`: no limit.
    pub limit: Option<u32>,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Longest wait of each.
    pub max_queue_wait: Duration,
}

impl Totals {
    /// Requests refused, for all reasons.
    pub fn shed(&self) -> u64 {
        self.shed_full + self.shed_timeout + self.shed_patience + self.shed_codel
    }

    /// Requests that wait for the origin alone: the backlog that an estimator may count.
    pub fn backlog(&self) -> usize {
        self.queued - self.held
    }

    /// Their work.
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
