//! `kill -9` while a thousand people wait: everybody keeps the place.

use std::time::{Duration, Instant};

use super::harness::{Config, Gate, now};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::visitor::{Visitor, is_wait, remaining};

const CROWD: usize = 1_000;
/// Grain of the schedule (a second), rounding of `Retry-After` (a second), tolerance of clocks (a second).
const TOLERANCE: Duration = Duration::from_secs(3);

/// When somebody's turn is, at the earliest and at the latest: the gate looked at its clock between question and answer.
struct Due {
    earliest: Instant,
    latest: Instant,
}

impl Due {
    fn of(answer: &Answer, asked: Instant) -> Self {
        let waits = remaining(answer);
        Self { earliest: asked + waits, latest: now() + waits }
    }
}

struct Waiting {
    visitor: Visitor,
    due: Due,
}

/// Somebody new, who may have to wait.
fn comes(client: &mut Client) -> Option<Waiting> {
    let mut visitor = Visitor::default();
    let asked = now();
    let answer = visitor.ask(client, "/shop").unwrap();
    is_wait(&answer).then(|| Waiting { visitor, due: Due::of(&answer, asked) })
}

/// Asks for everybody in turn over one connection; those admitted leave.
fn ask_all(gate: &Gate, crowd: &mut Vec<Waiting>, mut check: impl FnMut(&Waiting, &Due)) {
    let mut client = Client::connect(gate.http()).unwrap();
    crowd.retain_mut(|waiting| {
        let asked = now();
        let answer = waiting.visitor.ask(&mut client, "/shop").unwrap();
        if answer.status() == 200 {
            return false;
        }
        assert!(is_wait(&answer), "a place is never lost: {answer:?}");
        check(waiting, &Due::of(&answer, asked));
        true
    });
}

/// Nobody waits longer than was told, but for the time since the crowd `began` to come: the gate was down for a part of it, and
/// those called in the rest have not come, for nobody asked.
fn check_kept(began: Instant) -> impl FnMut(&Waiting, &Due) {
    move |waiting, due| {
        let (before, after) = (waiting.due.latest, due.earliest);
        let most = TOLERANCE + began.elapsed();
        assert!(after <= before + most, "waits {:?} longer, {most:?} at most", after.duration_since(before));
    }
}

fn gather(gate: &Gate, people: usize) -> Vec<Waiting> {
    let mut client = Client::connect(gate.http()).unwrap();
    let mut crowd = Vec::new();
    while crowd.len() < people {
        crowd.extend(comes(&mut client));
    }
    crowd
}

#[test]
fn after_kill_9_a_thousand_keep_their_place() {
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 25.0));
    let began = now();
    let mut crowd = gather(&gate, CROWD);
    gate.crash_and_restart();
    let before = crowd.len();
    ask_all(&gate, &mut crowd, check_kept(began));
    assert!(crowd.len() > before / 10, "enough still wait: {}", crowd.len());

    // A newcomer goes behind all of them: the promises made before the crash still hold.
    let mut newcomer = Visitor::default();
    let answer = newcomer.ask_once(gate.http(), "/shop").unwrap();
    assert!(is_wait(&answer), "{answer:?}");
    let last = crowd.iter().map(|waiting| waiting.due.earliest).max().unwrap();
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
    let began = now();
    let mut crowd = gather(&gate, 20);
    for _ in 0..2 {
        gate.crash_and_restart();
        ask_all(&gate, &mut crowd, check_kept(began));
    }
    assert!(!crowd.is_empty(), "some still wait");
}
