//! A clean stop and a new start: what was learned, set and tuned is in force again, as long as it may be.

use std::path::Path;

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Origin, api, cookies, get, until};

const FIXED: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\nrate = 80\n";
const FOUND: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"bottleneck\"\n";
const HOUR_MS: u64 = 3_600_000;

fn change(gate: &Gate, method: &str, target: &str, body: &str) {
    let answer = api(gate, method, target, "", body);
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

fn tuned(gate: &Gate) -> Value {
    gate.admin("/v1/tunables/queue.max_wait")["value"].clone()
}

fn rate(gate: &Gate) -> f64 {
    gate.admin("/v1/capacity")["rate"].as_f64().expect("a rate")
}

/// Starts a gate with another `learned.json`. `at_ms` in it is that many hours ago.
fn with_learned(origin: &Origin, toml: &str, mut learned: Value, hours: u64) -> Gate {
    let now = Gate::start(origin, FIXED).admin("/v1/state")["at_ms"].as_u64().expect("a time");
    for part in ["/capacity", "/pushed", "/tuned/queue.max_wait"] {
        if let Some(Value::Object(part)) = learned.pointer_mut(part) {
            part.insert("at_ms".into(), json!(now - hours * HOUR_MS));
        }
    }
    if let Some(at) = learned.pointer_mut("/capacity/origin").filter(|at| **at == "ORIGIN") {
        *at = json!([origin.address.to_string()]);
    }
    Gate::start_with(origin, toml, |state: &Path| {
        std::fs::create_dir_all(state).unwrap();
        std::fs::write(state.join("learned.json"), learned.to_string()).unwrap();
        Vec::new()
    })
}

#[test]
fn tuned_values_survive_until_the_file_says_something_else() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, FIXED);
    let one = json!({"value": "7s", "why": "flash sale"});
    change(&gate, "PUT", "/v1/tunables/queue.max_wait", &one.to_string());
    let mut gate = gate;
    for _ in 0..2 {
        gate = gate.restarted(&origin, FIXED);
        assert_eq!(tuned(&gate), "7s");
        let shown = gate.admin("/v1/tunables/queue.max_wait").to_string();
        assert!(shown.contains("flash sale"), "{shown}");
    }
    let edited = format!("{FIXED}[queue]\nmax_wait = \"9s\"\n");
    let gate = gate.restarted(&origin, &edited);
    assert_eq!(tuned(&gate), "9s");
    let gate = gate.restarted(&origin, FIXED);
    assert_eq!(tuned(&gate), "30s", "it was forgotten for good");
}

#[test]
fn a_tuned_value_that_is_wrong_or_too_old_is_dropped() {
    let origin = Origin::start();
    let tuned_to = |value: &str, hours| {
        let one = json!({"value": value, "file": "\"30s\"", "who": "me", "why": ""});
        let learned = json!({"version": 1, "tuned": {"queue.max_wait": one}});
        tuned(&with_learned(&origin, FIXED, learned, hours))
    };
    assert_eq!(tuned_to("\"7s\"", 7 * 24), "7s");
    assert_eq!(tuned_to("\"7 parsecs\"", 0), "30s");
    assert_eq!(tuned_to("\"7s\"", 9 * 24), "30s", "it is forgotten");
}

#[test]
fn a_pushed_rate_survives_until_the_file_says_something_else_or_it_is_too_old() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, FIXED);
    change(&gate, "PUT", "/v1/capacity", r#"{"rate": 55}"#);
    let gate = gate.restarted(&origin, FIXED).restarted(&origin, FIXED);
    assert_eq!(rate(&gate), 55.0);
    let gate = gate.restarted(&origin, &FIXED.replace("80", "90"));
    assert_eq!(rate(&gate), 90.0);
    for (hours, expected) in [(0, 55.0), (7 * 24, 55.0), (9 * 24, 80.0)] {
        let learned = json!({"version": 1, "pushed": {"rate": 55.0, "configured": 80.0}});
        assert_eq!(rate(&with_learned(&origin, FIXED, learned, hours)), expected, "{hours} h");
    }
}

#[test]
fn a_learned_capacity_is_trusted_then_checked_then_forgotten() {
    let origin = Origin::start();
    let knee = json!({"in_flight": 40.0, "base_s": 0.1, "contention": 0.0, "units_per_s": 400.0, "units": 1.0,
        "dispersion": 1.0});
    let learned = json!({"version": 1, "capacity": {"origin": "ORIGIN", "estimator": "bottleneck",
        "rate": 400.0, "knee": knee, "costs": {"no such class": 2.0}}});
    let seen = |learned: Value, hours| {
        let gate = with_learned(&origin, FOUND, learned, hours);
        let shown = gate.admin("/v1/capacity");
        // A restart before anything was learned keeps it.
        let again = gate.restarted(&origin, FOUND).admin("/v1/capacity");
        assert_eq!((&shown["rate"], &shown["max_in_flight"]), (&again["rate"], &again["max_in_flight"]));
        let phase = shown["figures"]["knee"].is_number();
        (shown["rate"].as_f64().expect("a rate"), shown["max_in_flight"].as_u64().expect("a limit"), phase)
    };
    let (rate, limit, has_knee) = seen(learned.clone(), 0);
    assert!((rate - 400.0).abs() < 1.0 && (36..=60).contains(&limit) && has_knee, "{rate} {limit}");
    let (rate, limit, has_knee) = seen(learned.clone(), 2);
    assert!((rate - 400.0).abs() < 1.0 && limit == 32 && !has_knee, "{rate} {limit}");
    let mut moved = learned.clone();
    moved["capacity"]["origin"] = json!(["other:80"]);
    assert_eq!(seen(moved, 0).1, 32, "behind other replicas it is checked");
    let (rate, limit, has_knee) = seen(learned, 9 * 24);
    assert!(rate < 400.0 && limit == 1 && !has_knee, "{rate} {limit}");
}

#[test]
fn what_cannot_be_used_is_ignored() {
    let origin = Origin::start();
    for learned in [json!({"version": 9}), json!("a song"), json!({"version": 1, "pushed": {"rate": -1}})] {
        assert_eq!(rate(&with_learned(&origin, FIXED, learned, 0)), 80.0);
    }
}

#[test]
fn redeemed_tickets_stay_redeemed_over_a_clean_stop() {
    let origin = Origin::start();
    let toml = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\nrate = 2\n\
                [room]\nclasses = [\"all\"]\n[[class]]\nname = \"all\"\nmatch = { path = \"/**\" }\n";
    let gate = Gate::start(&origin, toml);
    let waits = |answer: &str| answer.starts_with("HTTP/1.1 503");
    let waiting = until(|| get(gate.http, "/", ""), waits);
    let ticket = cookies(&waiting);
    until(|| get(gate.http, "/", &ticket), |answer| answer.starts_with("HTTP/1.1 200"));
    let gate = gate.restarted(&origin, toml).restarted(&origin, toml);
    let answer = get(gate.http, "/", &ticket);
    assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
}
