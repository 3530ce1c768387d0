//! The life of a visitor's connection: its requests one after the other, and what ends it before its time
//! (the shutdown, a policy).

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::http::http2::{PREFACE, is_http2};
use crate::http::stream::{ConnInfo, Protocol, VisitorSocket};
use crate::http::visitor_body::VisitorBody;
use crate::http::visitor_link::{VisitorLink, hyper_upgrade};
use crate::http::wire::{BadBody, Refusal, Wire, WireEvent, WireLimits};
use crate::proxy::context::Conn;
use crate::proxy::counted::Counted;
use crate::proxy::http2;
use crate::proxy::serve::serve;
use crate::shared::free_slots::Silence;
use crate::shared::policies::ConnControl;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Shared, Worker};
use crate::upstream::tunnel::TunnelHandle;

/// Between two looks at a connection that has begun as HTTP/2 does and has not gone on.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(super) async fn connection(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) {
    let mut told = Told::new(&worker);
    let protocol = match &socket {
        VisitorSocket::Tcp(stream) if worker.config().settings.listen.http2 => {
            first_bytes(&worker, stream, told).await
        }
        _ => Some(info.protocol),
    };
    match protocol {
        Some(Protocol::Http1) => {}
        Some(Protocol::Http2) => {
            return http2::connection(worker, socket, info, Vec::new(), counted, silence).await;
        }
        None => {
            counted.count(Event::IdleTimeout);
            return silence.end();
        }
    }
    let live = worker.config();
    let limits = WireLimits::from(&live.settings.limits);
    let mut builder = http1::Builder::new();
    limits.configure(&mut builder);
    let control = ConnControl::new(socket.fd());
    let (wire, handle) = Wire::new(socket, limits, move |e| {
        if let Some(event) = event(e) {
            counted.count(event);
        }
    });
    let upgrade = Rc::new(Cell::new(None));
    let conn = Rc::new(Conn {
        info,
        link: VisitorLink::Http1(handle.clone(), upgrade.clone()),
        control,
        session: Rc::new(SessionLink::new(worker.clone())),
        silence,
    });
    drop(live);
    let mut drain = worker.shared.drain.subscribe();
    let service = {
        let (worker, conn) = (worker.clone(), conn.clone());
        service_fn(move |mut request: http::Request<Incoming>| {
            // hyper offers an upgrade where the request asks for one.
            upgrade.set(request.extensions_mut().remove().map(hyper_upgrade));
            let (worker, conn, handle) = (worker.clone(), conn.clone(), handle.clone());
            async move {
                let answer = serve(worker, conn, request.map(VisitorBody::Hyper)).await;
                Ok::<_, std::convert::Infallible>(answer.map(|body| handle.track(body)))
            }
        })
    };
    let mut served = pin!(builder.serve_connection(wire, service).with_upgrades());
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
        tracing::debug!(peer = %conn.info.peer, error = %e, "connection ended");
    }
}

/// The protocol that a visitor begins with; `None`: it says nothing for too long. The bytes stay in the
/// socket. News end the wait, and find a connection of HTTP/1.1 that idles.
async fn first_bytes(worker: &Worker, stream: &TcpStream, mut told: Told) -> Option<Protocol> {
    let mut drain = worker.shared.drain.subscribe();
    let end = Instant::now() + worker.config().settings.limits.header_timeout;
    let mut bytes = [0; PREFACE.len()];
    loop {
        let seen = tokio::select! {
            biased;
            seen = stream.peek(&mut bytes) => seen,
            _ = told.news(&mut drain, &worker.shared) => return Some(Protocol::Http1),
            () = sleep_until(end) => return None,
        };
        match seen {
            Ok(n) if n > 0 => match is_http2(&bytes[..n]) {
                Some(true) => return Some(Protocol::Http2),
                Some(false) => return Some(Protocol::Http1),
                // The socket stays readable: it is looked at again when more may have come.
                None if Instant::now() < end => tokio::time::sleep(LOOK_AGAIN).await,
                None => return None,
            },
            // HTTP/1.1 finds the end, or the error, itself.
            _ => return Some(Protocol::Http1),
        }
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
#[derive(Clone, Copy)]
pub(super) struct Told {
    is_ending: bool,
    cuts: u64,
}

pub(super) enum News {
    /// The shutdown has come to idle connections.
    Idle,
    /// Other policies than before end or stop answers under way.
    Cuts,
}

impl Told {
    pub(super) fn new(worker: &Worker) -> Self {
        Self { is_ending: false, cuts: worker.shared.policies.cuts() }
    }

    /// The next news. Both come through one channel: so each turn of a connection waits for one only.
    pub(super) async fn news(
        &mut self,
        drain: &mut tokio::sync::watch::Receiver<Drain>,
        shared: &Shared,
    ) -> News {
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
pub(super) fn ordered(worker: &Worker, conn: &Conn) -> Option<Action> {
    let standing = worker.policies(worker.policy_version())?;
    let policy = conn.control.cut_by(&standing, worker.now())?;
    // A stopped answer is one under way; a connection that idles may end all the same.
    if policy.action == Action::Stop && !conn.link.is_busy() && conn.control.tunnel().is_none() {
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
