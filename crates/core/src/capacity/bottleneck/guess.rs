//! The capacity before the origin has ever been saturated: at least twice the best throughput seen, and more while people wait
//! for an origin that has places free.
//!
//! It cannot be measured: without a backlog completions tell of the load. A guess that is too low makes visitors of an idle
//! origin wait in the room; one that is too high costs little, since the in-flight limit holds whatever the room lets through.

use crate::capacity::Load;

/// Cost units per second before anything is known.
pub(super) const FIRST: f64 = 100.0;
/// The guess over the best throughput seen.
const OVER_BEST: f64 = 2.0;
/// Growth per tick in which somebody waits in the room for nothing: more than doubles in two ticks.
const GROWTH: f64 = 1.5;
const MOST: f64 = 1_000_000.0;

/// The guess.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    rate: f64,
    /// Cost units that ended in the present tick.
    ended: f64,
    /// Mean of the last second or so.
    throughput: f64,
}

impl Guess {
    pub fn new(start: Option<f64>) -> Self {
        Self { rate: start.filter(|rate| *rate > 0.0).unwrap_or(FIRST), ended: 0.0, throughput: 0.0 }
    }

    /// Work that was served.
    pub fn served(&mut self, cost: f64) {
        self.ended += cost;
    }

    /// A tick of `elapsed_s` has passed; `limit` requests may be in flight.
    pub fn tick(&mut self, load: &Load, limit: u32, elapsed_s: f64) {
        if elapsed_s > 0.0 {
            let keep = (-elapsed_s).exp();
            self.throughput = keep * self.throughput + (1.0 - keep) * self.ended / elapsed_s;
            self.ended = 0.0;
        }
        self.rate = self.rate.max(OVER_BEST * self.throughput);
        if starves(load, limit) {
            self.rate = (self.rate * GROWTH).min(MOST);
        }
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// Somebody waits in the room while the origin has places free and nobody queues for them.
pub(super) fn starves(load: &Load, limit: u32) -> bool {
    load.room_waits && load.queued == 0 && load.in_flight < limit
}
