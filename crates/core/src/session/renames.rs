//! Notes that lead requests to a renamed session.
//!
//! An application that renames a session (a new cookie at login) does so by the response to one request. That request learns
//! the new key at once; the others in progress know the old one only. A note under the old id leads each of them to the new
//! session. Each request uses a note once, and the last one removes it, so that there are never more notes than requests in
//! progress.
//!
//! Rejected: a cell shared by requests and table (an allocation per request); notes by the key alone (a session that gets its
//! old key again would find its own note).

use std::collections::BTreeMap;

use super::entry::{SessionId, SessionRequest};

/// The notes of one shard.
#[derive(Default)]
pub(super) struct Renames {
    notes: BTreeMap<SessionId, Note>,
}

#[derive(Debug)]
struct Note {
    to: SessionId,
    /// Requests that have not used it yet.
    requests: u16,
}

impl Renames {
    /// Leaves a note for so many requests; none for zero.
    pub(super) fn leave(&mut self, from: SessionId, to: SessionId, requests: u16) {
        if requests > 0 {
            self.notes.insert(from, Note { to, requests });
        }
    }

    /// Leads a request on to its session's next id. `false`: there is no note for it.
    pub(super) fn follow(&mut self, request: &mut SessionRequest) -> bool {
        if !request.is_counted() || self.notes.is_empty() {
            return false;
        }
        let from = request.session();
        let Some(note) = self.notes.get_mut(&from) else { return false };
        request.lead_to(note.to);
        note.requests -= 1;
        if note.requests == 0 {
            self.notes.remove(&from);
        }
        true
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }
}
