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
use crate::ingress::Ingress;
use crate::measure::Event;
use crate::room::{AskEvery, Checker, Course, Look, Redemption, Room, RoomState, Wait};
use crate::session::SessionPace;
use crate::ticket::{Pass, PassKind, Ticket};
use crate::units::{ClassId, Cost, Rate, Timestamp};

use ask::Ask;
pub use words::{Asking, Entrance, Place, Seat, Shown, Verdict, WhenFull};

mod ask;
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
        self.ask_for(entrance, asking, None, nonce, count, now)
    }

    /// As [`Desk::ask_at`], for a request that begins a session: it enters with a place or not at all.
    pub fn ask_for(
        &self,
        entrance: &Entrance<'_>,
        asking: &Asking,
        seat: Option<&Seat<'_>>,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Verdict {
        Ask { desk: self, entrance, asking, seat, count, now }.ask(nonce)
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

    /// One in turn has come and found no session's place.
    fn no_place(&self) {
        if let Self::Room(room) = self {
            room.no_place();
        }
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

    /// Whether anyone waits for this process: here, or at tokengen, as it said last.
    pub fn is_waited(&self, now: Timestamp) -> bool {
        match self {
            Self::Room(room) => room.busy(now),
            Self::Checker { checker, .. } => checker.orders().is_some_and(|orders| orders.is_waited),
        }
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

    /// How fast new sessions find places; `None`: as fast as they come. On every tick before [`Desk::tick`]; not of a tokengen,
    /// which goes by what it is told.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        match self {
            Self::Room(room) => room.pace_sessions(pace),
            Self::Checker { checker, .. } => checker.pace_sessions(pace),
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
