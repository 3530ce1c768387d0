//! What a request costs in heap allocations between dispatcher and origin.

use super::heap::allocations;
use super::upstream_support::*;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use http::{Method, Version};
use http_body_util::BodyExt;
use tidegate_gateway::upstream::body::RequestBody;
use tidegate_gateway::upstream::dispatch::{Dispatcher, SendContext};
use tidegate_http::{RequestHead, name};

/// An origin in a thread of its own, whose allocations do not count. It answers all requests of one
/// connection alike.
fn origin(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut buffer, mut filled) = (vec![0; 1 << 16], 0);
        loop {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) | Err(_) => return,
                Ok(n) => filled += n,
            }
            if buffer[..filled].ends_with(b"\r\n\r\n") {
                stream.write_all(&answer).unwrap();
                filled = 0;
            }
        }
    });
    address
}

fn answer(length: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: x\r\ndate: Tue, 24 Nov 2026 12:00:00 GMT\r\ncontent-type: text/html\r\n\
         content-length: {length}\r\nconnection: keep-alive\r\netag: \"1-2\"\r\naccept-ranges: bytes\r\n\r\n"
    );
    [head.into_bytes(), vec![b'x'; length]].concat()
}

async fn exchange(d: &Dispatcher, head: &RequestHead) -> usize {
    let answer = d.send(head.clone(), RequestBody::empty(), SendContext::default()).await;
    let (_head, mut body) = answer.unwrap();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().into_data().unwrap().len();
    }
    length
}

/// Allocations of `n` requests, after as many to warm up.
fn cost(length: usize, n: usize) -> u64 {
    worker(async {
        let d = dispatcher(&[origin(answer(length))]);
        let mut head = RequestHead::new(Method::GET, "/index.html?a=b", Version::HTTP_11);
        head.fields.append(name::HOST, b"shop.example");
        head.fields.append("accept".into(), b"text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        head.fields.append(name::COOKIE, b"session=0123456789abcdef; lang=en");
        for _ in 0..n {
            assert_eq!(exchange(&d, &head).await, length);
        }
        let before = allocations();
        for _ in 0..n {
            assert_eq!(exchange(&d, &head).await, length);
        }
        allocations() - before
    })
}

#[test]
fn a_get_on_a_kept_connection_allocates_nothing() {
    // What the runtime's own timer does in the meantime is not the requests'.
    for length in [0, 120, 2000] {
        let cost = cost(length, 1000);
        assert!(cost < 20, "{cost} allocations for 1000 requests of {length} bytes");
    }
}

#[test]
fn a_large_body_allocates_for_its_stream_only() {
    let cost = cost(1 << 20, 50);
    assert!(cost <= 2 * 50, "{cost} allocations for 50 bodies of 1 MiB");
}
