//! What a connection, the stages of its present request and the reader of its body share.
//!
//! All three run on one thread, nearly always in one task. Where a body is read in another task (a shared
//! answer), the wakers kept here carry the news between them.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::HeaderMap;
use tidegate_http::{BadBody, BodyDecoder, Facts, Framing, Piece, to_map};
use tokio::sync::oneshot;

use crate::http::tunnel_io::VisitorStream;

pub(super) struct Exchange {
    /// Of the present request: handles of an earlier one find nothing.
    pub(super) number: Cell<u64>,
    pub(super) http_11: Cell<bool>,
    pub(super) expects_continue: Cell<bool>,
    /// `100 Continue` is to be sent when the body is asked for.
    pub(super) asks_continue: Cell<bool>,
    pub(super) offers_upgrade: Cell<bool>,
    /// A request is being served: from its head to the end of its response.
    pub(super) busy: Cell<bool>,
    /// The head of the final response is being written.
    pub(super) final_started: Cell<bool>,
    /// The visitor has left before its response was complete.
    pub(super) gone: Cell<bool>,
    /// Bytes after the present request are no longer HTTP.
    pub(super) pass_through: Cell<bool>,
    /// Nothing more is written.
    pub(super) muted: Cell<bool>,
    /// The connection ends without closing handshake or linger.
    pub(super) aborted: Cell<bool>,
    /// The connection ends as soon as it is idle.
    pub(super) is_last: Cell<bool>,
    /// Interim responses that are not yet on their way.
    pub(super) interim: RefCell<Vec<u8>>,
    pub(super) upgrade: RefCell<Option<oneshot::Sender<VisitorStream>>>,
    pub(super) content: RefCell<Content>,
    /// Of the connection's task.
    waker: RefCell<Option<Waker>>,
}

/// The body of the present request.
pub(super) struct Content {
    pub(super) decoder: BodyDecoder,
    pub(super) state: ContentState,
    /// Decoded, and not yet taken by the reader.
    ready: Bytes,
    trailers: Option<Box<HeaderMap>>,
    /// Bytes that the reader has not taken, if that is known.
    left: Option<u64>,
    /// The reader waits for more.
    pub(super) is_wanted: bool,
    /// There is no reader any more.
    pub(super) is_dropped: bool,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentState {
    Flowing,
    Complete,
    /// Cut off here, for this reason.
    Bad(BadBody),
    /// The visitor has left before its end, or its time is over.
    Left,
}

/// What the reader of a body finds.
pub(super) enum Taken {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Bad(BadBody),
    Left,
    /// It is woken when there is more.
    Nothing,
}

impl Exchange {
    pub(super) fn new() -> Self {
        let no = || Cell::new(false);
        Self {
            number: Cell::new(0),
            http_11: no(),
            expects_continue: no(),
            asks_continue: no(),
            offers_upgrade: no(),
            busy: no(),
            final_started: no(),
            gone: no(),
            pass_through: no(),
            muted: no(),
            aborted: no(),
            is_last: no(),
            interim: RefCell::default(),
            upgrade: RefCell::default(),
            content: RefCell::new(Content::new(Framing::None, 0)),
            waker: RefCell::default(),
        }
    }

    /// A request begins.
    pub(super) fn begin(&self, facts: &Facts, max_body: u64) {
        self.busy.set(true);
        self.http_11.set(facts.http_11);
        self.expects_continue.set(facts.expect_continue);
        self.asks_continue.set(facts.expect_continue);
        self.offers_upgrade.set(facts.upgrade && facts.framing == Framing::None);
        self.final_started.set(false);
        *self.content.borrow_mut() = Content::new(facts.framing, max_body);
    }

    /// Its response is complete, or never will be.
    pub(super) fn end(&self) {
        self.busy.set(false);
        self.number.set(self.number.get() + 1);
        self.interim.borrow_mut().clear();
        self.upgrade.take();
        self.content.borrow_mut().leave();
    }

    /// Remembers the task of the connection.
    pub(super) fn remember(&self, waker: &Waker) {
        let mut slot = self.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The same, unless it is the task that runs: then the connection looks after its service.
    fn wake_from(&self, cx: &Context<'_>) {
        if let Some(waker) = self.waker.borrow().as_ref().filter(|w| !w.will_wake(cx.waker())) {
            waker.wake_by_ref();
        }
    }

    /// The next of the body; its reader is woken when there is more.
    pub(super) fn take(&self, cx: &Context<'_>) -> Taken {
        let mut content = self.content.borrow_mut();
        if !content.ready.is_empty() {
            let data = std::mem::take(&mut content.ready);
            content.left = content.left.map(|left| left.saturating_sub(data.len() as u64));
            return Taken::Data(data);
        }
        if let Some(trailers) = content.trailers.take() {
            return Taken::Trailers(*trailers);
        }
        match content.state {
            ContentState::Complete => Taken::End,
            ContentState::Bad(bad) => Taken::Bad(bad),
            ContentState::Left => Taken::Left,
            ContentState::Flowing => {
                content.is_wanted = true;
                if !content.reader.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    content.reader = Some(cx.waker().clone());
                }
                drop(content);
                self.wake_from(cx);
                Taken::Nothing
            }
        }
    }
}

impl Content {
    fn new(framing: Framing, max: u64) -> Self {
        let decoder = BodyDecoder::request(framing, max);
        let left = decoder.remaining();
        let state = if decoder.is_done() { ContentState::Complete } else { ContentState::Flowing };
        Self {
            decoder,
            state,
            ready: Bytes::new(),
            trailers: None,
            left,
            is_wanted: false,
            is_dropped: false,
            reader: None,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state == ContentState::Complete
    }

    pub(super) fn is_flowing(&self) -> bool {
        self.state == ContentState::Flowing
    }

    /// Whether the reader has taken all of it.
    pub(super) fn is_taken(&self) -> bool {
        self.state == ContentState::Complete && self.ready.is_empty() && self.trailers.is_none()
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Decodes what has come, for the reader if there is one. Returns how much of `input` belongs to it.
    pub(super) fn feed(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        let mut first = 0..0;
        // Several chunks become one piece: what comes with one read is handed on at once.
        let mut joined = Vec::new();
        while self.is_flowing() {
            let (used, piece) = self.decoder.decode(&input[at..]);
            match piece {
                Piece::Data(range) => {
                    let range = at + range.start..at + range.end;
                    if first.is_empty() {
                        first = range;
                    } else {
                        if joined.is_empty() {
                            joined.extend_from_slice(&input[first.clone()]);
                        }
                        joined.extend_from_slice(&input[range]);
                    }
                }
                Piece::Trailers(fields) => self.trailers = Some(Box::new(to_map(&fields))),
                Piece::End => self.state = ContentState::Complete,
                Piece::Bad(bad) => self.state = ContentState::Bad(bad),
                Piece::More => return self.keep(at + used, joined, &input[first]),
            }
            at += used;
        }
        self.keep(at, joined, &input[first])
    }

    fn keep(&mut self, used: usize, joined: Vec<u8>, first: &[u8]) -> usize {
        if !self.is_dropped {
            self.ready = if joined.is_empty() { Bytes::copy_from_slice(first) } else { Bytes::from(joined) };
        }
        used
    }

    /// What has not come will not come.
    pub(super) fn leave(&mut self) {
        if self.is_flowing() {
            self.state = ContentState::Left;
        }
        self.wake_reader(None);
    }

    /// There is news for the reader. `own`: the task that polls it anyway.
    pub(super) fn wake_reader(&mut self, own: Option<&Waker>) {
        self.is_wanted = false;
        if let Some(reader) = self.reader.take()
            && !own.is_some_and(|own| reader.will_wake(own))
        {
            reader.wake();
        }
    }
}
