//! CoDel for requests: keeps the wait short by refusing some when the queue does not drain by itself.
//!
//! *Controlled Delay* (Nichols, Jacobson, RFC 8289): a queue is bad when even the shortest wait over an `interval` is above
//! `target`; a burst that drains within an interval is not. The RFC then drops packets one by one, ever more often, because
//! TCP slows down with each. Visitors do not: so what follows is adapted to requests as Facebook's folly does
//! (`folly/executors/Codel.cpp`, told of in Maurer, "Fail at scale", ACM Queue 13(8), 2015):
//!
//! ```text
//! once an interval:   overloaded := (shortest wait of the interval) > target
//! each request:       refused  iff  overloaded and it has waited for more than 2 target
//! ```
//!
//! The first request of an interval only begins the new minimum and is served: as in folly, one request alone is never refused,
//! so a class of which less than two an interval are served is held by its patience, not by this. With an origin that serves mu a second, those
//! who are served have waited for at most two targets, and the queue holds about 2 target mu in the steady state.
//!
//! **A queue that has run empty** has no standing part, however long its last ones waited: RFC 8289 (5.6, `dodequeue`: no packet,
//! then `first_above_time_ = 0`; 5.5: the dropping state ends) begins anew, and so does this. folly does not see it: its minimum,
//! and the verdict of it, stay from the last interval with traffic, and it relies on requests that did not wait to bring the
//! minimum down. Here these never come by: they go past the queue. Without the RFC's rule a burst an hour after an
//! overload would be refused for what was an hour ago. While somebody waits nothing is stale, even if nobody's turn came for
//! many intervals (an origin that stands still): all who wait have waited for at least so long.

use std::time::Duration;

use super::{Discipline, End, List};
use crate::gate::QueueConfig;
use crate::units::Timestamp;

/// First come, first served, with refusals that keep the wait short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoDel {
    target: Duration,
    interval: Duration,
    /// The shortest wait seen in this interval.
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
