//! WebSocket's handshake at an HTTP/2 origin (RFC 8441), in the form that visitors know (RFC 6455 4).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode, response};
use http_body::Body as _;
use tidegate_http::{RequestHead, ResponseHead, name};

use crate::upstream::body::RequestBody;

/// It is appended to the key before that is hashed (RFC 6455 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes that a key stands for (RFC 6455 4.2.1).
const KEY: usize = 16;

/// A visitor's request for a WebSocket.
pub(crate) struct Handshake {
    /// The value of `Sec-WebSocket-Accept`.
    accept: String,
}

impl Handshake {
    /// `None`: the request asks for something else, or its key is missing or invalid (RFC 6455 4.2.1).
    pub(crate) fn of(head: &RequestHead, body: &RequestBody) -> Option<Self> {
        let asks = *head.method() == Method::GET && head.fields.lists(name::UPGRADE, "websocket");
        if !asks || !body.is_end_stream() {
            return None;
        }
        let mut keys = head.fields.get_all("sec-websocket-key".into());
        let key = keys.next().filter(|key| is_key(key))?;
        keys.next().is_none().then(|| Self { accept: accept(key) })
    }

    /// The head for the visitor, made of the one with which the origin agrees: a success that becomes 101
    /// (RFC 6455 4.2.2). `Content-Length` means nothing there (RFC 9110 9.3.6).
    pub(crate) fn answer(&self, parts: &response::Parts) -> ResponseHead {
        let mut head = ResponseHead::from_parts(parts);
        head.set_status(StatusCode::SWITCHING_PROTOCOLS);
        head.fields.remove(name::CONTENT_LENGTH);
        head.fields.set(name::CONNECTION, b"upgrade");
        head.fields.set(name::UPGRADE, b"websocket");
        head.fields.set("sec-websocket-accept".into(), self.accept.as_bytes());
        head
    }
}

fn is_key(key: &[u8]) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY)
}

fn accept(key: &[u8]) -> String {
    // SHA-1 proves here that the other side has read the request. It protects nothing.
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a visitor's request with these fields.
    fn asked(method: Method, fields: &[(&str, &str)]) -> RequestHead {
        let mut request = http::Request::builder().method(method).uri("/chat");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        RequestHead::from_parts(&parts)
    }

    const UPGRADE: (&str, &str) = ("upgrade", "WebSocket");
    const SAMPLE: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");

    #[test]
    fn the_key_is_answered_as_the_standard_does() {
        let handshake =
            Handshake::of(&asked(Method::GET, &[UPGRADE, SAMPLE]), &RequestBody::empty()).unwrap();
        assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "the example of RFC 6455 1.3");
    }

    #[test]
    fn other_requests_are_no_handshakes() {
        let is_one = |method, fields: &[_], body| Handshake::of(&asked(method, fields), &body).is_some();
        assert!(is_one(Method::GET, &[UPGRADE, SAMPLE], RequestBody::empty()));
        assert!(!is_one(Method::POST, &[UPGRADE, SAMPLE], RequestBody::empty()));
        assert!(!is_one(Method::GET, &[UPGRADE, SAMPLE], RequestBody::full("body")));
        assert!(!is_one(Method::GET, &[("upgrade", "echo"), SAMPLE], RequestBody::empty()));
        for keys in [&[][..], &[("sec-websocket-key", "c2hvcnQ=")], &[SAMPLE, SAMPLE]] {
            assert!(!is_one(Method::GET, &[&[UPGRADE], keys].concat(), RequestBody::empty()), "{keys:?}");
        }
    }
}
