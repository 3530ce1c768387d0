//! One request under policies in force: performs what the core wants, and carries out refusals (WAC 3.3).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::uri::PathAndQuery;
use http_body::Body as _;
use tidegate_core::admission::{PolicyStep, Progress};
use tidegate_core::measure::Event;
use tidegate_core::policies::{Action, ActivePolicy, AuthoriserId, RouteId};
use tidegate_core::throttle::Throttle;
use tidegate_http::RequestHead;

use crate::config::page::Kind;
use crate::http::target;
use crate::http::visitor_body::VisitorBody;
use crate::proxy::context::RequestContext;
use crate::proxy::respond::{self, WaitingAnswer};
use crate::proxy::stages::admission::Asked;
use crate::proxy::stages::forward::{Answer, own};
use crate::proxy::stages::room::Outcome;
use crate::shared::coalesce::SharedCookies;
use crate::shared::policies::PoliciesInForce;
use crate::shared::policies::refusals::Cause;
use crate::shared::policies::stats::Done;

/// `Retry-After` of a refusal if nothing better is known: a few ticks of a rule's `until`.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The result of a policy: the decision goes on, or the request is answered.
type Performed = Result<Progress, Box<Answer>>;

impl RequestContext {
    /// What becomes of the request where policies may be in force, or be in force while it is answered.
    /// `version` is that of [`Worker::policy_version`](crate::shared::Worker::policy_version).
    ///
    /// # Errors
    /// Its answer, if a policy answers it.
    pub(crate) async fn decide_under_policies(
        &mut self,
        version: u64,
        head: &mut RequestHead,
        url_ticket: Option<&str>,
        body: &mut Option<VisitorBody>,
    ) -> Result<Outcome, Box<Answer>> {
        let is_plain = is_plain(head, body.as_ref());
        if crate::shared::policies::is_watched(version) {
            self.conn.control.take(&self.policy_request(head, is_plain));
        }
        // The version is read again: a policy that came in force since then has not seen a request that was
        // not remembered yet.
        let worker = self.worker.clone();
        let in_force = worker.policies(worker.policy_version());
        let policies = in_force.as_ref().map(|policies| &***policies);
        let mut progress = Progress::Start;
        loop {
            let may_be_held = false;
            let outcome = self.decide(&Asked { head, url_ticket, policies, is_plain, progress, may_be_held });
            if let (Outcome::RefusedByThrottle { throttle, retry_after }, Some(policies)) =
                (&outcome, policies)
                && let Some(active) = policies.set.throttles().get(*throttle)
            {
                return Err(self.refuse_type(&active.throttle, *retry_after, head, body).await);
            }
            let (
                Outcome::Perform { policy: at, .. } | Outcome::RefusedByPolicy { policy: at, .. },
                Some(policies),
            ) = (&outcome, policies)
            else {
                return Ok(outcome);
            };
            let at = *at;
            let Some(policy) = policies.set.get(at) else { return Ok(outcome) };
            progress = match outcome {
                Outcome::Perform { step, .. } => self.perform(policies, policy, at, step, head).await?,
                Outcome::RefusedByPolicy { retry_after, .. } => {
                    self.refuse(policies, policy, retry_after, head, body).await?
                }
                other => return Ok(other),
            };
        }
    }

    async fn perform(
        &mut self,
        policies: &PoliciesInForce,
        policy: &ActivePolicy,
        at: usize,
        step: PolicyStep,
        head: &mut RequestHead,
    ) -> Performed {
        self.is_prompt = false;
        match step {
            PolicyStep::Authorise(authoriser) => {
                policies.count(policy, Done::Ask);
                let agrees = self.authorise(authoriser, head).await;
                Ok(if agrees { Progress::After(at) } else { Progress::Denied(at) })
            }
            PolicyStep::Coalesce { period } => {
                match self.share(head, period, SharedCookies::of(policy)).await {
                    Some(response) => {
                        policies.count(policy, Done::Multicast);
                        self.conn.control.share();
                        Err(Box::new(response))
                    }
                    None => Ok(Progress::After(at)),
                }
            }
            PolicyStep::Reroute(route) => match self.reroute(route, head) {
                Rerouted::Already => Ok(Progress::After(at)),
                rerouted => {
                    policies.count(policy, Done::Reroute);
                    self.rerouted(rerouted)
                }
            },
        }
    }

    /// Whether the authoriser agrees. From then on the request is of the level and the class that it names.
    async fn authorise(&mut self, authoriser: AuthoriserId, head: &RequestHead) -> bool {
        let Some(one) = self.config.applications.get(usize::from(authoriser.0)).cloned() else { return true };
        let verdict = one.ask(head, self.client, &self.worker.shared.clock).await;
        let tier = verdict.tier.as_deref().map(|name| self.config.tiers.by_name(name));
        let class = verdict.class.as_deref().map(|name| self.config.named(name));
        if tier == Some(None) || class == Some(None) {
            one.counts.unknown.fetch_add(1, Relaxed);
            let (tier, class) = (verdict.tier.as_deref(), verdict.class.as_deref());
            tracing::debug!(
                application = one.settings.name,
                tier,
                class,
                "a verdict names what is not there"
            );
        }
        if let Some(Some(tier)) = tier {
            self.tier = tier;
            self.class = self.config.class_of(head, self.client, tier);
        }
        if let Some(Some(class)) = class {
            self.class = class;
        }
        verdict.is_yes
    }

    async fn refuse(
        &mut self,
        policies: &PoliciesInForce,
        policy: &ActivePolicy,
        retry_after: Option<Duration>,
        head: &mut RequestHead,
        body: &mut Option<VisitorBody>,
    ) -> Performed {
        let done = Done::from(policy.action);
        policies.count(policy, done);
        let wait = retry_after.unwrap_or(RETRY_AFTER);
        let record = policies.record_of(policy).cloned();
        if let Some(record) = &record {
            let cause = Cause::Rule(record.clone(), done);
            self.keep_refusal(head.path(), cause, respond::retry_after(wait).as_secs());
        }
        if let Action::Lighter(route) = policy.action
            && is_plain(head, body.as_ref())
        {
            return match self.reroute(route, head) {
                // A request for the lighter URL itself passes.
                Rerouted::Already => Ok(Progress::Over),
                rerouted => self.rerouted(rerouted),
            };
        }
        self.worker.count(Event::RuleRefused);
        self.count_shed(Event::RuleRefused);
        let name = record.as_ref().map_or("", |record| &record.rule);
        let mut answer = match policy.action {
            Action::Answer { status } => respond::refused(status, name, &self.id, wait),
            Action::Page { status } => match body.take() {
                Some(body) => {
                    let w = WaitingAnswer {
                        status: Some(status),
                        ..WaitingAnswer::without_position(Kind::Overloaded, wait)
                    };
                    let mut answer = self.waiting_answer(head, body, w).await;
                    self.tell(&mut answer.head.fields, record.as_ref(), done);
                    return Err(Box::new(own(answer)));
                }
                None => respond::refused(status, name, &self.id, wait),
            },
            // A form's data cannot be sent elsewhere.
            Action::Lighter(_) => respond::refused(503, name, &self.id, wait),
            Action::Close => {
                self.conn.link.mute();
                respond::unsent()
            }
            Action::Reset | Action::Stop => {
                self.conn.link.abort();
                self.conn.control.reset();
                respond::unsent()
            }
            Action::End => {
                // Counted above: the connection's task must not count it again.
                self.conn.control.note_order(policy.action);
                let mut answer = respond::refused(503, name, &self.id, wait);
                respond::close(&mut answer.head);
                answer
            }
        };
        self.tell(&mut answer.head.fields, record.as_ref(), done);
        Err(Box::new(self.own(answer, "refused")))
    }

    /// Refuses a request of a type that is throttled: browsers get the page, programs a problem.
    async fn refuse_type(
        &mut self,
        throttle: &Arc<Throttle>,
        retry_after: Option<Duration>,
        head: &RequestHead,
        body: &mut Option<VisitorBody>,
    ) -> Box<Answer> {
        let wait = retry_after.unwrap_or(RETRY_AFTER);
        let cause = Cause::Throttle(throttle.clone());
        self.keep_refusal(head.path(), cause, respond::retry_after(wait).as_secs());
        self.worker.count(Event::ThrottleRefused);
        self.count_shed(Event::ThrottleRefused);
        let mut answer = match body.take().filter(|_| self.kind.wants_html) {
            Some(body) => {
                let page = WaitingAnswer::without_position(Kind::Overloaded, wait);
                own(self.waiting_answer(head, body, page).await)
            }
            None => self.own(respond::refused_by_throttle(&throttle.name, &self.id, wait), "refused"),
        };
        self.tell_throttle(&mut answer.head.fields, throttle);
        Box::new(answer)
    }

    fn rerouted(&mut self, rerouted: Rerouted) -> Performed {
        match rerouted {
            Rerouted::Elsewhere(location) => {
                Err(Box::new(self.own(respond::lighter(location.as_str()), "rerouted")))
            }
            Rerouted::Here | Rerouted::Already => Ok(Progress::Over),
        }
    }

    /// Has a lighter URL served under the one asked for, or says where it is.
    fn reroute(&mut self, route: RouteId, head: &mut RequestHead) -> Rerouted {
        let Some(lighter) = self.config.settings.lighter.get(usize::from(route.0)) else {
            return Rerouted::Already;
        };
        let Some(target) = target::lighter(head, &lighter.to) else { return Rerouted::Already };
        if target.path() == head.path() {
            return Rerouted::Already;
        }
        if lighter.redirect {
            return Rerouted::Elsewhere(target);
        }
        head.set_target(target.as_str());
        // From here on it costs what the lighter URL costs.
        self.class = self.config.class_of(head, self.client, self.tier);
        Rerouted::Here
    }
}

/// The method is safe and there is no body: another URL or another request's answer may serve it.
pub(crate) fn is_plain(head: &RequestHead, body: Option<&VisitorBody>) -> bool {
    head.method().is_safe() && body.is_none_or(VisitorBody::is_end_stream)
}

enum Rerouted {
    /// The request is for the lighter URL already, or there is none.
    Already,
    Here,
    Elsewhere(PathAndQuery),
}
