//! `tidegate ctl` against a running gate: a change is in force when the command returns, causes no errors,
//! and is in the audit whatever happens to the process.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use serde_json::Value;

use super::harness::{Config, Gate, free_address, tidegate, wait_for};
use super::http::Client;
use super::nginx::Nginx;
use super::origin::Origin;
use super::visitor::Crowd;

fn ctl_with(gate: &Gate, token: &str, arguments: &[&str]) -> Output {
    tidegate()
        .arg("ctl")
        .args(arguments)
        .env("TIDEGATE_URL", format!("http://{}", gate.admin_address()))
        .env("TIDEGATE_TOKEN", token)
        .output()
        .expect("tidegate ctl")
}

fn ctl(gate: &Gate, arguments: &[&str]) -> Output {
    ctl_with(gate, "", arguments)
}

/// What it prints. It must succeed.
#[track_caller]
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Its exit status and the reason.
fn refused(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Status of a request whose target is 400 bytes long, on a connection of its own.
fn status_of_400_bytes(gate: &Gate) -> u16 {
    let target = format!("/shop{}", "x".repeat(395));
    Client::connect(gate.http()).unwrap().get(&target, "").unwrap().status()
}

#[test]
fn a_value_is_in_force_when_ctl_returns_and_no_visitor_sees_an_error() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let crowd = Crowd::start(gate.http(), 16, "/shop");
    for round in 0..10 {
        crowd.wait_served(200);
        let (limit, status) = if round % 2 == 0 { ("300", 414) } else { ("8000", 200) };
        let set = format!("limits.max_uri_bytes={limit}");
        let table = said(&ctl(&gate, &["set", &set, "queue.max_wait=7s", "--why", "a drill"]));
        assert!(table.contains("limits.max_uri_bytes"), "{table}");
        assert_eq!(status_of_400_bytes(&gate), status, "round {round}");
    }
    crowd.stop_without_errors();
    let one = said(&ctl(&gate, &["get", "queue.max_wait"]));
    assert!(one.starts_with("queue.max_wait = 7s\n") && one.contains("a drill"), "{one}");
    let tuned = said(&ctl(&gate, &["get", "--tuned"]));
    assert!(tuned.contains("queue.max_wait") && !tuned.contains("queue.max_length"), "{tuned}");
    assert_eq!(said(&ctl(&gate, &["reset", "queue.max_wait"])), "queue.max_wait = 30s\n");
}

#[test]
fn a_thousand_changes_under_load_are_all_in_force_and_in_the_audit() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let crowd = Crowd::start(gate.http(), 8, "/shop");
    crowd.wait_served(200);
    let mut admin = Client::connect(gate.admin_address()).unwrap();
    let mut longest = 0;
    for n in 1..=1_000 {
        // Alternately a tunable of the gate, of the workers and of the capacity.
        let (name, value) = match n % 3 {
            0 => ("queue.max_length", 1_000 + n),
            1 => ("limits.max_uri_bytes", if n % 2 == 0 { 300 } else { 8_000 }),
            _ => ("capacity.ceiling", 900_000 + n),
        };
        let body = format!("{{\"value\": {value}}}");
        let length = body.len();
        admin
            .send(format!(
                "PUT /v1/tunables/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .unwrap();
        let answer = admin.answer("PUT").unwrap();
        assert_eq!(
            (answer.status(), answer.json()["value"].as_f64()),
            (200, Some(f64::from(value))),
            "{answer:?}"
        );
        if name == "limits.max_uri_bytes" {
            longest = value;
        }
        if n % 50 < 2 {
            let wanted = if longest < 400 { 414 } else { 200 };
            assert_eq!(status_of_400_bytes(&gate), wanted, "change {n}");
        }
    }
    crowd.stop_without_errors();
    let audit: Value = serde_json::from_str(&said(&ctl(&gate, &["audit", "-n", "1000", "--json"]))).unwrap();
    let records = audit["changes"].as_array().unwrap();
    assert!(records.len() > 990, "{}", records.len());
    let ids: Vec<u64> = records.iter().filter_map(|r| r["id"].as_u64()).collect();
    assert!(ids.windows(2).all(|w| w[0] == w[1] + 1), "none is missing");
}

#[test]
fn a_killed_gate_forgets_tuned_values_and_keeps_the_audit() {
    let origin = Origin::answering("ok");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 50.0));
    said(&ctl(&gate, &["set", "room.max_wait=10m", "class.all.cost=2", "--why", "before the crash"]));
    said(&ctl(&gate, &["capacity", "70"]));
    gate.crash_and_restart();
    let one: Value = gate.admin("GET", "/v1/tunables/room.max_wait", "").json();
    assert_eq!((one["value"].as_str(), one["tuned"].is_null()), (Some("30m"), true), "{one}");
    said(&ctl(&gate, &["reload", "--why", "after it"]));
    let table = said(&ctl(&gate, &["audit"]));
    for (what, line) in [
        ("after it", "reload"),
        ("capacity: 50 -> 70", "local@127.0.0.1:"),
        ("class.all.cost: learned -> 2", "before the crash"),
        ("room.max_wait: 30m -> 10m", "before the crash"),
    ] {
        assert!(table.lines().any(|l| l.contains(what) && l.contains(line)), "{what}:\n{table}");
    }
}

#[test]
fn a_reload_keeps_tuned_values_unless_the_file_changed_them() {
    let origin = Origin::answering("ok");
    let mut gate = Gate::start(Config::new(&[origin.address()]).set("queue.max_length", 100));
    let value = |gate: &Gate, name: &str| said(&ctl(gate, &["get", name])).lines().next().unwrap().to_owned();
    said(&ctl(&gate, &["set", "queue.max_length=200", "queue.max_wait=9s"]));
    gate.write_config(|config| config.text("session.timeout", "7m"));
    assert!(said(&ctl(&gate, &["reload"])).contains("session.timeout"));
    assert_eq!(
        value(&gate, "queue.max_length"),
        "queue.max_length = 200",
        "the file has the same value as before"
    );
    assert_eq!(value(&gate, "session.timeout"), "session.timeout = 7m");
    gate.write_config(|config| config.set("queue.max_length", 150));
    said(&ctl(&gate, &["reload"]));
    assert_eq!(value(&gate, "queue.max_length"), "queue.max_length = 150", "the file has a new value");
    assert_eq!(value(&gate, "queue.max_wait"), "queue.max_wait = 9s");
    // A file that contradicts tuned values is refused, and nothing changes.
    said(&ctl(&gate, &["set", "capacity.ceiling=100"]));
    gate.write_config(|config| config.set("capacity.floor", 200));
    let (code, why) = refused(&ctl(&gate, &["reload"]));
    assert!(
        code == Some(1) && why.contains("tuned while running") && why.contains("capacity.floor"),
        "{why}"
    );
    assert_eq!(value(&gate, "capacity.ceiling"), "capacity.ceiling = 100");
    said(&ctl(&gate, &["reset", "capacity.ceiling"]));
    said(&ctl(&gate, &["reload"]));
    assert_eq!(value(&gate, "capacity.floor"), "capacity.floor = 200");
}

#[test]
fn ctl_explains_a_failure_and_has_an_exit_code_for_its_cause() {
    let origin = Origin::answering("ok");
    let (write, read) = ("a-token-that-may-write", "a-token-that-may-read");
    let config = Config::new(&[origin.address()])
        .text("listen.admin_token", write)
        .text("listen.admin_read_token", read);
    let gate = Gate::start(config);
    let cases: [(&str, &[&str], i32, &str); 9] = [
        (read, &["set", "queue.max_wait=5s"], 1, "may only read"),
        ("", &["state"], 1, "TIDEGATE_TOKEN"),
        (write, &["set", "queue.max_wiat=5s"], 1, "Did you mean `queue.max_wait`?"),
        (write, &["set", "queue.max_wait=5 s"], 1, "Write \"5s\"?"),
        (write, &["set", "queue.max_wait"], 2, "KEY=VALUE"),
        (write, &["get", "queue.max_wiat"], 1, "Did you mean `queue.max_wait`?"),
        (write, &["watch", "room.wating"], 2, "Did you mean `room.waiting`?"),
        (write, &["rediscover"], 1, "not discovered"),
        (write, &["--url", "https://127.0.0.1:1", "--ca", "/nowhere.pem", "state"], 2, "--ca: expected"),
    ];
    for (token, arguments, code, reason) in cases {
        let (got, why) = refused(&ctl_with(&gate, token, arguments));
        assert!(got == Some(code) && why.contains(reason), "{arguments:?}: {got:?} {why}");
    }
    let nobody = format!("http://{}", free_address());
    let (code, why) = refused(&ctl(&gate, &["--url", &nobody, "state"]));
    assert!(code == Some(3) && why.contains("no gate at"), "{code:?} {why}");
    for arguments in
        [&["state"][..], &["capacity"], &["get", "queue.*"], &["audit"], &["watch", "--count", "2"]]
    {
        said(&ctl_with(&gate, read, arguments));
    }
    let lines = said(&ctl_with(&gate, read, &["watch", "--count", "3", "--json"]));
    let at: Vec<u64> =
        lines.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()?["at_ms"].as_u64()).collect();
    assert!(at.len() == 3 && at[1] < at[2], "{lines}");
}

#[test]
fn the_watch_ends_when_its_reader_closes_the_pipe() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut watch = tidegate()
        .args(["ctl", "watch", "--url", &format!("http://{}", gate.admin_address())])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tidegate ctl watch");
    let mut head = String::new();
    BufReader::new(watch.stdout.take().expect("a pipe")).read_line(&mut head).expect("a line");
    assert!(head.contains("goodput_per_s"), "{head}");
    // The reader is dropped: the next line cannot be written.
    let status = wait_for("the watch to end", || watch.try_wait().expect("wait"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_drain_ends_the_watch_and_its_reason_is_in_the_audit() {
    let origin = Origin::answering("ok");
    let mut gate = Gate::start(Config::new(&[origin.address()]));
    let watch = tidegate()
        .args(["ctl", "watch", "--json", "--url", &format!("http://{}", gate.admin_address())])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tidegate ctl watch");
    let watches = || -> Value { gate.admin("GET", "/v1/state", "").json() };
    wait_for("a second to pass", || (watches()["at_ms"].as_u64()? > 0).then_some(()));
    // It may not have connected yet; a drain refuses it then, with a reason.
    said(&ctl(&gate, &["drain", "--why", "going home"]));
    assert!(gate.wait_exit().success());
    let ended = watch.wait_with_output().expect("the end of the watch");
    assert!(matches!(ended.status.code(), Some(0 | 1 | 3)), "{ended:?}");
    assert!(gate.state_file("audit.jsonl").contains("going home"));
}

#[test]
fn a_refused_request_is_explained_by_the_id_in_its_answer() {
    let nginx = Nginx::start("a");
    // One request is admitted, and the next one after a thousand seconds.
    let limited = "name = \"default\"\ningress = { rate = 0.001, burst = 1 }";
    let gate = Gate::start(Config::new(&[nginx.address()]).text("explain.header", "id").class(limited));
    let ask = || Client::connect(gate.http()).unwrap().get("/shop", "").unwrap();
    let refused = wait_for("a refusal", || Some(ask()).filter(|answer| answer.status() == 503));
    let told = refused.head.field("tidegate-decision").expect("a decision");
    let id = told.strip_prefix("id=").and_then(|rest| rest.split(';').next()).expect("an id");
    let explain = |id: &str| {
        let url = format!("http://{}", gate.admin_address());
        tidegate().args(["explain", id, "--url", &url]).output().expect("tidegate explain")
    };
    let text = said(&explain(id));
    assert!(text.contains("refused by the gate: ingress_shed") && text.contains("path /shop"), "{text}");
    let (code, why) = self::refused(&explain("0123"));
    assert!(code == Some(1) && why.contains("100000"), "{why}");
}
