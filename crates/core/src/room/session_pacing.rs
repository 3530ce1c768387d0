//! Session slots, as far as the room depends on them: no visitor is admitted for whom there is none.
//!
//! Where the room admits sessions (WAC), a visitor who enters needs a session slot, whatever the origin could
//! take. So a second limit applies to the virtual clock beside that of the origin, and the lower one governs:
//!
//! ```text
//! visitors admitted  <=  (free + 0.5 s * p - P) / show-up ratio
//! wait               >=  d + (visitors before * show-up ratio + P + 1 - free) / p
//! ```
//!
//! * `free` session slots now, `p` those that become free per second, `d` the time before the first does.
//! * `P` visitors in transit (`decaying.rs`): admitted and not yet here, `T` = 1 s.
//!
//! `d` and `p` come from the session table (`session/turnover.rs`). They decide announced waits; admissions
//! depend on the session slots that are free, and an error of `p` costs half a second of it at most.
//!
//! A visitor who comes in turn and finds no session slot (others were quicker, or a session came back over a
//! restart) keeps the ticket, is asked to come again in a second, and is in `P` once more. Newcomers enter at
//! once only where enough slots are left for all of `P`. The first one who does not stops the virtual clock,
//! which follows the wall clock while no one waits: so those behind it have their turns in the order in which
//! they came, and not all at the next tick.
//!
//! Rejected: pacing by `p` alone (a no-show leaves a session slot idle for as long as the next admission
//! takes, and an error of `p` accumulates without end); admitting one visitor for each session slot that is
//! freed (the same without the error).

use std::time::Duration;

use super::types::MAX_WAIT;
use crate::decaying::InTransit;
use crate::session::SessionPace;
use crate::sync::{AtomicBool, AtomicF64, AtomicU64, Ordering};

/// Mean time from being admitted to being here, in seconds: a page asks about once in it.
const IN_TRANSIT_S: f64 = 1.0;
/// Session slots that become free in this time are admitted for in advance, in seconds.
const AHEAD_S: f64 = 0.5;
/// Weight in `P` of a visitor who was asked to come again in a second: not one who comes after a second on
/// the average, but after that second.
const AGAIN_WEIGHT: f64 = 1.5;
const UNBOUNDED: u64 = u64::MAX;

/// The tick's part: how many visitors may be admitted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SessionPacer {
    pace: Option<SessionPace>,
    /// `P`.
    in_transit: InTransit,
}

impl SessionPacer {
    /// How fast new sessions get session slots; `None`: as fast as they come.
    pub(super) fn set_pace(&mut self, pace: Option<SessionPace>) {
        self.pace = pace;
        if !self.is_counted() {
            self.in_transit = InTransit::default();
        }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.pace.is_some_and(|pace| pace.free.is_some())
    }

    /// Lets `dt_s` pass: visitors in transit come, and so many found no session slot.
    pub(super) fn pass(&mut self, dt_s: f64, unserved: u64) {
        self.in_transit.pass(dt_s, IN_TRANSIT_S);
        self.in_transit.add(AGAIN_WEIGHT * unserved as f64);
    }

    /// Visitors that may be admitted; `None`: all.
    pub(super) fn max_visitors(&self, show_up: f64) -> Option<f64> {
        let SessionPace { free, per_s, .. } = self.pace?;
        let free = f64::from(free?);
        Some(((free + AHEAD_S * per_s - self.in_transit.get()) / show_up).max(0.0))
    }

    pub(super) fn admitted(&mut self, visitors: f64, show_up: f64) {
        self.in_transit.add(visitors * show_up);
    }
}

/// The part that requests read.
#[derive(Default)]
pub(crate) struct SessionSlots {
    is_counted: AtomicBool,
    free: AtomicU64,
    /// `P`, `p` and `d`.
    in_transit: AtomicF64,
    freed_per_s: AtomicF64,
    next_s: AtomicF64,
    /// Newcomers who may enter until the next tick, where session slots are given by another process.
    spare: AtomicU64,
    /// Visitors who came in turn and found none, since the last tick.
    unserved: AtomicU64,
    /// Fewer were admitted on the last tick than the origin could have taken, for want of session slots.
    is_limiting: AtomicBool,
}

impl SessionSlots {
    pub(super) fn publish(&self, pacer: &SessionPacer) {
        let unbounded = SessionPace { free: None, per_s: 0.0, next_s: 0.0 };
        let SessionPace { free, per_s, next_s } = pacer.pace.unwrap_or(unbounded);
        let spare = free.map_or(UNBOUNDED, |free| (f64::from(free) - pacer.in_transit.get()).max(0.0) as u64);
        self.in_transit.store(pacer.in_transit.get());
        self.freed_per_s.store(per_s);
        self.next_s.store(next_s);
        self.free.store(u64::from(free.unwrap_or(u32::MAX)), Ordering::Relaxed);
        self.spare.store(spare, Ordering::Relaxed);
        self.is_counted.store(pacer.is_counted(), Ordering::Relaxed);
    }

    pub(super) fn are_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    /// Time until so many visitors, of whom a share of `show_up` comes, and those in transit have got session
    /// slots, and one more has; nothing where they are not counted.
    pub(super) fn wait(&self, visitors: u64, show_up: f64) -> Duration {
        if !self.are_counted() {
            return Duration::ZERO;
        }
        let free = self.free.load(Ordering::Relaxed) as f64;
        let needed = visitors as f64 * show_up + self.in_transit.load() + 1.0 - free;
        if needed <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(self.next_s.load() + needed / self.freed_per_s.load()).unwrap_or(MAX_WAIT)
    }

    /// Whether a newcomer may have one of so many free session slots, beside the visitors in transit.
    pub(super) fn leave_enough(&self, free: u32) -> bool {
        // A visitor in transit who is half forgotten is no reason to keep one.
        !self.are_counted() || f64::from(free) >= self.in_transit.load() + 0.5
    }

    /// Whether the process that gives session slots may have one left for a newcomer who is sent there.
    pub(crate) fn has_spare(&self) -> bool {
        !self.are_counted() || self.spare.load(Ordering::Relaxed) > 0
    }

    /// Takes one of those that may be left in the process that gives them.
    pub(crate) fn take_spare(&self) -> bool {
        let take = |left: u64| if left == UNBOUNDED { Some(left) } else { left.checked_sub(1) };
        !self.are_counted() || self.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// A visitor has come in turn and found none.
    pub(crate) fn note_unserved(&self) {
        self.unserved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take_unserved(&self) -> u64 {
        self.unserved.swap(0, Ordering::Relaxed)
    }

    pub(super) fn set_limiting(&self, is_limiting: bool) {
        self.is_limiting.store(is_limiting, Ordering::Relaxed);
    }

    /// Whether the waiting wait for session slots, and not for the origin.
    pub(crate) fn are_limiting(&self) -> bool {
        self.is_limiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(free: Option<u32>, per_s: f64, next_s: f64) -> (SessionPacer, SessionSlots) {
        let (mut pacer, slots) = (SessionPacer::default(), SessionSlots::default());
        pacer.set_pace(Some(SessionPace { free, per_s, next_s }));
        slots.publish(&pacer);
        (pacer, slots)
    }

    #[test]
    fn visitors_in_transit_have_their_session_slots_kept() {
        let (mut pacer, slots) = paced(Some(10), 4.0, 0.0);
        assert_eq!(pacer.max_visitors(0.5), Some(24.0), "those free, and of half a second");
        pacer.admitted(16.0, 0.5);
        slots.publish(&pacer);
        assert_eq!(pacer.max_visitors(1.0), Some(4.0));
        assert!(slots.leave_enough(9) && !slots.leave_enough(8));
        assert!(slots.take_spare() && slots.take_spare() && !slots.take_spare() && !slots.has_spare());
        pacer.pass(60.0, 0);
        assert!((pacer.max_visitors(1.0).unwrap_or_default() - 12.0).abs() < 1e-6);
        pacer.pass(0.0, 8);
        assert!(
            (pacer.max_visitors(1.0).unwrap_or_default()).abs() < 1e-6,
            "eight found none and come again"
        );
    }

    #[test]
    fn a_wait_counts_those_before_and_the_first_that_becomes_free() {
        let (_, slots) = paced(Some(3), 0.5, 7.0);
        assert_eq!(slots.wait(2, 1.0), Duration::ZERO, "the third slot is free");
        assert_eq!(slots.wait(3, 1.0), Duration::from_secs(9));
        assert_eq!(slots.wait(10, 0.5), Duration::from_secs(7 + 6));
        let (_, never) = paced(Some(0), 0.0, 0.0);
        assert_eq!(never.wait(0, 1.0), MAX_WAIT);
    }

    #[test]
    fn without_a_bound_nothing_is_counted() {
        let (mut pacer, slots) = paced(None, 0.0, 0.0);
        assert_eq!((pacer.max_visitors(1.0), slots.are_counted()), (None, false));
        assert!(slots.leave_enough(0) && slots.take_spare() && slots.has_spare());
        assert_eq!(slots.wait(1_000, 1.0), Duration::ZERO);
        pacer.pass(0.1, 5);
        pacer.set_pace(None);
        assert_eq!(pacer.in_transit.get(), 0.0);
    }
}
