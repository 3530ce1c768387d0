//! The best fixed in-flight limit of each stretch, by an offline sweep.
//!
//! Between two changes nothing changes, so a stretch's origin is played by itself, from a backlog, with one
//! limit after another on a grid that is fine around the number of its workers. Best is the highest goodput
//! with a mean response time of at most 1.5 times the unloaded one (one request at a time); of limits within
//! 0.2 % of it, which a sweep cannot tell apart, the least.

use std::time::Duration;

use tidegate_core::capacity::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use tidegate_core::units::{Rate, Timestamp};

use super::trace::p99_s;
use super::{ArenaSpec, Feed};
use crate::scenario::{Change, OriginSpec};

/// Mean response time the oracle may reach, over the unloaded one.
const MOST_RESPONSE: f64 = 1.5;
/// Goodputs that differ by less are the same.
const ALIKE: f64 = 0.002;
/// Requests that a limit is judged by, about: the goodput of exponential service is then known to 0.3 %.
const REQUESTS: f64 = 100_000.0;
/// At least so long, so that what happens now and then happens some times.
const AT_LEAST_S: f64 = 60.0;
/// Part of a run that is not counted.
const WARM_UP: f64 = 0.1;
/// Most requests in flight per server, for answers that stream after they are served.
const MOST_PER_SERVER: u32 = 64;
/// Share of the best goodput seen below which more in flight is not tried.
const BEYOND: f64 = 0.8;
/// Seeds of the sweep, out of the way of those of runs.
const SEED: u64 = 0x0F_AC1E;

/// A time in which nothing changes, and what the origin can do then.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    pub from_s: usize,
    /// The second after the last one.
    pub to_s: usize,
    pub limit: u32,
    /// Its goodput, in cost units per second.
    pub capacity: f64,
    /// Mean response time unloaded, in seconds.
    pub unloaded_s: f64,
    /// 99th percentile of the response time unloaded, in seconds.
    pub unloaded_p99_s: f64,
}

/// Holds one in-flight limit: what the sweep plays, and a yardstick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held(pub u32);

impl Estimator for Held {
    fn observe(&mut self, _sample: &Sample) {}

    fn tick(&mut self, _load: &GateLoad, _now: Timestamp) -> Estimate {
        let phase = Phase::Configured;
        Estimate { capacity: Rate::MAX, gain: 1.0, max_in_flight: Some(self.0), phase, confidence: 0.0 }
    }

    fn set(&mut self, _capacity: Rate, _now: Timestamp) {}

    fn rediscover(&mut self, _now: Timestamp) {}

    fn state(&self) -> State {
        State { reason: "a limit is held".into(), ..State::default() }
    }
}

/// The stretches of a run, each with its truth. A change between two whole seconds counts from the next one.
pub fn oracle(spec: &ArenaSpec) -> Vec<Stretch> {
    let second = |at: Duration| at.as_secs_f64().ceil() as usize;
    let end = spec.lasts.as_secs() as usize;
    let changes = spec.origin.changes.iter().map(|change| change.at);
    let mut bounds: Vec<usize> = changes.chain(spec.mix.iter().map(|(at, _)| *at)).map(second).collect();
    bounds.extend([0, end]);
    bounds.retain(|bound| *bound <= end);
    bounds.sort_unstable();
    bounds.dedup();
    bounds.windows(2).map(|pair| best(spec, pair[0], pair[1])).collect()
}

fn still(spec: &ArenaSpec, at_s: usize) -> ArenaSpec {
    let at = Duration::from_secs(at_s as u64);
    let changes: Vec<Change> = spec.origin.changes.iter().filter(|change| change.at <= at).copied().collect();
    let changes = changes.into_iter().map(|change| Change { at: Duration::ZERO, ..change }).collect();
    let weights = spec.mix.iter().rev().find(|(from, _)| *from <= at).map(|(_, weights)| weights.clone());
    ArenaSpec {
        origin: OriginSpec { changes, ..spec.origin.clone() },
        mix: vec![(Duration::ZERO, weights.unwrap_or_default())],
        feed: Feed::Backlog,
        seed: SEED,
        ..spec.clone()
    }
}

struct Found {
    goodput: f64,
    mean_s: f64,
    p99_s: f64,
}

fn best(spec: &ArenaSpec, from_s: usize, to_s: usize) -> Stretch {
    let spec = still(spec, from_s);
    let origin = &spec.origin;
    let replicas = origin.changes.iter().filter_map(|c| c.replicas).next_back().unwrap_or(origin.replicas);
    let workers = origin.changes.iter().filter_map(|c| c.workers).next_back().unwrap_or(origin.workers);
    let servers = (replicas * workers).max(1);
    // The first only to know how long to play.
    let trial = play(&spec, 1, AT_LEAST_S, f64::MAX);
    let unloaded = play(&spec, 1, AT_LEAST_S, trial.mean_s);
    let first = (servers / 5).max(1);
    let mut found: Vec<(u32, Found)> = Vec::new();
    let mut limit = first;
    while limit <= servers * MOST_PER_SERVER {
        let it = play(&spec, limit, AT_LEAST_S, unloaded.mean_s);
        let most = found.iter().map(|(_, it)| it.goodput).fold(0.0, f64::max);
        let beyond = it.mean_s > MOST_RESPONSE * unloaded.mean_s || it.goodput < BEYOND * most;
        if beyond && limit > first {
            break;
        }
        found.push((limit, it));
        limit = next(limit, servers);
    }
    let most = found.iter().map(|(_, it)| it.goodput).fold(0.0, f64::max);
    let chosen = found.iter().find(|(_, it)| it.goodput >= most * (1.0 - ALIKE));
    Stretch {
        from_s,
        to_s,
        limit: chosen.map_or(1, |(limit, _)| *limit),
        capacity: chosen.map_or(0.0, |(_, it)| it.goodput),
        unloaded_s: unloaded.mean_s,
        unloaded_p99_s: unloaded.p99_s,
    }
}

/// The next limit of the grid: one by one up to twice a few servers and near the number of many, else 5 %
/// apart.
fn next(limit: u32, servers: u32) -> u32 {
    let near = limit.abs_diff(servers) <= 3;
    if limit < 40.min(2 * servers) || near { limit + 1 } else { (limit + limit / 20).max(limit + 1) }
}

/// The figures of a limit, over some `REQUESTS` whose mean response time is about `response_s`.
fn play(spec: &ArenaSpec, limit: u32, at_least_s: f64, response_s: f64) -> Found {
    let lasts_s = (REQUESTS * response_s / f64::from(limit)).clamp(at_least_s, 3_600.0);
    let lasts_s = if response_s == f64::MAX { at_least_s } else { lasts_s };
    let lasts = Duration::from_secs_f64(lasts_s.ceil());
    let trace = ArenaSpec { lasts, ..spec.clone() }.run(&mut Held(limit));
    let from = (lasts_s * WARM_UP).ceil() as usize;
    let counted = &trace.seconds[from.min(trace.seconds.len())..];
    let served: u64 = counted.iter().map(|s| s.served).sum();
    let response_s: f64 = counted.iter().map(|s| s.response_s).sum();
    let goodput: f64 = counted.iter().map(|s| s.goodput).sum();
    let responses = trace.responses_us(from, trace.seconds.len());
    Found {
        goodput: goodput / counted.len().max(1) as f64,
        mean_s: response_s / served as f64,
        p99_s: p99_s(responses).unwrap_or(f64::NAN),
    }
}
