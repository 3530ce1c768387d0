//! What went through the gate, and what is in it.

use std::time::Duration;

use super::ShedReason;
use crate::units::Cost;

/// What went through the gate since it was made, what is in it, and what may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests sent to the origin, at once or out of the queue.
    pub forwarded: u64,
    /// Requests the origin is done with.
    pub finished: u64,
    /// Requests refused because the queue was full.
    pub shed_full: u64,
    /// Requests refused because they waited too long.
    pub shed_timeout: u64,
    /// Requests refused because their class or their visitor had no more patience.
    pub shed_patience: u64,
    /// Requests refused to keep their class's queue short.
    pub shed_codel: u64,
    /// Requests whose visitor left the queue.
    pub abandoned: u64,
    /// Requests that wait.
    pub queued: usize,
    /// Work that waits.
    pub queued_cost: Cost,
    /// Of those that wait, requests whose class may not send any: its own limit or its egress bucket holds them.
    pub held: usize,
    /// Their work.
    pub held_cost: Cost,
    /// Of those that wait for the origin alone, requests of admitted sessions.
    pub admitted: usize,
    /// Their work.
    pub admitted_cost: Cost,
    /// Requests at the origin.
    pub in_flight: u32,
    /// Work at the origin.
    pub in_flight_cost: Cost,
    /// Work sent to the origin, at once or out of the queue.
    pub forwarded_cost: Cost,
    /// Requests that may be at the origin; `None`: no limit.
    pub limit: Option<u32>,
    /// Requests that may wait.
    pub max_queue: usize,
    /// How long each of them may.
    pub max_queue_wait: Duration,
}

impl Totals {
    /// Requests refused, for whatever reason.
    pub fn shed(&self) -> u64 {
        self.shed_full + self.shed_timeout + self.shed_patience + self.shed_codel
    }

    /// Requests that wait for the origin alone: what an estimator may take for a backlog.
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

    /// Whether the origin may be sent another request.
    pub fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight < limit)
    }
}
