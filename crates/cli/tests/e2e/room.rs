//! The waiting room: a crowd is admitted in order, everybody once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::harness::{Config, Gate, now, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::visitor::{Visitor, is_wait, remaining};

const RATE: f64 = 5.0;
const CROWD: usize = 100;

type Admissions = Arc<Mutex<Vec<(String, Instant)>>>;

/// An origin that records who came when.
fn noting() -> (Origin, Admissions) {
    let admissions = Admissions::default();
    let notes = admissions.clone();
    let origin = Origin::start(move |exchange| {
        notes.lock().expect("lock").push((exchange.head.second_word().to_owned(), now()));
        exchange.ok("welcome")
    });
    (origin, admissions)
}

/// Checks that the rate is not exceeded over all admissions and over every ten of them. The room may admit
/// 1.5 times the capacity while it makes up for no-shows, and one burst.
fn assert_rate_held(times: &[Instant], rate: f64) {
    for length in [10, times.len()] {
        for stretch in times.windows(length) {
            let took = stretch[length - 1].duration_since(stretch[0]).as_secs_f64();
            let least = (length as f64 - 1.0 - 1.5 * rate) / (1.5 * rate) - 1.0;
            assert!(took >= least, "{length} admissions in {took} s at {rate} per second");
        }
    }
}

/// Whether this is a ticket: `tg` and the number of a class.
fn is_ticket(cookie: &str) -> bool {
    cookie.strip_prefix("tg").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[test]
fn a_crowd_is_admitted_in_order_and_nobody_twice() {
    let (origin, admissions) = noting();
    let gate = Gate::start(Config::waiting(&[origin.address()], RATE));
    // They come one after the other, so that their order is known, and then wait at the same time.
    let mut client = Client::connect(gate.http()).unwrap();
    let mut places = Vec::new();
    let mut crowd = Vec::new();
    for i in 0..CROWD {
        let mut visitor = Visitor::default();
        let before = now();
        let answer = visitor.ask(&mut client, &format!("/shop/{i}")).unwrap();
        if is_wait(&answer) {
            let waits = remaining(&answer);
            places.push((before + waits, now() + waits));
            crowd.push((i, visitor));
        } else {
            assert_eq!(answer.status(), 200);
        }
    }
    assert!(crowd.len() >= CROWD / 2, "most of them have to wait: {}", crowd.len());
    // First come, first served: nobody who came later has a much shorter wait. Waits are whole seconds, and
    // the gate read its clock at some time between request and answer.
    for ((earlier, _), (_, later)) in places.iter().zip(&places[1..]) {
        assert!(*later + Duration::from_secs(2) >= *earlier, "{earlier:?} then {later:?}");
    }
    let address = gate.http();
    let waiting: Vec<_> = crowd
        .into_iter()
        .map(|(i, mut visitor)| {
            std::thread::spawn(move || visitor.wait_for_turn(address, &format!("/shop/{i}")).status())
        })
        .collect();
    for visitor in waiting {
        assert_eq!(visitor.join().unwrap(), 200);
    }
    let mut admissions = admissions.lock().unwrap().clone();
    let mut times_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (who, _) in &admissions {
        *times_of.entry(who).or_default() += 1;
    }
    assert_eq!(times_of.len(), CROWD, "everybody got in");
    assert!(times_of.values().all(|n| *n == 1), "nobody twice: {times_of:?}");
    admissions.sort_by_key(|(_, at)| *at);
    let times: Vec<Instant> = admissions.iter().map(|(_, at)| *at).collect();
    assert_rate_held(&times, RATE);
}

#[test]
fn nobody_waits_below_the_capacity() {
    let (origin, admissions) = noting();
    let gate = Gate::start(Config::waiting(&[origin.address()], 100_000.0));
    let mut client = Client::connect(gate.http()).unwrap();
    for i in 0..50 {
        let answer = client.get(&format!("/shop/{i}"), "Accept: text/html\r\n").unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (200, "welcome"));
        assert!(answer.head.field("location").is_none(), "no redirect");
    }
    assert_eq!(admissions.lock().unwrap().len(), 50);
}

#[test]
fn a_second_tab_has_the_same_position() {
    let (origin, _) = noting();
    // One visitor in twenty seconds: twenty positions are four hundred seconds.
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.05));
    let one = Duration::from_secs(20);
    let mut client = Client::connect(gate.http()).unwrap();
    let mut visitor = Visitor::default();
    let first = wait_for("a wait", || {
        visitor = Visitor::default();
        let answer = visitor.ask(&mut client, "/shop").unwrap();
        is_wait(&answer).then_some(answer)
    });
    // Twenty others queue up behind.
    for _ in 0..20 {
        Visitor::default().ask(&mut client, "/shop").unwrap();
    }
    let again = visitor.ask(&mut client, "/shop").unwrap();
    if is_wait(&again) {
        assert!(remaining(&again) <= remaining(&first) + one, "{first:?} then {again:?}");
        let place = |answer: &Answer| answer.json()["place"].as_u64().expect("a place");
        assert!(place(&again) <= place(&first), "{first:?} then {again:?}");
    } else {
        assert_eq!(again.status(), 200);
    }
}

#[test]
fn waiting_has_a_page_for_browsers_and_an_answer_for_programs() {
    let (origin, _) = noting();
    let gate = Gate::start(Config::waiting(&[origin.address()], 0.01));
    let mut client = Client::connect(gate.http()).unwrap();
    wait_for("a wait", || is_wait(&client.get("/shop", "").unwrap()).then_some(()));
    let page = client.get("/shop", "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n").unwrap();
    let api = client.get("/shop", "Accept: application/json\r\n").unwrap();
    for (answer, kind) in [(&page, "text/html"), (&api, "application/problem+json")] {
        assert_eq!(answer.status(), 503);
        assert!(answer.head.field("content-type").unwrap().starts_with(kind), "{answer:?}");
        assert!(answer.head.field("retry-after").unwrap().parse::<u64>().is_ok());
        assert!(answer.head.field("cache-control").unwrap().contains("no-store"));
        let cookies: Vec<_> = answer.head.fields.iter().filter(|(n, _)| n == "set-cookie").collect();
        assert!(cookies.iter().any(|(_, v)| is_ticket(v)), "{cookies:?}");
        assert!(cookies.iter().any(|(_, v)| v.starts_with("tgid=") && v.contains("HttpOnly")), "{cookies:?}");
    }
    assert!(page.body.len() < 14 * 1024, "the page fits one initial TCP window: {} bytes", page.body.len());
    assert!(api.json()["status"].as_u64() == Some(503), "{}", api.text());
    let status = page.head.field("x-tidegate-status").unwrap().to_owned();
    assert!(status.starts_with("/.tidegate/status?c="), "{status}");
}

#[test]
fn the_room_is_full_beyond_the_longest_wait() {
    let (origin, _) = noting();
    let gate = Gate::start(Config::waiting(&[origin.address()], 1.0).text("room.max_wait", "20s"));
    let mut client = Client::connect(gate.http()).unwrap();
    let full = wait_for("a full room", || {
        let answer = Visitor::default().ask(&mut client, "/shop").unwrap();
        (answer.status() != 200 && !is_wait(&answer)).then_some(answer)
    });
    assert_eq!(full.status(), 503);
    assert!(full.head.field("retry-after").unwrap().parse::<u64>().is_ok());
    assert!(!full.head.fields.iter().any(|(n, v)| n == "set-cookie" && is_ticket(v)), "no ticket given");
}
