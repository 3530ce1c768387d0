//! The life of a visitor's connection: its requests one after the other, and what ends it before its time
//! (the shutdown, a policy).

use std::pin::pin;
use std::rc::Rc;

use http::Request;
use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tidegate_http::{BadBody, Refusal, RequestHead, ResponseHead};

use crate::http::http1::{Http1, Http1Body, Http1Event, Http1Limits};
use crate::http::stream::{ConnInfo, VisitorSocket};
use crate::http::visitor_body::VisitorBody;
use crate::http::visitor_link::VisitorLink;
use crate::proxy::context::Conn;
use crate::proxy::counted::Counted;
use crate::proxy::response_body::ResponseBody;
use crate::proxy::serve::serve;
use crate::proxy::stages::forward::Forwarded;
use crate::shared::free_slots::Silence;
use crate::shared::policies::ConnControl;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Shared, Worker};
use crate::upstream::tunnel::TunnelHandle;

/// `counted` is held until the end, of the tunnel too if the connection becomes one.
pub(super) async fn connection(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) {
    let limits = Http1Limits::from(&worker.config().settings.limits);
    let control = ConnControl::new(socket.fd());
    let (connection, link) = Http1::new(socket, limits, |e| {
        if let Some(event) = event(e) {
            counted.count(event);
        }
    });
    let session = SessionLink::new(worker.clone());
    let conn = Rc::new(Conn { info, link: VisitorLink::Http1(link), control, session, silence });
    let mut drain = worker.shared.drain.subscribe();
    let service = |head, body| answer(worker.clone(), conn.clone(), head, body);
    let mut served = pin!(connection.serve_spliced(service, ResponseBody::spliced));
    let mut told = Told { is_ending: false, cuts: worker.shared.policies.cuts() };
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

/// The stages' answer, as the connection takes it.
async fn answer(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    head: RequestHead,
    body: Http1Body,
) -> (ResponseHead, ResponseBody<Forwarded>) {
    let request = Request::from_parts(head.to_parts(), VisitorBody::Http1(body));
    drop(head);
    let (parts, body) = serve(worker, conn, request).await.into_parts();
    (ResponseHead::from_parts(&parts), body)
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
