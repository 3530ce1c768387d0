//! The two-process form (WebQ III-B): tokencheck's half of the room, and what the halves tell each other.
//!
//! Tokengen keeps the schedule and the hand; tokencheck keeps the redeemed nonces and decides over tickets with the hand
//! it was last told. When no orders come, the hand follows the clock: the schedule as promised, which is WebQ.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::door::{AGAIN, Door, ORIGIN_GONE, Word};
use super::{Look, MIN_WAIT, Redemption, Room, RoomConfig, Wait, soon};
use crate::gate::Totals;
use crate::hand::HandValue;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::{Cost, Rate, Timestamp};

/// Orders older than this are no longer followed.
const ORDERS_HOLD: Duration = Duration::from_secs(5);
/// Tokencheck reports this often: a visitor's page asks about once a second near its turn, orders must not be older.
pub const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Most work booked from one report, as time at capacity: what comes from a wire is not believed without end.
const MOST_BOOKED: Duration = Duration::from_secs(3_600);
/// Slot seconds reported at once; more than the grace period spans.
const MAX_SHOWN: usize = 4096;

/// What tokencheck has seen since it last reported.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Feedback {
    /// Work admitted.
    pub admitted: Cost,
    /// The time in which it was; at most [`REPORT_EVERY`] unless reports were lost.
    pub over: Duration,
    /// Work that waits for the origin now.
    pub queued: Cost,
    /// Work redeemed, by slot second.
    pub shown: Vec<(u64, Cost)>,
}

/// What tokencheck is to go by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Orders {
    /// What the origin can serve.
    pub capacity: Rate,
    /// Where the schedule's hand stands.
    pub hand: HandValue,
}

/// Tokencheck's half.
pub struct Checker {
    door: Door,
    ordered: AtomicU64,
    reported: AtomicU64,
    /// When, in microseconds.
    reported_at: AtomicU64,
    ticked: AtomicU64,
    shown: Mutex<Vec<(u64, Cost)>>,
}

impl Checker {
    /// A checker that goes by the clock until it gets orders.
    pub fn new(config: &RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        Self {
            door: Door::new(config, capacity, now),
            ordered: AtomicU64::new(now.as_micros()),
            reported: AtomicU64::new(0),
            reported_at: AtomicU64::new(now.as_micros()),
            ticked: AtomicU64::new(now.as_micros()),
            shown: Mutex::default(),
        }
    }

    /// As [`Room::redeem`]. A ticket with a wait of zero is how tokengen sends on who enters at once.
    pub fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Redemption {
        match self.door.redeem(ticket, now) {
            Word::Enter => {
                self.door.admit(ticket.cost);
                if !ticket.wait.is_zero() {
                    self.note(ticket.due().second(), ticket.cost);
                }
                Redemption::Enter
            }
            Word::Early => Redemption::Wait(self.wait(ticket, now)),
            Word::Behind => Redemption::Wait(soon(now)),
            Word::Replayed => Redemption::Replayed,
            Word::Expired => Redemption::Expired,
        }
    }

    /// As [`Room::is_late`].
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        self.door.is_late(ticket)
    }

    /// As [`Room::give_back`].
    pub fn give_back(&self, ticket: &Ticket) {
        self.door.give_back(ticket);
    }

    /// As [`Room::look`].
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> Look {
        match self.door.judge(ticket, now) {
            Word::Enter => Look::Ready,
            Word::Early => Look::Wait(self.wait(ticket, now)),
            Word::Behind => Look::Wait(soon(now)),
            Word::Replayed => Look::Redeemed,
            Word::Expired => Look::Expired,
        }
    }

    /// As [`Room::charge`].
    pub fn charge(&self, cost: Cost) {
        self.door.admit(cost);
    }

    /// The control tick.
    pub fn tick(&self, now: Timestamp, queued: Cost) {
        self.door.set_queued(queued);
        self.step(now);
    }

    /// The same with the whole gate in view. With no origin to go to nobody enters.
    pub fn tick_with(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        self.door.see(gate, now);
        if !is_origin_usable {
            self.door.set_queued(ORIGIN_GONE);
        }
        self.step(now);
    }

    fn step(&self, now: Timestamp) {
        let ordered = Timestamp::from_micros(self.ordered.load(Ordering::Relaxed));
        if now.since(ordered) > ORDERS_HOLD {
            let at = self.door.hand.at(now);
            self.door.hand.set(HandValue { at, follows_clock: true });
        }
        let before = Timestamp::from_micros(self.ticked.swap(now.as_micros(), Ordering::Relaxed));
        self.door.follow_hand(now, now.since(before).as_secs_f64());
        self.door.backlog.floor(now, 1.0);
        self.door.redeemed.forget_before(self.door.oldest_valid(now));
    }

    /// What has been seen since the last call. A report that does not arrive is to be merged into the next.
    pub fn report(&self, queued: Cost, now: Timestamp) -> Feedback {
        let before = Timestamp::from_micros(self.reported_at.swap(now.as_micros(), Ordering::Relaxed));
        let (total, _) = self.door.sums();
        let admitted = total.wrapping_sub(self.reported.swap(total, Ordering::Relaxed));
        let shown = std::mem::take(&mut *self.shown.lock().unwrap_or_else(PoisonError::into_inner));
        Feedback { admitted: Cost::from_hundredths(admitted), over: now.since(before), queued, shown }
    }

    /// Follows tokengen's orders.
    pub fn follow(&self, orders: Orders, now: Timestamp) {
        if orders.capacity != self.door.capacity() {
            self.door.set_course(&orders.capacity.into(), now);
        }
        self.door.hand.set(orders.hand);
        self.ordered.store(now.as_micros(), Ordering::Relaxed);
    }

    fn note(&self, second: u64, cost: Cost) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        // Visitors of one second come together: looking from the end finds it at once.
        if let Some((_, sum)) = shown.iter_mut().rev().find(|(s, _)| *s == second) {
            *sum += cost;
        } else if shown.len() < MAX_SHOWN {
            shown.push((second, cost));
        }
    }

    fn wait(&self, ticket: &Ticket, now: Timestamp) -> Wait {
        let wait = ticket.due().since(self.door.hand.at(now)).max(MIN_WAIT);
        Wait { wait, place: 1 + wait.as_secs() / AGAIN.as_secs().max(1), due: now + wait }
    }
}

impl Room {
    /// Takes in what tokencheck has seen and tells it what to go by. From the first report on, admitted work is
    /// what tokencheck reports, not whom this room sent on; of a report late in coming, what the origin has not done since.
    pub fn feedback(&self, feedback: &Feedback) -> Orders {
        self.remote.store(1, Ordering::Relaxed);
        let capacity = self.door.drain();
        let mut control = self.control();
        control.hear();
        let booked = control.spare.book(feedback.admitted, feedback.over, REPORT_EVERY, capacity);
        drop(control);
        self.door.backlog.add(booked.min(capacity.over(MOST_BOOKED)), capacity);
        self.queued_remote.store(feedback.queued.hundredths(), Ordering::Relaxed);
        for &(second, cost) in feedback.shown.iter().take(MAX_SHOWN) {
            self.show(second, cost);
        }
        self.orders()
    }

    /// What tokencheck is to go by.
    pub fn orders(&self) -> Orders {
        Orders { capacity: self.capacity(), hand: self.door.hand.value() }
    }
}
