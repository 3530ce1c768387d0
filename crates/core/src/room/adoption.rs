//! Promises that no save remembers: tickets made between the last save and a crash.
//!
//! The schedule is saved once a second, so a killed gateway comes back without its last promises. Their
//! tickets are good all the same, but the slots look free: newcomers would be promised them again, and the
//! virtual clock, which skips seconds in which nothing is promised, would let everybody in at once.
//!
//! Seconds are promised in order. So a ticket that is shown says that everything between the saved schedule
//! and its due time was promised, and that part of the schedule is filled when the ticket is first shown:
//! within seconds, because pages poll.
//!
//! Rejected: saving every promise as it is made (a system call per visitor, just when a crowd comes), a
//! schedule in a shared mapping (the core would have to know where its memory lives), and entering only the
//! promises of tickets that were shown (the virtual clock skips those that have not been shown yet; it takes
//! a set of nonces, too).

use crate::sync::Atomic;
use crate::ticket::Ticket;
use crate::units::Timestamp;

pub(super) struct Adoption {
    /// When the schedule was saved; tickets made before are in it.
    saved_at: Atomic<Timestamp>,
    /// When this process began; tickets made since are in its own schedule.
    began: Timestamp,
    /// Up to where promises of the earlier process are in the schedule.
    known_until: Atomic<Timestamp>,
}

impl Adoption {
    /// Nothing was saved: every ticket of an earlier process is to be adopted.
    pub(super) fn new(now: Timestamp) -> Self {
        let nothing = Timestamp::default();
        Self { saved_at: Atomic::new(nothing), began: now, known_until: Atomic::new(nothing) }
    }

    /// A schedule was restored that was saved at `saved_at` and is full up to `full_until`.
    pub(super) fn restored(&self, saved_at: Timestamp, full_until: Timestamp) {
        self.saved_at.store(saved_at);
        self.known_until.store(full_until);
    }

    /// From where on the schedule is to be filled, now that `ticket` is shown; `None`: it is.
    pub(super) fn gap_before(&self, ticket: &Ticket) -> Option<Timestamp> {
        // Tickets count whole milliseconds: one made in the very millisecond of the save counts as unsaved.
        let issued = ticket.issued.as_millis();
        let is_unsaved = issued < self.began.as_millis() && issued >= self.saved_at.load().as_millis();
        Some(self.known_until.load()).filter(|known| is_unsaved && ticket.due() >= *known)
    }

    /// The schedule has been filled up to the end of the visitor's part. (Where two threads fill it at a
    /// time, the earlier of the two may remain; to fill it again changes nothing.)
    pub(super) fn filled(&self, end: Timestamp) {
        self.known_until.store(end);
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
        adoption.restored(Timestamp::from_micros(1_000_500), Timestamp::from_secs(30));
        let ticket = |issued_ms| {
            let issued = Timestamp::from_millis(issued_ms);
            let wait = Duration::from_secs(60);
            Ticket { class: ClassId(0), cost: Cost::ONE, issued, wait, arrived: issued, nonce: 1 }
        };
        for (issued_ms, is_unsaved) in [(999, false), (1_000, true), (1_999, true), (2_000, false)] {
            let expected = is_unsaved.then_some(Timestamp::from_secs(30));
            assert_eq!(adoption.gap_before(&ticket(issued_ms)), expected, "{issued_ms} ms");
        }
        adoption.filled(Timestamp::from_millis(61_500));
        assert_eq!(adoption.gap_before(&ticket(1_000)), None, "known");
        assert_eq!(adoption.gap_before(&ticket(1_600)), Some(Timestamp::from_millis(61_500)), "due later");
    }
}
