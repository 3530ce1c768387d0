//! The mean cost of an admitted visitor, weighted by work:
//!
//! ```text
//! mean cost  =  sum of squared costs / sum of costs          both decaying over 10 s
//! ```
//!
//! By work and not by visitors: the work of a Poisson stream of visitors has the variance (work) x E(c^2) /
//! E(c), and the deviation is what a queue at the gate has to cover (`queue_target.rs`).

use crate::decaying::{DecayingRatio, keep};
use crate::sync::{Atomic, AtomicU64, Ordering};
use crate::units::Cost;

const MEMORY_S: f64 = 10.0;

/// Counts what is admitted, and publishes its mean.
pub(super) struct MeanCost {
    /// Work since the start and its squares, in hundredths modulo 2^64: in units, small squares would vanish.
    work: AtomicU64,
    squares: AtomicU64,
    mean: Atomic<Cost>,
}

impl MeanCost {
    pub(super) fn new() -> Self {
        Self { work: AtomicU64::new(0), squares: AtomicU64::new(0), mean: Atomic::new(Cost::ONE) }
    }

    pub(super) fn count(&self, cost: Cost) {
        let hundredths = cost.hundredths();
        self.work.fetch_add(hundredths, Ordering::Relaxed);
        self.squares.fetch_add(hundredths.saturating_mul(hundredths), Ordering::Relaxed);
    }

    /// Work counted since the start, in hundredths modulo 2^64.
    pub(super) fn work(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> Cost {
        self.mean.load()
    }
}

/// The tick's part: averages what was counted.
#[derive(Default)]
pub(super) struct MeanCostMeter {
    work: u64,
    squares: u64,
    recent: DecayingRatio,
}

impl MeanCostMeter {
    /// Publishes the mean, `dt_s` after the last call; it does not change while nothing is admitted.
    pub(super) fn tick(&mut self, mean_cost: &MeanCost, dt_s: f64) {
        let (work, squares) = (mean_cost.work(), mean_cost.squares.load(Ordering::Relaxed));
        let new = (squares.wrapping_sub(self.squares) as f64, work.wrapping_sub(self.work) as f64);
        self.recent.decay_and_add(keep(dt_s, MEMORY_S), new.0, new.1);
        (self.work, self.squares) = (work, squares);
        if let Some(mean) = self.recent.get().filter(|_| self.recent.over >= 1.0) {
            let mean = mean.round() as u64;
            mean_cost.mean.store(Cost::from_hundredths(mean).clamp(Cost::MIN, Cost::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_weighted_by_work() {
        let (mean_cost, mut meter) = (MeanCost::new(), MeanCostMeter::default());
        meter.tick(&mean_cost, 0.1);
        assert_eq!(mean_cost.get(), Cost::ONE, "before anything was admitted");
        (0..100).for_each(|_| mean_cost.count(Cost::ONE));
        mean_cost.count(Cost::from_hundredths(10_000));
        meter.tick(&mean_cost, 0.1);
        assert_eq!(mean_cost.get(), Cost::from_hundredths(5_050));
        (0..100).for_each(|_| mean_cost.count(Cost::ONE));
        meter.tick(&mean_cost, 1_000.0);
        assert_eq!(mean_cost.get(), Cost::ONE, "what is long past does not count");
    }

    #[test]
    fn the_cheapest_visitors_have_a_mean_too() {
        for hundredths in [1, 5, 9, 10, 1_000_000] {
            let (mean_cost, mut meter) = (MeanCost::new(), MeanCostMeter::default());
            mean_cost.count(Cost::from_hundredths(hundredths));
            meter.tick(&mean_cost, 0.1);
            assert_eq!(mean_cost.get().hundredths(), hundredths);
        }
    }
}
