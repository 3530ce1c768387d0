//! Tickets and passes: signed proofs that a visitor carries, so that the gate keeps no state per visitor.

use std::time::Duration;

use crate::units::{ClassId, Cost, Timestamp};

/// A place in the waiting room (WebQ III-C). Times are whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The class that waits.
    pub class: ClassId,
    /// Work reserved for it.
    pub cost: Cost,
    /// When this ticket was made.
    pub issued: Timestamp,
    /// The wait promised then; the visitor's turn is at `issued + wait`.
    pub wait: Duration,
    /// When the visitor first came; not after `issued`. Survives a new place.
    pub arrived: Timestamp,
    /// Makes the ticket one of a kind: what is redeemed exactly once.
    pub nonce: u64,
}

impl Ticket {
    /// When the visitor's turn is, by the schedule in force when the ticket was made.
    pub fn due(&self) -> Timestamp {
        self.issued + self.wait
    }
}
