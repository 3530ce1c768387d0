//! A request arrives: its facts are gathered, the core decides ([`tidegate_core::admission::decide`]), and
//! the decision is performed, as the gateway does with cookies and pages.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore};
use tidegate_core::admission::{
    self, Decision, EnteredBy, Position, Presented, Process, Progress, Requester,
};
use tidegate_core::measure::Event;
use tidegate_core::policies::{Action, ActivePolicy, PolicyRequest, PolicySet, TierId, visitor_number};
use tidegate_core::room::{self, TicketStatus, Wait};
use tidegate_core::session::{SessionKey, SessionRequest};
use tidegate_core::ticket::{Binding, Pass, Presenter, Ticket};
use tidegate_core::units::{ClassId, Cost};
use tidegate_gateway::config::page;
use tidegate_gateway::proxy::respond;
use tidegate_gateway::proxy::stages::poll;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_settings::Binding as Bound;

use super::LATENCY_US;
use super::process::GateProcess;
use super::request::{Passage, SessionOf};
use super::trace::What;
use super::world::{Item, World};
use crate::answer::{Answer, RoomStatus, State};
use crate::cookie_jar::altered;
use crate::oracle::{Decided, Entry};
use crate::visitor_events::{Failure, RequestKind};

/// `Retry-After` of a refusal by a policy, if nothing better is known; as in the gateway.
const RETRY_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Caller {
    pub(crate) client: u32,
    pub(crate) ask: RequestKind,
    pub(crate) kind: u32,
    pub(crate) step: u8,
    pub(crate) is_part: bool,
    pub(crate) class: ClassId,
    pub(crate) cost: Cost,
    pub(crate) tier: TierId,
    pub(crate) process: usize,
    /// Since it was sent.
    pub(crate) held: Duration,
}

fn is_lighter(in_force: Option<&PolicySet>, policy: usize) -> bool {
    let policy = in_force.and_then(|policies| policies.get(policy));
    policy.is_some_and(|policy| matches!(policy.action, Action::Lighter(_)))
}

struct Head<'a> {
    process: &'a GateProcess,
    replicas: &'a Replicas,
    now_us: u64,
    rng: RefCell<&'a mut SmallRng>,
    client: u32,
    shown: Presented,
    pass: Option<Pass>,
    begun: Cell<Option<SessionRequest>>,
    was_sent_to_room: Cell<bool>,
    may_be_held: bool,
}

impl Requester for Head<'_> {
    fn ticket(&self) -> Presented {
        self.shown
    }

    fn pass(&self) -> Option<Pass> {
        self.pass
    }

    fn can_return(&self) -> bool {
        true
    }

    fn is_origin_usable(&self) -> bool {
        self.replicas.any_usable_at(|| self.now_us)
    }

    fn new_session_key(&self) -> SessionKey {
        self.process.new_key(self.client, &mut self.rng.borrow_mut())
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }

    fn session_begins(&self, request: SessionRequest) {
        self.begun.set(Some(request));
    }

    fn may_be_held(&self) -> bool {
        self.may_be_held
    }

    fn would_decide(&self, _: &ActivePolicy) {}

    fn sent_to_room(&self, _: &ActivePolicy) {
        self.was_sent_to_room.set(true);
    }

    fn count(&self, event: Event) {
        self.process.shard.count(event);
    }
}

impl World<'_> {
    pub(crate) fn visit(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let (ask, kind, step) = (client.visitor.ask(), client.visitor.kind(), client.visitor.step());
        let (hopped, was_held) = (client.take_hop(), client.take_held_back());
        let held = Duration::from_micros(self.now_us).saturating_sub(client.visitor.at());
        let ticket = match ask {
            RequestKind::Replayed => client.used(),
            _ => client.held(),
        };
        if matches!(ask, RequestKind::Tampered | RequestKind::Replayed) && ticket.is_none() {
            let now = client.visitor.at();
            let reaction = client.visitor.skip_attack(&self.mix, now);
            return self.goes_on(number, reaction.next, now);
        }
        let process = if client.is_at_check() { 1 } else { 0 };
        if !hopped && !was_held {
            self.tally.sent(ask, client.visitor.at(), client.visitor.at());
        }
        let what = match ask {
            RequestKind::Page => What::Asks,
            RequestKind::Status => What::Polls,
            RequestKind::Tampered => What::Tampers,
            RequestKind::Replayed => What::Replays,
        };
        if !was_held {
            self.trace.step(self.now_us, what, number, u64::from(step));
        }
        if self.processes.is_empty() {
            return self.straight_to_the_origin(number);
        }
        if self.gate_is_down() {
            return self.reply(number, Err(Failure::Connect));
        }
        let route = &self.routes[kind as usize][usize::from(step)];
        let (class, tier) = (route.class, self.tiers[kind as usize]);
        let cost = self.processes[process].cost(class);
        let caller =
            Caller { client: number, ask, kind, step, is_part: false, class, cost, tier, process, held };
        if ask == RequestKind::Status {
            return self.news(&caller, ticket);
        }
        if !was_held {
            self.processes[process].shard.arrived(caller.class);
        }
        let request = self.recognise(number, process, ask);
        let shown = match (ticket, ask) {
            (None, _) => Presented::Nothing,
            (Some(ticket), RequestKind::Page | RequestKind::Status) => Presented::Ticket(ticket),
            (Some(ticket), RequestKind::Tampered | RequestKind::Replayed) => {
                self.seal_and_open(&caller, &ticket)
            }
        };
        let (decided, begun) = self.decide(&caller, shown, None, request.is_none());
        let decision = decided.decision;
        match request {
            Some(request) if decision == (Decision::Enter { by: EnteredBy::Session }) => {
                return self.goes_on_with_session(&caller, request);
            }
            request => self.finished(number, request),
        }
        self.perform_decision(&caller, decision, shown, begun);
    }

    /// The core's decision, and the request of the session that begins with it. Policies that are performed
    /// outside have no effect here: authorisers agree, no answer is shared, no lighter URL is served.
    pub(crate) fn decide(
        &mut self,
        caller: &Caller,
        shown: Presented,
        pass: Option<Pass>,
        is_new_session: bool,
    ) -> (Decided, Option<SessionRequest>) {
        let process = &self.processes[caller.process];
        let in_force = process.policies_in_force();
        let here = Process {
            settings: process.config.admission_settings(),
            admission: &process.admission,
            ingress: &process.config.ingress,
            sessions: process.sessions.as_deref(),
            policies: in_force,
            waiting_since: process.waiting_since,
            shadow: process.config.shadow(&process.shadow_room),
        };
        let routes = if caller.is_part { &self.part_routes } else { &self.routes };
        let request = PolicyRequest {
            path: &routes[caller.kind as usize][usize::from(caller.step)].url_path,
            query: "",
            class: caller.class,
            cost: caller.cost,
            tier: caller.tier,
            visitor: visitor_number(caller.client.into()),
            is_new_session,
            is_plain: true,
        };
        let head = Head {
            process,
            replicas: &self.replicas,
            now_us: self.now_us,
            rng: RefCell::new(&mut self.rng),
            client: caller.client,
            shown,
            pass,
            begun: Cell::default(),
            was_sent_to_room: Cell::default(),
            may_be_held: !caller.is_part && in_force.is_none() && room::is_held(Duration::ZERO, caller.held),
        };
        let mut facts = process.config.facts(request, caller.is_part, process.now(self.now_us));
        let decision = loop {
            let decision = admission::decide(&here, &facts, &head);
            facts.progress = match decision {
                Decision::Perform { policy, .. } => Progress::After(policy),
                Decision::RefusedByPolicy { policy, .. } if is_lighter(in_force, policy) => Progress::Over,
                decision => break decision,
            };
        };
        let decided = Decided { decision, was_sent_to_room: head.was_sent_to_room.get() };
        let begun = head.begun.take();
        self.oracle.under_policies(in_force, &request, &decided);
        if facts.skips_room {
            self.oracle.skips_room(caller.client, &decided);
        }
        (decided, begun)
    }

    fn perform_decision(
        &mut self,
        caller: &Caller,
        decision: Decision,
        shown: Presented,
        begun: Option<SessionRequest>,
    ) {
        let (number, at) = (caller.client, self.now_us);
        match decision {
            Decision::Enter { by } => self.enter(caller, by, shown, begun),
            Decision::SendOn { ticket, redeemed } => {
                if let Some(shown) = redeemed {
                    self.oracle.sent_on(&shown, &self.processes, at);
                }
                self.send_on(caller, Some(ticket));
            }
            Decision::SendOnUnasked => self.send_on(caller, None),
            Decision::SendToRebind => unreachable!("visitors of the simulator have one address each"),
            Decision::AskOwner { .. } => unreachable!("the simulator has one tokencheck"),
            Decision::Delay { ticket, left } => self.hold_back(caller, &ticket, left),
            Decision::SendBack => {
                self.trace.step(at, What::SentBack, number, 0);
                if caller.ask != RequestKind::Page {
                    return self.reply(number, Ok(Answer::Refused(302)));
                }
                if let Some(client) = self.clients.get_mut(number) {
                    client.go_to_check(false);
                    client.drop_ticket();
                    client.hop();
                }
                self.agenda.push(at + 2 * LATENCY_US, Item::Visit(number));
            }
            Decision::Wait { ticket, wait, position } => self.told_to_wait(caller, &ticket, &wait, position),
            Decision::Hold { wait, .. } => {
                self.trace.step(at, What::Held, number, 0);
                self.oracle.held(number);
                let answer = self.wait_answer(caller, wait.wait, true);
                self.reply(number, Ok(answer));
            }
            Decision::Full { retry_after } => {
                self.trace.step(at, What::Full, number, 0);
                let answer = self.wait_answer(caller, retry_after, false);
                self.reply(number, Ok(answer));
            }
            Decision::Throttled { .. }
            | Decision::NoSessionSlot { .. }
            | Decision::RefusedByThrottle { .. } => self.refuse(number, What::Shed, 503),
            Decision::OverQuota { .. } => self.refuse(number, What::Shed, 429),
            Decision::Forbidden => self.refuse(number, What::Forbidden, 403),
            Decision::RefusedByPolicy { policy, retry_after } => {
                self.trace.step(at, What::PolicyRefuses, number, policy as u64);
                let outcome = self.refusal(caller, policy, retry_after);
                self.reply(number, outcome);
            }
            Decision::Perform { .. } | Decision::ShowCleanUrl => {
                unreachable!("policies have been performed, and no ticket stands in a URL")
            }
        }
    }

    /// Looks again when the visitor's turn should have come.
    fn hold_back(&mut self, caller: &Caller, ticket: &Ticket, left: Duration) {
        let number = caller.client;
        if let Some(client) = self.clients.get_mut(number) {
            client.hold_back();
        }
        // Not when it is looked at again.
        if caller.held < room::LOOK_AGAIN {
            let process = &self.processes[caller.process];
            process.admission.will_ask(ticket, Position::Kept, left, process.now(self.now_us));
        }
        let again_us = (left.min(room::LOOK_AGAIN).as_micros() as u64).max(1);
        self.agenda.push(self.now_us + again_us, Item::Visit(number));
    }

    fn refuse(&mut self, number: u32, what: What, status: u16) {
        self.trace.step(self.now_us, what, number, 0);
        self.reply(number, Ok(Answer::Refused(status)));
    }

    fn refusal(
        &self,
        caller: &Caller,
        policy: usize,
        retry_after: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let in_force = self.processes[caller.process].policies_in_force();
        match in_force.and_then(|policies| policies.get(policy)).map(|policy| policy.action) {
            Some(Action::Answer { status }) => Ok(Answer::Refused(status)),
            Some(Action::Page { .. }) => {
                let refresh = respond::refresh(retry_after.unwrap_or(RETRY_AFTER));
                Ok(Answer::TurnedAway { after: Some(refresh), refresh: Some(refresh) })
            }
            Some(Action::Close | Action::Reset | Action::Stop) => Err(Failure::Broken),
            Some(Action::End | Action::Lighter(_)) | None => Ok(Answer::Refused(503)),
        }
    }

    fn enter(&mut self, caller: &Caller, by: EnteredBy, shown: Presented, begun: Option<SessionRequest>) {
        let (number, at, cost) = (caller.client, self.now_us, caller.cost);
        let class = u64::from(caller.class.0);
        if let Some(request) = &begun {
            self.oracle.session_begins(number, request.key(), &self.processes[caller.process], at);
        }
        let (what, more, entry) = match by {
            EnteredBy::Ticket(ticket) => {
                (What::Redeems, relative(&ticket), Entry::Ticket { ticket, process: caller.process })
            }
            EnteredBy::Room => (What::Enters, class, Entry::AtOnce { cost }),
            EnteredBy::Ingress | EnteredBy::Session | EnteredBy::PartOfPage | EnteredBy::Unasked => {
                (What::Passes, class, Entry::Unasked { cost })
            }
        };
        self.trace.step(at, what, number, more);
        self.oracle.entered(entry, &self.processes, at);
        let has_shown = shown != Presented::Nothing;
        let cookies = match by {
            EnteredBy::Ticket(_) => true,
            EnteredBy::Room | EnteredBy::Ingress => begun.is_some() || has_shown,
            EnteredBy::Unasked => begun.is_some(),
            EnteredBy::Session | EnteredBy::PartOfPage => false,
        };
        let ticket = if let EnteredBy::Ticket(ticket) = by { Some(ticket) } else { None };
        let session = begun.as_ref().map(|request| SessionOf { key: request.key(), begins: true });
        self.forward(number, Passage { ticket, cookies, session, under_way: begun });
    }

    /// A request of an admitted session passes the room and its class's bucket.
    fn goes_on_with_session(&mut self, caller: &Caller, request: SessionRequest) {
        let cost = caller.cost;
        self.trace.step(self.now_us, What::Passes, caller.client, u64::from(caller.class.0));
        self.oracle.entered(Entry::Unasked { cost }, &self.processes, self.now_us);
        let session = Some(SessionOf { key: request.key(), begins: false });
        self.forward(caller.client, Passage { session, under_way: Some(request), ..Passage::default() });
    }

    /// Sends an outcome to the visitor, who has it after the network's latency.
    pub(crate) fn reply(&mut self, number: u32, outcome: Result<Answer, Failure>) {
        self.answer(number, outcome, self.now_us + LATENCY_US);
    }

    fn told_to_wait(&mut self, caller: &Caller, ticket: &Ticket, wait: &Wait, position: Position) {
        let what = if position == Position::Kept { What::Keeps } else { What::Promised };
        self.trace.step(self.now_us, what, caller.client, relative(ticket));
        self.oracle.waits(
            caller.client,
            caller.process,
            ticket,
            wait,
            position,
            &self.processes,
            self.now_us,
        );
        if position == Position::Replaced
            && let Some(shown) =
                self.clients.get(caller.client).and_then(|client| client.held().or(client.used()))
        {
            self.oracle.called_used(&shown, caller.process);
        }
        if let Some(client) = self.clients.get_mut(caller.client)
            // A ticket in the answer to an altered one is not kept.
            && caller.ask != RequestKind::Tampered
            && position != Position::Kept
        {
            client.hold(ticket);
        }
        let answer = self.wait_answer(caller, wait.wait, true);
        if let Answer::Wait { refresh: Some(reload), poll: Some(poll), .. } = answer {
            let process = &self.processes[caller.process];
            process.admission.page_sent(ticket, position, poll, reload, process.now(self.now_us));
        }
        self.reply(caller.client, Ok(answer));
    }

    /// The waiting page, or what programs get instead.
    fn wait_answer(&mut self, caller: &Caller, wait: Duration, has_place: bool) -> Answer {
        let browser = self.mix.kinds[caller.kind as usize].browser;
        let every = self.processes[caller.process].admission.ask_every();
        let poll = page::poll_interval(wait, &every, self.rng.random());
        let reload = || Duration::from_secs(page::reload_seconds(wait, poll));
        Answer::Wait {
            has_status: has_place,
            after: Some(wait),
            refresh: browser.then(|| if has_place { reload() } else { respond::retry_after(wait) }),
            poll: browser.then_some(poll),
            full: !has_place,
        }
    }

    /// Tokengen forwards nothing itself.
    fn send_on(&mut self, caller: &Caller, ticket: Option<Ticket>) {
        self.trace.step(self.now_us, What::SentOn, caller.client, 0);
        if caller.ask != RequestKind::Page {
            // An attacker does not follow a redirect.
            return self.reply(caller.client, Ok(Answer::Refused(302)));
        }
        if let Some(client) = self.clients.get_mut(caller.client) {
            match ticket {
                Some(ticket) => client.hold(&ticket),
                None => client.drop_ticket(),
            }
            client.go_to_check(true);
            client.hop();
        }
        self.agenda.push(self.now_us + 2 * LATENCY_US, Item::Visit(caller.client));
    }

    fn news(&mut self, caller: &Caller, ticket: Option<Ticket>) {
        let process = &self.processes[caller.process];
        let now = process.now(self.now_us);
        let look = ticket.map_or(TicketStatus::Expired, |ticket| {
            process.admission.look_at(&process.config.ingress, &ticket, now)
        });
        let usable = !process.forwards() || self.replicas.any_usable_at(|| self.now_us);
        let (state, wait, _) = poll::standing(look, usable);
        if let Some(ticket) = ticket {
            self.oracle.looked(caller.client, caller.process, &ticket, &look, usable, &self.processes);
        }
        if let (Some(ticket), TicketStatus::Wait(left)) = (ticket, look)
            && usable
            && room::is_held(left.wait, caller.held)
        {
            return self.hold_back(caller, &ticket, left.wait);
        }
        let every = self.processes[caller.process].admission.ask_every();
        let poll = page::poll_interval(wait, &every, self.rng.random());
        if let (Some(ticket), TicketStatus::Wait(_)) = (&ticket, look) {
            self.processes[caller.process].admission.will_ask(ticket, Position::Kept, poll, now);
        }
        let state = match state {
            page::State::Waiting => State::Waiting,
            page::State::Ready => State::Ready,
            page::State::Expired => State::Expired,
            page::State::Redeemed => State::Redeemed,
            page::State::Full => State::Full,
            page::State::Unavailable => State::Unavailable,
        };
        self.reply(caller.client, Ok(Answer::Status(RoomStatus { state, poll, wait })));
    }

    /// How the gate reads the ticket that an attacker sends. A used one is sent as it was, an altered one
    /// with one character changed.
    fn seal_and_open(&mut self, caller: &Caller, ticket: &Ticket) -> Presented {
        let config = &self.processes[caller.process].config;
        let ip = [127, 0, 0, 1].into();
        let cookie = u128::from(caller.client).to_le_bytes();
        let binding = match config.settings.room.binding {
            Bound::None => Binding::None,
            Bound::Ip => Binding::Ip(ip),
            Bound::IpPrefix => Binding::IpPrefix(ip),
            Bound::Cookie => Binding::Cookie(cookie),
        };
        let mut text = config.keys.seal(ticket, &binding).as_str().to_owned();
        if caller.ask == RequestKind::Tampered {
            let number = self.clients.get(caller.client).map_or(0, |client| client.visitor.path_number());
            text = altered(&text, number);
        }
        let opened =
            config.keys.open(text.as_bytes(), &Presenter { ip, cookie: Some(cookie) }, config.bindings);
        if opened.is_ok() {
            self.oracle.opened(caller.ask == RequestKind::Tampered);
        }
        Presented::new(opened, text.as_bytes())
    }
}

/// A ticket's due instant, without the years before the run.
fn relative(ticket: &Ticket) -> u64 {
    ticket.due().as_micros() % 1_000_000_000_000
}
