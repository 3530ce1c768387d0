//! Sends the body of an answer within the visitor's windows.
//!
//! Nothing is handed to `h2` that the windows do not have room for, so that a visitor who reads slowly, or
//! not at all, makes the gate hold one piece of each answer, and is noticed: a stream whose window stays shut
//! for `limits.body_timeout` is reset. The next piece is asked for when the last one is on its way.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::http2::CONNECTION_SPECIFIC;
use crate::http::http2::link::StreamLink;
use crate::http::http2::watch::Watch;
use crate::proxy::response_body::{Completion, ResponseBody};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendEnd {
    Complete,
    /// The visitor has taken the request back or is gone, or a policy has cut it off.
    Left,
    /// The answer was broken off.
    Broken,
    NotReading,
}

pub(super) struct Sending<C: Completion> {
    stream: SendStream<Bytes>,
    body: ResponseBody<C>,
    link: StreamLink,
    watch: Rc<Watch>,
    /// Asked for, and waiting for room.
    piece: Bytes,
    /// What comes after it.
    last: Option<Last>,
    patience: Duration,
    stall: Option<Pin<Box<Sleep>>>,
}

enum Last {
    End,
    Trailers(HeaderMap),
}

impl<C: Completion> Sending<C> {
    pub(super) fn new(
        stream: SendStream<Bytes>,
        body: ResponseBody<C>,
        patience: Duration,
        link: StreamLink,
        watch: Rc<Watch>,
    ) -> Self {
        Self { stream, body, link, watch, piece: Bytes::new(), last: None, patience, stall: None }
    }

    /// Hands on as much of the piece as there is room for. Ready when none is left.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendEnd>> {
        while !self.piece.is_empty() {
            self.stream.reserve_capacity(self.piece.len());
            let room = self.stream.capacity();
            if room == 0 {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(_) => return Poll::Ready(Err(SendEnd::Left)),
                    Poll::Pending => {
                        ready!(self.poll_stall(cx));
                        self.stream.send_reset(Reason::CANCEL);
                        return Poll::Ready(Err(SendEnd::NotReading));
                    }
                }
            }
            self.stall = None;
            let part = self.piece.split_to(room.min(self.piece.len()));
            let is_last = self.piece.is_empty() && matches!(self.last, Some(Last::End));
            if self.stream.send_data(part, is_last).is_err() {
                return Poll::Ready(Err(SendEnd::Left));
            }
            if is_last {
                return Poll::Ready(Err(SendEnd::Complete));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// There is no room. Ready when that has lasted too long. Where nothing of the connection is read, that
    /// is its own task's matter.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        loop {
            let stall = self.stall.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
            ready!(stall.as_mut().poll(cx));
            if self.watch.stalled_since().is_none() {
                return Poll::Ready(());
            }
            self.stall = None;
        }
    }

    fn finish(&mut self, last: Last) -> SendEnd {
        let sent = match last {
            Last::End => self.stream.send_data(Bytes::new(), true),
            Last::Trailers(mut trailers) => {
                for name in &CONNECTION_SPECIFIC {
                    trailers.remove(name);
                }
                self.stream.send_trailers(trailers)
            }
        };
        if sent.is_ok() { SendEnd::Complete } else { SendEnd::Left }
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => {
                self.piece = data;
                if self.body.is_end_stream() {
                    self.last = Some(Last::End);
                }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                self.last = Some(if trailers.is_empty() { Last::End } else { Last::Trailers(trailers) });
            }
        }
    }
}

impl<C: Completion> Unpin for Sending<C> {}

impl<C: Completion> Future for Sending<C> {
    type Output = SendEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SendEnd> {
        let this = self.get_mut();
        if this.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(SendEnd::Left);
        }
        if this.link.poll_cut(cx).is_ready() {
            this.stream.send_reset(Reason::CANCEL);
            return Poll::Ready(SendEnd::Left);
        }
        loop {
            if let Err(end) = ready!(this.poll_piece(cx)) {
                return Poll::Ready(end);
            }
            if let Some(last) = this.last.take() {
                return Poll::Ready(this.finish(last));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => this.take(frame),
                None => this.last = Some(Last::End),
                Some(Err(_)) => {
                    this.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(SendEnd::Broken);
                }
            }
        }
    }
}
