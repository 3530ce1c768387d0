//! What each second of the schedule can take: the limit that was in force when it was opened.
//!
//! An instant of the schedule stands for work only at the density its promises were made at: who is due in the middle of a second
//! that could take 2,000 is behind 1,000, also after the capacity has fallen to 10. Read by the new limit, the part of that
//! second that had expired before anybody was promised anything would pass for promised work, two hundred seconds of it.
//! So a change holds from a second on, and the steps before it are kept.
//!
//! ```text
//! steps (a ring, one word each):   {limit: 28, holds from second: 36}      the newest whose second is not later counts
//! ```
//!
//! Changes are the control side's, one at a time; readers walk back from the newest step, which for seconds that are being given
//! out is the first they look at. What more than [`KEPT`] changes since the hand's second have pushed out is read as the oldest
//! step that is left, and by what the second holds (`Slots::density`).
//!
//! Rejected: the limit beside the load, in the cell of each second. Lap, visitors and work leave no bits for it, and two words
//! cannot be changed as one.

use super::{SECOND_BITS, SECOND_MASK};
use crate::ring::MAX_COST;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Cost;

/// Steps kept, a power of two: a room that is made anew for changes of a twentieth only goes through some sixty from
/// ten times its capacity to a tenth and back.
#[cfg(not(loom))]
const KEPT: usize = 64;
#[cfg(loom)]
const KEPT: usize = 2;

pub(super) struct Limits {
    steps: Box<[AtomicU64]>,
    /// Which step is the newest, modulo [`KEPT`].
    newest: AtomicU64,
}

impl Limits {
    /// Closed.
    pub(super) fn new() -> Self {
        Self { steps: (0..KEPT).map(|_| AtomicU64::new(0)).collect(), newest: AtomicU64::new(0) }
    }

    fn step(&self, number: u64) -> &AtomicU64 {
        &self.steps[number as usize % KEPT]
    }

    fn newest(&self) -> u64 {
        self.step(self.newest.load(Ordering::Acquire)).load(Ordering::Acquire)
    }

    /// The limit of `second`, in hundredths.
    pub(super) fn of(&self, second: u64) -> u64 {
        let newest = self.newest.load(Ordering::Acquire);
        let mut word = 0;
        for back in 0..KEPT as u64 {
            word = self.step(newest.wrapping_sub(back)).load(Ordering::Acquire);
            if second >= word & SECOND_MASK {
                break;
            }
        }
        word >> SECOND_BITS
    }

    /// The limit of seconds to come, in hundredths.
    pub(super) fn last(&self) -> u64 {
        self.newest() >> SECOND_BITS
    }

    /// The second the newest limit holds from.
    pub(super) fn last_from(&self) -> u64 {
        self.newest() & SECOND_MASK
    }

    /// `limit` from `second` on; earlier seconds keep theirs. One caller at a time.
    pub(super) fn set_from(&self, second: u64, limit: Cost) {
        let word = (limit.hundredths().min(MAX_COST) << SECOND_BITS) | (second & SECOND_MASK);
        let newest = self.newest.load(Ordering::Acquire);
        if self.newest() & SECOND_MASK >= second {
            self.step(newest).store(word, Ordering::Release);
        } else {
            let next = newest.wrapping_add(1);
            self.step(next).store(word, Ordering::Release);
            self.newest.store(next, Ordering::Release);
        }
    }
}
