//! Which replica gets a request: the better of two chosen at random.
//!
//! *Power of two choices* (Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10),
//! 2001): take two usable replicas at random, send to the one with fewer requests in flight. The longest queue is
//! O(log log n) instead of O(log n / log log n) for one random choice, without a shared order to contend for.
//! Rejected: round robin (blind to a slow replica), least of all (every worker sends its next request to the same
//! replica), latency averages (they lag behind; requests in flight are the delay that is happening now).
//!
//! *Passive ejection*: `failures` failures in a row (refused, reset or silent before the first byte) take a replica
//! out for `for_`, doubled with every ejection in a row up to ten times; one success resets both. When its time
//! is over, the first failure ejects it again.
//!
//! When nothing is usable: replicas found down by active checks are not tried, since a probe looks after them; if
//! all are, the answer is "no replica", and the room keeps people waiting. Replicas that are merely ejected are a
//! guess from past traffic, and refusing everyone on a guess would make an outage of a hiccup: the one whose
//! ejection ends first is tried.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::settings;

pub use self::replica::{InFlight, Replica};

mod replica;

/// An ejection lasts at most this many times `origin.eject.for`.
pub const MAX_EJECTION_FACTOR: u32 = 10;

/// All replicas of the origin, shared by all workers.
pub struct Replicas {
    list: ArcSwap<Vec<Arc<Replica>>>,
    eject: Eject,
    next_id: AtomicU64,
    start: Instant,
}

/// [`settings::Eject`], changeable while running.
struct Eject {
    failures: AtomicU32,
    for_us: AtomicU64,
}

impl Replicas {
    /// The replicas named in `origin`, all presumed usable.
    pub fn new(origin: &settings::Origin) -> Arc<Self> {
        let this = Self {
            list: ArcSwap::default(),
            eject: Eject { failures: AtomicU32::new(0), for_us: AtomicU64::new(0) },
            next_id: AtomicU64::new(1),
            start: Instant::now(),
        };
        this.reconfigure(origin);
        Arc::new(this)
    }

    /// Takes over another configuration. Replicas that stay keep their state and counters; those that go get no
    /// new request, and their connections close when the requests on them have ended.
    ///
    /// Called by the control side only, never by two threads at once.
    pub fn reconfigure(&self, origin: &settings::Origin) {
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
                Arc::new(Replica::new(self.next_id.fetch_add(1, Relaxed), authority.clone()))
            }));
        }
        for gone in old.iter().filter(|o| !new.iter().any(|n| Arc::ptr_eq(n, o))) {
            gone.retire();
        }
        if origin.health.path.is_empty() {
            // Nobody would ever declare them up again.
            new.iter().for_each(|r| r.set_healthy(true));
        }
        self.list.store(Arc::new(new));
    }

    /// The present replicas, in the order of the configuration.
    pub fn list(&self) -> Arc<Vec<Arc<Replica>>> {
        self.list.load_full()
    }

    /// Whether any replica can be sent to now.
    pub fn any_usable(&self) -> bool {
        self.any_usable_at(|| self.now_us())
    }

    /// As [`Self::any_usable`], at a time in microseconds since any origin; it is asked for only while some replica is in
    /// trouble.
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

    /// The replica for the next request; not `avoid` (an id) if there is another. `None`: every replica is down.
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
            // The usual case: nothing is wrong with anyone.
            match list.as_slice() {
                [] => return None,
                [only] if only.is_untroubled() => return Some(only.clone()),
                [_] => {}
                all => {
                    let (i, j) = two_of(all.len(), random);
                    if all[i].is_untroubled() && all[j].is_untroubled() {
                        return Some(better(&all[i], &all[j]).clone());
                    }
                }
            }
        }
        choose(&list, random, avoid, now_us())
    }

    /// A request was answered by `replica`.
    pub fn succeeded(&self, replica: &Replica) {
        replica.clear_failures();
    }

    /// A request failed at `replica` before the first byte of its response. True if that ejects it.
    pub fn failed(&self, replica: &Replica) -> bool {
        self.failed_at(replica, self.now_us())
    }

    /// As [`Self::failed`], at a time in microseconds since any origin.
    pub fn failed_at(&self, replica: &Replica, now_us: u64) -> bool {
        let limit = self.eject.failures.load(Relaxed);
        let ejected = replica.note_failure(limit, self.eject.for_us.load(Relaxed), now_us);
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

/// The slow way: some replica is in trouble or to be avoided.
fn choose(list: &[Arc<Replica>], random: u64, avoid: Option<u64>, now_us: u64) -> Option<Arc<Replica>> {
    let wanted = |r: &&Arc<Replica>| Some(r.id()) != avoid && r.is_usable(now_us);
    let usable = || list.iter().filter(wanted);
    match usable().count() {
        0 => {}
        1 => return usable().next().cloned(),
        n => {
            let (i, j) = two_of(n, random);
            let (a, b) = (usable().nth(i)?, usable().nth(j)?);
            return Some(better(a, b).clone());
        }
    }
    // The one to be avoided, if it is well, is better than one that is ejected.
    let healthy = list.iter().filter(|r| r.is_healthy());
    healthy.min_by_key(|r| r.ejected_until_us().saturating_sub(now_us)).cloned()
}

#[cfg(test)]
mod tests;
