//! *URL multicast* (WAC 3.2 e): at most one upstream request per URL and period; its answer goes to all who asked.
//!
//! ```text
//! request ─► may it be shared? ─► join ─┬─ nobody has asked: lead ─► a task of its own ─► gate ─► origin
//!                │ no                   │                                    │ head, chunks
//!                ▼                      └─ somebody has: follow ◄────────────┘
//!          on its own, through room and gate ◄── the answer is not for others
//! ```
//!
//! Who leads does not carry the exchange: a task does, so that nobody's leaving harms the others. It goes through the gate like
//! any request, but not through the room: it stands for many. What may be given to whom is [`rules`]' business; whoever it may
//! not be given to goes on as if there were no multicast, through the room and the gate, which is where a stampede ends.
//!
//! Memory is bounded: [`MAX_URLS`] URLs, [`MAX_SELECTIONS`] answers each, [`MAX_ANSWER`] bytes an answer, [`MAX_KEPT`] bytes all
//! together, heads and URLs included. What is longer than it said, or than there is room for, goes on in a window behind its
//! fastest reader: see [`flight`]. Where even windows, heads and URLs make [`MAX_HELD`], nothing new is shared.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, request};
use tidegate_core::queue::Lane;
use tidegate_core::units::{ClassId, Timestamp};

use crate::http::target;

pub mod flight;
pub mod rules;
#[cfg(test)]
pub mod tests;

pub use flight::SharedBody;

use flight::{Flight, Match, Reader};
use rules::Sharing;

/// URLs with an answer under way or kept: more than a service has under one rule, and what one answer a kilobyte makes ten
/// megabytes. Beyond, requests go their own way.
pub const MAX_URLS: usize = 10_000;
/// Longest answer that is kept whole.
pub const MAX_ANSWER: usize = 4 << 20;
/// Answers of one URL, each by another selection: more than `Vary` makes of languages, codings and formats that are in use. Beyond,
/// requests go their own way.
const MAX_SELECTIONS: usize = 32;
/// Bytes of all answers kept.
pub const MAX_KEPT: usize = 64 << 20;
/// Bytes from which on nobody asks for others: as much again, for what goes on when there is no room to keep it.
const MAX_HELD: usize = 2 * MAX_KEPT;
/// Locks on the table, so that workers rarely meet.
const SHARDS: usize = 16;

/// What makes two requests the same but for what `Vary` names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    is_head: bool,
    host: Box<str>,
    target: Box<str>,
    /// By [`rules::forwarded`].
    forwarded: Box<[u8]>,
}

impl Key {
    /// Bytes that visitors choose.
    fn text(&self) -> usize {
        self.host.len() + self.target.len() + self.forwarded.len()
    }
}

/// One URL's answers.
#[derive(Default)]
struct Entry {
    /// One for each selection by `Vary`.
    flights: Vec<Arc<Flight>>,
    /// Until when everybody asks alone: those without cookies, and those with.
    alone_until: [Timestamp; 2],
}

impl Entry {
    /// Forgets answers that nobody may have any more.
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

/// What is shared by all workers.
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
    /// Requests that could not be.
    pub alone: AtomicU64,
}

/// How a request takes part.
pub(crate) enum Joined {
    /// It asks for all.
    Lead(Reader),
    /// It waits for another's answer, or has it.
    Follow(Reader),
    /// It asks for itself.
    Alone,
}

/// What the gate's queue goes by: a refusal by it says nothing to others.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequesterStanding {
    pub(crate) class: ClassId,
    pub(crate) lane: Lane,
}

/// A request, as the table sees it.
pub(crate) struct Seeking<'r> {
    /// As the origin would get them: it goes by no others.
    pub(crate) headers: &'r HeaderMap,
    pub(crate) has_cookies: bool,
    pub(crate) standing: RequesterStanding,
}

impl Coalescer {
    /// Takes part in what goes on for this URL.
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

    /// The URL's answer turned out to be nobody else's.
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

    /// Forgets what nobody may have any more: on the tick.
    pub fn sweep(&self, now: Timestamp) {
        if self.urls.load(Relaxed) == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
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

    /// Whether there is room for nothing new, not even to pass it on.
    fn is_full(&self) -> bool {
        self.kept.load(Relaxed) >= MAX_HELD
    }

    /// URLs with an answer under way or kept, and the bytes of those.
    pub fn size(&self) -> (usize, usize) {
        (self.urls.load(Relaxed), self.kept.load(Relaxed))
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Entry>> {
        lock(&self.shards[self.hash.hash_one(key) as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the request asks for; `sent` is its head as the origin gets it.
pub(crate) fn key(parts: &request::Parts, sent: &HeaderMap) -> Key {
    Key {
        is_head: parts.method == http::Method::HEAD,
        host: target::host(parts).to_ascii_lowercase().into(),
        target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).into(),
        forwarded: rules::forwarded(sent),
    }
}

/// Whether a request has cookies, as the origin gets it.
pub(crate) fn has_cookies(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(http::header::COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|b| *b == b';'));
    pairs.map(<[u8]>::trim_ascii).any(|pair| !pair.is_empty())
}
