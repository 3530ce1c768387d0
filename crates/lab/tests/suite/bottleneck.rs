//! The bottleneck estimator against what is asked of it, in the arena: a few seeds per scenario, so that it
//! takes seconds. The full tables come from `cargo run --release -p tidegate-lab --example arena --
//! bottleneck all 101-200`.
//!
//! Bounds are those asked of a hundred seeds; over so few the median is held to the 90th percentile's and the
//! goodput to a little less, which the comments say.

use std::path::Path;
use std::time::Duration;

use tidegate_core::capacity::{Bottleneck, BottleneckConfig};
use tidegate_lab::arena::figures::{Score, score};
use tidegate_lab::arena::{ArenaSpec, oracle, scenarios};
use tidegate_lab::scenario::Scenario;

/// Of the seeds that figures are reported on, not of those that parameters were chosen on.
const SEEDS: std::ops::RangeInclusive<u64> = 101..=109;

/// One scenario, all seeds; `lasts_s` overrules its length.
fn play(name: &str, lasts_s: Option<u64>) -> Vec<Score> {
    let named = scenarios::ALL.iter().find(|named| named.name == name).expect("a scenario of this name");
    let spec = ArenaSpec { max_in_flight: 2_000, ..named.spec(lasts_s) };
    let truth = oracle(&spec);
    let one = |seed| {
        let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
        score(&ArenaSpec { seed, ..spec.clone() }.run(&mut estimator), &truth)
    };
    SEEDS.map(one).collect()
}

fn median(scores: &[Score], of: impl Fn(&Score) -> Option<f64>) -> f64 {
    let mut values: Vec<f64> = scores.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    assert!(!values.is_empty(), "no seed has this figure");
    values[values.len() / 2]
}

/// Error after 1, 5 or 10 s of the last stretch, in percent.
fn early(scores: &[Score], index: usize) -> f64 {
    median(scores, |score| score.stretches.last()?.early_error_pct[index])
}

fn goodput(scores: &[Score]) -> f64 {
    median(scores, |score| Some(score.goodput_share))
}

fn oscillation(scores: &[Score]) -> f64 {
    median(scores, |score| score.stretches.last()?.oscillation_pct)
}

#[test]
fn service_that_varies_little_is_known_in_seconds() {
    for name in ["deterministic", "normal"] {
        let scores = play(name, None);
        assert!(early(&scores, 2) <= 5.0, "{name}: {} % after 10 s", early(&scores, 2));
        assert!(goodput(&scores) >= 0.98, "{name}: {}", goodput(&scores));
        assert!(oscillation(&scores) <= 5.0, "{name}: {}", oscillation(&scores));
        let p99 = median(&scores, |score| score.stretches.last()?.p99_ratio);
        assert!(p99 <= 2.01, "{name}: {p99}");
    }
}

#[test]
fn exponential_service_is_known_in_ten_seconds_whatever_happens() {
    // Of so few seeds the median may be where one in ten of a hundred may be: 12 %, after a fall 15 %.
    for (name, most) in
        [("exponential", 12.0), ("rise-speed", 12.0), ("fall-speed", 15.0), ("fall-workers", 15.0)]
    {
        let scores = play(name, None);
        assert!(early(&scores, 2) <= most, "{name}: {} % after 10 s", early(&scores, 2));
        assert!(goodput(&scores) >= 0.96, "{name}: {}", goodput(&scores));
        assert!(oscillation(&scores) <= 7.0, "{name}: {}", oscillation(&scores));
        let response = median(&scores, |score| score.mean_rt_ratio);
        assert!(response <= 1.55, "{name}: {response}");
    }
}

#[test]
fn ten_thousand_a_second_are_known_within_one() {
    // Forty workers of 4 ms: no oracle is needed to know what they can do.
    let truth = 10_000.0;
    let named =
        scenarios::ALL.iter().find(|named| named.name == "fast-10k").expect("a scenario of this name");
    for seed in SEEDS {
        let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
        let trace = ArenaSpec { seed, ..named.spec(Some(4)) }.run(&mut estimator);
        let off =
            trace.seconds[1..].iter().map(|second| (second.capacity / truth - 1.0).abs()).fold(0.0, f64::max);
        assert!(off <= 0.12, "seed {seed}: {} % off after the first second", 100.0 * off);
    }
}

/// Requests per second that `workers` with this service serve from the tenth second to the twentieth.
fn served_after_the_search(workers: u32, service: &str, seed: u64) -> f64 {
    let origin = format!("[origin]\ncontention = 0\nworkers = {workers}\nservice = '{service}'\n");
    let scenario =
        Scenario::parse(&origin, "origin", Path::new("."), &[]).unwrap_or_else(|it| panic!("{it}"));
    let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
    let spec = ArenaSpec::new(scenario.origin, Duration::from_secs(20));
    let trace = ArenaSpec { seed, ..spec }.run(&mut estimator);
    trace.seconds[10..].iter().map(|second| second.goodput).sum::<f64>() / 10.0
}

/// The seeds of tests for what happens in one run of some hundred.
const MANY: std::ops::RangeInclusive<u64> = 101..=500;

/// Many requests of an even service of a second are open at once and must not be taken for requests that
/// wait. Where φ of a usual response counted, and not φ², they ended the search at half of the knee. So did
/// slower growth where requests seem to wait, in 11 of these runs.
#[test]
fn requests_of_an_even_service_that_are_open_do_not_end_the_search() {
    let all: Vec<f64> = MANY.map(|seed| served_after_the_search(54, "normal(1s, 20ms)", seed)).collect();
    assert!(all.iter().all(|one| *one >= 50.0), "of 54 a second after 10 s: {all:?}");
}

/// Some of these runs take open requests for requests that wait, or have short answers first. Of 2,000 runs
/// 10 serve less than 12 a second, and 19.8 on average.
#[test]
fn a_search_that_ended_too_soon_goes_on() {
    let all: Vec<f64> = MANY.map(|seed| served_after_the_search(20, "uniform(0.2s, 1.8s)", seed)).collect();
    let low = all.iter().filter(|one| **one < 12.0).count();
    assert!(low <= all.len() / 100, "{low} of {} serve less than 12 of 20 a second: {all:?}", all.len());
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert!(mean >= 19.5, "of 20 a second: {mean}");
}

/// Where the operator allows fewer requests in flight than the origin takes, no knee is ever seen.
#[test]
fn a_search_that_the_operators_limit_ended_stays_ended() {
    let named = scenarios::ALL.iter().find(|named| named.name == "exponential").expect("a scenario");
    for (most, seed) in [1, 2, 3, 5, 8].into_iter().flat_map(|most| (101..=108).map(move |seed| (most, seed)))
    {
        let config = BottleneckConfig { max_in_flight: most, ..BottleneckConfig::default() };
        let mut estimator = Bottleneck::new(config, None);
        let trace = ArenaSpec { seed, ..named.spec(Some(60)) }.run(&mut estimator);
        let phases: Vec<_> = trace.seconds[10..].iter().map(|second| second.phase).collect();
        assert!(phases.iter().all(|it| *it == "settled"), "at most {most}, seed {seed}: {phases:?}");
    }
}

#[test]
fn contention_does_not_collapse_it() {
    for name in ["contention-0.3", "contention-1"] {
        let scores = play(name, None);
        // Of the whole run, its search included; the oracle knows from the start.
        assert!(goodput(&scores) >= 0.93, "{name}: {}", goodput(&scores));
        let response = median(&scores, |score| score.mean_rt_ratio);
        assert!(response <= 1.5, "{name}: {response}");
    }
}

#[test]
fn a_harder_mix_is_not_a_slower_origin() {
    let scores = play("mix-shift", None);
    assert!(goodput(&scores) >= 0.97, "{}", goodput(&scores));
    assert!(early(&scores, 2) <= 12.0, "{} % after 10 s", early(&scores, 2));
}

#[test]
fn too_little_load_is_not_held_against_the_origin() {
    let scores = play("low-then-crowd", None);
    assert!(goodput(&scores) >= 0.98, "{}", goodput(&scores));
    let error = median(&scores, |score| score.stretches.last()?.error_pct);
    assert!(error <= 5.0, "{error} %");
    let quiet = play("low-load", Some(30));
    assert!(goodput(&quiet) >= 0.98, "{}", goodput(&quiet));
}
