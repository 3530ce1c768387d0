//! Over a restart: what is kept, and how the next process begins from it.
//!
//! A *trusted* fit is in force at once. Its samples are made up anew, so that it is tested and corrected like
//! any fit; the first probes of a cruise follow within seconds. A *checked* one is where the search begins: a
//! ramp from below the former knee, within the former capacity.

use super::super::learned::{Knee, Learned, Trust};
use super::discipline::Among;
use super::fit::Hinge;
use super::initial_estimate::InitialEstimate;
use super::level;
use super::plan::{self, Purpose};
use super::work::Work;
use super::{Bottleneck, Fitted};
use crate::units::{Rate, Timestamp};

/// Levels of the samples made up, as multiples of the knee, and how many there are of each.
const LEVELS: [f64; 6] = [0.5, 0.7, 0.85, 1.0, 1.15, 1.3];
const A_LEVEL: f64 = 50.0;
/// Samples that a trusted throughput, cost and dispersion count for.
const TRUSTED: f64 = 150.0;
/// Samples that a cost counts for that is to be checked, and a mix that is soon outweighed.
const CHECKED: f64 = 4.0;

impl Bottleneck {
    /// What a fit and its throughput say; `None` before there is any.
    pub(super) fn to_keep(&self) -> Option<Learned> {
        let (hinge, units_per_s) = (self.hinge()?, self.units_per_s()?);
        let knee = Knee {
            in_flight: hinge.knee,
            base_s: hinge.base_s,
            contention: hinge.contention,
            units_per_s,
            units: self.mix.units_per_request(),
            dispersion: self.dispersion.get(),
        };
        let capacity = Rate::per_second(units_per_s * self.mix.cost_per_unit())?;
        Some(Learned { capacity, knee: Some(knee.sound()?), costs: self.costs.ratios().collect() })
    }

    pub(super) fn begin_from(&mut self, learned: &Learned, trust: Trust, now: Timestamp) {
        let capacity = learned.capacity.get();
        if trust == Trust::Forgotten || capacity <= 0.0 {
            return;
        }
        self.initial = InitialEstimate::new(Some(capacity));
        let is_trusted = trust == Trust::Trusted;
        let count = if is_trusted { TRUSTED } else { CHECKED };
        for &(class, ratio) in &learned.costs {
            self.costs.restore(class, ratio, count);
        }
        let Some(knee) = learned.knee.and_then(Knee::sound) else { return };
        if !is_trusted {
            self.reason = "begins from what was learned before the restart";
            return self.go(Purpose::Ramp, plan::DOWN * knee.in_flight, now);
        }
        let Knee { in_flight, base_s, contention, units_per_s, units, dispersion } = knee;
        let mut hinge = Hinge { base_s, knee: in_flight, contention, gain: 0.0 };
        let response_s = base_s * units;
        for level in LEVELS.map(|level| (level * in_flight).max(1.0)) {
            self.curves.add(Among::always(level), A_LEVEL, units, response_s * hinge.slowdown(level));
        }
        self.dispersion.learn(TRUSTED, dispersion);
        let phi = self.dispersion.get();
        hinge.gain = self.curves.fit(phi, false).map_or(0.0, |fit| fit.gain);
        let level = level::best(self.curves.fitted_points(), phi, &hinge, response_s);
        let cost_per_unit = capacity / units_per_s;
        self.mix.restore(TRUSTED, units, cost_per_unit);
        let served = TRUSTED * units;
        let cost = served * cost_per_unit;
        self.throughput = Work { count: TRUSTED, units: served, cost, time_s: served / units_per_s };
        self.fitted = Some(Fitted { hinge, level });
        self.reason = "as before the restart";
        self.go(Purpose::Cruise, level, now);
    }
}
