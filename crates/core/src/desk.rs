//! The room's desk: what becomes of one request that meets the room. Joins the room, or in the two-process form one half
//! of it (WebQ III-B), with what the request shows.
//!
//! | role | newcomers | tickets whose turn has come |
//! |---|---|---|
//! | gate | get a place | enter here |
//! | tokengen | get a place | are sent to tokencheck |
//! | tokencheck | are sent to tokengen | enter here |
//!
//! Whoever carries requests in (the gateway from sockets, the simulator from its agenda) opens the seal, asks here and performs
//! the [`Verdict`].

use std::time::Duration;

use crate::gate::Totals;
use crate::ingress::{Ingress, Passage};
use crate::measure::Event;
use crate::room::{Arrival, AskEvery, Checker, Course, Look, Redemption, Room, RoomState, Wait};
use crate::ticket::{Pass, PassKind, Ticket};
use crate::units::{ClassId, Cost, Rate, Timestamp};

pub use words::{Asking, Entrance, Place, Shown, Verdict};

mod words;

/// When those ask again who have no place, while all replicas are down.
pub const RETRY_DOWN: Duration = Duration::from_secs(5);

/// One process's part of the waiting room.
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum Desk {
    /// All of it, or tokengen's half.
    Room(Box<Room>),
    /// Tokencheck's half.
    Checker {
        /// Decides over tickets.
        checker: Checker,
        /// Capacity as ordered, for display.
        capacity: std::sync::Mutex<Rate>,
    },
}

/// How long a session's pass holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRules {
    /// Inactivity after which it ends.
    pub timeout: Duration,
    /// Age at which it ends in any case.
    pub max_age: Duration,
}

impl SessionRules {
    /// Whether `pass` lets a session's request through, and if so, whether it is to be renewed: once a quarter of its life is
    /// over, not with every answer.
    pub fn admits(&self, pass: &Pass, now: Timestamp) -> Option<bool> {
        let idle = now.since(pass.issued);
        let holds =
            pass.kind == PassKind::Session && idle <= self.timeout && now.since(pass.first) <= self.max_age;
        holds.then_some(idle > self.timeout / 4)
    }
}

impl Desk {
    /// One request of a class that waits, and whose ingress nobody guards. `nonce` gives 64 fresh random bits; `count` is told
    /// what is worth counting.
    pub fn ask(
        &self,
        asking: &Asking,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Verdict {
        let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
        self.ask_at(&Entrance { ingress, max_wait, waits: true, returns: true }, asking, nonce, count, now)
    }

    /// One request that meets the room or its class's ingress.
    pub fn ask_at(
        &self,
        entrance: &Entrance<'_>,
        asking: &Asking,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Verdict {
        let mut arrive = |arrived, place| self.arrive(entrance, asking, arrived, place, nonce, count, now);
        let ticket = match asking.shown {
            Shown::Nothing => return arrive(None, Place::New),
            Shown::Forged if !entrance.waits => return arrive(None, Place::New),
            Shown::Ticket(ticket) if asking.sends_on && ticket.wait.is_zero() => {
                // Tokengen's own, for the way to tokencheck: it has been used there or will be. Another one for it would let its
                // visitor in again, at once and for ever.
                count(Event::TicketReplayed);
                return arrive(None, Place::Replaced);
            }
            Shown::Ticket(ticket) if ticket.class == asking.class => ticket,
            // A ticket of another class is none.
            Shown::Ticket(_) => {
                count(Event::TicketExpired);
                return arrive(None, Place::New);
            }
            Shown::Forged => {
                count(Event::TicketForged);
                return Verdict::Forbidden;
            }
        };
        if let Look::Wait(wait) = self.look_at(entrance.ingress, &ticket, now)
            && self.is_held(entrance.ingress, &ticket, now)
        {
            count(Event::WaitingAnswers);
            count(Event::TicketEarly);
            return Verdict::Wait { ticket, wait, place: Place::Kept };
        }
        match self.redeem(&ticket, now) {
            Redemption::Enter => {
                if self.is_late(&ticket) {
                    count(Event::TicketLate);
                }
                if asking.sends_on {
                    // Used up here, once; what goes on to tokencheck is a ticket for now.
                    let ticket = ticket_for_now(asking, ticket.nonce, now);
                    return Verdict::SendOn { ticket, redeemed: true };
                }
                Verdict::Enter { ticket: Some(ticket) }
            }
            Redemption::Wait(wait) => {
                count(Event::WaitingAnswers);
                count(Event::TicketEarly);
                Verdict::Wait { ticket, wait, place: Place::Kept }
            }
            Redemption::Replayed => {
                count(Event::TicketReplayed);
                arrive(None, Place::Replaced)
            }
            Redemption::Expired => {
                count(Event::TicketExpired);
                arrive(Some(ticket.arrived), Place::Late)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a request brings, and what surrounds it")]
    fn arrive(
        &self,
        entrance: &Entrance<'_>,
        asking: &Asking,
        arrived: Option<Timestamp>,
        place: Place,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Verdict {
        let Asking { class, cost, .. } = *asking;
        let refused = |retry_after| {
            count(Event::IngressShed);
            Verdict::Refused { retry_after }
        };
        let Self::Room(room) = self else {
            // Whoever waits pays where places are given; nobody else could be sent there.
            if entrance.waits {
                return Verdict::SendBack;
            }
            return match entrance.ingress.take(class, cost, now) {
                Ok(()) => self.unasked(cost),
                Err(retry_after) => refused(retry_after),
            };
        };
        // Whoever had a place has come back for it.
        let returns = entrance.returns || matches!(asking.shown, Shown::Ticket(_));
        let held = match entrance.ingress.pass(class, cost, returns.then_some(entrance.max_wait), now) {
            Passage::Passes if !entrance.waits => return self.unasked(cost),
            Passage::Passes => None,
            Passage::Shed { retry_after } => return refused(retry_after),
            Passage::Room { due } => {
                count(Event::IngressHeld);
                Some(due)
            }
        };
        if asking.sends_on {
            room.sends_on();
        }
        let nonce = nonce();
        match room.arrive_held(class, nonce, arrived, held, now) {
            Arrival::Enter if asking.sends_on => {
                Verdict::SendOn { ticket: ticket_for_now(asking, nonce, now), redeemed: false }
            }
            Arrival::Enter if place == Place::Replaced => {
                // There is room, but not for this ticket again: a place that is due at once, and a page that says so.
                count(Event::WaitingAnswers);
                let wait = Wait { wait: Duration::ZERO, place: 1, due: now };
                Verdict::Wait { ticket: ticket_for_now(asking, nonce, now), wait, place }
            }
            Arrival::Enter => Verdict::Enter { ticket: None },
            Arrival::Wait(ticket, wait) => {
                count(Event::WaitingAnswers);
                Verdict::Wait { ticket, wait, place }
            }
            Arrival::Full { retry_after } => {
                // Taken or reserved at the door, and used for nothing.
                if entrance.ingress.limits(class) {
                    entrance.ingress.give_back(class, cost);
                }
                count(Event::Full);
                Verdict::Full { retry_after }
            }
        }
    }

    /// Past the schedule, which has no say in it.
    fn unasked(&self, cost: Cost) -> Verdict {
        self.charge(cost);
        Verdict::Enter { ticket: None }
    }

    /// Whether a ticket may be for its class's bucket, which lets it pass later.
    fn is_held(&self, ingress: &Ingress, ticket: &Ticket, now: Timestamp) -> bool {
        self.room().is_some() && ingress.holds(ticket.class) && ticket.due() > now
    }

    /// As [`Desk::look`], for a class whose ingress may send visitors here.
    pub fn look_at(&self, ingress: &Ingress, ticket: &Ticket, now: Timestamp) -> Look {
        let due = ticket.due();
        match self.look(ticket, now) {
            Look::Wait(wait) if self.is_held(ingress, ticket, now) => {
                Look::Wait(Wait { wait: wait.wait.max(due.since(now)), due: wait.due.max(due), ..wait })
            }
            Look::Ready if self.is_held(ingress, ticket, now) => {
                Look::Wait(Wait { wait: due.since(now), place: 1, due })
            }
            other => other,
        }
    }

    fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Redemption {
        match self {
            Self::Room(room) => room.redeem(ticket, now),
            Self::Checker { checker, .. } => checker.redeem(ticket, now),
        }
    }

    /// While all replicas are down nobody enters and everybody keeps the place: what to say.
    pub fn hold(&self, class: ClassId, shown: &Shown, now: Timestamp) -> Wait {
        let kept = match shown {
            Shown::Ticket(ticket) if ticket.class == class => match self.look(ticket, now) {
                Look::Wait(wait) => Some(wait),
                _ => None,
            },
            _ => None,
        };
        let wait = kept.map_or(RETRY_DOWN, |w| w.wait.max(RETRY_DOWN));
        Wait { wait, place: kept.map_or(1, |w| w.place), due: now + wait }
    }

    /// The schedule, if this process keeps it.
    pub fn room(&self) -> Option<&Room> {
        match self {
            Self::Room(room) => Some(room),
            Self::Checker { .. } => None,
        }
    }

    /// What a status poll is told.
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> Look {
        match self {
            Self::Room(room) => room.look(ticket, now),
            Self::Checker { checker, .. } => checker.look(ticket, now),
        }
    }

    /// Whether the ticket is shown after its turn.
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        match self {
            Self::Room(room) => room.is_late(ticket),
            Self::Checker { checker, .. } => checker.is_late(ticket),
        }
    }

    /// The request a ticket was redeemed for never reached the origin: the ticket is good again.
    pub fn give_back(&self, ticket: &Ticket) {
        match self {
            Self::Room(room) => room.give_back(ticket),
            Self::Checker { checker, .. } => checker.give_back(ticket),
        }
    }

    /// Work admitted without asking.
    pub fn charge(&self, cost: Cost) {
        match self {
            Self::Room(room) => room.charge(cost),
            Self::Checker { checker, .. } => checker.charge(cost),
        }
    }

    /// Whether anyone waits here.
    pub fn busy(&self, now: Timestamp) -> bool {
        self.room().is_some_and(|room| room.busy(now))
    }

    /// How often waiting pages are to ask. See [`Room::ask_every`].
    pub fn ask_every(&self) -> AskEvery {
        self.room().map_or_else(AskEvery::default, Room::ask_every)
    }

    /// What the room lets in from now on, by itself. Tokencheck gets its orders from tokengen instead.
    pub fn publish(&self, capacity: Rate, now: Timestamp) {
        self.steer(&capacity.into(), now);
    }

    /// What the room goes by from now on.
    pub fn steer(&self, course: &Course, now: Timestamp) {
        if let Self::Room(room) = self {
            room.set_course(course, now);
        }
    }

    /// The control tick, with the gate as it is. With no origin to go to nobody enters.
    pub fn tick(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        match self {
            Self::Room(room) => room.tick_with(gate, is_origin_usable, now),
            Self::Checker { checker, .. } => checker.tick_with(gate, is_origin_usable, now),
        }
    }

    /// Capacity in force.
    pub fn capacity(&self) -> Rate {
        match self {
            Self::Room(room) => room.capacity(),
            Self::Checker { capacity, .. } => *capacity.lock().unwrap_or_else(|e| e.into_inner()),
        }
    }

    /// What is gone by; of a checker, what was ordered.
    pub fn course(&self) -> Course {
        match self {
            Self::Room(room) => room.course(),
            Self::Checker { checker, .. } => checker.course(),
        }
    }

    /// The room in figures; a checker knows of nobody who waits.
    pub fn state(&self, now: Timestamp) -> RoomState {
        self.room().map(|room| room.state(now)).unwrap_or_default()
    }
}

/// A place that is due at once.
fn ticket_for_now(asking: &Asking, nonce: u64, now: Timestamp) -> Ticket {
    let issued = Timestamp::from_millis(now.as_millis());
    let Asking { class, cost, .. } = *asking;
    Ticket { class, cost, issued, wait: Duration::ZERO, arrived: issued, nonce }
}
