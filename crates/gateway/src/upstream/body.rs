//! Bodies on their way through the gate: streamed frame by frame, pulled by the receiver, never collected.
//!
//! One request body type ([`RequestBody`]) keeps all pooled connections of one type. Its limits of size and time are the
//! wire's: what comes through is within them.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http::hygiene::prepare_trailers;
use crate::upstream::dispatch::held::Held;

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

/// Removes forbidden fields if the frame holds trailers.
pub(crate) fn clean(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        prepare_trailers(trailers);
    }
    frame
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
