//! How often waiting pages ask for news.
//!
//! Far from its turn a page learns nothing by asking often, so the interval grows with the wait. While the
//! capacity is searched, though, it may be many times what the announced waits were computed with: pages that
//! ask again in a quarter of a minute would leave an origin idle that could take them now. This does not end
//! with the search: pages that were sent off for a second just before their turn leave a hole of a second.
//!
//! ```text
//! interval = wait * fraction, at least 1 s, at most longest, and never later than the turn
//! longest  = 20 s, or the time since the search ended (at least 0.3 s), but waiting / (B / 3) at least
//! fraction = the smallest of 1/8, 2/8, ... 1 with which all who have a second or more to wait ask at most
//!            2/3 B times a second together
//! shortest = those who have less than a second to wait / (B / 3), or more where a fraction of 1 is not
//!            enough
//! B        = 20,000 per second + 12 C, where C visitors are let in per second
//! ```
//!
//! So all together ask at most B times a second, however their waits are spread. A large crowd asks less
//! often on its way, but every page asks when its turn comes: `shortest` is at most 0.4 s at any C, as long
//! as no more visitors are due in a second than the origin takes.
//!
//! Rejected: one shortest interval for all, `waiting / 20,000 per second`, or one for those with waits of at
//! most 8 s. In a crowd of half a million, visitors come seconds after their turn, all together; the virtual
//! clock, which is steered by the visitors that come, swings, and busy seconds get 1.4 times the rate.

use std::time::Duration;

use crate::sync::{Atomic, Word};
use crate::units::Timestamp;

/// Waiting pages ask for news at least this often, however long their wait, unless too many wait.
pub const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(20);
/// While the capacity is searched they ask at least this often: in three ticks it may grow many times.
const SEARCHING_INTERVAL: Duration = Duration::from_millis(300);
/// Polls per second of all together: each costs the gateway some ten microseconds.
const MAX_POLLS_PER_S: f64 = 20_000.0;
/// Polls of each visitor who is let in, beside them. With eight, pages of a crowd of 400,000 ask too seldom
/// to notice that the capacity has risen by a seventh (webq-fig11).
const FREE_POLLS: f64 = 12.0;
/// A page with a second or more to wait does not ask more often than this.
const USUAL_SHORTEST: Duration = Duration::from_secs(1);
/// Of the budget: for pages far from their turn, on their way, and within a second of their turn.
const THIRD: f64 = 1.0 / 3.0;
/// The fraction of the wait after which a page asks again is counted in these.
const EIGHTHS: u8 = 8;
/// Waits of more than half an hour are one octave.
const OCTAVES: usize = 12;

/// Shortest wait of an octave.
fn octave(k: usize) -> Duration {
    USUAL_SHORTEST * (1 << k)
}

/// A wait in the middle of an octave.
fn middle(k: usize) -> Duration {
    octave(k).mul_f64(std::f64::consts::SQRT_2)
}

/// How often waiting pages may and should ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollIntervals {
    /// At least this often, however long the wait.
    pub longest: Duration,
    /// No more often than this, however short the wait.
    pub shortest: Duration,
    eighths: u8,
}

impl PollIntervals {
    /// For `waiting` visitors, of whom `entering_per_s` are let in per second; `within` returns how many of
    /// them have a wait of at most that. `longest` is extended where too many wait.
    pub fn new(
        longest: Duration,
        waiting: u64,
        entering_per_s: f64,
        within: impl Fn(Duration) -> u64,
    ) -> Self {
        let budget = MAX_POLLS_PER_S + FREE_POLLS * entering_per_s;
        let interval_of = |visitors: u64, share: f64| {
            Duration::try_from_secs_f64(visitors as f64 / (budget * share)).unwrap_or(Duration::MAX)
        };
        let longest = longest.max(interval_of(waiting, THIRD));
        let soon = within(USUAL_SHORTEST).min(waiting);
        let mut intervals = Self { longest, shortest: interval_of(soon, THIRD), eighths: 1 };
        // Visitors by octaves of their wait: (1 s, 2 s], (2 s, 4 s], ... Each has the wait of its middle.
        let mut octaves = [0.0; OCTAVES];
        let mut below = soon;
        for (k, visitors) in octaves.iter_mut().enumerate() {
            let is_last = k + 1 == OCTAVES;
            let up_to_here = if is_last { waiting } else { within(octave(k + 1)).clamp(below, waiting) };
            *visitors = (up_to_here - below) as f64;
            below = up_to_here;
        }
        let polls_per_s = |intervals: &Self| -> f64 {
            let interval = |k| intervals.interval(middle(k)).max(intervals.shortest).as_secs_f64();
            octaves.iter().enumerate().map(|(k, visitors)| visitors / interval(k)).sum()
        };
        while intervals.eighths < EIGHTHS && polls_per_s(&intervals) > 2.0 * THIRD * budget {
            intervals.eighths += 1;
        }
        // More are due within seconds than can ask once: the capacity has fallen and the waits are outdated.
        while polls_per_s(&intervals) > 2.0 * THIRD * budget {
            intervals.shortest = intervals.shortest.max(USUAL_SHORTEST) * 5 / 4;
        }
        intervals
    }

    /// For one visitor with this wait, before it is cut at the visitor's turn.
    pub fn interval(&self, wait: Duration) -> Duration {
        let fraction = wait / u32::from(EIGHTHS) * u32::from(self.eighths);
        fraction.max(USUAL_SHORTEST).min(self.longest)
    }
}

impl Default for PollIntervals {
    fn default() -> Self {
        Self::new(LONGEST_POLL_INTERVAL, 0, 0.0, |_| 0)
    }
}

/// Bits of each interval, in milliseconds: nine hours.
const BITS: u32 = 25;
const MASK: u64 = (1 << BITS) - 1;

/// `{longest: 25, shortest: 25, eighths: 4}`; longer intervals are cut.
impl Word for PollIntervals {
    fn to_word(self) -> u64 {
        let ms = |interval: Duration| (interval.as_millis() as u64).min(MASK);
        ms(self.longest) << (BITS + 4) | ms(self.shortest) << 4 | u64::from(self.eighths)
    }

    fn from_word(word: u64) -> Self {
        let ms = |shift: u32| Duration::from_millis((word >> shift) & MASK);
        Self { longest: ms(BITS + 4), shortest: ms(4), eighths: (word & 0xF) as u8 }
    }
}

/// Computed on every tick, read by every answer to a waiting page.
pub(super) struct Polling {
    intervals: Atomic<PollIntervals>,
    searched_at: Atomic<Timestamp>,
}

impl Polling {
    /// Before the first tick nothing is known of the capacity.
    pub(super) fn new() -> Self {
        let intervals = Atomic::new(PollIntervals::new(SEARCHING_INTERVAL, 0, 0.0, |_| 0));
        Self { intervals, searched_at: Atomic::new(Timestamp::default()) }
    }

    pub(super) fn intervals(&self) -> PollIntervals {
        self.intervals.load()
    }

    pub(super) fn note_search(&self, now: Timestamp) {
        self.searched_at.store(now);
    }

    /// On a tick: so many visitors wait, `entering_per_s` of them are let in per second, and `within` returns
    /// how many have a wait of at most that.
    pub(super) fn update(
        &self,
        waiting: u64,
        entering_per_s: f64,
        within: impl Fn(Duration) -> u64,
        now: Timestamp,
    ) {
        let since = now.since(self.searched_at.load());
        let longest = since.clamp(SEARCHING_INTERVAL, LONGEST_POLL_INTERVAL);
        self.intervals.store(PollIntervals::new(longest, waiting, entering_per_s, within));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Waits spread evenly over `seconds`.
    fn evenly(visitors: u64, seconds: u64) -> impl Fn(Duration) -> u64 {
        move |wait| ((visitors as f64 * wait.as_secs_f64() / seconds as f64) as u64).min(visitors)
    }

    #[test]
    fn intervals_fit_one_word() {
        for (longest_ms, waiting) in [(300, 0), (20_000, 300_000), (20_000, 3_000_000)] {
            let longest = Duration::from_millis(longest_ms);
            let intervals = PollIntervals::new(longest, waiting, 0.0, evenly(waiting, 60));
            let kept = PollIntervals::from_word(intervals.to_word());
            assert_eq!((kept.longest, kept.eighths), (intervals.longest, intervals.eighths));
        }
        let absurd = PollIntervals::from_word(
            PollIntervals::new(Duration::MAX, u64::MAX, 0.0, |_| u64::MAX).to_word(),
        );
        let longest = Duration::from_millis(MASK);
        assert_eq!((absurd.longest, absurd.shortest), (longest, longest));
    }

    #[test]
    fn a_small_crowd_asks_eight_times_in_its_wait_and_a_large_one_less_often() {
        let of = |waiting, per_s: u64| {
            PollIntervals::new(LONGEST_POLL_INTERVAL, waiting, per_s as f64, evenly(waiting, waiting / per_s))
        };
        let small = of(10_000, 100);
        assert_eq!(small.interval(Duration::from_secs(80)), Duration::from_secs(10));
        assert_eq!(small.interval(Duration::from_secs(2)), Duration::from_secs(1));
        assert!(small.shortest < Duration::from_millis(20), "{small:?}");
        let large = of(1_000_000, 10_000);
        assert!(large.interval(Duration::from_secs(8)) > Duration::from_secs(1), "{large:?}");
        assert!(large.shortest <= Duration::from_millis(500), "pages ask when their turn comes: {large:?}");
    }

    #[test]
    fn pages_ask_often_while_the_capacity_is_searched_and_for_as_long_after() {
        let polling = Polling::new();
        polling.note_search(START);
        for (after_s, expected_ms) in [(0, 300), (2, 2_000), (19, 19_000), (20, 20_000), (90, 20_000)] {
            polling.update(0, 0.0, |_| 0, START + Duration::from_secs(after_s));
            assert_eq!(polling.intervals().longest, Duration::from_millis(expected_ms), "after {after_s} s");
        }
    }
}
