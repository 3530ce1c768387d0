//! The cookie jar with the cookies that a gate and a service really set.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate_core::ticket::{Binding, BindingKinds, KeyRing, Pass, PassKind, Presenter, Ticket};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tidegate_gateway::config::ClassTag;
use tidegate_gateway::proxy::cookies::{Cookies, SetCookies};
use tidegate_http::{Fields, name, to_map};

use super::*;

const STATUS: &str = "/.tidegate/status?c=3";
const CLASS: ClassId = ClassId(3);
/// The names of its cookies.
const MARK: ClassTag = ClassTag(3);
const BOUND_TO: [u8; 16] = [0xfb; 16];
const KEEP: Duration = Duration::from_secs(60);

fn keys() -> KeyRing {
    let secret = [7; 32];
    KeyRing::parse(&KeyRing::entry(1, &secret)).expect("a key")
}

fn ticket(nonce: u64) -> Ticket {
    let issued = Timestamp::from_millis(1_800_000_000_000);
    let wait = Duration::from_secs(40);
    Ticket { class: CLASS, cost: Cost::from_hundredths(100), issued, wait, arrived: issued, nonce }
}

fn sealed(nonce: u64) -> String {
    keys().seal(&ticket(nonce), &Binding::Cookie(BOUND_TO)).as_str().to_owned()
}

fn pass() -> String {
    let issued = Timestamp::from_millis(1_800_000_000_000);
    let pass = Pass { kind: PassKind::Page, class: CLASS, issued, first: issued, nonce: 5 };
    keys().seal_pass(&pass, &Binding::Cookie(BOUND_TO)).as_str().to_owned()
}

fn set(values: &[HeaderValue]) -> HeaderMap {
    values.iter().map(|value| (header::SET_COOKIE, value.clone())).collect()
}

/// What the gate sets.
fn set_by_gate(set: impl FnOnce(&mut SetCookies)) -> HeaderMap {
    let (mut cookies, mut fields) = (SetCookies::default(), Fields::new());
    set(&mut cookies);
    cookies.add_to(&mut fields);
    to_map(&fields)
}

fn set_text(values: &[&str]) -> HeaderMap {
    let values: Vec<_> = values.iter().map(|v| HeaderValue::from_str(v).expect("value")).collect();
    set(&values)
}

fn waits(path: &str) -> Reading {
    let answer = Answer::Wait { has_status: true, after: None, refresh: None, poll: None, full: false };
    Reading { answer, status_path: Some(path.into()), redirect: None }
}

fn served() -> Reading {
    Reading { answer: Answer::Served, status_path: None, redirect: None }
}

/// The gate's first answer to a visitor without cookies: cookies, and the ticket in the URL.
fn first_answer() -> (HeaderMap, Reading) {
    let set = set_by_gate(|cookies| {
        cookies.binding(BOUND_TO, false);
        cookies.ticket(MARK, sealed(1).as_bytes(), KEEP, false);
    });
    (set, waits(&format!("{STATUS}&tg={}", url_ticket())))
}

fn url_ticket() -> String {
    keys().seal(&ticket(1), &Binding::IpPrefix(IpAddr::V4(Ipv4Addr::LOCALHOST))).as_str().to_owned()
}

fn waiting(names: &mut Names, keeps_cookies: bool) -> CookieJar {
    let mut jar = CookieJar::default();
    let (headers, reading) = first_answer();
    jar.absorb(names, RequestKind::Page, &headers, &reading, keeps_cookies);
    jar
}

fn shown(target: &str, cookies: Option<String>) -> Option<Shown> {
    Some(Shown { target: target.into(), cookies })
}

/// Whether the gate takes a `Cookie` field's ticket for its own.
fn opens(field: &str) -> bool {
    let mut fields = Fields::new();
    fields.append(name::COOKIE, field.as_bytes());
    let found = Cookies::read(&fields, MARK);
    let presenter = Presenter { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), cookie: found.binding };
    let text = found.ticket.expect("a ticket");
    keys().open(text.as_bytes(), &presenter, BindingKinds::COOKIE).is_ok()
}

#[test]
fn a_waiting_visitor_is_small() {
    let mut names = Names::default();
    let jar = waiting(&mut names, true);
    // Each entry: tag, name's number, length. The binding cookie stands for 16 bytes, the ticket for 45, the
    // status path for its number.
    assert_eq!(jar.heap_bytes(), (3 + 16) + (3 + Ticket::TEXT_LEN / 4 * 3) + 3);
    // As allocators round: 8 bytes of their own, then to a multiple of 16.
    let block = (jar.heap_bytes() + 8).next_multiple_of(16);
    let visitor = size_of::<crate::visitor::Visitor>() + size_of::<CookieJar>() + block;
    assert!(visitor <= 200, "{visitor} bytes");
    // With a slab's tag and a timer of 24 bytes: a million of them in a quarter of a gibibyte.
    assert!(visitor + 8 + 24 <= 256, "{visitor} bytes");
}

#[test]
fn a_visitor_with_cookies_shows_them_and_clean_paths() {
    let mut names = Names::default();
    let jar = waiting(&mut names, true);
    let cookies = jar.cookies(&names).expect("cookies");
    assert_eq!(cookies.len(), "tgid=; tg3=".len() + 22 + Ticket::TEXT_LEN);
    assert!(opens(&cookies), "{cookies}");
    assert_eq!(jar.show(&names, RequestKind::Page, "/buy", 0), shown("/buy", Some(cookies.clone())));
    assert_eq!(jar.show(&names, RequestKind::Status, "/buy", 0), shown(STATUS, Some(cookies)));
}

#[test]
fn a_visitor_without_cookies_shows_the_ticket_in_the_url() {
    let mut names = Names::default();
    let mut jar = waiting(&mut names, false);
    let ticket = url_ticket();
    let with = |path: &str| format!("{path}tg={ticket}");
    assert_eq!(jar.show(&names, RequestKind::Page, "/buy", 0), shown(&with("/buy?"), None));
    assert_eq!(jar.show(&names, RequestKind::Page, "/buy?n=1", 0), shown(&with("/buy?n=1&"), None));
    assert_eq!(jar.show(&names, RequestKind::Status, "/buy", 0), shown(&with(&format!("{STATUS}&")), None));
    let tampered = jar.show(&names, RequestKind::Tampered, "/buy", 61).expect("a ticket");
    assert_eq!((tampered.target.len(), &tampered.cookies), (with("/buy?").len(), &None));
    assert_ne!(tampered.target, with("/buy?"));
    // Once let in, the ticket is gone with the page that named it; a copy is kept for one attack.
    jar.keep_used(&names);
    jar.absorb(&mut names, RequestKind::Page, &HeaderMap::new(), &served(), false);
    assert_eq!(jar.show(&names, RequestKind::Page, "/buy", 0), shown("/buy", None));
    assert_eq!(jar.show(&names, RequestKind::Replayed, "/buy", 0), shown(&with("/buy?"), None));
    jar.absorb(&mut names, RequestKind::Replayed, &HeaderMap::new(), &waits(STATUS), false);
    assert_eq!(jar, CookieJar::default());
    assert_eq!(jar.show(&names, RequestKind::Replayed, "/buy", 0), None);
}

#[test]
fn every_altered_ticket_differs_in_one_character_and_is_refused() {
    let mut names = Names::default();
    let jar = waiting(&mut names, true);
    let genuine = jar.cookies(&names).expect("cookies");
    for alter in 0..200 {
        let tampered = jar.tampered(&names, alter).expect("a ticket");
        let differ = tampered.bytes().zip(genuine.bytes()).filter(|(a, b)| a != b).count();
        assert_eq!((tampered.len(), differ), (genuine.len(), 1), "{alter}");
        assert!(!opens(&tampered), "{alter}");
    }
    assert!(opens(&genuine));
    // A pass would let the attacker in.
    let set = set_by_gate(|cookies| cookies.pass(pass().as_bytes(), KEEP, false));
    let mut jar = jar;
    jar.absorb(&mut names, RequestKind::Status, &set, &served(), true);
    assert!(jar.cookies(&names).is_some_and(|field| field.contains("tgp=")));
    assert!(jar.tampered(&names, 7).is_some_and(|field| !field.contains("tgp=")));
}

#[test]
fn the_answer_to_an_attack_leaves_no_trace() {
    let mut names = Names::default();
    let mut jar = waiting(&mut names, true);
    let before = jar.clone();
    // The gate removes a forged cookie.
    let headers = set_by_gate(|cookies| cookies.clear_ticket(MARK, false));
    jar.absorb(&mut names, RequestKind::Tampered, &headers, &waits("/elsewhere"), true);
    assert_eq!(jar, before);
}

#[test]
fn a_used_ticket_is_shown_without_the_pass_it_brought() {
    let mut names = Names::default();
    let mut jar = waiting(&mut names, true);
    jar.absorb(&mut names, RequestKind::Page, &set_text(&["basket=7"]), &waits(STATUS), true);
    let before = jar.cookies(&names).expect("cookies");
    assert_eq!(jar.show(&names, RequestKind::Replayed, "/buy", 0), None, "not used yet");
    jar.keep_used(&names);
    let entry = set_by_gate(|cookies| {
        cookies.clear_ticket(MARK, false);
        cookies.pass(pass().as_bytes(), KEEP, false);
    });
    jar.absorb(&mut names, RequestKind::Page, &entry, &served(), true);
    assert!(opens(&before), "{before}");
    let after = jar.cookies(&names).expect("cookies");
    assert!(after.contains(&format!("tgp={}", pass())) && !after.contains("tg3="), "{after}");
    assert_eq!(jar.status_path(&names), None);
    assert_eq!(jar.tampered(&names, 0), None, "a pass is no ticket");
    assert_eq!(jar.show(&names, RequestKind::Tampered, "/buy", 0), None);
    let replay = jar.show(&names, RequestKind::Replayed, "/buy", 0).expect("a used ticket");
    let used = replay.cookies.expect("cookies");
    assert!(opens(&used) && used.contains("basket=7") && !used.contains("tgp="), "{used}");
    jar.absorb(&mut names, RequestKind::Replayed, &entry, &waits(STATUS), true);
    assert_eq!(jar.cookies(&names), Some(after));
    assert_eq!(jar.used(&names), None);
}

#[test]
fn cookies_come_and_go() {
    let mut names = Names::default();
    let mut jar = CookieJar::default();
    assert_eq!(jar.cookies(&names), None);
    for (set, field) in [
        ("tg1=1; Path=/; HttpOnly", Some("tg1=1")),
        ("nonce=a=b", Some("tg1=1; nonce=a=b")),
        ("tg1=2; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", Some("nonce=a=b; tg1=2")),
        ("no pair", Some("nonce=a=b; tg1=2")),
        ("=nameless", Some("nonce=a=b; tg1=2")),
        ("empty=", Some("nonce=a=b; tg1=2; empty=")),
        ("empty=x; expires=Thu, 01-Jan-70 00:00:00 GMT", Some("nonce=a=b; tg1=2; empty=x")),
        ("empty=x; expires=Thu, 01 Jan 1970 00:00:00 GMT", Some("nonce=a=b; tg1=2")),
        ("nonce=; Max-Age=-1", Some("tg1=2")),
        ("tg1=x; max-age=0; Path=/", None),
    ] {
        jar.absorb(&mut names, RequestKind::Status, &set_text(&[set]), &served(), true);
        assert_eq!(jar.cookies(&names).as_deref(), field, "after {set}");
    }
    let mut dated = set_text(&["a=1", "b=2; Expires=Sun, 06 Nov 1994 08:49:37 GMT"]);
    let date = HeaderName::from_static("date");
    dated.insert(date.clone(), HeaderValue::from_static("Sun, 06 Nov 1994 08:49:36 GMT"));
    jar.absorb(&mut names, RequestKind::Page, &dated, &served(), true);
    assert_eq!(jar.cookies(&names).as_deref(), Some("a=1; b=2"), "a second left");
    dated.insert(date, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    jar.absorb(&mut names, RequestKind::Page, &dated, &served(), true);
    assert_eq!(jar.cookies(&names).as_deref(), Some("a=1"), "over");
    jar.absorb(&mut names, RequestKind::Page, &set_text(&["c=3"]), &served(), false);
    assert_eq!(jar.cookies(&names).as_deref(), Some("a=1"), "who keeps no cookies takes none");
}

#[test]
fn cookies_beyond_the_bound_are_not_kept() {
    let mut names = Names::default();
    let mut jar = CookieJar::default();
    jar.absorb(&mut names, RequestKind::Page, &set_text(&["a=1"]), &served(), true);
    let large = format!("b={}", "x".repeat(MAX_COOKIES));
    jar.absorb(&mut names, RequestKind::Page, &set_text(&[&large]), &served(), true);
    assert_eq!(jar.cookies(&names).as_deref(), Some("a=1"));
    for n in 0..1000 {
        jar.absorb(&mut names, RequestKind::Page, &set_text(&[&format!("c{n}=1")]), &served(), true);
    }
    let field = jar.cookies(&names).expect("cookies");
    assert!(field.len() <= MAX_COOKIES, "{} bytes", field.len());
    assert!(field.starts_with("a=1; c0=1; c1=1"), "{field}");
}

#[test]
fn a_target_that_makes_up_names_for_everybody() {
    let mut names = Names::default();
    let mut visitors = Vec::new();
    for n in 0..600 {
        let mut jar = CookieJar::default();
        let reading = waits(&format!("/status/{n}"));
        jar.absorb(&mut names, RequestKind::Page, &set_text(&[&format!("id{n}=x{n}")]), &reading, true);
        visitors.push(jar);
    }
    for (n, jar) in visitors.iter().enumerate() {
        let expected = shown(&format!("/status/{n}"), Some(format!("id{n}=x{n}")));
        assert_eq!(jar.show(&names, RequestKind::Status, "/", 0), expected);
    }
}

#[test]
fn tickets_in_paths() {
    for (target, path, ticket) in [
        ("/s", "/s", None),
        ("/s?c=1", "/s?c=1", None),
        ("/s?tg=a", "/s", Some("a")),
        ("/s?c=1&tg=a", "/s?c=1", Some("a")),
        ("/s?tg=a&c=1&d", "/s?c=1&d", Some("a")),
        ("/s?tgx=a&c=1", "/s?tgx=a&c=1", None),
        ("/s?tg", "/s?tg", None),
        ("/s?tg=", "/s", Some("")),
    ] {
        assert_eq!(without_ticket(target), (path.into(), ticket), "{target}");
    }
}

proptest::proptest! {
    /// Against a jar that is a list of strings.
    #[test]
    fn packed_or_not_cookies_come_back_as_they_were(
        sets in proptest::collection::vec(("[a-c]{1,2}", "[!-:<-~]{0,12}", proptest::bool::weighted(0.2)), 0..20),
        crowded: bool,
    ) {
        let mut names = Names::default();
        if crowded {
            (0..300).for_each(|n| _ = names.intern_cookie(&n.to_string()));
        }
        let mut jar = CookieJar::default();
        let mut expected: Vec<(String, String)> = Vec::new();
        for (name, value, removed) in sets {
            expected.retain(|(other, _)| *other != name);
            let age = if removed { "; Max-Age=0" } else { "" };
            let set = set_text(&[&format!("{name}={value}{age}")]);
            jar.absorb(&mut names, RequestKind::Page, &set, &waits(STATUS), true);
            if !removed {
                expected.push((name, value));
            }
        }
        let field = expected.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("; ");
        proptest::prop_assert_eq!(jar.cookies(&names).unwrap_or_default(), field);
    }
}
