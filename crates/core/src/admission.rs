//! Admission: what becomes of a request.
//!
//! [`decide()`] holds every rule. The caller (the gateway from sockets, the simulator from its agenda)
//! gathers the [`Facts`], asks, and performs the [`Decision`]. [`Admission`] is one process's part of the
//! waiting room: all of it, or in the two-process form one half of it (WebQ III-B).
//!
//! | role | newcomers | tickets whose turn has come |
//! |---|---|---|
//! | gate | get a position | enter here |
//! | tokengen | get a position | are sent to tokencheck |
//! | tokencheck | are sent to tokengen | enter here |

use std::time::Duration;

use crate::class_costs::ClassCosts;
use crate::gate::Totals;
use crate::ingress::Ingress;
use crate::measure::Event;
use crate::room::{
    Checker, PollIntervals, RedeemedEarlier, Redemption, Room, RoomState, RoomTargets, TicketAdmission,
    TicketStatus, Wait,
};
use crate::session::{ExpectedSessions, SessionPace};
use crate::ticket::{Pass, PassKind, Ticket};
use crate::units::{ClassId, Cost, Rate, Timestamp};

pub use decide::{
    AdmissionSettings, Facts, PAGE_IDLE, PAGE_PARTS_SETTLE, PAGE_PASS, Process, Progress, Requester, Role,
    SessionClaim, decide, is_page_pass_due,
};
use room_entry::RoomEntry;
pub use shadow::{Fate, ShadowRoom, ShadowTerms};
pub use types::{
    AdmissionRequest, Decision, EnteredBy, Entrance, PolicyStep, Position, Presented, SessionAsk, WhenFull,
};

mod decide;
mod room_entry;
mod shadow;
mod types;

/// When those ask again who have no position, while all replicas are down.
pub const RETRY_DOWN: Duration = Duration::from_secs(5);

/// One process's part of the waiting room.
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum Admission {
    /// All of it, or tokengen's half.
    Room(Box<Room>),
    /// Tokencheck's half.
    Checker {
        checker: Checker,
        /// Capacity as tokengen set it, for display.
        capacity: std::sync::Mutex<Rate>,
    },
}

/// How long the pass of a session holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRules {
    pub timeout: Duration,
    /// Greatest age, however active it is.
    pub max_age: Duration,
}

impl SessionRules {
    /// Whether `pass` is the pass of a session that goes on.
    pub fn holds(&self, pass: &Pass, now: Timestamp) -> bool {
        pass.kind == PassKind::Session
            && now.since(pass.issued) <= self.timeout
            && now.since(pass.first) <= self.max_age
    }

    /// Whether `pass` is to be renewed: once a quarter of its life is over, not with every answer.
    pub fn is_due_for_renewal(&self, pass: &Pass, now: Timestamp) -> bool {
        now.since(pass.issued) > self.timeout / 4
    }
}

impl Admission {
    /// One request that meets the room, of a class without an ingress bucket and without sessions. `nonce`
    /// gives 64 fresh random bits; `count` gets the events to count.
    pub fn ask(
        &self,
        asking: &AdmissionRequest,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Decision {
        let (ingress, max_wait) = (&Ingress::default(), Duration::ZERO);
        let entrance = Entrance {
            ingress,
            max_wait,
            waits: true,
            returns: true,
            client: None,
            owner: None,
            may_be_held: false,
        };
        self.ask_for(&entrance, asking, None, nonce, count, now)
    }

    /// One request that meets the room or its class's ingress bucket. With `session` it begins a session: it
    /// enters with a session slot or not at all.
    pub fn ask_for(
        &self,
        entrance: &Entrance<'_>,
        asking: &AdmissionRequest,
        session: Option<&SessionAsk<'_>>,
        nonce: &mut dyn FnMut() -> u64,
        count: &dyn Fn(Event),
        now: Timestamp,
    ) -> Decision {
        RoomEntry { admission: self, entrance, asking, session, count, now }.decide(nonce)
    }

    /// Whether the ticket may wait for its class's ingress bucket; it then does not enter before it is due.
    fn is_held(&self, ingress: &Ingress, ticket: &Ticket, now: Timestamp) -> bool {
        self.room().is_some() && ingress.holds(ticket.class) && ticket.due() > now
    }

    /// As [`Admission::look`], for a class whose ingress bucket may send visitors here.
    pub fn look_at(&self, ingress: &Ingress, ticket: &Ticket, now: Timestamp) -> TicketStatus {
        let due = ticket.due();
        match self.look(ticket, now) {
            TicketStatus::Wait(wait) if self.is_held(ingress, ticket, now) => TicketStatus::Wait(Wait {
                wait: wait.wait.max(due.since(now)),
                due: wait.due.max(due),
                ..wait
            }),
            TicketStatus::Ready if self.is_held(ingress, ticket, now) => {
                TicketStatus::Wait(Wait { wait: due.since(now), position: 1, due })
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

    /// The wait to announce while all replicas are down: nobody enters, and everybody keeps the position.
    pub fn hold(&self, class: ClassId, shown: &Presented, now: Timestamp) -> Wait {
        let kept = match shown {
            Presented::Ticket(ticket) if ticket.class == class => match self.look(ticket, now) {
                TicketStatus::Wait(wait) => Some(wait),
                _ => None,
            },
            _ => None,
        };
        let wait = kept.map_or(RETRY_DOWN, |w| w.wait.max(RETRY_DOWN));
        Wait { wait, position: kept.map_or(1, |w| w.position), due: now + wait }
    }

    /// Counts a visitor whose turn had come and who found no session slot.
    fn no_slot(&self) {
        if let Self::Room(room) = self {
            room.session_slots.note_unserved();
        }
    }

    /// The schedule, if this process keeps it.
    pub fn room(&self) -> Option<&Room> {
        match self {
            Self::Room(room) => Some(room),
            Self::Checker { .. } => None,
        }
    }

    /// The answer to a status poll.
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> TicketStatus {
        match self {
            Self::Room(room) => room.status(ticket, now),
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

    /// Tokencheck's half, if this process is it.
    pub(crate) fn checker(&self) -> Option<&Checker> {
        match self {
            Self::Room(_) => None,
            Self::Checker { checker, .. } => Some(checker),
        }
    }

    fn tickets(&self) -> &TicketAdmission {
        match self {
            Self::Room(room) => room.tickets(),
            Self::Checker { checker, .. } => checker.tickets(),
        }
    }

    /// What requests of each class cost: everything that charges them asks here.
    pub fn costs(&self) -> &ClassCosts {
        match self {
            Self::Room(room) => room.costs(),
            Self::Checker { checker, .. } => checker.costs(),
        }
    }

    /// The redeemed tickets that could still be shown: pairs of the slot second and the nonce.
    pub fn redeemed(&self) -> Vec<(u64, u64)> {
        self.tickets().redeemed()
    }

    /// Takes over the tickets that an earlier process has redeemed: all of them, so that the others are good.
    /// For a new room, before the first visitor.
    pub fn restore_redeemed(&self, earlier: RedeemedEarlier) {
        self.tickets().restore_redeemed(earlier);
    }

    /// The request for which this ticket was claimed from its owner has entered, or has not.
    pub fn end_claim(&self, nonce: u64) {
        if let Some(checker) = self.checker() {
            checker.end_claim(nonce);
        }
    }

    /// The oldest second of the schedule whose tickets are still good.
    pub fn oldest_valid(&self, now: Timestamp) -> u64 {
        self.tickets().oldest_valid(now)
    }

    /// Charges work that was admitted without asking the room.
    pub fn charge(&self, cost: Cost) {
        match self {
            Self::Room(room) => room.charge(cost),
            Self::Checker { checker, .. } => checker.charge(cost),
        }
    }

    /// Counts a part of the page with this pass; `false`: it has had too many of late.
    fn take_part(&self, pass: &Pass, now: Timestamp) -> bool {
        match self {
            Self::Room(room) => room.take_part(pass.nonce, now),
            Self::Checker { checker, .. } => checker.take_part(pass.nonce, now),
        }
    }

    /// As [`Admission::charge`], for a request of an admitted session.
    fn charge_session(&self, cost: Cost) {
        match self {
            Self::Room(room) => room.charge_session(cost),
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
            Self::Checker { checker, .. } => checker.last_update().is_some_and(|update| update.is_waited),
        }
    }

    /// A page that waits with this ticket asks again `after` from now. See [`Room::will_ask`].
    pub fn will_ask(&self, ticket: &Ticket, position: Position, after: Duration, now: Timestamp) {
        if let Self::Room(room) = self {
            room.will_ask(ticket, position != Position::Kept, after, now);
        }
    }

    /// A page has been sent that asks after `poll`, or is loaded again after `reload` where it runs no
    /// script. Whoever has come back by loading it is taken to run none.
    pub fn page_sent(
        &self,
        ticket: &Ticket,
        position: Position,
        poll: Duration,
        reload: Duration,
        now: Timestamp,
    ) {
        self.will_ask(ticket, position, if position == Position::Kept { reload } else { poll }, now);
    }

    /// How often waiting pages are to ask. See [`Room::ask_every`].
    pub fn ask_every(&self) -> PollIntervals {
        self.room().map_or_else(PollIntervals::default, Room::poll_intervals)
    }

    /// Sets the rate at which the room admits. Tokencheck gets it from tokengen instead.
    pub fn publish(&self, capacity: Rate, now: Timestamp) {
        self.steer(&capacity.into(), now);
    }

    /// Sets the room's targets. Tokencheck gets them from tokengen instead.
    pub fn steer(&self, targets: &RoomTargets, now: Timestamp) {
        if let Self::Room(room) = self {
            room.set_targets(targets, now);
        }
    }

    /// Sets how fast new sessions find slots; `None`: as fast as they come. To be called on every tick before
    /// [`Admission::tick`], but not on tokengen, which gets it from tokencheck.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        match self {
            Self::Room(room) => room.pace_sessions(pace),
            Self::Checker { checker, .. } => checker.pace_sessions(pace),
        }
    }

    /// Sets what open sessions will ask for; `None`: not known. As [`Admission::pace_sessions`].
    pub fn expect_sessions(&self, expected: Option<ExpectedSessions>) {
        match self {
            Self::Room(room) => room.expect_sessions(expected),
            Self::Checker { checker, .. } => checker.expect_sessions(expected),
        }
    }

    /// The control tick, with the gate as it is. With no origin to go to nobody enters.
    pub fn tick(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        match self {
            Self::Room(room) => room.tick_with(gate, is_origin_usable, now),
            Self::Checker { checker, .. } => checker.tick_with(gate, is_origin_usable, now),
        }
    }

    /// Capacity in force, in cost units per second.
    pub fn capacity(&self) -> Rate {
        match self {
            Self::Room(room) => room.capacity(),
            Self::Checker { capacity, .. } => *capacity.lock().unwrap_or_else(|e| e.into_inner()),
        }
    }

    /// What the room is steered by; of a checker, what tokengen said.
    pub fn targets(&self) -> RoomTargets {
        match self {
            Self::Room(room) => room.targets(),
            Self::Checker { checker, .. } => checker.targets(),
        }
    }

    /// The room's figures. A checker knows of nobody who waits.
    pub fn state(&self, now: Timestamp) -> RoomState {
        self.room().map(|room| room.state(now)).unwrap_or_default()
    }
}
