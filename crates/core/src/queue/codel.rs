//! CoDel for requests: keeps the wait short by refusing requests when the queue does not drain by itself.
//!
//! *Controlled Delay* (Nichols, Jacobson, RFC 8289): a queue is bad when even the shortest wait over an
//! `interval` is above `target`; a burst that drains within an interval is not. The RFC then drops packets
//! one by one, ever more often, because TCP slows down with each drop. Visitors do not slow down, so this
//! file follows the variant for requests of Facebook's folly (`folly/executors/Codel.cpp`, described in
//! Maurer, "Fail at scale", ACM Queue 13(8), 2015):
//!
//! ```text
//! once an interval:   overloaded := (shortest wait of the interval) > target
//! each request:       refused  iff  overloaded and it has waited for more than 2 target
//! ```
//!
//! The first request of an interval starts the new minimum and is served. A single request is therefore never
//! refused, as in folly: a class that sends fewer than two requests per interval is bounded by its patience,
//! not by CoDel. With an origin that serves mu requests per second, a served request has waited for at most
//! two targets, and the queue holds about 2 target mu in the steady state.
//!
//! **An empty queue resets the state**, however long its last requests waited: RFC 8289 (5.6, `dodequeue`: no
//! packet, then `first_above_time_ = 0`; 5.5: the dropping state ends). folly keeps its minimum from the last
//! interval with traffic and relies on requests that did not wait to lower it. Such requests never reach this
//! queue, because the gate forwards them directly. Without the reset a burst would be refused for an overload
//! that ended an hour ago. While requests wait, the state is never stale, even if none was served for many
//! intervals (a stalled origin): all of them have waited for at least that long.

use std::time::Duration;

use super::discipline::{Discipline, QueueConfig};
use super::list::{End, List};
use crate::units::Timestamp;

/// First come, first served, with refusals that keep the wait short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoDel {
    target: Duration,
    interval: Duration,
    shortest: Duration,
    interval_ends: Timestamp,
    is_overloaded: bool,
}

impl CoDel {
    /// With the target and interval of `config`.
    pub fn new(config: &QueueConfig) -> Self {
        Self {
            target: config.target,
            interval: config.interval,
            shortest: Duration::ZERO,
            interval_ends: Timestamp::default(),
            is_overloaded: false,
        }
    }
}

impl Discipline for CoDel {
    fn next(&self, _list: &List, _now: Timestamp) -> End {
        End::Oldest
    }

    fn is_refused(&mut self, waited: Duration, now: Timestamp) -> bool {
        if now > self.interval_ends {
            self.is_overloaded = self.shortest > self.target;
            self.interval_ends = now + self.interval;
            self.shortest = waited;
            return false;
        }
        self.shortest = self.shortest.min(waited);
        self.is_overloaded && waited > 2 * self.target
    }

    fn emptied(&mut self) {
        self.shortest = Duration::ZERO;
        self.is_overloaded = false;
    }

    fn configure(&mut self, config: &QueueConfig) {
        (self.target, self.interval) = (config.target, config.interval);
    }
}
