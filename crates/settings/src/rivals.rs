//! Parameters of the published laws: one section per algorithm, its defaults the source's. As [`super::tuning`] has them for our own.

use std::time::Duration;

use tidegate_core::capacity::{AimdConfig, Gradient2Config, GradientConfig, Options, VegasConfig};

use super::declare::{Block, Key, Kind, Section, Tune, join};
use super::kinds::quantity::{Count, Number, span};
use super::read::Reader;
use super::sections::Capacity;
use super::tree::{Node, Table};
use super::tuning::{HOUR_MS, MOST_IN_FLIGHT};

fn aimd() -> AimdConfig {
    AimdConfig::default()
}

fn vegas() -> VegasConfig {
    VegasConfig::default()
}

fn gradient() -> GradientConfig {
    GradientConfig::default()
}

fn gradient2() -> Gradient2Config {
    Gradient2Config::default()
}

/// Puts the configured parameters into what the core's estimators are made with.
pub(crate) fn fill(capacity: &Capacity, options: &mut Options) {
    capacity.aimd.fill(&mut options.aimd);
    capacity.vegas.fill(&mut options.vegas);
    capacity.gradient.fill(&mut options.gradient);
    capacity.gradient2.fill(&mut options.gradient2);
}

section! {
    /// Parameters of the estimator "aimd": `AIMDLimit` of Netflix's concurrency-limits.
    pub struct Aimd {
        /// Requests in flight to begin with.
        start_in_flight: u32 = aimd().start_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 = aimd().min_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 = aimd().max_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Factor of the decrease after a failure.
        backoff: f64 = aimd().backoff => Number(0.5..=0.99);
        /// A response that takes longer counts as a failure.
        timeout: Duration = aimd().timeout => span(1, HOUR_MS);
    }
}

impl Aimd {
    fn fill(&self, config: &mut AimdConfig) {
        config.start_in_flight = self.start_in_flight;
        config.min_in_flight = self.min_in_flight;
        config.max_in_flight = self.max_in_flight;
        config.backoff = self.backoff;
        config.timeout = self.timeout;
    }
}

section! {
    /// Parameters of the estimator "vegas": `VegasLimit` of Netflix's concurrency-limits.
    pub struct Vegas {
        /// Requests in flight to begin with.
        start_in_flight: u32 = vegas().start_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 = vegas().max_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Queue below which the limit grows, in multiples of log10 of the limit.
        alpha: f64 = vegas().alpha => Number(0.0..=1000.0);
        /// Queue above which it shrinks, in the same; also the step while there is no queue.
        beta: f64 = vegas().beta => Number(0.0..=1000.0);
        /// Queue that counts as none, in the same.
        threshold: f64 = vegas().threshold => Number(0.0..=1000.0);
        /// Share of each step that is made.
        smoothing: f64 = vegas().smoothing => Number(0.01..=1.0);
        /// The least response time is forgotten after up to this many times the limit requests.
        probe_multiplier: f64 = vegas().probe_multiplier => Number(1.0..=1e6);
    }
}

impl Vegas {
    fn fill(&self, config: &mut VegasConfig) {
        config.start_in_flight = self.start_in_flight;
        config.max_in_flight = self.max_in_flight;
        config.alpha = self.alpha;
        config.beta = self.beta;
        config.threshold = self.threshold;
        config.smoothing = self.smoothing;
        config.probe_multiplier = self.probe_multiplier;
    }
}

section! {
    /// Parameters of the estimator "gradient": Envoy's adaptive concurrency.
    pub struct Gradient {
        /// Least requests in flight, and how many while the unloaded response time is measured.
        min_in_flight: u32 = gradient().min_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 = gradient().max_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Between two measurements of the unloaded response time.
        min_rtt_interval: Duration = gradient().min_rtt_interval => span(100, 24 * HOUR_MS);
        /// Up to this share of the interval is added to it.
        jitter: f64 = gradient().jitter => Number(0.0..=1.0);
        /// Requests that a measurement takes.
        min_rtt_requests: u32 = gradient().min_rtt_requests => Count(1..=10_000);
        /// Share by which the response time may exceed the unloaded one.
        buffer: f64 = gradient().buffer => Number(0.0..=10.0);
        /// Quantile of response times that stands for all.
        percentile: f64 = gradient().percentile => Number(0.0..=1.0);
        /// Between two changes of the limit.
        update_interval: Duration = gradient().update_interval => span(100, HOUR_MS);
    }
}

impl Gradient {
    fn fill(&self, config: &mut GradientConfig) {
        config.min_in_flight = self.min_in_flight;
        config.max_in_flight = self.max_in_flight;
        config.min_rtt_interval = self.min_rtt_interval;
        config.jitter = self.jitter;
        config.min_rtt_requests = self.min_rtt_requests;
        config.buffer = self.buffer;
        config.percentile = self.percentile;
        config.update_interval = self.update_interval;
    }
}

section! {
    /// Parameters of the estimator "gradient2": `Gradient2Limit` of Netflix's concurrency-limits.
    pub struct Gradient2 {
        /// Requests in flight to begin with.
        start_in_flight: u32 = gradient2().start_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 = gradient2().min_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 = gradient2().max_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Requests that the baseline remembers.
        long_window: u32 = gradient2().long_window => Count(1..=1_000_000);
        /// Response time over the baseline from which the limit shrinks.
        tolerance: f64 = gradient2().tolerance => Number(1.0..=100.0);
        /// Share of each step that is made.
        smoothing: f64 = gradient2().smoothing => Number(0.01..=1.0);
        /// Requests that may queue: added with every step.
        queue: f64 = gradient2().queue => Number(0.0..=10_000.0);
    }
}

impl Gradient2 {
    fn fill(&self, config: &mut Gradient2Config) {
        config.start_in_flight = self.start_in_flight;
        config.min_in_flight = self.min_in_flight;
        config.max_in_flight = self.max_in_flight;
        config.long_window = self.long_window;
        config.tolerance = self.tolerance;
        config.smoothing = self.smoothing;
        config.queue = self.queue;
    }
}
