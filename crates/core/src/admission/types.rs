//! What is asked of admission, and what it decides.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use crate::ingress::Ingress;
use crate::measure::Event;
use crate::policies::{AuthoriserId, RouteId, TierId};
use crate::room::{OwnerAnswer, Wait};
use crate::session::{NoSessionSlot, SessionKey, SessionRequest, Sessions};
use crate::ticket::{Ticket, TicketError};
use crate::units::{ClassId, Cost, Timestamp};

/// What a request shows of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presented {
    Nothing,
    /// An authentic ticket.
    Ticket(Ticket),
    /// A ticket sealed with a key that is not in the ring. `claimed_arrival`: when its visitor first came, if
    /// it is what it says.
    UnknownKey {
        claimed_arrival: Option<Timestamp>,
    },
    /// Something that is no ticket, or none of this visitor's.
    Forged,
    /// Of tokencheck only: a ticket for another address than the visitor has here. Visitors may reach the two
    /// hosts by different addresses (IPv4 and IPv6, an exit for each host).
    OtherAddress,
    /// Of tokengen only: an authentic ticket that tokencheck sent back to be bound to something else.
    Rebind(Ticket),
}

impl Presented {
    /// Of the ticket `text` that was opened.
    pub fn new(opened: Result<Ticket, TicketError>, text: &[u8]) -> Self {
        match opened {
            Ok(ticket) => Self::Ticket(ticket),
            Err(TicketError::UnknownKey) => {
                Self::UnknownKey { claimed_arrival: Ticket::claimed_arrival(text) }
            }
            Err(_) => Self::Forged,
        }
    }
}

/// A request that meets the room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionRequest {
    pub class: ClassId,
    pub cost: Cost,
    pub shown: Presented,
    /// This process forwards nothing itself: it is tokengen.
    pub sends_on: bool,
}

/// What becomes of a newcomer whose session finds no slot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenFull {
    #[default]
    Room,
    Refuse,
}

/// The session slot that a request needs to begin a session.
pub struct SessionAsk<'a> {
    pub sessions: &'a Sessions,
    pub key: SessionKey,
    pub tier: TierId,
    pub when_full: WhenFull,
    /// The request once it has a slot; it keeps its session alive from then on.
    pub under_way: Cell<Option<SessionRequest>>,
}

impl<'a> SessionAsk<'a> {
    /// No slot is taken yet.
    pub fn new(sessions: &'a Sessions, key: SessionKey, tier: TierId, when_full: WhenFull) -> Self {
        Self { sessions, key, tier, when_full, under_way: Cell::default() }
    }

    /// Takes a slot; whether there was one.
    pub(super) fn take(&self, cost: Cost, now: Timestamp) -> bool {
        self.is_given(self.sessions.admit(self.key, self.tier, cost, now))
    }

    /// As [`SessionAsk::take`], of its level's own slots only.
    pub(super) fn take_own(&self, cost: Cost, now: Timestamp) -> bool {
        self.is_given(self.sessions.admit_to_own(self.key, self.tier, cost, now))
    }

    fn is_given(&self, admitted: Result<SessionRequest, NoSessionSlot>) -> bool {
        let is_given = admitted.is_ok();
        self.under_way.set(admitted.ok());
        is_given
    }

    /// Gives back a slot that was taken for nothing.
    pub(super) fn give_back(&self, now: Timestamp) {
        if let Some(under_way) = self.under_way.take() {
            self.sessions.void(under_way, now);
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It goes to the origin.
    Enter { by: EnteredBy },
    /// It goes to tokencheck with this ticket, which is due at once. `redeemed`: its own, now used up.
    SendOn { ticket: Ticket, redeemed: Option<Ticket> },
    /// It goes to tokencheck without a ticket: it need not ask the room, and tokengen forwards nothing.
    SendOnUnasked,
    /// The turn of its ticket has come, which another tokencheck owns: the caller claims it there and decides
    /// again with what came of it ([`Progress::Claimed`](super::Progress::Claimed)). `waits`: as
    /// [`Entrance::waits`].
    AskOwner { ticket: Ticket, owner: u16, waits: bool },
    /// It goes to tokengen for a ticket.
    SendBack,
    /// It goes to tokengen with the ticket that it shows, to have it bound to something else than an address.
    SendToRebind,
    /// It waits with this ticket, which replaces any other.
    Wait { ticket: Ticket, wait: Wait, position: Position },
    /// Its turn comes within a second: it is held until then and decided on again.
    Delay { ticket: Ticket, left: Duration },
    /// No origin is usable: it keeps the ticket that it shows, if any, and comes again. `waited`: so far.
    Hold { wait: Wait, waited: Duration },
    /// There is no position within the longest wait.
    Full { retry_after: Duration },
    /// No session slot is free, and newcomers are refused then.
    NoSessionSlot { retry_after: Duration },
    /// Its ticket is forged.
    Forbidden,
    /// Its class's ingress bucket is empty; it would pass after `retry_after`.
    Throttled { retry_after: Duration },
    /// Its service level's quota is used up; it would pass after `retry_after`.
    OverQuota { retry_after: Duration },
    /// The throttle at this position of the [`PolicySet`](crate::policies::PolicySet) refuses it.
    /// `retry_after`: when it would pass, if that is known.
    RefusedByThrottle { throttle: usize, retry_after: Option<Duration> },
    /// The policy at this position of the [`PolicySet`](crate::policies::PolicySet) refuses it, as its
    /// [`Action`](crate::policies::Action) says. `retry_after`: when it would pass, if that is known.
    RefusedByPolicy { policy: usize, retry_after: Option<Duration> },
    /// The caller performs this step of the policy at this position, and decides again.
    Perform { policy: usize, step: PolicyStep },
    /// It is sent to the same URL without the ticket in it, which its visitor keeps in a cookie.
    ShowCleanUrl,
}

/// Why a request enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnteredBy {
    /// Its turn had come: this ticket was redeemed.
    Ticket(Ticket),
    /// It met the room and did not have to wait.
    Room,
    /// Its class's ingress bucket let it pass; it need not wait in the room.
    Ingress,
    Session,
    /// It is part of a page that was let in.
    PartOfPage,
    /// Its class never waits and has no bucket, or its service level skips the room.
    Unasked,
}

impl EnteredBy {
    /// The event that counts it.
    pub fn event(self) -> Event {
        match self {
            Self::Ticket(_) => Event::EnteredByTicket,
            Self::Session | Self::PartOfPage => Event::EnteredByPass,
            Self::Room | Self::Ingress | Self::Unasked => Event::Entered,
        }
    }
}

/// How the caller performs a policy in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyStep {
    Authorise(AuthoriserId),
    /// Shares an upstream request with others, whose answer is used for `period`.
    Coalesce {
        period: Duration,
    },
    Reroute(RouteId),
}

/// What stands before the room.
#[derive(Clone, Copy, Debug)]
pub struct Entrance<'a> {
    pub ingress: &'a Ingress,
    /// Longest wait there for a bucket.
    pub max_wait: Duration,
    /// The class waits in the room. If not, it is asked here because its bucket may send it to the room.
    pub waits: bool,
    /// The client can come back. Only then does its bucket reserve work for it: what is reserved for those
    /// who do not come back is lost to all others, and no show-up ratio makes up for it.
    pub returns: bool,
    /// The client's address; `None`: its positions are not bounded.
    pub client: Option<IpAddr>,
    /// What the owner of the ticket shown has answered; `None`: it has not been asked.
    pub owner: Option<OwnerAnswer>,
    /// The caller can hold it for a moment.
    pub may_be_held: bool,
}

/// Where the position of a visitor who waits comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    New,
    /// It is that of the ticket shown.
    Kept,
    /// It is new, because the ticket's turn had passed.
    Late,
    /// It is new, because the ticket shown had been used.
    Replaced,
}
