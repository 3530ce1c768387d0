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

use crate::base::seldom::seldom;
use crate::http::http1::{Http1, Http1Body, Http1Event, Http1Limits};
use crate::http::http2::{PREFACE, is_http2};
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

/// Between two looks at a connection that has begun as HTTP/2 does and has not gone on.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(super) async fn connection(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) {
    let protocol = match &socket {
        VisitorSocket::Tcp(stream) if worker.config().settings.listen.http2 => {
            first_bytes(&worker, stream, Told::new(&worker)).await
        }
        _ => Some(info.protocol),
    };
    match protocol {
        Some(Protocol::Http1) => http1(worker, socket, info, counted, silence).await,
        // On the heap: connections of HTTP/1.1 should not carry its state along.
        Some(Protocol::Http2) => {
            Box::pin(http2::connection(worker, socket, info, Vec::new(), counted, silence)).await;
        }
        None => {
            worker.count(Event::IdleTimeout);
            silence.end();
        }
    }
}

/// With HTTP/1.1. `counted` is held until the end, of the tunnel too if the connection becomes one.
fn http1(
    worker: Rc<Worker>,
    socket: VisitorSocket,
    info: ConnInfo,
    counted: Counted,
    silence: Silence,
) -> impl Future<Output = ()> {
    let limits = Http1Limits::from(&worker.config().settings.limits);
    let control = ConnControl::new(socket.fd());
    let counter = worker.clone();
    let (connection, link) = Http1::new(socket, limits, move |e| {
        if let Some(event) = event(e) {
            counter.count(event);
        }
    });
    let session = Rc::new(SessionLink::new(worker.clone()));
    let conn = Rc::new(Conn { info, link: VisitorLink::Http1(link), control, session, silence });
    let served = {
        let (worker, conn) = (worker.clone(), conn.clone());
        connection.serve(move |head, body| answer(worker.clone(), conn.clone(), head, body))
    };
    let mut drain = worker.shared.drain.subscribe();
    let mut told = Told::new(&worker);
    async move {
        let _counted = counted;
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
        conn.silence.end();
        if let Some(tunnel) = conn.control.tunnel() {
            outlive(&worker, &conn, tunnel, told, &mut drain).await;
        }
        if let Err(e) = ended {
            tracing::debug!(peer = %conn.info.peer, error = %e, "connection ended");
        }
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
