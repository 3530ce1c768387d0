//! A position in the waiting room is used up only by a request that is served.

use std::collections::BTreeSet;
use std::io::Write;

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, ask, connect, cookies, get, until};

const ONE_AT_A_TIME: &str = r#"
[capacity]
estimator = "fixed"
rate = 2
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[queue]
max_length = 0
[room]
classes = ["page"]
[[class]]
name = "page"
match = { path = "/page*" }
"#;

#[test]
fn a_request_shed_at_the_gate_keeps_its_position() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE_AT_A_TIME);
    let waiting = until(|| get(gate.http, "/page", "a=b"), |answer| answer.contains("set-cookie: tg"));
    let ticket = cookies(&waiting);
    // The origin's only in-flight slot is taken when the visitor's turn comes.
    let mut other = connect(gate.http);
    other.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
    until(|| get(gate.http, "/page", &ticket), |answer| answer.contains("queue is full"));
    origin.release();
    until(|| get(gate.http, "/page", &ticket), |answer| answer.ends_with("served"));
    assert_eq!(gate.count(Event::TicketReplayed), 0, "the position was lost");
    get(gate.http, "/page", &ticket);
    assert_eq!(gate.count(Event::TicketReplayed), 1, "a used ticket is not valid again");
}

const SESSIONS: &str = r#"
[origin]
replicas = ["ORIGIN"]
[proxy]
trusted = ["127.0.0.1/32"]
[capacity]
estimator = "fixed"
rate = 1
[room]
unit = "session"
"#;

fn from(gate: &Gate, target: &str, address: &str, cookies: &str) -> String {
    let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\nCookie: {cookies}");
    ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n"))
}

#[test]
fn a_session_survives_a_change_of_address_but_a_stolen_pass_is_refused() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SESSIONS);
    let first = from(&gate, "/public", "192.0.2.7", "a=b");
    let session = cookies(&first);
    assert!(session.contains("tgp=") && session.contains("tgid="), "{first}");
    assert!(first.to_ascii_lowercase().contains("cache-control: private"), "{first}");
    until(|| from(&gate, "/", "198.51.100.1", "a=b"), |answer| answer.contains("set-cookie: tg0="));
    let moved = from(&gate, "/", "203.0.113.9", &session);
    assert!(moved.ends_with("served"), "the session ended with the address: {moved}");
    let pass = session.split("; ").find(|c| c.starts_with("tgp=")).unwrap();
    let neighbour = from(&gate, "/", "192.0.2.8", pass);
    assert!(neighbour.starts_with("HTTP/1.1 503"), "a neighbour used a stolen pass: {neighbour}");
}

#[test]
fn a_full_room_gives_each_visitor_a_time_of_its_own_with_and_without_a_script() {
    let origin = Origin::start();
    let room = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 0.1\n[room]\nmax_wait = \"1s\"\n";
    let gate = Gate::start(&origin, room);
    let asked = "GET / HTTP/1.1\r\nHost: shop.example\r\nAccept: text/html\r\nConnection: close\r\n\r\n";
    let told = (0..40).map(|_| {
        let answer = until(|| ask(gate.http, asked), |answer| answer.contains("data-kind=full"));
        let number = |before: &str| -> u64 {
            let (_, after) = answer.split_once(before).expect("a time");
            after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().expect("seconds")
        };
        let after = number("retry-after: ");
        assert_eq!(number("http-equiv=\"refresh\" content=\""), after, "the page loads itself again then");
        after
    });
    let told: BTreeSet<u64> = told.collect();
    assert!(told.len() > 5 && told.last() > Some(&20), "{told:?}");
}
