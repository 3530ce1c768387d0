//! Throttles of request types through the admin API: what is refused, what is not, and what is shown of it.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, Scripted, admin, api, ask, connect, get, read_head, reply, until};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]
[proxy]
trusted = "127.0.0.1"
[explain]
header = "full"
[[class]]
name = "search"
match = { path = "/search" }
[[tier]]
name = "gold"
client = "198.51.100.0/24"
exempt = true
"#;

/// The answer to `POST /v1/throttles`: its status and document.
fn post(gate: &Gate, body: &Value) -> (String, Value) {
    answer(&api(gate, "POST", "/v1/throttles", "", &body.to_string()))
}

fn answer(answer: &str) -> (String, Value) {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}")))
}

fn throttle(gate: &Gate, of: &str, action: Value) -> Value {
    let (status, put) = post(gate, &json!({ "type": of, "action": action }));
    assert_eq!(status, "201", "{put}");
    put
}

fn counts(gate: &Gate, id: &Value) -> (u64, u64, u64) {
    let all = gate.admin("/v1/throttles");
    let one = all["throttles"].as_array().unwrap().iter().find(|one| one["id"] == *id).expect("in force");
    let count = |name: &str| one[name].as_u64().unwrap();
    (count("seen"), count("passed"), count("refused"))
}

/// How many of so many requests for `target` the origin has answered.
fn served(gate: &Gate, target: &str, n: usize) -> usize {
    (0..n).filter(|_| get(gate.http, target, "").ends_with("served")).count()
}

#[test]
fn a_share_of_a_type_is_refused_and_others_are_not() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let of_class = throttle(&gate, "class:search", json!({ "refuse": 0.6 }));
    let of_path = throttle(&gate, "path:/item/4711", json!({ "refuse": 1 }));
    assert_eq!(of_path["type"], "path:/item/{n}", "a path stands for its template");
    assert_eq!(served(&gate, "/search?q=x", 20), 8, "40 % of them pass");
    assert_eq!(served(&gate, "/item/1", 3), 0);
    assert_eq!(served(&gate, "/item/new", 3), 3, "another template");
    assert_eq!(served(&gate, "/", 5), 5);
    assert_eq!(counts(&gate, &of_class["id"]), (20, 8, 12));
    assert_eq!(counts(&gate, &of_path["id"]), (3, 0, 3));
    assert_eq!(gate.count(Event::ThrottleRefused), 15);
    let metrics =
        until(|| admin(&gate, "/metrics"), |text| text.contains("\ntidegate_throttle_refused_total 15\n"));
    for line in [
        "tidegate_throttle_requests_total{type=\"class:search\",outcome=\"refused\"} 12",
        "tidegate_throttle_requests_total{type=\"class:search\",outcome=\"passed\"} 8",
        "tidegate_throttle_requests_total{type=\"path:/item/{n}\",outcome=\"refused\"} 3",
        "tidegate_class_shed_total{class=\"search\",reason=\"throttle_refused\"} 12",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}");
    }
    // The same type again: a new throttle instead of the old one.
    let again = throttle(&gate, "class:search", json!({ "refuse": 0 }));
    assert_ne!(again["id"], of_class["id"]);
    assert_eq!(served(&gate, "/search", 4), 4);
    let gone = api(&gate, "DELETE", &format!("/v1/throttles/{}", of_path["id"]), "", "");
    assert!(gone.starts_with("HTTP/1.1 200"), "{gone}");
    assert_eq!(served(&gate, "/item/1", 3), 3);
    let state = gate.admin("/v1/state");
    assert_eq!(state["throttles"].as_array().unwrap().len(), 1, "{state}");
    assert_eq!(state["throttles"][0]["type"], "class:search");
}

#[test]
fn so_many_of_a_type_pass_and_retry_after_says_when() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    throttle(&gate, "path:/list", json!({ "rate": 0.001 }));
    assert_eq!(served(&gate, "/list", 1), 1);
    let refused = get(gate.http, "/list", "");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\r\nretry-after: "), "{refused}");
    let after = refused.split("retry-after: ").nth(1).and_then(|rest| rest.split('\r').next()).unwrap();
    assert!((900..=1_000).contains(&after.parse::<u32>().unwrap()), "{after}");
    throttle(&gate, "path:/list", json!({ "rate": 0 }));
    assert_eq!(served(&gate, "/list", 2), 0, "none at all");
}

#[test]
fn a_refusal_is_a_problem_or_a_page_and_is_explained() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let put = throttle(&gate, "path:/item/{n}", json!({ "refuse": 1 }));
    let refused = get(gate.http, "/item/7", "");
    for word in [
        "HTTP/1.1 503",
        "retry-after: 5",
        "application/problem+json",
        "\"throttle\":\"path:/item/{n}\"",
        "throttle=\"path:/item/{n}\"",
    ] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    let page = ask(
        gate.http,
        "GET /item/7 HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\nAccept-Language: de\r\nConnection: close\r\n\r\n",
    );
    assert!(page.starts_with("HTTP/1.1 503") && page.contains("überlastet"), "{page}");
    let id = refused.split("tidegate-decision: id=").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    let why = gate.admin(&format!("/v1/explain/{id}"));
    assert_eq!((&why["by"], &why["throttle"]["id"]), (&json!("throttle"), &put["id"]), "{why}");
    assert_eq!((&why["throttle"]["type"], &why["path"]), (&json!("path:/item/{n}"), &json!("/item/7")));
    assert_eq!(why["retry_after_s"], 5);
}

#[test]
fn exempt_service_levels_are_spared_and_shadow_only_counts() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let put = throttle(&gate, "path:/a", json!({ "refuse": 1 }));
    let of_gold = "GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.7\r\nConnection: close\r\n\r\n";
    assert!(ask(gate.http, of_gold).ends_with("served"));
    assert_eq!(served(&gate, "/a", 2), 0);
    assert_eq!(counts(&gate, &put["id"]), (2, 0, 2));
    let shadow = api(&gate, "PUT", "/v1/tunables/enforcement.shadow", "", "{\"value\": true}");
    assert!(shadow.starts_with("HTTP/1.1 200"), "{shadow}");
    assert_eq!(served(&gate, "/a", 3), 3);
    assert_eq!(counts(&gate, &put["id"]), (5, 0, 5), "counted as refused, and served");
    assert_eq!(gate.admin("/v1/throttles")["throttles"][0]["shadow"], true);
}

#[test]
fn a_throttle_ends_in_time_and_every_change_is_in_the_audit() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let body = json!({ "type": "path:/a", "action": { "refuse": 1 }, "for": "200ms", "why": "an incident" });
    let (status, put) = post(&gate, &body);
    assert_eq!((status.as_str(), &put["why"]), ("201", &json!("an incident")), "{put}");
    assert_eq!(put["until_ms"].as_u64().unwrap() - put["since_ms"].as_u64().unwrap(), 200);
    until(|| get(gate.http, "/a", ""), |answer| answer.ends_with("served"));
    let by_hand = throttle(&gate, "path:/b", json!({ "rate": 2 }));
    throttle(&gate, "path:/b", json!({ "bandwidth": 1000 }));
    let unknown = api(&gate, "DELETE", &format!("/v1/throttles/{}", by_hand["id"]), "", "");
    assert!(unknown.starts_with("HTTP/1.1 404"), "replaced: {unknown}");
    let id = gate.admin("/v1/throttles")["throttles"][0]["id"].clone();
    let why = "{\"why\": \"over\"}";
    assert!(api(&gate, "DELETE", &format!("/v1/throttles/{id}"), "", why).starts_with("HTTP/1.1 200"));
    // The end by time is recorded a moment after it.
    let log = until(
        || gate.admin("/v1/audit")["changes"].to_string(),
        |log| serde_json::from_str::<Vec<Value>>(log).unwrap().len() >= 5,
    );
    let log: Vec<Value> = serde_json::from_str(&log).unwrap();
    let has = |action: &str, key: &str, old: Value, new: Value, why: &str| {
        let found = log.iter().any(|one| {
            one["action"] == action
                && one["key"] == key
                && one["old"] == old
                && one["new"] == new
                && one["why"] == why
        });
        assert!(found, "{action} {key} in {log:?}");
    };
    has("throttle", "path:/a", Value::Null, json!({ "refuse": 1.0 }), "an incident");
    has("unthrottle", "path:/a", json!({ "refuse": 1.0 }), Value::Null, "its time is over");
    has("throttle", "path:/b", json!({ "rate": 2.0 }), json!({ "bandwidth": 1000 }), "");
    has("unthrottle", "path:/b", json!({ "bandwidth": 1000 }), Value::Null, "over");
}

#[test]
fn throttles_stay_over_a_reload_and_a_restart() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, SHOP);
    let put = throttle(&gate, "class:search", json!({ "refuse": 1 }));
    assert_eq!(served(&gate, "/search", 2), 0);
    // Another class comes first; later the class is gone.
    gate.reload(
        &origin,
        &SHOP.replace("[[class]]", "[[class]]\nname = \"new\"\nmatch = { path = \"/new\" }\n[[class]]"),
    );
    assert_eq!((served(&gate, "/search", 2), served(&gate, "/new", 2)), (0, 2));
    gate.reload(&origin, &SHOP.replace("\"search\"", "\"find\""));
    assert_eq!(served(&gate, "/search", 2), 2, "its class is not configured any more");
    gate.reload(&origin, SHOP);
    assert_eq!(served(&gate, "/search", 2), 0);
    assert_eq!(counts(&gate, &put["id"]), (6, 0, 6), "it has kept its counters");
    let short = json!({ "type": "path:/short", "action": { "refuse": 1 }, "for": "1ms" });
    assert_eq!(post(&gate, &short).0, "201");
    let gate = gate.restarted(&origin, SHOP);
    assert_eq!(served(&gate, "/search", 2), 0);
    assert_eq!(served(&gate, "/short", 2), 2);
    let all = gate.admin("/v1/throttles");
    assert_eq!(all["throttles"].as_array().unwrap().len(), 1, "{all}");
    assert_eq!((&all["throttles"][0]["id"], &all["throttles"][0]["seen"]), (&put["id"], &json!(2)));
    let next = throttle(&gate, "path:/a", json!({ "refuse": 0 }));
    assert!(next["id"].as_u64() > put["id"].as_u64(), "numbers are not used again");
}

const BODY: usize = 200_000;

/// Answers `/file` and `/other` with [`BODY`] bytes, `/chunked` with the same in chunks and with trailers.
fn downloads() -> Scripted {
    Scripted::start(|head, _, stream| {
        let body = "x".repeat(BODY);
        if head.contains(" /chunked") {
            let begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            let whole = format!("{begin}{BODY:x}\r\n{body}\r\n0\r\nx-sum: 7\r\n\r\n");
            let _ = stream.write_all(whole.as_bytes());
            return;
        }
        if head.starts_with("HEAD") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            return;
        }
        reply(stream, "200 OK", "Cache-Control: public, max-age=60\r\n", &body);
    })
}

fn before(origin: &Scripted, toml: &str) -> Gate {
    Gate::before(origin.address, toml, |_| Vec::new())
}

fn begin(gate: &Gate, target: &str) -> TcpStream {
    let mut stream = connect(gate.http);
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
}

fn read(stream: &mut TcpStream, bytes: usize) {
    stream.read_exact(&mut vec![0; bytes]).unwrap();
}

#[test]
fn a_bandwidth_holds_answers_of_its_type_and_no_others_and_ends_with_the_throttle() {
    let origin = downloads();
    let gate = before(&origin, SHOP);
    let put = throttle(&gate, "path:/file", json!({ "bandwidth": 1_000 }));
    let mut slow = begin(&gate, "/file");
    read(&mut slow, 500);
    let mut fast = begin(&gate, "/other");
    read(&mut fast, BODY);
    let bytes = || gate.admin("/v1/throttles")["throttles"][0]["bytes"].as_u64().unwrap() as usize;
    assert!((500..BODY).contains(&bytes()), "{} of {BODY} while others are served", bytes());
    // An answer that is held back holds no slot for long.
    until(|| gate.admin("/v1/state")["gate"]["in_flight"].to_string(), |n| n == "0");
    assert!(bytes() < BODY, "it is still under way");
    // What is under way is held back no more.
    assert!(
        api(&gate, "DELETE", &format!("/v1/throttles/{}", put["id"]), "", "").starts_with("HTTP/1.1 200")
    );
    read(&mut begin(&gate, "/file"), BODY);
    let (mut left, mut bytes) = (BODY - 500, [0; 4096]);
    let rest = || {
        left -= slow.read(&mut bytes).unwrap();
        left.to_string()
    };
    until(rest, |left| left == "0");
}

#[test]
fn two_answers_get_equal_shares_of_a_bandwidth() {
    let origin = downloads();
    let gate = before(&origin, SHOP);
    throttle(&gate, "path:/file", json!({ "bandwidth": 100_000 }));
    // Neither of them waits for the other one: when the one has come, most of the other has been sent.
    for is_first in [true, false] {
        let before = gate.admin("/v1/throttles")["throttles"][0]["bytes"].as_u64().unwrap();
        let (mut one, mut other) = (begin(&gate, "/file"), begin(&gate, "/file"));
        read(if is_first { &mut one } else { &mut other }, BODY);
        let bytes = gate.admin("/v1/throttles")["throttles"][0]["bytes"].as_u64().unwrap() - before;
        let rest = bytes.saturating_sub(BODY as u64);
        assert!(rest >= BODY as u64 / 2, "{rest} of the other when one of {BODY} had come");
    }
}

#[test]
fn a_shaped_answer_arrives_whole_with_its_trailers_and_its_connection_stays() {
    let origin = downloads();
    let gate = before(&origin, SHOP);
    for target in ["/chunked", "/file", "/head"] {
        throttle(&gate, &format!("path:{target}"), json!({ "bandwidth": 2_000_000 }));
    }
    let mut stream = connect(gate.http);
    let ask = |stream: &mut TcpStream, request: &str, fields: &str| {
        let head = format!("{request} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        read_head(stream).unwrap().to_ascii_lowercase()
    };
    let head = ask(&mut stream, "GET /file", "");
    assert!(head.contains(&format!("content-length: {BODY}\r\n")), "{head}");
    read(&mut stream, BODY);
    assert!(ask(&mut stream, "HEAD /head", "").contains(&format!("content-length: {BODY}\r\n")));
    let head = ask(&mut stream, "GET /chunked", "TE: trailers\r\nConnection: TE, close\r\n");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches('x').count(), BODY + 1, "the body, and the name of the trailer");
    assert!(rest.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{}", &rest[rest.len() - 40..]);
    let counted: u64 = gate.admin("/v1/throttles")["throttles"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["bytes"].as_u64())
        .sum();
    assert_eq!(counted, 2 * BODY as u64, "nothing of HEAD");
}

#[test]
fn a_shared_answer_is_shaped_for_each_who_gets_it() {
    let origin = downloads();
    let rule = "[[rule]]\nname = \"share\"\nwhen = \"true\"\nthen = \"multicast\"\nperiod = \"1m\"\n";
    let gate = before(&origin, &format!("{SHOP}{rule}"));
    until(|| gate.admin("/v1/state")["rules"][0]["in_force"].to_string(), |in_force| in_force == "true");
    throttle(&gate, "path:/file", json!({ "bandwidth": 20_000 }));
    let (mut one, mut other) = (begin(&gate, "/file"), begin(&gate, "/file"));
    read(&mut one, 5_000);
    read(&mut other, 5_000);
    assert_eq!(origin.came(), 1, "one request for both");
    read(&mut begin(&gate, "/other"), BODY);
    let bytes = gate.admin("/v1/throttles")["throttles"][0]["bytes"].as_u64().unwrap() as usize;
    assert!((10_000..BODY).contains(&bytes), "{bytes}");
}

#[test]
fn wrong_throttles_change_nothing_and_say_what_is_right() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let refuse = json!({ "refuse": 0.5 });
    for (body, status, said) in [
        (json!({ "type": "class:serch", "action": refuse }), "422", "Did you mean `search`?"),
        (json!({ "type": "search", "action": refuse }), "422", "Write \"class:search\"?"),
        (json!({ "type": "/item/{n}", "action": refuse }), "422", "Write \"path:/item/{n}\"?"),
        (json!({ "type": "path:/item/{number}", "action": refuse }), "422", "{uuid}"),
        (json!({ "type": "other", "action": refuse }), "422", "\"class:NAME\" or \"path:TEMPLATE\""),
        (json!({ "type": "path:/a", "action": { "refuse": 1.5 } }), "400", "a number from 0 to 1"),
        (json!({ "type": "path:/a", "action": { "rate": -1 } }), "400", "a number from 0"),
        (json!({ "type": "path:/a", "action": { "bandwidth": 0 } }), "400", "a number from 1"),
        (json!({ "type": "path:/a", "action": {} }), "400", "at least 1 field"),
        (json!({ "type": "path:/a", "action": { "rate": 1, "refuse": 1 } }), "400", "at most 1 field"),
        (json!({ "type": "path:/a", "action": { "refus": 1 } }), "400", "Did you mean `refuse`?"),
        (json!({ "type": "path:/a", "action": refuse, "for": "soon" }), "422", "a duration"),
        (json!({ "type": "path:/a", "action": refuse, "for": "0s" }), "422", "a duration"),
        (json!({ "action": refuse }), "400", "type"),
    ] {
        let (got, problem) = post(&gate, &body);
        assert_eq!(got, status, "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{body}: {problem}");
    }
    let letter = |n: u8| char::from(b'a' + n);
    for n in 0..64 {
        throttle(&gate, &format!("path:/{}{}", letter(n / 8), letter(n % 8)), refuse.clone());
    }
    assert_eq!(post(&gate, &json!({ "type": "path:/one-more", "action": refuse })).0, "409");
    assert_eq!(post(&gate, &json!({ "type": "path:/aa", "action": refuse })).0, "201", "it replaces one");
}
