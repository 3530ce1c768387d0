//! The visitor's side of a connection, between the socket and hyper.
//!
//! ```text
//!   socket ─► scratch ─► [ head scan ─► body scan ] ─► hyper ─► service
//!      ▲                       │ refusal                          │
//!      └── answer, linger ◄────┘        interim, final ◄──────────┘
//! ```
//!
//! [`Wire`] follows the framing of requests on the raw bytes and hands hyper only what is canonical, one
//! message at a time: the bytes of the next request stay here until the response to this one is complete.
//! While a visitor waits, hyper therefore reads the socket only to learn whether the visitor has left, and
//! pipelining cannot hide that.
//!
//! Bytes are read into a scratch buffer of the thread and copied to hyper's from there: an idle connection
//! owns no buffer here, and the copy stays in the first-level cache. Rejected: reading into hyper's buffer
//! and scanning there, because bytes of the next message cannot be taken back.
//!
//! When a visitor leaves: hyper asks for more bytes while the service works. At the end of the stream the
//! wire signals "gone" ([`WireHandle::gone`]), and reports the end on hyper's *next* read, whereupon hyper
//! drops the service's future. The one turn between serves visitors who close their sending half after the
//! request: a response that is ready at once still reaches them; a request that would wait is abandoned.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::socket::write_gathered;

mod close;
mod error;
mod framing;
mod handle;
mod head;
mod read;
mod target;
mod write;

pub use error::{BadBody, Refusal, is_bad_body};
pub use framing::BodyScan;
pub use handle::{Tracked, WireHandle};
pub use head::{Facts, Framing, HeadLimits, HeadScan, fuzz_head};

pub(crate) use framing::is_forbidden_trailer;
pub(crate) use head::{MAX_METHOD, alphanumeric_and, decimal, is_token};
pub(crate) use target::{is_authority, is_target};

use handle::Shared;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    pub head: HeadLimits,
    /// From the first byte of a head to its last; also from the connection's start to its first byte.
    pub header_timeout: Duration,
    /// Between a response and the next request.
    pub idle_timeout: Duration,
    /// Silence in a request body, and of a visitor who does not read.
    pub body_timeout: Duration,
}

impl From<&tidegate_settings::Limits> for WireLimits {
    fn from(l: &tidegate_settings::Limits) -> Self {
        Self {
            head: HeadLimits {
                bytes: l.max_header_bytes,
                fields: l.max_headers,
                target: l.max_uri_bytes,
                body: l.max_body_bytes,
            },
            header_timeout: l.header_timeout,
            idle_timeout: l.idle_timeout,
            body_timeout: l.body_timeout,
        }
    }
}

impl WireLimits {
    /// Sets hyper's limits above the wire's, and disables hyper's timer.
    pub fn configure(&self, hyper: &mut hyper::server::conn::http1::Builder) {
        /// hyper's own default; setting it again would cost an allocation per request.
        const FIELDS: usize = 100;
        /// hyper's own default, in bytes.
        const BUFFER: usize = 8192 + 4096 * 100;
        hyper.half_close(false).header_read_timeout(None);
        if self.head.fields > FIELDS {
            hyper.max_headers(self.head.fields);
        }
        if self.head.bytes >= BUFFER {
            hyper.max_buf_size(self.head.bytes + 1);
        }
    }
}

/// Something the wire did on its own; each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEvent {
    /// A head is complete and is passed to the service.
    Request,
    /// A head was refused and answered here ([`Refusal::TooSlow`] is the header timeout).
    Refused(Refusal),
    /// A body was cut off; the service answers ([`BadBody::TooSlow`] is the body timeout).
    BadBody(BadBody),
    /// Closed without a response: nothing came for `idle_timeout` (or, at first, `header_timeout`).
    Idle,
    /// Closed: the visitor did not read for `body_timeout`.
    NotReading,
    /// The visitor closed within a head.
    Truncated,
    Gone,
}

enum Phase {
    /// Waiting for a head, or in it.
    Head(HeadScan),
    Body(BodyScan),
    /// The body was cut off here, for this reason.
    Broken(BadBody),
    /// The request is complete, the response is not.
    Answer,
    Refuse,
    Closed,
}

/// A visitor's socket as hyper sees it. `K` is called with every [`WireEvent`]. `S` is a tokio stream.
pub struct Wire<S, K> {
    socket: S,
    events: K,
    limits: WireLimits,
    shared: Arc<Shared>,
    phase: Phase,
    /// Received and not yet handed to hyper. Empty and without memory most of the time.
    held: Vec<u8>,
    /// How many bytes at the front of `held` hyper may have.
    cleared: usize,
    /// `held` has bytes that the scan has not seen.
    unscanned: bool,
    served: bool,
    ended: bool,
    /// The one turn after the end of the stream has been given.
    graced: bool,
    /// What the wire waits for since hyper's present read, and since when.
    waiting: Option<(Wait, Instant)>,
    /// Since when the visitor does not read.
    stalled: Option<Instant>,
    /// The wire's own bytes for the visitor: interim responses or a refusal.
    out: Vec<u8>,
    out_at: usize,
    timer: LazyTimer,
    linger: close::Linger,
}

/// What a silent connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of its first request.
    First,
    Head,
    Body,
    Idle,
}

impl<S, K: Fn(WireEvent)> Wire<S, K> {
    /// Wraps a newly accepted socket. The header timeout runs from hyper's first read.
    pub fn new(socket: S, limits: WireLimits, events: K) -> (Self, WireHandle) {
        let shared = Arc::new(Shared::default());
        let handle = WireHandle { shared: shared.clone() };
        let wire = Self {
            socket,
            events,
            limits,
            shared,
            phase: Phase::Head(HeadScan::default()),
            held: Vec::new(),
            cleared: 0,
            unscanned: false,
            served: false,
            ended: false,
            graced: false,
            waiting: None,
            stalled: None,
            out: Vec::new(),
            out_at: 0,
            timer: LazyTimer::default(),
            linger: close::Linger::default(),
        };
        (wire, handle)
    }

    /// The socket, and the received bytes that hyper has not read: for a tunnel after an upgrade.
    pub fn into_inner(self) -> (S, Vec<u8>) {
        (self.socket, self.held)
    }

    fn is_pass_through(&self) -> bool {
        self.shared.pass_through.load(Relaxed)
    }

    fn is_mute(&self) -> bool {
        self.shared.muted.load(Relaxed)
    }

    fn emit(&self, event: WireEvent) {
        (self.events)(event);
    }
}

// Nothing in a wire is pinned: the socket is `Unpin`, the timer is boxed.
impl<S: Unpin, K> Unpin for Wire<S, K> {}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Read for Wire<S, K> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.get_mut().read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Write for Wire<S, K> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_mute() {
            return Poll::Ready(Ok(buf.len()));
        }
        this.write(cx, buf, |socket, cx| socket.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_mute() {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let first = bufs.first().map_or(&[][..], |b| b);
        this.write(cx, first, |socket, cx| write_gathered(socket, cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().close(cx).map(Ok)
    }
}

/// One timer per connection, reset as seldom as possible.
///
/// A deadline moves with every request. Resetting a timer each time would cost two operations on the timer
/// wheel. So the deadline is only a number, and the timer stays where it is as long as it fires no later than
/// the deadline; when it fires early, it is set to the present deadline. A busy connection pays one reset per
/// timeout instead of one per request.
#[derive(Default)]
struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed; else the task is woken then, or earlier for nothing.
    fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
