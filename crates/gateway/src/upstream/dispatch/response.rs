//! The body of the origin's response: it streams, times out, and gives the connection back at its end.
//!
//! The connection is read when the body is asked for, into memory that the pieces are parts of
//! (`upstream/socket.rs`). If all of the response came with the head, the connection is back in the pool
//! before the visitor gets the first byte.
//!
//! Most of a large body of known length can be moved to the visitor's socket within the kernel instead, where
//! both are plain ([`UpstreamBody::poll_splice`]).

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tidegate_http::{BadBody, BodyDecoder, Framing, Piece, ResponseFacts, to_map};
use tokio::net::TcpStream;

use super::error::{BodyError, OriginError};
use super::sending::{SendError, Sending};
use crate::http::hygiene::prepare_trailers;
use crate::upstream::balance::{InFlight, Replica};
use crate::upstream::http2::body::Http2Body;
use crate::upstream::pool::{Conn, Pool};
use crate::upstream::socket::{LARGE, Memory, OriginSocket, SMALL};
use crate::upstream::splice::{Carrier, Fault};
use crate::upstream::stats::{Stats, bump};

/// From so many bytes to come, moving them within the kernel is worth its system calls.
const SPLICED: u64 = 64 << 10;

/// The body of a response from the origin. Holds the connection and the replica's in-flight slot until the
/// body has been received, has failed or been dropped.
pub struct UpstreamBody {
    /// Received and not yet asked for.
    ready: Bytes,
    trailers: Option<Box<HeaderMap>>,
    /// As long as more is to come.
    reading: Option<Box<Reading>>,
    has_failed: bool,
    has_known_length: bool,
    replica: Option<Arc<Replica>>,
    /// The body itself, where it comes by HTTP/2.
    http2: Option<Box<Http2Body>>,
}

/// What an exchange occupies.
pub(super) struct Lease {
    pub(super) pool: Rc<Pool>,
    pub(super) stats: Arc<Stats>,
    pub(super) conn: Conn,
    pub(super) flight: InFlight,
    /// The request, if not all of it was sent.
    pub(super) sending: Option<Sending>,
}

/// A response of which more is to come.
struct Reading {
    lease: Lease,
    decoder: BodyDecoder,
    /// Whether the connection may be used again.
    keep_alive: bool,
    /// What is wrong behind the content that was handed out.
    fault: Option<BadBody>,
    /// Reads are worth a large piece of memory.
    is_large: bool,
    read_ticks: u64,
    carrier: Carrier,
}

/// Why the content cannot be moved on.
#[derive(Debug)]
pub enum SpliceError {
    Origin(BodyError),
    Visitor(io::Error),
}

impl std::fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let replica = self.replica.as_ref().map(|replica| replica.authority());
        f.debug_struct("UpstreamBody").field("replica", &replica).finish_non_exhaustive()
    }
}

/// What a read had of a body.
struct Decoded {
    content: Bytes,
    trailers: Option<Box<HeaderMap>>,
    end: End,
}

enum End {
    /// More is to come.
    Open,
    Complete {
        /// Nothing came behind it that nobody had asked for.
        is_clean: bool,
    },
    Bad(BadBody),
}

impl Decoded {
    /// The end, and nothing before it.
    fn end() -> Self {
        Self { content: Bytes::new(), trailers: None, end: End::Complete { is_clean: false } }
    }

    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.trailers.is_none() && matches!(self.end, End::Open)
    }
}

/// Decodes all that was read. The content of several chunks becomes one piece: that of the first stays where
/// it is, the others are moved up to it.
fn decode(decoder: &mut BodyDecoder, mut buffer: BytesMut, memory: &Memory) -> Decoded {
    let (mut at, mut content, mut trailers) = (0, 0..0, None);
    let end = loop {
        let (consumed, piece) = decoder.decode(&buffer[at..]);
        match piece {
            Piece::Data(range) if content.is_empty() => content = at + range.start..at + range.end,
            Piece::Data(range) => {
                let len = range.len();
                buffer.copy_within(at + range.start..at + range.end, content.end);
                content.end += len;
            }
            Piece::Trailers(fields) => {
                let mut map = to_map(&fields);
                prepare_trailers(&mut map);
                trailers = (!map.is_empty()).then(|| Box::new(map));
            }
            Piece::More => break End::Open,
            Piece::End => break End::Complete { is_clean: at + consumed == buffer.len() },
            Piece::Bad(bad) => break End::Bad(bad),
        }
        at += consumed;
    };
    let content = if content.is_empty() {
        Bytes::new()
    } else {
        buffer.advance(content.start);
        buffer.split_to(content.len()).freeze()
    };
    memory.give_back(buffer);
    Decoded { content, trailers, end }
}

impl Lease {
    /// The whole response is here. An origin that has answered without reading the whole request does not get
    /// the rest of it: its connection is closed.
    fn complete(self, is_reusable: bool) {
        if is_reusable && self.sending.is_none() {
            self.pool.checkin(self.flight.replica(), self.conn);
        }
    }
}

impl Reading {
    /// The next part that is not empty.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decoded, BodyError>> {
        if let Some(bad) = self.fault.take() {
            return Poll::Ready(Err(BodyError::Origin(bad.into())));
        }
        loop {
            self.send(cx)?;
            if self.carrier.held() > 0 {
                let held = self.carrier.take_held().map_err(|error| BodyError::Origin(error.into()))?;
                return Poll::Ready(Ok(self.decode_held(held.into())));
            }
            let memory = if self.is_large { &LARGE } else { &SMALL };
            let mut buffer = memory.take();
            let room = buffer.capacity();
            match self.lease.conn.socket.poll_fill(cx, &mut buffer) {
                Poll::Ready(Ok(n @ 1..)) => {
                    let decoded = decode(&mut self.decoder, buffer, memory);
                    self.is_large = n == room || self.has_much_to_come();
                    if !decoded.is_empty() {
                        self.lease.conn.slot.disarm();
                        return Poll::Ready(Ok(decoded));
                    }
                }
                Poll::Ready(Ok(0)) => {
                    memory.give_back(buffer);
                    let closed = self.decoder.close().map_err(|_| BodyError::Origin(OriginError::Closed));
                    return Poll::Ready(closed.map(|()| Decoded::end()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(BodyError::Origin(error.into()))),
                Poll::Pending => {
                    memory.give_back(buffer);
                    return self.poll_silence(cx).map(Err);
                }
            }
        }
    }

    /// What a splice has taken from the socket and not passed on.
    fn decode_held(&mut self, content: Bytes) -> Decoded {
        self.skip(content.len());
        let is_complete = self.decoder.is_done();
        let end = if is_complete { End::Complete { is_clean: true } } else { End::Open };
        Decoded { content, trailers: None, end }
    }

    /// Content of known length has gone by.
    fn skip(&mut self, n: usize) {
        let left = self.decoder.remaining().unwrap_or(0).saturating_sub(n as u64);
        self.decoder = BodyDecoder::response(Framing::Fixed(left));
    }

    fn can_splice(&self) -> bool {
        let is_plain = matches!(self.lease.conn.socket, OriginSocket::Tcp(_));
        let is_free = self.fault.is_none() && self.lease.sending.is_none();
        let left = self.decoder.remaining();
        is_plain && is_free && (self.carrier.held() > 0 || left.is_some_and(|left| left >= SPLICED))
    }

    fn poll_splice(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<Result<u64, SpliceError>> {
        let OriginSocket::Tcp(from) = &self.lease.conn.socket else {
            return Poll::Ready(Err(SpliceError::Visitor(io::ErrorKind::Unsupported.into())));
        };
        let left = self.decoder.remaining().unwrap_or(0);
        let most = usize::try_from(left).unwrap_or(usize::MAX) - self.carrier.held();
        let moved = match self.carrier.poll(cx, from, to, most) {
            Poll::Ready(Ok(0)) => Err(SpliceError::Origin(BodyError::Origin(OriginError::Closed))),
            Poll::Ready(Ok(n)) => Ok(n),
            Poll::Ready(Err((Fault::Source, error))) => {
                Err(SpliceError::Origin(BodyError::Origin(error.into())))
            }
            Poll::Ready(Err((Fault::Sink, error))) => Err(SpliceError::Visitor(error)),
            Poll::Pending if self.carrier.held() == 0 => {
                return self.poll_silence(cx).map(|error| Err(SpliceError::Origin(error)));
            }
            // The visitor is slow.
            Poll::Pending => {
                self.lease.conn.slot.disarm();
                return Poll::Pending;
            }
        };
        self.lease.conn.slot.disarm();
        if let Ok(n) = moved {
            self.skip(n);
        }
        Poll::Ready(moved.map(|n| n as u64))
    }

    fn has_much_to_come(&self) -> bool {
        self.decoder.remaining().is_some_and(|left| left > SMALL.size() as u64)
    }

    /// Goes on with the request, if not all of it was sent when the response began.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let Some(sending) = &mut self.lease.sending else { return Ok(()) };
        let Conn { socket, slot, .. } = &mut self.lease.conn;
        let Poll::Ready(sent) = sending.poll(cx, socket, || slot.disarm()) else { return Ok(()) };
        self.lease.sending = None;
        match sent {
            Ok(()) => Ok(()),
            // The origin may have sent its response before it stopped reading.
            Err(SendError::Socket(_)) => {
                self.keep_alive = false;
                Ok(())
            }
            Err(SendError::Body(_)) => Err(BodyError::Origin(OriginError::Request)),
        }
    }

    fn poll_silence(&self, cx: &Context<'_>) -> Poll<BodyError> {
        let slot = &self.lease.conn.slot;
        if !slot.is_armed() {
            slot.arm(self.read_ticks);
        }
        if slot.poll_expired(cx) { Poll::Ready(BodyError::Timeout) } else { Poll::Pending }
    }
}

impl UpstreamBody {
    /// `rest`: what was read beyond the head.
    pub(super) fn new(facts: &ResponseFacts, rest: BytesMut, lease: Lease, read_ticks: u64) -> Self {
        let mut decoder = BodyDecoder::response(facts.framing);
        let Decoded { content, trailers, end } = decode(&mut decoder, rest, &SMALL);
        let replica = Some(lease.flight.replica().clone());
        let keep_alive = facts.keep_alive;
        let fault = match end {
            End::Complete { is_clean } => {
                lease.complete(keep_alive && is_clean);
                let has_known_length = facts.framing != Framing::Chunked;
                return Self {
                    ready: content,
                    trailers,
                    reading: None,
                    has_failed: false,
                    has_known_length,
                    replica,
                    http2: None,
                };
            }
            End::Open => None,
            End::Bad(bad) => Some(bad),
        };
        let has_known_length = matches!(facts.framing, Framing::Fixed(_));
        let carrier = Carrier::default();
        let mut reading = Reading { lease, decoder, keep_alive, fault, is_large: false, read_ticks, carrier };
        reading.is_large = reading.has_much_to_come();
        Self {
            ready: content,
            trailers,
            reading: Some(Box::new(reading)),
            has_failed: false,
            has_known_length,
            replica,
            http2: None,
        }
    }

    pub(super) fn by_http2(body: Http2Body, replica: Arc<Replica>) -> Self {
        Self { replica: Some(replica), http2: Some(Box::new(body)), ..Self::detached() }
    }

    /// Whether nothing of it is to come from the origin. It may not have been asked for yet.
    pub fn is_received(&self) -> bool {
        self.reading.is_none() && self.http2.as_ref().is_none_or(|body| body.is_end_stream())
    }

    /// The replica that sends it; `None` for a tunnel.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref()
    }

    /// The body of a 101: the connection belongs to the tunnel now.
    pub(super) fn detached() -> Self {
        Self {
            ready: Bytes::new(),
            trailers: None,
            reading: None,
            has_failed: false,
            has_known_length: true,
            replica: None,
            http2: None,
        }
    }

    /// Whether [`UpstreamBody::poll_splice`] can be called for what comes next.
    pub fn can_splice(&self) -> bool {
        self.ready.is_empty() && self.reading.as_ref().is_some_and(|reading| reading.can_splice())
    }

    /// Moves content to the visitor's socket. Ready when so many bytes have been moved. To be called only if
    /// [`UpstreamBody::can_splice`] says so; frames can be asked for again at any time.
    ///
    /// # Errors
    /// The origin has broken the body off, or the visitor's socket takes no more.
    pub fn poll_splice(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<Result<u64, SpliceError>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(0)) };
        let moved = ready!(reading.poll_splice(cx, to));
        if reading.decoder.is_done() {
            // Not a byte behind the body was taken from the socket.
            self.complete(true);
        }
        Poll::Ready(moved.map_err(|error| match error {
            SpliceError::Origin(error) => SpliceError::Origin(self.fail(error)),
            visitor => visitor,
        }))
    }

    /// Whether [`UpstreamBody::poll_splice`] waits for the visitor's socket, and not for the origin.
    pub fn waits_for_visitor(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.carrier.held() > 0)
    }

    fn complete(&mut self, is_clean: bool) {
        if let Some(reading) = self.reading.take() {
            reading.lease.complete(reading.keep_alive && is_clean);
        }
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.has_failed = true;
        if let Some(reading) = self.reading.take() {
            let stats = &reading.lease.stats;
            bump(if matches!(error, BodyError::Timeout) { &stats.body_timeout } else { &stats.body_reset });
        }
        error
    }

    fn take_decoded(&mut self, decoded: Decoded) {
        (self.ready, self.trailers) = (decoded.content, decoded.trailers);
        match decoded.end {
            End::Open => {}
            End::Complete { is_clean } => self.complete(is_clean),
            End::Bad(bad) => {
                if let Some(reading) = &mut self.reading {
                    reading.fault = Some(bad);
                }
            }
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(body) = &mut this.http2 {
            return Pin::new(&mut **body).poll_frame(cx);
        }
        loop {
            if !this.ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.ready)))));
            }
            if let Some(trailers) = this.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
            }
            let Some(reading) = &mut this.reading else { return Poll::Ready(None) };
            match ready!(reading.poll(cx)) {
                Ok(decoded) => this.take_decoded(decoded),
                Err(error) => return Poll::Ready(Some(Err(this.fail(error)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        if let Some(body) = &self.http2 {
            return body.is_end_stream();
        }
        self.ready.is_empty() && self.trailers.is_none() && self.reading.is_none() && !self.has_failed
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(body) = &self.http2 {
            return body.size_hint();
        }
        let ready = self.ready.len() as u64;
        let to_come = self.reading.as_ref().map_or(Some(0), |reading| reading.decoder.remaining());
        match to_come {
            Some(to_come) if self.has_known_length => SizeHint::with_exact(ready + to_come),
            _ => SizeHint::default(),
        }
    }
}
