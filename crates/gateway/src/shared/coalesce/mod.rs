//! *URL multicast* (WAC 3.2 e): at most one upstream request per URL and period; its answer goes to all.
//!
//! ```text
//! request ─► may it be shared? ─► join ─┬─ nobody has asked: lead ─► a task of its own ─► gate ─► origin
//!                │ no                   │                                    │ head, chunks
//!                ▼                      └─ somebody has: follow ◄────────────┘
//!          on its own, through room and gate ◄── the answer is not for others
//! ```
//!
//! The upstream request of a flight is carried by a task of its own, not by the leader, so that no visitor's
//! leaving harms the others. It goes through the gate like any request, but not through the room, since it
//! stands for many. [`rules`] decides which requests may have an answer; the others go through room and gate
//! as if there were no multicast.
//!
//! Memory is bounded: [`MAX_URLS`] URLs, [`MAX_SELECTIONS`] answers each, [`MAX_ANSWER`] bytes an answer,
//! [`MAX_KEPT`] bytes in all, heads and URLs included. An answer that is longer than announced, or than there
//! is memory for, goes on in a window behind its fastest reader (see [`flight`]). When windows, heads and
//! URLs together take [`MAX_HELD`] bytes, nothing new is shared.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::policies::{ActivePolicy, Policy};
use tidegate_core::queue::Lane;
use tidegate_core::throttle::ThrottleId;
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_http::{Fields, RequestHead, name};

use crate::http::target;

pub mod flight;
pub mod rules;
#[cfg(test)]
pub mod tests;

pub use flight::SharedBody;

use flight::{Flight, Match, Reader};
use rules::Sharing;

/// URLs with an answer under way or kept: more than a service has under one rule, and ten megabytes at one
/// kilobyte an answer. Requests for further URLs are not shared.
pub const MAX_URLS: usize = 10_000;
/// Longest answer, in bytes, that is kept whole.
pub const MAX_ANSWER: usize = 4 << 20;
/// Answers of one URL, each for another selection by `Vary`: more than the languages, codings and formats in
/// use make. Requests for further selections are not shared.
const MAX_SELECTIONS: usize = 32;
/// Bytes of all answers kept.
pub const MAX_KEPT: usize = 64 << 20;
/// Bytes at which no new flight begins: twice [`MAX_KEPT`], so that answers under way can go on in windows.
const MAX_HELD: usize = 2 * MAX_KEPT;
/// Shards of the table, so that workers rarely contend for a lock.
const SHARDS: usize = 16;

/// What URL multicast makes of cookies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum SharedCookies {
    /// Answers are shared as the origin allows it.
    AsAllowed,
    /// By the operator's word they take no part, and these fields are removed from the answer.
    Ignored { strip: Arc<[Box<str>]> },
}

impl SharedCookies {
    pub(crate) fn of(policy: &ActivePolicy) -> Self {
        match &policy.policy {
            Policy::Multicast { ignores_cookies: Some(fields), .. } => {
                Self::Ignored { strip: fields.clone() }
            }
            _ => Self::AsAllowed,
        }
    }
}

/// Requests with equal keys may differ only in the fields that `Vary` names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    is_head: bool,
    host: Box<str>,
    target: Box<str>,
    /// By [`rules::forwarded`].
    forwarded: Box<[u8]>,
    /// An answer that was shared by one rule's word is not for those whom another rule is about.
    pub(crate) cookies: SharedCookies,
    /// Whose bandwidth the answers are part of: one that is sent slowly would fall behind one that is not.
    pub(crate) throttle: Option<ThrottleId>,
}

impl Key {
    /// Bytes of text, which visitors choose.
    fn text(&self) -> usize {
        self.host.len() + self.target.len() + self.forwarded.len()
    }
}

#[derive(Default)]
struct Entry {
    /// One for each selection by `Vary`.
    flights: Vec<Arc<Flight>>,
    /// Until when requests without cookies are not shared, and those with.
    alone_until: [Timestamp; 2],
}

impl Entry {
    /// Drops answers that newcomers may not have any more.
    fn retire(&mut self, now: Timestamp) {
        self.flights.retain(|flight| {
            let is_current = flight.is_current(now);
            if !is_current {
                flight.close();
            }
            is_current
        });
    }
}

#[derive(Default)]
pub struct Coalescer {
    shards: [Mutex<HashMap<Key, Entry>>; SHARDS],
    hash: RandomState,
    urls: AtomicUsize,
    kept: Arc<AtomicUsize>,
    /// Upstream requests made for others too.
    pub upstream: AtomicU64,
    /// Requests answered with a shared answer.
    pub shared: AtomicU64,
    /// Requests whose answer could not be shared.
    pub alone: AtomicU64,
}

/// How a request takes part.
pub(crate) enum Joined {
    /// It makes the upstream request for all.
    Lead(Reader),
    /// It waits for the answer to another's request, or has it.
    Follow(Reader),
    Alone,
}

/// The input of the gate's queue: its refusals hold only for requests with the same values.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequesterStanding {
    pub(crate) class: ClassId,
    pub(crate) lane: Lane,
}

/// A request, as the table sees it.
pub(crate) struct Seeking<'r> {
    /// As the origin would get them.
    pub(crate) headers: &'r Fields,
    pub(crate) has_cookies: bool,
    pub(crate) standing: RequesterStanding,
}

impl Coalescer {
    /// Joins the flight for this URL, or begins one.
    pub(crate) fn join(&self, key: &Key, seeking: &Seeking<'_>, period: Duration, now: Timestamp) -> Joined {
        let mut shard = self.shard(key);
        if !shard.contains_key(key) {
            if self.urls.load(Relaxed) >= MAX_URLS || self.is_full() {
                return Joined::Alone;
            }
            self.urls.fetch_add(1, Relaxed);
            self.kept.fetch_add(key.text(), Relaxed);
            shard.insert(key.clone(), Entry::default());
        }
        let Some(entry) = shard.get_mut(key) else { unreachable!("inserted above") };
        if now < entry.alone_until[usize::from(seeking.has_cookies)] {
            return Joined::Alone;
        }
        entry.retire(now);
        for flight in &entry.flights {
            match flight.suits(seeking) {
                Match::Suits => match flight.read() {
                    Some(reader) => return Joined::Follow(reader),
                    None => return Joined::Alone,
                },
                Match::NotForIt => return Joined::Alone,
                Match::Other => {}
            }
        }
        if entry.flights.len() >= MAX_SELECTIONS || self.is_full() {
            return Joined::Alone;
        }
        let flight = Flight::new(seeking, period, now, self.kept.clone());
        let Some(reader) = flight.read() else { unreachable!("a new flight is whole") };
        entry.flights.push(flight);
        Joined::Lead(reader)
    }

    /// Notes that the URL's answer turned out not to be sharable.
    pub(crate) fn keep_apart(&self, key: &Key, sharing: Sharing, until: Timestamp) {
        let mut shard = self.shard(key);
        if let Some(entry) = shard.get_mut(key) {
            match sharing {
                Sharing::All => {}
                Sharing::Cookieless => entry.alone_until[1] = until,
                Sharing::None { cookieless } => {
                    entry.alone_until[1] = until;
                    if cookieless {
                        entry.alone_until[0] = until;
                    }
                }
            }
        }
    }

    /// Drops answers that newcomers may not have any more. On the control tick.
    pub fn sweep(&self, now: Timestamp) {
        if self.urls.load(Relaxed) == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|key, entry| {
                entry.retire(now);
                let stays = !entry.flights.is_empty() || entry.alone_until.iter().any(|until| now < *until);
                if !stays {
                    self.urls.fetch_sub(1, Relaxed);
                    self.kept.fetch_sub(key.text(), Relaxed);
                }
                stays
            });
        }
    }

    /// Whether there is no memory for a new flight, not even for its window.
    fn is_full(&self) -> bool {
        self.kept.load(Relaxed) >= MAX_HELD
    }

    /// URLs with an answer under way or kept, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.urls.load(Relaxed), self.kept.load(Relaxed))
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.shards[self.hash.hash_one(key) as usize % SHARDS].lock()
    }
}

/// The key of a request; `sent` is its head as the origin gets it.
/// Of a request whose answer is not shaped.
pub(crate) fn key(head: &RequestHead, sent: &Fields, cookies: SharedCookies) -> Key {
    Key {
        throttle: None,
        is_head: *head.method() == http::Method::HEAD,
        host: target::host(head).to_ascii_lowercase().into(),
        target: head.path_and_query().into(),
        forwarded: rules::forwarded(sent),
        cookies,
    }
}

/// Whether a request has cookies; `headers` are those that the origin gets.
pub(crate) fn has_cookies(headers: &Fields) -> bool {
    let pairs = headers.get_all(name::COOKIE).flat_map(|line| line.split(|b| *b == b';'));
    pairs.map(<[u8]>::trim_ascii).any(|pair| !pair.is_empty())
}
