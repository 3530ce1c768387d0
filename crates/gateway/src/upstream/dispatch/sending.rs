//! A request on its way to the origin.
//!
//! The head is serialised once; the text is also the copy for another attempt. A small body, or the beginning
//! of one, is put behind it, so that most requests are one `send`. Larger pieces of a body are written from
//! where they are, with what frames them, by one vectored write each.
//!
//! The body is asked for more only when what came before has been taken by the socket: the visitor feels the
//! origin's back-pressure.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame};
use tidegate_http::{BodyEncoder, Fields, Framing, RequestHead, WrongLength, name, write_request};
use tokio::io::AsyncWrite;

use crate::upstream::body::{BoxError, RequestBody, clean};
use crate::upstream::socket::OriginSocket;

/// Up to this size a piece is copied behind what is before it: a copy costs less than a vectored write.
const COPIED: usize = 4 << 10;
/// Texts that a thread keeps to use them again.
const KEPT: usize = 256;
/// Larger ones are freed.
const LARGEST: usize = 16 << 10;

thread_local! {
    static TEXTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Sending {
    /// The head, and behind it what of the body is sent from here.
    text: Vec<u8>,
    head_len: usize,
    /// So much of the text has been taken by the socket.
    at: usize,
    /// A piece of the body that is sent from where it is, and what follows it.
    piece: Bytes,
    after: &'static [u8],
    unflushed: bool,
    body: RequestBody,
    /// The whole body, if it was known beforehand.
    known: Option<Bytes>,
    framing: Framing,
    encoder: BodyEncoder,
    /// Shut: the body may not be asked for, as the origin has not said 100.
    is_open: bool,
    /// All of the body was taken from the visitor.
    has_ended: bool,
    /// What was taken from the body is all in the text.
    is_kept: bool,
    /// The last look at the body found nothing.
    is_starved: bool,
}

/// Why a request cannot be sent to its end.
pub(crate) enum SendError {
    /// The visitor's side failed.
    Body(BoxError),
    Socket(io::Error),
}

impl Sending {
    /// `waits`: the visitor expects 100, and the body is not asked for until [`Sending::open`].
    pub(crate) fn new(mut head: RequestHead, body: RequestBody, waits: bool, upgrades: bool) -> Self {
        let framing = framing(&body);
        let waits = waits && framing != Framing::None;
        if waits {
            head.fields.set(name::EXPECT, b"100-continue");
        } else {
            head.fields.remove(name::EXPECT);
        }
        if upgrades {
            head.fields.set(name::CONNECTION, b"upgrade");
        }
        let mut text = TEXTS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(1 << 10));
        write_request(&mut text, &head, framing, b"");
        Self {
            head_len: text.len(),
            text,
            at: 0,
            piece: Bytes::new(),
            after: b"",
            unflushed: false,
            known: body.known().filter(|_| framing != Framing::None),
            body,
            framing,
            encoder: BodyEncoder::new(framing),
            is_open: !waits,
            has_ended: framing == Framing::None,
            is_kept: true,
            is_starved: false,
        }
    }

    /// The origin wants the body, or has not said for long that it does not.
    pub(crate) fn open(&mut self) {
        self.is_open = true;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it waits for the visitor's next bytes.
    pub(crate) fn is_starved(&self) -> bool {
        self.is_starved && !self.has_ended && self.left() == 0
    }

    /// Whether all of it was taken by the socket.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.left() == 0 && !self.unflushed
    }

    /// Whether the socket took nothing of it.
    pub(crate) fn is_unsent(&self) -> bool {
        self.at == 0
    }

    fn left(&self) -> usize {
        self.text.len() - self.at + self.piece.len() + self.after.len()
    }

    /// Makes it ready for another connection. False: a part of the body was sent and is gone.
    pub(crate) fn rewind(&mut self) -> bool {
        if !self.is_unsent() && !self.is_kept {
            let Some(known) = &self.known else { return false };
            self.text.truncate(self.head_len);
            self.body = RequestBody::full(known.clone());
            (self.piece, self.after) = (Bytes::new(), b"");
            self.encoder = BodyEncoder::new(self.framing);
            (self.has_ended, self.is_kept) = (false, true);
        }
        (self.at, self.unflushed) = (0, false);
        true
    }

    /// Sends as much as body and socket allow; ready at its end. `progress` is called when a part of the body
    /// has come or something was sent.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut OriginSocket,
        mut progress: impl FnMut(),
    ) -> Poll<Result<(), SendError>> {
        loop {
            if self.take_from_body(cx).map_err(SendError::Body)? {
                progress();
            }
            if self.left() == 0 {
                if self.unflushed {
                    ready!(Pin::new(&mut *socket).poll_flush(cx)).map_err(SendError::Socket)?;
                    self.unflushed = false;
                }
                return if self.has_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            let n = ready!(self.poll_write(cx, socket)).map_err(SendError::Socket)?;
            if n == 0 {
                return Poll::Ready(Err(SendError::Socket(io::ErrorKind::WriteZero.into())));
            }
            self.advance(n);
            progress();
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, socket: &mut OriginSocket) -> Poll<io::Result<usize>> {
        let text = &self.text[self.at..];
        if self.piece.is_empty() && self.after.is_empty() {
            return Pin::new(socket).poll_write(cx, text);
        }
        let parts = [text, &self.piece, self.after].map(IoSlice::new);
        Pin::new(socket).poll_write_vectored(cx, &parts)
    }

    fn advance(&mut self, mut n: usize) {
        self.unflushed = true;
        let of_text = n.min(self.text.len() - self.at);
        self.at += of_text;
        n -= of_text;
        let of_piece = n.min(self.piece.len());
        self.piece.advance(of_piece);
        self.after = &self.after[n - of_piece..];
    }

    /// Takes what the visitor has sent, as long as it fits one write with what is there. True: something
    /// came.
    fn take_from_body(&mut self, cx: &mut Context<'_>) -> Result<bool, BoxError> {
        let mut came = false;
        while self.is_open && !self.has_ended && self.piece.is_empty() && self.after.is_empty() {
            // The end may be known without another look.
            if self.body.is_end_stream() || self.encoder.is_complete() {
                self.finish(None)?;
                break;
            }
            if self.text.len() - self.at > COPIED {
                break;
            }
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            self.is_starved = frame.is_pending();
            let Poll::Ready(frame) = frame else { break };
            came = true;
            match frame.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.take(data)?,
                Some(Err(frame)) => self.finish(clean(frame).into_trailers().ok())?,
                None => self.finish(None)?,
            }
        }
        Ok(came)
    }

    /// Forgets what is behind the head, if it has been sent.
    fn clear_sent(&mut self) {
        if self.at == self.text.len() && self.at > self.head_len {
            self.text.truncate(self.head_len);
            (self.at, self.is_kept) = (self.head_len, false);
        }
    }

    fn take(&mut self, data: Bytes) -> Result<(), WrongLength> {
        self.clear_sent();
        if data.len() <= COPIED {
            return self.encoder.write(&data, &mut self.text);
        }
        let frame = self.encoder.frame(data.len())?;
        self.text.extend_from_slice(frame.before());
        (self.piece, self.after, self.is_kept) = (data, frame.after(), false);
        Ok(())
    }

    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<(), WrongLength> {
        self.has_ended = true;
        self.clear_sent();
        let trailers = trailers.as_ref().map(Fields::from);
        self.encoder.finish(trailers.as_ref(), &mut self.text)
    }
}

/// A field that disagrees with the body would allow request smuggling: the head says what the body is,
/// whatever the visitor's head said (RFC 9112 6).
fn framing(body: &RequestBody) -> Framing {
    match body.size_hint().exact() {
        _ if body.is_end_stream() => Framing::None,
        Some(length) => Framing::Fixed(length),
        None => Framing::Chunked,
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        if text.capacity() > LARGEST {
            return;
        }
        text.clear();
        // The list is gone when the thread ends.
        let _ = TEXTS.try_with(|texts| {
            let mut texts = texts.borrow_mut();
            if texts.len() < KEPT {
                texts.push(text);
            }
        });
    }
}
