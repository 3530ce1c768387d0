//! The learned rate at which session slots become free: from the first session on, and for all kinds of ends.

use std::time::Duration;

use tidegate_core::session::*;

use super::session_table::{self, START, TIER, at, key};

const TIMEOUT_S: f64 = 15.0;

fn table(slots: u32) -> Sessions {
    let timeout = Duration::from_secs_f64(TIMEOUT_S);
    Sessions::new(&SessionConfig { timeout, cap: Cap::Fixed(slots), ..SessionConfig::default() }, START)
}

fn admit(sessions: &Sessions, n: u64, ms: u64) {
    assert_eq!(session_table::admit(sessions, n.into(), TIER, at(ms)), Ok(()));
}

fn touch(sessions: &Sessions, n: u64, ms: u64) -> SessionStatus {
    session_table::touch(sessions, n.into(), at(ms))
}

fn tick(sessions: &Sessions, ms: u64) -> SessionPace {
    session_table::tick(sessions, 1, at(ms));
    sessions.pace().expect("a cap")
}

#[test]
fn no_slot_becomes_free_before_the_first_session_can_expire() {
    let sessions = table(10);
    (0..10).for_each(|n| admit(&sessions, n, 0));
    // All sessions send a request every second, but session 7 stops at 5 s.
    for ms in (100..20_000).step_by(100) {
        for n in (0..10).filter(|n| ms % 1_000 == 0 && (*n != 7 || ms <= 5_000)) {
            assert_eq!(touch(&sessions, n, ms), SessionStatus::Admitted);
        }
        let pace = tick(&sessions, ms);
        let last_s = (ms / 1_000).min(5) as f64;
        let expected = last_s + TIMEOUT_S - ms as f64 / 1e3;
        assert!((pace.next_s - expected).abs() < 1e-6, "{expected} at {ms} ms, got {pace:?}");
        // A session that sends a request keeps its slot for another timeout.
        let length_s = 10.0 / pace.per_s;
        let age_s = ms as f64 / 1e3;
        assert!(length_s <= TIMEOUT_S + age_s + 1e-6, "{length_s} s at {ms} ms");
        assert!(length_s >= TIMEOUT_S + 0.9 * age_s, "{length_s} s at {ms} ms");
    }
    let pace = tick(&sessions, 20_200);
    assert_eq!(sessions.count().open, 9);
    assert!((pace.next_s - (19.0 + TIMEOUT_S - 20.2)).abs() < 1e-6, "{pace:?}");
}

#[test]
fn short_sessions_that_end_first_do_not_set_the_length_of_all() {
    let sessions = table(100);
    (0..100).for_each(|n| admit(&sessions, n, 0));
    // The last requests are spread evenly over ten minutes: slots are held for 315 s on average.
    let lasts_ms = |n: u64| (n + 1) * 6_000;
    for ms in (500..=60_000).step_by(500) {
        for n in (0..100).filter(|n| lasts_ms(*n) >= ms) {
            touch(&sessions, n, ms);
        }
        tick(&sessions, ms);
    }
    let state = sessions.state();
    assert!(state.ended.idle >= 5 && state.length_s < Some(40.0), "{state:?}");
    let length_s = 100.0 / state.per_s;
    assert!((60.0..=90.0).contains(&length_s), "as long as those that are still here so far: {length_s} s");
}

#[test]
fn early_ends_shorten_the_wait_for_the_first_slot() {
    let sessions = table(10);
    for s in 0..120_u64 {
        admit(&sessions, s, s * 1_000);
        if s >= 9 {
            assert!(sessions.end(key(u128::from(s - 9)), Ender::Origin, at(s * 1_000 + 900)));
        }
        tick(&sessions, s * 1_000 + 950);
    }
    let pace = tick(&sessions, 120_000);
    assert!(pace.next_s < 0.2 && (0.8..1.2).contains(&pace.per_s), "{pace:?}");
}

#[test]
fn the_first_session_to_expire_is_found_within_some_ticks() {
    let sessions = table(50_000);
    (0..50_000).for_each(|n| admit(&sessions, n, n / 10));
    for n in (0..50_000).filter(|n| *n != 20_000) {
        touch(&sessions, n, 8_000);
    }
    let mut pace = tick(&sessions, 8_100);
    assert!(pace.next_s.abs() < 1e-6, "not yet known: {pace:?}");
    for ms in (8_200..12_000).step_by(100) {
        pace = tick(&sessions, ms);
    }
    let expected = 2.0 + TIMEOUT_S - 11.9;
    assert!((pace.next_s - expected).abs() < 1e-6, "{expected}, got {pace:?}");
}
