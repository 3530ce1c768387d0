//! What is on its way to the visitor: the connection's own bytes (heads, the frames of chunks, small pieces)
//! and large pieces of content, which are not copied.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Up to this size a copy costs less than one more part of a vectored write.
const COPIED: usize = 2048;
/// Parts of one vectored write.
const PARTS: usize = 8;
/// When so much waits, no more content is asked for until some is sent (back-pressure).
const ENOUGH: usize = 32 << 10;
/// Largest buffer that is kept for other responses.
const MAX_KEPT: usize = 16 << 10;
/// Buffers kept by a thread: as many responses as a worker usually writes at once.
const KEPT: usize = 64;

thread_local! {
    // In a box, as a connection has it: a pointer while it writes, nothing while it is idle.
    #[expect(clippy::vec_box, reason = "moved from and to connections without a copy")]
    static SPARE: RefCell<Vec<Box<Queue>>> = const { RefCell::new(Vec::new()) };
}

/// Without memory while it is empty.
#[derive(Default)]
pub(super) struct Output {
    queue: Option<Box<Queue>>,
}

#[derive(Default)]
struct Queue {
    own: Vec<u8>,
    /// Written bytes of `own`.
    own_at: usize,
    parts: Vec<Part>,
    /// Written parts; the first of the others may be written in part.
    first: usize,
    waiting: usize,
}

enum Part {
    /// So many bytes of the own ones, in their order.
    Own(usize),
    Content(Bytes),
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_none()
    }

    /// Whether as much waits as may.
    pub(super) fn is_full(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.waiting >= ENOUGH || queue.parts.len() >= PARTS)
    }

    /// Adds what `write` appends to a buffer.
    pub(super) fn own<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let queue = self.queue.get_or_insert_with(spare);
        let before = queue.own.len();
        let r = write(&mut queue.own);
        let added = queue.own.len() - before;
        queue.waiting += added;
        match queue.parts.last_mut() {
            Some(Part::Own(len)) => *len += added,
            _ => queue.parts.push(Part::Own(added)),
        }
        r
    }

    /// Adds a piece of content.
    pub(super) fn content(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            return self.own(|out| out.extend_from_slice(&data));
        }
        let queue = self.queue.get_or_insert_with(spare);
        queue.waiting += data.len();
        queue.parts.push(Part::Content(data));
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        if let Some(queue) = self.queue.take() {
            keep(queue);
        }
    }

    /// Writes until all is written. Ready(Ok(n)): n bytes were, and more may be left.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut S,
    ) -> Poll<io::Result<usize>> {
        let Some(queue) = &mut self.queue else { return Poll::Ready(Ok(0)) };
        let n = ready!(queue.poll_write(cx, Pin::new(socket)))?;
        if n == 0 && queue.waiting > 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        queue.advance(n);
        if queue.waiting == 0 {
            self.clear();
        }
        Poll::Ready(Ok(n))
    }
}

impl Queue {
    fn poll_write<S: AsyncWrite>(
        &self,
        cx: &mut Context<'_>,
        socket: Pin<&mut S>,
    ) -> Poll<io::Result<usize>> {
        let mut own_at = self.own_at;
        let mut slices = [IoSlice::new(&[]); PARTS];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts[self.first..]) {
            *slice = IoSlice::new(match part {
                Part::Own(len) => {
                    own_at += len;
                    &self.own[own_at - len..own_at]
                }
                Part::Content(data) => data,
            });
            count += 1;
        }
        match &slices[..count] {
            [one] => socket.poll_write(cx, one),
            parts => socket.poll_write_vectored(cx, parts),
        }
    }

    fn advance(&mut self, mut n: usize) {
        self.waiting -= n;
        while let Some(part) = self.parts.get_mut(self.first) {
            let len = match part {
                Part::Own(len) => *len,
                Part::Content(data) => data.len(),
            };
            let written = len.min(n);
            n -= written;
            match part {
                Part::Own(len) => {
                    *len -= written;
                    self.own_at += written;
                }
                Part::Content(data) => data.advance(written),
            }
            if written < len {
                return;
            }
            self.first += 1;
        }
    }
}

fn spare() -> Box<Queue> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn keep(mut queue: Box<Queue>) {
    if queue.own.capacity() > MAX_KEPT {
        return;
    }
    queue.own.clear();
    queue.parts.clear();
    (queue.own_at, queue.first, queue.waiting) = (0, 0, 0);
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            spare.push(queue);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes so many bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let n = self.1.min(bytes.len());
            self.0.extend_from_slice(&bytes[..n]);
            Poll::Ready(Ok(n))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let n = self.1.min(all.len());
            self.0.extend_from_slice(&all[..n]);
            Poll::Ready(Ok(n))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn everything_is_written_once_and_in_order_however_little_the_socket_takes() {
        for step in [1, 7, 2047, 2049, 5000, 1 << 20] {
            let mut expected = Vec::new();
            let mut output = Output::default();
            for size in [3, 5000, 10, 20, 2048, 2049, 1] {
                let piece = vec![b'a' + (size % 26) as u8; size];
                expected.extend_from_slice(&piece);
                output.content(Bytes::from(piece));
                output.own(|out| out.extend_from_slice(b"\r\n"));
                expected.extend_from_slice(b"\r\n");
            }
            let mut socket = Narrow(Vec::new(), step);
            let cx = &mut Context::from_waker(Waker::noop());
            while !output.is_empty() {
                assert!(output.poll_write(cx, &mut socket).is_ready());
            }
            assert!(socket.0 == expected, "{step}");
        }
    }
}
