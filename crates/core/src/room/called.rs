//! Work that was called and has not come: its turn is now or past, but the visitor has not asked since.
//!
//! ```text
//! P  =  show-up ratio * waits called  -  what of them was redeemed
//! ```
//!
//! over the seconds of the schedule from the first that is not judged for no-shows to the hand. All of it comes before
//! whoever is told to wait, whenever it comes: the wait is for `P` too. With pages that ask every second it is half a second's
//! work. But whoever sleeps until the instant told first, as RFC 9110's Retry-After has it, misses that the hand went ahead
//! meanwhile, and for as long as the sleepers stay away the hand goes on to others: `P` is then as much as the hand has gone
//! ahead of the clock, tens of seconds of work that a wait told from the hand on would have left out.
//!
//! Summed up before it is compared: second by second what came beyond the ratio would be lost, and `P` be too much.
//! Where a queue is kept at the gate, the hand is steered with its own account of those on their way (`room/window.rs`).

use super::Room;
use crate::ring::Load;
use crate::slots::position_to_work;
use crate::sync::Ordering;
use crate::units::{Cost, Timestamp};

impl Room {
    /// On every tick: requests read one number.
    pub(super) fn count_called(&self, keeps_queue: bool, now: Timestamp) {
        let called = if keeps_queue { 0.0 } else { self.called_until(self.door.hand.at(now)) };
        self.called.store((called * 100.0) as u64, Ordering::Relaxed);
    }

    /// Cost units.
    fn called_until(&self, hand: Timestamp) -> f64 {
        let (first, last) = (self.judged.load(Ordering::Acquire), hand.second());
        if last < first {
            return 0.0;
        }
        let (whole, shown): (Load, Load) = (self.waits.sum(first, last), self.shown.sum(first, last + 1));
        // The hand's own second has been called as far as the hand has come in it. Those who wait are its last: before them lies
        // what had expired, is charged for the dear, or was taken by who entered at once.
        let promised = self.slots.promised(last);
        let reached = position_to_work(hand, self.slots.density(last, promised));
        let to_come = promised.cost.hundredths().saturating_sub(reached);
        let part = self.waits.load(last).cost.saturating_sub(Cost::from_hundredths(to_come)).units();
        (self.show_up_told() * (whole.cost.units() + part) - shown.cost.units()).max(0.0)
    }

    /// Work that was called and is expected to come, in cost units, as of the last tick.
    pub(super) fn called(&self) -> f64 {
        self.called.load(Ordering::Relaxed) as f64 / 100.0
    }

    /// Share of promised work that comes, as learned.
    pub(super) fn show_up(&self) -> f64 {
        f64::from_bits(self.show_up.load(Ordering::Relaxed))
    }

    /// The same as waits are told with it: more by its error.
    pub(super) fn show_up_told(&self) -> f64 {
        f64::from_bits(self.show_up_told.load(Ordering::Relaxed))
    }
}
