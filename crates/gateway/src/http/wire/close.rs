//! The end of a connection, so that the visitor sees the answer.
//!
//! Closing a socket with unread bytes makes the kernel send RST, which destroys what the visitor has not read yet:
//! the very answer that says what was wrong. So after a refusal, or a response to a request that was not read to its
//! end, the sending half is closed and the rest is read and thrown away, for a bounded time and number of bytes
//! (RFC 9112 9.6).

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::read::with_scratch;
use super::{Phase, Wire, WireEvent};

/// Round trips are shorter; a visitor who needs longer to read one segment is lost anyway.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// What may be under way on a fast and long path.
const LINGER_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Linger {
    deadline: Option<Instant>,
    drains: bool,
    shut: bool,
    drained: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Wire<S, K> {
    /// Writes what is left of our own, closes the sending half, drains; then everything is over. Failures on the
    /// way are the visitor's, and end it sooner.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.aborted.load(Relaxed) {
            self.phase = Phase::Closed;
            return Poll::Ready(());
        }
        let deadline = match self.linger.deadline {
            Some(deadline) => deadline,
            None => {
                let unread = matches!(self.phase, Phase::Refuse | Phase::Body(_) | Phase::Broken(_));
                self.linger.drains =
                    (unread || !self.held.is_empty()) && !self.ended && !self.is_pass_through();
                *self.linger.deadline.insert(Instant::now() + LINGER_TIME)
            }
        };
        if self.linger_step(cx).is_pending() {
            ready!(self.timer.poll(cx, deadline));
        }
        self.phase = Phase::Closed;
        self.held = Vec::new();
        self.cleared = 0;
        Poll::Ready(())
    }

    /// Ready when nothing remains to be done, or can be.
    fn linger_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.write_out(cx)).is_err() {
            return Poll::Ready(());
        }
        if !self.linger.shut {
            if ready!(Pin::new(&mut self.socket).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            self.linger.shut = true;
        }
        while self.linger.drains {
            let n = with_scratch(|scratch| {
                let mut into = ReadBuf::new(scratch);
                Pin::new(&mut self.socket).poll_read(cx, &mut into).map_ok(|()| into.filled().len())
            });
            let n = ready!(n).unwrap_or(0);
            self.shared.bytes_in.fetch_add(n as u64, Relaxed);
            self.linger.drained += n;
            self.linger.drains = n > 0 && self.linger.drained < LINGER_BYTES;
        }
        Poll::Ready(())
    }
}
