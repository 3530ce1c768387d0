//! Tickets that somebody has tampered with, lent out or used before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::harness::{Config, Gate, wait_for};
use super::http::Client;
use super::origin::Origin;
use super::visitor::{Visitor, is_wait};

/// Somebody with a ticket for later.
fn waiting(gate: &Gate) -> Visitor {
    wait_for("a ticket", || {
        let mut visitor = Visitor::default();
        is_wait(&visitor.ask_once(gate.http(), "/shop").ok()?).then_some(visitor)
    })
}

fn with_ticket(visitor: &Visitor, ticket: &str) -> Visitor {
    let mut other = visitor.clone();
    let name = visitor.ticket().expect("a ticket").0.to_owned();
    other.cookies.insert(name, ticket.into());
    other
}

/// The ticket with one character exchanged for another of its alphabet.
fn altered(ticket: &str, at: usize) -> String {
    let mut bytes = ticket.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).expect("ascii")
}

#[test]
fn altered_and_invented_tickets_are_forbidden() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.02));
    let visitor = waiting(&gate);
    let ticket = visitor.ticket().unwrap().1.to_owned();
    let served = origin.seen().len();
    // The last character carries bits that base64 does not use: it may be the same ticket.
    let mut forged: Vec<String> = (0..ticket.len() - 1).map(|at| altered(&ticket, at)).collect();
    forged.extend([
        "A".repeat(ticket.len()),
        "x".into(),
        ticket[..ticket.len() / 2].into(),
        ticket.repeat(2),
    ]);
    let mut client = Client::connect(gate.http()).unwrap();
    for forgery in forged {
        let answer = with_ticket(&visitor, &forgery).ask(&mut client, "/shop").unwrap();
        assert_eq!(answer.status(), 403, "{forgery}: {answer:?}");
    }
    assert_eq!(origin.seen().len(), served, "nobody got in with a forged ticket");
    assert!(is_wait(&visitor.clone().ask(&mut client, "/shop").unwrap()), "the real one still holds");
}

#[test]
fn a_ticket_cannot_be_lent_out() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.02));
    let (mine, yours) = (waiting(&gate), waiting(&gate));
    let lent = with_ticket(&yours, mine.ticket().unwrap().1);
    assert_eq!(lent.clone().ask_once(gate.http(), "/shop").unwrap().status(), 403);
}

#[test]
fn a_used_ticket_is_a_conflict_with_a_new_place() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 1.0));
    let before = waiting(&gate);
    // The gate may exchange the ticket for a better one meanwhile: the last one is what gets in.
    let mut visitor = before.clone();
    let used = wait_for("the turn", || {
        let last = visitor.clone();
        let answer = visitor.ask_once(gate.http(), "/shop").ok()?;
        (answer.status() == 200).then_some(last)
    });
    let mut again = used.clone();
    let answer = again.ask_once(gate.http(), "/shop").unwrap();
    assert_eq!(answer.status(), 409, "{answer:?}");
    assert_ne!(again.ticket(), used.ticket(), "a new place: {answer:?}");
    assert_eq!(again.wait_for_turn(gate.http(), "/shop").status(), 200);
}

#[test]
fn a_ticket_is_good_for_one_of_64_racing_requests() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 2.0));
    let visitor = waiting(&gate);
    let (admitted, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let racers: Vec<_> = (0..64)
        .map(|_| {
            let (admitted, over) = (admitted.clone(), over.clone());
            let (address, fields) = (gate.http(), visitor.cookie_line());
            std::thread::spawn(move || {
                wait_for("the race to be over", || {
                    // Always this very ticket, whatever the gate offers instead.
                    let answer = Client::connect(address).ok()?.get("/race", &fields).ok()?;
                    match answer.status() {
                        200 => {
                            admitted.fetch_add(1, Ordering::SeqCst);
                            over.store(true, Ordering::SeqCst);
                        }
                        409 => over.store(true, Ordering::SeqCst),
                        503 => return over.load(Ordering::SeqCst).then_some(()),
                        other => panic!("status {other}"),
                    }
                    Some(())
                })
            })
        })
        .collect();
    for racer in racers {
        racer.join().unwrap();
    }
    assert_eq!(admitted.load(Ordering::SeqCst), 1);
    assert_eq!(origin.seen().iter().filter(|head| head.second_word() == "/race").count(), 1);
}

#[test]
fn who_comes_too_late_gets_a_new_place() {
    let origin = Origin::answering("welcome");
    let config = Config::waiting(&[origin.address()], 2.0).text("room.grace", "1s");
    let gate = Gate::start(config);
    let late = waiting(&gate);
    // Tickets handed out later have had their turn: this one's is over by more than `grace`.
    for _ in 0..5 {
        let mut later = waiting(&gate);
        assert_eq!(later.wait_for_turn(gate.http(), "/shop").status(), 200);
    }
    let mut visitor = late.clone();
    let answer = visitor.ask_once(gate.http(), "/shop").unwrap();
    // In at once when there is room, else a place: never refused.
    assert!(answer.status() == 200 || is_wait(&answer), "{answer:?}");
    assert_eq!(visitor.wait_for_turn(gate.http(), "/shop").status(), 200);
}

#[test]
fn tickets_stay_between_the_visitor_and_the_gate() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 1.0));
    let mut visitor = waiting(&gate);
    visitor.cookies.insert("basket".into(), "full".into());
    assert_eq!(visitor.wait_for_turn(gate.http(), "/shop?colour=red").status(), 200);
    let heads = origin.seen();
    let mine = heads.iter().find(|head| head.second_word().contains("colour")).expect("my request");
    assert_eq!(mine.second_word(), "/shop?colour=red");
    assert_eq!(mine.field("cookie"), Some("basket=full"), "the origin sees its own cookies only");
}
