//! `tidegate sim` as an operator meets it: the same bytes for the same seed, files, and messages that help.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn scenario() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/sim/crowd.toml")
}

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("sim").arg(scenario()).args(args);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let args = ["--json", "--seed", "3", "--faults"];
    let (one, other) = (sim(&args), sim(&args));
    assert!(one.status.success(), "{}", text(&one.stderr));
    assert_eq!(one.stdout, other.stdout);
    let figures: Value = serde_json::from_slice(&one.stdout).expect("one JSON object");
    assert_eq!((&figures["way"], &figures["seed"]), (&"sim".into(), &3.into()));
    assert!(figures["series"].as_array().is_some_and(|series| series.len() > 20));
    assert!(figures["summary"]["events"].as_f64().is_some_and(|events| events > 1_000.0));
    assert_ne!(sim(&["--json", "--seed", "4", "--faults"]).stdout, one.stdout);
}

#[test]
fn many_seeds_are_played_whatever_the_threads() {
    let of = |threads| {
        let output = sim(&["--seeds", "1..4", "--faults", "--json", "--threads", threads]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let one = of("1");
    assert_eq!(one, of("3"));
    let report: Value = serde_json::from_slice(&one).expect("one JSON object");
    assert_eq!(report["broken"], serde_json::json!([]));
}

#[test]
fn results_go_where_they_are_wanted() {
    let dir = std::env::temp_dir().join(format!("tidegate-sim-{}", std::process::id()));
    let page = dir.join("report.html");
    let (out, html) = (dir.display().to_string(), page.display().to_string());
    let output = sim(&["--out", &out, "--html", &html, "--trace", "200"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome = std::fs::read_to_string(dir.join("outcome.json")).expect("figures");
    assert!(outcome.contains("\"way\":\"sim\""));
    let series = std::fs::read_to_string(dir.join("series.csv")).expect("a series");
    assert!(series.starts_with("t,") && series.lines().count() > 20);
    assert!(std::fs::read_to_string(&page).expect("a page").contains("<svg"));
    assert!(text(&output.stdout).contains("control tick"), "the last steps: {}", text(&output.stdout));
    std::fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn mistakes_are_told() {
    let cases: [(&[&str], &str); 10] = [
        (&["--seeds", "18446744073709551615"], "up to 9223372036854775807"),
        (&["--seed", "18446744073709551615"], "not in 0..=9223372036854775807"),
        (&["--seeds", "1..2", "--threads", "0"], "expected 1 to 256, got 0"),
        (&["--out", "/dev/null/results"], "--out: /dev/null/results: "),
        (&["--html", "/dev/null/page.html"], "--html: /dev/null/page.html: "),
        (&["--seeds", "9..2"], "expected A..B with A at most B"),
        (&["--seeds", "few"], "expected A..B"),
        (&["--set", "gate.capacity.rate"], "expected KEY=VALUE"),
        (&["--set", "gate.capacity.rat=80"], "rat"),
        (&["--set", "arrivals.phase.1.for=forever", "--set", "arrivals.repeat=1"], "deadline"),
    ];
    for (args, expected) in cases {
        let output = sim(args);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}
