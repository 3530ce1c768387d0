//! Where requests are admitted: the parts of a page are served for as long as the page is used.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::admission::PAGE_PARTS_SETTLE;
use tidegate_core::ticket::{Binding, KeyRing, Pass, PassKind};
use tidegate_core::units::{ClassId, Timestamp};

use crate::whole::harness::{Gate, Origin, ask, cookies, until};

const KEY: &str = "1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

const REQUESTS: &str = r#"
[origin]
replicas = ["ORIGIN"]
[proxy]
trusted = ["127.0.0.1/32"]
[capacity]
estimator = "fixed"
rate = 4
[room]
unit = "request"
binding = "none"
keys = "1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
"#;

const PAGE: &str = "Accept: text/html\r\nUser-Agent: old\r\n";
const IMAGE: &str = "Sec-Fetch-Dest: image\r\nUser-Agent: old\r\n";
/// As browsers send it that know nothing of `Sec-Fetch-*`.
const OLD_IMAGE: &str = "Accept: image/*\r\nReferer: http://shop.example/\r\nUser-Agent: old\r\n";

fn get(gate: &Gate, address: &str, fields: &str, cookies: &str) -> String {
    let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\n{fields}{cookies}");
    ask(gate.http, &format!("GET / HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"))
}

fn is_served(answer: &str) -> bool {
    answer.ends_with("served")
}

fn has_pass(answer: &str) -> bool {
    answer.contains("set-cookie: tgp=")
}

#[test]
fn pages_of_before_a_crowd_have_their_parts_when_it_comes() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, REQUESTS);
    let page = get(&gate, "192.0.2.1", PAGE, "");
    assert!(is_served(&page) && has_pass(&page), "{page}");
    assert!(page.to_ascii_lowercase().contains("cache-control: private"), "{page}");
    let with_cookies = cookies(&page);
    let next = get(&gate, "192.0.2.1", PAGE, &with_cookies);
    assert!(is_served(&next) && !next.contains("set-cookie"), "a cache in front may keep it: {next}");
    // Programs get no cookies, and other browsers have none of this one's.
    assert!(!get(&gate, "192.0.2.9", "Accept: */*\r\n", "").contains("set-cookie"));
    let old = get(&gate, "192.0.2.3", PAGE, "");
    assert!(is_served(&old), "{old}");
    // A crowd, for longer than parts pass without a pass. Each visitor has an address of its own.
    let mut visitors = 0;
    let mut visit = |fields: &str| {
        visitors += 1;
        get(&gate, &format!("198.51.{}.{}", visitors / 250, 1 + visitors % 250), fields, "")
    };
    // It asks for pages: of a flood of parts the gate refuses some before that.
    let shared = gate.server().shared();
    let is_settled = || {
        let since = Timestamp::from_micros(shared.busy_since_us.load(Ordering::Relaxed));
        since != Timestamp::default() && shared.clock.now().since(since) > PAGE_PARTS_SETTLE
    };
    until(|| visit(PAGE), |_| is_settled());
    let refused = visit(IMAGE);
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    for _ in 0..10 {
        let part = get(&gate, "192.0.2.1", IMAGE, &with_cookies);
        assert!(is_served(&part) && !part.contains("set-cookie"), "{part}");
        let part = get(&gate, "192.0.2.1", OLD_IMAGE, &with_cookies);
        assert!(is_served(&part), "without Sec-Fetch-*: {part}");
        let part = get(&gate, "192.0.2.3", OLD_IMAGE, "");
        assert!(is_served(&part), "without cookies: {part}");
    }
    for (address, fields) in [
        ("192.0.2.1", PAGE),
        ("192.0.2.4", OLD_IMAGE),
        ("192.0.2.3", "Accept: image/*\r\nReferer: http://shop.example/\r\nUser-Agent: new\r\n"),
        ("192.0.2.3", "Accept: image/*\r\nReferer: http://other.example/\r\nUser-Agent: old\r\n"),
    ] {
        let answer = get(&gate, address, fields, "");
        assert!(!is_served(&answer), "{address} {fields}: {answer}");
    }
}

#[test]
fn a_part_renews_the_pass_of_its_page_once_in_a_while() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, REQUESTS);
    let now = gate.server().shared().clock.now();
    let keys = KeyRing::parse(KEY).unwrap();
    for (minutes, renews) in [(1, false), (3, true), (9, true), (11, false)] {
        let issued = now.saturating_sub(Duration::from_secs(60 * minutes));
        let pass = Pass { kind: PassKind::Page, class: ClassId(0), issued, first: issued, nonce: 7 };
        let shown = format!("tgp={}", keys.seal_pass(&pass, &Binding::None).as_str());
        let part = get(&gate, "192.0.2.1", IMAGE, &shown);
        assert!(is_served(&part), "{part}");
        assert_eq!(has_pass(&part), renews, "after {minutes} minutes: {part}");
        if renews {
            let text = cookies(&part);
            let text = text.strip_prefix("tgp=").expect("a pass");
            let presenter = tidegate_core::ticket::Presenter { ip: [192, 0, 2, 1].into(), cookie: None };
            let kinds = gate.server().shared().config.load().bindings;
            let renewed = keys.open_pass(text.as_bytes(), &presenter, kinds).unwrap();
            assert_eq!((renewed.nonce, renewed.first.as_millis()), (7, issued.as_millis()));
            assert!(renewed.issued >= now.saturating_sub(Duration::from_secs(1)));
        }
    }
}
