//! Learned costs of classes: from the answers of an origin to the schedule of the room.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_core::admission::Admission;
use tidegate_core::capacity::*;
use tidegate_core::class_costs::CostSource::{self, Configured, Learned as ToLearn};
use tidegate_core::control::{Bounds, Control};
use tidegate_core::gate::Totals;
use tidegate_core::room::{Arrival, Checker, Room, RoomConfig, TicketStatus};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use super::samples::SERVED;

const TICK_US: u64 = 100_000;
const START_US: u64 = 1_000_000_000;
const FREE: Bounds = Bounds { capacity: Rate::MAX, floor: Rate::ZERO, max_in_flight: None };
const LIGHT: ClassId = ClassId(0);
const HEAVY: ClassId = ClassId(1);
/// A class of which no request comes.
const ABSENT: ClassId = ClassId(2);
/// How long requests of light and heavy take a worker on average, and the share of the heavy ones.
const MEAN_US: [f64; 2] = [30_000.0, 150_000.0];
const HEAVY_SHARE: f64 = 0.3;

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).expect("a rate")
}

fn hundredths(cost: u64) -> Cost {
    Cost::from_hundredths(cost)
}

fn bottleneck() -> Box<dyn Estimator> {
    Box::new(Bottleneck::new(BottleneckConfig::default(), None))
}

fn room(sources: &[CostSource], capacity: Rate, now: Timestamp) -> Admission {
    let config = RoomConfig { class_costs: sources.to_vec(), ..RoomConfig::default() };
    Admission::Room(Box::new(Room::new(config, capacity, now)))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    at: u64,
    class: ClassId,
    cost: Cost,
    among: u32,
}

/// Ten workers behind one line, as many requests in flight as the estimator allows, and others that wait.
struct World {
    admission: Admission,
    control: Control,
    now: u64,
    limit: u32,
    capacity: f64,
    line: VecDeque<Sent>,
    ends: BinaryHeap<Reverse<(u64, Sent)>>,
    random: u64,
    heavy_share: f64,
    served: u64,
    /// Work that was charged for what was served, in cost units.
    charged: f64,
}

impl World {
    fn new(sources: &[CostSource], seed: u64) -> Self {
        let now = Timestamp::from_micros(START_US);
        let mut world = Self {
            admission: room(sources, rate(30.0), now),
            control: Control::new(bottleneck(), FREE),
            now: START_US,
            limit: 1,
            capacity: 0.0,
            line: VecDeque::new(),
            ends: BinaryHeap::new(),
            random: seed,
            heavy_share: HEAVY_SHARE,
            served: 0,
            charged: 0.0,
        };
        world.steer(&[]);
        world
    }

    fn uniform(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
    }

    fn in_flight(&self) -> u32 {
        (self.ends.len() + self.line.len()) as u32
    }

    fn send(&mut self) {
        let class = if self.uniform() < self.heavy_share { HEAVY } else { LIGHT };
        let cost = self.admission.costs().charged(class);
        self.line.push_back(Sent { at: self.now, class, cost, among: self.in_flight() + 1 });
        self.serve();
    }

    fn serve(&mut self) {
        while self.ends.len() < 10
            && let Some(sent) = self.line.pop_front()
        {
            let takes = -self.uniform().ln() * MEAN_US[sent.class.index()];
            self.ends.push(Reverse((self.now + (takes as u64).max(1), sent)));
        }
    }

    fn steer(&mut self, samples: &[Sample]) {
        let gate = Totals { queued: 50, in_flight: self.in_flight(), ..Totals::default() };
        let now = Timestamp::from_micros(self.now);
        let (tunables, _) = self.control.steer(&self.admission, &gate, true, samples, now);
        self.limit = tunables.max_in_flight.unwrap_or(20);
        self.capacity = tunables.capacity.get();
    }

    /// Runs until it is so, which it is within a minute.
    fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let waited = (0..60).find(|_| {
            self.run(1);
            is_so(self)
        });
        assert!(waited.is_some(), "not within a minute");
    }

    fn run(&mut self, seconds: u64) {
        (self.served, self.charged) = (0, 0.0);
        for _ in 0..10 * seconds {
            let end = self.now + TICK_US;
            let mut samples = Vec::new();
            loop {
                while self.in_flight() < self.limit {
                    self.send();
                }
                match self.ends.peek() {
                    Some(Reverse((at, _))) if *at <= end => {}
                    _ => break,
                }
                let Some(Reverse((at, sent))) = self.ends.pop() else { break };
                self.now = self.now.max(at);
                self.serve();
                self.served += 1;
                self.charged += sent.cost.units();
                samples.push(Sample {
                    class: sent.class,
                    cost: sent.cost,
                    ended: Timestamp::from_micros(at),
                    response: Duration::from_micros(at - sent.at),
                    in_flight: sent.among,
                    ..SERVED
                });
            }
            self.now = end;
            self.steer(&samples);
        }
    }

    fn charge(&self, class: ClassId) -> f64 {
        self.admission.costs().charged(class).units()
    }

    /// The capacity over what was really served, both in charged cost units per second.
    fn capacity_over_served(&self, seconds: u64) -> f64 {
        self.capacity / (self.charged / seconds as f64)
    }
}

#[track_caller]
fn close(got: f64, expected: f64, within: f64) {
    assert!((got / expected - 1.0).abs() < within, "{got}, expected {expected}");
}

#[test]
fn a_class_that_is_five_times_as_hard_is_charged_five_times_as_much_in_the_end() {
    for seed in 1..=5 {
        let mut world = World::new(&[ToLearn; 3], seed);
        assert_eq!([LIGHT, HEAVY, ABSENT].map(|class| world.charge(class)), [1.0; 3]);
        world.run(120);
        let [light, heavy] = [LIGHT, HEAVY].map(|class| world.control.cost(class).expect("it learns costs"));
        let off = (heavy.units / light.units / 5.0).ln().abs();
        assert!(off < 3.0 * light.error.hypot(heavy.error), "{light:?}, {heavy:?}");
        close(world.charge(HEAVY) / world.charge(LIGHT), 5.0, 0.25);
        close((1.0 - HEAVY_SHARE) * world.charge(LIGHT) + HEAVY_SHARE * world.charge(HEAVY), 1.0, 0.25);
        assert_eq!(world.charge(ABSENT), 1.0, "nothing is known of it");
        assert_eq!(world.control.cost(ABSENT), Some(LearnedCost::UNKNOWN));
        assert!(light.error < 0.12 && heavy.error < 0.05 && heavy.samples > 500.0, "{light:?}, {heavy:?}");
        world.run(60);
        close(world.capacity_over_served(60), 1.0, 0.1);
    }
}

#[test]
fn the_capacity_follows_a_harder_mix_only_in_requests_and_not_in_cost_units() {
    let mut world = World::new(&[ToLearn; 2], 11);
    world.run(180);
    let before = world.capacity;
    // Half of the requests are hard from here on: 1.37 times the work of a request.
    world.heavy_share = 0.5;
    world.run(60);
    close(world.capacity_over_served(60), 1.0, 0.1);
    close(world.capacity, before, 0.12);
}

#[test]
fn what_is_charged_does_not_change_what_is_learned() {
    let figures = |sources: &[CostSource]| {
        let mut world = World::new(sources, 3);
        world.run(90);
        let state = world.control.state();
        let of = |name: &str| state.figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        ["least_learned_cost", "greatest_learned_cost", "limit", "knee"].map(of)
    };
    assert_eq!(figures(&[ToLearn; 2]), figures(&[Configured(Cost::ONE); 2]));
}

#[test]
fn learned_costs_are_in_the_unit_of_the_numbers() {
    for (sources, [light, heavy]) in [
        ([ToLearn, Configured(hundredths(1_000))], [2.0, 10.0]),
        ([Configured(hundredths(300)), ToLearn], [3.0, 15.0]),
    ] {
        // The unit is the same in each, while what is learned differs by a tenth between seeds.
        let mut charges = [0.0; 2];
        for seed in 1..=5 {
            let mut world = World::new(&sources, seed);
            world.run(150);
            for (sum, class) in charges.iter_mut().zip([LIGHT, HEAVY]) {
                *sum += world.charge(class) / 5.0;
            }
            world.run(60);
            close(world.capacity_over_served(60), 1.0, 0.1);
        }
        close(charges[0], light, 0.15);
        close(charges[1], heavy, 0.15);
    }
}

#[test]
fn a_class_alone_costs_one_and_nothing_depends_on_where_its_cost_comes_from() {
    let trajectory = |source| {
        let mut world = World::new(&[source], 7);
        world.heavy_share = 0.0;
        let second = |world: &mut World| {
            world.run(1);
            (world.limit, world.capacity.to_bits(), world.charge(LIGHT))
        };
        (0..60).map(|_| second(&mut world)).collect::<Vec<_>>()
    };
    let learned = trajectory(ToLearn);
    assert_eq!(learned, trajectory(Configured(Cost::ONE)));
    assert!(learned.iter().all(|(_, _, charged)| *charged == 1.0));
}

#[test]
fn a_change_between_number_and_learned_cost_takes_what_is_known_along() {
    for seed in 9..=16 {
        let mut world = World::new(&[ToLearn; 2], seed);
        world.run(120);
        let (light, learned) = (world.charge(LIGHT), world.charge(HEAVY));
        let reconfigure = |world: &World, sources: &[CostSource]| {
            let config = RoomConfig { class_costs: sources.to_vec(), ..RoomConfig::default() };
            let room = world.admission.room().expect("a room");
            room.reconfigure(config, Timestamp::from_micros(world.now)).expect("the same schedule");
        };
        reconfigure(&world, &[ToLearn, Configured(hundredths(800))]);
        assert_eq!(world.charge(HEAVY), 8.0, "at once");
        // Right after a change of the origin was suspected the costs are known less well for a few seconds.
        world.run_until(|world| world.charge(LIGHT) > 1.0);
        close(world.charge(LIGHT), light * 8.0 / learned, 0.15);
        reconfigure(&world, &[ToLearn; 2]);
        assert_eq!(world.charge(HEAVY), 1.0);
        world.run_until(|world| world.charge(HEAVY) > 1.0);
        close(world.charge(HEAVY), learned, 0.15);
    }
}

#[test]
fn an_estimator_that_learns_no_costs_charges_one() {
    let mut world = World::new(&[ToLearn; 2], 13);
    world.run(90);
    assert!(world.charge(HEAVY) > 1.3, "{}", world.charge(HEAVY));
    world.control.replace(bottleneck());
    world.steer(&[]);
    assert!(world.charge(HEAVY) > 1.3, "one that learns costs keeps what is charged until it knows better");
    world.control.replace(Box::new(Fixed::new(Some(rate(100.0)), BottleneckConfig::default())));
    world.steer(&[]);
    assert_eq!((world.charge(HEAVY), world.control.cost(HEAVY)), (1.0, None));
}

#[test]
fn costs_begin_where_the_process_before_has_left_them() {
    let mut world = World::new(&[ToLearn; 2], 17);
    world.run(120);
    let known = [LIGHT, HEAVY].map(|class| world.control.cost(class).expect("it learns costs").units);
    let learned = world.control.estimator().learned().expect("it has settled");
    let mut next = World::new(&[ToLearn; 2], 18);
    let now = Timestamp::from_micros(next.now);
    next.control = Control::new(bottleneck(), FREE);
    next.control.resume(&learned, Trust::Trusted, now);
    next.steer(&[]);
    for (class, known) in [LIGHT, HEAVY].into_iter().zip(known) {
        close(next.charge(class), known, 0.03);
    }
    close(next.capacity, learned.capacity.get(), 1e-9);
}

/// Knows that a request of the class `HEAVY` costs five units.
struct Knows;

impl Estimator for Knows {
    fn observe(&mut self, _sample: &Sample) {}

    fn tick(&mut self, _load: &GateLoad, _now: Timestamp) -> Estimate {
        let (capacity, phase) = (rate(10.0), Phase::Settled);
        Estimate { capacity, gain: 1.0, max_in_flight: None, phase, confidence: 1.0 }
    }

    fn set(&mut self, _capacity: Rate, _now: Timestamp) {}

    fn rediscover(&mut self, _now: Timestamp) {}

    fn cost(&self, class: ClassId) -> Option<LearnedCost> {
        let units = if class == HEAVY { 5.0 } else { 1.0 };
        Some(LearnedCost { units, error: 0.02, samples: 500.0 })
    }

    fn state(&self) -> State {
        State::default()
    }
}

/// The tickets of twenty heavy visitors who come at once, and that of a light one behind them.
fn tickets(admission: &Admission, nonce: u64, now: Timestamp) -> (Vec<Ticket>, Ticket) {
    let room = admission.room().expect("a room");
    let wait = |class, nonce| match room.arrive(class, nonce, None, now) {
        Arrival::Wait(ticket, _) => Some(ticket),
        Arrival::Enter => None,
        Arrival::Full { .. } => panic!("the schedule is long enough"),
    };
    let heavy: Vec<_> = (0..20).filter_map(|i| wait(HEAVY, nonce + i)).collect();
    (heavy, wait(LIGHT, nonce + 20).expect("others are before it"))
}

#[test]
fn visitors_of_a_class_that_is_hard_are_promised_later_slots_once_that_is_known() {
    let start = Timestamp::from_micros(START_US);
    let [equal, learned] = [false, true].map(|knows| {
        let admission = room(&[ToLearn; 2], rate(10.0), start);
        if knows {
            let mut control = Control::new(Box::new(Knows), FREE);
            control.steer(&admission, &Totals::default(), true, &[], start);
        }
        let (heavy, light) = tickets(&admission, 1, start);
        let costs: Vec<_> = heavy.iter().map(|ticket| ticket.cost).collect();
        assert!(costs.iter().all(|cost| *cost == if knows { hundredths(500) } else { Cost::ONE }));
        light.due().since(start).as_secs_f64()
    });
    assert!(equal < 3.5, "twenty units before it, at ten a second: {equal} s");
    assert!((9.0..12.0).contains(&learned), "a hundred units before it: {learned} s");
}

#[test]
fn promises_keep_the_cost_that_they_were_made_at() {
    let start = Timestamp::from_micros(START_US);
    let admission = room(&[ToLearn; 2], rate(10.0), start);
    let mut control = Control::new(Box::new(Knows), FREE);
    let (heavy, light) = tickets(&admission, 1, start);
    control.steer(&admission, &Totals::default(), true, &[], start);
    assert_eq!(admission.costs().charged(HEAVY), hundredths(500));
    let last = heavy.last().expect("some wait");
    let (later, _) = tickets(&admission, 100, start);
    assert!(later.iter().all(|ticket| ticket.cost == hundredths(500) && ticket.due() >= light.due()));
    let wait = |ticket: &Ticket| match admission.look(ticket, start) {
        TicketStatus::Wait(wait) => wait.wait.as_secs_f64(),
        other => panic!("expected a wait, got {other:?}"),
    };
    assert!(wait(last) < 3.5 && wait(&light) < 3.5, "{} s, {} s", wait(last), wait(&light));
    assert!(wait(later.last().expect("some wait")) > 9.0);
}

#[test]
fn tokencheck_charges_what_tokengen_charges_but_where_it_has_a_number() {
    let class_costs = vec![ToLearn, Configured(hundredths(300))];
    let config = RoomConfig { class_costs, ..RoomConfig::default() };
    let now = Timestamp::from_micros(START_US);
    let checker = Checker::new(&config, rate(10.0), now);
    let admission = Admission::Checker { checker, capacity: rate(10.0).into() };
    let charged = |admission: &Admission| [LIGHT, HEAVY].map(|class| admission.costs().charged(class));
    assert_eq!(charged(&admission), [Cost::ONE, hundredths(300)]);
    let Admission::Checker { checker, .. } = &admission else { unreachable!("it is one") };
    checker.follow_costs([(LIGHT, hundredths(45)), (HEAVY, hundredths(225))]);
    assert_eq!(charged(&admission), [hundredths(45), hundredths(300)]);
    // Its own control side learns nothing, and leaves them as they are.
    let estimator = Fixed::new(Some(Rate::MAX), BottleneckConfig::default());
    let mut control = Control::new(Box::new(estimator), FREE);
    control.steer(&admission, &Totals::default(), true, &[], now);
    assert_eq!(charged(&admission), [hundredths(45), hundredths(300)]);
}
