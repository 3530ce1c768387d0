//! Session slots, lock-free: one pool for all tiers and one for each tier with slots of its own.
//!
//! A pool is one word: the last slot goes to one of two who ask at once, and a bound never changes by half:
//!
//! ```text
//!     63      62       32 31        0
//! [ closed | bound (31) | taken (32) ]
//! ```
//!
//! Rejected: two words for bound and taken. A caller that reads one after the other takes a slot of a bound
//! that has been lowered in between, and a model checker has twice as many states.

use super::types::PoolState;
use crate::mutants::{self, Mutant};
use crate::policies::{MAX_TIERS, TierId};
use crate::sync::{AtomicU64, Ordering};

/// No bound.
pub const UNBOUNDED: u32 = (1 << 31) - 1;

const TAKEN: u64 = (1 << 32) - 1;
const CLOSED: u64 = 1 << 63;

/// How many slots a pool may give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolLimit {
    /// Slots of the pool; [`UNBOUNDED`]: as many as asked for.
    pub bound: u32,
    /// No slot is given at present.
    pub is_closed: bool,
}

impl PoolLimit {
    /// A pool that gives slots up to a bound.
    pub fn open(bound: u32) -> Self {
        Self { bound, is_closed: false }
    }
}

/// The state of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Slots that are taken; more than the bound after the bound was lowered.
    pub taken: u32,
    pub limit: PoolLimit,
}

impl Occupancy {
    fn of(word: u64) -> Self {
        let bound = (word >> 32) as u32 & UNBOUNDED;
        Self { taken: (word & TAKEN) as u32, limit: PoolLimit { bound, is_closed: word & CLOSED != 0 } }
    }

    fn word(self) -> u64 {
        let PoolLimit { bound, is_closed } = self.limit;
        u64::from(is_closed) << 63 | u64::from(bound.min(UNBOUNDED)) << 32 | u64::from(self.taken)
    }

    fn with_one_more(self) -> Self {
        Self { taken: self.taken.saturating_add(1), ..self }
    }

    /// Whether a slot may be taken now.
    pub fn has_free(self) -> bool {
        self.free() != Some(0)
    }

    /// Slots that may be taken now; `None`: as many as asked for.
    pub fn free(self) -> Option<u32> {
        match self.limit {
            PoolLimit { is_closed: true, .. } => Some(0),
            PoolLimit { bound: UNBOUNDED, .. } => None,
            PoolLimit { bound, .. } => Some(bound.saturating_sub(self.taken)),
        }
    }
}

/// The slots of one pool.
#[derive(Debug)]
pub struct SlotPool(AtomicU64);

impl SlotPool {
    /// A pool of `bound` slots, all free.
    pub fn new(bound: u32) -> Self {
        Self(AtomicU64::new(Occupancy { taken: 0, limit: PoolLimit::open(bound) }.word()))
    }

    /// The present state.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.0.load(Ordering::Acquire))
    }

    /// Takes a slot if one is free.
    pub fn take(&self) -> bool {
        self.update(|now| now.has_free().then(|| now.with_one_more()))
    }

    /// Takes a slot even beyond the bound.
    pub fn force(&self) {
        self.update(|now| Some(now.with_one_more()));
    }

    /// Gives a slot back.
    pub fn give(&self) {
        let had = self.update(|now| now.taken.checked_sub(1).map(|taken| Occupancy { taken, ..now }));
        debug_assert!(had, "a slot is given back that was not taken");
    }

    /// Changes the limit. Taken slots stay taken, also beyond the new bound.
    pub fn set(&self, limit: PoolLimit) {
        let bound = limit.bound.min(UNBOUNDED);
        self.update(|now| Some(Occupancy { limit: PoolLimit { bound, ..limit }, ..now }));
    }

    /// `false`: `change` returned `None`, nothing was changed.
    fn update(&self, change: impl Fn(Occupancy) -> Option<Occupancy>) -> bool {
        let word = |seen| change(Occupancy::of(seen)).map(Occupancy::word);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, word).is_ok()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PoolId(u8);

impl PoolId {
    /// The pool for all tiers.
    pub(super) const COMMON: Self = Self(0);

    /// The pool of a tier's own slots: the common one where the configuration cannot have any.
    pub(super) fn own(tier: TierId) -> Self {
        if usize::from(tier.0) < MAX_TIERS { Self(tier.0) } else { Self::COMMON }
    }
}

pub(super) struct SlotPools {
    /// By tier; the first is the common one. A tier without slots of its own has a pool with a bound of zero.
    pools: Box<[SlotPool]>,
}

impl SlotPools {
    pub(super) fn new() -> Self {
        Self { pools: (0..MAX_TIERS).map(|_| SlotPool::new(0)).collect() }
    }

    fn pool(&self, id: PoolId) -> &SlotPool {
        &self.pools[usize::from(id.0)]
    }

    pub(super) fn common(&self) -> &SlotPool {
        self.pool(PoolId::COMMON)
    }

    /// Sets the slots of single tiers; all other tiers have none of their own.
    pub(super) fn configure_own(&self, slots: &[(TierId, u32)]) {
        for (tier, pool) in self.pools.iter().enumerate().skip(1) {
            let own = slots.iter().find(|(id, _)| usize::from(id.0) == tier);
            pool.set(PoolLimit::open(own.map_or(0, |(_, slots)| (*slots).min(UNBOUNDED - 1))));
        }
    }

    /// Takes a slot for a session of a tier: one of its own before a common one.
    pub(super) fn take(&self, tier: TierId) -> Option<PoolId> {
        [PoolId::own(tier), PoolId::COMMON].into_iter().find(|id| self.pool(*id).take())
    }

    pub(super) fn take_own(&self, tier: TierId) -> Option<PoolId> {
        let own = PoolId::own(tier);
        (own != PoolId::COMMON && self.pool(own).take()).then_some(own)
    }

    /// As [`SlotPools::take`], also beyond the common bound.
    pub(super) fn take_beyond(&self, tier: TierId) -> PoolId {
        self.take_own(tier).unwrap_or_else(|| {
            self.common().force();
            PoolId::COMMON
        })
    }

    pub(super) fn give(&self, id: PoolId) {
        if !mutants::is(Mutant::SessionSlotIsLost) {
            self.pool(id).give();
        }
    }

    /// Counts a taken slot in another pool.
    pub(super) fn transfer(&self, from: PoolId, to: PoolId) {
        self.pool(from).give();
        self.pool(to).force();
    }

    /// Whether a session of the tier would get one of its own slots.
    pub(super) fn has_own(&self, tier: TierId) -> bool {
        let own = PoolId::own(tier);
        own != PoolId::COMMON && self.pool(own).occupancy().has_free()
    }

    pub(super) fn has_common(&self) -> bool {
        self.common().occupancy().has_free()
    }

    pub(super) fn taken_own(&self) -> u32 {
        self.pools.iter().skip(1).map(|pool| pool.occupancy().taken).sum()
    }

    pub(super) fn taken(&self) -> u64 {
        self.pools.iter().map(|pool| u64::from(pool.occupancy().taken)).sum()
    }

    /// The common pool, and those of tiers that have slots or sessions.
    pub(super) fn state(&self) -> Vec<PoolState> {
        let pools = (0_u8..).zip(&self.pools).map(|(tier, pool)| {
            let Occupancy { taken, limit } = pool.occupancy();
            let cap = (limit.bound != UNBOUNDED).then_some(limit.bound);
            PoolState { tier: TierId(tier), open: taken, cap }
        });
        pools.filter(|pool| pool.tier.0 == 0 || pool.open > 0 || pool.cap != Some(0)).collect()
    }
}
