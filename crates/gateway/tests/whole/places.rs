//! A place in the room is lost only to whoever got something for it.

use std::io::Write;

use tidegate_core::measure::Event;

use crate::harness::{Gate, Origin, connect, cookies, get, until};

const ONE_AT_A_TIME: &str = r#"
[capacity]
estimator = "fixed"
rate = 2
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[queue]
max_length = 0
[room]
classes = ["page"]
[[class]]
name = "page"
match = { path = "/page*" }
"#;

#[test]
fn a_request_shed_at_the_gate_keeps_its_place() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE_AT_A_TIME);
    let waiting = until(|| get(gate.http, "/page", "a=b"), |answer| answer.contains("set-cookie: tg0="));
    let ticket = cookies(&waiting);
    // The origin's only place is taken when the visitor's turn comes.
    let mut other = connect(gate.http);
    other.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
    until(|| get(gate.http, "/page", &ticket), |answer| answer.contains("queue is full"));
    origin.release();
    until(|| get(gate.http, "/page", &ticket), |answer| answer.ends_with("served"));
    assert_eq!(gate.count(Event::TicketReplayed), 0, "the place was lost");
    get(gate.http, "/page", &ticket);
    assert_eq!(gate.count(Event::TicketReplayed), 1, "a used ticket is good for nothing");
}
