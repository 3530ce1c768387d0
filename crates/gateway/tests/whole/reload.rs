//! Reloading with the state directory as it may be found.

use std::path::Path;

use tidegate_gateway::settings::Override;

use crate::harness::{Gate, Origin};

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
    gate.server().control().reload().unwrap();
    let kept = std::fs::read_to_string(&keys).unwrap();
    assert!(kept.contains(':'), "an empty ring was kept: {kept:?}");
}
