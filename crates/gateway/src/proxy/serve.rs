//! One request through the stages, left to right:
//!
//! ```text
//! check ─► classify ─► session ─► decide ─► forward (gate's queue, origin)
//!    │                               │  ▲         │
//!    │                               ▼  │         │
//!    │                             policies       │
//!    └────────────► respond ◄────────┴────────────┘
//! ```

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tidegate_core::admission::{Position, Progress};
use tidegate_core::measure::{Counters, Event};
use tidegate_core::room::{LOOK_AGAIN, TicketStatus, is_held};
use tidegate_core::ticket::Ticket;
use tidegate_http::RequestHead;
use tokio::time::Instant;

use crate::base::guard::{caught, within};
use crate::config::page;
use crate::http::visitor_body::VisitorBody;
use crate::http::{hygiene, target};
use crate::proxy::context::{Conn, RequestContext};
use crate::proxy::respond::{self, STATUS_PATH, WaitingAnswer};
use crate::proxy::stages::admission::Asked;
use crate::proxy::stages::forward::{Answer, TicketGuard, own};
use crate::proxy::stages::room::Outcome;
use crate::shared::Worker;
use crate::shared::policies::refusals::Cause;
use crate::upstream::body::RequestBody;

/// Serves one request. Never fails: every fault is an answer.
pub async fn serve(worker: Rc<Worker>, conn: Rc<Conn>, head: RequestHead, body: VisitorBody) -> Answer {
    let shared = worker.shared.clone();
    let silence = conn.silence.clone();
    let limit = worker.config().settings.limits.request_timeout;
    let counter = worker.clone();
    let shard = worker.shard.clone();
    let deadline = (!limit.is_zero()).then(|| Instant::now() + limit);
    // Pinned here, so that the wrappers around it carry a pointer instead of several copies of its state.
    let served = pin!(handle(worker, conn, head, body, deadline));
    let served = caught(async move {
        // While the origin has it, `forward` notices first.
        within(deadline, served).await.unwrap_or_else(|| {
            counter.count(Event::RequestTimeout);
            own(respond::request_timeout())
        })
    });
    let mut answer = served.await.unwrap_or_else(|| {
        shard.count(Event::Panics);
        own(respond::internal_error())
    });
    silence.end();
    if shared.is_draining() {
        respond::close(&mut answer.head);
    }
    answer
}

async fn handle(
    worker: Rc<Worker>,
    conn: Rc<Conn>,
    mut head: RequestHead,
    body: VisitorBody,
    deadline: Option<Instant>,
) -> Answer {
    let started = worker.now();
    worker.count(Event::Requests);
    if let Some(answer) = answer_before_stages(&worker, &mut head) {
        return answer;
    }
    let url_ticket = target::take_ticket(&mut head);
    target::clean_referer(&mut head.fields);
    let mut context = RequestContext::of(worker, conn, &head, started, deadline);
    if let Some(answer) = context.answer_about_tls(&head) {
        return answer;
    }
    if head.path() == STATUS_PATH {
        return own(context.status(&head, url_ticket.as_deref()).await);
    }
    context.worker.shard.arrived(context.class);
    context.count_tier(Counters::arrived);
    let (mut body, ticket) = (Some(body), url_ticket.as_deref());
    context.recognise_session(&head.fields, ticket);
    let outcome = match context.worker.policy_version() {
        0 => context.decide_at_turn(&head, ticket).await,
        // On the heap, as below.
        version => {
            let decided = context.decide_under_policies(version, &mut head, ticket, &mut body);
            match Box::pin(decided).await {
                Ok(outcome) => outcome,
                Err(answer) => return *answer,
            }
        }
    };
    let Some(body) = body else { unreachable!("only an answer takes it") };
    let (outcome, claim) = match outcome {
        // On the heap, as below.
        Outcome::AskOwner(claiming) => Box::pin(context.decide_with_owner(claiming, &head, ticket)).await,
        outcome => (outcome, None),
    };
    match outcome {
        Outcome::Enter { by, cookies, ticket } => {
            context.worker.count(by);
            let guard = TicketGuard::new(&context.worker, ticket, claim);
            context.until_answered(head, RequestBody::visitor(body), by, cookies, guard).await
        }
        Outcome::Wait(waiting) => context.wait_in_room(&head, body, *waiting).await,
        Outcome::Throttled { retry_after } => {
            context.count_shed(Event::IngressShed);
            let refusal = respond::throttled(retry_after);
            own(context.refused_by_gate(refusal, Event::IngressShed, head.path()))
        }
        Outcome::NoSessionSlot { retry_after } => context.no_session_slot(&head, body, retry_after).await,
        Outcome::Elsewhere { base, ticket, cookies } => {
            let url = target::elsewhere(&base, head.path_and_query(), ticket.as_deref());
            context.own(respond::redirect(&url, &cookies), "redirected")
        }
        Outcome::OverQuota { retry_after } => context.over_quota(&head, retry_after),
        Outcome::Perform { .. }
        | Outcome::RefusedByThrottle { .. }
        | Outcome::RefusedByPolicy { .. }
        | Outcome::AskOwner(_)
        | Outcome::Delay { .. } => {
            unreachable!("policies are performed where they are in force, the others once")
        }
    }
}

/// The answer to a malformed request, and to one for the gate itself.
fn answer_before_stages(worker: &Worker, head: &mut RequestHead) -> Option<Answer> {
    match hygiene::check(head) {
        Ok(hygiene::Target::Origin) => None,
        Ok(hygiene::Target::Gate) => Some(own(respond::last_recipient())),
        Err(bad) => {
            let expectation = bad == hygiene::Reject::Expect;
            worker.count(if expectation { Event::ExpectationFailed } else { Event::RequestsBad });
            Some(own(respond::reject(bad)))
        }
    }
}

impl RequestContext {
    /// The decision where no policy is in force. A visitor who is early by a moment is held.
    async fn decide_at_turn(&mut self, head: &RequestHead, url_ticket: Option<&str>) -> Outcome {
        let (policies, is_plain, progress) = (None, false, Progress::Start);
        let asked = Asked { head, url_ticket, policies, is_plain, progress, may_be_held: true };
        match self.decide(&asked) {
            Outcome::Delay { ticket, left } => {
                Box::pin(self.hold(&ticket, left)).await;
                // Its quota has been taken.
                self.decide(&Asked { progress: Progress::Over, may_be_held: false, ..asked })
            }
            outcome => outcome,
        }
    }

    /// Until the ticket's turn, which comes within a second. The time is the waiting room's: the request
    /// begins after it.
    pub(crate) async fn hold(&mut self, ticket: &Ticket, mut left: Duration) {
        let since = self.started;
        self.worker.shared.admission.will_ask(ticket, Position::Kept, left, since);
        loop {
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
            self.started = self.worker.now();
            let status = self.worker.shared.admission.look_at(&self.config.ingress, ticket, self.started);
            match status {
                TicketStatus::Wait(wait) if is_held(wait.wait, self.started.since(since)) => left = wait.wait,
                _ => return,
            }
        }
    }

    /// The room's answer; a full room refuses.
    async fn wait_in_room(
        &mut self,
        head: &RequestHead,
        body: VisitorBody,
        waiting: WaitingAnswer,
    ) -> Answer {
        if waiting.kind == page::Kind::Full {
            self.count_shed(Event::Full);
            let after = respond::retry_after(waiting.wait).as_secs();
            self.keep_refusal(head.path(), Cause::Gate(Event::Full), after);
        }
        own(self.waiting_answer(head, body, waiting).await)
    }

    fn over_quota(&mut self, head: &RequestHead, retry_after: Duration) -> Answer {
        self.worker.count(Event::QuotaRefused);
        self.count_shed(Event::QuotaRefused);
        let after = respond::retry_after(retry_after).as_secs();
        self.keep_refusal(head.path(), Cause::Quota, after);
        self.own(respond::over_quota(retry_after), "shed")
    }

    async fn no_session_slot(
        &mut self,
        head: &RequestHead,
        body: VisitorBody,
        retry_after: Duration,
    ) -> Answer {
        self.count_shed(Event::SessionsRefused);
        let waiting = WaitingAnswer::without_position(page::Kind::Overloaded, retry_after);
        let mut answer = self.waiting_answer(head, body, waiting).await;
        self.explain(&mut answer.head.fields, Event::SessionsRefused, head.path());
        own(answer)
    }
}
