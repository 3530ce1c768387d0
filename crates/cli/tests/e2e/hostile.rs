//! Requests that gate and origin might parse differently are refused and never passed on.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;

use super::harness::{Config, Gate};
use super::http::Client;
use super::origin::Origin;

/// The second request that must not reach the origin.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: shop.example\r\n\r\n";

/// Requests that must end in a 4xx (or 501, 505) or a close. `@` stands for [`SMUGGLED`].
const REFUSED: &[(&str, &str)] = &[
    ("two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 46\r\n\r\n@"),
    ("lengths in a list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 46\r\n\r\n@"),
    ("length with a sign", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n@"),
    ("negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n@"),
    ("hexadecimal length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x0\r\n\r\n@"),
    ("length beyond 64 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n@"),
    (
        "length and chunked",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n@",
    ),
    ("unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n@"),
    ("identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n@"),
    ("chunked not last", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n@"),
    ("chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n@"),
    (
        "chunked in two fields",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n@",
    ),
    (
        "vertical tab in the coding",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n@",
    ),
    ("chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n@"),
    ("space before the colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 46\r\n\r\n@"),
    ("folded field", "POST / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Content-Length: 46\r\n\r\n@"),
    ("folded first field", "POST / HTTP/1.1\r\n Host: a\r\nX: 1\r\n\r\n@"),
    ("bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rContent-Length: 46\r\n\r\n@"),
    ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\0\r\n\r\n@"),
    ("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: 1\r\n\r\n@"),
    ("NUL in the target", "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n@"),
    ("field without a colon", "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n@"),
    ("field without a name", "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n@"),
    ("no host", "GET / HTTP/1.1\r\nX: 1\r\n\r\n@"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n@"),
    ("host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n@"),
    ("host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n@"),
    ("another host in the target", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n@"),
    ("tunnel", "CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n@"),
    ("target without a slash", "GET shop HTTP/1.1\r\nHost: a\r\n\r\n@"),
    ("space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n@"),
    ("method with a bracket", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n@"),
    ("HTTP/9", "GET / HTTP/9.0\r\nHost: a\r\n\r\n@"),
    ("HTTP/0.9", "GET /\r\n@"),
    ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03@"),
    (
        "chunk size too big",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n@",
    ),
    ("chunk size with a sign", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n@"),
    (
        "chunk size in octal",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n@",
    ),
    ("no size at all", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\n@"),
    (
        "chunk longer than its size",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n@",
    ),
    (
        "chunk extension ended by LF",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\na\r\n0\r\n\r\n@",
    ),
    (
        "last chunk ended by LF",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\n\r\n@",
    ),
];

/// Everything the gate sends until it closes.
fn exchange(gate: &Gate, bytes: &[u8]) -> String {
    let mut client = Client::connect(gate.http()).unwrap();
    // The gate may refuse and close before all is written.
    let _ = client.send(bytes);
    let _ = client.stream.get_ref().shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match client.stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "an answer or a close"),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_refusal(answer: &str) -> bool {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    answer.is_empty() || status.starts_with('4') || matches!(status, "501" | "505")
}

#[test]
fn ambiguous_requests_are_refused_and_nothing_is_smuggled() {
    let origin = Origin::start(|exchange| {
        exchange.body()?;
        exchange.ok("ok")
    });
    let gate = Gate::start(Config::new(&[origin.address()]).text("limits.header_timeout", "2s"));
    let mut wrong = Vec::new();
    for (name, request) in REFUSED {
        // Only a sign at the end stands for the request: a target or a host may contain one too.
        let bytes = match request.strip_suffix('@') {
            Some(first) => format!("{first}{SMUGGLED}"),
            None => (*request).to_owned(),
        };
        let answer = exchange(&gate, bytes.as_bytes());
        if !is_refusal(&answer) {
            wrong.push(format!("{name}: {}", answer.lines().next().unwrap_or_default()));
        }
        if origin.seen().iter().any(|head| head.second_word() == "/smuggled") {
            wrong.push(format!("{name}: SMUGGLED"));
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        Client::connect(gate.http()).unwrap().get("/", "").unwrap().status(),
        200,
        "the gate still works"
    );
}

#[test]
fn oversized_requests_are_refused_with_the_right_status() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::new(&[origin.address()]).set("limits.max_body_bytes", 1000));
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9 << 10));
    let long_field = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(40 << 10));
    let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(200));
    let big_body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_owned();
    let big_chunk = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
        "x".repeat(1001)
    );
    let cases = [
        (long_target, "414"),
        (long_field, "431"),
        (many_fields, "431"),
        (big_body, "413"),
        (big_chunk, "413"),
    ];
    for (request, status) in cases {
        let answer = exchange(&gate, request.as_bytes());
        assert_eq!(answer.split(' ').nth(1), Some(status), "{}", &request[..40]);
    }
}

#[test]
fn a_slow_head_is_timed_out() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(Config::new(&[origin.address()]).text("limits.header_timeout", "1s"));
    let mut client = Client::connect(gate.http()).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: sh").unwrap();
    let mut answer = Vec::new();
    client.stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// Malformed answers of the origin.
const BAD_ANSWERS: &[(&str, &str)] = &[
    ("no HTTP", "nonsense\r\n\r\n"),
    ("status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("NUL in a field", "HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 0\r\n\r\n"),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nabcd"),
    ("length no number", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nabcd"),
];

#[test]
fn a_malformed_answer_becomes_502() {
    for &(name, bytes) in BAD_ANSWERS {
        let origin = Origin::start(move |exchange| {
            exchange.body()?;
            exchange.send(bytes)?;
            Err(ErrorKind::ConnectionAborted.into())
        });
        let gate = Gate::start(Config::new(&[origin.address()]));
        let mut client = Client::connect(gate.http()).unwrap();
        assert_eq!(client.get("/", "").unwrap().status(), 502, "{name}");
    }
}

#[test]
fn a_truncated_body_does_not_look_complete_to_the_visitor() {
    let origin = Origin::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
        Err(ErrorKind::ConnectionAborted.into())
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let answer = Client::connect(gate.http()).unwrap().get("/", "");
    assert!(answer.is_err(), "{answer:?}");
}
