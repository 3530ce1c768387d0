//! Processor sharing: a stage that serves everybody present at once, each at an even share.
//!
//! ```text
//! c servers, n requests present: each is served at rate min(1, c/n)
//! ```
//!
//! Egalitarian processor sharing (Kleinrock, "Queueing Systems" II, 4.4, 1976): what threads on the cores of
//! a host, or statements in a database, come close to. All requests present are served at the same rate, so
//! one clock tells what each has attained since it came: V, which runs at min(1, c/n) of a server's work. A
//! request of demand s that comes at V is over at V + s, also if others come and go meanwhile; a heap by that
//! instant costs O(log n) per arrival and departure, and no request is touched in between. V and the instants
//! at which the ratio changes have 32 bits below the nanosecond, so that a long busy period loses nothing of
//! the capacity to rounding.
//!
//! Not modelled: weights, and a demand that is more than one server can give (a request is served by at most
//! one). The last server ends what is there before it goes: a stage without servers would hold its requests
//! for ever.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pace::NEVER;

/// Bits below a nanosecond.
const FRACTION: u32 = 32;

/// The requests present in one stage. Instants are work instants, as in [`super::pace`].
pub(super) struct Shared {
    servers: u32,
    /// V, in 2⁻³² ns.
    attained: u128,
    /// When `attained` was so, in 2⁻³² ns.
    since: u128,
    /// When requests end, in V; the number keeps those that came first before others of the same instant.
    ends: BinaryHeap<Reverse<(u128, u32, u32)>>,
    joined: u32,
    /// When the next request ends; [`NEVER`] if none does.
    pub due: u64,
}

impl Shared {
    pub fn new(servers: u32) -> Self {
        Self { servers, attained: 0, since: 0, ends: BinaryHeap::new(), joined: 0, due: NEVER }
    }

    pub fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// A request comes and demands so many nanoseconds of a server.
    pub fn join(&mut self, slot: u32, demand: u64, work: u64) {
        self.settle(work);
        self.joined = self.joined.wrapping_add(1);
        let end = match demand {
            NEVER => u128::MAX,
            demand => self.attained.saturating_add(u128::from(demand) << FRACTION),
        };
        self.ends.push(Reverse((end, self.joined, slot)));
        self.plan();
    }

    /// The next request ends, at the instant it is due: that may lie a part of a nanosecond before
    /// [`Shared::due`], and those who stay have the servers from then on.
    pub fn pop(&mut self) -> Option<u32> {
        let rest = self.rest()?;
        let Reverse((end, _, slot)) = self.ends.pop()?;
        self.since = self.since.saturating_add(rest);
        self.attained = end;
        self.plan();
        Some(slot)
    }

    pub fn remove(&mut self, slot: u32, work: u64) {
        self.settle(work);
        self.ends.retain(|Reverse((.., other))| *other != slot);
        self.plan();
    }

    pub fn clear(&mut self, work: u64) {
        self.settle(work);
        self.ends.clear();
        self.plan();
    }

    pub fn resize(&mut self, servers: u32, work: u64) {
        self.settle(work);
        self.servers = servers;
        self.plan();
    }

    /// Servers and requests that share them: each is served at the ratio, at most at 1.
    fn ratio(&self) -> (u128, u128) {
        (u128::from(self.servers.max(1)), self.ends.len() as u128)
    }

    /// Brings V up to `work`.
    fn settle(&mut self, work: u64) {
        let now = (u128::from(work) << FRACTION).max(self.since);
        let passed = now - std::mem::replace(&mut self.since, now);
        let (servers, present) = self.ratio();
        self.attained = match present {
            // No request holds an old V, so it may start again at a small one.
            0 => 0,
            _ if present <= servers => self.attained.saturating_add(passed),
            _ => self.attained.saturating_add(passed.saturating_mul(servers) / present),
        };
    }

    /// Time until the next request ends if nobody comes or goes before, in 2⁻³² ns; `None`: it does not.
    fn rest(&self) -> Option<u128> {
        let Reverse((end, ..)) = self.ends.peek().filter(|Reverse((end, ..))| *end < u128::MAX)?;
        let rest = end.saturating_sub(self.attained);
        let (servers, present) = self.ratio();
        let shared = present > servers;
        Some(if shared { rest.saturating_mul(present).div_ceil(servers) } else { rest })
    }

    /// The first nanosecond by which the next request is over.
    fn plan(&mut self) {
        let due = self.rest().map(|rest| self.since.saturating_add(rest).div_ceil(1 << FRACTION));
        self.due = due.and_then(|due| u64::try_from(due).ok()).unwrap_or(NEVER);
    }
}
