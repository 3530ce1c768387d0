//! Ends a connection so that the visitor can read the response.
//!
//! Closing a socket with unread bytes makes the kernel send RST, which destroys what the visitor has not read
//! yet, including the response that says what was wrong. So after a refusal, or a response to a request that
//! was not read to its end, the sending half is closed and the rest is read and dropped, for a bounded time
//! and number of bytes (RFC 9112 9.6).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::read::{poll_read, with_scratch};
use super::{Http1, Http1Event};

/// Longer than any round trip.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// The bandwidth-delay product of a fast and long path.
const LINGER_BYTES: usize = 1 << 20;

struct Linger {
    drains: bool,
    is_shut: bool,
    drained: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(Http1Event)> Http1<S, K> {
    /// Writes the rest of the output, closes the sending half and drains. A failure ends it sooner.
    pub(super) async fn linger(&mut self) {
        if self.exchange.aborted.get() {
            return;
        }
        let unread = self.is_refused || self.is_unread || !self.held.is_empty();
        let drains = unread && !self.ended && !self.exchange.pass_through.get();
        let mut linger = Linger { drains, is_shut: false, drained: 0 };
        // A connection that nobody uses any more mostly needs no time at all.
        let mut deadline = None;
        poll_fn(|cx| {
            if self.poll_linger(cx, &mut linger).is_ready() {
                return Poll::Ready(());
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + LINGER_TIME);
            self.timer.poll(cx, deadline)
        })
        .await;
    }

    /// Ready when nothing remains to be done, or nothing more can be.
    fn poll_linger(&mut self, cx: &mut Context<'_>, linger: &mut Linger) -> Poll<()> {
        if ready!(self.poll_output(cx)).is_err() {
            return Poll::Ready(());
        }
        if !linger.is_shut {
            if ready!(Pin::new(&mut self.socket).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            linger.is_shut = true;
        }
        while linger.drains {
            let n = ready!(with_scratch(|scratch| poll_read(&mut self.socket, cx, scratch))).unwrap_or(0);
            linger.drained += n;
            linger.drains = n > 0 && linger.drained < LINGER_BYTES;
        }
        Poll::Ready(())
    }
}
