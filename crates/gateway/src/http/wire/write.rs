//! From hyper to the socket, with the wire's interim responses in between.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::read::after;
use super::{Wire, WireEvent};

/// What hyper writes by itself, in a write of its own, when the service first polls the body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Wire<S, K> {
    /// Writes with `how`, after the wire's own bytes. `first`: the first bytes that `how` will write.
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        how: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_interim(cx))?;
        match how(Pin::new(&mut self.socket), cx) {
            Poll::Ready(Ok(n)) => {
                self.stalled = None;
                self.shared.bytes_out.fetch_add(n as u64, Relaxed);
                // Half a `100 Continue`, or one with the response behind it, counts as begun: an interim
                // response may then be lost, but never lands inside a message.
                if n > 0 && !(first == CONTINUE && n == CONTINUE.len()) {
                    self.shared.final_started.store(true, Relaxed);
                }
                Poll::Ready(Ok(n))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => self.stalled(cx).map(Err),
        }
    }

    /// hyper's buffer is empty.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_interim(cx))?;
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.turn(cx);
        Poll::Ready(Ok(()))
    }

    /// Interim responses go out before the first byte of the final one or not at all.
    fn write_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &self.shared;
        if shared.interim_waits.load(Relaxed) && !shared.final_started.load(Relaxed) {
            shared.interim_waits.store(false, Relaxed);
            let mut interim = shared.interim.lock();
            self.out.append(&mut interim);
        }
        self.write_out(cx)
    }

    pub(crate) fn write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out_at < self.out.len() {
            match Pin::new(&mut self.socket).poll_write(cx, &self.out[self.out_at..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.stalled = None;
                    self.out_at += n;
                    self.shared.bytes_out.fetch_add(n as u64, Relaxed);
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return self.stalled(cx).map(Err),
            }
        }
        if self.out_at > 0 {
            (self.out, self.out_at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }

    /// The visitor does not read. Ready when that has lasted too long.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let since = *self.stalled.get_or_insert_with(Instant::now);
        ready!(self.timer.poll(cx, after(since, self.limits.body_timeout)));
        self.emit(WireEvent::NotReading);
        self.shared.set_gone();
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the visitor does not read"))
    }
}
