//! Visitors who leave: the service's future is dropped, with and without pipelined bytes.

use tidegate_gateway::http::http1::Http1Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{LIMITS, run, settle, start, statuses};

const WAIT: &str = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_service_of_a_visitor_who_left_is_dropped() {
    for pipelined in ["", "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /2 HT"] {
        run(async {
            let (server, mut visitor) = start(LIMITS, 1 << 16);
            visitor.write_all(format!("{WAIT}{pipelined}").as_bytes()).await.unwrap();
            server.world.arrived.notified().await;
            settle().await;
            assert!(!server.handle.is_gone());
            drop(visitor);
            server.world.dropped.notified().await;
            assert!(server.handle.is_gone());
            assert!(server.task.await.unwrap().is_err());
            assert_eq!(*server.world.events.lock().unwrap(), [Http1Event::Request, Http1Event::Gone]);
            assert_eq!(server.world.seen.lock().unwrap().len(), 0);
        });
    }
}

#[test]
fn half_closed_visitors_get_responses_that_are_ready_at_once() {
    for (bytes, expected) in [
        ("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", vec![200]),
        ("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", vec![200, 200]),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", vec![400]),
    ] {
        run(async {
            let (_server, mut visitor) = start(LIMITS, 1 << 16);
            visitor.write_all(bytes.as_bytes()).await.unwrap();
            visitor.shutdown().await.unwrap();
            let mut raw = String::new();
            visitor.read_to_string(&mut raw).await.unwrap();
            assert_eq!(statuses(&raw), expected, "{bytes:?}");
        });
    }
}

#[test]
fn leaving_within_a_head_is_only_counted() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor.write_all(b"GET / HT").await.unwrap();
        drop(visitor);
        let _ = server.task.await.unwrap();
        assert_eq!(*server.world.events.lock().unwrap(), [Http1Event::Truncated]);
    });
}

#[test]
fn leaving_within_a_body_is_an_error_to_the_service_but_no_verdict() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").await.unwrap();
        visitor.shutdown().await.unwrap();
        let _ = server.task.await.unwrap();
        let seen = server.world.seen.lock().unwrap().clone();
        assert!(seen.is_empty() || seen[0].starts_with("! other"), "{seen:?}");
        assert_eq!(*server.world.events.lock().unwrap(), [Http1Event::Request, Http1Event::Gone]);
    });
}

#[test]
fn the_next_pipelined_request_is_seen_only_after_the_response() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor.write_all(format!("{WAIT}GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        server.world.arrived.notified().await;
        settle().await;
        assert_eq!(*server.world.events.lock().unwrap(), [Http1Event::Request]);
        server.world.go.notify_one();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200, 200]);
        assert_eq!(*server.world.seen.lock().unwrap(), ["GET /wait 0", "GET /2 0"]);
    });
}
