//! `Expect: 100-continue` is passed to the origin, and only the origin answers it.

use super::harness::{Config, Gate};
use super::http::{Client, read_head};
use super::origin::Origin;

const ASK: &str =
    "POST /upload HTTP/1.1\r\nHost: shop.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[test]
fn an_accepted_body_is_asked_for_and_arrives() {
    let origin = Origin::start(|exchange| {
        if exchange.head.field("expect").is_some() {
            exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (body, _) = exchange.body()?;
        exchange.ok(&format!("got {}", String::from_utf8_lossy(&body)))
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    for _ in 0..2 {
        client.send(ASK).unwrap();
        assert_eq!(read_head(&mut client.stream).unwrap().status(), 100);
        client.send("hello").unwrap();
        let answer = client.answer("POST").unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (200, "got hello"));
    }
}

#[test]
fn a_body_sent_without_waiting_arrives_too() {
    let origin = Origin::start(|exchange| {
        let (body, _) = exchange.body()?;
        exchange.ok(&format!("got {}", String::from_utf8_lossy(&body)))
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send(format!("{ASK}hello")).unwrap();
    let answer = client.answer("POST").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "got hello"));
}

#[test]
fn a_body_the_origin_refuses_is_never_asked_for() {
    let origin = Origin::start(|exchange| {
        exchange.send(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big",
        )?;
        Err(std::io::ErrorKind::ConnectionAborted.into())
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send(ASK).unwrap();
    let answer = client.answer("POST").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"));
    assert!(answer.interim.is_empty(), "no 100 before a refusal: {:?}", answer.interim);
}

#[test]
fn a_visitor_who_must_wait_is_not_asked_for_a_body() {
    let origin = Origin::answering("never");
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.01));
    // Somebody else takes the first turn.
    let _ = Client::connect(gate.http()).unwrap().get("/", "").unwrap();
    let mut client = Client::connect(gate.http()).unwrap();
    client.send(ASK).unwrap();
    let answer = client.answer("POST").unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.interim.is_empty(), "no 100 before a refusal: {:?}", answer.interim);
}
