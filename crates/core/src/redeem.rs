//! Exactly once: the nonces of tickets that were redeemed and could still be presented again.
//!
//! WebQ (III-C) leaves a window of one second in which a ticket can be used twice, to keep no state. This set closes it,
//! and its size is bounded by what the origin serves, not by who waits: an entry is made when work is admitted and
//! forgotten once its slot has passed the grace period, after which the ticket is refused as expired anyway. So it
//! holds about capacity x (grace + tolerance + what the hand leads by).
//!
//! Shards of `Mutex<BTreeSet<(slot second, nonce)>>`: it is touched once per admitted request, inside a request that
//! costs the origin thousands of times more, and a racing redemption must wait for the outcome anyway. Ordered by second,
//! so that forgetting is one split and needs no scan. Rejected: a Bloom filter (a false positive turns an honest
//! visitor away), a lock-free set (no gain at this rate).
//!
//! Those who wait ask far more often than anybody is let in, and they ask about seconds after the latest one redeemed: one
//! word that remembers it answers them without a lock and without a search through what the last minute's visitors left.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{AtomicU64, Ordering};

/// Enough that a few dozen workers seldom meet in one.
const SHARDS: usize = 64;

/// Nonces kept at once: 2^22, at 24 bytes about 100 MB. An origin of 60,000 requests a second with a minute of grace stays below.
pub const MAX_REDEEMED: usize = 1 << 22;

/// What became of an attempt to redeem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The first: it counts.
    First,
    /// Redeemed before.
    Again,
    /// The set is full; nothing was noted, try later.
    NoRoom,
}

/// (slot second, nonce), the oldest first.
type Shard = BTreeSet<(u64, u64)>;

/// The set.
pub struct Redeemed {
    shards: Box<[Mutex<Shard>]>,
    max_per_shard: usize,
    /// No slot after this second was ever noted.
    latest: AtomicU64,
}

impl Default for Redeemed {
    fn default() -> Self {
        Self::with_max(MAX_REDEEMED)
    }
}

impl Redeemed {
    /// A set of at most about `max` nonces.
    pub fn with_max(max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            max_per_shard: max.div_ceil(SHARDS),
            latest: AtomicU64::new(0),
        }
    }

    fn shard(&self, nonce: u64) -> MutexGuard<'_, Shard> {
        // Nonces are random. A panic elsewhere cannot leave a set half changed.
        self.shards[nonce as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the ticket with this slot second and nonce is redeemed now.
    pub fn mark(&self, second: u64, nonce: u64) -> Mark {
        self.reaches(second);
        let mut shard = self.shard(nonce);
        if shard.contains(&(second, nonce)) {
            return Mark::Again;
        }
        if shard.len() >= self.max_per_shard {
            return Mark::NoRoom;
        }
        shard.insert((second, nonce));
        Mark::First
    }

    /// Takes a note back: who redeemed it got nothing for it.
    pub fn unmark(&self, second: u64, nonce: u64) {
        self.shard(nonce).remove(&(second, nonce));
    }

    /// Before the note itself: whoever may know of the note reads at least this. The word changes about once a second, so
    /// that all workers read it from their own caches.
    fn reaches(&self, second: u64) {
        if self.latest.load(Ordering::Relaxed) < second {
            self.latest.fetch_max(second, Ordering::Relaxed);
        }
    }

    /// Whether it was redeemed.
    pub fn contains(&self, second: u64, nonce: u64) -> bool {
        second <= self.latest.load(Ordering::Relaxed) && self.shard(nonce).contains(&(second, nonce))
    }

    /// Forgets slots before `second`.
    pub fn forget_before(&self, second: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if shard.first().is_some_and(|&(oldest, _)| oldest < second) {
                *shard = shard.split_off(&(second, 0));
            }
        }
    }

    /// How many nonces are kept.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_in_whatever_order_their_seconds_come() {
        let set = Redeemed::with_max(64 * 4);
        let noted = [(7, 1), (9, 2), (8, 3), (7, 65)];
        for (i, &(second, nonce)) in noted.iter().enumerate() {
            assert_eq!(set.mark(second, nonce), Mark::First);
            for (k, &(second, nonce)) in noted.iter().enumerate() {
                assert_eq!(set.contains(second, nonce), k <= i, "{second} {nonce}");
            }
        }
        assert!(!set.contains(10, 2) && !set.contains(9, 3));
        set.forget_before(9);
        assert_eq!(noted.map(|(second, nonce)| set.contains(second, nonce)), [false, true, false, false]);
    }
}
