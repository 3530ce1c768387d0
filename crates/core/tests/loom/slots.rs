//! Model check of the schedule: two operations at once in every interleaving (see `main.rs`).
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use tidegate_core::slots::Slots;
use tidegate_core::units::{Cost, Timestamp};

const SECOND: u64 = 1_800_000_000;
const LIMIT: u64 = 100;

fn now() -> Timestamp {
    Timestamp::from_secs(SECOND)
}

fn cost(hundredths: u64) -> Cost {
    Cost::from_hundredths(hundredths)
}

fn slots() -> Slots {
    let slots = Slots::new(4, Duration::from_secs(2), now());
    slots.set_limit(cost(LIMIT));
    slots
}

fn take(slots: &Slots, hundredths: u64) -> Option<Timestamp> {
    slots.take(cost(hundredths), now(), now()).map(|placed| placed.due)
}

fn loads(slots: &Slots) -> Vec<u64> {
    (SECOND..SECOND + 4).map(|s| slots.promised(s).cost.hundredths()).collect()
}

/// Two operations at once on what `prepare` made, then `check`. Preemption-bounded: loom's advice for
/// compare-and-swap loops.
fn race(
    prepare: fn() -> Slots,
    one: fn(&Slots) -> Option<Timestamp>,
    two: fn(&Slots) -> Option<Timestamp>,
    check: fn(&Slots, Option<Timestamp>, Option<Timestamp>),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(move || {
        let slots = Arc::new(prepare());
        let other = slots.clone();
        let handle = thread::spawn(move || two(&other));
        let first = one(&slots);
        let second = handle.join().unwrap();
        check(&slots, first, second);
    });
}

#[test]
fn two_takes() {
    race(
        slots,
        |s| take(s, 60),
        |s| take(s, 60),
        |slots, one, two| {
            assert_ne!(one.unwrap(), two.unwrap(), "one instant promised twice");
            assert_eq!(loads(slots), [100, 20, 0, 0]);
        },
    );
}

#[test]
fn a_wide_take_and_a_small_one() {
    race(
        slots,
        |s| take(s, 230),
        |s| take(s, 40),
        |slots, one, two| {
            assert!(one.is_some() && two.is_some());
            assert_eq!(loads(slots), [100, 100, 70, 0]);
        },
    );
}

#[test]
fn a_take_and_a_give_back() {
    let prepare = || {
        let slots = slots();
        take(&slots, 100);
        slots
    };
    let give_back = |s: &Slots| {
        s.give_back(SECOND, cost(100));
        None
    };
    race(
        prepare,
        |s| take(s, 40),
        give_back,
        |slots, one, _| {
            assert!(one.is_some());
            assert_eq!(slots.sum(SECOND).cost, cost(40), "a promise or a give-back was lost");
            let room_now = slots.promised(SECOND).cost < cost(LIMIT);
            assert!(room_now && take(slots, 1).unwrap().second() == SECOND, "the room given back is hidden");
        },
    );
}

#[test]
fn a_take_and_a_rise() {
    let prepare = || {
        let slots = slots();
        take(&slots, 100);
        slots
    };
    let rise = |s: &Slots| {
        s.set_limit(cost(150));
        s.reopen(SECOND);
        None
    };
    race(
        prepare,
        |s| take(s, 20),
        rise,
        |slots, one, _| {
            assert!(one.is_some());
            assert_eq!(slots.sum(SECOND).cost, cost(120));
            assert!(loads(slots).iter().all(|load| *load <= 150));
            assert_eq!(take(slots, 1).unwrap().second(), SECOND, "the new room is hidden");
        },
    );
}

#[test]
fn a_take_and_a_fall() {
    let fall = |s: &Slots| {
        s.set_limit(cost(50));
        None
    };
    race(
        slots,
        |s| take(s, 120),
        fall,
        |slots, one, _| {
            assert!(one.is_some());
            assert_eq!(slots.sum(SECOND).cost, cost(120));
            assert!(loads(slots).iter().all(|load| *load <= LIMIT), "at most the largest limit in force");
        },
    );
}

#[test]
fn a_take_and_a_limit_for_later() {
    let ahead = |s: &Slots| {
        s.set_limit_ahead(cost(150));
        None
    };
    race(
        slots,
        |s| take(s, 120),
        ahead,
        |slots, one, _| {
            assert!(one.is_some());
            assert_eq!(loads(slots)[..2], [100, 20], "near seconds keep their limit");
        },
    );
}

#[test]
fn two_replace_a_stale_cell() {
    let prepare = || {
        // The cell of SECOND was last used a lap ago.
        let before = Timestamp::from_secs(SECOND - 4);
        let slots = Slots::new(4, Duration::from_secs(2), before);
        slots.set_limit(cost(LIMIT));
        slots.take(cost(90), before, before).unwrap();
        slots.forget_before(SECOND);
        slots
    };
    race(
        prepare,
        |s| take(s, 30),
        |s| take(s, 50),
        |slots, one, two| {
            assert_ne!(one.unwrap(), two.unwrap());
            assert_eq!(loads(slots), [80, 0, 0, 0]);
        },
    );
}

#[test]
fn a_take_that_does_not_fit_leaves_nothing() {
    race(
        slots,
        |s| take(s, 390),
        |s| take(s, 40),
        |slots, one, two| {
            assert!(two.is_some() || one.is_some());
            let expected = one.map_or(0, |_| 390) + two.map_or(0, |_| 40);
            assert_eq!(slots.sum(SECOND).cost, cost(expected));
            assert!(loads(slots).iter().all(|load| *load <= LIMIT));
        },
    );
}
