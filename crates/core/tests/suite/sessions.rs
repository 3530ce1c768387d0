//! The rules of sessions, one by one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_core::policies::TierId;
use tidegate_core::session::*;
use tidegate_core::units::Cost;

use super::session_table::{START, admit, at, key, tick, touch};

/// A tier without slots of its own.
const COMMON: TierId = TierId(0);
const GOLD: TierId = TierId(1);

fn config(cap: Cap) -> SessionConfig {
    SessionConfig {
        timeout: Duration::from_secs(15),
        max_age: Duration::from_secs(60),
        cap,
        ..SessionConfig::default()
    }
}

#[test]
fn an_admitted_session_keeps_its_slot_until_the_timeout() {
    let sessions = Sessions::new(&config(Cap::Fixed(1)), START);
    assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
    assert_eq!(admit(&sessions, 2, COMMON, at(0)), Err(NoSessionSlot::Taken));
    assert_eq!(touch(&sessions, 1, at(15_000)), SessionStatus::Admitted);
    assert_eq!(touch(&sessions, 1, at(30_000)), SessionStatus::Admitted);
    tick(&sessions, 0, at(45_000));
    assert_eq!(admit(&sessions, 2, COMMON, at(45_000)), Err(NoSessionSlot::Taken));
    tick(&sessions, 0, at(45_200));
    assert_eq!(admit(&sessions, 2, COMMON, at(45_200)), Ok(()));
    assert_eq!(touch(&sessions, 1, at(45_200)), SessionStatus::New);
    let state = sessions.state();
    assert_eq!((state.ended.idle, state.ended.sum(), state.count.begun, state.count.open), (1, 1, 2, 1));
}

#[test]
fn no_session_ends_by_a_step_of_the_clock() {
    let sessions = Sessions::new(&config(Cap::Fixed(1)), START);
    assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
    sessions.clock_stepped(at(30_000));
    tick(&sessions, 0, at(30_000));
    assert_eq!(touch(&sessions, 1, at(44_900)), SessionStatus::Admitted);
    tick(&sessions, 0, at(60_000));
    assert_eq!(touch(&sessions, 1, at(60_000)), SessionStatus::New, "idle since then");
}

#[test]
fn a_busy_session_ends_at_its_greatest_age() {
    let sessions = Sessions::new(&config(Cap::None), START);
    assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
    for s in 1..=60 {
        assert_eq!(touch(&sessions, 1, at(s * 1_000)), SessionStatus::Admitted, "{s} s");
    }
    assert_eq!(touch(&sessions, 1, at(60_001)), SessionStatus::New);
    assert_eq!((sessions.state().ended.age, sessions.state().ended.idle), (1, 0));
}

#[test]
fn a_voided_first_request_gives_the_slot_back_unless_others_came() {
    let sessions = Sessions::new(&config(Cap::Fixed(1)), START);
    // Two first requests at once take one slot, and either may fail.
    let [one, other] = [0, 1].map(|ms| sessions.admit(key(1), COMMON, Cost::ONE, at(ms)).unwrap());
    sessions.void(one, at(2));
    assert_eq!(sessions.status(key(1), at(2)), SessionStatus::Admitted);
    sessions.void(other, at(3));
    assert_eq!((sessions.status(key(1), at(3)), sessions.has_slot(COMMON)), (SessionStatus::New, true));
    assert_eq!(sessions.count().open, 0);
    let state = sessions.state();
    assert_eq!((state.ended.void, state.length_s, state.work), (1, None, None), "nothing is learned from it");
}

#[test]
fn an_early_end_frees_the_slot_at_once_and_voids_the_pass() {
    for by in [Ender::Origin, Ender::Operator] {
        let sessions = Sessions::new(&config(Cap::Fixed(1)), START);
        assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
        assert!(sessions.end(key(1), by, at(1_000)) && !sessions.end(key(1), by, at(1_000)));
        assert_eq!(touch(&sessions, 1, at(2_000)), SessionStatus::Ended);
        assert_eq!(sessions.readmit(key(1), COMMON, at(0), at(2_000)), None, "its pass is void");
        assert_eq!(admit(&sessions, 2, COMMON, at(2_000)), Ok(()), "the slot is given again at once");
        // It may begin anew (by a cookie that the application keeps) if a slot is free.
        assert_eq!(admit(&sessions, 1, COMMON, at(3_000)), Err(NoSessionSlot::Taken));
        assert!(sessions.end(key(2), by, at(3_000)));
        assert_eq!(admit(&sessions, 1, COMMON, at(3_000)), Ok(()));
        // The key is forgotten once its pass has expired.
        tick(&sessions, 0, at(16_900));
        assert_eq!(
            (sessions.status(key(2), at(16_900)), sessions.state().entries),
            (SessionStatus::Ended, 2)
        );
        tick(&sessions, 0, at(17_200));
        assert_eq!((sessions.status(key(2), at(17_200)), sessions.state().entries), (SessionStatus::New, 1));
        let ended = sessions.state().ended;
        assert_eq!((ended.origin, ended.operator), if by == Ender::Origin { (2, 0) } else { (0, 2) });
    }
}

#[test]
fn all_are_ended_at_once() {
    for remembers_ended in [true, false] {
        let config = SessionConfig { remembers_ended, ..config(Cap::Fixed(5_000)) };
        let sessions = Sessions::new(&config, START);
        (0..5_000).for_each(|n| assert_eq!(admit(&sessions, n, COMMON, at(0)), Ok(())));
        assert!(sessions.end(key(7), Ender::Origin, at(1)));
        assert_eq!((sessions.end_all(at(1)), sessions.end_all(at(2))), (4_999, 0));
        assert_eq!((sessions.count().open, sessions.state().ended.operator), (0, 4_999));
        let (status, entries) =
            if remembers_ended { (SessionStatus::Ended, 5_000) } else { (SessionStatus::New, 0) };
        (0..5_000).for_each(|n| assert_eq!(sessions.status(key(n), at(2)), status));
        assert_eq!(sessions.state().entries, entries);
    }
}

#[test]
fn passes_of_another_process_are_readmitted_beyond_the_cap() {
    let sessions = Sessions::new(&config(Cap::Fixed(2)), at(20_000));
    for n in 0..4 {
        let request = sessions.readmit(key(n), COMMON, at(1_000 * n as u64), at(20_000)).unwrap();
        sessions.finish(request, at(20_000));
        assert_eq!(touch(&sessions, n, at(20_000)), SessionStatus::Admitted);
    }
    assert_eq!(sessions.readmit(key(9), COMMON, at(0), at(60_001)), None, "too old");
    for open in [4, 3, 2] {
        assert_eq!((sessions.count().open, sessions.has_slot(COMMON)), (open, false));
        assert_eq!(admit(&sessions, 7, COMMON, at(20_000)), Err(NoSessionSlot::Taken));
        assert!(sessions.end(key(u128::from(open) - 1), Ender::Operator, at(20_000)));
    }
    assert_eq!(admit(&sessions, 7, COMMON, at(20_000)), Ok(()));
    // The age counts from the first request at the other process.
    assert_eq!(sessions.list(0, 10).sessions.iter().find(|line| line.key == key(0)).unwrap().begun, at(0));
    let state = sessions.state();
    assert_eq!((state.readmitted, state.count.begun), (4, 1));
}

#[test]
fn tiers_fill_their_own_slots_first_and_then_the_common_ones() {
    let config = SessionConfig { pools: vec![(GOLD, 2)], ..config(Cap::Fixed(1)) };
    let sessions = Sessions::new(&config, START);
    let open = |tier: TierId| sessions.state().pools.iter().find(|p| p.tier == tier).map(|p| p.open);
    assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
    assert_eq!((sessions.has_slot(COMMON), sessions.has_slot(GOLD)), (false, true));
    assert_eq!((admit(&sessions, 2, GOLD, at(0)), admit(&sessions, 3, GOLD, at(0))), (Ok(()), Ok(())));
    assert_eq!((open(COMMON), open(GOLD)), (Some(1), Some(2)));
    assert_eq!(admit(&sessions, 4, GOLD, at(0)), Err(NoSessionSlot::Taken));
    assert!(sessions.end(key(1), Ender::Origin, at(1)));
    assert_eq!(admit(&sessions, 4, GOLD, at(1)), Ok(()), "a common slot");
    // A slot of a tier stays the tier's when it is given back.
    assert!(sessions.end(key(2), Ender::Origin, at(1)));
    assert_eq!(admit(&sessions, 5, COMMON, at(1)), Err(NoSessionSlot::Taken));
    assert_eq!(admit(&sessions, 5, TierId(77), at(1)), Err(NoSessionSlot::Taken), "a tier out of range");
    // A lowered bound takes no slot back.
    sessions.configure(&SessionConfig { pools: Vec::new(), ..config }, at(2));
    assert_eq!((open(GOLD), sessions.has_slot(GOLD)), (Some(1), false));
    assert_eq!(touch(&sessions, 3, at(2)), SessionStatus::Admitted);
}

#[test]
fn a_renamed_session_is_the_same_session() {
    let sessions = Sessions::new(&config(Cap::Fixed(2)), START);
    let mut first = sessions.admit(key(1), GOLD, Cost::ONE, at(0)).unwrap();
    assert!(sessions.rename(&mut first, key(2), at(1)) && sessions.rename(&mut first, key(2), at(1)));
    let line = sessions.list(0, 10).sessions[0];
    assert_eq!((line.key, line.begun, line.tier, line.requests), (key(2), at(0), GOLD, 1));
    assert_eq!(sessions.status(key(1), at(1)), SessionStatus::New);
    // Two sessions that become one give a slot back; a session that was ended stays ended.
    assert_eq!(admit(&sessions, 3, COMMON, at(1)), Ok(()));
    assert!(sessions.rename(&mut first, key(3), at(2)));
    assert_eq!((sessions.count().open, sessions.state().ended.left), (1, 1));
    assert_eq!(admit(&sessions, 4, COMMON, at(2)), Ok(()));
    assert!(sessions.end(key(4), Ender::Operator, at(3)));
    assert!(sessions.rename(&mut first, key(4), at(3)) && !sessions.rename(&mut first, key(5), at(3)));
    assert_eq!((sessions.count().open, sessions.status(key(4), at(3))), (0, SessionStatus::Ended));
}

#[test]
fn a_closed_connection_leaves_nothing_behind() {
    let sessions = Sessions::new(&config(Cap::Fixed(1)), START);
    assert_eq!(admit(&sessions, 1, COMMON, at(0)), Ok(()));
    assert!(sessions.leave(key(1), at(4_000)) && !sessions.leave(key(1), at(4_000)));
    let state = sessions.state();
    assert_eq!((state.entries, state.ended.left, sessions.has_slot(COMMON)), (0, 1, true));
    tick(&sessions, 0, at(4_100));
    assert_eq!((sessions.state().length_s, sessions.state().work), (Some(4.0), Some(1.0)));
}

#[test]
fn workers_at_once_take_each_slot_once() {
    let sessions = Sessions::new(&config(Cap::Fixed(100)), START);
    let given = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4_u128 {
            let (sessions, given) = (&sessions, &given);
            scope.spawn(move || {
                for n in 0..2_000_u128 {
                    // Every key is asked for by two workers.
                    let k = key(n * 2 + worker / 2);
                    if let Ok(request) = sessions.admit(k, COMMON, Cost::ONE, at(0)) {
                        given.fetch_add(1, Ordering::Relaxed);
                        sessions.finish(request, at(1));
                    }
                    if n % 3 == 0 && sessions.end(k, Ender::Origin, at(2)) {
                        given.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let state = sessions.state();
    assert!(state.count.open <= 100, "{state:?}");
    assert_eq!(state.count.begun, state.count.open + state.ended.sum());
    assert_eq!(sessions.list(0, 1_000).sessions.len() as u64, state.count.open);
}

#[test]
fn the_pace_is_learned_from_ended_sessions() {
    let sessions = Sessions::new(&config(Cap::Fixed(10)), START);
    assert_eq!(Sessions::new(&config(Cap::None), START).pace(), None);
    // Every second a session begins, and one ends that began ten seconds ago.
    for s in 0..120_u64 {
        assert_eq!(admit(&sessions, u128::from(s), COMMON, at(s * 1_000)), Ok(()));
        if s >= 9 {
            assert!(sessions.leave(key(u128::from(s - 9)), at(s * 1_000 + 900)));
        }
        (0..10).for_each(|tenth| tick(&sessions, 0, at(s * 1_000 + tenth * 100)));
    }
    let pace = sessions.pace().unwrap();
    assert_eq!(pace.free, Some(1));
    assert!((0.8..1.2).contains(&pace.per_s), "{pace:?}");
    assert_eq!(sessions.retry_after(), Duration::from_secs(1).max(sessions.retry_after()));
    assert!(sessions.retry_after() < Duration::from_millis(1_300), "{:?}", sessions.retry_after());
}

#[test]
fn renumbered_tiers_keep_their_slots() {
    const SILVER: TierId = TierId(2);
    let pools = |gold: TierId| vec![(gold, 2)];
    let config = SessionConfig { pools: pools(GOLD), ..config(Cap::Fixed(2)) };
    let sessions = Sessions::new(&config, at(0));
    for (key, tier) in [(1, GOLD), (2, GOLD), (3, GOLD), (4, SILVER)] {
        let request = sessions.admit(SessionKey(key), tier, Cost::ONE, at(1)).unwrap();
        sessions.finish(request, at(1));
    }
    let open = |tier: TierId| sessions.state().pools.iter().find(|p| p.tier == tier).map(|p| p.open);
    assert_eq!((open(GOLD), open(TierId(0))), (Some(2), Some(2)));
    // The two have changed positions in the configuration file.
    sessions.renumber(|tier| if tier == GOLD { SILVER } else { GOLD });
    sessions.configure(&SessionConfig { pools: pools(SILVER), ..config.clone() }, at(2));
    assert_eq!((open(SILVER), open(TierId(0))), (Some(2), Some(2)));
    assert_eq!(sessions.admit(SessionKey(5), SILVER, Cost::ONE, at(2)), Err(NoSessionSlot::Taken));
    // The tier is gone: its sessions take common slots, beyond the bound.
    sessions.renumber(|tier| if tier == SILVER { TierId(0) } else { tier });
    sessions.configure(&SessionConfig { pools: Vec::new(), ..config }, at(3));
    assert_eq!((open(TierId(0)), sessions.count().open), (Some(4), 4));
    for key in 1..=4 {
        assert!(sessions.end(SessionKey(key), Ender::Operator, at(4)));
    }
    assert_eq!((open(TierId(0)), sessions.count().open), (Some(0), 0));
}
