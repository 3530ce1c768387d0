//! What may go wrong between two hosts: tokengen is down, a visitor has another address at each of them, keys
//! are rotated, a form must wait, the link is asked for its token.

use std::io;
use std::sync::{Arc, Mutex};

use super::harness::{Config, Gate, pause, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::roles::{Pair, location, pair, pair_of};
use super::visitor::{Visitor, is_wait};

/// Redirects that a visitor follows without being served.
const MAX_HOPS: usize = 5;

/// A visitor with the cookies of both hosts and an address at each of them.
struct Guest<'p> {
    pair: &'p Pair,
    at_generator: Visitor,
    at_check: Visitor,
    addresses: [&'static str; 2],
    keeps_cookies: bool,
    /// Where it was sent last.
    url: String,
}

impl<'p> Guest<'p> {
    fn new(pair: &'p Pair, target: &str) -> Self {
        let url = format!("http://{}{target}", pair.generator.http());
        let addresses = ["192.0.2.7", "192.0.2.7"];
        let (at_generator, at_check) = (Visitor::default(), Visitor::default());
        Self { pair, at_generator, at_check, addresses, keeps_cookies: true, url }
    }

    /// One request, with a form if there is one.
    fn asks(&mut self, form: Option<&str>) -> io::Result<Answer> {
        let hosts = [self.pair.generator.http(), self.pair.check.http()];
        let paths = hosts.map(|host| self.url.strip_prefix(&format!("http://{host}")).map(str::to_owned));
        let at = usize::from(paths[0].is_none());
        let path = paths[at].as_ref().unwrap_or_else(|| panic!("sent elsewhere: {}", self.url));
        let visitor = if at == 0 { &mut self.at_generator } else { &mut self.at_check };
        let fields = format!("{}X-Forwarded-For: {}\r\n", visitor.cookie_line(), self.addresses[at]);
        let mut client = Client::connect(hosts[at])?;
        let answer = match form {
            None => client.get(path, &fields)?,
            Some(body) => {
                client.send(format!(
                    "POST {path} HTTP/1.1\r\nHost: shop.example\r\nAccept: text/html\r\n{fields}\
                     Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ))?;
                client.answer("POST")?
            }
        };
        if self.keeps_cookies {
            visitor.keep(&answer);
        }
        Ok(answer)
    }

    /// Asks where it was sent last, and follows redirects without waiting.
    fn tries(&mut self, form: Option<&str>) -> Answer {
        for _ in 0..MAX_HOPS {
            let answer = self.asks(form).expect("an answer");
            let Some(target) = location(&answer) else { return answer };
            self.url = target.to_owned();
        }
        panic!("sent to and fro: {}", self.url);
    }

    /// Comes back until it need not wait.
    fn waits(&mut self, form: Option<&str>) -> Answer {
        wait_for("the turn", || Some(self.tries(form)).filter(|answer| !is_wait(answer)))
    }
}

fn is_welcome(answer: &Answer) -> bool {
    (answer.status(), answer.text().as_str()) == (200, "welcome")
}

/// The URL at tokencheck that tokengen told a visitor who waits.
fn check_url(answer: &Answer) -> String {
    answer.json()["check_url"].as_str().unwrap_or_else(|| panic!("no check_url: {answer:?}")).to_owned()
}

#[test]
fn a_ticket_suffices_at_tokencheck_while_tokengen_is_down() {
    let origin = Origin::answering("welcome");
    let Pair { generator, check } = pair(origin.address(), 2.0);
    let told: Vec<String> = (0..8)
        .filter_map(|i| {
            let answer = Visitor::default().ask_once(generator.http(), &format!("/shop/{i}?a=b")).unwrap();
            is_wait(&answer).then(|| check_url(&answer))
        })
        .collect();
    assert!(told.len() >= 4, "{told:?}");
    let base = format!("http://{}", check.http());
    drop(generator);
    // The last first: its turn is not now.
    for (i, url) in told.iter().enumerate().rev() {
        let path = url.strip_prefix(&base).expect("tokencheck's URL");
        // Every other one has a cookie of the origin's: when it has to wait, its ticket goes into a cookie.
        let mut visitor = Visitor::default();
        if i % 2 == told.len() % 2 {
            visitor.cookies.insert("theme".into(), "dark".into());
        }
        let plain = path.split("&tg=").next().expect("a path");
        let served = wait_for("the turn at tokencheck", || {
            let target = if visitor.ticket().is_some() { plain } else { path };
            let answer = visitor.ask_once(check.http(), target).ok()?;
            assert!(is_wait(&answer) || answer.status() == 200, "{answer:?}");
            assert!(
                !is_wait(&answer) || visitor.cookies.is_empty() || visitor.ticket().is_some(),
                "{answer:?}"
            );
            (!is_wait(&answer)).then_some(answer)
        });
        assert!(is_welcome(&served), "{served:?}");
        let again = Client::connect(check.http()).unwrap().get(path, "").unwrap();
        assert_eq!(location(&again).map(|to| to.contains("tg=")), Some(false), "used: {again:?}");
    }
    assert_eq!(origin.seen().len(), told.len());
    let heads = origin.seen();
    assert!(heads.iter().all(|head| head.second_word().ends_with("?a=b")), "the ticket is no one else's");
}

#[test]
fn a_visitor_with_another_address_at_each_host_gets_in() {
    let origin = Origin::answering("welcome");
    let behind = |config: Config| config.set("proxy.trusted", "[\"127.0.0.1\"]");
    let both = |binding: &str| {
        let set = |config: Config| behind(config).text("room.binding", binding);
        pair_of(set(Config::waiting(&[], 50.0)), set(Config::waiting(&[origin.address()], 50.0)))
    };
    let pair = both("cookie");
    for addresses in
        [["2001:db8::1", "192.0.2.1"], ["192.0.2.1", "2001:db8::1"], ["192.0.2.1", "198.51.100.1"]]
    {
        let mut guest = Guest { addresses, ..Guest::new(&pair, "/shop?a=b") };
        let answer = guest.waits(None);
        assert!(is_welcome(&answer), "{addresses:?}: {answer:?}");
        // Once, also by the URL that was bound to the cookie.
        assert!(!is_welcome(&guest.asks(None).unwrap()));
        // Whoever gets hold of the URL has no such cookie.
        let mut thief =
            Guest { addresses: ["203.0.113.1"; 2], url: guest.url.clone(), ..Guest::new(&pair, "") };
        let answer = thief.tries(None);
        assert_eq!(answer.status(), 403, "{answer:?}");
        // Without cookies it is told so, and not sent to and fro.
        let mut bare = Guest { addresses, keeps_cookies: false, ..Guest::new(&pair, "/shop") };
        assert_eq!(bare.waits(None).status(), 403);
    }
    assert_eq!(origin.seen().len(), 3);
    // Where the operator wants tickets bound to addresses, they are.
    let pair = both("ip-prefix");
    let mut guest = Guest { addresses: ["2001:db8::1", "192.0.2.1"], ..Guest::new(&pair, "/shop") };
    assert_eq!(guest.waits(None).status(), 403);
}

#[test]
fn a_stolen_ticket_is_not_bound_to_the_thief() {
    let origin = Origin::answering("welcome");
    let set = |config: Config| config.set("proxy.trusted", "[\"127.0.0.1\"]");
    let pair = pair_of(set(Config::waiting(&[], 50.0)), set(Config::waiting(&[origin.address()], 50.0)));
    let mut owner = Guest::new(&pair, "/shop");
    let sent_on = wait_for("the turn", || owner.asks(None).ok().filter(|answer| !is_wait(answer)));
    let url = location(&sent_on).expect("to tokencheck").to_owned();
    let mut thief = Guest { addresses: ["203.0.113.1"; 2], url: url.clone(), ..Guest::new(&pair, "") };
    assert_eq!(thief.tries(None).status(), 403);
    owner.url = url;
    assert!(is_welcome(&owner.waits(None)));
    assert_eq!(origin.seen().len(), 1);
}

const OLD: &str = "\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"";
const NEW: &str = "\"2:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f\"";

#[test]
fn keys_are_rotated_on_both_hosts_by_reload_and_nobody_is_lost() {
    let origin = Origin::answering("welcome");
    let mut pair = pair(origin.address(), 2.0);
    let reload = |gate: &mut Gate, keys: &[&str]| {
        gate.write_config(|config| config.set("room.keys", format!("[{}]", keys.join(", "))));
        let answer = gate.admin("POST", "/v1/reload", "");
        assert_eq!(answer.status(), 200, "{answer:?}");
    };
    // As docs/operation.md says: known to both, then signing, then alone.
    let steps: [(bool, &[&str]); 4] =
        [(true, &[OLD, NEW]), (false, &[OLD, NEW]), (true, &[NEW, OLD]), (false, &[NEW, OLD])];
    let mut visitors: Vec<Visitor> = Vec::new();
    let mut tickets = Vec::new();
    let mut served = 0;
    let (check, generator) = (pair.check.http(), pair.generator.http());
    let round = |visitors: &mut Vec<Visitor>, tickets: &mut Vec<Option<String>>| {
        let mut served = 0;
        for i in (0..visitors.len()).rev() {
            let answer = visitors[i].ask_once(generator, "/shop").unwrap();
            if is_wait(&answer) {
                let shown = visitors[i].ticket().map(|(_, ticket)| ticket.to_owned());
                assert!(tickets[i].is_none() || tickets[i] == shown, "it keeps its position");
                tickets[i] = shown;
                continue;
            }
            let to = location(&answer).unwrap_or_else(|| panic!("{answer:?}")).to_owned();
            let path = to.strip_prefix(&format!("http://{check}")).expect("tokencheck");
            let answer = Client::connect(check).unwrap().get(path, "").unwrap();
            assert!(is_welcome(&answer), "{answer:?}");
            visitors.swap_remove(i);
            tickets.swap_remove(i);
            served += 1;
        }
        served
    };
    let mut came = 0;
    for (is_generator, keys) in steps {
        // Somebody waits over every step: of three who come together some do, unless the machine is slow.
        loop {
            for _ in 0..3 {
                visitors.push(Visitor::default());
                tickets.push(None);
            }
            came += 3;
            served += round(&mut visitors, &mut tickets);
            if !visitors.is_empty() {
                break;
            }
            assert!(came < 300, "somebody waits over every step");
        }
        reload(if is_generator { &mut pair.generator } else { &mut pair.check }, keys);
        served += round(&mut visitors, &mut tickets);
    }
    wait_for("everybody to be served", || {
        served += round(&mut visitors, &mut tickets);
        visitors.is_empty().then_some(())
    });
    // Nobody holds a ticket of the old key any more.
    reload(&mut pair.generator, &[NEW]);
    reload(&mut pair.check, &[NEW]);
    visitors.push(Visitor::default());
    tickets.push(None);
    wait_for("a visitor of the new key", || {
        served += round(&mut visitors, &mut tickets);
        visitors.is_empty().then_some(())
    });
    assert_eq!((served, origin.seen().len()), (came + 1, came + 1));
}

#[test]
fn a_form_waits_for_a_session_at_both_hosts_and_is_sent_once_while_the_capacity_is_discovered() {
    let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = bodies.clone();
    let origin = Origin::start(move |exchange| {
        let (body, _) = exchange.body()?;
        let is_last = exchange.head.second_word().ends_with("/last");
        if is_last {
            return exchange.send("HTTP/1.1 200 OK\r\nTidegate-Session: end\r\nContent-Length: 3\r\n\r\nbye");
        }
        if !body.is_empty() {
            kept.lock().unwrap().push(String::from_utf8(body).unwrap());
        }
        exchange.ok("welcome")
    });
    let link = "the-token-of-the-link-alone";
    let generator = Config::waiting(&[], 1.0).text("capacity.estimator", "auto").set("capacity.rate", "0.0");
    let check = Config::waiting(&[origin.address()], 1.0).text("room.unit", "session").set("session.max", 1);
    let pair = pair_of(
        generator.text("listen.admin_token", "the-token-of-the-operator").text("tokengen.link_token", link),
        check.text("tokencheck.link_token", link),
    );
    let form = "name=ann+b&note=%26%3D";
    let mut first = Guest::new(&pair, "/shop");
    assert!(is_welcome(&first.waits(None)));
    let mut second = Guest::new(&pair, "/order");
    for _ in 0..50 {
        let answer = second.tries(Some(form));
        assert!(is_wait(&answer), "there is one slot: {answer:?}");
        let page = answer.text();
        assert!(
            page.contains("name=\"name\" value=\"ann b\"") && page.contains("value=\"&amp;=\""),
            "{page}"
        );
        // The session under way goes on, and its requests tell the estimator what the origin can take.
        first.url = format!("http://{}/shop", pair.check.http());
        assert!(is_welcome(&first.tries(None)));
        pause();
    }
    assert!(bodies.lock().unwrap().is_empty(), "the form was not sent yet");
    first.url = format!("http://{}/last", pair.check.http());
    assert_eq!(first.tries(None).text(), "bye");
    assert!(is_welcome(&second.waits(Some(form))));
    assert_eq!(*bodies.lock().unwrap(), [form]);
    // A further form of the session, straight to tokencheck.
    second.url = format!("http://{}/order", pair.check.http());
    assert!(is_welcome(&second.tries(Some("more=1"))));
    assert_eq!(bodies.lock().unwrap().len(), 2);
    wait_for("the discovered capacity at both hosts", || {
        let [there, here] = [&pair.generator, &pair.check].map(|gate| {
            let told = gate.admin("GET", "/v1/capacity", "").json();
            (told["role"].as_str().map(str::to_owned), told["rate"].as_f64())
        });
        assert_eq!((there.0.as_deref(), here.0.as_deref()), (Some("tokengen"), Some("tokencheck")));
        (there.1.is_some() && there.1 == here.1).then_some(())
    });
}

#[test]
fn the_token_of_the_link_opens_the_link_and_nothing_else() {
    let origin = Origin::answering("welcome");
    let (admin, link) = ("the-token-of-the-operator", "the-token-of-the-link-alone");
    let generator =
        Config::waiting(&[], 5.0).text("listen.admin_token", admin).text("tokengen.link_token", link);
    let check = Config::waiting(&[origin.address()], 5.0).text("tokencheck.link_token", admin);
    let mut pair = pair_of(generator, check);
    // The old set-up: tokencheck shows the admin token.
    wait_for("the reason in tokencheck's log", || {
        pair.check.log().contains("reports take tokengen.link_token").then_some(())
    });
    pair.check.write_config(|config| config.text("tokencheck.link_token", link));
    pair.check.crash_and_restart();
    pair.generator.set_rate(7.0);
    wait_for("the link", || {
        let told = pair.check.admin("GET", "/v1/capacity", "").json();
        (told["rate"].as_f64() == Some(7.0)).then_some(())
    });
    for (method, path) in
        [("GET", "/metrics"), ("GET", "/v1/state"), ("POST", "/v1/drain"), ("PUT", "/v1/capacity")]
    {
        let mut client = Client::connect(pair.generator.admin_address()).unwrap();
        client
            .send(format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {link}\r\n\
                 Content-Length: 0\r\n\r\n"
            ))
            .unwrap();
        let answer = client.answer(method).unwrap();
        assert_eq!(answer.status(), 403, "{method} {path}: {answer:?}");
    }
}
