//! How responses are framed: as by hyper's server, which plays the same requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_gateway::http::http1::Http1;
use tidegate_http::{RequestHead, ResponseHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::harness::{LIMITS, Pipe, run, settle, statuses};

/// A body of these pieces, of a length that is known or not.
struct Pieces {
    pieces: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    length: Option<u64>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            // An empty one stands for a pause.
            Some(pause) if pause.is_empty() => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// The answer to a path.
fn answer(path: &str) -> Response<Pieces> {
    let large = "0123456789abcdef".repeat(4096);
    let (status, pieces, length): (u16, &[&str], _) = match path {
        "/empty" => (200, &[], Some(0)),
        "/none" => (204, &[], Some(0)),
        "/same" | "/same-7" => (304, &[], Some(0)),
        "/stream" => (200, &["one ", "", "two ", "three"], None),
        "/large" => (200, &[&large, "", &large, "end"], None),
        "/long" => (200, &[&large, &large], Some(2 * large.len() as u64)),
        "/trailers" => (200, &["body", ""], None),
        "/close" => (200, &["bye"], Some(3)),
        "/whole" => (200, &[&large], Some(large.len() as u64)),
        _ => (200, &["plain"], Some(5)),
    };
    let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
    let mut response = Response::new(Pieces { pieces, trailers: None, length });
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let headers = response.headers_mut();
    headers.insert("x-path", path.parse().unwrap());
    match path {
        "/same-7" => drop(headers.insert("content-length", "7".parse().unwrap())),
        "/close" => drop(headers.insert("connection", "close".parse().unwrap())),
        "/dated" => drop(headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap())),
        "/trailers" => {
            headers.insert("trailer", "x-sum".parse().unwrap());
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "4".parse().unwrap())]);
            response.body_mut().trailers = Some(trailers);
        }
        _ => {}
    }
    response
}

fn ours(near: DuplexStream) {
    let (connection, _link) = Http1::new(Pipe(near), LIMITS, |_| {});
    let service = |head: RequestHead, body| async move {
        http_body_util::BodyExt::collect(body).await.unwrap();
        let (parts, body) = answer(head.path()).into_parts();
        (ResponseHead::from_parts(&parts), body)
    };
    tokio::task::spawn_local(async move { connection.serve(service).await.map(drop) });
}

fn hypers(near: DuplexStream) {
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
        let (parts, body) = request.into_parts();
        http_body_util::BodyExt::collect(body).await.unwrap();
        Ok::<_, Infallible>(answer(parts.uri.path()))
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(near), service);
    tokio::task::spawn_local(connection);
}

/// The responses to the requests in turn, each sent when the one before it is there.
async fn play(server: fn(DuplexStream), requests: &[&str]) -> String {
    let (near, mut visitor) = tokio::io::duplex(1 << 20);
    server(near);
    for request in requests {
        if visitor.write_all(request.as_bytes()).await.is_err() {
            break;
        }
        settle().await;
    }
    visitor.shutdown().await.unwrap();
    let mut raw = Vec::new();
    visitor.read_to_end(&mut raw).await.unwrap();
    String::from_utf8(raw).unwrap()
}

/// The fields of every head in order of their names, and contents without the sizes of chunks, which need not
/// be the same.
fn canonical(raw: &str) -> Vec<String> {
    let mut rest = raw;
    let mut messages = Vec::new();
    while let Some(end) = rest.find("\r\n\r\n") {
        let mut lines: Vec<String> = rest[..end].split("\r\n").map(str::to_ascii_lowercase).collect();
        lines.sort();
        // What hyper answers to a visitor with HTTP/1.0 when the service has said that it closes.
        for line in &mut lines {
            *line = line.replace("close, keep-alive", "close");
        }
        let has = |line: &str| lines.iter().any(|l| l == line);
        let dates = lines.iter().filter(|line| line.starts_with("date: ")).count();
        assert_eq!(dates, 1, "{lines:?}");
        rest = &rest[end + 4..];
        let is_content = !has("x-path: /same") && !has("x-asked: head");
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut content = String::new();
        if has("transfer-encoding: chunked") {
            loop {
                let (size, more) = rest.split_once("\r\n").unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                if size == 0 {
                    let (trailers, more) = more.split_once("\r\n").unwrap();
                    content += trailers;
                    rest = if trailers.is_empty() { more } else { more.strip_prefix("\r\n").unwrap() };
                    break;
                }
                content += &more[..size];
                rest = more[size..].strip_prefix("\r\n").unwrap();
            }
        } else if let Some(length) = length.filter(|_| is_content) {
            let length = length.parse::<usize>().unwrap().min(rest.len());
            // A response to HEAD says how long it would be.
            let length = if rest.starts_with("HTTP/1.") { 0 } else { length };
            content += &rest[..length];
            rest = &rest[length..];
        } else if length.is_none()
            && !has("x-path: /none")
            && !has("x-path: /same")
            && !rest.starts_with("HTTP/1.")
        {
            content += std::mem::take(&mut rest);
            // hyper promises it although the end of the connection ends the response.
            lines.retain(|line| line != "connection: keep-alive");
        }
        lines.retain(|line| !line.starts_with("date: ") || line.contains("1994"));
        messages.push(format!("{}\n{content}", lines.join("\n")));
    }
    assert_eq!(rest, "");
    messages
}

#[test]
fn responses_are_framed_as_by_hyper() {
    let paths =
        ["/", "/empty", "/none", "/same", "/stream", "/large", "/long", "/trailers", "/close", "/dated"];
    let versions = [
        ("HTTP/1.1", ""),
        ("HTTP/1.1", "TE: trailers\r\n"),
        ("HTTP/1.1", "Connection: close\r\n"),
        ("HTTP/1.1", "Connection: keep-alive\r\n"),
        ("HTTP/1.0", ""),
        ("HTTP/1.0", "Connection: keep-alive\r\n"),
    ];
    for path in paths {
        for (version, fields) in versions {
            for method in ["GET", "HEAD", "POST"] {
                let body = if method == "POST" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
                let request = format!("{method} {path} {version}\r\nHost: a\r\n{fields}{body}");
                let after = format!("GET /after {version}\r\nHost: a\r\n{fields}\r\n");
                let requests = [request.as_str(), after.as_str()];
                let (ours, hypers) = (run(play(ours, &requests)), run(play(hypers, &requests)));
                assert_eq!(canonical(&ours), canonical(&hypers), "{requests:?}\n{ours}\n{hypers}");
            }
        }
    }
}

/// hyper leaves it out. It may be sent (RFC 9110 8.6), and a cache learns from it.
#[test]
fn a_304_says_how_long_the_content_would_be() {
    let raw = run(play(ours, &["GET /same-7 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"]));
    assert_eq!(statuses(&raw), [304, 200]);
    assert!(raw.contains("content-length: 7\r\n"), "{raw}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let paths = ["/", "/stream", "/none", "/large", "/empty", "/dated", "/trailers", "/long"];
    let requests: String =
        paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    let raw = run(play(ours, &[&requests]));
    let messages = canonical(&raw);
    assert_eq!(messages.len(), paths.len());
    for (message, path) in messages.iter().zip(paths) {
        assert!(message.contains(&format!("\nx-path: {path}\n")), "{path}: {message}");
    }
}

#[test]
fn a_response_of_another_length_than_it_says_ends_the_connection() {
    for said in ["4", "6"] {
        run(async {
            let (near, mut visitor) = tokio::io::duplex(1 << 16);
            let (connection, _link) = Http1::new(Pipe(near), LIMITS, |_| {});
            let service = move |_: RequestHead, _| async move {
                let mut response = answer("/");
                response.headers_mut().insert("content-length", said.parse().unwrap());
                let (parts, body) = response.into_parts();
                (ResponseHead::from_parts(&parts), body)
            };
            let served = tokio::task::spawn_local(async move { connection.serve(service).await.map(drop) });
            visitor
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .await
                .unwrap();
            assert!(served.await.unwrap().is_err());
            let mut raw = String::new();
            visitor.read_to_string(&mut raw).await.unwrap();
            assert!(statuses(&raw).len() <= 1, "{raw}");
        });
    }
}

#[test]
fn a_visitor_who_reads_slowly_gets_all_of_it_although_it_has_closed_its_half() {
    run(async {
        let (near, mut visitor) = tokio::io::duplex(256);
        ours(near);
        visitor.write_all(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut raw = Vec::new();
        loop {
            // Within `body_timeout` each, far more in all.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            if visitor.read_buf(&mut raw).await.unwrap() == 0 {
                break;
            }
        }
        assert!(raw.len() > 65_536, "{}", raw.len());
    });
}

#[test]
fn another_protocol_is_handed_back_with_its_first_bytes() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    fn is_http2(bytes: &[u8]) -> Option<bool> {
        let n = bytes.len().min(PREFACE.len());
        if bytes[..n] != PREFACE[..n] { Some(false) } else { (n == PREFACE.len()).then_some(true) }
    }
    for cuts in [&[24][..], &[1, 2, 20, 24], &[3, 24]] {
        run(async {
            let (near, mut visitor) = tokio::io::duplex(1 << 16);
            let (mut connection, _link) = Http1::new(Pipe(near), LIMITS, |_| {});
            connection.recognise(is_http2);
            let service =
                |_: RequestHead, _| async { (ResponseHead::new(StatusCode::OK), answer("/").into_body()) };
            let served = tokio::task::spawn_local(connection.serve(service));
            let mut at = 0;
            for &cut in cuts {
                visitor.write_all(&PREFACE[at..cut]).await.unwrap();
                at = cut;
                settle().await;
            }
            let Ok(tidegate_gateway::http::http1::Ended::Foreign { received, .. }) = served.await.unwrap()
            else {
                panic!("not recognised");
            };
            assert_eq!(received, PREFACE);
        });
    }
    run(async {
        let (near, mut visitor) = tokio::io::duplex(1 << 16);
        let (mut connection, _link) = Http1::new(Pipe(near), LIMITS, |_| {});
        connection.recognise(is_http2);
        let service =
            |_: RequestHead, _| async { (ResponseHead::new(StatusCode::OK), answer("/").into_body()) };
        tokio::task::spawn_local(async move { connection.serve(service).await.map(drop) });
        for piece in ["P", "OST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"] {
            visitor.write_all(piece.as_bytes()).await.unwrap();
            settle().await;
        }
        visitor.shutdown().await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200]);
    });
}
