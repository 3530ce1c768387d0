//! One request under orders: what is decided, and how it is carried out (WAC 3.3).

use std::time::Duration;

use http::{Uri, request};
use hyper::body::{Body as _, Incoming};
use tidegate_core::policies::{Action, ActivePolicy, PolicyDecision, PolicyRequest, RouteId};

use crate::config::page::Kind;
use crate::http::target;
use crate::proxy::context::RequestContext;
use crate::proxy::respond;
use crate::proxy::respond::WaitingAnswer;
use crate::proxy::stages::forward::{Answer, own};
use crate::shared::policies::PoliciesInForce;
use crate::shared::policies::refusals::Cause;
use crate::shared::policies::stats::Done;

/// When a refused visitor is told to come again if nothing better is known: a few ticks of a rule's `until`.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What becomes of a request after the orders.
pub(crate) enum PolicyOutcome {
    /// It goes on.
    Pass,
    /// It goes on to the room, whatever its class.
    Room,
    /// This is its answer.
    Answer(Box<Answer>),
}

impl PolicyOutcome {
    fn answer(response: Answer) -> Self {
        Self::Answer(Box::new(response))
    }
}

impl RequestContext {
    /// Asks the orders in force about this request and does what they say.
    async fn obey(
        &mut self,
        standing: &PoliciesInForce,
        parts: &mut request::Parts,
        body: &mut Option<Incoming>,
        is_new_session: bool,
    ) -> PolicyOutcome {
        let is_plain = is_plain(parts, body.as_ref());
        let mut from = 0;
        loop {
            let asked = self.asked(parts, is_new_session, is_plain);
            let mut shadow = None;
            let mut see = |order: &ActivePolicy| shadow = standing.told(order).cloned();
            let decision = standing.orders.decide(&asked, from, self.started, &mut see);
            if let Some(told) = shadow {
                told.stats.count_shadow();
                self.shadow = Some(told);
            }
            from = match decision {
                PolicyDecision::Pass => return PolicyOutcome::Pass,
                PolicyDecision::Refuse { order, retry_after } => {
                    return self.refuse(standing, order, retry_after, parts, body).await;
                }
                PolicyDecision::Room { order } if self.config.settings.room.enabled => {
                    count(standing, order, Done::Room);
                    return PolicyOutcome::Room;
                }
                PolicyDecision::Room { order } => {
                    return self.refuse(standing, order, None, parts, body).await;
                }
                PolicyDecision::Reroute { order, route } => match self.reroute(route, parts) {
                    Rerouted::Already => standing.after(order),
                    rerouted => {
                        count(standing, order, Done::Reroute);
                        return self.rerouted(rerouted);
                    }
                },
                PolicyDecision::Ask { order, application, next } => {
                    count(standing, order, Done::Ask);
                    if !self.ask(application, parts).await {
                        return self.refuse(standing, order, None, parts, body).await;
                    }
                    next
                }
                PolicyDecision::Multicast { order, period } => match self.share(parts, period).await {
                    Some(response) => {
                        count(standing, order, Done::Multicast);
                        self.conn.control.share();
                        return PolicyOutcome::answer(response);
                    }
                    // Not to be shared: it goes on as if this order were none.
                    None => standing.after(order),
                },
            };
        }
    }

    /// Remembers the request for orders that come while it is answered, and does what those in force say. `word` is what
    /// [`Worker::orders`](crate::shared::Worker::orders) said.
    pub(crate) async fn ordered(
        &mut self,
        word: u64,
        parts: &mut request::Parts,
        body: &mut Option<Incoming>,
    ) -> PolicyOutcome {
        let is_new_session = !self.is_session_admitted();
        if crate::shared::policies::is_watched(word) {
            let asked = self.asked(parts, is_new_session, is_plain(parts, body.as_ref()));
            self.conn.control.take(&asked, parts.uri.path_and_query());
        }
        // Again: an order that came meanwhile has not asked about a request that it could not know of.
        let worker = self.worker.clone();
        match worker.policies(worker.policy_version()) {
            Some(standing) => self.obey(&standing, parts, body, is_new_session).await,
            None => PolicyOutcome::Pass,
        }
    }

    fn asked<'p>(
        &self,
        parts: &'p request::Parts,
        is_new_session: bool,
        is_plain: bool,
    ) -> PolicyRequest<'p> {
        PolicyRequest {
            path: parts.uri.path(),
            class: self.class,
            cost: self.config.class(self.class).cost,
            tier: self.tier,
            is_new_session,
            is_plain,
        }
    }

    async fn ask(&self, application: tidegate_core::policies::AuthoriserId, parts: &request::Parts) -> bool {
        let Some(asker) = self.config.applications.get(usize::from(application.0)) else { return true };
        asker.ask(parts, self.client, &self.worker.shared.clock).await
    }

    async fn refuse(
        &mut self,
        standing: &PoliciesInForce,
        order: &ActivePolicy,
        retry_after: Option<Duration>,
        parts: &mut request::Parts,
        body: &mut Option<Incoming>,
    ) -> PolicyOutcome {
        let done = Done::from(order.action);
        count(standing, order, done);
        let wait = retry_after.unwrap_or(RETRY_AFTER);
        let told = standing.told(order).cloned();
        if let Some(told) = &told {
            let cause = Cause::Rule(told.clone(), done);
            self.keep_refusal(parts.uri.path(), cause, respond::retry_after(wait).as_secs());
        }
        let name = told.as_ref().map_or("", |told| &told.rule);
        let mut response = match order.action {
            Action::Answer { status } => respond::refused(status, name, &self.id, wait),
            Action::Page { status } => match body.take() {
                Some(body) => {
                    let w = WaitingAnswer {
                        status: Some(status),
                        ..WaitingAnswer::without_position(Kind::Overloaded, wait)
                    };
                    let mut response = self.waiting_answer(parts, body, w).await;
                    self.tell(response.headers_mut(), told.as_ref(), done);
                    return PolicyOutcome::answer(own(response));
                }
                None => respond::refused(status, name, &self.id, wait),
            },
            Action::Lighter(route) if is_plain(parts, body.as_ref()) => {
                return match self.reroute(route, parts) {
                    // Who asks for the lighter URL itself has it.
                    Rerouted::Already => PolicyOutcome::Pass,
                    rerouted => self.rerouted(rerouted),
                };
            }
            // A form's data cannot be sent elsewhere.
            Action::Lighter(_) => respond::refused(503, name, &self.id, wait),
            Action::Close => {
                self.conn.wire.mute();
                respond::unsent()
            }
            Action::Reset | Action::Stop => {
                self.conn.wire.abort();
                self.conn.control.reset();
                respond::unsent()
            }
            Action::End => {
                let mut response = respond::refused(503, name, &self.id, wait);
                respond::close(&mut response);
                response
            }
        };
        self.tell(response.headers_mut(), told.as_ref(), done);
        PolicyOutcome::answer(self.own(response, "refused"))
    }

    fn rerouted(&mut self, rerouted: Rerouted) -> PolicyOutcome {
        match rerouted {
            Rerouted::Elsewhere(location) => {
                PolicyOutcome::answer(self.own(respond::lighter(&location), "rerouted"))
            }
            Rerouted::Here | Rerouted::Already => PolicyOutcome::Pass,
        }
    }

    /// Has a lighter URL served under the one asked for, or says where it is.
    fn reroute(&mut self, route: RouteId, parts: &mut request::Parts) -> Rerouted {
        let Some(lighter) = self.config.settings.lighter.get(usize::from(route.0)) else {
            return Rerouted::Already;
        };
        let Some(uri) = target::lighter(&parts.uri, &lighter.to) else { return Rerouted::Already };
        if uri.path() == parts.uri.path() {
            return Rerouted::Already;
        }
        if lighter.redirect {
            return Rerouted::Elsewhere(uri);
        }
        parts.uri = uri;
        // What it costs is the lighter URL's.
        self.class = self.config.class_of(parts, self.client, self.tier);
        Rerouted::Here
    }
}

fn count(standing: &PoliciesInForce, order: &ActivePolicy, done: Done) {
    if let Some(told) = standing.told(order) {
        told.stats.count(done);
    }
}

/// The method is safe and there is no body: nothing is lost if another URL answers, or another's answer is given.
pub(crate) fn is_plain(parts: &request::Parts, body: Option<&Incoming>) -> bool {
    parts.method.is_safe() && body.is_none_or(Incoming::is_end_stream)
}

enum Rerouted {
    /// The request is for the lighter URL already, or there is none.
    Already,
    /// The request is now for the lighter URL.
    Here,
    /// The visitor is sent there.
    Elsewhere(Uri),
}
