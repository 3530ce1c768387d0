//! The visitor's side of a connection, between the socket and hyper.
//!
//! ```text
//!   socket ─► scratch ─► [ head scan ─► body scan ] ─► hyper ─► service
//!      ▲                       │ refusal                          │
//!      └── answer, linger ◄────┘        interim, final ◄──────────┘
//! ```
//!
//! [`Wire`] follows the framing of requests on the raw bytes and hands hyper only what is canonical, one message at
//! a time: the bytes of the next request stay here until the response to this one is complete. So hyper reads the
//! socket of a visitor who waits only to learn whether they left, and pipelining cannot hide that they did.
//!
//! Bytes land in a scratch buffer of the thread and are copied to hyper's from there: a connection that is idle owns
//! no buffer here, and the copy runs in the first-level cache. Rejected: reading into hyper's buffer and scanning
//! there, because bytes of the next message cannot be taken back.
//!
//! What a visitor who leaves means: hyper asks for more bytes while the service works; at the end of the stream the
//! wire says "gone" ([`WireHandle::gone`]), and on hyper's *next* question reports the end, whereupon hyper drops the
//! service's future. The one turn between is for visitors who close their sending half behind the request: an
//! answer that is ready at once still reaches them; whoever would have to wait is abandoned.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

mod close;
mod error;
mod framing;
mod handle;
mod head;
mod io;
mod read;
mod target;
mod timer;
mod write;

pub use error::{BadBody, Refusal, is_bad_body};
pub use framing::BodyScan;
pub use handle::{Tracked, WireHandle};
pub use head::{Facts, Framing, HeadLimits, HeadScan, fuzz_head};

pub(crate) use framing::is_forbidden_trailer;
pub(crate) use head::{decimal, is_token};
pub(crate) use target::is_authority;

use handle::Shared;
use timer::LazyTimer;

/// What the wire needs to know of `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Limits on a head and on a body.
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
    /// Sets hyper so that its own limits never bite before the wire's, and its own timer is not needed.
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

/// Something the wire did on its own; each wants a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireEvent {
    /// A head is complete and goes to the service.
    Request,
    /// A head was refused and answered here ([`Refusal::TooSlow`] is the header timeout).
    Refused(Refusal),
    /// A body was cut off; the service answers ([`BadBody::TooSlow`] is the body timeout).
    BadBody(BadBody),
    /// Closed without a word: nothing came for `idle_timeout` (or, at first, `header_timeout`).
    Idle,
    /// Closed: the visitor did not read for `body_timeout`.
    NotReading,
    /// The visitor closed in the middle of a head.
    Truncated,
    /// The visitor left while the response was pending.
    Gone,
}

/// Where the connection is.
enum Phase {
    /// Waiting for a head, or in it.
    Head(HeadScan),
    /// In the body of a request.
    Body(BodyScan),
    /// The body was cut off here, for this reason.
    Broken(BadBody),
    /// The request is complete, the response is not.
    Answer,
    /// Writing a refusal, then closing.
    Refuse,
    /// Nothing more will be read.
    Closed,
}

/// A visitor's socket as hyper may see it.
///
/// `K` is told of every [`WireEvent`]. `S` is a tokio stream.
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
    /// A request has been served.
    served: bool,
    /// The socket's stream has ended.
    ended: bool,
    /// The one turn of grace after the end has been given.
    graced: bool,
    /// Since when hyper's present question goes unanswered, and what for.
    waiting: Option<(Wait, Instant)>,
    /// Since when the visitor does not read.
    stalled: Option<Instant>,
    /// Our own bytes for the visitor: interim responses or a refusal.
    out: Vec<u8>,
    out_at: usize,
    timer: LazyTimer,
    linger: close::Linger,
}

/// What a connection that is silent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of its first request.
    First,
    /// The rest of a head.
    Head,
    /// More of a body.
    Body,
    /// Its next request.
    Idle,
}

impl<S, K: Fn(WireEvent)> Wire<S, K> {
    /// Wraps a freshly accepted socket. The header timeout runs from the first time hyper reads.
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

    /// The socket, and the bytes received that nobody has read: for a tunnel after an upgrade.
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
