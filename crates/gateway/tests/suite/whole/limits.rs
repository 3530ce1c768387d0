//! Limits on a whole request: each counted once, as what it is.

use std::io::{Read, Write};

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, connect, get};

const SHORT: &str = r#"
[origin]
replicas = ["ORIGIN"]
[limits]
request_timeout = "200ms"
"#;

#[test]
fn an_origin_that_takes_too_long_is_not_a_visitor_who_left() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHORT);
    let answer = get(gate.http, "/hold", "");
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert_eq!((gate.count(Event::RequestTimeout), gate.count(Event::ClientGone)), (1, 0));
    origin.release();
}

#[test]
fn the_answer_s_body_is_part_of_the_request() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHORT);
    let mut visitor = connect(gate.http);
    visitor.write_all(b"GET /drip HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    // Broken off, not ended: how the socket says so is the system's business.
    let mut answer = Vec::new();
    let _ = visitor.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"0\r\n\r\n"));
    assert_eq!((gate.count(Event::RequestTimeout), gate.count(Event::ClientGone)), (1, 0));
}
