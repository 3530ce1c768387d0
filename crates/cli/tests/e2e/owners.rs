//! Two tokenchecks behind one tokengen: whichever of them a ticket is shown to, also both at the same
//! instant, it lets its visitor in once, with tokengen down and with one of them killed.

use std::sync::Barrier;

use super::harness::{Config, Gate, free_address, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::roles::location;
use super::visitor::{Visitor, is_wait};

const KEY: &str = "[\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]";
const LINK: &str = "the-token-of-the-link-alone";
/// Requests with the same ticket to each tokencheck at the same instant.
const AT_ONCE: usize = 2;

struct Site {
    generator: Gate,
    checks: Vec<Gate>,
    origin: Origin,
}

impl Site {
    fn start(rate: f64) -> Self {
        let origin = Origin::answering("welcome");
        let [generator, generator_admin] = [free_address(), free_address()];
        let listeners = [[free_address(), free_address()], [free_address(), free_address()]];
        let config = Config::waiting(&[], rate)
            .text("listen.http", generator)
            .text("listen.admin", generator_admin)
            .text("listen.admin_token", "the-token-of-the-operator")
            .text("role", "tokengen")
            .text("tokengen.check_url", format!("http://{}", listeners[0][0]))
            .text("tokengen.link_token", LINK)
            .set("room.keys", KEY);
        let peers = listeners.map(|[_, admin]| format!("\"http://{admin}\"")).join(", ");
        let check = |number: usize| {
            let [http, admin] = listeners[number - 1];
            let config = Config::waiting(&[origin.address()], rate)
                .text("listen.http", http)
                .text("listen.admin", admin)
                .text("listen.admin_token", "the-token-of-the-operator")
                .text("role", "tokencheck")
                .text("tokencheck.gen_url", format!("http://{generator}"))
                .text("tokencheck.feedback_url", format!("http://{generator_admin}"))
                .text("tokencheck.link_token", LINK)
                .set("tokencheck.peers", format!("[{peers}]"))
                .set("tokencheck.number", number)
                // There is one clock.
                .text("room.tolerance", "0s")
                .set("room.keys", KEY);
            Gate::start(config)
        };
        let checks = vec![check(1), check(2)];
        Self { generator: Gate::start(config), checks, origin }
    }

    /// What visitors show at a tokencheck: path and query with the ticket. Some wait, others are sent on.
    fn tickets(&self, name: &str, count: usize) -> Vec<String> {
        let base = format!("http://{}", self.checks[0].http());
        (0..count)
            .map(|i| {
                let path = format!("/{name}/{i}");
                let answer = Visitor::default().ask_once(self.generator.http(), &path).expect("an answer");
                let url = match location(&answer) {
                    Some(url) => url.to_owned(),
                    None => answer.json()["check_url"].as_str().expect("a check_url").to_owned(),
                };
                url.strip_prefix(&base).expect("a tokencheck's URL").to_owned()
            })
            .collect()
    }

    fn show(&self, check: usize, ticket: &str) -> Answer {
        Client::connect(self.checks[check].http()).unwrap().get(ticket, "").unwrap()
    }

    /// Shows the ticket to both at the same instant, several times. Returns how many were let in.
    fn show_to_both(&self, ticket: &str) -> usize {
        let start = Barrier::new(2 * AT_ONCE);
        let shows = |check: usize| {
            let mut client = Client::connect(self.checks[check].http()).unwrap();
            start.wait();
            let answer = client.get(ticket, "").unwrap();
            let to_tokengen = location(&answer).is_some_and(|to| !to.contains("tg="));
            assert!(is_served(&answer) || is_wait(&answer) || to_tokengen, "{answer:?}");
            is_served(&answer)
        };
        std::thread::scope(|scope| {
            let shows = &shows;
            let shown: Vec<_> = (0..2 * AT_ONCE).map(|i| scope.spawn(move || shows(i % 2))).collect();
            shown.into_iter().map(|shown| shown.join().unwrap()).filter(|is_in| *is_in).count()
        })
    }

    /// Every ticket lets one visitor in, and none after that.
    fn each_once(&self, tickets: &[String]) {
        for ticket in tickets {
            let entered = wait_for(format!("the turn of {ticket}"), || {
                Some(self.show_to_both(ticket)).filter(|entered| *entered > 0)
            });
            assert_eq!(entered + self.show_to_both(ticket), 1, "{ticket}");
        }
        self.saw_once(tickets);
    }

    /// The origin has seen every one of them once.
    fn saw_once(&self, tickets: &[String]) {
        let heads = self.origin.seen();
        for ticket in tickets {
            let path = ticket.split(['?', '&']).next().expect("a path");
            let seen = heads.iter().filter(|head| head.second_word() == path).count();
            assert_eq!(seen, 1, "{path}");
        }
    }
}

fn is_served(answer: &Answer) -> bool {
    (answer.status(), answer.text().as_str()) == (200, "welcome")
}

#[test]
fn a_ticket_shown_to_two_tokenchecks_at_the_same_instant_lets_one_visitor_in() {
    let site = Site::start(100.0);
    site.each_once(&site.tickets("shop", 60));
}

#[test]
fn so_it_does_while_tokengen_is_down() {
    let mut site = Site::start(5.0);
    let tickets = site.tickets("shop", 24);
    site.generator.kill();
    site.each_once(&tickets);
}

#[test]
fn tickets_of_a_tokencheck_that_was_killed_wait_for_it_and_stay_used() {
    let mut site = Site::start(100.0);
    let used = site.tickets("used", 24);
    for (i, ticket) in used.iter().enumerate() {
        wait_for("the turn", || is_served(&site.show(i % 2, ticket)).then_some(()));
    }
    let tickets = site.tickets("new", 24);
    site.checks[1].kill();
    // The other one lets in those whose tickets it owns, and nobody else.
    let mut waiting = Vec::new();
    for ticket in &tickets {
        let answer = wait_for("tokencheck 1 to know", || {
            let answer = site.show(0, ticket);
            assert!(is_served(&answer) || is_wait(&answer), "{answer:?}");
            let knows = is_served(&answer) || site.checks[0].log().contains("tokencheck does not answer");
            knows.then_some(answer)
        });
        if is_wait(&answer) {
            waiting.push(ticket.clone());
        }
    }
    assert!(!waiting.is_empty() && waiting.len() < tickets.len(), "{} wait", waiting.len());
    for ticket in &used {
        assert!(!is_served(&site.show(0, ticket)), "{ticket}");
    }
    site.checks[1].restart();
    for ticket in &waiting {
        wait_for("its owner", || is_served(&site.show(0, ticket)).then_some(()));
    }
    for ticket in used.iter().chain(&tickets) {
        assert_eq!(site.show_to_both(ticket), 0, "{ticket}");
    }
    site.saw_once(&used);
    site.saw_once(&tickets);
}

#[test]
fn claims_take_the_token_of_the_link_and_lists_that_agree() {
    let site = Site::start(100.0);
    let ask = |token: &str, count: usize| {
        let body =
            format!("{{\"count\": {count}, \"to\": 1, \"from\": 2, \"claims\": [], \"releases\": []}}");
        let mut client = Client::connect(site.checks[0].admin_address()).unwrap();
        client
            .send(format!(
                "POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .unwrap();
        client.answer("POST").unwrap()
    };
    assert_eq!(ask(LINK, 2).status(), 200);
    assert_eq!(ask("the-token-of-the-operator", 2).status(), 403);
    let refused = ask(LINK, 3);
    assert_eq!(refused.status(), 400);
    assert!(refused.text().contains("tokencheck 1 of 2") && refused.text().contains("1 of 3"), "{refused:?}");
}
