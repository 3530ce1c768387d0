//! Model check of the session slot pool: takes, returns and changes of the bound in every interleaving (see `main.rs`).
use std::sync::Arc;

use loom::thread;
use tidegate_core::session::slot_pool::{Filled, SlotPool};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(check);
}

#[test]
fn the_last_slots_go_to_two_of_three_takers() {
    model(|| {
        let pool = Arc::new(SlotPool::new(2));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.take())
            })
            .collect();
        let mine = pool.take();
        let taken =
            others.into_iter().map(|other| other.join().unwrap()).chain([mine]).filter(|t| *t).count();
        assert_eq!((taken, pool.filled().taken), (2, 2));
    });
}

#[test]
fn no_slot_is_taken_beyond_a_lowered_bound() {
    model(|| {
        let pool = Arc::new(SlotPool::new(2));
        assert!(pool.take());
        let other = pool.clone();
        let tick = thread::spawn(move || other.set(1, false));
        let before = pool.take();
        tick.join().unwrap();
        assert!(!pool.take(), "beyond the new bound");
        assert_eq!(pool.filled(), Filled { taken: 1 + u32::from(before), bound: 1, is_closed: false });
    });
}

#[test]
fn a_returned_slot_is_taken_once() {
    model(|| {
        let pool = Arc::new(SlotPool::new(1));
        assert!(pool.take());
        let (giver, taker) = (pool.clone(), pool.clone());
        let gives = thread::spawn(move || giver.give());
        let takes = thread::spawn(move || taker.take());
        let mine = pool.take();
        gives.join().unwrap();
        let theirs = takes.join().unwrap();
        assert!(!(mine && theirs), "one slot was taken twice");
        assert_eq!(pool.filled().taken, u32::from(mine) + u32::from(theirs));
        assert_eq!(pool.take(), !mine && !theirs);
    });
}

#[test]
fn a_closed_pool_gives_no_slot_and_loses_none() {
    model(|| {
        let pool = Arc::new(SlotPool::new(3));
        let other = pool.clone();
        let tick = thread::spawn(move || {
            other.set(3, true);
            other.set(2, false);
        });
        let first = pool.take();
        pool.force();
        tick.join().unwrap();
        let filled = pool.filled();
        assert_eq!(filled, Filled { taken: 1 + u32::from(first), bound: 2, is_closed: false });
        assert_eq!(pool.take(), !first);
    });
}
