//! Promises that no save remembers: tickets made between the last save and a crash.
//!
//! The schedule is saved once a second, so a killed gateway comes back without its last promises. Their
//! tickets are good all the same, but the slots look free, and newcomers would be promised them again. So the
//! first time such a ticket is shown, its promise is entered again: within seconds, because pages poll.
//!
//! Rejected: saving every promise as it is made (a system call per visitor, just when a crowd comes), and a
//! schedule in a shared mapping (the core would have to know where its memory lives).

use std::collections::HashSet;
use std::sync::Mutex;

use crate::sync::{Atomic, lock};
use crate::ticket::Ticket;
use crate::units::Timestamp;

/// Tickets adopted at most: what one gateway hands out in the second between two saves, with room to spare,
/// in a few megabytes. Beyond that, the pace of the virtual clock protects the origin from their visitors.
const MAX_ADOPTED: usize = 1 << 18;

pub(super) struct Adoption {
    /// When the schedule was saved; tickets made before are in it.
    pub(super) saved: Atomic<Timestamp>,
    /// When this process began; tickets made since are in its own schedule.
    began: Timestamp,
    adopted: Mutex<HashSet<u64>>,
}

impl Adoption {
    /// Nothing was saved: every ticket of an earlier process is to be adopted.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { saved: Atomic::new(Timestamp::default()), began: now, adopted: Mutex::default() }
    }

    /// Whether `ticket` is to be adopted, and is shown for the first time.
    pub(super) fn is_new(&self, ticket: &Ticket) -> bool {
        // Tickets count whole milliseconds: one made in the very millisecond of the save counts as unsaved.
        let issued = ticket.issued.as_millis();
        if issued >= self.began.as_millis() || issued < self.saved.load().as_millis() {
            return false;
        }
        let mut adopted = lock(&self.adopted);
        adopted.len() < MAX_ADOPTED && adopted.insert(ticket.nonce)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::{ClassId, Cost};

    #[test]
    fn tickets_made_between_the_save_and_the_start_are_adopted_once() {
        let adoption = Adoption::new(Timestamp::from_millis(2_000));
        adoption.saved.store(Timestamp::from_micros(1_000_500));
        let ticket = |issued_ms, nonce| {
            let issued = Timestamp::from_millis(issued_ms);
            let wait = Duration::from_secs(60);
            Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait, arrived: issued, nonce }
        };
        for (issued_ms, expected) in [(999, false), (1_000, true), (1_999, true), (2_000, false)] {
            assert_eq!(adoption.is_new(&ticket(issued_ms, issued_ms)), expected, "{issued_ms} ms");
            assert!(!adoption.is_new(&ticket(issued_ms, issued_ms)), "once");
        }
    }
}
