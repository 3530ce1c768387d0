//! Choice, ejection and reconfiguration of replicas.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use super::*;
use proptest::prelude::*;

fn origin(replicas: &[&str], failures: u32) -> tidegate_settings::Origin {
    tidegate_settings::Origin {
        replicas: replicas.iter().map(|r| (*r).to_string()).collect(),
        eject: tidegate_settings::Eject { failures, for_: Duration::from_secs(5) },
        ..tidegate_settings::Origin::default()
    }
}

fn replicas(n: usize) -> Vec<Arc<Replica>> {
    (0..n).map(|i| Arc::new(Replica::new(i as u64, format!("10.0.0.{i}:80"), Arc::default()))).collect()
}

const SEC: u64 = 1_000_000;

#[test]
fn ejections_double_up_to_ten_times_and_one_success_resets() {
    let r = Replica::new(1, "10.0.0.1:80".into(), Arc::default());
    let mut now = SEC;
    for _ in 0..4 {
        assert_eq!(r.note_failure(5, 5 * SEC, Miss::Lost, now), None);
    }
    for expected in [5, 10, 20, 40, 50, 50, 50] {
        assert_eq!(r.note_failure(5, 5 * SEC, Miss::Lost, now), Some(expected * SEC));
        assert!(!r.is_usable(now) && !r.is_usable(now + expected * SEC - 1));
        // Failures of requests sent before do not lengthen it.
        assert_eq!(r.note_failure(5, 5 * SEC, Miss::Lost, now + 1), None);
        now += expected * SEC;
        assert!(r.is_usable(now));
    }
    r.clear_failures();
    assert!(r.is_untroubled());
    for _ in 0..4 {
        assert_eq!(r.note_failure(5, 5 * SEC, Miss::Lost, now), None);
    }
    assert_eq!(r.note_failure(5, 5 * SEC, Miss::Lost, now), Some(5 * SEC));
}

#[test]
fn a_replica_that_refuses_connections_is_tried_again_every_second() {
    let r = Replica::new(1, "10.0.0.1:80".into(), Arc::default());
    assert_eq!(r.note_failure(2, 5 * SEC, Miss::Refused, SEC), None);
    for after in 1..100 {
        let now = after * SEC;
        assert_eq!(r.note_failure(2, 5 * SEC, Miss::Refused, now), Some(SEC));
        assert!(!r.is_usable(now + SEC - 1) && r.is_usable(now + SEC));
    }
    let quick = Replica::new(2, "10.0.0.2:80".into(), Arc::default());
    assert_eq!(
        quick.note_failure(1, SEC / 2, Miss::Refused, SEC),
        Some(SEC / 2),
        "never longer than configured"
    );
}

#[test]
fn zero_failures_means_never_ejected() {
    let r = Replica::new(1, "10.0.0.1:80".into(), Arc::default());
    assert!((0..1000).all(|_| r.note_failure(0, SEC, Miss::Lost, 1).is_none()));
    assert!(r.is_untroubled());
}

#[test]
fn fewer_in_flight_wins_and_avoid_is_avoided() {
    let list = replicas(2);
    let _busy = InFlight::new(list[0].clone());
    for random in [0, 1 << 32, u64::MAX, 0x8000_0000_0000_0000] {
        assert_eq!(choose(&list, random, None, 0).unwrap().id(), 1);
        assert_eq!(choose(&list, random, Some(1), 0).unwrap().id(), 0);
    }
    let alone = replicas(1);
    assert_eq!(choose(&alone, 7, Some(0), 0).unwrap().id(), 0, "the only one is tried again");
}

#[test]
fn all_down_is_no_replica_all_ejected_is_the_soonest() {
    let list = replicas(3);
    for (r, for_us) in list.iter().zip([9 * SEC, 3 * SEC, 6 * SEC]) {
        r.note_failure(1, for_us, Miss::Lost, 1);
    }
    assert_eq!(choose(&list, 1, None, 2).unwrap().id(), 1);
    list[1].set_healthy(false);
    assert_eq!(choose(&list, 1, None, 2).unwrap().id(), 2);
    list.iter().for_each(|r| r.set_healthy(false));
    assert!(choose(&list, 1, None, 2).is_none());
    assert!(choose(&[], 1, None, 2).is_none());
}

#[test]
fn one_request_at_a_time_tries_an_ejected_replica() {
    let all = Replicas::new(&origin(&["a:1", "b:1", "c:1"], 1));
    let list = all.list();
    let refused = &list[1];
    let mut now = SEC;
    assert!(all.failed_at(refused, Miss::Refused, now));
    let tries = |now: u64| {
        let chosen = (0..1_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let chosen = chosen.map(|random| all.pick_at(random, None, || now).expect("there are others").id());
        chosen.filter(|id| *id == refused.id()).count()
    };
    assert_eq!(tries(now + SEC - 1), 0, "out");
    for _ in 0..3 {
        now += SEC;
        assert_eq!(tries(now), 1, "of a thousand requests at once");
        // It refuses again: out for another second.
        assert!(all.failed_at(refused, Miss::Refused, now));
    }
    now += SEC;
    assert_eq!((tries(now), tries(now + SEC - 1)), (1, 0));
    // The visitor of the trial has left, which is not reported: another request tries.
    now += SEC;
    assert_eq!(tries(now), 1);
    all.succeeded(refused);
    assert!(tries(now) > 100, "back");
}

#[test]
fn every_replica_is_tried_when_all_refuse() {
    let all = Replicas::new(&tidegate_settings::Origin {
        max_in_flight_per_replica: 5,
        ..origin(&["a:1", "b:1"], 1)
    });
    let list = all.list();
    for replica in &*list {
        assert!(all.failed_at(replica, Miss::Refused, SEC));
    }
    assert!((0..100).all(|n| all.pick_at(n << 57, None, || SEC + 1).is_some()), "a guess refuses nobody");
    assert!((0..100).all(|n| all.pick_at(n << 57, None, || 2 * SEC).is_some()));
    assert_eq!((all.any_usable_at(|| 2 * SEC), all.in_flight_limit_at(|| 2 * SEC)), (true, Some(10)));
    // One is back: the other need not be tried.
    all.succeeded(&list[0]);
    assert_eq!(all.in_flight_limit_at(|| 2 * SEC), Some(5));
    assert!((0..100).all(|n| all.pick_at(n << 57, None, || 2 * SEC).unwrap().id() == list[0].id()));
}

#[test]
fn reconfiguring_keeps_the_replicas_that_stay() {
    let all = Replicas::new(&origin(&["a:1", "b:1", "b:1"], 5));
    let before = all.list();
    assert_eq!(before.len(), 2, "a replica named twice is one");
    all.failed(&before[1], Miss::Lost);
    all.reconfigure(&origin(&["b:1", "c:1"], 5));
    let after = all.list();
    assert!(Arc::ptr_eq(&after[0], &before[1]));
    assert_eq!((after[0].errors(), after[0].is_retired()), (1, false));
    assert!(before[0].is_retired());
    assert_ne!(after[1].id(), before[0].id());
}

proptest! {
    #[test]
    fn two_of_are_two(n in 2usize..10_000, random: u64) {
        let (i, j) = two_of(n, random);
        prop_assert!(i < n && j < n && i != j);
    }

    /// In any state, a usable replica is chosen if there is one, and a down one never.
    #[test]
    fn choice_is_usable_if_any_is(
        states in prop::collection::vec((any::<bool>(), any::<bool>()), 0..8),
        random: u64,
        avoid in prop::option::of(0u64..8),
    ) {
        let list = replicas(states.len());
        for (r, (down, ejected)) in list.iter().zip(&states) {
            r.set_healthy(!down);
            if *ejected {
                r.note_failure(1, SEC, Miss::Lost, 1);
            }
        }
        let chosen = choose(&list, random, avoid, 2);
        let usable = |r: &Arc<Replica>| r.is_usable(2);
        prop_assert_eq!(chosen.is_some(), list.iter().any(|r| r.is_healthy()));
        if let Some(r) = chosen {
            prop_assert!(r.is_healthy());
            prop_assert!(usable(&r) || !list.iter().any(usable));
            let other = list.iter().any(|o| usable(o) && Some(o.id()) != avoid);
            prop_assert!(!other || Some(r.id()) != avoid);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_at_its_limit_is_not_chosen_but_waited_for() {
    let origin = tidegate_settings::Origin { max_in_flight_per_replica: 2, ..origin(&["a:1", "b:1"], 5) };
    let replicas = Replicas::new(&origin);
    assert_eq!(replicas.in_flight_limit(), Some(4));
    let second = Duration::from_secs(1);
    let mut at = Vec::new();
    for random in 0..4u64 {
        at.push(replicas.enter(|| random << 60, None, second).await.expect("a slot"));
    }
    assert!(replicas.list().iter().all(|r| r.in_flight() == 2));
    assert!(replicas.pick(7, None).is_none() && replicas.pick(7, Some(1)).is_none());
    assert!(replicas.enter(|| 7, None, second).await.is_none(), "nobody leaves in time");
    let freed = at.pop().expect("four").replica().id();
    let waits = replicas.enter(|| 7, None, second);
    assert_eq!(waits.await.expect("its place").replica().id(), freed);
    // Another configuration: no limit.
    replicas.reconfigure(&self::origin(&["a:1", "b:1"], 5));
    assert!(replicas.in_flight_limit().is_none() && replicas.pick(7, None).is_some());
}

#[tokio::test]
async fn a_freed_slot_goes_to_the_request_that_waits_for_it() {
    let origin = tidegate_settings::Origin { max_in_flight_per_replica: 1, ..origin(&["a:1"], 5) };
    let replicas = Replicas::new(&origin);
    let first = replicas.enter(|| 0, None, Duration::ZERO).await.expect("a slot");
    let other = replicas.clone();
    let waits = tokio::spawn(async move { other.enter(|| 0, None, Duration::from_secs(60)).await.is_some() });
    tokio::task::yield_now().await;
    drop(first);
    assert!(waits.await.unwrap());
}

/// Two requests have looked and found no slot, and two slots are freed before either of them waits: both get
/// one. (Nested, so that the second does all of this within the look of the first.)
#[test]
fn no_freed_slot_is_lost_between_two_that_wait() {
    let origin = tidegate_settings::Origin { max_in_flight_per_replica: 2, ..origin(&["a:1"], 5) };
    let replicas = Replicas::new(&origin);
    let replica = replicas.list()[0].clone();
    let taken = std::cell::RefCell::new(vec![InFlight::new(replica.clone()), InFlight::new(replica.clone())]);
    let (mut cx, its) = (Context::from_waker(Waker::noop()), std::cell::RefCell::new(None));
    let take = || InFlight::take_slot(&replica);
    let mut second = pin!(replicas.limit.wait_for(|| {
        let found = take();
        taken.borrow_mut().clear();
        found
    }));
    let mut first = pin!(replicas.limit.wait_for(|| {
        let found = take();
        if found.is_none() && !taken.borrow().is_empty() {
            its.replace(Some(second.as_mut().poll(&mut cx)));
        }
        found
    }));
    let ours = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(ours.is_ready(), "a slot is free");
    assert!(its.borrow().as_ref().is_some_and(|its| its.is_ready()));
}

#[tokio::test]
async fn a_request_that_waits_gets_a_replica_that_is_added_or_comes_back() {
    let at_most_one = |replicas: &[&str]| tidegate_settings::Origin {
        max_in_flight_per_replica: 1,
        health: tidegate_settings::Health { path: "/up".into(), ..Default::default() },
        ..origin(replicas, 5)
    };
    let replicas = Replicas::new(&at_most_one(&["a:1", "b:1"]));
    replicas.list()[1].set_healthy(false);
    let _a = replicas.enter(|| 0, None, Duration::ZERO).await.expect("a slot");
    let wait = || {
        let replicas = replicas.clone();
        tokio::spawn(async move { replicas.enter(|| 0, None, Duration::MAX).await.expect("a slot") })
    };
    for (change, expected) in [
        (&(|| replicas.list()[1].set_healthy(true)) as &dyn Fn(), "b:1"),
        (&|| replicas.reconfigure(&at_most_one(&["a:1", "b:1", "c:1"])), "c:1"),
    ] {
        let waits = wait();
        tokio::task::yield_now().await;
        change();
        // Kept: the next one needs another replica.
        std::mem::forget(waits.await.expect("no panic"));
        assert!(replicas.list().iter().any(|r| r.authority() == expected && r.in_flight() == 1));
    }
}
