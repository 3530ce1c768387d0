//! A class's ingress at the door of a whole gate.

use tidegate_core::measure::Event;

use crate::harness::{Gate, Origin, cookies, get, until};

/// One request, and the next one in a thousand seconds.
fn gate(origin: &Origin, more: &str) -> Gate {
    let ingress = format!("[class.ingress]\nrate = 0.001\nburst = 1\n{more}");
    Gate::start(
        origin,
        &format!(
            "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 1000\n[room]\nmax_wait = \"1h\"\nclasses = [\"other\"]\n\
                  [[class]]\nname = \"other\"\nmatch = {{ path = \"/other\" }}\n[[class]]\nname = \"default\"\n{ingress}"
        ),
    )
}

#[test]
fn what_is_beyond_a_class_s_rate_is_told_when_to_come_again() {
    let origin = Origin::start();
    let gate = gate(&origin, "");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 200"));
    let answer = get(gate.http, "/", "").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    let after = answer.split("retry-after: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let after: u32 = after.expect("a time to come again").parse().expect("seconds");
    assert!((900..=1_000).contains(&after), "{after}");
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (1, 0));
    assert!(get(gate.http, "/other", "").starts_with("HTTP/1.1 200"), "another class");
}

#[test]
fn or_gets_a_place_for_the_instant_at_which_it_would_pass() {
    let origin = Origin::start();
    let gate = gate(&origin, "refuse = \"room\"");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 200"));
    let answer = get(gate.http, "/", "");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("tg"), "{answer}");
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (0, 1));
    // Its place is kept, although the origin is idle, and not paid for again.
    let again = get(gate.http, "/", &cookies(&answer));
    assert!(again.starts_with("HTTP/1.1 503"), "{again}");
    assert_eq!((gate.count(Event::TicketEarly), gate.count(Event::IngressHeld)), (1, 1));
}

#[test]
fn requests_that_match_no_class_wait_by_the_name_they_have_everywhere() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\nrate = 0.1\n[room]\nclasses = [\"default\"]\n\
         [[class]]\nname = \"free\"\nmatch = { path = \"/free\" }\n",
    );
    until(|| get(gate.http, "/", "a=b"), |answer| answer.contains("set-cookie: tg0="));
    assert!((0..5).all(|_| get(gate.http, "/free", "").ends_with("served")), "of another class");
}
