//! What is brought to the desk, and what it says.

use std::cell::Cell;
use std::time::Duration;

use crate::ingress::Ingress;
use crate::policies::TierId;
use crate::room::Wait;
use crate::session::{NoSessionSlot, SessionKey, SessionRequest, Sessions};
use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, Timestamp};

/// What a request shows of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presented {
    /// Nothing: a newcomer.
    Nothing,
    /// An authentic ticket.
    Ticket(Ticket),
    /// Something that is no ticket, or none of this visitor's.
    Forged,
}

/// A request that meets the room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionRequest {
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
    /// What it shows.
    pub shown: Presented,
    /// This process forwards nothing itself: it is tokengen.
    pub sends_on: bool,
}

/// What becomes of a newcomer whose session finds no place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WhenFull {
    /// It waits in the room.
    #[default]
    Room,
    /// It is refused.
    Refuse,
}

/// What a request that begins a session needs: a place.
pub struct SessionAsk<'a> {
    /// Where places are given.
    pub sessions: &'a Sessions,
    /// The new session's.
    pub key: SessionKey,
    /// Its service level.
    pub tier: TierId,
    /// What if there is none.
    pub when_full: WhenFull,
    /// The request, if it is let in: under way from then on.
    pub under_way: Cell<Option<SessionRequest>>,
}

impl<'a> SessionAsk<'a> {
    /// None is taken yet.
    pub fn new(sessions: &'a Sessions, key: SessionKey, tier: TierId, when_full: WhenFull) -> Self {
        Self { sessions, key, tier, when_full, under_way: Cell::default() }
    }

    /// Whether it has a place from now on.
    pub(super) fn take(&self, cost: Cost, now: Timestamp) -> bool {
        self.is_given(self.sessions.admit(self.key, self.tier, cost, now))
    }

    /// As [`Seat::take`], of its level's own places only.
    pub(super) fn take_own(&self, cost: Cost, now: Timestamp) -> bool {
        self.is_given(self.sessions.admit_to_own(self.key, self.tier, cost, now))
    }

    fn is_given(&self, admitted: Result<SessionRequest, NoSessionSlot>) -> bool {
        let is_given = admitted.is_ok();
        self.under_way.set(admitted.ok());
        is_given
    }

    /// It was taken for nothing.
    pub(super) fn give_back(&self, now: Timestamp) {
        if let Some(under_way) = self.under_way.take() {
            self.sessions.void(under_way, now);
        }
    }
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// To the origin.
    Enter {
        /// The ticket that was redeemed for it, if it was one.
        ticket: Option<Ticket>,
    },
    /// To tokencheck, with this ticket for now.
    SendOn {
        /// Made for the way.
        ticket: Ticket,
        /// A ticket was redeemed for it: the visitor holds none any more.
        redeemed: bool,
    },
    /// To tokengen, for a place.
    SendBack,
    /// It waits with this ticket.
    Wait {
        /// The ticket that holds from now on.
        ticket: Ticket,
        /// What to say.
        wait: Wait,
        /// Whose place it is.
        place: Position,
    },
    /// No place within the longest wait.
    Full {
        /// When to try again.
        retry_after: Duration,
    },
    /// No session's place is free, and newcomers are refused then.
    NoPlace {
        /// When to try again.
        retry_after: Duration,
    },
    /// What it shows is forged.
    Forbidden,
    /// Its class's ingress bucket is empty.
    Refused {
        /// When it would pass.
        retry_after: Duration,
    },
}

/// Who guards the way to the desk.
#[derive(Clone, Copy, Debug)]
pub struct Entrance<'a> {
    /// The classes' buckets.
    pub ingress: &'a Ingress,
    /// Longest wait there for a bucket.
    pub max_wait: Duration,
    /// The class waits in the room. If not, it comes here because its bucket may send it there.
    pub waits: bool,
    /// Whoever asks can come back: only then does its bucket hold a place for it. What is reserved for those who do not come is
    /// lost to all others, and no show-up ratio makes up for it.
    pub returns: bool,
}

/// How a visitor comes by the place it waits at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// A newcomer's.
    New,
    /// The one the ticket shown is for.
    Kept,
    /// New, because the turn had passed.
    Late,
    /// New, because the ticket shown had been used.
    Replaced,
}
