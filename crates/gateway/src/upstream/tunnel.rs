//! Joins two connections after `101 Switching Protocols` (RFC 9110 7.8): WebSocket and whatever else upgrades.
//!
//! Bytes that either side sent early are in hyper's buffers and come first. The tunnel ends when both directions
//! have ended, when nothing has flowed in either direction for `origin.read_timeout` (as nginx's
//! `proxy_read_timeout` does; WebSocket applications ping), when either side fails, at the drain deadline, or when an order
//! ends or stops what its connection has in hand (WAC 3.3 (e), (f)).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, Write};
use hyper::upgrade::{OnUpgrade, Upgraded};
use tokio::sync::Notify;

use crate::shared::sessions::SessionGuard;
use crate::upstream::balance::InFlight;
use crate::upstream::deadline::Slot;
use crate::upstream::dispatch::stats::{Stats, add, bump};

/// Bytes carried at once and direction: what a socket usually has ready; two of them are a tunnel's memory.
const BUFFER: usize = 16 << 10;

/// The two connections to be joined, as soon as both have switched.
pub(crate) struct Ends {
    pub(crate) visitor: OnUpgrade,
    pub(crate) origin: OnUpgrade,
}

/// A connection's tunnel, as the connection's task sees it: hyper has given it away, and orders still reach it from there.
#[derive(Default)]
pub struct TunnelHandle {
    state: Cell<LineState>,
    notify: Notify,
    /// What keeps its visitor's session alive as long as it is open.
    stay: RefCell<Option<SessionGuard>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum LineState {
    /// Nobody has switched, or no more.
    #[default]
    Closed,
    Open,
    /// To be closed.
    Cut,
}

impl TunnelHandle {
    /// Whether there is a tunnel: until then its socket is open.
    pub(crate) fn is_open(&self) -> bool {
        self.state.get() == LineState::Open
    }

    /// Its visitor's session is kept alive until it is over; it must be open.
    pub(crate) fn hold(&self, stay: Option<SessionGuard>) {
        debug_assert!(self.is_open());
        self.stay.replace(stay);
    }

    /// Closes it, both ways.
    pub(crate) fn cut(&self) {
        self.change(LineState::Cut);
    }

    /// Completes when it is over.
    pub(crate) async fn over(&self) {
        self.until(|state| state == LineState::Closed).await;
    }

    fn change(&self, state: LineState) {
        self.state.set(state);
        self.notify.notify_waiters();
    }

    // One thread: nothing changes between the look and the wait.
    async fn until(&self, is: impl Fn(LineState) -> bool) {
        while !is(self.state.get()) {
            self.notify.notified().await;
        }
    }
}

/// Keeps a line's state right however a tunnel's task ends.
struct OnLine(Rc<TunnelHandle>);

impl OnLine {
    fn new(line: Rc<TunnelHandle>) -> Self {
        line.change(LineState::Open);
        Self(line)
    }
}

impl Drop for OnLine {
    fn drop(&mut self) {
        self.0.stay.take();
        self.0.change(LineState::Closed);
    }
}

/// The tunnels of one worker.
pub(crate) struct Tunnels {
    closing: Rc<Closing>,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct Closing {
    closed: Cell<bool>,
    notify: Notify,
}

/// Keeps `tunnels_open` right however a tunnel's task ends.
struct Open(Arc<Stats>);

impl Open {
    fn new(stats: Arc<Stats>) -> Self {
        bump(&stats.tunnels);
        bump(&stats.tunnels_open);
        Self(stats)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        add(&self.0.tunnels_open, 1u64.wrapping_neg());
    }
}

impl Tunnels {
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        Self { closing: Rc::default(), stats }
    }

    /// Ends all tunnels, those still to come included.
    pub(crate) fn close(&self) {
        self.closing.closed.set(true);
        self.closing.notify.notify_waiters();
    }

    /// Joins `ends` in a task of its own, until `line` is cut.
    pub(crate) fn open(
        &self,
        ends: Ends,
        slot: Rc<Slot>,
        idle_ticks: u64,
        flight: InFlight,
        line: Rc<TunnelHandle>,
    ) {
        let (closing, stats) = (self.closing.clone(), self.stats.clone());
        // From now on, not from the task's first turn on: the visitor's connection may be told to end before that.
        let on_line = OnLine::new(line);
        tokio::task::spawn_local(async move {
            // What is declared first is dropped last: the socket is closed before the line says so.
            let on_line = on_line;
            let _open = Open::new(stats.clone());
            let _flight = flight;
            let mut closed = pin!(closing.notify.notified());
            closed.as_mut().enable();
            if closing.closed.get() {
                return;
            }
            let idle = Idle { slot, ticks: idle_ticks };
            let mut joined = pin!(join(ends, &idle, &stats));
            let mut cut = pin!(on_line.0.until(|state| state == LineState::Cut));
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

struct Idle {
    slot: Rc<Slot>,
    ticks: u64,
}

impl Idle {
    fn renew(&self) {
        self.slot.arm(self.ticks);
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<io::Error> {
        if self.slot.poll_expired(cx) {
            return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "idle for too long"));
        }
        Poll::Pending
    }
}

async fn join(ends: Ends, idle: &Idle, stats: &Stats) -> io::Result<()> {
    idle.renew();
    let mut visitor = switch(ends.visitor, idle).await?;
    let mut origin = switch(ends.origin, idle).await?;
    let (mut up, mut down) = (Half::new(), Half::new());
    poll_fn(|cx| {
        let upward = up.poll(cx, &mut visitor, &mut origin, idle, |n| add(&stats.tunnel_bytes_up, n))?;
        let downward =
            down.poll(cx, &mut origin, &mut visitor, idle, |n| add(&stats.tunnel_bytes_down, n))?;
        if upward.is_ready() && downward.is_ready() {
            return Poll::Ready(Ok(()));
        }
        idle.poll(cx).map(Err)
    })
    .await
}

/// Waits for one side to have switched; the visitor may leave before the 101 reaches it.
async fn switch(mut side: OnUpgrade, idle: &Idle) -> io::Result<Upgraded> {
    poll_fn(|cx| match Pin::new(&mut side).poll(cx) {
        Poll::Ready(upgraded) => Poll::Ready(upgraded.map_err(io::Error::other)),
        Poll::Pending => idle.poll(cx).map(Err),
    })
    .await
}

/// One direction.
struct Half {
    buffer: Box<[u8]>,
    /// What was read and not yet written.
    from: usize,
    to: usize,
    unflushed: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Flowing,
    /// The reader has ended, the writer is to be told.
    Ending,
    Ended,
}

impl Half {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER].into_boxed_slice(),
            from: 0,
            to: 0,
            unflushed: false,
            state: State::Flowing,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut Upgraded,
        writer: &mut Upgraded,
        idle: &Idle,
        count: impl Fn(u64),
    ) -> Result<Poll<()>, io::Error> {
        match self.step(cx, reader, writer, idle, count) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(e)) => Err(e),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn step(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut Upgraded,
        writer: &mut Upgraded,
        idle: &Idle,
        count: impl Fn(u64),
    ) -> Poll<io::Result<()>> {
        loop {
            while self.from < self.to {
                let part = &self.buffer[self.from..self.to];
                let n = ready!(Pin::new(&mut *writer).poll_write(cx, part))?;
                if n == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.from += n;
                self.unflushed = true;
                idle.renew();
                count(n as u64);
            }
            if self.state == State::Flowing {
                let mut buf = ReadBuf::new(&mut self.buffer);
                match Pin::new(&mut *reader).poll_read(cx, buf.unfilled()) {
                    Poll::Ready(read) => {
                        read?;
                        idle.renew();
                        (self.from, self.to) = (0, buf.filled().len());
                        if self.to == 0 {
                            self.state = State::Ending;
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
            if self.state == State::Ending {
                ready!(Pin::new(&mut *writer).poll_shutdown(cx))?;
                self.state = State::Ended;
            }
            return Poll::Ready(Ok(()));
        }
    }
}
