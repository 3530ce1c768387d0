//! Sessions in the two-process form: tokengen admits nobody for whom tokencheck has no session slot, and a
//! session under way goes on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use super::harness::{pause, wait_for};
use super::http::Answer;
use super::origin::Origin;
use super::roles::{Pair, location, pair_with};
use super::visitor::{Visitor, is_wait};

/// Session slots.
const SLOTS: usize = 2;

/// Visitors between the first page and the last, as the origin sees them.
#[derive(Default)]
struct Inside {
    now: HashSet<String>,
    /// Most at the same time.
    most: usize,
}

/// `/NAME/page` and `/NAME/last`, which ends the session.
fn shop(inside: &Arc<Mutex<Inside>>) -> Origin {
    let inside = inside.clone();
    Origin::start(move |exchange| {
        exchange.body()?;
        let target = exchange.head.second_word().to_owned();
        let (name, page) = target.trim_start_matches('/').split_once('/').expect("a name and a page");
        let mut inside = inside.lock().expect("lock");
        if page == "last" {
            // Removed before the gate learns of the end.
            inside.now.remove(name);
            return exchange.send("HTTP/1.1 200 OK\r\nTidegate-Session: end\r\nContent-Length: 3\r\n\r\nbye");
        }
        inside.now.insert(name.into());
        inside.most = inside.most.max(inside.now.len());
        exchange.ok("welcome")
    })
}

fn shop_with_slots(inside: &Arc<Mutex<Inside>>) -> (Origin, Pair) {
    let origin = shop(inside);
    let pair = pair_with(origin.address(), 100.0, |config| {
        config.text("room.unit", "session").set("session.max", SLOTS).text("session.timeout", "10m")
    });
    (origin, pair)
}

/// A visitor with the cookies of both hosts.
struct Guest<'p> {
    pair: &'p Pair,
    name: String,
    at_generator: Visitor,
    at_check: Visitor,
    /// The URL at tokencheck with the ticket, to ask next.
    sent_to: Option<String>,
}

impl<'p> Guest<'p> {
    fn new(pair: &'p Pair, name: &str) -> Self {
        let (at_generator, at_check) = (Visitor::default(), Visitor::default());
        Self { pair, name: name.into(), at_generator, at_check, sent_to: None }
    }

    /// Asks once where it was sent last, and follows redirects without waiting.
    fn tries(&mut self) -> Answer {
        for _ in 0..4 {
            let answer = match self.sent_to.clone() {
                Some(target) => self.at_check.ask_once(self.pair.check.http(), &target),
                None => {
                    self.at_generator.ask_once(self.pair.generator.http(), &format!("/{}/page", self.name))
                }
            };
            let answer = answer.expect("an answer");
            let Some(target) = location(&answer) else { return answer };
            let on = target.strip_prefix(&format!("http://{}", self.pair.check.http()));
            self.sent_to = on.map(str::to_owned);
        }
        panic!("{} is sent to and fro", self.name);
    }

    /// Comes back until it is served.
    fn enters(&mut self) {
        wait_for(format!("{} to be served", self.name), || {
            let answer = self.tries();
            assert!(is_wait(&answer) || answer.status() == 200, "{}: {answer:?}", self.name);
            (answer.status() == 200).then_some(())
        });
    }

    /// A request at tokencheck, with the cookies of the session only.
    fn asks(&mut self, page: &str) -> Answer {
        self.at_check.ask_once(self.pair.check.http(), &format!("/{}/{page}", self.name)).expect("an answer")
    }

    fn goes_on(&mut self) {
        let answer = self.asks("page");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "welcome"), "{}: {answer:?}", self.name);
    }

    fn logs_out(&mut self) {
        let answer = self.asks("last");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "bye"), "{}: {answer:?}", self.name);
        assert!(answer.head.field("tidegate-session").is_none(), "{answer:?}");
    }
}

/// A figure of tokencheck's sessions.
fn figure(pair: &Pair, name: &str) -> u64 {
    pair.check.admin("GET", "/v1/sessions", "").json()["state"][name].as_u64().expect("a figure")
}

#[test]
fn a_visitor_without_a_slot_waits_until_a_session_ends_and_others_go_on() {
    let inside = Arc::default();
    let (_origin, pair) = shop_with_slots(&inside);
    let [mut first, mut second, mut third] = ["ann", "bob", "cat"].map(|name| Guest::new(&pair, name));
    first.enters();
    second.enters();
    assert_eq!(figure(&pair, "open"), 2);
    // For longer than it takes until tokengen knows of the slots.
    for _ in 0..100 {
        let answer = third.tries();
        assert!(is_wait(&answer), "there is no free slot: {answer:?}");
        first.goes_on();
        second.goes_on();
        pause();
    }
    assert_eq!(figure(&pair, "open"), 2);
    first.logs_out();
    third.enters();
    third.goes_on();
    second.goes_on();
    // Her session has ended: she is sent to tokengen for another slot, and none is free.
    let answer = first.asks("page");
    assert!(
        location(&answer).is_some_and(|to| to.contains(&pair.generator.http().to_string())),
        "{answer:?}"
    );
    assert!(is_wait(&first.tries()));
    assert_eq!((figure(&pair, "open"), figure(&pair, "begun")), (2, 3));
    assert_eq!(inside.lock().unwrap().most, SLOTS);
    // Only tokencheck has sessions.
    assert_eq!(pair.generator.admin("GET", "/v1/sessions", "").status(), 409);
}

#[test]
fn a_crowd_has_never_more_sessions_than_slots() {
    let inside = Arc::default();
    let (_origin, pair) = shop_with_slots(&inside);
    let pair = &pair;
    std::thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                let mut guest = Guest::new(pair, &format!("guest{n}"));
                guest.enters();
                for _ in 0..3 {
                    pause();
                    guest.goes_on();
                }
                assert!(figure(pair, "open") <= SLOTS as u64);
                guest.logs_out();
            });
        }
    });
    let inside = inside.lock().unwrap();
    assert!(inside.now.is_empty() && inside.most <= SLOTS, "{} at once", inside.most);
    assert_eq!((figure(pair, "open"), figure(pair, "begun")), (0, 8));
}
