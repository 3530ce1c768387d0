//! WebSockets while others wait: the tunnel of an admitted visitor opens, and stays.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::whole::harness::{Gate, Origin, connect, cookies, get, read_head, until};

/// One visitor per second, one request at a time.
const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[capacity]
rate = 1
[room]
unit = "UNIT"
"#;

fn gate(origin: &Origin, unit: &str) -> Gate {
    Gate::start(origin, &SHOP.replace("UNIT", unit))
}

/// A visitor's request for a tunnel: the connection, and the head of the answer.
fn upgrade(gate: &Gate, cookies: &str) -> (TcpStream, String) {
    let mut stream = connect(gate.http);
    let fields = format!("Host: shop.example\r\nCookie: {cookies}\r\n");
    let upgrade = "Connection: upgrade\r\nUpgrade: echo\r\n";
    stream.write_all(format!("GET /tunnel HTTP/1.1\r\n{fields}{upgrade}\r\n").as_bytes()).unwrap();
    let head = read_head(&mut stream).expect("an answer");
    (stream, head)
}

fn opens(head: &str) -> bool {
    head.starts_with("HTTP/1.1 101")
}

fn carries(tunnel: &mut TcpStream, words: &str) {
    tunnel.write_all(words.as_bytes()).unwrap();
    let mut back = vec![0; words.len()];
    tunnel.read_exact(&mut back).unwrap();
    assert_eq!(back, words.as_bytes());
}

fn is_served(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200")
}

/// The ticket of the first newcomer who has to wait: where nobody else has waited for a second, others before
/// are served.
fn newcomer(gate: &Gate) -> String {
    cookies(&until(|| get(gate.http, "/", ""), |answer| answer.contains("urn:tidegate:problem:waiting")))
}

/// The first visitors, until one has to wait: what the first of them has in its cookie jar.
fn crowd(gate: &Gate) -> String {
    let first = get(gate.http, "/", "");
    assert!(is_served(&first), "{first}");
    newcomer(gate);
    cookies(&first)
}

#[test]
fn the_tunnel_of_an_open_session_opens_and_stays_while_newcomers_wait() {
    let origin = Origin::start();
    let gate = gate(&origin, "session");
    let who = crowd(&gate);
    let (mut tunnel, head) = upgrade(&gate, &who);
    assert!(opens(&head), "{head}");
    carries(&mut tunnel, "one");
    let waiting: Vec<String> = (0..10).map(|_| newcomer(&gate)).collect();
    carries(&mut tunnel, "two");
    let (_, refused) = upgrade(&gate, "");
    assert!(refused.starts_with("HTTP/1.1 503"), "a newcomer has no tunnel: {refused}");
    // The tunnel does not hold the only in-flight slot, neither for its visitor nor for the next.
    assert!(is_served(&get(gate.http, "/", &who)));
    until(|| get(gate.http, "/", &waiting[0]), is_served);
    carries(&mut tunnel, "three");
    // It lost its connection and opens another, while nine wait.
    drop(tunnel);
    newcomer(&gate);
    let (mut again, head) = upgrade(&gate, &who);
    assert!(opens(&head), "{head}");
    carries(&mut again, "four");
}

#[test]
fn a_tunnel_that_has_waited_for_its_turn_opens_and_stays_while_newcomers_wait() {
    for unit in ["session", "request"] {
        let origin = Origin::start();
        let gate = gate(&origin, unit);
        crowd(&gate);
        let ticket = newcomer(&gate);
        let waiting: Vec<String> = (0..10).map(|_| newcomer(&gate)).collect();
        let mut tunnel = None;
        until(
            || {
                let (stream, head) = upgrade(&gate, &ticket);
                tunnel = Some(stream);
                head
            },
            opens,
        );
        let mut tunnel = tunnel.expect("it is open");
        carries(&mut tunnel, "one");
        newcomer(&gate);
        carries(&mut tunnel, "two");
        until(|| get(gate.http, "/", &waiting[0]), is_served);
        carries(&mut tunnel, "three");
    }
}
