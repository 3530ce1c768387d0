//! Parts of pages, service levels and rules in virtual time: the ready-made scenarios show what their first
//! lines say.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::{SimOptions, SimRun, run};

fn example(name: &str, set: &[(&str, &str)]) -> Scenario {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root");
    let set: Vec<_> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let file = root.join("examples/scenarios").join(name);
    Scenario::load_with(&file, &set).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn play(scenario: &Scenario, seed: u64) -> SimRun {
    run(scenario, &SimOptions::new(seed)).expect("a scenario that can be played")
}

fn whole(run: &SimRun) {
    let all: String = run.violations.iter().map(ToString::to_string).collect();
    assert!(run.violations.is_empty(), "{all}");
}

#[test]
fn parts_of_a_page_pass_while_others_wait_for_theirs() {
    for seed in 1..=3 {
        let run = play(&example("parts.toml", &[]), seed);
        whole(&run);
        let figure = |key| run.outcome.figure(key);
        assert!(figure("told_to_wait") > 500.0, "{:?}", run.outcome.summary);
        assert!(figure("parts") >= 6.0 * figure("served"), "{:?}", run.outcome.summary);
        assert_eq!(figure("parts_refused"), 0.0, "{:?}", run.outcome.summary);
    }
}

#[test]
fn visitors_who_keep_no_cookies_have_their_parts_refused_once_others_wait() {
    let run = play(&example("parts.toml", &[("visitor.reader.cookies", "false")]), 1);
    whole(&run);
    assert!(run.outcome.figure("parts_refused") > 0.0, "{:?}", run.outcome.summary);
}

#[test]
fn a_service_level_that_skips_the_room_is_served_while_others_wait() {
    for seed in 1..=3 {
        let run = play(&example("tiers.toml", &[]), seed);
        whole(&run);
        let figure = |key| run.outcome.figure(key);
        assert!(figure("told_to_wait") > 1_000.0, "{:?}", run.outcome.summary);
        assert!(figure("failures_refused") > 0.0, "the partner's quota: {:?}", run.outcome.summary);
    }
}

#[test]
fn rules_refuse_whom_they_are_for_while_they_are_in_force() {
    for seed in 1..=3 {
        let run = play(&example("rules.toml", &[]), seed);
        whole(&run);
        let turned_away = run.outcome.figure("failures_refused") + run.outcome.figure("full");
        assert!(turned_away > 500.0, "{:?}", run.outcome.summary);
    }
    let without = example("rules.toml", &[("gate.detector.crowd.red", "1000000")]);
    let run = play(&without, 1);
    whole(&run);
    assert_eq!(run.outcome.figure("failures_refused"), 0.0, "{:?}", run.outcome.summary);
}

#[test]
fn an_unknown_service_level_is_reported() {
    let scenario = example("tiers.toml", &[("visitor.gold.tier", "platinum")]);
    let error = run(&scenario, &SimOptions::new(1)).expect_err("no such level").to_string();
    assert!(error.contains("platinum"), "{error}");
}
