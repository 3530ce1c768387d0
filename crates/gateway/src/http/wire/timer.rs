//! One timer per connection, re-armed as seldom as possible.
//!
//! A deadline moves with every request; moving a timer with it would cost two operations on the timer wheel each
//! time. So the deadline is only a number, and the timer is left where it is as long as it fires no later than the
//! deadline: when it fires early, it is set to where the deadline is by then. A connection that works pays one
//! re-arming per timeout, not per request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed; else the task is woken at the latest then (perhaps earlier, for nothing).
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
