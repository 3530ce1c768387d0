//! The two-process form (WebQ III-B): tokencheck's half of the room.
//!
//! Tokengen keeps the schedule and the hand; tokencheck keeps the redeemed nonces and decides over tickets with the hand
//! it was last told. When no orders come, the hand follows the clock: the schedule as promised, which is WebQ. The in-flight
//! limit that was ordered last holds on: it says what the origin can work on, which did not change because a link broke.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::door::{AGAIN, Door, ORIGIN_GONE, Word};
use super::report::{Feedback, Orders, gather};
use super::{Course, Look, MIN_WAIT, Redemption, RoomConfig, Wait, soon};
use crate::capacity::Sample;
use crate::gate::Totals;
use crate::hand::HandValue;
use crate::session::SessionPace;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::{Cost, Rate, Timestamp};

/// Orders older than this are no longer followed.
const ORDERS_HOLD: Duration = Duration::from_secs(5);
/// Slot seconds reported at once; more than the grace period spans.
const MAX_SHOWN: usize = 4096;

/// Tokencheck's half.
pub struct Checker {
    door: Door,
    ordered: AtomicU64,
    reported: AtomicU64,
    /// When, in microseconds.
    reported_at: AtomicU64,
    ticked: AtomicU64,
    shown: Mutex<Vec<(u64, Cost)>>,
    samples: Mutex<Vec<Sample>>,
    orders: Mutex<Option<Orders>>,
    is_origin_gone: AtomicU64,
    sessions: Mutex<Option<SessionPace>>,
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
            samples: Mutex::default(),
            orders: Mutex::default(),
            is_origin_gone: AtomicU64::new(0),
            sessions: Mutex::default(),
        }
    }

    /// As [`super::Room::redeem`]. A ticket with a wait of zero is how tokengen sends on who enters at once.
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

    /// As [`super::Room::is_late`].
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        self.door.is_late(ticket)
    }

    /// As [`super::Room::give_back`].
    pub fn give_back(&self, ticket: &Ticket) {
        self.door.give_back(ticket);
    }

    /// As [`super::Room::look`].
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> Look {
        match self.door.judge(ticket, now) {
            Word::Enter => Look::Ready,
            Word::Early => Look::Wait(self.wait(ticket, now)),
            Word::Behind => Look::Wait(soon(now)),
            Word::Replayed => Look::Redeemed,
            Word::Expired => Look::Expired,
        }
    }

    /// As [`super::Room::charge`].
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
        self.is_origin_gone.store(u64::from(!is_origin_usable), Ordering::Relaxed);
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

    /// As [`super::Room::pace_sessions`]; told to tokengen with the next report.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        self.door.count_places(pace.is_some_and(|pace| pace.free.is_some()));
        *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// What the origin made of requests, for the next report.
    pub fn observe(&self, samples: &[Sample]) {
        let mut kept = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().for_each(|sample| gather(&mut kept, sample));
    }

    /// What has been seen since the last call. A report that does not arrive is to be merged into the next.
    pub fn report(&self, gate: &Totals, now: Timestamp) -> Feedback {
        let before = Timestamp::from_micros(self.reported_at.swap(now.as_micros(), Ordering::Relaxed));
        let (total, _) = self.door.sums();
        let admitted = total.wrapping_sub(self.reported.swap(total, Ordering::Relaxed));
        let mut samples = std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner));
        samples.sort_by_key(|sample| sample.ended);
        Feedback {
            from: 0,
            at: now,
            admitted: Cost::from_hundredths(admitted),
            over: now.since(before),
            queued: gate.backlog_cost(),
            shown: std::mem::take(&mut *self.shown.lock().unwrap_or_else(PoisonError::into_inner)),
            // Who a class's own limits hold back is none of tokengen's business.
            gate: Some(Totals {
                queued: gate.backlog(),
                queued_cost: gate.backlog_cost(),
                held: 0,
                held_cost: Cost::ZERO,
                ..*gate
            }),
            is_origin_gone: self.is_origin_gone.load(Ordering::Relaxed) == 1,
            samples,
            sessions: *self.sessions.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Follows tokengen's orders.
    pub fn follow(&self, orders: Orders, now: Timestamp) {
        self.door.set_course(&course(&orders), now);
        self.door.hand.set(orders.hand);
        self.ordered.store(now.as_micros(), Ordering::Relaxed);
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = Some(orders);
    }

    /// What was ordered last, however long ago.
    pub fn orders(&self) -> Option<Orders> {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was ordered last, as the door goes by it.
    pub fn course(&self) -> Course {
        self.orders().as_ref().map_or_else(|| self.door.capacity().into(), course)
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

fn course(orders: &Orders) -> Course {
    let Orders { capacity, ceiling, keeps_queue, .. } = *orders;
    Course { capacity, outflow: capacity, ceiling, keeps_queue }
}
