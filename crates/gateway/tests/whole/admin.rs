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
