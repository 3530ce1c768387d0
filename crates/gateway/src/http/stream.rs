//! A visitor's connection as bytes, whatever it came by, and what is known of it before its first request.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// TLS is boxed: its state is some kilobytes, which plain connections must not have.
#[derive(Debug)]
pub enum VisitorSocket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl VisitorSocket {
    /// The descriptor of the connection, for options of the socket; never for reading or writing.
    pub fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(socket) => socket.as_raw_fd(),
            Self::Tls(tls) => tls.get_ref().0.as_raw_fd(),
            Self::Unix(socket) => socket.as_raw_fd(),
        }
    }

    /// The socket itself where its bytes are those of HTTP, so that the kernel can move them.
    ///
    /// # Errors
    /// Gives back what is not such a socket.
    pub fn into_tcp(self) -> Result<TcpStream, Self> {
        match self {
            Self::Tcp(socket) => Ok(socket),
            other => Err(other),
        }
    }
}

/// Calls the method of the stream inside, of a type that is one of these three.
macro_rules! of_stream {
    ($self:expr, $method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Self::Tls(tls) => Pin::new(&mut **tls).$method($($argument),*),
            Self::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}
pub(crate) use of_stream;

impl AsyncRead for VisitorSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for VisitorSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self, poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(self, poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
            Self::Unix(socket) => socket.is_write_vectored(),
        }
    }
}

/// The protocol of a connection: by ALPN, or because its first bytes say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    #[default]
    Http1,
    Http2,
}

/// A visitor's certificate, which the gate has verified.
#[derive(PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// Its subject as RFC 4514 writes it, in visible ASCII.
    pub subject: Box<str>,
}

/// What is known of a visitor's connection before its first request.
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// Who is at its other end. A PROXY header of a trusted peer names somebody else. Of a Unix socket:
    /// 127.0.0.1:0, since nothing but this machine can reach it.
    pub peer: SocketAddr,
    /// The address that the visitor connected to; `None`: a Unix socket.
    pub local: Option<SocketAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
    pub protocol: Protocol,
    /// The name of the server that the visitor asked for (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

impl ConnInfo {
    /// Of a connection without TLS.
    pub fn plain(peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        let (server_name, client_certificate) = (None, None);
        Self { peer, local, scheme: "http", protocol: Protocol::Http1, server_name, client_certificate }
    }
}
