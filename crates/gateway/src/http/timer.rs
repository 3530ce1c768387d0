//! A connection's time limits, of both protocols.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer per connection, reset as seldom as possible.
///
/// A deadline moves with every request. Resetting a timer each time would cost two operations on the timer
/// wheel. So the deadline is only a number, and the timer stays where it is as long as it fires no later than
/// the deadline; when it fires early, it is set to the present deadline. A busy connection pays one reset per
/// timeout instead of one per request.
#[derive(Default)]
pub(crate) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed; else the task is woken then, or earlier for nothing.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
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

/// `since + timeout`, at most a year later.
pub(crate) fn after(since: Instant, timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365);
    since + timeout.min(FAR)
}
