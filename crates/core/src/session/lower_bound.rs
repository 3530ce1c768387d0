//! What the origin has shown that it serves, where its capacity is a guess.
//!
//! An estimator that has not seen the origin at its limit has nothing but a guess, many times too high where requests are few: the sessions
//! that it makes room for may fill the origin before there is ever a queue to learn from. What was served, as the mean over a
//! minute, is certain. The best of it is forgotten in ten minutes: by then it may be another origin.

use super::ratio::Ratio;

/// Memory of the mean, in seconds; so long must have been seen of it.
const MEAN_S: f64 = 60.0;
const LEAST_S: f64 = 10.0;
/// Memory of the best mean, in seconds.
const BEST_S: f64 = 600.0;
/// A guess may be so many times the best mean, once something waits at the origin.
const GUESSED: f64 = 2.0;

/// See the file's head.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LowerBound {
    /// Whether the capacity told last was measured.
    is_measured: bool,
    /// Something waits at the origin although it was said to take more.
    is_refuted: bool,
    /// Work per second.
    mean: Ratio,
    best_per_s: f64,
}

impl LowerBound {
    /// So much work went to the origin in `dt_s`. Returns whether a capacity that had been a guess is measured now.
    pub(super) fn see(&mut self, sent: f64, dt_s: f64, is_measured: bool) -> bool {
        self.mean.add((-dt_s / MEAN_S).exp(), sent, dt_s);
        self.best_per_s *= (-dt_s / BEST_S).exp();
        if let Some(mean_per_s) = self.mean.get().filter(|_| self.mean.over >= LEAST_S) {
            self.best_per_s = self.best_per_s.max(mean_per_s);
        }
        self.is_refuted &= !is_measured;
        let before = std::mem::replace(&mut self.is_measured, is_measured);
        is_measured && !before
    }

    /// Something waits at the origin.
    pub(super) fn refute(&mut self) {
        self.is_refuted = !self.is_measured && self.best_per_s > 0.0;
    }

    /// What to go by where `told` is said, both in cost units per second.
    pub(super) fn capacity(&self, told: f64) -> f64 {
        if self.is_refuted { told.min(GUESSED * self.best_per_s) } else { told }
    }

    /// Part of that which is certain, at most 1: all of what was measured.
    pub(super) fn certain(&self, told: f64) -> f64 {
        if self.is_refuted { (self.best_per_s / self.capacity(told)).min(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(belief: &mut LowerBound, ticks: u32, per_s: f64) {
        (0..ticks).for_each(|_| assert!(!belief.see(per_s / 10.0, 0.1, false)));
    }

    #[test]
    fn of_a_refuted_guess_what_was_served_is_certain() {
        let mut belief = LowerBound::default();
        belief.refute();
        assert_eq!((belief.capacity(100.0), belief.certain(100.0)), (100.0, 1.0), "nothing was seen");
        pass(&mut belief, 200, 5.0);
        assert_eq!((belief.capacity(100.0), belief.certain(100.0)), (100.0, 1.0), "nothing is wrong with it");
        belief.refute();
        let about = |value: f64, is: f64| (0.99 * is..1.01 * is).contains(&value);
        assert!(about(belief.capacity(100.0), 10.0) && about(belief.certain(100.0), 0.5), "{belief:?}");
        assert_eq!((belief.capacity(4.0), belief.certain(4.0)), (4.0, 1.0));
        // A quiet minute is no reason to believe less.
        pass(&mut belief, 600, 0.0);
        assert!(belief.capacity(100.0) > 8.0, "{belief:?}");
        assert!(belief.see(0.5, 0.1, true) && !belief.see(0.5, 0.1, true), "told once");
        belief.refute();
        assert_eq!((belief.capacity(100.0), belief.certain(100.0)), (100.0, 1.0));
    }
}
