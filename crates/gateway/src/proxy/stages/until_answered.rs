//! Requests whose visitor leaves while the origin works on them.
//!
//! Most services notice that nobody waits any more when they write the answer, and go on working until then.
//! If the in-flight slot went to the next request at once, the origin would work on more requests than the
//! limit says. Visitors leave where it is slow, so that it would become slower still. The capacity estimate
//! would not see it either: it learns from answers, and those who left get none.
//!
//! So the request goes on as a task of its own until the head of its answer has come, the origin has failed,
//! or a timeout has passed. Then it gives its slot back and is a sample like any other. The connection to the
//! origin closes, so that a long answer is not sent to nobody. `origin.abort_on_close` turns this off.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_core::measure::Event;

use tidegate_http::RequestHead;

use super::forward::{Answer, TicketGuard};
use crate::base::guard::caught;
use crate::proxy::context::{Conn, RequestContext};
use crate::proxy::cookies::SetCookies;
use crate::shared::Worker;
use crate::upstream::body::RequestBody;

/// A request on its way through gate and origin. If it is dropped while the origin works on it
/// ([`Conn::is_at_origin`]), it goes on until the origin has answered.
pub(crate) struct UntilAnswered<F: Future<Output = Answer> + 'static> {
    /// `None` once it is over.
    forwarded: Option<Pin<Box<F>>>,
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    /// Still set when it is dropped: it has panicked, and must not be polled again.
    is_polled: bool,
}

impl RequestContext {
    /// Through the gate to the origin and back, also if the visitor leaves while the origin works on it.
    pub(crate) fn until_answered(
        self,
        head: RequestHead,
        body: RequestBody,
        by: Event,
        cookies: SetCookies,
        guard: TicketGuard,
    ) -> UntilAnswered<impl Future<Output = Answer>> {
        let (worker, conn) = (self.worker.clone(), self.conn.clone());
        // On the heap: several kilobytes, which the gate's own small answers would carry along.
        let forwarded = Some(Box::pin(self.forward(head, body, by, cookies, guard)));
        UntilAnswered { forwarded, worker, conn, is_polled: false }
    }
}

impl<F: Future<Output = Answer> + 'static> Future for UntilAnswered<F> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let Some(forwarded) = &mut this.forwarded else { unreachable!("it is not polled after its end") };
        this.is_polled = true;
        let polled = forwarded.as_mut().poll(cx);
        this.is_polled = false;
        if polled.is_ready() {
            this.forwarded = None;
        }
        polled
    }
}

impl<F: Future<Output = Answer> + 'static> Drop for UntilAnswered<F> {
    fn drop(&mut self) {
        if self.is_polled || !self.conn.is_at_origin.get() {
            return;
        }
        let Some(forwarded) = self.forwarded.take() else { return };
        self.conn.has_left.set(true);
        let worker = self.worker.clone();
        tokio::task::spawn_local(async move {
            if caught(forwarded).await.is_none() {
                worker.count(Event::Panics);
            }
        });
    }
}
