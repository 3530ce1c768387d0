//! Scripts inside a whole gate: one that fails changes nothing, an edit is noticed, and a broken one is not followed.

use std::fs;

use serde_json::Value;
use tidegate_gateway::control::tuners::Keeper;

use crate::whole::harness::{Gate, Origin, ask, until};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]

[[class]]
name = "home"
match = { path = "/" }
"#;

const RATE: &str = "class.home.ingress.rate";

fn get(gate: &Gate, path: &str) -> String {
    ask(gate.admin, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

fn told(gate: &Gate) -> Vec<Value> {
    let answer = get(gate, "/v1/tuners");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_str::<Value>(body).expect("JSON")["tuners"].as_array().expect("a list").clone()
}

#[test]
fn scripts_come_change_break_and_go() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let dir = gate.state().join("tuners");
    fs::create_dir(&dir).unwrap();
    let control = gate.server().control();
    let mut keeper = Keeper::new(control.tuned_gate());
    let mut round = || {
        keeper.round(Some(&dir));
        told(&gate)
    };
    let rate = || control.shared().config.load().settings.value_of(RATE).unwrap();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();

    assert_eq!(round().len(), 0);
    write("a.rhai", &format!("set(\"{RATE}\", 7);\nset(\"queue.max_length\", 77);"));
    write("notes.txt", "no script");
    let all = round();
    assert_eq!((rate().as_str(), all.len()), ("7.0", 1));
    assert_eq!(all[0]["last_change"]["changes"]["queue.max_length"], 77);
    assert_eq!((&all[0]["state"], &all[0]["runs"]), (&"running".into(), &1.into()));
    let audit = get(&gate, "/v1/audit");
    assert!(audit.contains("\"tuner:a\""), "{audit}");

    // Unknown names and values out of bounds: nothing of the run is put in force.
    for (wrong, place) in [("set(\"no.such\", 1)", (2, 1)), ("  set(\"queue.max_length\", -1)", (2, 3))] {
        write("a.rhai", &format!("set(\"{RATE}\", 9);\n{wrong}"));
        let all = round();
        assert_eq!((rate().as_str(), &all[0]["state"]), ("7.0", &"failing".into()));
        let error = &all[0]["last_error"];
        assert_eq!(
            (error["line"].as_u64(), error["column"].as_u64()),
            (Some(place.0), Some(place.1)),
            "{error}"
        );
    }

    // A second script runs whatever becomes of the first.
    write("b.rhai", "state.n = (state.n ?? 10) + 1;\nset(\"class.home.ingress.burst\", state.n);");
    assert_eq!(round()[1]["state"], "running");

    // A broken edit: what it was before goes on, and remembers.
    write("b.rhai", "state.n = ;");
    let all = round();
    assert_eq!((&all[1]["state"], &all[1]["runs"]), (&"stale".into(), &2.into()));
    assert_eq!(all[1]["last_error"]["line"], 1);
    assert_eq!(all[1]["last_change"]["changes"]["class.home.ingress.burst"], 12.0);
    write("c.rhai", "(");
    assert_eq!(round()[2]["state"], "broken");

    let metrics = get(&gate, "/metrics");
    assert!(metrics.contains("tidegate_tuner_runs_total{tuner=\"b\"} 3"), "{metrics}");
    assert!(metrics.contains("tidegate_tuner_errors_total{tuner=\"b\"} 0"), "{metrics}");

    fs::remove_file(dir.join("b.rhai")).unwrap();
    fs::remove_file(dir.join("c.rhai")).unwrap();
    assert_eq!(round().len(), 1, "a is left");
    keeper.round(None);
    assert_eq!(told(&gate).len(), 0);
    assert_eq!(rate(), "7.0", "what it set stays");
}

#[test]
fn the_gate_runs_the_scripts_of_its_directory() {
    let origin = Origin::start();
    let dir = std::env::temp_dir().join(format!("tidegate-tuners-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let text =
        "let seen = goodput() + goodput(\"home\") + shed() + (peak(\"goodput\", \"home\", \"1d\") ?? 0.0);
        set(\"class.home.ingress.rate\", 5 + seen * 0);
        if is_overloaded() { throw \"not here\" }";
    fs::write(dir.join("one.rhai"), text).unwrap();
    let gate = Gate::start(&origin, &format!("tuners = {{ dir = {dir:?}, every = \"100ms\" }}\n{SHOP}"));
    let answer = until(|| get(&gate, "/v1/tuners"), |answer| answer.contains("last_change\":{"));
    assert!(answer.contains("\"running\"") && answer.contains("\"last_error\":null"), "{answer}");
    drop(gate);
    fs::remove_dir_all(dir).unwrap();
}
