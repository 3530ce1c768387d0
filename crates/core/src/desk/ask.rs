//! One request at the desk.
//!
//! **Places.** A request that begins a session ([`Seat`]) enters with a place of the pool or not at all. The place is taken before
//! the ticket is used up, so that whoever finds none keeps the ticket and is asked to come again; taken for nothing, it goes back
//! at once. Newcomers leave those places alone that are for whom the hand has called and who is on the way.

use std::time::Duration;

use super::Desk;
use super::words::{Asking, Entrance, Place, Seat, Shown, Verdict, WhenFull};
use crate::ingress::Passage;
use crate::measure::Event;
use crate::room::{AGAIN, Arrival, Look, Redemption, Room, Wait};
use crate::ticket::Ticket;
use crate::units::Timestamp;

/// A request, and what surrounds it.
pub(super) struct Ask<'a> {
    pub(super) desk: &'a Desk,
    pub(super) entrance: &'a Entrance<'a>,
    pub(super) asking: &'a Asking,
    pub(super) seat: Option<&'a Seat<'a>>,
    pub(super) count: &'a dyn Fn(Event),
    pub(super) now: Timestamp,
}

impl Ask<'_> {
    pub(super) fn ask(&self, nonce: &mut dyn FnMut() -> u64) -> Verdict {
        let Self { desk, entrance, asking, now, .. } = *self;
        let ticket = match asking.shown {
            Shown::Nothing => return self.arrive(None, Place::New, nonce),
            Shown::Forged if !entrance.waits => return self.arrive(None, Place::New, nonce),
            Shown::Ticket(ticket) if asking.sends_on && ticket.wait.is_zero() => {
                // Tokengen's own, for the way to tokencheck: it has been used there or will be. Another one for it would let its
                // visitor in again, at once and for ever.
                (self.count)(Event::TicketReplayed);
                return self.arrive(None, Place::Replaced, nonce);
            }
            Shown::Ticket(ticket) if ticket.class == asking.class => ticket,
            // A ticket of another class is none.
            Shown::Ticket(_) => {
                (self.count)(Event::TicketExpired);
                return self.arrive(None, Place::New, nonce);
            }
            Shown::Forged => {
                (self.count)(Event::TicketForged);
                return Verdict::Forbidden;
            }
        };
        if let Look::Wait(wait) = desk.look_at(entrance.ingress, &ticket, now)
            && desk.is_held(entrance.ingress, &ticket, now)
        {
            return self.early(ticket, wait);
        }
        match self.redeem(&ticket) {
            Redemption::Enter => {
                if desk.is_late(&ticket) {
                    (self.count)(Event::TicketLate);
                }
                if asking.sends_on {
                    // Used up here, once; what goes on to tokencheck is a ticket for now.
                    let ticket = self.ticket_for_now(ticket.nonce);
                    return Verdict::SendOn { ticket, redeemed: true };
                }
                Verdict::Enter { ticket: Some(ticket) }
            }
            Redemption::Wait(wait) => self.early(ticket, wait),
            Redemption::Replayed => {
                (self.count)(Event::TicketReplayed);
                self.arrive(None, Place::Replaced, nonce)
            }
            Redemption::Expired => {
                (self.count)(Event::TicketExpired);
                self.arrive(Some(ticket.arrived), Place::Late, nonce)
            }
        }
    }

    fn early(&self, ticket: Ticket, wait: Wait) -> Verdict {
        (self.count)(Event::WaitingAnswers);
        (self.count)(Event::TicketEarly);
        Verdict::Wait { ticket, wait, place: Place::Kept }
    }

    fn redeem(&self, ticket: &Ticket) -> Redemption {
        let Some(seat) = self.seat else { return self.desk.redeem(ticket, self.now) };
        match self.desk.look(ticket, self.now) {
            Look::Redeemed => return Redemption::Replayed,
            Look::Expired => return Redemption::Expired,
            Look::Wait(wait) => {
                let enters = self.enters_by_own(seat, |room| room.redeem_past(ticket));
                return if enters { Redemption::Enter } else { Redemption::Wait(wait) };
            }
            Look::Ready => {}
        }
        if !self.take(seat) {
            self.desk.no_place();
            let wait = Wait { wait: AGAIN, place: 1, due: self.now + AGAIN };
            return Redemption::Wait(wait);
        }
        let word = self.desk.redeem(ticket, self.now);
        if word != Redemption::Enter {
            seat.give_back(self.now);
        }
        word
    }

    fn arrive(&self, arrived: Option<Timestamp>, place: Place, nonce: &mut dyn FnMut() -> u64) -> Verdict {
        let Self { desk, entrance, asking: &Asking { class, cost, shown, .. }, now, .. } = *self;
        let Desk::Room(room) = desk else {
            // Whoever waits pays where places are given; nobody else could be sent there.
            if entrance.waits {
                return Verdict::SendBack;
            }
            return match entrance.ingress.take(class, cost, now) {
                Ok(()) => self.unasked(),
                Err(retry_after) => self.refused(retry_after),
            };
        };
        // Whoever had a place has come back for it.
        let returns = entrance.returns || matches!(shown, Shown::Ticket(_));
        match entrance.ingress.pass(class, cost, returns.then_some(entrance.max_wait), now) {
            Passage::Passes if !entrance.waits => self.unasked(),
            Passage::Passes => self.meet(room, arrived, place, None, nonce),
            Passage::Shed { retry_after } => self.refused(retry_after),
            Passage::Room { due } => {
                (self.count)(Event::IngressHeld);
                self.meet(room, arrived, place, Some(due), nonce)
            }
        }
    }

    /// Without a ticket that is good for anything, before the room.
    fn meet(
        &self,
        room: &Room,
        arrived: Option<Timestamp>,
        place: Place,
        held: Option<Timestamp>,
        nonce: &mut dyn FnMut() -> u64,
    ) -> Verdict {
        let Self { asking, now, .. } = *self;
        // Whoever was promised a place waits for it, also where newcomers are refused.
        let refuses = self.seat.filter(|seat| seat.when_full == WhenFull::Refuse && place != Place::Late);
        if let Some(seat) = refuses.filter(|seat| !self.take(seat)) {
            return self.no_place(seat);
        }
        if let Some(seat) =
            self.seat.filter(|_| held.is_none() && place != Place::Replaced && refuses.is_none())
            && self.enters_by_own(seat, |room| {
                room.charge(asking.cost);
                true
            })
        {
            return Verdict::Enter { ticket: None };
        }
        if asking.sends_on {
            room.sends_on();
        }
        let nonce = nonce();
        let has_seat = place == Place::Replaced || refuses.is_some();
        let mut may_enter = || has_seat || self.finds_place(room);
        let finds = has_seat || self.may_find_place(room);
        let may_enter: Option<&mut dyn FnMut() -> bool> = if finds { Some(&mut may_enter) } else { None };
        let arrival = room.arrive_if(asking.class, nonce, arrived, held, may_enter, now);
        if let Some(seat) = refuses.filter(|_| arrival != Arrival::Enter || place == Place::Replaced) {
            seat.give_back(now);
        }
        match arrival {
            Arrival::Enter if asking.sends_on => {
                Verdict::SendOn { ticket: self.ticket_for_now(nonce), redeemed: false }
            }
            Arrival::Enter if place == Place::Replaced => {
                // There is room, but not for this ticket again: a place that is due at once, and a page that says so.
                (self.count)(Event::WaitingAnswers);
                let wait = Wait { wait: Duration::ZERO, place: 1, due: now };
                Verdict::Wait { ticket: self.ticket_for_now(nonce), wait, place }
            }
            Arrival::Enter => Verdict::Enter { ticket: None },
            Arrival::Wait(ticket, wait) => {
                (self.count)(Event::WaitingAnswers);
                Verdict::Wait { ticket, wait, place }
            }
            Arrival::Full { retry_after } => {
                self.give_back_ingress();
                (self.count)(Event::Full);
                Verdict::Full { retry_after }
            }
        }
    }

    /// Taken or reserved at the door, and used for nothing.
    fn give_back_ingress(&self) {
        let Asking { class, cost, .. } = *self.asking;
        if self.entrance.ingress.limits(class) {
            self.entrance.ingress.give_back(class, cost);
        }
    }

    fn refused(&self, retry_after: Duration) -> Verdict {
        (self.count)(Event::IngressShed);
        Verdict::Refused { retry_after }
    }

    fn no_place(&self, seat: &Seat<'_>) -> Verdict {
        self.give_back_ingress();
        (self.count)(Event::SessionsRefused);
        Verdict::NoPlace { retry_after: seat.sessions.retry_after() }
    }

    /// Past the schedule, which has no say in it.
    fn unasked(&self) -> Verdict {
        if let Some(seat) = self.seat.filter(|seat| !self.take(seat)) {
            return self.no_place(seat);
        }
        self.desk.charge(self.asking.cost);
        Verdict::Enter { ticket: None }
    }

    /// Whether there may be a place for a newcomer, if it needs one.
    fn may_find_place(&self, room: &Room) -> bool {
        match self.seat {
            None => !self.asking.sends_on || room.has_spare(),
            Some(seat) => {
                let finds = room.leaves_enough(seat.sessions.pace()) && seat.sessions.has_place(seat.tier);
                if !finds {
                    seat.sessions.turned_away();
                }
                finds
            }
        }
    }

    /// Takes it.
    fn finds_place(&self, room: &Room) -> bool {
        match self.seat {
            None => !self.asking.sends_on || room.takes_spare(),
            Some(seat) => self.take(seat),
        }
    }

    /// Its service level has a place of its own when everybody's are taken: nobody in the room waits for that one. `pass` lets it
    /// past them.
    fn enters_by_own(&self, seat: &Seat<'_>, pass: impl FnOnce(&Room) -> bool) -> bool {
        let Desk::Room(room) = self.desk else { return false };
        if !seat.sessions.has_own_place_only(seat.tier)
            || room.is_closed_to_all(self.now)
            || !seat.take_own(self.asking.cost, self.now)
        {
            return false;
        }
        let passes = pass(room);
        if !passes {
            seat.give_back(self.now);
        }
        passes
    }

    fn take(&self, seat: &Seat<'_>) -> bool {
        seat.take(self.asking.cost, self.now)
    }

    /// A place that is due at once.
    fn ticket_for_now(&self, nonce: u64) -> Ticket {
        let issued = Timestamp::from_millis(self.now.as_millis());
        let Asking { class, cost, .. } = *self.asking;
        Ticket { class, cost, issued, wait: Duration::ZERO, arrived: issued, nonce }
    }
}
