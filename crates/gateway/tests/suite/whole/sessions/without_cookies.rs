//! Clients that keep no cookies, and clients that say nothing of what they fetch: old browsers, plain HTTP.

use super::{ONE_SLOT, before, is_refused, is_served, open, shop, visit};
use crate::whole::harness::{Gate, ask, cookies};

/// A GET of a client without cookies, with these header fields.
fn get(gate: &Gate, target: &str, address: &str, fields: &str) -> String {
    let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\n{fields}");
    ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"))
}

const FROM_HERE: &str = "Referer: http://shop.example/page\r\nUser-Agent: old\r\n";

#[test]
fn a_client_without_cookies_keeps_the_service_for_parts_calls_and_further_pages() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    assert!(is_served(&get(&gate, "/", "192.0.2.1", "User-Agent: old\r\n")));
    for (target, fields) in [
        ("/style.css", FROM_HERE),
        ("/next", FROM_HERE),
        ("/api", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Dest: empty\r\nUser-Agent: old\r\n"),
        // As a WebSocket's handshake.
        ("/socket", "Origin: http://shop.example\r\nUser-Agent: old\r\n"),
    ] {
        let answer = get(&gate, target, "192.0.2.1", fields);
        assert!(is_served(&answer), "{target}: {answer}");
    }
    assert_eq!(open(&gate), 1, "all of it is one session");
    for (who, address, fields) in [
        ("another address", "192.0.2.2", FROM_HERE),
        ("another program", "192.0.2.1", "Referer: http://shop.example/page\r\nUser-Agent: new\r\n"),
        ("from elsewhere", "192.0.2.1", "Referer: http://other.example/\r\nUser-Agent: old\r\n"),
        ("another origin", "192.0.2.1", "Origin: http://other.example\r\nUser-Agent: old\r\n"),
        ("from nowhere", "192.0.2.1", "User-Agent: old\r\n"),
    ] {
        assert!(is_refused(&get(&gate, "/", address, fields)), "{who}");
    }
}

#[test]
fn the_neighbours_of_a_client_that_keeps_cookies_are_newcomers() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    let first = get(&gate, "/", "192.0.2.1", "User-Agent: old\r\n");
    let jar = format!("Cookie: {}\r\n", cookies(&first));
    assert!(is_served(&get(&gate, "/next", "192.0.2.1", &format!("{FROM_HERE}{jar}"))));
    assert!(is_refused(&get(&gate, "/next", "192.0.2.1", FROM_HERE)));
}

#[test]
fn a_visitor_of_before_the_crowd_keeps_the_service_without_fetch_metadata() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    let jar = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.9", "")), "the service is full");
    for target in ["/style.css", "/api?q=1", "/next"] {
        assert!(is_served(&visit(&gate, target, "192.0.2.1", &jar)), "{target}");
    }
}
