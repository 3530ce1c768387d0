//! HTTP/2 to visitors (RFC 9113), as far as it knows nothing of rooms and gates: what the `h2` crate leaves
//! to its user.
//!
//! `h2` speaks the protocol: frames, HPACK, streams, flow control. Here a request's head is checked by the
//! rules of HTTP/1.1 ([`head`]), its body bounded ([`body`]), its stream made a link to its visitor
//! ([`link`]) and, for WebSocket, a tunnel ([`tunnel`]), and the frames are counted on their way to `h2`
//! ([`watch`]): it bounds the memory that a visitor can make it use, but not the work.

pub mod body;
pub mod head;
pub mod link;
pub mod tunnel;
pub mod watch;

/// What an HTTP/2 connection begins with (RFC 9113 3.4). No request of HTTP/1.1 does.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether a connection that begins with `bytes` is one of HTTP/2; `None`: more bytes must tell.
pub fn is_http2(bytes: &[u8]) -> Option<bool> {
    let known = bytes.len().min(PREFACE.len());
    if bytes[..known] != PREFACE[..known] {
        return Some(false);
    }
    (known == PREFACE.len()).then_some(true)
}

/// Whether content of this type is a call in which both sides speak in turn, with pauses (gRPC): a visitor
/// may wait for an answer to the beginning of its request.
pub fn is_conversation(content_type: Option<&[u8]>) -> bool {
    content_type.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Fields of one connection, which HTTP/2 does not have (RFC 9113 8.2.2).
pub const CONNECTION_SPECIFIC: [http::HeaderName; 5] = [
    http::header::CONNECTION,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
    http::HeaderName::from_static("keep-alive"),
    http::HeaderName::from_static("proxy-connection"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        for n in 0..PREFACE.len() {
            assert_eq!(is_http2(&PREFACE[..n]), None, "{n} bytes");
        }
        assert_eq!(is_http2(PREFACE), Some(true));
        assert_eq!(is_http2(&[&PREFACE[..], b"more"].concat()), Some(true));
        for other in [&b"GET / HTTP/1.1"[..], b"P0", b"PRI * HTTP/1.1", b"\x16\x03\x01"] {
            assert_eq!(is_http2(other), Some(false), "{other:?}");
        }
    }
}
