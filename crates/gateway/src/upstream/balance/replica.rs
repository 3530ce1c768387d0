//! One replica: its addresses, its state, its counters. Shared by all workers; everything is atomic.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::{MAX_EJECTION_FACTOR, Miss, REFUSED_US, TRIAL_US};
use crate::upstream::target::Target;
use crate::upstream::tls::ClientTls;

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
    target: Arc<Target>,
    tls: Arc<ArcSwapOption<ClientTls>>,
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

impl Replica {
    pub(crate) fn new(id: u64, authority: String, limit: Arc<ReplicaLimit>) -> Self {
        Self {
            id,
            limit,
            target: Arc::new(Target::new(authority)),
            healthy: AtomicBool::new(true),
            ..Self::default()
        }
    }

    /// Connections to it begin as `tls` says, if it speaks TLS.
    pub(crate) fn with_tls(self, tls: Arc<ArcSwapOption<ClientTls>>) -> Self {
        Self { tls, ..self }
    }

    /// How connections to it begin; `None`: without TLS.
    ///
    /// # Errors
    /// Only between two steps of a reload: it speaks TLS, and how is not known yet.
    pub(crate) fn tls(&self) -> io::Result<Option<Arc<ClientTls>>> {
        if !self.target.is_tls() {
            return Ok(None);
        }
        let unknown = || io::Error::other("TLS to the origin is not set up");
        self.tls.load_full().map(Some).ok_or_else(unknown)
    }

    /// Unique within its `Replicas`, also over reconfigurations.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// As configured.
    pub fn authority(&self) -> &str {
        self.target.authority()
    }

    /// Where to connect to.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
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
