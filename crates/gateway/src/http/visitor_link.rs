//! What a request's stages and its visitor's connection tell each other past head and body, whatever the
//! protocol: interim responses, the departure of the visitor, the end of the connection, its upgrade.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, StatusCode};

use crate::http::http1::Http1Link;
use crate::http::http2::link::StreamLink;

pub use crate::http::tunnel_io::{TunnelIo, VisitorStream, VisitorUpgrade};

/// Fields that speak of a connection or a body, which an interim response has none of (RFC 9110 15.2).
const NOT_IN_INTERIM: [HeaderName; 7] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Cheap to clone.
#[derive(Clone)]
pub enum VisitorLink {
    Http1(Http1Link),
    Http2(StreamLink),
}

impl VisitorLink {
    /// Whether the present request asked for `100 Continue`.
    pub fn expect_continue(&self) -> bool {
        match self {
            Self::Http1(link) => link.expect_continue(),
            Self::Http2(stream) => stream.expect_continue(),
        }
    }

    /// The visitor's side of a tunnel, if the present request offers to switch protocols. Once a request.
    pub fn take_upgrade(&self) -> Option<VisitorUpgrade> {
        match self {
            Self::Http1(link) => link.take_upgrade(),
            Self::Http2(stream) => stream.take_upgrade(),
        }
    }

    /// Bytes after the present request are no longer HTTP. To be called before answering 101 (RFC 9110 7.8).
    pub fn pass_through(&self) {
        match self {
            Self::Http1(link) => link.pass_through(),
            // Its task knows when it has answered.
            Self::Http2(_) => {}
        }
    }

    /// Whether a request is being served: its response has not been written completely.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Http1(link) => link.is_busy(),
            // A stream is one request.
            Self::Http2(_) => true,
        }
    }

    /// From now on nothing is written, and the connection closes as usual; a stream of HTTP/2 is reset.
    pub fn mute(&self) {
        match self {
            Self::Http1(link) => link.mute(),
            Self::Http2(stream) => stream.mute(),
        }
    }

    /// As [`VisitorLink::mute`], and the connection closes at once; the socket's options decide how.
    pub fn abort(&self) {
        match self {
            Self::Http1(link) => link.abort(),
            Self::Http2(stream) => stream.abort(),
        }
    }

    /// Cuts a stream off, whatever it is at. A connection of HTTP/1.1 is closed by its task instead.
    pub fn cut(&self) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(stream) => stream.cut(),
        }
    }

    /// Sends an interim response (RFC 9110 15.2) before the present request's final one. False: it cannot be
    /// sent, and is not.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        match self {
            Self::Http1(link) => link.informational(status, fields),
            Self::Http2(stream) => stream.informational(status, fields),
        }
    }

    /// Passes an interim response of the origin on. The connection says 100 itself, when the body is asked
    /// for.
    pub fn relay(&self, status: StatusCode, fields: &HeaderMap) {
        if status == StatusCode::CONTINUE {
            return;
        }
        let mut fields = fields.clone();
        for name in NOT_IN_INTERIM {
            fields.remove(name);
        }
        self.informational(status, &fields);
    }

    /// The connection closes as soon as it is idle, or with the end of the present response.
    pub fn finish(&self) {
        match self {
            Self::Http1(link) => link.finish(),
            // Its connection's task is told instead.
            Self::Http2(_) => {}
        }
    }
}
