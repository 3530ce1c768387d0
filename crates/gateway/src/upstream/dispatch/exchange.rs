//! One attempt to send a request on one connection: a response head comes back, or a [`Failure`] that says
//! how much may have been sent.
//!
//! The task of the request does it all: it writes the request as far as the socket takes it, and reads the
//! response at the same time, since an origin may answer before it has read the whole request.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::StatusCode;
use tidegate_http::{
    Asked, BadResponse, ResponseFacts, ResponseHead, ResponseLimits, ResponseParser, Stage, to_map,
};

use super::SendContext;
use super::error::OriginError;
use super::sending::{SendError, Sending};
use crate::upstream::body::BoxError;
use crate::upstream::pool::{Conn, Pool};
use crate::upstream::socket::SMALL;

/// How long a body waits for the origin's 100 before it is sent anyway (RFC 9110 10.1.1; curl waits as long).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// 1xx responses relayed for one request. An origin sends 103 once or twice; a flood ends with the time
/// limit.
const MAX_INFORMATIONAL: usize = 16;

pub(super) enum Failure {
    /// Nothing was sent.
    Unsent,
    /// Something may have been sent; no response came.
    Lost(OriginError),
    /// The origin sent something that is not a response.
    Bad(BadResponse),
    Body(BoxError),
    Timeout,
}

/// A final response, or 101.
pub(super) struct Received {
    pub(super) head: ResponseHead,
    pub(super) facts: ResponseFacts,
    /// What was read beyond the head.
    pub(super) rest: BytesMut,
}

/// What an attempt needs beside the request and the connection.
pub(super) struct Exchange<'a> {
    pub(super) pool: &'a Pool,
    pub(super) ctx: &'a SendContext,
    pub(super) asked: Asked,
    pub(super) first_byte_ticks: u64,
}

/// Sends a request on `conn` and waits for the head of the final response. The sending of the body may not be
/// over then.
pub(super) async fn exchange(
    conn: &mut Conn,
    sending: &mut Sending,
    way: Exchange<'_>,
) -> Result<Received, Failure> {
    let Exchange { pool, ctx, asked, first_byte_ticks } = way;
    conn.slot.arm(if sending.is_open() { first_byte_ticks } else { pool.ticks.cover(CONTINUE_WAIT) });
    let mut attempt = Attempt {
        conn,
        sending,
        ctx,
        asked,
        first_byte_ticks,
        unsendable: None,
        parser: ResponseParser::new(),
        buffer: BytesMut::new(),
        informational: 0,
    };
    let outcome = poll_fn(|cx| attempt.poll(cx)).await;
    conn.slot.disarm();
    outcome
}

struct Attempt<'a> {
    conn: &'a mut Conn,
    sending: &'a mut Sending,
    ctx: &'a SendContext,
    asked: Asked,
    first_byte_ticks: u64,
    /// Why the socket takes no more. What the origin had sent before counts nevertheless.
    unsendable: Option<io::Error>,
    parser: ResponseParser,
    /// Of a head that is not complete. Without memory otherwise.
    buffer: BytesMut,
    /// 1xx responses so far.
    informational: usize,
}

impl Attempt<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Failure>> {
        loop {
            self.send(cx)?;
            match self.poll_receive(cx)? {
                Poll::Ready(Some(received)) => return Poll::Ready(Ok(received)),
                // The body may flow now.
                Poll::Ready(None) => continue,
                Poll::Pending => {}
            }
            if !self.conn.slot.poll_expired(cx) {
                return Poll::Pending;
            }
            if !self.extend() {
                return Poll::Ready(Err(Failure::Timeout));
            }
            self.conn.slot.arm(self.first_byte_ticks);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.unsendable.is_some() || self.sending.is_over() {
            return Ok(());
        }
        let (slot, ticks, is_open) = (&self.conn.slot, self.first_byte_ticks, self.sending.is_open());
        // The time for the first byte counts from the end of the request.
        let progress = || {
            if is_open {
                slot.arm(ticks);
            }
        };
        match self.sending.poll(cx, &mut self.conn.socket, progress) {
            Poll::Ready(Err(SendError::Body(error))) => Err(Failure::Body(error)),
            Poll::Ready(Err(SendError::Socket(_))) if self.sending.is_unsent() => Err(Failure::Unsent),
            Poll::Ready(Err(SendError::Socket(error))) => {
                self.unsendable = Some(error);
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// `None`: an interim response has come.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Received>, Failure>> {
        loop {
            if !self.buffer.is_empty()
                && let Some((head, facts)) = self.parse().map_err(Failure::Bad)?
            {
                if facts.stage == Stage::Interim {
                    self.inform(&head);
                    return Poll::Ready(Ok(None));
                }
                let rest = std::mem::take(&mut self.buffer);
                return Poll::Ready(Ok(Some(Received { head, facts, rest })));
            }
            if self.buffer.capacity() == 0 {
                self.buffer = SMALL.take();
            }
            SMALL.make_room(&mut self.buffer);
            let lost = match self.conn.socket.poll_fill(cx, &mut self.buffer) {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Ready(Ok(0)) => OriginError::Closed,
                Poll::Ready(Err(error)) => error.into(),
                Poll::Pending => {
                    if self.buffer.is_empty() {
                        SMALL.give_back(std::mem::take(&mut self.buffer));
                    }
                    return Poll::Pending;
                }
            };
            let lost = self.unsendable.take().map_or(lost, OriginError::from);
            return Poll::Ready(Err(Failure::Lost(lost)));
        }
    }

    fn parse(&mut self) -> Result<Option<(ResponseHead, ResponseFacts)>, BadResponse> {
        let parsed = self.parser.parse(&self.buffer, self.asked, &ResponseLimits::default())?;
        if let Some((_, facts)) = &parsed {
            self.buffer.advance(facts.len);
        }
        Ok(parsed)
    }

    /// The time limit is over. True: the origin is not to blame, and the limit starts anew.
    fn extend(&mut self) -> bool {
        if !self.sending.is_open() {
            self.sending.open();
            return true;
        }
        // A slow visitor has a limit of its own, on the other connection.
        self.unsendable.is_none() && self.sending.is_starved()
    }

    fn inform(&mut self, head: &ResponseHead) {
        if head.status() == StatusCode::CONTINUE {
            if !self.sending.is_open() {
                self.sending.open();
                self.conn.slot.arm(self.first_byte_ticks);
            }
            if !self.ctx.expect_continue {
                return;
            }
        }
        self.informational += 1;
        if self.informational <= MAX_INFORMATIONAL
            && let Some(callback) = &self.ctx.on_informational
        {
            callback(head.status(), &to_map(&head.fields));
        }
    }
}
