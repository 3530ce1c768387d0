//! Joins two connections after `101 Switching Protocols` (RFC 9110 7.8): WebSocket and others. Either may be
//! a stream of an HTTP/2 connection (RFC 8441).
//!
//! Bytes that either side sent early come first. Between two plain sockets the rest stays in the kernel
//! (`upstream/splice.rs`), else it is copied. The tunnel ends when both directions have ended, when nothing
//! has flowed in either direction for `origin.read_timeout` (as with nginx's `proxy_read_timeout`; WebSocket
//! applications ping), when either side fails, at the drain deadline, or when a policy ends the visitor's
//! connection (WAC 3.3 (e), (f)).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::http::socket::reset_on_close;
use crate::http::visitor_link::{TunnelIo, VisitorUpgrade};
use crate::upstream::balance::InFlight;
use crate::upstream::deadline::Limit;
use crate::upstream::splice::{self, Direction, End};
use crate::upstream::stats::{Stats, add, bump};

/// Size of the buffer of one direction: about what a socket has ready at once. Each tunnel that is not
/// spliced has two.
const BUFFER: usize = 16 << 10;

/// The two connections to be joined, as soon as both have switched.
pub(crate) struct Ends {
    pub(crate) visitor: VisitorUpgrade,
    pub(crate) origin: Box<dyn TunnelIo>,
    /// What was read from the origin behind its 101.
    pub(crate) received: Bytes,
}

/// A tunnel as the task of the visitor's connection sees it. That has given the connection away; through
/// this handle policies still reach it.
#[derive(Default)]
pub struct TunnelHandle {
    state: Cell<TunnelState>,
    notify: Notify,
    keep_alive: RefCell<Option<Box<dyn Any>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum TunnelState {
    /// Not opened yet, or over.
    #[default]
    Closed,
    Open,
    Cut,
}

impl TunnelHandle {
    /// Whether the tunnel is open. Until then the connection's own socket is.
    pub(crate) fn is_open(&self) -> bool {
        self.state.get() == TunnelState::Open
    }

    /// Keeps `guard` (that of the visitor's session) until the tunnel is over; the tunnel must be open.
    pub(crate) fn hold(&self, guard: Option<impl Any>) {
        debug_assert!(self.is_open());
        self.keep_alive.replace(guard.map(|guard| Box::new(guard) as _));
    }

    pub(crate) fn cut(&self) {
        self.change(TunnelState::Cut);
    }

    pub(crate) async fn over(&self) {
        self.until(TunnelState::Closed).await;
    }

    fn change(&self, state: TunnelState) {
        self.state.set(state);
        self.notify.notify_waiters();
    }

    // All users share one thread: the state cannot change between the check and the wait.
    async fn until(&self, state: TunnelState) {
        while self.state.get() != state {
            self.notify.notified().await;
        }
    }
}

/// Keeps the handle's state and `tunnels_open` right, however the tunnel's task ends.
struct OpenTunnel {
    handle: Rc<TunnelHandle>,
    stats: Arc<Stats>,
    _flight: InFlight,
}

impl OpenTunnel {
    fn new(handle: Rc<TunnelHandle>, stats: Arc<Stats>, flight: InFlight) -> Self {
        bump(&stats.tunnels);
        bump(&stats.tunnels_open);
        handle.change(TunnelState::Open);
        Self { handle, stats, _flight: flight }
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        add(&self.stats.tunnels_open, 1u64.wrapping_neg());
        self.handle.keep_alive.take();
        self.handle.change(TunnelState::Closed);
    }
}

pub(crate) struct Tunnels {
    closing: Rc<Closing>,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct Closing {
    closed: Cell<bool>,
    notify: Notify,
}

impl Tunnels {
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        Self { closing: Rc::default(), stats }
    }

    pub(crate) fn close(&self) {
        self.closing.closed.set(true);
        self.closing.notify.notify_waiters();
    }

    /// Joins `ends` in a task of its own, until `handle` is cut.
    pub(crate) fn open(&self, ends: Ends, idle: Limit, flight: InFlight, handle: Rc<TunnelHandle>) {
        let closing = self.closing.clone();
        // Marked as open here, not in the task: the visitor's connection may be asked to end before it runs.
        let open = OpenTunnel::new(handle, self.stats.clone(), flight);
        tokio::task::spawn_local(async move {
            // Locals are dropped in reverse order: the sockets are closed before the handle says so.
            let open = open;
            let mut closed = pin!(closing.notify.notified());
            closed.as_mut().enable();
            if closing.closed.get() {
                return;
            }
            let mut joined = pin!(join(ends, &idle, &open.stats));
            let mut cut = pin!(open.handle.until(TunnelState::Cut));
            let outcome = poll_fn(|cx| match joined.as_mut().poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending if closed.as_mut().poll(cx).is_ready() => Poll::Ready(Ok(())),
                Poll::Pending if cut.as_mut().poll(cx).is_ready() => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            });
            if let Err(e) = outcome.await {
                tracing::debug!("tunnel ended: {e}");
            }
        });
    }
}

async fn join(ends: Ends, idle: &Limit, stats: &Stats) -> io::Result<()> {
    idle.renew();
    let Ends { visitor, mut origin, received } = ends;
    // It may leave before the 101 reaches it.
    let visitor = within(idle, visitor).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut up = Half::new(visitor.received, carried(idle, &stats.tunnel_bytes_up));
    let mut down = Half::new(received, carried(idle, &stats.tunnel_bytes_down));
    let mut visitor = visitor.io;
    if visitor.as_plain().is_some() && origin.as_plain().is_some() {
        let early = poll_fn(|cx| {
            ready!(up.poll_early(cx, &mut origin))?;
            down.poll_early(cx, &mut visitor)
        });
        within(idle, pin!(early)).await??;
        if let (Some(visitor), Some(origin)) = (visitor.as_plain(), origin.as_plain()) {
            return splice(visitor, origin, idle, stats).await;
        }
    }
    let both = poll_fn(|cx| {
        let upward = up.poll(cx, &mut visitor, &mut origin)?;
        let downward = down.poll(cx, &mut origin, &mut visitor)?;
        if upward.is_ready() && downward.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    within(idle, pin!(both)).await?
}

/// Both sides are plain sockets: the bytes stay in the kernel.
async fn splice(visitor: &TcpStream, origin: &TcpStream, idle: &Limit, stats: &Stats) -> io::Result<()> {
    let up = carried(idle, &stats.tunnel_bytes_up);
    let down = carried(idle, &stats.tunnel_bytes_down);
    let joined = splice::join(visitor, origin, Duration::ZERO, |direction, n| match direction {
        Direction::In => up(n),
        Direction::Out => down(n),
    });
    if within(idle, pin!(joined)).await? == End::Reset {
        reset_on_close(visitor.as_raw_fd());
        reset_on_close(origin.as_raw_fd());
    }
    Ok(())
}

/// Counts bytes; each renews the time limit.
fn carried(idle: &Limit, counter: &AtomicU64) -> impl Fn(u64) {
    move |n| {
        idle.renew();
        add(counter, n);
    }
}

async fn within<F: Future + Unpin>(idle: &Limit, mut future: F) -> io::Result<F::Output> {
    poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending if idle.slot.poll_expired(cx) => {
            Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "idle for too long")))
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

struct Half<F> {
    /// Read before the tunnel was opened, and not yet written.
    early: Bytes,
    /// Allocated with the first read.
    buffer: Box<[u8]>,
    /// `from..to` of the buffer was read and not yet written.
    from: usize,
    to: usize,
    unflushed: bool,
    state: HalfState,
    /// Called with the number of bytes carried; 0: something was read.
    carried: F,
}

#[derive(Clone, Copy, PartialEq)]
enum HalfState {
    Flowing,
    /// The reader has ended; the writer is still to be shut down.
    Ending,
    Ended,
}

impl<F: Fn(u64)> Half<F> {
    fn new(early: Bytes, carried: F) -> Self {
        Self {
            early,
            buffer: Box::default(),
            from: 0,
            to: 0,
            unflushed: false,
            state: HalfState::Flowing,
            carried,
        }
    }

    /// Passes on what was read before the tunnel was opened.
    fn poll_early(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.early.is_empty() {
            let n = ready!(Pin::new(&mut *writer).poll_write(cx, &self.early))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.early.advance(n);
            self.unflushed = true;
            (self.carried)(n as u64);
        }
        Poll::Ready(Ok(()))
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_early(cx, writer))?;
        loop {
            while self.from < self.to {
                let part = &self.buffer[self.from..self.to];
                let n = ready!(Pin::new(&mut *writer).poll_write(cx, part))?;
                if n == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.from += n;
                self.unflushed = true;
                (self.carried)(n as u64);
            }
            if self.state == HalfState::Flowing {
                if self.buffer.is_empty() {
                    self.buffer = vec![0; BUFFER].into_boxed_slice();
                }
                let mut buf = ReadBuf::new(&mut self.buffer);
                match Pin::new(&mut *reader).poll_read(cx, &mut buf) {
                    Poll::Ready(read) => {
                        read?;
                        (self.carried)(0);
                        (self.from, self.to) = (0, buf.filled().len());
                        if self.to == 0 {
                            self.state = HalfState::Ending;
                        }
                        continue;
                    }
                    Poll::Pending if self.unflushed => {
                        ready!(Pin::new(&mut *writer).poll_flush(cx))?;
                        self.unflushed = false;
                        return Poll::Pending;
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.state == HalfState::Ending {
                ready!(Pin::new(&mut *writer).poll_shutdown(cx))?;
                self.state = HalfState::Ended;
            }
            return Poll::Ready(Ok(()));
        }
    }
}
