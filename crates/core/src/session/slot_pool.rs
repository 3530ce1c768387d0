//! Places of one pool, lock-free: how many are taken, how many there are, and whether any is given at present.
//!
//! One word holds all three, so that the last place goes to one of two who ask at once, and so that a change of the bound meets no
//! half of it:
//!
//! ```text
//!     63      62       32 31        0
//! [ closed | bound (31) | taken (32) ]
//! ```
//!
//! Rejected: two words, bound and taken (whoever reads the one and then the other takes a place of a bound that has been lowered
//! in between, and a model checker has twice as much to look at).

use crate::sync::{AtomicU64, Ordering};

/// No bound.
pub const UNBOUNDED: u32 = (1 << 31) - 1;

const TAKEN: u64 = (1 << 32) - 1;
const CLOSED: u64 = 1 << 63;

/// The places of one pool.
#[derive(Debug)]
pub struct SlotPool(AtomicU64);

/// What the word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Places that are taken.
    pub taken: u32,
    /// Places there are; [`UNBOUNDED`]: as many as come.
    pub bound: u32,
    /// None is given at present.
    pub is_closed: bool,
}

impl Filled {
    fn of(word: u64) -> Self {
        let bound = (word >> 32) as u32 & UNBOUNDED;
        Self { taken: (word & TAKEN) as u32, bound, is_closed: word & CLOSED != 0 }
    }

    fn word(self) -> u64 {
        u64::from(self.is_closed) << 63 | u64::from(self.bound.min(UNBOUNDED)) << 32 | u64::from(self.taken)
    }

    /// Whether one may be taken now.
    pub fn has_place(self) -> bool {
        !self.is_closed && (self.bound == UNBOUNDED || self.taken < self.bound)
    }

    /// Places that may be taken now; `None`: as many as come.
    pub fn free(self) -> Option<u32> {
        match (self.is_closed, self.bound) {
            (true, _) => Some(0),
            (false, UNBOUNDED) => None,
            (false, bound) => Some(bound.saturating_sub(self.taken)),
        }
    }
}

impl SlotPool {
    /// None is taken of so many.
    pub fn new(bound: u32) -> Self {
        Self(AtomicU64::new(Filled { taken: 0, bound, is_closed: false }.word()))
    }

    /// As it is now.
    pub fn filled(&self) -> Filled {
        Filled::of(self.0.load(Ordering::Acquire))
    }

    /// Takes a place if there is one.
    pub fn take(&self) -> bool {
        self.update(|now| now.has_place().then(|| Filled { taken: now.taken.saturating_add(1), ..now }))
    }

    /// Takes one in any case.
    pub fn force(&self) {
        self.update(|now| Some(Filled { taken: now.taken.saturating_add(1), ..now }));
    }

    /// A place is free again.
    pub fn give(&self) {
        let had = self.update(|now| now.taken.checked_sub(1).map(|taken| Filled { taken, ..now }));
        debug_assert!(had, "a place comes back that nobody took");
    }

    /// So many there are from now on, and whether any is given. Who has one keeps it.
    pub fn set(&self, bound: u32, is_closed: bool) {
        self.update(|now| Some(Filled { bound: bound.min(UNBOUNDED), is_closed, ..now }));
    }

    /// `false`: nothing was changed, `change` had nothing to say.
    fn update(&self, change: impl Fn(Filled) -> Option<Filled>) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let Some(new) = change(Filled::of(seen)) else { return false };
            match self.0.compare_exchange_weak(seen, new.word(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
    }
}
