//! The room's desk: the whole waiting room, or in the two-process form one half of it (WebQ III-B).
//!
//! | role | newcomers | tickets whose turn has come |
//! |---|---|---|
//! | gate | get a place | enter here |
//! | tokengen | get a place | are sent to tokencheck |
//! | tokencheck | are sent to tokengen | enter here |

use tidegate_core::room::{Checker, Look, Room, RoomState};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{Cost, Rate, Timestamp};

/// One process's part of the waiting room.
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

impl Desk {
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

    /// The control tick.
    pub fn tick(&self, now: Timestamp, queued: Cost) {
        match self {
            Self::Room(room) => room.tick(now, queued),
            Self::Checker { checker, .. } => checker.tick(now, queued),
        }
    }

    /// Capacity in force.
    pub fn capacity(&self) -> Rate {
        match self {
            Self::Room(room) => room.capacity(),
            Self::Checker { capacity, .. } => *capacity.lock().unwrap_or_else(|e| e.into_inner()),
        }
    }

    /// The room in figures; a checker knows of nobody who waits.
    pub fn state(&self, now: Timestamp) -> RoomState {
        self.room().map(|room| room.state(now)).unwrap_or_default()
    }
}
