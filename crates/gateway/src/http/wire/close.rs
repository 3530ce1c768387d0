//! Ends a connection so that the visitor can read the response.
//!
//! Closing a socket with unread bytes makes the kernel send RST, which destroys what the visitor has not read
//! yet, including the response that says what was wrong. So after a refusal, or a response to a request that
//! was not read to its end, the sending half is closed and the rest is read and dropped, for a bounded time
//! and number of bytes (RFC 9112 9.6).

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::read::with_scratch;
use super::{Phase, Wire, WireEvent};

/// Longer than any round trip.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The bandwidth-delay product of a fast and long path.
const LINGER_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Linger {
    deadline: Option<Instant>,
    drains: bool,
    shut: bool,
    drained: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Wire<S, K> {
    /// Writes the rest of the wire's own bytes, closes the sending half and drains. A failure ends it sooner.
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

    /// Ready when nothing remains to be done, or nothing more can be.
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
