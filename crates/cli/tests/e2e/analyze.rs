//! `tidegate analyze`: a real nginx's log and real figures of sysstat, a suggestion that the gate accepts,
//! files that say where they are wrong.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::harness::{Running, TempDir, tidegate, wait_for};
use super::http::Client;
use super::nginx::Nginx;

fn analyze(args: &[&str]) -> Output {
    tidegate().arg("analyze").args(args).output().expect("tidegate analyze")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Searches per second, without a pattern; each makes the host busy by 12 %.
fn searches(second: u64) -> u64 {
    let x = second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) % 7
}

/// A log and figures of five minutes.
fn planted(dir: &Path) -> (PathBuf, PathBuf) {
    let (mut log, mut figures) = (String::new(), String::from("time,cpu\n"));
    for second in 0..300 {
        let time = format!("[24/Nov/2026:03:{:02}:{:02} +0000]", second / 60, second % 60);
        for (path, count) in
            [("/Search.php?q=a", searches(second)), ("/item/123", 3 + searches(second + 9_999))]
        {
            for _ in 0..count {
                let _ = writeln!(log, "10.0.0.1 - - {time} \"GET {path} HTTP/1.1\" 200 5");
            }
        }
        let noise = searches(second + 77_777);
        let _ = writeln!(figures, "{},{}", 1_795_489_200 + second + 1, 10 + 12 * searches(second) + noise);
    }
    let files = (dir.join("access.log"), dir.join("db.csv"));
    fs::write(&files.0, log).expect("a log");
    fs::write(&files.1, figures).expect("figures");
    files
}

#[test]
fn the_suggested_configuration_is_valid_and_the_report_is_written() {
    let dir = TempDir::new();
    let (log, figures) = planted(dir.path());
    let page = dir.path().join("report.html");
    let args = [shown(&log), "--figures", shown(&figures), "--html", shown(&page)];
    let output = analyze(&args);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(table.contains("Culprits of cpu: /Search.php"), "{table}");
    assert!(fs::read_to_string(&page).expect("a page").contains("<svg"));
    let json = analyze(&[&args[..3], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    assert_eq!(found["culprits"], serde_json::json!(["/Search.php"]));
    let configuration = found["configuration"].as_str().expect("a configuration");
    assert!(table.contains(configuration), "{table}");
    let file = format!("origin.replicas = [\"127.0.0.1:8000\"]\n{configuration}");
    let settings = tidegate_settings::Settings::parse(&file, "suggested.toml").expect("valid");
    let class = settings.class.iter().find(|class| class.name == "search-php").expect("a class");
    assert_eq!(class.matches.path, ["/Search.php"]);
    assert!(class.ingress.rate > 0.1 && class.ingress.rate < 6.0, "{}", class.ingress.rate);
}

#[test]
fn mistakes_end_with_a_message_and_without_a_report() {
    let dir = TempDir::new();
    let (log, figures) = planted(dir.path());
    let (log, figures) = (shown(&log), shown(&figures));
    let page = dir.path().join("report.html");
    let constant = dir.path().join("constant.csv");
    let rows: String = (0..300).map(|at| format!("{},7\n", 1_795_489_200 + at)).collect();
    fs::write(&constant, format!("time,cpu\n{rows}")).expect("figures");
    let elsewhen = dir.path().join("elsewhen.csv");
    fs::write(&elsewhen, "time,cpu\n1000000000,5\n1000000001,9\n1000000002,5\n").expect("figures");
    let mistakes = [
        (vec!["/nowhere/access.log", "--figures", figures], 1, "/nowhere/access.log: No such file"),
        (vec![log, "--figures", "/nowhere/db.csv"], 1, "/nowhere/db.csv: No such file"),
        (vec![figures, "--figures", figures], 1, "unknown format: expected an access log"),
        (vec![log, "--figures", shown(&elsewhen)], 1, "share no time"),
        (vec![log, "--figures", shown(&constant)], 1, "no figure varies"),
        (vec![log, "--figures", figures, "--figure", "disk"], 1, "no figure `disk`; there are: cpu"),
        (vec!["-", "--figures", "-"], 1, "read once only"),
        (vec![log], 2, "--figures"),
        (vec![log, "--figures", figures, "--interval", "0s"], 2, "a span of 1s to 24h"),
        (vec![log, "--figures", figures, "--figures-timezone", "Atlantis"], 2, "Europe/Berlin"),
    ];
    for (mut args, code, expected) in mistakes {
        args.extend(["--html", shown(&page)]);
        let output = analyze(&args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(expected), "{args:?}: {told}");
        assert!(output.stdout.is_empty() && !page.exists(), "{args:?}");
    }
}

#[test]
fn standard_input_is_read() {
    let dir = TempDir::new();
    let (log, figures) = planted(dir.path());
    let input = fs::File::open(log).expect("the log");
    let args = ["analyze", "-", "--figures", shown(&figures), "--json"];
    let output = tidegate().args(args).stdin(Stdio::from(input)).output().expect("tidegate analyze");
    let found: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(found["culprits"], serde_json::json!(["/Search.php"]));
}

/// nginx's log and sysstat's figures of the same seconds, as they are. Other tests use the host too, so what
/// loads it is not asserted: tables with planted culprits show that those are found.
#[test]
fn a_real_log_beside_real_figures_of_sysstat() {
    let nginx = Nginx::start_logging("origin");
    let dir = TempDir::new();
    let recorded = dir.path().join("sa");
    let mut sar = Command::new("sar");
    sar.args(["-n", "DEV", "-o"]).arg(&recorded).args(["1", "600"]).env("LC_ALL", "C");
    let _sar = Running::start(sar.stdout(Stdio::null()).stderr(Stdio::null()));
    let mut client = Client::connect(nginx.address()).expect("nginx");
    let mut turn = 0_u64;
    let found = wait_for("figures beside the log", || {
        turn += 1;
        let burst = searches(turn / 60) > 3;
        for path in if burst { ["/name", "/part", "/part"] } else { ["/name", "/name", "/empty"] } {
            client.get(path, "").expect("an answer");
        }
        // A look at the figures is dear beside a burst.
        if !turn.is_multiple_of(200) {
            return None;
        }
        let mut documents = Vec::new();
        for form in ["-d", "-j"] {
            let sadf = Command::new("sadf").arg(form).arg(&recorded).args(["--", "-n", "DEV"]).output();
            let figures = dir.path().join(format!("figures{form}"));
            fs::write(&figures, sadf.expect("sadf (Debian: apt-get install sysstat)").stdout)
                .expect("figures");
            let log = nginx.access_log();
            let figure = if form == "-d" { "rxkB/s:lo" } else { "network.net-dev.rxkB:lo" };
            let args = [shown(&log), "--figures", shown(&figures), "--figure", figure, "--json"];
            let output = analyze(&args);
            // There are too few seconds at first.
            documents.push(serde_json::from_slice::<Value>(&output.stdout).ok()?);
        }
        let is_compared = |document: &Value| {
            let types = document["types"].as_array().expect("a list");
            let found: Vec<&Value> =
                types.iter().filter(|of| of["r"].is_f64()).map(|of| &of["type"]).collect();
            ["/name", "/part"].iter().all(|name| found.iter().any(|of| *of == name))
                && document["time"]["intervals"].as_u64().is_some_and(|n| n >= 10)
        };
        documents.iter().all(is_compared).then_some(documents)
    });
    for document in &found {
        assert_eq!(document["log"]["unparsed"], 0, "{document}");
        assert_eq!(document["time"]["interval_s"], 1.0, "{document}");
    }
    let formats: Vec<&Value> = found.iter().map(|document| &document["figures"][0]["format"]).collect();
    assert_eq!(formats, ["sadf -d", "sadf -j"]);
}
