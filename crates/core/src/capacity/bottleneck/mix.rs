//! Which work arrives at present: mean cost of a request as configured and as learned, since the mix last changed.
//!
//! The capacity is learned in learned units and told in configured ones, so it is multiplied by configured / learned cost of
//! the present mix. That mix must be long, for its noise goes into the capacity, and new, for a shift changes it at once: a
//! two-sided CUSUM on the learned cost (Page 1954) tells when the old one ends.

use super::meter::Work;

/// Standard deviations of drift that are no shift, and the sum at which one is believed: once in 20,000 samples by chance.
const DRIFT: f64 = 0.5;
const SHIFT: f64 = 10.0;
/// Samples remembered.
const MEMORY: f64 = 3000.0;
/// Before so many, nothing is tested.
const LEAST: f64 = 60.0;

/// The mix.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Mix {
    all: Work,
    squares: f64,
    up: (f64, Work),
    down: (f64, Work),
}

impl Mix {
    /// A request of `units` learned and `cost` configured. Returns whether the mix has shifted.
    pub fn add(&mut self, count: f64, units: f64, cost: f64) -> bool {
        let work = Work { count, units: count * units, cost: count * cost, time_s: 0.0 };
        let shifted = self.test(units, &work);
        self.all.add(&work);
        self.squares += count * units * units;
        if self.all.count > MEMORY {
            let keep = 0.8;
            self.all.scale(keep);
            self.squares *= keep;
        }
        shifted
    }

    fn test(&mut self, units: f64, work: &Work) -> bool {
        if self.all.count < LEAST {
            return false;
        }
        let mean = self.units_per_request();
        let variance = self.squares / self.all.count - mean * mean;
        if variance < 1e-6 * mean * mean {
            return false;
        }
        let z = ((units - mean) / variance.sqrt()).clamp(-4.0, 4.0);
        let (up, down) = (self.up.0 + z - DRIFT, self.down.0 - z - DRIFT);
        for ((sum, since), next) in [(&mut self.up, up), (&mut self.down, down)] {
            *sum = next.max(0.0);
            since.add(work);
            if *sum == 0.0 {
                *since = Work::default();
            }
        }
        let most = if self.up.0 > self.down.0 { self.up } else { self.down };
        if most.0 <= SHIFT || most.1.count < 10.0 {
            return false;
        }
        let spread = self.squares / self.all.count;
        *self = Self { all: most.1, squares: spread * most.1.count, ..Self::default() };
        true
    }

    /// Mean learned cost.
    pub fn units_per_request(&self) -> f64 {
        if self.all.count > 0.0 && self.all.units > 0.0 { self.all.units / self.all.count } else { 1.0 }
    }

    /// Configured cost per learned one.
    pub fn cost_per_unit(&self) -> f64 {
        if self.all.units > 0.0 { self.all.cost / self.all.units } else { 1.0 }
    }
}
