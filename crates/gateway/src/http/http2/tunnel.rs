//! A stream as one side of a tunnel (RFC 8441): the visitor's or the origin's.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::tunnel_io::TunnelIo;

/// Bytes of one write that are taken at once.
const MAX_WRITE: usize = 16 << 10;

/// Reads within the window that it gives the other side, and writes within the one that the other side gives
/// (RFC 9113 5.2). END_STREAM ends a direction, and a reset is an error in both. If it is dropped before both
/// directions have ended, `h2` resets the stream (CANCEL).
pub struct StreamTunnel<G = ()> {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// Came and was not read yet.
    rest: Bytes,
    /// Dropped after the stream.
    _guard: G,
}

impl StreamTunnel {
    pub fn new(send: SendStream<Bytes>, receive: RecvStream) -> Self {
        Self::holding(send, receive, ())
    }
}

impl<G> StreamTunnel<G> {
    /// Keeps `guard` as long as the stream.
    pub fn holding(send: SendStream<Bytes>, receive: RecvStream, guard: G) -> Self {
        Self { send, receive, rest: Bytes::new(), _guard: guard }
    }
}

impl<G: Unpin> AsyncRead for StreamTunnel<G> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(this.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Only an ended stream refuses it.
                    let _ = this.receive.flow_control().release_capacity(data.len());
                    this.rest = data;
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl<G: Unpin> AsyncWrite for StreamTunnel<G> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wanted = buf.len().min(MAX_WRITE);
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        this.send.reserve_capacity(wanted);
        while this.send.capacity() == 0 {
            match ready!(this.send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let n = this.send.capacity().min(wanted);
        this.send.send_data(Bytes::copy_from_slice(&buf[..n]), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(n))
    }

    /// The connection's task writes.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A stream that has been reset has ended as well.
        let _ = self.get_mut().send.send_data(Bytes::new(), true);
        Poll::Ready(Ok(()))
    }
}

impl<G: Unpin> TunnelIo for StreamTunnel<G> {}
