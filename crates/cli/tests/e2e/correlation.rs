//! Live correlation: an origin whose figure two types of requests load, and a gate that finds these two,
//! shows what they cost, and throttles them if it may.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::{Config, Gate, now, pause, tidegate, wait_for};
use super::http::Client;
use super::origin::Origin;

/// The paths, and what a request adds to the figure for a second. Searches are a class.
const KINDS: [(&str, f64); 5] =
    [("/heavy/", 3.0), ("/search?q=", 2.0), ("/light/", 0.0), ("/list?page=", 0.0), ("/about?x=", 0.0)];
const CULPRITS: [&str; 2] = ["class:search", "path:/heavy/{n}"];

/// `GET /figure` tells the load of the last second.
fn loaded_origin() -> Origin {
    let load = Arc::new(Mutex::new(VecDeque::<(Instant, f64)>::new()));
    Origin::start(move |exchange| {
        let target = exchange.head.second_word().to_owned();
        let mut load = load.lock().unwrap();
        if target == "/figure" {
            while load.front().is_some_and(|(at, _)| at.elapsed() > Duration::from_secs(1)) {
                load.pop_front();
            }
            let sum: f64 = load.iter().map(|(_, cost)| cost).sum();
            drop(load);
            return exchange.ok(&format!("{{\"load\":{sum}}}"));
        }
        let cost = KINDS.iter().find(|(path, _)| target.starts_with(path)).map_or(0.0, |(_, cost)| *cost);
        load.push_back((now(), cost));
        drop(load);
        exchange.ok("page")
    })
}

/// Asks for all kinds of pages, each second for another number of each. Stops when dropped.
struct Traffic {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(gate: SocketAddr) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = stopped.clone();
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(gate).expect("the gate");
            let (begun, mut sent) = (now(), [0.0; KINDS.len()]);
            let (mut due, mut last) = ([0.0; KINDS.len()], Duration::ZERO);
            while !is_stopped.load(Ordering::SeqCst) {
                let at = begun.elapsed();
                for (kind, (path, _)) in KINDS.iter().enumerate() {
                    due[kind] += per_s(kind as u64, at.as_secs()) * (at - last).as_secs_f64();
                    while sent[kind] < due[kind] {
                        let answer = client.get(&format!("{path}{}", sent[kind]), "").expect("an answer");
                        assert!(matches!(answer.status(), 200 | 503), "{answer:?}");
                        sent[kind] += 1.0;
                    }
                }
                last = at;
                pause();
            }
        });
        Self { stopped, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the traffic failed");
    }
}

/// Requests of a kind in a second: from 5 to 44, as random as a few multiplications make it.
fn per_s(kind: u64, second: u64) -> f64 {
    let mut x = (second * 8 + kind + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (5 + (x >> 40) % 40) as f64
}

fn gate(origin: &Origin) -> Gate {
    let detector = format!(
        "[[detector]]\nname = \"db\"\nkind = \"host\"\nsource = \"http://{}/figure\"\nfigure = \"/load\"\nred = 20.0\n",
        origin.address()
    );
    let class = "name = \"search\"\nmatch = { path = \"/search\" }\ncost = 1.0\n";
    let config = Config::new(&[origin.address()]).set("correlate.window", "\"60s\"");
    Gate::start(config.class(&format!("{class}\n{detector}")))
}

fn ctl(gate: &Gate, arguments: &[&str]) -> Output {
    let url = format!("http://{}", gate.admin_address());
    tidegate().arg("ctl").args(arguments).env("TIDEGATE_URL", url).output().expect("tidegate ctl")
}

/// The document, once exactly the culprits are named.
fn found(gate: &Gate) -> Value {
    wait_for("exactly the culprits", || {
        let document = gate.admin("GET", "/v1/correlation", "").json();
        let types = document["types"].as_array()?;
        let culprits = types.iter().filter(|of| of["culprit"] == true).filter_map(|of| of["type"].as_str());
        let mut culprits: Vec<_> = culprits.collect();
        culprits.sort_unstable();
        (culprits == CULPRITS).then_some(document)
    })
}

#[test]
fn the_types_that_load_a_figure_and_only_they_are_named_and_throttled() {
    let origin = loaded_origin();
    let gate = gate(&origin);
    let _traffic = Traffic::start(gate.http());
    let document = found(&gate);
    assert_eq!((&document["figure"], &document["figures"][0]["kind"]), (&"db".into(), &"detector".into()));
    let share = document["correlated_share"].as_f64().unwrap();
    assert!((0.2..0.6).contains(&share), "two of five kinds: {share}");
    let suggested = document["suggestion"]["throttles"].as_array().unwrap();
    assert_eq!(suggested.len(), CULPRITS.len(), "{document}");
    let toml = document["suggestion"]["toml"].as_str().unwrap();
    assert!(toml.contains("path = \"/heavy/*\"") && toml.contains("In [[class]] search"), "{toml}");

    let table = ctl(&gate, &["correlation", "--figure", "db"]);
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(text.contains("path:/heavy/{n}") && text.contains("culprit"), "{text}{table:?}");

    // A search costs more than the mean request, of which most cost nothing.
    let adopted = wait_for("a cost of searches", || {
        let output = ctl(&gate, &["adopt-cost", "search"]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    assert!(adopted.contains("class.search.cost"), "{adopted}");
    let tunable = gate.admin("GET", "/v1/tunables/class.search.cost", "").json();
    assert!(tunable["value"].as_f64().unwrap() > 1.0, "{tunable}");
    assert!(tunable["tuned"]["why"].as_str().unwrap().starts_with("measured by db"), "{tunable}");

    let auto = "{\"changes\":{\"correlate.auto.after\":\"1s\",\"correlate.auto.enabled\":true}}";
    assert_eq!(gate.admin("PATCH", "/v1/tunables", auto).status(), 200);
    let throttled = wait_for("throttles that refuse", || {
        let all = gate.admin("GET", "/v1/throttles", "").json();
        let all = all["throttles"].as_array()?.clone();
        all.iter().any(|one| one["refused"].as_u64() > Some(0)).then_some(all)
    });
    for one in &throttled {
        assert!(CULPRITS.contains(&one["type"].as_str().unwrap()), "{one}");
        assert_eq!(one["by"], "correlate.auto");
        assert!(one["why"].as_str().unwrap().starts_with("db is red"), "{one}");
        assert!(one["until_ms"].is_u64() && one["action"]["rate"].as_f64() > Some(0.0), "{one}");
    }
    let audit = gate.admin("GET", "/v1/audit", "").text();
    assert!(audit.contains("\"who\":\"correlate.auto\""), "{audit}");
    let shown = gate.admin("GET", "/v1/correlation?figure=db", "").json();
    let marked = shown["types"].as_array().unwrap().iter().filter(|of| !of["throttle"].is_null()).count();
    assert_eq!(marked, throttled.len(), "{shown}");
}

#[test]
fn a_suspect_is_held_for_some_seconds_and_confirmed() {
    let origin = loaded_origin();
    let gate = gate(&origin);
    let traffic = Traffic::start(gate.http());
    // Not known before its requests have been counted.
    let begun = wait_for("the confirmation to begin", || {
        let body = "{\"type\":\"path:/heavy/{n}\",\"keep\":0.0,\"for\":\"20s\",\"figure\":\"db\"}";
        let answer = gate.admin("POST", "/v1/correlation/confirmation", body);
        (answer.status() == 201).then(|| answer.json())
    });
    // Held at once if enough seconds have passed already.
    assert!(begun["phase"] == "before" || begun["phase"] == "held", "{begun}");
    assert_eq!(begun["verdict"], Value::Null);
    let again = gate.admin("POST", "/v1/correlation/confirmation", "{\"type\":\"class:search\"}");
    assert_eq!(again.status(), 409, "{again:?}");
    let confirmation = || gate.admin("GET", "/v1/correlation", "").json()["confirmation"].clone();
    wait_for("the suspect to be held", || {
        let held = gate.admin("GET", "/v1/throttles", "").json();
        (held["throttles"][0]["action"]["refuse"] == 1.0).then_some(())
    });
    let done = wait_for("the verdict", || Some(confirmation()).filter(|shown| shown["phase"] == "done"));
    assert_eq!(done["verdict"], "confirmed", "{done}");
    assert!(done["during"].as_f64() < done["before"].as_f64(), "{done}");
    assert_eq!(gate.admin("GET", "/v1/throttles", "").json()["throttles"], Value::Array(Vec::new()));
    let ended = ctl(&gate, &["confirm", "--end"]);
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.contains("confirmed"), "{ended:?}");
    assert_eq!(confirmation(), Value::Null);
    drop(traffic);
}
