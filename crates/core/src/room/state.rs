//! The room in figures, for whoever looks on. Read by no decision.

use std::time::Duration;

use super::Room;
use crate::ring::Load;
use crate::units::{Cost, Timestamp};

/// The room in figures.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RoomState {
    /// Visitors promised a place that the hand has not reached.
    pub waiting: u64,
    /// Work promised from the hand on.
    pub promised: Cost,
    /// Wait of a newcomer.
    pub wait: Duration,
    /// Seconds by which the hand is ahead of the clock; negative: behind.
    pub lead_s: f64,
    /// Share of the promised work that comes to be redeemed.
    pub show_up: f64,
    /// Promises per second as a multiple of capacity.
    pub overbook: f64,
    /// First second that may have room.
    pub frontier: u64,
    /// Work admitted beyond what capacity has done, as seconds at capacity.
    pub backlog_s: f64,
    /// Nonces kept.
    pub redeemed: usize,
}

impl Room {
    /// Promises per second as a multiple of capacity, without the rest of [`Room::state`].
    pub fn overbook(&self) -> f64 {
        self.control().overbook
    }

    /// The room in figures.
    pub fn state(&self, now: Timestamp) -> RoomState {
        let hand = self.door.hand.at(now);
        let promised = self.slots.between(hand, self.last_due().max(now) + Duration::from_secs(1));
        let mut waiting = 0;
        for second in hand.second() + 1..=self.last_due().second() {
            let (waits, shown): (Load, Load) = (self.waits.load(second), self.shown.load(second));
            waiting += waits.visitors.saturating_sub(shown.visitors);
        }
        let next = Timestamp::from_secs(self.slots.frontier()).max(now);
        let wait =
            if self.busy(now) { self.wait(next.min(self.last_due()), now).wait } else { Duration::ZERO };
        RoomState {
            waiting,
            promised: promised.cost,
            wait,
            lead_s: hand.as_micros() as f64 / 1e6 - now.as_micros() as f64 / 1e6,
            show_up: self.show_up(),
            overbook: self.control().overbook,
            frontier: self.slots.frontier(),
            backlog_s: self.door.backlog_s(now),
            redeemed: self.door.redeemed.len(),
        }
    }
}
