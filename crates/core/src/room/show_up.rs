//! The show-up ratio: how much of the promised work is redeemed; the rest are no-shows (WebQ III-D).
//!
//! The virtual clock is steered with an average of some length: it corrects itself by what queues. A wait
//! that was announced is not corrected any more, so it is computed with an upper estimate: the average and
//! its error, or the ratio of the latest crowd if that is more.
//!
//! ```text
//! ratio        =  shown / promised                               both decaying over 20 s, from one
//! upper ratio  =  max(ratio + deviation, ratio of what was judged last)
//! ```
//!
//! Why the latest: visitors are not independent draws. After a crowd of which 60 % gave up came one of
//! visitors who had been asked to come again later, and did; 26 s into it the average was 0.66, and waits of
//! a minute were announced a third too short. Rejected: the latest alone. It moves by a tenth and more by
//! chance, and by those who are a few seconds late.

use super::presence::PresentWork;
use crate::decaying::{DecayingRatio, keep};
use crate::units::{Cost, Rate};

const MEMORY_S: f64 = 20.0;
/// Weight of the initial assumption that all come, as seconds of what newcomers get of the capacity: a crowd
/// of no-shows outweighs it within a few seconds, a handful of them does not.
const PRIOR_S: f64 = 0.3;
/// Least ratio of all: a few no-shows must not have the origin flooded twentyfold.
const MIN_RATIO: f64 = 0.05;
const MAX_RESTORED_UNITS: f64 = 1e12;
/// The latest crowd is what was judged last: work of so many seconds at capacity, at least [`RECENT_UNITS`].
const RECENT_S: f64 = 5.0;
const RECENT_UNITS: f64 = 30.0;

/// Sums are of work shown (redeemed), over work promised.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct ShowUp {
    /// Decays with time.
    average: DecayingRatio,
    /// Decays as more is judged, not with time.
    latest: DecayingRatio,
}

/// The ratio of all work, which the virtual clock is steered with; and that of work whose visitors were not
/// heard of when their turn came (`presence.rs`), for the waits of those behind them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ShowUps {
    pub(super) of_all: ShowUp,
    pub(super) of_silent: ShowUp,
}

impl ShowUps {
    pub(super) fn pass(&mut self, dt_s: f64) {
        self.of_all.pass(dt_s);
        self.of_silent.pass(dt_s);
    }

    /// Work whose turn has passed, in cost units; `present` of the promised was known to be there.
    /// `capacity`: what of it newcomers get.
    pub(super) fn record(&mut self, promised: f64, present: PresentWork, shown: f64, capacity: Rate) {
        let PresentWork { arriving, asking } = present;
        let expected = asking + self.of_all.ratio(capacity) * arriving;
        self.of_all.record(promised, shown, capacity);
        // Fewer may come than are expected in one second, which the next ones make up for.
        self.of_silent.record(promised - asking - arriving, shown - expected, capacity);
    }

    /// The upper estimate for silent visitors. The assumption that all come weighs what it weighs among all.
    pub(super) fn silent_ratio(&self, capacity: Rate, mean_cost: Cost) -> f64 {
        let (silent, all) = (self.of_silent.average.over, self.of_all.average.over);
        let part = if all > 0.0 { (silent / all).clamp(0.0, 1.0) } else { 1.0 };
        let capacity = Rate::per_second(capacity.get() * part).unwrap_or_default();
        self.of_silent.ratio_and_error(capacity, mean_cost)
    }

    /// Work that was redeemed after its second was judged.
    pub(super) fn record_late(&mut self, shown: f64, capacity: Rate) {
        self.of_all.record(0.0, shown, capacity);
        self.of_silent.record(0.0, shown, capacity);
    }
}

impl ShowUp {
    /// From what [`ShowUp::average`] was; `None` if it cannot have been.
    pub(super) fn restore(average: DecayingRatio) -> Option<Self> {
        let is_possible = |units: f64| (0.0..MAX_RESTORED_UNITS).contains(&units);
        let DecayingRatio { sum, over } = average;
        (is_possible(sum) && is_possible(over)).then_some(Self { average, latest: average })
    }

    pub(super) fn average(&self) -> DecayingRatio {
        self.average
    }

    pub(super) fn pass(&mut self, dt_s: f64) {
        self.average.decay(keep(dt_s, MEMORY_S));
    }

    /// Work whose turn has passed, in cost units, and how much of it was redeemed. `capacity`, here and
    /// below: what of it newcomers get.
    pub(super) fn record(&mut self, promised: f64, shown: f64, capacity: Rate) {
        self.average.add(shown, promised);
        let window = (capacity.get() * RECENT_S).max(RECENT_UNITS);
        self.latest.decay_and_add(keep(promised, window), shown, promised);
    }

    /// The share of the promised work that is redeemed.
    pub(super) fn ratio(&self, capacity: Rate) -> f64 {
        let prior = prior(capacity);
        ((self.average.sum + prior) / (self.average.over + prior)).clamp(MIN_RATIO, 1.0)
    }

    /// The upper estimate that waits are announced with. The latest crowd may be another one than half of the
    /// memory is about.
    pub(super) fn upper_ratio(&self, capacity: Rate, mean_cost: Cost) -> f64 {
        let latest = self.latest.get().unwrap_or(0.0);
        self.ratio_and_error(capacity, mean_cost).max(latest).min(1.0)
    }

    /// The ratio and a standard deviation of as many draws as visitors of `mean_cost` were seen: chance moves
    /// the ratio of a hundred visitors by a tenth.
    pub(super) fn ratio_and_error(&self, capacity: Rate, mean_cost: Cost) -> f64 {
        let ratio = self.ratio(capacity);
        let seen = self.average.over + prior(capacity);
        let draws = (seen / mean_cost.units().max(f64::MIN_POSITIVE)).max(1.0);
        (ratio + (ratio * (1.0 - ratio) / draws).sqrt()).min(1.0)
    }
}

/// Work that is taken for promised and shown at the beginning, in cost units.
fn prior(capacity: Rate) -> f64 {
    (capacity.get() * PRIOR_S).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_follows_observed_shares() {
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        let mut show_up = ShowUp::default();
        assert_eq!(show_up.ratio(capacity), 1.0);
        for _ in 0..60 {
            show_up.pass(1.0);
            show_up.record(100.0, 70.0, capacity);
        }
        assert!((show_up.ratio(capacity) - 0.7).abs() < 0.02, "{}", show_up.ratio(capacity));
        show_up.pass(300.0);
        assert!(show_up.ratio(capacity) > 0.99);
    }

    #[test]
    fn a_wait_is_announced_with_the_ratio_and_its_error() {
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        // (promised, shown, mean cost in hundredths, upper ratio): of 0, 70 and 9,970 units half came, or
        // all.
        let half = [(70.0, 20.0, 100, 0.55), (70.0, 20.0, 400, 0.6), (9_970.0, 4_970.0, 100, 0.505)];
        for (promised, shown, mean_cost, expected) in
            half.into_iter().chain([(0.0, 0.0, 100, 1.0), (9.0, 9.0, 100, 1.0)])
        {
            let average = DecayingRatio { sum: shown, over: promised };
            let show_up = ShowUp { average, latest: DecayingRatio::default() };
            let upper = show_up.upper_ratio(capacity, Cost::from_hundredths(mean_cost));
            assert!((upper - expected).abs() < 1e-9, "{promised} {mean_cost}: {upper}");
        }
    }

    #[test]
    fn a_saved_ratio_is_restored_if_it_is_possible() {
        for (sum, over, expected) in
            [(7.0, 9.0, true), (-1.0, 9.0, false), (7.0, 1e12, false), (7.0, f64::NAN, false)]
        {
            let average = DecayingRatio { sum, over };
            assert_eq!(ShowUp::restore(average).is_some(), expected, "{average:?}");
        }
    }

    #[test]
    fn a_crowd_that_comes_is_believed_at_once_after_one_that_stayed_away() {
        let capacity = Rate::per_second(5.0).unwrap_or_default();
        let mut show_up = ShowUp::default();
        let mut pass = |shown: f64, seconds: usize| {
            for _ in 0..seconds {
                show_up.pass(1.0);
                show_up.record(6.0, shown, capacity);
            }
            (show_up.ratio(capacity), show_up.upper_ratio(capacity, Cost::ONE))
        };
        let (ratio, upper) = pass(2.4, 60);
        assert!((0.38..0.45).contains(&ratio) && (ratio..ratio + 0.06).contains(&upper), "{ratio} {upper}");
        // All come. The average over 20 s takes as long again to see it; waits announced with it would be too
        // short.
        let (ratio, upper) = pass(6.0, 20);
        assert!(ratio < 0.8 && upper > 0.98, "{ratio} {upper}");
        // Nothing judged is nothing learned.
        show_up.pass(300.0);
        assert!(show_up.upper_ratio(capacity, Cost::ONE) > 0.98);
    }
}
