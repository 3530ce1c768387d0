//! One request at the desk.
//!
//! **Places.** A request that begins a session ([`Seat`]) enters with a place of the pool or not at all. The place is taken before
//! the ticket is used up, so that whoever finds none keeps the ticket and is asked to come again; taken for nothing, it goes back
//! at once. Newcomers leave those places alone that are for whom the hand has called and who is on the way.

use std::time::Duration;

use super::Admission;
use super::types::{AdmissionRequest, Decision, Entrance, Position, Presented, SessionAsk, WhenFull};
use crate::ingress::Passage;
use crate::measure::Event;
use crate::room::{AGAIN, Arrival, Newcomer, Redemption, Room, TicketStatus, Wait};
use crate::ticket::Ticket;
use crate::units::Timestamp;

/// A request, and what surrounds it.
pub(super) struct Ask<'a> {
    pub(super) desk: &'a Admission,
    pub(super) entrance: &'a Entrance<'a>,
    pub(super) asking: &'a AdmissionRequest,
    pub(super) seat: Option<&'a SessionAsk<'a>>,
    pub(super) count: &'a dyn Fn(Event),
    pub(super) now: Timestamp,
}

impl Ask<'_> {
    pub(super) fn ask(&self, nonce: &mut dyn FnMut() -> u64) -> Decision {
        let Self { desk, entrance, asking, now, .. } = *self;
        let ticket = match asking.shown {
            Presented::Nothing => return self.arrive(None, Position::New, nonce),
            Presented::Forged if !entrance.waits => return self.arrive(None, Position::New, nonce),
            Presented::Ticket(ticket) if asking.sends_on && ticket.wait.is_zero() => {
                // Tokengen's own, for the way to tokencheck: it has been used there or will be. Another one for it would let its
                // visitor in again, at once and for ever.
                (self.count)(Event::TicketReplayed);
                return self.arrive(None, Position::Replaced, nonce);
            }
            Presented::Ticket(ticket) if ticket.class == asking.class => ticket,
            // A ticket of another class is none.
            Presented::Ticket(_) => {
                (self.count)(Event::TicketExpired);
                return self.arrive(None, Position::New, nonce);
            }
            Presented::Forged => {
                (self.count)(Event::TicketForged);
                return Decision::Forbidden;
            }
        };
        if let TicketStatus::Wait(wait) = desk.look_at(entrance.ingress, &ticket, now)
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
                    return Decision::SendOn { ticket, redeemed: true };
                }
                Decision::Enter { ticket: Some(ticket) }
            }
            Redemption::Wait(wait) => self.early(ticket, wait),
            Redemption::Replayed => {
                (self.count)(Event::TicketReplayed);
                self.arrive(None, Position::Replaced, nonce)
            }
            Redemption::Expired => {
                (self.count)(Event::TicketExpired);
                self.arrive(Some(ticket.arrived), Position::Late, nonce)
            }
        }
    }

    fn early(&self, ticket: Ticket, wait: Wait) -> Decision {
        (self.count)(Event::WaitingAnswers);
        (self.count)(Event::TicketEarly);
        Decision::Wait { ticket, wait, place: Position::Kept }
    }

    fn redeem(&self, ticket: &Ticket) -> Redemption {
        let Some(seat) = self.seat else { return self.desk.redeem(ticket, self.now) };
        match self.desk.look(ticket, self.now) {
            TicketStatus::Redeemed => return Redemption::Replayed,
            TicketStatus::Expired => return Redemption::Expired,
            TicketStatus::Wait(wait) => {
                let enters = self.enters_by_own(seat, |room| room.redeem_past(ticket));
                return if enters { Redemption::Enter } else { Redemption::Wait(wait) };
            }
            TicketStatus::Ready => {}
        }
        if !self.take(seat) {
            self.desk.no_place();
            let wait = Wait { wait: AGAIN, position: 1, due: self.now + AGAIN };
            return Redemption::Wait(wait);
        }
        let word = self.desk.redeem(ticket, self.now);
        if word != Redemption::Enter {
            seat.give_back(self.now);
        }
        word
    }

    fn arrive(
        &self,
        arrived: Option<Timestamp>,
        place: Position,
        nonce: &mut dyn FnMut() -> u64,
    ) -> Decision {
        let Self { desk, entrance, asking: &AdmissionRequest { class, cost, shown, .. }, now, .. } = *self;
        let Admission::Room(room) = desk else {
            // Whoever waits pays where places are given; nobody else could be sent there.
            if entrance.waits {
                return Decision::SendBack;
            }
            return match entrance.ingress.take(class, cost, now) {
                Ok(()) => self.unasked(),
                Err(retry_after) => self.refused(retry_after),
            };
        };
        // Whoever had a place has come back for it.
        let returns = entrance.returns || matches!(shown, Presented::Ticket(_));
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
        place: Position,
        held: Option<Timestamp>,
        nonce: &mut dyn FnMut() -> u64,
    ) -> Decision {
        let Self { asking, now, .. } = *self;
        // Whoever was promised a place waits for it, also where newcomers are refused.
        let refuses = self.seat.filter(|seat| seat.when_full == WhenFull::Refuse && place != Position::Late);
        if let Some(seat) = refuses.filter(|seat| !self.take(seat)) {
            return self.no_place(seat);
        }
        if let Some(seat) =
            self.seat.filter(|_| held.is_none() && place != Position::Replaced && refuses.is_none())
            && self.enters_by_own(seat, |room| {
                room.charge(asking.cost);
                true
            })
        {
            return Decision::Enter { ticket: None };
        }
        if asking.sends_on {
            room.sends_on();
        }
        let nonce = nonce();
        let has_seat = place == Position::Replaced || refuses.is_some();
        let mut may_enter = || has_seat || self.finds_place(room);
        let finds = has_seat || self.may_find_place(room);
        let may_enter: Option<&mut dyn FnMut() -> bool> = if finds { Some(&mut may_enter) } else { None };
        let newcomer = Newcomer { class: asking.class, nonce, arrived, held };
        let arrival = room.arrive_if(&newcomer, may_enter, now);
        if let Some(seat) = refuses.filter(|_| arrival != Arrival::Enter || place == Position::Replaced) {
            seat.give_back(now);
        }
        match arrival {
            Arrival::Enter if asking.sends_on => {
                Decision::SendOn { ticket: self.ticket_for_now(nonce), redeemed: false }
            }
            Arrival::Enter if place == Position::Replaced => {
                // There is room, but not for this ticket again: a place that is due at once, and a page that says so.
                (self.count)(Event::WaitingAnswers);
                let wait = Wait { wait: Duration::ZERO, position: 1, due: now };
                Decision::Wait { ticket: self.ticket_for_now(nonce), wait, place }
            }
            Arrival::Enter => Decision::Enter { ticket: None },
            Arrival::Wait(ticket, wait) => {
                (self.count)(Event::WaitingAnswers);
                Decision::Wait { ticket, wait, place }
            }
            Arrival::Full { retry_after } => {
                self.give_back_ingress();
                (self.count)(Event::Full);
                Decision::Full { retry_after }
            }
        }
    }

    /// Taken or reserved at the door, and used for nothing.
    fn give_back_ingress(&self) {
        let AdmissionRequest { class, cost, .. } = *self.asking;
        if self.entrance.ingress.limits(class) {
            self.entrance.ingress.give_back(class, cost);
        }
    }

    fn refused(&self, retry_after: Duration) -> Decision {
        (self.count)(Event::IngressShed);
        Decision::Refused { retry_after }
    }

    fn no_place(&self, seat: &SessionAsk<'_>) -> Decision {
        self.give_back_ingress();
        (self.count)(Event::SessionsRefused);
        Decision::NoPlace { retry_after: seat.sessions.retry_after() }
    }

    /// Past the schedule, which has no say in it.
    fn unasked(&self) -> Decision {
        if let Some(seat) = self.seat.filter(|seat| !self.take(seat)) {
            return self.no_place(seat);
        }
        self.desk.charge(self.asking.cost);
        Decision::Enter { ticket: None }
    }

    /// Whether there may be a place for a newcomer, if it needs one.
    fn may_find_place(&self, room: &Room) -> bool {
        match self.seat {
            None => !self.asking.sends_on || room.has_spare(),
            Some(seat) => {
                let finds = room.leaves_enough(seat.sessions.pace()) && seat.sessions.has_slot(seat.tier);
                if !finds {
                    seat.sessions.count_refused();
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
    fn enters_by_own(&self, seat: &SessionAsk<'_>, pass: impl FnOnce(&Room) -> bool) -> bool {
        let Admission::Room(room) = self.desk else { return false };
        if !seat.sessions.has_own_slot_only(seat.tier)
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

    fn take(&self, seat: &SessionAsk<'_>) -> bool {
        seat.take(self.asking.cost, self.now)
    }

    /// A place that is due at once.
    fn ticket_for_now(&self, nonce: u64) -> Ticket {
        let issued = Timestamp::from_millis(self.now.as_millis());
        let AdmissionRequest { class, cost, .. } = *self.asking;
        Ticket { class, cost, issued, wait: Duration::ZERO, arrived: issued, nonce }
    }
}
