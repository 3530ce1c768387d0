//! Sessions (WAC 2): a visitor with all its requests. Only whole sessions are refused: an admitted session is
//! served to its end, and a visitor without one waits, or is refused, while no session slot is free.
//!
//! ```text
//! request ─► key ─► touch ─► admitted: past room and buckets, before all others at the gate
//!                     └────► new: room ─► slot ─► admitted ─► origin ─► `Tidegate-Session: end`, new cookie
//! ```
//!
//! `tidegate_core::session` decides; this module finds a request's session, and gives slots back.
//!
//! - **Invariant**: only the gate admits a session. A cookie value or an address that nobody was admitted
//!   with is new, and nothing is kept of it, so clients cannot fill the table.
//! - **Invariant**: a slot is given back once: when its session ends, or at once when nothing came of its
//!   first request.
//! - **Invariant**: a request of an admitted session holds one [`SessionGuard`], which moves into its answer
//!   or its tunnel. Until it is dropped, the session does not end for inactivity.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use tidegate_core::capacity::Trust;
use tidegate_core::gate::Totals;
use tidegate_core::session::{
    LearnedSessions, SessionInputs, SessionKey, SessionPace, SessionRequest, SessionStatus, Sessions,
};
use tidegate_core::ticket::Pass;
use tidegate_core::units::Timestamp;

use crate::config::Config;
use crate::shared::{Shared, Worker};
use tidegate_settings::{Role, SessionBy};

pub mod by_address;
pub mod key;
pub mod pages;
mod set_cookie;

use by_address::ByAddress;
use key::Keys;
use pages::Pages;

pub struct VisitorSessions {
    pub table: Sessions,
    pub(crate) keys: Keys,
    pub(crate) by_address: ByAddress,
    /// Where sessions are not counted.
    pub(crate) pages: Pages,
    connections: AtomicU64,
}

impl VisitorSessions {
    pub fn new(live: &Config, now: Timestamp) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let table = Sessions::new(&live.session_config(), now);
        let (keys, by_address) = (Keys::new(&secret), ByAddress::new());
        Ok(Self { table, keys, by_address, pages: Pages::default(), connections: AtomicU64::new(0) })
    }

    /// Begins from what an earlier process has learned.
    pub fn resume(&self, learned: Option<(LearnedSessions, Trust)>) {
        if let Some((learned, trust)) = learned {
            self.table.resume(&learned, trust);
        }
    }

    /// One control tick, before the room's own: ends idle sessions, sets how many there may be, and how fast
    /// the room may admit more. `is_measured`: the capacity was measured, not guessed.
    pub fn tick(&self, shared: &Shared, gate: &Totals, is_measured: bool, now: Timestamp) {
        let live = shared.config.load();
        let admission = &shared.admission;
        let waiting = u64::from(admission.is_waited(now));
        self.table.tick(&SessionInputs { capacity: admission.capacity(), is_measured, gate, waiting }, now);
        // Tokengen uses the pace that tokencheck reports.
        if !matches!(live.settings.role, Role::TokenGen { .. }) {
            admission.pace_sessions(self.pace(&live));
            admission.expect_sessions(self.table.expected().filter(|_| live.counts_sessions()));
        }
    }

    /// How fast new sessions get session slots; `None`: they are not counted here.
    pub fn pace(&self, live: &Config) -> Option<SessionPace> {
        self.table.pace().filter(|_| live.counts_sessions())
    }

    /// Goes over to another configuration. If sessions are identified in another way, all of them end.
    pub fn follow(&self, old: &Config, new: &Config, now: Timestamp) {
        let (before, after) = (&old.settings.session, &new.settings.session);
        if (before.key, &before.cookie) != (after.key, &after.cookie) {
            self.table.end_all(now);
        }
        if old.tiers.names().ne(new.tiers.names()) {
            let now =
                |id| old.tiers.get(id).and_then(|tier| new.tiers.by_name(&tier.name)).unwrap_or_default();
            self.table.renumber(now);
        }
        let config = new.session_config();
        if config != old.session_config() {
            self.table.configure(&config, now);
        }
    }
}

/// A connection as sessions see it: its number, and the session that ends with it (`session.key =
/// "connection"`).
pub struct SessionLink {
    pub(crate) number: u64,
    worker: Rc<Worker>,
    session: RefCell<Option<SessionKey>>,
}

impl SessionLink {
    pub fn new(worker: Rc<Worker>) -> Self {
        let number = worker.shared.sessions.connections.fetch_add(1, Relaxed);
        Self { number, worker, session: RefCell::default() }
    }

    /// The session `key` was begun on this connection. Where connections identify sessions, it ends with it.
    pub(crate) fn ends_with(&self, by: SessionBy, key: SessionKey) {
        if by == SessionBy::Connection {
            self.session.replace(Some(key));
        }
    }
}

impl Drop for SessionLink {
    fn drop(&mut self) {
        if let Some(key) = self.session.take() {
            self.worker.shared.sessions.table.leave(key, self.worker.now());
        }
    }
}

/// A request's relation to the sessions. Exists only where sessions are counted.
#[derive(Default)]
pub(crate) struct RequestSession {
    /// The key that the request shows; once it is admitted, the key of its session.
    pub(crate) key: Option<SessionKey>,
    pub(crate) standing: SessionStatus,
    /// The key of the session that begins with the ticket that it shows, or has begun with it.
    pub(crate) ticket_key: Option<SessionKey>,
    /// The pass that it shows, if the gate signed it.
    pub(crate) pass: Option<Pass>,
    /// The binding of its cookies, as it shows it.
    pub(crate) binding: Option<[u8; 16]>,
    pub(crate) is_secure: bool,
    /// It shows no cookie of the gate, and passes identify sessions.
    pub(crate) is_without_cookies: bool,
    /// Held by a request of an admitted session.
    pub(crate) stay: Option<SessionGuard>,
}

impl RequestSession {
    pub(crate) fn is_admitted(&self) -> bool {
        self.standing == SessionStatus::Admitted
    }

    /// Whether its session has begun with it.
    pub(crate) fn is_first(&self) -> bool {
        self.stay.as_ref().is_some_and(|stay| stay.begins.is_some())
    }

    /// Whether it begins a page of an admitted session.
    pub(crate) fn begins_page(&self) -> bool {
        let request = self.stay.as_ref().and_then(|stay| stay.request.as_ref());
        request.is_some_and(SessionRequest::begins_page)
    }

    /// The key the new session would have. An invalid pass never becomes valid again, so its key is not used;
    /// a cookie or an address may begin another session. One that begins with a ticket has the ticket's key:
    /// the visitor is known by it until the pass arrives, in another tab or after a reload.
    pub(crate) fn offer(&self, by: SessionBy, rng: &mut StdRng) -> SessionKey {
        let shown = if by == SessionBy::Pass { self.ticket_key } else { self.key };
        shown.unwrap_or_else(|| fresh(by, rng))
    }

    /// Notes that the session which the request begins was admitted.
    pub(crate) fn begins(&mut self, worker: &Rc<Worker>, request: SessionRequest) {
        let key = request.key();
        let is_known = [self.key, self.ticket_key].contains(&Some(key));
        let begins = NewSession { is_untold: !is_known, has_reached: false };
        self.stay =
            Some(SessionGuard { worker: worker.clone(), request: Some(request), begins: Some(begins) });
        (self.key, self.standing) = (Some(key), SessionStatus::Admitted);
    }

    /// Notes whether the origin may be working on the request, whatever becomes of the visitor.
    pub(crate) fn reaches(&mut self, has_reached: bool) {
        if let Some(begins) = self.stay.as_mut().and_then(|stay| stay.begins.as_mut()) {
            begins.has_reached = has_reached;
        }
    }

    /// Notes that the request was answered: its session has begun.
    pub(crate) fn keep(&mut self) {
        if let Some(stay) = &mut self.stay {
            stay.begins = None;
        }
    }

    /// The request, if it is one of an admitted session.
    pub(crate) fn request(&mut self) -> Option<&mut SessionRequest> {
        self.stay.as_mut()?.request.as_mut()
    }

    /// What keeps its session alive, for an answer or a tunnel that outlives the exchange.
    pub(crate) fn take_stay(&mut self) -> Option<SessionGuard> {
        self.stay.take()
    }
}

/// A request of an admitted session, which keeps the session alive. When it is dropped the request is over.
/// If the request began the session and was not answered, the session never began and its slot is free.
pub struct SessionGuard {
    pub(crate) worker: Rc<Worker>,
    pub(crate) request: Option<SessionRequest>,
    /// Set while the request begins its session and is not answered yet.
    pub(crate) begins: Option<NewSession>,
}

pub(crate) struct NewSession {
    /// The visitor learns the session's key only from the answer.
    pub(crate) is_untold: bool,
    pub(crate) has_reached: bool,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let (table, now) = (&self.worker.shared.sessions.table, self.worker.now());
        // The slot stays taken only if the visitor knows the key and the origin may have the request.
        match &self.begins {
            Some(begins) if begins.is_untold || !begins.has_reached => table.void(request, now),
            _ => table.finish(request, now),
        }
    }
}

fn fresh(by: SessionBy, rng: &mut StdRng) -> SessionKey {
    match by {
        SessionBy::Pass => of_nonce(rng.next_u64()),
        _ => SessionKey(rng.random()),
    }
}

/// The key of a pass: its nonce in both halves, so that all bits are random.
pub(crate) fn of_nonce(nonce: u64) -> SessionKey {
    SessionKey(u128::from(nonce) << 64 | u128::from(nonce))
}

pub(crate) fn nonce_of(key: SessionKey) -> u64 {
    key.0 as u64
}

/// The key as the API shows it.
pub fn written(key: SessionKey) -> String {
    format!("{:032x}", key.0)
}

/// The inverse of [`written`].
pub fn read(text: &str) -> Option<SessionKey> {
    let is_one = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_one.then(|| u128::from_str_radix(text, 16).ok().map(SessionKey)).flatten()
}

/// The session table, if this process counts sessions.
pub fn counted(shared: &Shared) -> Option<&Sessions> {
    shared.config.load().counts_sessions().then_some(&shared.sessions.table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_they_are_read() {
        for key in [of_nonce(0x0123_4567_89ab_cdef), SessionKey(0), SessionKey(u128::MAX)] {
            assert_eq!(read(&written(key)), Some(key));
        }
        assert_eq!(nonce_of(of_nonce(77)), 77);
        let long = "0".repeat(33);
        for bad in ["", "0", "+0000000000000000000000000000001", "g0000000000000000000000000000000", &long] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
