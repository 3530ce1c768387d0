//! What becomes of a request beside its demand: an error at once, or an answer that goes on for a while.
//!
//! Drawn by a generator of its own, so that the demands of others are the same with and without.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::nanoseconds;
use crate::dist::Dist;
use crate::scenario::{Errors, OriginSpec, PathSpec};
use crate::times::micros;

/// Sets the draws here apart from those of demands.
const SALT: u64 = 0x6661_7465_7366_6174;

pub(super) struct Fates {
    paths: Vec<(Errors, Option<Dist>)>,
    /// Counts over the paths' own shares.
    share: Option<f64>,
    pub may_fail: bool,
    pub may_stream: bool,
    rng: SmallRng,
}

impl Fates {
    pub fn new(spec: &OriginSpec, seed: u64) -> Self {
        let fate = |path: &PathSpec| (path.errors, path.stream);
        Self {
            paths: spec.paths.iter().map(fate).collect(),
            share: None,
            may_fail: spec.paths.iter().any(|path| path.errors.share > 0.0),
            may_stream: spec.paths.iter().any(|path| path.stream.is_some()),
            rng: SmallRng::seed_from_u64(seed ^ SALT),
        }
    }

    pub fn set_errors(&mut self, share: f64) {
        self.share = Some(share);
        self.may_fail = share > 0.0;
    }

    /// Nanoseconds of work until a request is answered with an error; `None`: it is not.
    pub fn error(&mut self, path: usize) -> Option<u64> {
        let errors = &self.paths[path].0;
        let share = self.share.unwrap_or(errors.share);
        (self.rng.random::<f64>() < share).then(|| nanoseconds(errors.demand.sample(&mut self.rng)))
    }

    /// Microseconds for which an answer goes on after its head.
    pub fn stream(&mut self, path: usize) -> u64 {
        self.paths[path].1.map_or(0, |dist| micros(dist.sample(&mut self.rng)))
    }
}
