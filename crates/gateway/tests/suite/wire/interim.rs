//! Interim responses, `Expect: 100-continue`, upgrades.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::rt::ReadBuf;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::pin::Pin;
use tidegate_gateway::http::wire::Wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{LIMITS, converse, run, settle, start, statuses};

#[test]
fn early_hints_come_before_the_response() {
    let got = run(converse(&[b"GET /hint HTTP/1.1\r\nHost: a\r\n\r\nGET /hint HTTP/1.1\r\nHost: a\r\n\r\n"]));
    assert_eq!(got.statuses, [103, 200, 103, 200], "{got:?}");
    assert!(
        got.raw.starts_with(
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n"
        )
    );
}

#[test]
fn http_10_gets_no_early_hints() {
    let got = run(converse(&[b"GET /hint HTTP/1.0\r\n\r\n"]));
    assert_eq!(got.statuses, [200], "{got:?}");
    assert_eq!(got.seen[0], "hint false");
}

#[test]
fn hints_from_another_task_wake_the_connection_and_never_follow_the_response() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        server.world.arrived.notified().await;
        settle().await;
        let fields = HeaderMap::new();
        assert!(!server.handle.informational(StatusCode::SWITCHING_PROTOCOLS, &fields));
        assert!(!server.handle.informational(StatusCode::OK, &fields));
        assert!(server.handle.informational(StatusCode::PROCESSING, &fields));
        let mut first = [0; 27];
        visitor.read_exact(&mut first).await.unwrap();
        assert_eq!(&first[..], b"HTTP/1.1 102 Processing\r\n\r\n");
        server.world.go.notify_one();
        settle().await;
        assert!(!server.handle.informational(StatusCode::PROCESSING, &fields));
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200]);
    });
}

#[test]
fn unread_interim_responses_are_bounded() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 64);
        visitor.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        server.world.arrived.notified().await;
        settle().await;
        let sent = (0..10_000)
            .take_while(|_| server.handle.informational(StatusCode::PROCESSING, &HeaderMap::new()));
        assert!(sent.count() < 1000);
    });
}

#[test]
fn the_body_is_asked_for_with_100_continue() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 25];
        visitor.read_exact(&mut first).await.unwrap();
        assert_eq!(&first[..], b"HTTP/1.1 100 Continue\r\n\r\n");
        assert!(server.handle.expect_continue());
        // The service polls the body, the response has not begun: a hint may still be sent.
        assert!(server.handle.informational(StatusCode::PROCESSING, &HeaderMap::new()));
        visitor.write_all(b"hi").await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [102, 200]);
    });
}

#[test]
fn after_an_upgrade_bytes_pass_unchanged() {
    run(async {
        let (near, mut visitor) = tokio::io::duplex(1 << 16);
        let (wire, handle) = Wire::new(near, LIMITS, |_| {});
        let h = handle.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            h.pass_through();
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut tunnel = upgrade.await.unwrap();
                let mut bytes = [0; 64];
                let mut heard = Vec::new();
                while heard.len() < 11 {
                    let mut buf = ReadBuf::new(&mut bytes);
                    std::future::poll_fn(|cx| {
                        hyper::rt::Read::poll_read(Pin::new(&mut tunnel), cx, buf.unfilled())
                    })
                    .await
                    .unwrap();
                    heard.extend_from_slice(buf.filled());
                }
                std::future::poll_fn(|cx| hyper::rt::Write::poll_write(Pin::new(&mut tunnel), cx, &heard))
                    .await
                    .unwrap();
                std::future::poll_fn(|cx| hyper::rt::Write::poll_shutdown(Pin::new(&mut tunnel), cx))
                    .await
                    .unwrap();
            });
            let mut response = Response::new(h.track(Empty::<Bytes>::new()));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("upgrade", "raw".parse().unwrap());
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(wire, service).with_upgrades());
        visitor
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nearly\n\0")
            .await
            .unwrap();
        settle().await;
        visitor.write_all(b"\0late").await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert!(raw.starts_with("HTTP/1.1 101 "), "{raw}");
        assert!(raw.ends_with("\r\n\r\nearly\n\0\0late"), "{raw:?}");
        assert!(handle.bytes_out() as usize >= raw.len());
    });
}
