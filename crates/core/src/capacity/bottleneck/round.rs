//! One round: what came of requests that were sent since the limit in force began.
//!
//! Short requests end first. Right after the limit was raised, those that have ended tell of a response time that is too short, by far
//! where service varies and everybody is served at once (processor sharing). Two remedies:
//!
//! ```text
//! by request   R = (Σ of those that ended + v · Σ so far of those that have not) / ended       v = min(1, squared variation)
//! by counting  X = all that ended / time passed
//! ```
//!
//! The first is the maximum-likelihood mean under censoring for exponential response times (v = 1) and the plain mean for constant ones
//! (v = 0). The second does not care who ends, but a burst falls into the round or not. Who must not be fooled asks both.

use super::meter::Work;
use crate::units::Timestamp;

/// What came of the present level: of requests that were sent since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub began: Timestamp,
    pub limit: f64,
    /// The first one at its level.
    pub is_first: bool,
    pub work: Work,
    /// Units of all that ended, whenever they were sent.
    pub ended_units: f64,
    pub response_s: f64,
    /// Of squared responses per unit.
    pub squares: f64,
    /// Requests in flight that were sent before, and what those sent since have spent at the origin, ended or not.
    pub old: f64,
    exposure_s: f64,
    until: Timestamp,
    /// Time in which nobody waited: what ended then tells of the load.
    idle_s: f64,
}

impl Round {
    pub fn new(began: Timestamp, limit: u32, in_flight: u32) -> Self {
        Self {
            began,
            limit: f64::from(limit),
            is_first: true,
            work: Work::default(),
            ended_units: 0.0,
            response_s: 0.0,
            squares: 0.0,
            old: f64::from(in_flight),
            exposure_s: 0.0,
            until: began,
            idle_s: 0.0,
        }
    }

    /// With a backlog all places are taken: by old requests, the rest by new ones.
    pub fn pass(&mut self, until: Timestamp) {
        let passed = until.since(self.until).as_secs_f64();
        self.until = self.until.max(until);
        self.exposure_s += passed * (self.limit - self.old).max(0.0);
    }

    /// One that was sent in the round has ended and does not count: neither does its time.
    pub fn leave_out(&mut self, seconds: f64) {
        self.exposure_s -= seconds;
    }

    /// Nobody waited for so long.
    pub fn idle(&mut self, seconds: f64) {
        self.idle_s += seconds;
    }

    /// Squared coefficient of variation of the response times.
    pub fn variation(&self) -> Option<f64> {
        let n = self.work.count;
        let mean = self.response_s / self.work.units;
        let squared = (self.squares / n - mean * mean) / (mean * mean) * n / (n - 1.0);
        (n >= 5.0 && squared.is_finite()).then(|| squared.max(0.0))
    }

    /// Units per second by counting: right also where those sent in the round end shortest first, but bursts fall into it or not.
    pub fn counted(&self) -> f64 {
        self.ended_units / (self.until.since(self.began).as_secs_f64() - self.idle_s).max(0.0)
    }

    /// What those still at the origin have taken so far, in seconds,
    /// times how much of it counts.
    pub fn censored_s(&self) -> f64 {
        let open = (self.exposure_s - self.response_s).clamp(0.0, self.response_s);
        open * self.variation().unwrap_or(0.0).min(1.0)
    }
}
