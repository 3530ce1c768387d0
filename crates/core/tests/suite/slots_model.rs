//! The lock-free schedule against a simple model: a map of seconds and a linear search.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::slots::{Placed, Slots};
use tidegate_core::units::{Cost, Timestamp};

const START: u64 = 1_800_000_000;
const MAX_WAIT_S: u64 = 12;
/// Small, so that a history goes around it.
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
    /// A fall while people wait.
    Fall(u64, u64),
    /// A fall while no one waits.
    Settle(u64),
    Floor(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => prop_oneof![1u64..=300, Just(100u64), 300u64..=2_500].prop_map(Op::Take),
        3 => any::<usize>().prop_map(Op::GiveBack),
        5 => prop_oneof![0u64..=300_000, 0u64..=3_000_000, Just(1_000_000u64), Just(40_000_000u64)]
            .prop_map(Op::Pass),
        1 => (0u64..=500).prop_map(Op::Limit),
        1 => (1u64..=500).prop_map(Op::LimitAhead),
        1 => (1u64..=500, 0u64..=8).prop_map(|(limit, floor)| Op::Fall(limit, floor)),
        1 => (1u64..=500).prop_map(Op::Settle),
        1 => (0u64..=8).prop_map(Op::Floor),
    ]
}

/// A second of the schedule.
#[derive(Clone, Copy, Default)]
struct Cell {
    visitors: u64,
    cost: u64,
}

#[derive(Default)]
struct Model {
    cells: BTreeMap<u64, Cell>,
    /// By the second they hold from.
    limits: BTreeMap<u64, u64>,
    floor: u64,
    /// A limit for later opens no second before this one.
    passed: u64,
    oldest: u64,
    /// Work promised and expired, less what was given back, counted apart from the cells.
    ledger: u64,
}

impl Model {
    fn cell(&self, second: u64) -> Cell {
        self.cells.get(&second).copied().unwrap_or_default()
    }

    fn limit_of(&self, second: u64) -> u64 {
        self.limits.range(..=second).next_back().map_or(0, |(_, limit)| *limit)
    }

    fn set_limit_from(&mut self, second: u64, limit: u64) {
        self.limits.split_off(&second);
        self.limits.insert(second, limit);
    }

    fn settle(&mut self, seconds: std::ops::RangeInclusive<u64>, limit: u64) {
        for second in seconds {
            let old = self.limit_of(second);
            let cell = self.cells.entry(second).or_default();
            if old > limit {
                let new = (cell.cost.min(old) * limit).div_ceil(old);
                self.ledger = self.ledger + new - cell.cost;
                cell.cost = new;
            }
        }
        self.set_limit_from(0, limit);
    }

    fn take(&mut self, cost: u64, now_us: u64) -> Option<Placed> {
        let now_s = now_us / 1_000_000;
        let last = self.oldest + RING_S - 1;
        for second in now_s.max(self.floor).max(self.passed)..=(now_s + MAX_WAIT_S).min(last) {
            let limit = self.limit_of(second);
            let Cell { visitors, cost: load } = self.cell(second);
            let expired = if second == now_s { now_us % 1_000_000 * limit / 1_000_000 } else { 0 };
            let before = load.max(expired);
            if before >= limit {
                continue;
            }
            self.ledger += before - load;
            let mut rest = cost;
            // (second, load before, part)
            let mut plan = vec![(second, before, rest.min(limit - before))];
            rest -= rest.min(limit - before);
            for s in second + 1..=last {
                let load = self.cell(s).cost;
                let part = self.limit_of(s).saturating_sub(load).min(rest);
                if part > 0 {
                    plan.push((s, load, part));
                    rest -= part;
                }
            }
            for (s, load, part) in plan {
                self.cells.entry(s).or_default().cost = load + part;
                assert!(load + part <= self.limit_of(s), "L[i] <= limit");
            }
            self.cells.entry(second).or_default().visitors += 1;
            self.ledger += cost - rest;
            if rest > 0 {
                // It does not fit completely.
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
            let part = cell.cost.min(if s == second { here.min(rest) } else { rest });
            cell.cost -= part;
            rest -= part;
            self.ledger -= part;
        }
        if let Some(cell) = self.cells.get_mut(&second) {
            cell.visitors = cell.visitors.saturating_sub(1);
        }
    }
}

fn now_of(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

fn check(slots: &Slots, model: &Model) -> Result<(), TestCaseError> {
    let mut sum = Cell::default();
    for second in model.oldest..model.oldest + RING_S {
        let load = slots.promised(second);
        let Cell { visitors, cost } = model.cell(second);
        prop_assert_eq!((load.visitors, load.cost.hundredths()), (visitors, cost), "second {}", second);
        sum = Cell { visitors: sum.visitors + visitors, cost: sum.cost + cost };
    }
    let total = slots.sum(model.oldest);
    prop_assert_eq!((total.visitors, total.cost.hundredths()), (sum.visitors, sum.cost));
    let ever: u64 = model.cells.values().map(|cell| cell.cost).sum();
    prop_assert_eq!(ever, model.ledger, "the sum of all cells equals the ledger");
    Ok(())
}

fn play(ops: &[Op]) -> Result<(), TestCaseError> {
    let mut now_us = START * 1_000_000 + 250_000;
    let slots = Slots::new(RING_S, Duration::from_secs(MAX_WAIT_S), now_of(now_us));
    let mut model = Model { oldest: START, ..Model::default() };
    let mut held: Vec<(u64, u64)> = Vec::new();
    slots.set_limit(Cost::from_hundredths(200));
    model.set_limit_from(0, 200);
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
                model.set_limit_from(0, limit);
                model.passed = model.passed.min(now.second());
            }
            Op::LimitAhead(limit) => {
                model.passed = slots.frontier();
                let last = model.limits.last_key_value().map_or(0, |(from, _)| *from);
                let ahead = if model.passed + 2 > last + 1 { model.passed + 2 } else { last };
                model.set_limit_from(ahead, limit);
                slots.set_limit_ahead(Cost::from_hundredths(limit));
            }
            Op::Fall(limit, floor) => {
                model.passed = slots.frontier();
                let floor = now.second() + floor;
                slots.lower_limit(Cost::from_hundredths(limit), floor);
                let from = floor.max(model.passed + 2);
                model.floor = model.floor.max(from);
                model.set_limit_from(from, limit);
            }
            Op::Settle(limit) => {
                model.settle(now.second()..=slots.frontier(), limit);
                slots.settle(now.second(), Cost::from_hundredths(limit));
                model.passed = model.passed.min(now.second());
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
    #![proptest_config(ProptestConfig {
        cases: 100_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn equals_the_model(ops in prop::collection::vec(op(), 1..32)) {
        play(&ops)?;
    }

    /// Promises keep their distance in work when the limit falls, however far.
    #[test]
    fn instants_keep_their_distance(
        limits in prop::collection::vec(1u64..=50, 1..6),
        pause_ms in 0u64..=999,
        each in 1u64..=60,
    ) {
        let now = now_of(START * 1_000_000 + pause_ms * 1_000);
        let slots = Slots::new(128, Duration::from_secs(100), now);
        let mut dues: Vec<Timestamp> = Vec::new();
        slots.set_limit(Cost::from_hundredths(6_000));
        for limit in limits {
            let promised = (0..each).filter_map(|_| slots.take(Cost::ONE, now, now));
            dues.extend(promised.map(|placed| placed.due));
            prop_assert!(dues.is_sorted());
            slots.lower_limit(Cost::from_hundredths(limit * 100), now.second());
            for (i, due) in dues.iter().enumerate() {
                let ahead = slots.between(now, *due).cost.hundredths();
                prop_assert!(ahead.abs_diff(i as u64 * 100) <= 1, "{} ahead of the {}th", ahead, i);
            }
            prop_assert_eq!(slots.ahead_of(now).cost.hundredths(), dues.len() as u64 * 100);
        }
    }

    /// When no one waits, what is taken remains taken to the same instant.
    #[test]
    fn a_settled_second_is_taken_up_to_the_same_instant(
        pause_ms in 0u64..=999, taken in 0u64..=50, old in 100u64..=9_000, new in 100u64..=9_000,
    ) {
        let now = now_of(START * 1_000_000 + pause_ms * 1_000);
        let slots = Slots::new(128, Duration::from_secs(100), now);
        slots.set_limit(Cost::from_hundredths(old));
        let last = (0..=taken).filter_map(|_| slots.take(Cost::ONE, now, now)).last();
        let Some(last) = last else { panic!("there is room") };
        let within = last.due.second() - now.second() < 64;
        slots.settle(now.second(), Cost::from_hundredths(new.min(old)));
        let Some(next) = slots.take(Cost::ONE, now, now) else { panic!("there is room") };
        let least = last.due.saturating_sub(Duration::from_millis(1));
        prop_assert!(!within || next.due >= least, "{:?} after {:?}", next, last);
        let most = last.due + Duration::from_secs(2) + Duration::from_millis(100_000 / old);
        prop_assert!(next.due <= most, "{:?} after {:?}", next, last);
    }

    /// No later visitor is due earlier, whatever the costs, while nothing is given back and no rise goes to
    /// newcomers.
    #[test]
    fn first_come_first_served(
        ops in prop::collection::vec(
            (1u64..=900, 0u64..=400_000, prop::option::weighted(0.1, 50u64..=400)), 1..40
        )
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
