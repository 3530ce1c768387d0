//! The scheduler against its promises: order, shares, guarantees, in any stretch in which classes could go.

use proptest::prelude::*;
use tidegate_core::gate::{ClassConfig, GateConfig, Scheduling};
use tidegate_core::scheduler::{Head, Scheduler};
use tidegate_core::units::{ClassId, Cost, Share};

/// Classes are spread over the ids, the last one included.
fn id(i: usize) -> ClassId {
    ClassId([3, 64, 130, 131, 255][i])
}

#[derive(Clone, Debug)]
struct Line {
    priority: u8,
    weight: u32,
    /// Millionths.
    guarantee: u32,
}

fn config(kind: Scheduling, lines: &[Line]) -> GateConfig {
    let mut classes = vec![ClassConfig::default(); 256];
    for (i, line) in lines.iter().enumerate() {
        classes[id(i).index()] = ClassConfig {
            priority: line.priority,
            weight: line.weight,
            guarantee: Share::from_fraction(f64::from(line.guarantee) / 1e6).unwrap(),
            ..ClassConfig::default()
        };
    }
    GateConfig { scheduler: kind, classes, ..GateConfig::default() }
}

fn kind() -> impl Strategy<Value = Scheduling> {
    prop::sample::select(vec![Scheduling::Priority, Scheduling::RoundRobin, Scheduling::Deficit])
}

fn line(priorities: u8) -> impl Strategy<Value = Line> {
    (0..priorities, 1u32..10).prop_map(|(priority, weight)| Line { priority, weight, guarantee: 0 })
}

/// What happens next: most often the next one goes.
#[derive(Clone, Debug)]
enum Op {
    /// With the cost of the one after it.
    Serve(u64),
    /// A class may not go any more, or may again, its next one costing so much.
    Toggle(usize, u64),
    /// The queue of a class runs empty.
    Empty(usize),
}

fn ops(most: u64) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        30 => (1..=most).prop_map(Op::Serve),
        1 => (any::<usize>(), 1..=most).prop_map(|(class, cost)| Op::Toggle(class, cost)),
        1 => any::<usize>().prop_map(Op::Empty),
    ];
    prop::collection::vec(op, 1..600)
}

/// Plays `ops` on classes that all can go at first, and tells `watch` who was served, and who could go or not.
struct Play {
    scheduler: Scheduler,
    heads: Vec<Option<Head>>,
    turn: u64,
}

impl Play {
    fn new(config: &GateConfig, classes: usize) -> Self {
        let mut scheduler = Scheduler::default();
        scheduler.configure(config);
        let mut play = Self { scheduler, heads: vec![None; classes], turn: 0 };
        (0..classes).for_each(|i| play.ready(i, 1));
        play
    }

    fn ready(&mut self, i: usize, cost: u64) {
        self.turn += 1;
        let head = Head { turn: self.turn, cost: Cost::from_hundredths(cost) };
        self.heads[i] = Some(head);
        self.scheduler.ready(id(i), head);
    }

    /// Who was served, and its cost.
    fn step(&mut self, op: &Op) -> Option<(usize, u64)> {
        let classes = self.heads.len();
        match *op {
            Op::Toggle(i, cost) if self.heads[i % classes].is_none() => self.ready(i % classes, cost),
            Op::Toggle(i, _) => {
                self.heads[i % classes] = None;
                self.scheduler.blocked(id(i % classes));
            }
            Op::Empty(i) => {
                self.heads[i % classes] = None;
                self.scheduler.emptied(id(i % classes));
            }
            Op::Serve(next) => {
                let picked = self.scheduler.pick();
                assert_eq!(picked.is_some(), self.heads.iter().any(Option::is_some));
                assert_eq!(self.scheduler.is_anybody_ready(), picked.is_some());
                assert_eq!(picked, self.scheduler.pick(), "the same until something changes");
                let class = picked?;
                let i = (0..classes).find(|i| id(*i) == class).expect("one of ours");
                let cost = self.heads[i].expect("it may go").cost;
                self.scheduler.charge(class, cost);
                self.ready(i, next);
                return Some((i, cost.hundredths()));
            }
        }
        None
    }
}

/// How far a sum has moved in any stretch since the last reset.
#[derive(Clone, Copy, Default)]
struct Range {
    sum: i128,
    least: i128,
    most: i128,
}

impl Range {
    fn add(&mut self, x: i128) {
        self.sum += x;
        self.least = self.least.min(self.sum);
        self.most = self.most.max(self.sum);
    }
}

/// Checks a bound on what two classes got, in every stretch in which both could always go: `of(i, cost)` is what a service
/// counts, in comparable units.
fn shares(
    play: &mut Play,
    ops: &[Op],
    of: impl Fn(usize, usize, u64) -> i128,
    bound: impl Fn(usize, usize, &[u64]) -> i128,
) -> Result<(), TestCaseError> {
    let n = play.heads.len();
    let mut ranges = vec![Range::default(); n * n];
    let mut dearest = vec![1u64; n];
    for op in ops {
        let served = play.step(op);
        for (i, head) in play.heads.iter().enumerate() {
            dearest[i] = dearest[i].max(head.map_or(0, |head| head.cost.hundredths()));
        }
        for i in 0..n {
            for j in 0..i {
                let range = &mut ranges[i * n + j];
                match served {
                    Some((k, cost)) if k == i => range.add(of(i, j, cost)),
                    Some((k, cost)) if k == j => range.add(-of(j, i, cost)),
                    _ => {}
                }
                if play.heads[i].is_none() || play.heads[j].is_none() {
                    *range = Range::default();
                }
                let moved = range.most - range.least;
                prop_assert!(
                    moved <= bound(i, j, &dearest),
                    "{i} and {j}: {moved} of {}",
                    bound(i, j, &dearest)
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// | served_i / w_i - served_j / w_j | <= unit + dearest_i / w_i + dearest_j / w_j, in any stretch.
    #[test]
    fn work_is_shared_by_weights(lines in prop::collection::vec(line(1), 2..=5), ops in ops(300)) {
        let mut play = Play::new(&config(Scheduling::Deficit, &lines), lines.len());
        let weight = |i: usize| i128::from(lines[i].weight);
        let unit = |dearest: &[u64]| {
            (0..lines.len()).map(|i| i128::from(dearest[i].div_ceil(lines[i].weight.into()))).max().unwrap()
        };
        shares(
            &mut play,
            &ops,
            |_, other, cost| i128::from(cost) * weight(other),
            |i, j, dearest| {
                let (a, b) = (i128::from(dearest[i]), i128::from(dearest[j]));
                unit(dearest) * weight(i) * weight(j) + a * weight(j) + b * weight(i)
            },
        )?;
    }

    /// In any stretch no class gets more than one request ahead of another.
    #[test]
    fn each_class_has_its_turn(lines in prop::collection::vec(line(5), 2..=5), ops in ops(300)) {
        let mut play = Play::new(&config(Scheduling::RoundRobin, &lines), lines.len());
        shares(&mut play, &ops, |_, _, _| 1, |_, _, _| 1)?;
    }

    /// Nobody goes before one of a lower number who may go; by strict priority, nor within one number before who came earlier.
    #[test]
    fn priority_is_never_inverted(
        lines in prop::collection::vec(line(3), 2..=5),
        by_age in any::<bool>(),
        ops in ops(300),
    ) {
        let kind = if by_age { Scheduling::Priority } else { Scheduling::Deficit };
        let mut play = Play::new(&config(kind, &lines), lines.len());
        for op in &ops {
            let waiting = play.heads.clone();
            let Some((served, _)) = play.step(op) else { continue };
            let rank = |i: usize, head: &Head| (lines[i].priority, if by_age { head.turn } else { 0 });
            let best = waiting.iter().enumerate().filter_map(|(i, head)| head.as_ref().map(|h| rank(i, h))).min();
            prop_assert_eq!(Some(rank(served, &waiting[served].unwrap())), best);
        }
    }

    /// A class that can go gets g V less g times the dearest of all and two of its own, in any stretch, whatever comes before it.
    #[test]
    fn a_guarantee_is_kept(
        kind in kind(),
        mut lines in prop::collection::vec(line(3), 2..=5),
        parts in prop::collection::vec(0u32..1_000_000, 5),
        ops in ops(300),
    ) {
        let whole: u64 = parts[..lines.len()].iter().map(|p| u64::from(*p)).sum::<u64>().max(1_000_000);
        for (line, part) in lines.iter_mut().zip(&parts) {
            line.guarantee = (u64::from(*part) * 1_000_000 / whole) as u32;
        }
        let mut play = Play::new(&config(kind, &lines), lines.len());
        // Ahead of the guarantee, in 10^-8 of a unit of work; how far behind its best so far.
        let mut ahead = vec![(0i128, 0i128); lines.len()];
        let mut dearest = vec![1i128; lines.len()];
        for op in &ops {
            let served = play.step(op);
            for (i, head) in play.heads.iter().enumerate() {
                dearest[i] = dearest[i].max(head.map_or(0, |head| head.cost.hundredths().into()));
            }
            let most = *dearest.iter().max().unwrap();
            for (i, (ahead, best)) in ahead.iter_mut().enumerate() {
                let share = i128::from(lines[i].guarantee);
                if let Some((k, cost)) = served {
                    let got = if k == i { i128::from(cost) * 1_000_000 } else { 0 };
                    *ahead += got - share * i128::from(cost);
                }
                if play.heads[i].is_none() {
                    (*ahead, *best) = (0, 0);
                }
                *best = (*best).max(*ahead);
                let behind = *best - *ahead;
                let bound = share * most + 2 * dearest[i] * 1_000_000;
                prop_assert!(behind <= bound, "class {i} of {lines:?}: {behind} of {bound}");
            }
        }
    }
}

/// A low class with a guarantee is not starved by a high one, and does not starve it either.
#[test]
fn a_guarantee_is_a_floor_and_no_more() {
    let high = Line { priority: 0, weight: 1, guarantee: 0 };
    let low = Line { priority: 9, weight: 1, guarantee: 100_000 };
    for kind in [Scheduling::Priority, Scheduling::Deficit] {
        let mut play = Play::new(&config(kind, &[high.clone(), low.clone()]), 2);
        let served: Vec<_> = (0..1_000).filter_map(|_| play.step(&Op::Serve(1))).collect();
        let low = served.iter().filter(|(i, _)| *i == 1).count();
        assert!((100..=101).contains(&low), "{kind:?}: {low} of 1000");
    }
    // Without one it is.
    let mut play = Play::new(&config(Scheduling::Priority, &[high.clone(), high]), 2);
    let mut starved = config(Scheduling::Priority, &[Line { priority: 9, weight: 1, guarantee: 0 }]);
    starved.classes[id(1).index()].priority = 0;
    play.scheduler.configure(&starved);
    assert!((0..1_000).filter_map(|_| play.step(&Op::Serve(1))).all(|(i, _)| i == 1));
}

/// Another set-up while classes wait: it holds from the next request on.
#[test]
fn a_change_holds_at_once() {
    let line = |priority, weight| Line { priority, weight, guarantee: 0 };
    let lines = [line(0, 1), line(1, 3), line(1, 1)];
    let mut play = Play::new(&config(Scheduling::Priority, &lines), 3);
    (0..3).for_each(|i| play.ready(i, 100));
    let count = |play: &mut Play, kind, lines: &[Line]| {
        play.scheduler.configure(&config(kind, lines));
        let mut counts = [0; 3];
        for (i, _) in (0..400).filter_map(|_| play.step(&Op::Serve(100))) {
            counts[i] += 1;
        }
        counts
    };
    assert_eq!(count(&mut play, Scheduling::Priority, &lines), [400, 0, 0]);
    let equal = [line(1, 1), line(1, 3), line(1, 1)];
    let [a, b, c] = count(&mut play, Scheduling::Deficit, &equal);
    assert!((79..=81).contains(&a) && (238..=242).contains(&b) && (79..=81).contains(&c), "{a} {b} {c}");
    let [a, b, c] = count(&mut play, Scheduling::RoundRobin, &equal);
    assert!([a, b, c].iter().all(|n| (133..=134).contains(n)), "{a} {b} {c}");
    assert_eq!(count(&mut play, Scheduling::Deficit, &lines), [400, 0, 0]);
}
