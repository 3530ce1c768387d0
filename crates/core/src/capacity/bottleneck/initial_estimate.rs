//! The capacity before the origin was ever saturated: at least twice the best throughput seen, and growing
//! while visitors wait for an origin that has free slots.
//!
//! It cannot be measured, because without a backlog completions measure the load. An estimate that is too low
//! makes visitors of an idle origin wait in the room. One that is too high costs little, because the
//! in-flight limit holds whatever the room lets in.

use crate::capacity::GateLoad;

/// Cost units per second before anything is known: what a few workers serve of requests that take a tenth
/// of a second. Chosen with the gain of a ramp over it (`FIRST_GAIN` in `plan.rs`) so that 99 of 100 of a
/// first crowd at ten such workers are answered within three unloaded responses: with 20 and 30 it was 3.5,
/// since fewer ended while the limit was low. With 250 the first visitors waited for a second at the gate.
pub(super) const FIRST: f64 = 40.0;
/// The estimate as a multiple of the best throughput seen.
const OVER_BEST: f64 = 2.0;
/// Growth per tick while visitors wait for an origin with free slots: more than doubles in two ticks.
const GROWTH: f64 = 1.5;
const MOST: f64 = 1_000_000.0;
/// Growth ends at this multiple of the throughput, or of [`LEAST_BEST`] where that is more.
const MOST_OVER_BEST: f64 = 10.0;
const LEAST_BEST: f64 = 100.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct InitialEstimate {
    pub(super) rate: f64,
    pub(super) ended: f64,
    /// Decaying sums over about a second of cost units that ended and of seconds.
    served: f64,
    over_s: f64,
}

impl InitialEstimate {
    /// Starts from `start` cost units per second, or from [`FIRST`].
    pub fn new(start: Option<f64>) -> Self {
        let rate = start.filter(|rate| *rate > 0.0).unwrap_or(FIRST);
        Self { rate, ended: 0.0, served: 0.0, over_s: 0.0 }
    }

    /// A tick of `elapsed_s` has passed; `limit` requests may be in flight.
    pub fn tick(&mut self, load: &GateLoad, limit: u32, elapsed_s: f64) {
        if elapsed_s > 0.0 {
            let keep = (-elapsed_s).exp();
            self.served = keep * self.served + self.ended;
            self.over_s = keep * self.over_s + elapsed_s;
            self.ended = 0.0;
        }
        self.rate = self.rate.max(OVER_BEST * self.throughput());
        if starves(load, limit) {
            let most = (MOST_OVER_BEST * self.throughput().max(LEAST_BEST)).min(MOST);
            self.rate = self.rate.max((self.rate * GROWTH).min(most));
        }
    }

    /// A request is charged so many times what it was charged before, on average.
    pub fn recharge(&mut self, factor: f64) {
        self.rate *= factor;
        self.ended *= factor;
        self.served *= factor;
    }

    fn throughput(&self) -> f64 {
        if self.over_s > 0.0 { self.served / self.over_s } else { 0.0 }
    }
}

/// Whether visitors wait in the room while the origin has free slots and nobody queues for them, or is on the
/// way to them.
fn starves(load: &GateLoad, limit: u32) -> bool {
    load.room_waits && load.queued == 0 && load.coming == 0 && load.in_flight < limit
}
