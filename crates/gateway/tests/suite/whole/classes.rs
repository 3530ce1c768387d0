//! The ingress bucket of a class.

use tidegate_core::measure::Event;

use crate::whole::harness::{Gate, Origin, ask, cookies, get, until};

/// A bucket that admits one request, and the next one after a thousand seconds.
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
fn a_request_beyond_the_rate_of_its_class_gets_retry_after() {
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
fn a_request_beyond_the_rate_may_wait_in_the_room_instead() {
    let origin = Origin::start();
    let gate = gate(&origin, "refuse = \"room\"");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 200"));
    let answer = accepting(&gate, "application/problem+json");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("tg"), "{answer}");
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (0, 1));
    // Its position is kept although the origin is idle, and the bucket is not charged again.
    let again = get(gate.http, "/", &cookies(&answer));
    assert!(again.starts_with("HTTP/1.1 503"), "{again}");
    assert_eq!((gate.count(Event::TicketEarly), gate.count(Event::IngressHeld)), (1, 1));
}

/// A GET without cookies.
fn accepting(gate: &Gate, accept: &str) -> String {
    let fields = format!("Host: shop.example\r\nAccept: {accept}\r\nConnection: close");
    ask(gate.http, &format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"))
}

/// The seconds of `Retry-After`.
fn retry_after(answer: &str) -> Option<u64> {
    let field = answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("retry-after: ").map(str::to_owned));
    field?.trim().parse().ok()
}

#[test]
fn no_position_is_held_for_visitors_that_cannot_come_back() {
    let origin = Origin::start();
    let gate = gate(&origin, "refuse = \"room\"");
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 200"));
    // A position delays the next visitor by a thousand seconds.
    for accept in ["application/json", "*/*", "application/json"] {
        let answer = accepting(&gate, accept);
        assert!(answer.starts_with("HTTP/1.1 503") && !answer.contains("ticket"), "{accept}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("set-cookie"), "{accept}: {answer}");
        assert!(retry_after(&answer).is_some_and(|s| (900..=1_000).contains(&s)), "{accept}: {answer}");
    }
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (3, 0));
    // So the first visitor that can wait gets its true wait, and so does the second.
    let page = accepting(&gate, "text/html");
    assert!(page.contains("text/html") && retry_after(&page).is_some_and(|s| s <= 1_010), "{page}");
    let program = accepting(&gate, "application/problem+json");
    assert!(program.contains("\"ticket\"") && retry_after(&program).is_some_and(|s| s > 1_900), "{program}");
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (3, 2));
    // A visitor that shows a cookie of the gate can come back, whatever it accepts.
    let third = get(gate.http, "/", &cookies(&page).replace("tg0=", "x="));
    assert!(cookies(&third).contains("tg0="), "{third}");
    assert_eq!((gate.count(Event::IngressShed), gate.count(Event::IngressHeld)), (3, 3));
}

#[test]
fn requests_without_a_class_can_be_named_default_in_room_classes() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\nrate = 0.1\n[room]\nclasses = [\"default\"]\n\
         [[class]]\nname = \"free\"\nmatch = { path = \"/free\" }\n",
    );
    until(|| get(gate.http, "/", "a=b"), |answer| answer.contains("set-cookie: tg0="));
    assert!((0..5).all(|_| get(gate.http, "/free", "").ends_with("served")), "another class");
}
