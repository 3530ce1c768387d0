//! A future beside a busy one, in one task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls `future` only after it has woken its task. The task itself may be polled far more often, for others:
/// then this costs one load, where the future would lock what other threads use too.
///
/// For one task only: the first waker is kept.
pub(crate) async fn seldom<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut bell: Option<(Arc<Bell>, Waker)> = None;
    std::future::poll_fn(move |cx| {
        let (bell, waker) = bell.get_or_insert_with(|| {
            let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: cx.waker().clone() });
            (bell.clone(), bell.into())
        });
        if !bell.rung.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        // Before the poll, which may be rung for again while it runs.
        bell.rung.swap(false, Ordering::Acquire);
        let future: Pin<&mut _> = future.as_mut();
        future.poll(&mut Context::from_waker(waker))
    })
    .await
}

struct Bell {
    rung: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn is_polled_once_and_then_when_it_has_woken_its_task() {
        let (send, receive) = tokio::sync::oneshot::channel();
        let polls = Cell::new(0);
        let mut receive = std::pin::pin!(receive);
        let mut waiting = std::pin::pin!(seldom(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            receive.as_mut().poll(cx)
        })));
        for _ in 0..10 {
            let poll = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
            assert!(poll.is_pending());
        }
        assert_eq!(polls.get(), 1);
        send.send(7).unwrap();
        assert_eq!(waiting.await, Ok(7));
        assert_eq!(polls.get(), 2);
    }
}
