//! One request through the stages, left to right:
//!
//! ```text
//! check ─► classify ─► room ─► gate ─► dispatch ─► origin
//!    └────────┴──── respond ◄───┴─────────┘
//! ```

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_LANGUAGE;
use http::{HeaderMap, Method, Request, Response, request};
use hyper::body::Incoming;
use tidegate_core::classify::{Fields, RequestHead};
use tidegate_core::measure::Event;
use tidegate_core::room::Look;
use tidegate_core::units::{ClassId, Timestamp};
use tokio::time::Instant;

use crate::cookies::Cookies;
use crate::forward::{Claim, Forwarded};
use crate::live::Mark;
use crate::logged::Logged;
use crate::navigation::{can_return, is_part_of_page, kept_form, wants_html};
use crate::outgoing::ResponseBody;
use crate::page;
use crate::respond::{self, Asked, STATUS_PATH};
use crate::room::{self, Outcome, Stage, Visitor, Waiting};
use crate::settings::Role;
use crate::shared::{InForce, Worker};
use crate::wire::{Tracked, WireHandle};
use crate::{hygiene, target};

/// After the first visitor waits, parts of pages that were let in just before still pass for this long.
const PAGE_PARTS_SETTLE: Duration = Duration::from_secs(10);

/// A visitor's connection.
pub struct Conn {
    /// The other end.
    pub peer: SocketAddr,
    /// The wire between it and hyper.
    pub wire: WireHandle,
}

/// What hyper sends to the visitor.
pub type Answer = Response<Tracked<ResponseBody<Forwarded>>>;

/// Everything the stages know of a request.
pub(crate) struct Exchange {
    pub(crate) worker: Rc<Worker>,
    pub(crate) conn: Rc<Conn>,
    pub(crate) live: Rc<InForce>,
    pub(crate) started: Timestamp,
    pub(crate) client: IpAddr,
    pub(crate) trusted: bool,
    pub(crate) class: ClassId,
    pub(crate) id: Box<str>,
    pub(crate) log: Option<Box<Logged>>,
    /// `limits.request_timeout` from its start on.
    pub(crate) deadline: Option<Instant>,
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
    let limit = worker.live().settings.limits.request_timeout;
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

/// What `future` returns; `None` if it has not by `deadline`.
pub(crate) async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}

/// What `future` returns; `None` if it panics. A fault in one request is no reason to reset a connection without a
/// word. What the request held (its place at the gate, its ticket) is given back as it unwinds.
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // Not polled again after a panic, so what it may have left half done is not seen.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
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
    let live = worker.live();
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
    let proxy = &live.settings.proxy;
    let peer = conn.peer.ip().to_canonical();
    let trusted = proxy.trusted.iter().any(|net| net.contains(&peer));
    let client = hygiene::client_ip(peer, &parts.headers, &proxy.trusted);
    let url_ticket = target::take_ticket(&mut parts.uri);
    target::clean_referer(&mut parts.headers);
    let class = live.classify(&RequestHead {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        host: target::host(&parts),
        client,
        fields: &HeadFields(&parts.headers),
    });
    let id = worker.request_id();
    let id = std::str::from_utf8(&id).unwrap_or_default();
    let id = hygiene::request_id(&parts.headers, trusted, id).into();
    let log = worker.shared.access.as_ref().map(|_| Box::new(Logged::of(&parts)));
    let mut exchange = Exchange { worker, conn, live, started, client, trusted, class, id, log, deadline };
    if parts.uri.path() == STATUS_PATH {
        return own(exchange.status(&parts, url_ticket.as_deref()));
    }
    exchange.worker.shard.arrived(class);
    match exchange.room(&parts, url_ticket.as_deref()) {
        Outcome::Enter { by, cookies, ticket } => {
            exchange.worker.count(by);
            let claim = Claim::new(&exchange.worker, ticket);
            // On the heap: several kilobytes of state, which answers of the gate's own would carry along through
            // every move of their own small future.
            Box::pin(exchange.forward(parts, body, by, cookies, claim)).await
        }
        Outcome::Wait(waiting) => {
            if waiting.kind == page::Kind::Full {
                exchange.worker.shard.shed(class, Event::Full);
            }
            own(exchange.wait(&parts, body, *waiting).await)
        }
        Outcome::Throttled { retry_after } => {
            exchange.worker.shard.shed(class, Event::IngressShed);
            exchange.finish(respond::throttled(retry_after), "shed")
        }
        Outcome::Elsewhere { base, ticket, cookies } => {
            let url = target::elsewhere(&base, &parts.uri, ticket.as_ref().map(|t| t.as_str()));
            exchange.finish(respond::redirect(&url, &cookies), "redirected")
        }
    }
}

struct HeadFields<'a>(&'a HeaderMap);

impl Fields for HeadFields<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(name).iter().any(|value| test(value.as_bytes()))
    }
}

/// How a request meets the room.
#[derive(PartialEq, Eq)]
enum Meets {
    /// It may have to wait.
    Room,
    /// Part of a page: passes with whoever was let in.
    AsPart,
    /// Never waits.
    Never,
}

impl Exchange {
    /// The room stage: enter, or what to answer instead.
    fn room(&self, parts: &request::Parts, url_ticket: Option<&str>) -> Outcome {
        let shared = &self.worker.shared;
        let meets = self.meets(&parts.headers);
        let is_guarded =
            self.live.ingress.limits(self.class) && !matches!(self.live.settings.role, Role::TokenGen { .. });
        if meets == Meets::Never && !is_guarded {
            return self.unasked(Event::Entered);
        }
        let visitor = self.visitor(&parts.headers, url_ticket);
        if let Some(clean) = self.without_ticket(parts, &visitor) {
            return clean;
        }
        let mut rng = self.worker.rng.borrow_mut();
        let count = |event| self.worker.count(event);
        let now = self.started;
        let mut stage = Stage { desk: &shared.desk, live: &self.live, rng: &mut rng, count: &count, now };
        if meets == Meets::AsPart && (!self.is_settled() || stage.part_of_page(&visitor)) {
            let cost = self.live.class(self.class).cost;
            // Parts of a page do not wait: nobody would come back for their places.
            let taken = if is_guarded { self.live.ingress.take(self.class, cost, now) } else { Ok(()) };
            return match taken {
                Ok(()) => self.unasked(Event::EnteredByPass),
                Err(retry_after) => {
                    self.worker.count(Event::IngressShed);
                    Outcome::Throttled { retry_after }
                }
            };
        }
        if meets == Meets::Never {
            return stage.ask(self.class, &visitor, false);
        }
        if !shared.has_somewhere_to_go(&self.live.settings.role) {
            return Outcome::Wait(stage.hold(self.class, &visitor));
        }
        stage.ask(self.class, &visitor, true)
    }

    /// The first page a browser gets carries the ticket in its URLs, for it may keep no cookies. One that comes back
    /// with the cookie as well is shown the URL it asked for, or the ticket would stay in its address bar.
    fn without_ticket(&self, parts: &request::Parts, visitor: &Visitor<'_>) -> Option<Outcome> {
        visitor.url_ticket?;
        let kept = visitor.cookies.ticket.is_some_and(|t| !t.is_empty());
        let gate = matches!(self.live.settings.role, Role::Gate);
        let shown = parts.method.is_safe() && wants_html(&parts.headers) && target::is_local(&parts.uri);
        (kept && gate && shown).then(|| Outcome::Elsewhere {
            base: String::new(),
            ticket: None,
            cookies: Vec::new(),
        })
    }

    /// Enters without asking the room; tokengen forwards nothing itself.
    fn unasked(&self, by: Event) -> Outcome {
        if let Role::TokenGen { check_url } = &self.live.settings.role {
            return Outcome::Elsewhere { base: check_url.clone(), ticket: None, cookies: Vec::new() };
        }
        self.worker.shared.desk.charge(self.live.class(self.class).cost);
        Outcome::Enter { by, cookies: Vec::new(), ticket: None }
    }

    fn meets(&self, headers: &HeaderMap) -> Meets {
        if !self.live.meets_room(self.class) {
            return Meets::Never;
        }
        if self.live.all_navigations && is_part_of_page(headers) { Meets::AsPart } else { Meets::Room }
    }

    /// Visitors wait, and have for longer than pages let in before may still be loading.
    fn is_settled(&self) -> bool {
        if matches!(self.live.settings.role, Role::TokenCheck { .. }) {
            return true;
        }
        let since = self.worker.shared.busy_since_us.load(Ordering::Relaxed);
        since != 0 && self.started.since(Timestamp::from_micros(since)) > PAGE_PARTS_SETTLE
    }

    fn visitor<'a>(&self, headers: &'a HeaderMap, url_ticket: Option<&'a str>) -> Visitor<'a> {
        Visitor {
            ip: self.client,
            cookies: Cookies::read(headers, self.live.class(self.class).mark),
            url_ticket,
            secure: target::scheme(headers, self.trusted) == "https",
            can_return: can_return(headers),
        }
    }

    /// The tiny document that a waiting page polls.
    fn status(&mut self, parts: &request::Parts, url_ticket: Option<&str>) -> Response<Bytes> {
        self.worker.count(Event::StatusPolls);
        let class = parts.uri.query().and_then(|q| q.strip_prefix("c=")).and_then(|c| c.parse().ok());
        let known = class.and_then(|mark| self.live.marked(Mark(mark)));
        let (Some(class), true) = (known, matches!(parts.method, Method::GET | Method::HEAD)) else {
            return respond::not_found();
        };
        self.class = class;
        let visitor = self.visitor(&parts.headers, url_ticket);
        let shared = &self.worker.shared;
        let (look, waited) = room::look(&shared.desk, &self.live, &visitor, self.started);
        let usable = shared.has_somewhere_to_go(&self.live.settings.role);
        // The URL's ticket may go once the cookie's does.
        let kept = visitor.cookies.ticket.is_some_and(|t| !t.is_empty()) && url_ticket.is_some();
        let ticket = (kept && matches!(look, Look::Wait(_) | Look::Ready)).then_some("");
        let (state, wait, place) = room::standing(look, usable);
        let spread = rand::Rng::random(&mut *self.worker.rng.borrow_mut());
        let poll = page::poll_interval(wait, &shared.desk.ask_every(), spread);
        respond::status_document(&self.live, state, wait, place, poll, waited, ticket)
    }

    /// The waiting room's answer; a form is kept in the page.
    async fn wait(&mut self, parts: &request::Parts, body: Incoming, w: Waiting) -> Response<Bytes> {
        let mut html = wants_html(&parts.headers);
        let mut form = None;
        if html && !parts.method.is_safe() {
            form = kept_form(parts, body, self.live.settings.room.max_form_bytes).await;
            html = form.is_some();
        }
        let asked = Asked {
            class: self.class,
            target: parts.uri.path_and_query().map_or("/", |t| t.as_str()),
            html,
            language: parts.headers.get(ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()),
            form: form.as_ref(),
        };
        let response = respond::waiting(&self.live, &asked, w);
        self.note(&response, "waiting");
        response
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_request_and_gives_back_what_it_held() {
        let held = Rc::new(());
        let mine = held.clone();
        let fault = caught::<()>(async move {
            tokio::task::yield_now().await;
            let _mine = mine;
            panic!("on purpose");
        });
        assert_eq!(fault.await, None);
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(caught(async { 7 }).await, Some(7));
    }
}
