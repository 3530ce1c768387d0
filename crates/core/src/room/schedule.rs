//! The schedule's density: how much is promised in a second, and from when on, as the capacity changes.

use super::Room;
use super::control::Control;
use crate::units::{Cost, Rate, Timestamp};

/// Estimates that differ by less leave the schedule as it is.
const SCHEDULE_STEP: f64 = 0.05;
/// Most cost units promised per second where places of sessions decide who enters: the schedule is an order then, and tickets count
/// milliseconds.
const MOST_IN_ORDER: f64 = 1_000.0;

impl Room {
    /// What a second may hold, in hundredths.
    pub(super) fn limit(&self, capacity: Rate, overbook: f64) -> Cost {
        if !self.seats.counts() {
            return limit(capacity, overbook);
        }
        limit(Rate::per_second(capacity.get().min(MOST_IN_ORDER)).unwrap_or_default(), overbook)
    }

    /// Makes the schedule for `rate` from now on.
    pub(super) fn fit_schedule(&self, control: &Control, rate: Rate, now: Timestamp) {
        let new = self.limit(rate, control.overbook);
        let hand = self.door.hand.at(now);
        let second = hand.max(now).second();
        let waits = self.last_due() > hand;
        if new < self.slots.limit() {
            if !waits {
                self.slots.settle(second, new);
            } else if new <= self.slots.limit_here() {
                let ahead = self.slots.ahead_of(hand.min(now)).cost;
                let seconds = ahead.hundredths().div_ceil(new.hundredths().max(1));
                self.slots.lower_limit(new, now.second() + seconds + 1);
            } else {
                // A rise that the frontier has not reached yet is taken back in part: here it is still a rise.
                self.slots.set_limit_ahead(new);
            }
        } else if control.config.rise_to_newcomers || !waits {
            self.open_from(second, new);
        } else if !self.lower_floor(new, hand, now) && new > self.slots.limit() {
            self.slots.set_limit_ahead(new);
        }
    }

    /// A floor that was set when less was believed keeps newcomers out for longer than what is promised takes now. Returns
    /// whether it did.
    fn lower_floor(&self, new: Cost, hand: Timestamp, now: Timestamp) -> bool {
        let ahead = self.slots.ahead_of(hand.min(now)).cost;
        let seconds = ahead.hundredths().div_ceil(new.hundredths().max(1));
        // Nor before anybody who waits.
        let needed = (now.second() + seconds).max(self.last_due().second()) + 1;
        let stands = self.slots.floor() > needed;
        if stands {
            self.slots.set_limit_from(needed, new);
            self.slots.set_floor(needed);
            self.slots.reopen(needed);
        }
        stands
    }

    /// Once everybody has had a turn there is nothing left for newcomers to come after.
    pub(super) fn forget_floor(&self, control: &Control, now: Timestamp) {
        let capacity = self.door.capacity();
        if !self.busy(now) && self.slots.floor() > now.second() + 1 && capacity > Rate::ZERO {
            self.slots.settle(now.second(), self.limit(capacity, control.overbook));
            self.slots.set_floor(now.second());
            self.slots.reopen(now.second());
        }
    }

    /// Newcomers are placed from `second` on, `limit` in each.
    fn open_from(&self, second: u64, limit: Cost) {
        self.slots.set_limit(limit);
        self.slots.set_floor(second);
        self.slots.reopen(second);
    }

    /// Whether the schedule is as good as made for `rate`. Every fall leaves a seam in it: an estimate that trembles must not
    /// make it all seams. The waits told go by the capacity in force, and the hand by the queue.
    pub(super) fn is_near(&self, rate: Rate, overbook: f64) -> bool {
        let (new, old) = (self.limit(rate, overbook).units(), self.slots.limit().units());
        (new / old - 1.0).abs() < SCHEDULE_STEP
    }
}

pub(super) fn limit(capacity: Rate, overbook: f64) -> Cost {
    Cost::from_hundredths(((capacity.get() * overbook * 100.0) as u64).max(1))
}
