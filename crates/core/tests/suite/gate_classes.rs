//! The gate with classes that have limits, buckets, patience and disciplines of their own: what must hold after every step,
//! whatever the set-up.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::bucket::{Bucket, BucketConfig};
use tidegate_core::gate::*;
use tidegate_core::queue::{DisciplineKind, Lane, QueueHandle};
use tidegate_core::units::{ClassId, Cost, Rate};

use super::gates;

use gates::{CLASSES, config, cost, ms};

#[derive(Clone, Debug)]
enum Op {
    /// With a deadline of its own in so many milliseconds.
    Arrive(u8, Option<u64>),
    Finish(usize),
    Abandon(usize),
    Advance(u64),
    Tick,
    Drain,
    Limit(Option<u32>),
    Reconfigure(Box<GateConfig>),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        9 => (0u8..CLASSES as u8, prop::option::weighted(0.3, 0u64..50)).prop_map(|(c, until)| Op::Arrive(c, until)),
        6 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Abandon),
        5 => (0u64..25).prop_map(Op::Advance),
        2 => Just(Op::Tick),
        8 => Just(Op::Drain),
        1 => prop::option::of(0u32..6).prop_map(Op::Limit),
        1 => config().prop_map(|config| Op::Reconfigure(Box::new(config))),
    ]
}

struct Waits {
    handle: QueueHandle,
    class: ClassId,
    cost: Cost,
    since: u64,
    until: Option<u64>,
}

/// Our own account of who is where, and what each class's bucket lets pass.
struct Account {
    gate: Gate,
    config: GateConfig,
    limit: Option<u32>,
    now: u64,
    next_id: u64,
    /// By id, which is the order of arrival.
    waiting: BTreeMap<u64, Waits>,
    in_flight: Vec<(ClassId, Cost)>,
    buckets: Vec<Bucket>,
    arrived: u64,
    finished: u64,
    shed: u64,
    abandoned: u64,
    /// As many of each class may wait: its bound, or as many as did when that was lowered.
    most: [usize; CLASSES],
    /// As many of each class ever waited at once.
    longest: [usize; CLASSES],
}

fn bound(config: &GateConfig, class: usize) -> usize {
    config.classes[class].queue.max_length.unwrap_or(usize::MAX).min(config.max_queue)
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
            next_id: 0,
            waiting: BTreeMap::new(),
            in_flight: Vec::new(),
            arrived: 0,
            finished: 0,
            shed: 0,
            abandoned: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| (self.in_flight.len() as u32) < limit)
    }

    fn at_origin(&self, class: ClassId) -> u32 {
        self.in_flight.iter().filter(|(c, _)| *c == class).count() as u32
    }

    fn queue(&self, class: ClassId) -> impl Iterator<Item = &Waits> {
        self.waiting.values().filter(move |w| w.class == class)
    }

    /// The class's own limit leaves room.
    fn may(&self, class: ClassId) -> bool {
        self.config.class(class).max_in_flight.is_none_or(|most| self.at_origin(class) < most)
    }

    fn patience(&self, class: ClassId) -> u64 {
        let own = self.config.class(class).queue.patience;
        own.unwrap_or(self.config.max_queue_wait).as_millis() as u64
    }

    fn is_expired(&self, w: &Waits) -> bool {
        self.now - w.since >= self.patience(w.class) || w.until.is_some_and(|until| until <= self.now)
    }

    fn forward(&mut self, class: ClassId, cost: Cost) {
        assert!(self.has_room(), "beyond the gate's limit");
        assert!(self.may(class), "beyond the class's limit");
        let passed = self.buckets[class.index()].take(cost, ms(self.now));
        assert_eq!(passed, Ok(()), "class {} is not due", class.0);
        self.in_flight.push((class, cost));
    }

    fn apply(&mut self, op: Op) {
        let now = ms(self.now);
        match op {
            Op::Arrive(class, until) => self.arrive(ClassId(class), until.map(|in_ms| self.now + in_ms)),
            Op::Finish(n) if !self.in_flight.is_empty() => {
                let (class, cost) = self.in_flight.swap_remove(n % self.in_flight.len());
                self.gate.finish(class, cost, now);
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
                    std::array::from_fn(|c| bound(&self.config, c).max(self.gate.queued(ClassId(c as u8))));
            }
        }
        self.check();
        for (class, most) in self.most.iter_mut().enumerate() {
            *most = bound(&self.config, class).max(self.gate.queued(ClassId(class as u8)).min(*most));
        }
    }

    fn arrive(&mut self, class: ClassId, until: Option<u64>) {
        self.next_id += 1;
        self.arrived += 1;
        let (id, cost) = (self.next_id, cost(class));
        let decision =
            self.gate.arrive_as(Request { id, class, cost }, Lane::Ordinary, until.map(ms), ms(self.now));
        match decision {
            QueueDecision::Forward => {
                assert_eq!(self.queue(class).count(), 0, "ahead of its own class");
                assert!(until.is_none_or(|until| until > self.now), "nobody waits for its answer");
                self.forward(class, cost);
            }
            QueueDecision::Queued(handle) => {
                assert!(self.queue(class).count() < bound(&self.config, class.index()));
                self.longest[class.index()] = self.longest[class.index()].max(self.queue(class).count() + 1);
                assert!(handle.slot() < self.longest[class.index()], "memory for more than ever waited");
                self.waiting.insert(id, Waits { handle, class, cost, since: self.now, until });
                // Whom only their own class's limits hold are in nobody's way.
                let others = self.waiting.values().filter(|waits| !self.gate.is_held(waits.class)).count();
                assert!(others <= self.config.max_queue, "{others}");
            }
            QueueDecision::Shed(reason) => {
                let expected =
                    if self.is_expired_at_once(until) { ShedReason::Patience } else { ShedReason::QueueFull };
                assert_eq!(reason, expected);
                self.shed += 1;
            }
        }
    }

    fn is_expired_at_once(&self, until: Option<u64>) -> bool {
        until.is_some_and(|until| until <= self.now)
    }

    fn tick(&mut self) {
        while let Some((woken, reason)) = self.gate.tick(ms(self.now)) {
            let w = self.waiting.remove(&woken.id).expect("it waits");
            assert!(self.is_expired(&w), "given up too soon");
            let own = self.config.class(w.class).queue.patience.is_some();
            let timeout = reason == ShedReason::QueueTimeout;
            assert!(timeout != own || w.until.is_some_and(|until| until <= self.now), "{reason:?}");
            self.shed += 1;
        }
        let late = self.waiting.values().find(|w| self.now - w.since >= self.patience(w.class));
        assert!(late.is_none(), "somebody waits for longer than anybody may");
    }

    fn drain(&mut self) {
        while let Some(leaving) = self.gate.next(ms(self.now)) {
            match leaving {
                Leaving::Forward(woken) => {
                    let w = self.waiting.remove(&woken.id).expect("it waits");
                    // The wait that holds for all is the tick's business.
                    let own = self.config.class(w.class).queue.patience.is_some();
                    let late = own && self.now - w.since >= self.patience(w.class);
                    let is_gone = w.until.is_some_and(|until| until <= self.now);
                    assert!(!late && !is_gone, "the origin works for nobody");
                    assert_eq!(woken.waited, Duration::from_millis(self.now - w.since));
                    self.forward(w.class, w.cost);
                }
                Leaving::Shed(woken, reason) => {
                    let w = self.waiting.remove(&woken.id).expect("it waits");
                    let discipline = self.config.class(w.class).queue.discipline;
                    match reason {
                        ShedReason::CoDel => assert_eq!(discipline, DisciplineKind::CoDel),
                        _ => {
                            assert_eq!(reason, ShedReason::Patience);
                            assert!(self.is_expired(&w), "{reason:?} of one with patience");
                        }
                    }
                    self.shed += 1;
                }
            }
        }
        // Nobody is left who could go, and whoever waits for a bucket is told of.
        if self.has_room() {
            let wait = |class: ClassId| {
                let next = self.queue(class).next().filter(|_| self.may(class))?;
                Some(self.buckets[class.index()].wait(next.cost, ms(self.now)))
            };
            let waits: Vec<_> = (0..CLASSES as u8).filter_map(|class| wait(ClassId(class))).collect();
            assert!(waits.iter().all(|wait| *wait > Duration::ZERO), "somebody could go");
            let ready = waits.into_iter().min().map(|wait| ms(self.now) + wait);
            assert_eq!(self.gate.next_ready(), ready);
        } else {
            assert_eq!(self.gate.next_ready(), None);
        }
    }

    fn check(&self) {
        let t = self.gate.totals();
        assert_eq!(
            (t.arrived, t.finished, t.shed(), t.abandoned),
            (self.arrived, self.finished, self.shed, self.abandoned)
        );
        assert_eq!((t.queued, t.in_flight as usize), (self.waiting.len(), self.in_flight.len()));
        assert_eq!(t.arrived, t.finished + t.shed() + t.abandoned + t.queued as u64 + u64::from(t.in_flight));
        // Also of those held by their own class's limits, whom the common bound does not count.
        assert!(t.queued <= self.most.iter().sum(), "{} wait where {:?} may", t.queued, self.most);
        let sum = |costs: &mut dyn Iterator<Item = Cost>| costs.fold(Cost::ZERO, |a, b| a + b);
        assert_eq!(t.queued_cost, sum(&mut self.waiting.values().map(|w| w.cost)));
        assert_eq!(t.in_flight_cost, sum(&mut self.in_flight.iter().map(|(_, cost)| *cost)));
        let ids = || (0..CLASSES as u8).map(ClassId);
        assert_eq!(
            t.held,
            ids().filter(|c| self.gate.is_held(*c)).map(|c| self.gate.queued(c)).sum::<usize>()
        );
        for class in ids() {
            assert_eq!(self.gate.queued(class), self.queue(class).count());
            assert!(self.gate.queued(class) <= self.most[class.index()]);
            assert_eq!(self.gate.in_flight(class), self.at_origin(class));
            assert!(self.may(class) || self.queue(class).next().is_none() || self.gate.is_held(class));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn whatever_the_classes_may_nothing_is_lost_late_or_too_much(
        config in config(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut account = Account::new(config);
        ops.into_iter().for_each(|op| account.apply(op));
    }
}

/// A class that its bucket holds back is in nobody's way, and goes when the bucket says so.
#[test]
fn a_class_that_is_held_lets_others_pass() {
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
    assert_eq!(gate.next(ms(100)).and_then(Leaving::forwarded).map(|w| w.id), Some(2));
    assert_eq!(gate.next_ready(), None);
}
