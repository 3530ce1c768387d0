//! What follows from a spec alone: capacity, and what contention costs (see the formula in `model.rs`).

use std::time::Duration;

use crate::dist::Dist;
use crate::scenario::{OriginSpec, PathSpec, Spell, Stage};

impl OriginSpec {
    /// A pool with one stage: every request takes `service`.
    pub fn pool(workers: u32, service: Duration, backlog: u32, contention: f64) -> Self {
        Self {
            workers,
            backlog,
            contention,
            stages: vec![Stage::new("app", workers)],
            paths: vec![PathSpec {
                body_bytes: 0,
                path: "/**".into(),
                demand: vec![(0, Dist::fixed(service))],
                ..PathSpec::default()
            }],
            ..Self::default()
        }
    }

    /// Requests per second of one path that all replicas serve together while nobody has to wait: workers over the whole
    /// demand, or servers over the demand at the stage where that is least. Infinite for a path that demands nothing. While no
    /// spell lasts: see [`OriginSpec::availability`].
    pub fn capacity(&self, path: usize) -> f64 {
        let demand = |at: Option<usize>| -> f64 {
            let all = self.paths[path].demand.iter();
            all.filter(|(stage, _)| at.is_none_or(|at| at == *stage))
                .map(|(_, d)| d.mean().as_secs_f64())
                .sum()
        };
        let stages = self.stages.iter().enumerate();
        let stages = stages.map(|(i, stage)| f64::from(stage.servers) / demand(Some(i)));
        f64::from(self.replicas) * stages.fold(f64::from(self.workers) / demand(None), f64::min)
    }

    /// What pauses and neighbours leave of the capacity in the mean, from 0 to 1. As far as a spell never lasts longer than
    /// it is from its begin to the next one's, the exact mean.
    pub fn availability(&self) -> f64 {
        let left = |spell: &Spell| {
            let share = spell.lasts.mean().as_secs_f64() / spell.every.mean().as_secs_f64();
            1.0 - share.min(1.0) * (1.0 - spell.speed)
        };
        [&self.pause, &self.neighbour].into_iter().flatten().map(left).product()
    }
}

/// How many times longer a request takes that a worker takes while `present` are there, itself included.
pub fn contention_factor(contention: f64, workers: u32, present: u32) -> f64 {
    let beyond = f64::from(present.saturating_sub(workers)) / f64::from(workers.max(1));
    1.0 + contention * beyond * beyond
}
