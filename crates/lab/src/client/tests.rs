//! Which URLs are targets, where redirects lead, and what a request says.

use std::net::SocketAddr;

use super::{Client, Connections, Order, Place, TargetError};
use crate::visitor::RequestKind;

#[test]
fn an_invalid_target_is_refused_with_a_reason() {
    for (url, why) in [
        ("https://127.0.0.1:1/", "TLS"),
        ("ftp://127.0.0.1:1/", "scheme"),
        ("127.0.0.1:1", "http://"),
        ("/path", "http://"),
        ("", "not a URL"),
        ("http://", "not a URL"),
        ("http://user@127.0.0.1:1/", "user"),
        ("http://127.0.0.1:0/", "port 0"),
        ("http://127.0.0.1:70000/", "port"),
        ("http://a b/", "not a URL"),
    ] {
        let error = Place::find(url).expect_err(url);
        assert!(matches!(error, TargetError::Url { .. }), "{url}: {error}");
        let text = error.to_string();
        assert!(text.contains("expected http://HOST") && text.contains(why), "{url}: {text}");
    }
}

#[test]
fn an_unreachable_target_has_an_error_of_its_own() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("port");
    let error = Place::find(&format!("http://{unused}/")).expect_err("nobody listens");
    assert!(matches!(error, TargetError::Connect { address, .. } if address == unused), "{error}");
    // RFC 6761: never resolves.
    let error = Place::find("http://tidegate.invalid/").expect_err("no such name");
    assert!(matches!(&error, TargetError::Resolve { host, .. } if host == "tidegate.invalid"), "{error}");
}

#[test]
fn the_host_is_sent_as_written() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let port = listener.local_addr().expect("address").port();
    let place = Place::find(&format!("http://LocalHost:{port}/a?b")).expect("somebody listens");
    assert_eq!(place.host_field(None), format!("LocalHost:{port}"));
    assert_eq!(place.host_field(Some(81)), "LocalHost:81");
    assert_eq!(place.address(81).port(), 81);
}

#[test]
fn redirects_stay_on_the_host() {
    let place = Place::at(SocketAddr::from(([127, 0, 0, 1], 8080)));
    let six = Place::at("[::1]:8080".parse().expect("address"));
    for (place, authority, port) in [
        (&place, "127.0.0.1:9000", Some(9000)),
        (&place, "127.0.0.1", Some(80)),
        (&place, "127.0.0.2:8080", None),
        (&place, "elsewhere.example", None),
        (&place, "127.0.0.1.example:80", None),
        (&place, "user@127.0.0.1:80", None),
        (&place, "a b", None),
        (&six, "[::1]:81", Some(81)),
        (&six, "[::2]:81", None),
    ] {
        assert_eq!(place.port_of(authority), port, "{authority}");
    }
}

#[test]
fn a_request_has_the_fields_of_its_client() {
    let client = Client::new(Place::at(SocketAddr::from(([127, 0, 0, 1], 8080))), Connections::Fresh);
    let page = Order::get(RequestKind::Page, "/a?b".parse().expect("path"));
    let form = Order { form: Some("x=1".into()), method: http::Method::POST, ..page.clone() };
    let status =
        Order { ask: RequestKind::Status, cookies: Some("tg=1".into()), port: Some(81), ..page.clone() };
    let later = Order { cookies: Some("a=b".into()), ..page.clone() };
    let program = Order { program: true, ..page.clone() };
    for (order, name, value) in [
        (&page, "host", Some("127.0.0.1:8080")),
        (&page, "sec-fetch-mode", Some("navigate")),
        (&page, "sec-fetch-site", Some("none")),
        (&later, "sec-fetch-site", Some("same-origin")),
        (&page, "cookie", None),
        (&page, "content-type", None),
        (&page, "connection", Some("close")),
        (&form, "content-type", Some("application/x-www-form-urlencoded")),
        (&status, "host", Some("127.0.0.1:81")),
        (&status, "sec-fetch-mode", Some("same-origin")),
        (&status, "cookie", Some("tg=1")),
        (&program, "accept", Some("application/json, application/problem+json")),
        (&program, "sec-fetch-mode", None),
    ] {
        let request = client.request(order.clone()).expect("a request");
        let got = request.headers().get(name).map(|v| v.to_str().expect("text"));
        assert_eq!(got, value, "{name} of {order:?}");
    }
    let bad = Order { cookies: Some("a=\n".into()), ..page };
    assert!(client.request(bad).is_err());
}
