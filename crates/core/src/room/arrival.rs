//! Newcomers: who enters at once, and which place the others get.

use std::time::Duration;

use super::{Arrival, RETRY_CLOSED, RETRY_FULL, Room, SHORTEST_PROMISE};
use crate::ring::Load;
use crate::sync::Ordering;
use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, Rate, Timestamp};

impl Room {
    /// A visitor without a usable ticket. `arrived`: when one who had a place before first came.
    pub fn arrive(&self, class: ClassId, nonce: u64, arrived: Option<Timestamp>, now: Timestamp) -> Arrival {
        self.arrive_held(class, nonce, arrived, None, now)
    }

    /// As [`Room::arrive`]; with `held` the visitor gets a place in any case, due then at the earliest.
    pub fn arrive_held(
        &self,
        class: ClassId,
        nonce: u64,
        arrived: Option<Timestamp>,
        held: Option<Timestamp>,
        now: Timestamp,
    ) -> Arrival {
        self.arrive_if(class, nonce, arrived, held, Some(&mut || true), now)
    }

    /// As [`Room::arrive_held`]; who could enter at once does if `may_enter` has a session's place for it, and waits otherwise.
    /// `None`: there is none.
    pub(crate) fn arrive_if(
        &self,
        class: ClassId,
        nonce: u64,
        arrived: Option<Timestamp>,
        held: Option<Timestamp>,
        may_enter: Option<&mut dyn FnMut() -> bool>,
        now: Timestamp,
    ) -> Arrival {
        let has_place = may_enter.is_some();
        let mut may_enter = may_enter;
        let mut enters = || may_enter.as_mut().is_some_and(|may| may());
        let cost = self.cost(class);
        let capacity = self.door.capacity();
        if capacity >= Rate::MAX && held.is_none() && !self.keeps_turns(now) && enters() {
            self.enter_new(cost);
            return Arrival::Enter;
        }
        if capacity == Rate::ZERO {
            return Arrival::Full { retry_after: RETRY_CLOSED };
        }
        if !has_place {
            self.stop_hand(now);
        }
        let hand = self.door.hand.at(now);
        if self.is_too_long_for_place(hand) {
            return Arrival::Full { retry_after: RETRY_FULL };
        }
        let start = hand.max(now);
        let burst = self.burst(capacity);
        // Room expires as the hand passes: while it is behind the clock, what lies before it is still to come.
        // Nor is there any before it for one who cannot use it.
        let oldest = if has_place { hand.saturating_sub(burst) } else { hand };
        let oldest = oldest.max(Timestamp::from_secs(start.second()));
        let Some(placed) = self.slots.take(cost, now, oldest) else {
            return Arrival::Full { retry_after: RETRY_FULL };
        };
        let is_due = has_place && at_once(placed.due, hand, burst);
        if is_due && held.is_none() && !self.door.is_crowded(now) {
            if enters() {
                self.enter_new(cost);
                return Arrival::Enter;
            }
            self.stop_hand(now);
        }
        let place = match held {
            Some(held) => placed.due.max(held),
            // Due, but the gate has no place for it: behind those who were told to wait for one.
            None if is_due => self.turn(placed.due, cost).max(self.last_due()),
            None => self.turn(placed.due, cost),
        };
        // Tickets count whole milliseconds.
        let issued = Timestamp::from_millis(now.as_millis());
        // A ticket with a wait of zero is one for now, which the door lets in whatever the schedule says. While the hand is
        // behind the clock a promise may be due by now, and has its turn to wait for all the same.
        let due = Timestamp::from_millis(place.as_millis()).max(issued + SHORTEST_PROMISE);
        self.waits.add(due.second(), Load { visitors: 1, cost });
        // Whoever is held waits for something else than the origin: the schedule has not got so far.
        let last = if held.is_some() { placed.due } else { due };
        self.last_due.fetch_max(last.as_micros(), Ordering::AcqRel);
        let arrived = arrived.unwrap_or(issued).min(issued);
        let ticket = Ticket { class, cost, issued, wait: due.since(issued), arrived, nonce };
        Arrival::Wait(ticket, self.wait(due, now))
    }

    fn enter_new(&self, cost: Cost) {
        if self.remote.load(Ordering::Relaxed) == 0 {
            self.door.admit(cost);
        }
    }
}

/// Whether a newcomer due at `due` enters at once. A burst of a second is WebQ's rule: i = 0.
fn at_once(due: Timestamp, hand: Timestamp, burst: Duration) -> bool {
    due <= hand || if burst.as_secs() >= 1 { due.second() == hand.second() } else { due <= hand + burst }
}
