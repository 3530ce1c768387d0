//! What the table keeps of one session, in 48 bytes.

use super::lifetimes::Lifetimes;
use super::requests::SessionRequest;
use super::types::SessionKey;
use crate::policies::{MAX_TIERS, TierId};
use crate::units::{Cost, Timestamp};

/// No entry.
pub(super) const NIL: u32 = u32::MAX;
/// What of `born` tells sessions apart; the rest is good for 8,900 years. Two of a key in a millisecond have it in common after as many
/// others have begun in their shard in between.
const NUMBER_BITS: u32 = 16;

/// Everybody's places, as a pool.
pub(super) const EVERYBODY: u8 = 0;

/// What is known of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// High and low half: 16 bytes that need not be aligned to 16.
    pub(super) key: [u64; 2],
    /// Its first request, in milliseconds, and [`NUMBER_BITS`] that tell it from others of that key and millisecond.
    pub(super) born: u64,
    /// Its last one, in milliseconds after the first.
    last_ms: u32,
    /// Work of its requests, in hundredths.
    pub(super) work: u32,
    pub(super) requests: u32,
    pub(super) next: u32,
    /// Who stands before it in its bucket, or a bucket of the wheel.
    pub(super) prev: u32,
    /// Requests under way, as far as they can be counted; of an open one only.
    pub(super) under_way: u16,
    pub(super) tier: TierId,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Entry>() == 48);

/// What an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// A session with a place.
    Open(PoolKind),
    /// One that was ended early: has no place, and what shows it is void.
    Ended,
    /// Nobody's; linked by `next`.
    Unused,
}

/// Whose place it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolKind {
    Everybody,
    /// Its level's own.
    Level,
}

impl PoolKind {
    fn of(pool: u8) -> Self {
        if pool == EVERYBODY { Self::Everybody } else { Self::Level }
    }
}

impl Entry {
    /// One with a place of `pool`, which is everybody's or its level's. `number`: [`super::shard::Shard::number`].
    pub(super) fn new(key: SessionKey, tier: TierId, pool: u8, begun: Timestamp, number: u16) -> Self {
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
            state: State::Open(PoolKind::of(pool)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whose place it has, if it has one.
    pub(super) fn pool(&self) -> u8 {
        if self.state == State::Open(PoolKind::Level) { own(self.tier) } else { EVERYBODY }
    }

    /// Its level has another number; everybody's place stays one.
    pub(super) fn renumber(&mut self, level: TierId) {
        self.tier = level;
        if self.is_open() {
            self.state = State::Open(PoolKind::of(self.pool()));
        }
    }

    /// It is ended early. What was under way until now is an end as any other: no deadline comes before its bucket.
    pub(super) fn end(&mut self, now: Timestamp) {
        if self.under_way > 0 {
            self.see(now);
        }
        (self.state, self.under_way) = (State::Ended, 0);
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey(u128::from(self.key[0]) << 64 | u128::from(self.key[1]))
    }

    /// The same session under another key.
    pub(super) fn under(self, key: SessionKey, number: u16) -> Self {
        let born = self.begun_ms() << NUMBER_BITS | u64::from(number);
        Self { key: halves(key), born, ..self }
    }

    fn begun_ms(&self) -> u64 {
        self.born >> NUMBER_BITS
    }

    pub(super) fn begun(&self) -> Timestamp {
        Timestamp::from_millis(self.begun_ms())
    }

    pub(super) fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.begun_ms() + u64::from(self.last_ms))
    }

    /// One of its requests begins.
    pub(super) fn begin(&mut self, cost: Cost, now: Timestamp) -> SessionRequest {
        self.see(now);
        self.requests = self.requests.saturating_add(1);
        self.work = self.work.saturating_add(u32::try_from(cost.hundredths()).unwrap_or(u32::MAX));
        let is_counted = self.under_way < u16::MAX;
        self.under_way += u16::from(is_counted);
        SessionRequest::new(self.key(), self.born, is_counted)
    }

    /// One of them is over.
    pub(super) fn finish(&mut self, was_counted: bool, now: Timestamp) {
        debug_assert!(!was_counted || self.under_way > 0, "more requests end than were under way");
        self.see(now);
        self.under_way = self.under_way.saturating_sub(u16::from(was_counted));
    }

    /// Another session becomes one with it, with its requests under way. How many of them count from now on.
    pub(super) fn take_over(&mut self, other: &Self) -> u16 {
        let room = if self.is_open() { u16::MAX - self.under_way } else { 0 };
        let taken = other.under_way.min(room);
        self.under_way += taken;
        taken
    }

    /// Something came of it, or ended. Clocks of several workers may be a little apart: it never goes back.
    fn see(&mut self, now: Timestamp) {
        let last = now.as_millis().saturating_sub(self.begun_ms());
        self.last_ms = self.last_ms.max(u32::try_from(last).unwrap_or(u32::MAX));
    }

    /// From when on it is over.
    pub(super) fn deadline(&self, lives: &Lifetimes) -> Timestamp {
        let oldest = self.begun() + lives.max_age;
        if self.under_way > 0 { oldest } else { (self.last() + lives.timeout).min(oldest) }
    }

    /// When to look at it: not after its deadline, whenever its requests end from now on.
    pub(super) fn due(&self, lives: &Lifetimes, now: Timestamp) -> Timestamp {
        let idle = if self.under_way > 0 { self.last().max(now) } else { self.last() };
        (idle + lives.timeout).min(self.begun() + lives.max_age)
    }

    pub(super) fn is_over(&self, lives: &Lifetimes, now: Timestamp) -> bool {
        now > self.deadline(lives)
    }
}

pub(super) fn halves(key: SessionKey) -> [u64; 2] {
    [(key.0 >> 64) as u64, key.0 as u64]
}

/// The pool of a level's own places: everybody's where the configuration cannot have any for it.
pub(super) fn own(tier: TierId) -> u8 {
    if usize::from(tier.0) < MAX_TIERS { tier.0 } else { EVERYBODY }
}
