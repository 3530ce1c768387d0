//! Bypass traffic: work let in without a slot of the schedule (sessions, classes that never wait).
//!
//! It takes of the capacity that the schedule counts on, so the virtual clock and the waits are computed with
//! what it leaves. Its rate is a decaying sum of work over the equally decaying sum of time.

use crate::decaying::{DecayingRatio, keep};
use crate::sync::{Atomic, AtomicF64};
use crate::units::{Cost, Rate};

/// In seconds: sessions come and go over minutes.
const MEMORY_S: f64 = 10.0;
/// Not over less than a second: two requests in the first tick are no rate.
const MIN_OVER_S: f64 = 1.0;
/// The schedule is left at least one part in so many, so that waits are finite.
const MIN_LEFT: f64 = 10.0;

/// Counts bypass traffic, and publishes how much of it comes.
#[derive(Default)]
pub(super) struct Bypass {
    admitted: Atomic<Cost>,
    per_s: AtomicF64,
}

impl Bypass {
    pub(super) fn count(&self, cost: Cost) {
        self.admitted.add(cost);
    }

    pub(super) fn per_s(&self) -> f64 {
        self.per_s.load()
    }

    /// Cost units per second of `rate` that are left to the schedule.
    pub(super) fn left_of(&self, rate: Rate) -> f64 {
        let rate = rate.get();
        (rate - self.per_s()).max(rate / MIN_LEFT)
    }
}

/// The tick's part: averages what was counted.
#[derive(Default)]
pub(super) struct BypassMeter {
    seen: Cost,
    recent: DecayingRatio,
}

impl BypassMeter {
    pub(super) fn tick(&mut self, bypass: &Bypass, dt_s: f64) {
        let admitted = bypass.admitted.load();
        let new = admitted.hundredths().wrapping_sub(self.seen.hundredths()) as f64 / 100.0;
        self.seen = admitted;
        self.recent.decay_and_add(keep(dt_s, MEMORY_S), new, dt_s);
        bypass.per_s.store(self.recent.sum / self.recent.over.max(MIN_OVER_S));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_measured_and_the_rest_is_left_to_the_schedule() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        let capacity = Rate::per_second(20.0).unwrap_or_default();
        assert_eq!(bypass.left_of(capacity), 20.0);
        for _ in 0..100 {
            bypass.count(Cost::ONE);
            meter.tick(&bypass, 0.1);
        }
        assert!((bypass.left_of(capacity) - 10.0).abs() < 1e-6, "{}", bypass.left_of(capacity));
        for _ in 0..100 {
            bypass.count(Cost::MAX);
            meter.tick(&bypass, 0.1);
        }
        assert_eq!(bypass.left_of(capacity), 2.0, "a tenth in any case");
    }

    #[test]
    fn a_first_tick_is_no_rate() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        bypass.count(Cost::ONE);
        meter.tick(&bypass, 0.001);
        assert_eq!(bypass.per_s(), 1.0);
    }
}
