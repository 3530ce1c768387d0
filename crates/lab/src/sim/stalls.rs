//! Stalls of the whole machine: gate, origin and everything else stand still, and go on where they were.
//!
//! ```text
//! time of the world    0 ────────── s       e ──────────
//! time of the origin   0 ────────── s       s ──────────      what is due from s to e happens at e
//! ```
//!
//! So ticks, answers and arrivals from `s` to `e` all come at `e`, in their order, and the origin's servers
//! have done nothing meanwhile. That is how a virtual machine looks whose host stands still: requests that
//! arrived wait in the kernel. Stalls are drawn by a generator of their own: demands and visitors are the
//! same with and without them.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::scenario::Spell;
use crate::times::micros;

/// Sets the draws here apart from all others.
const SALT: u64 = 0x7374_616c_6c73_2e2e;

pub(crate) struct Stalls {
    spell: Spell,
    rng: SmallRng,
    /// When the next one begins.
    begins_us: u64,
    /// When the last one has ended.
    ended_us: u64,
}

impl Stalls {
    pub(crate) fn new(spell: Spell, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ SALT);
        let begins_us = micros(spell.every.sample(&mut rng));
        Self { spell, rng, begins_us, ended_us: 0 }
    }

    /// Whether one begins by `next_us`, when something is due; returns how long it lasts.
    pub(crate) fn begin_by(&mut self, next_us: u64) -> Option<u64> {
        if next_us < self.begins_us || next_us == u64::MAX {
            return None;
        }
        let lasts_us = micros(self.spell.lasts.sample(&mut self.rng));
        let again_us = self.begins_us.saturating_add(micros(self.spell.every.sample(&mut self.rng)));
        self.ended_us = self.begins_us.saturating_add(lasts_us);
        self.begins_us = again_us.max(self.ended_us + 1);
        Some(lasts_us)
    }

    /// When something happens that is due at `at_us`.
    pub(crate) fn happens_at(&self, at_us: u64) -> u64 {
        at_us.max(self.ended_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Dist;

    fn spell(every_s: f64, lasts_s: f64) -> Spell {
        Spell { every: Dist::Fixed(every_s), lasts: Dist::Fixed(lasts_s), speed: 0.0 }
    }

    #[test]
    fn what_is_due_in_a_stall_happens_at_its_end() {
        let mut stalls = Stalls::new(spell(10.0, 0.5), 1);
        assert_eq!(stalls.begin_by(9_999_999), None);
        assert_eq!(stalls.begin_by(10_000_000), Some(500_000));
        assert_eq!(stalls.begin_by(10_200_000), None, "it lasts");
        assert_eq!(stalls.happens_at(10_200_000), 10_500_000);
        assert_eq!(stalls.happens_at(10_600_000), 10_600_000);
        // One after another, however long nothing is due.
        assert_eq!(stalls.begin_by(31_000_000), Some(500_000));
        assert_eq!(stalls.begin_by(31_000_000), Some(500_000));
        assert_eq!(stalls.begin_by(31_000_000), None);
        assert_eq!(stalls.happens_at(20_100_000), 30_500_000);
    }

    #[test]
    fn a_stall_that_is_due_while_one_lasts_begins_after_it() {
        let mut stalls = Stalls::new(spell(1.0, 3.0), 1);
        assert_eq!(stalls.begin_by(1_000_000), Some(3_000_000));
        assert_eq!(stalls.begin_by(4_000_000), None);
        assert_eq!(stalls.begin_by(4_000_001), Some(3_000_000));
    }
}
