//! Bodies of answers: ready at once, or a chunk every 100 ms until the model says that the answer ends.
//!
//! The head and the first byte go at once, the last one at the end and not before; in between, as much as the
//! time that has passed. A visitor who closes the connection meanwhile is noticed: hyper drops the body.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full as Whole;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::reply::Leaving;

/// Time between two chunks: short enough to keep every timeout of an idle connection away, long enough to
/// cost nothing.
const EVERY: Duration = Duration::from_millis(100);

pub struct Body(Kind);

enum Kind {
    Whole(Whole<Bytes>),
    Slow(Box<Slow>),
}

struct Slow {
    left: Bytes,
    total: usize,
    began: Instant,
    ends: Instant,
    timer: Pin<Box<Sleep>>,
    /// Tells the model when it is dropped.
    _leaving: Option<Leaving>,
}

impl Body {
    pub fn whole(body: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Whole::new(body.into())))
    }

    /// From now until `ends`.
    pub(super) fn slow(body: Bytes, ends: Instant, leaving: Option<Leaving>) -> Self {
        let (began, total) = (Instant::now(), body.len());
        let timer = Box::pin(sleep_until(began));
        Self(Kind::Slow(Box::new(Slow { left: body, total, began, ends, timer, _leaving: leaving })))
    }
}

impl Slow {
    /// Bytes that may have been sent by `now`.
    fn due(&self, now: Instant) -> usize {
        if now >= self.ends {
            return self.total;
        }
        let passed = (now - self.began).as_secs_f64() / (self.ends - self.began).as_secs_f64();
        let between = self.total.saturating_sub(2) as f64 * passed;
        (1 + between as usize).min(self.total.saturating_sub(1))
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while !self.left.is_empty() {
            let now = Instant::now();
            let chunk = (self.due(now) + self.left.len()).saturating_sub(self.total);
            if chunk > 0 {
                return Poll::Ready(Some(self.left.split_to(chunk)));
            }
            self.timer.as_mut().reset((now + EVERY).min(self.ends));
            ready!(self.timer.as_mut().poll(context));
        }
        Poll::Ready(None)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(body) => Pin::new(body).poll_frame(context),
            Kind::Slow(slow) => {
                slow.poll_chunk(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Slow(slow) => slow.left.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Slow(slow) => SizeHint::with_exact(slow.left.len() as u64),
        }
    }
}
