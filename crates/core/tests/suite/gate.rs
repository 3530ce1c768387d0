//! The gate against a simple model of plain lists.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::gate::*;
use tidegate_core::queue::{Full, Lane, Queue, QueueConfig, QueueHandle, Waiting};
use tidegate_core::units::{ClassId, Cost, Timestamp};

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
        1 => (0usize..12, any::<bool>()).prop_map(|(max_queue, swap)| Op::Reconfigure { max_queue, swap }),
    ]
}

fn lane() -> impl Strategy<Value = Lane> {
    let of_sessions = prop_oneof![Just(Lane::Admitted), Just(Lane::Page)];
    prop_oneof![3 => Just(Lane::Ordinary), 1 => of_sessions, 2 => Just(Lane::Newcomer)]
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
    in_flight: Vec<(Request, Lane)>,
    /// Arrived, finished, shed, abandoned.
    counts: [u64; 4],
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
        }
    }

    fn room(&self) -> bool {
        self.limit.is_none_or(|l| (self.in_flight.len() as u32) < l)
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Arrive { class, lane } => self.arrive(class, lane),
            Op::Finish(n) if !self.in_flight.is_empty() => {
                let (done, lane) = self.in_flight.remove(n % self.in_flight.len());
                self.gate.answered(lane, ms(self.now));
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
            Op::Finish(_) | Op::Abandon(_) => {}
        }
        self.check();
    }

    /// Newcomers go while fewer pages begin than the gate allows. What it allows is another test's matter.
    fn may_go(&self, lane: Lane) -> bool {
        let begin = self.in_flight.iter().filter(|(_, lane)| lane.begins_page()).count();
        lane != Lane::Newcomer || self.gate.max_pages().is_none_or(|most| (begin as f64) < most)
    }

    /// Whether requests of that lane go before ordinary ones of all classes, in order of arrival with each
    /// other: newcomers only while few requests of sessions wait.
    fn goes_first(&self, lane: Lane) -> bool {
        let waiting = self.waiting.iter().filter(|w| w.lane.is_of_session()).count();
        let few = || (waiting as f64) < self.gate.max_waiting_of_sessions();
        lane.is_of_session() || lane == Lane::Newcomer && self.may_go(lane) && few()
    }

    /// Waiting requests that go before a new one of that lane.
    fn ahead_of(&self, lane: Lane) -> usize {
        let may_go = self.waiting.iter().filter(|w| self.may_go(w.lane));
        may_go.filter(|w| !self.goes_first(lane) || self.goes_first(w.lane)).count()
    }

    fn arrive(&mut self, class: u8, lane: Lane) {
        self.next_id += 1;
        let request = request(self.next_id, class);
        self.counts[0] += 1;
        let may_go = self.room() && self.may_go(lane) && self.ahead_of(lane) == 0;
        let decision = match lane {
            Lane::Ordinary => self.gate.arrive(request, ms(self.now)),
            _ => self.gate.arrive_as(request, lane, None, ms(self.now)),
        };
        if may_go {
            self.in_flight.push((request, lane));
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

    /// The gate forwards admitted sessions first, and newcomers with them while few of their requests wait,
    /// then by priority, then by arrival; within a class newcomers before ordinary requests, while they may
    /// go.
    fn drain(&mut self) {
        loop {
            let first_of = |class| {
                let queued =
                    self.waiting.iter().enumerate().filter(|(_, w)| w.request.class.index() == class);
                let lane = |w: &Waits| (!self.goes_first(w.lane), w.lane == Lane::Ordinary);
                queued.filter(|(_, w)| self.may_go(w.lane)).min_by_key(|(at, w)| (lane(w), *at))
            };
            let rank = |w: &Waits| (!self.goes_first(w.lane), self.priorities[w.request.class.index()]);
            let best = (0..4).filter_map(first_of).min_by_key(|(at, w)| (rank(w), *at)).map(|(at, _)| at);
            let Some(Leaving::Forward(woken)) = self.gate.next(ms(self.now)) else {
                assert!(!self.room() || best.is_none(), "a slot is free and a request waits");
                return;
            };
            assert!(self.room(), "beyond the limit");
            let Waits { request, lane, since } = self.waiting.remove(best.expect("a waiting request"));
            let waited = Duration::from_millis(self.now - since);
            let Request { id, class, cost } = request;
            assert_eq!(woken, Woken { id, handle: self.handles[&id], class, lane, cost, waited });
            self.in_flight.push((request, lane));
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
        let of_sessions = self.waiting.iter().filter(|w| w.lane.is_of_session()).count();
        assert_eq!((t.newcomers, t.of_sessions), (newcomers, of_sessions));
        let entering = self.waiting.iter().filter(|w| !w.lane.is_of_session()).map(|w| &w.request);
        assert_eq!(t.entering_cost, entering.fold(Cost::ZERO, cost), "none is held by its class");
        assert_eq!(self.gate.next_ready(), None, "no class has an egress bucket");
        assert_eq!((t.admitted, t.admitted_cost), (admitted().count(), admitted().fold(Cost::ZERO, cost)));
        assert_eq!(t.in_flight_cost, self.in_flight.iter().map(|(r, _)| r).fold(Cost::ZERO, cost));
        for class in (0..4).map(ClassId) {
            let queued = self.waiting.iter().filter(|w| w.request.class == class).count();
            let flying = self.in_flight.iter().filter(|(r, _)| r.class == class).count();
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

/// An origin that takes 100 ms for a request, a tenth more or less, with a crowd of newcomers at the gate.
/// When a newcomer's page has
/// come, its parts are requested at once.
struct Crowd {
    gate: Gate,
    now: u64,
    parts: usize,
    next_id: u64,
    /// By the end of their service: their class, which is 1 for parts, and lane.
    at_origin: BTreeMap<(u64, u64), (ClassId, Lane)>,
    served: usize,
    longest_wait: Duration,
    rng: StdRng,
}

impl Crowd {
    const EACH_MS: u64 = 100;

    fn new(slots: u32, parts: usize) -> Self {
        let config = GateConfig { classes: classes([0; 4]), ..config(Some(slots), 10_000) };
        let gate = Gate::new(&config);
        let (at_origin, longest_wait) = (BTreeMap::new(), Duration::ZERO);
        let rng = StdRng::seed_from_u64(7);
        let mut crowd = Self { gate, now: 0, parts, next_id: 0, at_origin, served: 0, longest_wait, rng };
        (0..2 * slots).for_each(|_| crowd.ask(0, Lane::Newcomer));
        crowd
    }

    fn ask(&mut self, class: u8, lane: Lane) {
        self.next_id += 1;
        let request = Request { cost: Cost::ONE, ..request(self.next_id, class) };
        if self.gate.arrive_as(request, lane, None, ms(self.now)) == QueueDecision::Forward {
            self.sent(self.next_id, request.class, lane);
        }
    }

    fn sent(&mut self, id: u64, class: ClassId, lane: Lane) {
        let takes = self.rng.random_range(Self::EACH_MS - 10..=Self::EACH_MS + 10);
        self.at_origin.insert((self.now + takes, id), (class, lane));
        if lane == Lane::Newcomer {
            // There are always more of them.
            self.ask(0, Lane::Newcomer);
        }
    }

    fn play(&mut self, seconds: u64) {
        let end = self.now + 1_000 * seconds;
        while let Some(((at, _), (class, lane))) = self.at_origin.pop_first() {
            self.now = at;
            self.gate.answered(lane, ms(at));
            self.gate.finish(class, Cost::ONE, ms(at));
            self.served += 1;
            if lane.begins_page() {
                (0..self.parts).for_each(|_| self.ask(1, Lane::Admitted));
            }
            while let Some(Leaving::Forward(woken)) = self.gate.next(ms(at)) {
                if woken.lane != Lane::Newcomer {
                    self.longest_wait = self.longest_wait.max(woken.waited);
                }
                self.sent(woken.id, woken.class, woken.lane);
            }
            if at >= end {
                return;
            }
        }
    }

    /// Served since `before`, of what the slots can serve in so many seconds.
    fn share(&self, before: usize, slots: u32, seconds: u64) -> f64 {
        (self.served - before) as f64 / (f64::from(slots) * seconds as f64 * 1e3 / Self::EACH_MS as f64)
    }
}

/// Newcomers go as far as their parts will find slots: no part waits for longer than a request takes, and the
/// greater part of the slots is in use. The fewer slots, the more of them chance leaves idle, where all
/// visits have one page.
#[test]
fn newcomers_leave_slots_for_the_parts_of_their_pages() {
    for (slots, parts) in [(320, 13), (40, 13), (100, 4)] {
        let mut crowd = Crowd::new(slots, parts);
        crowd.play(20);
        crowd.longest_wait = Duration::ZERO;
        let before = crowd.served;
        crowd.play(60);
        let (share, waited) = (crowd.share(before, slots, 60), crowd.longest_wait);
        assert!(share > 0.99, "{slots} slots, {parts} parts: {share}");
        assert!(waited <= Duration::from_millis(Crowd::EACH_MS), "{slots} slots, {parts} parts: {waited:?}");
        let most = crowd.gate.max_pages().expect("a limit");
        let taken = crowd.gate.totals().of_sessions as f64 / 2.0;
        let expected = ((f64::from(slots) - taken) / (parts as f64 + 1.0)).max(2.0);
        assert!((most / expected - 1.0).abs() < 0.05, "{slots} slots, {parts} parts: {most}");
    }
}

/// With fewer slots than a page has parts the slots are in use all the same.
#[test]
fn newcomers_keep_few_slots_busy() {
    for (slots, parts) in [(8, 11), (4, 13), (1, 3)] {
        let mut crowd = Crowd::new(slots, parts);
        crowd.play(60);
        let share = crowd.share(0, slots, 60);
        assert!(share > 0.97, "{slots} slots, {parts} parts: {share}");
    }
}

#[test]
fn newcomers_who_bring_nothing_take_every_slot() {
    let mut crowd = Crowd::new(16, 0);
    crowd.play(10);
    assert!(crowd.share(0, 16, 10) > 0.99);
    let mut gate = Gate::new(&config(None, 10));
    let ask = |id| gate.arrive_as(request(id, 0), Lane::Newcomer, None, ms(0));
    assert!((0..100).map(ask).all(|decision| decision == QueueDecision::Forward), "without a limit");
}

fn ask(gate: &mut Gate, id: u64, lane: Lane, at: u64) -> QueueDecision {
    gate.arrive_as(request(id, 0), lane, None, ms(at))
}

fn answer(gate: &mut Gate, lane: Lane, at: u64) {
    gate.answered(lane, ms(at));
    gate.finish(ClassId(0), request(0, 0).cost, ms(at));
}

/// A gate with 50 slots that has served a page with nine parts, by 200 ms.
fn after_a_page() -> Gate {
    let mut gate = Gate::new(&config(Some(50), 10));
    ask(&mut gate, 0, Lane::Page, 0);
    answer(&mut gate, Lane::Page, 100);
    (1..10).for_each(|id| assert_eq!(ask(&mut gate, id, Lane::Admitted, 100), QueueDecision::Forward));
    (1..10).for_each(|_| answer(&mut gate, Lane::Admitted, 200));
    gate
}

/// The pages of sessions under way count as those of newcomers do, and wait for nothing but a slot.
#[test]
fn pages_of_sessions_take_the_places_of_newcomers() {
    let mut gate = after_a_page();
    assert!((gate.max_pages().expect("a limit") - 5.0).abs() < 1e-9, "a tenth of the slots");
    for id in 10..15 {
        assert_eq!(ask(&mut gate, id, Lane::Newcomer, 200), QueueDecision::Forward);
    }
    assert!(matches!(ask(&mut gate, 15, Lane::Newcomer, 200), QueueDecision::Queued(_)));
    assert_eq!(ask(&mut gate, 16, Lane::Ordinary, 200), QueueDecision::Forward);
    for id in 17..20 {
        assert_eq!(ask(&mut gate, id, Lane::Page, 200), QueueDecision::Forward);
    }
    // It shows nothing about the origin, which could take more.
    assert_eq!((gate.totals().newcomers, gate.totals().held), (1, 0));
    for left in [7, 6, 5] {
        answer(&mut gate, Lane::Newcomer, 200);
        assert_eq!(gate.next(ms(200)), None, "{left} pages begin");
    }
    answer(&mut gate, Lane::Page, 200);
    assert_eq!(gate.next(ms(200)).and_then(Leaving::forwarded).map(|w| w.id), Some(15));
    // Another limit holds at once.
    assert!(matches!(ask(&mut gate, 20, Lane::Newcomer, 200), QueueDecision::Queued(_)));
    gate.set_limit(Some(60));
    assert_eq!(gate.next(ms(200)).and_then(Leaving::forwarded).map(|w| w.id), Some(20));
}

/// Half of the requests of sessions that wait count as work for the slots that parts of newcomers would get.
#[test]
fn the_more_requests_of_sessions_wait_the_fewer_newcomers_go() {
    let mut gate = after_a_page();
    let most = |gate: &Gate| gate.max_pages().expect("a limit");
    for (waiting, expected) in [(0, 5.0), (1, 4.95), (20, 4.0), (60, 2.0), (200, 2.0)] {
        while gate.totals().of_sessions < waiting {
            ask(&mut gate, 1_000, Lane::Admitted, 200);
        }
        assert!((most(&gate) - expected).abs() < 1e-9, "{waiting} wait: {}", most(&gate));
    }
}

/// With two slots, newcomers who went after all requests of sessions would starve.
#[test]
fn a_newcomer_goes_in_turn_while_fewer_than_four_requests_of_sessions_wait() {
    for (waiting, expected) in [(3, 2), (4, 3)] {
        let mut gate = Gate::new(&config(Some(2), 10));
        (0..2).for_each(|id| assert_eq!(ask(&mut gate, id, Lane::Admitted, 0), QueueDecision::Forward));
        ask(&mut gate, 2, Lane::Newcomer, 0);
        (0..waiting).for_each(|i| {
            assert!(matches!(ask(&mut gate, 3 + i, Lane::Admitted, 0), QueueDecision::Queued(_)))
        });
        answer(&mut gate, Lane::Admitted, 100);
        let next = gate.next(ms(100)).and_then(Leaving::forwarded).map(|woken| woken.id);
        assert_eq!(next, Some(expected), "{waiting} wait");
    }
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
