//! Requests of admitted sessions at the gate, whatever the classes' limits: first, in order, and never refused for load.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::bucket::{Bucket, BucketConfig};
use tidegate_core::gate::*;
use tidegate_core::queue::{Lane, QueueHandle};
use tidegate_core::units::{ClassId, Cost, Rate};

use super::gates;

use gates::{CLASSES, config, cost, ms};

#[derive(Clone, Debug)]
enum Op {
    Arrive(u8, Lane, Option<u64>),
    Finish(usize),
    Abandon(usize),
    Advance(u64),
    Tick,
    Drain,
    Limit(Option<u32>),
    Reconfigure(Box<GateConfig>),
}

fn op() -> impl Strategy<Value = Op> {
    let lane = || prop::sample::select(vec![Lane::Ordinary, Lane::Admitted]);
    let until = || prop::option::weighted(0.2, 0u64..50);
    prop_oneof![
        9 => (0u8..CLASSES as u8, lane(), until()).prop_map(|(c, lane, until)| Op::Arrive(c, lane, until)),
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
    lane: Lane,
    until: Option<u64>,
}

struct Account {
    gate: Gate,
    config: GateConfig,
    now: u64,
    next_id: u64,
    /// By id, which is the order of arrival.
    waiting: BTreeMap<u64, Waits>,
    in_flight: Vec<ClassId>,
    buckets: Vec<Bucket>,
}

impl Account {
    fn new(config: GateConfig) -> Self {
        Self {
            gate: Gate::new(&config),
            buckets: config.classes.iter().map(|class| Bucket::new(&class.egress)).collect(),
            config,
            now: 0,
            next_id: 0,
            waiting: BTreeMap::new(),
            in_flight: Vec::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        let now = ms(self.now);
        match op {
            Op::Arrive(class, lane, until) => {
                self.arrive(ClassId(class), lane, until.map(|in_ms| self.now + in_ms))
            }
            Op::Finish(n) if !self.in_flight.is_empty() => {
                let class = self.in_flight.swap_remove(n % self.in_flight.len());
                self.gate.finish(class, cost(class), now);
            }
            Op::Abandon(n) if !self.waiting.is_empty() => {
                let id = *self.waiting.keys().nth(n % self.waiting.len()).unwrap();
                let Waits { handle, .. } = self.waiting.remove(&id).unwrap();
                assert!(self.gate.abandon(handle, now) && !self.gate.abandon(handle, now));
            }
            Op::Finish(_) | Op::Abandon(_) => {}
            Op::Advance(by) => self.now += by,
            Op::Tick => {
                while let Some((woken, _)) = self.gate.tick(now) {
                    let waits = self.waiting.remove(&woken.id).expect("it waits");
                    assert_eq!(waits.lane, Lane::Ordinary, "a session's request was given up on");
                }
            }
            Op::Drain => self.drain(),
            Op::Limit(limit) => self.gate.set_limit(limit),
            Op::Reconfigure(config) => {
                for (bucket, class) in self.buckets.iter_mut().zip(&config.classes) {
                    bucket.reconfigure(&class.egress, now);
                }
                self.gate.reconfigure(&config, now);
                self.config = *config;
            }
        }
        self.check();
    }

    fn arrive(&mut self, class: ClassId, lane: Lane, until: Option<u64>) {
        self.next_id += 1;
        let (id, cost) = (self.next_id, cost(class));
        let is_over = until.is_some_and(|until| until <= self.now);
        match self.gate.arrive_as(Request { id, class, cost }, lane, until.map(ms), ms(self.now)) {
            QueueDecision::Forward => self.forward(class, lane),
            QueueDecision::Queued(handle) => {
                let others = self.waiting.insert(id, Waits { handle, class, lane, until });
                assert!(others.is_none());
            }
            QueueDecision::Shed(reason) if lane == Lane::Admitted => {
                assert!(
                    is_over && reason == ShedReason::Patience,
                    "a session's request was refused: {reason:?}"
                );
            }
            QueueDecision::Shed(_) => {}
        }
    }

    /// The id of the session's request that is next in a class.
    fn first_admitted(&self, class: ClassId) -> Option<u64> {
        self.waiting.iter().find(|(_, w)| w.class == class && w.lane == Lane::Admitted).map(|(id, _)| *id)
    }

    fn may(&self, class: ClassId) -> bool {
        let at_origin = self.in_flight.iter().filter(|c| **c == class).count() as u32;
        let limit = self.config.class(class).max_in_flight;
        let is_due = self.buckets[class.index()].wait(cost(class), ms(self.now)).is_zero();
        limit.is_none_or(|most| at_origin < most) && is_due
    }

    fn forward(&mut self, class: ClassId, lane: Lane) {
        if lane == Lane::Ordinary {
            assert_eq!(self.first_admitted(class), None, "past a session's request of its class");
            for other in (0..CLASSES as u8).map(ClassId) {
                assert!(self.first_admitted(other).is_none() || !self.may(other), "past one that could go");
            }
        }
        assert!(self.may(class), "beyond the class's own limits");
        self.buckets[class.index()].take(cost(class), ms(self.now)).expect("it is due");
        self.in_flight.push(class);
    }

    fn drain(&mut self) {
        while let Some(leaving) = self.gate.next(ms(self.now)) {
            let (Leaving::Forward(woken) | Leaving::Shed(woken, _)) = leaving;
            let first = self.first_admitted(woken.class);
            let waits = self.waiting.remove(&woken.id).expect("it waits");
            if waits.lane == Lane::Admitted {
                assert_eq!(first, Some(woken.id), "out of order");
            }
            match leaving {
                Leaving::Forward(_) => self.forward(waits.class, waits.lane),
                Leaving::Shed(_, reason) if waits.lane == Lane::Admitted => {
                    assert!(reason == ShedReason::Patience && waits.until.is_some_and(|at| at <= self.now));
                }
                Leaving::Shed(..) => {}
            }
        }
    }

    fn check(&self) {
        let t = self.gate.totals();
        assert_eq!((t.queued, t.in_flight as usize), (self.waiting.len(), self.in_flight.len()));
        assert_eq!(t.arrived, t.finished + t.shed() + t.abandoned + t.queued as u64 + u64::from(t.in_flight));
        let waits = |w: &&Waits| w.lane == Lane::Admitted && !self.gate.is_held(w.class);
        let admitted = || self.waiting.values().filter(waits);
        let work = admitted().map(|w| cost(w.class)).fold(Cost::ZERO, |sum, cost| sum + cost);
        assert_eq!((t.admitted, t.admitted_cost), (admitted().count(), work));
        // Two requests of a class never have one handle, whatever their lanes.
        for class in (0..CLASSES as u8).map(ClassId) {
            let handles = || self.waiting.values().filter(|w| w.class == class).map(|w| w.handle.slot());
            assert_eq!(handles().collect::<std::collections::BTreeSet<_>>().len(), handles().count());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn sessions_requests_go_first_and_are_not_refused(
        config in config(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut account = Account::new(config);
        ops.into_iter().for_each(|op| account.apply(op));
    }
}

/// What an admitted session takes of its class's limits holds back those of the class who came before it.
#[test]
fn a_sessions_request_takes_of_its_classs_limits() {
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
        // Nobody has been asked for yet: there is room for one, and it is the session's.
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
