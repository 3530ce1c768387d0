//! Takes visitors' connections in: when they are accepted, the connection cap, and the end of a connection's
//! life.
//!
//! Every worker has its own listeners on the same address (`SO_REUSEPORT`), so that accepting needs no lock.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tidegate_core::measure::{Event, Shard};
use tidegate_core::policies::Action;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http::socket;
use crate::http::wire::{BadBody, Refusal, Wire, WireEvent, WireLimits};
use crate::proxy::context::Conn;
use crate::proxy::listeners::{Accepted, Listeners, Reach};
use crate::proxy::respond;
use crate::proxy::serve::serve;
use crate::shared::free_slots::{MAX_SILENCE, Silence, SilentSlot};
use crate::shared::policies::ConnControl;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Shared, Worker, reached};
use crate::upstream::tunnel::TunnelHandle;

/// After an error of `accept` that is not the connection's own (out of file descriptors): long enough for
/// some to be freed, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts until draining starts, then until nobody is left.
pub async fn accept(worker: Rc<Worker>, listeners: Listeners) {
    let mut drain = worker.shared.drain.subscribe();
    let mut silent = Silent::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = reached(&mut drain, Drain::Accepting) => break,
            () = silent.expire() => continue,
            accepted = next(&worker, &listeners) => accepted,
        };
        match accepted {
            Ok((accepted, slot)) => take(&worker, accepted, silent.begin(slot)),
            Err(error) => pause(&error).await,
        }
    }
    // Connections that the kernel has already accepted are served: closing the listener would reset them.
    loop {
        match listeners.take(Reach::Own) {
            Ok(Some(accepted)) => take(&worker, accepted, Silence::default()),
            Ok(None) => break,
            Err(error) => pause(&error).await,
        }
    }
    worker.shared.accepting.fetch_sub(1, Ordering::AcqRel);
}

/// The next connection, once it may be accepted, with its slot if connections wait for slots.
async fn next(worker: &Worker, listeners: &Listeners) -> io::Result<(Accepted, Option<SilentSlot>)> {
    loop {
        listeners.somebody().await?;
        let slot = worker.shared.gate.free_slots().slot().await;
        let reach = if slot.is_some() { Reach::All } else { Reach::Own };
        if let Some(accepted) = listeners.take(reach)? {
            return Ok((accepted, slot));
        }
    }
}

/// After an error of `accept`.
pub(super) async fn pause(error: &io::Error) {
    if !is_of_connection(error) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// The connections of a worker that hold slots without having sent a request, the oldest first.
#[derive(Default)]
struct Silent(VecDeque<(Instant, Silence)>);

impl Silent {
    fn begin(&mut self, slot: Option<SilentSlot>) -> Silence {
        if slot.is_none() {
            return Silence::default();
        }
        let silence = Silence::new(slot);
        while self.0.front().is_some_and(|(_, oldest)| oldest.is_over()) {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now() + MAX_SILENCE, silence.clone()));
        silence
    }

    /// Waits until the oldest has been silent for too long, and takes its slot.
    async fn expire(&mut self) {
        match self.0.front() {
            None => std::future::pending().await,
            Some((end, _)) => tokio::time::sleep_until(*end).await,
        }
        if let Some((_, silence)) = self.0.pop_front() {
            silence.end();
        }
    }
}

fn take(worker: &Rc<Worker>, accepted: Accepted, silence: Silence) {
    let Accepted { stream, peer, priority } = accepted;
    worker.count(Event::Connections);
    worker.shared.accepts.count(worker.index, priority);
    if is_turned_away(worker, &stream) {
        return silence.end();
    }
    let Some(counted) = Counted::new(worker) else {
        worker.count(Event::ConnectionsRefused);
        tokio::task::spawn_local(refuse(stream));
        return silence.end();
    };
    let _ = stream.set_nodelay(true);
    tokio::task::spawn_local(connection(worker.clone(), stream, peer, counted, silence));
}

/// Whether a policy in force closes or resets every connection before it is read (WAC 3.3 d).
pub(super) fn is_turned_away(worker: &Worker, stream: &TcpStream) -> bool {
    let Some(standing) = worker.policies(worker.policy_version()) else { return false };
    let Some(policy) = standing.set.at_accept() else { return false };
    standing.count(policy, Done::from(policy.action));
    if policy.action == Action::Reset {
        socket::reset_on_close(stream.as_raw_fd());
    }
    true
}

/// Errors that say something of one connection, not of the listener (accept(2)).
fn is_of_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}

/// Over the cap: a clear answer that costs no more than the connection already did.
async fn refuse(mut stream: TcpStream) {
    let answer = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(respond::TOO_MANY_CONNECTIONS).await?;
        stream.shutdown().await?;
        // Reading what the visitor had sent: closing over unread bytes would reset the answer away.
        let mut rest = [0; 1024];
        for _ in 0..16 {
            if tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    });
    let _ = answer.await;
}

/// A connection among those open, of a visitor or of a TCP service. A visitor's wire owns it, so that a
/// tunnel, which leaves hyper with its wire, still counts.
pub(super) struct Counted {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
}

impl Counted {
    /// `None`: there are as many as `limits.max_connections` permits.
    pub(super) fn new(worker: &Worker) -> Option<Self> {
        let max = worker.config().settings.limits.max_connections;
        if worker.shared.connections.fetch_add(1, Ordering::Relaxed) >= max {
            worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { shared: worker.shared.clone(), shard: worker.shard.clone() })
    }

    fn told(&self, of: WireEvent) {
        if let Some(event) = event(of) {
            self.shard.count(event);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A panic that ends the connection's task: in a body, or in hyper.
        if std::thread::panicking() {
            self.shard.count(Event::Panics);
        }
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connection(
    worker: Rc<Worker>,
    stream: TcpStream,
    peer: SocketAddr,
    counted: Counted,
    silence: Silence,
) {
    let live = worker.config();
    let limits = WireLimits::from(&live.settings.limits);
    let mut builder = http1::Builder::new();
    limits.configure(&mut builder);
    let control = ConnControl::new(stream.as_raw_fd());
    let (wire, handle) = Wire::new(stream, limits, move |e| counted.told(e));
    let conn =
        Rc::new(Conn { peer, wire: handle, control, session: SessionLink::new(worker.clone()), silence });
    drop(live);
    let mut drain = worker.shared.drain.subscribe();
    let service = {
        let (worker, conn) = (worker.clone(), conn.clone());
        service_fn(move |request| serve(worker.clone(), conn.clone(), request))
    };
    let mut served = pin!(builder.serve_connection(wire, service).with_upgrades());
    let mut told = Told { is_ending: false, cuts: worker.shared.policies.cuts() };
    let ended = loop {
        let news = tokio::select! {
            // Nearly every turn is the connection's.
            biased;
            ended = served.as_mut() => break ended,
            news = told.news(&mut drain, &worker.shared) => news,
        };
        match news {
            News::Idle => served.as_mut().graceful_shutdown(),
            News::Cuts => match ordered(&worker, &conn) {
                Some(Action::End) => served.as_mut().graceful_shutdown(),
                // Dropping the connection closes it.
                Some(Action::Stop) => {
                    conn.silence.end();
                    return conn.control.reset();
                }
                _ => {}
            },
        }
    };
    conn.silence.end();
    if let Some(tunnel) = conn.control.tunnel() {
        outlive(&worker, &conn, tunnel, told, &mut drain).await;
    }
    if let Err(e) = ended {
        tracing::debug!(%peer, error = %e, "connection ended");
    }
}

/// A connection that has become a tunnel is no longer a task of hyper's; policies reach it here.
async fn outlive(
    worker: &Worker,
    conn: &Conn,
    tunnel: &TunnelHandle,
    mut told: Told,
    drain: &mut tokio::sync::watch::Receiver<Drain>,
) {
    // Policies that came in force while hyper still had the connection are checked once more.
    told.cuts = told.cuts.wrapping_sub(1);
    loop {
        tokio::select! {
            biased;
            () = tunnel.over() => return,
            news = told.news(drain, &worker.shared) => match news {
                News::Idle => {}
                News::Cuts => match ordered(worker, conn) {
                    Some(Action::Stop) => {
                        conn.control.reset();
                        return tunnel.cut();
                    }
                    Some(_) => return tunnel.cut(),
                    None => {}
                },
            },
        }
    }
}

/// The news that a connection's task has received so far.
struct Told {
    is_ending: bool,
    cuts: u64,
}

enum News {
    /// The shutdown has come to idle connections.
    Idle,
    /// Other policies than before end or stop answers under way.
    Cuts,
}

impl Told {
    /// The next news. Both come through one channel: so each turn of a connection waits for one only.
    async fn news(&mut self, drain: &mut tokio::sync::watch::Receiver<Drain>, shared: &Shared) -> News {
        let (is_ending, cuts) = (self.is_ending, self.cuts);
        let enforcement = &shared.policies;
        // As in `reached`: the value it returns holds the channel's lock.
        let news = |now: &Drain| (!is_ending && *now >= Drain::Idle) || enforcement.cuts() != cuts;
        let is_idle = drain.wait_for(news).await.map_or(true, |now| *now >= Drain::Idle);
        let now = enforcement.cuts();
        if now != std::mem::replace(&mut self.cuts, now) {
            return News::Cuts;
        }
        debug_assert!(is_idle);
        self.is_ending = true;
        News::Idle
    }
}

/// The action of a policy in force on the connection's present request, if there is one.
fn ordered(worker: &Worker, conn: &Conn) -> Option<Action> {
    let standing = worker.policies(worker.policy_version())?;
    let policy = conn.control.cut_by(&standing, worker.now())?;
    // A stopped answer is one under way; a connection that idles may end all the same.
    if policy.action == Action::Stop && !conn.wire.is_busy() && conn.control.tunnel().is_none() {
        return None;
    }
    standing.count(policy, Done::from(policy.action));
    Some(policy.action)
}

/// Events of the wire, as counters. Bodies that were cut off are counted where they are answered.
fn event(e: WireEvent) -> Option<Event> {
    match e {
        WireEvent::Request | WireEvent::Gone | WireEvent::Truncated => None,
        WireEvent::Refused(Refusal::TooSlow) => Some(Event::HeaderTimeout),
        WireEvent::Refused(Refusal::TargetTooLong) => Some(Event::UriTooLong),
        WireEvent::Refused(Refusal::HeadTooLarge | Refusal::TooManyFields) => Some(Event::HeadersTooLarge),
        WireEvent::Refused(Refusal::BodyTooLarge) | WireEvent::BadBody(BadBody::TooLarge) => {
            Some(Event::BodyTooLarge)
        }
        WireEvent::BadBody(BadBody::TooSlow) | WireEvent::NotReading => Some(Event::BodyTimeout),
        WireEvent::Refused(_) | WireEvent::BadBody(_) => Some(Event::RequestsBad),
        WireEvent::Idle => Some(Event::IdleTimeout),
    }
}
