//! One connection to the origin: what is read from it, when it is used again, and when it is not.

use super::upstream_support;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::Body;
use http_body_util::BodyExt;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::body::RequestBody;
use tidegate_gateway::upstream::dispatch::{BodyError, Dispatcher, SpliceError, UpstreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use upstream_support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// A whole response that nobody has asked for.
const UNASKED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";

/// Long enough for this thread to have seen what has arrived at its sockets.
async fn look_around() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

#[test]
fn bytes_that_nobody_has_asked_for_are_never_a_response() {
    // With the answer, within its body's packet or as the connection idles.
    for (answer, is_late) in [
        (OK, false),
        (OK, true),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
    ] {
        worker(async move {
            let told = Rc::new(Cell::new(false));
            let tell = told.clone();
            let origin = Origin::start(move |_, mut stream| {
                let tell = tell.clone();
                async move {
                    while read_head(&mut stream).await.is_some() {
                        if is_late {
                            stream.write_all(answer).await.unwrap();
                            until(|| tell.get()).await;
                            drop(stream.write_all(UNASKED).await);
                            tell.set(false);
                        } else {
                            stream.write_all(&[answer, UNASKED].concat()).await.unwrap();
                        }
                    }
                }
            })
            .await;
            let d = dispatcher(&[origin.address]);
            for n in 1..=5 {
                // No method is spared, although nothing is wrong with the connection but what it has read.
                assert_eq!(fetch(&d, post("x")).await.unwrap(), (200, "ok".into()), "{n}");
                assert_eq!(d.idle_connections(), usize::from(is_late));
                if is_late {
                    told.set(true);
                    until(|| !told.get()).await;
                    look_around().await;
                }
            }
            assert_eq!(origin.accepted.get(), 5);
            assert_eq!(d.stats().reused.load(Relaxed), 0);
        });
    }
}

#[test]
fn an_idle_connection_that_the_origin_closes_is_not_used() {
    for with_reset in [false, true] {
        worker(async move {
            let origin = Origin::start(move |_, mut stream| async move {
                read_head(&mut stream).await;
                stream.write_all(OK).await.unwrap();
                if with_reset {
                    reset(stream);
                }
            })
            .await;
            let d = dispatcher(&[origin.address]);
            for _ in 0..5 {
                assert_eq!(fetch(&d, post("x")).await.unwrap(), (200, "ok".into()));
                look_around().await;
            }
            let stats = d.stats();
            assert_eq!((stats.reused.load(Relaxed), stats.stale_connection.load(Relaxed)), (0, 0));
        });
    }
}

/// Response, and what comes of it: status, body, trailers, whether the connection is used again.
type Case = (&'static [u8], u16, &'static str, &'static [(&'static str, &'static str)], bool);

#[rustfmt::skip]
const CASES: &[Case] = &[
    (b"HTTP/1.1 200 Fine\r\ncontent-length: 5\r\nx-a: b\r\n\r\nhello", 200, "hello", &[], true),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, "", &[], true),
    (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na", 200, "a", &[], true),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n", 200, "abc0123456789", &[], true),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\nx-sum: 2\r\nhost: x\r\n\r\n", 200, "ab", &[("x-sum", "2")], true),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 200, "", &[], true),
    (b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, "to the end", &[], false),
    (b"HTTP/1.0 404 No\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nno", 404, "no", &[], true),
];

#[test]
fn a_response_may_be_cut_anywhere() {
    for &(response, status, text, trailers, kept) in CASES {
        let name = String::from_utf8_lossy(response);
        worker(async move {
            let at = Rc::new(Cell::new(1));
            let cut = at.clone();
            let origin = Origin::start(move |_, mut stream| {
                let cut = cut.clone();
                async move {
                    stream.set_nodelay(true).unwrap();
                    while read_head(&mut stream).await.is_some() {
                        let (a, b) = response.split_at(cut.get());
                        stream.write_all(a).await.unwrap();
                        look_around().await;
                        stream.write_all(b).await.unwrap();
                        if !kept {
                            return;
                        }
                    }
                }
            })
            .await;
            let d = dispatcher(&[origin.address]);
            for cut in 1..response.len() {
                at.set(cut);
                let response = send(&d, get()).await.unwrap();
                assert_eq!(response.status().as_u16(), status, "{cut}: {name}");
                let collected = response.into_body().collect().await.unwrap();
                let sent: Vec<_> = collected.trailers().into_iter().flatten().collect();
                let expected: Vec<_> = trailers.iter().collect();
                assert_eq!(format!("{sent:?}"), format!("{expected:?}"), "{cut}: {name}");
                assert_eq!(collected.to_bytes(), text, "{cut}: {name}");
            }
            assert_eq!(origin.accepted.get(), if kept { 1 } else { response.len() - 1 }, "{name}");
        });
    }
}

#[test]
fn a_response_that_came_whole_frees_its_connection_before_it_is_read() {
    worker(async {
        for response in [
            OK,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\nx-sum: 2\r\n\r\n",
        ] {
            let origin = Origin::answering(response).await;
            let settings = settings_for(&[origin.address]);
            let replicas = Replicas::new(&settings);
            let d = Dispatcher::new(replicas.clone(), &settings);
            let held = send(&d, get()).await.unwrap().into_body();
            assert_eq!((d.idle_connections(), replicas.list()[0].in_flight()), (1, 0));
            assert_eq!(held.replica().unwrap().authority(), origin.address.to_string());
            assert!(!held.is_end_stream());
            // Another uses the connection meanwhile.
            assert_eq!(fetch(&d, get()).await.unwrap(), (200, "ok".into()));
            assert_eq!(held.collect().await.unwrap().to_bytes(), "ok");
            assert_eq!(origin.accepted.get(), 1);
        }
    });
}

#[test]
fn the_origin_decides_whether_a_connection_is_kept() {
    // response, kept
    let cases: &[(&'static [u8], bool)] = &[
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", false),
        (b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok", false),
        (b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", true),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false),
        (b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok", true),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive, close\r\ncontent-length: 2\r\n\r\nok", false),
    ];
    for &(response, kept) in cases {
        worker(async move {
            let origin = Origin::answering(response).await;
            let d = dispatcher(&[origin.address]);
            for _ in 0..3 {
                assert_eq!(fetch(&d, get()).await.unwrap(), (200, "ok".into()));
            }
            let name = String::from_utf8_lossy(response);
            assert_eq!(origin.accepted.get(), if kept { 1 } else { 3 }, "{name}");
        });
    }
}

#[test]
fn one_connection_serves_bodies_of_all_kinds_in_turn() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            for n in 0.. {
                let Some(head) = read_head(&mut stream).await else { return };
                let body = "x".repeat(n * 977 % 40_000);
                let (framing, body) = match (n % 4, head.starts_with("head ")) {
                    (_, true) | (0, _) => (format!("content-length: {}", body.len()), body),
                    (1, _) => (
                        "transfer-encoding: chunked".into(),
                        format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
                    ),
                    (2, _) => {
                        let chunks: Vec<_> = body
                            .as_bytes()
                            .chunks(7)
                            .map(|c| format!("{:x}\r\n{}\r\n", c.len(), std::str::from_utf8(c).unwrap()))
                            .collect();
                        ("transfer-encoding: chunked".into(), chunks.concat() + "0\r\nx: y\r\n\r\n")
                    }
                    _ => ("content-length: 0".into(), String::new()),
                };
                let answer =
                    format!("HTTP/1.1 200 OK\r\nx-length: {}\r\n{framing}\r\n\r\n", n * 977 % 40_000);
                stream.write_all(answer.as_bytes()).await.unwrap();
                if !head.starts_with("head ") {
                    stream.write_all(body.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        for n in 0..120 {
            let method = if n % 5 == 4 { Method::HEAD } else { Method::GET };
            let response = send(&d, request(method.clone(), RequestBody::empty())).await.unwrap();
            let expected: usize = response.headers()["x-length"].to_str().unwrap().parse().unwrap();
            let expected = if method == Method::HEAD || n % 4 == 3 { 0 } else { expected };
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), expected, "{n}");
            assert!(body.iter().all(|&b| b == b'x'), "{n}");
        }
        assert_eq!(origin.accepted.get(), 1);
    });
}

#[test]
fn an_answer_that_comes_while_a_large_body_is_sent_is_passed_on() {
    const REFUSAL: &[u8] = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
    for with_reset in [false, true] {
        worker(async move {
            let origin = Origin::start(move |_, mut stream| async move {
                read_head(&mut stream).await;
                stream.write_all(REFUSAL).await.unwrap();
                if with_reset {
                    // With bytes unread, the close is a reset.
                    return;
                }
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
                assert!(rest.len() < 64 << 20, "the rest is not sent");
            })
            .await;
            let settings = settings_for(&[origin.address]);
            let replicas = Replicas::new(&settings);
            let d = Dispatcher::new(replicas.clone(), &settings);
            let known = request(Method::PUT, RequestBody::full(vec![b'x'; 64 << 20]));
            assert_eq!(fetch(&d, known).await.unwrap(), (413, "no".into()));
            let (feed, body, _) = fed();
            let feeding = async move {
                let mut sent = 0;
                while feed.send(Ok(http_body::Frame::data(Bytes::from(vec![b'y'; 1 << 20])))).await.is_ok() {
                    sent += 1;
                    assert!(sent < 64, "the visitor is told to stop");
                }
            };
            let (answer, ()) = tokio::join!(fetch(&d, request(Method::POST, body)), feeding);
            assert_eq!(answer.unwrap(), (413, "no".into()));
            assert_eq!((d.idle_connections(), replicas.list()[0].in_flight()), (0, 0));
            assert_eq!(d.stats().reset.load(Relaxed), 0);
        });
    }
}

#[test]
fn a_body_flows_on_while_its_answer_comes() {
    worker(async {
        // It answers each chunk as it comes.
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
            for _ in 0..3 {
                let chunk = read_n(&mut stream, 6).await;
                stream.write_all(&chunk).await.unwrap();
            }
            assert_eq!(read_n(&mut stream, 5).await, b"0\r\n\r\n");
            stream.write_all(b"0\r\n\r\n").await.unwrap();
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        let mut answer = send(&d, request(Method::POST, body)).await.unwrap().into_body();
        for text in ["a", "b", "c"] {
            feed.send(data(text)).await.unwrap();
            assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), text);
        }
        drop(feed);
        assert!(answer.frame().await.is_none());
        assert_eq!(d.idle_connections(), 1, "both have ended in order");
    });
}

#[test]
fn head_and_a_small_body_are_one_packet() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            let mut buffer = vec![0; 1 << 16];
            for _ in 0..3 {
                let n = stream.read(&mut buffer).await.unwrap();
                let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                let is_whole =
                    text.ends_with("\r\n\r\na=1") || text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
                assert!(is_whole, "{text}");
                stream.write_all(OK).await.unwrap();
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        assert_eq!(fetch(&d, post("a=1")).await.unwrap().0, 200);
        let (feed, body, _) = fed();
        feed.send(data("abc")).await.unwrap();
        let feeding = async move { drop(feed) };
        let (answer, ()) =
            tokio::join!(biased; async { fetch(&d, request(Method::PUT, body)).await }, feeding);
        assert_eq!(answer.unwrap().0, 200);
        let known = RequestBody::boxed(http_body_util::Full::new(Bytes::from("a=1")).map_err(|e| match e {}));
        assert_eq!(fetch(&d, request(Method::PUT, known)).await.unwrap().0, 200);
    });
}

#[test]
fn a_body_of_which_all_that_was_sent_is_here_is_sent_again() {
    worker(async {
        // The second request on the first connection is lost after its body has begun.
        let origin = Origin::start(|n, mut stream| async move {
            read_head(&mut stream).await;
            if n == 0 {
                stream.write_all(OK).await.unwrap();
                read_head(&mut stream).await;
                assert_eq!(read_n(&mut stream, 8).await, b"3\r\nabc\r\n");
                return reset(stream);
            }
            assert_eq!(read_n(&mut stream, 21).await, b"3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n");
            stream.write_all(OK).await.unwrap();
        })
        .await;
        let d = dispatcher(&[origin.address]);
        fetch(&d, get()).await.unwrap();
        let (feed, body, _) = fed();
        feed.send(data("abc")).await.unwrap();
        let feeding = async {
            until(|| origin.accepted.get() == 2).await;
            feed.send(data("abc")).await.unwrap();
            drop(feed);
        };
        let (answer, ()) = tokio::join!(fetch(&d, request(Method::PUT, body)), feeding);
        assert_eq!(answer.unwrap(), (200, "ok".into()));

        // What was sent of a large one is gone.
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            read_n(&mut stream, 1 << 20).await;
            reset(stream);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        let feeding = async {
            feed.send(Ok(http_body::Frame::data(Bytes::from(vec![b'x'; 1 << 20])))).await.unwrap();
            feed.closed().await;
        };
        let (answer, ()) = tokio::join!(send(&d, request(Method::PUT, body)), feeding);
        answer.unwrap_err();
        assert_eq!(origin.accepted.get(), 1);
    });
}

#[test]
fn content_before_a_mistake_arrives_and_then_the_mistake() {
    worker(async {
        for (response, error) in [
            (
                &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n"[..],
                "malformed chunk size",
            ),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nokoops", "chunk not ended by CRLF"),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nno field\r\n\r\n",
                "malformed or oversized trailer section",
            ),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
                "it was closed by the origin",
            ),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", "it was closed by the origin"),
        ] {
            let origin = Origin::answering_once(response).await;
            let d = dispatcher(&[origin.address]);
            let mut body = send(&d, get()).await.unwrap().into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
            let fault = body.frame().await.unwrap().unwrap_err();
            let BodyError::Origin(fault) = fault else { panic!("{fault:?}") };
            assert_eq!(fault.to_string(), error);
            assert!(body.frame().await.is_none() && !body.is_end_stream());
            assert_eq!((d.idle_connections(), d.stats().body_reset.load(Relaxed)), (0, 1));
        }
    });
}

#[test]
fn informational_responses_take_no_memory_and_no_time() {
    worker(async {
        // Two hundred, in one packet with the answer.
        let origin = Origin::start(|_, mut stream| async move {
            while read_head(&mut stream).await.is_some() {
                let mut flood = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n".repeat(200);
                flood.extend_from_slice(OK);
                stream.write_all(&flood).await.unwrap();
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        for _ in 0..2 {
            let (ctx, seen) = noting(false);
            let response = send_with(&d, get(), ctx).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
            assert_eq!(seen.borrow().len(), 16);
        }
        assert_eq!(origin.accepted.get(), 1);
    });
}

#[test]
fn a_large_head_is_read_and_a_larger_one_is_refused() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            while let Some(head) = read_head(&mut stream).await {
                let size = if head.contains("/x") { 100 << 10 } else { 200 << 10 };
                let field = format!("x-{}: {}\r\n", "n".repeat(50), "v".repeat(1000));
                let fields = field.repeat(size / field.len());
                let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nok");
                drop(stream.write_all(answer.as_bytes()).await);
            }
        })
        .await;
        let d = dispatcher(&[origin.address]);
        for _ in 0..2 {
            assert_eq!(fetch(&d, get()).await.unwrap(), (200, "ok".into()));
        }
        let mut larger = get();
        *larger.uri_mut() = "/larger".parse().unwrap();
        let error = send(&d, larger).await.unwrap_err().to_string();
        assert_eq!(error, "invalid response: the origin's head is too large");
    });
}

const LARGE: usize = 8 << 20;

/// Content of which every byte says where it stands.
fn content(from: usize, to: usize) -> Vec<u8> {
    (from..to).map(|at| (at % 251) as u8).collect()
}

/// An origin of one large body; `sent` bytes of it are sent.
async fn large_origin(sent: usize) -> Origin {
    Origin::start(move |_, mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            drop(stream.write_all(head.as_bytes()).await);
            if stream.write_all(&content(0, sent)).await.is_err() || sent < LARGE {
                return;
            }
        }
    })
    .await
}

/// The gate's end of a visitor's connection, and the visitor's.
async fn visitor() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let visitor = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, visitor)
}

/// Sends a body as a connection would: by splice where that is possible.
async fn pass_on(body: &mut UpstreamBody, to: &mut TcpStream) -> (u64, Result<(), SpliceError>) {
    let mut spliced = 0;
    while !body.is_end_stream() {
        if body.can_splice() {
            match poll_fn(|cx| body.poll_splice(cx, to)).await {
                Ok(n) => spliced += n,
                Err(error) => return (spliced, Err(error)),
            }
            continue;
        }
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => {
                if let Err(error) = to.write_all(&frame.into_data().unwrap()).await {
                    return (spliced, Err(SpliceError::Visitor(error)));
                }
            }
            Some(Err(error)) => return (spliced, Err(SpliceError::Origin(error))),
        }
    }
    (spliced, Ok(()))
}

#[test]
fn a_large_body_is_moved_within_the_kernel_and_its_connection_is_used_again() {
    worker(async {
        let origin = large_origin(LARGE).await;
        let d = dispatcher(&[origin.address]);
        for _ in 0..3 {
            let (mut ours, mut theirs) = visitor().await;
            let mut body = send(&d, get()).await.unwrap().into_body();
            let mut got = vec![0; LARGE];
            let (passed, read) = tokio::join!(pass_on(&mut body, &mut ours), theirs.read_exact(&mut got));
            let (spliced, result) = passed;
            result.unwrap();
            read.unwrap();
            assert!(got == content(0, LARGE));
            assert!(spliced > LARGE as u64 / 2, "{spliced}");
            assert_eq!(body.size_hint().exact(), Some(0));
            assert_eq!(d.idle_connections(), 1);
        }
        assert_eq!(origin.accepted.get(), 1);
    });
}

#[test]
fn what_a_splice_has_taken_can_still_be_had_as_frames() {
    worker(async {
        let origin = large_origin(LARGE).await;
        let d = dispatcher(&[origin.address]);
        let (mut ours, mut theirs) = visitor().await;
        let mut body = send(&d, get()).await.unwrap().into_body();
        // What came with the head.
        while !body.can_splice() {
            let frame = body.frame().await.unwrap().unwrap();
            ours.write_all(&frame.into_data().unwrap()).await.unwrap();
        }
        // The visitor does not read: its socket fills, and the rest waits in the pipe.
        socket2::SockRef::from(&ours).set_send_buffer_size(64 << 10).unwrap();
        poll_fn(|cx| {
            loop {
                match body.poll_splice(cx, &ours) {
                    Poll::Ready(moved) => assert!(moved.unwrap() > 0),
                    Poll::Pending if body.waits_for_visitor() => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        let frames = async move {
            while let Some(frame) = body.frame().await {
                ours.write_all(&frame.unwrap().into_data().unwrap()).await.unwrap();
            }
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(frames, theirs.read_to_end(&mut got));
        read.unwrap();
        assert!(got == content(0, LARGE));
        assert_eq!(d.idle_connections(), 1);
    });
}

#[test]
fn a_splice_tells_whose_fault_its_end_is() {
    worker(async {
        let origin = large_origin(LARGE / 2).await;
        let d = dispatcher(&[origin.address]);
        let (mut ours, mut theirs) = visitor().await;
        let mut body = send(&d, get()).await.unwrap().into_body();
        let mut got = vec![0; LARGE / 2];
        let (passed, read) = tokio::join!(pass_on(&mut body, &mut ours), theirs.read_exact(&mut got));
        read.unwrap();
        assert!(got == content(0, LARGE / 2), "what came is passed on");
        let Err(SpliceError::Origin(BodyError::Origin(fault))) = passed.1 else { panic!("{passed:?}") };
        assert_eq!(fault.to_string(), "it was closed by the origin");
        assert!(!body.is_end_stream() && !body.can_splice());
        assert_eq!((d.idle_connections(), d.stats().body_reset.load(Relaxed)), (0, 1));

        let origin = large_origin(LARGE).await;
        let limits = Duration::from_millis(30);
        let d = with(tidegate_settings::Origin { read_timeout: limits, ..settings_for(&[origin.address]) });
        let (mut ours, theirs) = visitor().await;
        reset(theirs);
        let mut body = send(&d, get()).await.unwrap().into_body();
        let gone = pass_on(&mut body, &mut ours).await.1;
        assert!(matches!(gone, Err(SpliceError::Visitor(_))), "{gone:?}");
        drop(body);
        assert_eq!((d.idle_connections(), d.stats().body_reset.load(Relaxed)), (0, 0));

        // Half of it, and then silence.
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            stream.write_all(&[head.into_bytes(), content(0, LARGE / 2)].concat()).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        let d = with(tidegate_settings::Origin { read_timeout: limits, ..settings_for(&[origin.address]) });
        let (mut ours, mut theirs) = visitor().await;
        let mut body = send(&d, get()).await.unwrap().into_body();
        let passing = async move { pass_on(&mut body, &mut ours).await.1 };
        let mut got = Vec::new();
        let (silent, read) = tokio::join!(passing, theirs.read_to_end(&mut got));
        read.unwrap();
        assert!(content(0, LARGE / 2).starts_with(&got));
        assert!(matches!(silent, Err(SpliceError::Origin(BodyError::Timeout))), "{silent:?}");
    });
}
