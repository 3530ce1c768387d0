//! Counts a visitor's frames on their way to `h2`, and ends floods.
//!
//! `h2` bounds memory: streams at once, header lists, CONTINUATION frames, resets of streams that were not
//! accepted yet, small and empty DATA frames. It does not bound work: a visitor may open and reset streams
//! for ever (CVE-2023-44487), each of which asks the gate and perhaps the origin, and may send PING, SETTINGS
//! and PRIORITY as fast as the network is (CVE-2019-9512, 9513, 9515). So two allowances are kept for each
//! connection. They refill with time, and frames that come with carried data are free: a client that tells
//! its windows, or measures the path, does so in proportion to what it reads.
//!
//! | frame | costs |
//! | --- | --- |
//! | RST_STREAM | one of `max_resets` |
//! | PING, SETTINGS, PRIORITY, CONTINUATION, unknown ones, DATA without data or end | one of `max_control` |
//! | WINDOW_UPDATE | a sixteenth of one of `max_control` |
//! | each KiB carried, either way | gives one of `max_control` back |
//!
//! Rejected: counting what `h2` hands out. It answers PING and SETTINGS itself, and says nothing of them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::PREFACE;

/// Parts that a control frame's cost is counted in.
const PARTS: u64 = 16;
/// Carried bytes that give one part back.
const BYTES_PER_PART: u64 = 1024 / PARTS;
/// Bytes that are read and dropped when the connection closes: closing over unread bytes would reset the
/// connection, and GOAWAY with it, before the visitor has read it.
const LINGER: usize = 256 << 10;
/// Length of a frame's header (RFC 9113 4.1).
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// RST_STREAM frames at once; a tenth of it per second.
    pub resets: u32,
    /// Frames that carry nothing at once; a tenth of it per second.
    pub control: u32,
}

/// A visitor's socket as `h2` sees it.
pub struct Watched<S> {
    socket: S,
    /// Received before `h2` had the connection.
    received: Vec<u8>,
    frames: Frames,
    state: Rc<Watch>,
    lingered: usize,
}

/// What the connection's task asks about its socket.
#[derive(Default)]
pub struct Watch {
    is_flood: Cell<bool>,
    /// Since when the visitor does not read.
    stalled: Cell<Option<Instant>>,
    /// Since when a request's head is incomplete.
    in_head: Cell<Option<Instant>>,
    /// Nothing is written any more.
    muted: Cell<bool>,
}

impl Watch {
    /// Whether the visitor has sent more frames than it may. Nothing more is read then.
    pub fn is_flood(&self) -> bool {
        self.is_flood.get()
    }

    pub fn stalled_since(&self) -> Option<Instant> {
        self.stalled.get()
    }

    pub fn in_head_since(&self) -> Option<Instant> {
        self.in_head.get()
    }

    pub fn mute(&self) {
        self.muted.set(true);
    }
}

impl<S> Watched<S> {
    /// `received`: what was read of the connection before.
    pub fn new(socket: S, received: Vec<u8>, limits: FrameLimits) -> (Self, Rc<Watch>) {
        let state = Rc::<Watch>::default();
        let frames = Frames::new(limits);
        (Self { socket, received, frames, state: state.clone(), lingered: 0 }, state)
    }

    fn see(&mut self, bytes: &[u8]) {
        if !self.frames.see(bytes) {
            self.state.is_flood.set(true);
        }
        let in_head = self.frames.in_head.then(|| self.state.in_head.get().unwrap_or_else(Instant::now));
        self.state.in_head.set(in_head);
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(n)) => {
                self.state.stalled.set(None);
                self.frames.control.earn(*n as u64 / BYTES_PER_PART);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending if self.state.stalled.get().is_none() => {
                self.state.stalled.set(Some(Instant::now()));
            }
            Poll::Pending => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.state.is_flood() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if this.received.is_empty() {
            ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        } else {
            let n = this.received.len().min(buf.remaining());
            buf.put_slice(&this.received[..n]);
            this.received.drain(..n);
        }
        let bytes = &buf.filled()[before..];
        this.see(bytes);
        if this.state.is_flood() {
            // The connection's task looks after each poll: it ends the connection.
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.state.muted.get() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut this.socket).poll_write(cx, buf);
        this.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.state.muted.get() {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, bufs);
        this.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    /// Half-closes, then reads what is still on its way. The connection's task bounds how long.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
        let mut rest = [0; 4096];
        while this.lingered < LINGER {
            let mut buf = ReadBuf::new(&mut rest);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut buf))?;
            match buf.filled().len() {
                0 => break,
                n => this.lingered += n,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Follows the frames of one direction.
struct Frames {
    preface_left: usize,
    header: [u8; HEADER],
    header_len: usize,
    payload_left: usize,
    /// The payload is data.
    is_data: bool,
    /// Between a HEADERS frame's first byte and the end of its block.
    in_head: bool,
    /// The block goes on in the next frame.
    continues: bool,
    resets: Allowance,
    control: Allowance,
}

impl Frames {
    fn new(limits: FrameLimits) -> Self {
        Self {
            preface_left: PREFACE.len(),
            header: [0; HEADER],
            header_len: 0,
            payload_left: 0,
            is_data: false,
            in_head: false,
            continues: false,
            resets: Allowance::new(limits.resets.into()),
            control: Allowance::new(u64::from(limits.control) * PARTS),
        }
    }

    /// False: the visitor sends more than it may.
    fn see(&mut self, mut bytes: &[u8]) -> bool {
        let skipped = self.preface_left.min(bytes.len());
        self.preface_left -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let n = self.payload_left.min(bytes.len());
                self.payload_left -= n;
                bytes = &bytes[n..];
                if self.is_data {
                    self.control.earn(n as u64 / BYTES_PER_PART);
                }
            } else {
                let n = (HEADER - self.header_len).min(bytes.len());
                self.header[self.header_len..self.header_len + n].copy_from_slice(&bytes[..n]);
                self.header_len += n;
                bytes = &bytes[n..];
                if self.header_len == HEADER {
                    self.header_len = 0;
                    if !self.begins() {
                        return false;
                    }
                }
            }
            if self.payload_left == 0 && self.header_len == 0 {
                self.in_head = self.continues;
            }
        }
        true
    }

    /// A frame's header is complete.
    fn begins(&mut self) -> bool {
        let [a, b, c, kind, flags, ..] = self.header;
        self.payload_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.is_data = kind == DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.continues = flags & END_HEADERS == 0;
            self.in_head = true;
        }
        match kind {
            HEADERS => true,
            DATA if self.payload_left > 0 || flags & END_STREAM != 0 => true,
            RST_STREAM => self.resets.spend(1),
            WINDOW_UPDATE => self.control.spend(1),
            _ => self.control.spend(PARTS),
        }
    }
}

/// So many at once, and a tenth of it per second for long. The clock is read only when it is used up.
struct Allowance {
    most: u64,
    left: u64,
    refilled: Instant,
}

impl Allowance {
    fn new(most: u64) -> Self {
        Self { most, left: most, refilled: Instant::now() }
    }

    fn earn(&mut self, parts: u64) {
        self.left = (self.left + parts).min(self.most);
    }

    fn spend(&mut self, parts: u64) -> bool {
        if self.left < parts {
            let now = Instant::now();
            let quiet = now.saturating_duration_since(self.refilled);
            let refill = (quiet.as_secs_f64() * self.most as f64 / 10.0) as u64;
            if refill > 0 {
                self.refilled = now;
                self.earn(refill);
            }
        }
        match self.left.checked_sub(parts) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: FrameLimits = FrameLimits { resets: 10, control: 50 };

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut bytes =
            vec![(length >> 16) as u8, (length >> 8) as u8, length as u8, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEADER + length, 0);
        bytes
    }

    fn fresh() -> Frames {
        let mut frames = Frames::new(LIMITS);
        assert!(frames.see(PREFACE));
        frames
    }

    /// How many of `bytes` pass, at most 10,000.
    fn passing(frames: &mut Frames, bytes: &[u8]) -> usize {
        let passed = (0..10_000).take_while(|_| frames.see(bytes)).count();
        // Of the one that does not pass only the header is seen.
        frames.payload_left = 0;
        passed
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_carry_nothing_are_bounded() {
        for (kind, flags, length, most) in [
            (RST_STREAM, 0, 4, 10),
            (6, 0, 8, 50),
            (4, 0, 6, 50),
            (4, 1, 0, 50),
            (2, 0, 5, 50),
            (DATA, 0, 0, 50),
            (0xfa, 0, 0, 50),
            (CONTINUATION, 0, 1, 50),
            (WINDOW_UPDATE, 0, 4, 800),
            (DATA, END_STREAM, 0, 10_000),
            (DATA, 0, 1, 10_000),
            (HEADERS, END_HEADERS, 20, 10_000),
        ] {
            assert_eq!(
                passing(&mut fresh(), &frame(kind, flags, length)),
                most,
                "kind {kind}, {length} bytes"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_allowance_refills_with_time_and_by_what_is_carried() {
        let (mut frames, ping) = (fresh(), frame(6, 0, 8));
        assert_eq!(passing(&mut frames, &ping), 50);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(passing(&mut frames, &ping), 10, "a tenth per second");
        assert!(frames.see(&frame(DATA, 0, 3 << 10)));
        assert_eq!(passing(&mut frames, &ping), 3, "one for each KiB");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(passing(&mut frames, &ping), 50, "never more than at first");
    }

    #[tokio::test(start_paused = true)]
    async fn the_count_does_not_depend_on_segments() {
        let mut bytes = Vec::new();
        for (kind, flags, length) in
            [(HEADERS, 0, 7), (CONTINUATION, END_HEADERS, 300), (DATA, 0, 70), (6, 0, 8)]
        {
            bytes.extend(frame(kind, flags, length));
        }
        let left = |size: usize| {
            let mut frames = fresh();
            for part in bytes.chunks(size) {
                assert!(frames.see(part));
            }
            assert!(!frames.in_head);
            // Bytes carried are rounded down in each part.
            frames.control.left / PARTS
        };
        assert_eq!(left(1), 48);
        assert!((1..bytes.len()).all(|size| left(size) == 48));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_incomplete_until_its_block_ends() {
        let mut frames = fresh();
        let headers = frame(HEADERS, 0, 5);
        for part in headers.chunks(1) {
            assert!(frames.see(part));
        }
        assert!(frames.in_head);
        let last = frame(CONTINUATION, END_HEADERS, 2);
        assert!(frames.see(&last[..last.len() - 1]));
        assert!(frames.in_head);
        assert!(frames.see(&last[last.len() - 1..]));
        assert!(!frames.in_head);
    }
}
