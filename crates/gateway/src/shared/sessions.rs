//! Sessions (WAC 2): a visitor with all its requests. "Only whole sessions are refused": who is in keeps being served, and
//! whoever would begin a session waits, or is refused, as long as no place is free.
//!
//! ```text
//! request ─► key ─► touch ─► admitted: past room and buckets, before all others at the gate
//!                     └────► new: room ─► a place ─► admitted ─► origin ─► `Tidegate-Session: end`, another cookie
//! Stay: from then on until the last byte of the answer is gone, or its tunnel is closed, the session does not end for inactivity
//! ```
//!
//! The decisions are `tidegate_core::session`'s; here is by what a request tells whose it is, and when a place goes back.
//!
//! - **Invariant**: a session is admitted by the gate alone. A cookie value or an address that nobody was admitted with is new, and
//!   nothing is kept of it: what clients send fills no table.
//! - **Invariant**: a place is given back once: when its session ends, or at once when nothing came of its first request.
//! - **Invariant**: a request of an admitted session holds one [`Stay`], which goes with its answer, and into its tunnel.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use tidegate_core::gate::Totals;
use tidegate_core::session::{SessionInputs, SessionKey, SessionRequest, SessionStatus, Sessions};
use tidegate_core::ticket::Pass;
use tidegate_core::units::Timestamp;

use crate::config::Config;
use crate::shared::{Shared, Worker};
use tidegate_settings::{Role, SessionBy};

pub mod key;
mod set_cookie;

use key::Keys;

/// The sessions of this process, shared by all workers.
pub struct VisitorSessions {
    /// Who is admitted.
    pub table: Sessions,
    pub(crate) keys: Keys,
    connections: AtomicU64,
}

impl VisitorSessions {
    /// None yet.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    pub fn new(live: &Config, now: Timestamp) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        let table = Sessions::new(&live.session_config(), now);
        Ok(Self { table, keys: Keys::new(&secret), connections: AtomicU64::new(0) })
    }

    /// One control tick, before the room's own: who has gone, how many there may be, and how fast the room may call more.
    /// `is_measured`: the capacity is no guess.
    pub fn tick(&self, shared: &Shared, gate: &Totals, is_measured: bool, now: Timestamp) {
        let live = shared.config.load();
        let desk = &shared.admission;
        let waiting = u64::from(desk.is_waited(now));
        self.table.tick(&SessionInputs { capacity: desk.capacity(), is_measured, gate, waiting }, now);
        // Tokengen goes by what tokencheck reports.
        if !matches!(live.settings.role, Role::TokenGen { .. }) {
            desk.pace_sessions(self.table.pace().filter(|_| live.seats_visitors()));
        }
    }

    /// Goes over to another configuration. What another kind of key tells is nobody's any more.
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

/// What a connection is to sessions: its number, and the session that ends with it (`session.key = "connection"`).
pub struct SessionLink {
    pub(crate) number: u64,
    worker: Rc<Worker>,
    session: RefCell<Option<SessionKey>>,
}

impl SessionLink {
    /// Of a new connection.
    pub fn new(worker: Rc<Worker>) -> Self {
        let number = worker.shared.sessions.connections.fetch_add(1, Relaxed);
        Self { number, worker, session: RefCell::default() }
    }

    /// The session `key` was begun on this connection. Where connections tell sessions apart, it ends with it.
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

/// Where a request stands among the sessions. Only there where sessions are counted.
pub(crate) struct RequestSession {
    /// What it shows. From its admission on: what its session is told by.
    pub(crate) key: Option<SessionKey>,
    pub(crate) standing: SessionStatus,
    /// The pass it shows, if its signature is the gate's.
    pub(crate) pass: Option<Pass>,
    /// What its cookies are bound to, as it shows it.
    pub(crate) binding: Option<[u8; 16]>,
    /// It came over TLS.
    pub(crate) is_secure: bool,
    /// In an admitted session.
    pub(crate) stay: Option<SessionGuard>,
}

impl RequestSession {
    pub(crate) fn is_admitted(&self) -> bool {
        self.standing == SessionStatus::Admitted
    }

    /// What the session would be told by that the request would begin. A pass that does not hold is never good again; a cookie
    /// or an address may begin another session.
    pub(crate) fn offer(&self, by: SessionBy, rng: &mut StdRng) -> SessionKey {
        let shown = self.key.filter(|_| by != SessionBy::Pass);
        shown.unwrap_or_else(|| fresh(by, rng))
    }

    /// The session that the request begins was admitted.
    pub(crate) fn begins(&mut self, worker: &Rc<Worker>, request: SessionRequest) {
        let key = request.key();
        let begins = NewSession { is_untold: self.key != Some(key), has_reached: false };
        self.stay =
            Some(SessionGuard { worker: worker.clone(), request: Some(request), begins: Some(begins) });
        (self.key, self.standing) = (Some(key), SessionStatus::Admitted);
    }

    /// The request is on its way to the origin, which may be working on it from now on, whatever becomes of the visitor.
    pub(crate) fn reaches(&mut self, has_reached: bool) {
        if let Some(begins) = self.stay.as_mut().and_then(|stay| stay.begins.as_mut()) {
            begins.has_reached = has_reached;
        }
    }

    /// Something came of the request: its session has begun.
    pub(crate) fn keep(&mut self) {
        if let Some(stay) = &mut self.stay {
            stay.begins = None;
        }
    }

    /// The request, if it is one of an admitted session.
    pub(crate) fn request(&mut self) -> Option<&mut SessionRequest> {
        self.stay.as_mut()?.request.as_mut()
    }

    /// What keeps its session alive, for whatever outlives the exchange.
    pub(crate) fn take_stay(&mut self) -> Option<SessionGuard> {
        self.stay.take()
    }
}

/// A request of an admitted session, which is kept alive by it. Dropped, the request is over; if nothing has come of it and its session
/// has begun with it, that never began: its place is free again.
pub struct SessionGuard {
    pub(crate) worker: Rc<Worker>,
    /// `None`: dropped.
    pub(crate) request: Option<SessionRequest>,
    /// The session has begun with it, and nothing has come of it yet.
    pub(crate) begins: Option<NewSession>,
}

pub(crate) struct NewSession {
    /// Its visitor has no key to show until there is an answer.
    pub(crate) is_untold: bool,
    /// The origin may be working on the request.
    pub(crate) has_reached: bool,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let (table, now) = (&self.worker.shared.sessions.table, self.worker.now());
        // Whoever can come back has a session once the origin has the request; nobody else could use the place.
        match &self.begins {
            Some(begins) if begins.is_untold || !begins.has_reached => table.void(request, now),
            _ => table.finish(request, now),
        }
    }
}

/// A key that nobody has shown.
fn fresh(by: SessionBy, rng: &mut StdRng) -> SessionKey {
    match by {
        SessionBy::Pass => of_nonce(rng.next_u64()),
        _ => SessionKey(rng.random()),
    }
}

/// The key of a pass: its nonce, in either half, so that all bits are random.
pub(crate) fn of_nonce(nonce: u64) -> SessionKey {
    SessionKey(u128::from(nonce) << 64 | u128::from(nonce))
}

pub(crate) fn nonce_of(key: SessionKey) -> u64 {
    key.0 as u64
}

/// As operators write it.
pub fn written(key: SessionKey) -> String {
    format!("{:032x}", key.0)
}

/// The other way.
pub fn read(text: &str) -> Option<SessionKey> {
    let is_one = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_one.then(|| u128::from_str_radix(text, 16).ok().map(SessionKey)).flatten()
}

/// The sessions of a process that counts them.
pub fn counted(shared: &Shared) -> Option<&Sessions> {
    shared.config.load().seats_visitors().then_some(&shared.sessions.table)
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
