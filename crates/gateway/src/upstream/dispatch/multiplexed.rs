//! Attempts by HTTP/2: as those by HTTP/1.1, but for what a connection is and what its errors say.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use tidegate_http::{RequestHead, ResponseHead};
use tidegate_settings::OriginProtocol;

use super::error::DispatchError;
use super::response::UpstreamBody;
use super::{Inner, SendContext, Tried};
use crate::http::http2::tunnel::StreamTunnel;
use crate::http::hygiene;
use crate::upstream::balance::{InFlight, Replica};
use crate::upstream::body::RequestBody;
use crate::upstream::deadline::{Limit, Slot};
use crate::upstream::http2::body::{Http2Body, Lease};
use crate::upstream::http2::exchange::{Failure, Message, Received, Way, exchange};
use crate::upstream::http2::websocket::Handshake;
use crate::upstream::http2::{HTTP2, Taken};
use crate::upstream::stats::bump;
use crate::upstream::tunnel::Ends;

/// Connections that a request may find dead, one after the other, without being retried for it.
const MAX_STALE: usize = 8;

impl Inner {
    /// Whether requests go to the origin by HTTP/2.
    pub(super) async fn speaks_http2(&self) -> bool {
        match (self.protocol.get(), self.chosen.get()) {
            (OriginProtocol::Http1, _) => false,
            (OriginProtocol::Http2, _) => true,
            (OriginProtocol::Auto, Some(is_http2)) => is_http2,
            (OriginProtocol::Auto, None) => Box::pin(self.choose()).await,
        }
    }

    /// Opens a connection to see what the origin chooses, which holds for all of its replicas until the
    /// settings change.
    async fn choose(&self) -> bool {
        let Some(flight) = self.place(&mut Tried::default()).await else { return false };
        let replica = flight.replica();
        // An error shows again when the request needs a connection.
        let Ok(socket) = self.pool.open(replica, None).await else { return false };
        let is_http2 = socket.chosen() == Some(HTTP2);
        self.chosen.set(Some(is_http2));
        if is_http2 {
            self.http2.keep(replica, socket).await;
        } else {
            self.pool.adopt(replica, socket);
        }
        is_http2
    }

    /// A request for WebSocket becomes an extended CONNECT (RFC 8441). HTTP/2 has no `Upgrade`: what asks for
    /// another protocol is sent without it.
    pub(super) async fn attempts_by_http2(
        &self,
        head: &RequestHead,
        body: RequestBody,
        ctx: SendContext,
    ) -> Result<(ResponseHead, UpstreamBody), DispatchError> {
        let handshake = ctx.upgrade.as_ref().and_then(|_| Handshake::of(head, &body));
        let (mut tried, mut body) = (Tried::default(), Some(body));
        let (is_idempotent, is_head) = (head.method().is_idempotent(), *head.method() == Method::HEAD);
        let (mut message, mut stale): (Option<Message>, usize) = (None, 0);
        loop {
            let Some(flight) = self.place(&mut tried).await else {
                return Err(self.lost(DispatchError::NoReplica));
            };
            if let Some(body) = body.take() {
                let made = Message::new(head, body, ctx.expect_continue, flight.replica().target());
                // The visitor's head was checked; its authority may be none to HTTP/2 all the same.
                let made = made.map_err(|error| self.lost(DispatchError::RequestBody(error)))?;
                message = Some(if handshake.is_some() { made.into_websocket() } else { made });
            }
            let Some(message) = &mut message else { unreachable!("made in the first round") };
            tried.again = None;
            let taken = match self.stream(flight.replica(), handshake.is_some()).await {
                Ok(taken) => taken,
                Err(error) => match self.give_up(error, &flight, &mut tried, true) {
                    Some(error) => return Err(error),
                    None => continue,
                },
            };
            let slot = self.pool.slot();
            let first_byte_ticks = self.first_byte_ticks.get();
            let way = Way { ctx: &ctx, slot: slot.clone(), ticks: &self.pool.ticks, first_byte_ticks };
            let failure = match exchange(&taken, message, way).await {
                Ok(received) => {
                    let answered = Answered { received, taken, flight, slot };
                    return match handshake {
                        Some(handshake) if answered.is_success() => {
                            Ok(self.switched_by_http2(answered, &handshake, ctx))
                        }
                        _ => self.answered_by_http2(answered, is_head),
                    };
                }
                Err(failure) => failure,
            };
            if matches!(failure, Failure::Unsent) {
                taken.retire();
                // The origin went on to other connections, as one does that restarts.
                if message.is_whole() && taken.was_used && stale < MAX_STALE {
                    stale += 1;
                    bump(&self.stats.stale_connection);
                    tried.again = Some(flight.replica().clone());
                    continue;
                }
            }
            drop(taken);
            let (error, is_repeatable) = error_of(failure, is_idempotent);
            if let Some(error) = self.give_up(error, &flight, &mut tried, is_repeatable && message.is_whole())
            {
                return Err(error);
            }
        }
    }

    /// A stream for a request. Where that asks for WebSocket, the origin takes it there.
    async fn stream(&self, replica: &Arc<Replica>, is_websocket: bool) -> Result<Taken, DispatchError> {
        let taken = self.http2.acquire(replica).await?;
        if is_websocket && !self.http2.takes_websocket(&taken).await? {
            return Err(DispatchError::NoWebSocket);
        }
        Ok(taken)
    }

    fn answered_by_http2(
        &self,
        answered: Answered,
        is_head: bool,
    ) -> Result<(ResponseHead, UpstreamBody), DispatchError> {
        let Answered { received, taken, flight, slot } = answered;
        self.replicas.succeeded(flight.replica());
        let (parts, stream) = received.response.into_parts();
        let length = hygiene::content_length(&parts.headers);
        let length = length.map_err(|bad| self.lost(DispatchError::BadResponse(bad.into())))?;
        let (upload, stats) = (received.upload, self.stats.clone());
        let replica = flight.replica().clone();
        let lease =
            Lease { _stream: taken, _flight: flight, upload, slot, read_ticks: self.read_ticks.get(), stats };
        let body = Http2Body::new(stream, length.filter(|_| !is_head), lease);
        Ok((ResponseHead::from_parts(&parts), UpstreamBody::by_http2(body, replica)))
    }

    /// The origin agrees to WebSocket: the stream is its side of the tunnel.
    fn switched_by_http2(
        &self,
        answered: Answered,
        handshake: &Handshake,
        ctx: SendContext,
    ) -> (ResponseHead, UpstreamBody) {
        let Answered { received, taken, flight, slot } = answered;
        self.replicas.succeeded(flight.replica());
        let (parts, receive) = received.response.into_parts();
        let Some(visitor) = ctx.upgrade else { unreachable!("a handshake is made of it") };
        let stream = StreamTunnel::holding(received.upload.into_stream(), receive, taken);
        let ends = Ends { visitor, origin: Box::new(stream), received: Bytes::new() };
        let idle = Limit { slot, ticks: self.read_ticks.get() };
        self.tunnels.open(ends, idle, flight, ctx.tunnel.unwrap_or_default());
        (handshake.answer(&parts), UpstreamBody::detached())
    }
}

/// An exchange whose response has begun, and what it occupies.
struct Answered {
    received: Received,
    taken: Taken,
    flight: InFlight,
    slot: Rc<Slot>,
}

impl Answered {
    fn is_success(&self) -> bool {
        self.received.response.status().is_success()
    }
}

/// What a failure is to the caller, and whether a second copy of a request that is still whole does no harm.
fn error_of(failure: Failure, is_idempotent: bool) -> (DispatchError, bool) {
    match failure {
        Failure::Unsent => (DispatchError::ConnectFailed(io::ErrorKind::ConnectionReset.into()), true),
        Failure::Refused(error) => (DispatchError::Reset(error.into()), true),
        Failure::Lost(error) => (DispatchError::Reset(error.into()), is_idempotent),
        Failure::Bad(error) => (DispatchError::BadResponse(error), false),
        Failure::Body(error) => (DispatchError::RequestBody(error), false),
        Failure::Timeout => (DispatchError::FirstByteTimeout, false),
    }
}
