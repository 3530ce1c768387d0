//! Limits on a whole request; each violation is counted once, under its own name.

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
fn a_late_origin_is_not_counted_as_a_visitor_that_left() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHORT);
    let answer = get(gate.http, "/hold", "");
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert_eq!((gate.count(Event::RequestTimeout), gate.count(Event::ClientGone)), (1, 0));
    origin.release();
}

#[test]
fn the_time_limit_covers_the_body_of_the_answer() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHORT);
    let mut visitor = connect(gate.http);
    visitor.write_all(b"GET /drip HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    // Cut off, not ended; how the socket reports it depends on the system.
    let mut answer = Vec::new();
    let _ = visitor.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"0\r\n\r\n"));
    assert_eq!((gate.count(Event::RequestTimeout), gate.count(Event::ClientGone)), (1, 0));
}
