//! `kill -9` while visitors wait and are let in: everybody keeps the position, and nobody enters twice.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::harness::{Config, Gate, now, pause, wait_for};
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
/// Returns the last position: 1 if everybody's turn has come.
fn ask_all(gate: &Gate, crowd: &mut Vec<Waiting>) -> u64 {
    let mut last = 1;
    let mut client = Client::connect(gate.http()).unwrap();
    // The last first: who is early by a moment is held, and the next ones' turns would come meanwhile.
    crowd.reverse();
    crowd.retain_mut(|waiting| {
        let answer = waiting.visitor.ask(&mut client, "/shop").unwrap();
        if answer.status() == 200 {
            return false;
        }
        assert!(is_wait(&answer), "a position is never lost: {answer:?}");
        let (place, before) = (place(&answer), waiting.before);
        last = last.max(place);
        assert!(place <= before + 1, "position {place}, but only {before} came before");
        true
    });
    crowd.reverse();
    last
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
    let answer = newcomer.ask_once(gate.http(), "/shop").unwrap();
    assert!(is_wait(&answer), "a newcomer waits: {answer:?}");
    // All of them are admitted, at the latest when the newcomer is.
    let start = now();
    let mut is_newcomer_in = false;
    while !crowd.is_empty() {
        assert!(start.elapsed() < super::harness::DEADLINE, "{} still wait", crowd.len());
        let last = ask_all(&gate, &mut crowd);
        // Those who come long after their turn, all together, may be asked to come again in a second.
        assert!(last == 1 || !is_newcomer_in, "a newcomer overtook {last} of {}", crowd.len());
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

/// Visitors that ask without a break, and what became of them.
#[derive(Default)]
struct Seen {
    /// Cookies with the tickets of visitors who were answered.
    used: Mutex<Vec<Visitor>>,
    wrong: Mutex<Vec<String>>,
    /// No more newcomers.
    is_closing: AtomicBool,
}

/// A visitor of the load.
#[derive(Default)]
struct Asking {
    visitor: Visitor,
    /// It got no answer to its last request.
    is_unanswered: bool,
}

impl Asking {
    /// `true`: it was let in. Its ticket may be replaced only if it was not answered, and by one for the same
    /// turn: the first 16 characters hold when a ticket was issued and the wait.
    fn ask(&mut self, client: &mut Option<Client>, gate: SocketAddr, seen: &Seen) -> bool {
        let before = self.visitor.clone();
        let turn =
            |visitor: &Visitor| visitor.ticket().map(|(_, text)| (text[..16].to_owned(), text.to_owned()));
        let open = client.take().map_or_else(|| Client::connect(gate), Ok);
        let answered = open.and_then(|mut open| Ok((self.visitor.ask(&mut open, "/shop")?, Some(open))));
        let Ok((answer, open)) = answered else {
            (self.visitor, self.is_unanswered) = (before, true);
            pause();
            return false;
        };
        *client = open.filter(|_| !answer.head.closes());
        let was_unanswered = std::mem::take(&mut self.is_unanswered);
        let wrong = |what: &str| {
            let (was, is) = (before.ticket(), self.visitor.ticket());
            let what = format!("{what}: {answer:?}, {was:?} became {is:?}, unanswered: {was_unanswered}");
            seen.wrong.lock().expect("lock").push(what);
        };
        if answer.status() == 200 {
            if before.ticket().is_some() {
                seen.used.lock().expect("lock").push(before);
            }
            return true;
        }
        match (turn(&before), turn(&self.visitor)) {
            _ if !is_wait(&answer) => wrong("neither let in nor asked to wait"),
            (Some((was, _)), Some((is, _))) if was != is => wrong("another turn"),
            (Some((_, was)), Some((_, is))) if was != is && !was_unanswered => wrong("another ticket"),
            (Some(_), None) => wrong("the ticket is gone"),
            _ => {}
        }
        false
    }
}

fn load(gate: SocketAddr, seen: &Seen) {
    let mut crowd: Vec<Asking> = (0..10).map(|_| Asking::default()).collect();
    let mut client = None;
    while !crowd.is_empty() && seen.wrong.lock().expect("lock").is_empty() {
        crowd.retain_mut(|asking| {
            let is_in = asking.ask(&mut client, gate, seen);
            if is_in {
                *asking = Asking::default();
            }
            !(is_in && seen.is_closing.load(Ordering::SeqCst))
        });
    }
}

/// `scripts/sweep --only kill` runs it a thousand times.
#[test]
fn however_often_it_is_killed_nobody_enters_twice_and_nobody_loses_the_turn() {
    let rounds: usize = std::env::var("TIDEGATE_KILLS").map_or(5, |n| n.parse().expect("a number"));
    let origin = Origin::answering("welcome");
    let mut gate = Gate::start(Config::waiting(&[origin.address()], 50.0));
    let (address, seen) = (gate.http(), Arc::<Seen>::default());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let seen = seen.clone();
            std::thread::spawn(move || load(address, &seen))
        })
        .collect();
    let used = || seen.used.lock().expect("lock").len();
    let is_wrong = || !seen.wrong.lock().expect("lock").is_empty();
    for round in 0..rounds {
        // Kills fall on every part of the second between two saves.
        let goal = used() + 3 + round * 7 % 60;
        wait_for(format!("visitors who are let in, round {round}"), || {
            (is_wrong() || used() >= goal).then_some(())
        });
        gate.kill();
        let answered = seen.used.lock().expect("lock").clone();
        gate.restart();
        let mut client = Client::connect(address).unwrap();
        for mut again in answered.into_iter().rev().take(5) {
            let answer = again.ask(&mut client, "/shop").unwrap();
            assert_ne!(answer.status(), 200, "round {round}: let in twice with one ticket: {answer:?}");
        }
        if is_wrong() {
            break;
        }
    }
    seen.is_closing.store(true, Ordering::SeqCst);
    wait_for("all to be let in", || threads.iter().all(|thread| thread.is_finished()).then_some(()));
    threads.into_iter().for_each(|thread| thread.join().expect("a visitor"));
    let wrong = seen.wrong.lock().expect("lock");
    assert!(wrong.is_empty(), "{} things went wrong: {}", wrong.len(), wrong[0]);
}
