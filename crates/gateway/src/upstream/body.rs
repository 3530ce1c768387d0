//! Request bodies on their way to the origin: streamed frame by frame as the receiver asks.
//!
//! With one type of request body ([`RequestBody`]) all pooled connections have one type. The visitor's
//! connection has enforced the limits of size and time before.

use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::http::visitor_body::VisitorBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::http::hygiene::prepare_trailers;
use crate::upstream::deadline::Limit;

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
    Held(Rc<Held>),
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

    pub fn boxed(body: impl Body<Data = Bytes, Error = BoxError> + 'static) -> Self {
        if body.is_end_stream() { Self::empty() } else { Self(Kind::Boxed(Box::pin(body))) }
    }

    /// A handle on a body that the dispatcher keeps for itself.
    pub(crate) fn held(body: Rc<Held>) -> Self {
        Self(Kind::Held(body))
    }

    /// The same body again; `None` for one that streams.
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
            Kind::Visitor(_) => "Visitor",
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
            Kind::Visitor(body) => Pin::new(body).poll_frame(cx),
            Kind::Boxed(body) => body.as_mut().poll_frame(cx),
            Kind::Held(held) => held.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Visitor(body) => body.is_end_stream(),
            Kind::Boxed(body) => body.is_end_stream(),
            Kind::Held(held) => held.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Visitor(body) => body.size_hint(),
            Kind::Boxed(body) => body.size_hint(),
            Kind::Held(held) => held.size_hint(),
        }
    }
}

/// hyper's error when the visitor's body fails; the dispatcher gets the cause itself.
#[derive(Debug, thiserror::Error)]
#[error("the request body ended early")]
struct Broken;

/// A request body shared by the dispatcher and the connection that sends it.
///
/// hyper drops a request's body together with a failed connection. The body is therefore kept here and the
/// connection gets a handle: as long as no frame was taken, the same body can be sent on another connection.
/// The handle is also the valve for `Expect: 100-continue` (RFC 9110 10.1.1): while it is shut, the visitor's
/// body is not polled, and the visitor is not asked to send it.
#[derive(Default)]
pub struct Held {
    body: RefCell<RequestBody>,
    open: Cell<bool>,
    begun: Cell<bool>,
    ended: Cell<bool>,
    cancelled: Cell<bool>,
    /// The last poll found nothing: the visitor is slow, not the origin.
    starved: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    error: RefCell<Option<BoxError>>,
    progress: RefCell<Option<Limit>>,
}

impl Held {
    /// Takes `body`, which does not flow until [`Held::open`].
    pub fn new(body: RequestBody) -> Rc<Self> {
        Rc::new(Self { body: RefCell::new(body), ..Self::default() })
    }

    pub fn open(&self) {
        if !self.open.replace(true) {
            self.wake();
        }
    }

    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Whether a frame was taken: it cannot be sent again.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Whether the connection took all of it.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whether the connection waits for the visitor's next bytes.
    pub fn is_starved(&self) -> bool {
        self.starved.get()
    }

    /// Gives up on what was not sent yet: the connection fails, the visitor's body is dropped.
    pub fn cancel(&self) {
        self.cancelled.set(true);
        self.body.replace(RequestBody::empty());
        self.wake();
    }

    /// Has each frame renew `limit`: the time for the first byte counts from the end of the request.
    pub(crate) fn renew_on_progress(&self, limit: Option<Limit>) {
        *self.progress.borrow_mut() = limit;
    }

    pub fn take_error(&self) -> Option<BoxError> {
        self.error.borrow_mut().take()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(crate) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.cancelled.get() {
            return Poll::Ready(Some(Err(Broken.into())));
        }
        // `cancel` must reach a connection that waits for the visitor, too.
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        if !self.open.get() {
            return Poll::Pending;
        }
        let mut body = self.body.borrow_mut();
        let frame = Pin::new(&mut *body).poll_frame(cx);
        self.starved.set(frame.is_pending());
        let Poll::Ready(frame) = frame else { return Poll::Pending };
        if let Some(limit) = &*self.progress.borrow() {
            limit.renew();
        }
        match frame {
            Some(Ok(frame)) => {
                self.begun.set(true);
                // The receiver does not poll again after trailers.
                self.ended.set(frame.is_trailers() || body.is_end_stream());
                Poll::Ready(Some(Ok(clean(frame))))
            }
            Some(Err(e)) => {
                *self.error.borrow_mut() = Some(e);
                Poll::Ready(Some(Err(Broken.into())))
            }
            None => {
                self.begun.set(true);
                self.ended.set(true);
                Poll::Ready(None)
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        !self.cancelled.get() && (self.ended.get() || self.body.borrow().is_end_stream())
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.borrow().size_hint()
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
    /// Every byte was taken by the visitor's connection; the visitor may not have received it yet.
    Complete,
    /// The visitor left before its end.
    Aborted,
    /// The origin broke it off or fell silent.
    Failed,
}
