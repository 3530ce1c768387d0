//! The body of a visitor's response: the gate's own bytes, or the origin's as they come.
//!
//! However the origin's body ends, its [`Completion`] runs exactly once: it gives the in-flight slot back,
//! and measures and logs the exchange.
//!
//! A body within the bandwidth of a throttle is sent in slices (`response_body/shaped.rs`).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

mod shaped;

pub use shaped::Shaping;

use crate::config::page::Pieces;
use crate::http::tunnel_io::Splice;
use crate::shared::coalesce::SharedBody;
use shaped::Shaped;

use crate::shared::sessions::SessionGuard;
use crate::upstream::body::Outcome;
use crate::upstream::dispatch::{BodyError, SpliceError, UpstreamBody};

pub trait Completion {
    /// `bytes` of data went towards the visitor; `error` is what broke the body off.
    fn complete(self, bytes: u64, outcome: Outcome, error: Option<&BodyError>);
}

pub enum ResponseBody<C: Completion> {
    Own(Pieces),
    Origin(Watched<C>),
    /// The origin's, and others'; and what keeps its visitor's session alive as long as it is under way.
    Shared(SharedBody, Option<SessionGuard>),
    /// One of these within the bandwidth of a throttle.
    Shaped(Box<Shaped<C>>),
}

pub struct Watched<C: Completion> {
    body: UpstreamBody,
    bytes: u64,
    /// When it must have ended; allocated only where `limits.request_timeout` is set.
    deadline: Option<Pin<Box<Sleep>>>,
    completion: Option<C>,
}

impl<C: Completion> ResponseBody<C> {
    /// The origin's body, broken off at `deadline`; `completion` runs when it has ended.
    pub fn origin(body: UpstreamBody, deadline: Option<Instant>, completion: C) -> Self {
        let deadline = deadline.map(|at| Box::pin(sleep_until(at)));
        Self::Origin(Watched { body, bytes: 0, deadline, completion: Some(completion) })
    }

    /// The same within the bandwidth of a throttle. What is empty stays as it is.
    pub fn shaped(self, shaping: Shaping) -> Self {
        if self.is_end_stream() { self } else { Self::Shaped(Box::new(Shaped::new(self, shaping))) }
    }
}

impl<C: Completion> Watched<C> {
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        self.deadline.as_mut().is_some_and(|at| at.as_mut().poll(cx).is_ready())
    }

    fn end(&mut self, outcome: Outcome, error: Option<&BodyError>) {
        if let Some(completion) = self.completion.take() {
            completion.complete(self.bytes, outcome, error);
        }
    }
}

impl<C: Completion> ResponseBody<C> {
    /// The origin's body, if what comes next can be moved to a plain socket within the kernel.
    pub(crate) fn spliced(&mut self) -> Option<&mut dyn Splice> {
        match self {
            Self::Origin(watched) if watched.body.can_splice() => Some(watched),
            _ => None,
        }
    }
}

impl<C: Completion> Splice for Watched<C> {
    fn poll_splice(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<u64>> {
        let moved = if self.is_overdue(cx) {
            Err(SpliceError::Origin(BodyError::Overdue))
        } else {
            ready!(self.body.poll_splice(cx, to))
        };
        Poll::Ready(match moved {
            Ok(n) => {
                self.bytes += n;
                if self.body.is_end_stream() {
                    self.end(Outcome::Complete, None);
                }
                Ok(n)
            }
            Err(SpliceError::Origin(error)) => {
                self.end(Outcome::Failed, Some(&error));
                Err(io::Error::other(error))
            }
            Err(SpliceError::Visitor(error)) => Err(error),
        })
    }

    fn waits_for_socket(&self) -> bool {
        self.body.waits_for_visitor()
    }
}

impl<C: Completion> Drop for Watched<C> {
    fn drop(&mut self) {
        // The connection does not ask again once it knows the end from the length.
        let outcome = if self.body.is_end_stream() { Outcome::Complete } else { Outcome::Aborted };
        self.end(outcome, None);
    }
}

impl<C: Completion> From<Pieces> for ResponseBody<C> {
    fn from(pieces: Pieces) -> Self {
        Self::Own(pieces)
    }
}

// Nothing is pinned structurally: the origin's body is `Unpin`.
impl<C: Completion> Unpin for ResponseBody<C> {}

impl<C: Completion> Body for ResponseBody<C> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let watched = match &mut *self {
            Self::Own(pieces) => return Poll::Ready(pieces.take().map(|piece| Ok(Frame::data(piece)))),
            Self::Origin(watched) => watched,
            Self::Shared(shared, _) => return Pin::new(shared).poll_frame(cx),
            Self::Shaped(shaped) => return shaped.poll_frame(cx),
        };
        if watched.is_overdue(cx) {
            watched.end(Outcome::Failed, Some(&BodyError::Overdue));
            return Poll::Ready(Some(Err(BodyError::Overdue)));
        }
        let frame = ready!(Pin::new(&mut watched.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                watched.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if watched.body.is_end_stream() {
                    watched.end(Outcome::Complete, None);
                }
            }
            Some(Err(error)) => watched.end(Outcome::Failed, Some(error)),
            None => watched.end(Outcome::Complete, None),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(pieces) => pieces.is_empty(),
            Self::Origin(watched) => watched.body.is_end_stream(),
            Self::Shared(shared, _) => shared.is_end_stream(),
            Self::Shaped(shaped) => shaped.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(pieces) => SizeHint::with_exact(pieces.len() as u64),
            Self::Origin(watched) => watched.body.size_hint(),
            Self::Shared(shared, _) => shared.size_hint(),
            Self::Shaped(shaped) => shaped.size_hint(),
        }
    }
}
