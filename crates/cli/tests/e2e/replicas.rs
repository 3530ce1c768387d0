//! Several replicas: one dies under load and comes back, all die and come back.

use std::collections::BTreeSet;

use super::harness::{Config, Gate, wait_for};
use super::http::Client;
use super::nginx::Nginx;
use super::visitor::Crowd;

fn gate(replicas: &[&Nginx]) -> Gate {
    let addresses: Vec<_> = replicas.iter().map(|nginx| nginx.address()).collect();
    Gate::start(
        Config::new(&addresses)
            .text("origin.health.path", "/name")
            .text("origin.health.every", "200ms")
            .text("origin.health.timeout", "2s"),
    )
}

/// Waits until each of these replicas has answered.
fn wait_for_names(gate: &Gate, expected: &[&str]) {
    let mut seen = BTreeSet::new();
    wait_for(format!("answers of {expected:?}"), || {
        if let Ok(answer) = Client::connect(gate.http()).ok()?.get("/name", "") {
            seen.insert(answer.text());
        }
        expected.iter().all(|name| seen.contains(*name)).then_some(())
    });
}

#[test]
fn the_death_of_a_replica_causes_no_errors() {
    let (mut a, b) = (Nginx::start("a"), Nginx::start("b"));
    let gate = gate(&[&a, &b]);
    wait_for_names(&gate, &["a", "b"]);
    // nginx writes this answer in one call. No gate could repair an answer that the kill cuts off.
    let crowd = Crowd::start(gate.http(), 16, "/shop");
    for _ in 0..3 {
        crowd.wait_served(1_000);
        a.kill();
        crowd.wait_served(1_000);
        a.restart();
        wait_for_names(&gate, &["a", "b"]);
    }
    let served = crowd.stop_without_errors();
    assert!(served >= 6_000, "served {served}");
}

#[test]
fn without_any_replica_the_gate_refuses_and_recovers() {
    let mut a = Nginx::start("a");
    let gate = gate(&[&a]);
    a.kill();
    wait_for("a clear refusal", || {
        let answer = Client::connect(gate.http()).ok()?.get("/page", "").ok()?;
        matches!(answer.status(), 502..=504).then_some(())
    });
    assert_eq!(gate.admin("GET", "/healthz", "").status(), 200, "the gate itself is well");
    a.restart();
    wait_for_names(&gate, &["a"]);
}

#[test]
fn a_request_that_may_not_be_repeated_is_sent_once() {
    let origin = super::origin::Origin::start(|exchange| {
        exchange.body()?;
        // The request is read and not answered: the order may have been taken.
        Err(std::io::ErrorKind::ConnectionAborted.into())
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("POST /order HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\none").unwrap();
    assert_eq!(client.answer("POST").unwrap().status(), 502);
    let orders = origin.seen().iter().filter(|head| head.second_word() == "/order").count();
    assert_eq!(orders, 1);
}
