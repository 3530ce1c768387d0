//! Performs tier 2: holds admitted requests until the origin has a place for them.
//!
//! The decisions are `tidegate_core::gate`'s; here is only what makes a task wait for them. One mutex for all
//! workers is right: it sees at most what the origin can take, and no one holds it longer than a decision.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::capacity::Sample;
use tidegate_core::gate::{
    Gate, GateConfig, Leaving, QueueDecision, Request, STREAM_AFTER, Served, ShedReason, Totals,
};
use tidegate_core::queue::{Lane, QueueHandle};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::base::clock::Clock;

mod callers;

use callers::Callers;

/// The gate that all workers share.
pub struct GateKeeper {
    clock: Arc<Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    gate: Gate,
    queued: Callers,
    /// Answers under way, by the name of their request; and in the order of their heads, those that have ended among them.
    answering: HashMap<u64, Answering>,
    heads: VecDeque<(Timestamp, u64)>,
    next_id: u64,
    /// Told when somebody waits for an egress bucket that is ready before what is waited for.
    alarm: Arc<Notify>,
    /// What is waited for.
    armed: Option<Timestamp>,
}

/// An answer under way that still holds its place.
struct Answering {
    class: ClassId,
    cost: Cost,
    served: Served,
    head: Timestamp,
}

impl GateKeeper {
    /// A gate with nobody in it.
    pub fn new(config: &GateConfig, clock: Arc<Clock>) -> Arc<Self> {
        let inner = Inner {
            gate: Gate::new(config),
            queued: Callers::default(),
            answering: HashMap::new(),
            heads: VecDeque::new(),
            next_id: 0,
            alarm: Arc::default(),
            armed: None,
        };
        Arc::new(Self { clock, inner: Mutex::new(inner) })
    }

    /// Asks for a place at the origin; resolves when there is one. Dropped before, the request has left. From `until` on
    /// nobody waits for its answer.
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
                inner.queued.put(spot, tell);
                // It may have come just when its class, or another, was free to go again.
                inner.wake(now);
                EnteringState::Queued(spot, told)
            }
        };
        drop(inner);
        Entering { keeper: self.clone(), id, class, cost, arrived: now, state }
    }

    /// Drops who has waited too long, and takes back the places of answers that stream. On the control tick: no timer of its
    /// own for every answer.
    pub fn tick(&self, now: Timestamp) {
        let mut inner = self.lock();
        while let Some((late, reason)) = inner.gate.tick(now) {
            inner.refuse(late.handle, reason);
        }
        inner.take_back_streams(now);
    }

    /// Wakes those who wait for nothing but their class's egress bucket when it is ready, which no other event would. Never
    /// returns.
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

    /// Changes limits while running; whoever fits now goes.
    pub fn reconfigure(&self, config: &GateConfig) {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.gate.reconfigure(config, now);
        inner.wake(now);
    }

    /// The in-flight limit of the last tick; whoever fits now goes.
    pub fn set_limit(&self, max_in_flight: Option<u32>) {
        let mut inner = self.lock();
        if inner.gate.limit() != max_in_flight {
            let now = self.clock.now();
            inner.gate.set_limit(max_in_flight);
            inner.wake(now);
        }
    }

    /// By class: how many wait, and how many are at the origin.
    pub fn by_class(&self, classes: usize) -> Vec<(usize, u32)> {
        let inner = self.lock();
        let ids = (0..=u8::MAX).map(ClassId).take(classes);
        ids.map(|class| (inner.gate.queued(class), inner.gate.in_flight(class))).collect()
    }

    /// What went through and what is inside.
    pub fn totals(&self) -> Totals {
        self.lock().gate.totals()
    }

    /// Moves what is known of the requests that ended since the last call to the end of `into`.
    pub fn take_samples(&self, into: &mut Vec<Sample>) {
        self.lock().gate.take_samples(into);
    }

    /// An answer goes on after its head.
    fn answers(&self, id: u64, answering: Answering) {
        let mut inner = self.lock();
        inner.heads.push_back((answering.head, id));
        inner.answering.insert(id, answering);
    }

    /// Gives back the place of an answer that went on, unless it was taken back.
    fn answered(&self, id: u64, served: Option<&Served>) {
        let now = self.clock.now();
        let mut inner = self.lock();
        let Some(Answering { class, cost, .. }) = inner.answering.remove(&id) else { return };
        match served {
            Some(served) => inner.gate.complete(class, cost, served, now),
            None => inner.gate.finish(class, cost, now),
        }
        inner.wake(now);
    }

    /// Gives back the place of an answer without end, whose head has come.
    fn streams(&self, class: ClassId, cost: Cost, served: &Served) {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.gate.stream(class, cost, served, now, now);
        inner.wake(now);
    }

    fn finish(&self, class: ClassId, cost: Cost, served: Option<&Served>) {
        let now = self.clock.now();
        let mut inner = self.lock();
        match served {
            Some(served) => inner.gate.complete(class, cost, served, now),
            None => inner.gate.finish(class, cost, now),
        }
        inner.wake(now);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere must not close the gate: its state is valid between calls.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Inner {
    fn take_back_streams(&mut self, now: Timestamp) {
        while let Some(&(head, id)) = self.heads.front().filter(|(head, _)| now.since(*head) >= STREAM_AFTER)
        {
            self.heads.pop_front();
            if let Some(Answering { class, cost, served, .. }) = self.answering.remove(&id) {
                self.gate.stream(class, cost, &served, head, now);
            }
        }
        self.wake(now);
    }

    fn arm(&self) {
        if let Some(at) = self.gate.next_ready()
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.alarm.notify_one();
        }
    }

    fn refuse(&mut self, spot: QueueHandle, reason: ShedReason) {
        if let Some(tell) = self.queued.take(spot) {
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
            let told = self.queued.take(woken.handle).is_some_and(|tell| tell.send(Ok(in_flight)).is_ok());
            if !told {
                // It left between its place and the news of it: the place goes to the next.
                self.gate.finish(woken.class, woken.cost, now);
            }
        }
        self.arm();
    }
}

enum EnteringState {
    /// With how many at the origin.
    Forward(u32),
    Shed(ShedReason),
    Queued(QueueHandle, oneshot::Receiver<Result<u32, ShedReason>>),
    Done,
}

/// A request on its way in.
pub struct Entering {
    keeper: Arc<GateKeeper>,
    id: u64,
    class: ClassId,
    cost: Cost,
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
            class: self.class,
            cost: self.cost,
            in_flight,
            served: None,
            state: PlaceState::Held,
            queued: if waited { self.keeper.clock.now().since(self.arrived) } else { Duration::ZERO },
        }))
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        match &mut self.state {
            EnteringState::Done | EnteringState::Shed(_) => {}
            EnteringState::Forward(_) => self.keeper.finish(self.class, self.cost, None),
            EnteringState::Queued(spot, told) => {
                let now = self.keeper.clock.now();
                let mut inner = self.keeper.lock();
                if inner.gate.abandon(*spot, now) {
                    inner.queued.take(*spot);
                } else if matches!(told.try_recv(), Ok(Ok(_))) {
                    inner.gate.finish(self.class, self.cost, now);
                    inner.wake(now);
                }
            }
        }
    }
}

/// A place at the origin; given back when dropped.
pub struct InFlightSlot {
    keeper: Arc<GateKeeper>,
    id: u64,
    class: ClassId,
    cost: Cost,
    in_flight: u32,
    served: Option<Served>,
    state: PlaceState,
    /// How long the request waited for it.
    pub queued: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceState {
    /// This request's.
    Held,
    /// The keeper may take it back: the answer goes on.
    Answering,
    /// Given back.
    Gone,
}

impl InFlightSlot {
    /// Gives it back, and tells what the origin made of the request sent at `sent`.
    pub fn complete(mut self, sent: Timestamp, ok: bool) {
        self.served = Some(Served { sent, in_flight: self.in_flight, ok });
    }

    /// The head of the answer came at `head`, and more is to come: for a while the place is kept.
    pub fn answers(&mut self, sent: Timestamp, head: Timestamp, ok: bool) {
        if self.state == PlaceState::Held {
            self.state = PlaceState::Answering;
            let served = Served { sent, in_flight: self.in_flight, ok };
            self.keeper.answers(self.id, Answering { class: self.class, cost: self.cost, served, head });
        }
    }

    /// The head of an answer without end has come: gives the place back.
    pub fn streams(mut self, sent: Timestamp, ok: bool) {
        let served = Served { sent, in_flight: self.in_flight, ok };
        self.state = PlaceState::Gone;
        self.keeper.streams(self.class, self.cost, &served);
    }
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        match self.state {
            PlaceState::Held => self.keeper.finish(self.class, self.cost, self.served.as_ref()),
            PlaceState::Answering => self.keeper.answered(self.id, self.served.as_ref()),
            PlaceState::Gone => {}
        }
    }
}

#[cfg(test)]
mod tests;
