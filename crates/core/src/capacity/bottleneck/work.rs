//! Throughput at saturation: of samples ([`Work`]) and in one round ([`Round`]).
//!
//! A request that took R among n occupied 1/n of the origin for R. Summed over requests, R/n is the time that
//! passed (Little's law request by request), without the error that counting completions between two ticks
//! has when they come in bursts. Failed requests occupied the origin too: only their time counts.
//!
//! ```text
//! X = Σ units / Σ R/n
//! ```

use crate::capacity::GateLoad;
use crate::units::Timestamp;

/// Requests of which a throughput is known, or a variation.
pub(super) const ENOUGH: f64 = 8.0;

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

    /// Learned units per second; `None` before [`ENOUGH`] requests.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.units / self.time_s;
        (self.count >= ENOUGH && rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

/// One round: since the limit in force began.
///
/// Short requests end first. Right after the limit rose, those of its requests that have ended suggest too
/// short a response time. Their throughput is that of all requests that ended, whenever they were sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Round {
    pub began: Timestamp,
    pub limit: f64,
    /// Of the requests that were sent in it and have ended.
    pub work: Work,
    pub response_s: f64,
    /// Learned units of all requests that ended in it.
    pub ended_units: f64,
    /// Time with a backlog: without one, completions measure the load.
    busy_s: f64,
}

impl Round {
    pub fn new(began: Timestamp, limit: u32) -> Self {
        Self { began, limit: f64::from(limit), ..Self::default() }
    }

    /// Another `dt_s` seconds have passed.
    pub fn pass(&mut self, load: &GateLoad, dt_s: f64) {
        if load.backlog() {
            self.busy_s += dt_s;
        }
    }

    /// Learned units per second; `None` before any time with a backlog.
    pub fn units_per_s(&self) -> Option<f64> {
        (self.busy_s > 0.0).then(|| self.ended_units / self.busy_s)
    }
}
