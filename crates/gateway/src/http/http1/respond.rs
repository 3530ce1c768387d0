//! Responses: how they are framed, and their way to the visitor.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use http_body::Body;
use tidegate_http::{
    BodyEncoder, Facts, Fields, Framing, RequestHead, ResponseHead, decimal, name, write_response,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::exchange::ContentState;
use super::{Http1, Http1Event, date};
use crate::http::timer::after;
use crate::http::tunnel_io::{Splice, TunnelIo};

/// What of a request decides how its response is sent.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    is_head: bool,
    http_11: bool,
    keep_alive: bool,
    /// `TE: trailers` (RFC 9110 6.5.1).
    takes_trailers: bool,
}

impl Asked {
    pub(super) fn new(head: &RequestHead, facts: &Facts) -> Self {
        Self {
            is_head: *head.method() == Method::HEAD,
            http_11: facts.http_11,
            keep_alive: facts.keep_alive,
            takes_trailers: head.fields.lists(name::TE, "trailers"),
        }
    }
}

/// A response under way.
pub(super) struct Response<B> {
    /// `None`: all of it is in the output.
    content: Option<B>,
    /// What of the content can be moved within the kernel now.
    splice: fn(&mut B) -> Option<&mut dyn Splice>,
    /// It is sent as it is: nothing is between its pieces.
    is_unframed: bool,
    encoder: BodyEncoder,
    takes_trailers: bool,
    keep_alive: bool,
    /// It is 101: the connection becomes one side of a tunnel.
    switches: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(Http1Event)> Http1<S, K> {
    /// Puts the head of a response on its way.
    pub(super) fn begin_response<B: Body>(
        &mut self,
        mut head: ResponseHead,
        content: B,
        splice: fn(&mut B) -> Option<&mut dyn Splice>,
    ) -> Response<B> {
        let asked = self.asked;
        self.queue_interim();
        self.exchange.final_started.set(true);
        let framing = framing(&asked, &mut head, &content);
        let switches = head.status() == StatusCode::SWITCHING_PROTOCOLS;
        let keep_alive = asked.keep_alive
            && framing != Framing::UntilClose
            && !self.exchange.is_last.get()
            && self.may_complete_body()
            && !head.fields.lists(name::CONNECTION, "close");
        head.set_version(if asked.http_11 { Version::HTTP_11 } else { Version::HTTP_10 });
        // HTTP/1.1 stays open unless it is said, HTTP/1.0 closes unless it is said (RFC 9112 9.3).
        match keep_alive {
            _ if switches => {}
            true if !asked.http_11 => head.fields.set(name::CONNECTION, b"keep-alive"),
            false if asked.http_11 => head.fields.set(name::CONNECTION, b"close"),
            _ => {}
        }
        // Only chunked content has trailers.
        if framing != Framing::Chunked {
            head.fields.remove(name::TRAILER);
        }
        let date = if head.fields.contains(name::DATE) { None } else { Some(date::line()) };
        let more = date.as_ref().map_or(&[][..], |date| date);
        self.output.own(|out| write_response(out, &head, framing, more));
        let encoder = BodyEncoder::new(framing);
        let content = Some(content).filter(|_| !encoder.is_complete());
        let is_unframed = matches!(framing, Framing::Fixed(_));
        let takes_trailers = asked.takes_trailers && asked.http_11;
        Response { content, splice, is_unframed, encoder, takes_trailers, keep_alive, switches }
    }

    /// Whether the request's body is complete, or its reader may still complete it. What nobody reads is
    /// taken in if it is there already, so that the connection can stay open.
    fn may_complete_body(&mut self) -> bool {
        let content = self.exchange.content.borrow();
        let (state, is_dropped) = (content.state, content.is_dropped);
        drop(content);
        match state {
            ContentState::Complete => true,
            ContentState::Flowing if !is_dropped => true,
            ContentState::Flowing => !self.exchange.asks_continue.get() && self.take_in_body(),
            ContentState::Bad(_) | ContentState::Left => false,
        }
    }

    /// Sends the response. Ready(Ok): all of it was written.
    ///
    /// # Errors
    /// The visitor has left or does not read, or the content broke off.
    pub(super) fn poll_response<B>(
        &mut self,
        cx: &mut Context<'_>,
        response: &mut Response<B>,
    ) -> Poll<io::Result<()>>
    where
        S: TunnelIo,
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        loop {
            let filled = self.fill(cx, response)?;
            match self.poll_output(cx) {
                // There may be more: the output was full.
                Poll::Ready(Ok(())) if filled == Filled::Full => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // All of it is here: whether the visitor can still send does not matter.
                written if filled == Filled::Complete => return written,
                _ if filled == Filled::Stalled => {
                    if let Poll::Ready(error) = self.poll_stalled(cx) {
                        return Poll::Ready(Err(error));
                    }
                    ready!(self.poll_meanwhile(cx))?;
                }
                _ => ready!(self.poll_meanwhile(cx))?,
            }
        }
    }

    /// Takes content while there is room for it.
    fn fill<B>(&mut self, cx: &mut Context<'_>, response: &mut Response<B>) -> io::Result<Filled>
    where
        S: TunnelIo,
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        while let Some(content) = &mut response.content {
            let output = &mut self.output;
            if output.is_full() {
                return Ok(Filled::Full);
            }
            if response.is_unframed
                && !self.exchange.muted.get()
                && let (Some(socket), Some(moving)) = (self.socket.as_plain(), (response.splice)(content))
            {
                // First what is before it.
                if !output.is_empty() || self.unflushed {
                    return Ok(Filled::Full);
                }
                match moving.poll_splice(cx, socket) {
                    Poll::Ready(moved) => {
                        self.stalled = None;
                        response.encoder.frame(moved? as usize).map_err(io::Error::other)?;
                    }
                    Poll::Pending if moving.waits_for_socket() => return Ok(Filled::Stalled),
                    Poll::Pending => return Ok(Filled::Waits),
                }
                if response.encoder.is_complete() {
                    response.content = None;
                }
                continue;
            }
            let trailers = match Pin::new(&mut *content).poll_frame(cx) {
                Poll::Pending => return Ok(Filled::Waits),
                Poll::Ready(Some(Err(error))) => {
                    return Err(io::Error::other(format!("the response's body broke off: {error}")));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let frame = response.encoder.frame(data.len()).map_err(io::Error::other)?;
                        if !frame.before().is_empty() {
                            output.own(|out| out.extend_from_slice(frame.before()));
                        }
                        output.content(data);
                        if !frame.after().is_empty() {
                            output.own(|out| out.extend_from_slice(frame.after()));
                        }
                        if !response.encoder.is_complete() && !content.is_end_stream() {
                            continue;
                        }
                        None
                    }
                    Err(frame) => frame.into_trailers().ok().filter(|_| response.takes_trailers),
                },
                Poll::Ready(None) => None,
            };
            let trailers = trailers.as_ref().map(Fields::from);
            output.own(|out| response.encoder.finish(trailers.as_ref(), out)).map_err(io::Error::other)?;
            // What it holds (an in-flight slot) is free while the last bytes are written.
            response.content = None;
        }
        Ok(Filled::Complete)
    }

    /// Writes what waits for the visitor. Ready(Ok): nothing does any more.
    ///
    /// # Errors
    /// It cannot be written, or the visitor has not read for too long.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exchange.muted.get() {
            self.output.clear();
        }
        if self.output.is_empty() && !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        while !self.output.is_empty() {
            match self.output.poll_write(cx, &mut self.socket) {
                Poll::Ready(written) => {
                    written?;
                    self.stalled = None;
                    self.unflushed = true;
                }
                Poll::Pending => return self.poll_stalled(cx).map(Err),
            }
        }
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(flushed) => {
                self.unflushed = false;
                Poll::Ready(flushed)
            }
            Poll::Pending => self.poll_stalled(cx).map(Err),
        }
    }

    /// The visitor does not read. Ready when that has lasted too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let since = *self.stalled.get_or_insert_with(Instant::now);
        ready!(self.timer.poll(cx, after(since, self.limits.body_timeout)));
        self.emit(Http1Event::NotReading);
        self.exchange.gone.set(true);
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the visitor does not read"))
    }

    /// The response is complete: whether the connection takes another request.
    pub(super) fn end_response<B>(&mut self, response: &Response<B>) -> bool {
        if response.switches {
            self.switched = self.exchange.upgrade.take();
        }
        let is_read = self.exchange.content.borrow().is_complete();
        self.is_unread = !is_read;
        self.has_served = true;
        self.exchange.end();
        response.keep_alive && is_read && !self.exchange.muted.get() && !self.exchange.pass_through.get()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// All content is in the output.
    Complete,
    /// There is no room for more.
    Full,
    /// The next content is not there yet.
    Waits,
    /// The next content is moved within the kernel, and the visitor's socket takes no more.
    Stalled,
}

/// How a response is framed (RFC 9112 6.3). A response to HEAD says how long that to GET is.
fn framing<B: Body>(asked: &Asked, head: &mut ResponseHead, content: &B) -> Framing {
    let declared = head.fields.get(name::CONTENT_LENGTH).and_then(decimal);
    let exact = if content.is_end_stream() { Some(0) } else { content.size_hint().exact() };
    let has_none = matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_none || head.status().is_informational() {
        return Framing::None;
    }
    if asked.is_head {
        if let (None, Some(length @ 1..)) = (declared, exact) {
            head.fields.set(name::CONTENT_LENGTH, itoa::Buffer::new().format(length).as_bytes());
        }
        return Framing::None;
    }
    match declared.or(exact) {
        Some(length) => Framing::Fixed(length),
        None if asked.http_11 => Framing::Chunked,
        None => Framing::UntilClose,
    }
}
