//! Whole connections: these parsers, and hyper's server and client over memory.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use tidegate_http::{Asked, BodyDecoder, Piece, RequestParser, ResponseParser, Stage};

use super::{Counts, LIMITS, RESPONSE_LIMITS};

/// What a body without a head is compared as.
pub const CHUNKED_POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A peer who sends some bytes and closes; what is sent to it is dropped.
struct Memory<'i> {
    bytes: &'i [u8],
    /// It sends nothing before something was sent to it.
    waits: bool,
}

impl Read for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits {
            return Poll::Pending;
        }
        let (now, later) = self.bytes.split_at(self.bytes.len().min(buf.remaining()));
        buf.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.waits = false;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One message: its first line, and its content if it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    line: String,
    content: Option<Vec<u8>>,
}

/// All requests of a connection are seen by hyper's server, with the same content.
pub fn compare_requests(input: &[u8], counts: &mut Counts) {
    let (ours, refusal) = ours_of_requests(input);
    let theirs = hypers_of_requests(input);
    for (at, seen) in ours.iter().enumerate() {
        let by_hyper = theirs.get(at);
        let is_same = by_hyper
            .is_some_and(|t| t.line == seen.line && (seen.content.is_none() || t.content == seen.content));
        assert!(is_same, "request {at} is {seen:?}, {by_hyper:?} by hyper: {}", input.escape_ascii());
    }
    let next = theirs.get(ours.len());
    let last_was_completed = ours.last().is_some_and(|seen| seen.content.is_none())
        && theirs.get(ours.len() - 1).is_some_and(|t| t.content.is_some());
    if (next.is_some() || last_was_completed)
        && let Some(refusal) = refusal
    {
        counts.stricter("hyper", Word(refusal), input);
    } else {
        assert!(
            next.is_none() && !last_was_completed,
            "{theirs:?} by hyper, {ours:?}: {}",
            input.escape_ascii()
        );
    }
}

/// A word whose `Debug` is itself.
struct Word(String);

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Content to its end, if it is there: how long it was on the wire.
fn content(decoder: &mut BodyDecoder, input: &[u8]) -> Result<Option<(usize, Vec<u8>)>, String> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let (n, piece) = decoder.decode(&input[at..]);
        let from = at;
        at += n;
        match piece {
            Piece::Data(range) => content.extend_from_slice(&input[from..][range]),
            Piece::Trailers(_) => {}
            Piece::End => return Ok(Some((at, content))),
            Piece::More => return Ok(decoder.close().is_ok().then_some((at, content))),
            Piece::Bad(bad) => return Err(format!("{bad:?}")),
        }
    }
}

fn ours_of_requests(input: &[u8]) -> (Vec<Seen>, Option<String>) {
    let (mut seen, mut at) = (Vec::new(), 0);
    loop {
        let (head, facts) = match RequestParser::new().parse(&input[at..], &LIMITS) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return (seen, None),
            Err(refusal) => return (seen, Some(format!("{refusal:?}"))),
        };
        at += facts.len;
        let line = format!("{} {}", head.method(), head.to_parts().uri);
        let mut decoder = BodyDecoder::request(facts.framing, 0);
        let content = content(&mut decoder, &input[at..]);
        let content = content.map(|found| {
            found.map(|(n, content)| {
                at += n;
                content
            })
        });
        let refusal = content.as_ref().err().cloned();
        let is_complete = matches!(content, Ok(Some(_)));
        seen.push(Seen { line, content: content.ok().flatten() });
        if !is_complete {
            return (seen, refusal);
        }
        // hyper takes these for the beginning of another protocol.
        if !facts.keep_alive || *head.method() == Method::CONNECT {
            return (seen, Some("Closed".into()));
        }
    }
}

fn hypers_of_requests(input: &[u8]) -> Vec<Seen> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let at = seen.borrow().len();
            seen.borrow_mut().push(Seen { line: format!("{} {}", parts.method, parts.uri), content: None });
            if let Ok(collected) = body.collect().await {
                seen.borrow_mut()[at].content = Some(collected.to_bytes().to_vec());
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.half_close(true).header_read_timeout(None);
    let connection = pin!(builder.serve_connection(Memory { bytes: input, waits: false }, service));
    poll_on(connection);
    seen.take()
}

/// Polls until it is ready, or will never be.
fn poll_on<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    // hyper yields after a few steps, to be woken at once.
    for _ in 0..64 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}

/// A response is seen by hyper's client, with the same content.
pub fn compare_responses(input: &[u8], head: bool, counts: &mut Counts) {
    let ours = ours_of_response(input, head);
    let theirs = hypers_of_response(input, head);
    match (ours, theirs) {
        (Ok(Some((status, content))), Some((their_status, theirs))) => {
            assert_eq!(status, their_status, "{}", input.escape_ascii());
            match content {
                Ok(Some(content)) => assert_eq!(Some(content), theirs, "content of {}", input.escape_ascii()),
                Ok(None) => assert_eq!(theirs, None, "complete for hyper: {}", input.escape_ascii()),
                Err(bad) if theirs.is_some() => counts.stricter("hyper", Word(bad), input),
                Err(_) => {}
            }
        }
        (Ok(Some(_)), None) => panic!("hyper refuses {}", input.escape_ascii()),
        (Ok(None), Some(_)) => panic!("complete for hyper only: {}", input.escape_ascii()),
        (Err(bad), Some(_)) => counts.stricter("hyper", Word(bad), input),
        (Ok(None) | Err(_), None) => {}
    }
}

type Content = Result<Option<Vec<u8>>, String>;

fn ours_of_response(input: &[u8], head: bool) -> Result<Option<(StatusCode, Content)>, String> {
    let mut at = 0;
    loop {
        let asked = Asked { head, upgrade: false };
        let parsed = ResponseParser::new().parse(&input[at..], asked, &RESPONSE_LIMITS);
        let Some((head, facts)) = parsed.map_err(|bad| format!("{bad:?}"))? else { return Ok(None) };
        at += facts.len;
        if facts.stage == Stage::Final {
            let mut decoder = BodyDecoder::response(facts.framing);
            let content = content(&mut decoder, &input[at..]).map(|found| found.map(|(_, content)| content));
            return Ok(Some((head.status(), content)));
        }
    }
}

fn hypers_of_response(input: &[u8], head: bool) -> Option<(StatusCode, Option<Vec<u8>>)> {
    let handshake = pin!(hyper::client::conn::http1::handshake(Memory { bytes: input, waits: true }));
    let (mut sender, connection) = poll_on(handshake)?.ok()?;
    let mut connection = pin!(connection);
    let method = if head { Method::HEAD } else { Method::GET };
    let request = Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).ok()?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
        Some((parts.status, body.collect().await.ok().map(|c| c.to_bytes().to_vec())))
    };
    let mut exchange = pin!(exchange);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..64 {
        if let Poll::Ready(output) = exchange.as_mut().poll(&mut context) {
            return output;
        }
        let _ = connection.as_mut().poll(&mut context);
    }
    None
}
