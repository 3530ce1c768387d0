//! Tunnels and the shutdown.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use crate::whole::harness::{Gate, Origin, connect, read_head, until};

const SWITCH: &[u8] =
    b"GET /tunnel HTTP/1.1\r\nHost: shop.example\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
const PLAIN: &str = r#"
[origin]
replicas = ["ORIGIN"]
"#;

#[test]
fn a_drain_waits_for_a_tunnel() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let mut visitor = connect(gate.http);
    visitor.write_all(SWITCH).unwrap();
    assert!(read_head(&mut visitor).unwrap().starts_with("HTTP/1.1 101"));
    let mut echo = |word: &[u8; 4]| {
        let mut back = [0; 4];
        visitor.write_all(word).unwrap();
        visitor.read_exact(&mut back).unwrap();
        assert_eq!(back, *word);
    };
    echo(b"one.");
    assert_eq!(gate.server().shared().connections.load(Ordering::Relaxed), 1);
    gate.server().control().drain();
    until(|| std::net::TcpStream::connect(gate.http).is_err().to_string(), |refused| refused == "true");
    for _ in 0..100 {
        echo(b"two.");
        std::thread::yield_now();
    }
    drop(visitor);
}

#[test]
fn a_tunnel_can_be_opened_while_draining() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let mut visitor = connect(gate.http);
    visitor.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    read_head(&mut visitor).unwrap();
    visitor.read_exact(&mut [0; 6]).unwrap();
    gate.server().control().drain();
    visitor.write_all(SWITCH).unwrap();
    let head = read_head(&mut visitor).unwrap().to_ascii_lowercase();
    assert!(head.contains("connection: upgrade\r\n") && !head.contains("close"), "{head}");
}
