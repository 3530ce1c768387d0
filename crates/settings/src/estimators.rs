//! `[capacity.NAME]`: parameters of the estimators, a section for each algorithm. Keys and defaults are those
//! of the configurations in the core, which say where each comes from; here are the bounds within which a
//! value makes sense. A test compares the names, so a parameter added in the core cannot be missing here.

use std::time::Duration;

use tidegate_core::capacity::{
    AimdConfig, BottleneckConfig, BreakwaterConfig, CinnamonConfig, Gradient2Config, GradientConfig,
    PowerRatioConfig, VegasConfig,
};
use tidegate_core::units::Rate;

use super::kinds::quantity::{Count, HOUR, Number, span};

/// The value of a factor in a formula that switches its rule off.
const NEVER: f64 = 1e6;
/// Requests at once, as for `origin.max_in_flight`.
const MOST_IN_FLIGHT: u64 = 1_000_000;

/// Declares the sections of estimators from the bounds of their parameters.
macro_rules! parameters {
    ($(
        $(#[doc = $doc:literal])+
        $Name:ident of $Config:ty {
            $( $(#[doc = $key_doc:literal])+ $key:ident: $T:ty => $kind:expr; )*
        }
    )+) => { $(
        section! {
            $(#[doc = $doc])+
            pub struct $Name [tunable] {
                $( $(#[doc = $key_doc])+ $key: $T = <$Config>::default().$key => $kind; )*
            }
        }

        impl $Name {
            pub(crate) fn fill(&self, config: &mut $Config) {
                $( config.$key = self.$key; )*
            }
        }
    )+ };
}

parameters! {
    /// Parameters of the estimator "bottleneck".
    Bottleneck of BottleneckConfig {
        /// Least requests in flight.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Samples over which the capacity is averaged while nothing changes.
        memory: f64 => Number(100.0..=1e6);
    }

    /// Parameters of the estimator "power-ratio" (WebQ IV; those from `least_points` on are not in the
    /// paper).
    PowerRatio of PowerRatioConfig {
        /// τ: how long a load is probed.
        epoch: Duration => span(100, HOUR);
        /// c0: the first load probed, in cost units per second, where `capacity.rate` gives none.
        first_load: Rate => Number(0.01..=Rate::MAX.get());
        /// α: from one load to the next in the coarse phase, as a factor.
        growth: f64 => Number(1.01..=10.0);
        /// β: where the fine phase begins, as a share of the load that ended the coarse phase.
        backtrack: f64 => Number(0.05..=1.0);
        /// δ: step of the fine phase, as a share of the load that ended the coarse phase.
        step: f64 => Number(0.001..=1.0);
        /// N_f: epochs of the fine phase that must confirm the peak after the one that found it.
        guard_epochs: u32 => Count(0..=1000);
        /// N_s: epochs in a row with goodput close to load before the service counts as stable.
        stable_epochs: u32 => Count(0..=1000);
        /// ε: how close it must be, as a share of the goodput.
        closeness: f64 => Number(0.001..=NEVER);
        /// The capacity has changed if the power ratio is off the fit by this factor times the largest error
        /// of the fit.
        alarm_factor: f64 => Number(0.01..=NEVER);
        /// Loads that must be probed before a peak is accepted.
        least_points: usize => Count(4..=100);
        /// How far the power ratio at the greatest load must lie below the peak, as a share of the peak.
        below_peak: f64 => Number(0.0..=0.9);
        /// Response time, as a multiple of the best seen, at which the service is overloaded, if visitors
        /// wait and it serves less than the load.
        overload: f64 => Number(1.01..=NEVER);
        /// Response time, as a multiple of the best seen, at which a service that should have become stable
        /// is relieved.
        relieve: f64 => Number(1.01..=NEVER);
        /// The load while the service is relieved, as a share; applied again after every epoch that did not
        /// help.
        drain: f64 => Number(0.001..=1.0);
        /// Requests at the service, as a multiple of load times best response time, at which an epoch is
        /// aborted.
        break_off: f64 => Number(1.0..=NEVER);
        /// How far from the peak, as a share of its load, points count for the largest error.
        peak_window: f64 => Number(0.0..=NEVER);
        /// Epochs in a row off the fit, on the same side, before the capacity has changed.
        alarms: u32 => Count(1..=1000);
        /// Share of the greatest goodput so far below which a load is doubted while visitors wait, and the
        /// capacity is discovered anew; 0: never, as in the paper.
        floor: f64 => Number(0.0..=0.9);
    }

    /// Parameters of the estimator "aimd": `AIMDLimit` of Netflix's concurrency-limits.
    Aimd of AimdConfig {
        /// Requests in flight to begin with.
        start_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Factor of the decrease after a failure.
        backoff: f64 => Number(0.5..=0.99);
        /// A response that takes longer counts as a failure.
        timeout: Duration => span(1, HOUR);
    }

    /// Parameters of the estimator "vegas": `VegasLimit` of Netflix's concurrency-limits.
    Vegas of VegasConfig {
        /// Requests in flight to begin with.
        start_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Queue below which the limit grows, in multiples of log10 of the limit.
        alpha: f64 => Number(0.0..=1000.0);
        /// Queue above which it shrinks, in the same unit; also the step while there is no queue.
        beta: f64 => Number(0.0..=1000.0);
        /// Queue that counts as none, in the same unit.
        threshold: f64 => Number(0.0..=1000.0);
        /// Share of each step that is made.
        smoothing: f64 => Number(0.01..=1.0);
        /// The least response time is forgotten after up to this many times the limit requests.
        probe_multiplier: f64 => Number(1.0..=1e6);
    }

    /// Parameters of the estimator "gradient": Envoy's adaptive concurrency.
    Gradient of GradientConfig {
        /// Least requests in flight; also their number while the unloaded response time is measured.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Time between two measurements of the unloaded response time.
        min_rtt_interval: Duration => span(100, 24 * HOUR);
        /// Up to this share of the interval is added to it.
        jitter: f64 => Number(0.0..=1.0);
        /// Requests that a measurement takes.
        min_rtt_requests: u32 => Count(1..=10_000);
        /// Share by which the response time may exceed the unloaded one.
        buffer: f64 => Number(0.0..=10.0);
        /// Quantile of response times that stands for all.
        percentile: f64 => Number(0.0..=1.0);
        /// Time between two changes of the limit.
        update_interval: Duration => span(100, HOUR);
    }

    /// Parameters of the estimator "gradient2": `Gradient2Limit` of Netflix's concurrency-limits.
    Gradient2 of Gradient2Config {
        /// Requests in flight to begin with.
        start_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Requests that the baseline remembers.
        long_window: u32 => Count(1..=1_000_000);
        /// Response time over the baseline from which the limit shrinks.
        tolerance: f64 => Number(1.0..=100.0);
        /// Share of each step that is made.
        smoothing: f64 => Number(0.01..=1.0);
        /// Requests that may queue: added with every step.
        queue: f64 => Number(0.0..=10_000.0);
    }

    /// Parameters of the estimator "cinnamon": Uber's Cinnamon auto-tuner.
    Cinnamon of CinnamonConfig {
        /// Requests in flight to begin with.
        start_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Queue below which the limit grows, in multiples of log10 of the limit.
        alpha: f64 => Number(0.0..=1000.0);
        /// Queue above which it shrinks, in the same unit.
        beta: f64 => Number(0.0..=1000.0);
        /// Quantile of an interval's response times that stands for all.
        percentile: f64 => Number(0.0..=1.0);
        /// Least length of an interval; the limit changes once in each.
        interval: Duration => span(100, HOUR);
        /// Greatest length of an interval, where requests are few.
        max_interval: Duration => span(100, HOUR);
        /// Requests that end an interval of at least the least length.
        interval_requests: u32 => Count(1..=1_000_000);
        /// Intervals of whose quantiles the median is taken.
        median_of: u32 => Count(1..=1000);
        /// Weight of a new median in the smoothed response time.
        smoothing: f64 => Number(0.01..=1.0);
        /// Intervals over which the covariance of requests in flight and throughput is taken; after as many
        /// the target response time is measured anew, if the covariance is positive.
        window: u32 => Count(1..=10_000);
    }

    /// Parameters of the estimator "breakwater": the law of Breakwater (OSDI 2020) for requests in flight.
    Breakwater of BreakwaterConfig {
        /// Requests in flight to begin with.
        start_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Least requests in flight.
        min_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 => Count(1..=MOST_IN_FLIGHT);
        /// Growth a round for each request or visitor that waits or is served; at least 1 in all.
        alpha: f64 => Number(0.0..=1.0);
        /// Share that a round takes away for each time that the delay exceeds its target by the target.
        beta: f64 => Number(0.0..=1.0);
        /// Queueing delay that is aimed at, as a multiple of the least mean response time.
        target: f64 => Number(0.01..=100.0);
    }
}
