//! A visitor's connection with HTTP/1.1 (RFC 9112): one task, one parse a head.
//!
//! ```text
//!   socket ─► scratch ─► RequestParser ─► service ─► respond ─► output ─► socket
//!                │ rest of the read          │
//!                └─► BodyDecoder ─► Http1Body┘
//! ```
//!
//! Bytes are read into a scratch buffer of the thread: an idle connection owns no buffer, and keeps bytes only
//! of a head that is not complete and of requests that wait for the response before them. The body of a
//! request is read when the service asks for it.
//!
//! While the service works, the same task looks at the socket, to learn whether the visitor has left. At the
//! end of the stream the service gets one more turn, and is then dropped: a response that is ready at once
//! still reaches a visitor who closed the sending half after the request, and a request that would wait is
//! abandoned. A response that is complete here is written whatever the visitor's sending half does.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tidegate_http::{BadBody, HeadLimits, Refusal, RequestHead, RequestParser, ResponseHead};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::http::tunnel_io::{TunnelIo, VisitorStream};

mod body;
pub(crate) mod date;
mod exchange;
mod linger;
mod link;
mod output;
mod read;
mod respond;
mod timer;

pub use body::{Http1Body, Left, is_bad_body};
pub use link::Http1Link;

use exchange::Exchange;
use output::Output;
use read::Waiting;
use timer::LazyTimer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Limits {
    pub head: HeadLimits,
    /// From the first byte of a head to its last; also from the connection's start to its first byte.
    pub header_timeout: Duration,
    /// Between a response and the next request.
    pub idle_timeout: Duration,
    /// Silence in a request body, and of a visitor who does not read.
    pub body_timeout: Duration,
}

impl From<&tidegate_settings::Limits> for Http1Limits {
    fn from(l: &tidegate_settings::Limits) -> Self {
        Self {
            head: HeadLimits {
                bytes: l.max_header_bytes,
                fields: l.max_headers,
                target: l.max_uri_bytes,
                body: l.max_body_bytes,
            },
            header_timeout: l.header_timeout,
            idle_timeout: l.idle_timeout,
            body_timeout: l.body_timeout,
        }
    }
}

/// Something the connection did on its own; each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http1Event {
    /// A head is complete and is passed to the service.
    Request,
    /// A head was refused and answered here ([`Refusal::TooSlow`] is the header timeout).
    Refused(Refusal),
    /// A body was cut off; the service answers ([`BadBody::TooSlow`] is the body timeout).
    BadBody(BadBody),
    /// Closed without a response: nothing came for `idle_timeout` (or, at first, `header_timeout`).
    Idle,
    /// Closed: the visitor did not read for `body_timeout`.
    NotReading,
    /// The visitor closed within a head.
    Truncated,
    Gone,
}

/// A connection. `K` is called with every [`Http1Event`].
pub struct Http1<S, K> {
    socket: S,
    events: K,
    limits: Http1Limits,
    exchange: Hangup,
    /// Of a head that is not complete.
    parser: Option<Box<RequestParser>>,
    /// Received and not yet understood: of a head that is not complete, or after the present request. Empty
    /// and without memory most of the time.
    held: Vec<u8>,
    output: Output,
    has_served: bool,
    /// A head was refused: what follows it is not read.
    is_refused: bool,
    /// The last request was not read to its end.
    is_unread: bool,
    /// The socket may keep what was written to it.
    unflushed: bool,
    /// The visitor's stream has ended.
    ended: bool,
    /// The one turn after that has been given.
    graced: bool,
    /// What the connection waits for.
    waiting: Option<Waiting>,
    /// Since when the visitor does not read.
    stalled: Option<Instant>,
    timer: LazyTimer,
}

/// The exchange; whoever holds it learns of the connection's end.
struct Hangup(Rc<Exchange>);

impl std::ops::Deref for Hangup {
    type Target = Exchange;
    fn deref(&self) -> &Exchange {
        &self.0
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<S, K: Fn(Http1Event)> Http1<S, K> {
    /// Of a newly accepted socket.
    pub fn new(socket: S, limits: Http1Limits, events: K) -> (Self, Http1Link) {
        let exchange = Rc::new(Exchange::new());
        let link = Http1Link { exchange: exchange.clone() };
        let connection = Self {
            socket,
            events,
            limits,
            exchange: Hangup(exchange),
            parser: None,
            held: Vec::new(),
            output: Output::default(),
            has_served: false,
            is_refused: false,
            is_unread: false,
            unflushed: false,
            ended: false,
            graced: false,
            waiting: None,
            stalled: None,
            timer: LazyTimer::default(),
        };
        (connection, link)
    }

    fn emit(&self, event: Http1Event) {
        (self.events)(event);
    }
}

impl<S: AsyncRead + AsyncWrite + TunnelIo + 'static, K: Fn(Http1Event)> Http1<S, K> {
    /// Serves requests until the connection ends, or has become a tunnel.
    ///
    /// # Errors
    /// The visitor has left within a response or does not read, or the response's body broke off.
    pub async fn serve<F, B>(mut self, service: impl Fn(RequestHead, Http1Body) -> F) -> io::Result<()>
    where
        F: Future<Output = (ResponseHead, B)>,
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        while let Some((head, facts)) = poll_fn(|cx| self.poll_head(cx)).await? {
            let asked = respond::Asked::new(&head, &facts);
            let (answer, content) = {
                let mut service = pin!(service(head, Http1Body::new(&self.exchange.0)));
                let answered = poll_fn(|cx| {
                    loop {
                        // First: nearly every turn is the service's.
                        if let Poll::Ready(answer) = service.as_mut().poll(cx) {
                            return Poll::Ready(io::Result::Ok(answer));
                        }
                        ready!(self.poll_meanwhile(cx))?;
                    }
                });
                answered.await?
            };
            let switches = answer.status() == http::StatusCode::SWITCHING_PROTOCOLS;
            let mut response = self.begin_response(&asked, answer, content);
            poll_fn(|cx| self.poll_response(cx, &mut response)).await?;
            if switches && let Some(upgrade) = self.exchange.upgrade.take() {
                let received = Bytes::from(std::mem::take(&mut self.held));
                // A failure: the tunnel is not wanted any more.
                let _ = upgrade.send(VisitorStream { io: Box::new(self.socket), received });
                return Ok(());
            }
            if !self.end_response(&response) {
                break;
            }
        }
        self.linger().await;
        Ok(())
    }
}
