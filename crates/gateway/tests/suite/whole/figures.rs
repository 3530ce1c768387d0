//! What the gate says about itself.

use std::io::{Read, Write};

use crate::whole::harness::{Gate, Origin, ask, connect, get, read_head, until};

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
    let _ = gate.server().control().store().reload();
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

/// The text form's rules and the naming conventions: <https://prometheus.io/docs/practices/naming/>.
#[test]
fn metrics_are_named_as_prometheus_asks() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    get(gate.http, "/", "");
    let text = ask(gate.admin, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut families: Vec<(&str, &str)> = Vec::new();
    let (mut helped, mut seen) = ("", 0);
    for line in text.split_once("\r\n\r\n").unwrap().1.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(!words.is_empty() && words.ends_with('.'), "{line}");
            assert!(!families.iter().any(|(known, _)| *known == name), "twice, or not in one piece: {line}");
            helped = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let base = ["_seconds", "_bytes", "_ratio", "_total"].iter().any(|unit| name.ends_with(unit));
            assert!(
                base || !["_ms", "_millis", "_us", "_mb", "_percent"].iter().any(|u| name.contains(u)),
                "{line}"
            );
            families.push((name, kind));
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let (family, kind) = *families.last().unwrap();
            let tails: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(tails.iter().any(|tail| *name == format!("{family}{tail}")), "{line} in {family}");
            assert!(
                name.starts_with("tidegate_")
                    && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(value == "+Inf" || value.parse::<f64>().is_ok(), "{line}");
            seen += 1;
        }
    }
    assert!(families.len() > 60 && seen > 100, "{} families, {seen} samples", families.len());
    for (name, kind) in [
        ("tidegate_response_seconds", "histogram"),
        ("tidegate_queue_wait_seconds", "histogram"),
        ("tidegate_class_client_gone_total", "counter"),
        ("tidegate_class_shed_total", "counter"),
        ("tidegate_class_in_flight", "gauge"),
        ("tidegate_history_bytes", "gauge"),
    ] {
        assert!(families.contains(&(name, kind)), "{name}");
    }
}
