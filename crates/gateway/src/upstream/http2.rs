//! HTTP/2 to the origin (`origin.protocol = "h2"`): a few connections per replica and worker, each with many
//! requests at once.
//!
//! ```text
//! acquire: least busy connection with room, or a fresh one ─► exchange ─► body
//!             a task drives each: frames, PING, the end of the idle ─┘
//! ```
//!
//! What is repeated is what dispatch repeats with HTTP/1.1, and one thing more: an origin that leaves
//! (GOAWAY with a lower last stream) or refuses a stream (REFUSED_STREAM) says that it has done nothing with
//! a request, whatever its method (RFC 9113 8.7).
//!
//! A request for WebSocket becomes an extended CONNECT ([`websocket`], RFC 8441), and its stream a tunnel.
//! The origin must have announced in its SETTINGS that it takes one.
//!
//! A second connection is opened only when the first is full (the origin's SETTINGS_MAX_CONCURRENT_STREAMS):
//! fewer connections compress heads better, and cost the origin less.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::upstream::balance::Replica;
use crate::upstream::body::BoxError;
use crate::upstream::socket::OriginSocket;
use crate::upstream::stats::{Stats, bump};
use crate::upstream::target::OpenError;

pub(crate) mod body;
pub(crate) mod exchange;
mod upload;
pub(crate) mod websocket;

/// As ALPN names it.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Between two looks at a connection: it is asked for a sign of life if it has requests, and closed when it
/// has been idle for long enough.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long an answer to PING may take. A dead origin is noticed after half a minute at most.
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// Windows for answers: of one, and of all of a connection. Only what visitors do not take fast enough waits
/// in them.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of a request's body that wait for the socket.
const SEND_BUFFER: usize = 64 << 10;
/// A response's head, in the sense of RFC 9113 6.5.2: as much as HTTP/1.1 may have.
const MAX_HEAD: u32 = 256 << 10;

/// The connections of one worker.
pub(crate) struct Multiplexed {
    /// By replica.
    of: RefCell<HashMap<u64, Rc<Links>>>,
    connect_timeout: Cell<Duration>,
    idle_timeout: Cell<Duration>,
    most: Cell<usize>,
    stats: Arc<Stats>,
}

/// The connections to one replica.
#[derive(Default)]
struct Links {
    open: RefCell<Vec<Rc<Link>>>,
    opening: Cell<usize>,
    /// A connection has room, is there or is gone.
    changed: Notify,
}

struct Link {
    send: SendRequest<Bytes>,
    streams: Cell<usize>,
    has_served: Cell<bool>,
    idle_since: Cell<Instant>,
    is_closed: Cell<bool>,
    first_settings: FirstSettings,
}

/// The SETTINGS that the origin's side of a connection begins with (RFC 9113 3.4). `h2` does not tell when it
/// has received them. They are the origin's first frame, so that they have come when it has answered a PING.
#[derive(Default)]
struct FirstSettings {
    have_come: Cell<bool>,
    /// A PING is to be sent.
    wanted: Notify,
    /// They have come, or the connection has ended.
    changed: Notify,
}

impl Link {
    /// Whether the origin takes extended CONNECT (RFC 8441 3); `None`: the connection ended before it said.
    async fn takes_websocket(&self) -> Option<bool> {
        let settings = &self.first_settings;
        loop {
            let mut changed = pin!(settings.changed.notified());
            changed.as_mut().enable();
            if self.send.is_extended_connect_protocol_enabled() {
                return Some(true);
            }
            // An answer to a request came after them as well.
            if settings.have_come.get() || self.has_served.get() {
                return Some(false);
            }
            if self.is_closed.get() {
                return None;
            }
            settings.wanted.notify_one();
            changed.await;
        }
    }

    fn has_room(&self) -> bool {
        self.streams.get() < self.send.current_max_send_streams()
    }
}

/// A connection, with one of its streams taken.
pub(crate) struct Taken {
    link: Rc<Link>,
    links: Rc<Links>,
    /// It has answered a request before: that it is dead says little of its replica.
    pub(crate) was_used: bool,
}

impl Taken {
    fn new(link: &Rc<Link>, links: &Rc<Links>) -> Self {
        link.streams.set(link.streams.get() + 1);
        Self { link: link.clone(), links: links.clone(), was_used: link.has_served.get() }
    }

    /// No other request is to use it.
    pub(crate) fn retire(&self) {
        self.link.is_closed.set(true);
        self.links.open.borrow_mut().retain(|link| !Rc::ptr_eq(link, &self.link));
        self.links.changed.notify_waiters();
    }

    fn answers(&self) {
        self.link.has_served.set(true);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.link.streams.set(self.link.streams.get() - 1);
        self.link.idle_since.set(Instant::now());
        self.links.changed.notify_one();
    }
}

impl Multiplexed {
    pub(crate) fn new(origin: &tidegate_settings::Origin, stats: Arc<Stats>) -> Self {
        let this = Self {
            of: RefCell::default(),
            connect_timeout: Cell::default(),
            idle_timeout: Cell::default(),
            most: Cell::default(),
            stats,
        };
        this.reconfigure(origin);
        this
    }

    pub(crate) fn reconfigure(&self, origin: &tidegate_settings::Origin) {
        self.connect_timeout.set(origin.connect_timeout);
        self.idle_timeout.set(origin.idle_timeout);
        self.most.set(origin.http2_connections);
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.of.borrow().values().map(|links| links.open.borrow().len()).sum()
    }

    /// A connection with room for a request. Waits for one if all are full, as long as for a connection.
    pub(crate) async fn acquire(&self, replica: &Arc<Replica>) -> Result<Taken, OpenError> {
        let links = self.links(replica);
        let patience = self.connect_timeout.get();
        let deadline = (!patience.is_zero()).then(|| Instant::now() + patience);
        loop {
            let mut changed = pin!(links.changed.notified());
            changed.as_mut().enable();
            if let Some(taken) = links.take() {
                bump(&self.stats.reused);
                return Ok(taken);
            }
            if links.open.borrow().len() + links.opening.get() < self.most.get() {
                return self.connect(replica, &links).await;
            }
            match deadline {
                None => changed.await,
                Some(deadline) => timeout_at(deadline, changed).await.map_err(|_| OpenError::Timeout)?,
            }
        }
    }

    /// Whether the origin takes extended CONNECT on this connection. Waits for its first SETTINGS, as long as
    /// for a connection.
    pub(crate) async fn takes_websocket(&self, taken: &Taken) -> Result<bool, OpenError> {
        let said = timeout(self.connect_limit(), taken.link.takes_websocket()).await;
        let ended = || OpenError::Failed(io::ErrorKind::ConnectionReset.into());
        said.map_err(|_| OpenError::Timeout)?.ok_or_else(ended)
    }

    /// How long a connection may take; where there is no limit, some decades.
    fn connect_limit(&self) -> Duration {
        let limit = self.connect_timeout.get();
        if limit.is_zero() { Duration::from_secs(u32::MAX.into()) } else { limit }
    }

    /// Keeps a connection that was opened to see what the origin chooses.
    pub(crate) async fn keep(&self, replica: &Arc<Replica>, socket: OriginSocket) {
        // An error shows again when a request needs a connection.
        drop(self.adopt(replica, &self.links(replica), socket).await);
    }

    /// The connections to a replica; those to replicas that are gone are forgotten.
    fn links(&self, replica: &Arc<Replica>) -> Rc<Links> {
        let mut of = self.of.borrow_mut();
        if let Some(links) = of.get(&replica.id()) {
            return links.clone();
        }
        of.retain(|_, links| !links.open.borrow().is_empty() || links.opening.get() > 0);
        of.entry(replica.id()).or_default().clone()
    }

    async fn connect(&self, replica: &Arc<Replica>, links: &Rc<Links>) -> Result<Taken, OpenError> {
        let opening = Opening::new(links);
        bump(&self.stats.connects);
        let socket = OriginSocket::open(replica, &[], self.connect_timeout.get()).await?;
        let taken = timeout(self.connect_limit(), self.adopt(replica, links, socket)).await;
        drop(opening);
        taken.map_err(|_| OpenError::Timeout)?
    }

    /// Begins HTTP/2 on a connection.
    async fn adopt(
        &self,
        replica: &Arc<Replica>,
        links: &Rc<Links>,
        socket: OriginSocket,
    ) -> Result<Taken, OpenError> {
        if matches!(socket, OriginSocket::Tls(_)) && socket.chosen() != Some(HTTP2) {
            return Err(OpenError::Failed(io::Error::other("the origin does not speak HTTP/2")));
        }
        let handshake = builder().handshake::<_, Bytes>(socket).await;
        let (send, connection) = handshake.map_err(|error| OpenError::Failed(io::Error::other(error)))?;
        let link = Rc::new(Link {
            send,
            streams: Cell::new(0),
            has_served: Cell::new(false),
            idle_since: Cell::new(Instant::now()),
            is_closed: Cell::new(false),
            first_settings: FirstSettings::default(),
        });
        let taken = Taken::new(&link, links);
        links.open.borrow_mut().push(link.clone());
        tokio::task::spawn_local(drive(
            connection,
            link,
            links.clone(),
            replica.clone(),
            self.idle_timeout.get(),
        ));
        Ok(taken)
    }
}

impl Links {
    /// The least busy connection that has room.
    fn take(self: &Rc<Self>) -> Option<Taken> {
        let open = self.open.borrow();
        let usable = open.iter().filter(|link| !link.is_closed.get() && link.has_room());
        usable.min_by_key(|link| link.streams.get()).map(|link| Taken::new(link, self))
    }
}

/// A connection that is being set up.
struct Opening(Rc<Links>);

impl Opening {
    fn new(links: &Rc<Links>) -> Self {
        links.opening.set(links.opening.get() + 1);
        Self(links.clone())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
        // Those who wait for it use it, or try themselves.
        self.0.changed.notify_waiters();
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

/// Drives a connection to its end: the origin's, an origin that does not answer PING, or a time without
/// requests.
async fn drive(
    mut connection: Connection<OriginSocket, Bytes>,
    link: Rc<Link>,
    links: Rc<Links>,
    replica: Arc<Replica>,
    idle: Duration,
) {
    let mut pings = connection.ping_pong();
    let mut connection = pin!(connection);
    let look_every = LOOK_EVERY.min(idle.max(Duration::from_millis(1)));
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(replica = replica.authority(), %error, "connection ended");
                }
                break;
            }
            () = sleep(look_every) => {}
            () = link.first_settings.wanted.notified() => {}
        }
        if link.streams.get() == 0 {
            if replica.is_retired() || link.idle_since.get().elapsed() >= idle {
                break;
            }
            continue;
        }
        let answered = timeout(PONG_WITHIN, pong(&mut pings));
        tokio::select! {
            biased;
            _ = connection.as_mut() => break,
            answered = answered => match answered {
                Ok(true) => {
                    link.first_settings.have_come.set(true);
                    link.first_settings.changed.notify_waiters();
                }
                Ok(false) => {}
                Err(_) => break,
            }
        }
    }
    link.is_closed.set(true);
    link.first_settings.changed.notify_waiters();
    links.open.borrow_mut().retain(|other| !Rc::ptr_eq(other, &link));
    links.changed.notify_waiters();
}

/// Asks for a sign of life, and waits for it. False: the connection takes no PING, as it is ending.
async fn pong(pings: &mut Option<PingPong>) -> bool {
    let Some(pings) = pings else { return false };
    pings.send_ping(Ping::opaque()).is_ok() && poll_fn(|cx| pings.poll_pong(cx)).await.is_ok()
}

/// The status of the answer to a request on a connection of its own, which is closed then: a health check.
///
/// `None`: the origin has chosen HTTP/1.1, by which it must be asked.
pub(crate) async fn probe(
    replica: &Arc<Replica>,
    request: Request<()>,
    limit: Duration,
) -> Result<Option<StatusCode>, BoxError> {
    let socket = OriginSocket::open(replica, &[], limit).await?;
    if matches!(socket, OriginSocket::Tls(_)) && socket.chosen() != Some(HTTP2) {
        return Ok(None);
    }
    let (send, connection) = builder().handshake::<_, Bytes>(socket).await?;
    let answer = async { Ok(Some(send.ready().await?.send_request(request, true)?.0.await?.status())) };
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // It may end before the answer has been taken from it.
        _ = &mut connection => answer.await,
    }
}
