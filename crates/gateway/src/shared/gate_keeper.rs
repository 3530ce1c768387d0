//! The gate in front of the origin (tier 2): admitted requests wait here until an in-flight slot is free.
//!
//! `tidegate_core::gate` decides; this module makes tasks wait for its decisions. One mutex serves all
//! workers: only as many requests as the origin can take contend for it, each twice: on its way in, and when
//! it gives its slot back.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::capacity::Sample;
use tidegate_core::gate::{
    Gate, GateConfig, Leaving, QueueDecision, Request, STREAM_AFTER, Served, ShedReason, Totals,
};
use tidegate_core::queue::{Lane, QueueHandle};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::base::clock::Clock;
use crate::shared::free_slots::FreeSlots;

/// Lists of answers under way, so that workers do not contend for one.
const LISTS: usize = 16;

pub struct GateKeeper {
    clock: Arc<Clock>,
    inner: Mutex<Inner>,
    /// By worker. Locked alone, or after `inner`.
    answering: [AnswerList; LISTS],
    free: Arc<FreeSlots>,
}

struct Inner {
    gate: Gate,
    waiting: Waiting,
    next_id: u64,
    /// Notified when a request may go without another's end before `armed`.
    alarm: Arc<Notify>,
    /// When `wake_for_egress` will wake up.
    armed: Option<Timestamp>,
    /// What [`FreeSlots`] has been told of requests; `None`: nobody asks.
    published: Option<u32>,
}

/// The keeper's state, which is published when it is unlocked if somebody asks.
struct Unlocked<'k> {
    inner: MutexGuard<'k, Inner>,
    free: &'k FreeSlots,
}

impl Deref for Unlocked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Unlocked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Unlocked<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.inner.published {
            let (now, limit) = self.inner.at_gate();
            self.inner.published = Some(now);
            self.free.publish(before, now, limit);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassLoad {
    pub queued: usize,
    pub in_flight: u32,
}

impl ClassLoad {
    pub fn is_idle(self) -> bool {
        self == Self::default()
    }
}

/// Tells a request how many are at the origin, or why it is refused.
type Tell = oneshot::Sender<Result<u32, ShedReason>>;

/// The requests that wait, by class and slot of the class's queue, so that nobody is searched for. Memory
/// grows with the longest queue of each class and is then reused.
#[derive(Default)]
struct Waiting(Vec<Vec<Option<Tell>>>);

impl Waiting {
    fn put(&mut self, spot: QueueHandle, tell: Tell) {
        let class = at_least(&mut self.0, spot.class().index());
        *at_least(class, spot.slot()) = Some(tell);
    }

    fn take(&mut self, spot: QueueHandle) -> Option<Tell> {
        self.0.get_mut(spot.class().index())?.get_mut(spot.slot())?.take()
    }
}

fn at_least<T: Default>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    &mut list[at]
}

/// What the gate is to be told of a request when its in-flight slot is released.
#[derive(Clone, Copy)]
struct Sent {
    class: ClassId,
    lane: Lane,
    cost: Cost,
}

/// An answer under way that still holds its in-flight slot.
struct Answering {
    sent: Sent,
    served: Served,
}

type AnswerKey = (Timestamp, u64);

/// Answers under way that hold their in-flight slots, by the instants of their heads and the ids of their
/// requests. An answer that ends is removed at once: the tick meets only those that go on. In cache lines of
/// its own, since one worker alone writes it.
#[derive(Default)]
#[repr(align(128))]
struct AnswerList(Mutex<BTreeMap<AnswerKey, Answering>>);

impl GateKeeper {
    pub fn new(config: &GateConfig, clock: Arc<Clock>) -> Arc<Self> {
        let inner = Inner {
            gate: Gate::new(config),
            waiting: Waiting::default(),
            next_id: 0,
            alarm: Arc::default(),
            armed: None,
            published: None,
        };
        Arc::new(Self {
            clock,
            inner: Mutex::new(inner),
            answering: Default::default(),
            free: Arc::default(),
        })
    }

    fn lock(&self) -> Unlocked<'_> {
        Unlocked { inner: self.inner.lock(), free: &self.free }
    }

    /// What connections wait for where they are accepted only while an in-flight slot is free.
    pub fn free_slots(&self) -> &Arc<FreeSlots> {
        &self.free
    }

    /// Whether connections are accepted only while an in-flight slot is free.
    pub fn accept_while_free(&self, is_on: bool) {
        if self.free.is_on() == is_on {
            return;
        }
        let mut inner = self.lock();
        if is_on {
            inner.published.get_or_insert(0);
            drop(inner);
        } else if let Some(before) = inner.published.take() {
            self.free.publish(before, 0, None);
        }
        // With the figures in place.
        self.free.switch(is_on);
    }

    /// Asks for an in-flight slot; resolves when one is free. If it is dropped earlier, the request leaves
    /// the queue. From `until` on nobody waits for the answer.
    pub fn enter(
        self: &Arc<Self>,
        class: ClassId,
        cost: Cost,
        lane: Lane,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Entering {
        let mut inner = self.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        let state = match inner.gate.arrive_as(Request { id, class, cost }, lane, until, now) {
            QueueDecision::Forward => EnteringState::Forward(inner.gate.in_flight_now()),
            QueueDecision::Shed(reason) => EnteringState::Shed(reason),
            QueueDecision::Queued(spot) => {
                let (tell, told) = oneshot::channel();
                inner.waiting.put(spot, tell);
                // Just before the request came an egress bucket may have become ready, or a newcomer's turn
                // may have come.
                inner.wake(now);
                EnteringState::Queued(spot, told)
            }
        };
        drop(inner);
        Entering { keeper: self.clone(), id, sent: Sent { class, lane, cost }, arrived: now, state }
    }

    /// Refuses requests that waited too long, and takes back the slots of answers that stream. On the control
    /// tick, so that no answer needs a timer of its own.
    pub fn tick(&self, now: Timestamp) {
        let mut inner = self.lock();
        while let Some((late, reason)) = inner.gate.tick(now) {
            inner.refuse(late.handle, reason);
        }
        for list in &self.answering {
            inner.take_back_streams(&mut list.0.lock(), now);
        }
        inner.wake(now);
    }

    /// Wakes requests that wait only for their class's egress bucket once it is time: no other event would.
    /// Never returns.
    pub async fn wake_for_egress(&self) {
        let alarm = self.lock().alarm.clone();
        loop {
            let ready = {
                let mut inner = self.lock();
                inner.wake(self.clock.now());
                inner.armed = inner.gate.next_ready();
                inner.armed
            };
            match ready {
                None => alarm.notified().await,
                Some(at) => {
                    let wait = at.since(self.clock.now());
                    _ = tokio::time::timeout(wait, alarm.notified()).await;
                }
            }
        }
    }

    /// Changes the limits while running. Requests that fit now are forwarded.
    pub fn reconfigure(&self, config: &GateConfig) {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.gate.reconfigure(config, now);
        inner.wake(now);
    }

    /// Sets the in-flight limit. Requests that fit now are forwarded.
    pub fn set_limit(&self, max_in_flight: Option<u32>) {
        let mut inner = self.lock();
        if inner.gate.limit() != max_in_flight {
            let now = self.clock.now();
            inner.gate.set_limit(max_in_flight);
            inner.wake(now);
        }
    }

    /// What each of the first `classes` classes has at the gate and at the origin.
    pub fn by_class(&self, classes: usize) -> Vec<ClassLoad> {
        let inner = self.lock();
        let ids = (0..=u8::MAX).map(ClassId).take(classes);
        let load =
            |class| ClassLoad { queued: inner.gate.queued(class), in_flight: inner.gate.in_flight(class) };
        ids.map(load).collect()
    }

    /// What went through since the start, and what is inside now.
    pub fn totals(&self) -> Totals {
        self.lock().gate.totals()
    }

    /// Appends a sample for every request that ended since the last call.
    pub fn take_samples(&self, into: &mut Vec<Sample>) {
        self.lock().gate.take_samples(into);
    }

    fn list(&self, worker: usize) -> &Mutex<BTreeMap<AnswerKey, Answering>> {
        &self.answering[worker % LISTS].0
    }

    /// Gives back the slot of a streaming answer, whose head has come.
    fn streams(&self, sent: Sent, served: &Served) {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.streams(sent, served, now, now);
        inner.wake(now);
    }

    fn finish(&self, sent: Sent, served: Option<&Served>, now: Timestamp) {
        self.lock().finish(sent, served, now);
    }
}

impl Inner {
    fn finish(&mut self, sent: Sent, served: Option<&Served>, now: Timestamp) {
        self.gate.answered(sent.lane, now);
        match served {
            Some(served) => self.gate.complete(sent.class, sent.cost, served, now),
            None => self.gate.finish(sent.class, sent.cost, now),
        }
        self.wake(now);
    }

    fn streams(&mut self, sent: Sent, served: &Served, head: Timestamp, now: Timestamp) {
        self.gate.answered(sent.lane, now);
        self.gate.stream(sent.class, sent.cost, served, head, now);
    }

    /// Requests that have an in-flight slot or wait for one, and the number of slots.
    fn at_gate(&self) -> (u32, Option<u32>) {
        let totals = self.gate.totals();
        let waiting = u32::try_from(totals.backlog()).unwrap_or(u32::MAX);
        (totals.in_flight.saturating_add(waiting), totals.limit)
    }

    fn take_back_streams(&mut self, answering: &mut BTreeMap<AnswerKey, Answering>, now: Timestamp) {
        while let Some(oldest) = answering.first_entry()
            && now.since(oldest.key().0) >= STREAM_AFTER
        {
            let ((head, _), Answering { sent, served }) = oldest.remove_entry();
            self.streams(sent, &served, head, now);
        }
    }

    fn arm(&self) {
        if let Some(at) = self.gate.next_ready()
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.alarm.notify_one();
        }
    }

    fn refuse(&mut self, spot: QueueHandle, reason: ShedReason) {
        if let Some(tell) = self.waiting.take(spot) {
            let _ = tell.send(Err(reason));
        }
    }

    fn wake(&mut self, now: Timestamp) {
        while let Some(leaving) = self.gate.next(now) {
            let woken = match leaving {
                Leaving::Forward(woken) => woken,
                Leaving::Shed(woken, reason) => {
                    self.refuse(woken.handle, reason);
                    continue;
                }
            };
            let in_flight = self.gate.in_flight_now();
            let told = self.waiting.take(woken.handle).is_some_and(|tell| tell.send(Ok(in_flight)).is_ok());
            if !told {
                // It left before it was woken: the slot goes to the next.
                self.gate.answered(woken.lane, now);
                self.gate.finish(woken.class, woken.cost, now);
            }
        }
        self.arm();
    }
}

enum EnteringState {
    /// With the number of requests at the origin.
    Forward(u32),
    Shed(ShedReason),
    Queued(QueueHandle, oneshot::Receiver<Result<u32, ShedReason>>),
    Done,
}

pub struct Entering {
    keeper: Arc<GateKeeper>,
    id: u64,
    sent: Sent,
    arrived: Timestamp,
    state: EnteringState,
}

impl Future for Entering {
    type Output = Result<InFlightSlot, ShedReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (verdict, waited) = match &mut self.state {
            EnteringState::Forward(in_flight) => (Ok(*in_flight), false),
            EnteringState::Shed(reason) => (Err(*reason), false),
            EnteringState::Queued(_, told) => match Pin::new(told).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(verdict) => (verdict.unwrap_or(Err(ShedReason::QueueTimeout)), true),
            },
            EnteringState::Done => unreachable!("polled after completion"),
        };
        self.state = EnteringState::Done;
        Poll::Ready(verdict.map(|in_flight| InFlightSlot {
            keeper: self.keeper.clone(),
            id: self.id,
            sent: self.sent,
            in_flight,
            ended: None,
            state: SlotState::Held,
            queued: if waited { self.keeper.clock.now().since(self.arrived) } else { Duration::ZERO },
        }))
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        match &mut self.state {
            EnteringState::Done | EnteringState::Shed(_) => {}
            EnteringState::Forward(_) => {
                self.keeper.finish(self.sent, None, self.keeper.clock.now());
            }
            EnteringState::Queued(spot, told) => {
                let now = self.keeper.clock.now();
                let mut inner = self.keeper.lock();
                if inner.gate.abandon(*spot, now) {
                    inner.waiting.take(*spot);
                } else if matches!(told.try_recv(), Ok(Ok(_))) {
                    inner.finish(self.sent, None, now);
                }
            }
        }
    }
}

/// An in-flight slot at the origin; given back when dropped.
pub struct InFlightSlot {
    keeper: Arc<GateKeeper>,
    id: u64,
    sent: Sent,
    in_flight: u32,
    /// How the request ended, and when.
    ended: Option<(Served, Timestamp)>,
    state: SlotState,
    /// How long the request waited for the slot.
    pub queued: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Held,
    /// The answer goes on after its head, which came then, at this worker. The keeper may take the slot back.
    Answering(Timestamp, usize),
    GivenBack,
}

impl InFlightSlot {
    /// Gives the slot back, with the outcome of the request sent at `sent`.
    pub fn complete(mut self, sent: Timestamp, ok: bool, now: Timestamp) {
        self.ended = Some((Served { sent, in_flight: self.in_flight, ok }, now));
    }

    /// The head of the answer came at `head`, and its body follows: the slot is kept for [`STREAM_AFTER`].
    /// `worker`: who serves it.
    pub fn answers(&mut self, sent: Timestamp, head: Timestamp, ok: bool, worker: usize) {
        if self.state == SlotState::Held {
            self.state = SlotState::Answering(head, worker);
            let served = Served { sent, in_flight: self.in_flight, ok };
            let answering = Answering { sent: self.sent, served };
            self.keeper.list(worker).lock().insert((head, self.id), answering);
        }
    }

    /// The head of a streaming answer has come. Gives the slot back, or the stream would hold it.
    pub fn streams(mut self, sent: Timestamp, ok: bool) {
        let served = Served { sent, in_flight: self.in_flight, ok };
        self.state = SlotState::GivenBack;
        self.keeper.streams(self.sent, &served);
    }
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        let is_held = match self.state {
            SlotState::Held => true,
            // Unless the keeper has taken it back.
            SlotState::Answering(head, worker) => {
                self.keeper.list(worker).lock().remove(&(head, self.id)).is_some()
            }
            SlotState::GivenBack => false,
        };
        if is_held {
            let (served, now) = self.ended.take().unzip();
            let now = now.unwrap_or_else(|| self.keeper.clock.now());
            self.keeper.finish(self.sent, served.as_ref(), now);
        }
    }
}

#[cfg(test)]
mod tests;
