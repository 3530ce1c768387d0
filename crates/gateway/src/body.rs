//! Bodies on their way through the gate: streamed frame by frame, pulled by the receiver, never collected.
//!
//! One request body type ([`RequestBody`]) keeps all pooled connections of one type; the adapters ([`Limited`],
//! [`Timed`], [`Watched`]) are generic, so that nothing is boxed unless the caller asks for it.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::dispatch::held::Held;

/// Any error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a request to the origin.
pub struct RequestBody(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    Incoming(Incoming),
    Boxed(Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>),
    Held(Rc<Held>),
}

impl RequestBody {
    /// No body.
    pub fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// A body known beforehand; it can be sent again when a connection fails.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(bytes.into()))
    }

    /// The visitor's body as it comes, without limits.
    pub fn incoming(body: Incoming) -> Self {
        if body.is_end_stream() { Self::empty() } else { Self(Kind::Incoming(body)) }
    }

    /// Any stream, e.g. `Timed<Limited<Incoming>>`.
    pub fn boxed(body: impl Body<Data = Bytes, Error = BoxError> + 'static) -> Self {
        if body.is_end_stream() { Self::empty() } else { Self(Kind::Boxed(Box::pin(body))) }
    }

    /// A handle on a body that the dispatcher keeps for itself.
    pub(crate) fn held(body: Rc<Held>) -> Self {
        Self(Kind::Held(body))
    }

    /// The body again, if that is possible without having kept what was sent.
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.0 {
            Kind::Empty => Some(Self::empty()),
            Kind::Full(bytes) => Some(Self(Kind::Full(bytes.clone()))),
            _ => None,
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Empty => "Empty",
            Kind::Full(_) => "Full",
            Kind::Incoming(_) => "Incoming",
            Kind::Boxed(_) => "Boxed",
            Kind::Held(_) => "Held",
        })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Kind::Incoming(body) => {
                Pin::new(body).poll_frame(cx).map(|f| f.map(|f| f.map_err(BoxError::from)))
            }
            Kind::Boxed(body) => body.as_mut().poll_frame(cx),
            Kind::Held(held) => held.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Incoming(body) => body.is_end_stream(),
            Kind::Boxed(body) => body.is_end_stream(),
            Kind::Held(held) => held.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Incoming(body) => body.size_hint(),
            Kind::Boxed(body) => body.size_hint(),
            Kind::Held(held) => held.size_hint(),
        }
    }
}

/// Removes the fields that must not arrive as trailers (RFC 9110 6.5.1): what frames, routes, authenticates,
/// conditions or describes a message is for its head; as a trailer it could only get past a check.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    for name in FORBIDDEN_TRAILERS {
        trailers.remove(name);
    }
}

const FORBIDDEN_TRAILERS: &[header::HeaderName] = &[
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::FORWARDED,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::PRAGMA,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
];

/// Removes forbidden fields if the frame holds trailers.
pub(crate) fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        strip_trailers(trailers);
    }
    frame
}

/// A body was longer than allowed: 413.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the body is longer than {max} bytes")]
pub struct TooLarge {
    /// Bytes allowed.
    pub max: u64,
}

/// Fails with [`TooLarge`] when more than so many bytes come.
#[derive(Debug)]
pub struct Limited<B> {
    body: B,
    left: u64,
    max: u64,
}

impl<B: Body> Limited<B> {
    /// At most `max` bytes of `body`; refused at once if its length is known to be more.
    pub fn new(body: B, max: u64) -> Result<Self, TooLarge> {
        if body.size_hint().lower() > max { Err(TooLarge { max }) } else { Ok(Self { body, left: max, max }) }
    }
}

impl<B> Body for Limited<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::into)?;
        let size = frame.data_ref().map_or(0, |d| d.len() as u64);
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(TooLarge { max: self.max }.into()))),
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body was silent for longer than allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no data for {limit:?}")]
pub struct Silence {
    /// Silence allowed.
    pub limit: Duration,
}

/// Fails with [`Silence`] when a wait for the next frame takes longer than `limit`; zero: no limit.
///
/// For the visitor's side. The timer is made at the first wait: a body that is already there costs none.
#[derive(Debug)]
pub struct Timed<B> {
    body: B,
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<B> Timed<B> {
    /// Limits the silences of `body`.
    pub fn new(body: B, limit: Duration) -> Self {
        Self { body, limit, sleep: None, waiting: false }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.waiting = false;
            return Poll::Ready(frame.map(|f| f.map_err(Into::into)));
        }
        if this.limit.is_zero() {
            return Poll::Pending;
        }
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.limit)));
        if !this.waiting {
            this.waiting = true;
            sleep.as_mut().reset(Instant::now() + this.limit);
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Some(Err(Silence { limit: this.limit }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How a body ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every byte was taken by the receiving side (hyper's write buffer, not yet the visitor's hands).
    Complete,
    /// The receiver dropped it before its end: the visitor left.
    Aborted,
    /// It failed: the origin broke off or fell silent.
    Failed,
}

/// Calls back exactly once when the body has ended, in whatever way.
pub struct Watched<B: Body, F: FnOnce(u64, Outcome)> {
    body: B,
    bytes: u64,
    done: Option<F>,
}

impl<B: Body, F: FnOnce(u64, Outcome)> Watched<B, F> {
    /// Calls `done` with the bytes of data that passed and the outcome.
    pub fn new(body: B, done: F) -> Self {
        Self { body, bytes: 0, done: Some(done) }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(done) = self.done.take() {
            done(self.bytes, outcome);
        }
    }
}

// Nothing in it is pinned structurally: the inner body is `Unpin` wherever it is polled.
impl<B: Body + Unpin, F: FnOnce(u64, Outcome)> Unpin for Watched<B, F> {}

impl<B, F> Body for Watched<B, F>
where
    B: Body<Data = Bytes> + Unpin,
    F: FnOnce(u64, Outcome),
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(f)) => {
                this.bytes += f.data_ref().map_or(0, |d| d.len() as u64);
                if this.body.is_end_stream() {
                    this.end(Outcome::Complete);
                }
            }
            Some(Err(_)) => this.end(Outcome::Failed),
            None => this.end(Outcome::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body, F: FnOnce(u64, Outcome)> Drop for Watched<B, F> {
    fn drop(&mut self) {
        // A body without a byte (HEAD, 204) is never polled.
        let outcome = if self.body.is_end_stream() { Outcome::Complete } else { Outcome::Aborted };
        self.end(outcome);
    }
}
