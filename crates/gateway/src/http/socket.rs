//! A tokio TCP stream with hyper's I/O traits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub struct Socket(pub TcpStream);

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: tokio's `ReadBuf` never uninitialises bytes of the slice it is given.
        let mut buf = ReadBuf::uninit(unsafe { cursor.as_mut() });
        match Pin::new(&mut self.0).poll_read(cx, &mut buf) {
            Poll::Ready(Ok(())) => {
                let n = buf.filled().len();
                // SAFETY: `filled` is what the read has written, at the cursor's start.
                unsafe { cursor.advance(n) };
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        write_gathered(Pin::new(&mut self.0), cx, bufs)
    }
}

/// Up to this size (a head and a small body) a copy and one `send` cost less than a vectored write.
const GATHER: usize = 2048;

/// Writes several buffers; small ones are copied together on the stack first.
pub(crate) fn write_gathered<S: AsyncWrite>(
    socket: Pin<&mut S>,
    cx: &mut Context<'_>,
    bufs: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let total: usize = bufs.iter().map(|buf| buf.len()).sum();
    match bufs {
        [one] => socket.poll_write(cx, one),
        _ if total <= GATHER => {
            let mut copy = [0; GATHER];
            let mut at = 0;
            for buf in bufs {
                copy[at..at + buf.len()].copy_from_slice(buf);
                at += buf.len();
            }
            socket.poll_write(cx, &copy[..total])
        }
        _ => socket.poll_write_vectored(cx, bufs),
    }
}

/// Makes the kernel reset the connection when its last descriptor is closed (`SO_LINGER` of 0); data not sent
/// yet is dropped.
///
/// `fd` must be the open socket of the connection whose task the caller is part of.
pub(crate) fn reset_on_close(fd: std::os::fd::RawFd) {
    // SAFETY: the caller runs within the task that owns the socket, so it is open until this returns.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    _ = socket2::SockRef::from(&fd).set_linger(Some(std::time::Duration::ZERO));
}

/// Sets the rate at which the kernel sends, in bytes per second (`SO_MAX_PACING_RATE`); `None`: no limit.
/// Nothing where the system has no such option: it only smooths what the caller already paces.
///
/// `fd` must be the open socket of the connection whose task the caller is part of.
pub(crate) fn pace(fd: std::os::fd::RawFd, bytes_per_s: Option<u64>) {
    #[cfg(target_os = "linux")]
    {
        // The greatest value means that there is no limit.
        let rate = bytes_per_s.map_or(u32::MAX, |rate| u32::try_from(rate).unwrap_or(u32::MAX));
        // SAFETY: the option's value is a whole `u32`, which the kernel copies. The caller runs within the
        // task that owns the socket, so it is open until this returns.
        unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw const rate).cast(),
                size_of::<u32>() as libc::socklen_t,
            );
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, bytes_per_s);
}
