//! One attempt to send a request on an HTTP/2 connection.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::client::ResponseFuture;
use h2::ext::Protocol;
use h2::{Reason, RecvStream};
use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use tidegate_http::RequestHead;

use super::Taken;
use super::upload::Upload;
use crate::http::http2::CONNECTION_SPECIFIC;
use crate::upstream::body::{BoxError, RequestBody};
use crate::upstream::deadline::{Slot, Ticks};
use crate::upstream::dispatch::SendContext;
use crate::upstream::target::Target;

/// As with HTTP/1.1.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
const MAX_INFORMATIONAL: usize = 16;

pub(crate) enum Failure {
    /// The connection takes no more requests, or the origin left before this one: nothing was done.
    Unsent,
    /// The origin refused it (REFUSED_STREAM): nothing was done.
    Refused(h2::Error),
    /// Something may have been done; no response came.
    Lost(h2::Error),
    /// The origin broke HTTP/2, or sent what is not a response.
    Bad(BoxError),
    Body(BoxError),
    Timeout,
}

/// The head of a response, and what the rest of it needs.
pub(crate) struct Received {
    pub(crate) response: Response<RecvStream>,
    pub(crate) upload: Upload,
}

/// What an attempt needs beside the request.
pub(crate) struct Way<'a> {
    pub(crate) ctx: &'a SendContext,
    pub(crate) slot: Rc<Slot>,
    pub(crate) ticks: &'a Ticks,
    pub(crate) first_byte_ticks: u64,
}

/// A request, over all attempts.
pub(crate) struct Message {
    head: Request<()>,
    /// `None`: it is under way, or gone.
    body: Option<RequestBody>,
    waits: bool,
    /// An extended CONNECT, whose stream stays open for the tunnel.
    is_websocket: bool,
}

impl Message {
    /// `target` names the origin where there is no `Host`.
    pub(crate) fn new(
        head: &RequestHead,
        body: RequestBody,
        waits: bool,
        target: &Target,
    ) -> Result<Self, BoxError> {
        let mut parts = head.to_parts();
        let headers = &mut parts.headers;
        let host = headers.remove(header::HOST);
        let host = host.as_ref().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if target.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(match host {
            Some(host) => Authority::try_from(host)?,
            None if target.unix().is_some() => Authority::from_static("localhost"),
            None => Authority::try_from(target.address())?,
        });
        uri.path_and_query = Some(match head.path_and_query() {
            "*" => PathAndQuery::from_static("*"),
            path => PathAndQuery::try_from(path)?,
        });
        for name in &CONNECTION_SPECIFIC {
            headers.remove(name);
        }
        let is_empty = body.is_end_stream();
        headers.remove(header::CONTENT_LENGTH);
        if let Some(length) = body.size_hint().exact()
            && (!is_empty || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH))
        {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        let waits = waits && !is_empty;
        headers.remove(header::EXPECT);
        if waits {
            headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        parts.uri = Uri::from_parts(uri)?;
        parts.version = Version::HTTP_2;
        Ok(Self { head: Request::from_parts(parts, ()), body: Some(body), waits, is_websocket: false })
    }

    /// The same as an extended CONNECT (RFC 8441 4 and 5). The fields that belong to a connection are removed
    /// already; `Sec-WebSocket-Key` is HTTP/1.1's alone.
    pub(crate) fn into_websocket(mut self) -> Self {
        *self.head.method_mut() = Method::CONNECT;
        self.head.headers_mut().remove(header::SEC_WEBSOCKET_KEY);
        self.head.extensions_mut().insert(Protocol::from_static("websocket"));
        self.is_websocket = true;
        self
    }

    /// Whether it can be sent once more.
    pub(crate) fn is_whole(&self) -> bool {
        self.body.is_some()
    }

    /// A copy of its body where it is known beforehand, else the body itself.
    fn take_body(&mut self) -> Option<RequestBody> {
        match self.body.as_ref()?.known() {
            Some(known) => Some(RequestBody::full(known)),
            None => self.body.take(),
        }
    }
}

/// Sends a request and waits for the head of the final response. The sending of the body may not be over
/// then.
pub(crate) async fn exchange(
    taken: &Taken,
    message: &mut Message,
    way: Way<'_>,
) -> Result<Received, Failure> {
    let mut send = match taken.link.send.clone().ready().await {
        Ok(send) => send,
        Err(_) => return Err(Failure::Unsent),
    };
    let Some(body) = message.take_body() else { unreachable!("only a whole request is tried again") };
    let is_all = body.is_end_stream();
    let (response, stream) = match send.send_request(message.head.clone(), is_all && !message.is_websocket) {
        Ok(sent) => sent,
        Err(error) => {
            message.body.get_or_insert(body);
            // The request itself was refused only if the connection still lives.
            return Err(if error.is_io() || error.is_go_away() {
                Failure::Unsent
            } else {
                Failure::Bad(error.into())
            });
        }
    };
    let upload = Upload::new(stream, body, is_all, message.waits);
    way.slot.arm(if message.waits { way.ticks.cover(CONTINUE_WAIT) } else { way.first_byte_ticks });
    let mut attempt = Attempt { response, upload, way: &way, informational: 0 };
    let outcome = poll_fn(|cx| attempt.poll(cx)).await;
    way.slot.disarm();
    match outcome {
        Ok(response) => {
            taken.answers();
            let mut upload = attempt.upload;
            if message.is_websocket && !response.status().is_success() {
                // There will be no tunnel.
                upload.end();
            }
            Ok(Received { response, upload })
        }
        Err(failure) => {
            if message.body.is_none() {
                message.body = attempt.upload.into_body();
            }
            Err(failure)
        }
    }
}

struct Attempt<'a> {
    response: ResponseFuture,
    upload: Upload,
    way: &'a Way<'a>,
    informational: usize,
}

impl Attempt<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, Failure>> {
        loop {
            let (slot, ticks, is_open) = (&self.way.slot, self.way.first_byte_ticks, self.upload.is_open());
            // The time for the first byte counts from the end of the request.
            let progress = || {
                if is_open {
                    slot.arm(ticks);
                }
            };
            if let Poll::Ready(Err(error)) = self.upload.poll(cx, progress) {
                return Poll::Ready(Err(Failure::Body(error)));
            }
            if let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(cx) {
                self.inform(&interim);
                continue;
            }
            match Pin::new(&mut self.response).poll(cx) {
                Poll::Ready(Ok(response)) if (200..600).contains(&response.status().as_u16()) => {
                    return Poll::Ready(Ok(response));
                }
                Poll::Ready(Ok(_)) => {
                    return Poll::Ready(Err(Failure::Bad("a status outside 200..=599".into())));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(failure(error))),
                Poll::Pending => {}
            }
            if !slot.poll_expired(cx) {
                return Poll::Pending;
            }
            if !self.extend() {
                return Poll::Ready(Err(Failure::Timeout));
            }
            slot.arm(ticks);
        }
    }

    /// The time limit is over. True: the origin is not to blame, and the limit starts anew.
    fn extend(&mut self) -> bool {
        if !self.upload.is_open() {
            self.upload.open();
            return true;
        }
        // A slow visitor has a limit of its own, on the other connection.
        self.upload.is_starved()
    }

    fn inform(&mut self, interim: &Response<()>) {
        let ctx = self.way.ctx;
        if interim.status() == StatusCode::CONTINUE {
            if !self.upload.is_open() {
                self.upload.open();
                self.way.slot.arm(self.way.first_byte_ticks);
            }
            if !ctx.expect_continue {
                return;
            }
        }
        self.informational += 1;
        if self.informational <= MAX_INFORMATIONAL
            && let Some(callback) = &ctx.on_informational
        {
            callback(interim.status(), interim.headers());
        }
    }
}

/// What an error says of what the origin has done (RFC 9113 8.7).
fn failure(error: h2::Error) -> Failure {
    match error.reason() {
        // `h2` gives this error to streams beyond the last that the origin names, and to no others.
        Some(_) if error.is_go_away() && error.is_remote() => Failure::Unsent,
        Some(Reason::REFUSED_STREAM) if error.is_remote() => Failure::Refused(error),
        Some(_) if error.is_library() => Failure::Bad(error.into()),
        _ => Failure::Lost(error),
    }
}
