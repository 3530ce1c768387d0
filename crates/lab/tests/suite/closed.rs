//! Closed loops: what N browsers make of a service, in virtual time and over sockets.

use std::path::Path;
use std::time::Duration;

use tidegate_lab::load::{self, LoadOptions};
use tidegate_lab::origin::{Origin, OriginConfig};
use tidegate_lab::outcome::Outcome;
use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::{SimOptions, SimRun, run};

fn parse(text: &str) -> Scenario {
    Scenario::parse(text, "closed.toml", Path::new(""), &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Browsers at a service of `workers` and 50 ms, who think for 2 s and give up after a second.
fn shop(browsers: u32, more: &str) -> Scenario {
    parse(&format!(
        "[arrivals.closed]\nbrowsers = {browsers}\njoin = 50\nsettle = \"20s\"\nfor = \"60s\"\n\
         [[visitor]]\npatience = \"1s\"\nretries = 255\npause = \"exponential(2s, max 20s)\"\n\
         [[visitor.step]]\npath = \"/a\"\nweight = 3\nthink = \"exponential(2s, max 20s)\"\n\
         [[visitor.step]]\npath = \"/b\"\nweight = 1\nthink = \"exponential(2s, max 20s)\"\n\
         [origin]\nworkers = 5\nservice = \"50ms\"\n{more}"
    ))
}

fn play(scenario: &Scenario, seed: u64) -> SimRun {
    let run = run(scenario, &SimOptions::new(seed)).expect("a scenario that can be played");
    assert!(run.violations.is_empty(), "{}", run.violations[0]);
    run
}

fn figure(outcome: &Outcome, key: &str) -> f64 {
    *outcome.summary.get(key).unwrap_or_else(|| panic!("{key}"))
}

#[test]
fn throughput_follows_the_response_time_law() {
    let outcome = play(&shop(60, ""), 1).outcome;
    // X = N / (R + Z).
    let expected = 60.0 / (2.0 + figure(&outcome, "steady_response_mean_ms") / 1000.0);
    let goodput = figure(&outcome, "steady_goodput_rps");
    assert!((goodput / expected - 1.0).abs() < 0.08, "{goodput}, expected {expected}");
    assert_eq!(figure(&outcome, "steady_seconds"), 60.0);
    let ends = ["offered", "done", "present", "failed"].map(|key| figure(&outcome, key));
    assert_eq!(ends, [60.0, 60.0, 0.0, 0.0], "everybody stays to the end, and leaves then");
    assert!(outcome.seconds < 83.0, "nobody asks after the end: {}", outcome.seconds);
}

#[test]
fn impatience_makes_a_service_collapse_and_an_unconfigured_gate_prevents_it() {
    // The service does 100/s; 400 browsers ask for almost 200/s. Its queue may get longer than anybody's
    // patience.
    let collapses = "backlog = 4096\ncontention = 0\n";
    let peak = figure(&play(&shop(200, collapses), 1).outcome, "steady_goodput_rps");
    let without = figure(&play(&shop(400, collapses), 1).outcome, "steady_goodput_rps");
    let with = play(&shop(400, &format!("{collapses}[gate]\nroom.unit = \"request\"\n")), 1);
    let with = figure(&with.outcome, "steady_goodput_rps");
    assert!(peak > 85.0, "{peak}");
    assert!(without < 0.25 * peak, "{without} of {peak}");
    assert!(with > 0.95 * peak, "{with} of {peak}");
}

/// Visitors who join slowly keep a service half busy for long: many short bursts before the first crowd. None
/// of them says where the knee is, and what they seemed to say made the limit grow to five times the knee,
/// and on from there.
#[test]
fn the_limit_stays_near_the_knee_when_the_load_rises_slowly() {
    let scenario = parse(
        "[arrivals.closed]\nbrowsers = 1250\njoin = 20\nsettle = \"10s\"\nfor = \"120s\"\n\
         [[visitor]]\npatience = \"10s\"\nretries = 255\npause = \"exponential(7s, max 70s)\"\n\
         [[visitor.step]]\npath = \"/short\"\nweight = 9\nthink = \"exponential(7s, max 70s)\"\n\
         [[visitor.step]]\npath = \"/long\"\nweight = 1\nthink = \"exponential(7s, max 70s)\"\n\
         [origin]\nworkers = 150\nbacklog = 4096\n[[origin.stage]]\nname = \"cpu\"\nservers = 4\ndiscipline = \"sharing\"\n\
         [[origin.path]]\npath = \"/short\"\ndemand = { cpu = \"exponential(29ms)\" }\n\
         [[origin.path]]\npath = \"**\"\ndemand = { cpu = \"exponential(140ms)\" }\n[gate]\nroom.unit = \"request\"\n",
    );
    for seed in 1..=3 {
        let outcome = play(&scenario, seed).outcome;
        let limits: Vec<u64> = outcome.series.iter().skip(75).map(|second| second.limit).collect();
        let mean = limits.iter().sum::<u64>() as f64 / limits.len() as f64;
        assert!(mean < 3.0 * 4.0, "seed {seed}: {mean} in flight, the knee is at 4: {limits:?}");
        let goodput = figure(&outcome, "steady_goodput_rps");
        assert!(goodput > 93.0, "seed {seed}: {goodput} of 100");
    }
}

#[test]
fn the_same_seed_plays_the_same_bytes() {
    let scenario = shop(200, "[gate]\nroom.unit = \"request\"\n");
    let bytes = |seed| {
        let run = play(&scenario, seed);
        (run.digest, run.events, serde_json::to_string(&run.outcome).expect("figures are JSON"))
    };
    assert_eq!(bytes(7), bytes(7));
    assert_ne!(bytes(7).0, bytes(8).0);
}

#[test]
fn over_sockets_the_browsers_stay_ask_by_weight_and_are_measured() {
    let scenario = parse(
        "[arrivals.closed]\nbrowsers = 40\njoin = 400\nsettle = \"100ms\"\nfor = \"1500ms\"\n\
         [[visitor]]\nname = \"one\"\nweight = 3\npatience = \"1m\"\n\
         step = [{ path = \"/a\", weight = 3, think = \"exponential(20ms)\" }, { path = \"/b?{n}\", weight = 1, think = \"exponential(20ms)\" }]\n\
         [[visitor]]\nname = \"other\"\npatience = \"1m\"\npath = \"/b\"\n\
         [origin]\nworkers = 10\nservice = \"2ms\"\n",
    );
    let origin = Origin::start(OriginConfig::new(scenario.origin.clone())).expect("an origin");
    let options =
        LoadOptions { url: Some(format!("http://{}/", origin.addr())), threads: 2, ..LoadOptions::default() };
    let played = load::run(&scenario, &options, |_, _| {}).expect("a run");
    let outcome = played.outcome(&scenario);
    assert_eq!(outcome.partial, None);
    let served = figure(&outcome, "served");
    assert_eq!((figure(&outcome, "offered"), figure(&outcome, "done")), (40.0, 40.0));
    assert_eq!(figure(&outcome, "failed_requests"), 0.0);
    assert_eq!(
        served,
        figure(&outcome, "served_one") + figure(&outcome, "served_other"),
        "by kind and in all"
    );
    assert!(figure(&outcome, "served_other") > 0.0);
    // However slow the machine: each comes back again and again, until nobody does.
    assert!(served > 80.0, "{served} served");
    assert_eq!(origin.stats().served as f64, served);
    let steady = figure(&outcome, "steady_goodput_rps") * figure(&outcome, "steady_seconds");
    assert!(steady > 0.0 && steady <= served, "{steady} of {served}");
    assert!(Duration::from_secs_f64(figure(&outcome, "steady_seconds")) <= Duration::from_millis(1500));
}
