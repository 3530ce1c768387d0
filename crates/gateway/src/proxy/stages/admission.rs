//! Asks the core for the decision on a request, and makes the cookies and tickets that go with it. Everything
//! is decided by [`tidegate_core::admission::decide`]; what it wants to know of a request is read from the
//! head here, where it is asked for.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngCore;
use tidegate_core::admission::{
    self, Decision, EnteredBy, Facts, PAGE_IDLE, Presented, Process, Progress, Requester,
};
use tidegate_core::measure::Event;
use tidegate_core::policies::{ActivePolicy, PolicyRequest};
use tidegate_core::session::{SessionKey, SessionRequest};
use tidegate_core::ticket::{Pass, Ticket};
use tidegate_core::units::Timestamp;
use tidegate_http::RequestHead;
use tidegate_settings::{Role, Unit};

use crate::config::Config;
use crate::config::page::Kind;
use crate::http::target;
use crate::proxy::context::RequestContext;
use crate::proxy::cookies::SetCookies;
use crate::proxy::navigation::{comes_from_here, program};
use crate::proxy::stages::room::{Claiming, Outcome, RoomStage, Visitor, people_ahead};
use crate::shared::policies::stats::Done;
use crate::shared::policies::{PoliciesInForce, PolicyRecord};

pub(crate) struct Asked<'a> {
    pub(crate) head: &'a RequestHead,
    pub(crate) url_ticket: Option<&'a str>,
    pub(crate) policies: Option<&'a PoliciesInForce>,
    /// Its answer may be another's; only looked at where policies are in force.
    pub(crate) is_plain: bool,
    pub(crate) progress: Progress,
    /// It can be held for a moment.
    pub(crate) may_be_held: bool,
}

impl RequestContext {
    pub(crate) fn decide(&mut self, asked: &Asked<'_>) -> Outcome {
        let worker = self.worker.clone();
        let waiting_since_us = worker.shared.busy_since_us.load(Ordering::Relaxed);
        let process = Process {
            settings: self.config.admission_settings(),
            admission: &worker.shared.admission,
            ingress: &self.config.ingress,
            sessions: self.session.is_some().then_some(&worker.shared.sessions.table),
            policies: asked.policies.map(|policies| &policies.set),
            shadow: self.config.shadow(&worker.shared.shadow_room),
            waiting_since: (waiting_since_us != 0).then(|| Timestamp::from_micros(waiting_since_us)),
        };
        let request = self.policy_request(asked.head, asked.is_plain);
        let facts = self.config.facts(request, self.kind.is_part_of_page, self.started);
        let head = Head::new(self, asked);
        let decision = admission::decide(&process, &Facts { progress: asked.progress, ..facts }, &head);
        let (begun, shadow) = (head.begun.take(), head.shadow.take());
        let shaped = head.shaped.get().and_then(|at| asked.policies?.set.throttles().get(at));
        let shaped = shaped.map(|active| active.throttle.clone());
        let outcome = self.outcome(decision, &head, begun.as_ref().map(SessionRequest::key));
        if let Some(request) = begun {
            self.begins_session(&asked.head.fields, request);
        }
        self.shadow = shadow.or(self.shadow.take());
        self.shaped = shaped.or(self.shaped.take());
        outcome
    }

    /// The cookies and tickets of a decision. `begun`: the session that has begun with it.
    fn outcome(&self, decision: Decision, head: &Head<'_>, begun: Option<SessionKey>) -> Outcome {
        let (worker, config, class) = (&self.worker, &self.config, self.class);
        let mut rng = worker.rng.borrow_mut();
        let admission = &worker.shared.admission;
        let mut stage = RoomStage { admission, config, rng: &mut rng, now: self.started };
        let wait = |answer| Outcome::Wait(Box::new(answer));
        match decision {
            Decision::Enter { by } => {
                let cookies = self.cookies_at_entry(&mut stage, head, by, begun);
                self.note_page(head, by);
                let ticket = if let EnteredBy::Ticket(ticket) = by { Some(ticket) } else { None };
                Outcome::Enter { by: by.event(), cookies, ticket }
            }
            Decision::SendOn { ticket, redeemed } => {
                if let Some(ticket) = &redeemed {
                    worker.shared.redeemed.note(ticket, self.started);
                }
                let visitor = head.visitor();
                let mut cookies = SetCookies::default();
                if redeemed.is_some() {
                    cookies.clear_ticket(config.class(class).mark, visitor.secure);
                }
                elsewhere(config, Some(stage.ticket_to_check(&ticket, visitor)), cookies)
            }
            Decision::Delay { ticket, left } => Outcome::Delay { ticket, left },
            Decision::AskOwner { ticket, owner, waits } => {
                Outcome::AskOwner(Claiming { ticket, owner, waits })
            }
            Decision::SendOnUnasked | Decision::SendBack => elsewhere(config, None, SetCookies::default()),
            Decision::SendToRebind => {
                let (ticket, cookies) = stage.rebinding(head.visitor());
                elsewhere(config, ticket, cookies)
            }
            Decision::ShowCleanUrl => {
                let cookies = SetCookies::default();
                Outcome::Elsewhere { base: String::new(), ticket: None, cookies }
            }
            Decision::Wait { ticket, wait: told, position } => {
                wait(stage.waits(position, &ticket, told, head.visitor()))
            }
            Decision::Hold { wait: told, waited } => {
                let mut answer = stage.told(Kind::Unavailable, told.wait, people_ahead(&told), waited);
                if let Presented::Ticket(ticket) = head.ticket() {
                    stage.keeps(&mut answer, &ticket, head.visitor());
                }
                wait(answer)
            }
            Decision::Full { retry_after } => wait(stage.told(Kind::Full, retry_after, 0, Duration::ZERO)),
            Decision::Forbidden => wait(stage.forbidden(class, head.visitor())),
            Decision::Throttled { retry_after } => Outcome::Throttled { retry_after },
            Decision::NoSessionSlot { retry_after } => Outcome::NoSessionSlot { retry_after },
            Decision::OverQuota { retry_after } => Outcome::OverQuota { retry_after },
            Decision::Perform { policy, step } => Outcome::Perform { policy, step },
            Decision::RefusedByThrottle { throttle, retry_after } => {
                Outcome::RefusedByThrottle { throttle, retry_after }
            }
            Decision::RefusedByPolicy { policy, retry_after } => {
                Outcome::RefusedByPolicy { policy, retry_after }
            }
        }
    }

    fn cookies_at_entry(
        &self,
        stage: &mut RoomStage<'_>,
        head: &Head<'_>,
        by: EnteredBy,
        begun: Option<SessionKey>,
    ) -> SetCookies {
        let hands_out = match by {
            EnteredBy::Ticket(_) => true,
            EnteredBy::Room | EnteredBy::Ingress => {
                begun.is_some() || head.visitor().cookies.ticket.is_some()
            }
            EnteredBy::Unasked => begun.is_some(),
            EnteredBy::Session | EnteredBy::PartOfPage => false,
        };
        match by {
            EnteredBy::Session => self.renewal(stage, head),
            _ if hands_out => stage.entry_cookies(self.class, head.visitor(), begun),
            EnteredBy::Room | EnteredBy::Ingress | EnteredBy::PartOfPage => self.page_pass(stage, head, by),
            EnteredBy::Ticket(_) | EnteredBy::Unasked => SetCookies::default(),
        }
    }

    /// The pass of a session that goes on, if it is due for renewal or has not reached the visitor yet.
    fn renewal(&self, stage: &mut RoomStage<'_>, head: &Head<'_>) -> SetCookies {
        let mut cookies = SetCookies::default();
        let Some(session) = &self.session else { return cookies };
        if session.ticket_key.is_some() && session.key == session.ticket_key {
            return stage.entry_cookies(self.class, head.visitor(), session.key);
        }
        let rules = self.config.session_rules();
        if let Some(pass) = session.pass.filter(|pass| rules.is_due_for_renewal(pass, self.started)) {
            stage.hand_out(&Pass { issued: self.started, ..pass }, head.visitor(), &mut cookies);
        }
        cookies
    }

    /// Where requests are admitted, a page that did not wait gets a pass too: its parts are still to come
    /// when a crowd does. A part renews the pass of its page. One answer in a while carries a cookie, so that
    /// a shared cache in front may keep the others.
    fn page_pass(&self, stage: &mut RoomStage<'_>, head: &Head<'_>, by: EnteredBy) -> SetCookies {
        let mut cookies = SetCookies::default();
        if !self.has_page_passes() {
            return cookies;
        }
        let now = self.started;
        let shown = head.visitor().pass(&self.config).filter(|pass| now.since(pass.issued) <= PAGE_IDLE);
        let pass = match shown {
            Some(pass) => admission::is_page_pass_due(&pass, now).then_some(Pass { issued: now, ..pass }),
            None if by != EnteredBy::PartOfPage && self.kind.wants_html => {
                Some(stage.new_page_pass(self.class))
            }
            None => None,
        };
        if let Some(pass) = pass {
            stage.hand_out(&pass, head.visitor(), &mut cookies);
        }
        cookies
    }

    /// Whether pages have passes: requests are admitted, and parts of pages pass with their page.
    fn has_page_passes(&self) -> bool {
        self.config.settings.room.unit == Unit::Request && self.config.all_navigations
    }

    /// Notes the page of a client without cookies, and that a part of it was asked for.
    fn note_page(&self, head: &Head<'_>, by: EnteredBy) {
        let is_page = match by {
            EnteredBy::Ticket(_) | EnteredBy::Room | EnteredBy::Ingress => self.kind.wants_html,
            EnteredBy::PartOfPage => head.is_page_noted(),
            EnteredBy::Session | EnteredBy::Unasked => false,
        };
        if is_page && self.has_page_passes() && head.visitor().cookies.are_none() {
            self.worker.shared.sessions.pages.note(
                self.client,
                program(&head.asked.head.fields),
                self.started,
            );
        }
    }

    pub(crate) fn policy_request<'p>(&self, head: &'p RequestHead, is_plain: bool) -> PolicyRequest<'p> {
        PolicyRequest {
            path: head.path(),
            query: head.query().unwrap_or_default(),
            class: self.class,
            cost: self.cost(),
            tier: self.tier,
            visitor: self.visitor_number(),
            is_new_session: !self.is_session_admitted(),
            is_plain,
        }
    }
}

/// To the other process of the two-process form.
fn elsewhere(config: &Config, ticket: Option<String>, cookies: SetCookies) -> Outcome {
    let base = match &config.settings.role {
        Role::TokenGen { check_url, .. } => check_url,
        Role::TokenCheck { gen_url, .. } => gen_url,
        Role::Gate => unreachable!("a single process sends nobody on"),
    };
    Outcome::Elsewhere { base: base.clone(), ticket, cookies }
}

pub(crate) struct Head<'a> {
    context: &'a RequestContext,
    asked: &'a Asked<'a>,
    visitor: OnceCell<Visitor<'a>>,
    begun: Cell<Option<SessionRequest>>,
    shadow: Cell<Option<Arc<PolicyRecord>>>,
    /// The throttle whose bandwidth the answer is part of, by its position.
    shaped: Cell<Option<usize>>,
}

impl<'a> Head<'a> {
    fn new(context: &'a RequestContext, asked: &'a Asked<'a>) -> Self {
        let (begun, shadow, shaped) = (Cell::default(), Cell::default(), Cell::default());
        Self { context, asked, visitor: OnceCell::new(), begun, shadow, shaped }
    }

    /// The visitor's ticket and session, read once.
    pub(crate) fn visitor(&self) -> &Visitor<'a> {
        self.visitor.get_or_init(|| self.context.visitor(&self.asked.head.fields, self.asked.url_ticket))
    }

    /// Whether the ticket in the URL might be good if it were bound to a cookie instead of an address. Where
    /// the operator wants tickets bound to addresses and nothing else, none is.
    fn may_rebind(&self) -> bool {
        let settings = &self.context.config.settings;
        matches!(settings.role, Role::TokenCheck { .. })
            && settings.room.binding == tidegate_settings::Binding::Cookie
            && self.visitor().url_ticket.is_some_and(|text| Ticket::is_for_an_address(text.as_bytes()))
    }

    /// The pass of a page of a client without cookies.
    fn noted_pass(&self) -> Option<Pass> {
        let fields = &self.asked.head.fields;
        let is_noted =
            self.context.has_page_passes() && self.visitor().cookies.are_none() && comes_from_here(fields);
        is_noted
            .then(|| self.context.worker.shared.sessions.pages.pass(self.context.client, program(fields)))?
    }

    fn is_page_noted(&self) -> bool {
        self.noted_pass().is_some_and(|pass| self.context.started.since(pass.issued) <= PAGE_IDLE)
    }

    fn record(&self, policy: &ActivePolicy) -> Option<&'a Arc<PolicyRecord>> {
        self.asked.policies?.record_of(policy)
    }
}

impl Requester for Head<'_> {
    fn ticket(&self) -> Presented {
        let visitor = self.visitor();
        match visitor.ticket(&self.context.config).shown {
            Presented::Ticket(ticket) if visitor.rebind.is_some() => Presented::Rebind(ticket),
            Presented::Forged if self.may_rebind() => Presented::OtherAddress,
            shown => shown,
        }
    }

    fn pass(&self) -> Option<Pass> {
        self.visitor().pass(&self.context.config).or_else(|| self.noted_pass())
    }

    /// The first page that a browser gets carries the ticket in its URLs, since the browser may keep no
    /// cookies. If it comes back with the cookie as well, it is shown the URL it asked for, or the ticket
    /// would stay in its address bar.
    fn shows_ticket_twice(&self) -> bool {
        let Asked { head, url_ticket, .. } = self.asked;
        url_ticket.is_some()
            && matches!(self.context.config.settings.role, Role::Gate)
            && head.method().is_safe()
            && self.context.kind.wants_html
            && target::is_local(head.path())
            && self.visitor().ticket(&self.context.config).is_twice
    }

    fn may_be_held(&self) -> bool {
        self.asked.may_be_held
    }

    /// A client with a cookie of the gate has understood an answer of the room before.
    fn can_return(&self) -> bool {
        let visitor = self.visitor();
        visitor.can_return || visitor.cookies.binding.is_some() || visitor.cookies.pass.is_some()
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.context.client)
    }

    fn is_origin_usable(&self) -> bool {
        self.context.worker.shared.replicas.any_usable()
    }

    fn new_session_key(&self) -> SessionKey {
        let Some(session) = &self.context.session else { unreachable!("sessions are counted") };
        session.offer(self.context.config.settings.session.key, &mut self.context.worker.rng.borrow_mut())
    }

    fn random(&self) -> u64 {
        self.context.worker.rng.borrow_mut().next_u64()
    }

    fn session_begins(&self, request: SessionRequest) {
        self.begun.set(Some(request));
    }

    fn is_shaped(&self, throttle: usize) {
        self.shaped.set(Some(throttle));
    }

    fn would_decide(&self, policy: &ActivePolicy) {
        if let Some(record) = self.record(policy) {
            record.stats.count_shadow();
            self.shadow.set(Some(record.clone()));
        }
    }

    fn sent_to_room(&self, policy: &ActivePolicy) {
        self.asked.policies.inspect(|policies| policies.count(policy, Done::Room));
    }

    fn count(&self, event: Event) {
        self.context.worker.count(event);
    }
}
