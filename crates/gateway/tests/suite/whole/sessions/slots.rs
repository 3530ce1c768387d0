//! Session slots: their number, the tiers' own slots, newcomers without a slot, and what admitted sessions
//! are spared.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tidegate_core::measure::Event;
use tidegate_core::ticket::{Binding, KeyRing, Ticket};
use tidegate_core::units::{ClassId, Cost, Timestamp};

use super::{ONE_SLOT, before, change, is_refused, is_served, open, shop, state, visit, with};
use crate::whole::harness::{Gate, Origin, api, ask, connect, cookies, until};

#[test]
fn a_refusal_is_a_page_for_people_and_a_problem_for_programs() {
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}[explain]\nheader = \"full\"\n"));
    visit(&gate, "/", "192.0.2.1", "");
    let browser =
        "Host: shop.example\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\nAccept-Language: en\r\n";
    let page = ask(gate.http, &format!("GET /a HTTP/1.1\r\n{browser}Connection: close\r\n\r\n"));
    assert!(is_refused(&page) && page.contains("<html") && page.contains("overloaded"), "{page}");
    assert!(!page.contains("set-cookie: tg"), "a ticket was handed out: {page}");
    let program = visit(&gate, "/b", "192.0.2.2", "");
    assert!(is_refused(&program) && program.contains("urn:tidegate:problem:overloaded"), "{program}");
    let decision = program.split("tidegate-decision: id=").nth(1).unwrap();
    let id = decision.split(';').next().unwrap();
    assert!(decision.contains("; by=sessions_refused"), "{decision}");
    let record = gate.admin(&format!("/v1/explain/{id}"));
    assert_eq!((&record["by"], &record["path"]), (&json!("sessions_refused"), &json!("/b")));
    assert_eq!(gate.count(Event::SessionsRefused), 2);
}

#[test]
fn a_newcomer_waits_in_the_room_until_a_slot_is_free() {
    let shop = shop();
    let gate = before(&shop, &ONE_SLOT.replace("\"refuse\"", "\"room\""));
    let first = cookies(&visit(&gate, "/", "192.0.2.1", "a=b"));
    let waiting = visit(&gate, "/", "192.0.2.2", "a=b");
    let ticket = with("a=b", &waiting);
    assert!(waiting.starts_with("HTTP/1.1 503") && ticket.contains("tg0="), "{waiting}");
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &first)), "an admitted session does not wait");
    let still = visit(&gate, "/", "192.0.2.2", &ticket);
    assert!(still.starts_with("HTTP/1.1 503"), "{still}");
    assert!(is_served(&visit(&gate, "/logout", "192.0.2.1", &first)));
    let entered = until(|| visit(&gate, "/", "192.0.2.2", &ticket), is_served);
    assert!(entered.contains("tgp=") && entered.contains("tg0=;"), "{entered}");
    assert_eq!((open(&gate), gate.count(Event::TicketReplayed)), (1, 0));
    assert_eq!(gate.count(Event::SessionsRefused), 0, "waiting was counted as a refusal");
}

/// The first one is at the origin, the second one's turn has come.
#[test]
fn a_newcomer_who_is_held_at_the_gate_is_counted_as_waiting() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\nmax_in_flight = 1\n[room]\nunit = \"session\"\n",
    );
    let waiting = || gate.admin("/v1/state")["room"]["waiting"].as_u64();
    assert_eq!(waiting(), Some(0));
    std::thread::scope(|scope| {
        scope.spawn(|| visit(&gate, "/hold", "192.0.2.1", ""));
        origin.holds();
        scope.spawn(|| visit(&gate, "/", "192.0.2.2", ""));
        until(|| format!("{:?}", waiting()), |waiting| waiting == "Some(1)");
        origin.release();
    });
    until(|| format!("{:?}", waiting()), |waiting| waiting == "Some(0)");
}

#[test]
fn of_a_crowd_as_many_are_admitted_as_there_are_slots() {
    let shop = shop();
    let gate = before(&shop, &ONE_SLOT.replace("max = 1", "max = 5"));
    let gate = &gate;
    let served = std::thread::scope(|scope| {
        let crowd: Vec<_> =
            (1..=40).map(|n| scope.spawn(move || visit(gate, "/", &format!("192.0.2.{n}"), ""))).collect();
        crowd.into_iter().map(|one| one.join().unwrap()).filter(|answer| is_served(answer)).count()
    });
    assert_eq!((served as u64, open(gate), state(gate)["refused"].as_u64()), (5, 5, Some(35)));
}

#[test]
fn a_discovered_number_of_slots_does_not_bound_before_it_is_learned() {
    let shop = shop();
    let gate = before(&shop, &ONE_SLOT.replace("max = 1", "max = \"discovered\""));
    for visitor in 1..=5 {
        assert!(is_served(&visit(&gate, "/", &format!("192.0.2.{visitor}"), "")));
    }
    let state = state(&gate);
    assert_eq!((state["open"].as_u64(), &state["held"]), (Some(5), &json!(false)), "{state}");
}

#[test]
fn a_tier_has_slots_of_its_own() {
    let tier = "[[tier]]\nname = \"gold\"\nclient = \"198.51.100.0/24\"\nmax_sessions = 1\n";
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}{tier}"));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", "")));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", "")));
    let gold = visit(&gate, "/", "198.51.100.1", "");
    assert!(is_served(&gold), "{gold}");
    assert!(is_refused(&visit(&gate, "/", "198.51.100.2", "")), "its tier has one slot");
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", "")));
    let pools = state(&gate)["pools"].clone();
    let one = |tier: &str| json!({ "tier": tier, "open": 1, "places": 1 });
    assert_eq!(pools, json!([one("default"), one("gold")]));
    assert!(is_served(&visit(&gate, "/logout", "198.51.100.1", &cookies(&gold))));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", "")), "the tier's slot was given to another");
    assert!(is_served(&visit(&gate, "/", "198.51.100.2", "")));
}

#[test]
fn a_tier_that_skips_the_room_takes_a_slot_if_one_is_free() {
    let tier = "[[tier]]\nname = \"staff\"\nclient = \"198.51.100.0/24\"\nskip_room = true\n";
    let shop = shop();
    let gate = before(&shop, &format!("{ONE_SLOT}{tier}"));
    let staff = visit(&gate, "/", "198.51.100.1", "");
    assert!(is_served(&staff) && staff.contains("tgp="), "{staff}");
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", "")));
    let more = visit(&gate, "/", "198.51.100.2", "");
    assert!(is_served(&more) && !more.contains("tgp="), "it is served without a slot: {more}");
    assert_eq!((open(&gate), state(&gate)["refused"].as_u64()), (1, Some(1)));
}

#[test]
fn a_tier_that_skips_the_room_begins_a_session_behind_a_bucket_too() {
    let tier = "[[tier]]\nname = \"staff\"\nclient = \"198.51.100.0/24\"\nskip_room = true\n";
    let class = "[[class]]\nname = \"page\"\nmatch = { path = \"/*\" }\n";
    let places = ONE_SLOT.replace("max = 1", "max = 2");
    let bucket = |ingress: &str| format!("{places}{tier}{class}ingress = {{ {ingress} }}\n");
    let shop = shop();
    let gate = before(&shop, &bucket("rate = 0.001"));
    let staff = visit(&gate, "/", "198.51.100.1", "");
    assert!(is_served(&staff) && staff.contains("tgp="), "{staff}");
    assert!(is_served(&visit(&gate, "/", "198.51.100.1", &cookies(&staff))), "charged again");
    assert!(is_refused(&visit(&gate, "/", "198.51.100.2", "")), "the bucket is empty");
    assert_eq!((open(&gate), gate.count(Event::IngressShed)), (1, 1));
    // A visitor that the bucket sent to the room begins its session on its turn.
    let gate = before(&shop, &bucket("rate = 1, refuse = \"room\"").replace("max = 2", "max = 99"));
    let come = |n, cookies: &str| visit(&gate, "/", &format!("198.51.100.{n}"), cookies);
    let mut crowd = (1..99).map(|n| (n, come(n, "tgp=a-browser")));
    let (n, waits) = crowd.find(|(_, answer)| !is_served(answer)).expect("one who waits");
    let ticket = with("", &waits);
    assert!(waits.contains("urn:tidegate:problem:waiting"), "{waits}");
    let entered = until(|| come(n, &ticket), is_served);
    let changes = cookies(&entered);
    assert!(changes.contains("tgp=") && changes.contains("=;"), "a pass for the ticket: {entered}");
    assert_eq!(open(&gate), n, "each has a session");
}

#[test]
fn a_pass_survives_a_restart_even_beyond_the_number_of_slots() {
    let keys = format!("{}keys = [\"1:{}\"]\n", "unit = \"session\"\n", "ab".repeat(32));
    let toml = ONE_SLOT.replace("unit = \"session\"\n", &keys);
    let shop = shop();
    let who = {
        let gate = before(&shop, &toml);
        cookies(&visit(&gate, "/", "192.0.2.1", ""))
    };
    let gate = before(&shop, &toml);
    assert!(is_served(&visit(&gate, "/", "192.0.2.2", "")), "the slot is free until the pass is shown");
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)));
    let now = state(&gate);
    assert_eq!((now["open"].as_u64(), now["readmitted"].as_u64()), (Some(2), Some(1)), "{now}");
    assert!(change(&gate, "DELETE", "/v1/sessions").ends_with("{\"ended\":2}\n"));
    assert!(is_served(&visit(&gate, "/", "192.0.2.3", "")));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &who)), "an ended session was readmitted");
    let forged = who.replace("tgp=", "tgp=A");
    assert!(is_refused(&visit(&gate, "/", "192.0.2.1", &forged)));
}

#[test]
fn a_reload_changes_slots_at_once_and_another_key_ends_all_sessions() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, ONE_SLOT);
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.2", "")));
    let fixed = |max: &str| ONE_SLOT.replace("max = 1", max) + "[capacity]\nestimator = \"fixed\"\n";
    gate.reload(&origin, &fixed("max = 2"));
    assert!(is_served(&visit(&gate, "/", "192.0.2.2", "")));
    assert!(is_refused(&visit(&gate, "/", "192.0.2.3", "")));
    gate.reload(&origin, &fixed("max = 1"));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)), "fewer slots end no session");
    assert!(is_refused(&visit(&gate, "/", "192.0.2.3", "")));
    let tuned = api(&gate, "PUT", "/v1/tunables/session.max", "", "{\"value\":3}");
    assert!(tuned.starts_with("HTTP/1.1 200"), "{tuned}");
    assert!(is_served(&visit(&gate, "/", "192.0.2.3", "")));
    gate.reload(&origin, &(fixed("max = 1\nkey = \"ip\"")));
    assert_eq!(open(&gate), 0);
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", "")), "the address is the key now");
}

#[test]
fn tokencheck_has_the_slots_and_keeps_tickets_that_find_none() {
    let keys = format!("1:{}", "ab".repeat(32));
    let role = "role = \"tokencheck\"\ntokencheck.gen_url = \"http://gen.example\"\ntokencheck.feedback_url = \"http://127.0.0.1:1\"\n";
    let places =
        ONE_SLOT.replace("unit = \"session\"\n", &format!("unit = \"session\"\nkeys = [\"{keys}\"]\n"));
    let shop = shop();
    let gate = before(&shop, &format!("{role}{places}"));
    let ring = KeyRing::parse(&keys).unwrap();
    let now = Timestamp::from_millis(gate.server().shared().clock.now().as_millis());
    let sent_on = |nonce, address: &str| {
        let ticket = Ticket {
            class: ClassId(0),
            cost: Cost::ONE,
            issued: now,
            wait: Duration::ZERO,
            arrived: now,
            nonce,
        };
        let sealed = ring.seal(&ticket, &Binding::IpPrefix(address.parse().unwrap()));
        format!("/?tg={}", sealed.as_str())
    };
    let first = visit(&gate, &sent_on(1, "192.0.2.1"), "192.0.2.1", "");
    assert!(is_served(&first) && first.contains("tgp="), "{first}");
    let second = sent_on(2, "198.51.100.1");
    let waits = visit(&gate, &second, "198.51.100.1", "");
    assert!(is_refused(&waits) && waits.contains("problem:waiting"), "{waits}");
    let nobody = visit(&gate, "/", "203.0.113.1", "");
    assert!(nobody.starts_with("HTTP/1.1 307") && nobody.contains("gen.example"), "{nobody}");
    assert!(is_served(&visit(&gate, "/logout", "192.0.2.1", &cookies(&first))));
    let entered = visit(&gate, &second, "198.51.100.1", "");
    assert!(is_served(&entered), "its ticket was used up without a slot: {entered}");
    let again = visit(&gate, &second, "198.51.100.2", "");
    assert!(!is_served(&again), "twice with one ticket: {again}");
    assert_eq!(open(&gate), 1);
}

const BUSY: &str = r#"
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[queue]
max_length = 0
[room]
unit = "session"
classes = ["page"]
[[class]]
name = "page"
match = { path = "/page*" }
[[class]]
name = "other"
ingress = { rate = 0.001 }
match = { path = "/other*" }
"#;

#[test]
fn a_session_s_request_is_not_refused_for_load() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, BUSY);
    let who = cookies(&visit(&gate, "/page", "192.0.2.1", ""));
    assert!(who.contains("tgp="), "{who}");
    let mut other = connect(gate.http);
    other.write_all(b"GET /hold HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
    origin.holds();
    // The origin's only in-flight slot is taken and the queue is full, but admitted sessions wait, whatever
    // the class.
    assert!(visit(&gate, "/else", "192.0.2.2", "").contains("queue is full"));
    std::thread::scope(|scope| {
        let asked: Vec<_> = ["/page/3", "/else", "/other", "/other/2"]
            .map(|target| scope.spawn(|| visit(&gate, target, "192.0.2.1", &who)))
            .into();
        let queued = || gate.server().shared().gate.totals().queued.to_string();
        until(queued, |queued| queued == "4");
        origin.release();
        for answer in asked {
            let answer = answer.join().unwrap();
            assert!(is_served(&answer), "{answer}");
        }
    });
    let shed = [Event::QueueFull, Event::IngressShed].map(|event| gate.count(event));
    assert_eq!(shed, [1, 0], "a session's request was refused for load");
}
