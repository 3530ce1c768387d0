//! The keys that identify sessions.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{ONE_SLOT, before, change, is_refused, is_served, open, shop, state, visit, with};
use crate::whole::harness::{Gate, connect, cookies, read_head, until};

#[test]
fn an_admitted_session_is_served_and_a_newcomer_refused_with_any_kind_of_key() {
    // kind, the first visitor's address, its later address, another visitor's address
    for (key, here, there, other) in [
        ("key = \"pass\"", "192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("key = \"cookie\"\ncookie = \"JSESSIONID\"", "192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("key = \"ip\"", "192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("key = \"ip\"", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"),
        ("key = \"ip-prefix\"", "192.0.2.1", "192.0.2.2", "192.0.3.1"),
        ("key = \"ip-prefix\"", "2001:db8::1", "2001:db8:0:ff::1", "2001:db8:0:100::1"),
    ] {
        let shop = shop();
        let gate = before(&shop, &format!("{ONE_SLOT}{key}\n"));
        let first = visit(&gate, "/", here, "");
        assert!(is_served(&first), "{key}: {first}");
        let who = cookies(&first);
        assert_eq!(who.contains("tgp="), key.contains("pass"), "{key}: {who}");
        for turn in 0..3 {
            let refused = visit(&gate, "/", other, "");
            assert!(is_refused(&refused), "{key} {turn}: {refused}");
            let again = visit(&gate, "/again", there, &who);
            assert!(is_served(&again), "{key} {turn}: {again}");
        }
        assert_eq!((open(&gate), state(&gate)["refused"].as_u64()), (1, Some(3)), "{key}");
    }
}

/// One request on a connection that stays open.
fn on(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    let head = read_head(stream).unwrap();
    let length =
        head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

#[test]
fn a_connection_is_a_session_and_ends_it() {
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}key = \"connection\"\n"));
    let mut first = connect(gate.http);
    assert!(is_served(&on(&mut first)));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", "")));
    assert!(is_served(&on(&mut first)));
    drop(first);
    until(|| visit(&gate, "/", "192.0.2.1", ""), is_served);
    until(|| state(&gate)["ended"]["left"].to_string(), |left| left == "2");
}

fn by_cookie() -> (crate::whole::harness::Scripted, Gate) {
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}key = \"cookie\"\ncookie = \"JSESSIONID\"\n"));
    (shop, gate)
}

#[test]
fn unknown_cookies_are_new_and_do_not_fill_the_table() {
    let (_shop, gate) = by_cookie();
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    for guess in 0..50 {
        let answer = visit(&gate, "/", "192.0.2.66", &format!("JSESSIONID=new{guess}x"));
        assert!(is_refused(&answer), "{answer}");
        // Nor does an answer to another visitor end the session.
        assert!(is_refused(&visit(&gate, "/logout", "192.0.2.66", &format!("JSESSIONID=g{guess}"))));
    }
    let state = state(&gate);
    assert_eq!((state["open"].as_u64(), state["entries"].as_u64()), (Some(1), Some(1)), "{state}");
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)));
    let shown = gate.admin("/v1/sessions").to_string();
    assert!(!shown.contains(who.split('=').nth(1).unwrap()), "a cookie is shown: {shown}");
}

#[test]
fn a_session_follows_the_cookie_that_the_application_sets() {
    let (_shop, gate) = by_cookie();
    let first = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    let login = visit(&gate, "/login", "192.0.2.1", &first);
    let renewed = with(&first, &login);
    assert!(renewed != first && is_served(&login), "{login}");
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &renewed)));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &first)), "the value before the login is void");
    let state = state(&gate);
    assert_eq!((state["open"].as_u64(), state["begun"].as_u64()), (Some(1), Some(1)), "{state}");
}

#[test]
fn a_removed_cookie_is_no_session_key() {
    let (_shop, gate) = by_cookie();
    assert!(is_served(&visit(&gate, "/leave", "192.0.2.1", "")));
    assert_eq!(open(&gate), 0, "its cookie was removed at once");
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    assert!(is_served(&visit(&gate, "/leave", "192.0.2.1", &who)));
    let anyone = visit(&gate, "/", "192.0.2.66", "JSESSIONID=deleted");
    assert!(is_refused(&anyone), "the value of removed cookies was accepted: {anyone}");
    assert_eq!((open(&gate), state(&gate)["begun"].as_u64()), (1, Some(2)));
}

#[test]
fn a_visitor_without_the_applications_cookie_holds_no_slot() {
    let (_shop, gate) = by_cookie();
    for _ in 0..3 {
        assert!(is_served(&visit(&gate, "/anonymous", "192.0.2.1", "")));
        assert_eq!(open(&gate), 0);
    }
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", "")));
    assert_eq!(open(&gate), 1);
}

#[test]
fn the_cookie_of_an_ended_session_begins_another_if_a_slot_is_free() {
    let (_shop, gate) = by_cookie();
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    assert!(change(&gate, "DELETE", "/v1/sessions").starts_with("HTTP/1.1 200"));
    let other = cookies(&visit(&gate, "/", "192.0.2.2", ""));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &who)));
    assert!(is_served(&visit(&gate, "/logout", "192.0.2.2", &other)));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", &other)));
}
