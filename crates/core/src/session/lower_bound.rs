//! A lower bound of the origin's capacity while the estimate is an initial one: the load that it has served.
//!
//! An estimator that has not seen the origin at its limit has an initial estimate, which is many times too
//! high where requests are few. Sessions admitted by it may fill the origin before there is ever a queue to
//! learn from. The mean load served over a minute is certain. The best such mean is forgotten in ten minutes,
//! because the origin may have changed by then.

use crate::decaying::{DecayingRatio, keep};

/// Memory of the mean, in seconds.
const MEAN_S: f64 = 60.0;
/// Seconds of load that a mean needs.
const LEAST_S: f64 = 10.0;
/// Memory of the best mean, in seconds.
const BEST_S: f64 = 600.0;
/// Greatest multiple of the best mean that an initial estimate may be once requests wait at the origin.
const MOST_OF_BEST: f64 = 2.0;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LowerBound {
    is_measured: bool,
    /// Requests wait at the origin although its estimated capacity is not used up.
    is_refuted: bool,
    /// Work per second.
    mean: DecayingRatio,
    best_per_s: f64,
}

impl LowerBound {
    /// Learns that `sent` cost units went to the origin in `dt_s`. Returns whether C is newly measured.
    pub(super) fn learn(&mut self, sent: f64, dt_s: f64, is_measured: bool) -> bool {
        self.mean.decay_and_add(keep(dt_s, MEAN_S), sent, dt_s);
        self.best_per_s *= keep(dt_s, BEST_S);
        if let Some(mean_per_s) = self.mean.get().filter(|_| self.mean.over >= LEAST_S) {
            self.best_per_s = self.best_per_s.max(mean_per_s);
        }
        self.is_refuted &= !is_measured;
        let before = std::mem::replace(&mut self.is_measured, is_measured);
        is_measured && !before
    }

    /// Notes that requests wait at the origin.
    pub(super) fn refute(&mut self) {
        self.is_refuted = !self.is_measured && self.best_per_s > 0.0;
    }

    /// The capacity to use in place of the estimate, both in cost units per second.
    pub(super) fn capacity(&self, estimate: f64) -> f64 {
        if self.is_refuted { estimate.min(MOST_OF_BEST * self.best_per_s) } else { estimate }
    }

    /// Part of [`LowerBound::capacity`] that is certain: 1 where it was measured.
    pub(super) fn certain(&self, estimate: f64) -> f64 {
        if self.is_refuted { (self.best_per_s / self.capacity(estimate)).min(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(bound: &mut LowerBound, ticks: u32, per_s: f64) {
        (0..ticks).for_each(|_| assert!(!bound.learn(per_s / 10.0, 0.1, false)));
    }

    #[test]
    fn a_refuted_estimate_is_bounded_by_the_load_served() {
        let mut bound = LowerBound::default();
        bound.refute();
        assert_eq!((bound.capacity(100.0), bound.certain(100.0)), (100.0, 1.0), "no load was served");
        serve(&mut bound, 200, 5.0);
        assert_eq!(
            (bound.capacity(100.0), bound.certain(100.0)),
            (100.0, 1.0),
            "nothing refutes the estimate"
        );
        bound.refute();
        let about = |value: f64, is: f64| (0.99 * is..1.01 * is).contains(&value);
        assert!(about(bound.capacity(100.0), 10.0) && about(bound.certain(100.0), 0.5), "{bound:?}");
        assert_eq!((bound.capacity(4.0), bound.certain(4.0)), (4.0, 1.0));
        // A quiet minute hardly lowers the bound.
        serve(&mut bound, 600, 0.0);
        assert!(bound.capacity(100.0) > 8.0, "{bound:?}");
        assert!(bound.learn(0.5, 0.1, true) && !bound.learn(0.5, 0.1, true), "reported once");
        bound.refute();
        assert_eq!((bound.capacity(100.0), bound.certain(100.0)), (100.0, 1.0));
    }
}
