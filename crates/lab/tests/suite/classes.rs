//! Classes with buckets, in the simulator: rates are kept to the request, and nobody waits for a tick.

use std::path::Path;

use tidegate_lab::scenario::Scenario;
use tidegate_lab::sim::{SimOptions, SimRun, run};

/// Fifty a second for ten seconds, who wait as long as it takes, before a fast origin that could serve a
/// thousand.
fn play(class: &str, more: &str) -> SimRun {
    let text = format!(
        "[[arrivals.phase]]\nrate = 50\nfor = \"10s\"\n[[visitor]]\npatience = \"1h\"\nretries = 0\n\
         [origin]\nworkers = 100\nservice = \"10ms\"\n[gate]\nroom.unit = \"request\"\ncapacity.rate = 1000\norigin.max_in_flight = 50\n{more}\n\
         [[gate.class]]\nname = \"default\"\n{class}\n"
    );
    let scenario = Scenario::parse(&text, "classes.toml", Path::new(""), &[]);
    let scenario = scenario.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let run = run(&scenario, &SimOptions::new(1)).expect("a scenario that can be played");
    assert!(run.violations.is_empty(), "{}", run.violations[0]);
    run
}

/// Of `n` visitors who come at 50/s and are let through at 20/s the k-th waits k (1/20 - 1/50).
fn mean_wait_ms(n: f64) -> f64 {
    n / 2.0 * (1.0 / 20.0 - 1.0 / 50.0) * 1e3
}

#[test]
fn an_egress_bucket_lets_its_rate_through() {
    let run = play("egress = { rate = 20, burst = 1 }", "room.enabled = false");
    let figure = |key| run.outcome.figure(key);
    assert_eq!(figure("done"), figure("offered"));
    // On the tick it would be ten a second.
    let (wait, expected) = (figure("response_mean_ms"), mean_wait_ms(figure("offered")));
    assert!((wait / expected - 1.0).abs() < 0.15, "{wait} ms, expected about {expected}");
}

#[test]
fn an_ingress_bucket_sheds_requests_beyond_its_rate() {
    let run = play("ingress = { rate = 20, burst = 5 }", "room.enabled = false");
    let (done, offered) = (run.outcome.figure("done"), run.outcome.figure("offered"));
    assert!(offered > 400.0 && (195.0..=206.0).contains(&done), "{done} of {offered}");
    let off = play("ingress = { rate = 20, burst = 5, limit = \"off\" }", "room.enabled = false");
    assert_eq!(off.outcome.figure("done"), off.outcome.figure("offered"));
}

#[test]
fn an_ingress_bucket_sends_to_the_room_and_its_rate_is_kept_there() {
    // A class that never waits otherwise.
    let run = play(
        "ingress = { rate = 20, burst = 5, refuse = \"room\" }",
        "room.classes = [\"other\"]\n[[gate.class]]\nname = \"other\"\nmatch = { path = \"/other\" }",
    );
    let figure = |key| run.outcome.figure(key);
    assert_eq!(figure("done"), figure("offered"));
    assert!(figure("told_to_wait") > 200.0, "{:?}", run.outcome.summary);
    let waited = figure("wait_mean_s") * 1e3;
    let expected = mean_wait_ms(figure("offered"));
    assert!(waited > 0.8 * expected, "{waited} ms, expected about {expected}");
}

#[test]
fn patience_and_codel_spare_the_origin() {
    let slow = "egress = { rate = 20, burst = 1 }\nqueue.";
    for (queue, least) in
        [("patience = \"1s\"", 200.0), ("discipline = \"codel\"", 200.0), ("discipline = \"lifo\"", 400.0)]
    {
        let run = play(&format!("{slow}{queue}"), "room.enabled = false");
        let done = run.outcome.figure("done");
        assert!(done >= least, "{queue}: {done}");
    }
}
