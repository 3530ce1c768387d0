//! What must be passed on at once: WebSocket, server-sent events, trailers, early hints.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Mutex, mpsc};

use super::harness::{Config, DEADLINE, Gate};
use super::http::{Client, read_head};
use super::origin::{Exchange, Origin};

/// RFC 6455 section 1.3: its example key and the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Accepts a WebSocket, says `first` at once, then sends back every byte until the end.
fn echo(exchange: &mut Exchange) -> std::io::Result<()> {
    let upgrades = exchange.head.field("upgrade").is_some_and(|v| v.eq_ignore_ascii_case("websocket"));
    let key = exchange.head.field("sec-websocket-key") == Some(KEY);
    if !(upgrades && key) {
        exchange.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(());
    }
    // The first frame comes with the handshake, in one packet: nothing may be lost between the two.
    exchange.send(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\nfirst"
    ))?;
    let mut buffer = [0; 4096];
    loop {
        let n = exchange.stream.read(&mut buffer)?;
        if n == 0 {
            exchange.send("last")?;
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        exchange.send(&buffer[..n])?;
    }
}

#[test]
fn a_websocket_echoes() {
    let origin = Origin::start(echo);
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client
        .send(format!(
            "GET /chat HTTP/1.1\r\nHost: shop.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\nearly"
        ))
        .unwrap();
    let head = read_head(&mut client.stream).unwrap();
    assert_eq!(head.status(), 101);
    assert_eq!(head.field("sec-websocket-accept"), Some(ACCEPT));
    let expect = |client: &mut Client, what: &[u8]| {
        let mut got = vec![0; what.len()];
        client.stream.read_exact(&mut got).unwrap();
        assert_eq!(got, what);
    };
    expect(&mut client, b"first");
    expect(&mut client, b"early");
    for size in [1, 125, 126, 65_535, 300_000] {
        let frame: Vec<u8> = (0..size).map(|i| (i * 7 + size) as u8).collect();
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let copy = frame.clone();
        let sending = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        expect(&mut client, &frame);
        sending.join().unwrap();
    }
    // A tunnel closed in one direction still carries the other.
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    expect(&mut client, b"last");
    assert!(client.is_at_end());
}

#[test]
fn a_refused_upgrade_is_passed_on_as_an_answer() {
    let origin = Origin::start(echo);
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    let fields = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: wrong\r\n";
    assert_eq!(client.get("/chat", fields).unwrap().status(), 400);
}

#[test]
fn server_sent_events_are_passed_on_one_by_one() {
    // The origin sends the next event only when the visitor has seen the one before: a gate that holds events
    // back stops the conversation for good.
    let (seen, may_send) = mpsc::channel::<()>();
    let may_send = Mutex::new(may_send);
    let origin = Origin::start(move |exchange| {
        exchange.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        for i in 0..10 {
            let event = format!("data: {i}\n\n");
            exchange.send(format!("{:x}\r\n{event}\r\n", event.len()))?;
            let next = may_send.lock().expect("one visitor").recv_timeout(DEADLINE);
            next.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?;
        }
        exchange.send("0\r\n\r\n")
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("GET /events HTTP/1.1\r\nHost: shop.example\r\nAccept: text/event-stream\r\n\r\n").unwrap();
    let head = read_head(&mut client.stream).unwrap();
    let mut events = String::new();
    client
        .body(&head, "GET", &mut |part| {
            events.push_str(std::str::from_utf8(part).unwrap());
            seen.send(()).unwrap();
        })
        .unwrap();
    let expected: String = (0..10).map(|i| format!("data: {i}\n\n")).collect();
    assert_eq!(events, expected);
}

#[test]
fn trailers_pass_both_ways() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let origin = Origin::start(move |exchange| {
        tell.lock().expect("one visitor").send(exchange.body()?).expect("the test listens");
        exchange.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Answer-Sum\r\n\r\n\
             6\r\nanswer\r\n0\r\nX-Answer-Sum: 42\r\n\r\n",
        )
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client
        .send(
            "POST /sum HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\
             Trailer: X-Question-Sum\r\n\r\n8\r\nquestion\r\n0\r\nX-Question-Sum: 17\r\n\r\n",
        )
        .unwrap();
    let answer = client.answer("POST").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "answer"));
    assert_eq!(answer.trailers, [("x-answer-sum".into(), "42".into())]);
    let (body, trailers) = told.recv_timeout(DEADLINE).unwrap();
    assert_eq!(body, b"question");
    assert_eq!(trailers, [("x-question-sum".into(), "17".into())]);

    // RFC 9110 section 6.5.1: fields that frame or route a message must not be trailers.
    client
        .send(
            "POST /sum HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             8\r\nquestion\r\n0\r\nX-Question-Sum: 17\r\nHost: evil.example\r\n\r\n",
        )
        .unwrap();
    assert_eq!(client.answer("POST").unwrap().status(), 400);
}

#[test]
fn early_hints_are_sent_to_http_1_1_only() {
    let origin = Origin::start(|exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")?;
        exchange.ok("page")
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    let answer = client.get("/", "").unwrap();
    let interim: Vec<u16> = answer.interim.iter().map(|head| head.status()).collect();
    assert_eq!((interim, answer.status(), answer.text().as_str()), (vec![103], 200, "page"));
    assert_eq!(answer.interim[0].field("link"), Some("</style.css>; rel=preload"));

    // RFC 9110 section 15.2: never to HTTP/1.0.
    let mut old = Client::connect(gate.http()).unwrap();
    old.send("GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n").unwrap();
    let answer = old.answer("GET").unwrap();
    assert_eq!((answer.interim.len(), answer.status(), answer.text().as_str()), (0, 200, "page"));
}
