//! Large answers, which the kernel moves from the origin's socket to the visitor's.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Scripted, connect, read_head};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]
"#;

const LENGTH: usize = 8 << 20;

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LENGTH).map(|at| (at % 251) as u8).collect());

/// `/half` breaks off after half of its content.
fn origin() -> Scripted {
    Scripted::start(|head, _, stream| {
        let head_of_answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        let _ = stream.write_all(head_of_answer.as_bytes());
        if head.contains("/half") {
            let _ = stream.write_all(&CONTENT[..LENGTH / 2]);
            let _ = stream.shutdown(Shutdown::Both);
        } else {
            let _ = stream.write_all(&CONTENT);
        }
    })
}

fn ask(visitor: &mut TcpStream, target: &str) -> String {
    write!(visitor, "GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    read_head(visitor).expect("an answer")
}

#[test]
fn a_large_answer_comes_unchanged_and_connections_are_kept() {
    let origin = origin();
    let gate = Gate::before(origin.address, SHOP, |_| Vec::new());
    let mut visitor = connect(gate.http);
    for _ in 0..3 {
        let head = ask(&mut visitor, "/large");
        assert!(head.to_ascii_lowercase().contains(&format!("content-length: {LENGTH}\r\n")), "{head}");
        let mut body = vec![0; LENGTH];
        visitor.read_exact(&mut body).unwrap();
        assert!(body == *CONTENT);
    }
    let served = |gate: &Gate| gate.count(Event::ClientGone) + gate.count(Event::OriginReset);
    assert_eq!((origin.came(), served(&gate)), (3, 0));
}

#[test]
fn an_answer_that_breaks_off_breaks_off_for_the_visitor_and_is_the_origins_fault() {
    let origin = origin();
    let gate = Gate::before(origin.address, SHOP, |_| Vec::new());
    let mut visitor = connect(gate.http);
    ask(&mut visitor, "/half");
    let mut body = Vec::new();
    let _ = visitor.read_to_end(&mut body);
    assert!(body.len() <= LENGTH / 2 && CONTENT.starts_with(&body));
    assert_eq!((gate.count(Event::OriginReset), gate.count(Event::ClientGone)), (1, 0));

    // A visitor that leaves is not the origin's fault.
    let mut visitor = connect(gate.http);
    ask(&mut visitor, "/large");
    drop(visitor);
    while gate.count(Event::ClientGone) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(gate.count(Event::OriginReset), 1);
}
