//! Many seeds of one crowd, each with what it draws: faults, other visitors, another origin.
//! `TIDEGATE_SIM_SEEDS=A..B` plays others than the few of every day; `scripts/sweep` plays a thousand, and
//! `scripts/mutants` expects a broken core to fail here.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::sweep;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("TIDEGATE_SIM_SEEDS").unwrap_or_else(|_| "1..40".into());
    let bounds = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = bounds.unwrap_or_else(|| panic!("TIDEGATE_SIM_SEEDS: expected A..B, got {text}"));
    from..=to
}

fn scenario(file: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(file);
    Scenario::load(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The seeds that broke a rule, and how the first did.
fn broken(scenario: &Scenario, random_faults: bool) -> Option<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = sweep(scenario, seeds(), threads, random_faults).expect("a scenario that can be played");
    assert!(!report.runs.is_empty() && report.events > 1_000 * report.runs.len() as u64);
    let broken: Vec<_> = report.broken().map(|(seed, run)| (*seed, run.violations[0].rule)).collect();
    let (_, run) = report.broken().next()?;
    Some(format!(
        "{}: {} of {} seeds broke a rule: {broken:?}\n{}",
        scenario.name,
        broken.len(),
        report.runs.len(),
        run.violations[0]
    ))
}

fn breaks_nothing(scenario: &Scenario, random_faults: bool) {
    if let Some(broken) = broken(scenario, random_faults) {
        panic!("{broken}");
    }
}

#[test]
fn crowds_break_no_rule() {
    breaks_nothing(&scenario("crowd.toml"), false);
}

#[test]
fn crowds_with_faults_break_no_rule() {
    breaks_nothing(&scenario("crowd.toml"), true);
}

/// The same with every estimator that finds the capacity out.
fn discovered(random_faults: bool) {
    let all = tidegate_core::capacity::names().filter(|name| *name != "fixed").filter_map(|name| {
        let mut scenario = scenario("discovering.toml");
        scenario.name = name.to_owned();
        scenario.gate.as_mut().expect("a gate").settings.capacity.estimator = name.to_owned();
        broken(&scenario, random_faults)
    });
    let all: Vec<_> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn crowds_break_no_rule_while_the_capacity_is_discovered() {
    discovered(false);
}

#[test]
fn crowds_with_faults_break_no_rule_while_the_capacity_is_discovered() {
    discovered(true);
}
