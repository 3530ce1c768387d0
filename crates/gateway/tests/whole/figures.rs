//! What the gate says about itself.

use std::io::{Read, Write};

use crate::harness::{Gate, Origin, ask, connect, get, read_head, until};

#[test]
fn the_access_log_names_the_replica_and_moves_on_with_rotation() {
    let origin = Origin::start();
    let path = std::env::temp_dir().join(format!("tidegate-whole-access-{}", std::process::id()));
    let moved = path.with_extension("1");
    let log =
        format!("[log]\naccess = \"json\"\naccess_file = {path:?}\n[origin]\nreplicas = [\"ORIGIN\"]\n");
    let gate = Gate::start(&origin, &log);
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    get(gate.http, "/one", "");
    let lines = until(read, |text| text.contains("/one"));
    assert!(lines.contains(&format!("\"replica\":\"{}\"", origin.address)), "{lines}");
    std::fs::rename(&path, &moved).unwrap();
    // The test's gate has no file to read again, and rotation must not depend on a right one.
    let _ = gate.server().control().reload();
    get(gate.http, "/two", "");
    until(read, |text| text.contains("/two"));
    let _ = (std::fs::remove_file(&path), std::fs::remove_file(&moved));
}

#[test]
fn what_the_dispatchers_count_is_in_the_metrics() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    let mut visitor = connect(gate.http);
    visitor
        .write_all(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    read_head(&mut visitor).unwrap();
    visitor.write_all(b"1234").unwrap();
    visitor.read_exact(&mut [0; 4]).unwrap();
    let metrics = || ask(gate.admin, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    until(metrics, |text| text.contains("\ntidegate_upgrade_bytes_total 8\n"));
    let text = metrics();
    for line in ["tidegate_open_tunnels 1", "tidegate_origin_connects_total 1", "tidegate_retries_total 0"] {
        assert!(text.contains(&format!("\n{line}\n")), "no {line} in {text}");
    }
}
