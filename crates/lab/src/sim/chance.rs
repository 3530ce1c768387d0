//! Random disturbances, drawn from a seed: faults, another crowd, another origin, other visitors.
//!
//! A sweep finds only what its seeds can reach. So each seed also varies the scenario: how many come, what
//! the operator says the capacity is (right or wrong), whether visitors stay away, come late or early, lose
//! patience, attack; and up to four faults of any kind fall anywhere in the crowd.

use std::fmt::Write as _;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::dist::Dist;
use crate::scenario::{Arrivals, Change, Fault, FaultKind, Follow, Kind, Scenario, Shape};
use crate::times::micros;

const MAX_FAULTS: u32 = 4;
/// Faults fall within this where the arrivals have no end.
const ENDLESS: Duration = Duration::from_secs(120);

pub fn perturb(scenario: &Scenario, seed: u64) -> Scenario {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x6661_756C_7473_2121);
    let mut drawn = scenario.clone();
    drawn.seed = seed;
    crowd(&mut drawn, &mut rng);
    drawn.visitors.iter_mut().for_each(|kind| visitors(kind, &mut rng));
    origin(&mut drawn, &mut rng);
    gate(&mut drawn, &mut rng);
    faults(&mut drawn, &mut rng);
    drawn
}

/// What [`perturb`] drew, in a line.
pub fn describe(scenario: &Scenario) -> String {
    let mut text = String::new();
    if let Some(gate) = &scenario.gate {
        let room = &gate.settings.room;
        let (rate, limit) = (gate.settings.capacity.rate, gate.settings.origin.max_in_flight);
        let _ = write!(
            text,
            "capacity {rate:.1}/s, in flight {limit}, {:?}, max_wait {:?}",
            room.unit, room.max_wait
        );
        if gate.split {
            text.push_str(", split");
        }
    }
    for kind in &scenario.visitors {
        let _ = write!(
            text,
            "; {}: no-show {:.2}, early {:.2}, late {:.2}, {:?}, tamper {:.2}, replay {:.2}, retries {}, wait limit {}",
            kind.name,
            kind.no_show,
            kind.early,
            kind.late,
            kind.follow,
            kind.tamper,
            kind.replay,
            kind.retries,
            kind.wait_limit
        );
    }
    for change in &scenario.origin.changes {
        let _ = write!(text, "; {change:?}");
    }
    for Fault { at, lasts, what } in &scenario.faults {
        let _ = write!(text, "; at {at:?} for {lasts:?}: {what:?}");
    }
    text
}

fn crowd(scenario: &mut Scenario, rng: &mut SmallRng) {
    let Arrivals::Phases { phases, .. } = &mut scenario.arrivals else { return };
    for phase in phases {
        let factor = rng.random_range(0.3..1.5);
        phase.rate = match phase.rate {
            Shape::Flat(rate) => Shape::Flat(rate * factor),
            Shape::Ramp(from, to) => Shape::Ramp(from * factor, to * factor),
            Shape::Diurnal { low, high, period } => {
                Shape::Diurnal { low: low * factor, high: high * factor, period }
            }
        };
    }
}

/// A share that is mostly zero.
fn share(rng: &mut SmallRng, most: f64) -> f64 {
    if rng.random_bool(0.6) { 0.0 } else { rng.random_range(0.0..most) }
}

fn visitors(kind: &mut Kind, rng: &mut SmallRng) {
    kind.no_show = share(rng, 0.6);
    kind.early = share(rng, 0.3);
    kind.late = share(rng, 0.5);
    kind.late_by = Dist::Exponential(rng.random_range(1.0..40.0));
    kind.tamper = share(rng, 0.1);
    kind.replay = share(rng, 0.1);
    kind.retries = rng.random_range(0..4);
    if rng.random_bool(0.2) {
        kind.wait_limit = Dist::Uniform(5.0, rng.random_range(10.0..120.0));
    }
    if rng.random_bool(0.2) {
        kind.patience = Dist::Uniform(0.05, rng.random_range(0.5..10.0));
    }
    if rng.random_bool(0.4) {
        kind.follow =
            [Follow::Page, Follow::Refresh, Follow::RetryAfter, Follow::Nothing][rng.random_range(0..4)];
    }
}

fn origin(scenario: &mut Scenario, rng: &mut SmallRng) {
    scenario.origin.notices_leavers = rng.random_bool(0.5);
    if rng.random_bool(0.3) {
        scenario.origin.backlog = rng.random_range(1..200);
    }
    if rng.random_bool(0.3) {
        scenario.origin.replicas = rng.random_range(1..4);
    }
    if rng.random_bool(0.2) {
        let at = span(scenario).mul_f64(rng.random_range(0.0..1.0));
        let speed = Some(rng.random_range(0.3..1.5));
        scenario.origin.changes.push(Change { at, speed, ..Change::default() });
        scenario.origin.changes.sort_by_key(|change| change.at);
    }
}

fn gate(scenario: &mut Scenario, rng: &mut SmallRng) {
    let Some(gate) = &mut scenario.gate else { return };
    let settings = &mut gate.settings;
    if settings.capacity.rate > 0.0 {
        settings.capacity.rate *= rng.random_range(0.6..1.1);
    }
    if rng.random_bool(0.3) {
        settings.origin.max_in_flight = rng.random_range(1..60);
    }
    if rng.random_bool(0.2) {
        settings.room.burst = Duration::from_millis(rng.random_range(1..1_000));
    }
    if rng.random_bool(0.2) {
        settings.room.max_wait = Duration::from_secs(rng.random_range(2..90));
    }
    if rng.random_bool(0.2) {
        settings.room.grace = Duration::from_secs(rng.random_range(5..90));
    }
    if rng.random_bool(0.2) {
        settings.queue.max_length = rng.random_range(0..200);
    }
    if rng.random_bool(0.2) {
        settings.queue.max_wait = Duration::from_millis(rng.random_range(50..5_000));
    }
    if rng.random_bool(0.3) {
        gate.split = !gate.split;
    }
}

fn faults(scenario: &mut Scenario, rng: &mut SmallRng) {
    let span = span(scenario);
    for _ in 0..rng.random_range(0..=MAX_FAULTS) {
        let replica = rng.random_range(0..scenario.origin.most_replicas());
        let what = match rng.random_range(0..5) {
            0 => FaultKind::Crash { replica },
            1 => FaultKind::Slow { replica, factor: rng.random_range(1.5..10.0) },
            2 => FaultKind::Drift { seconds: rng.random_range(-3.0..3.0) },
            3 => FaultKind::NoFeedback,
            _ => FaultKind::Restart,
        };
        // Clocks are wrong from the start; the rest falls anywhere.
        let at = match what {
            FaultKind::Drift { .. } if rng.random_bool(0.5) => Duration::ZERO,
            _ => span.mul_f64(rng.random_range(0.0..1.5)),
        };
        let lasts = Duration::from_millis(rng.random_range(1..20_000));
        scenario.faults.push(Fault { at: Duration::from_micros(micros(at)), lasts, what });
    }
    scenario.faults.sort_by_key(|fault| fault.at);
}

/// From the first arrival to the last.
fn span(scenario: &Scenario) -> Duration {
    match &scenario.arrivals {
        Arrivals::Phases { phases, repeat, .. } => {
            let round = phases.iter().fold(Duration::ZERO, |sum, p| sum.saturating_add(p.lasts));
            let all = round.saturating_mul(*repeat);
            if all > Duration::from_secs(86_400) { ENDLESS } else { all }
        }
        Arrivals::Closed(closed) => closed.ends(),
        Arrivals::Replay { .. } => ENDLESS,
    }
}
