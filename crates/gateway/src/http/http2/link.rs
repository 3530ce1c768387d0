//! A stream as its request's stages see their visitor: interim responses, the visitor's departure, the end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response, StatusCode};
use tokio::sync::oneshot;

use super::CONNECTION_SPECIFIC;
use crate::http::tunnel_io::{VisitorStream, VisitorUpgrade};

/// Interim responses of one request; more are dropped. Origins send one or two.
const MAX_INTERIM: u8 = 16;

/// Cheap to clone.
#[derive(Clone)]
pub struct StreamLink(Rc<Stream>);

struct Stream {
    respond: RefCell<SendResponse<Bytes>>,
    expects_continue: bool,
    interim: Cell<u8>,
    is_answered: Cell<bool>,
    end: Cell<StreamEnd>,
    waker: RefCell<Option<Waker>>,
    tunnel: Cell<Option<oneshot::Receiver<VisitorStream>>>,
}

/// What the gate has decided about a stream, beside its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamEnd {
    #[default]
    Answered,
    /// Nothing is answered: the stream is reset.
    Muted,
    /// Its connection is reset, with all of its streams.
    Aborted,
    /// A policy cuts it off, whatever it is at.
    Cut,
}

impl StreamLink {
    pub fn new(respond: SendResponse<Bytes>, expects_continue: bool) -> Self {
        Self(Rc::new(Stream {
            respond: RefCell::new(respond),
            expects_continue,
            interim: Cell::new(0),
            is_answered: Cell::new(false),
            end: Cell::default(),
            waker: RefCell::default(),
            tunnel: Cell::default(),
        }))
    }

    /// Offers to become a tunnel: what is sent is the visitor's side of it, once its request is answered so.
    pub fn offer_tunnel(&self) -> oneshot::Sender<VisitorStream> {
        let (sender, receiver) = oneshot::channel();
        self.0.tunnel.set(Some(receiver));
        sender
    }

    /// What was offered. Once a request.
    pub fn take_upgrade(&self) -> Option<VisitorUpgrade> {
        let receiver = self.0.tunnel.take()?;
        Some(Box::pin(async { receiver.await.ok() }))
    }

    pub fn expect_continue(&self) -> bool {
        self.0.expects_continue
    }

    /// `100 Continue`, if the request waits for one.
    pub(super) fn say_continue(&self) {
        if self.0.expects_continue && !self.0.is_answered.get() {
            self.send_interim(StatusCode::CONTINUE, HeaderMap::new());
        }
    }

    /// Sends an interim response. False: it cannot be sent, and is not.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let stream = &*self.0;
        let is_allowed = status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS
            && !stream.is_answered.get()
            && stream.interim.get() < MAX_INTERIM;
        if !is_allowed {
            return false;
        }
        stream.interim.set(stream.interim.get() + 1);
        let mut fields = fields.clone();
        for name in &CONNECTION_SPECIFIC {
            fields.remove(name);
        }
        self.send_interim(status, fields)
    }

    fn send_interim(&self, status: StatusCode, fields: HeaderMap) -> bool {
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        self.0.respond.borrow_mut().send_informational(response).is_ok()
    }

    /// Sends the head of the final response.
    ///
    /// # Errors
    /// The visitor has left.
    pub fn answer(&self, head: Response<()>, is_all: bool) -> Result<SendStream<Bytes>, h2::Error> {
        self.0.is_answered.set(true);
        self.0.respond.borrow_mut().send_response(head, is_all)
    }

    /// Resets the stream instead of an answer.
    pub fn reset(&self, reason: Reason) {
        self.0.is_answered.set(true);
        self.0.respond.borrow_mut().send_reset(reason);
    }

    pub fn end(&self) -> StreamEnd {
        self.0.end.get()
    }

    pub fn mute(&self) {
        self.0.end.set(StreamEnd::Muted);
    }

    pub fn abort(&self) {
        self.0.end.set(StreamEnd::Aborted);
    }

    /// Cuts it off: its task ends it.
    pub fn cut(&self) {
        self.0.end.set(StreamEnd::Cut);
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ready when it has been cut off. One task asks.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        if self.end() == StreamEnd::Cut {
            return Poll::Ready(());
        }
        let mut waker = self.0.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ready when there is nobody to answer any more: the visitor has taken the request back or is gone, or
    /// a policy has cut it off. Until the head of its answer is sent.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.respond.borrow_mut().poll_reset(cx).is_ready() {
            return Poll::Ready(());
        }
        self.poll_cut(cx)
    }
}
