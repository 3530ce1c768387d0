//! Which replica gets a request: the better of two chosen at random.
//!
//! *Power of two choices* (Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS
//! 12(10), 2001): take two usable replicas at random, send to the one with fewer requests in flight. The
//! longest queue is O(log log n) instead of O(log n / log log n) for one random choice, without a shared
//! order to contend for. Rejected: round robin (blind to a slow replica), least of all (every worker sends
//! its next request to the same replica), latency averages (they lag behind; requests in flight are the delay
//! that is happening now).
//!
//! *Passive ejection*: `failures` failures in a row (refused, reset or silent before the first byte) eject a
//! replica for `for_`, doubled with every ejection in a row up to ten times; one success resets both. After
//! the ejection, the first failure ejects it again. A replica that refuses connections is tried again after a
//! second at most: a trial costs one round trip and the request goes to another replica, whereas a replica
//! that is back but ejected costs its share of the capacity. One request at a time makes the trial: the
//! others go elsewhere until it is answered, or for a second, as if the replica were still ejected.
//!
//! *A limit per replica* (`origin.max_in_flight_per_replica`): a replica that works on that many requests is
//! not chosen. The gate admits at most that many times the usable replicas, so that one has a slot; where
//! streaming responses hold a replica longer than the gate's in-flight slot, a request waits until one ends.
//!
//! When nothing is usable: replicas that active checks found down are not tried, since a check will find them
//! up; if all are down, the result is "no replica", and the room keeps visitors waiting. Ejection is only a
//! guess from past traffic, and refusing everyone because of a guess would make an outage of a short
//! disturbance: if all replicas are ejected, the one whose ejection ends first is tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::Instant;

pub use self::replica::{InFlight, Replica};

use self::replica::ReplicaLimit;
use crate::http::proxy_header::{self, Version};
use crate::upstream::tls::ClientTls;

mod replica;

/// An ejection lasts at most this many times `origin.eject.for`.
pub const MAX_EJECTION_FACTOR: u32 = 10;
/// The longest ejection of a replica that refuses connections, in microseconds: the retry budget allows that
/// many trials without requests.
const REFUSED_US: u64 = 1_000_000;
/// How long an unanswered trial keeps others from trying. (Its visitor may have left.)
const TRIAL_US: u64 = 1_000_000;

/// How an attempt ended without a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The connection was refused: nothing listens there. Nothing was sent.
    Refused,
    /// There was no connection: nothing was sent.
    NoConnection,
    /// The connection was lost before the first byte.
    Lost,
    /// No first byte in time.
    Silent,
    /// A response that may not be passed on, or the origin cannot do what the request asks for.
    Bad,
    Body,
}

impl Miss {
    /// Whether it counts towards the replica's ejection.
    pub fn speaks_against_replica(self) -> bool {
        matches!(self, Self::Refused | Self::NoConnection | Self::Lost | Self::Silent)
    }

    /// Whether another attempt may be made, budget permitting. `is_repeatable`: a second copy does no harm.
    ///
    /// A silent origin may still be working on it: a second copy would add load to an overload.
    pub fn may_be_repeated(self, is_repeatable: bool, was_repeated: bool) -> bool {
        is_repeatable && !was_repeated && !matches!(self, Self::Silent | Self::Bad)
    }
}

pub struct Replicas {
    list: ArcSwap<Vec<Arc<Replica>>>,
    limit: Arc<ReplicaLimit>,
    tls: Arc<ArcSwapOption<ClientTls>>,
    /// The PROXY header that connections begin with.
    header: Arc<ArcSwapOption<Version>>,
    eject: Eject,
    next_id: AtomicU64,
    start: Instant,
}

/// [`tidegate_settings::Eject`], changeable while running.
struct Eject {
    failures: AtomicU32,
    for_us: AtomicU64,
}

impl Replicas {
    /// The replicas named in `origin`, all presumed usable.
    pub fn new(origin: &tidegate_settings::Origin) -> Arc<Self> {
        let this = Self {
            list: ArcSwap::default(),
            limit: Arc::default(),
            tls: Arc::default(),
            header: Arc::default(),
            eject: Eject { failures: AtomicU32::new(0), for_us: AtomicU64::new(0) },
            next_id: AtomicU64::new(1),
            start: Instant::now(),
        };
        this.reconfigure(origin);
        Arc::new(this)
    }

    /// Applies another configuration. Replicas that stay keep their state and counters; those that go get no
    /// new request, and their connections close when the requests on them have ended.
    ///
    /// Called by the control side only, never by two threads at once.
    pub fn reconfigure(&self, origin: &tidegate_settings::Origin) {
        self.limit.set(origin.max_in_flight_per_replica);
        self.header.store(proxy_header::version(origin.proxy_protocol).map(Arc::new));
        self.eject.failures.store(origin.eject.failures, Relaxed);
        self.eject.for_us.store(as_us(origin.eject.for_), Relaxed);
        let old = self.list.load_full();
        let mut new: Vec<Arc<Replica>> = Vec::with_capacity(origin.replicas.len());
        for authority in &origin.replicas {
            if new.iter().any(|r| r.authority() == authority) {
                continue;
            }
            let kept = old.iter().find(|r| r.authority() == authority).cloned();
            new.push(kept.unwrap_or_else(|| {
                let id = self.next_id.fetch_add(1, Relaxed);
                let replica = Replica::new(id, authority.clone(), self.limit.clone());
                Arc::new(replica.with_tls(self.tls.clone()).with_header(self.header.clone()))
            }));
        }
        for gone in old.iter().filter(|o| !new.iter().any(|n| Arc::ptr_eq(n, o))) {
            gone.retire();
        }
        if origin.health.path.is_empty() {
            // Without checks nothing would ever find them up again.
            new.iter().for_each(|r| r.set_healthy(true));
        }
        self.list.store(Arc::new(new));
        self.limit.wake_all();
    }

    /// How connections to replicas that speak TLS begin from now on.
    pub fn set_tls(&self, tls: Option<Arc<ClientTls>>) {
        self.tls.store(tls);
    }

    /// The present replicas, in the order of the configuration.
    pub fn list(&self) -> Arc<Vec<Arc<Replica>>> {
        self.list.load_full()
    }

    pub fn any_usable(&self) -> bool {
        self.any_usable_at(|| self.now_us())
    }

    /// As [`Self::any_usable`], at a time in microseconds since any origin; `now_us` is called only while
    /// some replica is ejected or down.
    pub fn any_usable_at(&self, now_us: impl FnOnce() -> u64) -> bool {
        let list = self.list.load();
        if list.iter().any(|r| r.is_untroubled()) {
            return true;
        }
        let now_us = now_us();
        list.iter().any(|r| r.is_usable(now_us))
    }

    /// How many can be sent to, and how many there are.
    pub fn usable(&self) -> (usize, usize) {
        let (list, now) = (self.list.load(), self.now_us());
        (list.iter().filter(|r| r.is_usable(now)).count(), list.len())
    }

    /// Requests that those can work on at once that can be sent to now; `None`: no limit is set, or there are
    /// none of them.
    pub fn in_flight_limit(&self) -> Option<u32> {
        self.in_flight_limit_at(|| self.now_us())
    }

    /// As [`Self::in_flight_limit`], at a time in microseconds since any origin.
    pub fn in_flight_limit_at(&self, now_us: impl FnOnce() -> u64) -> Option<u32> {
        let most = self.limit.most();
        if most == 0 {
            return None;
        }
        let (now_us, list) = (now_us(), self.list.load());
        let count = |fits: &dyn Fn(&Arc<Replica>) -> bool| list.iter().filter(|r| fits(r)).count();
        let open = count(&|r| r.is_usable(now_us) && !r.is_on_trial(now_us));
        // Where every one is on trial, all are tried.
        let sent_to = if open > 0 { open } else { count(&|r| r.is_usable(now_us)) };
        let slots = most.saturating_mul(sent_to);
        (slots > 0).then(|| u32::try_from(slots).unwrap_or(u32::MAX))
    }

    /// The replica for the next request, with the request counted there. While every one that is well works
    /// at its limit (streaming responses hold a replica longer than the gate's slot), it waits for one, at
    /// most for `patience`.
    pub async fn enter(
        &self,
        random: impl Fn() -> u64,
        avoid: Option<u64>,
        patience: Duration,
    ) -> Option<InFlight> {
        if let Some(entered) = self.try_enter(&random, avoid) {
            return entered;
        }
        let look = || self.try_enter(&random, avoid);
        let waits = Box::pin(tokio::time::timeout(patience, self.limit.wait_for(look)));
        waits.await.ok().flatten()
    }

    /// As [`Self::enter`]; `None`: a slot must be waited for.
    fn try_enter(&self, random: impl Fn() -> u64, avoid: Option<u64>) -> Option<Option<InFlight>> {
        while let Some(replica) = self.pick(random(), avoid) {
            let entered = InFlight::take_slot(&replica);
            // Else another worker was faster.
            if entered.is_some() {
                return Some(entered);
            }
        }
        (!self.list.load().iter().any(|r| r.is_healthy())).then_some(None)
    }

    /// The replica for the next request; not `avoid` (an id) if there is another. `None`: every replica is
    /// down.
    ///
    /// `random` is 64 fresh random bits. The clock is only read while some replica is ejected.
    pub fn pick(&self, random: u64, avoid: Option<u64>) -> Option<Arc<Replica>> {
        self.pick_at(random, avoid, || self.now_us())
    }

    /// As [`Self::pick`], at a time in microseconds since any origin.
    pub fn pick_at(
        &self,
        random: u64,
        avoid: Option<u64>,
        now_us: impl FnOnce() -> u64,
    ) -> Option<Arc<Replica>> {
        let list = self.list.load();
        if avoid.is_none() {
            // The usual case: no replica is ejected or down.
            match list.as_slice() {
                [] => return None,
                [only] if only.is_untroubled() && only.has_slot() => return Some(only.clone()),
                [_] => {}
                all => {
                    let (i, j) = two_of(all.len(), random);
                    let is_fine = |r: &Replica| r.is_untroubled() && r.has_slot();
                    if is_fine(&all[i]) && is_fine(&all[j]) {
                        return Some(better(&all[i], &all[j]).clone());
                    }
                }
            }
        }
        choose(&list, random, avoid, now_us())
    }

    pub fn succeeded(&self, replica: &Replica) {
        replica.clear_failures();
    }

    /// A request failed at `replica` before the first byte of its response. True if that ejects it.
    pub fn failed(&self, replica: &Replica, miss: Miss) -> bool {
        self.failed_at(replica, miss, self.now_us())
    }

    /// As [`Self::failed`], at a time in microseconds since any origin.
    pub fn failed_at(&self, replica: &Replica, miss: Miss, now_us: u64) -> bool {
        let limit = self.eject.failures.load(Relaxed);
        let ejected = replica.note_failure(limit, self.eject.for_us.load(Relaxed), miss, now_us);
        if let Some(us) = ejected {
            tracing::warn!(
                replica = replica.authority(),
                for_ms = us / 1000,
                "replica ejected after {limit} failures in a row"
            );
        }
        ejected.is_some()
    }

    fn now_us(&self) -> u64 {
        as_us(self.start.elapsed())
    }
}

fn as_us(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

/// Two different indices below `n` (at least 2) from 64 random bits; the bias is below n / 2^32.
fn two_of(n: usize, random: u64) -> (usize, usize) {
    let i = (((random >> 32) * n as u64) >> 32) as usize;
    let j = (((random & 0xffff_ffff) * (n as u64 - 1)) >> 32) as usize;
    (i, if j >= i { j + 1 } else { j })
}

fn better<'a>(a: &'a Arc<Replica>, b: &'a Arc<Replica>) -> &'a Arc<Replica> {
    if b.in_flight() < a.in_flight() { b } else { a }
}

fn choose(list: &[Arc<Replica>], random: u64, avoid: Option<u64>, now_us: u64) -> Option<Arc<Replica>> {
    let wanted = |r: &Arc<Replica>| Some(r.id()) != avoid && r.is_usable(now_us) && r.has_slot();
    let open = |r: &Arc<Replica>| wanted(r) && !r.is_on_trial(now_us);
    // Another worker may begin a trial first: then it is on trial, so this repeats once per replica at most.
    for _ in 0..=list.len() {
        match one_of(list, random, open) {
            Some(replica) if replica.begin_trial(now_us) => return Some(replica),
            Some(_) => {}
            None => break,
        }
    }
    if let Some(replica) = one_of(list, random, wanted) {
        return Some(replica);
    }
    // A healthy replica that is to be avoided is better than an ejected one.
    let healthy = list.iter().filter(|r| r.is_healthy() && r.has_slot());
    healthy.min_by_key(|r| r.ejected_until_us().saturating_sub(now_us)).cloned()
}

/// The better of two of those that fit.
fn one_of(list: &[Arc<Replica>], random: u64, fits: impl Fn(&Arc<Replica>) -> bool) -> Option<Arc<Replica>> {
    let fitting = || list.iter().filter(|r| fits(r));
    match fitting().count() {
        0 => None,
        1 => fitting().next().cloned(),
        n => {
            let (i, j) = two_of(n, random);
            let (a, b) = (fitting().nth(i)?, fitting().nth(j)?);
            Some(better(a, b).clone())
        }
    }
}

#[cfg(test)]
mod tests;
