//! Reloading with the state directory as it may be found.

use std::path::Path;

use tidegate_settings::{MAX_CHANGES, Override};

use crate::whole::harness::{Gate, Origin, get};

#[test]
fn another_role_takes_a_restart() {
    const KEYS: &str =
        "[room]\nkeys = [\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]\n";
    let (origin, toml) = (Origin::start(), format!("{KEYS}[origin]\nreplicas = [\"ORIGIN\"]\n"));
    let gate = Gate::start_from_file(&origin, &toml);
    let tokengen = "[tokengen]\ncheck_url = \"http://check.example\"\n";
    gate.reload(&origin, &format!("role = \"tokengen\"\n{toml}{tokengen}"));
    let answer = get(gate.http, "/", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "served here, and sent nowhere else: {answer}");
}

#[test]
fn more_may_be_tuned_than_at_once() {
    let classes: String = (0..30).map(|n| format!("[[class]]\nname = \"c{n}\"\n")).collect();
    let (origin, toml) = (Origin::start(), format!("[origin]\nreplicas = [\"ORIGIN\"]\n{classes}"));
    let gate = Gate::start_from_file(&origin, &toml);
    let keys = [
        ("cost", "2"),
        ("priority", "2"),
        ("weight", "3"),
        ("max_in_flight", "50"),
        ("ingress.rate", "1000"),
        ("ingress.burst", "9"),
        ("queue.max_length", "5"),
        ("queue.patience", "\"1s\""),
        ("queue.interval", "\"1s\""),
        ("egress.rate", "1000"),
    ];
    let change = |(key, value): &(&str, &'static str), n: u32| (format!("class.c{n}.{key}"), *value);
    let changes: Vec<_> = (0..30).flat_map(|n| keys.iter().map(move |key| change(key, n))).collect();
    let store = gate.server().control().store();
    for part in changes.chunks(MAX_CHANGES) {
        store.tune(part, "a tuner", "a test").unwrap();
    }
    gate.reload(&origin, &format!("{toml}[log]\nlevel = \"warn\"\n"));
    assert_eq!(store.with_tuning(|tuning| tuning.tuned().len()), changes.len());
}

#[test]
fn a_reload_without_a_key_file_makes_a_key() {
    let origin = Origin::start();
    let gate = Gate::start_with(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n", |state: &Path| {
        vec![
            Override::set(&format!("origin.replicas=[\"{}\"]", origin.address)),
            Override::set(&format!("room.state_dir={}", state.display())),
        ]
    });
    let keys = gate.state().join("keys");
    std::fs::remove_file(&keys).unwrap();
    gate.server().control().store().reload().unwrap();
    let kept = std::fs::read_to_string(&keys).unwrap();
    assert!(kept.contains(':'), "an empty ring was kept: {kept:?}");
}
