//! Many changes at once: each takes effect as a whole, in the order that the audit records, and no request
//! fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Origin, connect, read_head};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
rate = 1000000
[[class]]
name = "search"
match = { path = "/search*" }
"#;

/// A connection that is kept open.
struct Talk(TcpStream);

impl Talk {
    fn to(address: SocketAddr) -> Self {
        Self(connect(address))
    }

    /// Status, ETag and body.
    fn ask(&mut self, method: &str, target: &str, fields: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n"
        );
        self.0.write_all((head + body).as_bytes()).unwrap();
        let head = read_head(&mut self.0).expect("an answer").to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let mut body = vec![0; field("content-length: ").parse().expect("a length")];
        self.0.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, field("etag: ").to_owned(), String::from_utf8(body).unwrap())
    }
}

/// The audit, the oldest record first.
fn record(gate: &Gate) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = gate.admin(&format!("/v1/audit?limit=1000{before}"));
        all.extend(page["changes"].as_array().expect("a page").iter().cloned());
        if page["next"].is_null() {
            all.reverse();
            return all;
        }
        before = format!("&before={}", page["next"]);
    }
}

const NAME: &str = "/v1/tunables/queue.max_length";

#[test]
fn concurrent_changes_are_recorded_in_the_order_in_which_they_took_effect() {
    const EACH: u64 = 100;
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    std::thread::scope(|scope| {
        for who in 1..=2_u64 {
            let gate = &gate;
            scope.spawn(move || {
                let mut talk = Talk::to(gate.admin);
                for n in 0..EACH {
                    let value = 1_000 * who + n;
                    let (status, _, one) = talk.ask("PUT", NAME, "", &json!({ "value": value }).to_string());
                    let one: Value = one.parse().unwrap();
                    assert_eq!(
                        (status, &one["value"]),
                        (200, &json!(value)),
                        "another client's value: {one}"
                    );
                }
            });
        }
        scope.spawn(|| {
            let mut talk = Talk::to(gate.admin);
            for _ in 0..EACH {
                let (status, _, one) = talk.ask("DELETE", NAME, "", "");
                let one: Value = one.parse().unwrap();
                assert_eq!(
                    (status, &one["value"], &one["tuned"]),
                    (200, &one["file"], &Value::Null),
                    "{one}"
                );
            }
        });
    });
    let record = record(&gate);
    assert!(record.len() as u64 > 2 * EACH, "{}", record.len());
    for pair in record.windows(2) {
        assert_eq!(pair[0]["new"], pair[1]["old"], "{pair:?}");
        assert!(pair[0]["at_ms"].as_u64() <= pair[1]["at_ms"].as_u64(), "{pair:?}");
    }
    assert_eq!(gate.admin(NAME)["value"], record.last().unwrap()["new"]);
}

#[test]
fn a_reset_with_an_old_etag_is_refused() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let mut talk = Talk::to(gate.admin);
    let (_, seen, _) = talk.ask("PUT", NAME, "", r#"{"value": 7}"#);
    let (_, newer, _) = talk.ask("PUT", NAME, "", r#"{"value": 8}"#);
    let (status, now, _) = talk.ask("DELETE", NAME, &format!("If-Match: {seen}\r\n"), "");
    assert_eq!((status, &now), (412, &newer), "another has changed it since");
    assert_eq!(gate.admin(NAME)["value"], 8);
    assert_eq!(talk.ask("DELETE", NAME, &format!("If-Match: {newer}\r\n"), "").0, 200);
    assert_eq!(gate.admin(NAME)["tuned"], Value::Null);
    assert_eq!(record(&gate).len(), 3);
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_thousand_changes_fail_no_request() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for visitor in 0..4 {
            let (gate, is_over, served) = (&gate, &is_over, &served);
            scope.spawn(move || {
                let target = if visitor % 2 == 0 { "/search" } else { "/" };
                let mut talk = Talk::to(gate.http);
                while !is_over.load(Ordering::Relaxed) {
                    let (status, _, body) = talk.ask("GET", target, "", "");
                    assert_eq!((status, body.as_str()), (200, "served"));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also if an assertion fails, or the visitors would go on for ever.
        let _over = Over(&is_over);
        let mut talk = Talk::to(gate.admin);
        for n in 0..1_000_u64 {
            let (status, _, answer) = match n % 2 {
                0 => talk.ask("PUT", NAME, "", &json!({ "value": 5_000 + n }).to_string()),
                _ => {
                    let changes = json!({
                        "class.search.priority": n % 7, "class.search.cost": 1.0 + (n % 3) as f64,
                        "class.search.ingress.rate": 1e5 + n as f64, "origin.max_in_flight": 100 + n,
                    });
                    talk.ask("PATCH", "/v1/tunables", "", &json!({ "changes": changes }).to_string())
                }
            };
            assert_eq!(status, 200, "{answer}");
        }
    });
    let totals = gate.server().shared().gate.totals();
    assert_eq!((totals.shed(), totals.in_flight), (0, 0));
    assert_eq!(totals.finished as usize, served.load(Ordering::Relaxed));
    assert_eq!(gate.admin("/v1/tunables")["generation"], 1_000);
}
