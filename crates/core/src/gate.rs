//! The gate, tier 2: how many requests the origin works on at once, and who is next.
//!
//! A state machine without I/O, meant to sit behind one mutex: it sees only admitted requests, which the origin's
//! capacity bounds. Between classes strict priority (lower number first), within one priority first come, first
//! served. Holding requests here instead of in the origin keeps the origin at its unloaded response time.
//!
//! ```text
//! arrive ─► Forward ──────────────► in flight ─► complete, finish
//!        ├► Queued ─► next ─────────────▲
//!        │          ├► abandon (left)
//!        │          └► tick (waited too long: shed)
//!        └► Shed (queue full)
//!
//! arrived == finished + shed + abandoned + queued + in_flight      after every step
//! ```
//!
//! What every request took, and among how many, is kept for the tick ([`Gate::take_samples`]): the estimator of the
//! capacity learns from requests, since a mean over a tick hides what the limit does.
//!
//! Rejected: a semaphore per worker, which splits the limit and serves late comers of an idle worker first; and
//! weighted sharing, which belongs in a scheduler of its own once classes have weights.

use std::time::Duration;

use crate::capacity::Sample;
use crate::queue::{Discipline, Fifo, Waiting};
use crate::units::{ClassId, Cost, MAX_CLASSES, Timestamp};

/// An answer that goes on for so long after its head gives its place back: what the origin worked for is done, the rest is
/// transport at the pace of the visitor's line. A second is longer than pages take to send and short beside downloads; the
/// origin's limit is on requests at work, and streams that hold it would starve everybody else.
pub const STREAM_AFTER: Duration = Duration::from_secs(1);

/// How the gate is set up. All of it may be changed while running: [`Gate::reconfigure`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// Requests the origin works on at once; `None`: no limit, nobody ever queues.
    pub max_in_flight: Option<u32>,
    /// Requests that may wait, all classes together.
    pub max_queue: usize,
    /// Longest wait in the queue.
    pub max_queue_wait: Duration,
    /// Priority of each class by its id, lower first; classes beyond the end come last.
    pub priorities: Vec<u8>,
}

/// A request at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The caller's name for it; unique among those that wait.
    pub id: u64,
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
}

/// What to do with a request that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Send it to the origin now; report its end with [`Gate::finish`].
    Forward,
    /// It waits: [`Gate::next`] or [`Gate::tick`] will name it, unless [`Gate::abandon`] comes first.
    Queued,
    /// Refuse it.
    Shed(ShedReason),
}

/// Why the gate refused a request on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShedReason {
    /// As many wait as may.
    QueueFull,
    /// It waited as long as it may.
    QueueTimeout,
}

/// A request that leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// The caller's name for it.
    pub id: u64,
    /// Its class.
    pub class: ClassId,
    /// Work it asks of the origin.
    pub cost: Cost,
    /// Time it spent in the queue.
    pub waited: Duration,
}

impl Woken {
    fn new(w: Waiting, now: Timestamp) -> Self {
        Self { id: w.id, class: w.class, cost: w.cost, waited: now.since(w.since) }
    }
}

/// What the origin made of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// When it was sent to the origin.
    pub sent: Timestamp,
    /// Requests at the origin then, itself included: [`Gate::in_flight_now`] right after it was forwarded.
    pub in_flight: u32,
    /// Whether the origin served it (status below 500).
    pub ok: bool,
}

/// What went through the gate since it was made, what is in it, and what may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests sent to the origin, at once or out of the queue.
    pub forwarded: u64,
    /// Requests the origin is done with.
    pub finished: u64,
    /// Requests refused because the queue was full.
    pub shed_full: u64,
    /// Requests refused because they waited too long.
    pub shed_timeout: u64,
    /// Requests whose visitor left the queue.
    pub abandoned: u64,
    /// Requests that wait.
    pub queued: usize,
    /// Work that waits.
    pub queued_cost: Cost,
    /// Requests at the origin.
    pub in_flight: u32,
    /// Work at the origin.
    pub in_flight_cost: Cost,
    /// Work sent to the origin, at once or out of the queue.
    pub forwarded_cost: Cost,
    /// Requests that may be at the origin; `None`: no limit.
    pub limit: Option<u32>,
    /// Requests that may wait.
    pub max_queue: usize,
    /// How long each of them may.
    pub max_queue_wait: Duration,
}

impl Totals {
    /// Whether the origin may be sent another request.
    pub fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight < limit)
    }
}

/// The state machine. One per process, behind a mutex.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::gate::{Decision, Gate, GateConfig, Request};
/// use tidegate_core::units::{ClassId, Cost, Timestamp};
///
/// let max_queue_wait = Duration::from_secs(30);
/// let config = GateConfig { max_in_flight: Some(1), max_queue: 10, max_queue_wait, priorities: vec![1] };
/// let (mut gate, now) = (Gate::new(&config), Timestamp::from_secs(1));
/// let request = |id| Request { id, class: ClassId(0), cost: Cost::ONE };
///
/// assert_eq!(gate.arrive(request(1), now), Decision::Forward);
/// assert_eq!(gate.arrive(request(2), now), Decision::Queued);
/// gate.finish(ClassId(0), Cost::ONE, now);
/// assert_eq!(gate.next(now).map(|woken| woken.id), Some(2));
/// assert_eq!(gate.next(now), None);
/// ```
pub struct Gate {
    limit: Option<u32>,
    max_queue: usize,
    max_queue_wait: Duration,
    classes: Vec<Class>,
    /// Classes somebody of whom waits, one bit each: a search touches no empty queue.
    occupied: [u64; MAX_CLASSES / 64],
    totals: Totals,
    samples: Vec<Sample>,
}

/// Samples kept between two ticks: at a tick of 100 ms, those of 160,000 requests per second. Further ones are added to
/// the last of their kind.
const MAX_SAMPLES: usize = 16 << 10;

struct Class {
    priority: u8,
    queue: Box<dyn Discipline>,
    in_flight: u32,
}

impl Gate {
    /// An empty gate.
    pub fn new(config: &GateConfig) -> Self {
        let class =
            || Class { priority: u8::MAX, queue: Box::new(Fifo::new(config.max_queue)), in_flight: 0 };
        let mut gate = Self {
            limit: None,
            max_queue: 0,
            max_queue_wait: Duration::ZERO,
            // One for every possible id, so that a reload may change the classes while requests are on their way.
            classes: std::iter::repeat_with(class).take(MAX_CLASSES).collect(),
            occupied: [0; MAX_CLASSES / 64],
            totals: Totals::default(),
            samples: Vec::new(),
        };
        gate.reconfigure(config);
        gate
    }

    /// Changes the set-up. Those who wait and those at the origin stay; call [`Gate::next`] afterwards.
    pub fn reconfigure(&mut self, config: &GateConfig) {
        self.limit = config.max_in_flight;
        self.max_queue = config.max_queue;
        self.max_queue_wait = config.max_queue_wait;
        for (id, class) in self.classes.iter_mut().enumerate() {
            class.priority = config.priorities.get(id).copied().unwrap_or(u8::MAX);
            class.queue.set_max(config.max_queue);
        }
    }

    /// Changes the in-flight limit; `None`: no limit. Call [`Gate::next`] afterwards.
    ///
    /// Below what is in flight nothing is taken back: nobody is forwarded until enough have finished.
    pub fn set_limit(&mut self, max_in_flight: Option<u32>) {
        self.limit = max_in_flight;
    }

    /// A request arrives. If others wait it joins them even while there is room, so that nobody overtakes.
    pub fn arrive(&mut self, request: Request, now: Timestamp) -> Decision {
        self.totals.arrived += 1;
        if self.has_room() && self.totals.queued == 0 {
            self.forward(request.class, request.cost);
            return Decision::Forward;
        }
        let Request { id, class, cost } = request;
        let waiting = Waiting { id, class, cost, since: now, turn: self.totals.arrived };
        let full = self.totals.queued >= self.max_queue;
        if full || self.classes[class.index()].queue.push(waiting).is_err() {
            self.totals.shed_full += 1;
            return Decision::Shed(ShedReason::QueueFull);
        }
        self.occupied[class.index() / 64] |= 1 << (class.index() % 64);
        self.totals.queued += 1;
        self.totals.queued_cost += cost;
        Decision::Queued
    }

    /// The origin has answered a request, or failed to. Call [`Gate::next`] afterwards.
    pub fn complete(&mut self, class: ClassId, cost: Cost, served: &Served, now: Timestamp) {
        self.sample(class, cost, served, now);
        self.finish(class, cost, now);
    }

    /// An answer whose head came at `head` goes on: its place goes to the next, and the time to its head is what it took. Due
    /// [`STREAM_AFTER`] the head, or at the head where an answer has no end. Not to be finished again. Call
    /// [`Gate::next`] afterwards.
    pub fn stream(&mut self, class: ClassId, cost: Cost, served: &Served, head: Timestamp, now: Timestamp) {
        self.sample(class, cost, served, head);
        self.finish(class, cost, now);
    }

    fn sample(&mut self, class: ClassId, cost: Cost, served: &Served, now: Timestamp) {
        let sample = Sample {
            class,
            cost,
            count: 1,
            ended: now,
            response: now.since(served.sent),
            in_flight: served.in_flight,
            ok: served.ok,
            backlog: self.totals.queued > 0,
        };
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(sample);
        } else if let Some(last) =
            self.samples.iter_mut().rev().find(|s| s.class == class && s.ok == sample.ok)
        {
            last.absorb(&sample);
        }
    }

    /// Moves what was kept of the requests that ended since the last call to the end of `into`.
    pub fn take_samples(&mut self, into: &mut Vec<Sample>) {
        into.append(&mut self.samples);
    }

    /// The origin is done with a request that tells nothing of it: the visitor left. Call [`Gate::next`] afterwards.
    pub fn finish(&mut self, class: ClassId, cost: Cost, _now: Timestamp) {
        let here = &mut self.classes[class.index()];
        assert!(here.in_flight > 0, "finish without forward in class {}", class.0);
        here.in_flight -= 1;
        self.totals.in_flight -= 1;
        self.totals.in_flight_cost = self.totals.in_flight_cost.saturating_sub(cost);
        self.totals.finished += 1;
    }

    /// Who leaves the queue for the origin now; counted as in flight from here on. Call until `None`.
    ///
    /// If the visitor turns out to have left, report it with [`Gate::finish`].
    // Not an iterator: it takes the time, and the gate is not a sequence.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Timestamp) -> Option<Woken> {
        if !self.has_room() {
            return None;
        }
        let class = self.occupied().min_by_key(|&c| {
            let class = &self.classes[c];
            (class.priority, class.queue.oldest().map(|w| w.turn))
        })?;
        let waiting = self.classes[class].queue.pop(now)?;
        self.leave_queue(&waiting);
        self.forward(waiting.class, waiting.cost);
        Some(Woken::new(waiting, now))
    }

    /// A visitor left. `false` if `id` does not wait: it was woken or shed before, and must be finished by
    /// whoever was told so.
    pub fn abandon(&mut self, id: u64, _now: Timestamp) -> bool {
        let mut occupied = self.occupied();
        let Some(waiting) = occupied.find_map(|c| self.classes[c].queue.remove(id)) else {
            return false;
        };
        self.leave_queue(&waiting);
        self.totals.abandoned += 1;
        true
    }

    /// Who has waited as long as one may: refuse it with [`ShedReason::QueueTimeout`]. Call until `None`.
    pub fn tick(&mut self, now: Timestamp) -> Option<Woken> {
        let deadline = now.saturating_sub(self.max_queue_wait);
        let mut occupied = self.occupied();
        let waiting = occupied.find_map(|c| self.classes[c].queue.expire(deadline))?;
        self.leave_queue(&waiting);
        self.totals.shed_timeout += 1;
        Some(Woken::new(waiting, now))
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

    fn forward(&mut self, class: ClassId, cost: Cost) {
        self.classes[class.index()].in_flight += 1;
        self.totals.in_flight += 1;
        self.totals.in_flight_cost += cost;
        self.totals.forwarded += 1;
        self.totals.forwarded_cost += cost;
    }

    fn leave_queue(&mut self, waiting: &Waiting) {
        let class = waiting.class.index();
        self.totals.queued -= 1;
        self.totals.queued_cost = self.totals.queued_cost - waiting.cost;
        if self.classes[class].queue.is_empty() {
            self.occupied[class / 64] &= !(1 << (class % 64));
        }
    }

    fn occupied(&self) -> Bits {
        Bits(self.occupied)
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
