//! Time limits that cost a request two stores.
//!
//! Nearly every time limit of a proxied request is set and then not needed. A timer per request would be
//! inserted into the runtime's wheel and removed from it each time. Here every connection to the origin owns
//! one [`Slot`], arming it is a store of a tick number, and one task per worker checks all slots once per
//! tick. With n connections a tick costs O(n) loads, at most ten times a second in the usual configuration. A
//! limit of d ends between d and d + 2 ticks after it was armed, never early.
//!
//! Rejected: `tokio::time::timeout` per request (an insertion, a removal, and the sleep's state in every
//! future); a queue of deadlines in order of arrival (one constant limit per queue, and entries of finished
//! requests stay for the whole limit: at 60 s and 50,000 requests per second, three million of them).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::Instant;

const NEVER: u64 = u64::MAX;

/// Counts the ticks of one worker and owns its slots.
pub struct Ticks {
    start: Instant,
    grain: Duration,
    now: Rc<Cell<u64>>,
    slots: RefCell<Vec<Rc<Slot>>>,
}

/// One time limit, armed and disarmed many times; belongs to one connection.
pub struct Slot {
    now: Rc<Cell<u64>>,
    at: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Ticks {
    pub fn new(grain: Duration) -> Self {
        Self {
            start: Instant::now(),
            grain: grain.max(Duration::from_millis(1)),
            now: Rc::new(Cell::new(0)),
            slots: RefCell::new(Vec::new()),
        }
    }

    /// A tick length that keeps the shortest of `limits` exact to about a tenth; between 5 and 100 ms.
    pub fn grain_for(limits: &[Duration]) -> Duration {
        let shortest = limits.iter().filter(|d| !d.is_zero()).min().copied().unwrap_or(Duration::MAX);
        (shortest / 10).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }

    pub fn grain(&self) -> Duration {
        self.grain
    }

    /// The present tick, as of the last [`Ticks::advance`].
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// How many ticks cover `limit`; no limit if it is zero.
    pub fn cover(&self, limit: Duration) -> u64 {
        if limit.is_zero() {
            return NEVER;
        }
        let ticks = limit.as_nanos().div_ceil(self.grain.as_nanos());
        u64::try_from(ticks).unwrap_or(NEVER).saturating_add(1)
    }

    /// A new slot, checked until its last owner drops it.
    pub fn slot(&self) -> Rc<Slot> {
        let slot = Rc::new(Slot { now: self.now.clone(), at: Cell::new(NEVER), waker: RefCell::new(None) });
        self.slots.borrow_mut().push(slot.clone());
        slot
    }

    /// Reads the clock, wakes the tasks whose limit is over and removes dropped slots. False when no slot is
    /// left.
    pub fn advance(&self) -> bool {
        let ticks = self.start.elapsed().as_nanos() / self.grain.as_nanos();
        let now = u64::try_from(ticks).unwrap_or(NEVER);
        self.now.set(now);
        let mut slots = self.slots.borrow_mut();
        slots.retain(|slot| {
            if now >= slot.at.get()
                && let Some(waker) = slot.waker.borrow_mut().take()
            {
                waker.wake();
            }
            Rc::strong_count(slot) > 1
        });
        !slots.is_empty()
    }
}

/// A slot, and the number of ticks (from [`Ticks::cover`]) it is armed for.
pub(crate) struct Limit {
    pub(crate) slot: Rc<Slot>,
    pub(crate) ticks: u64,
}

impl Limit {
    pub(crate) fn renew(&self) {
        self.slot.arm(self.ticks);
    }
}

impl Slot {
    /// Ends the limit `ticks` (from [`Ticks::cover`]) from now.
    pub fn arm(&self, ticks: u64) {
        self.at.set(self.now.get().saturating_add(ticks));
    }

    pub fn disarm(&self) {
        self.at.set(NEVER);
    }

    /// Whether a limit is set; it may be over.
    pub fn is_armed(&self) -> bool {
        self.at.get() != NEVER
    }

    /// Removes the limit and the waker: an idle connection must not keep a visitor's task alive.
    pub fn rest(&self) {
        self.disarm();
        self.waker.borrow_mut().take();
    }

    /// Whether the limit is over; if not, the task is woken when it is.
    pub fn poll_expired(&self, cx: &Context<'_>) -> bool {
        let at = self.at.get();
        if at == NEVER {
            return false;
        }
        if self.now.get() >= at {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(w) if w.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    #[tokio::test(start_paused = true)]
    async fn ends_within_two_ticks_and_never_early() {
        let grain = Duration::from_millis(10);
        for limit_ms in [1, 9, 10, 11, 95, 1000] {
            let ticks = Ticks::new(grain);
            let limit = Duration::from_millis(limit_ms);
            let slot = ticks.slot();
            // Armed anywhere inside a tick.
            tokio::time::advance(Duration::from_millis(limit_ms % 10)).await;
            ticks.advance();
            let armed = Instant::now();
            slot.arm(ticks.cover(limit));
            while !poll_fn(|cx| Poll::Ready(slot.poll_expired(cx))).await {
                tokio::time::advance(Duration::from_millis(1)).await;
                ticks.advance();
            }
            let took = armed.elapsed();
            assert!(took >= limit && took <= limit + grain * 2, "{limit:?} took {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_slots_are_forgotten_and_zero_is_no_limit() {
        let ticks = Ticks::new(Duration::from_millis(10));
        let slot = ticks.slot();
        slot.arm(ticks.cover(Duration::ZERO));
        assert!(!slot.is_armed());
        assert!(ticks.advance());
        drop(slot);
        assert!(!ticks.advance());
    }
}
