//! `kill -9` while a thousand people wait: everybody keeps the place.

use std::time::{Duration, Instant};

use super::harness::{Config, Gate, now};
use super::http::Client;
use super::origin::Origin;
use super::visitor::{Visitor, is_wait, remaining};

const CROWD: usize = 1_000;
/// Grain of the schedule (a second), rounding of `Retry-After` (a second), tolerance of clocks (a second).
const TOLERANCE: Duration = Duration::from_secs(3);

struct Waiting {
    visitor: Visitor,
    due: Instant,
}

/// Asks for everybody in turn over one connection; those admitted leave.
fn ask_all(gate: &Gate, crowd: &mut Vec<Waiting>, mut check: impl FnMut(&Waiting, Instant)) {
    let mut client = Client::connect(gate.http()).unwrap();
    crowd.retain_mut(|waiting| {
        let answer = waiting.visitor.ask(&mut client, "/shop").unwrap();
        if answer.status() == 200 {
            return false;
        }
        assert!(is_wait(&answer), "a place is never lost: {answer:?}");
        check(waiting, now() + remaining(&answer));
        true
    });
}

fn gather(gate: &Gate) -> Vec<Waiting> {
    let mut client = Client::connect(gate.http()).unwrap();
    let mut crowd = Vec::new();
    while crowd.len() < CROWD {
        let mut visitor = Visitor::default();
        let answer = visitor.ask(&mut client, "/shop").unwrap();
        if is_wait(&answer) {
            crowd.push(Waiting { visitor, due: now() + remaining(&answer) });
        }
    }
    crowd
}

#[test]
fn after_kill_9_a_thousand_keep_their_place() {
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 25.0));
    let mut crowd = gather(&gate);
    gate.crash_and_restart();
    let before = crowd.len();
    ask_all(&gate, &mut crowd, |waiting, due| {
        assert!(due <= waiting.due + TOLERANCE, "waits {:?} longer", due.duration_since(waiting.due));
    });
    assert!(crowd.len() > before / 2, "most still wait: {}", crowd.len());

    // A newcomer goes behind all of them: the promises made before the crash still hold.
    let mut newcomer = Visitor::default();
    let answer = newcomer.ask_once(gate.http(), "/shop").unwrap();
    assert!(is_wait(&answer), "{answer:?}");
    let last = crowd.iter().map(|waiting| waiting.due).max().unwrap();
    assert!(now() + remaining(&answer) + TOLERANCE >= last, "a newcomer overtook the crowd");

    // And all of them get in.
    let start = now();
    while !crowd.is_empty() {
        assert!(start.elapsed() < super::harness::DEADLINE, "{} still wait", crowd.len());
        ask_all(&gate, &mut crowd, |_, _| {});
        super::harness::pause();
    }
}

#[test]
fn a_second_crash_changes_nothing() {
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 0.5));
    let mut client = Client::connect(gate.http()).unwrap();
    let mut crowd = Vec::new();
    while crowd.len() < 20 {
        let mut visitor = Visitor::default();
        let answer = visitor.ask(&mut client, "/shop").unwrap();
        if is_wait(&answer) {
            crowd.push(Waiting { visitor, due: now() + remaining(&answer) });
        }
    }
    for _ in 0..2 {
        gate.crash_and_restart();
        ask_all(&gate, &mut crowd, |waiting, due| {
            assert!(due <= waiting.due + TOLERANCE, "waits {:?} longer", due.duration_since(waiting.due));
        });
    }
    assert!(!crowd.is_empty(), "some still wait");
}
