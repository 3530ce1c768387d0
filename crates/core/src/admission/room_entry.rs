//! One request at the room, or at its class's ingress bucket.
//!
//! **Session slots.** A request that begins a session ([`SessionAsk`]) enters with a slot of the pool or not
//! at all. The slot is taken before the ticket is used up, so that a visitor who finds none keeps the ticket
//! and is asked to come again; a slot that turns out to be taken for nothing goes back at once. Newcomers do
//! not take slots that are meant for admitted visitors in transit.

use std::time::Duration;

use super::Admission;
use super::types::{
    AdmissionRequest, Decision, EnteredBy, Entrance, Position, Presented, SessionAsk, WhenFull,
};
use crate::ingress::Passage;
use crate::measure::Event;
use crate::room::{AGAIN, Arrival, Newcomer, OwnerAnswer, Redemption, Room, TicketStatus, Wait, is_held};
use crate::ticket::Ticket;
use crate::units::Timestamp;

pub(super) struct RoomEntry<'a> {
    pub(super) admission: &'a Admission,
    pub(super) entrance: &'a Entrance<'a>,
    pub(super) asking: &'a AdmissionRequest,
    pub(super) session: Option<&'a SessionAsk<'a>>,
    pub(super) count: &'a dyn Fn(Event),
    pub(super) now: Timestamp,
}

impl RoomEntry<'_> {
    pub(super) fn decide(&self, nonce: &mut dyn FnMut() -> u64) -> Decision {
        let Self { admission, entrance, asking, now, .. } = *self;
        let ticket = match asking.shown {
            Presented::Nothing => return self.arrive(None, Position::New, nonce),
            Presented::Forged | Presented::UnknownKey { .. } | Presented::OtherAddress if !entrance.waits => {
                return self.arrive(None, Position::New, nonce);
            }
            Presented::UnknownKey { claimed_arrival } if admission.room().is_some() => {
                (self.count)(Event::TicketUnknownKey);
                // Only the time waited that is shown depends on it, so that a lie shows an absurd figure to
                // the liar. Positions must not: anybody could claim the longest wait.
                let longest = now.saturating_sub(entrance.max_wait * 2);
                let arrived = claimed_arrival.filter(|arrived| (longest..=now).contains(arrived));
                return self.arrive(arrived, Position::New, nonce);
            }
            Presented::OtherAddress => return Decision::SendToRebind,
            Presented::Rebind(ticket) if ticket.wait.is_zero() => {
                return Decision::SendOn { ticket, redeemed: None };
            }
            Presented::Ticket(ticket) if asking.sends_on && ticket.wait.is_zero() => {
                // Tokengen made it for the way to tokencheck, where it has been used or will be. If it were
                // exchanged for another one, its visitor would be let in again, at once and for ever.
                (self.count)(Event::TicketReplayed);
                return self.arrive(None, Position::Replaced, nonce);
            }
            Presented::Ticket(ticket) | Presented::Rebind(ticket) if ticket.class == asking.class => ticket,
            // A ticket of another class is none.
            Presented::Ticket(_) | Presented::Rebind(_) => {
                (self.count)(Event::TicketExpired);
                return self.arrive(None, Position::New, nonce);
            }
            // Tokencheck would send it to tokengen, and back, for ever, if the two had not the same keys.
            Presented::Forged | Presented::UnknownKey { .. } => {
                (self.count)(Event::TicketForged);
                return Decision::Forbidden;
            }
        };
        if let TicketStatus::Wait(wait) = admission.look_at(entrance.ingress, &ticket, now)
            && admission.is_held(entrance.ingress, &ticket, now)
        {
            return self.early(ticket, wait);
        }
        let redemption = match self.claim(&ticket) {
            Ok(None) => self.redeem(&ticket),
            Ok(Some(redemption)) => redemption,
            Err(ask_owner) => return ask_owner,
        };
        self.act_on(redemption, ticket, nonce)
    }

    fn act_on(&self, redemption: Redemption, ticket: Ticket, nonce: &mut dyn FnMut() -> u64) -> Decision {
        let Self { admission, asking, .. } = *self;
        match redemption {
            Redemption::Enter => {
                if admission.is_late(&ticket) {
                    (self.count)(Event::TicketLate);
                }
                if asking.sends_on {
                    // It is used up here. The ticket for the way has its nonce and its instant, so that
                    // tokencheck lets the visitor in by one of the two only.
                    let on_the_way = Ticket { issued: ticket.due(), wait: Duration::ZERO, ..ticket };
                    return Decision::SendOn { ticket: on_the_way, redeemed: Some(ticket) };
                }
                Decision::Enter { by: EnteredBy::Ticket(ticket) }
            }
            Redemption::Wait(wait) => self.early(ticket, wait),
            Redemption::Replayed => {
                if let Some(decision) = self.unanswered(&ticket) {
                    return decision;
                }
                (self.count)(Event::TicketReplayed);
                self.arrive(None, Position::Replaced, nonce)
            }
            Redemption::Expired => {
                (self.count)(Event::TicketExpired);
                self.arrive(Some(ticket.arrived), Position::Late, nonce)
            }
        }
    }

    /// The visitor may have got no answer when the process was killed: it keeps its turn, with a new ticket.
    fn unanswered(&self, ticket: &Ticket) -> Option<Decision> {
        let ticket = self.admission.tickets().successor(ticket)?;
        let wait = match self.admission.look_at(self.entrance.ingress, &ticket, self.now) {
            TicketStatus::Ready => Wait { wait: Duration::ZERO, position: 1, due: self.now },
            TicketStatus::Wait(wait) => wait,
            TicketStatus::Redeemed | TicketStatus::Expired => return None,
        };
        (self.count)(Event::WaitingAnswers);
        Some(Decision::Wait { ticket, wait, position: Position::New })
    }

    fn early(&self, ticket: Ticket, wait: Wait) -> Decision {
        if self.entrance.may_be_held && is_held(wait.wait, Duration::ZERO) {
            return Decision::Delay { ticket, left: wait.wait };
        }
        (self.count)(Event::WaitingAnswers);
        (self.count)(Event::TicketEarly);
        Decision::Wait { ticket, wait, position: Position::Kept }
    }

    /// What becomes of a ticket that another tokencheck owns; `None`: it may be redeemed here.
    ///
    /// # Errors
    /// Its owner must be asked first.
    fn claim(&self, ticket: &Ticket) -> Result<Option<Redemption>, Decision> {
        let Self { admission, entrance, now, .. } = *self;
        let Some((checker, owner)) =
            admission.checker().and_then(|checker| Some((checker, checker.other_owner(ticket)?)))
        else {
            return Ok(None);
        };
        let again = Redemption::Wait(Wait { wait: AGAIN, position: 1, due: now + AGAIN });
        let redemption = match (entrance.owner, admission.look(ticket, now)) {
            (_, TicketStatus::Redeemed) => Redemption::Replayed,
            (_, TicketStatus::Expired) => Redemption::Expired,
            (_, TicketStatus::Wait(wait)) => Redemption::Wait(wait),
            (Some(OwnerAnswer::Granted), TicketStatus::Ready) => return Ok(None),
            (Some(OwnerAnswer::Used), TicketStatus::Ready) => Redemption::Replayed,
            (Some(OwnerAnswer::Unknown), TicketStatus::Ready) => again,
            (None, TicketStatus::Ready) => {
                let finds_slot = self.session.is_none_or(|session| session.sessions.has_slot(session.tier));
                if finds_slot && checker.begin_claim(ticket) {
                    return Err(Decision::AskOwner { ticket: *ticket, owner, waits: entrance.waits });
                }
                again
            }
        };
        Ok(Some(redemption))
    }

    fn redeem(&self, ticket: &Ticket) -> Redemption {
        let Some(session) = self.session else { return self.admission.redeem(ticket, self.now) };
        match self.admission.look(ticket, self.now) {
            TicketStatus::Redeemed => return Redemption::Replayed,
            TicketStatus::Expired => return Redemption::Expired,
            TicketStatus::Wait(wait) => {
                let enters = self.enters_by_own_slot(session, |room| room.redeem_past(ticket));
                return if enters { Redemption::Enter } else { Redemption::Wait(wait) };
            }
            TicketStatus::Ready => {}
        }
        if !self.take(session) {
            self.admission.no_slot();
            let wait = Wait { wait: AGAIN, position: 1, due: self.now + AGAIN };
            return Redemption::Wait(wait);
        }
        let redeemed = self.admission.redeem(ticket, self.now);
        if redeemed != Redemption::Enter {
            session.give_back(self.now);
        }
        redeemed
    }

    fn arrive(
        &self,
        arrived: Option<Timestamp>,
        position: Position,
        nonce: &mut dyn FnMut() -> u64,
    ) -> Decision {
        let Self { admission, entrance, asking: &AdmissionRequest { class, cost, shown, .. }, now, .. } =
            *self;
        let Admission::Room(room) = admission else {
            // Tokengen has charged the bucket of visitors who wait. It would send back those who do not wait.
            if entrance.waits {
                return Decision::SendBack;
            }
            return match entrance.ingress.take(class, cost, now) {
                Ok(()) => self.unasked(),
                Err(retry_after) => self.throttled(retry_after),
            };
        };
        // A visitor who shows a ticket has come back for its position.
        let returns = entrance.returns || matches!(shown, Presented::Ticket(_) | Presented::Rebind(_));
        match entrance.ingress.pass(class, cost, returns.then_some(entrance.max_wait), now) {
            Passage::Passes if !entrance.waits => self.unasked(),
            Passage::Passes => self.meet(room, arrived, position, None, nonce),
            Passage::Shed { retry_after } => self.throttled(retry_after),
            Passage::Room { due } => {
                (self.count)(Event::IngressHeld);
                self.meet(room, arrived, position, Some(due), nonce)
            }
        }
    }

    /// Meets the room without a usable ticket.
    fn meet(
        &self,
        room: &Room,
        arrived: Option<Timestamp>,
        position: Position,
        held: Option<Timestamp>,
        nonce: &mut dyn FnMut() -> u64,
    ) -> Decision {
        let Self { asking, entrance, now, .. } = *self;
        // A visitor with a promised position waits for a slot, also where newcomers are refused.
        let refuses = self
            .session
            .filter(|session| session.when_full == WhenFull::Refuse && position != Position::Late);
        if let Some(session) = refuses.filter(|session| !self.take(session)) {
            return self.no_slot(session);
        }
        if let Some(session) =
            self.session.filter(|_| held.is_none() && position != Position::Replaced && refuses.is_none())
            && self.enters_by_own_slot(session, |room| {
                room.charge(asking.cost);
                true
            })
        {
            return self.enters();
        }
        if asking.sends_on {
            room.sends_on();
        }
        let nonce = nonce();
        let has_slot = position == Position::Replaced || refuses.is_some();
        let mut may_enter = || has_slot || self.finds_slot(room);
        let finds = has_slot || self.may_find_slot(room);
        let may_enter: Option<&mut dyn FnMut() -> bool> = if finds { Some(&mut may_enter) } else { None };
        let client = entrance.client;
        let arrival = match room.over_share(client, nonce, now) {
            Some(retry_after) => {
                (self.count)(Event::OverShare);
                Arrival::Full { retry_after }
            }
            None => {
                let newcomer = Newcomer { class: asking.class, nonce, arrived, held, client };
                room.arrive_if(&newcomer, may_enter, now)
            }
        };
        if let Some(session) = refuses.filter(|_| arrival != Arrival::Enter || position == Position::Replaced)
        {
            session.give_back(now);
        }
        match arrival {
            Arrival::Enter if asking.sends_on => {
                Decision::SendOn { ticket: self.ticket_for_now(nonce), redeemed: None }
            }
            Arrival::Enter if position == Position::Replaced => {
                // There is room, but not for this ticket again: a new position, due at once, and a page.
                (self.count)(Event::WaitingAnswers);
                let wait = Wait { wait: Duration::ZERO, position: 1, due: now };
                Decision::Wait { ticket: self.ticket_for_now(nonce), wait, position }
            }
            Arrival::Enter => self.enters(),
            Arrival::Wait(ticket, wait) => {
                (self.count)(Event::WaitingAnswers);
                Decision::Wait { ticket, wait, position }
            }
            Arrival::Full { retry_after } => {
                self.give_back_ingress();
                (self.count)(Event::Full);
                Decision::Full { retry_after }
            }
        }
    }

    /// Returns work that was taken or reserved at the bucket and is not used.
    fn give_back_ingress(&self) {
        let AdmissionRequest { class, cost, .. } = *self.asking;
        if self.entrance.ingress.limits(class) {
            self.entrance.ingress.give_back(class, cost);
        }
    }

    fn throttled(&self, retry_after: Duration) -> Decision {
        (self.count)(Event::IngressShed);
        Decision::Throttled { retry_after }
    }

    fn no_slot(&self, session: &SessionAsk<'_>) -> Decision {
        self.give_back_ingress();
        (self.count)(Event::SessionsRefused);
        Decision::NoSessionSlot { retry_after: session.sessions.retry_after() }
    }

    fn enters(&self) -> Decision {
        Decision::Enter { by: if self.entrance.waits { EnteredBy::Room } else { EnteredBy::Ingress } }
    }

    /// Enters past the schedule.
    fn unasked(&self) -> Decision {
        if let Some(session) = self.session.filter(|session| !self.take(session)) {
            return self.no_slot(session);
        }
        self.admission.charge(self.asking.cost);
        self.enters()
    }

    /// Whether there may be a slot for a newcomer, if it needs one.
    fn may_find_slot(&self, room: &Room) -> bool {
        match self.session {
            None => !self.asking.sends_on || room.session_slots.has_spare(),
            Some(session) => {
                let finds =
                    room.leaves_enough(session.sessions.pace()) && session.sessions.has_slot(session.tier);
                if !finds {
                    session.sessions.count_refused();
                }
                finds
            }
        }
    }

    /// Takes a slot for a newcomer, if it needs one.
    fn finds_slot(&self, room: &Room) -> bool {
        match self.session {
            None => !self.asking.sends_on || room.session_slots.take_spare(),
            Some(session) => self.take(session),
        }
    }

    /// Its service level has a free slot of its own, which nobody in the room waits for: `pass` lets it past.
    fn enters_by_own_slot(&self, session: &SessionAsk<'_>, pass: impl FnOnce(&Room) -> bool) -> bool {
        let Admission::Room(room) = self.admission else { return false };
        if !session.sessions.has_own_slot_only(session.tier)
            || room.is_closed_to_all(self.now)
            || !session.take_own(self.asking.cost, self.now)
        {
            return false;
        }
        let passes = pass(room);
        if !passes {
            session.give_back(self.now);
        }
        passes
    }

    fn take(&self, session: &SessionAsk<'_>) -> bool {
        session.take(self.asking.cost, self.now)
    }

    fn ticket_for_now(&self, nonce: u64) -> Ticket {
        let issued = Timestamp::from_millis(self.now.as_millis());
        let AdmissionRequest { class, cost, .. } = *self.asking;
        Ticket { class, cost, issued, wait: Duration::ZERO, arrived: issued, nonce }
    }
}
