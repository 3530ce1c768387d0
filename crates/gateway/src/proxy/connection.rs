//! The life of a visitor's connection: its requests one after the other, and what ends it before its time
//! (the shutdown, a policy).

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tidegate_http::{BadBody, Refusal, RequestHead, ResponseHead};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::http::http1::{Http1, Http1Body, Http1Event, Http1Limits};
use crate::http::http2::{PREFACE, is_http2};
use crate::http::stream::{ConnInfo, Protocol, VisitorSocket};
use crate::http::visitor_body::VisitorBody;
use crate::http::visitor_link::VisitorLink;
use crate::proxy::context::Conn;
use crate::proxy::counted::Counted;
use crate::proxy::http2;
use crate::proxy::response_body::ResponseBody;
use crate::proxy::serve::serve;
use crate::proxy::stages::forward::Forwarded;
use crate::shared::free_slots::Silence;
use crate::shared::policies::ConnControl;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Shared, Worker};
use crate::upstream::tunnel::TunnelHandle;

/// Between two looks at a connection that has begun as HTTP/2 does and has not gone on.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// `counted` is held until the end, of the tunnel too if the connection becomes one.
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
    let limits = Http1Limits::from(&worker.config().settings.limits);
    let control = ConnControl::new(socket.fd());
    let (connection, link) = Http1::new(socket, limits, |e| {
        if let Some(event) = event(e) {
            counted.count(event);
        }
    });
    let session = Rc::new(SessionLink::new(worker.clone()));
    let conn = Rc::new(Conn { info, link: VisitorLink::Http1(link), control, session, silence });
    let mut drain = worker.shared.drain.subscribe();
    let mut served = pin!(connection.serve(|head, body| answer(worker.clone(), conn.clone(), head, body)));
    let ended = loop {
        let news = tokio::select! {
            // Nearly every turn is the connection's.
            biased;
            ended = served.as_mut() => break ended,
            news = told.news(&mut drain, &worker.shared) => news,
        };
        match news {
            News::Idle => conn.link.finish(),
            News::Cuts => match ordered(&worker, &conn) {
                Some(Action::End) => conn.link.finish(),
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

/// The stages' answer, as the connection takes it.
async fn answer(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    head: RequestHead,
    body: Http1Body,
) -> (ResponseHead, ResponseBody<Forwarded>) {
    let answer = serve(worker, conn, head, VisitorBody::Http1(body)).await;
    (answer.head, answer.body)
}

/// A connection that has become a tunnel is a task of its own; policies reach it here.
async fn outlive(
    worker: &Worker,
    conn: &Conn,
    tunnel: &TunnelHandle,
    mut told: Told,
    drain: &mut tokio::sync::watch::Receiver<Drain>,
) {
    // Policies that came in force while the connection was one of HTTP are checked once more.
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

/// Events of the connection, as counters. Bodies that were cut off are counted where they are answered.
fn event(e: Http1Event) -> Option<Event> {
    match e {
        Http1Event::Request | Http1Event::Gone | Http1Event::Truncated => None,
        Http1Event::Refused(Refusal::TooSlow) => Some(Event::HeaderTimeout),
        Http1Event::Refused(Refusal::TargetTooLong) => Some(Event::UriTooLong),
        Http1Event::Refused(Refusal::HeadTooLarge | Refusal::TooManyFields) => Some(Event::HeadersTooLarge),
        Http1Event::Refused(Refusal::BodyTooLarge) | Http1Event::BadBody(BadBody::TooLarge) => {
            Some(Event::BodyTooLarge)
        }
        Http1Event::BadBody(BadBody::TooSlow) | Http1Event::NotReading => Some(Event::BodyTimeout),
        Http1Event::Refused(_) | Http1Event::BadBody(_) => Some(Event::RequestsBad),
        Http1Event::Idle => Some(Event::IdleTimeout),
    }
}
