//! The model against queueing theory: what the textbooks have formulas for must come out of it.
//!
//! Seeds are fixed, so the bounds cannot flicker; they are some four standard deviations of the estimates.

use rand::Rng;

use crate::model::*;
use crate::scenario::Stage;

pub(super) struct Run {
    /// Mean time from arrival to answer, in seconds.
    pub response: f64,
    /// Mean of requests present, over time.
    pub present: f64,
    /// Share of the first stage's servers busy.
    pub utilisation: Vec<f64>,
    /// Share refused.
    pub refused: f64,
}

/// `n` Poisson arrivals at `rate` a second.
pub(super) fn poisson(spec: &OriginSpec, rate: f64, n: u64, seed: u64) -> Run {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = Model::new(spec, seed + 1000);
    let (mut at, mut last) = (0.0, 0u64);
    let (mut sum_us, mut area) = (0u128, 0u128);
    let mut came = Vec::with_capacity(n as usize);
    for id in 0..n {
        at += -(1.0 - rng.random::<f64>()).ln() / rate * 1e6;
        let now = at as u64;
        // Step by step: the number present is piecewise constant between events.
        while let Some(due) = model.next_event().filter(|due| *due <= now) {
            area += u128::from(due - last) * model.stats().present() as u128;
            last = due;
            model.advance(due, &mut |done| sum_us += u128::from(done.at_us - came[done.id as usize]));
        }
        area += u128::from(now - last) * model.stats().present() as u128;
        last = now;
        came.push(now);
        // Refused requests are in the statistics.
        let _ = model.submit(id, 0, now);
    }
    let stages = model.stages();
    let elapsed = last as f64;
    let busy = |stage: &StageStats| stage.total_busy_us() as f64 / elapsed / f64::from(stage.servers);
    let stats = model.stats();
    Run {
        response: sum_us as f64 / stats.served as f64 / 1e6,
        present: area as f64 / elapsed,
        utilisation: stages.iter().map(busy).collect(),
        refused: stats.refused as f64 / stats.submitted as f64,
    }
}

#[track_caller]
pub(super) fn close(ours: f64, theory: f64, within: f64, what: &str) {
    assert!((ours / theory - 1.0).abs() < within, "{what}: {ours}, theory {theory}");
}

/// One stage of `servers` with an unbounded backlog, in seconds.
pub(super) fn queue(servers: u32, demand: Dist) -> OriginSpec {
    let mut spec = OriginSpec::pool(servers, Duration::ZERO, u32::MAX, 0.0);
    spec.paths[0].demand = vec![(0, demand)];
    spec
}

/// Probability that an arrival at M/M/c waits; `a` = λ/μ.
pub(super) fn erlang_c(c: u32, a: f64) -> f64 {
    let b = erlang_b(c, a);
    let rho = a / f64::from(c);
    b / (1.0 - rho * (1.0 - b))
}

/// Share of arrivals that M/M/c/c loses, by the usual recursion.
fn erlang_b(c: u32, a: f64) -> f64 {
    (1..=c).fold(1.0, |b, k| a * b / (f64::from(k) + a * b))
}

#[test]
fn m_m_1() {
    let run = poisson(&queue(1, Dist::Exponential(0.010)), 70.0, 400_000, 1);
    close(run.response, 1.0 / (100.0 - 70.0), 0.03, "response");
    close(run.utilisation[0], 0.7, 0.01, "utilisation");
    close(run.present, 0.7 / 0.3, 0.03, "present");
    close(run.present, 70.0 * run.response, 0.01, "Little's law");
}

#[test]
fn m_m_c() {
    let run = poisson(&queue(10, Dist::Exponential(0.100)), 85.0, 300_000, 2);
    let wait = erlang_c(10, 8.5) / (100.0 - 85.0);
    close(run.response, 0.1 + wait, 0.03, "response");
    close(run.utilisation[0], 0.85, 0.01, "utilisation");
}

#[test]
fn m_m_c_c_loses_the_share_of_erlangs_formula() {
    let spec = OriginSpec { backlog: 0, ..queue(5, Dist::Exponential(0.050)) };
    let run = poisson(&spec, 80.0, 300_000, 3);
    close(run.refused, erlang_b(5, 4.0), 0.03, "refused");
    close(run.response, 0.05, 0.01, "response");
    // The loss of this queue depends on the demand's mean only.
    let spec = OriginSpec { backlog: 0, ..queue(5, Dist::Fixed(0.050)) };
    close(poisson(&spec, 80.0, 300_000, 4).refused, erlang_b(5, 4.0), 0.03, "refused, fixed demand");
}

#[test]
fn m_d_1() {
    let run = poisson(&queue(1, Dist::Fixed(0.010)), 80.0, 400_000, 5);
    close(run.response, 0.010 + 0.8 * 0.010 / (2.0 * 0.2), 0.03, "response");
    close(run.utilisation[0], 0.8, 0.01, "utilisation");
}

#[test]
fn m_g_1_by_pollaczek_and_khinchine() {
    // Second moments: lognormal m²·e^(2σ²), m the median; uniform (a² + ab + b²)/3; normal μ² + σ².
    let lognormal = 0.006f64.powi(2) * (2.0 * 0.25f64).exp();
    let uniform = 0.015f64.powi(2) / 3.0;
    for (demand, second_moment) in [
        (Dist::LogNormal(0.006, 0.5), lognormal),
        (Dist::Uniform(0.0, 0.015), uniform),
        (Dist::Normal(0.008, 0.001), 0.008f64.powi(2) + 0.001f64.powi(2)),
    ] {
        let rate = 90.0;
        let mean = demand.mean().as_secs_f64();
        let run = poisson(&queue(1, demand), rate, 400_000, 6);
        let wait = rate * second_moment / (2.0 * (1.0 - rate * mean));
        close(run.response, mean + wait, 0.03, &demand.to_string());
    }
}

#[test]
fn a_tandem_of_two() {
    // Jackson: with workers to spare, each stage is an M/M/c of its own.
    let mut spec = queue(100_000, Dist::Never);
    spec.stages = vec![Stage::new("app", 4), Stage::new("db", 1)];
    spec.paths[0].demand = vec![(0, Dist::Exponential(0.040)), (1, Dist::Exponential(0.010))];
    let run = poisson(&spec, 60.0, 400_000, 7);
    let app = 0.040 + erlang_c(4, 2.4) / (100.0 - 60.0);
    let db = 1.0 / (100.0 - 60.0);
    close(run.response, app + db, 0.03, "response");
    close(run.utilisation[0], 0.6, 0.01, "app");
    close(run.utilisation[1], 0.6, 0.01, "db");
}

#[test]
fn half_the_speed_is_twice_the_demand() {
    let spec = queue(3, Dist::Exponential(0.020));
    let mut slow = Model::new(&spec, 9);
    slow.set_speed(0.5, 0);
    let mut ends = Vec::new();
    for id in 0..1000 {
        slow.submit(id, 0, 0).expect("room");
    }
    slow.advance(u64::MAX / 4, &mut |done| ends.push(done));
    let mut twice = Model::new(&queue(3, Dist::Exponential(0.040)), 9);
    for id in 0..1000 {
        twice.submit(id, 0, 0).expect("room");
    }
    let mut same = 0;
    twice.advance(u64::MAX / 4, &mut |done| {
        let other = ends[same];
        assert!(other.id == done.id && other.at_us.abs_diff(done.at_us) <= 10, "{done:?}, {other:?}");
        same += 1;
    });
    assert_eq!(same, 1000);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let spec = queue(2, Dist::Exponential(0.010));
    let runs: Vec<f64> = [11, 11, 12].map(|seed| poisson(&spec, 150.0, 5_000, seed).response).into();
    assert_eq!(runs[0].to_bits(), runs[1].to_bits());
    assert_ne!(runs[0].to_bits(), runs[2].to_bits());
}
