//! The stretches of a scenario: from one change of the origin, or of the mix of visitors, to the next. Within
//! a stretch there is one true capacity; what comes at random within it (pauses, neighbours) is a part of it.

use std::time::Duration;

use crate::scenario::{Arrivals, Change, Fault, FaultKind, Phase, Process, Scenario, Shape};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: Duration,
    pub to: Duration,
}

/// The stretches until the scenario's deadline, in order of time; none without a deadline.
pub fn stretches(scenario: &Scenario) -> Vec<Stretch> {
    let Some(end) = scenario.deadline else { return Vec::new() };
    let changes = scenario.origin.changes.iter().map(|change| change.at);
    let faults = scenario.faults.iter().filter(|fault| slows(fault));
    let faults = faults.flat_map(|fault| [fault.at, fault.at.saturating_add(fault.lasts)]);
    let mut borders: Vec<Duration> = changes.chain(faults).chain(mixes(scenario)).collect();
    borders.extend([Duration::ZERO, end]);
    borders.retain(|at| *at <= end);
    borders.sort_unstable();
    borders.dedup();
    borders.windows(2).map(|pair| Stretch { from: pair[0], to: pair[1] }).collect()
}

/// The origin as it is within a stretch, and from the start, before a crowd of steady `rate` that waits as
/// long as it takes: what the origin can serve, with everything else out of the way. The gate is left for the
/// caller to set.
pub fn alone(scenario: &Scenario, stretch: &Stretch, rate: f64, lasts: Duration) -> Scenario {
    let mut scene = scenario.clone();
    scene.deadline = Some(lasts);
    let mix = phase_at(scenario, stretch.from).map(|phase| phase.mix.clone()).unwrap_or_default();
    let phase = Phase { rate: Shape::Flat(rate), lasts: Duration::MAX, mix };
    scene.arrivals = Arrivals::Phases { process: Process::Constant, phases: vec![phase], repeat: 1 };
    for kind in &mut scene.visitors {
        kind.patience = crate::dist::Dist::Never;
        kind.wait_limit = crate::dist::Dist::Never;
        kind.retries = 0;
        (kind.no_show, kind.early, kind.late, kind.tamper, kind.replay) = (0.0, 0.0, 0.0, 0.0, 0.0);
    }
    let so_far = scenario.origin.changes.iter().filter(|change| change.at <= stretch.from);
    scene.origin.changes = so_far.map(|change| Change { at: Duration::ZERO, ..*change }).collect();
    let now = |fault: &&Fault| {
        slows(fault) && fault.at <= stretch.from && fault.at.saturating_add(fault.lasts) > stretch.from
    };
    let faults = scenario.faults.iter().filter(now);
    scene.faults = faults.map(|fault| Fault { at: Duration::ZERO, lasts: Duration::MAX, ..*fault }).collect();
    scene
}

/// Whether it changes what the origin can serve.
fn slows(fault: &Fault) -> bool {
    matches!(fault.what, FaultKind::Crash { .. } | FaultKind::Slow { .. })
}

fn mixes(scenario: &Scenario) -> Vec<Duration> {
    let Arrivals::Phases { phases, repeat, .. } = &scenario.arrivals else { return Vec::new() };
    let (mut at, mut last, mut borders) = (Duration::ZERO, None, Vec::new());
    for phase in (0..*repeat).flat_map(|_| phases) {
        if last.is_some_and(|mix| mix != &phase.mix) {
            borders.push(at);
        }
        last = Some(&phase.mix);
        at = at.saturating_add(phase.lasts);
    }
    borders
}

fn phase_at(scenario: &Scenario, at: Duration) -> Option<&Phase> {
    let Arrivals::Phases { phases, repeat, .. } = &scenario.arrivals else { return None };
    let mut begins = Duration::ZERO;
    let mut found = None;
    for phase in (0..*repeat).flat_map(|_| phases) {
        if begins > at {
            break;
        }
        found = Some(phase);
        begins = begins.saturating_add(phase.lasts);
    }
    found
}
