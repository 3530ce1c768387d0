//! The show-up ratio: how much of the promised work comes to be redeemed (no-shows, WebQ III-D).
//!
//! The hand is steered with an average of some length: it corrects itself by what queues. A wait that was told is not corrected any
//! more, so it is told with the average and its error, or with what the latest crowd did if that is more.
//!
//! ```text
//! ratio       =  shown / promised                               both decaying over 20 s, from one
//! ratio told  =  max(ratio + deviation, ratio of what was judged last)
//! ```
//!
//! Why the latest: visitors are no draws from one urn. After a crowd of which 60 % gave up came one of those who had been told
//! to come again later, all of whom did; 26 s into it the average was 0.66, and waits of a minute were told a third too short.
//! Rejected: the latest alone. It moves by a tenth and more by chance, and by whoever is a few seconds late.

use crate::units::{Cost, Rate};

/// Memory of the show-up ratio, in seconds.
const MEMORY_S: f64 = 20.0;
/// Weight of the first guess, that everybody comes, as seconds of capacity: a crowd of absentees is believed within a
/// few seconds, a handful of them is not.
const PRIOR_S: f64 = 0.3;
/// Least ratio believed: the origin is not flooded twentyfold on the word of a few absent visitors.
const MIN_RATIO: f64 = 0.05;

/// The latest crowd is what was judged last: as much work as this many seconds at capacity, and not less than [`RECENT_UNITS`].
const RECENT_S: f64 = 5.0;
const RECENT_UNITS: f64 = 30.0;

/// How much of the promised work comes to be redeemed: an average over about 20 s, weighted by work. Starts from one,
/// with the weight of [`PRIOR_S`].
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(crate) struct ShowUp {
    pub(crate) promised: f64,
    pub(crate) shown: f64,
    /// The same, forgotten as more is judged: time in which nothing is judged says nothing.
    recent: (f64, f64),
}

impl ShowUp {
    /// As it was saved.
    pub(crate) fn saved(promised: f64, shown: f64) -> Self {
        Self { promised, shown, recent: (promised, shown) }
    }

    /// Lets `dt_s` pass.
    pub(crate) fn age(&mut self, dt_s: f64) {
        let keep = (-dt_s / MEMORY_S).exp();
        self.promised *= keep;
        self.shown *= keep;
    }

    /// Work whose turn has passed, and how much of it was redeemed.
    pub(crate) fn record(&mut self, promised: Cost, shown: Cost, capacity: Rate) {
        let (promised, shown) = (promised.units(), shown.units());
        self.promised += promised;
        self.shown += shown;
        let window = (capacity.get() * RECENT_S).max(RECENT_UNITS);
        let keep = (-promised / window).exp();
        self.recent = (self.recent.0 * keep + promised, self.recent.1 * keep + shown);
    }

    /// The share of the promised work that is redeemed.
    pub(crate) fn ratio(&self, capacity: Rate) -> f64 {
        let prior = (capacity.get() * PRIOR_S).max(1.0);
        ((self.shown + prior) / (self.promised + prior)).clamp(MIN_RATIO, 1.0)
    }

    /// The ratio that waits are told with: a standard deviation more, of as many draws as visitors of `grain` units of work were
    /// seen. A wait told too short is a promise broken, and chance moves the ratio of a hundred visitors by a tenth. Nor less than
    /// the ratio of the latest crowd, which may be another than the one that half the memory is of.
    pub(crate) fn ratio_told(&self, capacity: Rate, grain: Cost) -> f64 {
        let ratio = self.ratio(capacity);
        let prior = (capacity.get() * PRIOR_S).max(1.0);
        let draws = ((self.promised + prior) / grain.units().max(f64::MIN_POSITIVE)).max(1.0);
        let latest = if self.recent.0 > 0.0 { self.recent.1 / self.recent.0 } else { 0.0 };
        (ratio + (ratio * (1.0 - ratio) / draws).sqrt()).max(latest).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_show_up_ratio_follows_what_is_seen() {
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        let mut show_up = ShowUp::default();
        assert_eq!(show_up.ratio(capacity), 1.0);
        for _ in 0..60 {
            show_up.age(1.0);
            show_up.record(Cost::from_hundredths(10_000), Cost::from_hundredths(7_000), capacity);
        }
        assert!((show_up.ratio(capacity) - 0.7).abs() < 0.02, "{}", show_up.ratio(capacity));
        show_up.age(300.0);
        assert!(show_up.ratio(capacity) > 0.99);
    }

    #[test]
    fn a_wait_is_told_with_the_ratio_and_its_error() {
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        // (promised, shown, grain in hundredths, ratio told): of 0, 70 and 9,970 units half came, or all.
        let half = [(70.0, 20.0, 100, 0.55), (70.0, 20.0, 400, 0.6), (9_970.0, 4_970.0, 100, 0.505)];
        for (promised, shown, grain, told) in
            half.into_iter().chain([(0.0, 0.0, 100, 1.0), (9.0, 9.0, 100, 1.0)])
        {
            let seen = ShowUp { promised, shown, recent: (0.0, 0.0) }
                .ratio_told(capacity, Cost::from_hundredths(grain));
            assert!((seen - told).abs() < 1e-9, "{promised} {grain}: {seen}");
        }
    }
    #[test]
    fn a_crowd_that_comes_is_believed_at_once_after_one_that_stayed_away() {
        let capacity = Rate::per_second(5.0).unwrap_or_default();
        let mut show_up = ShowUp::default();
        let mut pass = |shown: u64, seconds: usize| {
            for _ in 0..seconds {
                show_up.age(1.0);
                show_up.record(Cost::from_hundredths(600), Cost::from_hundredths(shown), capacity);
            }
            (show_up.ratio(capacity), show_up.ratio_told(capacity, Cost::ONE))
        };
        let (ratio, told) = pass(240, 60);
        assert!((0.38..0.45).contains(&ratio) && (ratio..ratio + 0.06).contains(&told), "{ratio} {told}");
        // All come: the average over 20 s takes as long again to see it, who is told a wait meanwhile would wait longer.
        let (ratio, told) = pass(600, 20);
        assert!(ratio < 0.8 && told > 0.98, "{ratio} {told}");
        // Nothing judged is nothing learned.
        show_up.age(300.0);
        assert!(show_up.ratio_told(capacity, Cost::ONE) > 0.98);
    }
}
