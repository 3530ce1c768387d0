//! Sessions over real sockets: an admitted session is served, newcomers wait or are refused, and a slot that
//! is given back is taken again at once.

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Scripted, api, ask, cookies, reply, until};

mod ends;
mod keys;
mod parts;
mod slots;
mod tickets;
mod under_way;
mod without_cookies;

/// One session slot, and no waiting room.
const ONE_SLOT: &str = r#"
[origin]
replicas = ["ORIGIN"]
[proxy]
trusted = ["127.0.0.1/32"]
[room]
unit = "session"
[session]
max = 1
when_full = "refuse"
"#;

/// An application with a session cookie of its own, a login that renews it, and a logout that tells the gate.
fn shop() -> Scripted {
    Scripted::start(|head, n, stream| {
        let fields = if head.starts_with("GET /logout") {
            "Tidegate-Session: end\r\n".into()
        } else if head.starts_with("GET /login") {
            format!("Set-Cookie: JSESSIONID=in{n}; Path=/; HttpOnly\r\n")
        } else if head.starts_with("GET /leave") {
            // As PHP removes a cookie.
            let past = "expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0; path=/";
            format!("Set-Cookie: JSESSIONID=deleted; {past}\r\n")
        } else if head.starts_with("GET /anonymous") || head.contains("JSESSIONID=") {
            String::new()
        } else {
            format!("Set-Cookie: JSESSIONID=new{n}; Path=/; HttpOnly\r\n")
        };
        reply(stream, "200 OK", &fields, "served");
    })
}

fn before(shop: &Scripted, toml: &str) -> Gate {
    Gate::before(shop.address, toml, |_| Vec::new())
}

/// A program's GET from this address with these cookies.
fn visit(gate: &Gate, target: &str, address: &str, cookies: &str) -> String {
    let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    let fields = format!("Host: shop.example\r\nX-Forwarded-For: {address}\r\n{cookies}");
    ask(gate.http, &format!("GET {target} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"))
}

fn is_served(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("served")
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: ")
}

/// The state in `GET /v1/sessions`.
fn state(gate: &Gate) -> Value {
    gate.admin("/v1/sessions")["state"].clone()
}

/// So many sessions have begun, and those that are not open any more were idle.
fn all_ended_idle(gate: &Gate, begun: u64) {
    let is_so = |state: &str| {
        let state: Value = serde_json::from_str(state).unwrap();
        let count = |value: &Value| value.as_u64().unwrap();
        let over = count(&state["begun"]) - count(&state["open"]);
        count(&state["begun"]) == begun && count(&state["ended"]["idle"]) == over
    };
    // One may end between two of the figures.
    until(|| state(gate).to_string(), is_so);
}

fn open(gate: &Gate) -> u64 {
    state(gate)["open"].as_u64().unwrap()
}

/// The answer of the admin API.
fn change(gate: &Gate, method: &str, target: &str) -> String {
    api(gate, method, target, "", "")
}

/// The cookies of a browser that had `before` and got the answer `now`.
fn with(before: &str, now: &str) -> String {
    let set = cookies(now);
    let is_set = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !set.split("; ").any(|new| new.split('=').next() == Some(name))
    };
    let kept: Vec<&str> = before.split("; ").filter(|pair| !pair.is_empty()).filter(is_set).collect();
    let pairs = kept.into_iter().chain(set.split("; "));
    pairs.filter(|pair| !pair.is_empty() && !pair.ends_with('=')).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_state_of_sessions_is_shown_only_where_they_are_counted() {
    let shop = shop();
    let gate = before(&shop, ONE_SLOT);
    visit(&gate, "/", "192.0.2.1", "");
    visit(&gate, "/", "192.0.2.2", "");
    let sessions = gate.admin("/v1/sessions");
    let state = &sessions["state"];
    assert_eq!((&state["open"], &state["begun"], &state["refused"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(state["pools"], json!([{ "tier": "default", "open": 1, "places": 1 }]));
    let line = &sessions["sessions"][0];
    assert_eq!((&line["tier"], &line["requests"]), (&json!("default"), &json!(1)));
    // Learned figures change from tick to tick, so both documents must be read between the same two.
    let is_same = || gate.admin("/v1/sessions")["state"] == gate.admin("/v1/state")["sessions"];
    until(|| is_same().to_string(), |same| same == "true");
    // The counters are those of the last second.
    for wanted in [
        "\ntidegate_sessions 1\n",
        "\ntidegate_sessions_begun_total 1\n",
        "\ntidegate_sessions_refused_total 1\n",
        "\ntidegate_session_places{tier=\"default\"} 1\n",
        "reason=\"sessions_refused\"} 1\n",
    ] {
        until(|| change(&gate, "GET", "/metrics"), |metrics| metrics.contains(wanted));
    }
    let plain = before(&shop, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    assert!(is_served(&visit(&plain, "/", "192.0.2.1", "")));
    assert!(change(&plain, "GET", "/v1/sessions").starts_with("HTTP/1.1 409"));
    assert!(change(&plain, "DELETE", "/v1/sessions").starts_with("HTTP/1.1 409"));
    assert_eq!(plain.admin("/v1/state")["sessions"], Value::Null);
    assert!(!change(&plain, "GET", "/metrics").contains("tidegate_sessions "));
}

#[test]
fn a_detector_measures_the_number_of_sessions() {
    let rule = "[[detector]]\nname = \"visits\"\nkind = \"sessions\"\nperiod = \"0s\"\nred = 1\n[[rule]]\nname = \"nobody-new\"\n\
                when = 'levels.visits == \"red\"'\nhold = \"0s\"\nvisitors = \"new\"\n";
    let shop = shop();
    let gate = before(&shop, &format!("{}{rule}", ONE_SLOT.replace("max = 1", "max = \"none\"")));
    let who = cookies(&visit(&gate, "/", "192.0.2.1", ""));
    until(|| visit(&gate, "/new", "192.0.2.2", ""), |answer| answer.contains("\"rule\":\"nobody-new\""));
    assert!(is_served(&visit(&gate, "/", "192.0.2.1", &who)), "the admitted session is served");
    assert!(change(&gate, "DELETE", "/v1/sessions").starts_with("HTTP/1.1 200"));
    until(|| visit(&gate, "/new", "192.0.2.2", ""), is_served);
}
