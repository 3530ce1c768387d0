//! An estimator governs by the in-flight limit: whatever its estimate of the capacity, the origin is kept at
//! the limit while people wait, they wait in the room, and the gate's queue runs neither dry nor over. In
//! virtual time, with visitors who behave as the page does.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_core::admission::{Admission, AdmissionRequest, Decision, Presented};
use tidegate_core::capacity::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use tidegate_core::control::{Bounds, Control};
use tidegate_core::gate::{Gate, GateConfig, Leaving, QueueDecision, Request, Served};
use tidegate_core::room::{Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const TICK_US: u64 = 100_000;

/// An estimate, from a second on.
#[derive(Clone, Copy)]
struct Prepared {
    from_s: u64,
    limit: u32,
    capacity: f64,
}

/// Returns prepared estimates.
struct Scripted(Vec<Prepared>);

impl Estimator for Scripted {
    fn observe(&mut self, _sample: &Sample) {}

    fn tick(&mut self, _load: &GateLoad, now: Timestamp) -> Estimate {
        let here = self.0.iter().rev().find(|estimate| now >= at(estimate.from_s * 1_000_000));
        let estimate = here.expect("an estimate from the start");
        Estimate {
            capacity: rate(estimate.capacity),
            gain: 1.0,
            max_in_flight: Some(estimate.limit),
            phase: Phase::Settled,
            confidence: 1.0,
        }
    }

    fn set(&mut self, _capacity: Rate, _now: Timestamp) {}

    fn rediscover(&mut self, _now: Timestamp) {}

    fn state(&self) -> State {
        State::default()
    }
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + us)
}

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).expect("a rate")
}

#[derive(Clone, Copy)]
struct Visitor {
    ticket: Option<Ticket>,
    class: ClassId,
}

#[derive(Clone, Copy)]
enum Item {
    Visit(Visitor),
    Done { class: ClassId, sent: u64, in_flight: u32 },
}

/// A crowd in front of an origin that takes `response_s` for a visitor of cost one, however many there are.
struct World {
    admission: Admission,
    gate: Gate,
    control: Control,
    rng: SmallRng,
    agenda: BTreeMap<(u64, u64), Item>,
    next_id: u64,
    now: u64,
    response_s: f64,
    no_show: f64,
    /// Share of requests that never wait in the room.
    bypass: f64,
    /// Longest time from being admitted to being here, in seconds.
    slow_s: f64,
    queued: BTreeMap<u64, Visitor>,
    seen: Seen,
}

/// The gate at a tick.
struct SeenTick {
    /// People wait in the room.
    is_waited: bool,
    /// In flight, as a share of the limit.
    used: f64,
    /// Work queued.
    queued: f64,
}

/// The gate over some ticks with people waiting.
struct Usage {
    /// Mean share of the limit.
    used: f64,
    /// Mean and most work queued.
    queued: f64,
    most: f64,
}

#[derive(Default)]
struct Seen {
    arrived: usize,
    served: usize,
    absent: usize,
    full: usize,
    ticks: Vec<SeenTick>,
    /// Work done, by tick.
    done: Vec<f64>,
}

const COSTS: [Cost; 2] = [Cost::ONE, Cost::from_hundredths(400)];

impl World {
    fn new(estimates: &[Prepared], response_s: f64, queue: usize, bounds: Bounds) -> Self {
        let config = RoomConfig {
            max_wait: Duration::from_secs(7_200),
            grace: Duration::from_secs(60),
            tolerance: Duration::from_secs(1),
            burst: Duration::from_millis(200),
            overbook_max: 1.5,
            rise_to_newcomers: false,
            class_costs: COSTS.map(Into::into).to_vec(),
            ..RoomConfig::default()
        };
        let gate = GateConfig {
            max_in_flight: Some(estimates[0].limit),
            max_queue: queue,
            max_queue_wait: Duration::from_secs(30),
            ..GateConfig::default()
        };
        let mut world = Self {
            admission: Admission::Room(Box::new(Room::new(config, rate(estimates[0].capacity), at(0)))),
            gate: Gate::new(&gate),
            control: Control::new(Box::new(Scripted(estimates.to_vec())), bounds),
            rng: SmallRng::seed_from_u64(7),
            agenda: BTreeMap::new(),
            next_id: 0,
            now: 0,
            response_s,
            no_show: 0.0,
            bypass: 0.0,
            slow_s: 0.3,
            queued: BTreeMap::new(),
            seen: Seen::default(),
        };
        world.tick();
        world
    }

    /// Newcomers, Poisson at `per_s`, of whom a share `costly` costs four.
    fn arrivals(&mut self, from_s: f64, seconds: f64, per_s: f64, costly: f64) {
        let mut t = from_s;
        loop {
            t -= (1.0 - self.rng.random::<f64>()).ln() / per_s;
            if t >= from_s + seconds {
                return;
            }
            let class = ClassId(u8::from(self.rng.random::<f64>() < costly));
            self.schedule((t * 1e6) as u64, Item::Visit(Visitor { ticket: None, class }));
            self.seen.arrived += 1;
        }
    }

    fn schedule(&mut self, at_us: u64, item: Item) {
        self.next_id += 1;
        self.agenda.insert((at_us, self.next_id), item);
    }

    fn run_to(&mut self, until_s: u64) {
        while self.now < until_s * 1_000_000 {
            let tick = self.now + TICK_US;
            while let Some(first) = self.agenda.first_entry().filter(|first| first.key().0 <= tick) {
                let at_us = first.key().0;
                match first.remove() {
                    Item::Visit(visitor) => self.visit(at_us, visitor),
                    Item::Done { class, sent, in_flight } => {
                        let served = Served { sent: at(sent), in_flight, ok: true };
                        self.gate.complete(class, COSTS[class.index()], &served, at(at_us));
                        self.seen.served += 1;
                        if let Some(done) = self.seen.done.last_mut() {
                            *done += COSTS[class.index()].units();
                        }
                        self.wake(at_us);
                    }
                }
            }
            self.now = tick;
            self.tick();
        }
    }

    fn tick(&mut self) {
        let now = at(self.now);
        assert_eq!(self.gate.tick(now), None, "no request waits too long at the gate");
        let totals = self.gate.totals();
        let mut samples = Vec::new();
        self.gate.take_samples(&mut samples);
        let (tunables, _) = self.control.steer(&self.admission, &totals, true, &samples, now);
        let limit = f64::from(totals.limit.unwrap_or(u32::MAX));
        self.seen.ticks.push(SeenTick {
            is_waited: self.admission.busy(now),
            used: f64::from(totals.in_flight) / limit,
            queued: totals.queued_cost.units(),
        });
        self.seen.done.push(0.0);
        self.gate.set_limit(tunables.max_in_flight);
        self.wake(self.now);
    }

    fn visit(&mut self, t: u64, mut visitor: Visitor) {
        let (class, cost) = (visitor.class, COSTS[visitor.class.index()]);
        if visitor.ticket.is_none() && self.rng.random::<f64>() < self.bypass {
            self.admission.charge(cost);
            return self.enter(t, visitor);
        }
        let shown = visitor.ticket.map_or(Presented::Nothing, Presented::Ticket);
        let request = AdmissionRequest { class, cost, shown, sends_on: false };
        let nonce = self.next_id;
        match self.admission.ask(&request, &mut || nonce, &|_| {}, at(t)) {
            Decision::Enter { .. } => self.enter(t, visitor),
            Decision::Wait { ticket, wait, .. } => {
                let is_new = visitor.ticket.replace(ticket).is_none();
                if is_new && self.rng.random::<f64>() < self.no_show {
                    self.seen.absent += 1;
                    return;
                }
                let poll_s =
                    (wait.wait.as_secs_f64() / 8.0).clamp(1.0, 20.0) * self.rng.random_range(0.9..1.1);
                let pause = poll_s.min(wait.wait.as_secs_f64());
                let late = self.rng.random_range(0.02..self.slow_s);
                self.schedule(t + ((pause + late) * 1e6) as u64, Item::Visit(visitor));
            }
            Decision::Full { .. } => self.seen.full += 1,
            other => panic!("{other:?}"),
        }
    }

    fn enter(&mut self, t: u64, visitor: Visitor) {
        self.next_id += 1;
        let (id, class) = (self.next_id, visitor.class);
        let cost = COSTS[class.index()];
        match self.gate.arrive(Request { id, class, cost }, at(t)) {
            QueueDecision::Forward => self.send(t, visitor.class),
            QueueDecision::Queued(_) => drop(self.queued.insert(id, visitor)),
            QueueDecision::Shed(reason) => panic!("shed at {t} us: {reason:?}"),
        }
    }

    fn send(&mut self, t: u64, class: ClassId) {
        let in_flight = self.gate.in_flight_now();
        let took = self.response_s * COSTS[class.index()].units();
        self.schedule(t + (took * 1e6) as u64, Item::Done { class, sent: t, in_flight });
    }

    fn wake(&mut self, t: u64) {
        while let Some(Leaving::Forward(woken)) = self.gate.next(at(t)) {
            self.queued.remove(&woken.id);
            self.send(t, woken.class);
        }
    }

    /// Between two seconds, in which people wait.
    fn used(&self, from_s: u64, to_s: u64) -> Usage {
        let ticks = &self.seen.ticks[(from_s * 10) as usize..(to_s * 10) as usize];
        let busy: Vec<_> = ticks.iter().filter(|tick| tick.is_waited).collect();
        assert!(busy.len() * 10 > ticks.len() * 9, "people wait: {} of {} ticks", busy.len(), ticks.len());
        let mean = |figure: fn(&SeenTick) -> f64| {
            busy.iter().map(|tick| figure(tick)).sum::<f64>() / busy.len() as f64
        };
        Usage {
            used: mean(|tick| tick.used),
            queued: mean(|tick| tick.queued),
            most: busy.iter().map(|tick| tick.queued).fold(0.0, f64::max),
        }
    }
}

const UNBOUNDED: Bounds = Bounds { capacity: Rate::MAX, floor: Rate::ZERO, max_in_flight: None };

fn estimate(limit: u32, capacity: f64) -> Prepared {
    Prepared { from_s: 0, limit, capacity }
}

/// (limit, response time): capacities of 2, 20, 100 and 500 units a second.
const ORIGINS: [(u32, f64); 4] = [(2, 1.0), (4, 0.2), (20, 0.2), (50, 0.1)];

#[test]
fn the_origin_is_kept_at_the_limit_whatever_the_estimated_capacity() {
    for (limit, response_s) in ORIGINS {
        for factor in [0.5, 1.0, 2.0] {
            for (no_show, slow_s) in [(0.0, 0.3), (0.0, 1.0), (0.3, 0.3)] {
                let truth = f64::from(limit) / response_s;
                let mut world = World::new(&[estimate(limit, truth * factor)], response_s, 10_000, UNBOUNDED);
                (world.no_show, world.slow_s) = (no_show, slow_s);
                world.arrivals(0.0, 10.0, 11.0 * truth, 0.0);
                world.run_to(70);
                let Usage { used, queued, most } = world.used(10, 70);
                let case = format!("{truth}/s estimated x {factor}, {no_show} absent, {slow_s} s slow");
                println!("{case}: {used:.4} used, {queued:.1} queued, {most} at most");
                assert!(used >= if truth < 10.0 { 0.98 } else { 0.99 }, "{case}: {used}");
                assert!(queued <= 0.25 * truth + 5.0 && most <= truth + 5.0, "{case}: {queued}, {most}");
                assert_eq!(world.seen.full, 0, "{case}");
            }
        }
    }
}

/// A tenth of the limit is left; the estimator takes 3 s to lower the capacity.
#[test]
fn a_limit_that_falls_to_a_tenth_floods_nothing() {
    for (limit, response_s) in [(20, 0.2), (50, 0.1), (100, 1.0)] {
        let truth = f64::from(limit) / response_s;
        let then = |from_s, share| Prepared { from_s, limit: limit / 10, capacity: truth * share };
        let estimates = [estimate(limit, truth), then(30, 1.0), then(33, 0.1)];
        let mut world = World::new(&estimates, response_s, 10_000, UNBOUNDED);
        world.slow_s = 1.0;
        world.arrivals(0.0, 10.0, 6.0 * truth, 0.0);
        world.run_to(120);
        let Usage { used, queued, most } = world.used(30, 120);
        let after = world.used(60, 120);
        println!(
            "{truth}/s: {used:.4} used, {queued:.1} queued, {most} at most; {:.4} and {:.1} from 60 s",
            after.used, after.queued
        );
        assert!(used >= 0.99, "{truth}/s: {used}");
        // Visitors in transit when the limit fell, a second's worth, still join the queue.
        assert!(most <= 1.25 * truth, "{truth}/s: {most}");
        assert!(after.queued <= 0.05 * truth + 5.0, "{truth}/s: {}", after.queued);
    }
}

/// A limit that rises tenfold is used at once.
#[test]
fn a_limit_that_rises_is_filled() {
    let then = |from_s, capacity| Prepared { from_s, limit: 200, capacity };
    // The estimator raises the capacity as completions come in.
    let estimates =
        [estimate(20, 100.0), then(30, 200.0), then(32, 400.0), then(34, 800.0), then(36, 1_000.0)];
    let mut world = World::new(&estimates, 0.2, 10_000, UNBOUNDED);
    world.arrivals(0.0, 20.0, 3_000.0, 0.0);
    world.run_to(75);
    let rising = world.used(30, 40).used;
    let Usage { used, queued, most } = world.used(40, 75);
    println!("{rising:.4} used while it rises, {used:.4} after: {queued:.1} queued, {most} at most");
    assert!(rising >= 0.7 && used >= 0.99, "{rising}, {used}");
    assert!(queued <= 250.0 && most <= 1_500.0, "{queued}, {most}");
}

/// Two sizes of work, some of it bypass traffic.
#[test]
fn bypass_traffic_is_part_of_the_queue() {
    for bypass in [0.02, 0.05] {
        let mut world = World::new(&[estimate(20, 50.0)], 0.2, 10_000, UNBOUNDED);
        world.bypass = bypass;
        world.arrivals(0.0, 300.0, 300.0, 0.2);
        world.run_to(200);
        let Usage { used, queued, most } = world.used(10, 200);
        println!("{bypass} bypass: {used:.4} used, {queued:.1} queued, {most} at most");
        assert!(used >= 0.99, "{bypass}: {used}");
        assert!(queued <= 60.0 && most <= 200.0, "{bypass}: {queued}, {most}");
    }
}

/// The queue holds few requests: no admitted visitor is refused for it.
#[test]
fn a_short_queue_is_not_overrun() {
    for max_queue in [120, 200, 400] {
        let mut world = World::new(&[estimate(50, 1_000.0)], 0.05, max_queue, UNBOUNDED);
        world.arrivals(0.0, 5.0, 9_000.0, 0.0);
        world.run_to(40);
        let Usage { used, queued, most } = world.used(10, 40);
        println!("{max_queue} positions: {used:.4} used, {queued:.1} queued, {most} at most");
        assert!(used >= 0.95, "{max_queue}: {used}");
    }
}

/// The operator's ceiling holds, whatever the origin could take.
#[test]
fn a_ceiling_bounds_a_kept_queue() {
    for estimated in [20.0, 60.0, 100.0] {
        let bounds = Bounds { capacity: rate(60.0), ..UNBOUNDED };
        let mut world = World::new(&[estimate(20, estimated)], 0.2, 10_000, bounds);
        world.arrivals(0.0, 20.0, 500.0, 0.0);
        world.run_to(110);
        let done = world.seen.done[100..1_100].iter().sum::<f64>() / 100.0;
        println!("estimated {estimated}: {done}/s");
        assert!((57.0..=60.5).contains(&done), "{estimated}: {done}/s");
    }
}
