//! Bodies: large ones in constant memory, responses without one, and connections used again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use super::harness::{Config, Gate, pause};
use super::http::{Client, read_head};
use super::nginx::{BIG, Nginx};
use super::origin::Origin;

/// Allowed growth: more than a gate needs for one stream, far less than the body.
const FLAT: u64 = 16 << 20;
const STEP: u64 = 32 << 20;

/// Checks the gate's memory while a body passes.
struct Flat<'a> {
    gate: &'a Gate,
    idle: u64,
    next: u64,
}

impl<'a> Flat<'a> {
    fn new(gate: &'a Gate) -> Self {
        Self { gate, idle: gate.rss(), next: 0 }
    }

    fn at(&mut self, passed: u64) {
        if passed >= self.next {
            self.next = passed + STEP;
            self.check();
        }
    }

    fn check(&self) {
        let rss = self.gate.rss();
        assert!(rss <= self.idle + FLAT, "memory grew from {} to {rss} bytes", self.idle);
    }
}

#[test]
fn a_download_of_1_gib_passes_in_flat_memory() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let mut flat = Flat::new(&gate);
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("GET /big HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    let head = read_head(&mut client.stream).unwrap();
    assert_eq!((head.status(), head.content_length()), (200, Some(BIG)));
    // The visitor does not read. Without back-pressure the gate would read the whole body now.
    for _ in 0..50 {
        flat.check();
        pause();
    }
    let (mut passed, mut zeros) = (0, true);
    client
        .body(&head, "GET", &mut |part| {
            passed += part.len() as u64;
            zeros &= part.iter().all(|b| *b == 0);
            flat.at(passed);
        })
        .unwrap();
    assert!(passed == BIG && zeros, "{passed} bytes, zeros: {zeros}");
    assert_eq!(client.get("/name", "").unwrap().text(), "a", "the connection is still good");
}

/// A period of the uploaded body. Its length is a prime, so that a lost or repeated block is noticed.
fn pattern() -> Vec<u8> {
    (0..1_048_573u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn is_pattern(file: &mut File, size: u64) -> bool {
    let pattern = pattern();
    let mut block = vec![0; pattern.len()];
    let mut left = size as usize;
    while left > 0 {
        let n = left.min(block.len());
        if file.read_exact(&mut block[..n]).is_err() || block[..n] != pattern[..n] {
            return false;
        }
        left -= n;
    }
    file.read(&mut block).is_ok_and(|n| n == 0)
}

#[test]
fn an_upload_of_1_gib_passes_in_flat_memory() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let mut flat = Flat::new(&gate);
    let mut client = Client::connect(gate.http()).unwrap();
    client
        .send(format!("PUT /upload/big HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {BIG}\r\n\r\n"))
        .unwrap();
    let pattern = pattern();
    let mut sent = 0;
    while sent < BIG {
        let n = (BIG - sent).min(pattern.len() as u64);
        client.send(&pattern[..n as usize]).unwrap();
        sent += n;
        flat.at(sent);
    }
    assert_eq!(client.answer("PUT").unwrap().status(), 201);
    assert!(is_pattern(&mut File::open(nginx.uploaded("big")).unwrap(), BIG), "the body arrived whole");
}

#[test]
fn a_chunked_upload_arrives_whole() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client
        .send("PUT /upload/chunked HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let pattern = pattern();
    let mut size = 0;
    for _ in 0..8 {
        // The chunks of one pattern, of many sizes.
        let mut rest = &pattern[..];
        let mut chunk = 1;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(chunk.min(rest.len()));
            client.send([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()).unwrap();
            (rest, chunk) = (after, chunk * 3);
        }
        size += pattern.len() as u64;
    }
    client.send("0\r\n\r\n").unwrap();
    assert_eq!(client.answer("PUT").unwrap().status(), 201);
    assert!(is_pattern(&mut File::open(nginx.uploaded("chunked")).unwrap(), size), "the body arrived whole");
}

#[test]
fn after_an_answer_without_a_body_the_connection_is_usable() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    let cases = [
        ("HEAD", "/big", 200, Some(BIG)),
        ("HEAD", "/name", 200, Some(1)),
        ("GET", "/empty", 204, None),
        ("HEAD", "/empty", 204, None),
        ("GET", "/unchanged", 304, None),
        ("GET", "/name", 200, Some(1)),
        ("HEAD", "/absent", 404, None),
    ];
    for (method, target, status, length) in cases {
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).unwrap();
        let answer = client.answer(method).unwrap();
        assert_eq!(answer.status(), status, "{method} {target}");
        if length.is_some() {
            assert_eq!(answer.head.content_length(), length, "{method} {target}");
        }
        if matches!(status, 204) {
            assert_eq!(answer.head.content_length(), None, "{method} {target}: RFC 9110 section 8.6");
            assert!(!answer.head.is_chunked(), "{method} {target}");
        }
        // A body sent by mistake would be read as this answer.
        assert_eq!(client.get("/name", "").unwrap().text(), "a", "after {method} {target}");
    }
}

#[test]
fn connections_to_the_origin_are_used_again() {
    let nginx = Nginx::start("a");
    let gate = Gate::start(Config::new(&[nginx.address()]));
    let mut origin_connections = BTreeSet::new();
    for _ in 0..30 {
        let mut client = Client::connect(gate.http()).unwrap();
        for _ in 0..10 {
            origin_connections.insert(client.get("/connection", "").unwrap().text());
        }
    }
    // 300 requests of 30 visitors in sequence need one connection for each of the two workers.
    assert!(origin_connections.len() <= 2, "{origin_connections:?}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start(|exchange| {
        let target = exchange.head.second_word().to_owned();
        exchange.ok(&target)
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    let requests: String =
        (0..20).map(|i| format!("GET /p/{i} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).collect();
    client.send(requests).unwrap();
    for i in 0..20 {
        assert_eq!(client.answer("GET").unwrap().text(), format!("/p/{i}"));
    }
}
