//! The smuggling corpus: heads that must never reach the service, and unusual ones that must.

use super::harness::{LIMITS, converse, converse_with, run};

/// Every refused head is followed by a request that must not be seen either.
const TAIL: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[rustfmt::skip]
const REFUSED_HEADS: &[(&str, &str, u16)] = &[
    ("bare LF ends the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    ("bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", 400),
    ("bare LF ends a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400),
    ("bare LF ends the head", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    ("bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    ("bare CR before a field", "GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n", 400),
    ("CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
    ("bare CR in the target", "GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    ("NUL in a name", "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
    ("NUL in the target", "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("control character in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400),
    ("DEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", 400),
    ("folded line", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
    ("folded with a tab", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n", 400),
    ("first field folded", "GET / HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n", 400),
    ("space before colon", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400),
    ("tab before colon", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", 400),
    ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
    ("empty name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400),
    ("name is no token", "GET / HTTP/1.1\r\nHost: a\r\nX(y): x\r\n\r\n", 400),
    ("name above ASCII", "GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: x\r\n\r\n", 400),
    ("no Host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400),
    ("two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
    ("no method", " / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("method is no token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("method too long", "GETGETGETGETGETGETGETGETGETGETGETGET / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("HTTP/0.9", "GET /\r\n\r\n", 400),
    ("HTTP/2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    ("version in lower case", "GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("version with more digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    ("two spaces before the version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("tab instead of space", "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("space after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("fragment in the target", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("backslash in the path", "GET /a\\..\\b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("target without slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("target above ASCII", "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("other scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("user information", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("port out of range", "GET http://a:65536/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("two Content-Lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    ("two equal Content-Lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    ("list in Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", 400),
    ("sign in Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", 400),
    ("negative Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    ("hex Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc", 400),
    ("empty Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
    ("space in Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 2\r\n\r\nabc", 400),
    ("Content-Length over 64 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\na", 400),
    ("Content-Length over 63 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\na", 400),
    ("CL.TE", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", 400),
    ("TE.CL", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    ("TE.CL 0", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", 400),
    ("two Transfer-Encodings", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("TE hidden by identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("chunked, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    ("gzip, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ("chunked, gzip", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    ("xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    ("quoted chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400),
    ("chunked with a parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400),
    ("chunked with a comma", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", 400),
    ("vertical tab before chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("empty Transfer-Encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", 400),
    ("identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    ("TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("too many empty lines", "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("LF before the request line", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
];

#[rustfmt::skip]
const ACCEPTED: &[(&str, &str, &[&str])] = &[
    ("plain", "GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n", &["GET /a?b=c 0"]),
    ("HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", &["GET / 0"]),
    ("one empty line before", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", &["GET / 0"]),
    ("empty line between", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        &["POST / 1", "GET /2 0"]),
    ("absolute-form", "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n", &["GET http://a/x 0"]),
    ("asterisk-form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &["OPTIONS * 0"]),
    ("browser's query", "GET /?a=|^{}`\\ HTTP/1.1\r\nHost: a\r\n\r\n", &["GET /?a=|^{}`\\ 0"]),
    ("value above ASCII", "GET / HTTP/1.1\r\nHost: a\r\nX: \u{e9}\tb\r\n\r\n", &["GET / 0"]),
    ("chunked in capitals", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \t CHUNKED \r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\n\r\n", &["POST / 3"]),
    ("chunk size in capitals, zeros before", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n00A\r\n0123456789\r\n000\r\n\r\n", &["POST / 10"]),
    ("trailers", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n", &["POST / 1 x-sum=1"]),
    ("Content-Length 0", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", &["POST / 0"]),
    ("three pipelined", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiPOST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        &["GET /1 0", "POST /2 2", "POST /3 1"]),
];

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[rustfmt::skip]
const BAD_BODIES: &[(&str, &str)] = &[
    ("no size", "\r\nabc\r\n0\r\n\r\n"),
    ("size is no number", "xyz\r\nabc\r\n0\r\n\r\n"),
    ("negative size", "-1\r\nabc\r\n0\r\n\r\n"),
    ("0x", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("size with underscore", "1_0\r\n0123456789abcdef\r\n0\r\n\r\n"),
    ("size over 64 bits", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("seventeen zeros", "00000000000000000\r\n\r\n"),
    ("space after size", "3 \r\nabc\r\n0\r\n\r\n"),
    ("space before size", " 3\r\nabc\r\n0\r\n\r\n"),
    ("bare LF after size", "3\nabc\r\n0\r\n\r\n"),
    ("bare CR after size", "3\rabc\r\n0\r\n\r\n"),
    ("bare LF after data", "3\r\nabc\n0\r\n\r\n"),
    ("data longer than its size", "3\r\nabcd\r\n0\r\n\r\n"),
    ("data shorter than its size", "4\r\nabc\r\n0\r\n\r\n"),
    ("bare LF in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n"),
    ("control in an extension", "3;a\x01\r\nabc\r\n0\r\n\r\n"),
    ("bare LF ends the body", "3\r\nabc\r\n0\r\n\n"),
    ("bare LF after the last chunk", "3\r\nabc\r\n0\n\r\n"),
    ("trailer without colon", "0\r\nX\r\n\r\n"),
    ("trailer folded", "0\r\nX: a\r\n b\r\n\r\n"),
    ("trailer with space before colon", "0\r\nX : a\r\n\r\n"),
    ("trailer ended by LF", "0\r\nX: a\n\r\n"),
    ("trailer with NUL", "0\r\nX: \0\r\n\r\n"),
    ("Transfer-Encoding trailer", "0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("Content-Length trailer", "0\r\ncontent-length: 5\r\n\r\n"),
    ("Content_Length trailer", "0\r\ncontent_length: 5\r\n\r\n"),
    ("Host trailer", "0\r\nHOST: b\r\n\r\n"),
    ("Authorization trailer", "0\r\nX: y\r\nAuthorization: Basic x\r\n\r\n"),
    ("X-Forwarded-For trailer", "0\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"),
];

#[test]
fn refused_heads_never_reach_the_service() {
    for (name, head, status) in REFUSED_HEADS {
        let got = run(converse(&[format!("{head}{TAIL}").as_bytes()]));
        assert_eq!(got.statuses, [*status], "{name}: {got:?}");
        assert_eq!(got.seen, [""; 0], "{name}: {got:?}");
        assert!(got.raw.contains("\r\nconnection: close\r\n"), "{name}: {got:?}");
    }
}

#[test]
fn unusual_valid_requests_are_served_and_the_connection_stays_open() {
    for (name, bytes, seen) in ACCEPTED {
        let http_10 = bytes.contains("HTTP/1.0");
        let got = run(converse(&[format!("{bytes}{TAIL}").as_bytes()]));
        let mut expected: Vec<String> = seen.iter().map(|s| s.to_string()).collect();
        if !http_10 {
            expected.push("GET /smuggled 0".into());
        }
        assert_eq!(got.seen, expected, "{name}: {got:?}");
        assert_eq!(got.statuses, vec![200; expected.len()], "{name}: {got:?}");
    }
}

#[test]
fn bad_bodies_get_400_and_requests_after_them_are_not_seen() {
    for (name, body) in BAD_BODIES {
        let got = run(converse(&[format!("{CHUNKED}{body}{TAIL}").as_bytes()]));
        assert_eq!(got.statuses, [400], "{name}: {got:?}");
        assert_eq!(got.seen.len(), 1, "{name}: {got:?}");
        assert!(got.seen[0].starts_with("! ") && !got.seen[0].contains("other"), "{name}: {got:?}");
    }
}

#[test]
fn a_refusal_waits_for_the_response_before_it() {
    let got = run(converse(&[b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\r\n\r\n"]));
    assert_eq!(got.statuses, [200, 400], "{got:?}");
    assert_eq!(got.seen, ["GET /1 0"]);
}

#[test]
fn limits_have_their_own_statuses() {
    let fields: String = (0..16).map(|i| format!("X{i}: y\r\n")).collect();
    let cases = [
        ("target", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(512)), 414),
        ("target without end", format!("GET /{}", "a".repeat(600)), 414),
        ("fields", format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), 431),
        ("head", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(2048)), 431),
        ("head without end", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(2048)), 431),
    ];
    for (name, bytes, status) in cases {
        let got = run(converse(&[bytes.as_bytes()]));
        assert_eq!(got.statuses, [status], "{name}: {got:?}");
    }
    let exact = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(511));
    assert_eq!(run(converse(&[exact.as_bytes()])).statuses, [200]);
}

#[test]
fn bodies_over_the_limit_are_413() {
    let mut limits = LIMITS;
    limits.head.body = 4;
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    let cases = [
        (format!("{head}Content-Length: 5\r\n\r\nabcde"), 413),
        (format!("{head}Content-Length: 4\r\n\r\nabcd"), 200),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"), 413),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"), 200),
    ];
    for (bytes, status) in cases {
        let got = run(converse_with(limits, &[bytes.as_bytes()]));
        assert_eq!(got.statuses, [status], "{got:?}");
    }
}
