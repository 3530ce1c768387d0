//! `tidegate experiment` on a testbed of network namespaces, with a gate as what accepts connections there:
//! what it measures, and what is left of it when it is interrupted or killed.

use std::fs;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{TempDir, tidegate, wait_for};
use crate::kernel::can_run;

const FILE: &str = r#"
[testbed]
measure = "1s"
policing = "xdp"
[testbed.server]
processes = 2
service = "1ms"
acceptor = "gate"
[[testbed.client]]
name = "known"
sessions = 2
[[testbed.client]]
name = "others"
sessions = 5
[[testbed.rule]]
name = "others"
client = "others"
rate = 0.01
burst = 3
priority = 1
[[testbed.rule]]
name = "known"
client = "known"
[experiment]
paper = "Voigt"
figure = "none"
about = "A test"
[experiment.run.gate]
[experiment.quantity.known]
unit = "1/s"
of = "gate.known_rps"
[experiment.quantity.dropped]
unit = "1/s"
of = "gate.rule_others_seen_per_s - gate.rule_others_passed_per_s"
[experiment.quantity.passed]
unit = "1/s"
of = "gate.rule_others_passed_per_s"
"#;

fn start(dir: &TempDir, text: &str) -> Child {
    let file = dir.path().join("small.toml");
    fs::write(&file, text).expect("a file");
    let mut command = tidegate();
    command.args(["experiment", "run", "--json"]).arg(file).env("TMPDIR", dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("start the experiment")
}

/// The gate's process and its network namespace, once it is there.
fn gate_of(experiment: &Child) -> (u32, String) {
    let of = experiment.id();
    wait_for("the gate in a network of its own", || {
        let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
        let network = |pid: u32| {
            let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
            Some(link.to_string_lossy().into_owned())
        };
        let is_gate = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some("run")
        };
        let pid = list.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_gate)?;
        network(pid).filter(|link| Some(link) != network(of).as_ref()).map(|link| (pid, link))
    })
}

/// Nobody is in the namespace any more, so that the kernel has removed it.
fn wait_for_its_end(network: &str) {
    wait_for("the testbed to be gone", || {
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let links = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
        links.into_iter().all(|link| link.to_string_lossy() != network).then_some(())
    });
}

#[test]
fn a_gate_on_a_testbed_polices_and_serves() {
    if !can_run() {
        return;
    }
    let dir = TempDir::new();
    let output = start(&dir, FILE).wait_with_output().expect("output");
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let experiment = &found["experiments"][0];
    assert!(output.status.success() && experiment.get("partial").is_none(), "{experiment:#}\n{said}");
    let quantity = |name: &str| experiment["quantities"][name]["ours"].as_f64().expect(name);
    assert!(quantity("known") > 0.0, "{experiment:#}");
    assert!(quantity("passed") <= 4.0 && quantity("dropped") >= 0.0, "{experiment:#}");
}

#[test]
fn nothing_is_left_of_a_testbed_that_is_interrupted_or_killed() {
    if !can_run() {
        return;
    }
    for signal in ["-TERM", "-KILL"] {
        let dir = TempDir::new();
        let experiment = start(&dir, &FILE.replace("measure = \"1s\"", "measure = \"10m\""));
        let (_, network) = gate_of(&experiment);
        let pid = experiment.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(sent.success());
        let output = experiment.wait_with_output().expect("output");
        assert!(!output.status.success());
        wait_for_its_end(&network);
        if signal == "-TERM" {
            let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let partial = found["experiments"][0]["partial"].to_string();
            assert!(partial.contains("interrupted"), "{partial}");
        }
    }
}
