//! Detectors and rules in a whole gate: sources over sockets, a real node_exporter, signals over the API, the
//! state document.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, Scripted, admin, api, ask, connect, get, read_head, until};

/// How a source treats a request.
#[derive(Clone)]
enum Mood {
    Says(String),
    /// Reads the request and does not answer.
    Hangs,
    /// Answers endlessly, a little at a time.
    Drips,
    /// Answers with too many bytes.
    Floods,
    Refuses,
    Closes,
}

/// A source over a socket that the test controls.
struct Source {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
}

impl Source {
    fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mood = Arc::new(Mutex::new(mood));
        let shared = mood.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, mood) = (stream.unwrap(), shared.clone());
                std::thread::spawn(move || play(stream, &mood));
            }
        });
        Self { address, mood }
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }
}

fn play(mut stream: TcpStream, mood: &Mutex<Mood>) {
    if read_head(&mut stream).is_none() {
        return;
    }
    let mood = mood.lock().unwrap().clone();
    let answer = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    _ = match mood {
        Mood::Says(body) => stream.write_all(answer("200 OK", &body).as_bytes()),
        Mood::Refuses => stream.write_all(answer("500 Internal Server Error", "{\"cpu\": 1}").as_bytes()),
        Mood::Hangs => stream.read(&mut [0]).map(drop),
        Mood::Closes => Ok(()),
        Mood::Drips => {
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{");
            stream.read(&mut [0]).map(drop)
        }
        Mood::Floods => {
            let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            while sent.is_ok() {
                sent = stream.write_all(&[b' '; 65_536]);
            }
            Ok(())
        }
    };
}

fn state(gate: &Gate) -> Value {
    gate.admin("/v1/state")
}

fn named(list: &Value, name: &str) -> Value {
    let all = list.as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["name"] == name).unwrap_or_default()
}

/// Waits until the detector has this level and the only rule is in force or not; returns the state.
fn becomes(gate: &Gate, detector: &str, level: &str, in_force: bool) -> Value {
    is_told(gate, detector, in_force, |detector| detector["level"] == level)
}

/// Waits until `of` holds for the detector and the only rule is in force or not; returns the state.
fn is_told(gate: &Gate, detector: &str, in_force: bool, of: impl Fn(&Value) -> bool) -> Value {
    let ask = || state(gate).to_string();
    let good = |answer: &str| {
        let state: Value = serde_json::from_str(answer).unwrap_or_default();
        of(&named(&state["detectors"], detector)) && state["rules"][0]["in_force"] == in_force
    };
    serde_json::from_str(&until(ask, good)).unwrap()
}

fn shop(source: SocketAddr) -> String {
    format!(
        r#"
[origin]
replicas = ["ORIGIN"]
[[detector]]
name = "origin_cpu"
kind = "host"
source = "http://{source}/load?a=b"
figure = "/cpu"
every = "100ms"
timeout = "200ms"
time_to_live = "700ms"
period = "0s"
calm = "0s"
orange = 0.7
red = 0.9
[[rule]]
name = "busy"
when = 'levels.origin_cpu == "red"'
hold = "0s"
"#
    )
}

/// Each shipped example with rules comes to its aid before an origin that accepts and never answers, whose
/// host tells its load no more either.
#[test]
fn the_shipped_rules_come_into_force_before_a_hung_origin() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let accepted = listener.incoming().map(|stream| stream.unwrap());
        accepted.collect::<Vec<_>>().len()
    });
    let example = include_str!("../../../../../examples/rules.toml");
    let text = example.replace("10.0.0.5:8000", "ORIGIN").replace("10.0.0.5:9100", &address.to_string());
    // A key of this section makes the harness keep the estimator.
    let gate = Gate::before(address, &format!("{text}\n[capacity]\nfloor = 1\n"), |_| Vec::new());
    let request = "GET / HTTP/1.1\r\nHost: shop.example\r\nAccept: text/html\r\nConnection: close\r\n\r\n";
    let mut visitors = Vec::new();
    for _ in 0..20 {
        let mut visitor = connect(gate.http);
        visitor.write_all(request.as_bytes()).unwrap();
        visitors.push(visitor);
    }
    let rules = ["nobody-new", "no-pictures", "one-front-page"];
    let answer = until(
        || state(&gate).to_string(),
        |answer| {
            let state: Value = serde_json::from_str(answer).unwrap_or_default();
            rules.iter().all(|rule| named(&state["rules"], rule)["in_force"] == true)
        },
    );
    let state: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(named(&state["detectors"], "origin_cpu")["level"], "unknown", "its host hangs too");
    assert_eq!(named(&state["detectors"], "slow")["level"], "red");
    let answer = ask(gate.http, request);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("<html"), "{answer}");
}

/// Failures and streams over sockets: an origin that fails late is slow, and an open tunnel is no silence.
#[test]
fn late_failures_are_slow_and_streams_under_way_are_not() {
    let origin = Scripted::start(|head, _, stream| {
        if head.starts_with("GET /stream") {
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n");
            _ = stream.read(&mut [0]);
        } else {
            // Until it is closed: the gate's time-out.
            _ = stream.read(&mut [0]);
        }
    });
    let text = r#"
[origin]
replicas = ["ORIGIN"]
first_byte_timeout = "3s"
eject = { failures = 0 }
retry_budget = "0%"
[[detector]]
name = "slow"
kind = "response-time"
red = 2
period = "0s"
calm = "0s"
[[rule]]
name = "r"
when = 'levels.slow == "red"'
hold = "0s"
urls = ["/nothing"]
"#;
    let gate = Gate::before(origin.address, text, |_| Vec::new());
    // What ends before the detector's first look does not count, so there are several.
    let mut streams = Vec::new();
    let open = || {
        let mut stream = connect(gate.http);
        stream.write_all(b"GET /stream HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).is_some());
        streams.push(stream);
        state(&gate).to_string()
    };
    until(open, |state| state.contains("\"level\":\"green\""));
    assert!(get(gate.http, "/late", "").starts_with("HTTP/1.1 504"));
    let state = becomes(&gate, "slow", "red", true);
    assert!(named(&state["detectors"], "slow")["figure"].as_f64() >= Some(2.0), "{state}");
}

#[test]
fn in_shadow_rules_and_quotas_count_and_refuse_nobody() {
    let origin = Origin::start();
    let text = "[origin]\nreplicas = [\"ORIGIN\"]\n[enforcement]\nshadow = true\n[explain]\nheader = \"full\"\n\
                [[tier]]\nname = \"gold\"\nexempt = true\nrate = 0.001\nburst = 1\n[tier.api_key]\n\
                sha256 = \"6163937e6547cc2853a333d323496f4d5608b3958a3bd3939752708bc9cb0feb\"\n\
                [[rule]]\nname = \"r\"\nwhen = \"true\"\nhold = \"0s\"\n";
    let gate = Gate::start(&origin, text);
    let gold =
        || ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: gold-key\r\nConnection: close\r\n\r\n");
    let answer = until(|| get(gate.http, "/", ""), |answer| answer.contains("action=shadow"));
    assert!(answer.ends_with("served"), "{answer}");
    for _ in 0..3 {
        assert!(gold().ends_with("served"));
    }
    assert_eq!(state(&gate)["shadow"], true);
    assert_eq!(state(&gate)["rules"][0]["shadow"], true);
    let lines = admin(&gate, "/metrics");
    let has = |line: &str| assert!(lines.lines().any(|l| l == line), "{line}: {lines}");
    has("tidegate_shadow 1");
    has("tidegate_rule_shadow{rule=\"r\"} 1");
    assert!(lines.contains("tidegate_rule_would_refuse_total{rule=\"r\"}"), "{lines}");
    assert_eq!(gate.count(Event::QuotaWouldRefuse), 2);
    // Off while the gate runs: what was counted is refused.
    gate.server().control().store().tune(&[("enforcement.shadow", "false")], "test", "").unwrap();
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 503"));
    assert!(gold().starts_with("HTTP/1.1 429"));
    assert_eq!(state(&gate)["shadow"], false);
}

#[test]
fn a_share_of_the_visitors_is_refused_and_always_the_same() {
    let origin = Origin::start();
    let text = "[origin]\nreplicas = [\"ORIGIN\"]\n[proxy]\ntrusted = [\"127.0.0.0/8\"]\n\
                [[rule]]\nname = \"r\"\nwhen = \"true\"\nhold = \"0s\"\nshare = \"40%\"\n";
    let gate = Gate::start(&origin, text);
    let is_refused = |visitor: u32| {
        let fields = format!("Host: h\r\nX-Forwarded-For: 203.0.113.{visitor}\r\nConnection: close");
        let answer = ask(gate.http, &format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
        assert!(answer.ends_with("served") || answer.starts_with("HTTP/1.1 503"), "{answer}");
        answer.starts_with("HTTP/1.1 503")
    };
    let refused = || (0..60).filter(|visitor| is_refused(*visitor)).collect::<Vec<_>>();
    let some = || format!("{:?}", [0, 1, 2, 3].map(is_refused));
    until(some, |answers| answers.contains("true"));
    let first = refused();
    assert!((12..36).contains(&first.len()), "{first:?}");
    assert_eq!(first, refused(), "the same visitors");
    // More of them are more than the same.
    gate.server().control().store().tune(&[("rule.r.share", "0.8")], "test", "").unwrap();
    let more = refused();
    assert!(more.len() > first.len() && first.iter().all(|visitor| more.contains(visitor)), "{more:?}");
}

#[test]
fn with_a_failing_source_the_level_is_unknown_and_the_rule_ends() {
    let (origin, red) = (Origin::start(), Mood::Says("{\"cpu\": 0.95}".into()));
    let source = Source::start(red.clone());
    let gate = Gate::start(&origin, &shop(source.address));
    for (mood, trouble) in [
        (Mood::Hangs, "no answer within 200ms"),
        (Mood::Drips, "no answer within 200ms"),
        (Mood::Floods, "larger than"),
        (Mood::Refuses, "it answered 500"),
        (Mood::Closes, ""),
        (Mood::Says("{\"cpu\": -1}".into()), "it said -1"),
        (Mood::Says("{\"cpu\": 1e300}".into()), "it said 1000"),
        (Mood::Says("{\"cpu\": NaN}".into()), "not JSON"),
        (Mood::Says("{\"cpu\": \"many\"}".into()), "neither a number"),
        (Mood::Says("{}".into()), "there is no /cpu"),
        (Mood::Says(String::new()), "not JSON"),
    ] {
        // A busy host may make the source late; the next answer is in time.
        source.becomes(red.clone());
        is_told(&gate, "origin_cpu", true, |detector| {
            detector["level"] == "red" && detector["figure"] == 0.95 && detector["trouble"].is_null()
        });
        source.becomes(mood);
        let state = is_told(&gate, "origin_cpu", false, |detector| {
            let told = detector["trouble"].as_str().unwrap_or_default();
            detector["level"] == "unknown" && told.contains(trouble) && !told.is_empty()
        });
        assert_eq!(state["rules"][0]["when"], "unknown");
    }
}

#[test]
fn a_source_that_hangs_delays_no_other() {
    let origin = Origin::start();
    let (bad, good) = (Source::start(Mood::Hangs), Source::start(Mood::Says("{\"cpu\": 0.95}".into())));
    let other = format!(
        "[[detector]]\nname = \"other\"\nkind = \"host\"\nsource = \"http://{}/\"\nfigure = \"/x\"\nred = 1\ntimeout = \"30s\"\n",
        bad.address
    );
    let gate = Gate::start(&origin, &format!("{}{other}", shop(good.address)));
    becomes(&gate, "origin_cpu", "red", true);
    good.becomes(Mood::Says("{\"cpu\": 0.1}".into()));
    becomes(&gate, "origin_cpu", "green", false);
}

/// Debian's node_exporter.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn figures_are_read_from_a_real_node_exporter() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let exporter = Command::new("prometheus-node-exporter")
        .args([format!("--web.listen-address={address}"), "--log.level=error".into()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus-node-exporter (apt-get install prometheus-node-exporter)");
    let _exporter = Exporter(exporter);
    let origin = Origin::start();
    let figures =
        ["cpu", "memory", "load", "node_load1", "node_memory_MemTotal_bytes", "node_context_switches_total"];
    let detector = |(i, figure): (usize, &&str)| {
        format!(
            "[[detector]]\nname = \"d{i}\"\nkind = \"host\"\nsource = \"http://{address}/metrics\"\nfigure = \"{figure}\"\n\
             every = \"200ms\"\ntimeout = \"10s\"\nred = 1e15\n"
        )
    };
    let detectors: String = figures.iter().enumerate().map(detector).collect();
    let gate = Gate::start(&origin, &format!("[origin]\nreplicas = [\"ORIGIN\"]\n{detectors}"));
    let all_known = |answer: &str| {
        let state: Value = serde_json::from_str(answer).unwrap_or_default();
        let detectors = state["detectors"].as_array().cloned().unwrap_or_default();
        detectors.len() == figures.len() && detectors.iter().all(|detector| detector["level"] == "green")
    };
    let known: Value = serde_json::from_str(&until(|| state(&gate).to_string(), all_known)).unwrap();
    let figure = |i: usize| known["detectors"][i]["figure"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&figure(0)) && (0.0..=1.0).contains(&figure(1)), "{known}");
    assert!(figure(4) > 1e6 && figure(5) > 0.0, "{known}");
}

#[test]
fn figures_of_this_host_need_no_source() {
    let origin = Origin::start();
    let text = "[origin]\nreplicas = [\"ORIGIN\"]\n[[detector]]\nname = \"memory\"\nkind = \"host\"\nfigure = \"memory\"\n\
                every = \"100ms\"\nred = 1e-9\n[[rule]]\nname = \"r\"\nwhen = 'levels.memory == \"red\" && figures.memory > 0'\n";
    let gate = Gate::start(&origin, text);
    let state = becomes(&gate, "memory", "red", true);
    assert!(state["rules"][0]["figures"].as_str().unwrap().starts_with("memory=0."), "{state}");
}

const ALARM: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n[[detector]]\nname = \"alarm\"\nkind = \"signal\"\ntime_to_live = \"1h\"\n\
                     [[rule]]\nname = \"r\"\nwhen = 'levels.alarm == \"red\"'\nhold = \"0s\"\n";

fn signal(gate: &Gate, method: &str, name: &str, body: &str) -> (u16, Value) {
    let answer = api(gate, method, &format!("/v1/signals/{name}"), "", body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn another_application_reports_over_the_api() {
    let (origin, text) = (Origin::start(), ALARM);
    let gate = Gate::start(&origin, text);
    becomes(&gate, "alarm", "unknown", false);
    let (status, said) = signal(&gate, "PUT", "alarm", "{\"value\": \"red\", \"why\": \"drill\"}");
    assert_eq!((status, &said["value"], &said["good_for_s"]), (200, &json!(1.0), &json!(3600.0)));
    becomes(&gate, "alarm", "red", true);
    let metrics = admin(&gate, "/metrics");
    for line in [
        "tidegate_detector_level{detector=\"alarm\",level=\"red\"} 1",
        "tidegate_detector_level{detector=\"alarm\",level=\"unknown\"} 0",
        "tidegate_detector_fraction{detector=\"alarm\"} 1",
        "tidegate_rule_in_force{rule=\"r\"} 1",
        "tidegate_rule_times_total{rule=\"r\"} 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}: {metrics}");
    }
    assert_eq!(gate.server().shared().policies.standing().set.iter().count(), 1, "not published to workers");
    // A signal expires after its time to live.
    assert_eq!(signal(&gate, "PUT", "alarm", "{\"value\": true, \"ttl\": \"300ms\"}").1["good_for_s"], 0.3);
    becomes(&gate, "alarm", "unknown", false);
    for value in ["0.5", "0.625", "0.5"] {
        signal(&gate, "PUT", "alarm", &format!("{{\"value\": {value}}}"));
    }
    becomes(&gate, "alarm", "orange", false);
    assert_eq!(signal(&gate, "DELETE", "alarm", "").0, 200);
    becomes(&gate, "alarm", "unknown", false);
    // The audit records who crossed a threshold, not every figure.
    let audit = admin(&gate, "/v1/audit");
    assert!(audit.contains("\"signal.alarm\"") && audit.contains("drill"), "{audit}");
    assert!(
        audit.contains("0.5") && !audit.contains("0.625"),
        "a figure between thresholds was recorded: {audit}"
    );
}

#[test]
fn a_signal_is_refused_like_any_mistake() {
    let (origin, text) = (Origin::start(), ALARM);
    let gate = Gate::start(&origin, text);
    for (method, name, body, status, told) in [
        ("PUT", "alram", "{\"value\": 1}", 404, "Did you mean `alarm`?"),
        ("DELETE", "x", "", 404, "there is no signal"),
        ("PUT", "alarm", "{\"value\": \"purple\"}", 400, "expected a number, true"),
        ("PUT", "alarm", "{\"value\": 1, \"ttl\": \"soon\"}", 400, "expected a duration"),
        ("PUT", "alarm", "{\"value\": null}", 400, "value"),
        ("PUT", "alarm", "{}", 400, "value"),
        ("PUT", "alarm", "{\"value\": 1e999}", 400, ""),
        ("PUT", "alarm", "{\"value\": 1, \"tll\": \"1s\"}", 400, "tll"),
    ] {
        let (got, problem) = signal(&gate, method, name, body);
        assert_eq!(got, status, "{method} {name} {body}: {problem}");
        assert!(problem["detail"].as_str().unwrap_or_default().contains(told), "{problem}");
    }
    // Implausible figures are accepted, but not used.
    assert_eq!(signal(&gate, "PUT", "alarm", "{\"value\": -1}").0, 200);
    let state = becomes(&gate, "alarm", "unknown", false);
    assert_eq!(state["rules"][0]["times"], 0);
}

#[test]
fn in_shadow_nobody_waits_and_the_shadow_ends_when_it_is_tuned() {
    let origin = Origin::start();
    let text = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 0.1\n[enforcement]\nshadow = true\n";
    let gate = Gate::start(&origin, text);
    for _ in 0..20 {
        assert!(get(gate.http, "/", "a=b").ends_with("served"));
    }
    let held = gate.count(Event::RoomWouldWait) + gate.count(Event::RoomWouldRefuse);
    assert_eq!(held, 19, "one was within the capacity");
    assert_eq!((gate.count(Event::WaitingAnswers), gate.count(Event::Full)), (0, 0));
    until(
        || admin(&gate, "/metrics"),
        |metrics| {
            metrics
                .contains(&format!("tidegate_room_would_wait_total {}\n", gate.count(Event::RoomWouldWait)))
        },
    );
    gate.server().control().store().tune(&[("enforcement.shadow", "false")], "test", "").unwrap();
    until(|| get(gate.http, "/", "a=b"), |answer| answer.starts_with("HTTP/1.1 503"));
}

const SERIES: &str = r#"
[origin]
replicas = ["ORIGIN"]
[[detector]]
name = "origin_cpu"
kind = "host"
source = "http://SOURCE/load"
figure = "/cpu"
every = "100ms"
timeout = "1s"
time_to_live = "4s"
period = "1h"
calm = "0s"
orange = 0.7
red = 0.9
[[detector]]
name = "memory"
kind = "host"
figure = "memory"
every = "100ms"
red = 2
[[detector]]
name = "shop"
kind = "signal"
"#;

/// Whether a detector's rows in the history have such a value; `None`: a gap after a value.
fn has_been(gate: &Gate, metric: &str, detector: &str, value: Option<f64>) -> bool {
    let history = gate.admin(&format!("/v1/history?metric={metric}&detector={detector}&step=1"));
    let rows = history["rows"].as_array().expect("rows");
    let mut values = rows.iter().map(|row| row[1].as_f64()).skip_while(Option::is_none);
    values.any(|one| match (one, value) {
        (Some(one), Some(value)) => (one - value).abs() < 1e-6,
        (one, value) => one.is_none() && value.is_none(),
    })
}

/// What sources say and what detectors make of it is kept as series, of those too that a reload adds.
#[test]
fn figures_of_sources_and_levels_of_detectors_are_in_the_history() {
    let origin = Origin::start();
    let source = Source::start(Mood::Says("{\"cpu\": 0.95}".into()));
    let text = SERIES.replace("SOURCE", &source.address.to_string());
    let gate = Gate::start_from_file(&origin, &text);
    let comes = |metric: &str, detector: &str, value: Option<f64>| {
        until(|| has_been(&gate, metric, detector, value).to_string(), |has_been| has_been == "true");
    };
    let is_in_metrics = |line: &str| until(|| admin(&gate, "/metrics"), |text| text.contains(line));
    comes("detector_reading", "origin_cpu", Some(0.95));
    comes("detector_figure", "origin_cpu", Some(0.95));
    comes("detector_level", "origin_cpu", Some(2.0));
    is_in_metrics("\ntidegate_detector_reading{detector=\"origin_cpu\"} 0.95\n");
    // Averaged over an hour the figure hardly moves. The reading is that of the source.
    source.becomes(Mood::Says("{\"cpu\": 0.25}".into()));
    comes("detector_reading", "origin_cpu", Some(0.25));
    is_in_metrics("\ntidegate_detector_reading{detector=\"origin_cpu\"} 0.25\n");
    assert!(!has_been(&gate, "detector_figure", "origin_cpu", Some(0.25)));
    // What is not known is a gap, and not the last value.
    source.becomes(Mood::Hangs);
    comes("detector_reading", "origin_cpu", None);
    comes("detector_level", "origin_cpu", None);
    let json = "Content-Type: application/json\r\n";
    let said = api(&gate, "PUT", "/v1/signals/shop", json, "{\"value\": 0.5, \"ttl\": \"1h\"}");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    comes("detector_reading", "shop", Some(0.5));
    comes("detector_level", "shop", Some(1.0));
    let csv = admin(&gate, "/v1/history?metric=detector_reading&detector=memory&step=1&format=csv");
    assert!(csv.contains("\nat,time,detector_reading,detector_reading_min,detector_reading_max"), "{csv}");
    let shares = csv.lines().filter_map(|line| line.split(',').nth(2)?.parse::<f64>().ok());
    assert!(
        shares.clone().count() > 0 && shares.into_iter().all(|share| share > 0.0 && share < 1.0),
        "{csv}"
    );
    // A detector of this name was not there before.
    let added =
        "[[detector]]\nname = \"added\"\nkind = \"host\"\nfigure = \"memory\"\nevery = \"100ms\"\nred = 2\n";
    let level = |name: &str| gate.admin("/v1/history")["detectors"].to_string().contains(name);
    assert!(level("\"shop\"") && !level("\"added\""));
    gate.reload(&origin, &format!("{text}{added}"));
    comes("detector_level", "added", Some(0.0));
    assert!(level("\"added\""));
    let shown = gate.admin("/v1/history?metric=detector_level&detector=added");
    assert_eq!(
        (&shown["detector"], &shown["class"], &shown["tier"]),
        (&json!("added"), &Value::Null, &Value::Null)
    );
    for (query, why) in [
        ("metric=detector_level", "expected `detector`"),
        ("metric=goodput&detector=added", "is not of a detector"),
        ("metric=detector_level&detector=added&class=default", "got several"),
    ] {
        let answer = admin(&gate, &format!("/v1/history?{query}"));
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(why), "{answer}");
    }
}
