//! The nonces of tickets that were redeemed and could still be presented again: each ticket is used once.
//!
//! WebQ (III-C) leaves a window of one second in which a ticket can be used twice, to keep no state. This set
//! closes it. Its size is bounded by the work that the origin serves, not by the number of waiting visitors:
//! an entry is made when work is admitted and forgotten once its slot has passed the grace period, after
//! which the ticket is refused as expired anyway. It holds some capacity x (grace + tolerance + lead).
//!
//! Shards of `Mutex<BTreeSet<(slot second, nonce)>>`: touched once per admitted request, inside a request
//! that costs the origin thousands of times more, and a racing redemption must wait for the outcome anyway.
//! Ordered by second, so that forgetting is one split and needs no scan. Rejected: a Bloom filter (a false
//! positive turns an honest visitor away), a lock-free set (no gain at this rate).
//!
//! Waiting visitors ask far more often than visitors are admitted, and about seconds after the latest one
//! redeemed. One word with that second answers them without a lock and without a search.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use crate::mutants::{self, Mutant};
use crate::sync::{AtomicU64, Ordering, lock};

/// Enough that a few dozen workers seldom meet in one shard.
const SHARDS: usize = 64;

/// Nonces kept at once: 2^22, about 100 MB. 60,000 requests a second with a minute of grace need fewer.
pub const MAX_REDEEMED: usize = 1 << 22;

/// The outcome of recording a nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    First,
    Duplicate,
    /// The set is full; nothing was recorded, try later.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    second: u64,
    nonce: u64,
}

type Shard = BTreeSet<Entry>;

/// The nonces of redeemed tickets, by the slot second of the ticket.
pub struct RedeemedNonces {
    shards: Box<[Mutex<Shard>]>,
    max_per_shard: usize,
    /// No second after this one was ever recorded.
    latest: AtomicU64,
}

impl Default for RedeemedNonces {
    fn default() -> Self {
        Self::with_max(MAX_REDEEMED)
    }
}

impl RedeemedNonces {
    /// A set of at most about `max` nonces.
    pub fn with_max(max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            max_per_shard: max.div_ceil(SHARDS),
            latest: AtomicU64::new(0),
        }
    }

    fn shard(&self, nonce: u64) -> MutexGuard<'_, Shard> {
        // Nonces are random.
        lock(&self.shards[nonce as usize % SHARDS])
    }

    /// Records that the ticket with this slot second and nonce is redeemed.
    pub fn record(&self, second: u64, nonce: u64) -> Recorded {
        self.raise_latest(second);
        let (mut shard, entry) = (self.shard(nonce), Entry { second, nonce });
        if shard.contains(&entry) {
            return Recorded::Duplicate;
        }
        if shard.len() >= self.max_per_shard {
            return Recorded::Full;
        }
        if !mutants::is(Mutant::RedeemedTwice) {
            shard.insert(entry);
        }
        Recorded::First
    }

    /// Removes a nonce whose request never reached the origin.
    pub fn remove(&self, second: u64, nonce: u64) {
        self.shard(nonce).remove(&Entry { second, nonce });
    }

    /// Called before the nonce is recorded, so that a thread that may know of the nonce reads at least this
    /// second. The word changes about once a second, so all workers read it from their own caches.
    fn raise_latest(&self, second: u64) {
        if self.latest.load(Ordering::Relaxed) < second {
            self.latest.fetch_max(second, Ordering::Relaxed);
        }
    }

    /// Whether the ticket was redeemed.
    pub fn contains(&self, second: u64, nonce: u64) -> bool {
        second <= self.latest.load(Ordering::Relaxed) && self.shard(nonce).contains(&Entry { second, nonce })
    }

    /// Forgets tickets of seconds before `second`.
    pub fn forget_before(&self, second: u64) {
        for mut shard in self.shards.iter().map(lock) {
            if shard.first().is_some_and(|oldest| oldest.second < second) {
                *shard = shard.split_off(&Entry { second, nonce: 0 });
            }
        }
    }

    /// All of them: pairs of the slot second and the nonce.
    pub fn all(&self) -> Vec<(u64, u64)> {
        let shards = self.shards.iter().map(lock);
        shards.flat_map(|shard| shard.iter().map(|e| (e.second, e.nonce)).collect::<Vec<_>>()).collect()
    }

    /// Nonces in the set.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_found_whatever_the_order_of_their_seconds() {
        let set = RedeemedNonces::with_max(64 * 4);
        let recorded = [(7, 1), (9, 2), (8, 3), (7, 65)];
        for (i, &(second, nonce)) in recorded.iter().enumerate() {
            assert_eq!(set.record(second, nonce), Recorded::First);
            for (k, &(second, nonce)) in recorded.iter().enumerate() {
                assert_eq!(set.contains(second, nonce), k <= i, "{second} {nonce}");
            }
        }
        assert!(!set.contains(10, 2) && !set.contains(9, 3));
        set.forget_before(9);
        assert_eq!(recorded.map(|(second, nonce)| set.contains(second, nonce)), [false, true, false, false]);
    }
}
