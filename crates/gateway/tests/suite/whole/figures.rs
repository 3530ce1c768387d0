//! The access log and the metrics.

use std::io::{Read, Write};

use tidegate_core::classify::Paths;
use tidegate_core::policies::{Action, ActivePolicy, RouteId, Scope};

use crate::whole::harness::{Gate, Origin, admin, ask, connect, cookies, get, read_head, until};
use crate::whole::policies::{publish, refuse};

#[test]
fn the_access_log_names_the_replica_and_moves_on_with_rotation() {
    let origin = Origin::start();
    let path = std::env::temp_dir().join(format!("tidegate-whole-access-{}", std::process::id()));
    let moved = path.with_extension("1");
    let log =
        format!("[log]\naccess = \"json\"\naccess_file = {path:?}\n[origin]\nreplicas = [\"ORIGIN\"]\n");
    let gate = Gate::start(&origin, &log);
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    get(gate.http, "/one", "");
    let lines = until(read, |text| text.contains("/one"));
    assert!(lines.contains(&format!("\"replica\":\"{}\"", origin.address)), "{lines}");
    std::fs::rename(&path, &moved).unwrap();
    // This gate has no file to reload, and rotation must not depend on one.
    let _ = gate.server().control().store().reload();
    get(gate.http, "/two", "");
    until(read, |text| text.contains("/two"));
    let _ = (std::fs::remove_file(&path), std::fs::remove_file(&moved));
}

#[test]
fn the_counters_of_the_dispatchers_are_in_the_metrics() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    let mut visitor = connect(gate.http);
    visitor
        .write_all(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    read_head(&mut visitor).unwrap();
    visitor.write_all(b"1234").unwrap();
    visitor.read_exact(&mut [0; 4]).unwrap();
    let metrics = || admin(&gate, "/metrics");
    until(metrics, |text| text.contains("\ntidegate_upgrade_bytes_total 8\n"));
    let text = metrics();
    for line in ["tidegate_open_tunnels 1", "tidegate_origin_connects_total 1", "tidegate_retries_total 0"] {
        assert!(text.contains(&format!("\n{line}\n")), "no {line} in {text}");
    }
}

/// The text form's rules and the naming conventions: <https://prometheus.io/docs/practices/naming/>.
#[test]
fn metrics_are_named_as_prometheus_asks() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    get(gate.http, "/", "");
    let text = admin(&gate, "/metrics");
    let mut families: Vec<(&str, &str)> = Vec::new();
    let (mut helped, mut seen) = ("", 0);
    for line in text.split_once("\r\n\r\n").unwrap().1.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(!words.is_empty() && words.ends_with('.'), "{line}");
            assert!(
                !families.iter().any(|(known, _)| *known == name),
                "a family occurs twice or is not contiguous: {line}"
            );
            helped = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let base = ["_seconds", "_bytes", "_ratio", "_total"].iter().any(|unit| name.ends_with(unit));
            assert!(
                base || !["_ms", "_millis", "_us", "_mb", "_percent"].iter().any(|u| name.contains(u)),
                "{line}"
            );
            families.push((name, kind));
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let (family, kind) = *families.last().unwrap();
            let tails: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(tails.iter().any(|tail| *name == format!("{family}{tail}")), "{line} in {family}");
            assert!(
                name.starts_with("tidegate_")
                    && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(value == "+Inf" || value.parse::<f64>().is_ok(), "{line}");
            seen += 1;
        }
    }
    assert!(families.len() > 60 && seen > 100, "{} families, {seen} samples", families.len());
    for (name, kind) in [
        ("tidegate_response_seconds", "histogram"),
        ("tidegate_queue_wait_seconds", "histogram"),
        ("tidegate_class_client_gone_total", "counter"),
        ("tidegate_class_shed_total", "counter"),
        ("tidegate_class_in_flight", "gauge"),
        ("tidegate_history_bytes", "gauge"),
    ] {
        assert!(families.contains(&(name, kind)), "{name}");
    }
}

/// Each refusal is counted for the class that was asked for, in `/metrics` and in the history.
#[test]
fn refusals_by_rule_quota_and_session_cap_are_counted_per_class() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\n[proxy]\ntrusted = \"127.0.0.1\"\n[room]\nunit = \"session\"\n\
         [session]\nmax = 1\nwhen_full = \"refuse\"\n[[lighter]]\nname = \"lite\"\nto = \"/lite\"\n\
         [[class]]\nname = \"search\"\nmatch = { path = \"/search\" }\n\
         [[tier]]\nname = \"gold\"\nclient = \"198.51.100.0/24\"\nrate = 0.001\nburst = 1\nmax_sessions = 1\n",
    );
    let visit = |client: &str, target: &str| {
        let fields = format!("Host: h\r\nX-Forwarded-For: {client}\r\nConnection: close");
        ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n"))
    };
    let of_search = Scope { urls: Some(Paths::compile(["/search"]).unwrap()), ..Scope::default() };
    let rule = |action| vec![ActivePolicy { scope: of_search.clone(), ..refuse(action) }];
    publish(&gate, rule(Action::Answer { status: 418 }));
    for _ in 0..3 {
        assert!(visit("192.0.2.1", "/search").starts_with("HTTP/1.1 418"));
    }
    publish(&gate, rule(Action::Close));
    assert_eq!(visit("192.0.2.1", "/search"), "", "refused with its connection");
    publish(&gate, rule(Action::Lighter(RouteId(0))));
    assert!(visit("192.0.2.1", "/search").ends_with("lite"), "served, and not refused");
    publish(&gate, Vec::new());
    assert!(visit("198.51.100.1", "/").ends_with("served"));
    assert!(visit("198.51.100.1", "/search").starts_with("HTTP/1.1 429"));
    assert!(visit("192.0.2.2", "/").starts_with("HTTP/1.1 503"), "no session slot");
    let counted = |class: &str, reason: &str, n: u64| {
        format!("\ntidegate_class_shed_total{{class=\"{class}\",reason=\"{reason}\"}} {n}\n")
    };
    let lines = [
        counted("search", "rule_refused", 4),
        counted("search", "quota_refused", 1),
        counted("search", "sessions_refused", 0),
        counted("default", "rule_refused", 0),
        counted("default", "quota_refused", 0),
        counted("default", "sessions_refused", 1),
        "\ntidegate_rule_refused_total 4\n".to_owned(),
        "\ntidegate_quota_refused_total 1\n".to_owned(),
        "\ntidegate_tier_shed_total{tier=\"gold\",reason=\"quota_refused\"} 1\n".to_owned(),
        "\ntidegate_tier_shed_total{tier=\"default\",reason=\"rule_refused\"} 4\n".to_owned(),
    ];
    until(|| admin(&gate, "/metrics"), |text| lines.iter().all(|line| text.contains(line)));
    let kept = |metric: &str, class: &str| kept(&gate, metric, class).iter().sum::<f64>();
    for (metric, class) in [
        ("shed_rule_refused", "search"),
        ("shed_quota_refused", "search"),
        ("shed_sessions_refused", "default"),
    ] {
        until(|| (kept(metric, class) > 0.0).to_string(), |is_kept| is_kept == "true");
    }
    for (metric, class) in [("shed_rule_refused", "default"), ("shed_quota_refused", "default")] {
        assert_eq!(kept(metric, class), 0.0, "{metric} of {class}");
    }
}

/// The value of a sample of `/metrics`, 0 before there is one.
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// The values of one class in the history, of seconds in which there was one.
fn kept(gate: &Gate, metric: &str, class: &str) -> Vec<f64> {
    let history = gate.admin(&format!("/v1/history?metric={metric}&class={class}&step=1"));
    let rows = history["rows"].as_array().expect("rows");
    rows.iter().filter_map(|row| row[1].as_f64()).collect()
}

/// The first visitor is at the origin, the second one's turn has come and it is held at the gate.
#[test]
fn what_a_visitor_sees_has_the_wait_at_the_gate() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\nmax_in_flight = 1\n[proxy]\ntrusted = \"127.0.0.1\"\n\
         [room]\nunit = \"session\"\n[[tier]]\nname = \"gold\"\nclient = \"192.0.2.2\"\n",
    );
    let visit = |client: &str, target: &str| {
        let fields = format!("Host: h\r\nX-Forwarded-For: {client}\r\nConnection: close");
        ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n"))
    };
    let waiting = || gate.admin("/v1/state")["room"]["waiting"].as_u64();
    std::thread::scope(|scope| {
        scope.spawn(|| visit("192.0.2.1", "/hold"));
        origin.holds();
        scope.spawn(|| visit("192.0.2.2", "/"));
        until(|| format!("{:?}", waiting()), |waiting| waiting == "Some(1)");
        origin.release();
    });
    let of = |name: &str| format!("tidegate_{name}{{class=\"default\"}}");
    let text =
        until(|| admin(&gate, "/metrics"), |text| sample(text, &of("visitor_response_seconds_count")) == 2.0);
    let [visitor, response, queue_wait, waited] = ["visitor_response", "response", "queue_wait", "waiting"]
        .map(|name| sample(&text, &of(&format!("{name}_seconds_sum"))));
    assert!(queue_wait > 0.0 && visitor >= response + queue_wait, "{visitor} {response} {queue_wait}");
    assert_eq!(sample(&text, &of("waiting_seconds_count")), 1.0, "the first one did not wait");
    assert_eq!(waited, queue_wait, "of a newcomer the wait at the gate is a wait for its turn");
    for line in [
        "tidegate_tier_visitor_response_seconds_count{tier=\"gold\"} 1\n",
        "tidegate_tier_waiting_seconds_count{tier=\"gold\"} 1\n",
        "tidegate_tier_waiting_seconds_count{tier=\"default\"} 0\n",
        "tidegate_visitor_failure_seconds_count{class=\"default\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    until(|| kept(&gate, "waited", "default").iter().any(|n| *n > 0.0).to_string(), |is| is == "true");
    for metric in [
        "visitor_mean",
        "visitor_p50",
        "visitor_p95",
        "visitor_p99",
        "waiting_mean",
        "waiting_p50",
        "waiting_p95",
        "waiting_p99",
    ] {
        assert!(kept(&gate, metric, "default").iter().any(|ms| *ms > 0.0), "{metric}");
    }
}

#[test]
fn the_wait_in_the_room_is_counted_by_class_when_its_visitor_is_let_in() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 1\n\
         [[class]]\nname = \"search\"\nmatch = { path = \"/search\" }\n",
    );
    let waits = until(|| get(gate.http, "/search", "a=b"), |answer| answer.contains("set-cookie: tg"));
    let ticket = format!("a=b; {}", cookies(&waits));
    until(|| get(gate.http, "/search", &ticket), |answer| answer.ends_with("served"));
    let of = |name: &str, class: &str| format!("tidegate_waiting_seconds_{name}{{class=\"{class}\"}}");
    let text = until(|| admin(&gate, "/metrics"), |text| sample(text, &of("count", "search")) == 1.0);
    assert!(sample(&text, &of("sum", "search")) > 0.0);
    assert_eq!(sample(&text, &of("count", "default")), 0.0);
    let let_in = sample(&text, "tidegate_class_forwarded_total{class=\"search\"}");
    assert!(let_in > 1.0, "others came in at once and did not wait");
    // The second in which it was let in has to end first.
    let is_kept = || kept(&gate, "waiting_mean", "search").iter().any(|ms| *ms > 0.0).to_string();
    until(is_kept, |is| is == "true");
    assert!(kept(&gate, "waiting_mean", "default").is_empty());
}
