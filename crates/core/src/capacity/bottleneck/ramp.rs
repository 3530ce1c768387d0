//! The ramp: how the limit grows until the knee is found.
//!
//! For every request that ends one more is sent, as in TCP's slow start, so that the number in flight doubles
//! within a response time. After every tick the samples are fitted, and with them the time of requests that
//! are still open. What the fit says of a knee below the limit decides:
//!
//! ```text
//! 0 to 2 nats   grow
//! from 2        go to the best level for what is known (level.rs)
//! from 5        the knee is found, and the cruise begins
//! ```
//!
//! in nats per dispersion, by which the knee must be likelier than none. Where it is likelier by less than 2
//! in the first rounds of a cruise, the search goes on: the requests that were open have ended without a
//! wait. (Not where it ended at the highest limit allowed, beyond which there is nothing to find.) Drawn
//! origins 1 to 40, 201 to 240, 301 to 380 and 401 to 480, with φ of open requests where it is φ² now: .9582
//! at 1.54 (.9563 at 1.53 without).
//!
//! Measured on the drawn origins 401 to 480: goodput .946 (worst tenth .864, worst .703) at 1.57 times the
//! unloaded response time. With rounds of as many requests as are in flight, each level twice the one
//! before, it was .933 (.818, .390) at 1.52.
//!
//! Rejected (drawn origins 1 to 40, 201 to 240 and 301 to 380, before the last corrections):
//! - open requests that count with all of their time: .9471 and 1.44
//! - no return before the knee is found: .9451 and 1.64, and .19 at two slow workers with contention
//! - growth by half a request for each that ends: .940 and 1.45
//! - at most twice as many after a tick: .9447 and 1.37; 4 at once after the first: .9504 and 1.61
//! - growth by 0.6 for each that ends where requests wait already: the same on drawn origins, but at 54 even
//!   workers of a second 55 of 2,000 runs served less than 50 a second after ten seconds, and none without

use super::plan::{self, Purpose};
use super::work::ENOUGH;
use super::{Bottleneck, Dispersion, Fitted, GateLoad, Timestamp};

/// Nats per dispersion by which a knee must be likelier than none: to end the ramp, and to hold it.
///
/// Ending it at 4 nats: where the mix of classes shifts, .967 is served instead of .977 (median of nine
/// seeds). At 6 nats: .9827 in the named scenarios instead of .9840, and the same on drawn origins.
const FOUND_NATS: f64 = 5.0;
pub(super) const PASSED_NATS: f64 = 2.0;
/// Share of the limit below which a fitted knee counts as passed.
const PASSED: f64 = 0.85;
/// Most growth in a tick: a fast origin answers many times within one, at one level.
const MOST_GROWTH: f64 = 4.0;
/// The level at which those were sent that have ended, over the limit: the mean of a doubling.
const SENT_AT: f64 = 0.7;

/// What happened since the limit grew.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ramp {
    /// Samples since the last tick, and since the limit grew.
    ended: f64,
    held: f64,
    /// The level at which the last ramp ended.
    pub ended_at: f64,
    /// A knee below the limit is likely.
    is_passed: bool,
    /// Samples of which the variation is not taken yet: how many, and the sums of their response times per
    /// unit and of the squares.
    batch: (f64, f64, f64),
}

impl Ramp {
    /// None is under way, and the last one ended at this level.
    pub fn ended(level: f64) -> Self {
        Self { ended_at: level, ..Self::default() }
    }

    /// `count` requests took `response_s` per unit each.
    pub fn add(&mut self, count: f64, response_s: f64) {
        self.ended += count;
        let (all, sum, squares) = self.batch;
        self.batch = (all + count, sum + count * response_s, squares + count * response_s * response_s);
    }

    /// A tick is over. Returns how many have ended in it.
    fn tick(&mut self, dispersion: &mut Dispersion) -> f64 {
        let (count, sum, squares) = self.batch;
        if count >= ENOUGH {
            let mean = sum / count;
            let squared = (squares / count / (mean * mean) - 1.0) * count / (count - 1.0);
            dispersion.learn(count, squared.max(0.0));
            self.batch = (0.0, 0.0, 0.0);
        }
        self.held += self.ended;
        std::mem::take(&mut self.ended)
    }
}

impl Bottleneck {
    /// The step after a tick of the ramp.
    pub(super) fn ramp_on(&mut self, load: &GateLoad, now: Timestamp) {
        let ended = self.ramp.tick(&mut self.dispersion);
        let phi = self.dispersion.get();
        let fitted = self.fit(load, now, phi);
        let level = self.target;
        let beyond = |nats: f64| {
            fitted.filter(|Fitted { hinge, .. }| hinge.knee < PASSED * level && hinge.gain / phi > nats)
        };
        if let Some(fitted) = beyond(FOUND_NATS) {
            return self.found(fitted, now);
        }
        if level >= self.most() {
            // The ramp ends here, also where a probe's number of samples has not decided it. Before that the
            // level is held and watched, and old samples fade.
            let is_undecided = self.ramp.held >= plan::round_length(Purpose::Up, level, phi);
            let is_over = |fitted: &Fitted| fitted.hinge.knee >= PASSED * level || is_undecided;
            if let Some(fitted) = fitted.filter(is_over) {
                return self.found(fitted, now);
            }
            self.curves.fade(level, self.config.memory);
        }
        if let Some(Fitted { hinge, .. }) = fitted.filter(|_| self.curves.likelier().samples() >= ENOUGH) {
            let n = SENT_AT * (level - self.long_lived.level).max(1.0);
            self.ramp_throughput = Some(n / (hinge.base_s * hinge.slowdown(n)) * self.mix.cost_per_unit());
        }
        let passed = beyond(PASSED_NATS);
        self.ramp.is_passed = passed.is_some();
        match passed {
            Some(fitted) if fitted.level < level => self.go(Purpose::Ramp, fitted.level, now),
            None if ended > 0.0 && level < self.most() => {
                self.ramp.held = 0.0;
                self.go(Purpose::Ramp, (level + ended).min(MOST_GROWTH * level), now);
            }
            Some(_) | None => {}
        }
    }

    /// What the room lets in over the capacity. Once the knee is likely to be passed the limit grows no more.
    pub(super) fn gain(&self) -> f64 {
        let holds = self.purpose == Purpose::Ramp && self.ramp.is_passed;
        if holds { Purpose::Cruise } else { self.purpose }.gain(self.ramp_throughput.is_some())
    }
}
