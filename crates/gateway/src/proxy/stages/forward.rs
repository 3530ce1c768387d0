//! Performs what was admitted: the gate's queue, the origin, and the bookkeeping at the end of the answer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode, Version};
use http_body::Body as _;
use tidegate_core::gate::ShedReason;
use tidegate_core::measure::{Event, Outcome};
use tidegate_core::queue::Lane;
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_http::{Fields, RequestHead, ResponseHead, name};

use crate::base::guard::within;
use crate::config::page::Pieces;
use crate::http::http2;
use crate::http::hygiene::{self, ForwardContext};
use crate::http::proxy_header::Named;
use crate::http::target;
use crate::proxy::context::{Conn, RequestContext};
use crate::proxy::cookies::SetCookies;
use crate::proxy::respond::{self, OwnAnswer};
use crate::proxy::response_body::{Completion, ResponseBody, Shaping};
use crate::shared::Worker;
use crate::shared::coalesce::rules::is_event_stream;
use crate::shared::gate_keeper::{Entering, InFlightSlot};
use crate::shared::peers::ClaimGuard;
use crate::upstream::body::{self, RequestBody};
use crate::upstream::dispatch::{BodyError, DispatchError, SendContext, UpstreamBody};
use crate::upstream::gather::gather;
use tidegate_settings::is_gate_cookie;

/// An answer as the stages give it to the visitor's connection.
pub struct Answer {
    pub head: ResponseHead,
    pub body: ResponseBody<Forwarded>,
    pub(crate) for_all: Option<ForAll>,
}

/// What is said beside an answer to a request for all.
#[derive(Clone, Copy)]
pub(crate) enum ForAll {
    /// The gate has refused it, and why.
    Refused(Event),
    /// The origin ends the sessions of those who get it.
    EndsSessions,
}

pub(crate) fn own(answer: OwnAnswer) -> Answer {
    Answer { head: answer.head, body: answer.body.into(), for_all: None }
}

/// A request at the origin. However it ends, its in-flight slot is given back, and it is measured and logged
/// once.
pub struct Forwarded {
    context: RequestContext,
    /// Given back at the end; a while after the head if that comes first; at the head of an endless one.
    slot: Option<InFlightSlot>,
    sent: Timestamp,
    /// When the head of its answer came, if all of the body came with it.
    received: Option<Timestamp>,
    /// How it ended, as far as known. If nothing else has ended a request, its visitor has left.
    outcome: Cell<Outcome>,
    is_over: bool,
    /// Until the head of the answer has come.
    under_way: Option<UnderWay>,
    /// Its time has been counted: that of an endless answer ends with its head.
    is_timed: bool,
}

/// Counts a request as under way.
struct UnderWay {
    worker: Rc<Worker>,
    class: ClassId,
    since: Timestamp,
}

impl UnderWay {
    fn new(worker: &Rc<Worker>, class: ClassId, since: Timestamp) -> Self {
        worker.shard.enters(class, since);
        Self { worker: worker.clone(), class, since }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.worker.shard.leaves(self.class, self.since);
    }
}

impl Forwarded {
    fn end(&mut self, bytes: u64) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let x = &self.context;
        let outcome = self.outcome.get();
        let now = self.received.unwrap_or_else(|| x.worker.now());
        if outcome == Outcome::ClientGone {
            x.worker.count(Event::ClientGone);
        }
        let response_time = now.since(self.sent);
        x.worker.shard.ended(x.class, outcome, response_time);
        x.count_tier(|tier| tier.ended(outcome, response_time));
        if outcome != Outcome::ClientGone && !self.is_timed {
            x.count_time(outcome == Outcome::Served, now);
        }
        if let Some(log) = &x.log {
            x.write_log(log, bytes, now.since(x.started));
        }
        if let Some(slot) = self.slot.take()
            && outcome != Outcome::ClientGone
        {
            slot.complete(self.sent, outcome == Outcome::Served, now);
        }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.end(0);
    }
}

impl Completion for Forwarded {
    fn complete(mut self, bytes: u64, outcome: body::Outcome, error: Option<&BodyError>) {
        match outcome {
            body::Outcome::Complete => {}
            body::Outcome::Aborted => self.outcome.set(Outcome::ClientGone),
            body::Outcome::Failed => {
                self.outcome.set(Outcome::OriginError);
                self.context.worker.count(match error {
                    Some(BodyError::Timeout) => Event::OriginReadTimeout,
                    Some(BodyError::Overdue) => Event::RequestTimeout,
                    _ => Event::OriginReset,
                });
            }
        }
        self.end(bytes);
    }
}

/// A redeemed ticket until its request has gone to the origin. However the request ends before that (no
/// position in the queue, the visitor reloads, no connection), the visitor keeps the ticket.
pub(crate) struct TicketGuard(Option<Redeemed>);

struct Redeemed {
    worker: Rc<Worker>,
    ticket: Ticket,
    /// Of a ticket that another tokencheck owns.
    claim: Option<ClaimGuard>,
}

impl TicketGuard {
    pub(crate) fn new(worker: &Rc<Worker>, ticket: Option<Ticket>, claim: Option<ClaimGuard>) -> Self {
        Self(ticket.map(|ticket| Redeemed { worker: worker.clone(), ticket, claim }))
    }

    /// How long its visitor has waited at `now`; `None`: there was no wait.
    fn waited(&self, now: Timestamp) -> Option<Duration> {
        self.0.as_ref()?.ticket.waited(now)
    }

    /// The ticket is used up, unless it turns out that nothing was sent.
    fn spend(mut self) -> Option<Redeemed> {
        let mut redeemed = self.0.take()?;
        redeemed.claim.iter_mut().for_each(ClaimGuard::spend);
        Some(redeemed)
    }

    /// Nothing was sent.
    fn unsent(mut redeemed: Redeemed) -> Self {
        redeemed.claim.iter_mut().for_each(ClaimGuard::unspend);
        Self(Some(redeemed))
    }
}

/// Adds the gate's cookies to an answer of the origin.
pub(crate) fn add_cookies(fields: &mut Fields, cookies: &SetCookies) {
    if !cookies.is_empty() {
        // In addition to the origin's fields (the stricter counts, RFC 9111 4.2.1): a cache in front must not
        // hand one visitor's pass, or the end of one visitor's ticket, to all.
        fields.append(name::CACHE_CONTROL, b"private");
        cookies.add_to(fields);
    }
}

/// A request that the origin works on, for its connection.
struct AtOrigin {
    conn: Rc<Conn>,
    may_outlive: bool,
}

impl AtOrigin {
    /// A request whose body still comes from the visitor ends with it.
    fn new(context: &RequestContext, body: &RequestBody) -> Self {
        let may_outlive = body.is_here() && !context.config.settings.origin.abort_on_close;
        Self { conn: context.conn.clone(), may_outlive }
    }

    /// Waits for the origin's answer, as a visitor who leaves does not.
    async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        self.conn.is_at_origin.set(self.may_outlive);
        let answer = answer.await;
        self.conn.is_at_origin.set(false);
        answer
    }

    fn visitor_has_left(&self) -> bool {
        self.conn.has_left.get()
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        if let Some(Redeemed { worker, ticket, claim }) = self.0.take() {
            worker.shared.admission.give_back(&ticket);
            // Only then may its owner grant it to others.
            drop(claim);
        }
    }
}

impl RequestContext {
    /// Through the gate to the origin and back.
    pub(crate) async fn forward(
        mut self,
        head: RequestHead,
        body: RequestBody,
        by: Event,
        cookies: SetCookies,
        guard: TicketGuard,
    ) -> Answer {
        let body = match self.gather(&head, body).await {
            Ok(body) => body,
            Err(error) => return self.without_body(&error),
        };
        let lane = self.lane();
        let under_way = UnderWay::new(&self.worker, self.class, self.started);
        let entering = self.enter_gate(lane);
        self.conn.silence.end();
        let slot = match entering.await {
            Ok(slot) => slot,
            Err(reason) => return self.shed(reason, head.path()),
        };
        self.worker.forwarded(&self.config, self.class, &head, slot.queued);
        self.count_tier(|tier| tier.forwarded(slot.queued));
        self.count_wait(guard.waited(self.started), lane, slot.queued);
        if let Some(log) = &mut self.log {
            log.verdict = by.name();
            log.queued = slot.queued;
        }
        let (head, context) = self.outbound(head);
        let (method, upgrades) = (head.method().clone(), context.upgrade.is_some());
        let upstream = self.worker.upstream.clone();
        let at_origin = AtOrigin::new(&self, &body);
        let mut forwarded = Forwarded {
            // Whoever has not waited is sent in the same turn.
            sent: if self.is_prompt && slot.queued.is_zero() { self.started } else { self.worker.now() },
            received: None,
            context: self,
            slot: Some(slot),
            outcome: Cell::new(Outcome::ClientGone),
            is_over: false,
            under_way: Some(under_way),
            is_timed: false,
        };
        // From here on the origin may be working on it, whatever becomes of the visitor.
        let spent = guard.spend();
        forwarded.reaches(true);
        let deadline = forwarded.context.deadline;
        let sent = pin!(upstream.send(head, body, context));
        let answer = at_origin.during(within(deadline, sent)).await;
        let is_unsent = matches!(&answer, Some(Err(error)) if was_never_sent(error));
        if let Some(Redeemed { worker, ticket, .. }) = spent.as_ref().filter(|_| !is_unsent) {
            worker.shared.redeemed.note(ticket, worker.now());
        }
        let Some(answer) = answer else {
            forwarded.keeps_session();
            return forwarded.overdue(&cookies);
        };
        match answer {
            Ok((head, _)) if at_origin.visitor_has_left() => forwarded.answered_nobody(head),
            Ok((head, body)) => forwarded.answered(head, body, &method, upgrades, cookies),
            Err(error) if was_never_sent(&error) => {
                drop(spent.map(TicketGuard::unsent));
                forwarded.reaches(false);
                forwarded.failed(&error, &SetCookies::default())
            }
            Err(error) => {
                forwarded.keeps_session();
                forwarded.failed(&error, &cookies)
            }
        }
    }

    fn enter_gate(&self, lane: Lane) -> Entering {
        let cost = self.cost();
        let limit = self.config.settings.limits.request_timeout;
        let until = (!limit.is_zero()).then(|| self.started + limit);
        self.worker.shared.gate.enter(self.class, cost, lane, until, self.started)
    }

    /// Reads the beginning of the body before the request takes a slot, where the visitor sends it unasked.
    /// The time is the visitor's: the request begins after it.
    async fn gather(&mut self, head: &RequestHead, body: RequestBody) -> Result<RequestBody, DispatchError> {
        let is_asked_for = self.for_all.is_none() && self.conn.link.expect_continue();
        if body.is_end_stream() || is_asked_for || is_conversation(head) {
            return Ok(body);
        }
        // On the heap: few requests have a body.
        let gathered = Box::pin(gather(body)).await.map_err(DispatchError::RequestBody)?;
        self.started = self.worker.now();
        Ok(gathered)
    }

    /// The body broke off before the request was at the gate.
    fn without_body(mut self, error: &DispatchError) -> Answer {
        self.worker.count(Event::ClientGone);
        self.own(respond::failed(error), "failed")
    }

    fn shed(mut self, reason: ShedReason, path: &str) -> Answer {
        let event = reason.event();
        self.worker.count(event);
        self.count_shed(event);
        if reason != ShedReason::QueueFull {
            self.count_time(false, self.worker.now());
        }
        let mut refused = own(self.refused_by_gate(respond::shed(reason), event, path));
        if self.for_all.is_some() {
            refused.for_all = Some(ForAll::Refused(event));
        }
        refused
    }

    /// Counts how long a visitor waited who is let through now. `in_room`: until this request came. A request
    /// that begins a session is held at the gate until the turn of its visitor: this is part of the wait.
    fn count_wait(&self, in_room: Option<Duration>, lane: Lane, queued: Duration) {
        let at_gate = Some(queued).filter(|queued| lane == Lane::Newcomer && !queued.is_zero());
        if in_room.is_some() || at_gate.is_some() {
            let wait = in_room.unwrap_or_default() + at_gate.unwrap_or_default();
            self.worker.shard.waited(self.class, wait);
            self.count_tier(|tier| tier.waited(wait));
        }
    }

    /// Counts how long the request took since it had arrived, by its class and its service level.
    fn count_time(&self, is_served: bool, now: Timestamp) {
        let time = now.since(self.started);
        self.worker.shard.took(self.class, is_served, time);
        self.count_tier(|tier| tier.took(is_served, time));
    }

    /// How the answer's body is sent; `None`: at once.
    pub(crate) fn shaping(&self) -> Option<Shaping> {
        let (throttle, conn) = (self.shaped.clone()?, Some(self.conn.clone()));
        Some(Shaping { throttle, clock: self.worker.shared.clock.clone(), conn })
    }

    pub(crate) fn own(&mut self, answer: OwnAnswer, verdict: &'static str) -> Answer {
        self.log_own(&answer, verdict);
        own(answer)
    }

    /// The head for the origin, and what else it takes to send it.
    fn outbound(&self, mut head: RequestHead) -> (RequestHead, SendContext) {
        let http_11 = head.version() >= Version::HTTP_11;
        let may_switch = http_11 && self.for_all.is_none() && hygiene::asks_to_switch(&head.fields);
        let upgrade = may_switch.then(|| self.conn.link.take_upgrade()).flatten();
        let keep_upgrade = upgrade.is_some();
        let info = &self.conn.info;
        let visitor = self.for_all.is_none().then_some(info.local).flatten();
        // A trusted proxy tells only the address of the visitor behind it.
        let is_peer = self.client == info.peer.ip().to_canonical();
        let from = if is_peer { info.peer } else { SocketAddr::new(self.client, 0) };
        let context = SendContext {
            visitor: visitor.map(|to| Named { from, to }),
            expect_continue: self.for_all.is_none() && self.conn.link.expect_continue(),
            // A request for all belongs to no connection: the visitor's may be at its next request.
            on_informational: (http_11 && self.for_all.is_none()).then(|| self.conn.relay()),
            tunnel: keep_upgrade.then(|| self.conn.control.line()),
            upgrade,
        };
        self.prepare(&mut head, keep_upgrade);
        (head, context)
    }

    /// Makes a head the one that the origin gets.
    pub(crate) fn prepare(&self, head: &mut RequestHead, keep_upgrade: bool) {
        let settings = &self.config.settings;
        if let Some(tls) = &self.config.tls {
            let certificate = self.conn.info.client_certificate.as_deref();
            tls.present(&mut head.fields, self.trusted, certificate);
        }
        let scheme = target::scheme(&head.fields, self.trusted, self.conn.info.scheme);
        let context = ForwardContext {
            peer: self.conn.info.peer.ip(),
            trusted: self.trusted,
            scheme,
            via: &settings.proxy.via,
            forwarded: settings.proxy.forwarded,
            host: &settings.origin.host,
            request_id: self.id.as_bytes(),
            keep_upgrade,
            is_own_cookie: is_gate_cookie,
        };
        hygiene::prepare_request(head, &context);
    }
}

impl Forwarded {
    fn reaches(&mut self, has_reached: bool) {
        if let Some(session) = &mut self.context.session {
            session.reaches(has_reached);
        }
    }

    fn keeps_session(&mut self) {
        if let Some(session) = &mut self.context.session {
            session.keep();
        }
    }

    fn answered(
        mut self,
        mut head: ResponseHead,
        body: UpstreamBody,
        method: &Method,
        upgrades: bool,
        mut cookies: SetCookies,
    ) -> Answer {
        let x = &mut self.context;
        let came = x.worker.now();
        let ends_session = x.answered(&mut head.fields, &mut cookies);
        if let Err(bad) = hygiene::prepare_response(&mut head, method, &x.config.settings.proxy.via, upgrades)
        {
            return self.failed(&DispatchError::BadResponse(bad.into()), &cookies);
        }
        let tunnel = head.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(log) = &mut x.log {
            log.status = head.status().as_u16();
            log.replica = body.replica().cloned();
        }
        let for_all = (ends_session && x.for_all.is_some()).then_some(ForAll::EndsSessions);
        add_cookies(&mut head.fields, &cookies);
        if x.config.settings.proxy.server_timing {
            let queued = self.slot.as_ref().map_or(0, |slot| slot.queued.as_micros() as u64);
            add_server_timing(&mut head.fields, queued, came.since(self.sent).as_micros() as u64);
            head.fields.set(name::X_REQUEST_ID, x.id.as_bytes());
        }
        x.tell_shadow(&mut head.fields);
        if tunnel {
            x.conn.link.pass_through();
            x.worker.count(Event::Upgrades);
            if let Some(tunnel) = x.conn.control.tunnel() {
                tunnel.hold(x.session.as_mut().and_then(|session| session.take_stay()));
            }
        }
        let failed = head.status().is_server_error();
        self.under_way = None;
        self.outcome.set(if failed { Outcome::OriginError } else { Outcome::Served });
        // Streaming responses release their in-flight slot once the head is sent; otherwise they would hold
        // it for their whole life. A long answer releases it a while after its head: the head is what the
        // origin worked for.
        if let Some(mut slot) = self.slot.take() {
            if tunnel || is_event_stream(&head.fields) {
                slot.streams(self.sent, !failed);
                self.context.count_time(!failed, came);
                self.is_timed = true;
            } else if body.is_received() {
                // The origin has done its part. The rest takes no time, unless it is sent slowly on purpose.
                slot.complete(self.sent, !failed, came);
                self.received = Some(came).filter(|_| self.context.shaped.is_none());
            } else {
                slot.answers(self.sent, came, !failed, self.context.worker.index);
                self.slot = Some(slot);
            }
        }
        // A tunnel has the limits of its own kind.
        let deadline = self.context.deadline.filter(|_| !tunnel);
        // Nor is a tunnel shaped.
        let shaping = self.context.shaping().filter(|_| !tunnel);
        let body = ResponseBody::origin(body, deadline, self);
        let body = match shaping {
            Some(shaping) => body.shaped(shaping),
            None => body,
        };
        Answer { head, body, for_all }
    }

    /// The origin has answered a visitor who had left.
    fn answered_nobody(mut self, head: ResponseHead) -> Answer {
        if let Some(slot) = self.slot.take() {
            slot.complete(self.sent, !head.status().is_server_error(), self.context.worker.now());
        }
        Answer { head, body: Pieces::default().into(), for_all: None }
    }

    fn failed(self, error: &DispatchError, cookies: &SetCookies) -> Answer {
        let x = &self.context;
        let event = match error {
            DispatchError::NoReplica => Event::NoReplica,
            DispatchError::ConnectFailed(_) => Event::OriginConnectFailed,
            DispatchError::ConnectTimeout => Event::OriginConnectTimeout,
            DispatchError::FirstByteTimeout => Event::OriginFirstByteTimeout,
            DispatchError::Reset(_) => Event::OriginReset,
            DispatchError::BadResponse(_) | DispatchError::NoWebSocket => Event::OriginBadResponse,
            DispatchError::RequestBody(_) => Event::ClientGone,
        };
        let of_origin = !matches!(error, DispatchError::RequestBody(_));
        if of_origin {
            x.worker.count(event);
            tracing::debug!(id = &*x.id, %error, "the origin failed a request");
        }
        self.outcome.set(if of_origin { Outcome::OriginError } else { Outcome::ClientGone });
        self.instead(respond::failed(error), cookies)
    }

    /// `limits.request_timeout` has passed without an answer: the origin's fault, not the visitor's.
    fn overdue(self, cookies: &SetCookies) -> Answer {
        self.context.worker.count(Event::RequestTimeout);
        self.outcome.set(Outcome::OriginError);
        self.instead(respond::request_timeout(), cookies)
    }

    /// Ends the request with an answer of the gate's own.
    fn instead(mut self, mut answer: OwnAnswer, cookies: &SetCookies) -> Answer {
        // A session that has begun goes on after a failure of one request.
        cookies.add_to(&mut answer.head.fields);
        if let Some(log) = &mut self.context.log {
            log.status = answer.head.status().as_u16();
        }
        self.end(answer.body.len() as u64);
        own(answer)
    }
}

/// Whether the visitor may wait for an answer before it has sent all.
fn is_conversation(head: &RequestHead) -> bool {
    head.version() == Version::HTTP_2 && http2::is_conversation(head.fields.get(name::CONTENT_TYPE))
}

fn was_never_sent(error: &DispatchError) -> bool {
    matches!(
        error,
        DispatchError::NoReplica | DispatchError::ConnectFailed(_) | DispatchError::ConnectTimeout
    )
}

/// `gate;dur=0.0, origin;dur=12.3`: milliseconds in the queue and until the origin's first byte.
fn add_server_timing(fields: &mut Fields, queued_us: u64, origin_us: u64) {
    fields.append_with(name::SERVER_TIMING, |text| {
        for (name, us) in [("gate;dur=", queued_us), (", origin;dur=", origin_us)] {
            let tenths = us / 100;
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(itoa::Buffer::new().format(tenths / 10).as_bytes());
            text.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
        }
    });
}
