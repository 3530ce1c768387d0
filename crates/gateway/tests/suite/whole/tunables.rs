//! Tunables: each is bounded, a change is in force when it is answered, and `If-Match` guards against
//! overwriting another client's change.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::whole::harness::{self, Gate, Origin, connect, get};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]

[[class]]
name = "search"
match = { path = "/search*" }
cost = 3.0

[[tier]]
name = "gold"
client = "192.0.2.0/24"

[[detector]]
name = "crowd"
kind = "connections"
red = 8000

[[rule]]
name = "nobody"
when = 'levels.crowd == "red"'
"#;

/// Status, head and document.
fn api(gate: &Gate, method: &str, path: &str, fields: &str, body: &Value) -> (u16, String, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = harness::api(gate, method, path, fields, &body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}

fn tunables(gate: &Gate) -> Vec<Value> {
    let (status, _, document) = api(gate, "GET", "/v1/tunables", "", &Value::Null);
    assert_eq!(status, 200);
    document["tunables"].as_array().expect("a list").clone()
}

/// Values that a key with this schema must refuse.
fn bad_values(schema: &Value) -> Vec<Value> {
    let mut bad = vec![json!([[1]]), Value::Null, json!({})];
    if schema["type"] != "string" || !schema["enum"].is_null() || !schema["format"].is_null() {
        bad.push(json!("no such thing"));
    }
    let is = |kind: &str| {
        schema["type"] == kind || schema["type"].as_array().is_some_and(|k| k.contains(&json!(kind)))
    };
    if is("integer") || is("number") {
        bad.extend([json!(-1), json!(-0.5), json!(1e300), json!("1e9999"), json!(true), json!("NaN")]);
        bad.extend(schema["minimum"].as_f64().map(|least| json!(least - 1.0)));
        bad.extend(schema["maximum"].as_f64().map(|most| json!(most * 2.0 + 1.0)));
        bad.extend(schema["maximum"].as_u64().map(|most| json!(most + 1)));
    }
    if schema["type"] == "integer" {
        bad.push(json!(2.5));
    }
    if schema["type"] == "boolean" {
        bad.extend([json!(0), json!("true"), json!("yes")]);
    }
    if let Some(most) = schema["x-maximum-ms"].as_u64() {
        bad.extend([json!(30), json!("30"), json!("-1s"), json!("1s1h"), json!(format!("{}ms", most + 1))]);
        let least = schema["x-minimum-ms"].as_u64().unwrap_or(0);
        if least > 1 {
            bad.push(json!(format!("{}ms", least - 1)));
        }
        if least > 0 && schema["x-zero"] == false {
            bad.push(json!("0s"));
        }
    }
    bad
}

#[test]
fn every_tunable_refuses_values_out_of_its_bounds() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let before = tunables(&gate);
    assert!(before.len() > 60, "{}", before.len());
    for wanted in [
        "capacity.ceiling",
        "capacity.estimator",
        "capacity.bottleneck.memory",
        "origin.max_in_flight",
        "queue.max_wait",
        "room.burst",
        "room.overbook_max",
        "limits.request_timeout",
        "class.search.cost",
        "class.search.priority",
        "class.default.cost",
        "class.default.queue.patience",
        "session.max",
        "tier.gold.rate",
        "tier.gold.max_sessions",
        "detector.crowd.red",
        "detector.crowd.calm",
        "rule.nobody.when",
    ] {
        assert!(before.iter().any(|tunable| tunable["name"] == wanted), "{wanted}");
    }
    for fixed in [
        "listen.admin_token",
        "room.keys",
        "class.search.name",
        "class.search.match.path",
        "class.default.name",
        "tier.gold.client",
        "tier.gold.jwt.secret",
        "detector.crowd.kind",
        "rule.nobody.then",
        "origin.replicas",
    ] {
        assert!(!before.iter().any(|tunable| tunable["name"] == fixed), "{fixed}");
        let (status, _, problem) =
            api(&gate, "PATCH", "/v1/tunables", "", &json!({ "changes": { fixed: "x" } }));
        assert_eq!(status, 422, "{problem}");
        assert_eq!(problem["mistakes"][0]["expected"], "a tunable", "{problem}");
    }
    let mut refused = 0;
    for tunable in &before {
        let name = tunable["name"].as_str().expect("a name");
        let path = format!("/v1/tunables/{name}");
        assert!(tunable["schema"]["type"] != Value::Null, "{name} has no schema");
        for bad in bad_values(&tunable["schema"]) {
            let (status, _, problem) = api(&gate, "PUT", &path, "", &json!({ "value": bad }));
            assert!(status == 422 || status == 400, "{name} = {bad}: {status} {problem}");
            let reason = problem["detail"].as_str().unwrap_or_default();
            assert!(reason.contains("expected") && reason.contains("got"), "{name} = {bad}: {reason}");
            refused += 1;
        }
        // Its present value is accepted.
        let (status, _, same) = api(&gate, "PUT", &path, "", &json!({ "value": tunable["value"] }));
        assert_eq!((status, &same), (200, tunable), "{name}");
    }
    assert!(refused > 5 * before.len(), "{refused}");
    assert_eq!(tunables(&gate), before, "nothing has changed");
}

#[test]
fn a_change_is_atomic_in_force_when_answered_and_recorded() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let long = format!("/{}", "x".repeat(400));
    assert!(get(gate.http, &long, "").starts_with("HTTP/1.1 200"));
    let both = |uri: Value, wait: &str| {
        let changes = json!({ "limits.max_uri_bytes": uri, "queue.max_wait": wait });
        api(&gate, "PATCH", "/v1/tunables", "", &json!({ "changes": changes, "why": "a drill" }))
    };
    let (status, _, problem) = both(json!(300), "2 weeks");
    assert_eq!(status, 422);
    assert_eq!(problem["mistakes"].as_array().map(Vec::len), Some(1), "{problem}");
    assert!(get(gate.http, &long, "").starts_with("HTTP/1.1 200"), "all or nothing");
    let (status, head, changed) = both(json!(300), "5s");
    assert_eq!(status, 200, "{changed}");
    assert!(head.to_lowercase().contains("etag: \""), "{head}");
    assert_eq!(changed["changed"][0]["name"], "limits.max_uri_bytes", "{changed}");
    // On a new connection, whichever worker serves it.
    assert!(get(gate.http, &long, "").starts_with("HTTP/1.1 414"));
    assert_eq!(gate.server().shared().gate.totals().max_queue_wait.as_secs(), 5);
    let (_, _, one) = api(&gate, "GET", "/v1/tunables/queue.max_wait", "", &Value::Null);
    assert_eq!((&one["value"], &one["file"]), (&json!("5s"), &json!("30s")));
    assert_eq!(one["tuned"]["why"], "a drill", "{one}");
    let (status, _, back) = api(&gate, "DELETE", "/v1/tunables/queue.max_wait", "", &Value::Null);
    assert_eq!((status, &back["value"], &back["tuned"]), (200, &json!("30s"), &Value::Null), "{back}");
    let (_, _, audit) = api(&gate, "GET", "/v1/audit?limit=2", "", &Value::Null);
    let records = audit["changes"].as_array().expect("records");
    assert_eq!(
        (&records[0]["key"], &records[0]["old"], &records[0]["new"]),
        (&json!("queue.max_wait"), &json!("5s"), &json!("30s")),
    );
    assert!(records[1]["who"].as_str().is_some_and(|who| who.starts_with("local@127.0.0.1:")), "{audit}");
    assert_eq!((&records[1]["why"], &records[1]["action"]), (&json!("a drill"), &json!("tune")));
    let (_, _, rest) = api(&gate, "GET", &format!("/v1/audit?before={}", audit["next"]), "", &Value::Null);
    assert_eq!(rest["changes"].as_array().map(Vec::len), Some(1), "{rest}");
    assert_eq!(rest["next"], Value::Null);
}

#[test]
fn a_ceiling_holds_at_once_whatever_the_estimator_says() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &format!("{SHOP}\n[capacity]\nbottleneck.min_in_flight = 4\n"));
    let capacity = || gate.server().shared().admission.capacity().get();
    let found = capacity();
    for ceiling in [found / 2.0, found / 4.0, found / 3.0] {
        let (status, _, _) =
            api(&gate, "PUT", "/v1/tunables/capacity.ceiling", "", &json!({ "value": ceiling }));
        assert_eq!((status, capacity()), (200, ceiling));
    }
    // The operator's limit holds at the gate at once, whatever the estimator says.
    api(&gate, "PUT", "/v1/tunables/origin.max_in_flight", "", &json!({ "value": 2 }));
    assert_eq!(gate.server().shared().gate.totals().limit, Some(2));
    let (status, _, problem) =
        api(&gate, "PUT", "/v1/tunables/capacity.floor", "", &json!({ "value": found }));
    assert_eq!(status, 422, "keys that must agree are checked together: {problem}");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("capacity.ceiling")), "{problem}");
}

#[test]
fn if_match_guards_against_lost_updates() {
    const EACH: u64 = 25;
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let path = "/v1/tunables/queue.max_length";
    let start = api(&gate, "GET", path, "", &Value::Null).2["value"].as_u64().expect("a number");
    // Four threads increment one number: without `If-Match` some steps would be lost.
    let lost: u64 = std::thread::scope(|scope| {
        let counters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut done, mut lost) = (0, 0);
                    while done < EACH {
                        let (_, head, now) = api(&gate, "GET", path, "", &Value::Null);
                        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("an ETag");
                        let next = json!({ "value": now["value"].as_u64().expect("a number") + 1 });
                        match api(&gate, "PUT", path, &format!("If-Match: {tag}\r\n"), &next).0 {
                            200 => done += 1,
                            412 => lost += 1,
                            other => panic!("{other}"),
                        }
                    }
                    lost
                })
            })
            .collect();
        counters.into_iter().map(|counter| counter.join().expect("a counter")).sum()
    });
    let end = api(&gate, "GET", path, "", &Value::Null).2["value"].as_u64();
    assert_eq!(end, Some(start + 4 * EACH), "{lost} races lost and run again");
    let (status, head, _) = api(&gate, "PUT", path, "If-Match: \"0-0\"\r\n", &json!({ "value": 1 }));
    assert_eq!(status, 412);
    assert!(head.contains("etag: \""), "the present ETag is missing: {head}");
    assert_eq!(api(&gate, "PUT", path, "If-Match: *\r\n", &json!({ "value": 1 })).0, 200);
}

#[test]
fn events_carry_the_state_of_every_second_until_the_gate_drains() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let mut stream = connect(gate.admin);
    stream.write_all(b"GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    assert!(lines.next().is_some_and(|line| line.contains("200")));
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
    assert_eq!(lines.next().as_deref(), Some("retry: 1000"));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let line = lines.next().expect("an event");
        if let Some(data) = line.strip_prefix("data: ") {
            let state: Value = serde_json::from_str(data).expect("a document");
            seen.push(state["at_ms"].as_u64().expect("a time"));
        }
    }
    assert!(seen[0] <= seen[1] && seen[1] < seen[2], "{seen:?}");
    gate.server().control().drain();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line == "event: end"), "{rest:?}");
}

fn set(gate: &Gate, name: &str, value: Value) -> Value {
    let (status, _, document) =
        api(gate, "PUT", &format!("/v1/tunables/{name}"), "", &json!({ "value": value }));
    assert_eq!(status, 200, "{name}: {document}");
    document
}

#[test]
fn the_default_class_is_tuned_although_no_item_is_written_for_it() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, SHOP);
    assert!(get(gate.http, "/", "").ends_with("served"));
    let changed = set(&gate, "class.default.ingress.rate", json!(0.001));
    assert_eq!((&changed["file"], &changed["value"]), (&json!(0.0), &json!(0.001)), "{changed}");
    assert!(get(gate.http, "/", "").ends_with("served"), "a burst of one request");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 503"));
    assert!(get(gate.http, "/search", "").ends_with("served"), "another class");
    // It survives a reload, and a restart, of a file that does not name the class.
    gate.reload(&origin, SHOP);
    let (_, _, one) = api(&gate, "GET", "/v1/tunables/class.default.ingress.rate", "", &Value::Null);
    assert_eq!(one["value"], json!(0.001), "{one}");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 503"), "the bucket is as empty as before");
    let gate = gate.restarted(&origin, SHOP);
    let (_, _, one) = api(&gate, "GET", "/v1/tunables/class.default.ingress.rate", "", &Value::Null);
    assert_eq!(one["value"], json!(0.001), "{one}");
    let path = "/v1/tunables/class.default.ingress.rate";
    let (status, _, back) = api(&gate, "DELETE", path, "", &Value::Null);
    assert_eq!((status, &back["value"], &back["tuned"]), (200, &json!(0.0), &Value::Null), "{back}");
    assert!((0..3).all(|_| get(gate.http, "/", "").ends_with("served")));
}

#[test]
fn another_quota_begins_with_what_was_counted() {
    let origin = Origin::start();
    let quota = "client = \"127.0.0.0/8\"\nrate = 0.001\nburst = 3";
    let gate = Gate::start(&origin, &SHOP.replace("client = \"192.0.2.0/24\"", quota));
    let is_served = || get(gate.http, "/", "").ends_with("served");
    assert!((0..3).all(|_| is_served()) && !is_served());
    // Other tunables, of the quota itself too, fill no bucket.
    set(&gate, "rule.nobody.when", json!("figures.crowd > 9"));
    set(&gate, "queue.max_wait", json!("5s"));
    set(&gate, "tier.gold.rate", json!(0.002));
    assert!(!is_served());
    set(&gate, "tier.gold.burst", json!(5));
    assert!(!is_served(), "a larger bucket is as empty");
    set(&gate, "tier.gold.rate", json!(0));
    assert!((0..5).all(|_| is_served()), "no limit");
}

#[test]
fn session_slots_change_under_sessions_that_are_open() {
    let origin = Origin::start();
    let text = "[room]\nunit = \"session\"\n[session]\nmax = 2\nwhen_full = \"refuse\"\n[proxy]\ntrusted = \"127.0.0.1\"\n";
    let gate = Gate::start(&origin, &format!("{SHOP}{text}"));
    let visit = |client: &str, cookies: &str| {
        let fields = format!("X-Forwarded-For: {client}\r\nCookie: {cookies}\r\nConnection: close");
        harness::ask(gate.http, &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n"))
    };
    let first = visit("198.51.100.1", "a=b");
    let second = visit("198.51.100.2", "a=b");
    assert!(first.ends_with("served") && second.ends_with("served"), "{first}{second}");
    let open = || gate.admin("/v1/state")["sessions"]["open"].as_u64();
    for max in [json!(1), json!("discovered"), json!(2), json!("none"), json!(1)] {
        set(&gate, "session.max", max.clone());
        let again = visit("198.51.100.1", &harness::cookies(&first));
        assert!(again.ends_with("served"), "{max}: {again}");
        assert_eq!(open(), Some(2), "{max}");
    }
    assert!(visit("198.51.100.3", "a=b").starts_with("HTTP/1.1 503"));
    // A tier's own slots too: its visitor is admitted beside the others.
    set(&gate, "tier.gold.max_sessions", json!(1));
    assert!(visit("192.0.2.7", "a=b").ends_with("served"));
    set(&gate, "session.max", json!(3));
    assert!(visit("198.51.100.3", "a=b").ends_with("served"));
    assert_eq!(open(), Some(4));
}
