//! Reload and shutdown under load, and configurations that are refused.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, mpsc};

use super::harness::{Config, DEADLINE, Gate, Running, TempDir, free_address, tidegate, wait_for};
use super::http::{Client, read_head};
use super::nginx::Nginx;
use super::origin::Origin;
use super::visitor::Crowd;

/// Three mistakes: a misspelt key, a wrong type, a value out of range.
const MISTAKES: &str = "\
[listen]
htpp = \"127.0.0.1:1\"

[origin]
replicas = [\"127.0.0.1:2\"]
retry_budget = \"much\"

[room]
status = 99
";
/// Line and key of each mistake.
const EXPECTED: [(&str, &str); 3] = [("2", "htpp"), ("6", "retry_budget"), ("9", "status")];

fn assert_names_all_mistakes(text: &str) {
    for (line, key) in EXPECTED {
        let found = text.lines().any(|l| l.contains(key));
        assert!(found, "names {key}:\n{text}");
        assert!(
            text.contains(&format!(":{line}")) || text.contains(&format!("line {line}")),
            "line of {key}:\n{text}"
        );
    }
    assert!(text.contains("http"), "did you mean `http`:\n{text}");
}

/// Status of a request whose target is `length` bytes long.
fn status_of_length(gate: &Gate, length: usize) -> u16 {
    let target = format!("/shop{}", "x".repeat(length - 5));
    Client::connect(gate.http()).unwrap().get(&target, "").unwrap().status()
}

#[test]
fn reloads_under_load_cause_no_errors() {
    let nginx = Nginx::start("a");
    let mut gate = Gate::start(Config::new(&[nginx.address()]));
    let crowd = Crowd::start(gate.http(), 16, "/shop");
    for round in 0..10 {
        crowd.wait_served(300);
        let (limit, status) = if round % 2 == 0 { (300, 414) } else { (8_000, 200) };
        gate.write_config(|config| config.set("limits.max_uri_bytes", limit));
        if round % 3 == 0 {
            let answer = gate.admin("POST", "/v1/reload", "");
            assert!(answer.status() < 300, "{answer:?}");
        } else {
            gate.signal("HUP");
        }
        wait_for(format!("reload {round} to take effect"), || {
            (status_of_length(&gate, 400) == status).then_some(())
        });
    }
    crowd.stop_without_errors();
}

#[test]
fn a_reload_moves_traffic_to_other_replicas() {
    let (a, b) = (Nginx::start("a"), Nginx::start("b"));
    let mut gate = Gate::start(Config::new(&[a.address()]));
    let crowd = Crowd::start(gate.http(), 8, "/shop");
    gate.write_config(|config| config.set("origin.replicas", format!("[\"{}\"]", b.address())));
    assert!(gate.admin("POST", "/v1/reload", "").status() < 300);
    wait_for("answers of the new replica", || {
        (Client::connect(gate.http()).ok()?.get("/name", "").ok()?.text() == "b").then_some(())
    });
    // By then, requests on their way to the old replica have ended.
    crowd.wait_served(500);
    drop(a);
    crowd.wait_served(500);
    crowd.stop_without_errors();
}

#[test]
fn sigterm_under_load_causes_no_errors() {
    let nginx = Nginx::start("a");
    let mut gate = Gate::start(Config::new(&[nginx.address()]));
    let crowd = Crowd::start(gate.http(), 16, "/page");
    crowd.wait_served(2_000);
    gate.signal("TERM");
    let status = gate.wait_exit();
    crowd.stop_without_errors();
    assert!(status.success(), "{status}");
}

#[test]
fn sigterm_lets_an_answer_in_progress_finish() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::start(move |exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")?;
        held.lock().expect("one visitor").recv_timeout(DEADLINE).expect("released");
        exchange.send("-half")
    });
    let mut gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("GET /slow HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    let head = read_head(&mut client.stream).unwrap();
    gate.signal("TERM");
    wait_for("the listener to close", || Client::connect(gate.http()).is_err().then_some(()));
    release.send(()).unwrap();
    let mut body = Vec::new();
    client.body(&head, "GET", &mut |part| body.extend_from_slice(part)).unwrap();
    assert_eq!(body, b"first-half");
    assert!(gate.wait_exit().success());
}

#[test]
fn the_drain_timeout_ends_a_gate_with_requests_under_way() {
    let (over, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")?;
        // Does not end its answer while the gate lives.
        let _ = wait.lock().expect("one visitor").recv();
        Ok(())
    });
    let mut gate = Gate::start(Config::new(&[origin.address()]).text("limits.drain_timeout", "1s"));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("GET /slow HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    read_head(&mut client.stream).unwrap();
    gate.signal("TERM");
    gate.wait_exit();
    drop(over);
}

#[test]
fn a_wrong_configuration_is_refused_with_every_mistake() {
    let dir = TempDir::new();
    let file = dir.path().join("wrong.toml");
    fs::write(&file, MISTAKES).unwrap();
    for arguments in [vec!["check"], vec!["run", "--config"]] {
        let output = tidegate().args(&arguments).arg(&file).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_names_all_mistakes(&text);
    }
}

#[test]
fn the_printed_default_is_a_valid_configuration() {
    let output = tidegate().args(["config", "default"]).output().unwrap();
    assert!(output.status.success());
    let dir = TempDir::new();
    let file = dir.path().join("default.toml");
    // The default names no replica, which only the operator can know.
    let text = String::from_utf8(output.stdout).unwrap();
    for table in ["[listen]", "[origin]", "[limits]", "[capacity]", "[room]", "[session]", "[queue]", "[log]"]
    {
        assert!(text.contains(table), "{table}");
    }
    fs::write(&file, text).unwrap();
    let check = tidegate().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    assert!(check.status.success() || said.contains("replicas"), "{said}");
}

#[test]
fn a_running_gate_keeps_its_configuration_if_the_new_one_is_wrong() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let crowd = Crowd::start(gate.http(), 4, "/shop");
    gate.write_raw_config(MISTAKES);
    let answer = gate.admin("POST", "/v1/reload", "");
    assert!((400..500).contains(&answer.status()), "{answer:?}");
    assert_names_all_mistakes(&answer.text());
    gate.signal("HUP");
    wait_for("the log to name the mistakes", || gate.log().contains("retry_budget").then_some(()));
    crowd.wait_served(200);
    crowd.stop_without_errors();
    assert_eq!(gate.admin("GET", "/readyz", "").status(), 200);
}

/// Whether a process handles SIGHUP itself: the first bit of the signals it catches.
fn takes_sighup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

#[test]
fn a_reload_that_is_asked_for_before_the_gate_is_ready_does_not_end_it() {
    let dir = TempDir::new();
    // The gate waits for its configuration until it is written here.
    let file = dir.path().join("gate.toml");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let mut gate = Running::start(tidegate().args(["run", "--quiet", "--config"]).arg(&file));
    wait_for("the gate to take SIGHUP", || takes_sighup(gate.0.id()).then_some(()));
    gate.signal("HUP");
    let [http, admin, origin] = [free_address(), free_address(), free_address()];
    let state = dir.path().join("state");
    let text = format!(
        "[listen]\nhttp = \"{http}\"\nadmin = \"{admin}\"\n[origin]\nreplicas = [\"{origin}\"]\n\
         [room]\nstate_dir = \"{}\"\n",
        state.display()
    );
    // In a thread: a gate that has ended would never read it.
    std::thread::spawn(move || fs::write(file, text));
    wait_for("the gate to be ready", || {
        assert!(gate.0.try_wait().unwrap().is_none(), "the gate has ended");
        Client::connect(admin).ok()
    });
}

#[test]
fn a_full_table_of_sessions_is_told() {
    let origin = Origin::answering("welcome");
    let config = Config::new(&[origin.address()]).set("session.max_entries", 16);
    let gate = Gate::start(config.text("room.unit", "session"));
    // Each is a visitor of its own, and shows no cookie.
    wait_for("a warning", || {
        Client::connect(gate.http()).ok()?.get("/", "").ok()?;
        gate.log()
            .contains("no session begins: as many are known as session.max_entries allows")
            .then_some(())
    });
    assert!(gate.log().contains("max_entries=16"), "{}", gate.log());
}
