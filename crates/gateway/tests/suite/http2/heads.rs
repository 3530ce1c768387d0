//! What a request's head is checked for, and how it reaches the origin.

use http::{Method, Request};
use tidegate_core::measure::Event;

use super::frames::{self, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Raw, block, frame};
use super::harness::{Client, PLAIN, get, read, request, run};
use crate::whole::harness::{Gate, Origin, Scripted, ask, connect, reply};

/// An origin that answers with the head it got.
pub fn mirror() -> Scripted {
    Scripted::start(|head, _, stream| reply(stream, "200 OK", "", head))
}

fn gate(origin: &Scripted) -> Gate {
    Gate::before(origin.address, PLAIN, |_| Vec::new())
}

#[test]
fn a_request_reaches_the_origin_as_one_of_http_1() {
    let origin = mirror();
    let gate = gate(&origin);
    let answer = run(async {
        let mut client = Client::connect(gate.http).await;
        let mut asked = get("/a/b?c=d");
        let headers = asked.headers_mut();
        for crumb in ["a=1", "b=2; c=3", "d=4"] {
            headers.append("cookie", crumb.parse().unwrap());
        }
        headers.insert("te", "trailers".parse().unwrap());
        headers.insert("x-forwarded-for", "10.0.0.1".parse().unwrap());
        let response = client.start(asked).await;
        read(response.await.unwrap()).await.unwrap()
    });
    assert_eq!(answer.status, 200);
    let head = answer.text().to_ascii_lowercase();
    for line in [
        "get /a/b?c=d http/1.1\r\n",
        "\r\nhost: shop.example\r\n",
        "\r\ncookie: a=1; b=2; c=3; d=4\r\n",
        "\r\nte: trailers\r\n",
        "\r\nvia: 2.0 tidegate\r\n",
        "\r\nx-forwarded-for: 127.0.0.1\r\n",
        "\r\nx-forwarded-proto: http\r\n",
    ] {
        assert!(head.contains(line), "{line:?} in\n{head}");
    }
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    assert!(answer.headers.contains_key("date") && answer.headers["via"] == "1.1 tidegate");
    assert!(!answer.headers.contains_key("connection"));
}

/// Method, target with or without authority, fields, status.
type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

#[test]
fn a_head_that_http_1_would_refuse_is_refused() {
    let origin = mirror();
    let limits = "max_uri_bytes = 300\nmax_header_bytes = 2048\nmax_headers = 10\nmax_body_bytes = 10\n";
    let gate = Gate::before(origin.address, &format!("{PLAIN}[limits]\n{limits}"), |_| Vec::new());
    let long = "x".repeat(400);
    let large = "x".repeat(2100);
    let fields: Vec<(String, String)> = (0..11).map(|n| (format!("x-{n}"), String::from("v"))).collect();
    let many: Vec<(&str, &str)> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let table: [Row<'_>; 18] = [
        ("GET", "http://shop.example/", &[], 200),
        ("GET", "http://shop.example/?a={b}", &[], 200),
        ("OPTIONS", "http://shop.example/", &[], 200),
        ("GET", "http://shop.example/", &[("host", "SHOP.example:80")], 200),
        ("GET", "http://shop.example/", &[("host", "other.example")], 400),
        ("GET", "http://user@shop.example/", &[], 400),
        ("GET", "http://shop.example/%00", &[], 400),
        ("GET", "http://shop.example/a%5cb", &[], 400),
        ("GET", "http://shop.example/{a}", &[], 400),
        ("GET", "ftp://shop.example/", &[], 400),
        ("GET", &format!("http://shop.example/{long}"), &[], 414),
        ("GET", "http://shop.example/", &[("x-large", &large)], 431),
        ("GET", "http://shop.example/", &many, 431),
        ("TRACE", "http://shop.example/", &[], 405),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH", "http://shop.example/", &[], 501),
        ("GET", "http://shop.example/", &[("expect", "something")], 417),
        ("GET", "http://shop.example/", &[("content-length", "0")], 200),
        ("GET", "http://shop.example/", &[("x-value", "a\tb")], 200),
    ];
    run(async {
        for (method, target, fields, status) in table {
            let mut builder = Request::builder().method(method).uri(target);
            for (name, value) in fields {
                builder = builder.header(*name, *value);
            }
            // A connection for each: a refusal may end it.
            let mut client = Client::connect(gate.http).await;
            let response = client.start(builder.body(()).unwrap()).await;
            let answer = read(response.await.unwrap()).await.unwrap();
            assert_eq!(answer.status, status, "{method} {target} {fields:?}: {answer:?}");
        }
        let mut client = Client::connect(gate.http).await;
        let mut asked = request(Method::POST, "/");
        asked.headers_mut().insert("content-length", 11.into());
        let (response, _body) = client.begin(asked, false).await;
        assert_eq!(response.await.unwrap().status(), 413);
    });
    let counts = [Event::UriTooLong, Event::HeadersTooLarge, Event::BodyTooLarge].map(|e| gate.count(e));
    assert_eq!(counts, [1, 2, 1]);
}

#[test]
fn what_http_2_calls_malformed_resets_the_stream() {
    let origin = mirror();
    let gate = gate(&origin);
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "shop.example"), (":path", "/")];
    for extra in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("x-Upper", "a"),
        ("x-padded", " a"),
        ("x-padded", "a\t"),
        (":path", "/again"),
        (":unknown", "a"),
    ] {
        let mut raw = Raw::connect(gate.http);
        let fields: Vec<_> = pseudo.into_iter().chain([extra]).collect();
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields)));
        let answer = std::iter::from_fn(|| raw.next())
            .find(|f| matches!(f.kind, HEADERS | RST_STREAM | frames::GOAWAY));
        let answer = answer.unwrap_or_else(|| panic!("{extra:?} is not answered"));
        assert_ne!(answer.kind, HEADERS, "{extra:?}");
    }
    assert_eq!(origin.came(), 0);
}

#[test]
fn a_connection_says_by_its_first_bytes_what_it_speaks() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    assert!(ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ends_with("served"));
    // In pieces, the last of which comes late.
    let mut slow = connect(gate.http);
    for part in frames::PREFACE.chunks(5) {
        std::io::Write::write_all(&mut slow, part).unwrap();
        std::thread::yield_now();
    }
    let mut slow = Raw(slow);
    slow.send(&frame(frames::SETTINGS, 0, 0, &[]));
    slow.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")));
    assert!(slow.wait_for(HEADERS).is_some());
    // What only begins like it.
    assert!(
        ask(gate.http, "PRI * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 400")
    );
    let off = Gate::start(&origin, &format!("{PLAIN}[listen]\nhttp2 = false\n"));
    let refused = ask(off.http, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 505"), "{refused}");
}

#[test]
fn an_upgrade_to_http_2_in_clear_does_not_reach_the_origin() {
    let origin = mirror();
    let gate = gate(&origin);
    let asked = |upgrade: &str| {
        let fields = format!("Host: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n");
        let request = format!("GET / HTTP/1.1\r\n{fields}HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
        let mut stream = connect(gate.http);
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let head = crate::whole::harness::read_head(&mut stream).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        crate::whole::harness::read_head(&mut stream).unwrap().to_ascii_lowercase()
    };
    for upgrade in ["h2c", "H2C", "h2c, h2c", "h2c, websocket"] {
        let head = asked(upgrade);
        assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{upgrade}: {head}");
    }
}
