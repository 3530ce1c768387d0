//! From the socket to hyper.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::error::{BadBody, Refusal};
use super::framing::BodyScan;
use super::head::HeadScan;
use super::{Phase, Wait, Wire, WireEvent};

/// Most bytes of one read. Uploads come in segments of at most 64 KiB, and fit the second-level cache.
const SCRATCH: usize = 64 << 10;
/// Bytes of later requests kept while a response is pending; then the socket is left unread (back-pressure).
const MAX_HELD: usize = 16 << 10;

thread_local! {
    static SCRATCH_BUFFER: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = SCRATCH_BUFFER.take().unwrap_or_else(|| vec![0; SCRATCH].into_boxed_slice());
    let r = f(&mut buffer);
    SCRATCH_BUFFER.set(Some(buffer));
    r
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Wire<S, K> {
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // A reader without room gets nothing.
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.is_pass_through() && !matches!(self.phase, Phase::Refuse | Phase::Closed) {
                self.cleared = self.held.len();
            }
            if self.cleared > 0 {
                self.hand_over(&mut buf);
                return Poll::Ready(Ok(()));
            }
            if std::mem::take(&mut self.unscanned) {
                self.scan_held();
                continue;
            }
            match self.phase {
                Phase::Broken(bad) => return Poll::Ready(Err(bad.into_io())),
                Phase::Closed => return Poll::Ready(Ok(())),
                Phase::Refuse => {
                    ready!(self.close(cx));
                    continue;
                }
                Phase::Head(_) | Phase::Body(_) | Phase::Answer => {}
            }
            let received = match self.receive(cx, &mut buf) {
                Poll::Ready(received) => received.inspect_err(|_| self.lost())?,
                Poll::Pending => {
                    ready!(self.silence(cx));
                    continue;
                }
            };
            match received {
                Received::Handed => return Poll::Ready(Ok(())),
                Received::Held => {}
                Received::End => return self.end(cx),
            }
        }
    }

    fn hand_over(&mut self, buf: &mut ReadBufCursor<'_>) {
        let n = self.cleared.min(buf.remaining());
        buf.put_slice(&self.held[..n]);
        self.cleared -= n;
        if n == self.held.len() {
            self.held = Vec::new();
        } else {
            self.held.drain(..n);
        }
    }

    /// One read from the socket. Valid bytes are copied to hyper directly when nothing is held before them.
    fn receive(&mut self, cx: &mut Context<'_>, buf: &mut ReadBufCursor<'_>) -> Poll<io::Result<Received>> {
        let waits_for_answer = matches!(self.phase, Phase::Answer) && !self.is_pass_through();
        let room = if waits_for_answer { MAX_HELD.saturating_sub(self.held.len()) } else { buf.remaining() };
        if self.ended {
            return Poll::Ready(Ok(Received::End));
        }
        if room == 0 {
            return Poll::Pending;
        }
        with_scratch(|scratch| {
            let room = room.min(scratch.len());
            let mut into = ReadBuf::new(&mut scratch[..room]);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut into))?;
            let bytes = into.filled();
            if bytes.is_empty() {
                self.ended = true;
                return Poll::Ready(Ok(Received::End));
            }
            self.shared.bytes_in.fetch_add(bytes.len() as u64, Relaxed);
            if self.is_pass_through() && self.held.is_empty() {
                buf.put_slice(bytes);
                return Poll::Ready(Ok(Received::Handed));
            }
            if waits_for_answer || !self.held.is_empty() {
                self.held.extend_from_slice(bytes);
                self.unscanned = !waits_for_answer;
                return Poll::Ready(Ok(Received::Held));
            }
            let Progress { skipped, cleared } = self.advance(bytes);
            let handed = skipped + cleared;
            buf.put_slice(&bytes[skipped..handed]);
            // After a refusal the bytes that follow do not matter.
            if matches!(self.phase, Phase::Head(_) | Phase::Body(_) | Phase::Answer) {
                self.held.extend_from_slice(&bytes[handed..]);
            }
            Poll::Ready(Ok(if cleared > 0 { Received::Handed } else { Received::Held }))
        })
    }

    /// Scans held bytes as if they had just arrived.
    fn scan_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let Progress { skipped, cleared } = self.advance(&held);
        if matches!(self.phase, Phase::Refuse) {
            return;
        }
        held.drain(..skipped);
        if !held.is_empty() {
            self.held = held;
        }
        self.cleared = cleared;
    }

    /// Moves the scan on over `pending`, which begins with the first byte that is not cleared.
    fn advance(&mut self, pending: &[u8]) -> Progress {
        let mut skipped = 0;
        let mut cleared = 0;
        if let Phase::Head(scan) = &mut self.phase {
            skipped = scan.skip_empty_lines(pending);
            let head = &pending[skipped..];
            // Half a CRLF: the next byte decides whether it is an empty line.
            if head == b"\r" {
                return Progress { skipped, cleared };
            }
            match scan.scan(head, &self.limits.head) {
                Ok(None) => return Progress { skipped, cleared },
                Ok(Some(facts)) => {
                    cleared = facts.len;
                    self.shared.next_request(&facts);
                    self.phase = Phase::Body(BodyScan::new(facts.framing, self.limits.head.body));
                    self.graced = false;
                    self.emit(WireEvent::Request);
                }
                Err(refusal) => {
                    self.refuse(refusal);
                    return Progress { skipped, cleared };
                }
            }
        }
        if let Phase::Body(scan) = &mut self.phase {
            let (good, verdict) = scan.feed(&pending[skipped + cleared..]);
            cleared += good;
            self.waiting = None;
            if scan.is_done() {
                self.phase = Phase::Answer;
            } else if let Err(bad) = verdict {
                self.break_off(bad);
            }
        }
        Progress { skipped, cleared }
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.emit(WireEvent::Refused(refusal));
        self.out = refusal.response();
        self.out_at = 0;
        self.held = Vec::new();
        self.phase = Phase::Refuse;
    }

    fn break_off(&mut self, bad: BadBody) {
        self.emit(WireEvent::BadBody(bad));
        self.phase = Phase::Broken(bad);
    }

    fn lost(&mut self) {
        self.ended = true;
        if !self.shared.gone.load(Relaxed) {
            self.emit(WireEvent::Gone);
            self.shared.set_gone();
        }
    }

    /// The visitor's stream has ended; the consequence depends on the phase.
    fn end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.phase {
            _ if self.is_pass_through() => {}
            Phase::Answer => {
                self.lost();
                if !std::mem::replace(&mut self.graced, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            Phase::Body(_) => self.lost(),
            Phase::Head(_) if !self.held.is_empty() => self.emit(WireEvent::Truncated),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    /// Nothing came. Ready when that has lasted too long; the phase has changed then.
    fn silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let what = match &self.phase {
            _ if self.is_pass_through() => return Poll::Pending,
            Phase::Answer => {
                self.shared.remember(cx.waker());
                return Poll::Pending;
            }
            Phase::Body(_) => {
                self.shared.remember(cx.waker());
                Wait::Body
            }
            _ if !self.held.is_empty() => Wait::Head,
            _ if self.served => Wait::Idle,
            _ => Wait::First,
        };
        let since = match self.waiting {
            Some((before, since)) if before == what => since,
            _ => {
                let now = Instant::now();
                self.waiting = Some((what, now));
                now
            }
        };
        let timeout = match what {
            Wait::First | Wait::Head => self.limits.header_timeout,
            Wait::Idle => self.limits.idle_timeout,
            Wait::Body => self.limits.body_timeout,
        };
        ready!(self.timer.poll(cx, after(since, timeout)));
        match what {
            Wait::Head => self.refuse(Refusal::TooSlow),
            Wait::Body => self.break_off(BadBody::TooSlow),
            Wait::First | Wait::Idle => {
                self.emit(WireEvent::Idle);
                self.phase = Phase::Closed;
            }
        }
        Poll::Ready(())
    }

    /// hyper has nothing left to write: if the response has ended, the next request may be read.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.phase, Phase::Answer) || !self.shared.is_answered() || self.is_pass_through() {
            return;
        }
        self.phase = Phase::Head(HeadScan::default());
        self.shared.busy.store(false, Relaxed);
        self.served = true;
        self.unscanned = !self.held.is_empty();
        // hyper's last read is pending: it reads again only when woken.
        if self.unscanned || self.ended || self.silence(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

/// How far the scan has come in the bytes it was given.
struct Progress {
    /// Bytes at the front to be dropped.
    skipped: usize,
    /// Bytes after these that hyper may have.
    cleared: usize,
}

enum Received {
    /// Bytes, now with hyper.
    Handed,
    /// Bytes, held back; or a verdict.
    Held,
    End,
}

/// `since + timeout`, at most a year later.
pub(crate) fn after(since: Instant, timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365);
    since + timeout.min(FAR)
}
