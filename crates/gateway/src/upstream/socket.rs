//! The socket of a connection to the origin, and the memory that is read into.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::http::stream::of_stream;
use crate::http::tunnel_io::TunnelIo;
use crate::upstream::balance::Replica;
use crate::upstream::target::OpenError;

/// TLS is boxed: its state is some kilobytes, which plain connections must not have.
#[derive(Debug)]
pub enum OriginSocket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl OriginSocket {
    /// A connection to a replica, on which HTTP may begin. `header` is sent first, before TLS (the PROXY
    /// protocol's); it is short, so that a new connection takes it at once.
    pub(crate) async fn open(replica: &Replica, header: &[u8], limit: Duration) -> Result<Self, OpenError> {
        let target = replica.target();
        if let Some(path) = target.unix() {
            let connected = tokio::time::timeout(limit, UnixStream::connect(path)).await;
            let mut stream = connected.map_err(|_| OpenError::Timeout)??;
            stream.write_all(header).await?;
            return Ok(Self::Unix(stream));
        }
        let begun = Instant::now();
        let mut stream = target.open(limit).await?;
        stream.set_nodelay(true).map_err(OpenError::Failed)?;
        if !header.is_empty() {
            stream.write_all(header).await?;
        }
        let Some(tls) = replica.tls()? else { return Ok(Self::Tcp(stream)) };
        // On the heap: requests to replicas without TLS should not carry its state along.
        let handshake = Box::pin(tls.connect(target.host(), stream));
        match tokio::time::timeout_at(begun + limit, handshake).await {
            Ok(stream) => Ok(Self::Tls(Box::new(stream?))),
            Err(_) => Err(OpenError::Timeout),
        }
    }

    /// What the origin has chosen in TLS; `None`: nothing, or there is no TLS.
    pub(crate) fn chosen(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol(),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Whether nothing has come: neither the end of the connection nor bytes that nobody has asked for, which
    /// would be taken for the next response. A system call is made only if the runtime has seen something.
    /// From then on no task is woken by this socket until it is read again.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let (mut byte, waker) = ([0], Waker::noop());
        let (mut byte, mut cx) = (ReadBuf::new(&mut byte), Context::from_waker(waker));
        // A task that has used up its turn would be told "pending", whatever the socket says.
        match self {
            Self::Tcp(stream) => {
                let peek = poll_fn(|cx| stream.poll_peek(cx, &mut byte).map(drop));
                pin!(tokio::task::unconstrained(peek)).poll(&mut cx).is_pending()
            }
            // Who is not quiet is not used again, so that what is read here is not missed. With TLS the read
            // takes in session tickets and key updates, which are no bytes of HTTP.
            Self::Tls(_) | Self::Unix(_) => {
                let read = poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut byte).map(drop));
                pin!(tokio::task::unconstrained(read)).poll(&mut cx).is_pending()
            }
        }
    }

    /// Reads what is there into the spare part of `buffer`; 0: the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        pin!(self.read_buf(buffer)).poll(cx)
    }
}

impl AsyncRead for OriginSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for OriginSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self, poll_write(cx, buf))
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
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, poll_shutdown(cx))
    }
}

impl TunnelIo for OriginSocket {
    fn as_plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(_) | Self::Unix(_) => None,
        }
    }
}

/// Memory for what is read from the origin. It belongs to the thread and is lent to a connection while bytes
/// are being read, so that connections which wait own none.
///
/// Pieces of a body are parts of this memory, given away without copying. What is left serves the next reads;
/// when it is used up, it is used again from its start if all pieces are gone by then (nearly always), else
/// there is new memory. A piece that lives long, because a visitor reads slowly, therefore keeps a whole
/// [`Memory`] alive: that is why most is read into small ones.
pub(crate) struct Memory {
    size: usize,
}

/// For heads and small bodies.
pub(crate) const SMALL: Memory = Memory { size: 16 << 10 };
/// For bodies of which more is to come.
pub(crate) const LARGE: Memory = Memory { size: 64 << 10 };

/// Room that a read needs at least.
const ROOM: usize = 4 << 10;

thread_local! {
    static LEFT: RefCell<[BytesMut; 2]> = RefCell::default();
}

impl Memory {
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    fn slot(&self) -> usize {
        usize::from(self.size > SMALL.size)
    }

    /// An empty buffer with room for a read.
    pub(crate) fn take(&self) -> BytesMut {
        let mut buffer = LEFT.with_borrow_mut(|left| std::mem::take(&mut left[self.slot()]));
        self.make_room(&mut buffer);
        buffer
    }

    /// Makes room for one more read behind what is in `buffer`.
    pub(crate) fn make_room(&self, buffer: &mut BytesMut) {
        if buffer.capacity() - buffer.len() < ROOM {
            buffer.reserve(self.size.saturating_sub(buffer.len()).max(ROOM));
        }
    }

    /// Returns what is left; the bytes in it are forgotten.
    pub(crate) fn give_back(&self, mut buffer: BytesMut) {
        buffer.clear();
        // What has grown for a large head is freed.
        if buffer.capacity() <= self.size {
            LEFT.with_borrow_mut(|left| left[self.slot()] = buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (OriginSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (OriginSocket::Tcp(ours), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_socket_is_quiet_until_something_comes() {
        for closes in [false, true] {
            let (mut ours, mut theirs) = pair().await;
            assert!(ours.is_quiet());
            // After a read that left the runtime in the belief that there is more.
            theirs.write_all(b"ab").await.unwrap();
            let mut two = [0; 2];
            ours.read_exact(&mut two).await.unwrap();
            assert!(ours.is_quiet());
            if closes {
                drop(theirs);
            } else {
                theirs.write_all(b"c").await.unwrap();
            }
            while ours.is_quiet() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[test]
    fn memory_is_used_again_once_its_pieces_are_gone() {
        let mut buffer = SMALL.take();
        let start = buffer.as_ptr();
        for _ in 0..100 {
            assert!(buffer.capacity() >= ROOM);
            buffer.extend_from_slice(&[7; 1000]);
            let piece = buffer.split().freeze();
            SMALL.give_back(buffer);
            assert_eq!(piece.len(), 1000);
            drop(piece);
            buffer = SMALL.take();
        }
        let end = buffer.as_ptr() as usize;
        assert!((start as usize..start as usize + SMALL.size).contains(&end), "still the same memory");
        // A piece that lives on is not overwritten.
        buffer.extend_from_slice(&[1; 100]);
        let kept = buffer.split().freeze();
        for _ in 0..100 {
            buffer.extend_from_slice(&[2; 1000]);
            drop(buffer.split());
            SMALL.make_room(&mut buffer);
        }
        assert_eq!(kept, [1; 100][..]);
    }
}
