//! Figures of a run that follow from its scenario: capacities and demands.

use crate::dist::MAX_TIME;
use crate::scenario::{Kind, OriginSpec, Scenario, Stage, Step};

/// Requests per second that the service can take, by the people its scenario sends: what its busiest part
/// allows. Zero where it takes no time at all, and so has no limit.
pub(crate) fn origin_capacity_rps(scenario: &Scenario) -> f64 {
    let origin = &scenario.origin;
    let mut busy = vec![0.0; origin.stages.len()];
    for (share, step) in requests(scenario) {
        for (stage, demand) in demands(origin, &step.path) {
            busy[stage] += share * demand;
        }
    }
    let all: f64 = busy.iter().sum();
    let by_workers = f64::from(origin.workers) / all;
    let by_stage =
        origin.stages.iter().zip(&busy).map(|(Stage { servers, .. }, busy)| f64::from(*servers) / busy);
    let least = by_stage.fold(by_workers, f64::min) * f64::from(origin.replicas);
    if least.is_finite() { least } else { 0.0 }
}

/// Mean seconds of work that a request of the people its scenario sends asks for, at a speed of 1.
pub(crate) fn mean_demand_s(scenario: &Scenario) -> f64 {
    let seconds = |step: &Step| -> f64 {
        demands(&scenario.origin, &step.path).iter().map(|(_, seconds)| seconds).sum()
    };
    requests(scenario).map(|(share, step)| share * seconds(step)).sum()
}

/// Each step and its share of all requests, by the weight of its kind and its own. In a closed loop all kinds
/// send equally often, as far as they think equally long.
fn requests(scenario: &Scenario) -> impl Iterator<Item = (f64, &Step)> {
    let closed = scenario.closed().is_some();
    let of_kind = move |kind: &Kind| {
        let all: f64 = kind.requests().map(|(times, _)| times).sum();
        kind.weight * if closed { 1.0 / all } else { 1.0 }
    };
    let steps = scenario
        .visitors
        .iter()
        .flat_map(move |kind| kind.requests().map(move |(times, step)| (of_kind(kind) * times, step)));
    let total: f64 = steps.clone().map(|(times, _)| times).sum();
    steps.map(move |(times, step)| (times / total, step))
}

/// Mean seconds at each stage of a request for this path.
fn demands(origin: &OriginSpec, path: &str) -> Vec<(usize, f64)> {
    let path = path.split('?').next().unwrap_or_default();
    let spec = origin.paths.get(crate::model::path_index(origin, path));
    let demand = spec.map(|spec| spec.demand.as_slice()).unwrap_or_default();
    demand.iter().map(|(stage, dist)| (*stage, dist.mean().min(MAX_TIME).as_secs_f64())).collect()
}

/// Units of cost per second that the gate lets through as configured; zero without a gate or a limit.
pub(super) fn gate_capacity_rps(scenario: &Scenario) -> f64 {
    scenario.gate.as_ref().map_or(0.0, |gate| gate.settings.capacity.rate)
}
