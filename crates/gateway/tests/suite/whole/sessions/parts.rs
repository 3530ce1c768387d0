//! Parts of pages (style sheets, images, fetches): they are served with their page's session, and begin none.

use super::{ONE_SLOT, before, change, is_refused, is_served, open, shop, visit, with};
use crate::whole::harness::{Gate, ask, cookies};

/// A browser's GET for a part of its page.
fn part(gate: &Gate, address: &str, cookies: &str) -> String {
    let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\nSec-Fetch-Dest: empty\r\n");
    let request = format!("GET /part HTTP/1.1\r\n{fields}Cookie: {cookies}\r\nConnection: close\r\n\r\n");
    ask(gate.http, &request)
}

#[test]
fn the_pass_of_an_ended_session_is_not_valid_for_parts_of_a_page() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    assert!(is_served(&part(&gate, "192.0.2.1", &who)));
    assert!(is_refused(&part(&gate, "192.0.2.2", "a=b")), "no slot is free");
    assert!(change(&gate, "DELETE", "/v1/sessions").ends_with("{\"ended\":1}\n"));
    let other = cookies(&visit(&gate, "/", "192.0.2.2", ""));
    let after = part(&gate, "192.0.2.1", &who);
    assert!(is_refused(&after), "its session has ended: {after}");
    assert!(is_served(&part(&gate, "192.0.2.2", &other)));
}

#[test]
fn the_page_that_ends_a_session_gets_its_parts_without_a_new_session() {
    for (key, is_first) in [
        ("key = \"pass\"", false),
        ("key = \"pass\"", true),
        ("key = \"cookie\"\ncookie = \"JSESSIONID\"", false),
    ] {
        let shop = shop();
        let gate = before(&shop, &format!("{ONE_SLOT}{key}\n"));
        let who = if is_first { String::new() } else { cookies(&visit(&gate, "/", "192.0.2.1", "")) };
        let last = visit(&gate, "/logout", "192.0.2.1", &who);
        let page = last.lines().find(|line| line.starts_with("set-cookie: tgp=")).unwrap();
        assert!(is_served(&last) && page.contains("; Max-Age=120;"), "{key}: {last}");
        let ended = with(&who, &last);
        assert!(is_served(&visit(&gate, "/", "192.0.2.2", "")), "{key}: the slot is free at once");
        for _ in 0..2 {
            let part = part(&gate, "192.0.2.1", &ended);
            assert!(is_served(&part) && !part.contains("set-cookie: tg"), "{key}: {part}");
            assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &ended)), "{key}: it begins no session");
        }
        assert_eq!(open(&gate), 1);
    }
}
