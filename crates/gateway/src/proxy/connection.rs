//! The life of a visitor's connection: its requests one after the other, and what ends it before its time
//! (the shutdown, a policy).

use std::pin::pin;
use std::rc::Rc;

use tidegate_core::measure::Event;
use tidegate_core::policies::Action;
use tidegate_http::{BadBody, Refusal, RequestHead, ResponseHead};

use crate::base::seldom::seldom;
use crate::http::http1::{Ended, Http1, Http1Body, Http1Event, Http1Limits};
use crate::http::http2::is_http2;
use crate::http::stream::{ConnInfo, Protocol, VisitorSocket};
use crate::http::visitor_body::VisitorBody;
use crate::http::visitor_link::VisitorLink;
use crate::proxy::context::Conn;
use crate::proxy::counted::Counted;
use crate::proxy::http2;
use crate::proxy::news::{News, Told, ordered};
use crate::proxy::response_body::ResponseBody;
use crate::proxy::serve::serve;
use crate::proxy::stages::forward::Forwarded;
use crate::shared::free_slots::Silence;
use crate::shared::policies::ConnControl;
use crate::shared::sessions::SessionLink;
use crate::shared::{Drain, Worker};
use crate::upstream::tunnel::TunnelHandle;

pub(super) async fn connection(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) {
    match info.protocol {
        Protocol::Http1 => http1(worker, socket, info, counted, silence).await,
        // On the heap, as below: more than a connection of HTTP/1.1 has while it is idle.
        Protocol::Http2 => {
            Box::pin(http2::connection(worker, socket, info, Vec::new(), counted, silence)).await;
        }
    }
}

/// With HTTP/1.1, unless its first bytes are those of HTTP/2. `counted` is held until the end, of the tunnel
/// too if the connection becomes one.
fn http1(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) -> impl Future<Output = ()> {
    let live = worker.config();
    let limits = Http1Limits::from(&live.settings.limits);
    let may_be_http2 = live.settings.listen.http2 && !matches!(socket, VisitorSocket::Tls(_));
    let control = ConnControl::new(socket.fd());
    let counter = worker.clone();
    let (mut connection, link) = Http1::new(socket, limits, move |e| {
        if let Some(event) = event(e) {
            counter.count(event);
        }
    });
    if may_be_http2 {
        connection.recognise(is_http2);
    }
    let session = Rc::new(SessionLink::new(worker.clone()));
    let conn = Rc::new(Conn::new(info, VisitorLink::Http1(link), control, session, silence));
    let served = {
        let (worker, conn) = (worker.clone(), conn.clone());
        let service = move |head, body| answer(worker.clone(), conn.clone(), head, body);
        connection.serve_spliced(service, ResponseBody::spliced)
    };
    let mut drain = worker.shared.drain.subscribe();
    let mut told = Told::new(&worker);
    async move {
        let mut served = pin!(served);
        let ended = loop {
            let news = tokio::select! {
                // Nearly every turn is the connection's.
                biased;
                ended = served.as_mut() => break ended,
                news = seldom(told.news(&mut drain, &worker.shared)) => news,
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
        if let Ok(Ended::Foreign { socket, received }) = ended {
            let (info, silence) = (conn.info.clone(), conn.silence.clone());
            return Box::pin(http2::connection(worker, socket, info, received, counted, silence)).await;
        }
        conn.silence.end();
        if let Some(tunnel) = conn.control.tunnel() {
            outlive(&worker, &conn, tunnel, told, &mut drain).await;
        }
        if let Err(e) = ended {
            tracing::debug!(peer = %conn.info.peer, error = %e, "connection ended");
        }
        drop(counted);
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
    told: Told,
    drain: &mut tokio::sync::watch::Receiver<Drain>,
) {
    // Policies that came in force while the connection was one of HTTP are checked once more.
    let mut told = told.again();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the future that a function makes.
    fn size<A, B, C, D, E, F>(_: &impl Fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// With what it refers to, an idle connection takes less than 4 KiB: requests have their kilobytes
    /// elsewhere.
    #[test]
    fn an_idle_connection_is_small() {
        let whole = size(&connection);
        assert!(whole <= 1536, "{whole} bytes");
        let state = size_of::<Http1<VisitorSocket, fn(Http1Event)>>();
        assert!(state <= 512, "{state} bytes");
        assert!(size_of::<Conn>() <= 512, "{} bytes", size_of::<Conn>());
    }
}
