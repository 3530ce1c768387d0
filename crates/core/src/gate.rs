//! The gate, tier 2: how many requests the origin works on at once, and who is next.
//!
//! A state machine without I/O, meant to sit behind one mutex: it sees only admitted requests, which the origin's
//! capacity bounds. Joins what MASTH (2.1, 2.3) gives each class (a bounded queue with a discipline, a limit, a token bucket at
//! its exit) with the scheduler between them. Holding requests here instead of in the origin keeps the origin at its
//! unloaded response time.
//!
//! ```text
//! arrive ─► Forward ──────────────────────► in flight ─► complete, finish
//!        ├► Queued ─► next ─┬─ Forward ─────────▲
//!        │          │       └─ Shed (no patience left, CoDel)
//!        │          ├► abandon (left)
//!        │          └► tick (waited too long: shed)
//!        └► Shed (queue full)
//!
//! arrived == finished + shed + abandoned + queued + in_flight      after every step
//! ```
//!
//! A class may go while somebody of it waits, its own limit and its bucket allow it: [`Gate::next`] asks the scheduler among
//! those. Whoever waits only for a bucket is woken by nobody's end: [`Gate::next_ready`] tells when to ask again.
//!
//! **Admitted sessions** (WAC 2: only whole sessions are refused) have a lane of their own ([`Lane`]): their requests go before all
//! others, also before what is guaranteed to a class, and are refused neither by a full queue, a longest wait nor CoDel. Between
//! their classes the scheduler decides as between the others'; within one it is first come, first served. What a class may have at the origin
//! at once and its egress bucket hold for both lanes, and nobody of a class goes while somebody of its sessions waits for them.
//!
//! What every request took, and among how many, is kept for the tick ([`Gate::take_samples`]): the estimator of the
//! capacity learns from requests, since a mean over a tick hides what the limit does.
//!
//! Rejected: a semaphore per worker, which splits the limit and serves late comers of an idle worker first.

use std::time::Duration;

use crate::capacity::Sample;
use crate::queue::{QueueHandle, Waiting};
use crate::scheduler::Scheduler;
use crate::scheduler::tournament::Tournament;
use crate::units::{ClassId, Cost, MAX_CLASSES, Timestamp};

mod class;
mod config;
mod request;
mod samples;
mod totals;
mod turns;

use class::Class;
use samples::Samples;

pub use config::{
    BucketConfig, ClassConfig, DEFAULT_INTERVAL, DEFAULT_TARGET, DisciplineKind, GateConfig, QueueConfig,
    Scheduling,
};
pub use request::{Lane, Leaving, QueueDecision, Request, Served, ShedReason, Woken};
pub use totals::Totals;

/// An answer that goes on for so long after its head gives its place back: pages take less, streams and downloads more.
pub const STREAM_AFTER: Duration = Duration::from_millis(250);

/// The state machine. One per process, behind a mutex.
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
    limit: Option<u32>,
    max_queue: usize,
    max_queue_wait: Duration,
    /// One for every possible id, so that a reload may change the classes while requests are on their way.
    classes: Vec<Class>,
    /// Classes somebody of whom waits, one bit each: a search touches no empty queue.
    occupied: [u64; MAX_CLASSES / 64],
    scheduler: Scheduler,
    /// The same between those of whom a request of an admitted session may go. A class is ready in one of them at most.
    admitted: Scheduler,
    /// When the patience of each class's oldest ends.
    patience: Tournament,
    /// When the bucket of each class that waits for nothing else lets its next one pass.
    egress: Tournament,
    totals: Totals,
    samples: Samples,
}

impl Gate {
    /// An empty gate.
    pub fn new(config: &GateConfig) -> Self {
        let (mut scheduler, mut admitted) = (Scheduler::default(), Scheduler::default());
        scheduler.configure(config);
        admitted.configure(config);
        Self {
            limit: config.max_in_flight,
            max_queue: config.max_queue,
            max_queue_wait: config.max_queue_wait,
            classes: (0..=u8::MAX).map(|id| Class::new(ClassId(id), config)).collect(),
            occupied: [0; MAX_CLASSES / 64],
            scheduler,
            admitted,
            patience: Tournament::default(),
            egress: Tournament::default(),
            totals: Totals::default(),
            samples: Samples::default(),
        }
    }

    /// Changes the set-up. Those who wait and those at the origin stay; call [`Gate::next`] afterwards.
    pub fn reconfigure(&mut self, config: &GateConfig, now: Timestamp) {
        self.limit = config.max_in_flight;
        self.max_queue = config.max_queue;
        self.max_queue_wait = config.max_queue_wait;
        self.scheduler.configure(config);
        self.admitted.configure(config);
        for id in 0..=u8::MAX {
            self.classes[usize::from(id)].reconfigure(ClassId(id), config, now);
            self.refresh(ClassId(id), now);
        }
    }

    /// Changes the in-flight limit; `None`: no limit. Call [`Gate::next`] afterwards.
    ///
    /// Below what is in flight nothing is taken back: nobody is forwarded until enough have finished.
    pub fn set_limit(&mut self, max_in_flight: Option<u32>) {
        self.limit = max_in_flight;
    }

    /// A request arrives. If others who may go wait it joins them even while there is room, so that nobody overtakes.
    pub fn arrive(&mut self, request: Request, now: Timestamp) -> QueueDecision {
        self.arrive_as(request, Lane::Ordinary, None, now)
    }

    /// As [`Gate::arrive`]; from `until` on its visitor does not wait for the answer any more.
    pub fn arrive_until(
        &mut self,
        request: Request,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> QueueDecision {
        self.arrive_as(request, Lane::Ordinary, until, now)
    }

    /// As [`Gate::arrive_until`], for a request that may be an admitted session's: that overtakes all others, and waits for as long
    /// as it takes.
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
        let nobody_goes = !self.is_anybody_ready(lane);
        // Those held by their own class's limits are in nobody else's way; their class's queue has its own bound.
        let has_queue = lane == Lane::Admitted || self.totals.backlog() < self.max_queue;
        let has_room = self.has_room();
        let here = &mut self.classes[class.index()];
        if has_room
            && nobody_goes
            && here.is_next(lane)
            && !here.is_full()
            && here.egress.take(cost, now).is_ok()
        {
            self.forward(class, cost, lane);
            if lane == Lane::Admitted && !self.classes[class.index()].queue.is_empty() {
                // It took of the class's own limits, past those who wait for them.
                self.refresh(class, now);
            }
            return QueueDecision::Forward;
        }
        let waiting = Waiting { id, class, lane, cost, since: now, until, turn: self.totals.arrived };
        let Some(Ok(spot)) = has_queue.then(|| here.queue.push(waiting)) else {
            return self.refuse(ShedReason::QueueFull);
        };
        here.joined(&waiting);
        self.occupied[class.index() / 64] |= 1 << (class.index() % 64);
        self.totals.queued += 1;
        self.totals.queued_cost += cost;
        self.refresh(class, now);
        QueueDecision::Queued(spot)
    }

    fn refuse(&mut self, reason: ShedReason) -> QueueDecision {
        self.totals.count_shed(reason);
        QueueDecision::Shed(reason)
    }

    /// The origin has answered a request, or failed to. Call [`Gate::next`] afterwards.
    pub fn complete(&mut self, class: ClassId, cost: Cost, served: &Served, now: Timestamp) {
        self.sample(class, cost, served, now, Duration::ZERO);
        self.finish(class, cost, now);
    }

    /// An answer whose head came at `head` goes on: its place goes to the next, and the time to its head is what it took;
    /// what it kept its place for since is told apart. Due [`STREAM_AFTER`] the head, or at the head where an answer has no end. Not to be finished again. Call
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
            backlog: self.is_anybody_ready(Lane::Ordinary),
        };
        self.samples.note(sample);
    }

    /// Moves what was kept of the requests that ended since the last call to the end of `into`.
    pub fn take_samples(&mut self, into: &mut Vec<Sample>) {
        self.samples.take(into);
    }

    /// The origin is done with a request that tells nothing of it: the visitor left. Call [`Gate::next`] afterwards.
    pub fn finish(&mut self, class: ClassId, cost: Cost, now: Timestamp) {
        let here = &mut self.classes[class.index()];
        assert!(here.in_flight > 0, "finish without forward in class {}", class.0);
        let was_full = here.is_full();
        here.in_flight -= 1;
        self.totals.in_flight -= 1;
        self.totals.in_flight_cost = self.totals.in_flight_cost.saturating_sub(cost);
        self.totals.finished += 1;
        if was_full {
            self.refresh(class, now);
        }
    }

    /// Who leaves the queue now: for the origin, or refused although it was its turn. Call until `None`.
    ///
    /// If the visitor of one who is forwarded turns out to have left, report it with [`Gate::finish`].
    // Not an iterator: it takes the time, and the gate is not a sequence.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Timestamp) -> Option<Leaving> {
        if !self.has_room() {
            return None;
        }
        self.unblock(now);
        loop {
            let class = self.pick()?;
            if let Some(leaving) = self.next_of(class, now) {
                return Some(leaving);
            }
        }
    }

    /// `None`: nobody of the class may go after all.
    fn next_of(&mut self, class: ClassId, now: Timestamp) -> Option<Leaving> {
        let here = &mut self.classes[class.index()];
        let Some(next) = here.queue.peek(now).copied() else {
            unreachable!("a class that is ready has a queue")
        };
        let refused = match here.is_too_late(&next, now) {
            Some(reason) => Some(reason),
            None => here.queue.is_refused(now).then_some(ShedReason::CoDel),
        };
        if refused.is_none() && here.egress.take(next.cost, now).is_err() {
            // Another one than was looked at before, and dearer.
            self.refresh(class, now);
            return None;
        }
        let Some((spot, next)) = here.queue.pop(now) else { unreachable!("who was looked at waits") };
        let woken = Woken::new(spot, &next, now);
        if let Some(reason) = refused {
            self.totals.count_shed(reason);
            self.leave_queue(&next, now);
            return Some(Leaving::Shed(woken, reason));
        }
        self.forward(class, next.cost, next.lane);
        self.leave_queue(&next, now);
        Some(Leaving::Forward(woken))
    }

    /// When [`Gate::next`] has somebody again although nothing ends: the origin has room, and all who wait for nothing but
    /// their class's egress bucket wait for at least so long.
    pub fn next_ready(&self) -> Option<Timestamp> {
        let (_, at) = self.egress.first().filter(|_| self.has_room())?;
        Some(Timestamp::from_micros(at as u64))
    }

    /// A visitor left. `false` if it does not wait there any more: it was woken or shed before, and must be finished by
    /// whoever was told so.
    pub fn abandon(&mut self, spot: QueueHandle, now: Timestamp) -> bool {
        let Some(waiting) = self.classes[spot.class().index()].queue.remove(spot) else { return false };
        self.totals.abandoned += 1;
        self.leave_queue(&waiting, now);
        true
    }

    /// Who has waited as long as one may: refuse it. Call until `None`.
    pub fn tick(&mut self, now: Timestamp) -> Option<(Woken, ShedReason)> {
        self.patience.first().filter(|(_, ends)| *ends <= u128::from(now.as_micros()))?;
        // Class by class, so that it does not matter in which order their patience ended.
        let is_due = |c: &usize| self.classes[*c].patience_ends().is_some_and(|ends| ends <= now);
        let class = Bits(self.occupied).find(is_due)?;
        let here = &mut self.classes[class];
        let Some((spot, oldest)) = here.queue.pop_oldest() else {
            unreachable!("somebody's patience has ended")
        };
        let reason = here.gives_up(&oldest, now).unwrap_or(ShedReason::QueueTimeout);
        self.totals.count_shed(reason);
        self.leave_queue(&oldest, now);
        Some((Woken::new(spot, &oldest, now), reason))
    }

    /// What went through and what is inside.
    pub fn totals(&self) -> Totals {
        let (limit, max_queue, max_queue_wait) = (self.limit, self.max_queue, self.max_queue_wait);
        Totals { limit, max_queue, max_queue_wait, ..self.totals }
    }

    /// The in-flight limit in force.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Requests at the origin, all classes together.
    pub fn in_flight_now(&self) -> u32 {
        self.totals.in_flight
    }

    /// Requests of a class at the origin.
    pub fn in_flight(&self, class: ClassId) -> u32 {
        self.classes[class.index()].in_flight
    }

    /// Requests of a class that wait.
    pub fn queued(&self, class: ClassId) -> usize {
        self.classes[class.index()].queue.len()
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.totals.in_flight < limit)
    }

    /// What a class may not do by its own limits, for whoever checks the gate.
    pub fn is_held(&self, class: ClassId) -> bool {
        self.classes[class.index()].held.0 > 0
    }
}

/// The positions of set bits, ascending.
struct Bits([u64; MAX_CLASSES / 64]);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let (at, word) = self.0.iter_mut().enumerate().find(|(_, w)| **w != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(at * 64 + bit)
    }
}
