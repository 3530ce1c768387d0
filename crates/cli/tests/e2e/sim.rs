//! `tidegate sim`: the same bytes for the same seed, files of results, and messages about mistakes.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::harness::{TempDir, tidegate};

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/sim/crowd.toml");

fn sim(args: &[&str]) -> Output {
    tidegate().args(["sim", SCENARIO]).args(args).output().expect("tidegate sim")
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
fn the_report_on_many_seeds_does_not_depend_on_the_threads() {
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
fn results_are_written_to_the_files_asked_for() {
    let temporary = TempDir::new();
    let dir = temporary.path().join("results");
    let page = dir.join("report.html");
    let (out, html) = (dir.display().to_string(), page.display().to_string());
    let output = sim(&["--out", &out, "--html", &html, "--trace", "200"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome = fs::read_to_string(dir.join("outcome.json")).expect("figures");
    assert!(outcome.contains("\"way\":\"sim\""));
    let series = fs::read_to_string(dir.join("series.csv")).expect("a series");
    assert!(series.starts_with("t,") && series.lines().count() > 20);
    assert!(fs::read_to_string(&page).expect("a page").contains("<svg"));
    assert!(text(&output.stdout).contains("control tick"), "the last steps: {}", text(&output.stdout));
}

#[test]
fn mistakes_are_explained() {
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
