//! Interim responses, `Expect: 100-continue`, upgrades.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::Empty;
use tidegate_gateway::http::http1::{Http1, Http1Body};
use tidegate_http::{RequestHead, ResponseHead, name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{LIMITS, Pipe, converse, run, settle, start, statuses};

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
        let (connection, link) = Http1::new(Pipe(near), LIMITS, |_| {});
        let service = move |_: RequestHead, _: Http1Body| {
            let upgrade = link.take_upgrade().expect("an offer");
            assert!(link.take_upgrade().is_none(), "once a request");
            link.pass_through();
            tokio::task::spawn_local(async move {
                let mut stream = upgrade.await.expect("the visitor has not left");
                let mut heard = stream.received.to_vec();
                while heard.len() < 11 {
                    stream.io.read_buf(&mut heard).await.unwrap();
                }
                stream.io.write_all(&heard).await.unwrap();
                stream.io.shutdown().await.unwrap();
            });
            let mut head = ResponseHead::new(StatusCode::SWITCHING_PROTOCOLS);
            head.fields.append(name::UPGRADE, b"raw");
            head.fields.append(name::CONNECTION, b"upgrade");
            async move { (head, Empty::<Bytes>::new()) }
        };
        let served = tokio::task::spawn_local(connection.serve(service));
        visitor
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nearly\n\0")
            .await
            .unwrap();
        settle().await;
        visitor.write_all(b"\0late").await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert!(raw.starts_with("HTTP/1.1 101 "), "{raw}");
        assert!(
            raw.contains("\r\nConnection: upgrade\r\n") || raw.contains("\r\nconnection: upgrade\r\n"),
            "{raw}"
        );
        assert!(raw.ends_with("\r\n\r\nearly\n\0\0late"), "{raw:?}");
        served.await.unwrap().unwrap();
    });
}

#[test]
fn an_upgrade_that_is_not_taken_up_ends_without_a_stream() {
    run(async {
        let (near, mut visitor) = tokio::io::duplex(1 << 16);
        let (connection, link) = Http1::new(Pipe(near), LIMITS, |_| {});
        let (tell, told) = tokio::sync::oneshot::channel();
        let tell = std::cell::Cell::new(Some(tell));
        let service = move |_: RequestHead, _: Http1Body| {
            if let (Some(upgrade), Some(tell)) = (link.take_upgrade(), tell.take()) {
                tokio::task::spawn_local(async move { tell.send(upgrade.await.is_none()) });
            }
            async move { (ResponseHead::new(StatusCode::OK), Empty::<Bytes>::new()) }
        };
        tokio::task::spawn_local(connection.serve(service));
        let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n";
        visitor.write_all(upgrade.as_bytes()).await.unwrap();
        assert!(told.await.unwrap());
        // A body before the other protocol: the offer is not passed on.
        let post = upgrade.replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx");
        visitor.write_all(post.as_bytes()).await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200, 200]);
    });
}
