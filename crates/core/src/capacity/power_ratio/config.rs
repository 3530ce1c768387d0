//! The paper's parameters, and those for points that the paper leaves open.

use std::time::Duration;

use crate::units::Rate;

/// Parameters of [`super::PowerRatio`]; the paper's values (section IV) where it gives one. Those below the
/// line are not in the paper. Each has a value (`Literal`) that disables it, to measure its effect.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PowerRatioConfig {
    /// τ: how long a load is probed. At least a tick.
    pub epoch: Duration,
    /// c0: the first load probed, cost units per second. Should be well below the capacity.
    pub first_load: Rate,
    /// α: from one load to the next in the coarse phase, as a factor above 1.
    pub growth: f64,
    /// β: where the fine phase begins, as a share of the load that ended the coarse phase; in 0..1.
    pub backtrack: f64,
    /// δ: step of the fine phase, as a share of the load that ended the coarse phase; in 0..1.
    pub step: f64,
    /// N_f: epochs of the fine phase after the first that saw the peak, each of which must see it too.
    pub guard_epochs: u32,
    /// N_s: consecutive epochs with the goodput close to the load before the service counts as stable.
    pub stable_epochs: u32,
    /// ε: the goodput g is close to the load c if |g - c| / g is less than this.
    pub closeness: f64,
    /// The capacity has changed if the power ratio is off the fit by so many times the fit's largest error.
    pub alarm_factor: f64,

    // ---- not in the paper ----
    /// Loads probed before a peak counts. Literal: 4, the minimum for a cubic.
    pub least_points: usize,
    /// How far the power ratio at the greatest load must lie below the peak, as a share of it. Literal: 0.
    pub below_peak: f64,
    /// Response time, as a multiple of the best seen, at which the service is overloaded, if visitors wait
    /// and it serves less than the load. Literal: infinite.
    pub overload: f64,
    /// Multiple of the best response time at which an unstable service is relieved. Literal: infinite.
    pub relieve: f64,
    /// The load during relief, as a share; applied again after every epoch that did not help. In 0.001..=1.
    pub drain: f64,
    /// Requests at the service that break off an epoch, over load times best response. Literal: infinite.
    pub break_off: f64,
    /// How far from the peak, as a share of its load, points count for the largest error. Literal: infinite.
    pub peak_window: f64,
    /// Consecutive epochs off the fit, on the same side, before the capacity has changed. Literal: 1.
    pub alarms: u32,
    /// A load below this share of the greatest goodput so far is doubted. Literal: 0.
    pub floor: f64,
}

impl Default for PowerRatioConfig {
    fn default() -> Self {
        Self {
            epoch: Duration::from_secs(8),
            first_load: Rate::per_second(15.0).unwrap_or_default(),
            growth: 1.15,
            backtrack: 0.8,
            step: 0.02,
            guard_epochs: 7,
            stable_epochs: 2,
            closeness: 0.1,
            alarm_factor: 2.0,
            least_points: 6,
            below_peak: 0.1,
            overload: 1.5,
            relieve: 2.0,
            drain: 0.1,
            break_off: 10.0,
            peak_window: 0.2,
            alarms: 2,
            floor: 0.3,
        }
    }
}

impl PowerRatioConfig {
    /// Clamps all parameters so that the algorithm progresses and terminates; NaN becomes the default.
    #[must_use]
    pub fn sane(self) -> Self {
        let usual = Self::default();
        let within = |given: f64, usual: f64, least: f64, most: f64| {
            if given.is_nan() { usual } else { given.clamp(least, most) }
        };
        let least_load = Rate::per_second(0.01).unwrap_or_default();
        Self {
            epoch: self.epoch.clamp(Duration::from_millis(100), Duration::from_secs(3600)),
            first_load: if self.first_load > least_load { self.first_load } else { least_load },
            growth: within(self.growth, usual.growth, 1.01, 10.0),
            backtrack: within(self.backtrack, usual.backtrack, 0.05, 1.0),
            step: within(self.step, usual.step, 0.001, 1.0),
            guard_epochs: self.guard_epochs.min(1000),
            stable_epochs: self.stable_epochs.min(1000),
            closeness: within(self.closeness, usual.closeness, 0.001, f64::INFINITY),
            alarm_factor: within(self.alarm_factor, usual.alarm_factor, 0.0, f64::INFINITY),
            least_points: self.least_points.clamp(4, 100),
            below_peak: within(self.below_peak, usual.below_peak, 0.0, 0.9),
            overload: within(self.overload, usual.overload, 1.01, f64::INFINITY),
            relieve: within(self.relieve, usual.relieve, 1.01, f64::INFINITY),
            drain: within(self.drain, usual.drain, 0.001, 1.0),
            break_off: within(self.break_off, usual.break_off, 1.0, f64::INFINITY),
            peak_window: within(self.peak_window, usual.peak_window, 0.0, f64::INFINITY),
            alarms: self.alarms.max(1),
            floor: within(self.floor, usual.floor, 0.0, 0.9),
        }
    }
}
