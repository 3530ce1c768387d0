//! A body within the bandwidth of a throttle: sent in slices, each when its time comes
//! ([`tidegate_core::throttle::Shaper`]).
//!
//! A little is read ahead of what is sent, so that an answer that fits in it ends for the origin as if it
//! were not shaped: it frees its in-flight slot, and is measured, when it has been read. Of a longer one the
//! gate reads no more than is sent, and its slot is taken back a while after its head, as that of any answer
//! that goes on.
//!
//! The kernel is told the share too, where it paces sockets: it then sends a slice as an even stream and not
//! at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate_core::throttle::Throttle;
use tokio::time::{Sleep, sleep};

use super::{Completion, ResponseBody};
use crate::base::clock::Clock;
use crate::proxy::context::Conn;
use crate::upstream::dispatch::BodyError;

/// Bytes that are read ahead, at most, and what comes with the last read.
const AHEAD: usize = 64 << 10;
/// The kernel's rate is at least this, in bytes per second: it counts in packets.
const LEAST_PACE: u64 = 16 << 10;

/// The answer's share of the bandwidth.
pub struct Shaping {
    pub throttle: Arc<Throttle>,
    pub clock: Arc<Clock>,
    /// The visitor's connection, which the kernel paces; `None`: it does not.
    pub conn: Option<Rc<Conn>>,
}

pub struct Shaped<C: Completion> {
    inner: ResponseBody<C>,
    /// Read and not sent yet.
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// What comes after them: the end, trailers, or what broke the body off.
    rest: Option<Option<Result<Frame<Bytes>, BodyError>>>,
    turn: Turn,
    /// The rate that the kernel was told.
    pace: Option<u64>,
    conn: Option<Rc<Conn>>,
    clock: Arc<Clock>,
}

/// The slice that is sent next.
struct Turn {
    throttle: Arc<Throttle>,
    next: Option<Next>,
}

struct Next {
    bytes: usize,
    /// Until when; `None`: its time had come when it was reserved.
    wait: Option<Pin<Box<Sleep>>>,
}

impl Turn {
    fn take(&mut self, next: Option<Next>) -> Option<Next> {
        let (before, after) = (self.next.is_some(), next.is_some());
        if let Some(shaper) = self.throttle.shaper() {
            match (before, after) {
                (false, true) => shaper.waits(),
                (true, false) => shaper.waits_no_more(),
                _ => {}
            }
        }
        std::mem::replace(&mut self.next, next)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.take(None);
    }
}

impl<C: Completion> Shaped<C> {
    pub(super) fn new(inner: ResponseBody<C>, shaping: Shaping) -> Self {
        let Shaping { throttle, clock, conn } = shaping;
        Self {
            inner,
            held: VecDeque::new(),
            held_bytes: 0,
            rest: None,
            turn: Turn { throttle, next: None },
            pace: None,
            conn,
            clock,
        }
    }

    /// Reads until enough is held, the body has ended or nothing more has come.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        while self.rest.is_none() && self.held_bytes < AHEAD {
            let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else { return };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => {
                    self.held_bytes += data.len();
                    if !data.is_empty() {
                        self.held.push_back(data);
                    }
                    if self.inner.is_end_stream() {
                        self.rest = Some(None);
                    }
                }
                Some(Ok(Err(trailers))) => self.rest = Some(Some(Ok(trailers))),
                Some(Err(error)) => self.rest = Some(Some(Err(error))),
                None => self.rest = Some(None),
            }
        }
    }

    /// Takes a slice off what is held, once its time has come; all that came at once when the throttle has
    /// ended.
    fn poll_slice(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(first) = self.held.front() else { return Poll::Ready(None) };
        let Some(shaper) = self.turn.throttle.shaper().filter(|shaper| !shaper.has_ended()) else {
            self.turn.take(None);
            self.ends();
            let first = self.held.pop_front();
            self.held_bytes -= first.as_ref().map_or(0, Bytes::len);
            return Poll::Ready(first);
        };
        if self.turn.next.is_none() {
            let bytes = first.len().min(shaper.slice());
            let now = self.clock.now();
            let left = shaper.reserve(bytes, now).since(now);
            let wait = (!left.is_zero()).then(|| Box::pin(sleep(left)));
            self.turn.take(Some(Next { bytes, wait }));
            self.tell_kernel();
        }
        let wait = self.turn.next.as_mut().and_then(|next| next.wait.as_mut());
        if wait.is_some_and(|wait| wait.as_mut().poll(cx).is_pending()) {
            return Poll::Pending;
        }
        let bytes = self.turn.take(None).map_or(0, |next| next.bytes);
        let Some(first) = self.held.front_mut() else { return Poll::Ready(None) };
        let slice = first.split_to(bytes.min(first.len()));
        if first.is_empty() {
            self.held.pop_front();
        }
        self.held_bytes -= slice.len();
        self.turn.throttle.count_bytes(slice.len() as u64);
        Poll::Ready(Some(slice))
    }

    /// Tells the kernel the share, with some room above it, when it has changed by a quarter.
    fn tell_kernel(&mut self) {
        let (Some(conn), Some(shaper)) = (&self.conn, self.turn.throttle.shaper()) else { return };
        let wanted = (shaper.share() / 4 * 5).max(LEAST_PACE);
        let is_near = |told: u64| told.abs_diff(wanted) <= told / 4;
        if !self.pace.is_some_and(is_near) {
            conn.control.pace(Some(wanted));
            self.pace = Some(wanted);
        }
    }

    /// The connection's next answer is not shaped. Not when it is dropped before its end: its connection ends
    /// then, and may have been closed.
    fn ends(&mut self) {
        if let (Some(conn), Some(_)) = (&self.conn, self.pace.take()) {
            conn.control.pace(None);
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.read_ahead(cx);
        match self.poll_slice(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(slice)) => {
                if self.is_end_stream() {
                    self.ends();
                }
                return Poll::Ready(Some(Ok(Frame::data(slice))));
            }
            Poll::Ready(None) => {}
        }
        match self.rest.take() {
            // Nothing has come.
            None => Poll::Pending,
            Some(rest) => {
                self.ends();
                // Asked again, it has ended.
                self.rest = Some(None);
                Poll::Ready(rest)
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_over = match &self.rest {
            Some(rest) => rest.is_none(),
            None => self.inner.is_end_stream(),
        };
        self.held.is_empty() && is_over
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let (inner, held) = (self.inner.size_hint(), self.held_bytes as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        inner.upper().into_iter().for_each(|upper| hint.set_upper(upper + held));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tidegate_core::throttle::{ThrottleAction, ThrottleId};

    use super::*;
    use crate::upstream::body::Outcome;

    struct Unmeasured;

    impl Completion for Unmeasured {
        fn complete(self, _: u64, _: Outcome, _: Option<&BodyError>) {}
    }

    fn throttle(bytes_per_s: u64) -> Arc<Throttle> {
        let action = ThrottleAction::Bandwidth(bytes_per_s);
        Arc::new(Throttle::new(ThrottleId(1), "path:/a".into(), action))
    }

    fn shaped(body: &'static [u8], throttle: &Arc<Throttle>) -> ResponseBody<Unmeasured> {
        let shaping = Shaping { throttle: throttle.clone(), clock: Arc::new(Clock::new()), conn: None };
        ResponseBody::Own(body.into()).shaped(shaping)
    }

    async fn slices(body: ResponseBody<Unmeasured>) -> Vec<Bytes> {
        let (mut body, mut slices) = (body, Vec::new());
        while !body.is_end_stream() {
            let held = body.size_hint().exact();
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let slice = frame.expect("not over").expect("no error").into_data().expect("data");
            assert_eq!(body.size_hint().exact(), held.map(|held| held - slice.len() as u64));
            slices.push(slice);
        }
        assert!(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
        slices
    }

    static BODY: [u8; 20_000] = [b'x'; 20_000];

    #[tokio::test]
    async fn a_body_is_sent_whole_in_slices_and_counted() {
        let throttle = throttle(200_000);
        let slices = slices(shaped(&BODY, &throttle)).await;
        assert_eq!(slices.iter().map(Bytes::len).collect::<Vec<_>>(), [4_000; 5]);
        assert_eq!(throttle.counts().bytes, 20_000);
        assert!(shaped(b"", &throttle).is_end_stream(), "nothing is not shaped");
    }

    #[tokio::test]
    async fn answers_take_turns() {
        static LONG: [u8; 400_000] = [b'x'; 400_000];
        let throttle = throttle(1_000_000);
        let (mut one, mut other) = (shaped(&LONG, &throttle), shaped(&LONG, &throttle));
        let mut order = Vec::new();
        while !(one.is_end_stream() && other.is_end_stream()) {
            let last = order.last().copied();
            let who = poll_fn(|cx| {
                // When both are due, as after a pause of the machine, it is the turn of the one that waited.
                let mut both = [(1, &mut one), (2, &mut other)];
                both.sort_by_key(|(who, _)| Some(*who) == last);
                for (who, body) in both {
                    if !body.is_end_stream() && Pin::new(body).poll_frame(cx).is_ready() {
                        return Poll::Ready(who);
                    }
                }
                Poll::Pending
            });
            order.push(who.await);
        }
        // The first few slices may be sent at once.
        let ones = |n: usize| order[..n].iter().filter(|who| **who == 1).count();
        assert!((1..=order.len()).all(|n| ones(n).abs_diff(n - ones(n)) <= 4), "{order:?}");
        assert_eq!(order.len(), 40);
    }

    #[tokio::test]
    async fn what_is_left_is_sent_at_once_when_the_throttle_has_ended() {
        let throttle = throttle(10_000);
        let mut body = shaped(&BODY, &throttle);
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_ready())).await);
        throttle.end();
        let rest = slices(body).await;
        assert_eq!(rest.iter().map(Bytes::len).collect::<Vec<_>>(), [BODY.len() - 200]);
    }

    #[tokio::test]
    async fn who_leaves_waits_no_more() {
        let throttle = throttle(1_000);
        let mut body = shaped(&BODY, &throttle);
        let mut sent = 0;
        while poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_ready())).await {
            sent += 1;
        }
        assert!((1..10).contains(&sent), "{sent}");
        let shaper = throttle.shaper().unwrap();
        shaper.waits();
        assert_eq!(shaper.share(), 500, "it waits");
        drop(body);
        assert_eq!(shaper.share(), 1_000);
    }
}
