//! What the service and the connection tell each other past hyper: facts about the request, interim
//! responses, the end of a response, the departure of the visitor.
//!
//! Everything here belongs to one connection, and so to one thread. It is atomic because hyper's upgrades
//! require `Send`; without contention that costs nothing measurable.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::head::Facts;

/// Bytes of interim responses that may wait for the visitor to read; more are dropped. An interim response is
/// only a hint.
const MAX_INTERIM: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) http_11: AtomicBool,
    pub(crate) expect_continue: AtomicBool,
    pub(crate) pass_through: AtomicBool,
    pub(crate) gone: AtomicBool,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// The first byte of the present request's final response has been written.
    pub(crate) final_started: AtomicBool,
    /// The present response has a [`Tracked`] body.
    pub(crate) tracked: AtomicBool,
    /// hyper has dropped that body: all of it is in hyper's buffer.
    pub(crate) body_done: AtomicBool,
    pub(crate) interim_waits: AtomicBool,
    pub(crate) interim: Mutex<Vec<u8>>,
    pub(crate) waker: Mutex<Option<Waker>>,
    /// A request is being served: from its head to the end of its response.
    pub(crate) busy: AtomicBool,
    /// Nothing more is written.
    pub(crate) muted: AtomicBool,
    /// The connection ends without closing handshake or linger.
    pub(crate) aborted: AtomicBool,
    left: Notify,
}

impl Shared {
    /// Remembers the task to wake when the service has something to write.
    pub(crate) fn remember(&self, waker: &Waker) {
        let mut slot = self.waker.lock();
        if !slot.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn set_gone(&self) {
        if !self.gone.swap(true, Relaxed) {
            self.left.notify_waiters();
        }
    }

    pub(crate) fn next_request(&self, facts: &Facts) {
        self.busy.store(true, Relaxed);
        self.http_11.store(facts.http_11, Relaxed);
        self.expect_continue.store(facts.expect_continue, Relaxed);
        self.final_started.store(false, Relaxed);
        self.tracked.store(false, Relaxed);
        self.body_done.store(false, Relaxed);
        if self.interim_waits.swap(false, Relaxed) {
            self.interim.lock().clear();
        }
    }

    /// Whether all of the present response has been written; valid only when hyper has nothing left to write.
    pub(crate) fn is_answered(&self) -> bool {
        self.final_started.load(Relaxed) && (!self.tracked.load(Relaxed) || self.body_done.load(Relaxed))
    }
}

/// The service's end of a connection's wire. Cheap to clone.
#[derive(Clone)]
pub struct WireHandle {
    pub(crate) shared: Arc<Shared>,
}

impl WireHandle {
    pub fn version(&self) -> Version {
        if self.shared.http_11.load(Relaxed) { Version::HTTP_11 } else { Version::HTTP_10 }
    }

    /// Whether the present request asked for `100 Continue`. hyper sends it when the body is first polled.
    pub fn expect_continue(&self) -> bool {
        self.shared.expect_continue.load(Relaxed)
    }

    pub fn bytes_in(&self) -> u64 {
        self.shared.bytes_in.load(Relaxed)
    }

    pub fn bytes_out(&self) -> u64 {
        self.shared.bytes_out.load(Relaxed)
    }

    /// Bytes after the present request are no longer HTTP. To be called before answering 101 (RFC 9110 7.8).
    pub fn pass_through(&self) {
        self.shared.pass_through.store(true, Relaxed);
    }

    pub fn is_gone(&self) -> bool {
        self.shared.gone.load(Relaxed)
    }

    /// Whether a request is being served: its response has not been written completely.
    pub fn is_busy(&self) -> bool {
        self.shared.busy.load(Relaxed)
    }

    /// From now on nothing is written: hyper's output is dropped, and the connection closes as usual.
    pub fn mute(&self) {
        self.shared.muted.store(true, Relaxed);
    }

    /// As [`WireHandle::mute`], and the connection closes at once; the socket's options decide how.
    pub fn abort(&self) {
        self.mute();
        self.shared.aborted.store(true, Relaxed);
    }

    /// Completes when the visitor closes or resets the connection while the response is pending.
    ///
    /// Needed only by work outside the service's future: hyper drops that future one poll later.
    pub async fn gone(&self) {
        loop {
            let left = self.shared.left.notified();
            if self.is_gone() {
                return;
            }
            left.await;
        }
    }

    /// Sends an interim response (RFC 9110 15.2) before the present request's final one.
    ///
    /// Returns false and sends nothing if the visitor uses HTTP/1.0, the final response has begun, `status`
    /// is not 1xx or is 101, or too many already wait.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let shared = &*self.shared;
        let allowed = status.is_informational()
            && status != StatusCode::SWITCHING_PROTOCOLS
            && shared.http_11.load(Relaxed)
            && !shared.final_started.load(Relaxed)
            && !shared.pass_through.load(Relaxed)
            && !shared.gone.load(Relaxed);
        if !allowed {
            return false;
        }
        let mut out = shared.interim.lock();
        let before = out.len();
        write_interim(&mut out, status, fields);
        if out.len() > MAX_INTERIM {
            out.truncate(before);
            return false;
        }
        drop(out);
        shared.interim_waits.store(true, Relaxed);
        shared.wake();
        true
    }

    /// Wraps the body of the present response, so that the wire knows when the response has ended; only then
    /// does hyper see the next pipelined request. Every response should have one.
    pub fn track<B>(&self, body: B) -> Tracked<B> {
        self.shared.tracked.store(true, Relaxed);
        Tracked { body, shared: self.shared.clone() }
    }
}

fn write_interim(out: &mut Vec<u8>, status: StatusCode, fields: &HeaderMap) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    // The phrase may be empty, the space before it may not (RFC 9112 4).
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// A response body that tells the wire when hyper has taken all of it: see [`WireHandle::track`].
pub struct Tracked<B> {
    body: B,
    shared: Arc<Shared>,
}

impl<B> Drop for Tracked<B> {
    fn drop(&mut self) {
        self.shared.body_done.store(true, Relaxed);
    }
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
