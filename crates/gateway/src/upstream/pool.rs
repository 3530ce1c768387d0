//! Connections to the replicas, one pool per worker.
//!
//! Idle connections are kept per replica, last in first out: the most recently used one is the least likely
//! to have been closed by the other side, and the surplus of a busy time ages at the bottom and is closed.
//! One task drives each connection for its whole life; a request only exchanges messages with it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use hyper::client::conn::http1::{Builder, SendRequest};
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use crate::http::socket::Socket;
use crate::upstream::balance::Replica;
use crate::upstream::body::RequestBody;
use crate::upstream::deadline::{Slot, Ticks};
use crate::upstream::stats::{Stats, bump};
use crate::upstream::target::OpenError;

/// 1xx responses kept for one request. An origin sends 103 once or twice; a flood must not use memory.
const MAX_INFORMATIONAL: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The HTTP layer refused it; does not happen with HTTP/1.1.
    #[error("cannot set up HTTP: {0}")]
    Handshake(#[from] hyper::Error),
}

pub(crate) struct Conn {
    pub(crate) sender: SendRequest<RequestBody>,
    /// Its time limit: first byte, then silence in the body.
    pub(crate) slot: Rc<Slot>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) reused: bool,
    idle_since: u64,
}

/// 1xx responses on their way from a connection's task to the request's.
///
/// Both run on the same thread. hyper requires callbacks to be `Sync`, hence the lock; it is never contended.
#[derive(Default)]
pub(crate) struct Relay(Mutex<RelayState>);

#[derive(Default)]
struct RelayState {
    queue: Vec<(StatusCode, HeaderMap)>,
    seen: usize,
    waker: Option<Waker>,
}

impl Relay {
    pub(crate) fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut s = self.0.lock();
        s.seen += 1;
        if s.seen <= MAX_INFORMATIONAL {
            s.queue.push((status, headers.clone()));
        }
        if let Some(waker) = s.waker.take() {
            waker.wake();
        }
    }

    /// The responses since the last call; the next one wakes `waker`.
    pub(crate) fn take(&self, waker: &Waker) -> Vec<(StatusCode, HeaderMap)> {
        let mut s = self.0.lock();
        if !s.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            s.waker = Some(waker.clone());
        }
        std::mem::take(&mut s.queue)
    }

    /// Forgets everything, for the next request.
    pub(crate) fn reset(&self) {
        *self.0.lock() = RelayState::default();
    }
}

pub(crate) struct Pool {
    idle: RefCell<HashMap<u64, Idle>>,
    pub(crate) ticks: Ticks,
    ticking: Cell<bool>,
    connect_timeout: Cell<Duration>,
    idle_ticks: Cell<u64>,
    max_idle: Cell<usize>,
    stats: Arc<Stats>,
    me: Weak<Self>,
}

struct Idle {
    replica: Arc<Replica>,
    /// The oldest first.
    conns: Vec<Conn>,
}

impl Pool {
    pub(crate) fn new(origin: &tidegate_settings::Origin, stats: Arc<Stats>) -> Rc<Self> {
        let limits = [origin.first_byte_timeout, origin.read_timeout, origin.idle_timeout];
        let pool = Rc::new_cyclic(|me| Self {
            idle: RefCell::default(),
            ticks: Ticks::new(Ticks::grain_for(&limits)),
            ticking: Cell::new(false),
            connect_timeout: Cell::default(),
            idle_ticks: Cell::default(),
            max_idle: Cell::default(),
            stats,
            me: me.clone(),
        });
        pool.reconfigure(origin);
        pool
    }

    pub(crate) fn reconfigure(&self, origin: &tidegate_settings::Origin) {
        self.connect_timeout.set(origin.connect_timeout);
        self.idle_ticks.set(self.ticks.cover(origin.idle_timeout));
        self.max_idle.set(origin.max_idle);
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle.borrow().values().map(|i| i.conns.len()).sum()
    }

    /// An idle connection to `replica` that is ready to send and was idle for at most `max_age` ticks.
    pub(crate) fn checkout(&self, replica: &Replica, max_age: u64) -> Option<Conn> {
        let mut idle = self.idle.borrow_mut();
        let conns = &mut idle.get_mut(&replica.id())?.conns;
        let now = self.ticks.now();
        for i in (0..conns.len()).rev() {
            let conn = &conns[i];
            if now.saturating_sub(conn.idle_since) > max_age.min(self.idle_ticks.get()) {
                return None;
            }
            if conn.sender.is_ready() {
                bump(&self.stats.reused);
                return Some(conns.remove(i));
            }
            if conn.sender.is_closed() {
                conns.remove(i);
            }
            // Else its task has not yet seen the end of the last response: it will be ready in a moment.
        }
        None
    }

    /// Gives a connection back after a complete exchange.
    pub(crate) fn checkin(&self, replica: &Arc<Replica>, mut conn: Conn) {
        if conn.sender.is_closed() || replica.is_retired() {
            return;
        }
        conn.slot.rest();
        conn.reused = true;
        conn.idle_since = self.ticks.now();
        let mut idle = self.idle.borrow_mut();
        let entry =
            idle.entry(replica.id()).or_insert_with(|| Idle { replica: replica.clone(), conns: Vec::new() });
        if entry.conns.len() < self.max_idle.get() {
            entry.conns.push(conn);
        }
    }

    pub(crate) async fn connect(&self, replica: &Arc<Replica>) -> Result<Conn, ConnectError> {
        bump(&self.stats.connects);
        let stream = replica.target().open(self.connect_timeout.get()).await?;
        stream.set_nodelay(true).map_err(OpenError::Failed)?;
        let (sender, connection) = Builder::new().handshake(Socket(stream)).await?;
        // Errors reach the request that uses the connection; those of an idle connection do not matter.
        tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
        let slot = self.ticks.slot();
        self.start_ticking();
        Ok(Conn { sender, slot, relay: Arc::default(), reused: false, idle_since: 0 })
    }

    /// Starts the worker's task for time limits and the sweep of idle connections; it ends with the last one.
    fn start_ticking(&self) {
        if self.ticking.replace(true) {
            return;
        }
        self.ticks.advance();
        let (me, grain) = (self.me.clone(), self.ticks.grain());
        tokio::task::spawn_local(async move {
            let mut interval = tokio::time::interval(grain);
            interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                interval.tick().await;
                let Some(pool) = me.upgrade() else { return };
                pool.sweep();
                if !pool.ticks.advance() {
                    pool.ticking.set(false);
                    return;
                }
            }
        });
    }

    /// Closes connections that were idle too long, were closed remotely, or lead to a retired replica.
    fn sweep(&self) {
        let (now, limit) = (self.ticks.now(), self.idle_ticks.get());
        self.idle.borrow_mut().retain(|_, idle| {
            if idle.replica.is_retired() {
                return false;
            }
            idle.conns.retain(|c| !c.sender.is_closed() && now.saturating_sub(c.idle_since) <= limit);
            !idle.conns.is_empty()
        });
    }
}
