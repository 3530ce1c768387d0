//! What a request's stages and its visitor's connection tell each other past head and body, whatever the
//! protocol: interim responses, the departure of the visitor, the end of the connection, its upgrade.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::http::http2::link::StreamLink;
use crate::http::wire::WireHandle;

/// The visitor's side of a tunnel, once the 101 has been written; `None`: the visitor has left before.
pub type VisitorUpgrade = Pin<Box<dyn Future<Output = Option<VisitorStream>>>>;

/// What was a visitor's connection with HTTP, or a stream of one, and is now its side of a tunnel.
pub struct VisitorStream {
    pub io: Box<dyn TunnelIo>,
    /// Read beyond the request's head; it comes before what `io` reads.
    pub received: Bytes,
}

/// One side of a tunnel.
pub trait TunnelIo: AsyncRead + AsyncWrite + Unpin {
    /// The plain socket, where it is nothing else: bytes can be moved from and to it within the kernel.
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>>;
}

impl TunnelIo for TcpStream {
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>> {
        Ok(*self)
    }
}

impl TunnelIo for TokioIo<Upgraded> {
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>> {
        Err(self)
    }
}

/// The upgrade of a connection that hyper serves.
pub fn hyper_upgrade(upgrade: OnUpgrade) -> VisitorUpgrade {
    Box::pin(async {
        let io = Box::new(TokioIo::new(upgrade.await.ok()?));
        Some(VisitorStream { io, received: Bytes::new() })
    })
}

/// Cheap to clone.
#[derive(Clone)]
pub enum VisitorLink {
    Http1(WireHandle, Rc<Cell<Option<VisitorUpgrade>>>),
    Http2(StreamLink),
}

impl VisitorLink {
    /// Whether the present request asked for `100 Continue`.
    pub fn expect_continue(&self) -> bool {
        match self {
            Self::Http1(wire, _) => wire.expect_continue(),
            Self::Http2(stream) => stream.expect_continue(),
        }
    }

    /// The visitor's side of a tunnel, if the present request offers to switch protocols. Once a request.
    pub fn take_upgrade(&self) -> Option<VisitorUpgrade> {
        match self {
            Self::Http1(_, upgrade) => upgrade.take(),
            Self::Http2(stream) => stream.take_upgrade(),
        }
    }

    /// Bytes after the present request are no longer HTTP. To be called before answering 101 (RFC 9110 7.8).
    pub fn pass_through(&self) {
        match self {
            Self::Http1(wire, _) => wire.pass_through(),
            // Its task knows when it has answered.
            Self::Http2(_) => {}
        }
    }

    /// Whether a request is being served: its response has not been written completely.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Http1(wire, _) => wire.is_busy(),
            // A stream is one request.
            Self::Http2(_) => true,
        }
    }

    /// From now on nothing is written, and the connection closes as usual; a stream of HTTP/2 is reset.
    pub fn mute(&self) {
        match self {
            Self::Http1(wire, _) => wire.mute(),
            Self::Http2(stream) => stream.mute(),
        }
    }

    /// As [`VisitorLink::mute`], and the connection closes at once; the socket's options decide how.
    pub fn abort(&self) {
        match self {
            Self::Http1(wire, _) => wire.abort(),
            Self::Http2(stream) => stream.abort(),
        }
    }

    /// Cuts a stream off, whatever it is at. A connection of HTTP/1.1 is closed by its task instead.
    pub fn cut(&self) {
        match self {
            Self::Http1(..) => {}
            Self::Http2(stream) => stream.cut(),
        }
    }

    /// Sends an interim response (RFC 9110 15.2) before the present request's final one. False: it cannot be
    /// sent, and is not.
    pub fn informational(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        match self {
            Self::Http1(wire, _) => wire.informational(status, fields),
            Self::Http2(stream) => stream.informational(status, fields),
        }
    }
}
