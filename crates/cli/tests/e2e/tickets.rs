//! Tickets that were altered, given away or used before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::harness::{Config, Gate, wait_for};
use super::http::Client;
use super::origin::Origin;
use super::visitor::{Visitor, is_wait};

/// A visitor with a ticket for a later turn.
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

/// The ticket with one character replaced by another of its alphabet.
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
    // The last character has bits that base64 does not use, so altering it may give the same ticket.
    // The second and the third name the key: a ticket of an unknown key is none.
    let all = (0..ticket.len() - 1).filter(|at| ![1, 2].contains(at));
    let mut forged: Vec<String> = all.map(|at| altered(&ticket, at)).collect();
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
    for at in [1, 2] {
        let answer = with_ticket(&visitor, &altered(&ticket, at)).ask(&mut client, "/shop").unwrap();
        assert!(answer.status() == 403 || is_wait(&answer), "{at}: {answer:?}");
    }
    assert_eq!(origin.seen().len(), served, "nobody got in with a forged ticket");
    assert!(is_wait(&visitor.clone().ask(&mut client, "/shop").unwrap()), "the real one still holds");
}

#[test]
fn a_ticket_of_another_visitor_is_forbidden() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.02));
    let (mine, yours) = (waiting(&gate), waiting(&gate));
    let lent = with_ticket(&yours, mine.ticket().unwrap().1);
    assert_eq!(lent.clone().ask_once(gate.http(), "/shop").unwrap().status(), 403);
}

#[test]
fn a_used_ticket_is_a_conflict_and_gives_a_new_turn() {
    let origin = Origin::answering("welcome");
    let gate = Gate::start(Config::waiting(&[origin.address()], 1.0));
    let before = waiting(&gate);
    // The gate may replace the ticket meanwhile by a better one: the last one is redeemed.
    let mut visitor = before.clone();
    let used = wait_for("the turn", || {
        let last = visitor.clone();
        let answer = visitor.ask_once(gate.http(), "/shop").ok()?;
        (answer.status() == 200).then_some(last)
    });
    let mut again = used.clone();
    let answer = again.ask_once(gate.http(), "/shop").unwrap();
    assert_eq!(answer.status(), 409, "{answer:?}");
    assert_ne!(again.ticket(), used.ticket(), "a new turn: {answer:?}");
    assert_eq!(again.wait_for_turn(gate.http(), "/shop").status(), 200);
}

#[test]
fn a_ticket_admits_one_of_64_racing_requests() {
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
                    // Always the same ticket, even if the gate offers another.
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
fn a_visitor_who_comes_too_late_gets_a_new_turn() {
    let origin = Origin::answering("welcome");
    let config = Config::waiting(&[origin.address()], 2.0).text("room.grace", "5s");
    let gate = Gate::start(config);
    let late = waiting(&gate);
    // Later tickets have had their turn, so this one is late by more than `grace`.
    for _ in 0..14 {
        let mut later = waiting(&gate);
        assert_eq!(later.wait_for_turn(gate.http(), "/shop").status(), 200);
    }
    let mut visitor = late.clone();
    let answer = visitor.ask_once(gate.http(), "/shop").unwrap();
    // Admitted at once if there is capacity, else a new turn, but never refused.
    assert!(answer.status() == 200 || is_wait(&answer), "{answer:?}");
    assert_eq!(visitor.wait_for_turn(gate.http(), "/shop").status(), 200);
}

#[test]
fn tickets_are_not_sent_to_the_origin() {
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
