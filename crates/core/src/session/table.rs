//! The table of sessions: 64 shards, each behind a mutex that guards O(1) work, with what all of them share.
//!
//! Keys are uniform, so two workers seldom meet in one shard. Every change of a session goes through
//! [`Locked`], a locked shard, which keeps two invariants:
//!
//! ```text
//! slots taken of all pools == open sessions        `entries` == entries of all shards
//! ```
//!
//! Rejected: a lock-free table. A request changes four words of an entry, and two workers meet in one of 64
//! shards less often than in a cache line.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::entries::{Entries, More};
use super::entry::{Entry, Lifetimes, SessionId, SessionRequest, SharedLifetimes};
use super::forecast::{FIRST_PAGE, LEAST_PAUSE};
use super::slot_pool::{PoolId, SlotPools};
use super::types::{Ender, Endings, SessionConfig, SessionKey, SessionStatus};
use crate::policies::TierId;
use crate::sync::{AtomicBool, AtomicU64, Ordering, lock};
use crate::units::{Cost, Timestamp};

pub(super) const SHARDS: usize = 64;
/// Entries that are examined while their shard is locked: no worker waits for more than some microseconds.
const BATCH: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndCause {
    /// By its timeout or its age.
    Over,
    Early(Ender),
    /// Its key cannot come again, or it became one with another session.
    Left,
    /// Its first request never reached the origin.
    Void,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sums {
    /// Work in hundredths: of all requests of sessions, of their first pages ([`FIRST_PAGE`]), and of their
    /// first requests.
    pub(super) work: u64,
    pub(super) first_page_work: u64,
    pub(super) first_work: u64,
    /// Requests of idle sessions, those after a pause ([`LEAST_PAUSE`]), and how long these pauses were.
    pub(super) returns: u64,
    pub(super) pauses: u64,
    pub(super) pauses_ms: u64,
    pub(super) endings: Endings,
    /// Sessions that ended other than by [`EndCause::Void`], how long they held a slot, and their work.
    pub(super) whole: u64,
    pub(super) held_ms: u64,
    pub(super) whole_work: u64,
}

impl Sums {
    fn count_end(&mut self, entry: &Entry, cause: EndCause, lives: &Lifetimes, now: Timestamp) {
        let endings = &mut self.endings;
        *match cause {
            EndCause::Over if entry.ends_by_age(lives) => &mut endings.age,
            EndCause::Over => &mut endings.idle,
            EndCause::Early(Ender::Origin) => &mut endings.origin,
            EndCause::Early(Ender::Operator) => &mut endings.operator,
            EndCause::Left => &mut endings.left,
            EndCause::Void => &mut endings.void,
        } += 1;
        if cause == EndCause::Void {
            self.work = self.work.saturating_sub(entry.work());
            self.first_page_work = self.first_page_work.saturating_sub(entry.work());
            self.first_work = self.first_work.saturating_sub(entry.work());
            return;
        }
        self.whole += 1;
        self.held_ms += now.since(entry.begun()).as_millis() as u64;
        self.whole_work += entry.work();
    }

    fn add(&mut self, other: &Self) {
        self.work += other.work;
        self.first_page_work += other.first_page_work;
        self.first_work += other.first_work;
        self.returns += other.returns;
        self.pauses += other.pauses;
        self.pauses_ms += other.pauses_ms;
        self.endings.add(&other.endings);
        self.whole += other.whole;
        self.held_ms += other.held_ms;
        self.whole_work += other.whole_work;
    }
}

/// Notes that lead requests to a renamed session, by its old id.
///
/// An application renames a session (a new cookie at login) by the response to one request, which learns the
/// new key at once; the other requests in progress know the old one only. Each of them uses a note once, and
/// the last one removes it, so there are never more notes than requests in progress.
///
/// Rejected: a cell shared by requests and table (an allocation per request); notes by the key alone (a
/// session that gets its old key again would find its own note).
#[derive(Default)]
struct Renames {
    notes: BTreeMap<SessionId, Note>,
}

#[derive(Debug)]
struct Note {
    to: SessionId,
    /// Requests that have not used it yet.
    requests: u16,
}

impl Renames {
    /// Leaves a note for so many requests; none for zero.
    fn leave(&mut self, from: SessionId, to: SessionId, requests: u16) {
        if requests > 0 {
            self.notes.insert(from, Note { to, requests });
        }
    }

    /// Leads a request on to its session's next id. `false`: there is no note for it.
    fn follow(&mut self, request: &mut SessionRequest) -> bool {
        if !request.is_counted || self.notes.is_empty() {
            return false;
        }
        let from = request.session;
        let Some(note) = self.notes.get_mut(&from) else { return false };
        request.session = note.to;
        note.requests -= 1;
        if note.requests == 0 {
            self.notes.remove(&from);
        }
        true
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.notes.len()
    }
}

struct Shard {
    entries: Entries,
    sums: Sums,
    renames: Renames,
}

pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    pub(super) pools: SlotPools,
    pub(super) lifetimes: SharedLifetimes,
    entries: AtomicU64,
    max_entries: AtomicU64,
    remembers_ended: AtomicBool,
}

impl Table {
    pub(super) fn new(config: &SessionConfig, now: Timestamp) -> Self {
        let shard = || {
            let entries = Entries::new(now);
            Mutex::new(Shard { entries, sums: Sums::default(), renames: Renames::default() })
        };
        let table = Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            pools: SlotPools::new(),
            lifetimes: SharedLifetimes::default(),
            entries: AtomicU64::new(0),
            max_entries: AtomicU64::new(0),
            remembers_ended: AtomicBool::new(false),
        };
        table.configure(config, now);
        table
    }

    /// Changes all but the common slots. Sessions over by the new lifetimes end; all others keep their slots.
    pub(super) fn configure(&self, config: &SessionConfig, now: Timestamp) {
        let before = self.lifetimes.get();
        self.lifetimes.set(config);
        if self.lifetimes.get() != before {
            for number in 0..SHARDS {
                lock(&self.shards[number]).entries.refile(&self.lifetimes.get(), now);
                self.expire(number, now);
            }
        }
        self.max_entries.store(config.max_entries as u64, Ordering::Relaxed);
        self.remembers_ended.store(config.remembers_ended, Ordering::Relaxed);
        self.pools.configure_own(&config.pools);
    }

    /// Entries: open sessions, and those that were ended early and are not forgotten.
    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(super) fn max_entries(&self) -> u64 {
        self.max_entries.load(Ordering::Relaxed)
    }

    /// Whether another entry may be made. Several at once may exceed the bound by the number of workers.
    pub(super) fn has_room(&self) -> bool {
        self.entries() < self.max_entries()
    }

    pub(super) fn lock(&self, key: SessionKey, now: Timestamp) -> Locked<'_> {
        self.lock_number(shard_of(key), now)
    }

    pub(super) fn lock_number(&self, number: usize, now: Timestamp) -> Locked<'_> {
        Locked { table: self, shard: lock(&self.shards[number]), lives: self.lifetimes.get(), now }
    }

    /// Locks the shard of a request's session, after following the renames of that session.
    pub(super) fn lock_of(&self, request: &mut SessionRequest, now: Timestamp) -> Locked<'_> {
        loop {
            let mut locked = self.lock(request.key(), now);
            if !locked.shard.renames.follow(request) {
                return locked;
            }
        }
    }

    /// Locks the shard of a request's session as [`Table::lock_of`], and that of another key.
    pub(super) fn lock_both(
        &self,
        request: &mut SessionRequest,
        key: SessionKey,
        now: Timestamp,
    ) -> Both<'_> {
        loop {
            let (from, to) = (shard_of(request.key()), shard_of(key));
            // Everybody locks in the order of numbers: two crosswise renames do not wait for each other.
            let first = self.lock_number(from.min(to), now);
            let second = (from != to).then(|| self.lock_number(from.max(to), now));
            let mut both = match second {
                Some(second) if from < to => Both { from: first, to: Some(second) },
                Some(second) => Both { from: second, to: Some(first) },
                None => Both { from: first, to: None },
            };
            if !both.from.shard.renames.follow(request) {
                return both;
            }
        }
    }

    pub(super) fn expire_all(&self, now: Timestamp) {
        (0..SHARDS).for_each(|number| self.expire(number, now));
    }

    fn expire(&self, number: usize, now: Timestamp) {
        // Unlocked between two batches.
        while self.lock_number(number, now).expire_batch().is_err() {}
    }

    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.shards.iter().for_each(|shard| sums.add(&lock(shard).sums));
        sums
    }

    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| size_of_val(shard) + lock(shard).entries.bytes()).sum()
    }

    #[cfg(test)]
    pub(super) fn notes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).renames.len()).sum()
    }
}

pub(super) struct Locked<'t> {
    table: &'t Table,
    shard: MutexGuard<'t, Shard>,
    lives: Lifetimes,
    now: Timestamp,
}

impl Locked<'_> {
    /// The entry of a key, open or ended early. A session whose time is over is removed instead.
    pub(super) fn live(&mut self, key: SessionKey) -> Option<&mut Entry> {
        if self.shard.entries.find(key)?.is_over(&self.lives, self.now) {
            self.remove(key, EndCause::Over);
            return None;
        }
        self.shard.entries.find(key)
    }

    /// As [`Locked::live`] without any change.
    pub(super) fn peek(&mut self, key: SessionKey) -> Option<&Entry> {
        let (lives, now) = (self.lives, self.now);
        self.shard.entries.find(key).filter(|entry| !entry.is_over(&lives, now)).map(|entry| &*entry)
    }

    /// The open session of a request, even if it is over and not yet removed.
    pub(super) fn session_of(&mut self, request: &SessionRequest) -> Option<&mut Entry> {
        let entry = self.shard.entries.find(request.key())?;
        (entry.id() == request.session && entry.is_open()).then_some(entry)
    }

    /// A request of an open session begins.
    ///
    /// # Errors
    /// The session is new or was ended early.
    pub(super) fn begin(&mut self, key: SessionKey, cost: Cost) -> Result<SessionRequest, SessionStatus> {
        let now = self.now;
        let entry = self.live(key).ok_or(SessionStatus::New)?;
        if !entry.is_open() {
            return Err(SessionStatus::Ended);
        }
        let idle = (entry.under_way == 0).then(|| entry.idle(now));
        let is_first_page = now.since(entry.begun()) < FIRST_PAGE;
        let request = entry.begin(cost, now);
        let sums = &mut self.shard.sums;
        sums.work += cost.hundredths();
        sums.first_page_work += if is_first_page { cost.hundredths() } else { 0 };
        if let Some(idle) = idle {
            sums.returns += 1;
            if idle >= LEAST_PAUSE {
                sums.pauses += 1;
                sums.pauses_ms += idle.as_millis() as u64;
            }
        }
        Ok(request)
    }

    /// Begins a session with a slot of `pool`, by a request of `cost`. Replaces one that was ended early.
    pub(super) fn open(
        &mut self,
        key: SessionKey,
        tier: TierId,
        pool: PoolId,
        begun: Timestamp,
        cost: Cost,
    ) -> SessionRequest {
        self.take(key);
        let mut entry = Entry::new(key, tier, pool, begun, self.shard.entries.number());
        let request = entry.begin(cost, self.now);
        self.shard.sums.work += cost.hundredths();
        self.shard.sums.first_page_work += cost.hundredths();
        self.shard.sums.first_work += cost.hundredths();
        self.insert(entry);
        request
    }

    /// Takes in a session of another key under `key`. Returns its id and the number of counted requests.
    fn take_in(&mut self, moved: &Entry, key: SessionKey) -> (SessionId, u16) {
        if let Some(entry) = self.live(key) {
            let (counted, session) = (entry.take_over(moved), entry.id());
            self.close(moved, EndCause::Left);
            return (session, counted);
        }
        let entry = moved.renamed(key, self.shard.entries.number());
        let session = entry.id();
        self.insert(entry);
        (session, moved.under_way)
    }

    pub(super) fn end(&mut self, key: SessionKey, by: Ender) {
        if !self.table.remembers_ended.load(Ordering::Relaxed) {
            return self.remove(key, EndCause::Early(by));
        }
        let Some(entry) = self.shard.entries.find(key) else { return };
        let ended = *entry;
        entry.end(self.now);
        self.close(&ended, EndCause::Early(by));
    }

    pub(super) fn remove(&mut self, key: SessionKey, cause: EndCause) {
        if let Some(entry) = self.take(key) {
            self.close(&entry, cause);
        }
    }

    fn insert(&mut self, entry: Entry) {
        self.shard.entries.insert(entry, &self.lives, self.now);
        self.table.entries.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&mut self, key: SessionKey) -> Option<Entry> {
        let entry = self.shard.entries.remove(key)?;
        self.table.entries.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }

    /// An open session has ended: its slot is free again, and the sums count it.
    fn close(&mut self, entry: &Entry, cause: EndCause) {
        if entry.is_open() {
            self.table.pools.give(entry.pool());
            self.shard.sums.count_end(entry, cause, &self.lives, self.now);
        }
    }

    /// Some entries by their position in the slab, unused ones among them; `None`: the slab ends before.
    pub(super) fn stretch(&mut self, from: usize, count: usize) -> Option<&mut [Entry]> {
        self.shard.entries.stretch(from, count)
    }

    /// # Errors
    /// There may be more to expire.
    fn expire_batch(&mut self) -> Result<(), More> {
        let mut most = BATCH;
        while let Some(entry) = self.shard.entries.expire(&self.lives, self.now, &mut most)? {
            self.table.entries.fetch_sub(1, Ordering::Relaxed);
            self.close(&entry, EndCause::Over);
        }
        Ok(())
    }
}

/// The locked shards of a request's session and of another key, which may be one shard.
pub(super) struct Both<'t> {
    pub(super) from: Locked<'t>,
    to: Option<Locked<'t>>,
}

impl Both<'_> {
    /// Moves the session of a request, with all of its requests, to the key `to`. If that has a session, the
    /// two become one; if that was ended early, so is this one.
    pub(super) fn move_to(&mut self, request: &mut SessionRequest, to: SessionKey) {
        let old = request.session;
        let Some(moved) = self.from.take(old.key) else { return };
        let (session, counted) = self.to.as_mut().unwrap_or(&mut self.from).take_in(&moved, to);
        let others = request.move_to(session, counted);
        self.from.shard.renames.leave(old, session, others);
    }
}

pub(super) fn shard_of(key: SessionKey) -> usize {
    key.0 as usize % SHARDS
}
