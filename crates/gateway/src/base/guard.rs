//! What keeps one request's fault its own: its deadline, and a panic in it.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;

/// What `future` returns; `None` if it has not by `deadline`.
pub(crate) async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}

/// What `future` returns; `None` if it panics. A fault in one request is no reason to reset a connection without a
/// word. What the request held (its place at the gate, its ticket) is given back as it unwinds.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // Not polled again after a panic, so what it may have left half done is not seen.
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
