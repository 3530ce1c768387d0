//! A replica's counters.

use serde::Serialize;

use crate::stats::add_fields;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Requests that came: the sum of all below but `peak`; `in_service`, `queued`, `failing` and `streaming`
    /// are those still there.
    pub submitted: u64,
    pub served: u64,
    /// Requests refused because the backlog was full.
    pub refused: u64,
    /// Requests served to the end although the visitor had left.
    pub wasted: u64,
    /// Requests given up because the visitor had left (`notices_leavers`).
    pub abandoned: u64,
    pub lost: u64,
    /// Requests answered with an error at once (`errors`), whether or not their visitors still waited.
    pub failed: u64,
    pub in_service: usize,
    pub queued: usize,
    /// Requests to be answered with an error in a moment; they hold no worker.
    pub failing: usize,
    /// Requests whose answer goes on; they hold no worker any more.
    pub streaming: usize,
    pub peak: usize,
}

impl Stats {
    /// Requests present now: in service, waiting, failing and streaming.
    pub fn present(&self) -> usize {
        self.in_service + self.queued + self.failing + self.streaming
    }

    /// Whether every request that came is accounted for.
    pub fn adds_up(&self) -> bool {
        let over = self.served + self.refused + self.wasted + self.abandoned + self.lost + self.failed;
        self.submitted == over + self.present() as u64
    }

    /// The figures of two replicas together. `peak` becomes the sum of the peaks: an upper bound.
    pub fn plus(mut self, other: Self) -> Self {
        add_fields!(self, other; submitted, served, refused, wasted, abandoned, lost, failed);
        add_fields!(self, other; in_service, queued, failing, streaming, peak);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin's backlog is full")]
pub struct Full;
