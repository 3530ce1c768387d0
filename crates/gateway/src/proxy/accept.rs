//! Takes connections in: listeners, the connection cap, and the end of a connection's life.
//!
//! Every worker has its own listener on the same address (`SO_REUSEPORT`), so that accepting needs no lock.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use socket2::{Domain, Protocol, Socket, Type};
use tidegate_core::measure::{Event, Shard};
use tidegate_core::policies::Action;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::http::socket;
use crate::http::wire::{BadBody, Refusal, Wire, WireEvent, WireLimits};
use crate::proxy::context::Conn;
use crate::proxy::respond;
use crate::proxy::serve::serve;
use crate::shared::policies::ConnControl;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Shared, Worker, reached};
use crate::upstream::tunnel::TunnelHandle;

/// After an error of `accept` that is not the connection's own (out of file descriptors): long enough for
/// some to be freed, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket that shares its address with those of the other workers.
pub fn listen(addr: SocketAddr, backlog: u32) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Accepts until draining starts, then until nobody is left.
pub async fn accept(worker: Rc<Worker>, listener: TcpListener) {
    let mut drain = worker.shared.drain.subscribe();
    loop {
        let accepted = tokio::select! {
            biased;
            () = reached(&mut drain, Drain::Accepting) => break,
            accepted = listener.accept() => accepted,
        };
        take(&worker, accepted).await;
    }
    // Connections that the kernel has already accepted are served: closing the listener would reset them.
    while let Some(accepted) = poll_once(&listener) {
        take(&worker, accepted).await;
    }
    worker.shared.accepting.fetch_sub(1, Ordering::AcqRel);
}

fn poll_once(listener: &TcpListener) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match listener.poll_accept(&mut cx) {
        std::task::Poll::Ready(accepted) => Some(accepted),
        std::task::Poll::Pending => None,
    }
}

async fn take(worker: &Rc<Worker>, accepted: io::Result<(TcpStream, SocketAddr)>) {
    let (stream, peer) = match accepted {
        Ok(accepted) => accepted,
        Err(e) if is_of_connection(&e) => return,
        Err(e) => {
            tracing::warn!(error = %e, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return;
        }
    };
    worker.count(Event::Connections);
    if is_turned_away(worker, &stream) {
        return;
    }
    let max = worker.config().settings.limits.max_connections;
    if worker.shared.connections.fetch_add(1, Ordering::Relaxed) >= max {
        worker.shared.connections.fetch_sub(1, Ordering::Relaxed);
        worker.count(Event::ConnectionsRefused);
        tokio::task::spawn_local(refuse(stream));
        return;
    }
    let _ = stream.set_nodelay(true);
    tokio::task::spawn_local(connection(worker.clone(), stream, peer));
}

/// Whether a policy in force closes or resets every connection before it is read (WAC 3.3 d).
fn is_turned_away(worker: &Worker, stream: &TcpStream) -> bool {
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

/// A visitor's connection among those open. The wire owns it, so that a tunnel, which leaves hyper with its
/// wire, still counts.
struct Counted {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
}

impl Counted {
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

async fn connection(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr) {
    let counted = Counted { shared: worker.shared.clone(), shard: worker.shard.clone() };
    let live = worker.config();
    let limits = WireLimits::from(&live.settings.limits);
    let mut builder = http1::Builder::new();
    limits.configure(&mut builder);
    let control = ConnControl::new(stream.as_raw_fd());
    let (wire, handle) = Wire::new(stream, limits, move |e| counted.told(e));
    let conn = Rc::new(Conn { peer, wire: handle, control, session: SessionLink::new(worker.clone()) });
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
                Some(Action::Stop) => return conn.control.reset(),
                _ => {}
            },
        }
    };
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
