//! Places of sessions, as the room goes by them: nobody is called for whom there is none.
//!
//! Where the room admits sessions (WAC), a visitor who enters needs one of a number of places, whatever the origin could take. So
//! the hand has a second law beside that of the origin, and goes by whichever calls fewer:
//!
//! ```text
//! visitors called  <=  (free + 0.5 s * p - P) / show-up ratio             p  places that become free per second, as learned
//! P' = called * show-up ratio - P / 1 s                                   called and not yet here
//! wait             >=  d + (visitors before * show-up ratio + P + 1 - free) / p        d  before the first of them can
//! ```
//!
//! `d` and `p` are the table's (`session/freed.rs`). They tell waits; who is called goes by places that are free, and an error of them costs half a second of `p`
//! at most.
//!
//! Whoever comes in turn and finds no place (others were quicker, or a session came back over a restart) keeps the ticket, is asked
//! to come again in a second, and is in `P` once more. Newcomers enter at once only where places are left for all of `P`. The
//! first one who does not stops the hand, which goes with the clock while nobody waits: so those behind it have their turns in the order in
//! which they came, and not all at the next tick.
//!
//! Rejected: pacing by `p` alone (whoever does not come leaves a place idle for as long as the next call takes, and an error of
//! `p` has no end); calling one visitor for each place that is freed (the same without the error).

use std::time::Duration;

use super::control::Control;
use super::{MAX_WAIT, Room};
use crate::redeem::Mark;
use crate::ring::Load;
use crate::session::SessionPace;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::{Cost, Rate, Timestamp};

/// Mean time from being called to being here, in seconds: a page asks about once in it.
const ON_THE_WAY_S: f64 = 1.0;
/// Places that become free in this time are called for in advance, in seconds.
const AHEAD_S: f64 = 0.5;
/// Weight of one who was asked to come again in a second: not one who comes after one second on the average, but after that one.
const AGAIN: f64 = 1.5;

/// What requests read.
pub(super) struct Seats {
    /// One if places are counted.
    counts: AtomicU64,
    /// `P`, `p` and `d`: the bits of three `f64`.
    coming: AtomicU64,
    per_s: AtomicU64,
    next_s: AtomicU64,
    free: AtomicU64,
    /// Newcomers who may enter until the next tick, where places are given elsewhere.
    spare: AtomicU64,
    /// Visitors who came in turn and found no place, since this was last looked at.
    away: AtomicU64,
    max_wait_us: AtomicU64,
    /// One if fewer were called at the last tick than the origin could have taken, for want of places.
    binds: AtomicU64,
}

impl Default for Seats {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            counts: zero(),
            coming: zero(),
            per_s: zero(),
            next_s: zero(),
            free: zero(),
            spare: zero(),
            away: zero(),
            max_wait_us: AtomicU64::new(MAX_WAIT.as_micros() as u64),
            binds: zero(),
        }
    }
}

/// What only the tick knows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Calls {
    pace: Option<SessionPace>,
    coming: f64,
}

impl Calls {
    /// Lets `dt_s` pass: who was called comes; so many found no place.
    pub(super) fn pass(&mut self, dt_s: f64, away: u64) {
        self.coming = self.coming * (-dt_s / ON_THE_WAY_S).exp() + AGAIN * away as f64;
    }

    /// Visitors that may be called; `None`: all.
    pub(super) fn most(&self, show_up: f64) -> Option<f64> {
        let SessionPace { free, per_s, .. } = self.pace?;
        let free = f64::from(free?);
        Some(((free + AHEAD_S * per_s - self.coming) / show_up).max(0.0))
    }

    pub(super) fn called(&mut self, visitors: f64, show_up: f64) {
        if self.pace.is_some() {
            self.coming += visitors * show_up;
        }
    }

    pub(super) fn counts(&self) -> bool {
        self.pace.is_some_and(|pace| pace.free.is_some())
    }
}

impl Seats {
    pub(super) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed) == 1
    }

    fn coming(&self) -> f64 {
        f64::from_bits(self.coming.load(Ordering::Relaxed))
    }

    pub(super) fn set_max_wait(&self, max_wait: Duration) {
        self.max_wait_us.store(max_wait.min(MAX_WAIT).as_micros() as u64, Ordering::Relaxed);
    }

    fn max_wait(&self) -> Duration {
        Duration::from_micros(self.max_wait_us.load(Ordering::Relaxed))
    }

    pub(super) fn take_away(&self) -> u64 {
        self.away.swap(0, Ordering::Relaxed)
    }

    pub(super) fn publish(&self, calls: &Calls) {
        let unbounded = SessionPace { free: None, per_s: 0.0, next_s: 0.0 };
        let SessionPace { free, per_s, next_s } = calls.pace.unwrap_or(unbounded);
        let left = free.map_or(u64::MAX, |free| (f64::from(free) - calls.coming).max(0.0) as u64);
        self.coming.store(calls.coming.to_bits(), Ordering::Relaxed);
        self.per_s.store(per_s.to_bits(), Ordering::Relaxed);
        self.next_s.store(next_s.to_bits(), Ordering::Relaxed);
        self.free.store(u64::from(free.unwrap_or(u32::MAX)), Ordering::Relaxed);
        self.spare.store(left, Ordering::Relaxed);
        self.counts.store(u64::from(calls.counts()), Ordering::Relaxed);
    }

    /// Time until so many visitors, and those on their way, have found places, and one more has.
    fn wait(&self, visitors: f64) -> Duration {
        let needed = visitors + self.coming() + 1.0 - self.free.load(Ordering::Relaxed) as f64;
        if needed <= 0.0 {
            return Duration::ZERO;
        }
        let per_s = f64::from_bits(self.per_s.load(Ordering::Relaxed));
        let next_s = f64::from_bits(self.next_s.load(Ordering::Relaxed));
        Duration::try_from_secs_f64(next_s + needed / per_s).unwrap_or(MAX_WAIT)
    }
}

impl Room {
    /// How fast new sessions find places; `None`: as fast as they come. On every tick, before it.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        self.go_by_places(&mut self.control(), pace);
    }

    pub(super) fn go_by_places(&self, control: &mut Control, pace: Option<SessionPace>) {
        control.calls.pace = pace;
        if !control.calls.counts() {
            control.calls.coming = 0.0;
        }
        let changes = control.calls.counts() != self.seats.counts();
        self.door.count_places(control.calls.counts());
        self.seats.publish(&control.calls);
        let capacity = self.door.capacity();
        if changes && capacity > Rate::ZERO {
            self.fit_schedule(control, capacity, control.last_tick);
        }
    }

    /// No more than there are places for: of `work`, in hundredths, as much; and the average visitor of those who wait.
    pub(super) fn within_places(&self, control: &mut Control, work: f64, from: Timestamp) -> (f64, f64) {
        let Some(visitors) = control.calls.most(self.show_up()) else {
            control.window.go_by_places(false);
            self.seats.binds.store(0, Ordering::Relaxed);
            return (work, f64::MAX);
        };
        let grain = self.waiting_grain(from);
        let binds = visitors * grain < work;
        control.window.go_by_places(binds);
        self.seats.binds.store(u64::from(binds), Ordering::Relaxed);
        (work.min(visitors * grain), grain)
    }

    /// Whether so few places as that may have room for a newcomer, beside those who were called.
    pub(crate) fn leaves_enough(&self, pace: Option<SessionPace>) -> bool {
        let Some(free) = pace.and_then(|pace| pace.free) else { return true };
        // Somebody half forgotten is no reason to keep a place.
        !self.seats.counts() || f64::from(free) >= self.seats.coming() + 0.5
    }

    /// Whether those who wait wait for places, and not for the origin.
    pub(crate) fn waits_for_places(&self) -> bool {
        self.seats.binds.load(Ordering::Relaxed) == 1
    }

    /// Whether whoever gives places may have one left for a newcomer who is sent there.
    pub(crate) fn has_spare(&self) -> bool {
        !self.seats.counts() || self.seats.spare.load(Ordering::Relaxed) > 0
    }

    /// One of the places that may be left at whoever gives them: for a newcomer who is sent there.
    pub(crate) fn takes_spare(&self) -> bool {
        let take = |left: u64| (left == u64::MAX).then_some(left).or_else(|| left.checked_sub(1));
        !self.seats.counts()
            || self.seats.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// One in turn has come and found no place.
    pub(crate) fn no_place(&self) {
        self.seats.away.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there is an order to be kept although the origin takes all: of those who wait for places.
    pub(super) fn keeps_turns(&self, now: Timestamp) -> bool {
        self.seats.counts() && self.busy(now)
    }

    /// Where one who waits stands who was given `due`, the beginning of its part of the schedule: at the end of it, where places are
    /// counted, so that the hand calls it once it has come all of the way. Not in the next second, which is another's.
    pub(super) fn turn(&self, due: Timestamp, cost: Cost) -> Timestamp {
        if !self.seats.counts() {
            return due;
        }
        let part = cost.units() / self.slots.limit_here().units();
        let end = Timestamp::from_millis((due.second() + 1) * 1_000 - 1);
        due.max(end.min(due + Duration::from_secs_f64(part.min(1.0))))
    }

    /// A newcomer has found no place: from now on there is an order to be kept.
    pub(super) fn stop_hand(&self, now: Timestamp) {
        if self.seats.counts() {
            self.door.hand.stop(now);
        }
    }

    /// Whether the origin is too far behind for one who has a place and no turn.
    pub(crate) fn is_closed_to_all(&self, now: Timestamp) -> bool {
        self.door.is_closed(now)
    }

    /// Lets a ticket in before its turn: its visitor has a place that nobody of those before it could take. `false`: it has been
    /// used.
    pub(crate) fn redeem_past(&self, ticket: &Ticket) -> bool {
        let second = ticket.due().second();
        if self.door.redeemed.mark(second, ticket.nonce) != Mark::First {
            return false;
        }
        self.show(second, ticket.cost);
        self.charge(ticket.cost);
        true
    }

    /// The wait for a place, of one with so many visitors before; nothing where places are not counted.
    pub(super) fn wait_for_place(&self, visitors: u64) -> Duration {
        if !self.seats.counts() {
            return Duration::ZERO;
        }
        self.seats.wait(visitors as f64 * self.show_up_told())
    }

    /// Whether a newcomer would wait for a place for longer than anybody may.
    pub(super) fn is_too_long_for_place(&self, hand: Timestamp) -> bool {
        self.seats.counts() && {
            let ahead = self.slots.between(hand, self.last_due());
            self.wait_for_place(ahead.visitors) > self.seats.max_wait()
        }
    }

    /// The average visitor who waits, in hundredths.
    pub(super) fn waiting_grain(&self, from: Timestamp) -> f64 {
        let Load { visitors, cost } = self.waits.sum(from.second(), self.last_due().second() + 1);
        if visitors == 0 { Cost::ONE.hundredths() as f64 } else { cost.hundredths() as f64 / visitors as f64 }
    }
}
