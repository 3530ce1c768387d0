//! One request through the stages, left to right:
//!
//! ```text
//! check ─► classify ─► orders ─► room ─► gate ─► dispatch ─► origin
//!    └────────┴──────────┴─ respond ◄┴─────────┘
//! ```

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response, request};
use hyper::body::Incoming;
use tidegate_core::measure::Event;
use tokio::time::Instant;

use crate::base::guard::{caught, within};
use crate::config::page;
use crate::http::wire::Tracked;
use crate::http::{hygiene, target};
use crate::proxy::context::{Conn, RequestContext};
use crate::proxy::respond;
use crate::proxy::respond::{STATUS_PATH, WaitingAnswer};
use crate::proxy::response_body::ResponseBody;
use crate::proxy::stages::forward::{Answer, Forwarded, TicketGuard, own};
use crate::proxy::stages::policies::PolicyOutcome;
use crate::proxy::stages::room::RoomOutcome;
use crate::shared::Worker;
use crate::shared::policies::refusals::Cause;
use crate::upstream::body::RequestBody;

/// What hyper sends to the visitor.
pub type TrackedAnswer = Response<Tracked<ResponseBody<Forwarded>>>;

/// Serves one request. Never fails: every fault is an answer.
///
/// # Errors
/// None; the type is what hyper asks for.
pub async fn serve(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
) -> Result<TrackedAnswer, Infallible> {
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

async fn handle(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
    deadline: Option<Instant>,
) -> Answer {
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
            own(exchange.waiting_answer(&parts, body, *waiting).await)
        }
        RoomOutcome::Throttled { retry_after } => {
            exchange.worker.shard.shed(class, Event::IngressShed);
            own(exchange.refused_by_gate(
                respond::throttled(retry_after),
                Event::IngressShed,
                parts.uri.path(),
            ))
        }
        RoomOutcome::NoPlace { retry_after } => exchange.no_place(&parts, body, retry_after).await,
        RoomOutcome::Elsewhere { base, ticket, cookies } => {
            let url = target::elsewhere(&base, &parts.uri, ticket.as_ref().map(|t| t.as_str()));
            exchange.own(respond::redirect(&url, &cookies), "redirected")
        }
    }
}

impl RequestContext {
    /// There is no place for the session that it would begin.
    async fn no_place(&mut self, parts: &request::Parts, body: Incoming, retry_after: Duration) -> Answer {
        self.worker.shard.shed(self.class, Event::SessionsRefused);
        let waiting = WaitingAnswer::without_position(page::Kind::Overloaded, retry_after);
        let mut response = self.waiting_answer(parts, body, waiting).await;
        self.explain(response.headers_mut(), Event::SessionsRefused, parts.uri.path());
        own(response)
    }

    /// Beyond the quota of its service level: refused.
    fn over_quota(&mut self, parts: &request::Parts) -> Option<Answer> {
        let cost = self.config.class(self.class).cost;
        let wait = self.config.tiers.get(self.tier)?.take(cost, self.started).err()?;
        self.keep_refusal(parts.uri.path(), Cause::Quota, respond::retry_after(wait).as_secs());
        Some(self.own(respond::over_quota(wait), "shed"))
    }
}
