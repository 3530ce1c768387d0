//! One session in the table, in 48 bytes: its key, its times, its requests and its links.
//!
//! ```text
//! begin ─► SessionRequest ─► finish       a request of the session is in progress in between
//!
//! deadline  =  min(last + timeout, begun + max_age)      last: the latest begin or end of a request
//!           =  begun + max_age                           while a request is in progress
//! ```
//!
//! A request names its session by [`SessionId`], the key and `born`, which no two entries of a key share. So
//! a request of an ended session never changes a session that began under the same key since.
//!
//! Requests beyond 65,535 at once are not counted: they do not keep the session alive when all others ended.

use std::time::Duration;

use super::slot_pool::PoolId;
use super::types::{SessionConfig, SessionKey, SessionLine};
use crate::policies::TierId;
use crate::sync::Atomic;
use crate::units::{Cost, Timestamp};

pub(super) const NIL: u32 = u32::MAX;
/// Bits of `born` that tell apart sessions of one millisecond; the rest lasts for 8,900 years. Two sessions
/// of one key and one millisecond share an id only after 2^16 others have begun in their shard in between.
const NUMBER_BITS: u32 = 16;
/// An entry stores its last request in 32 bits of milliseconds after the first: 49.7 days.
const LONGEST: Duration = Duration::from_secs(49 * 24 * 3600);
/// A request that comes so long after the last one of its session begins a page: parts come sooner.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lifetimes {
    pub(super) timeout: Duration,
    pub(super) max_age: Duration,
    /// Idle time counts from here on at the earliest: when the clock stepped ahead last.
    pub(super) idle_from: Timestamp,
}

/// Lifetimes that every request reads and a reload changes. A request that reads one old and one new value is
/// as good as one that came before or after the reload.
#[derive(Debug, Default)]
pub(super) struct SharedLifetimes {
    timeout: Atomic<Duration>,
    max_age: Atomic<Duration>,
    idle_from: Atomic<Timestamp>,
}

impl SharedLifetimes {
    /// Sets them, in whole milliseconds.
    pub(super) fn set(&self, config: &SessionConfig) {
        let whole_ms = |span: Duration| {
            Duration::from_millis(span.clamp(Duration::from_millis(1), LONGEST).as_millis() as u64)
        };
        self.timeout.store(whole_ms(config.timeout));
        self.max_age.store(whole_ms(config.max_age));
    }

    pub(super) fn clock_stepped(&self, now: Timestamp) {
        self.idle_from.store(now);
    }

    pub(super) fn get(&self) -> Lifetimes {
        Lifetimes {
            timeout: self.timeout.load(),
            max_age: self.max_age.load(),
            idle_from: self.idle_from.load(),
        }
    }
}

/// One session among all that ever have its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SessionId {
    pub(super) key: SessionKey,
    born: u64,
}

/// A request of an admitted session in progress: from its arrival (also while it waits at the gate) until its
/// response or tunnel ends ([`super::Sessions::finish`], [`super::Sessions::void`]).
#[must_use = "the session stays alive until the request is finished"]
#[derive(PartialEq, Eq, Debug)]
pub struct SessionRequest {
    pub(super) session: SessionId,
    /// Whether its session's entry counts it.
    pub(super) is_counted: bool,
    begins_page: bool,
}

impl SessionRequest {
    /// The key of its session, as far as the request knows of renames.
    pub fn key(&self) -> SessionKey {
        self.session.key
    }

    /// Whether it begins a page, as far as is known: the first request of the session, or the first after a
    /// pause.
    pub fn begins_page(&self) -> bool {
        self.begins_page
    }

    /// Its session is another one from now on, which counts `counted` of the old one's requests: this one
    /// before the others. Returns how many of the others.
    pub(super) fn move_to(&mut self, session: SessionId, counted: u16) -> u16 {
        self.session = session;
        self.is_counted &= counted > 0;
        counted - u16::from(self.is_counted)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// High and low half of the key: 16 bytes that need not be aligned to 16.
    pub(super) key: [u64; 2],
    /// Its first request in milliseconds, and [`NUMBER_BITS`] of a running number.
    born: u64,
    /// Its last request, in milliseconds after the first.
    last_ms: u32,
    /// Work of its requests, in hundredths.
    work: u32,
    requests: u32,
    /// Next entry of its bucket of the wheel, or next unused entry.
    pub(super) next: u32,
    /// Previous entry of its bucket, or the bucket itself.
    pub(super) prev: u32,
    /// Requests in progress, as far as they can be counted; of an open session only.
    pub(super) under_way: u16,
    pub(super) tier: TierId,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Entry>() == 48);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Open(SlotOwner),
    /// A session that was ended early: it has no slot, and its pass is void.
    Ended,
    /// No session; linked by `next`.
    Unused,
}

/// The pool that an entry's slot belongs to, in less than a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotOwner {
    Common,
    Tier,
}

impl SlotOwner {
    fn of(pool: PoolId) -> Self {
        if pool == PoolId::COMMON { Self::Common } else { Self::Tier }
    }
}

impl Entry {
    /// A session with a slot of `pool`, the common one or the tier's own. `number`: the shard's running one.
    pub(super) fn new(key: SessionKey, tier: TierId, pool: PoolId, begun: Timestamp, number: u16) -> Self {
        Self {
            key: halves(key),
            born: begun.as_millis() << NUMBER_BITS | u64::from(number),
            last_ms: 0,
            work: 0,
            requests: 0,
            next: NIL,
            prev: NIL,
            under_way: 0,
            tier,
            state: State::Open(SlotOwner::of(pool)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub(super) fn pool(&self) -> PoolId {
        if self.state == State::Open(SlotOwner::Tier) { PoolId::own(self.tier) } else { PoolId::COMMON }
    }

    /// Its tier has another number. A common slot stays a common one.
    pub(super) fn set_tier(&mut self, tier: TierId) {
        self.tier = tier;
        if self.is_open() {
            self.state = State::Open(SlotOwner::of(self.pool()));
        }
    }

    /// Ends it early, with its requests in progress: its deadline must not precede its bucket of the wheel.
    pub(super) fn end(&mut self, now: Timestamp) {
        if self.under_way > 0 {
            self.see(now);
        }
        (self.state, self.under_way) = (State::Ended, 0);
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey(u128::from(self.key[0]) << 64 | u128::from(self.key[1]))
    }

    pub(super) fn id(&self) -> SessionId {
        SessionId { key: self.key(), born: self.born }
    }

    pub(super) fn renamed(self, key: SessionKey, number: u16) -> Self {
        let born = self.begun_ms() << NUMBER_BITS | u64::from(number);
        Self { key: halves(key), born, ..self }
    }

    fn begun_ms(&self) -> u64 {
        self.born >> NUMBER_BITS
    }

    pub(super) fn begun(&self) -> Timestamp {
        Timestamp::from_millis(self.begun_ms())
    }

    fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.begun_ms() + u64::from(self.last_ms))
    }

    /// Since when it has no request in progress, as far as it ends by that.
    fn idle_since(&self, lives: &Lifetimes) -> Timestamp {
        self.last().max(lives.idle_from)
    }

    /// Time without a request; zero while one is in progress.
    pub(super) fn idle(&self, now: Timestamp) -> Duration {
        if self.under_way > 0 { Duration::ZERO } else { now.since(self.last()) }
    }

    pub(super) fn work(&self) -> u64 {
        u64::from(self.work)
    }

    pub(super) fn begin(&mut self, cost: Cost, now: Timestamp) -> SessionRequest {
        let begins_page = self.requests == 0 || self.idle(now) >= PAUSE;
        self.see(now);
        self.requests = self.requests.saturating_add(1);
        self.work = self.work.saturating_add(u32::try_from(cost.hundredths()).unwrap_or(u32::MAX));
        let is_counted = self.under_way < u16::MAX;
        self.under_way += u16::from(is_counted);
        SessionRequest { session: self.id(), is_counted, begins_page }
    }

    pub(super) fn finish(&mut self, request: &SessionRequest, now: Timestamp) {
        debug_assert!(!request.is_counted || self.under_way > 0, "more requests end than have begun");
        self.see(now);
        self.under_way = self.under_way.saturating_sub(u16::from(request.is_counted));
    }

    /// One of several requests never reached the origin. `false`: it is the only one; nothing is changed.
    pub(super) fn void(&mut self, request: &SessionRequest, now: Timestamp) -> bool {
        let has_others = self.requests > 1;
        if has_others {
            self.requests -= 1;
            self.finish(request, now);
        }
        has_others
    }

    /// Takes over the requests in progress of another session. Returns how many of them are counted.
    pub(super) fn take_over(&mut self, other: &Self) -> u16 {
        let room = if self.is_open() { u16::MAX - self.under_way } else { 0 };
        let taken = other.under_way.min(room);
        self.under_way += taken;
        taken
    }

    /// A request began or ended. The clocks of workers may differ a little, so the time never goes back.
    fn see(&mut self, now: Timestamp) {
        let last = now.as_millis().saturating_sub(self.begun_ms());
        self.last_ms = self.last_ms.max(u32::try_from(last).unwrap_or(u32::MAX));
    }

    /// The time after which it is over.
    fn deadline(&self, lives: &Lifetimes) -> Timestamp {
        let oldest = self.begun() + lives.max_age;
        if self.under_way > 0 { oldest } else { (self.idle_since(lives) + lives.timeout).min(oldest) }
    }

    /// When to look at it: not after its deadline, whenever its requests end from now on.
    pub(super) fn due(&self, lives: &Lifetimes, now: Timestamp) -> Timestamp {
        let idle = self.idle_since(lives);
        let idle = if self.under_way > 0 { idle.max(now) } else { idle };
        (idle + lives.timeout).min(self.begun() + lives.max_age)
    }

    pub(super) fn is_over(&self, lives: &Lifetimes, now: Timestamp) -> bool {
        now > self.deadline(lives)
    }

    /// Whether its age ends it, not its inactivity.
    pub(super) fn ends_by_age(&self, lives: &Lifetimes) -> bool {
        self.begun() + lives.max_age <= self.deadline(lives)
    }

    pub(super) fn line(&self) -> SessionLine {
        SessionLine {
            key: self.key(),
            tier: self.tier,
            begun: self.begun(),
            last: self.last(),
            requests: self.requests,
            under_way: self.under_way,
        }
    }
}

pub(super) fn halves(key: SessionKey) -> [u64; 2] {
    [(key.0 >> 64) as u64, key.0 as u64]
}
