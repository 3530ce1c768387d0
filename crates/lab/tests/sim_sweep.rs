//! Many seeds of one crowd, each with what it draws: faults, other visitors, another origin. `TIDEGATE_SIM_SEEDS=A..B` plays
//! others than the few of every day; `scripts/sweep` plays a thousand, and `scripts/mutants` expects a broken core to fail here.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::sweep;

fn seeds() -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("TIDEGATE_SIM_SEEDS").unwrap_or_else(|_| "1..40".into());
    let bounds = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = bounds.unwrap_or_else(|| panic!("TIDEGATE_SIM_SEEDS: expected A..B, got {text}"));
    from..=to
}

fn sweep_breaks_nothing(random_faults: bool) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/crowd.toml");
    let scenario = Scenario::load(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = sweep(&scenario, seeds(), threads, random_faults).expect("a scenario that can be played");
    assert!(!report.runs.is_empty() && report.events > 1_000 * report.runs.len() as u64);
    let broken: Vec<_> = report.broken().map(|(seed, run)| (*seed, run.violations[0].rule)).collect();
    if let Some((_, run)) = report.broken().next() {
        panic!(
            "{} of {} seeds broke a rule: {broken:?}\n{}",
            broken.len(),
            report.runs.len(),
            run.violations[0]
        );
    }
}

#[test]
fn crowds_break_no_rule() {
    sweep_breaks_nothing(false);
}

#[test]
fn crowds_with_faults_break_no_rule() {
    sweep_breaks_nothing(true);
}
