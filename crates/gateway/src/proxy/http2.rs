//! The life of a visitor's HTTP/2 connection: streams are accepted here and served each in a task of its own
//! ([`stream`]), and here it ends before its time: idle, flooded, not reading, drained, by a policy.
//!
//! ```text
//! socket ─► Watched (counts frames) ─► h2 ─► head checked ─► stream's task: serve ─► answer
//!                │ flood, stall               │ refused            ▲ cut, reset
//!                └──────► this task ◄─────────┴── policies, drain ─┘
//! ```
//!
//! Whatever concerns one request (its policies, its visitor's departure, its body) is its stream's; its
//! connection goes on. GOAWAY tells a visitor to go elsewhere with new requests while those under way end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection};
use slab::Slab;
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tidegate_http::{BadBody, HeadLimits};
use tokio::time::Instant;

use crate::http::http1::Http1Limits;
use crate::http::http2::body::BodyLimits;
use crate::http::http2::head::max_header_list;
use crate::http::http2::watch::{FrameLimits, Watch, Watched};
use crate::http::stream::{ConnInfo, VisitorSocket};
use crate::http::timer::LazyTimer;
use crate::proxy::context::Conn;
use crate::proxy::counted::Counted;
use crate::proxy::news::{News, Told, ordered};
use crate::shared::Worker;
use crate::shared::free_slots::Silence;
use crate::shared::policies::{ConnControl, stats::Done};
use crate::shared::sessions::SessionLink;

mod send;
mod stream;

/// Bytes of one answer that wait in `h2` for the socket. With all streams of a connection, this is what a
/// visitor who opens its windows and then does not read can make the gate hold.
const SEND_BUFFER: usize = 64 << 10;
/// How long a connection that is ending may take to read the last of it.
const CLOSING: Duration = Duration::from_secs(2);

/// What a connection's task and those of its streams share.
struct Shared {
    worker: Rc<Worker>,
    info: ConnInfo,
    session: Rc<SessionLink>,
    silence: Silence,
    head: HeadLimits,
    body: BodyLimits,
    watch: Rc<Watch>,
    /// It is one of those open until the last stream has ended.
    _counted: Counted,
    /// The requests under way.
    streams: RefCell<Slab<Rc<Conn>>>,
    wish: Cell<Wish>,
    waker: RefCell<Option<Waker>>,
}

/// What a stream asks of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Wish {
    #[default]
    Nothing,
    /// No more requests: those under way end, then it does.
    GoAway,
    /// It is reset at once.
    Abort,
}

impl Shared {
    fn wish(&self, wish: Wish) {
        if self.wish.get() != Wish::Abort {
            self.wish.set(wish);
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn count(&self, event: Event) {
        self.worker.count(event);
    }
}

/// Serves a connection. `received`: what has been read of it already.
pub(super) async fn connection(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    received: Vec<u8>,
    counted: Counted,
    silence: Silence,
) {
    let live = worker.config();
    let limits = Http1Limits::from(&live.settings.limits);
    let (builder, frames) = configured(&live.settings.http2, &limits.head);
    drop(live);
    // Owned here: the socket is open as long as this function runs.
    let control = ConnControl::new(socket.fd());
    let (socket, watch) = Watched::new(socket, received, frames);
    let on_bad = {
        let worker = worker.clone();
        move |bad| {
            worker.count(match bad {
                BadBody::TooLarge => Event::BodyTooLarge,
                BadBody::TooSlow => Event::BodyTimeout,
                _ => Event::RequestsBad,
            });
        }
    };
    let shared = Rc::new(Shared {
        session: Rc::new(SessionLink::new(worker.clone())),
        info,
        silence,
        head: limits.head,
        body: BodyLimits {
            max: limits.head.body,
            timeout: limits.body_timeout,
            min_rate: limits.min_body_rate,
            on_bad: Rc::new(on_bad),
        },
        watch,
        _counted: counted,
        streams: RefCell::default(),
        wish: Cell::default(),
        waker: RefCell::default(),
        worker,
    });
    let handshake = tokio::time::timeout(limits.header_timeout, builder.handshake::<_, Bytes>(socket));
    match handshake.await {
        Ok(Ok(h2)) => Life::new(shared.clone(), h2, control, limits).run().await,
        Ok(Err(error)) => ended(&shared, &error),
        Err(_) => shared.count(Event::IdleTimeout),
    }
    shared.silence.end();
}

fn configured(http2: &tidegate_settings::Http2, head: &HeadLimits) -> (Builder, FrameLimits) {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(http2.max_streams)
        .initial_window_size(http2.stream_window)
        .initial_connection_window_size(http2.connection_window)
        .max_header_list_size(max_header_list(head))
        .max_send_buffer_size(SEND_BUFFER)
        // Resets are bounded by `Watched`, those of streams that were not accepted yet among them. A visitor
        // who cancels all at once does nothing wrong.
        .max_pending_accept_reset_streams(http2.max_streams.max(http2.max_resets) as usize)
        // Resets that a visitor's own mistakes bring about (CVE-2025-8671).
        .max_local_error_reset_streams(Some(http2.max_resets as usize))
        .enable_connect_protocol();
    (builder, FrameLimits { resets: http2.max_resets, control: http2.max_control_frames })
}

/// Counts why a connection ended, if the visitor is to blame.
fn ended(shared: &Shared, error: &h2::Error) {
    if error.is_library() {
        let is_flood = error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
        shared.count(if is_flood { Event::Http2Floods } else { Event::RequestsBad });
    }
    tracing::debug!(peer = %shared.info.peer, %error, "connection ended");
}

/// A connection after its preface.
struct Life {
    shared: Rc<Shared>,
    h2: Connection<Watched<VisitorSocket>, Bytes>,
    /// Of the connection's own socket, and of a request that there is not.
    control: ConnControl,
    limits: Http1Limits,
    timer: LazyTimer,
    /// Since when no stream is open, or since the GOAWAY after that.
    idle: Option<Instant>,
    has_served: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// GOAWAY is sent; streams under way end.
    Leaving,
    /// Only the last bytes are still to be written and read.
    Closing,
}

/// Why a connection's task wakes, beside for a stream.
enum Step {
    Over(Result<(), h2::Error>),
    Flood,
    Wish(Wish),
    Late(Late),
}

/// What has lasted too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Late {
    Idle,
    Head,
    NotReading,
    Closing,
}

impl Life {
    fn new(
        shared: Rc<Shared>,
        h2: Connection<Watched<VisitorSocket>, Bytes>,
        control: ConnControl,
        limits: Http1Limits,
    ) -> Self {
        let (timer, idle) = (LazyTimer::default(), Some(Instant::now()));
        Self { shared, h2, control, limits, timer, idle, has_served: false, phase: Phase::Open }
    }

    async fn run(mut self) {
        let worker = self.shared.worker.clone();
        let mut drain = worker.shared.drain.subscribe();
        let mut told = Told::new(&worker);
        loop {
            let news = tokio::select! {
                // Nearly every turn is the connection's.
                biased;
                step = poll_fn(|cx| self.poll(cx)) => {
                    if self.step(step).is_break() {
                        return;
                    }
                    continue;
                }
                news = told.news(&mut drain, &worker.shared) => news,
            };
            match news {
                News::Idle => self.leave(),
                News::Cuts => self.cut(),
            }
        }
    }

    fn step(&mut self, step: Step) -> std::ops::ControlFlow<()> {
        use std::ops::ControlFlow::{Break, Continue};
        match step {
            Step::Over(result) => {
                if let Err(error) = result {
                    ended(&self.shared, &error);
                }
                return Break(());
            }
            Step::Flood => {
                self.shared.count(Event::Http2Floods);
                self.close(Reason::ENHANCE_YOUR_CALM);
            }
            Step::Wish(Wish::Abort) => {
                self.shared.watch.mute();
                self.control.reset();
                return Break(());
            }
            Step::Wish(_) => self.leave(),
            Step::Late(Late::Closing) => return Break(()),
            Step::Late(Late::NotReading) => {
                self.shared.count(Event::BodyTimeout);
                return Break(());
            }
            Step::Late(Late::Head) => {
                self.shared.count(Event::HeaderTimeout);
                self.close(Reason::NO_ERROR);
            }
            Step::Late(Late::Idle) => {
                self.shared.count(Event::IdleTimeout);
                self.close(Reason::NO_ERROR);
            }
        }
        Continue(())
    }

    /// GOAWAY; requests under way are served.
    fn leave(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Leaving;
            // Counted from now on: a visitor who was silent for long may have sent a request by now.
            self.idle = None;
            self.h2.graceful_shutdown();
        }
    }

    /// GOAWAY, and the end.
    fn close(&mut self, reason: Reason) {
        self.phase = Phase::Closing;
        self.idle = Some(Instant::now());
        self.h2.abrupt_shutdown(reason);
    }

    /// Ends or cuts off what policies in force say.
    fn cut(&mut self) {
        let worker = self.shared.worker.clone();
        let streams: Vec<Rc<Conn>> =
            self.shared.streams.borrow().iter().map(|(_, conn)| conn.clone()).collect();
        for conn in &streams {
            let action = ordered(&worker, conn);
            match (action, conn.control.tunnel()) {
                (Some(_), Some(tunnel)) => tunnel.cut(),
                (Some(Action::Stop), None) => conn.link.cut(),
                _ => {}
            }
            if action == Some(Action::End) {
                self.leave();
            }
        }
        if streams.is_empty()
            && let Some(standing) = worker.policies(worker.policy_version())
            && let Some(policy) = self.control.cut_by(&standing, worker.now())
            && policy.action == Action::End
        {
            if self.control.note_order(policy.action) {
                standing.count(policy, Done::from(policy.action));
            }
            self.leave();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.shared.wish.get() == Wish::Abort {
            // Before `h2` tells the visitor what became of the stream.
            return Poll::Ready(Step::Wish(Wish::Abort));
        }
        loop {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.has_served = true;
                    tokio::task::spawn_local(stream::stream(self.shared.clone(), request, respond));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Step::Over(Err(error))),
                Poll::Ready(None) => return Poll::Ready(Step::Over(Ok(()))),
                Poll::Pending => break,
            }
        }
        if self.shared.watch.is_flood() && self.phase != Phase::Closing {
            return Poll::Ready(Step::Flood);
        }
        match self.shared.wish.take() {
            Wish::Nothing => {}
            wish => return Poll::Ready(Step::Wish(wish)),
        }
        *self.shared.waker.borrow_mut() = Some(cx.waker().clone());
        self.poll_late(cx)
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.phase != Phase::Closing {
            let is_busy = self.h2.has_streams() || !self.shared.streams.borrow().is_empty();
            match (is_busy, self.idle) {
                (true, _) => self.idle = None,
                (false, None) => self.idle = Some(Instant::now()),
                (false, Some(_)) => {}
            }
        }
        let limits = &self.limits;
        let (idle, what) = match self.phase {
            Phase::Open if self.has_served => (limits.idle_timeout, Late::Idle),
            Phase::Open => (limits.header_timeout, Late::Idle),
            Phase::Leaving | Phase::Closing => (CLOSING, Late::Closing),
        };
        let waits = [
            (self.idle, idle, what),
            (self.shared.watch.in_head_since(), limits.header_timeout, Late::Head),
            (self.shared.watch.stalled_since(), limits.body_timeout, Late::NotReading),
        ];
        let waits =
            waits.into_iter().filter(|(.., late)| self.phase != Phase::Closing || *late != Late::Head);
        let due = waits.filter_map(|(since, limit, late)| Some((since? + limit, late)));
        let Some((at, late)) = due.min_by_key(|(at, _)| *at) else { return Poll::Pending };
        self.timer.poll(cx, at).map(|()| Step::Late(late))
    }
}
