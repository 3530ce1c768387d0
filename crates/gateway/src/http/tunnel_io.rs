//! A visitor's side of a tunnel: what was its connection with HTTP, or a stream of one.

use std::pin::Pin;

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
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>>;
}

impl TunnelIo for TcpStream {
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>> {
        Ok(*self)
    }
}

impl TunnelIo for VisitorSocket {
    fn plain(self: Box<Self>) -> Result<TcpStream, Box<dyn TunnelIo>> {
        self.into_tcp().map_err(|other| Box::new(other) as _)
    }
}
