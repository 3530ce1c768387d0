//! `Expect: 100-continue`: the visitor's body waits for the origin's 100.

use super::upstream_support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use http::Method;
use http_body_util::BodyExt;
use tidegate_gateway::upstream::dispatch::SendContext;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream_support::*;

#[test]
fn a_met_expectation_lets_the_body_flow() {
    worker(async {
        let looked = Rc::new(Cell::new(false));
        let gate = looked.clone();
        let origin = Origin::start(move |_, mut stream| {
            let gate = gate.clone();
            async move {
                let head = read_head(&mut stream).await.unwrap();
                assert!(head.contains("\r\nexpect: 100-continue\r\n"));
                until(|| gate.get()).await;
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
                assert_eq!(read_n(&mut stream, 13).await, b"3\r\nabc\r\n0\r\n\r\n");
                stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, polled) = fed();
        let (ctx, seen) = noting(true);
        let feeding = async {
            feed.send(data("abc")).await.unwrap();
            until(|| origin.accepted.get() == 1).await;
            assert!(!polled.get(), "not before the origin says so");
            looked.set(true);
            drop(feed);
        };
        let (response, ()) = tokio::join!(send_with(&d, request(Method::POST, body), ctx), feeding);
        assert_eq!(response.unwrap().status(), 201);
        assert_eq!(seen.borrow()[0].0, 100);
    });
}

#[test]
fn a_refused_expectation_leaves_the_body_unread() {
    worker(async {
        let closed = Rc::new(Cell::new(false));
        let seen = closed.clone();
        let origin = Origin::start(move |_, mut stream| {
            let seen = seen.clone();
            async move {
                read_head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 417 No\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                assert!(rest.is_empty());
                seen.set(true);
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (_feed, body, polled) = fed();
        let (ctx, _) = noting(true);
        let response = send_with(&d, request(Method::PUT, body), ctx).await.unwrap();
        assert_eq!(response.status(), 417);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
        assert!(!polled.get());
        until(|| closed.get()).await;
        assert_eq!(d.idle_connections(), 0, "a connection that is owed a body is not reused");
    });
}

#[test]
fn an_ignored_expectation_delays_the_body_for_a_second() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            assert_eq!(read_n(&mut stream, 3).await, b"abc");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let ctx = SendContext { expect_continue: true, ..SendContext::default() };
        let response = send_with(&d, post("abc"), ctx).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    });
}

#[test]
fn a_put_whose_body_has_not_begun_is_repeated() {
    worker(async {
        let origin = Origin::start(|n, mut stream| async move {
            read_head(&mut stream).await;
            if n == 0 {
                return reset(stream);
            }
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            assert_eq!(read_n(&mut stream, 3).await, b"3\r\n");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        let ctx = SendContext { expect_continue: true, ..SendContext::default() };
        let feeding = async { drop(feed.send(data("abc")).await) };
        let (response, ()) = tokio::join!(send_with(&d, request(Method::PUT, body), ctx), feeding);
        assert_eq!(response.unwrap().status(), 200);
        assert_eq!(d.stats().retries.load(Relaxed), 1);
    });
}
