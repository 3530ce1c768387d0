//! One attempt to send a request on one connection: a response head comes back, or a [`Failure`] that says
//! how much may have been sent.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::SendContext;
use crate::upstream::body::{BoxError, Held, RequestBody};
use crate::upstream::deadline::Limit;
use crate::upstream::pool::{Conn, Pool};

/// How long a body waits for the origin's 100 before it is sent anyway (RFC 9110 10.1.1; curl waits as long).
pub(crate) const CONTINUE_WAIT: Duration = Duration::from_secs(1);

pub(crate) enum Failure {
    /// Nothing was written; the request is handed back.
    Unsent(Box<Request<RequestBody>>),
    /// Something may have been written; no response came.
    Lost(hyper::Error),
    /// The origin sent something that is not a response.
    Bad(hyper::Error),
    Body(BoxError),
    Timeout,
}

/// What an attempt needs beside the request and the connection.
pub(crate) struct Exchange<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) ctx: &'a SendContext,
    pub(crate) held: Option<&'a Rc<Held>>,
    pub(crate) first_byte_ticks: u64,
}

/// Sends `req` on `conn` and waits for the head of the final response.
pub(crate) async fn exchange(
    conn: &mut Conn,
    mut req: Request<RequestBody>,
    Exchange { pool, ctx, held, first_byte_ticks }: Exchange<'_>,
) -> Result<Response<Incoming>, Failure> {
    let waits_for_100 = held.is_some_and(|h| !h.is_open());
    let relays = waits_for_100 || ctx.on_informational.is_some();
    if relays {
        conn.relay.reset();
        let relay = conn.relay.clone();
        hyper::ext::on_informational(&mut req, move |res| relay.push(res.status(), res.headers()));
    }
    if let Some(held) = held {
        held.renew_on_progress(Some(Limit { slot: conn.slot.clone(), ticks: first_byte_ticks }));
    }
    conn.slot.arm(if waits_for_100 { pool.ticks.cover(CONTINUE_WAIT) } else { first_byte_ticks });
    let mut response = pin!(conn.sender.try_send_request(req));
    let (slot, relay) = (&conn.slot, &conn.relay);
    let outcome = poll_fn(|cx| {
        if relays {
            inform(relay.take(cx.waker()), ctx, held);
        }
        if let Poll::Ready(outcome) = response.as_mut().poll(cx) {
            if relays {
                inform(relay.take(cx.waker()), ctx, held);
            }
            return Poll::Ready(Some(outcome));
        }
        while slot.poll_expired(cx) {
            if !extend(held) {
                return Poll::Ready(None);
            }
            slot.arm(first_byte_ticks);
        }
        Poll::Pending
    })
    .await;
    if let Some(held) = held {
        held.renew_on_progress(None);
    }
    conn.slot.disarm();
    let mut error = match outcome {
        None => return Err(Failure::Timeout),
        Some(Ok(response)) => return Ok(response),
        Some(Err(error)) => error,
    };
    if let Some(cause) = held.and_then(|h| h.take_error()) {
        return Err(Failure::Body(cause));
    }
    if let Some(req) = error.take_message() {
        return Err(Failure::Unsent(Box::new(req)));
    }
    let error = error.into_error();
    Err(if error.is_parse() { Failure::Bad(error) } else { Failure::Lost(error) })
}

/// The time limit is over. True: the origin is not to blame, and the limit starts anew.
fn extend(held: Option<&Rc<Held>>) -> bool {
    let Some(held) = held else { return false };
    if !held.is_open() {
        held.open();
        return true;
    }
    // A slow visitor has a limit of its own, in its connection.
    !held.has_ended() && held.is_starved()
}

fn inform(came: Vec<(StatusCode, http::HeaderMap)>, ctx: &SendContext, held: Option<&Rc<Held>>) {
    for (status, headers) in came {
        if status == StatusCode::CONTINUE {
            if let Some(held) = held {
                held.open();
            }
            if !ctx.expect_continue {
                continue;
            }
        }
        if let Some(callback) = &ctx.on_informational {
            callback(status, &headers);
        }
    }
}
