//! The admin API: authorisation, answers, and changes while the gate runs.

use super::harness::{Config, DEADLINE, Gate, TempDir, tidegate, wait_for};
use super::http::Client;
use super::origin::Origin;
use super::visitor::{Visitor, is_wait};

#[test]
fn the_admin_api_requires_its_token() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(
        Config::new(&[origin.address()]).text("listen.admin_token", "a-long-secret-for-tests-only"),
    );
    let long = format!("Authorization: Bearer {}\r\n", "a".repeat(5_000));
    let refused = [
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer a-long-secret-for-tests-onl\r\n",
        "Authorization: Bearer a-long-secret-for-tests-only2\r\n",
        "Authorization: Basic a-long-secret-for-tests-only\r\n",
        &long,
    ];
    for path in ["/metrics", "/v1/state", "/v1/capacity"] {
        for fields in refused {
            let answer = Client::connect(gate.admin_address()).unwrap().get(path, fields).unwrap();
            assert_eq!(answer.status(), 401, "{path} {fields}");
        }
        assert_eq!(gate.admin("GET", path, "").status(), 200, "{path}");
    }
    let mut client = Client::connect(gate.admin_address()).unwrap();
    client
        .send("PUT /v1/capacity HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n{\"rate\": 1}")
        .unwrap();
    assert_eq!(client.answer("PUT").unwrap().status(), 401);
}

#[test]
fn an_admin_listener_beyond_loopback_needs_a_token() {
    let dir = TempDir::new();
    let file = dir.path().join("open.toml");
    let text = "[listen]\nadmin = \"0.0.0.0:9090\"\n[origin]\nreplicas = [\"127.0.0.1:2\"]\n";
    std::fs::write(&file, text).unwrap();
    let output = tidegate().arg("check").arg(&file).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("admin_token"), "{said}");
}

#[test]
fn metrics_are_prometheus_text_and_count_requests() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    for _ in 0..10 {
        client.get("/", "").unwrap();
    }
    wait_for("ten requests in the metrics", || {
        let text = gate.admin("GET", "/metrics", "").text();
        let mut samples = 0;
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(name.starts_with("tidegate_") || name.starts_with("process_"), "{line}");
            samples += usize::from(name.contains("requests") && value >= 10.0);
        }
        (samples > 0).then_some(())
    });
}

#[test]
fn unknown_paths_methods_and_bodies_are_refused() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::new(&[origin.address()]));
    let cases = [
        ("GET", "/nowhere", "", 404),
        ("POST", "/v1/state", "", 405),
        ("DELETE", "/v1/capacity", "", 405),
        ("PUT", "/v1/capacity", "", 400),
        ("PUT", "/v1/capacity", "{\"rate\": \"fast\"}", 400),
        ("PUT", "/v1/capacity", "{\"rate\": -1}", 400),
        ("PUT", "/v1/capacity", "{\"rate\": 1e400}", 400),
        ("PUT", "/v1/capacity", "{\"speed\": 1}", 400),
        ("PUT", "/v1/capacity", "{", 400),
    ];
    for (method, path, body, status) in cases {
        let got = gate.admin(method, path, body).status();
        // 422 is also right for a number out of range.
        assert!(got == status || (status == 400 && got == 422), "{method} {path} {body}: {got}");
    }
}

#[test]
fn capacity_changes_while_running() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.01));
    let ask = || Visitor::default().ask_once(gate.http(), "/shop").unwrap();
    wait_for("the first turn to be taken", || is_wait(&ask()).then_some(()));
    // A visitor who waits now would wait for minutes. The new capacity must apply to them too.
    let mut waiting = Visitor::default();
    assert!(is_wait(&waiting.ask_once(gate.http(), "/shop").unwrap()));
    gate.set_rate(1_000.0);
    let got: serde_json::Value = gate.admin("GET", "/v1/capacity", "").json();
    assert_eq!(got["rate"].as_f64(), Some(1_000.0), "{got}");
    assert_eq!(waiting.wait_for_turn(gate.http(), "/shop").status(), 200);
    wait_for("newcomers to pass", || (ask().status() == 200).then_some(()));
    assert!(DEADLINE.as_secs() < 1_000, "the old wait cannot be what let them in");
}
