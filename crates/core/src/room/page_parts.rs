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

/// Requests let in with the pass of one page at once: several times the parts of an ordinary page, of which
/// there are some dozens.
pub(crate) const MAX_PARTS: u32 = 300;
/// Requests that it may make for as long as it is used: what a page with a running clock or a chat asks for.
const PARTS_PER_S: f64 = 1.0;
/// Counts are kept for at least this long after the last part, and for twice as long at most. By then the
/// page may ask for [`MAX_PARTS`] at once again, as a page that is not counted.
const PERIOD_S: u64 = (MAX_PARTS as f64 / PARTS_PER_S) as u64;
const SHARDS: usize = 64;
/// Pages counted at once in a shard, a million in all. The parts of more pages pass without being counted.
const MAX_PAGES: usize = 1 << 14;

/// A leaky bucket: parts that were let in and have not leaked away since.
#[derive(Clone, Copy, Default)]
struct Parts {
    level: f64,
    at: Timestamp,
}

#[derive(Default)]
struct Shard {
    /// Number of the present period.
    period: u64,
    /// By the nonce of their pass: counted last in this period, and in the one before.
    parts: [HashMap<u64, Parts>; 2],
}

/// How many parts were let in with each pass.
pub(super) struct PageParts(Box<[Mutex<Shard>]>);

impl Default for PageParts {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl PageParts {
    /// Counts one more part of the page whose pass has this nonce. `false`: it has had too many of late.
    pub(super) fn take(&self, nonce: u64, now: Timestamp) -> bool {
        // Nonces are random.
        let mut shard = lock(&self.0[nonce as usize % SHARDS]);
        let Shard { period, parts: [present, past] } = &mut *shard;
        let at = now.second() / PERIOD_S;
        if at > *period {
            *past = std::mem::take(present);
            if at > *period + 1 {
                past.clear();
            }
            *period = at;
        }
        let before = present.get(&nonce).or_else(|| past.get(&nonce)).copied().unwrap_or_default();
        let level = (before.level - now.since(before.at).as_secs_f64() * PARTS_PER_S).max(0.0);
        let takes = level + 1.0 <= f64::from(MAX_PARTS);
        if present.len() < MAX_PAGES || present.contains_key(&nonce) {
            present.insert(nonce, Parts { level: level + f64::from(u8::from(takes)), at: now });
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The last second of a period.
    const START: Timestamp = Timestamp::from_secs(1_800_000_000 / PERIOD_S * PERIOD_S + PERIOD_S - 1);

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_page_has_so_many_parts_at_once_and_one_a_second_after() {
        let parts = PageParts::default();
        let taken = |nonce, at| (0..1_000).filter(|_| parts.take(nonce, at)).count() as u32;
        assert!((0..100).all(|_| parts.take(7, START)));
        assert_eq!(taken(7, after(1)), MAX_PARTS - 99, "over the end of a period");
        assert_eq!(taken(7, after(1)), 0);
        assert_eq!(taken(7, after(61)), 60);
        assert_eq!(taken(7 + SHARDS as u64, START), MAX_PARTS, "another page");
        // Forgotten, also if nothing was asked in between.
        assert_eq!(taken(7, after(5 * PERIOD_S)), MAX_PARTS);
        let pages = |at: u64| parts.0.iter().map(|s| lock(s).parts[at as usize].len()).sum::<usize>();
        assert_eq!((pages(0), pages(1)), (1, 0));
    }

    #[test]
    fn a_page_that_asks_once_a_second_does_so_for_a_day() {
        let parts = PageParts::default();
        assert!((0..MAX_PARTS - 1).all(|_| parts.take(7, START)));
        assert!((0..24 * 3_600).all(|second| parts.take(7, after(second))));
        // One that asks ten times as often gets no more than that, however often it is forgotten.
        let asks = |second| (0..10).filter(|_| parts.take(8, after(second))).count();
        assert_eq!((0..3_600).map(asks).sum::<usize>(), MAX_PARTS as usize + 3_599);
    }

    #[test]
    fn more_pages_than_can_be_counted_have_their_parts() {
        let parts = PageParts::default();
        let nonces = (0..=MAX_PAGES as u64).map(|n| n * SHARDS as u64);
        assert!(nonces.clone().all(|nonce| parts.take(nonce, START)));
        assert_eq!(lock(&parts.0[0]).parts[0].len(), MAX_PAGES);
    }
}
