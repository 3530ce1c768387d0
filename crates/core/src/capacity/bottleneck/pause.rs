//! Pauses: the origin answers nobody for a while (a garbage collection, a checkpoint) and then goes on as before.
//!
//! ```text
//! no completion for more than max(15/X, 5/4 · mean response time)      X completions per second
//! ```
//!
//! With independent service times one gap in e^15 is as long by chance; where all serve in step, a gap is as long as a response without a
//! wait. A pause that is too short to be told takes its time from the throughput: there should be few, for a meter of some hundred samples
//! has one of them in it or none. What was in flight then has waited for the pause, which tells
//! nothing of how many the origin can work on at once: those samples are forgiven. Only once per so many samples: an origin
//! that has become slow pauses all the time, and must not be forgiven.

use std::time::Duration;

use crate::units::Timestamp;

const GAP_COMPLETIONS: f64 = 15.0;
const GAP_RESPONSES: f64 = 1.25;
/// Samples between two pauses, in multiples of the limit.
const APART_LIMITS: f64 = 2.0;
/// And at least.
const APART: f64 = 20.0;

/// Seconds over which their share is averaged, and of a prior without any.
const MEMORY_S: f64 = 120.0;
const PRIOR_S: f64 = 5.0;

/// Watches for pauses.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pauses {
    last: Option<Timestamp>,
    /// The last one, from and until.
    forgiven: (Timestamp, Timestamp),
    /// Requests that ended since the last one forgiven.
    since: f64,
    /// Pauses forgiven.
    pub count: u64,
    paused_s: f64,
    watched_s: f64,
}

impl Pauses {
    /// `count` requests sent at `sent` ended at `ended`; requests per second and seconds per response are what is `expected`. Returns
    /// for how many seconds of it they waited for a pause, if they did: then they are to be forgiven.
    pub fn forgives(
        &mut self,
        sent: Timestamp,
        ended: Timestamp,
        count: f64,
        expected: (f64, f64),
        limit: f64,
    ) -> Option<f64> {
        let (per_second, response_s) = expected;
        // Only while it was at the origin: a time without visitors is no pause.
        let gap = self.last.map_or(Duration::ZERO, |last| ended.since(last.max(sent)));
        self.last = self.last.max(Some(ended));
        let long = (GAP_COMPLETIONS / per_second).max(GAP_RESPONSES * response_s);
        let apart = self.since >= (APART_LIMITS * limit).max(APART);
        if apart && gap.as_secs_f64() > long {
            self.forgiven = (ended.saturating_sub(gap), ended);
            self.since = 0.0;
            self.count += 1;
            self.paused_s += gap.as_secs_f64();
        }
        self.watched_s += gap.as_secs_f64();
        if self.watched_s > MEMORY_S {
            self.watched_s *= 0.5;
            self.paused_s *= 0.5;
        }
        let (from, until) = self.forgiven;
        if sent < until {
            return Some(until.since(from.max(sent)).as_secs_f64());
        }
        self.since += count;
        None
    }

    /// Share of the time the origin does not pause.
    pub fn up_share(&self) -> f64 {
        1.0 - self.paused_s / (self.watched_s + PRIOR_S)
    }

    /// A request ended at `ended` that is not judged.
    pub fn pass(&mut self, ended: Timestamp) {
        self.last = self.last.max(Some(ended));
    }
}
