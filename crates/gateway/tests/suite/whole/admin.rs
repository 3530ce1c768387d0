//! The admin API: requests from other sites' pages, a second gate, methods, problems, tokens.

use tidegate_gateway::server::{Server, Source};

use crate::whole::harness::{Gate, Origin, api, ask};

const PLAIN: &str = r#"
[origin]
replicas = ["ORIGIN"]
"#;

#[test]
fn pages_of_other_sites_are_refused() {
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
        // After DNS rebinding, a page whose name resolves to loopback is of the same origin.
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
    let live = gate.server().shared().config.load_full();
    let mut settings = live.settings.clone();
    settings.listen.admin = gate.admin;
    let error = Server::start(settings, Source::default()).err().expect("a second gate on one admin address");
    assert!(error.to_string().contains("listen.admin"), "{error}");
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn json(answer: &str) -> serde_json::Value {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

#[test]
fn a_given_capacity_can_be_set_but_not_discovered() {
    let origin = Origin::start();
    let toml = format!("{PLAIN}max_in_flight = 7\n[capacity]\nrate = 100\nceiling = 120\nfloor = 5\n");
    let gate = Gate::start(&origin, &toml);
    let got = json(&api(&gate, "GET", "/v1/capacity", "", ""));
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
        let got = json(&api(&gate, "PUT", "/v1/capacity", "", &format!("{{\"rate\": {asked}}}")));
        assert_eq!(got["rate"].as_f64(), Some(wanted), "{got}");
        assert_eq!(gate.server().shared().admission.capacity().get(), wanted);
    }
    let refused = api(&gate, "POST", "/v1/capacity/rediscover", "", "");
    assert_eq!(status(&refused), "409", "{refused}");
    assert!(refused.contains("not discovered"), "{refused}");
}

#[test]
fn every_resource_lists_its_methods() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    for (path, wrong, allowed) in [
        ("/v1/state", "POST", "GET, OPTIONS"),
        ("/v1/capacity", "POST", "GET, PUT, OPTIONS"),
        ("/v1/capacity/rediscover", "GET", "POST, OPTIONS"),
        ("/v1/reload", "GET", "POST, OPTIONS"),
    ] {
        for (method, wanted) in [(wrong, "405"), ("OPTIONS", "204")] {
            let answer = api(&gate, method, path, "", "");
            assert_eq!(status(&answer), wanted, "{method} {path}");
            assert!(answer.contains(&format!("allow: {allowed}\r\n")), "{method} {path}: {answer}");
        }
    }
    assert_eq!(status(&api(&gate, "OPTIONS", "/v1/nothing", "", "")), "404");
}

#[test]
fn every_error_is_a_problem_document() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    let long = format!("{{\"rate\": 1, \"x\": \"{}\"}}", "y".repeat(70_000));
    for (method, path, body, wanted, kind, said) in [
        ("GET", "/v1/sate", "", "404", "not-found", "Did you mean `/v1/state`?"),
        ("GET", "/v1/%ff/../x", "", "404", "not-found", "openapi.json"),
        ("PATCH", "/v1/state", "", "405", "method-not-allowed", "GET, OPTIONS"),
        ("GET", "/v1/state?verbose=1", "", "400", "bad-request", "no query here"),
        ("PUT", "/v1/capacity", "{", "400", "bad-request", "not JSON"),
        ("PUT", "/v1/capacity", "{\"rate\": 1, \"wyh\": 2}", "400", "bad-request", "Did you mean `why`?"),
        ("PUT", "/v1/capacity", "{\"rte\": 1}", "400", "bad-request", "expected a value; got nothing"),
        ("PUT", "/v1/capacity", &long, "413", "too-large", "65536"),
        ("POST", "/v1/capacity/rediscover", "", "409", "conflict", "given"),
        ("POST", "/v1/feedback", "{}", "400", "bad-request", "admitted: expected a value"),
    ] {
        let answer = api(&gate, method, path, "", body);
        assert_eq!(status(&answer), wanted, "{method} {path}: {answer}");
        assert!(answer.contains("content-type: application/problem+json\r\n"), "{answer}");
        let problem = json(&answer);
        assert_eq!(problem["type"], format!("urn:tidegate:problem:{kind}"), "{problem}");
        assert_eq!(problem["status"].to_string(), wanted);
        assert!(
            problem["title"].is_string() && problem["detail"].as_str().unwrap().contains(said),
            "{problem}"
        );
    }
}

#[test]
fn a_read_token_reads_and_changes_nothing() {
    let origin = Origin::start();
    let tokens = "[listen]\nadmin_token = \"the-token-that-may-write\"\nadmin_read_token = \"the-token-that-may-read\"\n";
    let gate = Gate::start(&origin, &format!("{tokens}{PLAIN}[capacity]\nrate = 100\n"));
    let ask = |method: &str, path: &str, token: &str| api(&gate, method, path, token, "{\"rate\": 50}");
    let (read, write) = (
        "Authorization: Bearer the-token-that-may-read\r\n",
        "Authorization: Bearer the-token-that-may-write\r\n",
    );
    for path in ["/metrics", "/v1/state", "/v1/capacity", "/v1/openapi.json"] {
        assert_eq!(status(&ask("GET", path, read)), "200", "{path}");
        assert_eq!(status(&ask("GET", path, write)), "200", "{path}");
        let unknown = ask("GET", path, "Authorization: Bearer the-token-that-may-reaD\r\n");
        assert_eq!(status(&unknown), "401", "{path}");
        assert!(unknown.contains("www-authenticate: Bearer\r\n"), "{unknown}");
    }
    for (method, path) in [("PUT", "/v1/capacity"), ("POST", "/v1/reload"), ("POST", "/v1/drain")] {
        let refused = ask(method, path, read);
        assert_eq!(status(&refused), "403", "{method} {path}");
        assert!(refused.contains("may only read"), "{refused}");
        assert_eq!(status(&ask(method, path, "")), "401", "{method} {path}");
    }
    assert_eq!(gate.server().shared().admission.capacity().get(), 100.0);
    assert!(!gate.server().shared().is_draining());
    assert_eq!(status(&ask("PUT", "/v1/capacity", write)), "200");
    assert_eq!(gate.server().shared().admission.capacity().get(), 50.0);
    // Health needs no token.
    assert_eq!(status(&ask("GET", "/healthz", "")), "200");
}
