//! The body of a response that comes by HTTP/2.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};

use super::Taken;
use super::upload::Upload;
use crate::upstream::balance::InFlight;
use crate::upstream::body::clean;
use crate::upstream::deadline::Slot;
use crate::upstream::dispatch::{BodyError, OriginError};
use crate::upstream::stats::{Stats, bump};

/// Holds the stream and the replica's in-flight slot until the body has been received, has failed or been
/// dropped. What is left of the stream is then reset.
pub(crate) struct Http2Body {
    stream: RecvStream,
    came: u64,
    length: Option<u64>,
    lease: Option<Lease>,
    has_failed: bool,
}

/// What an exchange occupies.
pub(crate) struct Lease {
    pub(crate) _stream: Taken,
    pub(crate) _flight: InFlight,
    /// The request, of which not all may have been sent.
    pub(crate) upload: Upload,
    pub(crate) slot: Rc<Slot>,
    pub(crate) read_ticks: u64,
    pub(crate) stats: Arc<Stats>,
}

impl Http2Body {
    /// `length`: of a body that has content, if the head said it.
    pub(crate) fn new(stream: RecvStream, length: Option<u64>, lease: Lease) -> Self {
        let lease = (!stream.is_end_stream()).then_some(lease);
        Self { stream, came: 0, length, lease, has_failed: false }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.has_failed = true;
        if let Some(lease) = self.lease.take() {
            let stats = &lease.stats;
            bump(if matches!(error, BodyError::Timeout) { &stats.body_timeout } else { &stats.body_reset });
        }
        Poll::Ready(Some(Err(error)))
    }

    /// Nothing came. Ready when that has lasted too long.
    fn poll_silence(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(lease) = &self.lease else { return Poll::Pending };
        if !lease.slot.is_armed() {
            lease.slot.arm(lease.read_ticks);
        }
        if lease.slot.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Some(lease) = &mut this.lease else { return Poll::Ready(None) };
        if let Poll::Ready(Err(_)) = lease.upload.poll(cx, || lease.slot.disarm()) {
            return this.fail(BodyError::Origin(OriginError::Request));
        }
        loop {
            match this.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) if data.is_empty() => {}
                Poll::Ready(Some(Ok(data))) => {
                    lease.slot.disarm();
                    this.came += data.len() as u64;
                    // Only an ended stream refuses it.
                    let _ = this.stream.flow_control().release_capacity(data.len());
                    if this.stream.is_end_stream() {
                        this.lease = None;
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return this.fail(BodyError::Origin(error.into())),
                Poll::Ready(None) => break,
                Poll::Pending => {
                    return match this.poll_silence(cx) {
                        Poll::Ready(()) => this.fail(BodyError::Timeout),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        match this.stream.poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) => {
                this.lease = None;
                let trailers = trailers.map(|trailers| clean(Frame::trailers(trailers)));
                Poll::Ready(trailers.map(Ok))
            }
            Poll::Ready(Err(error)) => this.fail(BodyError::Origin(error.into())),
            Poll::Pending => match this.poll_silence(cx) {
                Poll::Ready(()) => this.fail(BodyError::Timeout),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() && !self.has_failed
    }

    fn size_hint(&self) -> SizeHint {
        if self.lease.is_none() {
            return SizeHint::with_exact(0);
        }
        self.length.map_or_else(SizeHint::default, |all| SizeHint::with_exact(all.saturating_sub(self.came)))
    }
}
