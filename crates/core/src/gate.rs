//! The gate, tier 2: how many requests are in flight at the origin, and which request is next.
//!
//! A state machine without I/O, meant to sit behind one mutex: it sees only admitted requests, whose number
//! the origin's capacity bounds. It joins what MASTH (2.1, 2.3) gives each class (a bounded queue with a
//! discipline, a limit, a token bucket at its exit) with the scheduler between the classes. Requests that
//! wait here instead of at the origin keep the origin at its unloaded response time.
//!
//! ```text
//! arrive ─► Forward ──────────────────────► in flight ─► complete, finish
//!        ├► Queued ─► next ─┬─ Forward ─────────▲
//!        │          │       └─ Shed (patience ended, CoDel)
//!        │          ├► abandon (visitor left)
//!        │          └► tick (longest wait: shed)
//!        └► Shed (queue full)
//!
//! arrived == finished + shed + abandoned + queued + in_flight      after every step
//! ```
//!
//! A class may go while it has a waiting request and its own limit and its bucket allow one; [`Gate::next`]
//! asks the scheduler for one of those classes. No finished request wakes a class that waits only for its
//! bucket: [`Gate::next_ready`] tells when to ask again.
//!
//! **Admitted sessions** (WAC 2: only whole sessions are refused) have a lane of their own ([`Lane`]). Their
//! requests go before all others, also before the guarantees of classes, and neither a full queue, the
//! longest wait nor CoDel refuses them. The scheduler decides between their classes as between the others;
//! within a class they are served in order of arrival. A class's in-flight limit and egress bucket hold for
//! all lanes, and no ordinary request of a class goes while one of its admitted lane waits for them.
//!
//! **Requests that begin a session** are the third lane: they are not refused either, and only so many go at
//! once that in-flight slots are left for what they bring (`gate/pages.rs`). Where the requests of sessions
//! hardly wait they go in order of arrival with them; otherwise after them, and the scheduler decides between
//! them and the ordinary requests of other classes.
//!
//! Rejected: a semaphore per worker, which splits the limit and serves late arrivals of an idle worker first.

use std::time::Duration;

use crate::bits::Bits;
use crate::capacity::Sample;
use crate::mutants::{self, Mutant};
use crate::queue::{Lane, QueueHandle, Waiting};
use crate::scheduler::tournament::Tournament;
use crate::scheduler::{Head, Scheduler};
use crate::units::{ClassId, Cost, Timestamp};

mod class;
mod config;
mod pages;
mod request;
mod samples;
mod totals;

use class::{Backlog, Class, ClassState};
use pages::Pages;
use samples::Samples;

pub use config::{ClassConfig, GateConfig};
pub use request::{Leaving, QueueDecision, Request, Served, ShedReason, Woken};
pub use totals::Totals;

/// A response that goes on for so long after its head releases its in-flight slot: pages take less, streams
/// and downloads more. Otherwise a stream would hold the slot for its whole life.
pub const STREAM_AFTER: Duration = Duration::from_millis(250);

/// The gate. One per process, behind a mutex.
///
/// ```
/// use tidegate_core::gate::{Gate, GateConfig, Leaving, QueueDecision, Request};
/// use tidegate_core::units::{ClassId, Cost, Timestamp};
///
/// let config = GateConfig { max_in_flight: Some(1), max_queue: 10, ..GateConfig::default() };
/// let (mut gate, now) = (Gate::new(&config), Timestamp::from_secs(1));
/// let request = |id| Request { id, class: ClassId(0), cost: Cost::ONE };
///
/// assert_eq!(gate.arrive(request(1), now), QueueDecision::Forward);
/// assert!(matches!(gate.arrive(request(2), now), QueueDecision::Queued(_)));
/// gate.finish(ClassId(0), Cost::ONE, now);
/// assert!(matches!(gate.next(now), Some(Leaving::Forward(woken)) if woken.id == 2));
/// assert_eq!(gate.next(now), None);
/// ```
pub struct Gate {
    /// One for every possible id, so that a reload may change classes while requests wait or are in flight.
    classes: Vec<Class>,
    /// Classes with waiting requests, so that a search touches no empty queue.
    occupied: Bits,
    /// Of the ordinary lane.
    scheduler: Scheduler,
    /// Of the lane of admitted sessions, and of newcomers as long as they go in order of arrival with it. A
    /// class is ready in one of the two schedulers at most.
    admitted: Scheduler,
    pages: Pages,
    /// By class: when the patience of its oldest request ends, in microseconds.
    patience: Tournament,
    /// By class that waits for nothing else: when its bucket lets its next request pass, in microseconds.
    egress: Tournament,
    totals: Totals,
    samples: Samples,
}

impl Gate {
    /// An empty gate.
    pub fn new(config: &GateConfig) -> Self {
        let mut gate = Self {
            classes: (0..=u8::MAX).map(|id| Class::new(ClassId(id), config)).collect(),
            occupied: Bits::default(),
            scheduler: Scheduler::default(),
            admitted: Scheduler::default(),
            pages: Pages::default(),
            patience: Tournament::default(),
            egress: Tournament::default(),
            totals: Totals::default(),
            samples: Samples::default(),
        };
        gate.set(config);
        gate
    }

    fn set(&mut self, config: &GateConfig) {
        self.totals.limit = config.max_in_flight;
        self.totals.max_queue = config.max_queue;
        self.totals.max_queue_wait = config.max_queue_wait;
        for scheduler in [&mut self.scheduler, &mut self.admitted] {
            scheduler.configure(config.scheduler, |class| config.class(class).precedence());
        }
    }

    /// Changes the configuration. Requests that wait or are in flight stay; call [`Gate::next`] afterwards.
    pub fn reconfigure(&mut self, config: &GateConfig, now: Timestamp) {
        self.set(config);
        for id in (0..=u8::MAX).map(ClassId) {
            self.classes[id.index()].reconfigure(config, now);
            self.update(id, now);
        }
    }

    /// Changes the in-flight limit; `None`: no limit. Call [`Gate::next`] afterwards.
    ///
    /// A limit below the number in flight takes nothing back: none is forwarded until enough have finished.
    pub fn set_limit(&mut self, max_in_flight: Option<u32>) {
        self.totals.limit = max_in_flight;
    }

    /// An ordinary request arrives. While other requests that may go wait it joins the queue even if an
    /// in-flight slot is free, so that it does not overtake them: call [`Gate::next`] when it was queued.
    pub fn arrive(&mut self, request: Request, now: Timestamp) -> QueueDecision {
        self.arrive_as(request, Lane::Ordinary, None, now)
    }

    /// As [`Gate::arrive`], in a lane: a request of [`Lane::Admitted`] overtakes all others; it is never
    /// refused for load, nor is one of [`Lane::Newcomer`], which may have to wait even if a slot is free.
    /// From `until` on its visitor does not wait for the answer any more. When a request that was forwarded
    /// from another lane than the ordinary one ends, call [`Gate::answered`] as well.
    pub fn arrive_as(
        &mut self,
        request: Request,
        lane: Lane,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> QueueDecision {
        let Request { id, class, cost } = request;
        self.totals.arrived += 1;
        if until.is_some_and(|until| until <= now) {
            return self.refuse(ShedReason::Patience);
        }
        self.unblock(now);
        // Requests held by the limits of their own class do not count: that class's queue has its own bound.
        let has_queue = lane != Lane::Ordinary || self.totals.backlog() < self.totals.max_queue;
        let is_first = self.totals.has_room() && !self.is_any_ready(lane);
        let here = &mut self.classes[class.index()];
        let is_next = is_first && here.is_next(lane, &self.pages);
        if is_next && !here.is_full() && here.pass_egress(cost, now) {
            let has_queued = !here.is_empty();
            self.forward(class, cost, lane, now);
            if has_queued {
                // It used the class's own limits ahead of the requests that wait for them.
                self.update(class, now);
            }
            return QueueDecision::Forward;
        }
        let waiting = Waiting { id, class, lane, cost, since: now, until, turn: self.totals.arrived };
        let Some(Ok(handle)) = has_queue.then(|| here.push(waiting)) else {
            return self.refuse(ShedReason::QueueFull);
        };
        self.occupied.insert(class.index());
        self.totals.queued += 1;
        self.totals.queued_cost += cost;
        self.totals.newcomers += usize::from(lane == Lane::Newcomer);
        self.update(class, now);
        QueueDecision::Queued(handle)
    }

    fn refuse(&mut self, reason: ShedReason) -> QueueDecision {
        self.totals.count_shed(reason);
        QueueDecision::Shed(reason)
    }

    /// The origin has answered a request or failed to answer it. Call [`Gate::next`] afterwards.
    pub fn complete(&mut self, class: ClassId, cost: Cost, served: &Served, now: Timestamp) {
        self.sample(class, cost, served, now, Duration::ZERO);
        self.finish(class, cost, now);
    }

    /// Releases the in-flight slot of a response that goes on after its head, which came at `head`. Its
    /// sample has the time to the head as the response time, and the time since then as `lingered`. To be
    /// called [`STREAM_AFTER`] the head, or at the head of an endless response; do not finish it. Call
    /// [`Gate::next`] afterwards.
    pub fn stream(&mut self, class: ClassId, cost: Cost, served: &Served, head: Timestamp, now: Timestamp) {
        self.sample(class, cost, served, head, now.since(head));
        self.finish(class, cost, now);
    }

    fn sample(&mut self, class: ClassId, cost: Cost, served: &Served, now: Timestamp, lingered: Duration) {
        let sample = Sample {
            class,
            cost,
            count: 1,
            ended: now,
            response: now.since(served.sent),
            lingered,
            in_flight: served.in_flight,
            ok: served.ok,
            // Newcomers who are held back wait as well: whether slots were free is told by `in_flight`.
            backlog: self.is_any_ready(Lane::Ordinary) || self.totals.newcomers > 0,
        };
        self.samples.add(sample);
    }

    /// Appends the samples of the requests that ended since the last call to `into`.
    pub fn take_samples(&mut self, into: &mut Vec<Sample>) {
        self.samples.take(into);
    }

    /// A forwarded request of that lane ends. Call it before the method that releases the in-flight slot. It
    /// does nothing for requests of [`Lane::Ordinary`] and [`Lane::Admitted`], which begin no page.
    pub fn answered(&mut self, lane: Lane, now: Timestamp) {
        self.pages.pass(self.totals.in_flight, now);
        self.pages.answered(lane);
    }

    /// Ends a request in flight without a sample: its visitor left. Call [`Gate::next`] afterwards.
    pub fn finish(&mut self, class: ClassId, cost: Cost, now: Timestamp) {
        let here = &mut self.classes[class.index()];
        let was_full = here.is_full();
        here.finish();
        self.pages.pass(self.totals.in_flight, now);
        self.totals.in_flight -= u32::from(!mutants::is(Mutant::FinishFreesNothing));
        self.totals.integrate_until(now);
        self.totals.in_flight_cost = self.totals.in_flight_cost.saturating_sub(cost);
        self.totals.finished += 1;
        if was_full {
            self.update(class, now);
        }
    }

    /// The next request that leaves the queue, for the origin or refused in its turn. Call until `None`.
    ///
    /// If the visitor of a forwarded request turns out to have left, report it with [`Gate::finish`].
    // Not an iterator: it takes the time, and the gate is not a sequence.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Timestamp) -> Option<Leaving> {
        if !self.totals.has_room() {
            return None;
        }
        self.unblock(now);
        loop {
            let lane = if self.admitted.is_any_ready() { &mut self.admitted } else { &mut self.scheduler };
            let class = lane.pick()?;
            if let Some(leaving) = self.next_of(class, now) {
                return Some(leaving);
            }
        }
    }

    /// `None`: no request of the class may go after all.
    fn next_of(&mut self, class: ClassId, now: Timestamp) -> Option<Leaving> {
        let here = &mut self.classes[class.index()];
        let Some(next) = here.peek(&self.pages, now) else { unreachable!("the class was ready") };
        let refused = here.refuses(&next, now);
        if refused.is_none() && !here.pass_egress(next.cost, now) {
            // The discipline has chosen another request since the last update, and it is dearer.
            self.update(class, now);
            return None;
        }
        let Some((handle, next)) = here.pop(next.lane, now) else {
            unreachable!("the request was just seen")
        };
        let woken = Woken::new(handle, &next, now);
        if let Some(reason) = refused {
            self.totals.count_shed(reason);
            self.leave_queue(&next, now);
            return Some(Leaving::Shed(woken, reason));
        }
        self.forward(class, next.cost, next.lane, now);
        self.leave_queue(&next, now);
        Some(Leaving::Forward(woken))
    }

    /// When an egress bucket lets the next waiting request pass, if an in-flight slot is free: [`Gate::next`]
    /// is to be called then, even if no request finishes.
    pub fn next_ready(&self) -> Option<Timestamp> {
        let (_, at) = self.egress.first().filter(|_| self.totals.has_room())?;
        Some(Timestamp::from_micros(at as u64))
    }

    /// The visitor of a waiting request left. `false`: the request has left the queue before; if it was
    /// forwarded, [`Gate::finish`] has to end it.
    pub fn abandon(&mut self, handle: QueueHandle, now: Timestamp) -> bool {
        let Some(waiting) = self.classes[handle.class().index()].remove(handle) else { return false };
        self.totals.abandoned += 1;
        self.leave_queue(&waiting, now);
        true
    }

    /// A request that has waited for as long as allowed: refuse it. Call until `None`.
    pub fn tick(&mut self, now: Timestamp) -> Option<(Woken, ShedReason)> {
        self.patience.first().filter(|(_, ends)| *ends <= u128::from(now.as_micros()))?;
        // Class by class, whatever the order in which their patience ended.
        let is_due = |c: &usize| self.classes[*c].patience_ends().is_some_and(|ends| ends <= now);
        let class = self.occupied.iter().find(is_due)?;
        let here = &mut self.classes[class];
        let Some((handle, oldest)) = here.pop_oldest() else { unreachable!("its patience has ended") };
        let reason = here.refusal(&oldest, now).unwrap_or(ShedReason::QueueTimeout);
        self.totals.count_shed(reason);
        self.leave_queue(&oldest, now);
        Some((Woken::new(handle, &oldest, now), reason))
    }

    /// The gate's counts.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The in-flight limit in force.
    pub fn limit(&self) -> Option<u32> {
        self.totals.limit
    }

    /// A newcomer may go while fewer first requests of pages than this are at the origin; `None`: there is no
    /// in-flight limit.
    pub fn max_pages(&self) -> Option<f64> {
        self.pages.most(self.totals.limit, self.totals.of_sessions)
    }

    /// Newcomers go in order of arrival with the requests of sessions while fewer than this of those wait,
    /// and after them otherwise.
    pub fn max_waiting_of_sessions(&self) -> f64 {
        self.pages.most_waiting(self.totals.limit)
    }

    /// Requests in flight, all classes together.
    pub fn in_flight_now(&self) -> u32 {
        self.totals.in_flight
    }

    /// Requests of a class in flight.
    pub fn in_flight(&self, class: ClassId) -> u32 {
        self.classes[class.index()].in_flight
    }

    /// Requests of a class that wait.
    pub fn queued(&self, class: ClassId) -> usize {
        self.classes[class.index()].queued().count
    }

    /// Whether waiting requests of a class are held back by its own limits.
    pub fn is_held(&self, class: ClassId) -> bool {
        self.classes[class.index()].held.count > 0
    }

    /// Whether a waiting request may go that goes before a new one of that lane.
    fn is_any_ready(&self, lane: Lane) -> bool {
        self.admitted.is_any_ready() || !self.pages.goes_first(lane) && self.scheduler.is_any_ready()
    }

    fn forward(&mut self, class: ClassId, cost: Cost, lane: Lane, now: Timestamp) {
        self.pages.pass(self.totals.in_flight, now);
        self.pages.went(lane);
        self.classes[class.index()].in_flight += 1;
        self.totals.in_flight += 1;
        self.totals.integrate_until(now);
        self.totals.in_flight_cost += cost;
        self.totals.forwarded += 1;
        self.totals.forwarded_cost += cost;
        if !lane.is_of_session() {
            self.totals.forwarded_entering += cost;
        }
        if self.pages.goes_first(lane) {
            self.admitted.charge(class, cost);
            self.scheduler.charge_guarantee(class, cost);
        } else {
            self.scheduler.charge(class, cost);
        }
    }

    /// Counts a request that has been removed from its class's queue.
    fn leave_queue(&mut self, waiting: &Waiting, now: Timestamp) {
        let class = waiting.class.index();
        self.totals.queued -= 1;
        self.totals.queued_cost = self.totals.queued_cost - waiting.cost;
        self.totals.newcomers -= usize::from(waiting.lane == Lane::Newcomer);
        if self.classes[class].is_empty() {
            self.occupied.remove(class);
        }
        self.update(waiting.class, now);
    }

    /// Updates the classes with newcomers: whether one may go has changed.
    fn update_newcomers(&mut self, now: Timestamp) {
        if self.totals.newcomers > 0 {
            let occupied = self.occupied;
            for class in occupied.iter() {
                if self.classes[class].has_queued(Lane::Newcomer) {
                    self.update(ClassId(class as u8), now);
                }
            }
        }
    }

    /// Updates the classes whose bucket lets their next request pass by now, and those with newcomers if
    /// whether these may go has changed.
    fn unblock(&mut self, now: Timestamp) {
        if self.pages.decide(self.totals.limit, self.totals.of_sessions) {
            self.update_newcomers(now);
        }
        while let Some((class, at)) = self.egress.first()
            && at <= u128::from(now.as_micros())
        {
            self.update(ClassId(class as u8), now);
        }
    }

    /// Brings schedulers, patience, egress times and totals up to date after a change of a class.
    fn update(&mut self, id: ClassId, now: Timestamp) {
        let class = &mut self.classes[id.index()];
        let state = class.state(&self.pages, now);
        let (ready_at, next) = match state {
            ClassState::Ready(lane, head) => (None, Some((lane, head))),
            ClassState::Later(at) => (Some(at), None),
            ClassState::Closed | ClassState::Empty | ClassState::Full => (None, None),
        };
        let (held, admitted, entering, of_sessions) =
            if matches!(state, ClassState::Ready(..) | ClassState::Closed) {
                let (entering, of_sessions) = (class.queued_entering(), class.queued_of_sessions());
                (Backlog::default(), class.queued_admitted(), entering, of_sessions)
            } else {
                (class.queued(), Backlog::default(), Cost::ZERO, 0)
            };
        let goes_first = |lane: Lane| self.pages.goes_first(lane);
        set_next(&mut self.scheduler, id, |lane| !goes_first(lane), next, class);
        // Most classes have no sessions most of the time.
        let has_admitted = class.queued_admitted().count > 0;
        if std::mem::replace(&mut class.had_admitted, has_admitted) || has_admitted {
            set_next(&mut self.admitted, id, goes_first, next, class);
            recount(&mut class.admitted, admitted, &mut self.totals.admitted, &mut self.totals.admitted_cost);
        }
        self.egress.set(id.index(), ready_at.map(|at| u128::from(at.as_micros())));
        self.patience.set(id.index(), class.patience_ends().map(|at| u128::from(at.as_micros())));
        let before = std::mem::replace(&mut class.entering_cost, entering);
        self.totals.entering_cost = (self.totals.entering_cost + entering).saturating_sub(before);
        let before = std::mem::replace(&mut class.of_sessions, of_sessions);
        self.totals.of_sessions = self.totals.of_sessions + of_sessions - before;
        recount(&mut class.held, held, &mut self.totals.held, &mut self.totals.held_cost);
    }
}

/// Tells a scheduler, which decides about the lanes it `has`, of a class whose next request is `next`, in
/// whichever lane.
fn set_next(
    scheduler: &mut Scheduler,
    id: ClassId,
    has: impl Fn(Lane) -> bool,
    next: Option<(Lane, Head)>,
    class: &Class,
) {
    let waits = |lane: &Lane| class.has_queued(*lane);
    match next.filter(|(lane, _)| has(*lane)) {
        Some((_, head)) => scheduler.ready(id, head),
        None if Lane::CHAINS.iter().filter(|lane| has(**lane)).any(waits) => scheduler.blocked(id),
        None => scheduler.emptied(id),
    }
}

/// Counts `now` instead of `before` in a total.
fn recount(before: &mut Backlog, now: Backlog, count: &mut usize, cost: &mut Cost) {
    *count = *count + now.count - before.count;
    *cost = (*cost + now.cost).saturating_sub(before.cost);
    *before = now;
}
