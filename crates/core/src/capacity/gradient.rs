//! Gradient: Envoy's adaptive concurrency. The limit follows the ratio of an unloaded response time, which is
//! measured deliberately, to the present one.
//!
//! ```text
//! every 60 s (+ up to 10 %), and at the start:  L ← 3, until 50 requests sent since then have ended;
//!                                               R0 = their 90th percentile;  L ← its former value
//! every 100 ms otherwise:   R = 90th percentile of the requests that ended;   g = clamp(1.25 R0/R, 0.5, 2)
//!                           L ← ⌊g L + √(g L)⌋, within 3..1000
//! L = 3 five times in a row: R0 is measured anew at once
//! ```
//!
//! Source: `GradientController` of Envoy's adaptive_concurrency filter (commit 054694f), with the parameters
//! of the example in its documentation; the defaults of its code are the median and 15 %. Requests count
//! whatever their status, as there. The jitter is random there and a fixed sequence here; percentiles come
//! from a histogram there and are exact here. The reason for the deliberate measurement: a minimum under load
//! contains the queue, as Vegas shows.
//!
//! Limits: with 3 in flight a service of many workers stands nearly idle for as long as 50 requests take,
//! once a minute. The headroom √L keeps a queue wherever g is 1, and g stays 1 until the response time is
//! 1.25 R0, so response time is given away. Five samples of a window have no 90th percentile, so R jumps
//! where requests are few. Fast failures look like a fast origin.

use std::time::Duration;

use super::throughput::{MAX_SAMPLES, Throughput, jitter, repeats, take_percentile};
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// Consecutive updates at the least limit after which the unloaded response time is measured anew.
const DOUBTED: u32 = 5;

/// Parameters of [`Gradient`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GradientConfig {
    /// Least requests in flight, and the limit while the unloaded response time is measured.
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Time between two measurements of the unloaded response time.
    pub min_rtt_interval: Duration,
    /// Most that is added to the interval, as a share of it, 0 to 1.
    pub jitter: f64,
    pub min_rtt_requests: u32,
    /// Share by which the response time may exceed the unloaded one.
    pub buffer: f64,
    /// Quantile of response times that is compared, 0 to 1.
    pub percentile: f64,
    pub update_interval: Duration,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self {
            min_in_flight: 3,
            max_in_flight: 1000,
            min_rtt_interval: Duration::from_secs(60),
            jitter: 0.1,
            min_rtt_requests: 50,
            buffer: 0.25,
            percentile: 0.9,
            update_interval: Duration::from_millis(100),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Window {
    /// Nothing; the first tick begins a measurement.
    Unstarted,
    /// The unloaded response time, with requests sent since `from`. Afterwards the limit is `deferred` again.
    Unloaded { from: Timestamp, deferred: u32 },
    /// The present response time. The limit changes at `next`, and a measurement begins at `measure`.
    Loaded { next: Timestamp, measure: Timestamp },
}

/// The estimator `gradient`: the limit follows the unloaded over the present response time.
#[derive(Clone, Debug)]
pub struct Gradient {
    config: GradientConfig,
    window: Window,
    limit: u32,
    responses_us: Vec<u64>,
    unloaded_us: u64,
    loaded_us: u64,
    /// Only requests sent since then count.
    epoch: Timestamp,
    at_least: u32,
    measurements: u32,
    ticked: Timestamp,
    throughput: Throughput,
}

impl Gradient {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: GradientConfig, start: Option<Rate>) -> Self {
        Self {
            config,
            window: Window::Unstarted,
            limit: config.min_in_flight.max(1),
            responses_us: Vec::new(),
            unloaded_us: 0,
            loaded_us: 0,
            epoch: Timestamp::default(),
            at_least: 0,
            measurements: 0,
            ticked: Timestamp::default(),
            throughput: Throughput::new(start),
        }
    }

    /// The configured percentile of the window in microseconds, at least one. Empties the window.
    fn take_percentile(&mut self) -> Option<u64> {
        take_percentile(&mut self.responses_us, self.config.percentile)
    }

    fn begin_measurement(&mut self, now: Timestamp) {
        self.window = Window::Unloaded { from: now, deferred: self.limit };
        self.limit = self.config.min_in_flight.max(1);
        self.at_least = 0;
        self.responses_us.clear();
        self.epoch = now;
    }

    fn end_measurement(&mut self, deferred: u32, now: Timestamp) {
        if let Some(unloaded_us) = self.take_percentile() {
            self.unloaded_us = unloaded_us;
        }
        let interval = self.config.min_rtt_interval;
        let share = 1.0 + self.config.jitter.clamp(0.0, 1.0) * jitter(self.measurements);
        self.measurements = self.measurements.wrapping_add(1);
        let measure = now + interval.mul_f64(share);
        self.window = Window::Loaded { next: now + self.config.update_interval, measure };
        self.limit = deferred;
        self.at_least = 0;
    }

    fn set_limit(&mut self, limit: u32) {
        let least = self.config.min_in_flight.max(1);
        let stays_least = self.limit == least && limit == least;
        self.at_least = if stays_least { self.at_least + 1 } else { 0 };
        self.limit = limit;
    }

    fn update(&mut self) {
        let Some(loaded_us) = self.take_percentile() else { return };
        self.loaded_us = loaded_us;
        let buffered = self.unloaded_us as f64 * (1.0 + self.config.buffer);
        let gradient = (buffered / loaded_us as f64).clamp(0.5, 2.0);
        let limit = f64::from(self.limit) * gradient;
        let limit = (limit + limit.sqrt()) as u32;
        self.set_limit(limit.min(self.config.max_in_flight).max(self.config.min_in_flight).max(1));
    }
}

impl Estimator for Gradient {
    fn observe(&mut self, sample: &Sample) {
        self.throughput.observe(sample);
        if sample.ended.saturating_sub(sample.response) < self.epoch || self.window == Window::Unstarted {
            return;
        }
        let us = u64::try_from(sample.response.as_micros()).unwrap_or(u64::MAX);
        for _ in 0..repeats(sample) {
            if self.responses_us.len() < MAX_SAMPLES {
                self.responses_us.push(us);
            }
            if let Window::Unloaded { deferred, .. } = self.window
                && self.responses_us.len() >= self.config.min_rtt_requests as usize
            {
                self.end_measurement(deferred, sample.ended);
            }
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        let backwards = now < self.ticked;
        self.ticked = now;
        match self.window {
            Window::Unstarted => self.begin_measurement(now),
            // A clock that was set back by an hour must not keep the limit at 3 for that hour.
            Window::Unloaded { from, deferred } if backwards && now < from => {
                self.window = Window::Unloaded { from: now, deferred };
                self.epoch = now;
            }
            Window::Unloaded { .. } => {}
            Window::Loaded { measure, .. } if now >= measure || backwards || self.at_least >= DOUBTED => {
                self.begin_measurement(now);
            }
            Window::Loaded { next, measure } if now >= next => {
                self.update();
                self.window = Window::Loaded { next: now + self.config.update_interval, measure };
            }
            Window::Loaded { .. } => {}
        }
        self.throughput.tick(self.limit, load, now)
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.throughput.set(capacity);
    }

    fn rediscover(&mut self, now: Timestamp) {
        if !matches!(self.window, Window::Unloaded { .. }) {
            self.begin_measurement(now);
        }
        self.throughput.rediscover();
    }

    fn state(&self) -> State {
        let mut state = self.throughput.state(vec![
            ("limit", f64::from(self.limit)),
            ("unloaded_ms", self.unloaded_us as f64 / 1e3),
            ("response_ms", self.loaded_us as f64 / 1e3),
        ]);
        if matches!(self.window, Window::Unloaded { .. }) {
            state.reason = format!("measures the unloaded response time; {}", state.reason);
        }
        state
    }
}
