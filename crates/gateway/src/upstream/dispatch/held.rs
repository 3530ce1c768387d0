//! A request body that the dispatcher lends to a connection and may take back.
//!
//! hyper drops a request's body together with a failed connection. The body is therefore kept here and the
//! connection gets a handle: as long as no frame was taken, the same body can go out on another connection. The
//! handle is also the valve for `Expect: 100-continue` (RFC 9110 10.1.1): while it is shut, the visitor's body is
//! not polled, and hyper's server side does not ask the visitor to send it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::upstream::body::{BoxError, RequestBody, clean};
use crate::upstream::deadline::Slot;

/// What hyper is told when the visitor's body fails; the cause itself goes to the dispatcher.
#[derive(Debug, thiserror::Error)]
#[error("the request body ended early")]
struct Broken;

/// A request body shared by the dispatcher and the connection that sends it.
pub struct Held {
    body: RefCell<RequestBody>,
    open: Cell<bool>,
    begun: Cell<bool>,
    ended: Cell<bool>,
    cancelled: Cell<bool>,
    /// The last poll found nothing: it is the visitor who is slow.
    starved: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    error: RefCell<Option<BoxError>>,
    progress: RefCell<Option<(Rc<Slot>, u64)>>,
}

impl Held {
    /// Takes `body`; it flows at once if `open`.
    pub fn new(body: RequestBody, open: bool) -> Rc<Self> {
        Rc::new(Self {
            body: RefCell::new(body),
            open: Cell::new(open),
            begun: Cell::new(false),
            ended: Cell::new(false),
            cancelled: Cell::new(false),
            starved: Cell::new(false),
            waker: RefCell::new(None),
            error: RefCell::new(None),
            progress: RefCell::new(None),
        })
    }

    /// Lets the body flow.
    pub fn open(&self) {
        if !self.open.replace(true) {
            self.wake();
        }
    }

    /// Whether the body flows.
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

    /// Gives up on what was not sent yet: the connection fails, the visitor's body is let go.
    pub fn cancel(&self) {
        self.cancelled.set(true);
        self.body.replace(RequestBody::empty());
        self.wake();
    }

    /// Each frame arms `slot` anew: a time limit counts from the last of the request.
    pub fn arm_on_progress(&self, to: Option<(Rc<Slot>, u64)>) {
        *self.progress.borrow_mut() = to;
    }

    /// Why the visitor's body failed, if it did.
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
        let frame = std::pin::Pin::new(&mut *body).poll_frame(cx);
        self.starved.set(frame.is_pending());
        let Poll::Ready(frame) = frame else { return Poll::Pending };
        if let Some((slot, ticks)) = &*self.progress.borrow() {
            slot.arm(*ticks);
        }
        match frame {
            Some(Ok(frame)) => {
                self.begun.set(true);
                // Nobody asks for more after trailers.
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
