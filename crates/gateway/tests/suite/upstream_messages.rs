//! Messages between gate and origin: framing, 1xx, trailers, streaming.

use super::upstream_support;

use std::cell::Cell;
use std::rc::Rc;

use http::{HeaderMap, HeaderValue, Method};
use http_body::Frame;
use http_body_util::BodyExt;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::body::RequestBody;
use tidegate_gateway::upstream::dispatch::{DispatchError, Dispatcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream_support::*;

#[test]
fn invalid_responses_are_not_passed_on() {
    let cases: &[(&str, &[u8])] = &[
        ("not HTTP", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ("bad version", b"HTTP/3.7 200 OK\r\n\r\n"),
        ("status too short", b"HTTP/1.1 20 OK\r\n\r\n"),
        ("status no number", b"HTTP/1.1 abc OK\r\n\r\n"),
        ("status out of range", b"HTTP/1.1 700 No\r\ncontent-length: 0\r\n\r\n"),
        ("status 0xx", b"HTTP/1.1 099 No\r\ncontent-length: 0\r\n\r\n"),
        ("control byte in reason", b"HTTP/1.1 200 O\x01K\r\ncontent-length: 0\r\n\r\n"),
        ("NUL in a value", b"HTTP/1.1 200 OK\r\na: b\0c\r\ncontent-length: 0\r\n\r\n"),
        ("space before colon", b"HTTP/1.1 200 OK\r\na : b\r\ncontent-length: 0\r\n\r\n"),
        ("different lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        ("repeated length", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nab"),
        ("list of lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab"),
        ("signed length", b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nab"),
        ("huge length", b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\nab"),
        ("coding not offered", b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("unknown last coding", b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nab"),
        ("chunked twice", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        (
            "chunked twice in two",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("chunked in 1.0", b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("unasked upgrade", b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
    ];
    for &(name, response) in cases {
        worker(async move {
            let origin = Origin::answering_once(response).await;
            let settings = settings_for(&[origin.address]);
            let replicas = Replicas::new(&settings);
            let d = Dispatcher::new(replicas.clone(), &settings);
            let e = send(&d, get()).await.expect_err(name);
            assert!(matches!(e, DispatchError::BadResponse(_)), "{name}: {e:?}");
            assert_eq!(origin.accepted.get(), 1, "{name}: not asked again");
            assert_eq!(replicas.list()[0].in_flight(), 0, "{name}");
            assert_eq!(d.idle_connections(), 0, "{name}");
        });
    }
}

#[test]
fn unusual_valid_responses_are_passed_on() {
    // method, response, status, body, connection kept
    let cases: &[(Method, &'static [u8], u16, &str, bool)] = &[
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
            200,
            "whole",
            false,
        ),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n",
            200,
            "ok",
            true,
        ),
        (Method::GET, b"HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
        (Method::GET, b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", 204, "", true),
        // It has no content, but an origin that announces some may send it, late.
        (Method::GET, b"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n", 204, "", false),
        (Method::GET, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", 304, "", true),
        (Method::GET, b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n", 304, "", true),
        (Method::HEAD, b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", 200, "", true),
        (Method::HEAD, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 200, "", true),
        (Method::GET, b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, "", true),
        (Method::GET, b"HTTP/1.1 599 Whatever\r\ncontent-length: 0\r\n\r\n", 599, "", true),
        (Method::GET, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end", 200, "to the end", false),
        (Method::GET, b"HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end", false),
        (
            Method::GET,
            b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
            200,
            "ok",
            true,
        ),
        (Method::GET, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, "ok", true),
    ];
    for (method, response, status, text, kept) in cases.iter().cloned() {
        worker(async move {
            let name = String::from_utf8_lossy(response);
            // The origin closes only where the close ends the body; in the other cases the gateway must not
            // reuse it.
            let delimited = response.windows(7).any(|w| w == b"chunked");
            let origin = Origin::start(move |_, mut stream| async move {
                while read_head(&mut stream).await.is_some() {
                    stream.write_all(response).await.unwrap();
                    if !kept && !delimited {
                        return;
                    }
                }
            })
            .await;
            let d = dispatcher(&[origin.address]);
            for _ in 0..3 {
                let response = send(&d, request(method.clone(), RequestBody::empty())).await.expect(&name);
                assert_eq!(response.status().as_u16(), status, "{name}");
                let headers = response.headers().clone();
                let body = response.into_body().collect().await.expect(&name).to_bytes();
                assert_eq!(body, text, "{name}");
                assert!(!headers.contains_key("transfer-encoding"), "{name}");
                let length = headers.get("content-length").map(|v| v.to_str().unwrap().to_owned());
                let bodiless = method == Method::HEAD || status == 304;
                assert!(bodiless || length.is_none_or(|l| l == text.len().to_string()), "{name}");
            }
            assert_eq!(origin.accepted.get(), if kept { 1 } else { 3 }, "{name}");
        });
    }
}

#[test]
fn the_framing_fields_of_a_request_fit_its_body() {
    let text = "content-length";
    // method, the head's own claim, body, expected in the head
    type Case = (Method, Option<(&'static str, &'static str)>, &'static str, Option<&'static str>);
    let cases: &[Case] = &[
        (Method::GET, None, "", None),
        (Method::POST, None, "", Some("content-length: 0")),
        (Method::GET, Some((text, "5")), "", Some("content-length: 0")),
        (Method::POST, Some((text, "5")), "abc", Some("content-length: 3")),
        (Method::POST, Some(("transfer-encoding", "chunked")), "abc", Some("content-length: 3")),
        (Method::POST, Some((text, "5")), "stream", Some("transfer-encoding: chunked")),
        (Method::GET, Some((text, "5")), "stream", Some("transfer-encoding: chunked")),
    ];
    for &(ref method, claim, body, expected) in cases {
        let method = method.clone();
        worker(async move {
            let origin = Origin::start(|_, mut stream| async move {
                let head = read_head(&mut stream).await.unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}", head.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                drop(stream.read_to_end(&mut Vec::new()).await);
            })
            .await;
            let d = dispatcher(&[origin.address]);
            let (feed, stream, _) = fed();
            let body = if body == "stream" { stream } else { RequestBody::full(body) };
            let mut req = request(method.clone(), body);
            if let Some((name, value)) = claim {
                req.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            let feeding = async move { drop(feed.send(data("abc")).await) };
            let (answer, ()) = tokio::join!(fetch(&d, req), feeding);
            let head = answer.unwrap().1;
            let framing: Vec<_> =
                head.lines().filter(|l| l.starts_with(text) || l.starts_with("transfer")).collect();
            assert_eq!(framing, expected.into_iter().collect::<Vec<_>>(), "{method} {claim:?}: {head}");
        });
    }
}

#[test]
fn early_hints_are_relayed_in_order() {
    worker(async {
        let origin = Origin::answering(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n\
              HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        )
        .await;
        let d = dispatcher(&[origin.address]);
        for _ in 0..2 {
            let (ctx, seen) = noting(false);
            let response = send_with(&d, get(), ctx).await.unwrap();
            let statuses: Vec<_> = seen.borrow().iter().map(|(s, _)| *s).collect();
            assert_eq!(statuses, [103, 102], "100 is for those who asked");
            assert_eq!(seen.borrow()[0].1["link"], "</a.css>");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
        }
        assert_eq!(origin.accepted.get(), 1);
    });
}

#[test]
fn a_flood_of_informational_responses_ends() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            let one = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n".repeat(1000);
            while stream.write_all(&one).await.is_ok() {}
        })
        .await;
        let limits = tidegate_settings::Origin {
            first_byte_timeout: std::time::Duration::from_millis(50),
            ..settings_for(&[origin.address])
        };
        let (ctx, seen) = noting(false);
        let e = send_with(&with(limits), get(), ctx).await.unwrap_err();
        assert!(matches!(e, DispatchError::FirstByteTimeout), "{e:?}");
        assert!((1..=16).contains(&seen.borrow().len()));
    });
}

#[test]
fn trailers_pass_both_ways_without_forbidden_fields() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            let expected = b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n";
            let sent = read_n(&mut stream, expected.len()).await;
            assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(expected));
            let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                2\r\nok\r\n0\r\nx-sum: 2\r\nset-cookie: a=b\r\ncontent-length: 9\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        let mut req = request(Method::POST, body);
        req.headers_mut().insert("trailer", HeaderValue::from_static("x-sum, authorization"));
        let feeding = async move {
            feed.send(data("abc")).await.unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("1"));
            trailers.insert("authorization", HeaderValue::from_static("Basic eA=="));
            feed.send(Ok(Frame::trailers(trailers))).await.unwrap();
        };
        let (response, ()) = tokio::join!(send(&d, req), feeding);
        let body = response.unwrap().into_body().collect().await.unwrap();
        let trailers = body.trailers().unwrap();
        assert_eq!(trailers.len(), 1, "{trailers:?}");
        assert_eq!(trailers["x-sum"], "2");
        assert_eq!(d.idle_connections(), 1);
    });
}

#[test]
fn bodies_stream_with_back_pressure() {
    worker(async {
        const WHOLE: usize = 256 << 20;
        let written = Rc::new(Cell::new(0));
        let count = written.clone();
        let origin = Origin::start(move |_, mut stream| {
            let count = count.clone();
            async move {
                read_head(&mut stream).await;
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {WHOLE}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let chunk = vec![0; 1 << 20];
                while count.get() < WHOLE {
                    stream.write_all(&chunk).await.unwrap();
                    count.set(count.get() + chunk.len());
                }
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let mut body = send(&d, get()).await.unwrap().into_body();
        let mut read = 0usize;
        // At any time, the origin is ahead by no more than the sockets' buffers.
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len();
            tokio::task::yield_now().await;
            assert!(written.get() < read + (32 << 20), "{} ahead at {read}", written.get() - read);
        }
        assert_eq!(read, WHOLE);
    });
}

#[test]
fn an_early_response_ends_the_upload() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        feed.send(data("abc")).await.unwrap();
        let answer = fetch(&d, request(Method::POST, body)).await.unwrap();
        assert_eq!(answer, (413, "no".into()));
        // The visitor's body is dropped, which its sender learns.
        feed.closed().await;
        assert_eq!(d.idle_connections(), 0);
    });
}
