//! One upstream request for many: its answer as it arrives, and its readers, on any thread.
//!
//! Chunks are kept from the first on while there is memory, so that a request that comes within the period
//! gets the answer from its beginning. When the answer outgrows its share it is closed to newcomers and
//! becomes a window of [`WINDOW`] bytes: from then on the origin is read as fast as the fastest reader reads,
//! and a reader that falls behind the window is cut off. So a slow reader stalls nobody and costs little
//! memory. While more than [`MAX_KEPT`] is held, windows are small ([`SMALL_WINDOW`]). Chunks that nobody
//! will read any more are freed at once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use tidegate_core::measure::Event;
use tidegate_core::units::Timestamp;
use tidegate_http::Fields;

use super::rules::{self, Sharing};
use super::{MAX_ANSWER, MAX_KEPT, RequesterStanding, Seeking};

mod reader;

pub(crate) use reader::Reader;
pub use reader::SharedBody;

/// How far a reader may be behind in an answer that is not kept whole: a second of a fast line.
const WINDOW: usize = 1 << 20;
/// The same while more than [`MAX_KEPT`] is held: the size of a connection's own buffers.
const SMALL_WINDOW: usize = 64 << 10;
/// Estimated bytes that a header takes beside its text.
const FIELD: usize = 128;

pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: Fields,
    vary: Vec<String>,
    pub(crate) sharing: Sharing,
    pub(crate) refused: Option<Event>,
    /// The session of everybody who gets it is over.
    pub(crate) ends_session: bool,
}

impl Head {
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self.sharing, Sharing::None { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Origin,
    /// The origin, which ends the session of everybody who gets the answer.
    OriginEndingSessions,
    /// The gate, because the origin failed.
    Failure,
    /// The gate, because its queue refused.
    Refusal(Event),
}

/// Whether an answer may be given to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Match {
    /// It may; or its head has not come yet, so it may turn out to.
    Suits,
    /// It must not.
    NotForIt,
    /// It is for another selection; look for another flight.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Broken,
}

#[derive(Default)]
struct State {
    head: Option<Arc<Head>>,
    chunks: VecDeque<Bytes>,
    /// Number of the first chunk kept.
    first: u64,
    /// Bytes of the chunks kept, and of the heads.
    held: usize,
    heads: usize,
    /// Bytes that have come, that the fastest reader has taken, and that were freed.
    come: u64,
    taken: u64,
    gone: u64,
    /// No longer kept from its beginning.
    is_window: bool,
    /// Given to no newcomer, for example because its period is over.
    is_closed: bool,
    end: Option<End>,
    /// Readers by the number of their next chunk.
    at: BTreeMap<u64, usize>,
    next_reader: u64,
    wakers: HashMap<u64, Waker>,
    fetcher: Option<Waker>,
}

pub(crate) struct Flight {
    /// The leader's head as the origin gets it, to compare the fields that `Vary` names.
    asked: Fields,
    with_cookies: bool,
    standing: RequesterStanding,
    pub(crate) period: Duration,
    pub(crate) sent: Timestamp,
    /// Bytes held by all flights.
    kept: Arc<AtomicUsize>,
    state: Mutex<State>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.kept.fetch_sub(state.held + state.heads, Relaxed);
    }
}

impl Flight {
    pub(crate) fn new(
        asked: &Seeking<'_>,
        period: Duration,
        sent: Timestamp,
        kept: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let (standing, with_cookies, asked) = (asked.standing, asked.has_cookies, asked.headers.clone());
        let heads = weight(&asked);
        kept.fetch_add(heads, Relaxed);
        let state = Mutex::new(State { heads, ..State::default() });
        Arc::new(Self { asked, with_cookies, standing, period, sent, kept, state })
    }

    /// Whether newcomers may have it: until its head has come, then for the period since it was sent.
    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        let state = self.state.lock();
        match &state.head {
            None => state.end.is_none(),
            Some(head) => now.since(self.sent) < rules::kept(head.status.as_u16(), self.period),
        }
    }

    pub(crate) fn suits(&self, seeking: &Seeking<'_>) -> Match {
        match &self.state.lock().head {
            None => Match::Suits,
            // The queue may admit another class or lane.
            Some(head) if head.refused.is_some() && self.standing != seeking.standing => Match::Other,
            Some(head) if !rules::same(&head.vary, &self.asked, seeking.headers) => Match::Other,
            Some(head) => match (head.sharing, seeking.has_cookies) {
                (Sharing::All, _) | (Sharing::Cookieless, false) => Match::Suits,
                // A leader without cookies may get an answer that can be shared.
                (Sharing::None { cookieless: false }, false) => Match::Other,
                _ => Match::NotForIt,
            },
        }
    }

    /// Closes it to newcomers. Present readers read on; without readers it ends.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.shrink(&mut state);
        state.wake_fetcher_if_unwanted();
    }

    /// Ready once it has no readers and is closed to newcomers.
    pub(crate) fn poll_unwanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_unwanted() {
            return Poll::Ready(());
        }
        state.fetcher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Another reader from the beginning on; `None`: it is closed to newcomers.
    pub(crate) fn read(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.is_at(0);
        state.next_reader += 1;
        Some(Reader { flight: self.clone(), id: state.next_reader, next: 0, taken: 0, is_over: false })
    }

    /// Takes in the head. `is_whole`: no body follows.
    pub(crate) fn land(
        &self,
        status: StatusCode,
        headers: Fields,
        author: Author,
        is_whole: bool,
    ) -> Sharing {
        let vary = rules::vary(&headers).unwrap_or_default();
        let sharing = match author {
            Author::Origin | Author::OriginEndingSessions => {
                rules::sharing(status.as_u16(), &headers, self.with_cookies)
            }
            Author::Failure | Author::Refusal(_) => Sharing::All,
        };
        let ends_session = author == Author::OriginEndingSessions;
        let refused = if let Author::Refusal(event) = author { Some(event) } else { None };
        let heads = weight(&headers);
        self.kept.fetch_add(heads, Relaxed);
        let mut state = self.state.lock();
        state.heads += heads;
        state.head = Some(Arc::new(Head { status, headers, vary, sharing, refused, ends_session }));
        // Only its leader may read it.
        if matches!(sharing, Sharing::None { .. }) {
            state.become_window();
        }
        state.end = is_whole.then_some(End::Complete);
        state.wake_all();
        sharing
    }

    /// Takes in the next chunk, and waits until there is room for another. False: nobody wants the answer.
    pub(crate) async fn push(&self, chunk: Bytes) -> bool {
        {
            let mut state = self.state.lock();
            let length = chunk.len();
            state.come += length as u64;
            state.held += length;
            state.chunks.push_back(chunk);
            let all = self.kept.fetch_add(length, Relaxed) + length;
            if state.held > MAX_ANSWER || all > MAX_KEPT {
                state.become_window();
            }
            self.shrink(&mut state);
            state.wake_all();
        }
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.is_unwanted() {
                return Poll::Ready(false);
            }
            // Half a window, so that the fastest reader is never cut off.
            if !state.is_window || state.come - state.taken <= self.window() as u64 / 2 {
                return Poll::Ready(true);
            }
            state.fetcher = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// How far a reader may be behind the fastest one, and the fastest behind the origin.
    fn window(&self) -> usize {
        if self.kept.load(Relaxed) > MAX_KEPT { SMALL_WINDOW } else { WINDOW }
    }

    fn shrink(&self, state: &mut State) {
        self.kept.fetch_sub(state.shrink(self.window()), Relaxed);
    }

    pub(crate) fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        state.wake_all();
    }
}

impl State {
    fn wake_all(&mut self) {
        self.wakers.drain().for_each(|(_, waker)| waker.wake());
    }

    fn become_window(&mut self) {
        (self.is_window, self.is_closed) = (true, true);
    }

    fn is_unwanted(&self) -> bool {
        self.is_closed && self.slowest().is_none()
    }

    fn wake_fetcher_if_unwanted(&mut self) {
        if self.is_unwanted()
            && let Some(fetcher) = self.fetcher.take()
        {
            fetcher.wake();
        }
    }

    fn is_at(&mut self, next: u64) {
        *self.at.entry(next).or_default() += 1;
    }

    fn leaves(&mut self, next: u64) {
        if let Some(readers) = self.at.get_mut(&next) {
            *readers -= 1;
            if *readers == 0 {
                self.at.remove(&next);
            }
        }
    }

    /// The next chunk of the slowest reader that is not cut off.
    fn slowest(&self) -> Option<u64> {
        self.at.range(self.first..).next().map(|(next, _)| *next)
    }

    /// Frees chunks that every reader has read, if it is closed to newcomers, and chunks more than the window
    /// behind the fastest reader. Returns the bytes freed.
    fn shrink(&mut self, window: usize) -> usize {
        let before = self.held;
        while let Some(length) = self.chunks.front().map(Bytes::len) {
            let is_read = self.is_closed && self.slowest().is_none_or(|next| next > self.first);
            let is_behind = self.is_window && self.gone + (length + window) as u64 <= self.taken;
            if !is_read && !is_behind {
                break;
            }
            self.chunks.pop_front();
            self.held -= length;
            self.gone += length as u64;
            self.first += 1;
        }
        before - self.held
    }
}

fn weight(headers: &Fields) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len() + FIELD).sum()
}
