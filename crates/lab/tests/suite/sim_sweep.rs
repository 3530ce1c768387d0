//! Many seeds of one crowd, each with what it draws: faults, other visitors, another origin.
//! `TIDEGATE_SIM_SEEDS=A..B` plays others than the few of every day; `scripts/sweep` plays a thousand, and
//! `scripts/mutants` expects a broken core to fail here.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::sweep;
use tidegate_settings::SessionMax;

/// At a capacity that is set. A seed takes a fortieth of a second.
const EVERYDAY: &str = "1..40";
/// With every estimator in turn, each of which takes five times as long.
const EVERYDAY_DISCOVERED: &str = "1..12";

fn seeds(everyday: &str) -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("TIDEGATE_SIM_SEEDS").unwrap_or_else(|_| everyday.into());
    let bounds = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = bounds.unwrap_or_else(|| panic!("TIDEGATE_SIM_SEEDS: expected A..B, got {text}"));
    from..=to
}

fn scenario(file: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(file);
    Scenario::load(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The seeds that broke a rule, and how the first did.
fn broken(scenario: &Scenario, everyday: &str, random_faults: bool) -> Option<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report =
        sweep(scenario, seeds(everyday), threads, random_faults).expect("a scenario that can be played");
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
    if let Some(broken) = broken(scenario, EVERYDAY, random_faults) {
        panic!("{broken}");
    }
}

#[test]
fn crowds_break_no_rule() {
    breaks_nothing(&scenario("crowd.toml"), false);
}

/// Crowds that once broke a rule, with and without faults.
#[test]
fn seeds_that_broke_a_rule_before_do_not_again() {
    for seed in [26_805, 28_571] {
        for random_faults in [false, true] {
            let report = sweep(&scenario("crowd.toml"), seed..=seed, 1, random_faults).expect("a scenario");
            let broken = report.broken().next().map(|(_, run)| run.violations[0].clone());
            assert!(broken.is_none(), "{seed}, faults: {random_faults}: {broken:?}");
        }
    }
}

/// An origin that is far slower than the operator's figure, and visitors who give up at it: in two processes.
#[test]
fn waits_are_not_judged_by_an_origin_that_has_less_than_the_operators_figure() {
    let mut split = scenario("crowd.toml");
    split.gate.as_mut().expect("a gate").split = true;
    let report = sweep(&split, 49..=49, 1, true).expect("a scenario");
    assert!(report.broken().next().is_none());
}

/// A seed that broke a rule once, with its faults.
fn pinned(file: &str, seed: u64, is_split: bool, max: Option<SessionMax>) {
    let mut scenario = scenario(file);
    let gate = scenario.gate.as_mut().expect("a gate");
    gate.split = is_split;
    gate.settings.session.max = max.unwrap_or(gate.settings.session.max);
    let report = sweep(&scenario, seed..=seed, 1, true).expect("a scenario");
    let broken = report.broken().next().map(|(_, run)| run.violations[0].clone());
    assert!(broken.is_none(), "{broken:?}");
}

/// Of the crowd half has left, and behind it wait visitors for their second page, who all come.
#[test]
fn visitors_behind_a_crowd_that_has_left_are_told_their_wait() {
    pinned("discovering.toml", 228, true, None);
}

/// A clock that was wrong is right once the process is started anew: passes look older by that.
#[test]
fn sessions_are_judged_by_a_clock_that_jumps_with_a_restart() {
    pinned("sessions.toml", 369, true, Some(SessionMax::Discovered));
}

/// Nobody may wait at the gate for more than 60 ms, so visitors whose turn has come are asked to come again,
/// and newcomers wait behind them.
#[test]
fn waits_count_visitors_who_were_asked_to_come_again() {
    pinned("pages.toml", 517, false, Some(SessionMax::None));
}

/// Tokencheck's reports are lost for 16 s while most of the capacity is used by sessions.
#[test]
fn waits_are_right_again_when_reports_come_again() {
    pinned("browse.toml", 201, false, Some(SessionMax::None));
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
        broken(&scenario, EVERYDAY_DISCOVERED, random_faults)
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
