//! The body of the origin's response: it streams, times out, and gives the connection back at its end.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::upstream::balance::{InFlight, Replica};
use crate::upstream::body::{Held, clean};
use crate::upstream::pool::{Conn, Pool};
use crate::upstream::stats::{Stats, bump};

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// `origin.read_timeout` passed without a byte.
    #[error("the origin fell silent within its response")]
    Timeout,
    /// `limits.request_timeout` passed before its end.
    #[error("the request took longer than it may")]
    Overdue,
    /// The visitor was too slow for a shared response.
    #[error("the visitor fell too far behind a shared answer")]
    Behind,
    #[error("the shared answer was broken off")]
    Shared,
    /// The connection was lost, or the chunked coding is wrong.
    #[error("the origin broke off its response: {0}")]
    Origin(#[source] hyper::Error),
}

/// The body of a response from the origin. Holds the connection and the replica's in-flight slot until the
/// body has ended, failed or been dropped.
#[derive(Debug)]
pub struct UpstreamBody {
    incoming: Incoming,
    lease: Option<Lease>,
    read_ticks: u64,
}

pub(crate) struct Lease {
    pub(crate) pool: Rc<Pool>,
    pub(crate) stats: std::sync::Arc<Stats>,
    pub(crate) conn: Conn,
    pub(crate) flight: InFlight,
    pub(crate) held: Option<Rc<Held>>,
    pub(crate) reusable: bool,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("replica", &self.flight.replica().authority()).finish_non_exhaustive()
    }
}

impl Lease {
    /// The whole response is here.
    fn complete(self) {
        // The origin answered without reading the whole request: the rest of it is not sent.
        let unsent = self.held.as_ref().filter(|h| !h.has_ended());
        match unsent {
            Some(held) => held.cancel(),
            None if self.reusable => self.pool.checkin(self.flight.replica(), self.conn),
            None => {}
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Dropped early: the visitor left. Dropping the connection's sender makes hyper close the connection,
        // and the rest of the request is dropped with it.
        if let Some(lease) = self.lease.take()
            && let Some(held) = lease.held
        {
            held.cancel();
        }
    }
}

impl UpstreamBody {
    pub(crate) fn new(incoming: Incoming, lease: Lease, read_ticks: u64) -> Self {
        let mut this = Self { incoming, lease: Some(lease), read_ticks };
        if this.incoming.is_end_stream() {
            this.complete();
        }
        this
    }

    /// The replica that sends it; `None` once it has ended, and for a tunnel.
    pub fn replica(&self) -> Option<&std::sync::Arc<Replica>> {
        self.lease.as_ref().map(|lease| lease.flight.replica())
    }

    /// The body of a 101: the connection belongs to the tunnel now.
    pub(crate) fn detached(incoming: Incoming) -> Self {
        Self { incoming, lease: None, read_ticks: 0 }
    }

    fn complete(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.complete();
        }
    }

    fn fail(&mut self, count: impl Fn(&Stats)) {
        if let Some(lease) = self.lease.take() {
            count(&lease.stats);
            if let Some(held) = lease.held {
                held.cancel();
            }
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if this.incoming.is_end_stream() {
                    this.complete();
                } else if let Some(lease) = &this.lease {
                    lease.conn.slot.disarm();
                }
                Poll::Ready(Some(Ok(clean(frame))))
            }
            Poll::Ready(Some(Err(e))) => {
                this.fail(|s| bump(&s.body_reset));
                Poll::Ready(Some(Err(BodyError::Origin(e))))
            }
            Poll::Ready(None) => {
                this.complete();
                Poll::Ready(None)
            }
            Poll::Pending => {
                // After an error was returned, there is no lease and no limit.
                let Some(lease) = &this.lease else { return Poll::Pending };
                let slot = &lease.conn.slot;
                if !slot.is_armed() {
                    slot.arm(this.read_ticks);
                }
                if !slot.poll_expired(cx) {
                    return Poll::Pending;
                }
                this.fail(|s| bump(&s.body_timeout));
                Poll::Ready(Some(Err(BodyError::Timeout)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
