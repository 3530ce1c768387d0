//! A disk that hangs delays only the clients that wait for it. A pipe that nobody reads or writes stands for
//! the disk.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::whole::harness::{Gate, Origin, PATIENCE, admin, connect, get, until};

const PLAIN: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\n";

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Sends a change without waiting for its answer.
fn send(gate: &Gate, method: &str, target: &str, body: &str) -> std::net::TcpStream {
    let mut stream = connect(gate.admin);
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    stream
}

fn answer(mut stream: std::net::TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Checks that the tick goes on, visitors are served, and reading the API works.
fn goes_on(gate: &Gate) {
    let at = |state: &serde_json::Value| state["at_ms"].as_u64().expect("a time");
    let before = at(&gate.admin("/v1/state"));
    until(|| gate.admin("/v1/state").to_string(), |state| at(&state.parse().unwrap()) > before + 2_000);
    assert!(get(gate.http, "/", "").ends_with("served"));
    assert!(gate.admin("/v1/tunables")["generation"].is_u64());
    assert!(gate.admin("/v1/tunables/queue.max_wait")["value"].is_string());
}

/// A gate whose next audit record waits until somebody reads the pipe.
fn with_full_record(origin: &Origin) -> (Gate, File) {
    let gate = Gate::start_with(origin, PLAIN, |state| {
        // The gate opens the file when there is something to record.
        std::fs::create_dir_all(state.join("audit.jsonl")).unwrap();
        Vec::new()
    });
    let path = gate.state().join("audit.jsonl");
    std::fs::remove_dir(&path).unwrap();
    pipe(&path);
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let mut filler = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    while filler.write(&[b'\n'; 4096]).is_ok() {}
    (gate, reader)
}

#[test]
fn a_request_to_drain_is_answered_before_the_gate_ends() {
    let origin = Origin::start();
    let (gate, mut reader) = with_full_record(&origin);
    let admin = gate.admin;
    let asked = send(&gate, "POST", "/v1/drain", "");
    until(|| gate.admin("/v1/state").to_string(), |state| state.contains("\"draining\":true"));
    let end = std::thread::spawn(move || drop(gate));
    until(|| std::net::TcpStream::connect(admin).is_err().to_string(), |refused| refused == "true");
    // Only the request whose answer waits for its record is left.
    while reader.read(&mut [0; 65_536]).is_ok_and(|n| n > 0) {}
    assert!(answer(asked).starts_with("HTTP/1.1 200"));
    end.join().unwrap();
}

#[test]
fn a_hanging_audit_file_delays_the_change_only() {
    let origin = Origin::start();
    let (gate, mut reader) = with_full_record(&origin);
    let first = send(&gate, "PUT", "/v1/tunables/queue.max_wait", r#"{"value": "7s"}"#);
    until(|| gate.admin("/v1/tunables/queue.max_wait").to_string(), |one| one.contains("\"7s\""));
    // A second change waits behind it.
    let second = send(&gate, "DELETE", "/v1/tunables/queue.max_wait", "");
    let third = send(&gate, "PUT", "/v1/capacity", r#"{"rate": 500}"#);
    goes_on(&gate);
    for stream in [&first, &second, &third] {
        stream.set_nonblocking(true).unwrap();
        let unanswered = stream.peek(&mut [0]).unwrap_err();
        assert_eq!(unanswered.kind(), ErrorKind::WouldBlock, "answered before it was recorded");
        stream.set_nonblocking(false).unwrap();
    }
    // The disk works again.
    let mut record = String::new();
    let mut look = || {
        let mut bytes = [0; 65_536];
        if let Ok(n) = reader.read(&mut bytes) {
            record.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        }
        record.clone()
    };
    let whole = until(&mut look, |record| record.matches("\"action\"").count() == 3);
    for stream in [first, second, third] {
        assert!(answer(stream).starts_with("HTTP/1.1 200"));
    }
    let lines: Vec<serde_json::Value> =
        whole.lines().filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect();
    let news: Vec<_> = lines.iter().map(|line| line["new"].clone()).collect();
    assert_eq!(news[0], json!("7s"), "in the order in which they took effect");
    assert!(news.contains(&json!("30s")) && news.contains(&json!(500.0)), "{news:?}");
}

#[test]
fn a_hanging_file_delays_the_reload_only() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, PLAIN);
    // The key ring, which a reload reads from the state directory, is a pipe.
    let keys = gate.state().join("keys");
    let ring = std::fs::read(&keys).unwrap();
    std::fs::remove_file(&keys).unwrap();
    pipe(&keys);
    std::fs::write(
        gate.state().join("gate.toml"),
        PLAIN.replace("ORIGIN", &origin.address.to_string()) + "[queue]\nmax_wait = \"9s\"\n",
    )
    .unwrap();
    let reload = send(&gate, "POST", "/v1/reload", "");
    // The reload is waiting for the ring now.
    let mut writer = None;
    until(
        || {
            let open = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&keys);
            writer = open.ok();
            String::from(if writer.is_some() { "read" } else { "not read" })
        },
        |state| state == "read",
    );
    goes_on(&gate);
    assert!(gate.admin("/v1/tunables/queue.max_wait")["value"] == "30s");
    writer.take().unwrap().write_all(&ring).unwrap();
    reload.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(answer(reload).starts_with("HTTP/1.1 200"));
    assert!(gate.admin("/v1/tunables/queue.max_wait")["value"] == "9s");
    let drained = admin(&gate, "/healthz");
    assert!(drained.starts_with("HTTP/1.1 200"));
}
