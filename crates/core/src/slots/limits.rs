//! The limit of each second of the schedule: the one in force when the second was opened.
//!
//! An instant of the schedule translates to work only at the density its promises were made at: a visitor due
//! in the middle of a second that could take 2,000 is behind 1,000, also after the capacity has fallen to 10.
//! Read by the new limit, the part of that second that had expired before any promise would pass for promised
//! work, two hundred seconds of it. So a change holds from a second on, and the steps before it are kept.
//!
//! Changes are made by the control side, one at a time. Readers walk back from the newest step, which for
//! seconds that are being given out is the first they look at. Seconds whose step was pushed out by more than
//! [`KEPT`] changes are read by the oldest step that is left, and by what the second holds.
//!
//! Rejected: the limit beside the load, in the cell of each second. Lap, visitors and work leave no bits for
//! it, and two words cannot be changed as one.

use super::{SECOND_BITS, SECOND_MASK};
use crate::ring::MAX_COST;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Cost;

/// Steps kept, a power of two: a schedule that is changed by a twentieth at a time goes through some sixty
/// from ten times its capacity to a tenth and back.
#[cfg(not(loom))]
const KEPT: usize = 64;
#[cfg(loom)]
const KEPT: usize = 2;

/// A limit and the second it holds from: `{limit in hundredths: 28, second: 36}`.
#[derive(Clone, Copy)]
struct Step(u64);

impl Step {
    fn new(from: u64, limit: Cost) -> Self {
        Self((limit.hundredths().min(MAX_COST) << SECOND_BITS) | (from & SECOND_MASK))
    }

    fn limit(self) -> u64 {
        self.0 >> SECOND_BITS
    }

    fn from(self) -> u64 {
        self.0 & SECOND_MASK
    }
}

pub(super) struct Limits {
    /// A ring of [`Step`]s.
    steps: Box<[AtomicU64]>,
    /// Number of the newest step, which is its index modulo [`KEPT`].
    newest: AtomicU64,
}

impl Limits {
    /// Closed.
    pub(super) fn new() -> Self {
        Self { steps: (0..KEPT).map(|_| AtomicU64::new(0)).collect(), newest: AtomicU64::new(0) }
    }

    fn cell(&self, number: u64) -> &AtomicU64 {
        &self.steps[number as usize % KEPT]
    }

    fn step(&self, number: u64) -> Step {
        Step(self.cell(number).load(Ordering::Acquire))
    }

    fn newest(&self) -> Step {
        self.step(self.newest.load(Ordering::Acquire))
    }

    /// The limit of `second`, in hundredths.
    pub(super) fn of(&self, second: u64) -> u64 {
        let newest = self.newest.load(Ordering::Acquire);
        let mut step = Step(0);
        for back in 0..KEPT as u64 {
            step = self.step(newest.wrapping_sub(back));
            if second >= step.from() {
                break;
            }
        }
        step.limit()
    }

    /// The limit of seconds to come, in hundredths.
    pub(super) fn last(&self) -> u64 {
        self.newest().limit()
    }

    /// The second the newest limit holds from.
    pub(super) fn last_from(&self) -> u64 {
        self.newest().from()
    }

    /// `limit` from `second` on; earlier seconds keep theirs. One caller at a time.
    pub(super) fn set_from(&self, second: u64, limit: Cost) {
        let step = Step::new(second, limit);
        let newest = self.newest.load(Ordering::Acquire);
        if self.newest().from() >= second {
            self.cell(newest).store(step.0, Ordering::Release);
        } else {
            let next = newest.wrapping_add(1);
            self.cell(next).store(step.0, Ordering::Release);
            self.newest.store(next, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_the_limit_they_were_opened_with() {
        let limits = Limits::new();
        assert_eq!(limits.of(5), 0, "closed");
        limits.set_from(0, Cost::from_hundredths(100));
        limits.set_from(10, Cost::from_hundredths(200));
        limits.set_from(20, Cost::from_hundredths(50));
        let of = |second| limits.of(second);
        assert_eq!([9, 10, 19, 20].map(of), [100, 200, 200, 50]);
        assert_eq!((limits.last(), limits.last_from()), (50, 20));
        // A change from a second before the newest step replaces that step only.
        limits.set_from(15, Cost::from_hundredths(70));
        assert_eq!([9, 10, 14, 15, 99].map(of), [100, 200, 200, 70, 70]);
    }

    #[test]
    fn a_step_fits_one_word() {
        let step = Step::new(SECOND_MASK, Cost::from_hundredths(u64::MAX));
        assert_eq!((step.from(), step.limit()), (SECOND_MASK, MAX_COST));
    }
}
