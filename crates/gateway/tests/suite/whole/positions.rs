//! A position in the waiting room is used up only by a request that is served.

use std::collections::BTreeSet;

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, ask, cookies, get, until};

/// The room lets in whose turn has come, whatever the class's own limits are.
const SHED_BY_CLASS: &str = r#"
[capacity]
estimator = "fixed"
rate = 2
[origin]
replicas = ["ORIGIN"]
[queue]
max_length = 0
[room]
classes = ["page"]
[[class]]
name = "page"
match = { path = "/page*" }
egress = { rate = 0.3 }
"#;

#[test]
fn a_request_shed_at_the_gate_keeps_its_position() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHED_BY_CLASS);
    let waiting = until(|| get(gate.http, "/page", "a=b"), |answer| answer.contains("set-cookie: tg"));
    let ticket = cookies(&waiting);
    until(|| get(gate.http, "/page", &ticket), |answer| answer.contains("queue is full"));
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

const TWO_A_SECOND: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
estimator = "fixed"
rate = 2
"#;

/// The ticket in the answer to a program.
fn told(answer: &str) -> String {
    let (_, rest) = answer.split_once("\"ticket\":\"").unwrap_or_else(|| panic!("no ticket: {answer}"));
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// Asks again with its ticket in the URL until it is served.
fn is_served(gate: &Gate, ticket: &str, cookies: &str) {
    until(|| get(gate.http, &format!("/?tg={ticket}"), cookies), |answer| answer.ends_with("served"));
}

#[test]
fn a_lost_state_directory_costs_nobody_a_403() {
    let origin = Origin::start();
    // Keys that a gate makes itself have other ids.
    let lost_key = format!("{TWO_A_SECOND}[room]\nkeys = [\"0:{}\"]\n", "5e".repeat(32));
    let before = Gate::start(&origin, &lost_key);
    let waiting = until(|| get(before.http, "/", ""), |answer| answer.contains("set-cookie: tg0="));
    let (cookie, in_url) = (cookies(&waiting), told(&waiting));
    let waited = |answer: &str| !answer.contains("\"waited_s\":0,");
    assert!(!waited(&waiting), "{waiting}");
    drop(before);
    let after = Gate::start(&origin, TWO_A_SECOND);
    until(|| get(after.http, "/", ""), |answer| answer.contains("set-cookie: tg0="));
    for (target, shown) in [("/".into(), &*cookie), (format!("/?tg={in_url}"), "")] {
        // Newcomers for seconds, so that nobody enters at once.
        (0..6).for_each(|_| drop(get(after.http, "/", "")));
        let answer = get(after.http, &target, shown);
        assert!(answer.starts_with("HTTP/1.1 503") && waited(&answer), "{answer}");
        assert!(answer.contains("\"type\":\"urn:tidegate:problem:waiting\""), "{answer}");
        is_served(&after, &told(&answer), "");
        assert_ne!(cookies(&answer), cookie);
    }
    assert_eq!(after.count(Event::TicketUnknownKey), 2);
    // Its page asks for the status first, and is told to begin anew.
    let status = get(after.http, "/.tidegate/status?c=0", &cookie);
    assert!(status.contains("\"state\":\"expired\""), "{status}");
    // A known key with a wrong seal is forged.
    let waiting = until(|| get(after.http, "/", ""), |answer| answer.contains("set-cookie: tg0="));
    let mut forged = told(&waiting);
    let last = if forged.pop() == Some('A') { 'B' } else { 'A' };
    forged.push(last);
    let answer = get(after.http, &format!("/?tg={forged}"), "");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn a_client_that_sends_a_cookie_and_keeps_none_keeps_its_position() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, TWO_A_SECOND);
    let waiting = until(|| get(gate.http, "/", "lang=de"), |answer| answer.starts_with("HTTP/1.1 503"));
    is_served(&gate, &told(&waiting), "lang=de");
    assert_eq!(gate.count(Event::EnteredByTicket), 1);
    // Also if the cookies are old ones of the gate's own.
    let waiting = until(|| get(gate.http, "/", ""), |answer| answer.starts_with("HTTP/1.1 503"));
    let old = cookies(&waiting);
    assert!(old.contains("tg0=") && old.contains("tgid="), "{waiting}");
    until(|| get(gate.http, "/", &old), |answer| answer.ends_with("served"));
    let waiting = get(gate.http, "/", &old);
    assert!(waiting.starts_with("HTTP/1.1 409"), "{waiting}");
    is_served(&gate, &told(&waiting), &old);
    assert_eq!(gate.count(Event::EnteredByTicket), 3);
    assert_eq!(gate.count(Event::TicketReplayed), 1, "it has lost its position");
}

#[test]
fn one_client_is_told_that_the_room_is_full_and_others_get_positions() {
    let origin = Origin::start();
    let short = format!("{TWO_A_SECOND}[room]\nmax_wait = \"30s\"\n[proxy]\ntrusted = [\"127.0.0.1/32\"]\n");
    let gate = Gate::start(&origin, &short);
    let full = until(|| from(&gate, "/", "192.0.2.7", "a=b"), |answer| answer.contains("problem:full"));
    assert!(full.to_ascii_lowercase().contains("retry-after: "), "{full}");
    assert_eq!(gate.count(Event::OverShare), 1);
    let other = from(&gate, "/", "198.51.100.1", "a=b");
    assert!(other.contains("problem:waiting"), "{other}");
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

const ONE_IN_A_HUNDRED_SECONDS: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
estimator = "fixed"
rate = 0.01
[room]
unit = "request"
"#;

/// The first visitor who has to wait, with these header fields.
fn first_to_wait(gate: &Gate, fields: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{fields}Connection: close\r\n\r\n");
    until(|| ask(gate.http, &request), |answer| answer.contains("set-cookie: tg0="))
}

fn room_figures(gate: &Gate) -> String {
    let room = &gate.admin("/v1/state")["room"];
    format!("{} wait, {} present", room["waiting"], room["present"])
}

/// Asks for the room's figures until they are these.
fn room_has(gate: &Gate, waiting: u64, present: u64) {
    until(|| room_figures(gate), |figures| figures == format!("{waiting} wait, {present} present"));
}

#[test]
fn visitors_whose_page_asks_count_as_present() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE_IN_A_HUNDRED_SECONDS);
    let ask = |gate: &Gate, ticket: &str| get(gate.http, "/.tidegate/status?c=0", ticket);
    // Before the first tick a page is to ask again after 0.3 s, later after some seconds.
    let ticket = cookies(&first_to_wait(&gate, "Accept: text/html\r\n"));
    let poll_ms =
        |status: &str| -> Option<u64> { status.split_once("poll_ms\":")?.1.split_once(',')?.0.parse().ok() };
    until(|| ask(&gate, &ticket), |status| poll_ms(status) > Some(1_000));
    room_has(&gate, 1, 1);
    first_to_wait(&gate, "Accept: text/html\r\n");
    room_has(&gate, 2, 2);
    // A program sleeps until its turn, unless it asks how things stand.
    let gate = Gate::start(&origin, ONE_IN_A_HUNDRED_SECONDS);
    let ticket = cookies(&first_to_wait(&gate, ""));
    room_has(&gate, 1, 0);
    let asks = || {
        ask(&gate, &ticket);
        room_figures(&gate)
    };
    until(asks, |figures| figures == "1 wait, 1 present");
}
