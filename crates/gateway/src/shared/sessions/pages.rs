//! Pages of clients that keep no cookies, where requests are admitted and not sessions.
//!
//! Such a client has no pass for the parts of its page. The page is noted here by the client's address (of
//! IPv6 its /64) and `User-Agent`. Requests from a page of this site then have the pass that the page would
//! have. What they may do with it the core bounds, as for any other pass.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;

use parking_lot::Mutex;
use tidegate_core::admission::PAGE_IDLE;
use tidegate_core::ticket::{Pass, PassKind};
use tidegate_core::units::{ClassId, Timestamp};

use super::by_address::client;

const SHARDS: usize = 16;
/// Notes kept in a shard; those of pages that are not used any more are dropped when it is full.
const MOST: usize = 4_096;

/// When a client's first page and its last page or part were let in.
#[derive(Clone, Copy)]
struct Used {
    first: Timestamp,
    last: Timestamp,
}

#[derive(Default)]
pub(crate) struct Pages {
    /// Clients cannot choose the hash, since its keys are random.
    hash: RandomState,
    shards: [Mutex<HashMap<u64, Used>>; SHARDS],
}

impl Pages {
    /// A page, or a part of one, was let in for a client that shows no cookie of the gate.
    pub(crate) fn note(&self, address: IpAddr, program: &[u8], now: Timestamp) {
        let client = client(&self.hash, address, program);
        let mut shard = self.shards[client as usize % SHARDS].lock();
        let is_used = |used: &Used| now.since(used.last) <= PAGE_IDLE;
        if shard.len() >= MOST && !shard.contains_key(&client) {
            shard.retain(|_, used| is_used(used));
            if shard.len() >= MOST {
                return;
            }
        }
        let first = shard.get(&client).filter(|used| is_used(used)).map_or(now, |used| used.first);
        shard.insert(client, Used { first, last: now });
    }

    /// The pass of a client without cookies, if a page of it is noted.
    pub(crate) fn pass(&self, address: IpAddr, program: &[u8]) -> Option<Pass> {
        let nonce = client(&self.hash, address, program);
        let Used { first, last } = *self.shards[nonce as usize % SHARDS].lock().get(&nonce)?;
        Some(Pass { kind: PassKind::Page, class: ClassId(0), issued: last, first, nonce })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn a_client_without_cookies_has_a_pass_while_its_page_is_used() {
        let pages = Pages::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(pages.pass(address, b"old"), None);
        pages.note(address, b"old", NOW);
        assert_eq!(pages.pass(address, b"new"), None);
        pages.note(address, b"old", NOW + PAGE_IDLE);
        let pass = pages.pass(address, b"old").expect("a pass");
        assert_eq!((pass.first, pass.issued), (NOW, NOW + PAGE_IDLE));
        let later = NOW + 3 * PAGE_IDLE;
        pages.note(address, b"old", later);
        assert_eq!(pages.pass(address, b"old").map(|pass| pass.first), Some(later), "another visit");
    }

    #[test]
    fn no_more_clients_are_noted_than_there_is_room_for() {
        let pages = Pages::default();
        let note = |n: u32, now| pages.note(IpAddr::V4(Ipv4Addr::from_bits(n)), b"", now);
        let noted = || pages.shards.iter().map(|shard| shard.lock().len()).sum::<usize>();
        (0..4 * (SHARDS * MOST) as u32).for_each(|n| note(n, NOW));
        assert_eq!(noted(), SHARDS * MOST);
        let later = NOW + PAGE_IDLE + Duration::from_secs(1);
        (0..SHARDS as u32 * 8).for_each(|n| note(u32::MAX - n, later));
        assert!(noted() < SHARDS * MOST, "those of before are dropped");
    }
}
