//! hyper's view of a wire.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::socket::write_gathered;

use super::{Wire, WireEvent};

// Nothing in a wire is pinned: the socket is `Unpin`, the timer is boxed.
impl<S: Unpin, K> Unpin for Wire<S, K> {}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Read for Wire<S, K> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.get_mut().read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(WireEvent)> Write for Wire<S, K> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_mute() {
            return Poll::Ready(Ok(buf.len()));
        }
        this.write(cx, buf, |socket, cx| socket.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_mute() {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let first = bufs.first().map_or(&[][..], |b| b);
        this.write(cx, first, |socket, cx| write_gathered(socket, cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().close(cx).map(Ok)
    }
}
