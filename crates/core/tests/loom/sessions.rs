//! Every interleaving of who takes a session's place, who gives one back and the tick that changes the bound, by loom:
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tidegate-core --test loom_sessions --release`
use std::sync::Arc;

use loom::thread;
use tidegate_core::session::slot_pool::{Filled, SlotPool};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(check);
}

#[test]
fn the_last_place_goes_to_one() {
    model(|| {
        let places = Arc::new(Places::new(2));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let places = places.clone();
                thread::spawn(move || places.take())
            })
            .collect();
        let mine = places.take();
        let taken =
            others.into_iter().map(|other| other.join().unwrap()).chain([mine]).filter(|t| *t).count();
        assert_eq!((taken, places.filled().taken), (2, 2));
    });
}

#[test]
fn nobody_takes_a_place_that_is_gone() {
    model(|| {
        let places = Arc::new(Places::new(2));
        assert!(places.take());
        let other = places.clone();
        let tick = thread::spawn(move || other.set(1, false));
        let before = places.take();
        tick.join().unwrap();
        assert!(!places.take(), "beyond the new bound");
        assert_eq!(places.filled(), Filled { taken: 1 + u32::from(before), bound: 1, is_closed: false });
    });
}

#[test]
fn a_place_that_comes_back_is_there_once() {
    model(|| {
        let places = Arc::new(Places::new(1));
        assert!(places.take());
        let (giver, taker) = (places.clone(), places.clone());
        let gives = thread::spawn(move || giver.give());
        let takes = thread::spawn(move || taker.take());
        let mine = places.take();
        gives.join().unwrap();
        let theirs = takes.join().unwrap();
        assert!(!(mine && theirs), "one place for two");
        assert_eq!(places.filled().taken, u32::from(mine) + u32::from(theirs));
        assert_eq!(places.take(), !mine && !theirs);
    });
}

#[test]
fn while_closed_none_is_given_and_none_is_lost() {
    model(|| {
        let places = Arc::new(Places::new(3));
        let other = places.clone();
        let tick = thread::spawn(move || {
            other.set(3, true);
            other.set(2, false);
        });
        let first = places.take();
        places.force();
        tick.join().unwrap();
        let filled = places.filled();
        assert_eq!(filled, Filled { taken: 1 + u32::from(first), bound: 2, is_closed: false });
        assert_eq!(places.take(), !first);
    });
}
