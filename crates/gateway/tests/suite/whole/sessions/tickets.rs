//! A ticket names the session that begins with it: its visitor is in before the pass has arrived, in another
//! tab and after a reload.

use std::io::Write;

use tidegate_core::measure::Event;

use super::{ONE_SLOT, before, is_served, open, shop, visit, with};
use crate::whole::harness::{Gate, Origin, Scripted, ask, connect, cookies, get, until};

const ONE_A_SECOND: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
estimator = "fixed"
rate = 1
[room]
unit = "session"
"#;

fn one_slot_and_a_room() -> String {
    ONE_SLOT.replace("\"refuse\"", "\"room\"")
}

/// A visitor who waits while another one has the only slot, and gets that slot. Returns the answer that tells
/// it to wait; its turn has come.
fn whose_turn_has_come(gate: &Gate, shop: &Scripted, came: impl Fn() -> String) -> String {
    let first = cookies(&visit(gate, "/", "198.51.100.1", "a=b"));
    let waiting = came();
    assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
    assert!(is_served(&visit(gate, "/logout", "198.51.100.1", &first)));
    assert_eq!(shop.came(), 2);
    waiting
}

#[test]
fn a_second_tab_is_in_with_the_ticket_that_the_first_one_used() {
    let shop = shop();
    let gate = before(&shop, &one_slot_and_a_room());
    let waiting = whose_turn_has_come(&gate, &shop, || visit(&gate, "/", "192.0.2.2", "a=b"));
    let jar = with("a=b", &waiting);
    let first = until(|| visit(&gate, "/", "192.0.2.2", &jar), is_served);
    // The second tab has sent its request before the first one's answer was there.
    let second = visit(&gate, "/other", "192.0.2.2", &jar);
    assert!(is_served(&second), "{second}");
    assert_eq!((open(&gate), gate.count(Event::TicketReplayed)), (1, 0));
    for answer in [&first, &second] {
        assert!(answer.contains("tgp=") && answer.contains("tg0=;"), "{answer}");
        assert!(is_served(&visit(&gate, "/next", "192.0.2.2", &with(&jar, answer))));
    }
    assert_eq!(open(&gate), 1, "both answers tell of the same session");
    // The ticket is worth no more than the session.
    assert!(is_served(&visit(&gate, "/logout", "192.0.2.2", &with(&jar, &first))));
    let used = visit(&gate, "/", "192.0.2.2", &jar);
    assert!(used.starts_with("HTTP/1.1 409"), "{used}");
}

#[test]
fn a_reload_while_the_first_page_is_slow_keeps_the_session() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE_A_SECOND);
    let waiting = until(|| get(gate.http, "/", "a=b"), |answer| answer.contains("set-cookie: tg0="));
    let jar = with("a=b", &waiting);
    until(|| get(gate.http, "/.tidegate/status?c=0", &jar), |status| status.contains("\"state\":\"ready\""));
    let before = open(&gate);
    let mut slow = connect(gate.http);
    let head = format!("GET /hold HTTP/1.1\r\nHost: shop.example\r\nCookie: {jar}\r\n\r\n");
    slow.write_all(head.as_bytes()).unwrap();
    origin.holds();
    drop(slow);
    let reloaded = get(gate.http, "/", &jar);
    assert!(is_served(&reloaded) && reloaded.contains("tgp="), "{reloaded}");
    assert_eq!((open(&gate), gate.count(Event::TicketReplayed)), (before + 1, 0));
    origin.release();
}

#[test]
fn a_used_ticket_in_a_url_is_good_for_its_visitor_alone() {
    let shop = shop();
    let gate = before(&shop, &one_slot_and_a_room());
    let come = |target: &str, address: &str, program: &str| {
        let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\nUser-Agent: {program}\r\n");
        ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"))
    };
    let waiting = whose_turn_has_come(&gate, &shop, || come("/", "192.0.2.2", "old"));
    let (_, ticket) = waiting.split_once("\"ticket\":\"").expect("a ticket in the body");
    let target = format!("/?tg={}", ticket.split('"').next().unwrap());
    until(|| come(&target, "192.0.2.2", "old"), is_served);
    let again = come(&target, "192.0.2.2", "old");
    assert!(is_served(&again), "a reload: {again}");
    for (address, program) in [("192.0.2.3", "old"), ("192.0.2.2", "new")] {
        let neighbour = come(&target, address, program);
        assert!(neighbour.starts_with("HTTP/1.1 409"), "{address} {program}: {neighbour}");
    }
    assert_eq!(open(&gate), 1);
}
