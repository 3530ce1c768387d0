//! How sessions end, and that their slots are free at once.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tidegate_core::classify::Paths;
use tidegate_core::policies::{Action, Policy};

use super::{
    ONE_SLOT, all_ended_idle, before, change, is_refused, is_served, open, shop, state, visit, with,
};
use crate::whole::harness::{Gate, Origin, connect, cookies, until};
use crate::whole::policies::{order, publish};

#[test]
fn the_origin_ends_a_session_and_the_next_one_begins() {
    for key in ["key = \"pass\"", "key = \"cookie\"\ncookie = \"JSESSIONID\""] {
        let shop = shop();
        let gate = before(&shop, &format!("{ONE_SLOT}{key}\n"));
        let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
        let logout = visit(&gate, "/logout", "192.0.2.1", &who);
        assert!(is_served(&logout) && !logout.to_ascii_lowercase().contains("tidegate-session"), "{logout}");
        assert_eq!((open(&gate), &state(&gate)["ended"]["origin"]), (0, &Value::from(1)));
        let next = visit(&gate, "/", "192.0.2.2", "");
        assert!(is_served(&next), "the slot was not free at once: {next}");
        assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &who)), "{key}: what was ended is void");
        assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &with(&who, &logout))));
    }
}

#[test]
fn an_answer_may_end_the_session_that_its_request_began() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    let only = visit(&gate, "/logout", "192.0.2.1", "");
    assert!(is_served(&only), "{only}");
    assert_eq!(open(&gate), 0);
    assert!(is_served(&visit(&gate, "/", "192.0.2.2", "")));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &cookies(&only))));
}

#[test]
fn the_session_header_of_the_origin_is_not_forwarded() {
    let shop = shop();
    for unit in ["\"session\"", "\"request\""] {
        let gate = before(&shop, &ONE_SLOT.replace("\"session\"", unit));
        let answer = visit(&gate, "/logout", "192.0.2.1", "");
        assert!(is_served(&answer) && !answer.contains("tidegate-session"), "{unit}: {answer}");
    }
}

#[test]
fn the_operator_ends_sessions_and_the_audit_records_it() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    let key = gate.admin("/v1/sessions")["sessions"][0]["key"].as_str().unwrap().to_owned();
    let one = format!("/v1/sessions/{key}");
    assert!(change(&gate, "DELETE", &one).ends_with("{\"ended\":1}\n"));
    assert!(change(&gate, "DELETE", &one).starts_with("HTTP/1.1 404"), "it has ended already");
    for bad in ["", "x", "+1", &"0".repeat(33)] {
        assert!(change(&gate, "DELETE", &format!("/v1/sessions/{bad}")).starts_with("HTTP/1.1 404"), "{bad}");
    }
    assert_eq!(open(&gate), 0);
    let second = cookies(&visit(&gate, "/", "192.0.2.2", ""));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &who)), "a void pass was accepted");
    assert!(change(&gate, "DELETE", "/v1/sessions").ends_with("{\"ended\":1}\n"));
    // The slot is free. The void pass counts as none: it begins another session.
    let back = visit(&gate, "/", "192.0.2.1", &who);
    assert!(is_served(&back) && back.contains("tgp="), "{back}");
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", &second)));
    assert!(
        is_refused(&visit(&gate, "/", "192.0.2.1", &who)),
        "the old pass is not valid for the new session"
    );
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &with(&who, &back))));
    let audit = gate.admin("/v1/audit")["changes"].to_string();
    assert!(audit.contains("\"end-sessions\"") && audit.contains(&format!("session.{key}")), "{audit}");
}

#[test]
fn a_session_whose_first_request_failed_holds_no_slot() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gate = Gate::before(closed, &format!("{ONE_SLOT}[origin.eject]\nfailures = 0\n"), |_| Vec::new());
    for _ in 0..3 {
        let answer = visit(&gate, "/", "192.0.2.1", "");
        assert!(answer.starts_with("HTTP/1.1 502") && !answer.contains("tgp="), "{answer}");
        assert_eq!(open(&gate), 0);
    }
    assert_eq!(state(&gate)["ended"]["void"], 3);
}

#[test]
fn a_visitor_that_leaves_before_it_has_a_pass_frees_the_slot() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, ONE_SLOT);
    let mut hasty = connect(gate.http);
    hasty.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
    assert_eq!(open(&gate), 1);
    drop(hasty);
    // An answer that comes before the gate has seen this is one that the visitor got.
    let connections = || gate.server().shared().connections.load(Ordering::Relaxed).to_string();
    until(connections, |count| count == "0");
    // The origin works for it until it has answered.
    origin.release();
    until(|| open(&gate).to_string(), |open| open == "0");
    assert!(is_served(&visit(&gate, "/", "192.0.2.2", "")));
}

#[test]
fn a_session_ends_when_idle_and_lives_while_requests_come() {
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}timeout = \"1s\"\n"));
    let mut who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    // For three times its timeout: its requests keep it alive.
    let now = || gate.server().shared().clock.now();
    let begun = now();
    let mut asked = begun;
    while now().since(begun).as_millis() < 3_000 {
        let before = std::mem::replace(&mut asked, now());
        let answer = visit(&gate, "/", "192.0.2.1", &who);
        if now().since(before).as_millis() >= 1_000 {
            return eprintln!(
                "the machine stood still for as long as a session lasts: nothing is said of it"
            );
        }
        assert!(is_served(&answer), "ended although it was not idle for a second: {answer}");
        who = with(&who, &answer);
    }
    let other = visit(&gate, "/", "192.0.2.2", "");
    assert!(is_refused(&other) || now().since(asked).as_millis() >= 1_000, "{other}");
    until(|| visit(&gate, "/", "192.0.2.2", ""), is_served);
    all_ended_idle(&gate, 2);
}

#[test]
fn a_shared_answer_ends_the_session_of_everybody_who_gets_it() {
    let shop = shop();
    let gate = before(&shop, &ONE_SLOT.replace("max = 1", "max = 3"));
    let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    let sessions = addresses.map(|address| cookies(&visit(&gate, "/", address, "")));
    assert_eq!(open(&gate), 3);
    let period = Duration::from_secs(3_600);
    // The application has a cookie of its own.
    let ignores_cookies = Some(["set-cookie".into()].into());
    let mut shared = order(Policy::Multicast { period, ignores_cookies }, Action::Answer { status: 503 });
    shared.scope.urls = Some(Paths::compile(["/logout"]).unwrap());
    publish(&gate, vec![shared]);
    let before = shop.came();
    for (address, session) in addresses.iter().zip(&sessions).take(2) {
        let logout = visit(&gate, "/logout", address, session);
        assert!(is_served(&logout) && !logout.contains("tidegate-session"), "{logout}");
        // What ends one visitor's session is no other's, for a cache in front.
        assert!(logout.contains("cache-control: private"), "{logout}");
        assert_eq!(state(&gate)["ended"]["origin"].as_u64(), Some(3 - open(&gate)));
    }
    assert_eq!((shop.came() - before, open(&gate)), (1, 1), "one request for both, and two sessions less");
    // One without a session gets the answer too, and begins none.
    assert!(is_served(&visit(&gate, "/logout", "192.0.2.9", "")));
    assert_eq!(open(&gate), 1);
    assert!(is_served(&visit(&gate, "/", addresses[2], &sessions[2])));
}
