//! `kernel.accept = "while-free"`: connections are accepted only while the gate has an in-flight slot for
//! them, so that a crowd waits in the kernel, in the order of its priority, and not ahead of preferred
//! visitors (Voigt et al., section 4).
//!
//! ```text
//! at the origin + queued for it + accepted and silent  <  in-flight limit
//! ```
//!
//! A connection is *silent* until its first request has come to the gate, or has been answered without, at
//! most for [`MAX_SILENCE`]. Requests that only their class's own limit holds back are left out: they would
//! keep slots empty that others could use.
//!
//! Both counts are in one word, so that a reader never sees a request that has left the one and has not come
//! to the other. The gate keeper writes the first only while this is on (`is_on`): otherwise a request pays
//! nothing.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

use tokio::sync::Notify;

/// How long an accepted connection counts without a request. Clients send theirs with the last packet of the
/// handshake: it is there when the connection is accepted, or lost. Visitors who open connections and are
/// silent can thus keep slots empty for this time only; `limits.header_timeout` would be seconds.
pub const MAX_SILENCE: Duration = Duration::from_millis(250);

/// One request at the gate, in the upper half of the word. The lower half has the silent connections.
const AT_GATE: u32 = 32;

#[derive(Default)]
pub struct FreeSlots {
    is_on: AtomicBool,
    /// The in-flight limit; `u32::MAX`: none.
    limit: AtomicU32,
    taken: AtomicU64,
    /// A slot may be free.
    freed: Notify,
}

impl FreeSlots {
    /// Whether connections wait for free slots.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(super) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Release);
        self.freed.notify_waiters();
    }

    /// Publishes what the gate has. `before`: what was published last. One caller at a time.
    pub(super) fn publish(&self, before: u32, now: u32, limit: Option<u32>) {
        // Without a slot at all, requests are still answered: with an error.
        let limit = limit.map_or(u32::MAX, |limit| limit.max(1));
        let is_raised = self.limit.swap(limit, AcqRel) < limit;
        if before != now {
            let change = u64::from(now).wrapping_sub(before.into()) << AT_GATE;
            self.taken.fetch_add(change, AcqRel);
        }
        if is_raised || now < before {
            self.freed.notify_one();
        }
    }

    fn try_slot(self: &Arc<Self>) -> Option<SilentSlot> {
        let one_more = |taken: u64| {
            let silent = taken & u64::from(u32::MAX);
            let all = (taken >> AT_GATE) + silent;
            (all < self.limit.load(Acquire).into()).then_some(taken + 1)
        };
        self.taken.fetch_update(AcqRel, Acquire, one_more).ok()?;
        Some(SilentSlot(self.clone()))
    }

    /// Waits until a connection may be accepted, and takes its slot; none if connections need not wait.
    pub async fn slot(self: &Arc<Self>) -> Option<SilentSlot> {
        while self.is_on() {
            // In the line of those to wake before it looks: nothing that is freed in between is missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(slot) = self.try_slot() {
                return Some(slot);
            }
            if self.is_on() {
                freed.await;
            }
        }
        None
    }
}

/// The slot of a connection that has been accepted, until its first request is at the gate.
pub struct SilentSlot(Arc<FreeSlots>);

impl Drop for SilentSlot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, AcqRel);
        self.0.freed.notify_one();
    }
}

/// The [`SilentSlot`] of a connection, as the connection and its worker's accept loop both have it.
#[derive(Clone, Default)]
pub struct Silence(Option<Rc<Cell<Option<SilentSlot>>>>);

impl Silence {
    pub fn new(slot: Option<SilentSlot>) -> Self {
        Self(slot.map(|slot| Rc::new(Cell::new(Some(slot)))))
    }

    /// Whether it holds no slot any more.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(|slot| {
            let held = slot.take();
            let is_over = held.is_none();
            slot.set(held);
            is_over
        })
    }

    /// Its first request is at the gate, or has been answered, or has been waited for long enough.
    pub fn end(&self) {
        if let Some(slot) = &self.0 {
            drop(slot.take());
        }
    }
}
