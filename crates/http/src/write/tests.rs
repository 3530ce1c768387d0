//! What is written says its own framing, whatever the head says.

use super::*;
use crate::name::Name;

fn request(method: Method, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::new(method, target, Version::HTTP_11);
    for (name, value) in fields {
        head.fields.append(Name::of(name), value.as_bytes());
    }
    head
}

fn written_request(head: &RequestHead, framing: Framing, more: &[u8]) -> String {
    let mut out = Vec::new();
    write_request(&mut out, head, framing, more);
    String::from_utf8(out).unwrap()
}

fn written_response(status: u16, fields: &[(&str, &str)], framing: Framing) -> String {
    let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap());
    for (name, value) in fields {
        head.fields.append(Name::of(name), value.as_bytes());
    }
    let mut out = Vec::new();
    write_response(&mut out, &head, framing, b"");
    String::from_utf8(out).unwrap()
}

#[test]
fn a_request_goes_to_the_origin_in_origin_form() {
    let head = request(Method::GET, "http://a?b", &[("Host", "a"), ("X", "1")]);
    assert_eq!(
        written_request(&head, Framing::None, b"via: 1.1 gate\r\n"),
        "GET /?b HTTP/1.1\r\nhost: a\r\nX: 1\r\nvia: 1.1 gate\r\n\r\n"
    );
    let head = request(Method::OPTIONS, "*", &[]);
    assert_eq!(written_request(&head, Framing::None, b""), "OPTIONS * HTTP/1.1\r\n\r\n");
    let head = request(Method::CONNECT, "a:443", &[]);
    assert_eq!(written_request(&head, Framing::None, b""), "CONNECT a:443 HTTP/1.1\r\n\r\n");
}

#[test]
fn framing_fields_are_those_of_the_content() {
    let fields = [("content-length", "7"), ("transfer-encoding", "gzip"), ("content-length", "8")];
    let rest = |framing| {
        let text = written_request(&request(Method::POST, "/", &fields), framing, b"");
        text.split_once("\r\n").unwrap().1.to_owned()
    };
    assert_eq!(rest(Framing::Fixed(1234567890)), "content-length: 1234567890\r\n\r\n");
    assert_eq!(rest(Framing::Chunked), "transfer-encoding: chunked\r\n\r\n");
    assert_eq!(rest(Framing::None), "content-length: 0\r\n\r\n", "a POST without content says so");
    let get = request(Method::GET, "/", &[]);
    assert_eq!(written_request(&get, Framing::None, b""), "GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn a_length_without_content_stays_where_it_has_a_meaning() {
    let length = [("content-length", "5"), ("transfer-encoding", "chunked")];
    let none = |status| written_response(status, &length, Framing::None);
    assert_eq!(none(304), "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(none(200), "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", "of HEAD");
    assert_eq!(none(204), "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(none(101), "HTTP/1.1 101 Switching Protocols\r\n\r\n");
    let empty = written_response(200, &length, Framing::Fixed(0));
    assert_eq!(empty, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(written_response(299, &length, Framing::UntilClose), "HTTP/1.1 299 \r\n\r\n");
    let mut interim = ResponseHead::new(StatusCode::EARLY_HINTS);
    interim.fields.append("link".into(), b"</a>");
    interim.fields.append(name::CONTENT_LENGTH, b"5");
    let mut out = Vec::new();
    write_interim(&mut out, &interim);
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
}

#[test]
fn an_old_visitor_is_answered_in_its_version() {
    let mut head = ResponseHead::new(StatusCode::OK);
    head.set_version(Version::HTTP_10);
    let mut out = Vec::new();
    write_response(&mut out, &head, Framing::UntilClose, b"connection: close\r\n");
    assert_eq!(out, b"HTTP/1.0 200 OK\r\nconnection: close\r\n\r\n");
}

#[test]
fn numbers_are_written_in_full() {
    for n in [0, 9, 10, 1 << 32, u64::MAX] {
        let mut out = Vec::new();
        write_decimal(&mut out, n);
        assert_eq!(out, n.to_string().into_bytes());
    }
}
