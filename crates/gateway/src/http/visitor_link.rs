//! What a request's stages and its visitor's connection tell each other past head and body, whatever the
//! protocol: interim responses, the departure of the visitor, the end of the connection.

use http::{HeaderMap, StatusCode};

use crate::http::wire::WireHandle;

/// Cheap to clone.
#[derive(Clone)]
pub enum VisitorLink {
    Http1(WireHandle),
}

impl VisitorLink {
    /// Whether the present request asked for `100 Continue`.
    pub fn expect_continue(&self) -> bool {
        match self {
            Self::Http1(wire) => wire.expect_continue(),
        }
    }

    /// Bytes after the present request are no longer HTTP. To be called before answering 101 (RFC 9110 7.8).
    pub fn pass_through(&self) {
        match self {
            Self::Http1(wire) => wire.pass_through(),
        }
    }

    /// Whether a request is being served: its response has not been written completely.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Http1(wire) => wire.is_busy(),
        }
    }

    /// From now on nothing is written, and the connection closes as usual.
    pub fn mute(&self) {
        match self {
            Self::Http1(wire) => wire.mute(),
        }
    }

    /// As [`VisitorLink::mute`], and the connection closes at once; the socket's options decide how.
    pub fn abort(&self) {
        match self {
            Self::Http1(wire) => wire.abort(),
        }
    }

    /// Sends an interim response (RFC 9110 15.2) before the present request's final one. False: it cannot be
    /// sent, and is not.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        match self {
            Self::Http1(wire) => wire.informational(status, fields),
        }
    }
}
