//! Gradient2: the limit shrinks in proportion to the present response time over the mean of hundreds.
//!
//! ```text
//! R̄ ← R̄ + 2/(600+1) (R − R̄)         the first ten: their mean;  if R̄ > 2 R: R̄ ← 0.95 R̄
//! g = clamp(1.5 R̄/R, 0.5, 1)
//! L ← 0.8 L + 0.2 (g L + 4)           unless fewer than L/2 are in flight;  L within 20..200
//! ```
//!
//! Source: `Gradient2Limit` of Netflix's concurrency-limits (commit 78a74b9). One step per request. The
//! moving baseline needs no measurement of an unloaded response time, unlike Vegas and Gradient.
//!
//! Limits: the baseline R̄ is the mean under the limit's own load, so a queue that grows slowly becomes the
//! baseline, and L grows until a request takes 1.5 times the mean: with service of little variation up to the
//! upper bound. Failures are no signal; timeouts count like any response. It never goes below 20 in flight.

use super::throughput::{Throughput, repeats};
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// The baseline starts as the plain mean of so many requests.
const WARM_UP: u32 = 10;
/// Least response time in seconds: the resolution of the clock.
const LEAST_S: f64 = 1e-6;

/// Parameters of [`Gradient2`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gradient2Config {
    pub start_in_flight: u32,
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Requests over which the baseline is averaged.
    pub long_window: u32,
    /// Response time, as a multiple of the baseline, above which the limit shrinks.
    pub tolerance: f64,
    /// Share of each step that is taken, 0 to 1.
    pub smoothing: f64,
    /// Requests that may queue: added in every step.
    pub queue: f64,
}

impl Default for Gradient2Config {
    fn default() -> Self {
        Self {
            start_in_flight: 20,
            min_in_flight: 20,
            max_in_flight: 200,
            long_window: 600,
            tolerance: 1.5,
            smoothing: 0.2,
            queue: 4.0,
        }
    }
}

/// The estimator `gradient2`: the limit follows the response time over a long mean of it.
#[derive(Clone, Debug)]
pub struct Gradient2 {
    config: Gradient2Config,
    limit: f64,
    long_s: f64,
    short_s: f64,
    /// Requests in the baseline, up to [`WARM_UP`].
    warm: u32,
    throughput: Throughput,
}

impl Gradient2 {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: Gradient2Config, start: Option<Rate>) -> Self {
        let limit = f64::from(config.start_in_flight.max(1));
        Self { config, limit, long_s: 0.0, short_s: 0.0, warm: 0, throughput: Throughput::new(start) }
    }

    fn step(&mut self, sample: &Sample) {
        let config = &self.config;
        let short_s = sample.response.as_secs_f64().max(LEAST_S);
        if self.warm < WARM_UP {
            self.warm += 1;
            self.long_s += (short_s - self.long_s) / f64::from(self.warm);
        } else {
            self.long_s += (short_s - self.long_s) * 2.0 / (f64::from(config.long_window) + 1.0);
        }
        self.short_s = short_s;
        let long_s = self.long_s;
        if long_s / short_s > 2.0 {
            // After a long overload the baseline is led back, from the next step on.
            self.long_s *= 0.95;
        }
        if f64::from(sample.in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (config.tolerance * long_s / short_s).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + config.queue;
        let limit = self.limit * (1.0 - config.smoothing) + wanted * config.smoothing;
        let (least, most) = (f64::from(config.min_in_flight.max(1)), f64::from(config.max_in_flight.max(1)));
        self.limit = limit.min(most).max(least);
    }
}

impl Estimator for Gradient2 {
    fn observe(&mut self, sample: &Sample) {
        self.throughput.observe(sample);
        for _ in 0..repeats(sample) {
            self.step(sample);
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        self.throughput.tick(self.limit as u32, load, now)
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.throughput.set(capacity);
    }

    fn rediscover(&mut self, _now: Timestamp) {
        self.limit = f64::from(self.config.start_in_flight.max(1));
        (self.long_s, self.warm) = (0.0, 0);
        self.throughput.rediscover();
    }

    fn state(&self) -> State {
        let figures =
            vec![("limit", self.limit), ("long_ms", self.long_s * 1e3), ("short_ms", self.short_s * 1e3)];
        self.throughput.state(figures)
    }
}
