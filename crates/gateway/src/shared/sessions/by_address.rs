//! Sessions of clients that keep no cookies, by address (of IPv6 its /64) and `User-Agent`.
//!
//! A session that begins with a request without any cookie of the gate is noted here. A later request without
//! one belongs to it if it comes from the same address and program, and from a page of this site (`Referer`,
//! `Sec-Fetch-Site`, `Origin`): a part of a page, a script's call, a WebSocket, the next page. Whoever comes
//! from elsewhere is a newcomer, also behind an address that many share. The note is dropped when somebody
//! shows the session's pass, because that client keeps cookies.
//!
//! Rejected: a key that is computed from the address (clients that keep cookies would share one session with
//! their neighbours); requests from elsewhere too (behind a carrier's address translator all would enter by
//! the first one's note until that visitor's second request).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tidegate_core::session::{SessionKey, SessionStatus, Sessions};
use tidegate_core::units::Timestamp;

use super::key::V6_CLIENT;

const SHARDS: usize = 16;
/// Notes kept in a shard; those of sessions that ended are dropped when it is full.
const MOST: usize = 4_096;

pub(crate) struct ByAddress {
    /// Clients cannot choose the hash, since its keys are random.
    hash: RandomState,
    shards: [Mutex<HashMap<u64, SessionKey>>; SHARDS],
    notes: AtomicUsize,
}

/// A client without cookies, as a number.
pub(super) fn client(hash: &RandomState, address: IpAddr, program: &[u8]) -> u64 {
    let address = match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - V6_CLIENT)))),
        v4 => v4,
    };
    hash.hash_one((address, program))
}

impl ByAddress {
    pub(super) fn new() -> Self {
        Self { hash: RandomState::new(), shards: Default::default(), notes: AtomicUsize::new(0) }
    }

    fn client(&self, address: IpAddr, program: &[u8]) -> u64 {
        client(&self.hash, address, program)
    }

    /// The session of a client that shows no cookie of the gate.
    pub(crate) fn find(&self, address: IpAddr, program: &[u8]) -> Option<SessionKey> {
        if self.notes.load(Relaxed) == 0 {
            return None;
        }
        let client = self.client(address, program);
        self.shards[client as usize % SHARDS].lock().get(&client).copied()
    }

    /// Notes a session that began with a request without a cookie of the gate, unless another session that is
    /// open is noted already.
    pub(crate) fn note(
        &self,
        address: IpAddr,
        program: &[u8],
        key: SessionKey,
        table: &Sessions,
        now: Timestamp,
    ) {
        let is_open = |key: SessionKey| table.status(key, now) == SessionStatus::Admitted;
        let client = self.client(address, program);
        let mut shard = self.shards[client as usize % SHARDS].lock();
        if shard.len() >= MOST {
            let before = shard.len();
            shard.retain(|_, key| is_open(*key));
            self.notes.fetch_sub(before - shard.len(), Relaxed);
        }
        let is_full = shard.len() >= MOST;
        match shard.entry(client) {
            Entry::Occupied(mut noted) if !is_open(*noted.get()) => _ = noted.insert(key),
            Entry::Vacant(vacant) if !is_full => {
                vacant.insert(key);
                self.notes.fetch_add(1, Relaxed);
            }
            Entry::Occupied(_) | Entry::Vacant(_) => {}
        }
    }

    /// A client showed the pass of the session `key`: it keeps cookies.
    pub(crate) fn keeps_cookies(&self, address: IpAddr, program: &[u8], key: SessionKey) {
        if self.notes.load(Relaxed) == 0 {
            return;
        }
        let client = self.client(address, program);
        let mut shard = self.shards[client as usize % SHARDS].lock();
        if let Entry::Occupied(noted) = shard.entry(client)
            && *noted.get() == key
        {
            noted.remove();
            self.notes.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::policies::TierId;
    use tidegate_core::session::SessionConfig;
    use tidegate_core::units::Cost;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn open(table: &Sessions, n: u128) -> SessionKey {
        let request = table.admit(SessionKey(n), TierId(0), Cost::ONE, NOW).expect("a slot");
        table.finish(request, NOW);
        SessionKey(n)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_without_cookies_is_known_by_address_and_program_until_its_pass_is_shown() {
        let (notes, table) = (ByAddress::new(), Sessions::new(&SessionConfig::default(), NOW));
        let key = open(&table, 1);
        assert_eq!(notes.find(ip("192.0.2.1"), b"curl"), None);
        notes.note(ip("192.0.2.1"), b"curl", key, &table, NOW);
        for (address, program, is_known) in [
            ("192.0.2.1", "curl", true),
            ("::ffff:192.0.2.1", "curl", true),
            ("192.0.2.1", "wget", false),
            ("192.0.2.2", "curl", false),
        ] {
            assert_eq!(
                notes.find(ip(address), program.as_bytes()).is_some(),
                is_known,
                "{address} {program}"
            );
        }
        notes.keeps_cookies(ip("192.0.2.1"), b"curl", SessionKey(2));
        assert!(notes.find(ip("192.0.2.1"), b"curl").is_some(), "the pass of another session");
        notes.keeps_cookies(ip("192.0.2.1"), b"curl", key);
        assert_eq!(notes.find(ip("192.0.2.1"), b"curl"), None);
    }

    #[test]
    fn an_open_session_keeps_its_note_and_an_ended_one_makes_way() {
        let (notes, table) = (ByAddress::new(), Sessions::new(&SessionConfig::default(), NOW));
        let [first, second] = [1, 2].map(|n| open(&table, n));
        notes.note(ip("2001:db8::1"), b"", first, &table, NOW);
        notes.note(ip("2001:db8::2"), b"", second, &table, NOW);
        assert_eq!(notes.find(ip("2001:db8::3"), b""), Some(first));
        table.leave(first, NOW);
        notes.note(ip("2001:db8::2"), b"", second, &table, NOW);
        assert_eq!(notes.find(ip("2001:db8::3"), b""), Some(second));
    }

    #[test]
    fn the_number_of_notes_is_bounded() {
        let (notes, table) = (ByAddress::new(), Sessions::new(&SessionConfig::default(), NOW));
        let key = open(&table, 1);
        let clients = 2 * (SHARDS * MOST) as u32;
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        (0..clients).for_each(|n| notes.note(address(n), b"", key, &table, NOW));
        assert_eq!(notes.notes.load(Relaxed), SHARDS * MOST);
        table.leave(key, NOW);
        let key = open(&table, 2);
        notes.note(address(clients), b"", key, &table, NOW);
        assert_eq!(notes.find(address(clients), b""), Some(key), "ended sessions make way");
    }
}
