//! Writes heads (RFC 9112 3, 4, 5 and 6).
//!
//! The framing fields are written here and nowhere else: whatever the head has of them is left out, so that
//! it cannot disagree with the content.

use http::{Method, StatusCode, Version};

use crate::fields::{Fields, Set};
use crate::name::{self, Known};
use crate::parse::Framing;
use crate::request::RequestHead;
use crate::response::ResponseHead;

/// The interim response that asks for the content of a request (RFC 9110 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const FRAMING: Set = Set::NONE.with(Known::ContentLength).with(Known::TransferEncoding);

/// Writes a request to an origin: HTTP/1.1, with its target in origin form. `more` is written after the
/// fields: whole lines.
///
/// Without content it has `Content-Length: 0` where one is expected (RFC 9110 8.6).
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead, framing: Framing, more: &[u8]) {
    let is_authority_form = *head.method() == Method::CONNECT && head.path().is_empty();
    let target = if is_authority_form { head.target() } else { head.path_and_query() };
    for part in [head.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let expects_content = matches!(*head.method(), Method::POST | Method::PUT | Method::PATCH);
    let framing = match framing {
        Framing::None if expects_content || head.fields.contains(name::CONTENT_LENGTH) => Framing::Fixed(0),
        framing => framing,
    };
    write_rest(out, &head.fields, FRAMING, framing, more);
}

/// Writes a final response, or 101. `more` is written after the fields: whole lines, such as `connection` and
/// `date`.
///
/// [`Framing::None`] is for what has no content by its status or by the method: a `Content-Length` of the
/// head stays for HEAD and 304, and is left out for 204 and 1xx. An empty response is [`Framing::Fixed`].
pub fn write_response(out: &mut Vec<u8>, head: &ResponseHead, framing: Framing, more: &[u8]) {
    write_status_line(out, head);
    let has_never_length = head.status() == StatusCode::NO_CONTENT || head.status().is_informational();
    let left_out = match framing {
        Framing::None if !has_never_length => Set::NONE.with(Known::TransferEncoding),
        _ => FRAMING,
    };
    write_rest(out, &head.fields, left_out, framing, more);
}

/// Writes an interim response (1xx but 101).
pub fn write_interim(out: &mut Vec<u8>, head: &ResponseHead) {
    write_status_line(out, head);
    write_rest(out, &head.fields, FRAMING, Framing::None, b"");
}

fn write_status_line(out: &mut Vec<u8>, head: &ResponseHead) {
    let version = if head.version() == Version::HTTP_10 { &b"HTTP/1.0 "[..] } else { b"HTTP/1.1 " };
    for part in [version, head.status().as_str().as_bytes(), b" ", head.reason(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn write_rest(out: &mut Vec<u8>, fields: &Fields, left_out: Set, framing: Framing, more: &[u8]) {
    debug_assert!(more.is_empty() || more.ends_with(b"\r\n"), "no whole lines");
    fields.write_without(left_out, out);
    match framing {
        Framing::Fixed(length) => {
            out.extend_from_slice(b"content-length: ");
            write_decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
    out.extend_from_slice(more);
    out.extend_from_slice(b"\r\n");
}

/// Without an allocation.
fn write_decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests;
