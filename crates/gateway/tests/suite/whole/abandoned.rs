//! Visitors who leave while the origin works for them.

use std::io::Write;

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, connect, get, until};

/// One request at a time.
const ONE: &str = r#"
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[capacity]
estimator = "fixed"
rate = 1000
"#;

/// A visitor asks for what the origin holds, and leaves.
fn asks_and_leaves(gate: &Gate, origin: &Origin) {
    let mut visitor = connect(gate.http);
    visitor.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
}

#[test]
fn the_slot_of_a_visitor_who_left_is_kept_until_the_origin_has_answered() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE);
    asks_and_leaves(&gate, &origin);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| get(gate.http, "/", ""));
        until(|| gate.server().shared().gate.totals().queued.to_string(), |queued| queued == "1");
        assert_eq!(gate.count(Event::ClientGone), 0, "the origin works on it");
        origin.release();
        assert!(next.join().unwrap().starts_with("HTTP/1.1 200"));
    });
    until(|| gate.count(Event::ClientGone).to_string(), |count| count == "1");
}

#[test]
fn a_request_may_be_broken_off_with_its_visitor() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &ONE.replace("max_in_flight", "abort_on_close = true\nmax_in_flight"));
    asks_and_leaves(&gate, &origin);
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 200"), "while the origin holds the first");
    assert_eq!(gate.count(Event::ClientGone), 1);
    origin.release();
}
