//! Sessions (WAC 2, 3.1 (f), 4): who was admitted keeps the service; only whole sessions are refused.
//!
//! "If the server does not respond to one of the requests [...] the requests that were responded correctly have become useless": so
//! a visitor is admitted once, with a *place*, and holds it until nothing came for [`SessionConfig::timeout`] and nothing was under way,
//! or the session is too old. Requests of admitted sessions go first and are never refused for load. How many places there are is
//! [`SessionConfig::cap`]; service levels may have some of their own beside everybody's.
//!
//! ```text
//! request ─► touch ─┬─ Admitted ─────────────────────────────────► gate, before all others
//!                   └─ New, Ended ─► desk ─► admit ─┬─ a place ──► gate, likewise
//!                                                   └─ NoPlace ──► room, or refused
//! finish (the last byte of its answer is gone) ─► inactivity counts from here on
//! void (never reached the origin), end (origin, operator), leave (connection closed), tick (timeout, age) ─► the place is free
//!
//! begun + readmitted == open + ended       places taken == sessions open       after every step
//! ```
//!
//! **Table.** 64 shards, each behind a mutex that guards O(1) work, of 48-byte entries (`session/shard.rs`); its bound counts
//! entries, and a million take less than 128 MiB. **Places** are one word a pool (`session/places.rs`): whoever asks whether there
//! is one takes no lock. **Expiry** is exact for whoever asks, and found by a lazy timer wheel on the tick for all others. **Requests
//! under way** keep their sessions alive, up to the greatest age (`session/under_way.rs`).
//!
//! **Ended early.** A session's pass is signed, so the visitor still holds it: the key is kept until the pass has run out, without
//! a place, and says [`Standing::Ended`] for so long. It does not come back by [`Sessions::readmit`]; it may begin anew. Where no
//! pass tells sessions (a cookie of the application's, an address) there is nothing to be void, and nothing is kept
//! ([`SessionConfig::remembers_ended`]).
//!
//! **Restart.** A pass of a session that the table does not know is a session's all the same: it was admitted by another process.
//! It is taken in beyond the cap, and nobody new is until it fits again.
//!
//! The cap is learned by the law in `session/law.rs`, how fast places become free in `session/freed.rs`.
//!
//! Rejected: counting sessions only, by passes handed out and run out (nothing could be ended early, and a place would be free
//! only when its pass has run out for certain); a lock-free table (a touch changes four words of an entry, and two workers
//! meet in one of 64 shards less often than in a cache line); Eddie's rate of new sessions (WAC 2.2): sessions of another length
//! make another load of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::detect::SessionCount;
use crate::mutants::{self, Mutant};
use crate::policies::{MAX_TIERS, TierId};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Timestamp};

mod cap_controller;
mod early;
mod entry;
mod freed;
mod lifetimes;
mod lower_bound;
mod outlook;
mod ratio;
mod requests;
mod shard;
pub mod slot_pool;
mod sums;
mod tick;
mod types;

use cap_controller::CapController;
use entry::{EVERYBODY, Entry, own};
use lifetimes::SharedLifetimes;
use requests::Moved;
use shard::Shard;
use slot_pool::{SlotPool, UNBOUNDED};
use sums::{How, Sums};

pub use requests::SessionRequest;
pub use types::{
    Cap, Ender, Endings, NoSessionSlot, PoolState, SessionConfig, SessionInputs, SessionKey, SessionLine,
    SessionPace, SessionPage, SessionStatus, SessionsState,
};

/// Enough that a few dozen workers seldom meet in one.
const SHARDS: usize = 64;

/// All sessions of a process. Shared by all workers.
pub struct Sessions {
    shards: Box<[Mutex<Part>]>,
    /// By service level; the first is everybody's, and a level without places of its own has a pool of none.
    pools: Box<[SlotPool]>,
    lives: SharedLifetimes,
    /// Entries, and how many there may be.
    entries: AtomicU64,
    max_entries: AtomicU64,
    /// One if what shows a session may come again after its end.
    remembers_ended: AtomicU64,
    begun: AtomicU64,
    readmitted: AtomicU64,
    refused: AtomicU64,
    /// Places that become free per second: the bits of an `f64`.
    per_s: AtomicU64,
    /// Seconds before the first of them can, likewise.
    next_s: AtomicU64,
    law: Mutex<CapController>,
}

/// A shard and what is counted there.
struct Part {
    shard: Shard,
    sums: Sums,
    /// Notes left where sessions were, by the key and what told them from others of that key.
    moved: BTreeMap<(SessionKey, u64), Moved>,
}

impl Sessions {
    /// An empty table.
    pub fn new(config: &SessionConfig, now: Timestamp) -> Self {
        let part = || {
            let shard = Shard::new(now);
            Mutex::new(Part { shard, sums: Sums::default(), moved: BTreeMap::new() })
        };
        let sessions = Self {
            shards: (0..SHARDS).map(|_| part()).collect(),
            pools: (0..MAX_TIERS).map(|_| SlotPool::new(0)).collect(),
            lives: SharedLifetimes::new(config),
            entries: AtomicU64::new(0),
            max_entries: AtomicU64::new(0),
            remembers_ended: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            readmitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            per_s: AtomicU64::new(0f64.to_bits()),
            next_s: AtomicU64::new(0f64.to_bits()),
            law: Mutex::new(CapController::new(config.cap, now)),
        };
        sessions.set_up(config);
        sessions
    }

    /// Changes the set-up. Who has a place keeps it, also where there are fewer from now on; who is over by the new times is over.
    pub fn configure(&self, config: &SessionConfig, now: Timestamp) {
        let before = self.lives.get();
        self.lives.set(config);
        let lives = self.lives.get();
        if lives != before {
            for part in &self.shards {
                lock(part).shard.refile(&lives, now);
                while !self.expire_some(&mut lock(part), now) {}
            }
        }
        self.set_up(config);
    }

    fn set_up(&self, config: &SessionConfig) {
        self.max_entries.store(config.max_entries as u64, Ordering::Relaxed);
        self.remembers_ended.store(u64::from(config.remembers_ended), Ordering::Relaxed);
        for (tier, pool) in self.pools.iter().enumerate().skip(1) {
            let own = config.pools.iter().find(|(id, _)| usize::from(id.0) == tier);
            pool.set(own.map_or(0, |(_, places)| (*places).min(UNBOUNDED - 1)), false);
        }
        let law = &mut *self.law();
        law.configure(config.cap, self.lives.get().timeout);
        self.go_by(law);
    }

    fn go_by(&self, law: &CapController) {
        let (bound, is_closed) = law.bound(self.max_entries.load(Ordering::Relaxed) as usize);
        self.pools[0].set(bound, is_closed);
        // What becomes free counts when all are taken.
        let taken = self.pools[0].filled().taken;
        let full = if is_closed || bound == UNBOUNDED { taken } else { taken.max(bound) };
        let (per_s, next_s) = law.pace(full);
        self.per_s.store(per_s.to_bits(), Ordering::Relaxed);
        self.next_s.store(next_s.to_bits(), Ordering::Relaxed);
    }

    fn law(&self) -> MutexGuard<'_, CapController> {
        self.law.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, key: SessionKey) -> MutexGuard<'_, Part> {
        lock(&self.shards[shard_of(key)])
    }

    /// A request: what its session is. Of an admitted one it keeps the session alive as long as it is under way, and its work is
    /// counted.
    pub fn touch(
        &self,
        key: SessionKey,
        cost: Cost,
        now: Timestamp,
    ) -> (SessionStatus, Option<SessionRequest>) {
        let lives = self.lives.get();
        let mut part = self.part(key);
        let Some(entry) = part.shard.find(key) else { return (SessionStatus::New, None) };
        if entry.is_over(&lives, now) {
            self.expire(&mut part, key, now);
            return (SessionStatus::New, None);
        }
        if !entry.is_open() {
            return (SessionStatus::Ended, None);
        }
        let under_way = entry.begin(cost, now);
        part.sums.work += cost.hundredths();
        (SessionStatus::Admitted, Some(under_way))
    }

    /// What [`Sessions::touch`] would say; changes nothing.
    pub fn standing(&self, key: SessionKey, now: Timestamp) -> SessionStatus {
        let lives = self.lives.get();
        match self.part(key).shard.find(key) {
            Some(entry) if entry.is_over(&lives, now) => SessionStatus::New,
            Some(entry) if !entry.is_open() => SessionStatus::Ended,
            Some(_) => SessionStatus::Admitted,
            None => SessionStatus::New,
        }
    }

    /// The first request of a session: takes a place for it, of its level's own before everybody's. Of two at once the second
    /// finds the first one's.
    ///
    /// # Errors
    /// There is none, or the table is full.
    pub fn admit(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        let admitted = self.admit_to(key, tier, &[own(tier), EVERYBODY], cost, now);
        if admitted.is_err() {
            self.turned_away();
        }
        admitted
    }

    /// As [`Sessions::admit`], of the level's own places only.
    pub(crate) fn admit_to_own(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        if own(tier) == EVERYBODY {
            return Err(NoSessionSlot::Taken);
        }
        self.admit_to(key, tier, &[own(tier)], cost, now)
    }

    fn admit_to(
        &self,
        key: SessionKey,
        tier: TierId,
        pools: &[u8],
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        let lives = self.lives.get();
        let part = &mut *self.part(key);
        self.expire_if_over(part, key, now);
        if let Some(entry) = part.shard.find(key).filter(|entry| entry.is_open()) {
            let under_way = entry.begin(cost, now);
            part.sums.work += cost.hundredths();
            return Ok(under_way);
        }
        let is_known = part.shard.find(key).is_some();
        if !is_known && !self.has_entry() {
            return Err(NoSessionSlot::TableFull);
        }
        let Some(&pool) = pools.iter().find(|pool| self.pools[usize::from(**pool)].take()) else {
            return Err(NoSessionSlot::Taken);
        };
        // One that was ended early begins anew.
        if part.shard.remove(key).is_none() {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        let mut entry = Entry::new(key, tier, pool, now, part.shard.number());
        let under_way = entry.begin(cost, now);
        part.shard.insert(entry, &lives, now);
        part.sums.work += cost.hundredths();
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(under_way)
    }

    /// A pass that holds, of a session that is not known here (a restart, another process): taken in with the request that shows it,
    /// also beyond the cap. `first`: when it began. `None`: it was ended early, is too old or the table is full; it is as a new one. The
    /// caller has checked that the pass holds otherwise.
    pub fn readmit(
        &self,
        key: SessionKey,
        tier: TierId,
        first: Timestamp,
        now: Timestamp,
    ) -> Option<SessionRequest> {
        let lives = self.lives.get();
        let part = &mut *self.part(key);
        self.expire_if_over(part, key, now);
        if let Some(entry) = part.shard.find(key) {
            return entry.is_open().then(|| entry.begin(Cost::ZERO, now));
        }
        if now.since(first) > lives.max_age || !self.has_entry() {
            return None;
        }
        let pool = match own(tier) {
            EVERYBODY => EVERYBODY,
            pool if self.pools[usize::from(pool)].take() => pool,
            _ => EVERYBODY,
        };
        if pool == EVERYBODY {
            self.pools[0].force();
        }
        let mut entry = Entry::new(key, tier, pool, first.min(now), part.shard.number());
        let under_way = entry.begin(Cost::ZERO, now);
        part.shard.insert(entry, &lives, now);
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.readmitted.fetch_add(1, Ordering::Relaxed);
        Some(under_way)
    }

    /// Whether a new session of that level would find a place. Takes no lock.
    pub fn has_slot(&self, tier: TierId) -> bool {
        self.has_own_place(tier) || self.pools[0].filled().has_place()
    }

    /// Whether its level has a place of its own, while everybody's are taken.
    pub(crate) fn has_own_place_only(&self, tier: TierId) -> bool {
        self.has_own_place(tier) && !self.pools[0].filled().has_place()
    }

    /// Whether its level has places of its own, and one is free.
    fn has_own_place(&self, tier: TierId) -> bool {
        own(tier) != EVERYBODY && self.pools[usize::from(own(tier))].filled().has_place()
    }

    /// A new session was turned away for want of a place.
    pub(crate) fn turned_away(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How fast new sessions get in; `None`: as fast as they come.
    pub fn pace(&self) -> Option<SessionPace> {
        let free = self.pools[0].filled().free()?;
        Some(SessionPace { free: Some(free), per_s: self.per_s(), next_s: self.next_s() })
    }

    fn per_s(&self) -> f64 {
        f64::from_bits(self.per_s.load(Ordering::Relaxed))
    }

    fn next_s(&self) -> f64 {
        f64::from_bits(self.next_s.load(Ordering::Relaxed))
    }

    /// When to try again who was refused: when a place becomes free, within what is worth saying.
    pub fn retry_after(&self) -> Duration {
        let wait = Duration::try_from_secs_f64(self.next_s() + 1.0 / self.per_s()).unwrap_or(Duration::MAX);
        wait.clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Open now, and begun since the start.
    pub fn count(&self) -> SessionCount {
        let open = self.pools.iter().map(|pool| u64::from(pool.filled().taken)).sum();
        SessionCount { open, begun: self.begun.load(Ordering::Relaxed) }
    }

    /// Room for another entry. Several at once may go beyond by as many as there are workers.
    fn has_entry(&self) -> bool {
        self.entries.load(Ordering::Relaxed) < self.max_entries.load(Ordering::Relaxed)
    }

    fn expire_if_over(&self, part: &mut Part, key: SessionKey, now: Timestamp) {
        let lives = self.lives.get();
        if part.shard.find(key).is_some_and(|entry| entry.is_over(&lives, now)) {
            self.expire(part, key, now);
        }
    }

    fn expire(&self, part: &mut Part, key: SessionKey, now: Timestamp) {
        self.take_out(part, key, How::Over, now);
    }

    /// Forgets one.
    fn take_out(&self, part: &mut Part, key: SessionKey, how: How, now: Timestamp) {
        let Some(entry) = part.shard.remove(key) else { return };
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.close(&mut part.sums, &entry, how, now);
    }

    /// One is open no longer: its place is free, and what it was is learned.
    fn close(&self, sums: &mut Sums, entry: &Entry, how: How, now: Timestamp) {
        if !entry.is_open() {
            return;
        }
        if !mutants::is(Mutant::SessionSlotIsLost) {
            self.pools[usize::from(entry.pool())].give();
        }
        sums.close(entry, how, &self.lives.get(), now);
    }
}

fn shard_of(key: SessionKey) -> usize {
    // Keys are uniform.
    key.0 as usize % SHARDS
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    // A panic elsewhere cannot leave a shard half changed.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
