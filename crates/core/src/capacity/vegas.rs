//! Vegas: the limit leaves a few requests queued at the origin, inferred from the response over the least.
//!
//! ```text
//! q = ⌈L (1 − R0/R)⌉         l = max(1, ⌊log10 L⌋)        R0: the least response time since the last probe
//! failure      L ← L − l
//! q <= l       L ← L + 6 l      (no queue)
//! q <  3 l     L ← L + l
//! q >  6 l     L ← L − l
//! ```
//! Nothing is done while fewer than L/2 are in flight; each step is smoothed (factor 1: not at all); L within
//! 1..1000. After every 30 · L · (0.5 to 1) requests R0 is forgotten and becomes the next response time.
//!
//! Source: `VegasLimit` of Netflix's concurrency-limits (commit 78a74b9), after Brakmo and Peterson 1994. One
//! step per request. The jitter is random there and a fixed sequence here; a response time of zero is an
//! error there and skipped here. The reason for q: a small queue keeps the bottleneck busy with little delay.
//!
//! Limits: R0 is one sample, so it cannot be distinguished from a lucky fast response. With variable service
//! it is far below the mean, and L follows it down; or, taken from a slow response at a probe, far above, and
//! L rises without bound until the next. Probed while a queue stands, R0 contains the queue and creeps up. A
//! failure that returns fast becomes R0.

use super::throughput::{Throughput, jitter, repeats};
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// Parameters of [`Vegas`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VegasConfig {
    pub start_in_flight: u32,
    pub max_in_flight: u32,
    /// Queue below which the limit grows, in multiples of log10 of the limit.
    pub alpha: f64,
    /// Queue above which the limit shrinks, in the same unit; also the step while there is no queue.
    pub beta: f64,
    /// Queue that counts as none, in the same unit.
    pub threshold: f64,
    /// Share of each step that is taken, 0 to 1.
    pub smoothing: f64,
    /// The least response time is forgotten after at most so many requests, as a multiple of the limit.
    pub probe_multiplier: f64,
}

impl Default for VegasConfig {
    fn default() -> Self {
        Self {
            start_in_flight: 20,
            max_in_flight: 1000,
            alpha: 3.0,
            beta: 6.0,
            threshold: 1.0,
            smoothing: 1.0,
            probe_multiplier: 30.0,
        }
    }
}

/// The estimator `vegas`: the limit follows an inferred queue at the origin.
#[derive(Clone, Debug)]
pub struct Vegas {
    config: VegasConfig,
    limit: f64,
    /// R0 in seconds; `None` before the first response.
    unloaded_s: Option<f64>,
    since_probe: u64,
    probes: u32,
    throughput: Throughput,
}

impl Vegas {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: VegasConfig, start: Option<Rate>) -> Self {
        Self {
            config,
            limit: f64::from(config.start_in_flight.max(1)),
            unloaded_s: None,
            since_probe: 0,
            probes: 0,
            throughput: Throughput::new(start),
        }
    }

    fn step(&mut self, sample: &Sample) {
        let response_s = sample.response.as_secs_f64();
        if response_s <= 0.0 {
            return;
        }
        self.since_probe += 1;
        let probe_after = (0.5 + 0.5 * jitter(self.probes)) * self.config.probe_multiplier * self.limit;
        if self.since_probe as f64 >= probe_after {
            self.probes = self.probes.wrapping_add(1);
            self.since_probe = 0;
            self.unloaded_s = Some(response_s);
            return;
        }
        match self.unloaded_s {
            Some(unloaded_s) if response_s >= unloaded_s => self.follow(sample, unloaded_s / response_s),
            _ => self.unloaded_s = Some(response_s),
        }
    }

    /// One step; `ratio` is R0/R.
    fn follow(&mut self, sample: &Sample, ratio: f64) {
        let (config, limit) = (&self.config, self.limit);
        let queue = (limit * (1.0 - ratio)).ceil();
        let log = limit.floor().max(1.0).log10().floor().max(1.0);
        let wanted = if !sample.ok {
            limit - log
        } else if f64::from(sample.in_flight) * 2.0 < limit {
            return;
        } else if queue <= config.threshold * log {
            limit + config.beta * log
        } else if queue < config.alpha * log {
            limit + log
        } else if queue > config.beta * log {
            limit - log
        } else {
            return;
        };
        let wanted = wanted.min(f64::from(config.max_in_flight)).max(1.0);
        self.limit = ((1.0 - config.smoothing) * limit + config.smoothing * wanted).max(1.0);
    }
}

impl Estimator for Vegas {
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
        self.unloaded_s = None;
        self.since_probe = 0;
        self.throughput.rediscover();
    }

    fn state(&self) -> State {
        let unloaded_ms = self.unloaded_s.unwrap_or(0.0) * 1e3;
        self.throughput.state(vec![("limit", self.limit), ("unloaded_ms", unloaded_ms)])
    }
}
