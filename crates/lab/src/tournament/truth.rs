//! The capacity of an origin, found offline: the same origin with every fixed number of requests in flight,
//! one after another.
//!
//! The oracle's choice is the limit of highest goodput among those whose mean response time is at most
//! [`MOST_RESPONSE`] times the unloaded one, which is that of one request at a time. Played by the same
//! simulator as the laws, with `fixed`, no rate and `origin.max_in_flight`, so that replicas, balancing and
//! stages count as they do for the laws. All limits see the same service demands, so that they differ by the
//! limit and not by luck; the figures at the chosen one are of more requests, with other seeds.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_core::units::Rate;
use tidegate_settings::Capacity;

use super::stretch::{Stretch, alone};
use crate::dist::MAX_TIME;
use crate::experiment::known;
use crate::outcome::Second;
use crate::scenario::{Arrivals, Kind, Scenario};
use crate::sim::{self, SimOptions};
use crate::spread::spread;
use crate::stats::{percentile, ratio};

/// Longest mean response time that an oracle allows, over the unloaded one.
pub const MOST_RESPONSE: f64 = 1.5;
/// A limit that gives this much less than another may be the better one by luck: the smaller of the two is
/// taken.
const ALIKE: f64 = 0.001;
/// Part of a run in which queues fill; it is not measured.
const WARM_UP: f64 = 0.2;
/// Offered load over what the origin could serve: the gate's queue must not run dry.
const OVERLOAD: f64 = 1.25;
/// The same for one request at a time, of which less is known: requests that fail at once leave room for
/// more.
const CERTAIN_OVERLOAD: f64 = 4.0;
/// Between two limits of the first, coarse sweep.
const STEP: f64 = 1.3;
/// Limits of the coarse sweep that are tried before it is asked whether that was enough.
const AT_ONCE: usize = 2;
/// Most requests that wait: more than are ever sent.
const MAX_QUEUE: usize = 1 << 40;
/// Most limits tried in the second, between the coarse sweep's best and its neighbours.
const FINE: u32 = 8;
const MAX_LIMIT: u32 = 20_000;
/// Seeds of the figures at the chosen limit. Small ones, as all others here: no seed of a tournament's runs.
const LAST_SEEDS: [u64; 4] = [90_001, 90_002, 90_003, 90_004];
const SWEEP_SEED: u64 = 90_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// The throughput at the oracle's limit, in cost units per second.
    pub capacity: f64,
    pub goodput_rps: f64,
    pub limit: u32,
    /// Mean response time at that limit, in milliseconds.
    pub response_ms: f64,
    /// Mean response time of one request at a time, in milliseconds.
    pub unloaded_ms: f64,
    /// The 99th percentile of the same.
    pub unloaded_p99_ms: f64,
}

pub struct Effort<'a> {
    pub requests: u32,
    pub threads: usize,
    pub stop: &'a AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct At {
    limit: u32,
    rps: f64,
    units: f64,
    /// Requests sent to the origin per second, those that failed included.
    door_rps: f64,
    mean_ms: f64,
    p99_ms: f64,
}

pub fn truth(scenario: &Scenario, stretch: &Stretch, effort: &Effort) -> Result<Truth, String> {
    let bound = bound(scenario, stretch);
    if !bound.is_normal() {
        return Err("expected an origin whose capacity has a bound: a demand of more than nothing".into());
    }
    let lone = Load { limit: 1, expected: bound.lone_rps.min(bound.rps), offered: CERTAIN_OVERLOAD };
    let unloaded = play(scenario, stretch, &lone, effort.requests, SWEEP_SEED)?;
    let most = bound.rps * unloaded.door_rps / unloaded.rps;
    let load = |limit: u32| {
        let expected = (unloaded.door_rps * f64::from(limit)).min(most);
        Load { limit, expected, offered: OVERLOAD }
    };
    let at = |limits: &[u32]| -> Result<Vec<At>, String> {
        let play = |limit: &u32| play(scenario, stretch, &load(*limit), effort.requests, SWEEP_SEED);
        spread(limits, effort.threads, effort.stop, play).into_iter().collect()
    };
    let allowed = |at: &At| at.mean_ms <= MOST_RESPONSE * unloaded.mean_ms;
    let mut tried = vec![unloaded];
    while tried.last().is_some_and(|last| allowed(last) && last.limit < MAX_LIMIT) {
        let next = coarse(tried.last().map_or(1, |at| at.limit));
        tried.extend(at(&next)?);
    }
    let fine = fine(&tried, best(&tried, allowed));
    tried.extend(at(&fine)?);
    let limit = best(&tried, allowed);
    let last = |seed: &u64| play(scenario, stretch, &load(limit), effort.requests, *seed);
    let last = spread(&LAST_SEEDS, effort.threads, effort.stop, last);
    let last = last.into_iter().collect::<Result<Vec<At>, String>>()?;
    let mean = |of: fn(&At) -> f64| last.iter().map(of).sum::<f64>() / last.len() as f64;
    Ok(Truth {
        capacity: mean(|at| at.units),
        goodput_rps: mean(|at| at.rps),
        limit,
        response_ms: mean(|at| at.mean_ms),
        unloaded_ms: unloaded.mean_ms,
        unloaded_p99_ms: unloaded.p99_ms,
    })
}

/// The next limits of the coarse sweep. How many does not depend on the threads: nor do the limits that are
/// tried.
fn coarse(after: u32) -> Vec<u32> {
    let next = |limit: &u32| Some(((f64::from(*limit) * STEP) as u32).max(limit + 1).min(MAX_LIMIT));
    let mut limits: Vec<u32> = std::iter::successors(Some(after), next).skip(1).take(AT_ONCE).collect();
    limits.dedup();
    limits
}

/// Limits between the best so far and its neighbours.
fn fine(tried: &[At], best: u32) -> Vec<u32> {
    let limits = || tried.iter().map(|at| at.limit);
    let below = limits().filter(|limit| *limit < best).max().unwrap_or(0);
    let above = limits().filter(|limit| *limit > best).min().unwrap_or(best);
    let step = ((above - below) / FINE).max(1);
    (below + 1..above).step_by(step as usize).filter(|limit| *limit != best).collect()
}

/// The limit of highest goodput among those allowed; of several alike, the smallest.
fn best(tried: &[At], allowed: impl Fn(&At) -> bool) -> u32 {
    let most = tried.iter().filter(|at| allowed(at)).map(|at| at.rps).fold(0.0, f64::max);
    let alike = tried.iter().filter(|at| allowed(at) && at.rps >= most * (1.0 - ALIKE));
    alike.map(|at| at.limit).min().unwrap_or(1)
}

struct Load {
    limit: u32,
    /// About what reaches the origin per second.
    expected: f64,
    /// Offered, as a multiple of that.
    offered: f64,
}

fn play(scenario: &Scenario, stretch: &Stretch, load: &Load, requests: u32, seed: u64) -> Result<At, String> {
    let lasts = Duration::try_from_secs_f64(f64::from(requests) / load.expected / (1.0 - WARM_UP));
    let lasts = lasts.unwrap_or(MAX_TIME).min(MAX_TIME).max(Duration::from_secs(1));
    let mut scene = alone(scenario, stretch, load.expected * load.offered, lasts);
    let gate = scene.gate.as_mut().ok_or("expected a [gate]: there is none")?;
    let settings = &mut gate.settings;
    settings.capacity = Capacity { rate: Rate::MAX.get(), ..Capacity::default() };
    settings.origin.max_in_flight = load.limit as usize;
    (settings.queue.max_length, settings.queue.max_wait) = (MAX_QUEUE, MAX_TIME);
    settings.origin.first_byte_timeout = MAX_TIME;
    let options = SimOptions { check: false, record: true, ..SimOptions::new(seed) };
    let run = sim::run(&scene, &options).map_err(|error| error.to_string())?;
    let warm_us = (lasts.as_micros() as f64 * WARM_UP) as u64;
    let measured = run.record.answered.iter().filter(|answer| answer.at_us >= warm_us);
    let mut took: Vec<u32> = measured.map(|answer| answer.took_us).collect();
    let count = took.len() as f64;
    let mean_us = ratio(took.iter().map(|us| f64::from(*us)).sum(), count);
    let rps = count / (lasts.as_secs_f64() * (1.0 - WARM_UP));
    let sum = |of: fn(&Second) -> f64| run.outcome.series.iter().map(of).sum::<f64>();
    let (door, units) = (sum(|s| s.door as f64), sum(|s| s.door_units));
    Ok(At {
        limit: load.limit,
        rps,
        units: rps * ratio(units, door),
        door_rps: rps * ratio(door, run.record.answered.len() as f64),
        mean_ms: mean_us / 1000.0,
        p99_ms: percentile(&mut took, 0.99).map_or(0.0, |us| f64::from(us) / 1000.0),
    })
}

/// An upper bound of the origin's capacity in a stretch, before anything is played.
struct Bound {
    rps: f64,
    /// The same of one request at a time.
    lone_rps: f64,
}

impl Bound {
    fn is_normal(&self) -> bool {
        self.rps.is_normal() && self.lone_rps.is_normal()
    }
}

fn bound(scenario: &Scenario, stretch: &Stretch) -> Bound {
    let mut now = alone(scenario, stretch, 1.0, Duration::from_secs(1));
    now.visitors = mixed(&now);
    let mut speed = 1.0;
    for change in now.origin.changes.clone() {
        now.origin.replicas = change.replicas.unwrap_or(now.origin.replicas);
        now.origin.workers = change.workers.unwrap_or(now.origin.workers);
        speed = change.speed.unwrap_or(speed);
    }
    Bound { rps: known::origin_capacity_rps(&now) * speed, lone_rps: speed / known::mean_demand_s(&now) }
}

fn mixed(now: &Scenario) -> Vec<Kind> {
    let mut kinds = now.visitors.clone();
    if let Arrivals::Phases { phases, .. } = &now.arrivals
        && let Some(phase) = phases.first().filter(|phase| !phase.mix.is_empty())
    {
        kinds.iter_mut().zip(&phase.mix).for_each(|(kind, share)| kind.weight = *share);
    }
    kinds
}
