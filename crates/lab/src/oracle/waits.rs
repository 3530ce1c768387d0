//! Honest waits where visitors are admitted and not requests, over a run.
//!
//! Room for a newcomer depends on what the visitors do who are in, which cannot be known beforehand. So
//! single waits cannot be promised, but those of a run can be judged together. Of the visitors who follow the
//! page and had to wait, in runs without faults,
//!
//! - four in five are admitted within the announced wait, a quarter of it and the slack;
//! - all but three in a hundred within twice the announced wait and the slack;
//! - and all of them together wait at least half of the announced waits: far too long a wait is kept as well,
//!   but makes visitors leave.
//!
//! Only visitors are judged who would have stayed for twice the announced wait. Of the others those are
//! served who happen to wait less than they are ready to: a crowd that is told 44 s and gives up after 5 to
//! 26 s (`browse.toml`, seed 50064) always waits less than it was told.
//!
//! Where the number of session slots is given, a slot becomes free when a session ends, of which less is
//! known: there the bounds are three in five, one in twenty and a fifth.
//!
//! Measured over 300 seeds each, capacity discovered or set: the greatest shares beyond the first two bounds,
//! and realised over announced waits (the smallest, the median and the greatest of a run).
//!
//! | | shares | realised |
//! |---|---|---|
//! | `tests/sim/browse.toml`, the number discovered | 0.06, 0 | 0.84, 0.98, 1.02 |
//! | the same in two processes | 0.02, 0 | 0.90, 0.98, 1.04 |
//! | the same in two processes, no number | 0.01, 0 | 0.88, 0.95, 1.04 |
//! | `tests/sim/sessions.toml` at a set capacity, the number discovered | 0, 0 | 0.64, 0.83, 1.01 |
//! | the same, no number | 0, 0 | 0.63, 0.82, 0.99 |
//!
//! Since newcomers are expected with their whole first page, over 40 seeds without faults of the first three
//! rows: 0.92, 0.95, 1.00; 0.89, 0.97, 1.05; 0.99, 1.07, 1.19 (shares 0.01, 0 at most).
//!
//! With a given number, waits announced before any session has ended are judged only where sessions hold
//! their slots for twice the timeout at most, because longer ones cannot be known. Whenever no slot is free,
//! no announced wait is shorter than the first open session will last if it asks for nothing more (one
//! process, before anybody ended sessions early, up to [`LISTED`] of them).
//!
//! With a given number, over 60 seeds each (250 of the first and second row: down to 0.77, up to 1.08): the
//! same, and what waits computed from the mean length of ended sessions alone would be: realised over
//! announced waits, and seeds that break a rule.
//!
//! | | shares | realised | by the mean alone | break a rule |
//! |---|---|---|---|---|
//! | `tests/sim/sessions.toml`, 60 slots | 0, 0 | 0.78 to 0.88 | 1.24 to 1.39 | 59 |
//! | the same by address | 0.02, 0 | 0.79 to 1.00 | 0.82 to 1.73 | 60 |
//! | the same with 15 slots | 0.16, 0.02 | 0.62 to 0.90 | 0.97 to 1.35 | 28 |
//! | WAC's sessions (timeout 15 s, 38 s in all), 2 visitors/s for a minute, 10 slots | 0.02, 0 | 0.94 to 1.00 | 1.03 to 1.06 | 60 |
//! | three thinks of a minute, timeout two minutes, 20 visitors/s for half a minute, 200 slots | 0.28, 0 | 0.98 to 1.01 | 1.22 to 1.32 | 60 |
//!
//! Those beyond the first bound in the last row came before a session had ended. The most likely value of a
//! constant hazard alone (`C` of the core's `session/turnover.rs`) breaks the third rule in the first three
//! rows: waits are 0.05 to 0.19 of those announced (four seeds).
//!
//! Over a thousand seeds in two processes with 60 slots 2 break the second rule (6 % of 242).

use std::time::Duration;

use tidegate_core::session::Sessions;
use tidegate_core::units::Timestamp;
use tidegate_settings::{Session as Set, SessionMax};

use super::{Finding, require};

/// Fewer waits are not judged: they are for the same few sessions.
const LEAST: u32 = 50;
/// Multiples of the announced wait by which visitors are counted as late.
const MULTIPLES: [f64; 2] = [1.25, 2.0];

/// What is expected of a run.
struct Bounds {
    /// Share of visitors who may wait longer than so many times the announced wait.
    late: [f64; MULTIPLES.len()],
    /// Least realised part of all announced waits together.
    realised: f64,
}

/// Where the number of session slots is given, and where it is not.
const GIVEN: Bounds = Bounds { late: [0.4, 0.05], realised: 0.2 };
const FORESEEN: Bounds = Bounds { late: [0.2, 0.03], realised: 0.5 };

/// Greatest session length, in timeouts, for which waits announced before any session has ended are judged.
const KNOWABLE: f64 = 2.0;
/// Open sessions listed at most; where there are more, the first to run out is not searched.
const LISTED: usize = 1_000;
/// Announced waits are as of the last tick, and whole milliseconds.
const GRAIN_US: u64 = 110_000;

#[derive(Clone, Copy, Default)]
struct Book {
    visitors: u32,
    /// Beyond each of the bounds.
    late: [u32; MULTIPLES.len()],
    told_s: f64,
    realised_s: f64,
}

#[derive(Default)]
pub(super) struct Waits {
    is_split: bool,
    /// The number of session slots is configured; and all are taken, as of the last tick.
    is_given: bool,
    is_full: bool,
    /// When the first open session runs out, as of the last tick, where no slot was free.
    first_us: Option<u64>,
    /// When a session had first ended; how long they last, in timeouts.
    ended_us: Option<u64>,
    timeouts: f64,
    /// Of waits announced before, and after.
    blind: Book,
    seeing: Book,
}

impl Book {
    fn add(&mut self, told: Duration, realised: Duration, slack: Duration) {
        self.visitors += 1;
        self.told_s += told.as_secs_f64();
        self.realised_s += realised.as_secs_f64();
        for (late, times) in self.late.iter_mut().zip(MULTIPLES) {
            *late += u32::from(realised > told.mul_f64(times) + slack);
        }
    }

    fn and(mut self, other: &Self) -> Self {
        self.visitors += other.visitors;
        self.told_s += other.told_s;
        self.realised_s += other.realised_s;
        self.late.iter_mut().zip(other.late).for_each(|(mine, theirs)| *mine += theirs);
        self
    }

    fn judge(&self, bounds: &Bounds) -> Finding {
        let Self { visitors, told_s, realised_s, .. } = self;
        if *visitors < LEAST {
            return Ok(());
        }
        let came =
            || format!("{visitors} waited for {realised_s:.0} s for a session slot, told {told_s:.0} s");
        for ((late, times), share) in self.late.iter().zip(MULTIPLES).zip(bounds.late) {
            require(f64::from(*late) <= share * f64::from(*visitors), "honest", || {
                let came = came();
                format!(
                    "expected {share} of them at most beyond {times} times the wait told, got {late}: {came}"
                )
            })?;
        }
        let Bounds { realised, .. } = bounds;
        require(*realised_s >= realised * told_s, "honest", || {
            format!("expected {realised} at least of the wait told: {}", came())
        })
    }
}

impl Waits {
    pub(super) fn new(is_split: bool, max: SessionMax) -> Self {
        Self { is_split, is_given: matches!(max, SessionMax::Fixed(_)), ..Self::default() }
    }

    /// Whether newcomers wait for the origin, and not for one of a given number of slots.
    pub(super) fn follow_capacity(&self) -> bool {
        !self.is_given || !self.is_full
    }

    /// Whether the visitor stays for twice the wait announced at `told_at`, and the slack; it is tired at
    /// `tired_at`.
    pub(super) fn would_have_waited(
        tired_at: Duration,
        told_at: Duration,
        wait: Duration,
        slack: Duration,
    ) -> bool {
        let longest = wait.saturating_mul(2).saturating_add(slack);
        tired_at >= told_at.saturating_add(longest)
    }

    pub(super) fn ticked(&mut self, table: &Sessions, of: &Set, now: Timestamp, now_us: u64) {
        let state = table.state();
        if !self.is_given || state.ended.sum() > 0 {
            self.ended_us.get_or_insert(now_us);
        }
        if let Some(length_s) = state.length_s {
            self.timeouts = length_s / of.timeout.as_secs_f64();
        }
        self.first_us = None;
        // Sessions that are ended early give slots back early; tokengen hears of it half a second later.
        self.is_full = table.pace().is_some_and(|pace| pace.free == Some(0));
        if self.is_split
            || !self.is_full
            || !self.is_given
            || state.ended.origin + state.ended.operator + state.ended.left > 0
        {
            return;
        }
        let page = table.list(0, LISTED);
        if page.next.is_none() {
            let ends = page.sessions.iter().map(|s| (s.last + of.timeout).min(s.begun + of.max_age));
            self.first_us = ends.min().map(|end| now_us + end.since(now).as_micros() as u64);
        }
    }

    pub(super) fn told(&self, client: u32, told: Duration, now_us: u64) -> Finding {
        let least_us = self.first_us.map_or(0, |first| first.saturating_sub(now_us + GRAIN_US));
        require(told.as_micros() as u64 >= least_us, "honest", || {
            let least = Duration::from_micros(least_us);
            format!(
                "visitor {client} is told {told:?} for a session slot, expected {least:?} at least: none can \
                 run out sooner"
            )
        })
    }

    pub(super) fn kept(&mut self, at_us: u64, told: Duration, realised: Duration, slack: Duration) {
        let is_blind = self.ended_us.is_none_or(|ended| at_us < ended);
        let book = if is_blind { &mut self.blind } else { &mut self.seeing };
        book.add(told, realised, slack);
    }

    pub(super) fn over(&self) -> Finding {
        if !self.is_given {
            return self.seeing.judge(&FORESEEN);
        }
        let all = self.seeing.and(&self.blind);
        if self.timeouts <= KNOWABLE { all.judge(&GIVEN) } else { self.seeing.judge(&GIVEN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: Duration = Duration::from_secs(3);

    #[test]
    fn a_run_is_judged_by_the_shares_of_long_waits_and_by_the_sum() {
        // Of a hundred visitors with an announced wait of 40 s: how many waited how long, in seconds.
        let table: [(&[(u32, u64)], bool); 8] = [
            (&[(100, 40)], true),
            (&[(60, 53), (40, 83)], true),
            (&[(60, 53), (35, 83), (5, 84)], true),
            (&[(60, 53), (34, 83), (6, 84)], false),
            (&[(59, 53), (41, 54)], false),
            (&[(60, 53), (40, 54)], true),
            (&[(100, 8)], true),
            (&[(100, 7)], false),
        ];
        for (visitors, is_honest) in table {
            let mut book = Book::default();
            for (count, realised_s) in visitors {
                for _ in 0..*count {
                    book.add(Duration::from_secs(40), Duration::from_secs(*realised_s), SLACK);
                }
            }
            assert_eq!(book.judge(&GIVEN).is_ok(), is_honest, "{visitors:?}: {:?}", book.judge(&GIVEN));
        }
        let mut few = Book::default();
        (1..LEAST).for_each(|_| few.add(SLACK, Duration::from_secs(999), SLACK));
        assert!(few.judge(&GIVEN).is_ok());
    }

    #[test]
    fn who_leaves_before_twice_the_announced_wait_is_not_judged() {
        let at = Duration::from_secs;
        // Told at 10 s to wait 40 s: 93 s, and no sooner.
        let stays = |tired_s: u64| Waits::would_have_waited(at(tired_s), at(10), at(40), SLACK);
        assert!(!stays(92) && stays(93));
        assert!(Waits::would_have_waited(Duration::MAX, at(10), Duration::MAX, SLACK));
    }

    #[test]
    fn waits_follow_the_capacity_while_a_session_slot_is_free() {
        let waits = |max, is_full| Waits { is_full, ..Waits::new(false, max) };
        assert!(waits(SessionMax::Fixed(1), false).follow_capacity());
        assert!(!waits(SessionMax::Fixed(1), true).follow_capacity());
        assert!(waits(SessionMax::Discovered, true).follow_capacity());
    }

    #[test]
    fn waits_announced_before_any_session_has_ended_are_judged_if_sessions_are_short() {
        let told_at = |at_us: u64, timeouts: f64| {
            let mut waits =
                Waits { ended_us: Some(1_000), timeouts, ..Waits::new(false, SessionMax::Fixed(1)) };
            (0..LEAST).for_each(|_| waits.kept(at_us, SLACK, Duration::from_secs(99), SLACK));
            waits.over().is_ok()
        };
        assert!(!told_at(999, 1.9) && told_at(999, 2.1), "before");
        assert!(!told_at(1_000, 1.9) && !told_at(1_000, 2.1), "after");
    }

    #[test]
    fn no_announced_wait_is_shorter_than_the_first_session_can_last() {
        let waits = Waits { first_us: Some(5_000_000), ..Waits::new(false, SessionMax::Fixed(1)) };
        let told =
            |seconds: f64, now_us: u64| waits.told(1, Duration::from_secs_f64(seconds), now_us).is_ok();
        assert!(told(4.9, 0) && !told(4.8, 0) && told(0.9, 4_000_000) && told(0.0, 6_000_000));
        assert!(
            Waits::new(false, SessionMax::Fixed(1)).told(1, Duration::ZERO, 0).is_ok(),
            "a slot is free, or too many to look at"
        );
    }
}
