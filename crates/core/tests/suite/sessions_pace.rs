//! How fast places become free, as it is learned: from the first session on, and whatever ends them.

use std::time::Duration;

use tidegate_core::gate::Totals;
use tidegate_core::policies::TierId;
use tidegate_core::session::*;
use tidegate_core::units::{Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TIMEOUT_S: f64 = 15.0;

fn at(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn key(n: u64) -> SessionKey {
    SessionKey(u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn table(places: u32) -> Sessions {
    let timeout = Duration::from_secs_f64(TIMEOUT_S);
    Sessions::new(&SessionConfig { timeout, cap: Cap::Fixed(places), ..SessionConfig::default() }, START)
}

fn admit(sessions: &Sessions, n: u64, ms: u64) {
    let request = sessions.admit(key(n), TierId(0), Cost::ONE, at(ms)).expect("a place");
    sessions.finish(request, at(ms));
}

/// A request that is answered at once.
fn touch(sessions: &Sessions, n: u64, ms: u64) -> SessionStatus {
    let (standing, request) = sessions.touch(key(n), Cost::ONE, at(ms));
    request.into_iter().for_each(|request| sessions.finish(request, at(ms)));
    standing
}

fn tick(sessions: &Sessions, ms: u64) -> SessionPace {
    let seen = SessionInputs { capacity: Rate::MAX, is_measured: true, gate: &Totals::default(), waiting: 1 };
    sessions.tick(&seen, at(ms));
    sessions.pace().expect("places are counted")
}

#[test]
fn no_place_becomes_free_before_the_first_session_can_run_out() {
    let sessions = table(10);
    (0..10).for_each(|n| admit(&sessions, n, 0));
    // All ask every second but the seventh, which stops at 5 s.
    for ms in (100..20_000).step_by(100) {
        for n in (0..10).filter(|n| ms % 1_000 == 0 && (*n != 7 || ms <= 5_000)) {
            assert_eq!(touch(&sessions, n, ms), SessionStatus::Admitted);
        }
        let pace = tick(&sessions, ms);
        let last_s = (ms / 1_000).min(5) as f64;
        let expected = last_s + TIMEOUT_S - ms as f64 / 1e3;
        assert!((pace.next_s - expected).abs() < 1e-6, "{expected} at {ms} ms, got {pace:?}");
        // Whoever asks keeps a place for another timeout.
        let length_s = 10.0 / pace.per_s;
        let age_s = ms as f64 / 1e3;
        assert!(length_s <= TIMEOUT_S + age_s + 1e-6, "{length_s} s at {ms} ms");
        assert!(length_s >= TIMEOUT_S + 0.9 * age_s, "{length_s} s at {ms} ms");
    }
    let pace = tick(&sessions, 20_200);
    assert_eq!(sessions.count().open, 9);
    assert!((pace.next_s - (19.0 + TIMEOUT_S - 20.2)).abs() < 1e-6, "{pace:?}");
}

/// Those that end first are the short ones: they are no measure of the others.
#[test]
fn short_sessions_that_end_first_do_not_tell_how_long_all_are() {
    let sessions = table(100);
    (0..100).for_each(|n| admit(&sessions, n, 0));
    // Each asks for the last time at an instant of its own in ten minutes: they hold their places for 315 s on the average.
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
fn where_sessions_are_ended_early_none_waits_for_the_first_to_run_out() {
    let sessions = table(10);
    for s in 0..120_u64 {
        admit(&sessions, s, s * 1_000);
        if s >= 9 {
            assert!(sessions.end(key(s - 9), Ender::Origin, at(s * 1_000 + 900)));
        }
        tick(&sessions, s * 1_000 + 950);
    }
    let pace = tick(&sessions, 120_000);
    assert!(pace.next_s < 0.2 && (0.8..1.2).contains(&pace.per_s), "{pace:?}");
}

#[test]
fn the_first_of_many_is_found_over_some_ticks() {
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
