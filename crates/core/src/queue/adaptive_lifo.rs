//! Adaptive LIFO (Maurer, "Fail at scale", ACM Queue 13(8), 2015): first come, first served while the queue moves; the newest
//! first once one has formed.
//!
//! ```text
//! newest first  iff  now - (oldest came at) > target
//! ```
//!
//! Whoever came last has the best chance that its visitor still waits; in a queue that stands, the oldest has the worst. The
//! source switches "when a queue is starting to form"; here that is when the oldest has waited for longer than `target`, which
//! needs no length that would depend on how fast the origin is. It goes back by itself: when those left at the old end have
//! been served or given up, the oldest is young again.

use std::time::Duration;

use super::{Discipline, End, List};
use crate::gate::QueueConfig;
use crate::units::Timestamp;

/// First come, first served until the oldest has waited for too long; then the newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveLifo {
    target: Duration,
}

impl AdaptiveLifo {
    /// With the target of `config`.
    pub fn new(config: &QueueConfig) -> Self {
        Self { target: config.target }
    }
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
