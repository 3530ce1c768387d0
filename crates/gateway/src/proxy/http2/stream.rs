//! One stream: a request, from its head to the end of its answer or its tunnel.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, DATE, HeaderValue, SEC_WEBSOCKET_ACCEPT};
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body as _;
use rand::RngCore as _;
use tidegate_core::measure::Event;
use tidegate_http::{Refusal, RequestHead, ResponseHead, name};
use tokio::sync::oneshot;

use super::send::{SendEnd, Sending};
use super::{Shared, Wish};
use crate::http::http1::date;
use crate::http::http2::CONNECTION_SPECIFIC;
use crate::http::http2::body::StreamBody;
use crate::http::http2::head::{self, BadHead, HeadFacts};
use crate::http::http2::link::{StreamEnd, StreamLink};
use crate::http::http2::tunnel::StreamTunnel;
use crate::http::tunnel_io::VisitorStream;
use crate::http::visitor_body::VisitorBody;
use crate::http::visitor_link::VisitorLink;
use crate::proxy::context::Conn;
use crate::proxy::respond;
use crate::proxy::response_body::ResponseBody;
use crate::proxy::serve::serve;
use crate::proxy::stages::forward::{Answer, own};
use crate::shared::policies::ConnControl;

/// The offer to become a tunnel: where it goes, and what the visitor sends through it.
type Offer = (oneshot::Sender<VisitorStream>, RecvStream);

/// A stream among those of its connection, as policies find it.
struct Listed {
    shared: Rc<Shared>,
    key: usize,
}

impl Listed {
    fn new(shared: &Rc<Shared>, conn: &Rc<Conn>) -> Self {
        let key = shared.streams.borrow_mut().insert(conn.clone());
        Self { shared: shared.clone(), key }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.streams.borrow_mut().remove(self.key);
        // It may be idle now.
        if let Some(waker) = self.shared.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

pub(super) async fn stream(
    shared: Rc<Shared>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let (mut parts, body) = request.into_parts();
    let key = || websocket_key(&shared);
    let facts = match head::prepare(&mut parts, &shared.head, key) {
        Ok(facts) => facts,
        Err(BadHead::Malformed) => {
            shared.count(Event::RequestsBad);
            return respond.send_reset(Reason::PROTOCOL_ERROR);
        }
        Err(bad) => {
            let link = StreamLink::new(respond, false);
            let answer = refused(&shared, bad);
            return answered(&shared, &link, &parts.method, answer).await;
        }
    };
    let link = StreamLink::new(respond, facts.expects_continue);
    let (body, offer) = split(body, &facts, &link, &shared);
    let conn = Rc::new(Conn::new(
        shared.info.clone(),
        VisitorLink::Http2(link.clone()),
        ConnControl::of_stream(),
        shared.session.clone(),
        shared.silence.clone(),
    ));
    let _listed = Listed::new(&shared, &conn);
    let method = parts.method.clone();
    let Some(answer) = until_over(&link, served(&shared, &conn, parts, body)).await else {
        // Its request may go on at the origin, so that nothing else ends the stream.
        return link.reset(Reason::CANCEL);
    };
    match link.end() {
        StreamEnd::Answered => {}
        StreamEnd::Muted | StreamEnd::Cut => return link.reset(Reason::CANCEL),
        StreamEnd::Aborted => return shared.wish(Wish::Abort),
    }
    match offer {
        Some(offer) => switch(&shared, &conn, &link, answer, offer).await,
        None => answered(&shared, &link, &method, answer).await,
    }
}

async fn served(shared: &Rc<Shared>, conn: &Rc<Conn>, parts: request::Parts, body: VisitorBody) -> Answer {
    serve(shared.worker.clone(), conn.clone(), RequestHead::from_parts(&parts), body).await
}

/// The result of `future`; `None`: nobody waits for it any more, and it has been dropped.
async fn until_over<T>(link: &StreamLink, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if link.poll_over(cx).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

fn split(
    body: RecvStream,
    facts: &HeadFacts,
    link: &StreamLink,
    shared: &Shared,
) -> (VisitorBody, Option<Offer>) {
    if facts.is_websocket {
        return (VisitorBody::Empty, Some((link.offer_tunnel(), body)));
    }
    if body.is_end_stream() {
        return (VisitorBody::Empty, None);
    }
    let mut limits = shared.body.clone();
    if facts.is_conversation {
        // Between two messages there may be minutes.
        limits.min_rate = 0;
    }
    let body = StreamBody::new(body, facts.length, limits, link);
    (VisitorBody::Http2(Box::new(body)), None)
}

fn refused(shared: &Shared, bad: BadHead) -> Answer {
    let BadHead::Refused(refusal) = bad else {
        shared.count(Event::RequestsBad);
        return own(respond::unknown_protocol());
    };
    shared.count(match refusal {
        Refusal::TargetTooLong => Event::UriTooLong,
        Refusal::HeadTooLarge | Refusal::TooManyFields => Event::HeadersTooLarge,
        Refusal::BodyTooLarge => Event::BodyTooLarge,
        _ => Event::RequestsBad,
    });
    own(respond::refused_head(refusal))
}

/// Sixteen random bytes (RFC 6455 4.1). The visitor's connection has no use for it; the origin's has.
fn websocket_key(shared: &Shared) -> HeaderValue {
    let mut key = [0; 16];
    shared.worker.rng.borrow_mut().fill_bytes(&mut key);
    HeaderValue::from_str(&STANDARD.encode(key)).unwrap_or(HeaderValue::from_static(""))
}

/// Sends an answer.
async fn answered(shared: &Rc<Shared>, link: &StreamLink, method: &Method, answer: Answer) {
    let Answer { head, body, .. } = answer;
    let has_content = *method != Method::HEAD
        && !matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let is_all = !has_content || body.is_end_stream();
    let head = head_of(shared, &head, has_content.then(|| body.size_hint().exact()).flatten());
    let Ok(stream) = link.answer(head, is_all) else { return };
    if is_all {
        return;
    }
    match Sending::new(stream, body, shared.body.timeout, link.clone(), shared.watch.clone()).await {
        SendEnd::Complete | SendEnd::Left | SendEnd::Broken => {}
        SendEnd::NotReading => shared.count(Event::BodyTimeout),
    }
}

/// The head of an answer as HTTP/2 has it. `length`: of its body, if it is known.
fn head_of(shared: &Shared, head: &ResponseHead, length: Option<u64>) -> Response<()> {
    if head.fields.lists(name::CONNECTION, "close") {
        shared.wish(Wish::GoAway);
    }
    let mut parts = head.to_parts();
    let headers = &mut parts.headers;
    for name in &CONNECTION_SPECIFIC {
        headers.remove(name);
    }
    if let Some(length) = length
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if !headers.contains_key(DATE) {
        headers.insert(DATE, date::value());
    }
    Response::from_parts(parts, ())
}

/// Answers a request for a tunnel, and opens it.
async fn switch(shared: &Rc<Shared>, conn: &Conn, link: &StreamLink, answer: Answer, (to, receive): Offer) {
    let Answer { mut head, body, for_all } = answer;
    if head.status() != StatusCode::SWITCHING_PROTOCOLS {
        if head.status().is_success() {
            // It would tell the visitor that there is a tunnel now (RFC 9113 8.5).
            let is_own = matches!(body, ResponseBody::Own(_));
            head.set_status(if is_own { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_GATEWAY });
        }
        return answered(shared, link, &Method::CONNECT, Answer { head, body, for_all }).await;
    }
    head.set_status(StatusCode::OK);
    let mut head = head_of(shared, &head, None);
    head.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
    let Ok(send) = link.answer(head, false) else { return };
    let io = Box::new(StreamTunnel::new(send, receive));
    if to.send(VisitorStream { io, received: Bytes::new() }).is_err() {
        return;
    }
    // The measurement and the session of the request end with the body of its answer, which has none.
    drop(body);
    // Policies find the tunnel as long as the stream is listed.
    if let Some(tunnel) = conn.control.tunnel() {
        tunnel.over().await;
    }
}
