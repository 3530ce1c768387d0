//! One request through the stages, left to right:
//!
//! ```text
//! check ─► classify ─► orders ─► room ─► gate ─► dispatch ─► origin
//!    └────────┴──────────┴─ respond ◄┴─────────┘
//! ```

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_LANGUAGE;
use http::{HeaderMap, Method, Request, Response, request};
use hyper::body::Incoming;
use tidegate_core::measure::Event;
use tidegate_core::policies::TierId;
use tidegate_core::queue::Lane;
use tidegate_core::room::TicketStatus;
use tidegate_core::units::{ClassId, Timestamp};
use tokio::time::Instant;

use crate::base::guard::{caught, within};
use crate::config::ClassTag;
use crate::config::page;
use crate::http::wire::{Tracked, WireHandle};
use crate::http::{hygiene, target};
use crate::proxy::access_entry::AccessEntry;
use crate::proxy::cookies::Cookies;
use crate::proxy::navigation::{can_return, kept_form, wants_html};
use crate::proxy::respond;
use crate::proxy::respond::{AnswerRequest, STATUS_PATH};
use crate::proxy::response_body::ResponseBody;
use crate::proxy::stages::forward::{Forwarded, TicketGuard};
use crate::proxy::stages::policies::PolicyOutcome;
use crate::proxy::stages::poll;
use crate::proxy::stages::room::{RoomOutcome, Visitor, WaitingAnswer};
use crate::shared::policies::refusals::Cause;
use crate::shared::policies::{ConnControl, PolicyRecord};
use crate::shared::sessions::{RequestSession, SessionLink};
use crate::shared::{Worker, WorkerConfig};
use crate::upstream::body::RequestBody;

/// A visitor's connection.
pub struct Conn {
    /// The other end.
    pub peer: SocketAddr,
    /// The wire between it and hyper.
    pub wire: WireHandle,
    /// What orders may ask about it.
    pub control: ConnControl,
    /// What it is to sessions.
    pub session: SessionLink,
}

/// What hyper sends to the visitor.
pub type Answer = Response<Tracked<ResponseBody<Forwarded>>>;

/// Everything the stages know of a request.
pub(crate) struct RequestContext {
    pub(crate) worker: Rc<Worker>,
    pub(crate) conn: Rc<Conn>,
    pub(crate) config: Rc<WorkerConfig>,
    pub(crate) started: Timestamp,
    pub(crate) client: IpAddr,
    pub(crate) trusted: bool,
    pub(crate) class: ClassId,
    pub(crate) tier: TierId,
    pub(crate) id: Box<str>,
    pub(crate) log: Option<Box<AccessEntry>>,
    /// `limits.request_timeout` from its start on.
    pub(crate) deadline: Option<Instant>,
    /// The order in shadow that would have decided.
    pub(crate) shadow: Option<Arc<PolicyRecord>>,
    /// It is asked for several visitors, in this lane, and answers none itself.
    pub(crate) for_all: Option<Lane>,
    /// Where it stands among the sessions; `None`: none are counted here.
    pub(crate) session: Option<Box<RequestSession>>,
}

/// Serves one request. Never fails: every fault is an answer.
///
/// # Errors
/// None; the type is what hyper asks for.
pub async fn serve(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let shared = worker.shared.clone();
    let wire = conn.wire.clone();
    let limit = worker.config().settings.limits.request_timeout;
    let counter = worker.clone();
    let shard = worker.shard.clone();
    let deadline = (!limit.is_zero()).then(|| Instant::now() + limit);
    let served = handle(worker, conn, request, deadline);
    let served = caught(async move {
        // While the origin has it, `forward` notices first.
        within(deadline, served).await.unwrap_or_else(|| {
            counter.count(Event::RequestTimeout);
            own(respond::request_timeout())
        })
    });
    let mut response = served.await.unwrap_or_else(|| {
        shard.count(Event::Panics);
        own(respond::internal_error())
    });
    if shared.is_draining() {
        respond::close(&mut response);
    }
    Ok(response.map(|body| wire.track(body)))
}

/// An answer of the gate's own.
pub(crate) fn own(response: Response<Bytes>) -> Response<ResponseBody<Forwarded>> {
    response.map(ResponseBody::from)
}

async fn handle(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
    deadline: Option<Instant>,
) -> Response<ResponseBody<Forwarded>> {
    let started = worker.now();
    worker.count(Event::Requests);
    let (mut parts, body) = request.into_parts();
    match hygiene::check(&mut parts) {
        Ok(hygiene::Target::Origin) => {}
        Ok(hygiene::Target::Gate) => return own(respond::last_recipient()),
        Err(bad) => {
            let expectation = bad == hygiene::Reject::Expect;
            worker.count(if expectation { Event::ExpectationFailed } else { Event::RequestsBad });
            return own(respond::reject(bad));
        }
    }
    let url_ticket = target::take_ticket(&mut parts.uri);
    target::clean_referer(&mut parts.headers);
    let mut exchange = RequestContext::of(worker, conn, &parts, started, deadline);
    if parts.uri.path() == STATUS_PATH {
        return own(exchange.status(&parts, url_ticket.as_deref()));
    }
    exchange.worker.shard.arrived(exchange.class);
    exchange.sit(&parts.headers);
    if let Some(refused) = exchange.over_quota(&parts) {
        return refused;
    }
    let mut body = Some(body);
    let mut by_order = false;
    let orders = exchange.worker.policy_version();
    if orders != 0 {
        // On the heap, as below.
        match Box::pin(exchange.ordered(orders, &mut parts, &mut body)).await {
            PolicyOutcome::Answer(answer) => return *answer,
            PolicyOutcome::Room => by_order = true,
            PolicyOutcome::Pass => {}
        }
    }
    let Some(body) = body else { unreachable!("only an answer takes it") };
    let class = exchange.class;
    match exchange.room(&parts, url_ticket.as_deref(), by_order) {
        RoomOutcome::Enter { by, cookies, ticket } => {
            exchange.worker.count(by);
            let claim = TicketGuard::new(&exchange.worker, ticket);
            // On the heap: several kilobytes of state, which answers of the gate's own would carry along through
            // every move of their own small future.
            Box::pin(exchange.forward(parts, RequestBody::incoming(body), by, cookies, claim)).await
        }
        RoomOutcome::Wait(waiting) => {
            if waiting.kind == page::Kind::Full {
                exchange.worker.shard.shed(class, Event::Full);
                let after = respond::retry_after(waiting.wait).as_secs();
                exchange.keep_refusal(parts.uri.path(), Cause::Gate(Event::Full), after);
            }
            own(exchange.wait(&parts, body, *waiting).await)
        }
        RoomOutcome::Throttled { retry_after } => {
            exchange.worker.shard.shed(class, Event::IngressShed);
            exchange.refused_by_gate(respond::throttled(retry_after), Event::IngressShed, parts.uri.path())
        }
        RoomOutcome::NoPlace { retry_after } => exchange.no_place(&parts, body, retry_after).await,
        RoomOutcome::Elsewhere { base, ticket, cookies } => {
            let url = target::elsewhere(&base, &parts.uri, ticket.as_ref().map(|t| t.as_str()));
            exchange.finish(respond::redirect(&url, &cookies), "redirected")
        }
    }
}

impl RequestContext {
    /// Of a request without its ticket: whose it is, and what for.
    fn of(
        worker: Rc<Worker>,
        conn: Rc<Conn>,
        parts: &request::Parts,
        started: Timestamp,
        deadline: Option<Instant>,
    ) -> Self {
        let live = worker.config();
        let proxy = &live.settings.proxy;
        let peer = conn.peer.ip().to_canonical();
        let trusted = proxy.trusted.iter().any(|net| net.contains(&peer));
        let client = hygiene::client_ip(peer, &parts.headers, &proxy.trusted);
        let tier = live.tier_of(&parts.headers, client, started);
        let class = live.class_of(parts, client, tier);
        let id = worker.request_id();
        let id = std::str::from_utf8(&id).unwrap_or_default();
        let id = hygiene::request_id(&parts.headers, trusted, id).into();
        let log = worker.shared.access.as_ref().map(|_| Box::new(AccessEntry::of(parts)));
        Self {
            worker,
            conn,
            config: live,
            started,
            client,
            trusted,
            class,
            tier,
            id,
            log,
            deadline,
            shadow: None,
            for_all: None,
            session: None,
        }
    }

    pub(crate) fn visitor<'a>(&self, headers: &'a HeaderMap, url_ticket: Option<&'a str>) -> Visitor<'a> {
        Visitor {
            ip: self.client,
            cookies: Cookies::read(headers, self.config.class(self.class).mark),
            url_ticket,
            secure: target::scheme(headers, self.trusted) == "https",
            can_return: can_return(headers),
        }
    }

    /// The tiny document that a waiting page polls.
    fn status(&mut self, parts: &request::Parts, url_ticket: Option<&str>) -> Response<Bytes> {
        self.worker.count(Event::StatusPolls);
        let class = parts.uri.query().and_then(|q| q.strip_prefix("c=")).and_then(|c| c.parse().ok());
        let known = class.and_then(|mark| self.config.marked(ClassTag(mark)));
        let (Some(class), true) = (known, matches!(parts.method, Method::GET | Method::HEAD)) else {
            return respond::not_found();
        };
        self.class = class;
        let visitor = self.visitor(&parts.headers, url_ticket);
        let shared = &self.worker.shared;
        let (look, waited) = poll::look(&shared.admission, &self.config, &visitor, self.started);
        let usable = shared.has_somewhere_to_go(&self.config.settings.role);
        // The URL's ticket may go once the cookie's does.
        let kept = visitor.cookies.ticket.is_some_and(|t| !t.is_empty()) && url_ticket.is_some();
        let ticket = (kept && matches!(look, TicketStatus::Wait(_) | TicketStatus::Ready)).then_some("");
        let (state, wait, place) = poll::standing(look, usable);
        let spread = rand::Rng::random(&mut *self.worker.rng.borrow_mut());
        let poll = page::poll_interval(wait, &shared.admission.ask_every(), spread);
        respond::status_document(&self.config, state, wait, place, poll, waited, ticket)
    }

    /// The waiting room's answer; a form is kept in the page.
    pub(crate) async fn wait(
        &mut self,
        parts: &request::Parts,
        body: Incoming,
        w: WaitingAnswer,
    ) -> Response<Bytes> {
        let mut html = wants_html(&parts.headers);
        let mut form = None;
        if html && !parts.method.is_safe() {
            form = kept_form(parts, body, self.config.settings.room.max_form_bytes).await;
            html = form.is_some();
        }
        let asked = AnswerRequest {
            class: self.class,
            target: parts.uri.path_and_query().map_or("/", |t| t.as_str()),
            html,
            language: parts.headers.get(ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()),
            form: form.as_ref(),
        };
        let response = respond::waiting(&self.config, &asked, w);
        self.note(&response, "waiting");
        response
    }

    /// There is no place for the session that it would begin.
    async fn no_place(
        &mut self,
        parts: &request::Parts,
        body: Incoming,
        retry_after: Duration,
    ) -> Response<ResponseBody<Forwarded>> {
        self.worker.shard.shed(self.class, Event::SessionsRefused);
        let waiting = WaitingAnswer::without_place(page::Kind::Overloaded, retry_after);
        let mut response = self.wait(parts, body, waiting).await;
        self.explain(response.headers_mut(), Event::SessionsRefused, parts.uri.path());
        own(response)
    }

    /// Beyond the quota of its service level: refused.
    fn over_quota(&mut self, parts: &request::Parts) -> Option<Response<ResponseBody<Forwarded>>> {
        let cost = self.config.class(self.class).cost;
        let wait = self.config.tiers.get(self.tier)?.take(cost, self.started).err()?;
        self.keep_refusal(parts.uri.path(), Cause::Quota, respond::retry_after(wait).as_secs());
        Some(self.finish(respond::over_quota(wait), "shed"))
    }

    /// Logs the head of an answer that others have too.
    pub(crate) fn log_shared(&mut self, status: u16, bytes: u64) {
        let (Some(mut log), Some(access)) = (self.log.take(), &self.worker.shared.access) else { return };
        (log.status, log.verdict) = (status, "multicast");
        log.write(access, self, bytes, self.worker.now().since(self.started));
    }

    /// Logs an answer of the gate's own.
    pub(crate) fn finish(
        &mut self,
        response: Response<Bytes>,
        verdict: &'static str,
    ) -> Response<ResponseBody<Forwarded>> {
        self.note(&response, verdict);
        own(response)
    }

    fn note(&mut self, response: &Response<Bytes>, verdict: &'static str) {
        let (Some(mut log), Some(access)) = (self.log.take(), &self.worker.shared.access) else { return };
        log.status = response.status().as_u16();
        log.verdict = verdict;
        log.write(access, self, response.body().len() as u64, self.worker.now().since(self.started));
    }
}
