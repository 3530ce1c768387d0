//! Disturbances of a replica's servers: pauses in which they stand still, neighbours who slow them.
//!
//! ```text
//! speed  1 ──────┐     ┌────────────────┐     ┌──────        every: from begin to begin
//!              0 └─────┘                └─────┘              lasts: from begin to end
//! ```
//!
//! Both times are drawn anew each time. A spell that is due while the last one still lasts begins when that
//! ends. The first one comes after a part of `every` that is drawn evenly, so that replicas with the same
//! fixed times do not pause in step. A replica has a generator of its own for this: its demands are the same
//! with and without spells.
//!
//! While nobody is served, spells have no effect and no events: an idle replica costs nothing.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::dist::Dist;
use crate::scenario::{OriginSpec, Spell};
use crate::times;

/// Shortest time from begin to begin: what comes more often than a timer ticks is a slower server, not a
/// pause.
const SHORTEST: Duration = Duration::from_millis(1);
/// Sets the draws here apart from those of demands.
const SALT: u64 = 0x7765_6174_6865_7221;

pub(super) struct Disturbances {
    courses: Vec<Course>,
    rng: SmallRng,
}

struct Course {
    spell: Spell,
    is_on: bool,
    /// When the present one ends, or the next one begins.
    next_us: u64,
    /// When the next one is due to begin, while one lasts.
    again_us: u64,
}

impl Disturbances {
    /// `None`: always fine.
    pub fn new(spec: &OriginSpec, seed: u64) -> Option<Self> {
        let mut rng = SmallRng::seed_from_u64(seed ^ SALT);
        let mut course = |spell: Spell| {
            let first = micros(&spell.every, &mut rng, SHORTEST) as f64 * rng.random::<f64>();
            Course { spell, is_on: false, next_us: first as u64, again_us: 0 }
        };
        let courses: Vec<_> = [spec.pause, spec.neighbour].into_iter().flatten().map(&mut course).collect();
        (!courses.is_empty()).then_some(Self { courses, rng })
    }

    pub fn next_us(&self) -> u64 {
        self.courses.iter().map(|course| course.next_us).min().unwrap_or(u64::MAX)
    }

    /// The part of a server's speed that all spells together leave.
    pub fn factor(&self) -> f64 {
        self.courses.iter().filter(|course| course.is_on).map(|course| course.spell.speed).product()
    }

    /// Does what is due at `now_us`.
    pub fn turn(&mut self, now_us: u64) {
        for course in self.courses.iter_mut().filter(|course| course.next_us <= now_us) {
            course.is_on = !course.is_on;
            if course.is_on {
                let every = micros(&course.spell.every, &mut self.rng, SHORTEST);
                let lasts = micros(&course.spell.lasts, &mut self.rng, Duration::ZERO);
                course.again_us = now_us.saturating_add(every);
                course.next_us = now_us.saturating_add(lasts);
            } else {
                course.next_us = course.again_us.max(now_us);
            }
        }
    }
}

fn micros(dist: &Dist, rng: &mut SmallRng, least: Duration) -> u64 {
    times::micros(dist.sample(rng).max(least))
}
