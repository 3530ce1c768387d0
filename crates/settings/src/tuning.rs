//! Parameters of the estimators: one section per algorithm, its defaults the algorithm's own.
//!
//! Key for key the core's `XConfig`s, which say where each comes from; here are the bounds within which a value makes sense.
//! A test compares the names, so that a parameter added there is missed here.

use std::time::Duration;

use tidegate_core::capacity::{BottleneckConfig, Options, PowerRatioConfig};
use tidegate_core::units::Rate;

use super::declare::{Block, Key, Kind, Section, Tune, join};
use super::kinds::quantity::{Count, Number, span};
use super::read::Reader;
use super::sections::Capacity;
use super::tree::{Node, Table};

pub(crate) const HOUR_MS: u64 = 3_600_000;
/// Where a formula means "infinite": it switches a rule off.
const NEVER: f64 = 1e6;
/// Requests at once, as `origin.max_in_flight` has them.
pub(crate) const MOST_IN_FLIGHT: u64 = 1_000_000;

fn bottleneck() -> BottleneckConfig {
    BottleneckConfig::default()
}

fn power_ratio() -> PowerRatioConfig {
    PowerRatioConfig::default()
}

/// Puts the configured parameters into what the core's estimators are made with.
pub(crate) fn fill(capacity: &Capacity, options: &mut Options) {
    capacity.bottleneck.fill(&mut options.bottleneck);
    capacity.power_ratio.fill(&mut options.power_ratio);
}

section! {
    /// Parameters of the estimator "bottleneck".
    pub struct Bottleneck {
        /// Least requests in flight.
        min_in_flight: u32 = bottleneck().min_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Most requests in flight.
        max_in_flight: u32 = bottleneck().max_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Requests in flight to begin with.
        start_in_flight: u32 = bottleneck().start_in_flight => Count(1..=MOST_IN_FLIGHT);
        /// Samples over which the capacity is averaged while nothing changes, at a dispersion of 1 (exponential service).
        memory: f64 = bottleneck().memory => Number(100.0..=1e6);
    }
}

impl Bottleneck {
    fn fill(&self, config: &mut BottleneckConfig) {
        config.min_in_flight = self.min_in_flight;
        config.max_in_flight = self.max_in_flight;
        config.start_in_flight = self.start_in_flight;
        config.memory = self.memory;
    }
}

section! {
    /// Parameters of the estimator "power-ratio" (WebQ IV; from `least_points` on, what the paper leaves open).
    pub struct PowerRatio {
        /// τ: how long a load is probed.
        epoch: Duration = power_ratio().epoch => span(100, HOUR_MS);
        /// c0: the first load probed, in cost units per second, where `capacity.rate` gives none.
        first_load: f64 = power_ratio().first_load.get() => Number(0.01..=Rate::MAX.get());
        /// α: from one load to the next in the coarse phase, as a factor.
        growth: f64 = power_ratio().growth => Number(1.01..=10.0);
        /// β: where the fine phase begins, as a share of the load that ended the coarse phase.
        backtrack: f64 = power_ratio().backtrack => Number(0.05..=1.0);
        /// δ: step of the fine phase, as a share of the load that ended the coarse phase.
        step: f64 = power_ratio().step => Number(0.001..=1.0);
        /// N_f: epochs of the fine phase after the one that saw the peak, each of which must see it too.
        guard_epochs: u32 = power_ratio().guard_epochs => Count(0..=1000);
        /// N_s: epochs in a row with the goodput close to the load before the service counts as stable.
        stable_epochs: u32 = power_ratio().stable_epochs => Count(0..=1000);
        /// ε: how close, as a share of the goodput.
        closeness: f64 = power_ratio().closeness => Number(0.001..=NEVER);
        /// The capacity has changed if the power ratio is off the fit by this factor times the largest error of the fit.
        alarm_factor: f64 = power_ratio().alarm_factor => Number(0.01..=NEVER);
        /// Loads to be probed before a peak is believed.
        least_points: usize = power_ratio().least_points => Count(4..=100);
        /// How far the power ratio at the greatest load must lie below the peak, as a share of the peak.
        below_peak: f64 = power_ratio().below_peak => Number(0.0..=0.9);
        /// Response time, as a multiple of the best seen, at which the service is overloaded, if visitors wait and it serves
        /// less than the load.
        overload: f64 = power_ratio().overload => Number(1.01..=NEVER);
        /// Response time, as a multiple of the best seen, at which a service that should have become stable is relieved.
        relieve: f64 = power_ratio().relieve => Number(1.01..=NEVER);
        /// The load while the service is relieved, as a share; again for every epoch that did not help.
        drain: f64 = power_ratio().drain => Number(0.001..=1.0);
        /// Requests at the service, as a multiple of load times best response time, at which an epoch is broken off.
        break_off: f64 = power_ratio().break_off => Number(1.0..=NEVER);
        /// How far from the peak, as a share of its load, points count for the largest error.
        peak_window: f64 = power_ratio().peak_window => Number(0.0..=NEVER);
        /// Epochs in a row off the fit, on the same side, before the capacity has changed.
        alarms: u32 = power_ratio().alarms => Count(1..=1000);
    }
}

impl PowerRatio {
    fn fill(&self, config: &mut PowerRatioConfig) {
        config.epoch = self.epoch;
        config.first_load = Rate::per_second(self.first_load).unwrap_or_default();
        config.growth = self.growth;
        config.backtrack = self.backtrack;
        config.step = self.step;
        config.guard_epochs = self.guard_epochs;
        config.stable_epochs = self.stable_epochs;
        config.closeness = self.closeness;
        config.alarm_factor = self.alarm_factor;
        config.least_points = self.least_points;
        config.below_peak = self.below_peak;
        config.overload = self.overload;
        config.relieve = self.relieve;
        config.drain = self.drain;
        config.break_off = self.break_off;
        config.peak_window = self.peak_window;
        config.alarms = self.alarms;
    }
}
