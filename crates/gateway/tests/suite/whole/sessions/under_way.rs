//! A request under way keeps its session alive until the last byte of the answer; the idle timeout counts
//! from there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::classify::Paths;
use tidegate_core::policies::{Action, Policy};
use tidegate_core::units::Timestamp;

use super::{
    ONE_SLOT, all_ended_idle, before, change, is_refused, is_served, open, shop, state, visit, with,
};
use crate::whole::harness::{Gate, Latch, Origin, Scripted, connect, cookies, read_head, reply, until};
use crate::whole::policies::{order, publish};

const TIMEOUT_MS: u128 = 1_000;
const STRANGER: &str = "192.0.2.99";

fn one_slot(session: &str) -> String {
    format!("{ONE_SLOT}timeout = \"1s\"\n{session}")
}

fn now(gate: &Gate) -> Timestamp {
    gate.server().shared().clock.now()
}

/// Requests under way of the only session.
fn under_way(gate: &Gate) -> u64 {
    gate.admin("/v1/sessions")["sessions"][0]["under_way"].as_u64().unwrap()
}

/// Checks for longer than the timeout that no other session gets the slot.
fn is_kept(gate: &Gate) {
    let since = now(gate);
    while now(gate).since(since).as_millis() < TIMEOUT_MS + 500 {
        let answer = visit(gate, "/", STRANGER, "");
        assert!(is_refused(&answer), "another session has the slot: {answer}");
    }
    assert_eq!((open(gate), state(gate)["begun"].as_u64()), (1, Some(1)), "still the first session");
}

/// Another session gets the slot, but not before a timeout after `over`.
fn is_free_a_timeout_after(gate: &Gate, over: Timestamp) {
    until(|| visit(gate, "/", STRANGER, ""), is_served);
    let waited = now(gate).since(over);
    assert!(waited.as_millis() >= TIMEOUT_MS, "{waited:?} after the end of what was under way");
    all_ended_idle(gate, 2);
}

#[test]
fn a_slow_answer_keeps_its_session_and_the_timeout_counts_from_its_end() {
    for is_first in [true, false] {
        let origin = Origin::start();
        // Keyed by address, since a visitor without an answer has no pass yet.
        let gate = Gate::start(&origin, &one_slot("key = \"ip\"\n"));
        if !is_first {
            assert!(is_served(&visit(&gate, "/", "192.0.2.1", "")));
        }
        let over = std::thread::scope(|scope| {
            let slow = scope.spawn(|| visit(&gate, "/hold", "192.0.2.1", ""));
            origin.holds();
            assert_eq!(under_way(&gate), 1);
            is_kept(&gate);
            let over = now(&gate);
            origin.release();
            assert!(is_served(&slow.join().unwrap()));
            over
        });
        until(|| under_way(&gate).to_string(), |n| n == "0");
        is_free_a_timeout_after(&gate, over);
    }
}

#[test]
fn a_request_that_waits_at_the_gate_keeps_its_session() {
    let classes = "[[class]]\nname = \"page\"\nmatch = { path = \"/page*\" }\n";
    let config = one_slot(classes)
        .replace("[proxy]", "max_in_flight = 1\n[proxy]")
        .replace("unit = \"session\"\n", "unit = \"session\"\nclasses = [\"page\"]\n");
    let origin = Origin::start();
    let gate = Gate::start(&origin, &config);
    let who = cookies(&visit(&gate, "/page", "192.0.2.1", ""));
    // A class that does not meet the room begins no session.
    let mut other = connect(gate.http);
    other.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
    std::thread::scope(|scope| {
        let queued = scope.spawn(|| visit(&gate, "/page/2", "192.0.2.1", &who));
        until(|| gate.server().shared().gate.totals().queued.to_string(), |queued| queued == "1");
        let since = now(&gate);
        while now(&gate).since(since).as_millis() < TIMEOUT_MS + 500 {
            assert!(is_refused(&visit(&gate, "/page", STRANGER, "")));
        }
        assert_eq!(under_way(&gate), 1);
        origin.release();
        assert!(is_served(&queued.join().unwrap()));
    });
    assert_eq!(state(&gate)["begun"], 1);
}

/// Requests an endless answer; returns what has come of it.
fn ask_on(gate: &Gate, target: &str, fields: &str) -> (TcpStream, String) {
    let mut stream = connect(gate.http);
    let head = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    (stream, head)
}

/// The `Max-Age` of the pass that an answer sets.
fn pass_is_kept_s(answer: &str) -> Option<u32> {
    let pass = answer.lines().find(|line| line.starts_with("set-cookie: tgp="))?;
    pass.split("; ").find_map(|attribute| attribute.strip_prefix("Max-Age="))?.parse().ok()
}

#[test]
fn a_pass_cookie_lasts_as_long_as_the_session_may() {
    let shop = shop();
    let gate = before(&shop, &one_slot("max_age = \"90s\"\n"));
    let begun = now(&gate);
    let first = visit(&gate, "/", "192.0.2.1", "");
    assert_eq!(pass_is_kept_s(&first), Some(90), "{first}");
    let who = cookies(&first);
    let renewed = until(|| visit(&gate, "/", "192.0.2.1", &who), |answer| answer.contains("tgp="));
    let kept = pass_is_kept_s(&renewed).unwrap();
    assert!(kept <= 90, "{renewed}");
    let lasts = Duration::from_secs(90).saturating_sub(now(&gate).since(begun));
    assert!(Duration::from_secs(kept.into()) >= lasts, "{lasts:?} are left: {renewed}");
}

#[test]
fn an_endless_answer_keeps_its_session_until_the_visitor_leaves() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &one_slot(""));
    let (mut stream, head) = ask_on(&gate, "/drip", "");
    let who = cookies(&head);
    assert_eq!(pass_is_kept_s(&head), Some(3_600), "for as long as the session may last: {head}");
    stream.read_exact(&mut [0; 6]).unwrap();
    is_kept(&gate);
    // The visitor's other requests are of the same session, although its pass has long expired.
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)));
    assert_eq!(under_way(&gate), 1);
    let over = now(&gate);
    drop(stream);
    is_free_a_timeout_after(&gate, over);
}

#[test]
fn a_tunnel_keeps_its_session_until_it_is_closed() {
    const SWITCH: &str = "Connection: upgrade\r\nUpgrade: echo\r\n";
    for key in ["pass", "ip", "connection"] {
        let origin = Origin::start();
        let gate = Gate::start(&origin, &one_slot(&format!("key = \"{key}\"\n")));
        let (mut tunnel, head) = ask_on(&gate, "/tunnel", SWITCH);
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let mut echo = || {
            tunnel.write_all(b"word").unwrap();
            let mut back = [0; 4];
            tunnel.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"word");
        };
        echo();
        assert_eq!(under_way(&gate), 1, "{key}");
        is_kept(&gate);
        echo();
        let over = now(&gate);
        drop(tunnel);
        if key != "connection" {
            is_free_a_timeout_after(&gate, over);
            continue;
        }
        until(|| visit(&gate, "/", STRANGER, ""), is_served);
        let ended = &state(&gate)["ended"];
        assert!(
            ended["left"].as_u64() > Some(0) && ended["idle"] == 0,
            "it ends with its connection: {ended}"
        );
    }
}

#[test]
fn the_operator_ends_a_session_with_requests_under_way() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &one_slot("key = \"ip\"\n"));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| visit(&gate, "/hold", "192.0.2.1", ""));
        origin.holds();
        assert!(change(&gate, "DELETE", "/v1/sessions").ends_with("{\"ended\":1}\n"));
        assert!(is_served(&visit(&gate, "/", STRANGER, "")), "its slot is free at once");
        origin.release();
        assert!(is_served(&slow.join().unwrap()), "the request under way is answered");
    });
    // The end of the old request does not touch the session that has the slot now.
    assert_eq!((open(&gate), state(&gate)["begun"].as_u64()), (1, Some(2)));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", "")));
}

#[test]
fn requests_under_way_follow_a_session_that_the_application_renames() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let shop = Scripted::start(move |head, n, stream| {
        let fields = if head.starts_with("GET /login") || !head.contains("JSESSIONID=") {
            format!("Set-Cookie: JSESSIONID=id{n}\r\n")
        } else {
            String::new()
        };
        if head.starts_with("GET /slow") {
            held.wait();
        }
        reply(stream, "200 OK", &fields, "served");
    });
    let gate = before(&shop, &one_slot("key = \"cookie\"\ncookie = \"JSESSIONID\"\n"));
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    let renamed = std::thread::scope(|scope| {
        let slow = scope.spawn(|| visit(&gate, "/slow", "192.0.2.1", &who));
        until(|| under_way(&gate).to_string(), |n| n == "1");
        let login = visit(&gate, "/login", "192.0.2.1", &who);
        is_kept(&gate);
        assert_eq!(under_way(&gate), 1);
        latch.open();
        assert!(is_served(&slow.join().unwrap()));
        with(&who, &login)
    });
    until(|| under_way(&gate).to_string(), |n| n == "0");
    let answer = visit(&gate, "/", "192.0.2.1", &renamed);
    assert!(is_served(&answer) || state(&gate)["ended"]["idle"] == 1, "{answer}");
    until(|| visit(&gate, "/", STRANGER, ""), is_served);
}

#[test]
fn a_shared_answer_keeps_its_session_too() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let origin = Scripted::start(move |head, _, stream| {
        if !head.starts_with("GET /shared") {
            return reply(stream, "200 OK", "", "served");
        }
        let head = b"HTTP/1.1 200 OK\r\nCache-Control: public\r\nContent-Length: 6\r\n\r\n";
        stream.write_all(head).unwrap();
        held.wait();
        stream.write_all(b"served").unwrap();
    });
    let gate = before(&origin, &one_slot("key = \"ip\"\n"));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", "")));
    let mut multicast = order(
        Policy::Multicast { period: Duration::from_secs(3_600), ignores_cookies: None },
        Action::Answer { status: 503 },
    );
    multicast.scope.urls = Some(Paths::compile(["/shared"]).unwrap());
    publish(&gate, vec![multicast]);
    let (mut stream, head) = ask_on(&gate, "/shared", "X-Forwarded-For: 192.0.2.1\r\n");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    is_kept(&gate);
    latch.open();
    stream.read_exact(&mut [0; 6]).unwrap();
    drop(stream);
    until(|| visit(&gate, "/", STRANGER, ""), is_served);
}
