//! What `[origin]` says, checked: the service as a model.

use std::time::Duration;

use super::shop::ShopSpec;
use crate::dist::Dist;

/// The service. As a model: a pool of workers with a bounded backlog in each replica; a worker takes a
/// request through its stages, one after another, each with a number of servers and a queue of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSpec {
    /// Requests a replica serves at once (w).
    pub workers: u32,
    /// Requests that may wait for a worker; further ones are refused.
    pub backlog: u32,
    /// Strength of contention (a): a request taken with n present takes 1 + a((n − w)/w)² times as long, n >
    /// w.
    pub contention: f64,
    pub replicas: u32,
    pub mode: Mode,
    /// Named resources; at least one.
    pub stages: Vec<Stage>,
    /// Work by URL; the first that matches counts, the last one matches everything.
    pub paths: Vec<PathSpec>,
    /// Whether a worker stops when its visitor has left. Most services do not.
    pub notices_leavers: bool,
    /// Times in which all servers of a replica stand still, as while a runtime collects its garbage; speed 0.
    pub pause: Option<Spell>,
    /// Times in which all servers of a replica are slower, as beside a busy neighbour on the same host.
    pub neighbour: Option<Spell>,
    /// What changes while running, in order of time.
    pub changes: Vec<Change>,
    /// A real service in place of the model, where there are sockets.
    pub shop: Option<ShopSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Time passes: virtual servers, any number on one core.
    Sleep,
    Spin,
}

/// A named resource of each replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub name: String,
    /// How many requests it works on at once.
    pub servers: u32,
    pub discipline: Discipline,
}

/// Who is served when there are more requests than servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served; the others stand in line.
    #[default]
    Fifo,
    /// Everybody at once, each at an even share: c servers serve n requests at min(1, c/n) each.
    Sharing,
}

/// A disturbance that comes over each replica from time to time, independently, and slows all of its servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    /// Time from the begin of one to the begin of the next, or its end if that is later; at least 1 ms.
    pub every: Dist,
    /// Time from begin to end.
    pub lasts: Dist,
    /// Speed of the servers meanwhile, as a factor: 0 stands still.
    pub speed: f64,
}

/// What requests for some URLs ask of the service.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Glob over the path, as in a gate's `class.match.path`.
    pub path: String,
    /// Service demand at each stage, by its index, in the order they are visited.
    pub demand: Vec<(usize, Dist)>,
    /// Length of the answer's body.
    pub body_bytes: usize,
    /// How long the answer goes on after its head, without holding a server or a worker; `None`: it is sent
    /// at once.
    pub stream: Option<Dist>,
    /// Requests answered with an error instead.
    pub errors: Errors,
}

/// Requests that are answered with an error at once, without a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Share of all requests.
    pub share: f64,
    /// Time until the answer, at a speed of 1.
    pub demand: Dist,
    /// Status of the answer, 500 to 599.
    pub status: u16,
}

/// A change of the service while running. What is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    pub at: Duration,
    pub replicas: Option<u32>,
    pub workers: Option<u32>,
    /// Speed of every server: 0.5 doubles all demands.
    pub speed: Option<f64>,
    /// Share of all requests answered with an error, whatever their paths say.
    pub errors: Option<f64>,
}

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

    /// As many replicas as there will ever be.
    pub fn most_replicas(&self) -> u32 {
        self.changes.iter().filter_map(|change| change.replicas).fold(self.replicas, u32::max)
    }

    /// Requests per second of one path that all replicas serve together while nobody has to wait: workers
    /// over the whole demand, or servers over the demand at the stage where that is least. Infinite for a
    /// path that demands nothing. While no spell lasts: see [`OriginSpec::availability`].
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

    /// What pauses and neighbours leave of the capacity in the mean, from 0 to 1. As far as a spell never
    /// lasts longer than it is from its begin to the next one's, the exact mean.
    pub fn availability(&self) -> f64 {
        let left = |spell: &Spell| {
            let share = spell.lasts.mean().as_secs_f64() / spell.every.mean().as_secs_f64();
            1.0 - share.min(1.0) * (1.0 - spell.speed)
        };
        [&self.pause, &self.neighbour].into_iter().flatten().map(left).product()
    }
}
