//! `tidegate experiment` over real processes: what it prints, what it leaves behind, and what becomes of its
//! children.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use serde_json::Value;

use super::harness::{TempDir, tidegate, wait_for};

/// A few visitors at a service of 200 per second, with a gate of 20 and without. A visitor waits at most a
/// second.
const SMALL: &str = r#"
deadline = "60s"
arrivals = { process = "constant", phase = [{ rate = 30, for = "1s" }] }
visitor = [{ name = "visitor", patience = "never", retries = 0 }]

[origin]
workers = 10
service = "50ms"
backlog = 1000

[gate]
capacity.rate = 20
room.classes = ["all"]
[[gate.class]]
name = "all"
match = { path = "/**" }

[experiment]
paper = "None"
figure = "Fig. 0"
about = "A test"

[experiment.run.with]
[experiment.run.without]
gate = false

[experiment.quantity.served_share]
unit = "1"
paper = 0.5
of = "with.served_share"
[experiment.quantity.served_share_without]
unit = "1"
of = "without.served_share"
[experiment.quantity.at_the_door]
unit = "requests"
of = "sum(with[door])"
[experiment.quantity.capacity_rps]
unit = "req/s"
of = "with.origin_capacity_rps"
[experiment.quantity.believed_rps]
unit = "req/s"
of = "max(with[capacity_rps])"

[experiment.plot.door]
title = "Door"
x = "time (s)"
y = "req/s"
lines = { door = "with[door]" }
"#;

fn write(dir: &TempDir, text: &str) -> PathBuf {
    let file = dir.path().join("small.toml");
    fs::write(&file, text).expect("experiment file");
    file
}

/// Starts `tidegate experiment run FILE --json --out DIR/out`.
fn start(file: &Path, dir: &TempDir) -> Child {
    tidegate()
        .args(["experiment", "run"])
        .arg(file)
        .arg("--json")
        .arg("--out")
        .arg(dir.path().join("out"))
        // What a killed experiment cannot tidy up goes with the test's own directory.
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the experiment")
}

fn run(file: &Path, dir: &TempDir) -> Output {
    start(file, dir).wait_with_output().expect("the experiment's output")
}

#[track_caller]
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    })
}

/// Children of a process: number and first argument.
fn children(of: u32) -> Vec<(u32, String)> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter_map(|pid: u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, line.split('\0').nth(1)?.to_owned()))
    })
    .collect()
}

/// Waits until a child with this first argument runs.
fn wait_child(of: &Child, name: &str) -> u32 {
    wait_for(format!("a child {name}"), || {
        children(of.id()).into_iter().find(|(_, argument)| argument == name).map(|(pid, _)| pid)
    })
}

fn kill(signal: &str, pid: u32) {
    let sent = std::process::Command::new("kill").arg(signal).arg(pid.to_string()).status().expect("kill");
    assert!(sent.success());
}

fn is_gone(pid: u32) -> bool {
    // A zombie whose parent has not looked yet is gone as far as anybody else is concerned.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[test]
fn a_small_experiment_is_played_and_kept() {
    let dir = TempDir::new();
    let output = run(&write(&dir, SMALL), &dir);
    let found = json(&output);
    let experiment = &found["experiments"][0];
    assert_eq!(experiment["name"], "small");
    assert_eq!(experiment["mode"], "real");
    assert!(experiment.get("partial").is_none(), "{experiment:#}");
    assert!(output.status.success());
    let quantity = |name: &str| &experiment["quantities"][name];
    assert_eq!(quantity("served_share"), &serde_json::json!({ "unit": "1", "paper": 0.5, "ours": 1.0 }));
    assert_eq!(
        quantity("served_share_without"),
        &serde_json::json!({ "unit": "1", "paper": null, "ours": 1.0 })
    );
    assert_eq!(
        quantity("at_the_door")["ours"],
        30.0,
        "the origin's series was merged: one request a visitor"
    );
    assert_eq!(quantity("capacity_rps")["ours"], 200.0);
    assert_eq!(quantity("believed_rps")["ours"], 20.0, "the gate was asked");
    for file in ["index.html", "results.json", "results.csv", "small/door.svg", "small/with.csv"] {
        assert!(dir.path().join("out").join(file).is_file(), "{file}");
    }
}

/// A few clients at a small shop. The gate reads the load of the shop's database, and as long as it knows it,
/// refuses one of three types.
const SHOP: &str = r#"
deadline = "60s"
[arrivals.closed]
browsers = 5
join = 50
for = "4s"

[[visitor]]
name = "client"
patience = "never"
retries = 0
wait_limit = "0s"
step = [
    { type = "search", path = "/rubis/SearchItemsByCategory?category={n}", think = "50ms", costly = true },
    { type = "view", path = "/rubis/ViewItem?item={n}", think = "50ms" },
    { type = "bid", path = "/rubis/PutBid", form = "item={n}&user={n}", think = "50ms" },
]

[origin.shop]
size = "small"

[gate]
room.unit = "request"
capacity.rate = 1000000
[[gate.detector]]
name = "db_load"
kind = "host"
source = "http://origin/metrics/db"
figure = "tidegate_origin_stage_load_seconds_total"
every = "100ms"
red = 100
[[gate.rule]]
name = "no-bids"
when = "has(figures.db_load)"
urls = ["/rubis/PutBid"]

[experiment]
paper = "None"
figure = "Fig. 0"
about = "A test"
[experiment.run.gate]
[experiment.run.alone]
gate = false
[experiment.quantity.views]
unit = "requests"
of = "gate.type_view_served"
[experiment.quantity.others]
unit = "requests"
of = "alone.others_served - alone.type_view_served - alone.type_bid_served"
[experiment.quantity.bids]
unit = "requests"
of = "gate.type_bid_served"
[experiment.quantity.bids_alone]
unit = "requests"
of = "alone.type_bid_served"
[experiment.quantity.search_p99_ms]
unit = "ms"
of = "gate.costly_p99_ms"
[experiment.quantity.found]
unit = "types"
of = "gate.culprits_found + gate.culprits_wrong"
[experiment.plot.times]
title = "Times"
x = "%"
y = "ms"
lines = { view = "gate[times_view]" }
"#;

#[test]
fn an_experiment_with_a_real_shop_tells_types_apart() {
    let dir = TempDir::new();
    let output = run(&write(&dir, SHOP), &dir);
    let found = json(&output);
    let experiment = &found["experiments"][0];
    assert!(experiment.get("partial").is_none() && output.status.success(), "{experiment:#}");
    let quantity = |name: &str| experiment["quantities"][name]["ours"].as_f64().expect(name);
    assert!(quantity("views") > 10.0, "{experiment:#}");
    assert_eq!(quantity("others"), 0.0, "all types but the costly one");
    let (bids, alone) = (quantity("bids"), quantity("bids_alone"));
    assert!(alone > 10.0 && bids < alone / 2.0, "the detector reads the origin's own port: {experiment:#}");
    assert!(quantity("search_p99_ms") > 0.0);
    assert_eq!(quantity("found"), 0.0, "nothing can be found in four seconds");
    assert!(dir.path().join("out/small/times.svg").is_file());
}

#[test]
fn a_gate_that_does_not_start_is_reported_and_the_rest_kept() {
    let dir = TempDir::new();
    let broken = SMALL.replace(
        "capacity.rate = 20",
        "capacity.rate = 20\nlog.access = \"json\"\nlog.access_file = \"/nowhere/x\"",
    );
    let output = run(&write(&dir, &broken), &dir);
    let found = json(&output);
    let experiment = &found["experiments"][0];
    let partial = experiment["partial"][0].as_str().expect("a reason");
    assert!(
        partial.starts_with("with: gate ended with exit status: 1") && partial.contains("cannot start: "),
        "{partial}"
    );
    assert_eq!(experiment["quantities"]["served_share"]["ours"], Value::Null);
    assert_eq!(experiment["quantities"]["served_share_without"]["ours"], 1.0);
    assert!(!output.status.success());
}

#[test]
fn an_origin_that_dies_ends_the_run_and_its_results_are_kept() {
    let dir = TempDir::new();
    let long = SMALL.replace("for = \"1s\"", "for = \"50s\"");
    let experiment = start(&write(&dir, &long), &dir);
    let load = wait_child(&experiment, "load");
    // Before, what was measured would be lost with it.
    wait_for("the load generator to heed signals", || heeds_sigterm(load).then_some(()));
    kill("-KILL", wait_child(&experiment, "origin"));
    // The second run is as long as the first and is not needed.
    wait_for("the second origin", || {
        let log = children(experiment.id());
        (log.iter().filter(|(_, name)| name == "run").count() == 0 && !log.is_empty()).then_some(())
    });
    wait_child(&experiment, "load");
    kill("-TERM", experiment.id());
    let output = experiment.wait_with_output().expect("output");
    let found = json(&output);
    let partial = &found["experiments"][0]["partial"];
    let reason = partial[0].as_str().expect("a reason");
    assert!(reason.starts_with("with: origin ended with signal: 9"), "{partial:#}");
    assert!(found["experiments"][0]["quantities"]["served_share"]["ours"].is_number(), "{found:#}");
    assert!(!output.status.success());
}

#[test]
fn a_signal_ends_all_processes() {
    let dir = TempDir::new();
    let long = SMALL.replace("for = \"1s\"", "for = \"50s\"");
    let experiment = start(&write(&dir, &long), &dir);
    let pids = ["load", "run", "origin"].map(|name| wait_child(&experiment, name));
    wait_for("the load generator to heed signals", || heeds_sigterm(pids[0]).then_some(()));
    kill("-TERM", experiment.id());
    let output = experiment.wait_with_output().expect("output");
    assert!(!output.status.success());
    let found = json(&output);
    assert!(found["experiments"][0]["partial"].to_string().contains("interrupted"), "{found:#}");
    let kept = &found["experiments"][0]["quantities"]["served_share"]["ours"];
    assert!(kept.is_number(), "what was measured until then: {found:#}");
    for pid in pids {
        assert!(is_gone(pid), "{pid} is left");
    }
}

#[test]
fn a_killed_experiment_leaves_no_processes() {
    let dir = TempDir::new();
    let long = SMALL.replace("for = \"1s\"", "for = \"50s\"");
    let mut experiment = start(&write(&dir, &long), &dir);
    let pids = ["load", "run", "origin"].map(|name| wait_child(&experiment, name));
    experiment.kill().expect("kill");
    experiment.wait().expect("wait");
    wait_for("its children to end", || pids.iter().all(|pid| is_gone(*pid)).then_some(()));
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let dir = TempDir::new();
    let file = write(&dir, &SMALL.replace("with.served_share", "with.served_chare"));
    let output = run(&file, &dir);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("small.toml:30:") && said.contains("Did you mean `served_share`?"), "{said}");
    for (name, expected) in [("webq-fig99", "tidegate experiment list"), ("missing.toml", "a readable file")]
    {
        let output = run(Path::new(name), &dir);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
    }
}

#[test]
fn simulated_experiments_repeat_themselves() {
    let dir = TempDir::new();
    let text = SMALL.replace("about = \"A test\"", "about = \"A test\"\nways = [\"sim\"]");
    let file = write(&dir, &text);
    let quantities = || json(&run(&file, &dir))["experiments"][0]["quantities"].clone();
    let first = quantities();
    assert_eq!(first["served_share"]["ours"], 1.0, "{first:#}");
    assert_eq!(first, quantities());
}

#[test]
fn a_bound_that_does_not_hold_fails_the_check() {
    let dir = TempDir::new();
    let text = SMALL.replace("about = \"A test\"", "about = \"A test\"\nways = [\"sim\"]")
        + "\n[experiment.expect]\nserved_share = { min = 1 }\nat_the_door = { min = 31 }\n";
    let file = write(&dir, &text);
    let run = |check: &[&str]| {
        let mut command = tidegate();
        command.args(["experiment", "run", "--quiet"]).arg(&file).args(check);
        command.output().expect("the experiment's output")
    };
    assert!(run(&[]).status.success(), "bounds count with --check only");
    let output = run(&["--check"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "tidegate: small: at_the_door: expected at least 31; got 30\n");
    write(&dir, &text.replace("min = 31", "min = 30"));
    assert!(run(&["--check"]).status.success());
}

/// Whether a process has a handler for SIGTERM (proc(5), `SigCgt`).
fn heeds_sigterm(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << 14 != 0)
}

#[test]
fn a_closed_output_is_no_panic() {
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux");
    let output = tidegate().args(["experiment", "list"]).stdout(full).output().expect("tidegate");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output: "), "{said}");
    let (reader, closed) = std::io::pipe().expect("pipe");
    drop(reader);
    let output = tidegate().args(["experiment", "list"]).stdout(closed).output().expect("tidegate");
    assert!(output.status.success(), "a reader that has seen enough: {output:?}");
}

#[test]
fn the_output_directory_is_checked_first() {
    let dir = TempDir::new();
    let taken = write(&dir, SMALL);
    let output = tidegate().args(["experiment", "run", "webq-fig5", "--out"]).arg(&taken).output();
    let output = output.expect("tidegate");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.contains("run with")), (Some(2), false), "{said}");
    assert!(said.contains("--out: ") && said.contains("small.toml"), "{said}");
}

/// A service of 50 per second, simulated for ten seconds.
const TOURNAMENT: &str = r#"
deadline = "10s"
arrivals = { phase = [{ rate = 80, for = "1m" }] }
visitor = [{ name = "visitor", patience = "never", retries = 0 }]
[origin]
workers = 5
service = "100ms"
backlog = 1000
contention = 0
[gate]
room.classes = ["all"]
[[gate.class]]
name = "all"
match = { path = "/**" }
[experiment]
paper = "None"
figure = "Fig. 0"
about = "A test"
ways = ["sim"]
[experiment.tournament]
estimators = ["bottleneck"]
seeds = "101..200"
tune_seeds = "1..100"
truth_requests = 500
[experiment.tournament.scenario.steady]
about = "Always the same"
"#;

#[test]
fn a_tournament_is_the_same_on_any_number_of_threads() {
    let dir = TempDir::new();
    let file = dir.path().join("small.toml");
    fs::write(&file, TOURNAMENT).expect("experiment file");
    let run = |threads: &str| {
        let mut command = tidegate();
        command.args(["experiment", "run"]).arg(&file).args([
            "--seeds",
            "3..4",
            "--json",
            "--threads",
            threads,
        ]);
        let output =
            command.arg("--out").arg(dir.path().join("out")).output().expect("the experiment's output");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&output)["experiments"][0].clone()
    };
    let (one, two) = (run("1"), run("2"));
    assert_eq!(one["quantities"], two["quantities"]);
    let share = one["quantities"]["bottleneck.steady.goodput_share"]["ours"].as_f64().expect("a share");
    assert!((0.0..1.1).contains(&share), "{share}");
    assert_eq!(one["verdicts"]["steady"]["first"], "bottleneck");
    for file in ["index.html", "results.json", "results.csv", "small/steady.svg"] {
        assert!(dir.path().join("out").join(file).is_file(), "{file}");
    }
    let both = tidegate().args(["experiment", "run", "x.toml", "--seed", "1", "--seeds", "1..2"]).output();
    assert_eq!(both.expect("output").status.code(), Some(2), "one or the other");
}
