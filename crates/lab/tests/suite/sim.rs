//! The simulator from outside: the same seed plays the same run, rules hold, and seeds that once broke one
//! stay whole.

use std::path::{Path, PathBuf};

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::chance::perturb;
use tidegate_lab::sim::{SimOptions, SimRun, run, sweep};

fn crowd() -> Scenario {
    load("crowd.toml")
}

fn load(name: &str) -> Scenario {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(name);
    Scenario::load(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn play(scenario: &Scenario, seed: u64) -> SimRun {
    run(scenario, &SimOptions::new(seed)).expect("a scenario that can be played")
}

fn whole(run: &SimRun) {
    let all: String = run.violations.iter().map(ToString::to_string).collect();
    assert!(run.violations.is_empty(), "{all}");
}

#[test]
fn the_same_seed_plays_the_same_run() {
    let scenario = crowd();
    for seed in [1, 2] {
        let drawn = perturb(&scenario, seed);
        let (one, other) = (play(&drawn, seed), play(&drawn, seed));
        assert_eq!((one.digest, one.events), (other.digest, other.events));
        let json = |run: &SimRun| serde_json::to_string(&run.outcome).expect("figures are JSON");
        assert_eq!(json(&one), json(&other));
    }
    assert_ne!(play(&scenario, 1).digest, play(&scenario, 2).digest, "another seed, another crowd");
}

#[test]
fn a_sweep_does_not_depend_on_its_threads() {
    let scenario = crowd();
    let of = |threads| {
        let report = sweep(&scenario, 1..=6, threads, true).expect("a scenario that can be played");
        (report.digest, report.events)
    };
    assert_eq!(of(1), of(3));
}

#[test]
fn watching_changes_nothing() {
    let scenario = perturb(&crowd(), 3);
    let blind = SimOptions { check: false, ..SimOptions::new(3) };
    let (seen, unseen) = (play(&scenario, 3), run(&scenario, &blind).expect("as before"));
    assert_eq!((seen.digest, seen.events), (unseen.digest, unseen.events));
}

/// A gate that knows nothing of an origin meets a crowd: 99 of 100 requests take at most three times as long
/// as unloaded, and the origin is used from the first second on.
#[test]
fn a_crowd_before_a_gate_that_knows_nothing_is_answered_fast() {
    for seed in 1..=5 {
        let outcome = play(&load("cold.toml"), seed).outcome;
        let of = |key: &str| outcome.figure(key);
        assert!(of("told_to_wait") > 3_500.0 && of("failed") == 0.0, "{:?}", outcome.summary);
        assert!(of("response_p99_ms") < 300.0, "seed {seed}: {:?}", outcome.summary);
        assert!(of("goodput_while_waiting_rps") > 98.0, "seed {seed}: {:?}", outcome.summary);
    }
}

/// In two processes, the estimator hears of the gate once in a second: it must not take the time between two
/// reports for requests that do not come back.
#[test]
fn a_crowd_before_two_processes_that_know_nothing_uses_the_origin() {
    for seed in 1..=5 {
        let mut scenario = load("cold.toml");
        scenario.gate.as_mut().expect("a gate").split = true;
        let outcome = play(&scenario, seed).outcome;
        let of = |key: &str| outcome.figure(key);
        assert!(of("told_to_wait") > 3_500.0 && of("failed") == 0.0, "{:?}", outcome.summary);
        assert!(of("goodput_while_waiting_rps") > 80.0, "seed {seed}: {:?}", outcome.summary);
    }
}

#[test]
fn everybody_is_served_and_the_rate_bound_holds() {
    let run = play(&crowd(), 1);
    whole(&run);
    let figure = |key| run.outcome.figure(key);
    assert_eq!(figure("done"), figure("offered"), "{:?}", run.outcome.summary);
    assert!(figure("offered") > 1_000.0 && figure("told_to_wait") > 500.0);
    assert!(run.lead_s.0 <= run.lead_s.1, "{:?}", run.lead_s);
}

#[test]
fn without_a_gate_the_same_crowd_fares_worse() {
    let scenario = crowd();
    let open = Scenario { gate: None, ..scenario.clone() };
    let (with, without) = (play(&scenario, 1), play(&open, 1));
    whole(&without);
    assert!(without.outcome.figure("done") < with.outcome.figure("done"));
    assert!(without.outcome.figure("response_mean_ms") > 2.0 * with.outcome.figure("response_mean_ms"));
}

/// The same over sockets, where the machine has a say: `crates/cli/tests/e2e/discovery.rs`.
#[test]
fn an_unknown_origin_serves_a_crowd_of_ten_times_its_capacity_as_well_as_one_that_is_known() {
    let goodput = |gate: &str, seed| {
        let text = format!(
            "[[arrivals.phase]]\nrate = 1000\nfor = \"2500ms\"\n[origin]\nworkers = 10\nservice = \"100ms\"\n[gate]\nroom.unit = \"request\"\n{gate}"
        );
        let scenario = Scenario::parse(&text, "unknown.toml", Path::new(""), &[]);
        let run = play(&scenario.unwrap_or_else(|mistakes| panic!("{mistakes}")), seed);
        whole(&run);
        let figure = |key| run.outcome.figure(key);
        assert!(figure("offered") > 2_000.0, "{:?}", run.outcome.summary);
        assert_eq!((figure("failed_requests"), figure("failed")), (0.0, 0.0), "{:?}", run.outcome.summary);
        assert_eq!(figure("done"), figure("offered"), "{:?}", run.outcome.summary);
        figure("goodput_while_waiting_rps")
    };
    for seed in 1..=5 {
        let told = goodput("capacity.rate = 100\norigin.max_in_flight = 10\n", seed);
        let found = goodput("", seed);
        assert!(told <= 105.0, "seed {seed}: {told} pages a second");
        assert!(
            found >= 0.9 * told,
            "seed {seed}: {found} pages a second, {told} where the capacity is told"
        );
        assert!(found >= 90.0, "seed {seed}: {found} of 100 pages a second");
    }
}

/// What each of these seeds broke first is said beside it.
#[test]
fn pinned_seeds_stay_whole() {
    let scenario = crowd();
    let pinned = [
        (4, "a ticket used at tokencheck got another one from tokengen, at once and for ever"),
        (17, "the same, with late visitors"),
        (49, "visitors who give up in the queue come again: their work is not to be counted twice"),
        (
            525,
            "whom tokengen had sent on while all replicas were down, entered all at once when one was back",
        ),
        (431, "reports were lost for seconds: the waits told after the first that arrives"),
        (486, "the same, with a wrong clock"),
        (708, "the same, once"),
        (77, "overbooking resumes after a restart"),
    ];
    for (seed, why) in pinned {
        let run = play(&perturb(&scenario, seed), seed);
        assert!(run.violations.is_empty(), "seed {seed} ({why}): {}", run.violations[0]);
    }
}

#[test]
fn a_sweep_ends_at_the_last_seed_there_is() {
    let report = sweep(&crowd(), u64::MAX..=u64::MAX, 2, false).expect("a scenario that can be played");
    let seeds: Vec<u64> = report.runs.iter().map(|(seed, _)| *seed).collect();
    assert_eq!(seeds, [u64::MAX]);
}

#[test]
fn a_hard_service_breaks_no_rule() {
    let scenario = load("hard.toml");
    let (one, other) = (play(&scenario, 1), play(&scenario, 1));
    whole(&one);
    assert_eq!((one.digest, one.events), (other.digest, other.events));
    for seed in 1..=20 {
        whole(&play(&perturb(&scenario, seed), seed));
    }
}

/// One kind of visitor who never gives up or tries again, and no gate.
fn alone(origin: &str) -> SimRun {
    let text = format!(
        "[[arrivals.phase]]\nrate = 50\nfor = \"60s\"\n[[visitor]]\npatience = \"1h\"\nretries = 0\n[origin]\n{origin}"
    );
    let scenario = Scenario::parse(&text, "alone.toml", Path::new(""), &[]);
    play(&scenario.unwrap_or_else(|mistakes| panic!("{mistakes}")), 1)
}

#[test]
fn a_stream_is_an_answer_when_it_ends() {
    let run = alone("path = [{ path = \"**\", demand = { app = \"10ms\" }, stream = \"5s\" }]\n");
    whole(&run);
    let figure = |key| run.outcome.figure(key);
    assert_eq!(figure("done"), figure("offered"));
    let response = figure("response_mean_ms");
    assert!((5010.0..5020.0).contains(&response), "to the end, with the way there and back: {response}");
}

/// A machine that stands still for two of six seconds serves two thirds; the visitors who come meanwhile come
/// after it.
#[test]
fn a_machine_that_stalls_serves_nobody_meanwhile() {
    let served = |stall: &str| {
        let text = format!(
            "deadline = \"36s\"\n[[arrivals.phase]]\nrate = 150\nfor = \"36s\"\n[[visitor]]\npatience = \"1h\"\n\
             retries = 0\n[origin]\nworkers = 1\nservice = \"10ms\"\ncontention = 0\nbacklog = 10_000\n{stall}"
        );
        let scenario = Scenario::parse(&text, "stalls.toml", Path::new(""), &[]);
        let run = play(&scenario.unwrap_or_else(|mistakes| panic!("{mistakes}")), 1);
        whole(&run);
        let by_second: Vec<u64> = run.outcome.series.iter().map(|second| second.served).collect();
        (run.outcome.figure("offered"), by_second)
    };
    let (offered, steady) = served("");
    let (offered_in_all, stalled) = served("[stall]\nevery = \"6s\"\nlasts = \"2s\"\n");
    let rate = |of: &[u64], seconds: std::ops::Range<usize>| {
        of[seconds.clone()].iter().sum::<u64>() / seconds.len() as u64
    };
    assert_eq!(offered, offered_in_all);
    assert_eq!((rate(&steady, 1..36), rate(&stalled, 1..6)), (100, 100), "{stalled:?}");
    assert_eq!((rate(&stalled, 7..8), rate(&stalled, 8..12)), (0, 100), "{stalled:?}");
    assert_eq!(rate(&stalled, 6..36), 66, "{stalled:?}");
}

#[test]
fn a_share_of_errors_is_a_share_of_failures() {
    let errors = |share: f64, more: &str| {
        let path = format!("path = [{{ path = \"**\", demand = {{ app = \"10ms\" }}, errors = {share} }}]\n");
        let run = alone(&format!("{path}{more}"));
        whole(&run);
        1.0 - run.outcome.figure("done") / run.outcome.figure("offered")
    };
    let third = errors(0.3, "");
    assert!((third - 0.3).abs() < 0.03, "some 3,000 visitors: {third}");
    let burst = "change = [{ at = \"20s\", errors = 1.0 }, { at = \"30s\", errors = 0.0 }]\n";
    let sixth = errors(0.0, burst);
    assert!((sixth - 1.0 / 6.0).abs() < 0.02, "ten of sixty seconds: {sixth}");
}

#[test]
fn a_replica_that_goes_out_of_service_finishes_its_requests() {
    // Before it goes, everybody is on one of two replicas for five seconds; afterwards nobody comes.
    let gone = "service = \"5s\"\nworkers = 2000\nreplicas = 2\nchange = [{ at = \"61s\", replicas = 1 }]\n";
    let run = alone(gone);
    whole(&run);
    assert_eq!(run.outcome.figure("done"), run.outcome.figure("offered"));
    let crash = format!("{gone}[[fault]]\nat = \"61s\"\nkind = \"crash\"\nreplica = 1\n");
    let crashed = alone(&crash);
    let lost = crashed.outcome.figure("offered") - crashed.outcome.figure("done");
    assert!((80.0..170.0).contains(&lost), "half of some 250, and nobody tries again: {lost}");
}
