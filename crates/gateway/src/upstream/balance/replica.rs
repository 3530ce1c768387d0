//! One replica: its addresses, its state, its counters. Shared by all workers; everything is atomic.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{MAX_EJECTION_FACTOR, Miss, REFUSED_US, TRIAL_US};

/// Names are looked up again after this time. Shorter than the usual fail-over by DNS (60 s), long enough
/// that a resolver sees two lookups a minute and replica.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// `origin.max_in_flight_per_replica`, and a notification of free slots. One for all replicas.
#[derive(Default)]
pub(crate) struct ReplicaLimit {
    most: AtomicUsize,
    freed: Notify,
}

impl ReplicaLimit {
    /// 0: no limit.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    pub(crate) fn set(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// What `look` finds, asked again whenever a slot has been freed. It is in the line of those to wake
    /// before it looks: of two slots that are freed between the looks of two requests and their waits,
    /// [`Notify`] would else remember only one.
    pub(crate) async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            freed.await;
        }
    }

    /// All who wait look again: it is not one slot that has become free.
    pub(crate) fn wake_all(&self) {
        self.freed.notify_waiters();
    }
}

#[derive(Default)]
pub struct Replica {
    id: u64,
    limit: Arc<ReplicaLimit>,
    authority: String,
    /// Set for an IP literal: never looked up.
    literal: Option<SocketAddr>,
    resolved: ArcSwap<Resolved>,
    resolving: AtomicBool,
    healthy: AtomicBool,
    retired: AtomicBool,
    in_flight: AtomicUsize,
    failures: AtomicU32,
    ejections: AtomicU32,
    /// Microseconds since the start of `Replicas`; 0: not ejected.
    ejected_until_us: AtomicU64,
    /// As above: until then one request is on trial.
    trial_until_us: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Resolved {
    addresses: Vec<SocketAddr>,
    at: Option<Instant>,
}

impl Replica {
    pub(crate) fn new(id: u64, authority: String, limit: Arc<ReplicaLimit>) -> Self {
        Self {
            id,
            limit,
            literal: authority.parse().ok(),
            authority,
            healthy: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Unique within its `Replicas`, also over reconfigurations.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// `HOST:PORT` as configured.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Requests it works on, of all workers, bodies included.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    pub fn has_slot(&self) -> bool {
        let most = self.limit.most();
        most == 0 || self.in_flight() < most
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Requests that got no response from it.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Whether it is up by the active checks; true without checks.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Relaxed)
    }

    /// Set by the active checks. A replica that comes back starts with a clean record.
    pub fn set_healthy(&self, healthy: bool) {
        if healthy && !self.healthy.load(Relaxed) {
            self.clear_failures();
        }
        if self.healthy.swap(healthy, Relaxed) != healthy {
            self.limit.wake_all();
        }
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Acquire)
    }

    pub(crate) fn retire(&self) {
        self.retired.store(true, Release);
    }

    pub(crate) fn ejected_until_us(&self) -> u64 {
        self.ejected_until_us.load(Relaxed)
    }

    pub(crate) fn is_untroubled(&self) -> bool {
        self.is_healthy() && self.ejected_until_us() == 0
    }

    pub(crate) fn is_usable(&self, now_us: u64) -> bool {
        self.is_healthy() && self.ejected_until_us() <= now_us
    }

    /// Its ejection is over, and one request is finding out whether it is back.
    pub(crate) fn is_on_trial(&self, now_us: u64) -> bool {
        !self.is_untroubled() && self.trial_until_us.load(Relaxed) > now_us
    }

    /// Whether a request may be sent there: always if it is neither down nor ejected, else one at a time.
    pub(crate) fn begin_trial(&self, now_us: u64) -> bool {
        if self.is_untroubled() {
            return true;
        }
        let until = self.trial_until_us.load(Relaxed);
        let new = now_us.saturating_add(TRIAL_US);
        until <= now_us && self.trial_until_us.compare_exchange(until, new, Relaxed, Relaxed).is_ok()
    }

    pub(crate) fn clear_failures(&self) {
        // Loads first: this is on the path of every request, where stores would contend for the line.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
        if self.ejected_until_us() != 0 {
            self.ejections.store(0, Relaxed);
            self.ejected_until_us.store(0, Relaxed);
        }
    }

    /// Counts a failure; the length of the ejection in microseconds if it causes one.
    pub(crate) fn note_failure(&self, limit: u32, for_us: u64, miss: Miss, now_us: u64) -> Option<u64> {
        self.errors.fetch_add(1, Relaxed);
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        let until = self.ejected_until_us();
        // Requests that were under way when it was ejected fail too, and must not eject it again.
        if limit == 0 || failures < limit || until > now_us {
            return None;
        }
        let factor = 1u32.checked_shl(self.ejections.load(Relaxed)).unwrap_or(u32::MAX);
        let us = match miss {
            Miss::Refused => for_us.min(REFUSED_US),
            _ => for_us.saturating_mul(factor.min(MAX_EJECTION_FACTOR).into()),
        };
        let new = now_us.saturating_add(us).max(1);
        // The trial is over; the next one may follow at the end of the ejection, however short that is.
        self.trial_until_us.store(0, Relaxed);
        self.ejected_until_us.compare_exchange(until, new, Relaxed, Relaxed).ok()?;
        self.ejections.fetch_add(1, Relaxed);
        Some(us)
    }

    /// Where to connect to, in the order to try. Waits for a lookup only if none succeeded before; else names
    /// are looked up again in the background.
    pub(crate) async fn addresses(self: &Arc<Self>) -> io::Result<Addresses> {
        if let Some(address) = self.literal {
            return Ok(Addresses::One(address));
        }
        let known = self.resolved.load_full();
        if known.addresses.is_empty() {
            self.resolve().await?;
            return Ok(Addresses::Many(self.resolved.load_full()));
        }
        if known.at.is_none_or(|at| at.elapsed() > RESOLVE_EVERY) && !self.resolving.swap(true, Relaxed) {
            let this = self.clone();
            tokio::spawn(async move {
                if let Err(e) = this.resolve().await {
                    tracing::warn!(replica = this.authority, "name lookup failed, old addresses stay: {e}");
                }
                this.resolving.store(false, Relaxed);
            });
        }
        Ok(Addresses::Many(known))
    }

    async fn resolve(&self) -> io::Result<()> {
        let addresses: Vec<_> = tokio::net::lookup_host(self.authority.as_str()).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        self.resolved.store(Arc::new(Resolved { addresses, at: Some(Instant::now()) }));
        Ok(())
    }
}

pub(crate) enum Addresses {
    One(SocketAddr),
    Many(Arc<Resolved>),
}

impl Addresses {
    pub(crate) fn as_slice(&self) -> &[SocketAddr] {
        match self {
            Self::One(address) => std::slice::from_ref(address),
            Self::Many(resolved) => &resolved.addresses,
        }
    }
}

/// One request at a replica, from sending until the end of the response body.
pub struct InFlight(Arc<Replica>);

impl InFlight {
    /// Counts a request at `replica` until dropped.
    pub fn new(replica: Arc<Replica>) -> Self {
        replica.in_flight.fetch_add(1, Relaxed);
        replica.requests.fetch_add(1, Relaxed);
        Self(replica)
    }

    /// As [`InFlight::new`]; `None` if the replica is at its limit.
    pub fn take_slot(replica: &Arc<Replica>) -> Option<Self> {
        let most = match replica.limit.most() {
            0 => usize::MAX,
            most => most,
        };
        let one_more = |n| (n < most).then_some(n + 1);
        replica.in_flight.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        replica.requests.fetch_add(1, Relaxed);
        Some(Self(replica.clone()))
    }

    pub fn replica(&self) -> &Arc<Replica> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
        if self.0.limit.most() > 0 {
            self.0.limit.freed.notify_one();
        }
    }
}
