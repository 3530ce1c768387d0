//! From the socket: heads, bodies, and the visitor's departure.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tidegate_http::{BadBody, CONTINUE, Facts, Refusal, RequestHead, RequestParser};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::exchange::ContentState;
use super::{Http1, Http1Event};
use crate::http::body_rate::time_left;
use crate::http::timer::after;

/// Most bytes of one read. Uploads come in segments of at most 64 KiB, and fit the second-level cache.
const SCRATCH: usize = 64 << 10;
/// Bytes of later requests kept while a response is pending; then the socket is left unread (back-pressure).
const MAX_HELD: usize = 16 << 10;

thread_local! {
    static SCRATCH_BUFFER: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

pub(super) fn with_scratch<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = SCRATCH_BUFFER.take().unwrap_or_else(|| vec![0; SCRATCH].into_boxed_slice());
    let r = f(&mut buffer);
    SCRATCH_BUFFER.set(Some(buffer));
    r
}

/// One read; 0: the stream has ended.
pub(super) fn poll_read<S: AsyncRead + Unpin>(
    socket: &mut S,
    cx: &mut Context<'_>,
    to: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut to = ReadBuf::new(to);
    Pin::new(socket).poll_read(cx, &mut to).map_ok(|()| to.filled().len())
}

/// What a silent connection waits for, and since when.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    what: Wait,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The first byte of its first request.
    First,
    Head,
    Body,
    Idle,
}

/// What the parser makes of what has come.
enum Parsed {
    Request(RequestHead, Facts),
    /// The head is not complete. So many bytes at the front are empty lines.
    More(usize),
    Refused,
    /// The connection speaks another protocol.
    Foreign,
}

/// The next request; `None`: there is none.
type Next = Option<(RequestHead, Facts)>;

impl<S: AsyncRead + AsyncWrite + Unpin, K: Fn(Http1Event)> Http1<S, K> {
    /// The next request; `None`: the connection is to be closed.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Next>> {
        self.exchange.remember(cx.waker());
        // Bytes of pipelined requests. With a parser they have been seen.
        if !self.held.is_empty()
            && self.parser.is_none()
            && let Some(next) = self.parse_held()
        {
            return Poll::Ready(Ok(next));
        }
        loop {
            if self.ended {
                if !self.held.is_empty() {
                    self.emit(Http1Event::Truncated);
                }
                return Poll::Ready(Ok(None));
            }
            let next = with_scratch(|scratch| match ready!(poll_read(&mut self.socket, cx, scratch)) {
                Ok(0) => {
                    self.ended = true;
                    Poll::Ready(Ok(None))
                }
                Ok(n) => Poll::Ready(Ok(self.parse_read(&scratch[..n]))),
                Err(error) => Poll::Ready(Err(error)),
            });
            match next {
                Poll::Ready(Ok(Some(next))) => return Poll::Ready(Ok(next)),
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Err(error)) => {
                    self.lost();
                    return Poll::Ready(Err(error));
                }
                Poll::Pending if self.is_over() => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    ready!(self.poll_silence(cx));
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }

    /// Whether an idle connection is to be closed now.
    fn is_over(&self) -> bool {
        self.exchange.is_last.get() && self.has_served && self.held.is_empty()
    }

    /// What was read, while the first bytes of a head may be held. `None`: more must come.
    fn parse_read(&mut self, bytes: &[u8]) -> Option<Next> {
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            return self.parse_held();
        }
        match self.parse(bytes) {
            Parsed::Request(head, facts) => {
                let rest = &bytes[facts.len..];
                let used = self.begin(&facts, rest);
                self.held.extend_from_slice(&rest[used..]);
                Some(Some((head, facts)))
            }
            Parsed::More(skipped) => {
                self.held.extend_from_slice(&bytes[skipped..]);
                None
            }
            Parsed::Refused => Some(None),
            Parsed::Foreign => {
                self.held.extend_from_slice(bytes);
                Some(None)
            }
        }
    }

    fn parse_held(&mut self) -> Option<Next> {
        let mut held = std::mem::take(&mut self.held);
        let (next, used) = match self.parse(&held) {
            Parsed::Request(head, facts) => {
                let used = facts.len + self.begin(&facts, &held[facts.len..]);
                (Some(Some((head, facts))), used)
            }
            Parsed::More(skipped) => (None, skipped),
            // After a refusal the bytes that follow do not matter.
            Parsed::Refused => (Some(None), held.len()),
            Parsed::Foreign => (Some(None), 0),
        };
        if used < held.len() {
            held.drain(..used);
            self.held = held;
        }
        next
    }

    fn parse(&mut self, bytes: &[u8]) -> Parsed {
        match self.recogniser.map(|is_foreign| is_foreign(bytes)) {
            None => {}
            Some(Some(true)) => {
                self.is_foreign = true;
                return Parsed::Foreign;
            }
            Some(Some(false)) => self.recogniser = None,
            Some(None) => return Parsed::More(0),
        }
        let limits = &self.limits.head;
        let mut kept = self.parser.take();
        let mut new = RequestParser::new();
        let parser = kept.as_deref_mut().unwrap_or(&mut new);
        match parser.parse(bytes, limits) {
            Ok(Some((head, facts))) => Parsed::Request(head, facts),
            Ok(None) => {
                let skipped = parser.take_skipped();
                self.parser = Some(kept.unwrap_or_else(|| Box::new(new)));
                Parsed::More(skipped)
            }
            Err(refusal) => {
                self.refuse(refusal);
                Parsed::Refused
            }
        }
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.emit(Http1Event::Refused(refusal));
        self.output.own(|out| out.extend_from_slice(&refusal.response()));
        self.held = Vec::new();
        self.is_refused = true;
    }

    /// A request begins. What has come of its body is decoded at once, so that a small one is complete before
    /// anybody asks for it. Returns how much of `rest` belongs to it.
    fn begin(&mut self, facts: &Facts, rest: &[u8]) -> usize {
        self.waiting = None;
        (self.body_waited, self.body_bytes) = (Duration::ZERO, 0);
        self.graced = false;
        self.exchange.begin(facts, self.limits.head.body);
        self.emit(Http1Event::Request);
        self.feed(rest)
    }

    /// Decodes bytes of the body; returns how many belong to it. After a mistake, nothing else is read.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut content = self.exchange.content.borrow_mut();
        if !content.is_flowing() {
            return 0;
        }
        let used = content.feed(bytes);
        let state = content.state;
        drop(content);
        self.body_bytes += used as u64;
        if let Some(waiting) = self.waiting.take().filter(|_| self.limits.min_body_rate > 0) {
            self.body_waited += waiting.since.elapsed();
        }
        if let ContentState::Bad(bad) = state {
            self.emit(Http1Event::BadBody(bad));
            return bytes.len();
        }
        used
    }

    /// Looks after the visitor while the service works: sends what asks for more or cannot wait, reads the
    /// body when it is asked for, and else only to learn whether the visitor has left.
    ///
    /// Ready(Ok): the service finds more of the body.
    ///
    /// # Errors
    /// The visitor has left.
    pub(super) fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue_interim();
        if let Poll::Ready(written) = self.poll_output(cx) {
            written?;
        }
        self.exchange.remember(cx.waker());
        loop {
            if self.exchange.pass_through.get() {
                return Poll::Pending;
            }
            let content = self.exchange.content.borrow();
            let (state, is_wanted) = (content.state, content.is_wanted);
            drop(content);
            let is_body = match state {
                ContentState::Complete => false,
                ContentState::Flowing if is_wanted => true,
                _ => return Poll::Pending,
            };
            let room = if is_body { SCRATCH } else { MAX_HELD.saturating_sub(self.held.len()) };
            if self.ended && is_body {
                self.lost();
                self.body_changes(cx, ContentState::Left);
                return Poll::Ready(Ok(()));
            }
            if self.ended {
                return self.poll_departure(cx).map(Err);
            }
            if room == 0 {
                return Poll::Pending;
            }
            let read = with_scratch(|scratch| {
                let n = ready!(poll_read(&mut self.socket, cx, &mut scratch[..room]))?;
                let bytes = &scratch[..n];
                let used = if is_body { self.feed(bytes) } else { 0 };
                self.held.extend_from_slice(&bytes[used..]);
                Poll::Ready(Ok(n))
            });
            match read {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(_)) if is_body => {
                    self.exchange.content.borrow_mut().wake_reader(Some(cx.waker()));
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.lost();
                    return Poll::Ready(Err(error));
                }
                Poll::Pending if is_body => {
                    ready!(self.poll_silence(cx));
                    self.body_changes(cx, ContentState::Bad(BadBody::TooSlow));
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads what has come of a body that nobody wants; whether it is complete.
    pub(super) fn take_in_body(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        with_scratch(|scratch| {
            let Poll::Ready(Ok(n @ 1..)) = poll_read(&mut self.socket, cx, scratch) else { return };
            let used = self.feed(&scratch[..n]);
            self.held.extend_from_slice(&scratch[used..n]);
        });
        self.exchange.content.borrow().is_complete()
    }

    /// Nothing more comes of the body.
    fn body_changes(&mut self, cx: &Context<'_>, state: ContentState) {
        let mut content = self.exchange.content.borrow_mut();
        content.state = state;
        content.wake_reader(Some(cx.waker()));
    }

    /// Puts interim responses on their way, and asks for the body if the visitor waits for that.
    pub(super) fn queue_interim(&mut self) {
        let exchange = &*self.exchange.0;
        let mut interim = exchange.interim.borrow_mut();
        if !interim.is_empty() {
            self.output.own(|out| out.extend_from_slice(&interim));
            interim.clear();
        }
        let content = exchange.content.borrow();
        if content.is_wanted && content.is_flowing() && exchange.asks_continue.take() {
            self.output.own(|out| out.extend_from_slice(CONTINUE));
        }
    }

    /// The visitor's stream has ended before its response was ready: one turn later it has left.
    fn poll_departure(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.lost();
        if !std::mem::replace(&mut self.graced, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "the visitor has left"))
    }

    fn lost(&mut self) {
        self.ended = true;
        if !self.exchange.gone.replace(true) {
            self.emit(Http1Event::Gone);
        }
    }

    /// Nothing came. Ready when that has lasted too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let what = match () {
            () if self.exchange.busy.get() => Wait::Body,
            () if !self.held.is_empty() => Wait::Head,
            () if self.has_served => Wait::Idle,
            () => Wait::First,
        };
        let since = match self.waiting {
            Some(waiting) if waiting.what == what => waiting.since,
            _ => self.waiting.insert(Waiting { what, since: Instant::now() }).since,
        };
        let timeout = match what {
            Wait::First | Wait::Head => self.limits.header_timeout,
            Wait::Idle => self.limits.idle_timeout,
            Wait::Body => self.limits.body_timeout.min(time_left(
                self.body_bytes,
                self.body_waited,
                self.limits.min_body_rate,
            )),
        };
        ready!(self.timer.poll(cx, after(since, timeout)));
        match what {
            Wait::Head => self.refuse(Refusal::TooSlow),
            Wait::Body => self.emit(Http1Event::BadBody(BadBody::TooSlow)),
            Wait::First | Wait::Idle => self.emit(Http1Event::Idle),
        }
        Poll::Ready(())
    }
}
