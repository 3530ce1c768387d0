//! How late a ticket is, and until when it is valid.
//!
//! Lateness counts from an instant that follows the virtual clock, never ahead of the wall clock and at the
//! speed of time: when the virtual clock skips seconds where nothing is promised, visitors who were due just
//! before them are not suddenly late by the length of the gap.

use std::time::Duration;

use super::settings::RoomConfig;
use crate::sync::{Atomic, AtomicBool, Ordering};
use crate::units::Timestamp;

/// So late is still on time: a page wakes up, a connection is made, a request is sent.
const ON_TIME: Duration = Duration::from_secs(2);
/// How much faster than time lateness catches up after a skip of the clock: grace is cut by a tenth at most.
const CATCH_UP: f64 = 1.1;

/// Whether a visitor comes within the time that a page needs to react to its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Punctuality {
    OnTime,
    Late,
}

pub(super) struct Lateness {
    /// From where lateness counts.
    pub(super) reached: Atomic<Timestamp>,
    grace: Atomic<Duration>,
    /// How early a visitor may come.
    pub(super) tolerance: Atomic<Duration>,
    /// Tickets due before this are refused: the start of this process, or zero if they are accepted.
    refuse_before: Atomic<Timestamp>,
    started: Timestamp,
    /// The tickets that an earlier process has redeemed are known: the others are good in any case.
    knows_redeemed: AtomicBool,
}

impl Lateness {
    pub(super) fn new(config: &RoomConfig, now: Timestamp) -> Self {
        let lateness = Self {
            reached: Atomic::new(now),
            grace: Atomic::new(Duration::ZERO),
            tolerance: Atomic::new(Duration::ZERO),
            refuse_before: Atomic::new(Timestamp::default()),
            started: now,
            knows_redeemed: AtomicBool::new(false),
        };
        lateness.configure(config);
        lateness
    }

    pub(super) fn configure(&self, config: &RoomConfig) {
        self.grace.store(config.grace);
        self.tolerance.store(config.tolerance);
        let accepts_all = config.after_restart_accept || self.knows_redeemed.load(Ordering::Relaxed);
        self.refuse_before.store(if accepts_all { Timestamp::default() } else { self.started });
    }

    /// The tickets that an earlier process has redeemed are known from now on.
    pub(super) fn set_knows_redeemed(&self) {
        self.knows_redeemed.store(true, Ordering::Relaxed);
        self.refuse_before.store(Timestamp::default());
    }

    pub(super) fn is_expired(&self, due: Timestamp) -> bool {
        due < self.refuse_before.load() || self.reached.load().since(due) > self.grace.load()
    }

    pub(super) fn of(&self, due: Timestamp) -> Punctuality {
        if self.reached.load().since(due) > ON_TIME { Punctuality::Late } else { Punctuality::OnTime }
    }

    /// Oldest second of the schedule whose tickets are still valid.
    pub(super) fn oldest_valid(&self, now: Timestamp) -> u64 {
        let kept = self.grace.load() + self.tolerance.load();
        self.reached.load().min(now).saturating_sub(kept).second()
    }

    /// On a tick, `dt_s` after the last: follows the virtual clock, which is at `clock_at`.
    pub(super) fn follow(&self, clock_at: Timestamp, now: Timestamp, dt_s: f64) {
        let reached = self.reached.load();
        let step = Duration::try_from_secs_f64(dt_s * CATCH_UP).unwrap_or_default();
        self.reached.store(clock_at.min(now).min(reached + step).max(reached));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_skip_of_the_virtual_clock_makes_no_visitor_late() {
        let lateness = Lateness::new(&RoomConfig::default(), START);
        // From 10 s to 500 s in one tick.
        lateness.follow(after(10), after(100), 10.0);
        lateness.follow(after(500), after(500), 0.1);
        assert_eq!(lateness.of(after(9)), Punctuality::OnTime);
        assert_eq!(lateness.reached.load(), after(10) + Duration::from_millis(110));
        for _ in 0..100 {
            lateness.follow(after(500), after(500), 1.0);
        }
        assert_eq!(lateness.of(after(9)), Punctuality::Late);
        assert!(lateness.is_expired(after(9)));
        lateness.follow(after(0), after(500), 1.0);
        assert!(lateness.reached.load() >= after(100), "never back");
    }

    #[test]
    fn tickets_of_before_a_restart_are_good_or_not_as_set() {
        for after_restart_accept in [true, false] {
            let config = RoomConfig { after_restart_accept, ..RoomConfig::default() };
            let lateness = Lateness::new(&config, START);
            assert_eq!(
                lateness.is_expired(START.saturating_sub(Duration::from_secs(1))),
                !after_restart_accept
            );
            assert!(!lateness.is_expired(START));
            lateness.set_knows_redeemed();
            lateness.configure(&config);
            assert!(!lateness.is_expired(START.saturating_sub(Duration::from_secs(1))));
        }
    }

    #[test]
    fn a_ticket_is_kept_for_grace_and_tolerance() {
        let tolerance = Duration::from_secs(1);
        let lateness = Lateness::new(&RoomConfig { tolerance, ..RoomConfig::default() }, START);
        assert_eq!(lateness.oldest_valid(after(9)), START.second() - 61);
        assert!(!lateness.is_expired(START.saturating_sub(Duration::from_secs(60))));
    }
}
