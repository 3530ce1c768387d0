//! The body of a request, as the service reads it.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_http::BadBody;

use super::exchange::{Exchange, Taken};

type BoxError = Box<dyn Error + Send + Sync>;

/// The visitor has left before the end of its request's body.
#[derive(Debug, thiserror::Error)]
#[error("the visitor has left within the body")]
pub struct Left;

/// The body of one request. It may be read in another task than the connection's, and outlive its request.
pub struct Http1Body {
    /// `None`: the request has no body.
    exchange: Option<Rc<Exchange>>,
    number: u64,
}

impl Http1Body {
    pub(super) fn new(exchange: &Rc<Exchange>) -> Self {
        let number = exchange.number.get();
        let exchange = (!exchange.content.borrow().is_taken()).then(|| exchange.clone());
        Self { exchange, number }
    }

    /// Its exchange, while that is the connection's present one.
    fn present(&self) -> Option<&Exchange> {
        self.exchange.as_deref().filter(|exchange| exchange.number.get() == self.number)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        if let Some(exchange) = self.present() {
            exchange.content.borrow_mut().is_dropped = true;
        }
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.exchange.is_none() {
            return Poll::Ready(None);
        }
        let Some(exchange) = self.present() else { return Poll::Ready(Some(Err(Left.into()))) };
        Poll::Ready(match exchange.take(cx) {
            Taken::Data(data) => Some(Ok(Frame::data(data))),
            Taken::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            Taken::End => None,
            Taken::Bad(bad) => Some(Err(bad.into())),
            Taken::Left => Some(Err(Left.into())),
            Taken::Nothing => return Poll::Pending,
        })
    }

    fn is_end_stream(&self) -> bool {
        match (&self.exchange, self.present()) {
            (None, _) => true,
            (_, None) => false,
            (_, Some(exchange)) => exchange.content.borrow().is_taken(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match (&self.exchange, self.present()) {
            (None, _) => Some(0),
            (_, None) => None,
            (_, Some(exchange)) => exchange.content.borrow().left(),
        };
        left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

impl std::fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Http1Body")
    }
}

/// Why the connection cut a request's body off, if `error` or one of its causes says so.
pub fn is_bad_body(error: &(dyn Error + 'static)) -> Option<BadBody> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(bad) = error.downcast_ref::<BadBody>() {
            return Some(*bad);
        }
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
            && let Some(bad) = inner.downcast_ref::<BadBody>()
        {
            return Some(*bad);
        }
        next = error.source();
    }
    None
}
