//! The door: is it this ticket's turn? The part of the room that tokencheck has too.

use std::time::Duration;

use super::RoomConfig;
use crate::hand::{Backlog, Hand, HandValue, target_s};
use crate::redeem::{Mark, Redeemed};
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::{Cost, Rate, Timestamp};

/// So late is still on time: a page wakes up, a connection is made, a request is sent.
const ON_TIME: Duration = Duration::from_secs(2);
/// Backlog up to which visitors on time are let in, in seconds at capacity: tier 2 absorbs it. Beyond, they are asked to come again.
const BEHIND_S: f64 = 2.0;
/// Backlog up to which late visitors are let in, beyond the one aimed at. At this backlog the hand has slowed to 0.3: the late may take
/// 70 % of the origin before one of them is asked to come again. With 0.2 they could take 14 %, and starved when more were late.
const SPARE_S: f64 = 1.0;
/// How much faster than time lateness counts after the hand has skipped: grace is cut by a tenth at most.
const CATCH_UP: f64 = 1.1;
/// When to come again, if it is your turn but the origin is behind.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// What the door says to a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// In.
    Enter,
    /// Not yet your turn.
    Early,
    /// Your turn, but the origin is behind: soon.
    Behind,
    Replayed,
    Expired,
}

pub(crate) struct Door {
    capacity: AtomicU64,
    /// The average admitted visitor, in hundredths, weighted by work.
    grain: AtomicU64,
    pub(crate) hand: Hand,
    /// From where lateness counts, in microseconds: follows the hand, never ahead of the clock, at the speed of time. When the
    /// hand skips a stretch where nothing is promised, who was due just before it is not suddenly late by its length.
    reached: AtomicU64,
    pub(crate) backlog: Backlog,
    /// Work queued for the origin, in hundredths, as of the last tick.
    queued: AtomicU64,
    /// Sums since the start: work, and work times work / 100, in hundredths.
    admitted: AtomicU64,
    squares: AtomicU64,
    pub(crate) redeemed: Redeemed,
    grace_us: AtomicU64,
    tolerance_us: AtomicU64,
    /// Tickets due before this are refused: the restart, or zero if they are accepted.
    refuse_before: AtomicU64,
    started: Timestamp,
}

impl Door {
    pub(crate) fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        let door = Self {
            capacity: AtomicU64::new(capacity.get().to_bits()),
            grain: AtomicU64::new(Cost::ONE.hundredths()),
            hand: Hand::new(HandValue { at: now, follows_clock: true }),
            reached: AtomicU64::new(now.as_micros()),
            backlog: Backlog::new(now),
            queued: AtomicU64::new(0),
            admitted: AtomicU64::new(0),
            squares: AtomicU64::new(0),
            redeemed: Redeemed::default(),
            grace_us: AtomicU64::new(0),
            tolerance_us: AtomicU64::new(0),
            refuse_before: AtomicU64::new(0),
            started: now,
        };
        door.configure(config);
        door
    }

    pub(crate) fn configure(&self, config: &RoomConfig) {
        self.grace_us.store(config.grace.as_micros() as u64, Ordering::Relaxed);
        self.tolerance_us.store(config.tolerance.as_micros() as u64, Ordering::Relaxed);
        let refuse = if config.after_restart_accept { 0 } else { self.started.as_micros() };
        self.refuse_before.store(refuse, Ordering::Relaxed);
    }

    pub(crate) fn capacity(&self) -> Rate {
        Rate::per_second(f64::from_bits(self.capacity.load(Ordering::Relaxed))).unwrap_or_default()
    }

    pub(crate) fn set_capacity(&self, rate: Rate, now: Timestamp) {
        self.backlog.rescale(now, self.capacity(), rate);
        self.capacity.store(rate.get().to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_micros(self.grace_us.load(Ordering::Relaxed))
    }

    fn tolerance(&self) -> Duration {
        Duration::from_micros(self.tolerance_us.load(Ordering::Relaxed))
    }

    /// Work admitted.
    pub(crate) fn admit(&self, cost: Cost) {
        let hundredths = cost.hundredths();
        self.backlog.add(cost, self.capacity());
        self.admitted.fetch_add(hundredths, Ordering::Relaxed);
        self.squares.fetch_add(hundredths * hundredths / 100, Ordering::Relaxed);
    }

    /// Sums since the start: (work, squares), as [`Door::admit`] counts them.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.squares.load(Ordering::Relaxed))
    }

    pub(crate) fn set_queued(&self, queued: Cost) {
        self.queued.store(queued.hundredths(), Ordering::Relaxed);
    }

    pub(crate) fn set_grain(&self, grain: Cost) {
        self.grain.store(grain.hundredths(), Ordering::Relaxed);
    }

    /// The average visitor, as seconds of work at capacity.
    pub(crate) fn grain_s(&self) -> f64 {
        self.seconds_of(self.grain.load(Ordering::Relaxed))
    }

    /// What is ahead of the origin, as seconds of work at capacity: admitted or really queued, whichever is more.
    pub(crate) fn backlog_s(&self, now: Timestamp) -> f64 {
        self.backlog.seconds(now).max(match self.queued.load(Ordering::Relaxed) {
            0 => f64::MIN,
            queued => self.seconds_of(queued),
        })
    }

    fn seconds_of(&self, hundredths: u64) -> f64 {
        let capacity = self.capacity().get();
        if capacity > 0.0 { hundredths as f64 / 100.0 / capacity } else { 0.0 }
    }

    /// Oldest slot second that may still be redeemed.
    pub(crate) fn oldest_valid(&self, now: Timestamp) -> u64 {
        self.reached().min(now).saturating_sub(self.grace() + self.tolerance()).second()
    }

    pub(crate) fn reached(&self) -> Timestamp {
        Timestamp::from_micros(self.reached.load(Ordering::Relaxed))
    }

    pub(crate) fn set_reached(&self, at: Timestamp) {
        self.reached.store(at.as_micros(), Ordering::Relaxed);
    }

    /// Lets lateness count on for `dt_s`: a little faster than time, so that what a skip left behind is caught up.
    pub(crate) fn follow_hand(&self, now: Timestamp, dt_s: f64) {
        let reached = self.reached();
        let step = Duration::try_from_secs_f64(dt_s * CATCH_UP).unwrap_or_default();
        let goal = self.hand.at(now).min(now);
        self.set_reached(goal.min(reached + step).max(reached));
    }

    /// What the door says; changes nothing.
    pub(crate) fn judge(&self, ticket: &Ticket, now: Timestamp) -> Word {
        if self.redeemed.contains(ticket.due().second(), ticket.nonce) {
            return Word::Replayed;
        }
        self.judge_unused(ticket, now)
    }

    /// The same of a ticket that has not been redeemed.
    fn judge_unused(&self, ticket: &Ticket, now: Timestamp) -> Word {
        let due = ticket.due();
        if due.as_micros() < self.refuse_before.load(Ordering::Relaxed) {
            return Word::Expired;
        }
        let hand = self.hand.at(now);
        let late = self.reached().since(due);
        if late > self.grace() {
            return Word::Expired;
        }
        let capacity = self.capacity();
        if capacity >= Rate::MAX {
            return Word::Enter;
        }
        // Whoever made a ticket for now let the visitor in at once; the schedule has no say in it. The origin has: while all
        // replicas are down tokengen goes on sending visitors, who must not all enter the moment one is back.
        let is_for_now = ticket.wait.is_zero() && due <= now + self.tolerance();
        if !is_for_now && due > hand + self.tolerance() {
            return Word::Early;
        }
        let grain = self.grain_s();
        let bound = if late <= ON_TIME { BEHIND_S + grain } else { SPARE_S + target_s(grain) };
        if capacity == Rate::ZERO || self.backlog_s(now) > bound {
            return Word::Behind;
        }
        Word::Enter
    }

    /// Whether the ticket's turn passed longer ago than a page needs to wake up.
    pub(crate) fn is_late(&self, ticket: &Ticket) -> bool {
        self.reached().since(ticket.due()) > ON_TIME
    }

    /// Undoes a redemption whose request never reached the origin. What was admitted stays counted: tokencheck's reports
    /// are differences of sums that only grow.
    pub(crate) fn give_back(&self, ticket: &Ticket) {
        self.redeemed.unmark(ticket.due().second(), ticket.nonce);
        self.backlog.remove(ticket.cost, self.capacity());
    }

    /// Lets the ticket in if the door says so: once, whoever else asks at the same time. The caller charges its work
    /// with [`Door::admit`].
    pub(crate) fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Word {
        let word = self.judge_unused(ticket, now);
        if word != Word::Enter {
            let used = self.redeemed.contains(ticket.due().second(), ticket.nonce);
            return if used { Word::Replayed } else { word };
        }
        // Noting it tells whether it was noted before: one search, not two.
        match self.redeemed.mark(ticket.due().second(), ticket.nonce) {
            Mark::First => Word::Enter,
            Mark::Again => Word::Replayed,
            Mark::NoRoom => Word::Behind,
        }
    }
}
