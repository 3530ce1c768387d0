//! Additive increase, multiplicative decrease (AIMD): TCP's rule, applied to requests in flight.
//!
//! ```text
//! on a failure, or a response slower than the timeout      L ← ⌊0.9 L⌋
//! else, if at least L/2 were in flight                     L ← L + 1
//! L within 20..200
//! ```
//!
//! Source: `AIMDLimit` of Netflix's concurrency-limits (commit 78a74b9), after Chiu and Jain 1989. One step
//! per request. The reason for the rule: among several senders, only it converges to equal shares.
//!
//! Limits: it does not notice a slower origin before requests fail or take 5 s. It fills any queue that does
//! not refuse (the origin's backlog) and then oscillates between 90 % and 100 % of that. With the published
//! bounds it never goes below 20 in flight, twice what a service of ten workers can use. It cannot tell
//! refusals that it caused from errors that it did not.

use std::time::Duration;

use super::throughput::{Throughput, repeats};
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// Parameters of [`Aimd`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AimdConfig {
    pub start_in_flight: u32,
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Factor of the decrease, below 1.
    pub backoff: f64,
    /// A response that takes longer counts as a failure.
    pub timeout: Duration,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self {
            start_in_flight: 20,
            min_in_flight: 20,
            max_in_flight: 200,
            backoff: 0.9,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The estimator `aimd`: additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub struct Aimd {
    config: AimdConfig,
    limit: u32,
    throughput: Throughput,
}

impl Aimd {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: AimdConfig, start: Option<Rate>) -> Self {
        Self { config, limit: config.start_in_flight.max(1), throughput: Throughput::new(start) }
    }

    fn step(&mut self, sample: &Sample) {
        let limit = if !sample.ok || sample.response > self.config.timeout {
            (f64::from(self.limit) * self.config.backoff) as u32
        } else if u64::from(sample.in_flight) * 2 >= u64::from(self.limit) {
            self.limit.saturating_add(1)
        } else {
            self.limit
        };
        self.limit = limit.max(self.config.min_in_flight).min(self.config.max_in_flight).max(1);
    }
}

impl Estimator for Aimd {
    fn observe(&mut self, sample: &Sample) {
        self.throughput.observe(sample);
        for _ in 0..repeats(sample) {
            self.step(sample);
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        self.throughput.tick(self.limit, load, now)
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.throughput.set(capacity);
    }

    fn rediscover(&mut self, _now: Timestamp) {
        self.limit = self.config.start_in_flight.max(1);
        self.throughput.rediscover();
    }

    fn state(&self) -> State {
        self.throughput.state(vec![("limit", f64::from(self.limit))])
    }
}
