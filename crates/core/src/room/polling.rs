//! How often waiting pages ask for news.
//!
//! Far from its turn a page learns nothing by asking often, so the interval grows with the wait. While the
//! capacity is searched, though, it may be many times what the announced waits were computed with: pages that
//! ask again in a quarter of a minute would leave an origin idle that could take them now. This does not end
//! with the search: pages that were sent off for a second just before, and whose turn comes at once, leave a
//! hole of a second behind.
//!
//! ```text
//! longest interval  = max(0.3 s, time since the search ended, waiting / 20,000 per second),  20 s at most
//! shortest interval = waiting / 10,000 per second              for waits of more than H = max(8 s, this)
//!                     near / (10,000 per second + 8 C)         for the near, whose waits are H at most
//! ```
//!
//! So all together ask at most 20,000 times a second and eight times for each visitor let in, at C a second,
//! however their waits are spread: what each group may do is divided among its members. No page is kept from
//! asking until after its turn, since H is not less than the interval, and the near may ask once a second, as
//! they are asked to, whatever C is.
//!
//! Rejected: one shortest interval for all, `waiting / 20,000 per second`. With a hundred thousand waiting,
//! those whose turn is next come five seconds late, and the virtual clock, which is steered by the visitors
//! that come, swings. Rejected: 10,000 per second for the near of a gate that lets in as many: they come
//! eight seconds late, and an origin of 10,000/s loses a tenth of its first minute.

use std::time::Duration;

use crate::sync::{Atomic, Word};
use crate::units::Timestamp;

/// Waiting pages ask for news at least this often, however long their wait.
pub const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(20);
/// While the capacity is searched they ask at least this often: three ticks, in which it may have become many
/// times what it was,
const SEARCHING_INTERVAL: Duration = Duration::from_millis(300);
/// as long as all together do not ask more often than this in a second: a poll costs the gateway some ten
/// microseconds.
const MAX_POLLS_PER_S: f64 = 20_000.0;
/// Polls of each visitor who is let in that are not counted in it.
const FREE_POLLS: f64 = 8.0;
/// Waits of the near, where few enough wait.
const NEAR: Duration = Duration::from_secs(8);

/// How often waiting pages may and should ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollIntervals {
    /// At least this often, however long the wait.
    pub within: Duration,
    near: Duration,
    far: Duration,
}

impl PollIntervals {
    /// Of so many that wait, `near` of them with waits of at most [`PollIntervals::horizon`].
    pub fn new(within: Duration, near: u64, waiting: u64) -> Self {
        let share = |visitors: u64| Duration::from_secs_f64(visitors as f64 / (MAX_POLLS_PER_S / 2.0));
        Self { within, near: share(near), far: share(waiting) }
    }

    /// No more often than this if `wait` is left.
    pub fn least(&self, wait: Duration) -> Duration {
        if wait <= self.horizon() { self.near } else { self.far }
    }

    /// Longest wait of those who are near.
    pub fn horizon(&self) -> Duration {
        NEAR.max(self.far)
    }
}

impl Default for PollIntervals {
    fn default() -> Self {
        Self::new(LONGEST_POLL_INTERVAL, 0, 0)
    }
}

/// Bits of each interval, in milliseconds: half an hour.
const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;

/// `{within: 21, near: 21, far: 21}`; longer intervals are cut.
impl Word for PollIntervals {
    fn to_word(self) -> u64 {
        let ms = |interval: Duration| (interval.as_millis() as u64).min(MASK);
        ms(self.within) << (2 * BITS) | ms(self.near) << BITS | ms(self.far)
    }

    fn from_word(word: u64) -> Self {
        let ms = |shift: u32| Duration::from_millis((word >> shift) & MASK);
        Self { within: ms(2 * BITS), near: ms(BITS), far: ms(0) }
    }
}

/// Computed on every tick, read by every answer to a waiting page.
pub(super) struct Polling {
    intervals: Atomic<PollIntervals>,
    /// When the capacity was last searched.
    searched_at: Atomic<Timestamp>,
}

impl Polling {
    /// Before the first tick nothing is known of the capacity.
    pub(super) fn new() -> Self {
        let intervals = Atomic::new(PollIntervals::new(SEARCHING_INTERVAL, 0, 0));
        Self { intervals, searched_at: Atomic::new(Timestamp::default()) }
    }

    pub(super) fn intervals(&self) -> PollIntervals {
        self.intervals.load()
    }

    /// The capacity is being searched.
    pub(super) fn note_search(&self, now: Timestamp) {
        self.searched_at.store(now);
    }

    /// On a tick: so many visitors wait, `entering_per_s` of them are let in per second, and `within` returns
    /// how many have a wait of at most that.
    pub(super) fn update(
        &self,
        waiting: u64,
        entering_per_s: f64,
        within: impl FnOnce(Duration) -> u64,
        now: Timestamp,
    ) {
        let since = now.since(self.searched_at.load());
        let longest = if since >= LONGEST_POLL_INTERVAL {
            LONGEST_POLL_INTERVAL
        } else {
            let least = Duration::from_secs_f64(waiting as f64 / MAX_POLLS_PER_S);
            since.max(least).clamp(SEARCHING_INTERVAL, LONGEST_POLL_INTERVAL)
        };
        let horizon = PollIntervals::new(longest, 0, waiting).horizon();
        let more = 1.0 + FREE_POLLS * entering_per_s / (MAX_POLLS_PER_S / 2.0);
        let near = (within(horizon) as f64 / more) as u64;
        self.intervals.store(PollIntervals::new(longest, near, waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn intervals_fit_one_word() {
        for (within_ms, near, waiting) in [(300, 0, 0), (20_000, 70_000, 300_000)] {
            let intervals = PollIntervals::new(Duration::from_millis(within_ms), near, waiting);
            assert_eq!(PollIntervals::from_word(intervals.to_word()), intervals);
        }
        let absurd = PollIntervals::from_word(PollIntervals::new(Duration::MAX, u64::MAX, 1 << 40).to_word());
        let longest = Duration::from_millis(MASK);
        assert_eq!(absurd, PollIntervals { within: longest, near: longest, far: longest });
    }

    #[test]
    fn all_together_ask_a_bounded_number_of_times() {
        let polling = Polling::new();
        // 100,000 wait, a tenth of them near; 1,250 are let in per second, which doubles what the near may
        // ask.
        polling.update(100_000, 1_250.0, |_| 10_000, START);
        let intervals = polling.intervals();
        assert_eq!((intervals.within, intervals.horizon()), (LONGEST_POLL_INTERVAL, Duration::from_secs(10)));
        assert_eq!(intervals.least(Duration::from_secs(10)), Duration::from_millis(500));
        assert_eq!(intervals.least(Duration::from_secs(11)), Duration::from_secs(10));
    }

    #[test]
    fn pages_ask_often_while_the_capacity_is_searched_and_for_as_long_after() {
        let polling = Polling::new();
        polling.note_search(START);
        for (after_s, expected_ms) in [(0, 300), (2, 2_000), (19, 19_000), (20, 20_000), (90, 20_000)] {
            polling.update(0, 0.0, |_| 0, START + Duration::from_secs(after_s));
            assert_eq!(polling.intervals().within, Duration::from_millis(expected_ms), "after {after_s} s");
        }
    }
}
