//! What requests allocate, and what an idle connection keeps.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tidegate_gateway::base::clock::coarse_unix_s;
use tidegate_gateway::http::http1::{Http1, Http1Body};
use tidegate_http::{RequestHead, ResponseHead, name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{LIMITS, Pipe, run, settle};
use crate::heap::{allocations, taken};

const GET: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0\r\n\
    Accept: */*\r\nCookie: a=1; b=2\r\n\r\n";
static PAGE: [u8; 10_000] = [b'p'; 10_000];

/// Serves answers of this size on the far end of a pipe.
fn serve(size: usize) -> tokio::io::DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (connection, _link) = Http1::new(Pipe(near), LIMITS, |_| {});
    let service = move |_: RequestHead, _: Http1Body| async move {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.fields.append(name::CONTENT_TYPE, b"text/html");
        (head, Full::new(Bytes::from_static(&PAGE[..size])))
    };
    tokio::task::spawn_local(async move { connection.serve(service).await.map(drop) });
    far
}

/// Sends the requests at once, and reads their answers.
async fn ask(visitor: &mut tokio::io::DuplexStream, requests: &[u8], answers: usize) {
    visitor.write_all(requests).await.unwrap();
    let mut left = answers;
    let mut into = [0; 4096];
    while left > 0 {
        left -= visitor.read(&mut into).await.unwrap();
    }
}

#[test]
fn keep_alive_gets_allocate_nothing() {
    for size in [500, 10_000] {
        run(async {
            let mut visitor = serve(size);
            // The length of one answer: all have the same, their dates too.
            visitor.write_all(GET).await.unwrap();
            settle().await;
            let mut into = vec![0; 1 << 16];
            let answer = visitor.read(&mut into).await.unwrap();
            assert!(answer > size);
            for _ in 0..10 {
                ask(&mut visitor, GET, answer).await;
            }
            let before = allocations();
            for _ in 0..1000 {
                ask(&mut visitor, GET, answer).await;
            }
            // Until the date of the answers has changed.
            let second = coarse_unix_s();
            while coarse_unix_s() < second + 2 {
                ask(&mut visitor, GET, answer).await;
            }
            assert_eq!(allocations() - before, 0, "in 1000 requests and more, of {size} bytes");
        });
    }
}

#[test]
fn an_idle_connection_keeps_less_than_two_kilobytes() {
    const CONNECTIONS: usize = 200;
    run(async {
        let ask = async |visitors: &mut Vec<tokio::io::DuplexStream>, n| {
            for _ in 0..n {
                let mut visitor = serve(10_000);
                visitor.write_all(GET).await.unwrap();
                settle().await;
                let mut answer = vec![0; 1 << 16];
                assert!(visitor.read(&mut answer).await.unwrap() > 10_000);
                settle().await;
                visitors.push(visitor);
            }
        };
        let mut visitors = Vec::new();
        // The thread's own buffers are there.
        ask(&mut visitors, 10).await;
        let pipes = {
            let before = taken();
            let mut pipe = tokio::io::duplex(1 << 16);
            pipe.0.write_all(GET).await.unwrap();
            pipe.1.write_all(&PAGE).await.unwrap();
            taken() - before
        };
        visitors.reserve(CONNECTIONS);
        let before = taken();
        ask(&mut visitors, CONNECTIONS).await;
        let each = (taken() - before) / CONNECTIONS;
        // A pipe's own buffers grow to what was in them.
        assert!(each < pipes + 2048, "{each} bytes a connection, {pipes} of them its pipe's");
    });
}
