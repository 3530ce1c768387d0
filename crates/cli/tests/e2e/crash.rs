//! `kill -9` while a thousand visitors wait: everybody keeps the position.

use super::harness::{Config, Gate, now};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::visitor::{Visitor, is_wait};

const CROWD: usize = 1_000;

struct Waiting {
    visitor: Visitor,
    /// Visitors who came before, whether they had to wait or not.
    before: u64,
}

/// Every visitor asks in turn, over one connection; those admitted leave. Nobody may have more visitors in
/// front than came before: a visitor who lost the position would come after all others. (Waits cannot be
/// compared instead: they grow while the machine stalls.)
fn ask_all(gate: &Gate, crowd: &mut Vec<Waiting>) {
    let mut client = Client::connect(gate.http()).unwrap();
    crowd.retain_mut(|waiting| {
        let answer = waiting.visitor.ask(&mut client, "/shop").unwrap();
        if answer.status() == 200 {
            return false;
        }
        assert!(is_wait(&answer), "a position is never lost: {answer:?}");
        let (place, before) = (place(&answer), waiting.before);
        assert!(place <= before + 1, "position {place}, but only {before} came before");
        true
    });
}

fn place(answer: &Answer) -> u64 {
    answer.json()["place"].as_u64().expect("a place")
}

fn gather(gate: &Gate, people: usize) -> Vec<Waiting> {
    let mut client = Client::connect(gate.http()).unwrap();
    let mut crowd = Vec::new();
    for before in 0.. {
        if crowd.len() == people {
            break;
        }
        let mut visitor = Visitor::default();
        if is_wait(&visitor.ask(&mut client, "/shop").unwrap()) {
            crowd.push(Waiting { visitor, before });
        }
    }
    crowd
}

#[test]
fn after_kill_9_a_thousand_visitors_keep_their_positions() {
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 25.0));
    let mut crowd = gather(&gate, CROWD);
    gate.crash_and_restart();
    ask_all(&gate, &mut crowd);
    assert!(crowd.len() > CROWD / 2, "most still wait: {}", crowd.len());

    // A newcomer comes after all of them: turns given before the crash are still valid.
    let mut newcomer = Visitor::default();
    assert!(is_wait(&newcomer.ask_once(gate.http(), "/shop").unwrap()));
    // All of them are admitted, at the latest when the newcomer is.
    let start = now();
    let mut is_newcomer_in = false;
    while !crowd.is_empty() {
        assert!(start.elapsed() < super::harness::DEADLINE, "{} still wait", crowd.len());
        ask_all(&gate, &mut crowd);
        assert!(crowd.is_empty() || !is_newcomer_in, "a newcomer overtook {}", crowd.len());
        is_newcomer_in |= newcomer.ask_once(gate.http(), "/shop").unwrap().status() == 200;
        super::harness::pause();
    }
}

#[test]
fn positions_survive_a_second_crash() {
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 0.5));
    let mut crowd = gather(&gate, 20);
    for _ in 0..2 {
        gate.crash_and_restart();
        ask_all(&gate, &mut crowd);
    }
    assert!(!crowd.is_empty(), "some still wait");
}
