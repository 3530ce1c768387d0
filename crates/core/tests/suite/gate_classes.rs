//! The gate with classes that have limits, buckets, patience, disciplines and two lanes: what must hold after
//! every step, for every configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::bucket::{Bucket, BucketConfig};
use tidegate_core::gate::*;
use tidegate_core::queue::{DisciplineKind, Lane, QueueConfig, QueueHandle};
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::{ClassId, Cost, Rate, Share, Timestamp};

const CLASSES: usize = 4;

fn ms(n: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + n)
}

fn class() -> impl Strategy<Value = ClassConfig> {
    use DisciplineKind::{AdaptiveLifo, CoDel, Fifo, Lifo};
    let queue = (
        prop::sample::select(vec![Fifo, Lifo, AdaptiveLifo, CoDel]),
        prop::option::of(0usize..6),
        prop::option::of(1u64..80),
    );
    let egress = prop::option::of((1.0f64..200.0, 100u64..400));
    (0u8..3, 1u32..5, prop::option::of(0u32..4), queue, egress, 0u32..250_000).prop_map(
        |(priority, weight, max_in_flight, (discipline, max_length, patience_ms), egress, share)| {
            let bucket = |(rate, burst): (f64, u64)| BucketConfig {
                rate: Rate::per_second(rate).unwrap(),
                burst: Cost::from_hundredths(burst),
            };
            ClassConfig {
                priority,
                weight,
                max_in_flight,
                guarantee: Share::from_fraction(f64::from(share) / 1e6).unwrap(),
                queue: QueueConfig {
                    discipline,
                    max_length,
                    patience: patience_ms.map(Duration::from_millis),
                    target: Duration::from_millis(10),
                    interval: Duration::from_millis(50),
                },
                egress: egress.map(bucket).unwrap_or_default(),
            }
        },
    )
}

fn config() -> impl Strategy<Value = GateConfig> {
    use Scheduling::{Deficit, Priority, RoundRobin};
    let kind = prop::sample::select(vec![Priority, RoundRobin, Deficit]);
    (prop::option::of(0u32..6), 0usize..14, kind, prop::collection::vec(class(), CLASSES)).prop_map(
        |(max_in_flight, max_queue, scheduler, classes)| GateConfig {
            max_in_flight,
            max_queue,
            max_queue_wait: Duration::from_millis(60),
            scheduler,
            classes,
        },
    )
}

fn cost(class: ClassId) -> Cost {
    Cost::from_hundredths(60 + 70 * u64::from(class.0))
}

#[derive(Clone, Debug)]
enum Op {
    /// With a deadline of its own in so many milliseconds.
    Arrive(u8, Lane, Option<u64>),
    Finish(usize),
    Abandon(usize),
    Advance(u64),
    Tick,
    Drain,
    Limit(Option<u32>),
    Reconfigure(Box<GateConfig>),
}

fn ops(lanes: Vec<Lane>) -> impl Strategy<Value = Vec<Op>> {
    let arrive = (0u8..CLASSES as u8, prop::sample::select(lanes), prop::option::weighted(0.3, 0u64..50));
    let op = prop_oneof![
        9 => arrive.prop_map(|(class, lane, until)| Op::Arrive(class, lane, until)),
        6 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Abandon),
        5 => (0u64..25).prop_map(Op::Advance),
        2 => Just(Op::Tick),
        8 => Just(Op::Drain),
        1 => prop::option::of(0u32..6).prop_map(Op::Limit),
        1 => config().prop_map(|config| Op::Reconfigure(Box::new(config))),
    ];
    prop::collection::vec(op, 1..150)
}

struct Waits {
    handle: QueueHandle,
    class: ClassId,
    lane: Lane,
    since: u64,
    until: Option<u64>,
}

/// The gate, and what waits and is in flight by an account of its own.
struct Account {
    gate: Gate,
    config: GateConfig,
    limit: Option<u32>,
    now: u64,
    /// Requests that arrived; their ids.
    arrived: u64,
    /// By id, which is the order of arrival.
    waiting: BTreeMap<u64, Waits>,
    in_flight: Vec<ClassId>,
    buckets: Vec<Bucket>,
    finished: u64,
    shed: u64,
    abandoned: u64,
    /// Ordinary requests of each class that may wait: its bound, or as many as waited when that was lowered.
    most: [usize; CLASSES],
    /// Requests of each class that ever waited at once.
    longest: [usize; CLASSES],
}

fn bound(config: &GateConfig, class: usize) -> usize {
    config.classes[class].queue.max_length.unwrap_or(usize::MAX).min(config.max_queue)
}

fn ids() -> impl Iterator<Item = ClassId> {
    (0..CLASSES as u8).map(ClassId)
}

impl Account {
    fn new(config: GateConfig) -> Self {
        Self {
            gate: Gate::new(&config),
            limit: config.max_in_flight,
            buckets: config.classes.iter().map(|class| Bucket::new(&class.egress)).collect(),
            longest: [0; CLASSES],
            most: std::array::from_fn(|class| bound(&config, class)),
            config,
            now: 0,
            arrived: 0,
            waiting: BTreeMap::new(),
            in_flight: Vec::new(),
            finished: 0,
            shed: 0,
            abandoned: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| (self.in_flight.len() as u32) < limit)
    }

    fn at_origin(&self, class: ClassId) -> u32 {
        self.in_flight.iter().filter(|c| **c == class).count() as u32
    }

    fn queue(&self, class: ClassId) -> impl Iterator<Item = &Waits> {
        self.waiting.values().filter(move |w| w.class == class)
    }

    fn ordinary(&self, class: ClassId) -> usize {
        self.queue(class).filter(|w| w.lane == Lane::Ordinary).count()
    }

    /// The next request of a class in the lane of admitted sessions.
    fn first_admitted(&self, class: ClassId) -> Option<u64> {
        self.waiting.iter().find(|(_, w)| w.class == class && w.lane == Lane::Admitted).map(|(id, _)| *id)
    }

    /// The class's in-flight limit allows another request.
    fn is_below_limit(&self, class: ClassId) -> bool {
        self.config.class(class).max_in_flight.is_none_or(|most| self.at_origin(class) < most)
    }

    fn bucket_wait(&self, class: ClassId) -> Duration {
        self.buckets[class.index()].wait(cost(class), ms(self.now))
    }

    fn patience(&self, class: ClassId) -> u64 {
        let own = self.config.class(class).queue.patience;
        own.unwrap_or(self.config.max_queue_wait).as_millis() as u64
    }

    fn is_gone(&self, until: Option<u64>) -> bool {
        until.is_some_and(|until| until <= self.now)
    }

    fn is_late(&self, w: &Waits) -> bool {
        w.lane == Lane::Ordinary && self.now - w.since >= self.patience(w.class)
    }

    fn forward(&mut self, class: ClassId, lane: Lane) {
        assert!(self.has_room(), "beyond the gate's limit");
        assert!(self.is_below_limit(class), "beyond the class's limit");
        if lane == Lane::Ordinary {
            assert_eq!(self.first_admitted(class), None, "ahead of an admitted session of its class");
            for other in ids().filter(|other| self.first_admitted(*other).is_some()) {
                let may_go = self.is_below_limit(other) && self.bucket_wait(other).is_zero();
                assert!(!may_go, "ahead of an admitted session that may go");
            }
        }
        let passed = self.buckets[class.index()].take(cost(class), ms(self.now));
        assert_eq!(passed, Ok(()), "class {} is not due", class.0);
        self.in_flight.push(class);
    }

    fn apply(&mut self, op: Op) {
        let now = ms(self.now);
        match op {
            Op::Arrive(class, lane, until) => {
                self.arrive(ClassId(class), lane, until.map(|in_ms| self.now + in_ms));
            }
            Op::Finish(n) if !self.in_flight.is_empty() => {
                let class = self.in_flight.swap_remove(n % self.in_flight.len());
                self.gate.finish(class, cost(class), now);
                self.finished += 1;
            }
            Op::Abandon(n) if !self.waiting.is_empty() => {
                let id = *self.waiting.keys().nth(n % self.waiting.len()).unwrap();
                let Waits { handle, .. } = self.waiting.remove(&id).unwrap();
                assert!(self.gate.abandon(handle, now) && !self.gate.abandon(handle, now));
                self.abandoned += 1;
            }
            Op::Finish(_) | Op::Abandon(_) => {}
            Op::Advance(by) => self.now += by,
            Op::Tick => self.tick(),
            Op::Drain => self.drain(),
            Op::Limit(limit) => {
                self.limit = limit;
                self.gate.set_limit(limit);
            }
            Op::Reconfigure(config) => {
                for (bucket, class) in self.buckets.iter_mut().zip(&config.classes) {
                    bucket.reconfigure(&class.egress, now);
                }
                self.limit = config.max_in_flight;
                self.gate.reconfigure(&config, now);
                self.config = *config;
                self.most =
                    std::array::from_fn(|c| bound(&self.config, c).max(self.ordinary(ClassId(c as u8))));
            }
        }
        self.check();
        self.most = std::array::from_fn(|c| {
            bound(&self.config, c).max(self.ordinary(ClassId(c as u8)).min(self.most[c]))
        });
    }

    fn arrive(&mut self, class: ClassId, lane: Lane, until: Option<u64>) {
        self.arrived += 1;
        let (id, cost) = (self.arrived, cost(class));
        match self.gate.arrive_as(Request { id, class, cost }, lane, until.map(ms), ms(self.now)) {
            QueueDecision::Forward => {
                assert!(!self.is_gone(until), "its visitor has left");
                let ahead = self.queue(class).filter(|w| lane == Lane::Ordinary || w.lane == lane).count();
                assert_eq!(ahead, 0, "ahead of its own class");
                self.forward(class, lane);
            }
            QueueDecision::Queued(handle) => {
                let longest = self.longest[class.index()].max(self.queue(class).count() + 1);
                self.longest[class.index()] = longest;
                assert!(handle.slot() < longest, "memory for more than ever waited");
                let is_bounded =
                    lane == Lane::Admitted || self.ordinary(class) < bound(&self.config, class.index());
                assert!(is_bounded, "beyond the class's bound");
                self.waiting.insert(id, Waits { handle, class, lane, since: self.now, until });
                // Requests held by their own class's limits do not count.
                let others = self.waiting.values().filter(|waits| !self.gate.is_held(waits.class)).count();
                assert!(lane == Lane::Admitted || others <= self.config.max_queue, "{others}");
            }
            QueueDecision::Shed(reason) => {
                let is_gone = self.is_gone(until);
                assert_eq!(reason, if is_gone { ShedReason::Patience } else { ShedReason::QueueFull });
                assert!(is_gone || lane == Lane::Ordinary, "an admitted session was refused");
                self.shed += 1;
            }
        }
    }

    fn tick(&mut self) {
        while let Some((woken, reason)) = self.gate.tick(ms(self.now)) {
            let w = self.waiting.remove(&woken.id).expect("it waits");
            assert_eq!(w.lane, Lane::Ordinary, "an admitted session was refused");
            assert!(self.is_late(&w) || self.is_gone(w.until), "refused too soon");
            let own = self.config.class(w.class).queue.patience.is_some();
            let timeout = reason == ShedReason::QueueTimeout;
            assert!(timeout != own || self.is_gone(w.until), "{reason:?}");
            self.shed += 1;
        }
        assert!(!self.waiting.values().any(|w| self.is_late(w)), "a request waits for longer than allowed");
    }

    fn drain(&mut self) {
        while let Some(leaving) = self.gate.next(ms(self.now)) {
            let (Leaving::Forward(woken) | Leaving::Shed(woken, _)) = leaving;
            let first = self.first_admitted(woken.class);
            let w = self.waiting.remove(&woken.id).expect("it waits");
            assert!(w.lane == Lane::Ordinary || first == Some(woken.id), "out of order");
            assert_eq!(woken.waited, Duration::from_millis(self.now - w.since));
            let queue = self.config.class(w.class).queue;
            match leaving {
                Leaving::Forward(_) => {
                    // The gate's own longest wait is checked on the tick only.
                    let is_late = queue.patience.is_some() && self.is_late(&w);
                    assert!(!is_late && !self.is_gone(w.until), "its visitor has left");
                    self.forward(w.class, w.lane);
                }
                Leaving::Shed(_, ShedReason::CoDel) => {
                    assert_eq!((queue.discipline, w.lane), (DisciplineKind::CoDel, Lane::Ordinary));
                    self.shed += 1;
                }
                Leaving::Shed(_, reason) => {
                    assert_eq!(reason, ShedReason::Patience);
                    assert!(self.is_late(&w) || self.is_gone(w.until), "{reason:?} too soon");
                    self.shed += 1;
                }
            }
        }
        // No request is left that may go, and the gate names the time when the first bucket lets one pass.
        let ready = if self.has_room() {
            let blocked = ids().filter(|c| self.queue(*c).next().is_some() && self.is_below_limit(*c));
            let waits: Vec<_> = blocked.map(|class| self.bucket_wait(class)).collect();
            assert!(waits.iter().all(|wait| *wait > Duration::ZERO), "a request may go");
            waits.into_iter().min().map(|wait| ms(self.now) + wait)
        } else {
            None
        };
        assert_eq!(self.gate.next_ready(), ready);
    }

    fn check(&self) {
        let t = self.gate.totals();
        assert_eq!(
            (t.arrived, t.finished, t.shed(), t.abandoned),
            (self.arrived, self.finished, self.shed, self.abandoned)
        );
        assert_eq!((t.queued, t.in_flight as usize), (self.waiting.len(), self.in_flight.len()));
        assert_eq!(t.arrived, t.finished + t.shed() + t.abandoned + t.queued as u64 + u64::from(t.in_flight));
        let work =
            |classes: &mut dyn Iterator<Item = ClassId>| classes.map(cost).fold(Cost::ZERO, |a, b| a + b);
        assert_eq!(t.queued_cost, work(&mut self.waiting.values().map(|w| w.class)));
        assert_eq!(t.in_flight_cost, work(&mut self.in_flight.iter().copied()));
        let ready = |w: &&Waits| w.lane == Lane::Admitted && !self.gate.is_held(w.class);
        let admitted = || self.waiting.values().filter(ready).map(|w| w.class);
        assert_eq!((t.admitted, t.admitted_cost), (admitted().count(), work(&mut admitted())));
        let held = ids().filter(|c| self.gate.is_held(*c)).map(|c| self.gate.queued(c)).sum::<usize>();
        assert_eq!(t.held, held);
        for class in ids() {
            assert_eq!(self.gate.queued(class), self.queue(class).count());
            // Also of those held by the class's own limits, which the common bound does not count.
            assert!(self.ordinary(class) <= self.most[class.index()]);
            assert_eq!(self.gate.in_flight(class), self.at_origin(class));
            let is_empty = self.queue(class).next().is_none();
            assert!(self.is_below_limit(class) || is_empty || self.gate.is_held(class));
            // Two requests of a class never have one handle, whatever their lanes.
            let handles: BTreeSet<_> = self.queue(class).map(|w| w.handle.slot()).collect();
            assert_eq!(handles.len(), self.queue(class).count());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn classes_keep_their_limits_and_lose_no_request(config in config(), ops in ops(vec![Lane::Ordinary])) {
        let mut account = Account::new(config);
        ops.into_iter().for_each(|op| account.apply(op));
    }

    #[test]
    fn admitted_sessions_go_first_and_are_not_refused(
        config in config(),
        ops in ops(vec![Lane::Ordinary, Lane::Admitted]),
    ) {
        let mut account = Account::new(config);
        ops.into_iter().for_each(|op| account.apply(op));
    }
}

#[test]
fn a_class_held_by_its_bucket_lets_others_pass() {
    let egress = BucketConfig { rate: Rate::per_second(10.0).unwrap(), burst: Cost::ONE };
    let slow = ClassConfig { priority: 0, egress, ..ClassConfig::default() };
    let mut gate = Gate::new(&GateConfig {
        max_in_flight: Some(8),
        classes: vec![slow, ClassConfig::default()],
        ..GateConfig::default()
    });
    let request = |id, class| Request { id, class: ClassId(class), cost: Cost::ONE };
    assert_eq!(gate.arrive(request(1, 0), ms(0)), QueueDecision::Forward);
    assert!(matches!(gate.arrive(request(2, 0), ms(0)), QueueDecision::Queued(_)));
    assert_eq!(gate.arrive(request(3, 1), ms(1)), QueueDecision::Forward);
    assert_eq!((gate.next(ms(99)), gate.next_ready()), (None, Some(ms(100))));
    assert_eq!((gate.totals().held, gate.totals().backlog()), (1, 0));
    assert_eq!(gate.totals().entering_cost, Cost::ZERO, "the origin is not what it waits for");
    assert_eq!(gate.next(ms(100)).and_then(Leaving::forwarded).map(|w| w.id), Some(2));
    assert_eq!(gate.next_ready(), None);
}

/// Newcomers give way to requests of sessions that wait for the origin, not to those that a bucket holds
/// back.
#[test]
fn requests_of_sessions_that_their_class_holds_back_do_not_wait_for_the_origin() {
    let egress = BucketConfig { rate: Rate::per_second(10.0).unwrap(), burst: Cost::ONE };
    let slow = ClassConfig { egress, ..ClassConfig::default() };
    let mut gate = Gate::new(&GateConfig {
        max_in_flight: Some(8),
        classes: vec![slow, ClassConfig::default()],
        ..GateConfig::default()
    });
    let request = |id| Request { id, class: ClassId(0), cost: Cost::ONE };
    let before = gate.max_pages();
    assert_eq!(gate.arrive_as(request(1), Lane::Admitted, None, ms(0)), QueueDecision::Forward);
    for id in 2..5 {
        let decision = gate.arrive_as(request(id), Lane::Admitted, None, ms(0));
        assert!(matches!(decision, QueueDecision::Queued(_)));
    }
    assert_eq!((gate.totals().held, gate.totals().of_sessions, gate.max_pages()), (3, 0, before));
}

/// The work of an admitted session holds back ordinary requests of its class that arrived before it.
#[test]
fn an_admitted_session_uses_the_limits_of_its_class() {
    let class = ClassConfig { max_in_flight: Some(1), ..ClassConfig::default() };
    let egress = BucketConfig { rate: Rate::per_second(10.0).unwrap(), burst: Cost::ONE };
    let config =
        GateConfig { classes: vec![class, ClassConfig { egress, ..class }], ..GateConfig::default() };
    for number in [0, 1] {
        let mut gate = Gate::new(&config);
        let request = |id| Request { id, class: ClassId(number), cost: Cost::ONE };
        let next = |gate: &mut Gate, now| gate.next(ms(now)).and_then(Leaving::forwarded).map(|w| w.id);
        assert_eq!(gate.arrive(request(1), ms(0)), QueueDecision::Forward);
        assert!(matches!(gate.arrive(request(2), ms(0)), QueueDecision::Queued(_)));
        gate.finish(ClassId(number), Cost::ONE, ms(100));
        // `next` was not called yet: the free slot goes to the session.
        assert_eq!(gate.arrive_as(request(3), Lane::Admitted, None, ms(100)), QueueDecision::Forward);
        assert_eq!(next(&mut gate, 100), None);
        assert!(matches!(
            gate.arrive_as(request(4), Lane::Admitted, None, ms(100)),
            QueueDecision::Queued(_)
        ));
        gate.finish(ClassId(number), Cost::ONE, ms(200));
        assert_eq!(next(&mut gate, 200), Some(4));
        gate.finish(ClassId(number), Cost::ONE, ms(300));
        assert_eq!(next(&mut gate, 300), Some(2));
    }
}
