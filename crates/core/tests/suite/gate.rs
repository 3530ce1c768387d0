//! The gate against a simple model of plain lists.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::gate::*;
use tidegate_core::queue::{Full, Lane, Queue, QueueConfig, QueueHandle, Waiting};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use super::heap;

const PATIENCE: Duration = Duration::from_millis(50);
const PRIORITIES: [u8; 4] = [1, 0, 1, 5];

fn config(max_in_flight: Option<u32>, max_queue: usize) -> GateConfig {
    GateConfig {
        classes: classes(PRIORITIES),
        max_in_flight,
        max_queue,
        max_queue_wait: PATIENCE,
        ..GateConfig::default()
    }
}

fn classes(priorities: [u8; 4]) -> Vec<ClassConfig> {
    priorities.map(|priority| ClassConfig { priority, ..ClassConfig::default() }).to_vec()
}

fn ms(n: u64) -> Timestamp {
    Timestamp::from_millis(1_000 + n)
}

fn request(id: u64, class: u8) -> Request {
    Request { id, class: ClassId(class), cost: Cost::from_hundredths(u64::from(class) * 50 + 100) }
}

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        class: u8,
        lane: Lane,
    },
    /// The n-th request in flight ends, modulo their number.
    Finish(usize),
    /// The n-th waiting request is abandoned.
    Abandon(usize),
    /// All requests that have left the queue are abandoned again, even if others use their nodes.
    AbandonGone,
    Advance(u64),
    /// Takes out all requests that may go; left out at times, so that arrivals meet a queue and a free slot
    /// at once.
    Drain,
    Limit(Option<u32>),
    NewcomerRate(Option<u32>),
    Reconfigure {
        max_queue: usize,
        swap: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u8..4, lane()).prop_map(|(class, lane)| Op::Arrive { class, lane }),
        6 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Abandon),
        1 => Just(Op::AbandonGone),
        3 => (0u64..30).prop_map(Op::Advance),
        8 => Just(Op::Drain),
        1 => prop::option::of(0u32..6).prop_map(Op::Limit),
        1 => prop::option::of(0u32..200).prop_map(Op::NewcomerRate),
        1 => (0usize..12, any::<bool>()).prop_map(|(max_queue, swap)| Op::Reconfigure { max_queue, swap }),
    ]
}

fn lane() -> impl Strategy<Value = Lane> {
    prop_oneof![3 => Just(Lane::Ordinary), 1 => Just(Lane::Admitted), 2 => Just(Lane::Newcomer)]
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
struct Waits {
    request: Request,
    lane: Lane,
    since: u64,
}

/// Plain lists, searched from the front.
struct Model {
    gate: Gate,
    now: u64,
    limit: Option<u32>,
    max_queue: usize,
    priorities: [u8; 4],
    next_id: u64,
    /// In order of arrival.
    waiting: Vec<Waits>,
    /// By id, also of requests that have left.
    handles: HashMap<u64, QueueHandle>,
    in_flight: Vec<Request>,
    /// Arrived, finished, shed, abandoned.
    counts: [u64; 4],
    newcomer_rate: Option<f64>,
    /// The last newcomer who went, and when.
    last_newcomer: Option<(u64, Cost)>,
}

impl Model {
    fn new() -> Self {
        Self {
            gate: Gate::new(&config(Some(3), 8)),
            now: 0,
            limit: Some(3),
            max_queue: 8,
            priorities: PRIORITIES,
            next_id: 0,
            waiting: Vec::new(),
            handles: HashMap::new(),
            in_flight: Vec::new(),
            counts: [0; 4],
            newcomer_rate: None,
            last_newcomer: None,
        }
    }

    fn room(&self) -> bool {
        self.limit.is_none_or(|l| (self.in_flight.len() as u32) < l)
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Arrive { class, lane } => self.arrive(class, lane),
            Op::Finish(n) if !self.in_flight.is_empty() => {
                let done = self.in_flight.remove(n % self.in_flight.len());
                self.gate.finish(done.class, done.cost, ms(self.now));
                self.counts[1] += 1;
            }
            Op::Abandon(n) if !self.waiting.is_empty() => {
                let gone = self.waiting.remove(n % self.waiting.len()).request.id;
                assert!(self.gate.abandon(self.handles[&gone], ms(self.now)));
                assert!(!self.gate.abandon(self.handles[&gone], ms(self.now)), "twice");
                self.counts[3] += 1;
            }
            Op::AbandonGone => {
                let waits = |id: &u64| self.waiting.iter().any(|w| w.request.id == *id);
                let gone: Vec<_> =
                    self.handles.iter().filter(|(id, _)| !waits(id)).map(|(_, s)| *s).collect();
                gone.into_iter().for_each(|handle| assert!(!self.gate.abandon(handle, ms(self.now))));
            }
            Op::Advance(by) => self.advance(by),
            Op::Drain => self.drain(),
            Op::Limit(limit) => {
                self.limit = limit;
                self.gate.set_limit(limit);
            }
            Op::Reconfigure { max_queue, swap } => {
                self.max_queue = max_queue;
                if swap {
                    self.priorities.reverse();
                }
                let classes = classes(self.priorities);
                let config = GateConfig { classes, ..config(self.limit, max_queue) };
                self.gate.reconfigure(&config, ms(self.now));
            }
            Op::NewcomerRate(rate) => {
                let per_second = |rate: u32| Rate::per_second(rate.into()).unwrap();
                self.gate.set_newcomer_rate(rate.map(per_second), ms(self.now));
                // A rate of zero is none.
                self.newcomer_rate = rate.filter(|rate| *rate > 0).map(f64::from);
            }
            Op::Finish(_) | Op::Abandon(_) => {}
        }
        self.check();
    }

    /// When the next newcomer may go.
    fn turn(&self) -> Timestamp {
        let (Some(rate), Some((at, cost))) = (self.newcomer_rate, self.last_newcomer) else { return ms(0) };
        ms(at) + Duration::from_secs_f64(cost.units() / rate)
    }

    fn may_go(&self, lane: Lane) -> bool {
        lane != Lane::Newcomer || self.turn() <= ms(self.now)
    }

    /// Waiting requests that go before a new one of that lane.
    fn ahead_of(&self, lane: Lane) -> usize {
        let may_go = self.waiting.iter().filter(|w| self.may_go(w.lane));
        may_go.filter(|w| lane != Lane::Admitted || w.lane == Lane::Admitted).count()
    }

    fn forwarded(&mut self, request: Request, lane: Lane) {
        if lane == Lane::Newcomer {
            assert!(self.may_go(lane), "{request:?} before {:?}", self.turn());
            self.last_newcomer = Some((self.now, request.cost));
        }
        self.in_flight.push(request);
    }

    fn arrive(&mut self, class: u8, lane: Lane) {
        self.next_id += 1;
        let request = request(self.next_id, class);
        self.counts[0] += 1;
        let decision = match lane {
            Lane::Ordinary => self.gate.arrive(request, ms(self.now)),
            _ => self.gate.arrive_as(request, lane, None, ms(self.now)),
        };
        if self.room() && self.may_go(lane) && self.ahead_of(lane) == 0 {
            self.forwarded(request, lane);
            assert_eq!(decision, QueueDecision::Forward);
        } else if lane != Lane::Ordinary || self.waiting.len() < self.max_queue {
            self.waiting.push(Waits { request, lane, since: self.now });
            let QueueDecision::Queued(handle) = decision else {
                panic!("{decision:?}, expected it to be queued")
            };
            assert_eq!(handle.class(), request.class);
            self.handles.insert(request.id, handle);
        } else {
            self.counts[2] += 1;
            assert_eq!(decision, QueueDecision::Shed(ShedReason::QueueFull));
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut shed = Vec::new();
        while let Some((w, reason)) = self.gate.tick(ms(self.now)) {
            assert_eq!(reason, ShedReason::QueueTimeout);
            assert!(w.waited >= PATIENCE, "shed after {:?}", w.waited);
            shed.push(w.id);
        }
        let patience = PATIENCE.as_millis() as u64;
        let is_over = |w: &Waits| w.lane == Lane::Ordinary && w.since + patience <= self.now;
        let (gone, stay) = self.waiting.iter().copied().partition::<Vec<Waits>, _>(is_over);
        let mut expected: Vec<_> = gone.iter().map(|w| w.request.id).collect();
        expected.sort_unstable();
        shed.sort_unstable();
        assert_eq!(shed, expected);
        self.counts[2] += gone.len() as u64;
        self.waiting = stay;
    }

    /// The gate forwards admitted sessions first, then by priority, then by arrival; within a class newcomers
    /// before ordinary requests, once their turn has come.
    fn drain(&mut self) {
        loop {
            let first_of = |class| {
                let queued =
                    self.waiting.iter().enumerate().filter(|(_, w)| w.request.class.index() == class);
                let lane = |w: &Waits| (w.lane != Lane::Admitted, w.lane == Lane::Ordinary);
                queued.filter(|(_, w)| self.may_go(w.lane)).min_by_key(|(at, w)| (lane(w), *at))
            };
            let rank = |w: &Waits| (w.lane != Lane::Admitted, self.priorities[w.request.class.index()]);
            let best = (0..4).filter_map(first_of).min_by_key(|(at, w)| (rank(w), *at)).map(|(at, _)| at);
            let Some(Leaving::Forward(woken)) = self.gate.next(ms(self.now)) else {
                assert!(!self.room() || best.is_none(), "a slot is free and a request waits");
                return;
            };
            assert!(self.room(), "beyond the limit");
            let Waits { request, lane, since } = self.waiting.remove(best.expect("a waiting request"));
            let waited = Duration::from_millis(self.now - since);
            let Request { id, class, cost } = request;
            assert_eq!(woken, Woken { id, handle: self.handles[&id], class, cost, waited });
            self.forwarded(request, lane);
        }
    }

    fn check(&self) {
        let t = self.gate.totals();
        let [arrived, finished, shed, abandoned] = self.counts;
        assert_eq!((t.arrived, t.finished, t.shed(), t.abandoned), (arrived, finished, shed, abandoned));
        assert_eq!((t.queued, t.in_flight as usize), (self.waiting.len(), self.in_flight.len()));
        assert_eq!(t.arrived, t.finished + t.shed() + t.abandoned + t.queued as u64 + u64::from(t.in_flight));
        assert_eq!(t.forwarded, t.finished + u64::from(t.in_flight));
        let cost = |sum: Cost, r: &Request| sum + r.cost;
        assert_eq!(t.queued_cost, self.waiting.iter().map(|w| &w.request).fold(Cost::ZERO, cost));
        let admitted = || self.waiting.iter().filter(|w| w.lane != Lane::Ordinary).map(|w| &w.request);
        let newcomers = self.waiting.iter().filter(|w| w.lane == Lane::Newcomer).count();
        assert_eq!(t.newcomers, newcomers);
        let is_spaced = newcomers > 0 && !self.may_go(Lane::Newcomer);
        let next_ready = self.gate.next_ready().filter(|at| *at > ms(self.now));
        assert_eq!(next_ready, (is_spaced && self.room()).then(|| self.turn()));
        assert_eq!((t.admitted, t.admitted_cost), (admitted().count(), admitted().fold(Cost::ZERO, cost)));
        assert_eq!(t.in_flight_cost, self.in_flight.iter().fold(Cost::ZERO, cost));
        for class in (0..4).map(ClassId) {
            let queued = self.waiting.iter().filter(|w| w.request.class == class).count();
            let flying = self.in_flight.iter().filter(|r| r.class == class).count();
            assert_eq!((self.gate.queued(class), self.gate.in_flight(class) as usize), (queued, flying));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn the_gate_equals_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut model = Model::new();
        ops.iter().for_each(|op| model.apply(op));
    }
}

#[test]
fn a_lowered_limit_takes_nothing_back_and_forwards_nothing() {
    let mut gate = Gate::new(&config(Some(4), 10));
    for id in 0..6 {
        gate.arrive(request(id, 0), ms(0));
    }
    gate.set_limit(Some(2));
    let cost = request(0, 0).cost;
    for (finished, expected) in [(1, None), (2, None), (3, Some(4)), (4, Some(5))] {
        gate.finish(ClassId(0), cost, ms(finished));
        assert_eq!(
            gate.next(ms(finished)).and_then(Leaving::forwarded).map(|w| w.id),
            expected,
            "after {finished} finished"
        );
    }
    gate.set_limit(Some(0));
    assert!(
        matches!(gate.arrive(request(9, 1), ms(9)), QueueDecision::Queued(_)),
        "a limit of 0 forwards nothing"
    );
    assert_eq!(gate.next(ms(9)), None);
}

/// Newcomers go one by one, also if slots are free; all others go as before.
#[test]
fn newcomers_are_spaced() {
    let mut gate = Gate::new(&config(None, 10));
    let ask = |gate: &mut Gate, id, lane, at| gate.arrive_as(request(id, 0), lane, None, ms(at));
    let next = |gate: &mut Gate, at| gate.next(ms(at)).and_then(Leaving::forwarded).map(|w| w.id);
    // A request every 20 ms.
    let each_s = request(0, 0).cost.units();
    gate.set_newcomer_rate(Rate::per_second(50.0 * each_s), ms(0));
    assert_eq!(ask(&mut gate, 1, Lane::Newcomer, 100), QueueDecision::Forward);
    for id in 2..6 {
        assert!(matches!(ask(&mut gate, id, Lane::Newcomer, 101), QueueDecision::Queued(_)));
    }
    assert_eq!(ask(&mut gate, 6, Lane::Ordinary, 102), QueueDecision::Forward);
    assert_eq!(ask(&mut gate, 7, Lane::Admitted, 102), QueueDecision::Forward);
    assert_eq!((next(&mut gate, 119), gate.next_ready()), (None, Some(ms(120))));
    // They show nothing about the origin, which could take more.
    assert_eq!((gate.totals().newcomers, gate.totals().held), (4, 0));
    assert_eq!(
        (next(&mut gate, 120), next(&mut gate, 120), gate.next_ready()),
        (Some(2), None, Some(ms(140)))
    );
    // After a pause there is no burst.
    assert_eq!(
        (next(&mut gate, 900), next(&mut gate, 900), gate.next_ready()),
        (Some(3), None, Some(ms(920)))
    );
    gate.set_newcomer_rate(Rate::per_second(200.0 * each_s), ms(900));
    assert_eq!(
        (next(&mut gate, 904), gate.next_ready()),
        (None, Some(ms(905))),
        "another rate holds at once"
    );
    gate.set_newcomer_rate(None, ms(904));
    assert_eq!((next(&mut gate, 904), next(&mut gate, 904), next(&mut gate, 904)), (Some(4), Some(5), None));
    assert_eq!((gate.totals().queued, gate.next_ready()), (0, None));
}

/// Callers read the clock before they have the gate: one may come with an earlier instant than the last.
#[test]
fn an_earlier_instant_takes_the_turn_of_a_newcomer_back() {
    let mut gate = Gate::new(&config(Some(1), 10));
    gate.set_newcomer_rate(Rate::per_second(1.0), ms(0));
    gate.arrive_as(request(1, 0), Lane::Newcomer, None, ms(0));
    gate.arrive_as(request(2, 0), Lane::Newcomer, None, ms(0));
    let turn = ms(0) + Duration::from_secs_f64(request(1, 0).cost.units());
    gate.arrive(request(3, 1), turn);
    gate.finish(ClassId(0), request(1, 0).cost, turn);
    let before = turn.saturating_sub(Duration::from_millis(1));
    assert_eq!(gate.next(before).and_then(Leaving::forwarded).map(|w| w.id), Some(3));
    gate.finish(ClassId(1), request(3, 1).cost, before);
    assert_eq!((gate.next(before), gate.next_ready()), (None, Some(turn)));
    assert_eq!(gate.next(turn).and_then(Leaving::forwarded).map(|w| w.id), Some(2));
}

#[test]
fn every_class_id_is_served() {
    let mut gate = Gate::new(&config(Some(1), 1_000));
    gate.arrive(request(0, 0), ms(0));
    for class in (0..=255u8).rev() {
        assert!(matches!(gate.arrive(request(1 + u64::from(class), class), ms(0)), QueueDecision::Queued(_)));
    }
    gate.finish(ClassId(0), request(0, 0).cost, ms(1));
    let mut order = Vec::new();
    while let Some(Leaving::Forward(woken)) = gate.next(ms(1)) {
        gate.finish(woken.class, woken.cost, ms(1));
        order.push(woken.class.0);
    }
    assert_eq!(order.len(), 256);
    assert_eq!(order[..4], [1, 2, 0, 3], "priority first, then arrival");
    assert_eq!((order[4], order[255]), (255, 4), "without a configured priority: last, in order of arrival");
}

#[test]
fn a_queue_is_bounded_and_requests_leave_from_the_middle() {
    let entry = |id| Waiting {
        id,
        class: ClassId(0),
        lane: Lane::Ordinary,
        cost: Cost::ONE,
        since: ms(id),
        until: None,
        turn: id,
    };
    let mut fifo = Queue::new(&QueueConfig::default(), 3);
    let [first, second, third] = [1, 2, 3].map(|id| fifo.push(entry(id)).unwrap());
    assert_eq!(fifo.push(entry(4)), Err(Full { len: 3 }));
    assert_eq!(fifo.remove(second), Some(entry(2)));
    assert_eq!(fifo.remove(second), None);
    let fourth = fifo.push(entry(4)).unwrap();
    assert_eq!(
        (fourth.slot(), fifo.remove(second)),
        (second.slot(), None),
        "the node is another request's now"
    );
    assert_eq!(fifo.pop_oldest(), Some((first, entry(1))));
    assert_eq!(fifo.oldest(), Some(&entry(3)));
    fifo.configure(&QueueConfig::default(), 1);
    assert_eq!(fifo.push(entry(5)), Err(Full { len: 2 }), "a lowered bound keeps waiting requests");
    let left =
        [fifo.pop(Lane::Ordinary, ms(9)), fifo.pop(Lane::Ordinary, ms(9)), fifo.pop(Lane::Ordinary, ms(9))];
    assert_eq!(left, [Some((third, entry(3))), Some((fourth, entry(4))), None]);
    assert!(fifo.is_empty());
}

/// Waves of arrivals, departures and ends allocate nothing when a wave of that size came before.
#[test]
fn a_warm_gate_does_not_allocate() {
    let mut gate = Gate::new(&config(Some(8), 4_000));
    let wave = |gate: &mut Gate, first: u64| {
        let mut left = 0;
        let mut third = [None; 1_000 / 3 + 1];
        for id in first..first + 1_000 {
            if let QueueDecision::Queued(handle) = gate.arrive(request(id, (id % 4) as u8), ms(first))
                && (id - first).is_multiple_of(3)
            {
                third[((id - first) / 3) as usize] = Some(handle);
            }
        }
        for handle in third.into_iter().flatten() {
            left += usize::from(gate.abandon(handle, ms(first)));
        }
        assert!(left > 300, "the wave abandons");
        while gate.totals().in_flight > 0 {
            let class = (0..4).map(ClassId).find(|&c| gate.in_flight(c) > 0).unwrap();
            gate.finish(class, request(0, class.0).cost, ms(first));
            while gate.next(ms(first)).is_some() {}
        }
    };
    for n in 0..3 {
        wave(&mut gate, n * 1_000);
    }
    let before = heap::allocations();
    assert!(before > 0, "the counter counts");
    for n in 3..1_000 {
        wave(&mut gate, n * 1_000);
    }
    assert_eq!(heap::allocations() - before, 0);
}
