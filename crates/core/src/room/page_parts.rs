//! Requests for the parts of admitted pages: a client that says of whole pages that they are parts
//! (`Sec-Fetch-Dest`) gets no more by it than a page with many parts does.
//!
//! What a request is a part of is known from its pass, which is one page's. Bounded like the redeemed nonces:
//! one entry for each page that was admitted a short while ago, since only the gate makes passes. Rejected: a
//! count in the pass (an old cookie can be shown again), a sketch (thousands of pages a second with dozens of
//! parts each would need one larger than the table), a share of all parts (one client would use it up).

use std::collections::HashMap;
use std::sync::Mutex;

use crate::sync::lock;
use crate::units::Timestamp;

/// Requests let in with the pass of one page: several times the parts of an ordinary page, of which there
/// are some dozens. One client gains at most so many requests by each admission.
pub(crate) const MAX_PARTS: u32 = 300;
/// Counts are kept for at least this long, which is how long a page's pass is valid, and for twice as long at
/// most.
const PERIOD_S: u64 = 120;
const SHARDS: usize = 64;
/// Pages counted at once in a shard, a million in all. The parts of more pages pass without being counted.
const MAX_PAGES: usize = 1 << 14;

#[derive(Default)]
struct Shard {
    /// Number of the present period.
    period: u64,
    /// Parts by the nonce of their pass, in this period and in the one before.
    parts: [HashMap<u64, u32>; 2],
}

/// How many parts were let in with each pass.
pub(super) struct PageParts(Box<[Mutex<Shard>]>);

impl Default for PageParts {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl PageParts {
    /// Counts one more part of the page whose pass has this nonce. `false`: it has had them all.
    pub(super) fn take(&self, nonce: u64, now: Timestamp) -> bool {
        // Nonces are random.
        let mut shard = lock(&self.0[nonce as usize % SHARDS]);
        let Shard { period, parts: [present, past] } = &mut *shard;
        let now = now.second() / PERIOD_S;
        if now > *period {
            *past = std::mem::take(present);
            if now > *period + 1 {
                past.clear();
            }
            *period = now;
        }
        let before = past.get(&nonce).copied().unwrap_or_default();
        if present.len() >= MAX_PAGES && !present.contains_key(&nonce) {
            return before < MAX_PARTS;
        }
        let taken = present.entry(nonce).or_default();
        let takes = before + *taken < MAX_PARTS;
        *taken += u32::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_page_has_so_many_parts_whenever_they_come() {
        let parts = PageParts::default();
        let start = Timestamp::from_secs(1_800_000_000 / PERIOD_S * PERIOD_S + PERIOD_S - 1);
        let taken = |nonce, at| (0..1_000).filter(|_| parts.take(nonce, at)).count() as u32;
        assert!((0..100).all(|_| parts.take(7, start)));
        assert_eq!(taken(7, start + Duration::from_secs(1)), MAX_PARTS - 100, "over the end of a period");
        assert_eq!(taken(7, start + Duration::from_secs(PERIOD_S)), 0, "as long as its pass is valid");
        assert_eq!(taken(7 + SHARDS as u64, start), MAX_PARTS, "another page");
        // Forgotten, also if nothing was asked in between.
        assert_eq!(taken(7, start + Duration::from_secs(5 * PERIOD_S)), MAX_PARTS);
        let pages = |at: u64| parts.0.iter().map(|s| lock(s).parts[at as usize].len()).sum::<usize>();
        assert_eq!((pages(0), pages(1)), (1, 0));
    }

    #[test]
    fn more_pages_than_can_be_counted_have_their_parts() {
        let parts = PageParts::default();
        let now = Timestamp::from_secs(1_800_000_000);
        let nonces = (0..=MAX_PAGES as u64).map(|n| n * SHARDS as u64);
        assert!(nonces.clone().all(|nonce| parts.take(nonce, now)));
        assert_eq!(lock(&parts.0[0]).parts[0].len(), MAX_PAGES);
    }
}
