//! The admin API against pages of other people in the operator's browser, and against a second gate.

use tidegate_gateway::server::{Server, Source};

use crate::harness::{Gate, Origin, ask};

const PLAIN: &str = r#"
[origin]
replicas = ["ORIGIN"]
"#;

#[test]
fn foreign_pages_change_and_learn_nothing() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let port = gate.admin.port();
    let ask = |method: &str, path: &str, fields: &str| {
        let answer =
            ask(gate.admin, &format!("{method} {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"));
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let own = format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n");
    let cases = [
        // A form on any page: a "simple" request, sent without asking first.
        ("POST", "/v1/drain", format!("Host: 127.0.0.1:{port}\r\nOrigin: https://evil.example\r\n"), "403"),
        ("POST", "/v1/drain", format!("Host: localhost:{port}\r\nOrigin: null\r\n"), "403"),
        // A page whose name now leads to loopback (DNS rebinding) is of the same origin.
        ("POST", "/v1/drain", "Host: evil.example\r\nOrigin: http://evil.example\r\n".into(), "403"),
        ("GET", "/v1/state", "Host: evil.example:9090\r\n".into(), "403"),
        ("GET", "/v1/state", "Host: 127.0.0.1.evil.example\r\n".into(), "403"),
        ("GET", "/v1/state", "Host: localhost\r\n".into(), "200"),
        ("GET", "/v1/state", "Host: [::1]:9090\r\n".into(), "200"),
        ("GET", "/v1/state", own, "200"),
    ];
    for (method, path, fields, expected) in cases {
        assert_eq!(ask(method, path, &fields), expected, "{method} {path} {fields}");
    }
    assert!(!gate.server().shared().is_draining());
}

#[test]
fn two_gates_do_not_share_an_admin_address() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let live = gate.server().shared().live.load_full();
    let mut settings = live.settings.clone();
    settings.listen.admin = gate.admin;
    let error = Server::start(settings, Source::default()).err().expect("a second gate on one admin address");
    assert!(error.to_string().contains("listen.admin"), "{error}");
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn api(gate: &Gate, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    ask(gate.admin, &format!("{head}Connection: close\r\n\r\n{body}"))
}

fn json(answer: &str) -> serde_json::Value {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

#[test]
fn a_given_capacity_says_so_and_cannot_be_discovered() {
    let origin = Origin::start();
    let toml = format!("{PLAIN}max_in_flight = 7\n[capacity]\nrate = 100\nceiling = 120\nfloor = 5\n");
    let gate = Gate::start(&origin, &toml);
    let got = json(&api(&gate, "GET", "/v1/capacity", ""));
    for (key, wanted) in [
        ("rate", serde_json::json!(100.0)),
        ("outflow", serde_json::json!(100.0)),
        ("max_in_flight", serde_json::json!(7)),
        ("estimator", serde_json::json!("fixed")),
        ("configured", serde_json::json!("auto")),
        ("phase", serde_json::json!("configured")),
        ("ceiling", serde_json::json!(120.0)),
        ("floor", serde_json::json!(5.0)),
    ] {
        assert_eq!(got[key], wanted, "{key}: {got}");
    }
    // In force at once, and within the operator's bounds.
    for (asked, wanted) in [(110.0, 110.0), (500.0, 120.0), (0.0, 5.0)] {
        let got = json(&api(&gate, "PUT", "/v1/capacity", &format!("{{\"rate\": {asked}}}")));
        assert_eq!(got["rate"].as_f64(), Some(wanted), "{got}");
        assert_eq!(gate.server().shared().desk.capacity().get(), wanted);
    }
    let refused = api(&gate, "POST", "/v1/capacity/rediscover", "");
    assert_eq!(status(&refused), "409", "{refused}");
    assert!(refused.contains("not discovered"), "{refused}");
}

#[test]
fn every_resource_says_what_it_takes() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    for (path, wrong, allowed) in [
        ("/v1/state", "POST", "GET, OPTIONS"),
        ("/v1/capacity", "POST", "GET, PUT, OPTIONS"),
        ("/v1/capacity/rediscover", "GET", "POST, OPTIONS"),
        ("/v1/reload", "GET", "POST, OPTIONS"),
    ] {
        for (method, wanted) in [(wrong, "405"), ("OPTIONS", "204")] {
            let answer = api(&gate, method, path, "");
            assert_eq!(status(&answer), wanted, "{method} {path}");
            assert!(answer.contains(&format!("allow: {allowed}\r\n")), "{method} {path}: {answer}");
        }
    }
    assert_eq!(status(&api(&gate, "OPTIONS", "/v1/nothing", "")), "404");
}
