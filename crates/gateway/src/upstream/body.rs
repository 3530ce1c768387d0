//! Request bodies on their way to the origin: streamed frame by frame as the receiver asks.
//!
//! The visitor's connection has enforced the limits of size and time before.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::http::visitor_body::VisitorBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::http::hygiene::prepare_trailers;

pub type BoxError = Box<dyn StdError + Send + Sync>;

#[derive(Default)]
pub struct RequestBody(Kind);

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Full(Bytes),
    Visitor(VisitorBody),
    Boxed(Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>),
}

impl RequestBody {
    pub fn empty() -> Self {
        Self::default()
    }

    /// A body known beforehand; it can be sent again when a connection fails.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(bytes.into()))
    }

    pub fn visitor(body: VisitorBody) -> Self {
        if body.is_end_stream() { Self::empty() } else { Self(Kind::Visitor(body)) }
    }

    /// Whether nothing more has to come from the visitor.
    pub fn is_here(&self) -> bool {
        matches!(self.0, Kind::Empty | Kind::Full(_))
    }

    pub fn boxed(body: impl Body<Data = Bytes, Error = BoxError> + 'static) -> Self {
        if body.is_end_stream() { Self::empty() } else { Self(Kind::Boxed(Box::pin(body))) }
    }

    /// All of it, if it is known beforehand.
    pub(crate) fn known(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Empty => Some(Bytes::new()),
            Kind::Full(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Empty => "Empty",
            Kind::Full(_) => "Full",
            Kind::Visitor(_) => "Visitor",
            Kind::Boxed(_) => "Boxed",
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
            Kind::Visitor(body) => Pin::new(body).poll_frame(cx),
            Kind::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Visitor(body) => body.is_end_stream(),
            Kind::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Visitor(body) => body.size_hint(),
            Kind::Boxed(body) => body.size_hint(),
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every byte was handed to the visitor's connection; the visitor may not have received it yet.
    Complete,
    /// The visitor left before its end.
    Aborted,
    /// The origin broke it off or fell silent.
    Failed,
}
