//! The door: is it this ticket's turn? The part of the room that tokencheck has too.

use std::time::Duration;

use super::window;
use super::{Course, RoomConfig};
use crate::gate::Totals;
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
/// Memory of the work per second that goes to the origin, in seconds: two processes may tick and report out of step.
const FLOW_MEMORY_S: f64 = 2.0;
/// Work that stands for "the origin is gone": nobody enters.
pub(crate) const ORIGIN_GONE: Cost = Cost::from_hundredths(u64::MAX / 4);
/// How full the gate's queue may be made by visitors whose turn has come; the rest is for those who never wait in the room.
const FILL: f64 = 0.75;
/// How much faster than time lateness counts after the hand has skipped: grace is cut by a tenth at most.
const CATCH_UP: f64 = 1.1;
/// When to come again, if it is your turn but the origin is behind.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// No queue is kept: the rate is what governs.
const RATE_GOVERNS: u64 = u64::MAX;

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
    /// What waits are reckoned with.
    capacity: AtomicU64,
    /// What the virtual backlog is worked off at.
    drain: AtomicU64,
    /// Most work at the gate, in hundredths, that visitors whose turn has come may join. [`RATE_GOVERNS`]: no queue is kept
    /// at the gate, and the virtual backlog is what counts.
    most_queued: AtomicU64,
    /// Work of those who were asked to come again since this was last looked at, in hundredths.
    sent_away: AtomicU64,
    /// Work per second that the gate sends to the origin, as of late (the bits of an `f64`), and what that was reckoned from:
    /// work, in hundredths, and when, in microseconds.
    flow: AtomicU64,
    forwarded: AtomicU64,
    seen_at: AtomicU64,
    /// The average admitted visitor, in hundredths, weighted by work.
    grain: AtomicU64,
    pub(crate) hand: Hand,
    /// From where lateness counts, in microseconds: follows the hand, never ahead of the clock, at the speed of time. When the
    /// hand skips a stretch where nothing is promised, who was due just before it is not suddenly late by its length.
    reached: AtomicU64,
    pub(crate) backlog: Backlog,
    /// Work queued for the origin, in hundredths, as of the last tick.
    queued: AtomicU64,
    /// Sums since the start: work in hundredths, and its squares, modulo 2^64. Not in units: the cheapest would be none.
    admitted: AtomicU64,
    squares: AtomicU64,
    pub(crate) redeemed: Redeemed,
    grace_us: AtomicU64,
    tolerance_us: AtomicU64,
    /// One if places of sessions are counted: turns are kept also where the origin takes all.
    counts_places: AtomicU64,
    /// Tickets due before this are refused: the restart, or zero if they are accepted.
    refuse_before: AtomicU64,
    started: Timestamp,
}

impl Door {
    pub(crate) fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        let door = Self {
            capacity: AtomicU64::new(capacity.get().to_bits()),
            drain: AtomicU64::new(capacity.get().to_bits()),
            most_queued: AtomicU64::new(RATE_GOVERNS),
            sent_away: AtomicU64::new(0),
            flow: AtomicU64::new(0f64.to_bits()),
            forwarded: AtomicU64::new(0),
            seen_at: AtomicU64::new(now.as_micros()),
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
            counts_places: AtomicU64::new(0),
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

    /// Goes by `course` from now on.
    pub(crate) fn set_course(&self, course: &Course, now: Timestamp) {
        let drain = if course.keeps_queue { course.ceiling } else { course.outflow };
        self.backlog.rescale(now, self.drain(), drain);
        self.drain.store(drain.get().to_bits(), Ordering::Relaxed);
        self.capacity.store(course.capacity.get().to_bits(), Ordering::Relaxed);
        if course.keeps_queue != self.keeps_queue() {
            // Until the gate has been looked at, anything may join.
            let most = if course.keeps_queue { RATE_GOVERNS - 1 } else { RATE_GOVERNS };
            self.most_queued.store(most, Ordering::Relaxed);
        }
    }

    /// What the virtual backlog is worked off at.
    pub(crate) fn drain(&self) -> Rate {
        Rate::per_second(f64::from_bits(self.drain.load(Ordering::Relaxed))).unwrap_or_default()
    }

    fn keeps_queue(&self) -> bool {
        self.most_queued.load(Ordering::Relaxed) != RATE_GOVERNS
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
        self.backlog.add(cost, self.drain());
        if self.keeps_queue() {
            // Until the next look at the gate: who enters now is in its queue or passes through it.
            self.queued.fetch_add(hundredths, Ordering::Relaxed);
        }
        self.admitted.fetch_add(hundredths, Ordering::Relaxed);
        self.squares.fetch_add(hundredths.saturating_mul(hundredths), Ordering::Relaxed);
    }

    /// Sums since the start: (work, squares), as [`Door::admit`] counts them.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.squares.load(Ordering::Relaxed))
    }

    pub(crate) fn set_queued(&self, queued: Cost) {
        self.queued.store(queued.hundredths(), Ordering::Relaxed);
    }

    /// The gate has been looked at: its queue and how much it may hold.
    pub(crate) fn see(&self, gate: &Totals, now: Timestamp) {
        // Whom a class's own limits hold back is no burden on the origin.
        self.set_queued(gate.backlog_cost());
        let before = Timestamp::from_micros(self.seen_at.swap(now.as_micros(), Ordering::Relaxed));
        let sum = gate.forwarded_cost.hundredths();
        let work = sum.saturating_sub(self.forwarded.swap(sum, Ordering::Relaxed)) as f64 / 100.0;
        let dt_s = now.since(before).as_secs_f64();
        if dt_s > 0.0 {
            let flow = self.flow();
            let new = flow + (work / dt_s - flow) * (1.0 - (-dt_s / FLOW_MEMORY_S).exp());
            self.flow.store(new.to_bits(), Ordering::Relaxed);
        }
        if self.keeps_queue() {
            // Some of those who come until the next look go straight to the origin.
            let free = gate.limit.map_or(f64::MAX, |limit| f64::from(limit.saturating_sub(gate.in_flight)));
            let most = self.most_queued(gate) * FILL + free * self.grain().units();
            self.most_queued.store(((most * 100.0) as u64).min(RATE_GOVERNS - 1), Ordering::Relaxed);
        }
    }

    /// Work that the gate's queue can hold without refusing anybody, in cost units: of average visitors, and of those it
    /// takes as long as one may wait to serve.
    pub(crate) fn most_queued(&self, gate: &Totals) -> f64 {
        let places = gate.max_queue as f64 * self.grain().units();
        places.min(self.at_least() * gate.max_queue_wait.as_secs_f64())
    }

    /// Work per second that the origin takes: the capacity, or what it was seen to take if that is more.
    fn at_least(&self) -> f64 {
        self.capacity().get().max(self.flow())
    }

    fn flow(&self) -> f64 {
        f64::from_bits(self.flow.load(Ordering::Relaxed))
    }

    pub(crate) fn grain(&self) -> Cost {
        Cost::from_hundredths(self.grain.load(Ordering::Relaxed))
    }

    pub(crate) fn set_grain(&self, grain: Cost) {
        self.grain.store(grain.hundredths(), Ordering::Relaxed);
    }

    /// The average visitor, as seconds of work at capacity.
    pub(crate) fn grain_s(&self) -> f64 {
        self.seconds_of(self.grain.load(Ordering::Relaxed))
    }

    /// The backlog aimed at, in seconds of work at capacity.
    pub(crate) fn target_s(&self) -> f64 {
        let capacity = self.capacity().get();
        if self.keeps_queue() && capacity > 0.0 {
            window::target(capacity, self.grain().units(), f64::MAX) / capacity
        } else {
            target_s(self.grain_s())
        }
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

    /// What the door says; lets nobody in.
    pub(crate) fn judge(&self, ticket: &Ticket, now: Timestamp) -> Word {
        if self.redeemed.contains(ticket.due().second(), ticket.nonce) {
            return Word::Replayed;
        }
        let word = self.judge_unused(ticket, now);
        self.note_sent_away(word, ticket);
        word
    }

    fn note_sent_away(&self, word: Word, ticket: &Ticket) {
        if word == Word::Behind {
            self.sent_away.fetch_add(ticket.cost.hundredths(), Ordering::Relaxed);
        }
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
        if capacity >= Rate::MAX && self.counts_places.load(Ordering::Relaxed) == 0 {
            return Word::Enter;
        }
        // Whoever made a ticket for now let the visitor in at once; the schedule has no say in it. The origin has: while all
        // replicas are down tokengen goes on sending visitors, who must not all enter the moment one is back.
        let is_for_now = ticket.wait.is_zero() && due <= now + self.tolerance();
        if !is_for_now && due > hand + self.tolerance() {
            return Word::Early;
        }
        if capacity == Rate::ZERO || self.is_behind(late <= ON_TIME, now) {
            return Word::Behind;
        }
        Word::Enter
    }

    /// Work that was called, came and was asked to come again since the last call.
    pub(crate) fn take_sent_away(&self) -> Cost {
        Cost::from_hundredths(self.sent_away.swap(0, Ordering::Relaxed))
    }

    /// Whether a kept queue is so long that newcomers wait in the room instead, though nobody waits there.
    pub(crate) fn is_crowded(&self, now: Timestamp) -> bool {
        self.keeps_queue() && self.is_behind(true, now)
    }

    /// Whether a kept queue has no places left but those for requests that never wait in the room.
    fn is_full(&self, now: Timestamp) -> bool {
        let (queued, most) = (self.queued.load(Ordering::Relaxed), self.most_queued.load(Ordering::Relaxed));
        // Since the last look the origin has gone on.
        queued > most && {
            let since = now.since(Timestamp::from_micros(self.seen_at.load(Ordering::Relaxed)));
            queued as f64 - self.flow() * since.as_secs_f64() * 100.0 > most as f64
        }
    }

    /// Whether the origin is so far behind that one whose turn has come, or is long past, is asked to come again.
    fn is_behind(&self, is_on_time: bool, now: Timestamp) -> bool {
        let grain = self.grain_s();
        if !self.keeps_queue() {
            let bound = if is_on_time { BEHIND_S + grain } else { SPARE_S + target_s(grain) };
            return self.backlog_s(now) > bound;
        }
        let (queued, flow) = (self.queued.load(Ordering::Relaxed), self.at_least());
        let target = window::target(flow, self.grain().units(), f64::MAX);
        let bound = target + flow * if is_on_time { BEHIND_S } else { SPARE_S };
        // The other backlog is that of the operator's ceiling.
        self.is_full(now) || queued as f64 / 100.0 > bound || self.backlog.seconds(now) > BEHIND_S + grain
    }

    /// Whether nobody is let in who has no turn.
    pub(crate) fn is_closed(&self, now: Timestamp) -> bool {
        self.capacity() == Rate::ZERO || self.is_behind(true, now)
    }

    pub(crate) fn count_places(&self, counts: bool) {
        self.counts_places.store(u64::from(counts), Ordering::Relaxed);
    }

    /// Whether the ticket's turn passed longer ago than a page needs to wake up.
    pub(crate) fn is_late(&self, ticket: &Ticket) -> bool {
        self.reached().since(ticket.due()) > ON_TIME
    }

    /// Undoes a redemption whose request never reached the origin. What was admitted stays counted: tokencheck's reports
    /// are differences of sums that only grow.
    pub(crate) fn give_back(&self, ticket: &Ticket) {
        self.redeemed.unmark(ticket.due().second(), ticket.nonce);
        self.backlog.remove(ticket.cost, self.drain());
    }

    /// Lets the ticket in if the door says so: once, whoever else asks at the same time. The caller charges its work
    /// with [`Door::admit`].
    pub(crate) fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Word {
        let word = self.judge_unused(ticket, now);
        self.note_sent_away(word, ticket);
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
