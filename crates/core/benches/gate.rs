//! What a decision of the gate costs, against how many wait: `cargo bench -p tidegate-core --bench gate`.
//!
//! The lengths take turns within one run, so that a busy machine slows all of them, and each round's part of a long queue
//! has left the caches meanwhile. `-- SCHEDULER LENGTH CALLS moves|leaves` plays one case without a clock, for a profiler that
//! counts: the difference between two numbers of calls is what one call takes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_core::bucket::BucketConfig;
use tidegate_core::gate::{ClassConfig, Gate, GateConfig, Leaving, QueueDecision, Request};
use tidegate_core::queue::QueueHandle;
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::{ClassId, Cost, Rate, Share, Timestamp};

/// A round is shorter than what the scheduler of a busy machine gives to others.
const CALLS: u32 = 1_000;
const ROUNDS: usize = 201;
const CLASSES: u64 = 16;
const AT_ORIGIN: usize = 8;
const LENGTHS: [u64; 4] = [100, 1_000, 10_000, 100_000];
const SCHEDULERS: [(&str, Scheduling); 3] = [
    ("priority", Scheduling::Priority),
    ("round-robin", Scheduling::RoundRobin),
    ("deficit", Scheduling::Deficit),
];

/// What happens in one call, beside one that ends, the next that goes and another of its class that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Play {
    /// Nothing.
    Moves,
    /// One that waits anywhere leaves, and another of its class comes: after a while neighbours in the queue are far apart in
    /// memory.
    Leaves,
}

/// A gate with so many in its queues.
struct Case {
    gate: Gate,
    play: Play,
    now: Timestamp,
    at_origin: VecDeque<ClassId>,
    /// Who waits, by id.
    handles: Vec<Option<QueueHandle>>,
    dice: u64,
    rounds: Vec<u128>,
}

impl Case {
    fn new(scheduler: Scheduling, length: u64, play: Play) -> Self {
        let class = |k: u64| ClassConfig {
            priority: (k % 3) as u8,
            weight: k as u32 + 1,
            guarantee: Share::from_fraction(1.0 / 32.0).expect("a share"),
            max_in_flight: Some(100),
            egress: BucketConfig { rate: Rate::MAX, burst: Cost::MAX },
            ..ClassConfig::default()
        };
        let gate = Gate::new(&GateConfig {
            max_in_flight: Some(AT_ORIGIN as u32),
            max_queue: 200_000,
            max_queue_wait: Duration::from_secs(1_000_000),
            scheduler,
            classes: (0..CLASSES).map(class).collect(),
        });
        let mut case = Self {
            gate,
            play,
            now: Timestamp::from_secs(1_800_000_000),
            at_origin: VecDeque::new(),
            handles: vec![None; length as usize],
            dice: 1,
            rounds: Vec::new(),
        };
        // Those at the origin have ids that nobody who waits ever has.
        for k in 0..AT_ORIGIN as u64 {
            case.come(u64::MAX - k, ClassId((k % CLASSES) as u8));
        }
        for id in 0..length {
            case.come(id, ClassId((id % CLASSES) as u8));
        }
        case
    }

    fn come(&mut self, id: u64, class: ClassId) {
        self.now = self.now + Duration::from_micros(100);
        match self.gate.arrive(Request { id, class, cost: Cost::ONE }, self.now) {
            QueueDecision::Forward => self.at_origin.push_back(class),
            QueueDecision::Queued(handle) => self.handles[id as usize] = Some(handle),
            QueueDecision::Shed(reason) => unreachable!("{reason:?}"),
        }
    }

    fn call(&mut self) {
        let ended = self.at_origin.pop_front().expect("somebody is at the origin");
        self.gate.finish(ended, Cost::ONE, self.now);
        let Some(Leaving::Forward(woken)) = self.gate.next(self.now) else { unreachable!("somebody waits") };
        self.at_origin.push_back(woken.class);
        if woken.id < self.handles.len() as u64 {
            self.come(woken.id, woken.class);
        }
        if self.play == Play::Leaves {
            self.dice =
                self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (self.dice >> 33) % self.handles.len() as u64;
            let handle = self.handles[id as usize].expect("somebody of every id waits");
            assert!(self.gate.abandon(handle, self.now));
            self.come(id, ClassId((id % CLASSES) as u8));
        }
    }
}

/// One that comes and one that ends, while nobody waits.
struct Idle {
    gate: Gate,
    now: Timestamp,
    rounds: Vec<u128>,
}

impl Idle {
    fn new(scheduler: Scheduling) -> Self {
        let Case { gate, now, .. } = Case::new(scheduler, 0, Play::Moves);
        Self { gate, now, rounds: Vec::new() }
    }

    fn call(&mut self, class: ClassId) {
        self.now = self.now + Duration::from_micros(100);
        self.gate.finish(class, Cost::ONE, self.now);
        assert_eq!(self.gate.next(self.now), None);
        let decision = self.gate.arrive(Request { id: 0, class, cost: Cost::ONE }, self.now);
        assert!(matches!(decision, QueueDecision::Forward));
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn time(mut call: impl FnMut(u32)) -> u128 {
    let start = Instant::now();
    (0..CALLS).for_each(&mut call);
    start.elapsed().as_nanos() / u128::from(CALLS)
}

fn median(rounds: &mut [u128]) -> u128 {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

fn measure() {
    let plays = [Play::Moves, Play::Leaves];
    let mut rows: Vec<(&str, Play, Vec<Case>)> = SCHEDULERS
        .iter()
        .flat_map(|(name, scheduler)| {
            plays.map(|play| (*name, play, LENGTHS.map(|n| Case::new(*scheduler, n, play)).into()))
        })
        .collect();
    let mut idle = SCHEDULERS.map(|(name, scheduler)| (name, Idle::new(scheduler)));
    for _ in 0..ROUNDS {
        for case in rows.iter_mut().flat_map(|(.., cases)| cases) {
            let took = time(|_| case.call());
            case.rounds.push(took);
        }
        for (_, idle) in &mut idle {
            let took = time(|n| idle.call(ClassId((n % AT_ORIGIN as u32) as u8)));
            idle.rounds.push(took);
        }
    }
    for (name, idle) in &mut idle {
        println!("gate {name:12} nobody waits {:6} ns", median(&mut idle.rounds));
    }
    for (name, play, cases) in &mut rows {
        let medians: Vec<_> = cases.iter_mut().map(|case| median(&mut case.rounds)).collect();
        for (length, ns) in LENGTHS.iter().zip(&medians) {
            let ratio = *ns as f64 / medians[0] as f64;
            println!("gate {name:12} {play:?} {length:7} queued {ns:6} ns {ratio:6.2} x");
        }
    }
}

/// As many calls as are asked for, without a clock.
fn play(words: &[String]) -> Option<()> {
    let [scheduler, length, calls, play] = words else { return None };
    let (_, scheduler) = SCHEDULERS.into_iter().find(|(name, _)| name == scheduler)?;
    let play = if play == "leaves" { Play::Leaves } else { Play::Moves };
    let (length, calls): (u64, u64) = (length.parse().ok()?, calls.parse().ok()?);
    if length == 0 {
        let mut idle = Idle::new(scheduler);
        (0..calls).for_each(|n| idle.call(ClassId((n % AT_ORIGIN as u64) as u8)));
    } else {
        let mut case = Case::new(scheduler, length, play);
        (0..calls).for_each(|_| case.call());
    }
    Some(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if play(&words).is_none() {
        measure();
    }
}
