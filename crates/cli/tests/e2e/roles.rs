//! The two-process form (WebQ III-B): tokengen gives turns, tokencheck admits, and they share only the keys.

use std::net::SocketAddr;
use std::process::Output;

use super::certificates::Authority;
use super::harness::{Config, Gate, free_address, tidegate, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::visitor::{Visitor, is_wait};

const TOKEN: &str = "0123456789abcdef-operator";
const LINK_TOKEN: &str = "0123456789abcdef-link";
const KEY: &str = "[\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]";

pub struct Pair {
    pub generator: Gate,
    pub check: Gate,
}

/// Both processes, as two hosts would run them.
pub fn pair(origin: SocketAddr, rate: f64) -> Pair {
    pair_with(origin, rate, |config| config)
}

/// As [`pair`], with further keys for tokencheck.
pub fn pair_with(origin: SocketAddr, rate: f64, more: impl Fn(Config) -> Config) -> Pair {
    // Tokengen forwards nothing and needs no origin.
    pair_of(Config::waiting(&[], rate), more(Config::waiting(&[origin], rate)))
}

/// Starts both processes with these configurations, to which the keys of their roles are added.
pub fn pair_of(generator: Config, check: Config) -> Pair {
    let (check_http, generator_http, generator_admin) = (free_address(), free_address(), free_address());
    let generator = Gate::start(
        generator
            .text("listen.http", generator_http)
            .text("listen.admin", generator_admin)
            .text("role", "tokengen")
            .text("tokengen.check_url", format!("http://{check_http}"))
            .set("room.keys", KEY),
    );
    let check = Gate::start(
        check
            .text("listen.http", check_http)
            .text("role", "tokencheck")
            .text("tokencheck.gen_url", format!("http://{generator_http}"))
            .text("tokencheck.feedback_url", format!("http://{generator_admin}"))
            .set("room.keys", KEY),
    );
    Pair { generator, check }
}

pub fn location(answer: &Answer) -> Option<&str> {
    matches!(answer.status(), 302 | 303 | 307).then(|| answer.head.field("location"))?
}

/// Follows redirects between the two hosts, as a browser would; cookies go to the host that set them.
fn follow(pair: &Pair, visitor: &mut Visitor, mut answer: Answer) -> Answer {
    for _ in 0..5 {
        let Some(target) = location(&answer).map(str::to_owned) else { return answer };
        let check = format!("http://{}", pair.check.http());
        let generator = format!("http://{}", pair.generator.http());
        answer = if let Some(path) = target.strip_prefix(&check) {
            // No cookies of the other host: the ticket travels in the URL.
            Client::connect(pair.check.http()).unwrap().get(path, "").unwrap()
        } else if let Some(path) = target.strip_prefix(&generator) {
            visitor.ask_once(pair.generator.http(), path).unwrap()
        } else {
            panic!("redirected elsewhere: {target}");
        };
    }
    answer
}

#[test]
fn a_visitor_passes_from_tokengen_to_tokencheck() {
    let origin = Origin::answering("welcome");
    let pair = pair(origin.address(), 2.0);
    for i in 0..6 {
        let mut visitor = Visitor::default();
        let answer = wait_for("the turn", || {
            let answer = visitor.ask_once(pair.generator.http(), &format!("/shop/{i}?colour=red")).ok()?;
            (!is_wait(&answer)).then_some(answer)
        });
        let url = location(&answer).expect("a redirect to tokencheck").to_owned();
        let answer = follow(&pair, &mut visitor, answer);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "welcome"));
        let heads = origin.seen();
        assert_eq!(
            heads.last().unwrap().second_word(),
            format!("/shop/{i}?colour=red"),
            "no ticket in the URL"
        );

        // The same URL again: redeemed exactly once.
        let path = url.strip_prefix(&format!("http://{}", pair.check.http())).unwrap();
        let again = Client::connect(pair.check.http()).unwrap().get(path, "").unwrap();
        assert_ne!(again.status(), 200, "{again:?}");
    }
    assert_eq!(origin.seen().len(), 6);
}

/// `tidegate ctl state` of the gate with this admin address.
fn state_by_tls(at: SocketAddr, authority: &Authority) -> Output {
    let url = format!("https://localhost:{}", at.port());
    let mut ctl = tidegate();
    ctl.args(["ctl", "--url", &url, "--json", "--ca"]).arg(authority.ca()).args(["--token", TOKEN, "state"]);
    ctl.output().expect("tidegate ctl")
}

#[test]
fn the_link_and_the_operator_speak_tls_with_tokengen() {
    let origin = Origin::answering("welcome");
    let authority = Authority::new();
    let signed = authority.sign("gen", &["localhost"]);
    let (check_http, generator_http, admin) = (free_address(), free_address(), free_address());
    let generator = Gate::start(
        Config::waiting(&[], 20.0)
            .text("listen.http", generator_http)
            .text("listen.admin", admin)
            .text("listen.admin_token", TOKEN)
            .set("listen.admin_https", "true")
            .text("role", "tokengen")
            .text("tokengen.check_url", format!("http://{check_http}"))
            .text("tokengen.link_token", LINK_TOKEN)
            .set("room.keys", KEY)
            .section(&signed.section()),
    );
    assert!(generator.try_admin("GET", "/readyz", "").is_err(), "nothing but TLS");
    let check = Gate::start(
        Config::waiting(&[origin.address()], 20.0)
            .text("listen.http", check_http)
            .text("role", "tokencheck")
            .text("tokencheck.gen_url", format!("http://{generator_http}"))
            .text("tokencheck.feedback_url", format!("https://localhost:{}", admin.port()))
            .text("tokencheck.link_token", LINK_TOKEN)
            .text("tls.ca", authority.ca().display())
            .set("room.keys", KEY),
    );
    // The operator changes the capacity at tokengen. Tokencheck learns of it by the link and nothing else.
    let mut ctl = tidegate();
    ctl.args(["ctl", "--token", TOKEN, "capacity", "35"]);
    ctl.env("TIDEGATE_URL", format!("https://localhost:{}", admin.port())).env("TIDEGATE_CA", authority.ca());
    let output = ctl.output().expect("tidegate ctl");
    assert!(output.status.success(), "{output:?}");
    wait_for("the capacity at tokencheck", || {
        let state = check.admin("GET", "/v1/state", "").json();
        (state["capacity"]["rate"] == 35.0).then_some(())
    });
    assert!(!check.log().contains("cannot be reached"), "{}", check.log());
    let state = state_by_tls(admin, &authority);
    assert!(state.status.success(), "{state:?}");
    // Another authority's word is not believed.
    let other = state_by_tls(admin, &Authority::new());
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("invalid peer certificate"), "{other:?}");
}

#[test]
fn a_visitor_without_a_ticket_is_sent_from_tokencheck_to_tokengen() {
    let origin = Origin::answering("welcome");
    let pair = pair(origin.address(), 100.0);
    let answer = Client::connect(pair.check.http()).unwrap().get("/shop?colour=red", "").unwrap();
    let target = location(&answer).unwrap_or_else(|| panic!("no redirect: {answer:?}"));
    assert!(target.starts_with(&format!("http://{}/", pair.generator.http())), "{target}");
    let answer = follow(&pair, &mut Visitor::default(), answer.clone());
    assert_eq!((answer.status(), answer.text().as_str()), (200, "welcome"));
}
