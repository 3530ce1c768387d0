//! Whole sessions at five times what the service can take, on many seeds: none that was admitted loses a
//! request to load, and every session slot comes back. `TIDEGATE_SIM_SEEDS=A..B` plays others than the few of
//! every day; `scripts/sweep` plays a thousand.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::chance::perturb;
use tidegate_lab::sim::{SimOptions, run, sweep};

/// Under faults sessions are lost and begun anew: a seed takes seconds, else a tenth of one.
fn seeds(random_faults: bool) -> std::ops::RangeInclusive<u64> {
    let everyday = if random_faults { "1..2" } else { "1..4" };
    let text = std::env::var("TIDEGATE_SIM_SEEDS").unwrap_or_else(|_| everyday.into());
    let bounds = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = bounds.unwrap_or_else(|| panic!("TIDEGATE_SIM_SEEDS: expected A..B, got {text}"));
    from..=to
}

fn sessions(set: &[(&str, &str)]) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/sessions.toml");
    let set: Vec<_> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Scenario::load_with(&file, &set).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Plays all seeds; some visitors must have been kept out, or there was no overload.
fn no_session_loses_a_request(set: &[(&str, &str)], random_faults: bool) {
    let scenario = sessions(set);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = sweep(&scenario, seeds(random_faults), threads, random_faults)
        .expect("a scenario that can be played");
    let broken: Vec<_> = report.broken().map(|(seed, run)| (*seed, run.violations[0].rule)).collect();
    if let Some((_, run)) = report.broken().next() {
        let (count, all) = (broken.len(), report.runs.len());
        panic!("{set:?}: {count} of {all} seeds broke a rule: {broken:?}\n{}", run.violations[0]);
    }
    for (seed, run) in report.runs.iter().filter(|_| !random_faults) {
        let of = |key: &str| run.outcome.figure(key);
        let kept_out = of("told_to_wait") + of("failures_refused");
        assert!(of("served") > 200.0 && kept_out > 100.0, "{set:?}, seed {seed}: {:?}", run.outcome.summary);
    }
}

#[test]
fn where_the_number_of_sessions_is_found_out_and_the_others_wait() {
    no_session_loses_a_request(&[], false);
}

#[test]
fn where_the_number_of_sessions_is_found_out_and_the_others_are_refused() {
    no_session_loses_a_request(&[("gate.session.when_full", "refuse")], false);
}

/// The turn of a newcomer may come at the instant at which a request of a session arrives. Then the request
/// waits behind it, and both go where slots are free: no other event would wake them.
#[test]
fn nobody_waits_at_a_free_slot_because_a_newcomers_turn_has_come() {
    for seed in [5, 14, 20] {
        let report = sweep(&sessions(&[]), seed..=seed, 1, true).expect("a scenario that can be played");
        let broken: Vec<_> =
            report.broken().map(|(seed, run)| (*seed, run.violations[0].to_string())).collect();
        assert_eq!(broken, []);
    }
}

#[test]
fn where_the_number_of_sessions_is_given() {
    no_session_loses_a_request(&[("gate.session.max", "60")], false);
    no_session_loses_a_request(&[("gate.session.max", "60"), ("gate.session.when_full", "refuse")], false);
}

#[test]
fn where_tokengen_has_the_room_and_tokencheck_the_sessions() {
    no_session_loses_a_request(&[("gate.split", "true")], false);
    no_session_loses_a_request(&[("gate.split", "true"), ("gate.session.max", "60")], false);
}

#[test]
fn where_sessions_are_identified_by_address() {
    no_session_loses_a_request(&[("gate.session.key", "ip"), ("gate.session.max", "60")], false);
}

/// Searches are longer under way than the timeout, and think times are about as long.
#[test]
fn where_answers_take_longer_than_the_timeout() {
    for max in ["60", "discovered"] {
        no_session_loses_a_request(&[("gate.session.timeout", "1s"), ("gate.session.max", max)], false);
    }
}

#[test]
fn with_faults() {
    no_session_loses_a_request(&[], true);
    no_session_loses_a_request(&[("gate.session.max", "60"), ("gate.session.when_full", "refuse")], true);
}

/// A clock that steps ahead by more than the sessions' timeout, between two requests of a session.
#[test]
fn a_session_outlives_a_step_of_the_clock() {
    for max in ["discovered", "60"] {
        let sessions = sessions(&[("gate.session.max", max)]);
        let report = sweep(&sessions, 10_478..=10_478, 1, true).expect("a scenario");
        let broken = report.broken().next().map(|(_, run)| run.violations[0].clone());
        assert!(broken.is_none(), "{max}: {broken:?}");
    }
}

/// Without a bound on the number of sessions the room lets in whom it can serve when they come back: the
/// pages of visitors who are in stay quick, and the origin is used.
#[test]
fn visitors_are_let_in_by_what_they_will_ask_for() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/browse.toml");
    let scenario = Scenario::load_with(&file, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let outcome = run(&scenario, &SimOptions::new(3)).expect("a scenario that can be played").outcome;
    let of = |key: &str| outcome.figure(key);
    assert!(of("told_to_wait") > 500.0 && of("served") > 5_000.0, "{:?}", outcome.summary);
    assert!(of("goodput_while_waiting_rps") > 97.0, "{:?}", outcome.summary);
    // In one line with newcomers, 0.66 s; with the traffic of the last ten seconds in place of what is to
    // come, 2.5 s.
    assert!(of("sessions_p99_while_waiting_ms") < 500.0, "{:?}", outcome.summary);
}

/// With so many workers that chance hardly ever occupies all of them, requests of sessions wait at the gate
/// for less time than one takes unloaded. With four workers they cannot, in whatever order they go: at 97 %
/// of the capacity sessions alone occupy all workers for a third of the time.
#[test]
fn requests_of_sessions_hardly_wait_at_the_gate_of_a_service_with_many_workers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/browse.toml");
    let changes = [
        ("arrivals.phase", r#"[{rate=40, for="60s"}, {rate=300, for="60s"}, {rate=40, for="180s"}]"#),
        ("origin.workers", "640"),
        ("origin.stage", r#"[{name="app", servers=40}]"#),
        ("origin.path", r#"[{path="**", demand={app="40ms"}}]"#),
    ];
    let changes = changes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let scenario = Scenario::load_with(&file, &changes).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let outcome = run(&scenario, &SimOptions::new(3)).expect("a scenario that can be played").outcome;
    let of = |key: &str| outcome.figure(key);
    assert!(of("told_to_wait") > 5_000.0, "{:?}", outcome.summary);
    assert!(of("goodput_while_waiting_rps") > 970.0, "{:?}", outcome.summary);
    // 40 ms at the origin.
    assert!(of("sessions_p99_while_waiting_ms") < 80.0, "{:?}", outcome.summary);
}

/// The origin takes one request at a time, and a visit has 24 requests, of which 22 are parts of two pages.
/// When visitors who read the first page were counted as gone, the first to wait were told half of their
/// waits.
#[test]
fn waits_are_honest_where_pages_have_many_parts() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/pages.toml");
    let scenario = Scenario::load_with(&file, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let report = sweep(&scenario, 26..=26, 1, true).expect("a scenario that can be played");
    let broken = report.broken().next().map(|(_, run)| run.violations[0].to_string());
    assert_eq!(broken, None);
}

/// Newcomers go one by one: the parts of the pages of several do not queue behind each other.
#[test]
fn the_parts_of_newcomers_pages_do_not_come_all_at_once() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/pages.toml");
    let scenario = Scenario::load_with(&file, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let outcome = run(&scenario, &SimOptions::new(3)).expect("a scenario that can be played").outcome;
    let of = |key: &str| outcome.figure(key);
    assert!(of("told_to_wait") > 1_000.0 && of("parts_failed") == 0.0, "{:?}", outcome.summary);
    // Of 16.7 pages a second that the origin can serve.
    assert!(of("goodput_while_waiting_rps") > 16.0, "{:?}", outcome.summary);
    // Newcomers who go as soon as no request of a session waits: 260 and 680 ms; in one line, 480 and 1,520
    // ms.
    assert!(of("sessions_p50_while_waiting_ms") < 180.0, "{:?}", outcome.summary);
    assert!(of("sessions_p99_while_waiting_ms") < 580.0, "{:?}", outcome.summary);
}

/// A number of sessions that is found out uses the service as well as none does. Slots that are kept for
/// visitors on their way are taken: when they counted as free, 93 and 84 % of the capacity were used.
#[test]
fn a_number_of_sessions_that_is_found_out_uses_the_service() {
    for (file, least_rps, mean_rps) in [("browse.toml", 95.0, 97.0), ("pages.toml", 16.1, 16.3)] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(file);
        let changes = [("gate.session.max".to_owned(), "discovered".to_owned())];
        let scenario = Scenario::load_with(&file, &changes).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let used = (1..=8).map(|seed| {
            let outcome =
                run(&scenario, &SimOptions::new(seed)).expect("a scenario that can be played").outcome;
            let of = |key: &str| outcome.figure(key);
            assert!(of("told_to_wait") > 500.0, "{:?}", outcome.summary);
            let rps = of("goodput_while_waiting_rps");
            assert!(rps > least_rps, "{:?}", outcome.summary);
            rps
        });
        let mean = used.sum::<f64>() / 8.0;
        assert!(mean > mean_rps, "{mean} a second on average, more than {mean_rps} expected");
    }
}

/// The parts of a page come in bursts, which a mean over twenty of ten samples a second misses or sees by
/// chance: requests seemed to wait at the origin, and a tenth of the capacity was used for minutes.
#[test]
fn a_quiet_service_is_not_taken_for_one_where_requests_wait() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/pages.toml");
    let changes = [("gate.session.max".to_owned(), "discovered".to_owned())];
    let scenario = Scenario::load_with(&file, &changes).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let scenario = perturb(&scenario, 517);
    let outcome = run(&scenario, &SimOptions::new(517)).expect("a scenario that can be played").outcome;
    let of = |key: &str| outcome.figure(key);
    assert!(of("told_to_wait") > 500.0, "{:?}", outcome.summary);
    assert!(of("goodput_while_waiting_rps") > 12.0, "{:?}", outcome.summary);
}
