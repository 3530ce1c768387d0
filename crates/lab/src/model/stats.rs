//! What a replica counts.

use serde::Serialize;

/// What a replica has done and is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Requests that came: the sum of all below but `peak`, `in_service` and `queued` being those still there.
    pub submitted: u64,
    /// Requests served to visitors who still waited for the answer.
    pub served: u64,
    /// Requests refused because the backlog was full.
    pub refused: u64,
    /// Requests served to the end although the visitor had left.
    pub wasted: u64,
    /// Requests given up because the visitor had left (`notices_leavers`).
    pub abandoned: u64,
    /// Requests lost in a crash.
    pub lost: u64,
    /// Requests that hold a worker now.
    pub in_service: usize,
    /// Requests waiting for a worker now.
    pub queued: usize,
    /// Most requests present at once so far.
    pub peak: usize,
}

impl Stats {
    /// Requests present now: in service and waiting.
    pub fn present(&self) -> usize {
        self.in_service + self.queued
    }

    /// The figures of two replicas together. `peak` becomes the sum of the peaks: an upper bound.
    pub fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            served: self.served + other.served,
            refused: self.refused + other.refused,
            wasted: self.wasted + other.wasted,
            abandoned: self.abandoned + other.abandoned,
            lost: self.lost + other.lost,
            in_service: self.in_service + other.in_service,
            queued: self.queued + other.queued,
            peak: self.peak + other.peak,
        }
    }
}

/// The backlog was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin's backlog is full")]
pub struct Full;
