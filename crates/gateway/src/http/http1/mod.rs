//! A visitor's connection with HTTP/1.1 (RFC 9112): one task, one parse a head.
//!
//! ```text
//!   socket ─► scratch ─► RequestParser ─► service ─► respond ─► output ─► socket
//!                │ rest of the read          │
//!                └─► BodyDecoder ─► Http1Body┘
//! ```
//!
//! Bytes are read into a scratch buffer of the thread: an idle connection owns no buffer, and keeps bytes
//! only of a head that is not complete and of requests that wait for the response before them. The body of a
//! request is read when the service asks for it.
//!
//! While the service works, the same task looks at the socket, to learn whether the visitor has left. At the
//! end of the stream the service gets one more turn, and is then dropped: a response that is ready at once
//! still reaches a visitor who closed the sending half after the request, and a request that would wait is
//! abandoned. A response that is complete here is written whatever the visitor's sending half does.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tidegate_http::{BadBody, HeadLimits, Refusal, RequestHead, RequestParser, ResponseHead};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::http::tunnel_io::{Splice, TunnelIo, VisitorStream};

mod body;
pub(crate) mod date;
mod exchange;
mod linger;
mod link;
mod output;
mod pool;
mod read;
mod respond;

pub use body::{Http1Body, Left, is_bad_body};
pub use link::Http1Link;

use crate::http::timer::LazyTimer;
use exchange::Exchange;
use output::Output;
use pool::Pool;
use read::Waiting;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Limits {
    pub head: HeadLimits,
    /// From the first byte of a head to its last; also from the connection's start to its first byte.
    pub header_timeout: Duration,
    /// Between a response and the next request.
    pub idle_timeout: Duration,
    /// Silence in a request body, and of a visitor who does not read.
    pub body_timeout: Duration,
    /// Bytes per second that a request body must come with, on average and after some grace; 0: any rate.
    pub min_body_rate: u64,
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
            min_body_rate: l.min_body_rate,
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
    /// A body was cut off; the service answers ([`BadBody::TooSlow`]: the body timeout, or the lowest rate).
    BadBody(BadBody),
    /// Closed without a response: nothing came for `idle_timeout` (or, at first, `header_timeout`).
    Idle,
    /// Closed: the visitor did not read for `body_timeout`.
    NotReading,
    /// The visitor closed within a head.
    Truncated,
    Gone,
}

/// Whether a connection that begins with these bytes speaks another protocol; `None`: more bytes must tell.
pub type Recogniser = fn(&[u8]) -> Option<bool>;

/// How a connection has ended that did not fail.
pub enum Ended<S> {
    /// It is closed, or has become one side of a tunnel.
    Over,
    /// It speaks another protocol, and nothing was answered yet.
    Foreign { socket: S, received: Vec<u8> },
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
    /// Asked about the first bytes until it has decided.
    recogniser: Option<Recogniser>,
    is_foreign: bool,
    has_served: bool,
    /// A head was refused: what follows it is not read.
    is_refused: bool,
    /// The last request was not read to its end.
    is_unread: bool,
    /// The socket may keep what was written to it.
    unflushed: bool,
    /// What of the present request decides how its response is sent.
    asked: respond::Asked,
    /// Who waits for the connection as one side of a tunnel: the 101 was written.
    switched: Option<oneshot::Sender<VisitorStream>>,
    /// The visitor's stream has ended.
    ended: bool,
    /// The one turn after that has been given.
    graced: bool,
    /// What the connection waits for.
    waiting: Option<Waiting>,
    /// How long the present request's body has let it wait.
    body_waited: Duration,
    /// Bytes of that body after its head's segment.
    body_bytes: u64,
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
    pub fn new(socket: S, limits: Http1Limits, events: K) -> (Box<Self>, Http1Link) {
        let exchange = Rc::new(Exchange::new());
        let link = Http1Link { exchange: exchange.clone() };
        let connection = Box::new(Self {
            socket,
            events,
            limits,
            exchange: Hangup(exchange),
            parser: None,
            held: Vec::new(),
            output: Output::default(),
            recogniser: None,
            is_foreign: false,
            has_served: false,
            is_refused: false,
            is_unread: false,
            unflushed: false,
            asked: respond::Asked::default(),
            switched: None,
            ended: false,
            graced: false,
            waiting: None,
            body_waited: Duration::ZERO,
            body_bytes: 0,
            stalled: None,
            timer: LazyTimer::default(),
        });
        (connection, link)
    }

    /// Hands the connection back if its first bytes are those of another protocol.
    pub fn recognise(&mut self, recogniser: Recogniser) {
        self.recogniser = Some(recogniser);
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
    pub async fn serve<F, B>(
        self: Box<Self>,
        service: impl Fn(RequestHead, Http1Body) -> F,
    ) -> io::Result<Ended<S>>
    where
        F: Future<Output = (ResponseHead, B)> + 'static,
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        self.serve_spliced(service, |_| None).await
    }

    /// As [`Http1::serve`]; where `splice` says so, content of a response is moved within the kernel.
    ///
    /// # Errors
    /// As there.
    pub async fn serve_spliced<F, B>(
        mut self: Box<Self>,
        service: impl Fn(RequestHead, Http1Body) -> F,
        splice: fn(&mut B) -> Option<&mut dyn Splice>,
    ) -> io::Result<Ended<S>>
    where
        F: Future<Output = (ResponseHead, B)> + 'static,
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (services, responses) = (Pool::of_thread(), Pool::of_thread());
        // No head, service or response stands in this future: an idle connection would have room for them.
        loop {
            let began = poll_fn(|cx| {
                let Some((head, facts)) = ready!(self.poll_head(cx))? else {
                    return Poll::Ready(io::Result::Ok(None));
                };
                self.asked = respond::Asked::new(&head, &facts);
                let body = Http1Body::new(&self.exchange.0);
                Poll::Ready(Ok(Some(services.place(service(head, body)))))
            });
            let Some(mut served) = began.await? else { break };
            let mut response = poll_fn(|cx| {
                loop {
                    // First: nearly every turn is the service's.
                    if let Poll::Ready((head, content)) = served.get().poll(cx) {
                        return Poll::Ready(io::Result::Ok(
                            responses.place(self.begin_response(head, content, splice)),
                        ));
                    }
                    ready!(self.poll_meanwhile(cx))?;
                }
            })
            .await?;
            services.put_back(served);
            poll_fn(|cx| self.poll_response(cx, response.get().get_mut())).await?;
            let is_over = !self.end_response(response.get().get_mut());
            responses.put_back(response);
            if is_over {
                break;
            }
        }
        match self.switched.take() {
            _ if self.is_foreign => {
                let Self { socket, held, .. } = *self;
                return Ok(Ended::Foreign { socket, received: held });
            }
            // A failure: nobody waits for the tunnel any more.
            Some(upgrade) => {
                let Self { socket, held, .. } = *self;
                let received = Bytes::from(held);
                _ = upgrade.send(VisitorStream { io: Box::new(socket), received });
            }
            None => self.linger().await,
        }
        Ok(Ended::Over)
    }
}
