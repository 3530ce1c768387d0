//! The lock-free ring against a model that has no cleverness: a map of seconds and a linear search.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::slots::{Placed, Slots};
use tidegate_core::units::{Cost, Timestamp};

const START: u64 = 1_800_000_000;
const MAX_WAIT_S: u64 = 12;
/// Small, so that a history laps it.
const RING_S: u64 = 32;

#[derive(Clone, Debug)]
enum Op {
    Take(u64),
    /// Gives back the n-th promise still held.
    GiveBack(usize),
    Pass(u64),
    /// For all seconds, with newcomers sent back to the present (a rise to newcomers, or a fall).
    Limit(u64),
    LimitAhead(u64),
    Floor(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => prop_oneof![1u64..=300, Just(100u64), 300u64..=2_500].prop_map(Op::Take),
        3 => any::<usize>().prop_map(Op::GiveBack),
        5 => prop_oneof![0u64..=300_000, 0u64..=3_000_000, Just(1_000_000u64), Just(40_000_000u64)].prop_map(Op::Pass),
        1 => (0u64..=500).prop_map(Op::Limit),
        1 => (1u64..=500).prop_map(Op::LimitAhead),
        1 => (0u64..=8).prop_map(Op::Floor),
    ]
}

#[derive(Default)]
struct Model {
    cells: BTreeMap<u64, (u64, u64)>,
    limit: (u64, u64),
    limit_before: u64,
    floor: u64,
    /// A limit for later opens no second before this one.
    passed: u64,
    oldest: u64,
    /// Work promised, expired and given back, kept apart from the cells.
    ledger: u64,
}

impl Model {
    fn limit_of(&self, second: u64) -> u64 {
        if second >= self.limit.0 { self.limit.1 } else { self.limit_before }
    }

    fn take(&mut self, cost: u64, now_us: u64) -> Option<Placed> {
        let now_s = now_us / 1_000_000;
        let last = self.oldest + RING_S - 1;
        for second in now_s.max(self.floor).max(self.passed)..=(now_s + MAX_WAIT_S).min(last) {
            let limit = self.limit_of(second);
            let (visitors, load) = self.cells.get(&second).copied().unwrap_or_default();
            let expired = if second == now_s { now_us % 1_000_000 * limit / 1_000_000 } else { 0 };
            let before = load.max(expired);
            if before >= limit {
                continue;
            }
            self.ledger += before - load;
            let mut rest = cost;
            let mut plan = vec![(second, before, rest.min(limit - before))];
            rest -= rest.min(limit - before);
            for s in second + 1..=last {
                let (_, load) = self.cells.get(&s).copied().unwrap_or_default();
                let part = self.limit_of(s).saturating_sub(load).min(rest);
                if part > 0 {
                    plan.push((s, load, part));
                    rest -= part;
                }
            }
            for (s, load, part) in plan {
                let cell = self.cells.entry(s).or_default();
                *cell = (cell.0, load + part);
                assert!(cell.1 <= self.limit_of(s), "L[i] <= limit");
            }
            self.cells.entry(second).or_default().0 += 1;
            self.ledger += cost - rest;
            if rest > 0 {
                // It does not fit as a whole.
                self.give_back(second, cost.min(limit - before), cost - rest);
                self.passed = self.passed.min(second);
                return None;
            }
            let due = Timestamp::from_micros(second * 1_000_000 + before * 1_000_000 / limit);
            let before = Cost::from_hundredths(before);
            return Some(Placed { second, before, visitors_before: visitors, due });
        }
        None
    }

    fn give_back(&mut self, second: u64, here: u64, cost: u64) {
        let mut rest = cost;
        for s in second..self.oldest + RING_S {
            let cell = self.cells.entry(s).or_default();
            let part = cell.1.min(if s == second { here.min(rest) } else { rest });
            cell.1 -= part;
            rest -= part;
            self.ledger -= part;
        }
        if let Some(cell) = self.cells.get_mut(&second) {
            cell.0 = cell.0.saturating_sub(1);
        }
    }
}

fn now_of(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

fn check(slots: &Slots, model: &Model) -> Result<(), TestCaseError> {
    let mut sum = (0, 0);
    for second in model.oldest..model.oldest + RING_S {
        let load = slots.promised(second);
        let (visitors, cost) = model.cells.get(&second).copied().unwrap_or_default();
        prop_assert_eq!((load.visitors, load.cost.hundredths()), (visitors, cost), "second {}", second);
        sum = (sum.0 + visitors, sum.1 + cost);
    }
    let total = slots.sum(model.oldest);
    prop_assert_eq!((total.visitors, total.cost.hundredths()), sum);
    let ever: u64 = model.cells.values().map(|c| c.1).sum();
    prop_assert_eq!(ever, model.ledger, "the sum of all cells is what the ledger says");
    Ok(())
}

fn play(ops: &[Op]) -> Result<(), TestCaseError> {
    let mut now_us = START * 1_000_000 + 250_000;
    let slots = Slots::new(RING_S, Duration::from_secs(MAX_WAIT_S), now_of(now_us));
    let mut model = Model { oldest: START, ..Model::default() };
    let mut held: Vec<(u64, u64)> = Vec::new();
    slots.set_limit(Cost::from_hundredths(200));
    (model.limit, model.limit_before) = ((0, 200), 200);
    for op in ops {
        let now = now_of(now_us);
        match *op {
            Op::Take(cost) => {
                let placed = slots.take(Cost::from_hundredths(cost), now, now);
                prop_assert_eq!(placed, model.take(cost, now_us));
                held.extend(placed.map(|p| (p.second, cost)));
            }
            Op::GiveBack(n) => {
                held.retain(|(second, _)| *second >= model.oldest);
                if !held.is_empty() {
                    let (second, cost) = held.swap_remove(n % held.len());
                    slots.give_back(second, Cost::from_hundredths(cost));
                    model.give_back(second, cost, cost);
                    model.passed = model.passed.min(second);
                }
            }
            Op::Pass(us) => {
                now_us += us;
                model.oldest = model.oldest.max(now_us / 1_000_000 - 2);
                slots.forget_before(model.oldest);
            }
            Op::Limit(limit) => {
                slots.set_limit(Cost::from_hundredths(limit));
                slots.reopen(now.second());
                (model.limit, model.limit_before) = ((0, limit), limit);
                model.passed = model.passed.min(now.second());
            }
            Op::LimitAhead(limit) => {
                model.passed = slots.frontier();
                let ahead = model.passed + 2;
                if ahead > model.limit.0 + 1 {
                    model.limit_before = model.limit.1;
                    model.limit.0 = ahead;
                }
                model.limit.1 = limit;
                slots.set_limit_ahead(Cost::from_hundredths(limit));
            }
            Op::Floor(ahead) => {
                model.floor = now.second() + ahead;
                model.passed = model.passed.min(now.second());
                slots.set_floor(model.floor);
                slots.reopen(now.second());
            }
        }
        check(&slots, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_model(ops in prop::collection::vec(op(), 1..32)) {
        play(&ops)?;
    }

    /// Nobody who comes later is due earlier, whatever the costs, while nothing is given back and no rise goes to newcomers.
    #[test]
    fn first_come_first_served(
        ops in prop::collection::vec((1u64..=900, 0u64..=400_000, prop::option::weighted(0.1, 50u64..=400)), 1..40)
    ) {
        let mut now_us = START * 1_000_000;
        let slots = Slots::new(RING_S, Duration::from_secs(MAX_WAIT_S), now_of(now_us));
        slots.set_limit(Cost::from_hundredths(200));
        let mut last = Timestamp::default();
        for (cost, pause, limit) in ops {
            if let Some(limit) = limit {
                slots.set_limit_ahead(Cost::from_hundredths(limit));
            }
            if let Some(placed) = slots.take(Cost::from_hundredths(cost), now_of(now_us), now_of(now_us)) {
                prop_assert!(placed.due >= last, "{:?} after {:?}", placed, last);
                last = placed.due;
            }
            now_us += pause;
            slots.forget_before(now_us / 1_000_000);
        }
    }
}

#[test]
fn work_between_two_instants() {
    let now = Timestamp::from_secs(START);
    let slots = Slots::new(64, Duration::from_secs(30), now);
    slots.set_limit(Cost::from_hundredths(1_000));
    let dues: Vec<_> = (0..25).map(|_| slots.take(Cost::ONE, now, now).unwrap().due).collect();
    for (i, from) in dues.iter().enumerate() {
        for (j, to) in dues.iter().enumerate() {
            let ahead = slots.between(*from, *to);
            let expected = j.saturating_sub(i) as u64;
            assert_eq!((ahead.visitors, ahead.cost.hundredths()), (expected, expected * 100), "{i} to {j}");
        }
    }
}

#[test]
fn seconds_of_an_earlier_lap_are_empty() {
    let slots = Slots::new(32, Duration::from_secs(10), Timestamp::from_secs(START));
    slots.set_limit(Cost::from_hundredths(300));
    for lap in [0, 1, 2, 3, 70, 2_048, 2_049, 10_000] {
        let now = Timestamp::from_secs(START + lap * 32);
        slots.forget_before(now.second());
        assert_eq!(slots.sum(now.second()).cost, Cost::ZERO, "lap {lap}");
        assert_eq!(slots.take(Cost::ONE, now, now).unwrap().due, now, "lap {lap}");
    }
}
