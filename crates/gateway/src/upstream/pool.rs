//! Connections to the replicas, one pool per worker.
//!
//! Idle connections are kept per replica, last in first out: the most recently used one is the least likely
//! to have been closed by the other side, and the surplus of a busy time ages at the bottom and is closed.
//! An idle connection is its socket and its time limit, nothing else; no task belongs to it. The task of the
//! request that uses it reads and writes it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::http::proxy_header::{self, Named};
use crate::upstream::balance::Replica;
use crate::upstream::deadline::{Slot, Ticks};
use crate::upstream::socket::OriginSocket;
use crate::upstream::stats::{Stats, bump};
use crate::upstream::target::OpenError;

pub(crate) struct Conn {
    pub(crate) socket: OriginSocket,
    /// Its time limit: first byte, then silence in the body.
    pub(crate) slot: Rc<Slot>,
    pub(crate) reused: bool,
    /// It began with a PROXY header: it is one visitor's, and not used again.
    is_named: bool,
    idle_since: u64,
}

pub(crate) struct Pool {
    /// By the replica's id: few, so that a tree finds one sooner than a hash.
    idle: RefCell<BTreeMap<u64, Idle>>,
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

    /// An idle connection to `replica` that still lives and was idle for at most `max_age` ticks.
    pub(crate) fn checkout(&self, replica: &Replica, max_age: u64) -> Option<Conn> {
        let mut idle = self.idle.borrow_mut();
        let conns = &mut idle.get_mut(&replica.id())?.conns;
        let max_age = max_age.min(self.idle_ticks.get());
        while self.ticks.now().saturating_sub(conns.last()?.idle_since) <= max_age {
            let conn = conns.pop().and_then(|mut conn| conn.socket.is_quiet().then_some(conn));
            if conn.is_some() {
                bump(&self.stats.reused);
                return conn;
            }
        }
        None
    }

    /// Gives a connection back after a complete exchange. Every byte that was read has been used.
    pub(crate) fn checkin(&self, replica: &Arc<Replica>, mut conn: Conn) {
        if conn.is_named || replica.is_retired() || !conn.socket.is_quiet() {
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

    /// A new connection, for `visitor` if replicas want to know.
    pub(crate) async fn connect(
        &self,
        replica: &Arc<Replica>,
        visitor: Option<Named>,
    ) -> Result<Conn, OpenError> {
        bump(&self.stats.connects);
        let socket = self.open(replica, visitor).await?;
        let is_named = replica.header().is_some();
        Ok(Conn { socket, slot: self.slot(), reused: false, is_named, idle_since: 0 })
    }

    /// A new time limit.
    pub(crate) fn slot(&self) -> Rc<Slot> {
        let slot = self.ticks.slot();
        self.start_ticking();
        slot
    }

    /// A connection on which HTTP may begin.
    pub(crate) async fn open(
        &self,
        replica: &Replica,
        visitor: Option<Named>,
    ) -> Result<OriginSocket, OpenError> {
        let header =
            replica.header().map(|version| proxy_header::write(version, visitor)).unwrap_or_default();
        OriginSocket::open(replica, &header, self.connect_timeout.get()).await
    }

    /// Keeps a connection that was opened elsewhere and not used.
    pub(crate) fn adopt(&self, replica: &Arc<Replica>, socket: OriginSocket) {
        let conn = Conn { socket, slot: self.slot(), reused: false, is_named: false, idle_since: 0 };
        self.checkin(replica, conn);
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
            idle.conns.retain_mut(|c| now.saturating_sub(c.idle_since) <= limit && c.socket.is_quiet());
            !idle.conns.is_empty()
        });
    }
}
