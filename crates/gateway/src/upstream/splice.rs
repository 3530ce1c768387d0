//! Joins two TCP connections in the kernel: bytes go from socket to pipe to socket by splice(2), and never
//! come to user space.
//!
//! ```text
//! visitor ─splice─► pipe ─splice─► service          a pipe a direction, only while bytes are in it
//! service ─splice─► pipe ─splice─► visitor
//! ```
//!
//! - **Pipes** belong to the thread and are lent to a direction while it has bytes: a connection that idles
//!   has none. They have the system's size, 16 buffers, each of which takes what the network card or the
//!   sender's socket has put into one piece: 64 KiB at least. More would save system calls, but the kernel
//!   permits an unprivileged user 64 MiB in pipes of all sizes, after which they are of two buffers.
//! - **Back-pressure**: a direction reads again when its pipe is empty. So "would block" has one meaning on
//!   each side: nothing has come, or the receiver's buffer is full.
//! - **Half-close**: the end of one direction is passed on (FIN), the other goes on.
//! - **Resets** are passed on. What a side had sent before its reset is delivered, as far as it was received.
//!
//! Rejected: a pipe as long as the connection (two more descriptors and 128 KiB for those that idle); copying
//! with a buffer (each byte twice through the cache); `SPLICE_F_MORE` (it delays an answer's last bytes).

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Most bytes of one call. A pipe takes less, so this is no limit.
const MOST: usize = 1 << 20;
/// Pieces in a row before other connections of the thread have their turn: at most some MiB.
const TURN: u32 = 16;
/// Empty pipes that a thread keeps: as many connections as have bytes in the same instant. A pipe without
/// bytes is a kilobyte.
const KEPT: usize = 64;

/// A way that bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the visitor to the service.
    In,
    /// From the service to the visitor.
    Out,
}

/// How two joined connections ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All that came was passed on, as far as the other side took it.
    Closed,
    /// One side has reset its connection, or is gone.
    Reset,
    /// Nothing moved for too long.
    Idle,
}

/// Joins two connections until both directions have ended, or nothing has moved in either for `idle` (zero:
/// no limit). `count` is told of bytes that have been passed on.
pub async fn join(
    visitor: &TcpStream,
    service: &TcpStream,
    idle: Duration,
    count: impl Fn(Direction, u64),
) -> End {
    let has_moved = Cell::new(true);
    let counted = |direction| {
        let (count, has_moved) = (&count, &has_moved);
        move |n| {
            has_moved.set(true);
            count(direction, n);
        }
    };
    let mut inward = Half::new(counted(Direction::In));
    let mut outward = Half::new(counted(Direction::Out));
    let mut silence = Silence::new(idle);
    // A side whose direction has ended is not read any more: only this tells that it is gone.
    let mut visitor_lost = pin!(visitor.ready(Interest::ERROR));
    let mut service_lost = pin!(service.ready(Interest::ERROR));
    poll_fn(|cx| {
        let over =
            (inward.poll(cx, visitor, service).is_ready(), outward.poll(cx, service, visitor).is_ready());
        let states = [inward.state, outward.state];
        if states.contains(&State::Broken(Fault::Source)) {
            return Poll::Ready(End::Reset);
        }
        // Who cannot be written to may have sent something before: the other direction goes on.
        if over == (true, true) {
            let is_closed = states.contains(&State::Ended);
            return Poll::Ready(if is_closed { End::Closed } else { End::Reset });
        }
        let is_lost = (inward.state == State::Ended && visitor_lost.as_mut().poll(cx).is_ready())
            || (outward.state == State::Ended && service_lost.as_mut().poll(cx).is_ready());
        if is_lost {
            return Poll::Ready(End::Reset);
        }
        silence.poll(cx, has_moved.replace(false)).map(|()| End::Idle)
    })
    .await
}

/// One direction.
struct Half<F> {
    carrier: Carrier,
    state: State,
    carried: F,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Flowing,
    /// The end of the source has been passed on.
    Ended,
    Broken(Fault),
}

/// The side that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Source,
    Sink,
}

impl<F: Fn(u64)> Half<F> {
    fn new(carried: F) -> Self {
        Self { carrier: Carrier::default(), state: State::Flowing, carried }
    }

    /// Ready when it has ended, or is broken.
    fn poll(&mut self, cx: &mut Context<'_>, from: &TcpStream, to: &TcpStream) -> Poll<()> {
        if self.state != State::Flowing {
            return Poll::Ready(());
        }
        self.state = match ready!(self.carry(cx, from, to)) {
            Ok(()) => State::Ended,
            Err((fault, error)) => {
                tracing::debug!(%error, ?fault, "a relayed connection is broken");
                State::Broken(fault)
            }
        };
        // What is still in the pipe has nowhere to go.
        self.carrier = Carrier::default();
        Poll::Ready(())
    }

    fn carry(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
    ) -> Poll<Result<(), (Fault, io::Error)>> {
        for _ in 0..TURN {
            match ready!(self.carrier.poll(cx, from, to, MOST))? {
                0 => {
                    // An error says that the receiver is gone, which the other direction finds out as well.
                    let _ = SockRef::from(to).shutdown(std::net::Shutdown::Write);
                    return Poll::Ready(Ok(()));
                }
                n => (self.carried)(n as u64),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Moves bytes from one socket to another.
#[derive(Default)]
pub(crate) struct Carrier {
    /// While bytes are in it.
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: usize,
}

impl Carrier {
    /// How many bytes have been taken from the source, and not yet passed on.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Ready when so many bytes have been passed on; 0: the source has ended. At most `most` bytes are taken
    /// from the source. Pending: it waits for the sink if bytes are held, else for the source.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        to: &TcpStream,
        most: usize,
    ) -> Poll<Result<usize, (Fault, io::Error)>> {
        let at_source = |error| (Fault::Source, error);
        let at_sink = |error| (Fault::Sink, error);
        loop {
            if let Some(pipe) = &self.pipe {
                ready!(to.poll_write_ready(cx)).map_err(at_sink)?;
                let out = || splice(pipe.read.as_raw_fd(), to.as_raw_fd(), self.held);
                match to.try_io(Interest::WRITABLE, out) {
                    Ok(n) => {
                        self.held -= n;
                        self.keep_if_empty();
                        return Poll::Ready(Ok(n));
                    }
                    Err(error) if is_momentary(&error) => {}
                    Err(error) => return Poll::Ready(Err(at_sink(error))),
                }
                continue;
            }
            ready!(from.poll_read_ready(cx)).map_err(at_source)?;
            let pipe = self.pipe.insert(Pipe::take().map_err(at_source)?);
            let into = || splice(from.as_raw_fd(), pipe.write.as_raw_fd(), most);
            let read = from.try_io(Interest::READABLE, into);
            self.held = *read.as_ref().unwrap_or(&0);
            self.keep_if_empty();
            match read {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(_) => {}
                Err(error) if is_momentary(&error) => {}
                Err(error) => return Poll::Ready(Err(at_source(error))),
            }
        }
    }

    /// The bytes that are held, for who wants to go on without the kernel.
    pub(crate) fn take_held(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.held];
        if let Some(pipe) = &self.pipe {
            (&pipe.read).read_exact(&mut bytes)?;
        }
        self.held = 0;
        self.keep_if_empty();
        Ok(bytes)
    }

    fn keep_if_empty(&mut self) {
        if self.held == 0
            && let Some(pipe) = self.pipe.take()
        {
            pipe.keep();
        }
    }
}

fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Moves up to `most` bytes from one descriptor to the other, one of which is a pipe. 0: the source has
/// ended.
fn splice(from: RawFd, to: RawFd, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: no memory is passed; both descriptors belong to objects that the caller borrows.
    let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

struct Pipe {
    read: PipeReader,
    write: OwnedFd,
}

thread_local! {
    static EMPTY: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

impl Pipe {
    /// An empty one.
    fn take() -> io::Result<Self> {
        if let Some(pipe) = EMPTY.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors to the array.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened both for this process, and nobody else knows their numbers.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { read: read.into(), write })
    }

    /// Keeps it for others; it must be empty.
    fn keep(self) {
        EMPTY.with_borrow_mut(|empty| {
            if empty.len() < KEPT {
                empty.push(self);
            }
        });
    }
}

/// Notices that nothing has moved for a time. The timer is set again when it fires, not with every byte.
struct Silence {
    limit: Duration,
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// `limit` zero: none.
    fn new(limit: Duration) -> Self {
        let since = Instant::now();
        let timer = (!limit.is_zero()).then(|| Box::pin(sleep_until(since + limit)));
        Self { limit, since, timer }
    }

    fn poll(&mut self, cx: &mut Context<'_>, has_moved: bool) -> Poll<()> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        if has_moved {
            self.since = Instant::now();
        }
        while timer.as_mut().poll(cx).is_ready() {
            let end = self.since + self.limit;
            if timer.deadline() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}
