//! The measurement database survives `kill -9`, and no failure of its file keeps a gate from serving.

use std::collections::BTreeMap;

use serde_json::Value;

use super::harness::{Config, Gate, TempDir, wait_for};
use super::http::Client;
use super::origin::Origin;

/// The answer to `query`: averages by second, without gaps.
fn found(gate: &Gate, query: &str) -> BTreeMap<u64, f64> {
    let answer = gate.admin("GET", &format!("/v1/history?{query}"), "");
    assert_eq!(answer.status(), 200, "{query}: {answer:?}");
    let rows = answer.json()["rows"].as_array().expect("rows").clone();
    rows.iter().filter_map(|row| Some((row[0].as_u64()?, row[1].as_f64()?))).collect()
}

fn listed(gate: &Gate) -> Value {
    gate.admin("GET", "/v1/history", "").json()
}

fn visit(gate: &Gate, times: usize) {
    let mut client = Client::connect(gate.http()).unwrap();
    for _ in 0..times {
        assert_eq!(client.get("/search", "").unwrap().status(), 200);
    }
}

fn config(origin: &Origin) -> Config {
    Config::new(&[origin.address()]).class("name = \"search\"\nmatch = { path = \"/search\" }")
}

const EACH_SECOND: &str = "from=-10m&step=1";

#[test]
fn kill_9_loses_at_most_the_last_second() {
    let origin = Origin::answering("ok");
    let mut gate = Gate::start(config(&origin));
    visit(&gate, 20);
    let query = format!("metric=arrivals&class=search&{EACH_SECOND}");
    let before = wait_for("some seconds with the visits", || {
        let found = found(&gate, &query);
        (found.len() >= 4 && found.values().sum::<f64>() > 0.0).then_some(found)
    });
    gate.crash_and_restart();
    let newest = *before.keys().next_back().unwrap();
    let after = wait_for("seconds of the new process", || {
        let found = found(&gate, &query);
        found.keys().any(|at| *at > newest + 1).then_some(found)
    });
    for (at, value) in before.range(..newest) {
        assert_eq!(after.get(at), Some(value), "second {at} of {before:?} in {after:?}");
    }
    assert_eq!(listed(&gate)["on_disk"], true);
    assert!(!gate.log().contains("damaged"), "{}", gate.log());
}

#[test]
fn a_class_added_by_a_reload_has_a_history() {
    let origin = Origin::answering("ok");
    let mut gate = Gate::start(config(&origin));
    wait_for("a second of the first class", || {
        found(&gate, &format!("metric=arrivals&class=search&{EACH_SECOND}")).len().checked_sub(1)
    });
    gate.write_config(|c| c.class("name = \"basket\"\nmatch = { path = \"/basket\" }"));
    assert_eq!(gate.admin("POST", "/v1/reload", "").status(), 200);
    wait_for("a second of the new class", || {
        found(&gate, &format!("metric=arrivals&class=basket&{EACH_SECOND}")).len().checked_sub(1)
    });
    let names = listed(&gate)["classes"].clone();
    assert_eq!(names, serde_json::json!(["basket", "default", "search"]));
}

/// The detectors are written behind the lines of a class, as the harness has no function for them.
#[test]
fn what_a_source_said_survives_kill_9_and_a_detector_added_by_a_reload_has_a_history() {
    let origin = Origin::answering("ok");
    let memory = "name = \"spare\"\nmatch = { path = \"/spare\" }\n\
                  [[detector]]\nname = \"memory\"\nkind = \"host\"\nfigure = \"memory\"\nevery = \"200ms\"\nred = 2";
    let mut gate = Gate::start(config(&origin).class(memory));
    let query = |metric: &str, detector: &str| format!("metric={metric}&detector={detector}&{EACH_SECOND}");
    let before = wait_for("some seconds of the detector", || {
        Some(found(&gate, &query("detector_reading", "memory"))).filter(|found| found.len() >= 3)
    });
    assert!(before.values().all(|share| *share > 0.0 && *share < 1.0), "{before:?}");
    gate.crash_and_restart();
    let newest = *before.keys().next_back().unwrap();
    let after = wait_for("seconds of the new process", || {
        let found = found(&gate, &query("detector_reading", "memory"));
        found.keys().any(|at| *at > newest + 1).then_some(found)
    });
    for (at, value) in before.range(..newest) {
        assert_eq!(after.get(at), Some(value), "second {at} of {before:?} in {after:?}");
    }
    let load = "name = \"other\"\nmatch = { path = \"/other\" }\n\
                [[detector]]\nname = \"load\"\nkind = \"host\"\nfigure = \"load\"\nevery = \"200ms\"\nred = 1e6";
    gate.write_config(|c| c.class(load));
    assert_eq!(gate.admin("POST", "/v1/reload", "").status(), 200);
    let levels = wait_for("a second of the new detector", || {
        Some(found(&gate, &query("detector_level", "load"))).filter(|found| !found.is_empty())
    });
    assert!(levels.values().all(|level| *level == 0.0), "{levels:?}");
    assert_eq!(listed(&gate)["detectors"], serde_json::json!(["load", "memory"]));
    assert!(
        gate.admin("GET", "/metrics", "").text().contains("tidegate_detector_reading{detector=\"load\"} ")
    );
}

#[test]
fn history_is_available_as_csv_and_mistakes_are_explained() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(config(&origin));
    wait_for("a second", || found(&gate, &format!("metric=connections&{EACH_SECOND}")).len().checked_sub(1));
    let csv = gate.admin("GET", "/v1/history?metric=goodput&from=-1m&format=csv", "").text();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("at,time,goodput,goodput_min,goodput_max"));
    assert_eq!(lines.next().map(|line| line.split(',').count()), Some(5), "{csv}");
    for (query, word) in [
        ("metric=gootput", "gootput"),
        ("metric=goodput&from=yesterday", "RFC 3339"),
        ("metric=goodput&from=-1m&to=-2m", "before"),
        ("metrics=goodput", "an unknown name"),
    ] {
        let answer = gate.admin("GET", &format!("/v1/history?{query}"), "");
        assert_eq!(answer.status(), 400, "{query}");
        assert!(answer.text().contains(word), "{query}: {}", answer.text());
    }
    assert_eq!(gate.admin("POST", "/v1/history", "").status(), 405);
}

#[test]
fn gates_serve_without_a_writable_file_for_history() {
    let origin = Origin::answering("ok");
    let dir = TempDir::new();
    let shared = dir.path().join("shared");
    let first = Gate::start(config(&origin).text("history.dir", shared.display()));
    wait_for("the first to have the file", || (listed(&first)["on_disk"] == true).then_some(()));
    let second = Gate::start(config(&origin).text("history.dir", shared.display()));
    let blocked = dir.path().join("blocked");
    std::fs::write(&blocked, "in the way").unwrap();
    let third = Gate::start(config(&origin).text("history.dir", blocked.display()));
    for (gate, told) in
        [(&second, "another gate keeps its history there"), (&third, "history cannot be kept on disk")]
    {
        visit(gate, 5);
        wait_for("the last seconds from memory", || {
            let found = found(gate, &format!("metric=goodput&{EACH_SECOND}"));
            (found.values().sum::<f64>() > 0.0).then_some(())
        });
        assert_eq!(listed(gate)["on_disk"], false);
        assert_eq!(gate.log().matches(told).count(), 1, "{}", gate.log());
        let metrics = gate.admin("GET", "/metrics", "").text();
        assert!(metrics.contains("\ntidegate_history_on_disk 0\n"), "{metrics}");
    }
    let metrics = first.admin("GET", "/metrics", "").text();
    for line in
        ["tidegate_history_on_disk 1", "tidegate_history_dropped_total 0", "tidegate_history_failed_total 0"]
    {
        assert!(metrics.contains(&format!("\n{line}\n")), "no {line} in {metrics}");
    }
    // The file becomes free, and the next attempt opens it.
    drop(first);
    wait_for("the second to have the file", || (listed(&second)["on_disk"] == true).then_some(()));
}

#[test]
fn a_damaged_file_is_renamed_and_history_can_be_switched_off() {
    let origin = Origin::answering("ok");
    let dir = TempDir::new();
    std::fs::write(dir.path().join("history.db"), "rubbish".repeat(1_000)).unwrap();
    let gate = Gate::start(config(&origin).text("history.dir", dir.path().display()));
    wait_for("the history to be kept", || (listed(&gate)["on_disk"] == true).then_some(()));
    assert!(dir.path().join("history.db.damaged").exists());
    assert!(gate.log().contains("set aside"), "{}", gate.log());
    let off = Gate::start(config(&origin).set("history.enabled", false));
    visit(&off, 1);
    let answer = off.admin("GET", "/v1/history?metric=goodput", "");
    assert_eq!(answer.status(), 404, "{answer:?}");
    assert!(answer.text().contains("history.enabled"));
}
