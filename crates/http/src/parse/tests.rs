//! What heads say about their connections, and how the parsers go on.

use http::Method;

use super::request::{Facts, HeadLimits, RequestParser};
use super::response::{Asked, ResponseLimits, ResponseParser};
use super::*;
use crate::name;

const LIMITS: HeadLimits = HeadLimits { bytes: 4 << 20, fields: 100, target: 1024, body: 0 };

fn facts(head: &str) -> Facts {
    RequestParser::new().parse(head.as_bytes(), &LIMITS).unwrap().expect("complete").1
}

#[test]
fn connections_are_kept_as_the_head_says() {
    let kept = |version: &str, fields: &str| {
        facts(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")).keep_alive
    };
    assert!(
        kept("1.1", "") && kept("1.1", "Connection: keep-alive\r\n") && kept("1.1", "Connection: te\r\n")
    );
    assert!(
        !kept("1.1", "Connection: te, Close\r\n") && !kept("1.1", "Connection: x\r\nConnection: close\r\n")
    );
    assert!(!kept("1.0", "") && kept("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!kept("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn an_upgrade_is_one_that_connection_names() {
    let upgrades = |version: &str, fields: &str| {
        facts(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")).upgrade
    };
    assert!(upgrades("1.1", "Upgrade: websocket\r\nConnection: x, Upgrade\r\n"));
    assert!(!upgrades("1.1", "Upgrade: websocket\r\n") && !upgrades("1.1", "Connection: upgrade\r\n"));
    assert!(!upgrades("1.0", "Upgrade: websocket\r\nConnection: upgrade\r\n"));
}

#[test]
fn an_expectation_counts_in_http_11_only() {
    assert!(facts("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n").expect_continue);
    assert!(!facts("PUT / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n\r\n").expect_continue);
    assert!(!facts("PUT / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n").expect_continue);
}

#[test]
fn empty_lines_are_no_beginning() {
    let mut parser = RequestParser::new();
    let bytes = b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    for end in 0..5 {
        assert!(parser.parse(&bytes[..end], &LIMITS).unwrap().is_none());
        assert_eq!(parser.has_begun(&bytes[..end]), end % 2 == 1, "{end}");
    }
    assert_eq!((parser.take_skipped(), parser.take_skipped()), (4, 0));
    let rest = &bytes[4..];
    assert!(parser.parse(&rest[..1], &LIMITS).unwrap().is_none() && parser.has_begun(&rest[..1]));
    let (head, facts) = parser.parse(rest, &LIMITS).unwrap().expect("complete");
    assert_eq!((head.method(), facts.len), (&Method::GET, rest.len() - 4));
    // Ready for the next.
    let (head, _) = parser.parse(b"POST /2 HTTP/1.1\r\nHost: b\r\n\r\n", &LIMITS).unwrap().expect("complete");
    assert_eq!((head.target(), head.fields.get(name::HOST)), ("/2", Some(&b"b"[..])));
}

/// Two megabytes, byte by byte: if each looked at all bytes before it, this would take hours.
#[test]
fn small_pieces_are_not_quadratic() {
    let long = format!("X: {}\r\n", "a".repeat(40_000)).repeat(50);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{long}\r\n");
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{long}\r\n");
    let mut parser = RequestParser::new();
    for end in 0..request.len() {
        assert!(parser.parse(&request.as_bytes()[..end], &LIMITS).unwrap().is_none());
    }
    let (head, _) = parser.parse(request.as_bytes(), &LIMITS).unwrap().expect("complete");
    assert_eq!(head.fields.len(), 51);
    let limits = ResponseLimits { bytes: 4 << 20, fields: 100 };
    let mut parser = ResponseParser::new();
    for end in 0..response.len() {
        assert!(parser.parse(&response.as_bytes()[..end], Asked::default(), &limits).unwrap().is_none());
    }
    let (head, facts) =
        parser.parse(response.as_bytes(), Asked::default(), &limits).unwrap().expect("complete");
    assert_eq!((head.fields.len(), facts.framing), (51, Framing::Fixed(0)));
}

/// The text of lines is taken as it was sent.
#[test]
fn kept_lines_are_written_as_they_came() {
    let text = "hOst:a\r\nX-Y:  b \t\r\nEmpty:\r\n";
    let head = format!("GET / HTTP/1.1\r\n{text}\r\n");
    let (head, _) = RequestParser::new().parse(head.as_bytes(), &LIMITS).unwrap().expect("complete");
    let mut out = Vec::new();
    head.fields.write_to(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), text);
    let pairs: Vec<_> = head.fields.iter().collect();
    assert_eq!(pairs, [(&b"hOst"[..], &b"a"[..]), (b"X-Y", b"b"), (b"Empty", b"")]);
}
