//! Requests in progress keep their session alive; its inactivity counts from the end of the last one.

use std::time::Duration;

use tidegate_core::session::*;
use tidegate_core::units::{Cost, Timestamp};

use super::session_table::{START, TIER, at, key, tick};

const HOUR_MS: u64 = 3_600_000;

/// One slot, a timeout of 15 s, a greatest age of an hour.
fn config() -> SessionConfig {
    SessionConfig {
        timeout: Duration::from_secs(15),
        max_age: Duration::from_millis(HOUR_MS),
        cap: Cap::Fixed(1),
        ..SessionConfig::default()
    }
}

fn admit(sessions: &Sessions, n: u128, now: Timestamp) -> Result<SessionRequest, NoSessionSlot> {
    sessions.admit(key(n), TIER, Cost::ONE, now)
}

fn touch(sessions: &Sessions, n: u128, now: Timestamp) -> SessionRequest {
    sessions.touch(key(n), Cost::ONE, now).1.expect("an admitted session")
}

/// Ticks every 100 ms; returns when one has ended the session.
fn found_over(sessions: &Sessions, from_ms: u64, until_ms: u64) -> Option<u64> {
    (from_ms..until_ms).step_by(100).find(|ms| {
        tick(sessions, 0, at(*ms));
        sessions.count().open == 0
    })
}

fn under_way(sessions: &Sessions) -> Vec<u16> {
    sessions.list(0, 100).sessions.iter().map(|line| line.under_way).collect()
}

/// A page comes after a pause, its parts right after it.
#[test]
fn a_request_begins_a_page_if_its_session_had_paused() {
    let sessions = Sessions::new(&config(), START);
    let page = admit(&sessions, 1, at(0)).unwrap();
    assert!(page.begins_page(), "its first");
    // While the page is under way, also for long.
    let early = touch(&sessions, 1, at(3_000));
    assert!(!early.begins_page());
    [page, early].into_iter().for_each(|request| sessions.finish(request, at(5_000)));
    let part = touch(&sessions, 1, at(5_999));
    assert!(!part.begins_page());
    sessions.finish(part, at(6_100));
    let next = touch(&sessions, 1, at(7_100));
    assert!(next.begins_page(), "a second after its last answer");
    sessions.finish(next, at(7_200));
    let other = Sessions::new(&config(), START);
    assert!(other.readmit(key(2), TIER, at(0), at(100)).unwrap().begins_page(), "nothing is known of it");
}

#[test]
fn a_slow_request_keeps_its_session_and_the_timeout_counts_from_its_end() {
    // Also much longer than the wheel, and for every way in which a request begins.
    for took_ms in [16_000, 66_950, 67_200, 600_000] {
        for begins in ["admit", "touch", "readmit"] {
            let sessions = Sessions::new(&config(), START);
            let slow = match begins {
                "readmit" => sessions.readmit(key(1), TIER, at(0), at(0)).unwrap(),
                begins => {
                    let first = admit(&sessions, 1, at(0)).unwrap();
                    if begins == "admit" {
                        first
                    } else {
                        sessions.finish(first, at(10));
                        touch(&sessions, 1, at(20))
                    }
                }
            };
            assert_eq!(found_over(&sessions, 100, took_ms), None, "{begins}, {took_ms} ms");
            assert_eq!(sessions.status(key(1), at(took_ms)), SessionStatus::Admitted);
            assert_eq!(admit(&sessions, 2, at(took_ms)), Err(NoSessionSlot::Taken));
            sessions.finish(slow, at(took_ms));
            // To the millisecond for a request that asks, to a bucket of the wheel and a tick for the tick.
            assert_eq!(sessions.status(key(1), at(took_ms + 15_000)), SessionStatus::Admitted);
            assert_eq!(sessions.status(key(1), at(took_ms + 15_001)), SessionStatus::New);
            let found = found_over(&sessions, took_ms, took_ms + 20_000);
            let found_ms = found.expect("it was not found to be over") - took_ms;
            assert!((15_000..15_300).contains(&found_ms), "{begins}, {took_ms} ms: {found_ms} ms");
            assert!(admit(&sessions, 2, at(took_ms + 16_000)).is_ok());
            assert_eq!((sessions.state().ended.idle, sessions.state().ended.age), (1, 0));
        }
    }
}

#[test]
fn the_end_of_the_last_request_counts() {
    let sessions = Sessions::new(&config(), START);
    let long = admit(&sessions, 1, at(0)).unwrap();
    let short = touch(&sessions, 1, at(1_000));
    assert_eq!(under_way(&sessions), [2]);
    sessions.finish(short, at(2_000));
    assert_eq!(sessions.status(key(1), at(40_000)), SessionStatus::Admitted);
    sessions.finish(long, at(40_000));
    assert_eq!(under_way(&sessions), [0]);
    assert_eq!(sessions.list(0, 1).sessions[0].last, at(40_000));
    // A request that never reached the origin counts until it is voided.
    let shed = touch(&sessions, 1, at(50_000));
    sessions.void(shed, at(70_000));
    assert_eq!(sessions.status(key(1), at(85_000)), SessionStatus::Admitted);
    assert_eq!(sessions.status(key(1), at(85_001)), SessionStatus::New);
}

#[test]
fn the_greatest_age_ends_a_session_with_requests_in_progress() {
    let sessions = Sessions::new(&config(), START);
    let endless = admit(&sessions, 1, at(0)).unwrap();
    assert_eq!(found_over(&sessions, HOUR_MS - 200_000, HOUR_MS), None);
    assert!(found_over(&sessions, HOUR_MS, HOUR_MS + 300).is_some());
    assert_eq!((sessions.state().ended.age, sessions.state().ended.idle), (1, 0));
    let other = admit(&sessions, 2, at(HOUR_MS + 300)).unwrap();
    sessions.finish(endless, at(HOUR_MS + 400));
    assert_eq!((under_way(&sessions), sessions.count().open), (vec![1], 1));
    sessions.finish(other, at(HOUR_MS + 500));
}

#[test]
fn a_request_of_an_ended_session_does_not_touch_the_next_one_of_its_key() {
    type EndIt = fn(&Sessions);
    let ends: [(&str, EndIt); 4] = [
        ("origin", |s| assert!(s.end(key(1), Ender::Origin, at(1)))),
        ("operator", |s| assert!(s.end(key(1), Ender::Operator, at(1)))),
        ("all", |s| assert_eq!(s.end_all(at(1)), 1)),
        ("left", |s| assert!(s.leave(key(1), at(1)))),
    ];
    for remembers_ended in [true, false] {
        for (name, end) in ends {
            for voids in [true, false] {
                let sessions = Sessions::new(&SessionConfig { remembers_ended, ..config() }, START);
                // All in one millisecond.
                let old = admit(&sessions, 1, at(1)).unwrap();
                end(&sessions);
                assert!(sessions.has_slot(TIER), "{name}");
                let new = admit(&sessions, 1, at(1)).unwrap();
                if voids {
                    sessions.void(old, at(2))
                } else {
                    sessions.finish(old, at(2))
                }
                assert_eq!(under_way(&sessions), [1], "{name}");
                assert_eq!(sessions.status(key(1), at(90_000)), SessionStatus::Admitted, "{name}");
                sessions.finish(new, at(90_000));
                assert_eq!(sessions.status(key(1), at(105_001)), SessionStatus::New, "{name}");
            }
        }
    }
}

#[test]
fn an_ended_session_is_forgotten_a_timeout_later() {
    let sessions = Sessions::new(&config(), START);
    let slow = admit(&sessions, 1, at(0)).unwrap();
    tick(&sessions, 0, at(1_000));
    assert!(sessions.end(key(1), Ender::Operator, at(1_000)));
    assert_eq!(sessions.status(key(1), at(16_000)), SessionStatus::Ended);
    tick(&sessions, 0, at(16_300));
    assert_eq!((sessions.status(key(1), at(16_300)), sessions.state().entries), (SessionStatus::New, 0));
    sessions.finish(slow, at(17_000));
    assert_eq!((sessions.count().open, sessions.state().entries), (0, 0));
}

#[test]
fn a_renamed_session_keeps_its_requests_in_progress() {
    let sessions = Sessions::new(&config(), START);
    let stream = admit(&sessions, 1, at(0)).unwrap();
    let mut login = touch(&sessions, 1, at(1_000));
    let poll = touch(&sessions, 1, at(1_000));
    // Twice, and back to the first name.
    for (name, ms) in [(2, 2_000), (3, 3_000), (1, 4_000)] {
        assert!(sessions.rename(&mut login, key(name), at(ms)));
        assert_eq!((under_way(&sessions), login.key()), (vec![3], key(name)));
    }
    sessions.finish(login, at(5_000));
    assert_eq!(under_way(&sessions), [2]);
    // A request that knows only the first key renames it as well.
    let mut poll = poll;
    assert!(sessions.rename(&mut poll, key(4), at(30_000)));
    sessions.finish(poll, at(30_000));
    assert_eq!(sessions.status(key(4), at(90_000)), SessionStatus::Admitted, "the stream is in progress");
    sessions.finish(stream, at(90_000));
    assert_eq!(under_way(&sessions), [0]);
    assert_eq!(sessions.status(key(4), at(105_000)), SessionStatus::Admitted);
    assert_eq!(sessions.status(key(4), at(105_001)), SessionStatus::New);
}

#[test]
fn a_response_ends_the_session_of_its_request_and_no_other() {
    let sessions = Sessions::new(&SessionConfig { remembers_ended: false, ..config() }, START);
    let mut logout = admit(&sessions, 1, at(0)).unwrap();
    let mut late = touch(&sessions, 1, at(0));
    let mut login = touch(&sessions, 1, at(0));
    assert!(sessions.rename(&mut login, key(2), at(0)));
    assert!(sessions.end_of(&mut logout, Ender::Origin, at(1)));
    assert_eq!((sessions.count().open, sessions.state().ended.origin), (0, 1));
    let next = admit(&sessions, 2, at(1)).unwrap();
    for request in [&mut logout, &mut late, &mut login] {
        assert!(!sessions.end_of(request, Ender::Origin, at(1)), "the next session");
    }
    for request in [logout, late, login] {
        sessions.finish(request, at(1));
    }
    assert_eq!(under_way(&sessions), [1]);
    sessions.finish(next, at(1));
}

#[test]
fn merged_sessions_count_the_requests_of_both() {
    let sessions = Sessions::new(&SessionConfig { cap: Cap::None, ..config() }, START);
    let streams = [1, 2].map(|n| admit(&sessions, n, at(0)).unwrap());
    let mut login = touch(&sessions, 1, at(1_000));
    assert!(sessions.rename(&mut login, key(2), at(1_000)));
    assert_eq!((under_way(&sessions), sessions.count().open), (vec![3], 1));
    sessions.finish(login, at(2_000));
    for (stream, left) in streams.into_iter().zip([1, 0]) {
        sessions.finish(stream, at(60_000));
        assert_eq!(under_way(&sessions), [left]);
    }
    // Merged with a session that was ended early it ends.
    let stream = touch(&sessions, 2, at(61_000));
    let mut login = touch(&sessions, 2, at(61_000));
    let ended = admit(&sessions, 3, at(61_000)).unwrap();
    assert!(sessions.end(key(3), Ender::Origin, at(61_000)));
    assert!(sessions.rename(&mut login, key(3), at(61_000)));
    for request in [ended, stream, login] {
        sessions.finish(request, at(70_000));
    }
    assert_eq!((sessions.count().open, sessions.status(key(3), at(70_000))), (0, SessionStatus::Ended));
}

#[test]
fn requests_beyond_the_counter_are_not_counted() {
    const MOST: usize = u16::MAX as usize;
    let sessions = Sessions::new(&SessionConfig { cap: Cap::None, ..config() }, START);
    let mut counted = vec![admit(&sessions, 1, at(0)).unwrap()];
    counted.extend((1..MOST).map(|_| touch(&sessions, 1, at(0))));
    let mut beyond: Vec<_> = (0..3).map(|_| touch(&sessions, 1, at(0))).collect();
    assert_eq!(under_way(&sessions), [u16::MAX]);
    sessions.finish(beyond.pop().unwrap(), at(1));
    sessions.void(beyond.pop().unwrap(), at(1));
    assert_eq!(under_way(&sessions), [u16::MAX]);
    // Nor are those of a session that is merged with it, also when the counter has room again.
    let stream = admit(&sessions, 2, at(0)).unwrap();
    let mut login = touch(&sessions, 2, at(0));
    sessions.finish(counted.pop().unwrap(), at(1));
    assert!(sessions.rename(&mut login, key(1), at(1)));
    assert_eq!(under_way(&sessions), [u16::MAX]);
    sessions.finish(stream, at(1));
    assert_eq!(under_way(&sessions), [u16::MAX]);
    sessions.finish(login, at(1));
    counted.into_iter().for_each(|request| sessions.finish(request, at(2)));
    assert_eq!(under_way(&sessions), [0]);
    // An uncounted request does not revive an expired session.
    sessions.finish(beyond.pop().unwrap(), at(15_100));
    assert_eq!((sessions.status(key(1), at(15_100)), sessions.count().open), (SessionStatus::New, 0));
}

#[test]
fn new_lifetimes_hold_for_sessions_with_requests_in_progress() {
    let day = SessionConfig { timeout: Duration::from_secs(86_400), ..config() };
    let sessions = Sessions::new(&day, START);
    let slow = admit(&sessions, 1, at(0)).unwrap();
    tick(&sessions, 0, at(1_000));
    sessions.configure(&config(), at(20_000));
    assert_eq!(sessions.count().open, 1, "a request is in progress");
    sessions.finish(slow, at(20_100));
    let found = found_over(&sessions, 20_100, 40_000).expect("it was not found to be over");
    assert!((35_100..35_400).contains(&found), "{found} ms");
    // It is too old by the new lifetimes, in spite of the request in progress.
    let slow = admit(&sessions, 2, at(40_000)).unwrap();
    sessions.configure(&SessionConfig { max_age: Duration::from_secs(10), ..config() }, at(60_000));
    assert_eq!((sessions.count().open, sessions.state().ended.age), (0, 1));
    sessions.finish(slow, at(60_000));
}

#[test]
fn workers_at_once_rename_and_finish_and_lose_no_request() {
    let sessions = Sessions::new(&SessionConfig { cap: Cap::None, ..config() }, START);
    let begun: Vec<_> = (0..4_u128).map(|n| admit(&sessions, n, at(0)).unwrap()).collect();
    std::thread::scope(|scope| {
        for worker in 0..4_u128 {
            let sessions = &sessions;
            scope.spawn(move || {
                for n in 0..4_000_u128 {
                    let (from, to) = ((n + worker) % 8, (n * 5 + worker * 3) % 8);
                    let Some(mut request) = sessions.touch(key(from), Cost::ONE, at(1)).1 else { continue };
                    sessions.rename(&mut request, key(to), at(1));
                    sessions.finish(request, at(1));
                }
            });
        }
    });
    begun.into_iter().for_each(|request| sessions.finish(request, at(2)));
    assert!(under_way(&sessions).iter().all(|n| *n == 0), "{:?}", under_way(&sessions));
    let state = sessions.state();
    assert_eq!(state.count.begun, state.count.open + state.ended.sum());
    assert_eq!(sessions.list(0, 100).sessions.len() as u64, state.count.open);
}
