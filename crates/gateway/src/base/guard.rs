//! Limits a fault to one request: a deadline, and the end of a panic.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;

pub(crate) async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}

/// The result of `future`; `None` if it panics, so that the visitor gets an error instead of a reset
/// connection. What the request held (its in-flight slot, its ticket) is given back as it unwinds.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // The future is not polled again after a panic, so nobody sees what it left half done.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_request_and_gives_back_what_it_held() {
        let held = Rc::new(());
        let mine = held.clone();
        let fault = caught::<()>(async move {
            tokio::task::yield_now().await;
            let _mine = mine;
            panic!("on purpose");
        });
        assert_eq!(fault.await, None);
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(caught(async { 7 }).await, Some(7));
    }
}
