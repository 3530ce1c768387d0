//! A request's body on its way to an HTTP/2 origin, within the origin's windows.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::HeaderMap;
use http_body::{Body, Frame};

use crate::http::http2::CONNECTION_SPECIFIC;
use crate::upstream::body::{BoxError, RequestBody, clean};

pub(crate) struct Upload {
    stream: SendStream<Bytes>,
    body: RequestBody,
    /// Taken from the body, and waiting for room.
    piece: Bytes,
    last: Option<Last>,
    /// A part of the body was taken: it cannot be sent again.
    has_begun: bool,
    is_open: bool,
    /// The last look at the body found nothing: the visitor is slow, not the origin.
    is_starved: bool,
    is_over: bool,
}

enum Last {
    End,
    Trailers(HeaderMap),
}

impl Upload {
    /// `waits`: nothing is asked for until [`Upload::open`].
    pub(super) fn new(stream: SendStream<Bytes>, body: RequestBody, is_all: bool, waits: bool) -> Self {
        Self {
            stream,
            body,
            piece: Bytes::new(),
            last: None,
            has_begun: false,
            is_open: !waits,
            is_starved: false,
            is_over: is_all,
        }
    }

    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The stream, to be written to by another; what was left of the body is dropped.
    pub(crate) fn into_stream(self) -> SendStream<Bytes> {
        self.stream
    }

    /// Ends the request's side of a stream that was kept open without a body.
    pub(super) fn end(&mut self) {
        // A stream that has been reset has ended as well.
        let _ = self.stream.send_data(Bytes::new(), true);
    }

    pub(super) fn is_starved(&self) -> bool {
        self.is_starved && !self.is_over
    }

    /// The body for another attempt; `None`: a part of it has been taken.
    pub(super) fn into_body(self) -> Option<RequestBody> {
        (!self.has_begun).then_some(self.body)
    }

    /// Sends what there is and what has room; ready at its end, or when the origin takes no more (which its
    /// response says why). `progress` is called when something was sent.
    ///
    /// # Errors
    /// The visitor's side failed.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut progress: impl FnMut(),
    ) -> Poll<Result<(), BoxError>> {
        while !self.is_over {
            if !self.piece.is_empty() {
                self.stream.reserve_capacity(self.piece.len());
                if self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(_)) => continue,
                        _ => return self.stop(),
                    }
                }
                let part = self.piece.split_to(self.stream.capacity().min(self.piece.len()));
                let is_last = self.piece.is_empty() && matches!(self.last, Some(Last::End));
                progress();
                if self.stream.send_data(part, is_last).is_err() {
                    return self.stop();
                }
                self.is_over = is_last;
                continue;
            }
            if let Some(last) = self.last.take() {
                self.is_over = true;
                // If it fails, the stream has ended: its response says how.
                let _ = match last {
                    Last::End => self.stream.send_data(Bytes::new(), true),
                    Last::Trailers(trailers) => self.stream.send_trailers(trailers),
                };
                progress();
                break;
            }
            if !self.is_open {
                return Poll::Pending;
            }
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            self.is_starved = frame.is_pending();
            let frame = ready!(frame);
            self.has_begun = true;
            match frame.transpose()? {
                Some(frame) => self.take(frame),
                None => self.last = Some(Last::End),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn stop(&mut self) -> Poll<Result<(), BoxError>> {
        self.is_over = true;
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        match clean(frame).into_data() {
            Ok(data) => {
                self.piece = data;
                if self.body.is_end_stream() {
                    self.last = Some(Last::End);
                }
            }
            Err(frame) => {
                let mut trailers = frame.into_trailers().unwrap_or_default();
                for name in &CONNECTION_SPECIFIC {
                    trailers.remove(name);
                }
                self.last = Some(if trailers.is_empty() { Last::End } else { Last::Trailers(trailers) });
            }
        }
    }
}
