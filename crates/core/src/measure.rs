//! Measurement: each worker counts events for itself; the tick adds the counters up.
//!
//! A worker owns a [`Shard`] and is its only writer; the control thread reads it meanwhile. There are no
//! locks and no read-modify-write operations, and no two workers share a cache line of counters that either
//! writes. [`Snapshot`] is the sum of the shards, [`Window`] the difference of two snapshots.
//!
//! Rejected: one set of shared counters (every request would take cache lines from the other cores), and
//! draining the shards on the tick (a reader that resets is a second writer).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::histogram::{Histogram, Recorder, add};
use crate::policies::{MAX_TIERS, TierId};
use crate::units::{ClassId, Cost, Rate, Timestamp};

mod event;
mod under_way;

pub use event::Event;
pub use under_way::Cohort;
use under_way::Cohorts;

/// One worker's counters.
///
/// Aligned to two cache lines, because adjacent lines are fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Shard {
    events: [AtomicU64; Event::COUNT],
    classes: Box<[Counters]>,
    /// By service level; made with its first request, since most gates have few.
    tiers: [OnceLock<Box<Counters>>; MAX_TIERS],
}

/// One worker's counters of a class, or of a service level.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    arrivals: AtomicU64,
    forwarded: AtomicU64,
    served: AtomicU64,
    origin_errors: AtomicU64,
    error_us: AtomicU64,
    client_gone: AtomicU64,
    shed: [AtomicU64; Event::SHED.len()],
    response: Recorder,
    queue_wait: Recorder,
    served_time: Recorder,
    failed_time: Recorder,
    waited: Recorder,
    under_way: Cohorts,
}

/// How a forwarded request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The origin answered with a status below 500: goodput.
    Served,
    /// The origin answered 5xx, or not at all.
    OriginError,
    ClientGone,
}

impl Shard {
    /// A shard for classes `0..classes`.
    pub fn new(classes: usize) -> Self {
        Self {
            events: [const { AtomicU64::new(0) }; Event::COUNT],
            classes: std::iter::repeat_with(Counters::default).take(classes).collect(),
            tiers: [const { OnceLock::new() }; MAX_TIERS],
        }
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.count_many(event, 1);
    }

    /// Counts an event `n` times, for example bytes.
    pub fn count_many(&self, event: Event, n: u64) {
        add(&self.events[event as usize], n);
    }

    /// A request of a class arrived, whatever its outcome: offered load.
    pub fn arrived(&self, class: ClassId) {
        self.class(class, Counters::arrived);
    }

    /// A request of a class was shed for one of the reasons [`Event::SHED`]. Counts for the class only; the
    /// event itself is counted where it happens.
    pub fn shed(&self, class: ClassId, reason: Event) {
        self.class(class, |c| c.shed(reason));
    }

    /// A request was sent to the origin after `queue_wait` at the gate.
    pub fn forwarded(&self, class: ClassId, queue_wait: Duration) {
        self.class(class, |c| c.forwarded(queue_wait));
    }

    /// A forwarded request ended, `response` after it was sent. Times of failures are counted apart:
    /// otherwise an origin that fails at once would look fast. Those of visitors who left are not counted:
    /// they measure the visitor's patience.
    pub fn ended(&self, class: ClassId, outcome: Outcome, response: Duration) {
        self.class(class, |c| c.ended(outcome, response));
    }

    /// A request arrived at `since` and waits for its answer from now on. Ended by [`Shard::leaves`].
    pub fn enters(&self, class: ClassId, since: Timestamp) {
        self.class(class, |c| c.under_way.enter(since));
    }

    /// The request that arrived at `since` waits no more: the head of its answer has come, it was refused, or
    /// its visitor has left.
    pub fn leaves(&self, class: ClassId, since: Timestamp) {
        self.class(class, |c| c.under_way.leave(since));
    }

    /// A request ended, `time` after it had arrived: the time at the gate counts too. To be called besides
    /// [`Shard::ended`] and for those the gate refused after a wait, but not for visitors who left.
    pub fn took(&self, class: ClassId, is_served: bool, time: Duration) {
        self.class(class, |c| c.took(is_served, time));
    }

    /// A visitor who had to wait is let through to the origin, `wait` after it had first arrived. The wait is
    /// that in the room, and of a request that begins a session also that at the gate.
    pub fn waited(&self, class: ClassId, wait: Duration) {
        self.class(class, |c| c.waited(wait));
    }

    /// A class that the shard does not have (of a request that outlived a reload) is not counted.
    fn class(&self, class: ClassId, update: impl FnOnce(&Counters)) {
        if let Some(shard) = self.classes.get(class.index()) {
            update(shard);
        }
    }

    /// The counters of a service level, which are counted beside those of the classes. What is under way is
    /// counted by class only.
    pub fn tier(&self, tier: TierId) -> &Counters {
        self.tiers[usize::from(tier.0) % MAX_TIERS].get_or_init(Box::default)
    }
}

impl Counters {
    /// As [`Shard::arrived`].
    pub fn arrived(&self) {
        add(&self.arrivals, 1);
    }

    /// As [`Shard::shed`].
    pub fn shed(&self, reason: Event) {
        if let Some(at) = Event::SHED.iter().position(|r| *r == reason) {
            add(&self.shed[at], 1);
        }
    }

    /// As [`Shard::forwarded`].
    pub fn forwarded(&self, queue_wait: Duration) {
        add(&self.forwarded, 1);
        self.queue_wait.record(queue_wait);
    }

    /// As [`Shard::ended`].
    pub fn ended(&self, outcome: Outcome, response: Duration) {
        match outcome {
            Outcome::Served => {
                add(&self.served, 1);
                self.response.record(response);
            }
            Outcome::OriginError => {
                add(&self.origin_errors, 1);
                add(&self.error_us, u64::try_from(response.as_micros()).unwrap_or(u64::MAX));
            }
            Outcome::ClientGone => add(&self.client_gone, 1),
        }
    }

    /// As [`Shard::took`].
    pub fn took(&self, is_served: bool, time: Duration) {
        if is_served { &self.served_time } else { &self.failed_time }.record(time);
    }

    /// As [`Shard::waited`].
    pub fn waited(&self, wait: Duration) {
        self.waited.record(wait);
    }
}

/// The sum of all shards at one time, counted from the start of the process.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub at: Timestamp,
    events: [u64; Event::COUNT],
    classes: Vec<ClassTotals>,
    tiers: Vec<ClassTotals>,
}

/// The counters of one class, or of one service level.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassTotals {
    pub arrivals: u64,
    pub forwarded: u64,
    /// Requests the origin answered below 500: goodput.
    pub served: u64,
    pub origin_errors: u64,
    /// Total time of the requests that the origin failed.
    pub error_time: Duration,
    pub client_gone: u64,
    /// Requests shed, by reason, in the order of [`Event::SHED`].
    pub shed: [u64; Event::SHED.len()],
    /// Response times of requests the origin served.
    pub response: Histogram,
    pub queue_wait: Histogram,
    /// Times from arrival to end, the time at the gate included: of requests that were served, and of those
    /// that failed or were refused by the gate after a wait.
    pub served_time: Histogram,
    pub failed_time: Histogram,
    /// Waits of the visitors who were let in after a wait: [`Shard::waited`].
    pub waited: Histogram,
    /// Requests that wait for their answer now, at the gate or at the origin.
    pub under_way: Vec<Cohort>,
}

impl ClassTotals {
    fn absorb(&mut self, shard: &Counters, at: Timestamp) {
        self.arrivals += shard.arrivals.load(Relaxed);
        self.forwarded += shard.forwarded.load(Relaxed);
        self.served += shard.served.load(Relaxed);
        self.origin_errors += shard.origin_errors.load(Relaxed);
        self.error_time = self.error_time.saturating_add(Duration::from_micros(shard.error_us.load(Relaxed)));
        self.client_gone += shard.client_gone.load(Relaxed);
        self.shed.iter_mut().zip(&shard.shed).for_each(|(mine, theirs)| *mine += theirs.load(Relaxed));
        self.response.absorb(&shard.response);
        self.queue_wait.absorb(&shard.queue_wait);
        self.served_time.absorb(&shard.served_time);
        self.failed_time.absorb(&shard.failed_time);
        self.waited.absorb(&shard.waited);
        shard.under_way.read(at, &mut self.under_way);
    }

    fn merge(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.forwarded += other.forwarded;
        self.served += other.served;
        self.origin_errors += other.origin_errors;
        self.error_time = self.error_time.saturating_add(other.error_time);
        self.client_gone += other.client_gone;
        self.shed.iter_mut().zip(&other.shed).for_each(|(mine, theirs)| *mine += theirs);
        self.response.merge(&other.response);
        self.queue_wait.merge(&other.queue_wait);
        self.served_time.merge(&other.served_time);
        self.failed_time.merge(&other.failed_time);
        self.waited.merge(&other.waited);
        self.under_way.extend_from_slice(&other.under_way);
    }

    /// Requests that were sent to the origin and have not ended.
    pub fn in_flight(&self) -> u64 {
        self.forwarded.saturating_sub(self.served + self.origin_errors + self.client_gone)
    }

    /// The difference to an earlier count. What is under way is not counted but present.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            arrivals: self.arrivals.saturating_sub(earlier.arrivals),
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            served: self.served.saturating_sub(earlier.served),
            origin_errors: self.origin_errors.saturating_sub(earlier.origin_errors),
            error_time: self.error_time.saturating_sub(earlier.error_time),
            client_gone: self.client_gone.saturating_sub(earlier.client_gone),
            shed: std::array::from_fn(|i| self.shed[i].saturating_sub(earlier.shed[i])),
            response: self.response.since(&earlier.response),
            queue_wait: self.queue_wait.since(&earlier.queue_wait),
            served_time: self.served_time.since(&earlier.served_time),
            failed_time: self.failed_time.since(&earlier.failed_time),
            waited: self.waited.since(&earlier.waited),
            under_way: self.under_way.clone(),
        }
    }
}

impl Snapshot {
    /// Adds up the shards of all workers.
    pub fn take<'a>(shards: impl IntoIterator<Item = &'a Shard>, at: Timestamp) -> Self {
        let mut sum = Self { at, events: [0; Event::COUNT], classes: Vec::new(), tiers: Vec::new() };
        for shard in shards {
            for (mine, theirs) in sum.events.iter_mut().zip(&shard.events) {
                *mine += theirs.load(Relaxed);
            }
            if sum.classes.len() < shard.classes.len() {
                sum.classes.resize_with(shard.classes.len(), ClassTotals::default);
            }
            for (mine, theirs) in sum.classes.iter_mut().zip(&shard.classes) {
                mine.absorb(theirs, at);
            }
            let used = shard.tiers.iter().enumerate().filter_map(|(id, tier)| Some((id, tier.get()?)));
            for (id, theirs) in used {
                if sum.tiers.len() <= id {
                    sum.tiers.resize_with(id + 1, ClassTotals::default);
                }
                sum.tiers[id].absorb(theirs, at);
            }
        }
        sum
    }

    /// Age of the oldest request under way; zero: there is none.
    pub fn oldest(&self) -> Duration {
        let ages = self.classes.iter().flat_map(|class| &class.under_way).map(|cohort| cohort.age);
        ages.max().unwrap_or_default()
    }

    /// How often an event happened.
    pub fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Every class, by id.
    pub fn classes(&self) -> &[ClassTotals] {
        &self.classes
    }

    /// Every service level that was counted, by id.
    pub fn tiers(&self) -> &[ClassTotals] {
        &self.tiers
    }
}

/// The difference of two snapshots.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    pub span: Duration,
    events: [u64; Event::COUNT],
    classes: Vec<ClassTotals>,
    tiers: Vec<ClassTotals>,
}

impl Window {
    /// From `earlier` to `later`. Counters that went back (new shards after a reload) count as unchanged.
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Self {
        let mut events = later.events;
        for (now, then) in events.iter_mut().zip(&earlier.events) {
            *now = now.saturating_sub(*then);
        }
        let since = |later: &[ClassTotals], earlier: &[ClassTotals]| {
            let none = ClassTotals::default();
            let each = later.iter().enumerate();
            each.map(|(i, counted)| counted.since(earlier.get(i).unwrap_or(&none))).collect()
        };
        let classes = since(&later.classes, &earlier.classes);
        let tiers = since(&later.tiers, &earlier.tiers);
        Self { span: later.at.since(earlier.at), events, classes, tiers }
    }

    /// How often an event happened.
    pub fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Counts of every class, by id.
    pub fn classes(&self) -> &[ClassTotals] {
        &self.classes
    }

    /// Figures of one class; of an unknown class, those of one without traffic.
    pub fn class(&self, class: ClassId) -> Figures {
        self.classes.get(class.index()).map_or_else(Figures::default, |c| Figures::of(c, self.span))
    }

    /// Figures of one service level; of one that was not counted, those without traffic.
    pub fn tier(&self, tier: TierId) -> Figures {
        let counted = self.tiers.get(usize::from(tier.0));
        counted.map_or_else(Figures::default, |c| Figures::of(c, self.span))
    }

    /// Figures of all classes together.
    pub fn total(&self) -> Figures {
        let mut sum = ClassTotals::default();
        self.classes.iter().for_each(|c| sum.merge(c));
        Figures::of(&sum, self.span)
    }

    /// Work that arrived per second, given each class's cost by its id; classes without one count as average.
    pub fn offered(&self, costs: &[Cost]) -> Rate {
        self.work(costs, |c| c.arrivals)
    }

    /// Work that the origin served per second, given the cost of each class.
    pub fn goodput(&self, costs: &[Cost]) -> Rate {
        self.work(costs, |c| c.served)
    }

    fn work(&self, costs: &[Cost], count: impl Fn(&ClassTotals) -> u64) -> Rate {
        let cost = |i: usize| costs.get(i).copied().unwrap_or(Cost::ONE).units();
        let units: f64 = self.classes.iter().enumerate().map(|(i, c)| count(c) as f64 * cost(i)).sum();
        Rate::per_second(per_second(units, self.span)).unwrap_or(Rate::ZERO)
    }
}

/// Rates (requests per second) and times of a [`Window`]. Times are `None` where nothing was timed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Figures {
    pub offered_per_s: f64,
    pub admitted_per_s: f64,
    pub goodput_per_s: f64,
    pub errors_per_s: f64,
    pub client_gone_per_s: f64,
    /// Requests shed, by reason, in the order of [`Event::SHED`].
    pub shed_per_s: [f64; Event::SHED.len()],
    /// Of the origin.
    pub response: Times,
    pub queue_wait: Times,
    /// From arrival to end, the time at the gate included, of requests that were served.
    pub visitor: Times,
    /// Visitors who were let in after a wait, and how long they waited.
    pub waited_per_s: f64,
    pub waited: Times,
}

/// Mean and percentiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    pub mean: Option<Duration>,
    pub p50: Option<Duration>,
    pub p95: Option<Duration>,
    pub p99: Option<Duration>,
}

impl Times {
    fn of(h: &Histogram) -> Self {
        Self { mean: h.mean(), p50: h.quantile(0.5), p95: h.quantile(0.95), p99: h.quantile(0.99) }
    }
}

impl Figures {
    fn of(c: &ClassTotals, span: Duration) -> Self {
        let rate = |n: u64| per_second(n as f64, span);
        Self {
            offered_per_s: rate(c.arrivals),
            admitted_per_s: rate(c.forwarded),
            goodput_per_s: rate(c.served),
            errors_per_s: rate(c.origin_errors),
            client_gone_per_s: rate(c.client_gone),
            shed_per_s: c.shed.map(rate),
            response: Times::of(&c.response),
            queue_wait: Times::of(&c.queue_wait),
            visitor: Times::of(&c.served_time),
            waited_per_s: rate(c.waited.count()),
            waited: Times::of(&c.waited),
        }
    }
}

/// Zero for a window of no length.
fn per_second(n: f64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { n / span.as_secs_f64() }
}
