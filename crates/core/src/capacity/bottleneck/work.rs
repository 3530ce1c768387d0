//! Throughput at saturation: of samples ([`Work`]) and in one round ([`Round`]).
//!
//! A request that took R among n occupied 1/n of the origin for R. Summed over requests, R/n is the time that
//! passed (Little's law request by request), without the error that counting completions between two ticks
//! has when they come in bursts. Failed requests occupied the origin too: only their time counts.
//!
//! ```text
//! X = Σ units / Σ R/n
//! ```

use super::occupancy::FULL;
use crate::capacity::GateLoad;
use crate::units::Timestamp;

#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Work {
    pub count: f64,
    /// Work in learned cost units.
    pub units: f64,
    /// Work in configured cost units.
    pub cost: f64,
    /// Sum of R/n, in seconds.
    pub time_s: f64,
}

impl Work {
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.units += other.units;
        self.cost += other.cost;
        self.time_s += other.time_s;
    }

    pub fn scale(&mut self, factor: f64) {
        self.count *= factor;
        self.units *= factor;
        self.cost *= factor;
        self.time_s *= factor;
    }

    /// Keeps the work of at most so many requests; older work fades.
    pub fn fade(&mut self, most: f64) {
        if self.count > most {
            self.scale(most / self.count);
        }
    }

    /// Learned units per second; `None` before any work.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.units / self.time_s;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

/// One round: the requests that were sent since the limit in force began.
///
/// Short requests end first. Right after the limit rose, those that have ended suggest too short a response
/// time, by far where service varies and everybody is served at once (processor sharing). Two estimates:
///
/// ```text
/// by request   R = (Σ R of the ended + v · Σ time of the open) / ended    v = min(1, squared variation)
/// by count     X = all that ended / time passed
/// ```
///
/// The first is the maximum-likelihood mean under censoring for exponential response times (v = 1), and the
/// plain mean for constant ones (v = 0). The second does not depend on which requests end first, but on
/// whether a burst falls into the round. Where an error is costly, both are used.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Round {
    pub began: Timestamp,
    pub limit: f64,
    pub work: Work,
    /// Learned units of all requests that ended, whenever they were sent.
    pub ended_units: f64,
    pub response_s: f64,
    /// Sum of squared response times per unit.
    pub squares: f64,
    /// Requests in flight that were sent before the round.
    pub old: f64,
    /// What requests sent in the round have spent at the origin, ended or not.
    pub exposure_s: f64,
    until: Timestamp,
    /// Time without a backlog, in which completions measure the load.
    pub idle_s: f64,
}

impl Round {
    pub fn new(began: Timestamp, limit: u32, in_flight: f64) -> Self {
        let (limit, old) = (f64::from(limit), in_flight);
        Self { began, limit, old, until: began, ..Self::default() }
    }

    /// Time passes. With a backlog all slots are taken: some by old requests, the rest by new ones.
    pub fn pass(&mut self, until: Timestamp) {
        let passed = until.since(self.until).as_secs_f64();
        self.until = self.until.max(until);
        self.exposure_s += passed * (self.limit - self.old).max(0.0);
    }

    /// The gate at the end of a tick. Slots that are free though visitors wait, as those that wait for a
    /// session slot do, hold no open requests.
    pub fn tick(&mut self, load: &GateLoad, dt_s: f64, now: Timestamp) {
        let in_flight = f64::from(load.in_flight);
        if !load.backlog() {
            self.idle_s += dt_s;
        } else if now.saturating_sub(load.age) <= self.began {
            // Another process has not reported this round yet.
        } else if in_flight < FULL * self.limit {
            self.exposure_s -= dt_s * (self.limit - in_flight.max(self.old));
        }
    }

    /// Squared coefficient of variation of the response times.
    pub fn variation(&self) -> Option<f64> {
        let n = self.work.count;
        let mean = self.response_s / self.work.units;
        let squared = (self.squares / n - mean * mean) / (mean * mean) * n / (n - 1.0);
        (n >= 5.0 && squared.is_finite()).then(|| squared.max(0.0))
    }

    pub fn counted(&self) -> f64 {
        self.ended_units / (self.until.since(self.began).as_secs_f64() - self.idle_s).max(0.0)
    }

    /// Seconds that the requests of the round which have not ended have been open, in all.
    pub fn open_s(&self) -> f64 {
        (self.exposure_s - self.response_s).max(0.0)
    }

    /// Seconds that open requests add to the response times of those that ended.
    pub fn censored_s(&self) -> f64 {
        self.open_s().min(self.response_s) * self.variation().unwrap_or(0.0).min(1.0)
    }
}
