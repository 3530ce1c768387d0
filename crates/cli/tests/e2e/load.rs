//! `tidegate load` against the real gate, against targets that die, and with wrong arguments.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::harness::{Config, Gate, Running, TempDir, free_address, tidegate, wait_for};
use super::nginx::Nginx;
use super::origin::Origin;
use super::roles::pair;

fn load(arguments: &[&str]) -> Output {
    tidegate().arg("load").args(arguments).stdin(Stdio::null()).output().expect("tidegate load")
}

/// The one JSON object on standard output, and the exit code.
#[track_caller]
fn figures(output: &Output) -> (Value, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{errors}"));
    (json, output.status.code())
}

fn figure(json: &Value, key: &str) -> f64 {
    json["summary"][key].as_f64().unwrap_or_else(|| panic!("{key} in {}", json["summary"]))
}

/// A run in the background, with its output in files.
struct Background {
    process: Running,
    dir: TempDir,
}

impl Background {
    fn start(arguments: &[&str]) -> Self {
        let dir = TempDir::new();
        let file = |name| fs::File::create(dir.path().join(name)).expect("file");
        let mut command = tidegate();
        command.arg("load").args(arguments).stdout(file("out")).stderr(file("err"));
        Self { process: Running::start(&mut command), dir }
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap_or_default()
    }

    fn end(&mut self) -> Output {
        let status = self.process.wait_exit();
        let read = |name| fs::read(self.dir.path().join(name)).expect("output");
        Output { status, stdout: read("out"), stderr: read("err") }
    }
}

#[test]
fn a_crowd_waits_at_the_gate_and_everybody_is_served() {
    let nginx = Nginx::start("one");
    let gate = Gate::start(Config::waiting(&[nginx.address()], 100.0));
    let url = format!("http://{}/shop", gate.http());
    let output = load(&[&url, "--rate", "400", "--for", "1s", "--threads", "2", "--seed", "7", "--json"]);
    let (json, code) = figures(&output);
    assert_eq!((code, &json["partial"], json["seed"].as_u64()), (Some(0), &Value::Null, Some(7)));
    let offered = figure(&json, "offered");
    assert!((300.0..500.0).contains(&offered), "{offered}");
    assert_eq!((figure(&json, "done"), figure(&json, "failed")), (offered, 0.0), "{json}");
    assert!(figure(&json, "polls") > 0.0 && figure(&json, "wait_max_s") > 0.5, "{json}");
    let series = json["series"].as_array().expect("series");
    let came: f64 = series.iter().filter_map(|second| second["offered"].as_f64()).sum();
    assert_eq!(came, offered);
}

#[test]
fn a_crowd_passes_from_tokengen_to_tokencheck() {
    let nginx = Nginx::start("one");
    let pair = pair(nginx.address(), 50.0);
    let url = format!("http://{}/shop", pair.generator.http());
    let (json, code) = figures(&load(&[&url, "--rate", "200", "--for", "1s", "--json"]));
    assert_eq!(code, Some(0));
    assert_eq!(figure(&json, "done"), figure(&json, "offered"), "{json}");
    assert!(figure(&json, "wait_max_s") > 0.0, "{json}");
}

#[test]
fn a_scenario_is_played_and_its_results_are_written() {
    let nginx = Nginx::start("one");
    let dir = TempDir::new();
    let file = dir.path().join("shop.toml");
    fs::write(
        &file,
        "about = \"two pages\"\n[[arrivals.phase]]\nrate = 50\nfor = \"500ms\"\n[[visitor]]\nname = \"buyer\"\n\
         [[visitor.step]]\npath = \"/name?{n}\"\n[[visitor.step]]\npath = \"/shop\"\nthink = \"10ms\"\n",
    )
    .expect("scenario");
    let (file, url) = (file.display().to_string(), format!("http://{}", nginx.address()));
    let out = dir.path().join("results").display().to_string();
    let html = dir.path().join("page.html").display().to_string();
    let output = load(&[&file, "--url", &url, "--out", &out, "--html", &html, "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("shop") && table.contains("came"), "{table}");
    let read = |name: &str| fs::read_to_string(Path::new(&out).join(name)).expect("a result");
    let json: Value = serde_json::from_str(&read("shop.json")).expect("json");
    assert_eq!(figure(&json, "served"), 2.0 * figure(&json, "offered"));
    assert!(read("shop.csv").starts_with("t,offered,"));
    for page in [read("shop.html"), fs::read_to_string(&html).expect("page")] {
        assert!(page.to_ascii_lowercase().starts_with("<!doctype html>"), "{page}");
    }
}

#[test]
fn a_target_that_dies_leaves_partial_figures() {
    let mut nginx = Nginx::start("one");
    let url = format!("http://{}/name", nginx.address());
    let mut run = Background::start(&[&url, "--rate", "20", "--for", "10m"]);
    wait_for("a second line of progress", || (run.errors().lines().count() > 1).then_some(()));
    nginx.kill();
    let output = run.end();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(errors.contains("partial: the target is gone"), "{errors}");
    assert!(table.contains("partial") && table.contains("came"), "{table}");
}

#[test]
fn ctrl_c_ends_a_run_and_keeps_its_figures() {
    let room = Origin::start(|exchange| {
        exchange.body()?;
        exchange.send("HTTP/1.1 503 Busy\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n")
    });
    let url = format!("http://{}/", room.address());
    let dir = TempDir::new();
    let csv = dir.path().join("seconds.csv").display().to_string();
    let mut run = Background::start(&[&url, "--rate", "100", "--for", "10m", "--json", "--out", &csv]);
    wait_for("the crowd to come", || (room.seen().len() > 20).then_some(()));
    run.process.signal("INT");
    let (json, code) = figures(&run.end());
    assert_eq!((code, json["partial"].as_str()), (Some(3), Some("interrupted (Ctrl-C)")));
    assert!(figure(&json, "peak_waiting") > 0.0, "{json}");
    assert_eq!(figure(&json, "failed"), 0.0, "a visitor who waits has not failed: {json}");
    assert!(fs::read_to_string(&csv).expect("csv").lines().count() > 1);
}

#[test]
fn mistakes_are_reported_before_anything_is_sent() {
    let nobody = format!("http://{}/", free_address());
    let flash = ["--rate", "10", "--for", "1s"];
    for (arguments, expected) in [
        (vec![nobody.as_str(), "--rate", "10", "--for", "1s"], "no connection to"),
        (vec![nobody.as_str()], "expected --rate and --for"),
        (vec!["https://localhost/", flash[0], flash[1], flash[2], flash[3]], "TLS"),
        (vec![nobody.as_str(), "--rate", "1e9", "--for", "1s"], "rate"),
        (vec![nobody.as_str(), "--rate", "1000000", "--for", "1h"], "visitors"),
        (vec![nobody.as_str(), "--rate", "10", "--for", "soon"], "soon"),
        (vec![nobody.as_str(), flash[0], flash[1], flash[2], flash[3], "--threads", "1000"], "threads"),
        (vec![nobody.as_str(), flash[0], flash[1], flash[2], flash[3], "--out", "x.docx"], "--out"),
        (vec!["no-such-file.toml"], "no-such-file.toml"),
        (vec!["no-such-file.toml", "--url", "http://a/b"], "expected http://HOST[:PORT]"),
    ] {
        let output = load(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    for (option, value, expected) in [
        ("--set", "visitor", "invalid value 'visitor' for '--set <KEY=VALUE>': expected KEY=VALUE"),
        ("--seed", "18446744073709551615", "is not in 0..=9223372036854775807"),
    ] {
        let output = load(&[nobody.as_str(), "--rate", "10", "--for", "1s", option, value]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn files_for_results_are_tried_before_the_run() {
    let dir = TempDir::new();
    let missing = dir.path().join("missing/a.csv").display().to_string();
    let folder = dir.path().display().to_string();
    for arguments in [["--out", &missing], ["--html", &missing], ["--html", &folder]] {
        // Nobody listens on port 1: a run that began would fail for that reason.
        let output = load(&[&["http://127.0.0.1:1/", "--rate", "1", "--for", "1s"], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{}: {}", arguments[0], arguments[1])), "{said}");
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let nginx = Nginx::start("one");
    let dir = TempDir::new();
    let (url, csv) = (format!("http://{}/name", nginx.address()), dir.path().join("a.csv"));
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux");
    let mut command = tidegate();
    command.args(["load", &url, "--rate", "20", "--for", "200ms", "--json", "--out"]).arg(&csv);
    let output = command.stdout(full).output().expect("tidegate load");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output: "), "{said}");
    assert!(fs::read_to_string(csv).expect("the file is still written").starts_with("t,offered,"));
}

#[test]
fn lines_of_a_log_that_cannot_be_played_are_reported() {
    let nginx = Nginx::start("one");
    let dir = TempDir::new();
    let log = "\
        1.2.3.4 - - [10/Oct/2025:13:55:36 +0000] \"GET /name HTTP/1.1\" 200 5 \"-\" \"-\"\n\
        nonsense\n\
        1.2.3.4 - - [10/Oct/2025:13:55:36 +0000] \"GET /shop HTTP/1.1\" 200 5 \"-\" \"-\"\n";
    fs::write(dir.path().join("access.log"), log).expect("log");
    let file = dir.path().join("replay.toml");
    fs::write(&file, "arrivals = { replay = \"access.log\" }\n").expect("scenario");
    let (file, url) = (file.display().to_string(), format!("http://{}", nginx.address()));
    let output = load(&[&file, "--url", &url, "--json"]);
    let (json, code) = figures(&output);
    assert_eq!((code, figure(&json, "done")), (Some(0), 2.0));
    for said in [output.stderr, tidegate().args(["sim", &file]).output().expect("tidegate sim").stderr] {
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("cannot be played: 1 lines (2: "), "{said}");
    }
}
