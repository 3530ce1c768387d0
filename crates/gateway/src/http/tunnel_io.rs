//! The sides of a tunnel: what was a connection with HTTP, or a stream of one. And what of a visitor's
//! connection the kernel can do alone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::http::stream::VisitorSocket;

/// The visitor's side of a tunnel, once the 101 has been written; `None`: the visitor has left before.
pub type VisitorUpgrade = Pin<Box<dyn Future<Output = Option<VisitorStream>>>>;

pub struct VisitorStream {
    pub io: Box<dyn TunnelIo>,
    /// Read beyond the request's head; it comes before what `io` reads.
    pub received: Bytes,
}

/// One side of a tunnel.
pub trait TunnelIo: AsyncRead + AsyncWrite + Unpin {
    /// The plain socket, where it is nothing else: bytes can be moved from and to it within the kernel.
    fn as_plain(&self) -> Option<&TcpStream> {
        None
    }
}

/// Content that can be moved to a plain socket within the kernel.
pub trait Splice {
    /// Ready when so many bytes have been moved.
    ///
    /// # Errors
    /// The content broke off, or the socket takes no more.
    fn poll_splice(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<u64>>;

    /// Whether it waits for the socket, and not for the content.
    fn waits_for_socket(&self) -> bool;
}

impl TunnelIo for TcpStream {
    fn as_plain(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl TunnelIo for VisitorSocket {
    fn as_plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(socket) => Some(socket),
            _ => None,
        }
    }
}
