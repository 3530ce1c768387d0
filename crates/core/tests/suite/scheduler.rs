//! Properties of the scheduler: order, shares and guarantees hold over any stretch in which the classes may
//! go.

use proptest::prelude::*;
use tidegate_core::scheduler::{Head, Precedence, Scheduler, Scheduling};
use tidegate_core::units::{ClassId, Cost, Share};

/// Classes are spread over the ids, the last one included.
fn id(i: usize) -> ClassId {
    ClassId([3, 64, 130, 131, 255][i])
}

#[derive(Clone, Debug)]
struct Class {
    priority: u8,
    weight: u32,
    /// Millionths.
    guarantee: u32,
}

fn configure(scheduler: &mut Scheduler, kind: Scheduling, classes: &[Class]) {
    let other = Precedence { priority: 1, weight: 1, guarantee: Share::ZERO };
    scheduler.configure(kind, |class| {
        (0..classes.len()).find(|i| id(*i) == class).map_or(other, |i| Precedence {
            priority: classes[i].priority,
            weight: classes[i].weight,
            guarantee: Share::from_fraction(f64::from(classes[i].guarantee) / 1e6).unwrap(),
        })
    });
}

fn kind() -> impl Strategy<Value = Scheduling> {
    prop::sample::select(vec![Scheduling::Priority, Scheduling::RoundRobin, Scheduling::Deficit])
}

fn class(priorities: u8) -> impl Strategy<Value = Class> {
    (0..priorities, 1u32..10).prop_map(|(priority, weight)| Class { priority, weight, guarantee: 0 })
}

/// Most often the next request is served.
#[derive(Clone, Debug)]
enum Op {
    /// The next request is served; the one after it costs so much.
    Serve(u64),
    /// A class is blocked, or may go again with a next request of that cost.
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

/// A scheduler whose classes may all go at first, with the heads that were passed to it.
struct Play {
    scheduler: Scheduler,
    heads: Vec<Option<Head>>,
    turn: u64,
}

impl Play {
    fn new(kind: Scheduling, classes: &[Class]) -> Self {
        let mut scheduler = Scheduler::default();
        configure(&mut scheduler, kind, classes);
        let mut play = Self { scheduler, heads: vec![None; classes.len()], turn: 0 };
        (0..classes.len()).for_each(|i| play.ready(i, 1));
        play
    }

    fn ready(&mut self, i: usize, cost: u64) {
        self.turn += 1;
        let head = Head { turn: self.turn, cost: Cost::from_hundredths(cost) };
        self.heads[i] = Some(head);
        self.scheduler.ready(id(i), head);
    }

    /// The class that was served, and the request's cost.
    fn step(&mut self, op: &Op) -> Option<(usize, u64)> {
        let count = self.heads.len();
        match *op {
            Op::Toggle(i, cost) if self.heads[i % count].is_none() => self.ready(i % count, cost),
            Op::Toggle(i, _) => {
                self.heads[i % count] = None;
                self.scheduler.blocked(id(i % count));
            }
            Op::Empty(i) => {
                self.heads[i % count] = None;
                self.scheduler.emptied(id(i % count));
            }
            Op::Serve(next) => {
                let picked = self.scheduler.pick();
                assert_eq!(picked.is_some(), self.heads.iter().any(Option::is_some));
                assert_eq!(self.scheduler.is_any_ready(), picked.is_some());
                assert_eq!(picked, self.scheduler.pick(), "the same until something changes");
                let class = picked?;
                let i = (0..count).find(|i| id(*i) == class).expect("one of ours");
                let cost = self.heads[i].expect("it may go").cost;
                self.scheduler.charge(class, cost);
                self.ready(i, next);
                return Some((i, cost.hundredths()));
            }
        }
        None
    }
}

/// Least and greatest value of a sum since the last reset.
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

/// Checks a bound on the difference of the services of two classes, over every stretch in which both may
/// always go. `of(i, j, cost)` is what a service of class i counts against class j, in comparable units.
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
    fn work_is_shared_by_weights(classes in prop::collection::vec(class(1), 2..=5), ops in ops(300)) {
        let mut play = Play::new(Scheduling::Deficit, &classes);
        let weight = |i: usize| i128::from(classes[i].weight);
        let unit = |dearest: &[u64]| {
            let units = |i: usize| i128::from(dearest[i].div_ceil(classes[i].weight.into()));
            (0..classes.len()).map(units).max().unwrap()
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
    fn each_class_has_its_turn(classes in prop::collection::vec(class(5), 2..=5), ops in ops(300)) {
        let mut play = Play::new(Scheduling::RoundRobin, &classes);
        shares(&mut play, &ops, |_, _, _| 1, |_, _, _| 1)?;
    }

    /// No class goes before a ready one of a lower priority number; by strict priority, earlier arrivals of
    /// one number go first.
    #[test]
    fn priority_is_never_inverted(
        classes in prop::collection::vec(class(3), 2..=5),
        by_age in any::<bool>(),
        ops in ops(300),
    ) {
        let kind = if by_age { Scheduling::Priority } else { Scheduling::Deficit };
        let mut play = Play::new(kind, &classes);
        for op in &ops {
            let waiting = play.heads.clone();
            let Some((served, _)) = play.step(op) else { continue };
            let rank = |i: usize, head: &Head| (classes[i].priority, if by_age { head.turn } else { 0 });
            let ranks = waiting.iter().enumerate().filter_map(|(i, head)| Some(rank(i, head.as_ref()?)));
            let best = ranks.min();
            prop_assert_eq!(Some(rank(served, &waiting[served].unwrap())), best);
        }
    }

    /// A class that may go gets g V less g times the dearest request of all and two of its own, over any
    /// stretch.
    #[test]
    fn a_guarantee_is_kept(
        kind in kind(),
        mut classes in prop::collection::vec(class(3), 2..=5),
        parts in prop::collection::vec(0u32..1_000_000, 5),
        ops in ops(300),
    ) {
        let whole: u64 = parts[..classes.len()].iter().map(|p| u64::from(*p)).sum::<u64>().max(1_000_000);
        for (line, part) in classes.iter_mut().zip(&parts) {
            line.guarantee = (u64::from(*part) * 1_000_000 / whole) as u32;
        }
        let mut play = Play::new(kind, &classes);
        // Work ahead of the guarantee, in 10^-8 of a unit, and its maximum so far.
        let mut ahead = vec![(0i128, 0i128); classes.len()];
        let mut dearest = vec![1i128; classes.len()];
        for op in &ops {
            let served = play.step(op);
            for (i, head) in play.heads.iter().enumerate() {
                dearest[i] = dearest[i].max(head.map_or(0, |head| head.cost.hundredths().into()));
            }
            let most = *dearest.iter().max().unwrap();
            for (i, (ahead, best)) in ahead.iter_mut().enumerate() {
                let share = i128::from(classes[i].guarantee);
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
                prop_assert!(behind <= bound, "class {i} of {classes:?}: {behind} of {bound}");
            }
        }
    }
}

/// A low class with a guarantee is not starved by a high one, and does not starve it either.
#[test]
fn a_guarantee_is_a_floor_and_no_more() {
    let high = Class { priority: 0, weight: 1, guarantee: 0 };
    let low = Class { priority: 9, weight: 1, guarantee: 100_000 };
    for kind in [Scheduling::Priority, Scheduling::Deficit] {
        let mut play = Play::new(kind, &[high.clone(), low.clone()]);
        let served: Vec<_> = (0..1_000).filter_map(|_| play.step(&Op::Serve(1))).collect();
        let low = served.iter().filter(|(i, _)| *i == 1).count();
        assert!((100..=101).contains(&low), "{kind:?}: {low} of 1000");
    }
    // Without a guarantee it is starved.
    let mut play = Play::new(Scheduling::Priority, &[high.clone(), high.clone()]);
    let starved = Class { priority: 9, weight: 1, guarantee: 0 };
    configure(&mut play.scheduler, Scheduling::Priority, &[starved, high]);
    assert!((0..1_000).filter_map(|_| play.step(&Op::Serve(1))).all(|(i, _)| i == 1));
}

/// A configuration that changes while classes wait holds from the next request on.
#[test]
fn a_new_configuration_holds_at_once() {
    let class = |priority, weight| Class { priority, weight, guarantee: 0 };
    let classes = [class(0, 1), class(1, 3), class(1, 1)];
    let mut play = Play::new(Scheduling::Priority, &classes);
    (0..3).for_each(|i| play.ready(i, 100));
    let count = |play: &mut Play, kind, classes: &[Class]| {
        configure(&mut play.scheduler, kind, classes);
        let mut counts = [0; 3];
        for (i, _) in (0..400).filter_map(|_| play.step(&Op::Serve(100))) {
            counts[i] += 1;
        }
        counts
    };
    assert_eq!(count(&mut play, Scheduling::Priority, &classes), [400, 0, 0]);
    let equal = [class(1, 1), class(1, 3), class(1, 1)];
    let [a, b, c] = count(&mut play, Scheduling::Deficit, &equal);
    assert!((79..=81).contains(&a) && (238..=242).contains(&b) && (79..=81).contains(&c), "{a} {b} {c}");
    let [a, b, c] = count(&mut play, Scheduling::RoundRobin, &equal);
    assert!([a, b, c].iter().all(|n| (133..=134).contains(n)), "{a} {b} {c}");
    assert_eq!(count(&mut play, Scheduling::Deficit, &classes), [400, 0, 0]);
}
