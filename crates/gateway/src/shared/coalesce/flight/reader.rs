//! Readers of a flight's answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{End, Flight, Head};
use crate::upstream::dispatch::BodyError;

pub(crate) struct Reader {
    pub(crate) flight: Arc<Flight>,
    pub(crate) id: u64,
    /// Number of the next chunk, and the bytes read before it.
    pub(crate) next: u64,
    pub(crate) taken: u64,
    pub(crate) is_over: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flight.state.lock();
        state.leaves(self.next);
        state.wakers.remove(&self.id);
        self.flight.shrink(&mut state);
        state.wake_fetcher_if_unwanted();
    }
}

impl Reader {
    /// Waits for the head; `None`: it will not come.
    pub(crate) async fn landed(&self) -> Option<Arc<Head>> {
        poll_fn(|cx| {
            let mut state = self.flight.state.lock();
            if state.head.is_some() || state.end.is_some() {
                return Poll::Ready(state.head.clone());
            }
            state.wakers.insert(self.id, cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub(crate) fn into_body(mut self) -> SharedBody {
        let is_empty = {
            let state = self.flight.state.lock();
            state.end == Some(End::Complete) && state.come == 0
        };
        self.is_over = is_empty;
        SharedBody(self)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = self.flight.state.lock();
        let Some(at) = self.next.checked_sub(state.first) else {
            return Poll::Ready(Some(Err(BodyError::Behind)));
        };
        if let Some(chunk) = state.chunks.get(at as usize).cloned() {
            state.leaves(self.next);
            self.next += 1;
            state.is_at(self.next);
            self.taken += chunk.len() as u64;
            let is_fastest = self.taken > state.taken;
            state.taken = state.taken.max(self.taken);
            self.flight.shrink(&mut state);
            if is_fastest
                && state.is_window
                && let Some(fetcher) = state.fetcher.take()
            {
                fetcher.wake();
            }
            return Poll::Ready(Some(Ok(chunk)));
        }
        match state.end {
            Some(End::Complete) => Poll::Ready(None),
            Some(End::Broken) => Poll::Ready(Some(Err(BodyError::Shared))),
            None => {
                state.wakers.insert(self.id, cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

pub struct SharedBody(Reader);

impl Body for SharedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.0.is_over {
            return Poll::Ready(None);
        }
        let polled = self.0.poll(cx);
        self.0.is_over = matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_over
    }

    fn size_hint(&self) -> SizeHint {
        if self.0.is_over { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}
