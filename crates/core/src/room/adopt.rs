//! Promises that no save remembers: tickets made between the last save and a crash.
//!
//! The schedule is saved once a second, so a killed gate comes back without its last promises. The tickets for them
//! are good all the same; but their places look free, and newcomers would be promised them once more. So the first
//! time such a ticket is shown, its promise is entered again. Whoever holds one asks within seconds: pages poll.
//!
//! Rejected: saving every promise as it is made (a system call per visitor in the very crowd this is for), and a
//! schedule in a shared mapping (the core would have to know where its memory lives).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::Room;
use crate::ring::Load;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::Timestamp;

/// Tickets taken over at most: what one gate hands out in the second between two saves, with room to spare, in a few
/// megabytes. Beyond, promises stay forgotten, and the hand sees to it that the origin does not notice.
const MAX_ADOPTED: usize = 1 << 18;

pub(super) struct Adoption {
    /// When the schedule was saved; tickets made before are in it.
    saved: AtomicU64,
    /// When this process began; tickets made since are in its own schedule.
    began: AtomicU64,
    seen: Mutex<HashSet<u64>>,
}

impl Adoption {
    /// Nothing was saved: every ticket of an earlier process is to be taken over.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { saved: AtomicU64::new(0), began: AtomicU64::new(now.as_micros()), seen: Mutex::default() }
    }

    pub(super) fn saved_at(&self, saved: Timestamp) {
        self.saved.store(saved.as_micros(), Ordering::Relaxed);
    }

    /// Whether `ticket` is to be taken over, and is shown for the first time.
    fn is_new(&self, ticket: &Ticket) -> bool {
        // Tickets count whole milliseconds: one made in the very millisecond of the save counts as unsaved.
        let issued = ticket.issued.as_millis();
        if issued >= self.began.load(Ordering::Relaxed) / 1_000
            || issued < self.saved.load(Ordering::Relaxed) / 1_000
        {
            return false;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < MAX_ADOPTED && seen.insert(ticket.nonce)
    }
}

impl Room {
    /// Enters the promise of a ticket that an earlier process made and no save remembers.
    pub(super) fn adopt(&self, ticket: &Ticket, now: Timestamp) {
        let due = ticket.due();
        if due <= self.door.hand.at(now) || !self.slots.covers(due.second()) || !self.adoption.is_new(ticket)
        {
            return;
        }
        let load = Load { visitors: 1, cost: ticket.cost };
        self.slots.restore(due.second(), load);
        self.waits.add(due.second(), load);
        // What else was promised before it may not have been shown yet: newcomers go behind.
        self.slots.raise_floor(due.second());
        self.last_due.fetch_max(due.as_micros(), Ordering::AcqRel);
    }
}
