//! Which seconds of the schedule are judged for no-shows: those that everybody has had time to come in.
//!
//! A second is judged two seconds after the virtual clock has passed it: pages wake up and connect. Nor is it
//! judged before the wall clock has passed it, too: a visitor who comes at the time that was announced first
//! is no no-show, however far the virtual clock has run ahead.
//!
//! It may be minutes ahead, after a crowd that came while little capacity was known. Where sessions are
//! admitted, most visitors read pages, which ask every 20 s at least. Whoever has not asked within [`MISSED`]
//! of its turn is gone in all probability, and the second is judged then. Otherwise those who left would be
//! expected for minutes, and everybody told too long a wait (at a real service, 20 % too long, and visitors
//! slept through their turns). A program that sleeps until its time counts as a no-show until it comes.
//! WebQ's visitors all do; so where requests are admitted the wall clock decides alone.

use std::collections::VecDeque;
use std::time::Duration;

use super::polling::LONGEST_POLL_INTERVAL;
use crate::units::Timestamp;

/// Time to wake up and connect.
const CONNECT: Duration = Duration::from_secs(2);
/// Time after the turn after which a page has asked.
const MISSED: Duration = LONGEST_POLL_INTERVAL.saturating_add(CONNECT);

#[derive(Default)]
pub(super) struct Judging {
    /// Seconds that the virtual clock entered, and when: of the last [`MISSED`], one a tick at most.
    entered: VecDeque<(u64, Timestamp)>,
    /// Seconds before this one were passed for longer than [`MISSED`].
    missed_until: u64,
}

impl Judging {
    /// On a tick, with the virtual clock at `clock_at`: seconds before the one returned can be judged.
    /// `are_pages`: those who wait ask again without waiting for their time.
    pub(super) fn until(&mut self, clock_at: Timestamp, now: Timestamp, are_pages: bool) -> u64 {
        let second = clock_at.second();
        if self.entered.back().is_none_or(|(last, _)| *last < second) {
            self.entered.push_back((second, now));
        }
        while let Some((second, at)) = self.entered.front()
            && now.since(*at) >= MISSED
        {
            self.missed_until = *second;
            self.entered.pop_front();
        }
        let passed = clock_at.min(now).second().saturating_sub(CONNECT.as_secs());
        if are_pages { passed.max(self.missed_until) } else { passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Seconds from the start.
    fn at(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_second_is_judged_two_seconds_after_both_clocks_have_passed_it() {
        let mut judging = Judging::default();
        for (clock, now, expected) in [(10, 10, 8), (10, 12, 8), (12, 12, 10), (13, 12, 10), (13, 14, 11)] {
            let until = judging.until(at(clock), at(now), true);
            assert_eq!(until, START.second() + expected, "{clock} {now}");
        }
    }

    #[test]
    fn where_the_virtual_clock_is_ahead_pages_have_as_long_as_they_take_to_ask() {
        let mut judging = Judging::default();
        // In ten seconds the virtual clock passes ten minutes.
        let mut until = |now: u64, are_pages: bool| {
            let until = judging.until(at(60 * now.min(10)), at(now), are_pages);
            until.saturating_sub(START.second())
        };
        let judged: Vec<u64> = (0..40).map(|now| until(now, true)).collect();
        assert_eq!(judged[..22], std::array::from_fn::<u64, 22, _>(|now| (now as u64).saturating_sub(2)));
        assert_eq!((judged[23], judged[27], judged[32], judged[39]), (60, 300, 600, 600));
        assert_eq!(until(40, false), 38, "programs sleep until their time");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut judging = Judging::default();
        for n in 0..10_000 {
            judging.until(at(u64::from(n)), START + Duration::from_millis(100) * n, true);
        }
        assert!(judging.entered.len() <= 220, "{}", judging.entered.len());
    }
}
