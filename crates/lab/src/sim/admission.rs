//! A request arrives: its facts are gathered, the core decides ([`tidegate_core::admission::decide`]), and the decision is performed, as the
//! gateway does with cookies and pages.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore};
use tidegate_core::admission::{self, Decision, EnteredBy, Position, Presented, Process, Requester};
use tidegate_core::measure::Event;
use tidegate_core::policies::{ActivePolicy, PolicyRequest, TierId};
use tidegate_core::room::{TicketStatus, Wait};
use tidegate_core::session::{SessionKey, SessionRequest};
use tidegate_core::ticket::{Binding, Pass, Presenter, Ticket};
use tidegate_core::units::{ClassId, Cost};
use tidegate_gateway::config::page;
use tidegate_gateway::proxy::respond;
use tidegate_gateway::proxy::stages::poll;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_settings::Binding as Bound;

use super::LATENCY_US;
use super::half::Half;
use super::request::{Passage, SessionOf};
use super::trace::What;
use super::world::{Item, World};
use crate::answer::{Answer, RoomStatus, State};
use crate::oracle::Entry;
use crate::visitor_events::{Failure, RequestKind};

/// A visitor's request at the gate.
pub(crate) struct Caller {
    pub(crate) guest: u32,
    ask: RequestKind,
    kind: u32,
    class: ClassId,
    cost: Cost,
    /// Which half it asks.
    half: usize,
}

/// What the core may want to know of a request.
struct Head<'a> {
    half: &'a Half,
    replicas: &'a Replicas,
    now_us: u64,
    rng: RefCell<&'a mut SmallRng>,
    guest: u32,
    shown: Presented,
    pass: Option<Pass>,
    begun: Cell<Option<SessionRequest>>,
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
        self.half.new_key(self.guest, &mut **self.rng.borrow_mut())
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }

    fn session_begins(&self, request: SessionRequest) {
        self.begun.set(Some(request));
    }

    fn would_decide(&self, _: &ActivePolicy) {}

    fn sent_to_room(&self, _: &ActivePolicy) {}

    fn count(&self, event: Event) {
        self.half.shard.count(event);
    }
}

impl World<'_> {
    /// A visitor's request arrives.
    pub(crate) fn visit(&mut self, number: u32) {
        let Some(guest) = self.guests.get_mut(number) else { return };
        let (ask, kind, step) = (guest.visitor.ask(), guest.visitor.kind(), guest.visitor.step());
        let hopped = guest.take_hop();
        let ticket = match ask {
            RequestKind::Replayed => guest.used(),
            _ => guest.held(),
        };
        if matches!(ask, RequestKind::Tampered | RequestKind::Replayed) && ticket.is_none() {
            let now = guest.visitor.at();
            let reaction = guest.visitor.skip_attack(&self.cast, now);
            return self.goes_on(number, reaction.next, now);
        }
        let half = if guest.is_at_check() { 1 } else { 0 };
        if !hopped {
            self.tally.sent(ask, guest.visitor.at(), guest.visitor.at());
        }
        let what = match ask {
            RequestKind::Page => What::Asks,
            RequestKind::Status => What::Polls,
            RequestKind::Tampered => What::Tampers,
            RequestKind::Replayed => What::Replays,
        };
        self.trace.step(self.now_us, what, number, u64::from(step));
        if self.halves.is_empty() {
            return self.straight_to_the_origin(number);
        }
        if self.gate_is_down() {
            return self.reply(number, Err(Failure::Connect));
        }
        let route = &self.routes[kind as usize][usize::from(step)];
        let caller = Caller { guest: number, ask, kind, class: route.class, cost: route.cost, half };
        if ask == RequestKind::Status {
            return self.news(&caller, ticket);
        }
        self.halves[half].shard.arrived(caller.class);
        let request = self.recognise(number, half, ask);
        let shown = match (ticket, ask) {
            (None, _) => Presented::Nothing,
            (Some(ticket), RequestKind::Page | RequestKind::Status) => Presented::Ticket(ticket),
            (Some(ticket), RequestKind::Tampered | RequestKind::Replayed) => {
                self.seal_and_open(&caller, &ticket)
            }
        };
        let (decision, begun) = self.decide(&caller, shown, request.is_none());
        match request {
            Some(request) if decision == (Decision::Enter { by: EnteredBy::Session }) => {
                return self.goes_on_with_session(&caller, request);
            }
            request => self.finished(number, request),
        }
        self.perform_decision(&caller, decision, shown, begun);
    }

    /// What the core decides, and the request of the session that begins with it.
    fn decide(
        &mut self,
        caller: &Caller,
        shown: Presented,
        is_new_session: bool,
    ) -> (Decision, Option<SessionRequest>) {
        let half = &self.halves[caller.half];
        let process = Process {
            settings: half.live.admission_settings(),
            admission: &half.desk,
            ingress: &half.live.ingress,
            sessions: half.sessions.as_deref(),
            policies: None,
            waiting_since: half.waiting_since(),
        };
        let request = PolicyRequest {
            path: "/",
            class: caller.class,
            cost: half.live.class(caller.class).cost,
            tier: TierId(0),
            is_new_session,
            is_plain: true,
        };
        let facts = half.live.facts(request, false, half.now(self.now_us));
        let head = Head {
            half,
            replicas: &self.replicas,
            now_us: self.now_us,
            rng: RefCell::new(&mut self.rng),
            guest: caller.guest,
            shown,
            pass: None,
            begun: Cell::default(),
        };
        let decision = admission::decide(&process, &facts, &head);
        (decision, head.begun.take())
    }

    fn perform_decision(
        &mut self,
        caller: &Caller,
        decision: Decision,
        shown: Presented,
        begun: Option<SessionRequest>,
    ) {
        let (number, at) = (caller.guest, self.now_us);
        match decision {
            Decision::Enter { by } => self.enter(caller, by, shown, begun),
            Decision::SendOn { ticket, redeemed } => {
                if let (true, Presented::Ticket(shown)) = (redeemed, shown) {
                    self.oracle.sent_on(&shown, &self.halves, at);
                }
                self.send_on(caller, Some(ticket));
            }
            Decision::SendOnUnasked => self.send_on(caller, None),
            Decision::SendBack => {
                self.trace.step(at, What::SentBack, number, 0);
                if caller.ask != RequestKind::Page {
                    return self.reply(number, Ok(Answer::Refused(302)));
                }
                if let Some(guest) = self.guests.get_mut(number) {
                    guest.go_to_check(false);
                    guest.drop_ticket();
                    guest.hop();
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
            Decision::Throttled { .. } | Decision::NoSessionSlot { .. } => {
                self.trace.step(at, What::Shed, number, 0);
                self.reply(number, Ok(Answer::Refused(503)));
            }
            Decision::OverQuota { .. } => {
                self.trace.step(at, What::Shed, number, 0);
                self.reply(number, Ok(Answer::Refused(429)));
            }
            Decision::Forbidden => {
                self.trace.step(at, What::Forbidden, number, 0);
                self.reply(number, Ok(Answer::Refused(403)));
            }
            Decision::RefusedByPolicy { .. } | Decision::Perform { .. } | Decision::ShowCleanUrl => {
                unreachable!("no policies are in force, and no ticket stands in a URL")
            }
        }
    }

    fn enter(&mut self, caller: &Caller, by: EnteredBy, shown: Presented, begun: Option<SessionRequest>) {
        let (number, at, cost) = (caller.guest, self.now_us, caller.cost);
        let class = u64::from(caller.class.0);
        if let Some(request) = &begun {
            self.oracle.session_begins(number, request.key(), &self.halves[caller.half], at);
        }
        let (what, more, entry) = match by {
            EnteredBy::Ticket(ticket) => {
                (What::Redeems, relative(&ticket), Entry::Ticket { ticket, half: caller.half })
            }
            EnteredBy::Room => (What::Enters, class, Entry::AtOnce { cost }),
            EnteredBy::Ingress | EnteredBy::Session | EnteredBy::PartOfPage | EnteredBy::Unasked => {
                (What::Passes, class, Entry::Unasked { cost })
            }
        };
        self.trace.step(at, what, number, more);
        self.oracle.entered(entry, &self.halves, at);
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

    /// A session that was admitted goes on: past the room and its class's bucket.
    fn goes_on_with_session(&mut self, caller: &Caller, request: SessionRequest) {
        let cost = caller.cost;
        self.trace.step(self.now_us, What::Passes, caller.guest, u64::from(caller.class.0));
        self.oracle.entered(Entry::Unasked { cost }, &self.halves, self.now_us);
        let session = Some(SessionOf { key: request.key(), begins: false });
        self.forward(caller.guest, Passage { session, under_way: Some(request), ..Passage::default() });
    }

    /// The answer of whoever decides here and now.
    pub(crate) fn reply(&mut self, number: u32, outcome: Result<Answer, Failure>) {
        self.answer(number, outcome, self.now_us + LATENCY_US);
    }

    fn told_to_wait(&mut self, caller: &Caller, ticket: &Ticket, wait: &Wait, position: Position) {
        let what = if position == Position::Kept { What::Keeps } else { What::Promised };
        self.trace.step(self.now_us, what, caller.guest, relative(ticket));
        self.oracle.waits(caller.guest, caller.half, ticket, wait, position, &self.halves, self.now_us);
        if position == Position::Replaced
            && let Some(shown) = self.guests.get(caller.guest).and_then(|guest| guest.held().or(guest.used()))
        {
            self.oracle.called_used(&shown, caller.half);
        }
        if let Some(guest) = self.guests.get_mut(caller.guest)
            // What an altered ticket is answered with is not kept.
            && caller.ask != RequestKind::Tampered
            && position != Position::Kept
        {
            guest.hold(ticket);
        }
        let answer = self.wait_answer(caller, wait.wait, true);
        self.reply(caller.guest, Ok(answer));
    }

    /// The waiting page, or what programs get instead.
    fn wait_answer(&mut self, caller: &Caller, wait: Duration, has_place: bool) -> Answer {
        let browser = self.cast.kinds[caller.kind as usize].browser;
        let every = self.halves[caller.half].desk.ask_every();
        let poll = page::poll_interval(wait, &every, self.rng.random());
        Answer::Wait {
            has_status: has_place,
            after: Some(wait),
            refresh: browser.then(|| respond::refresh(wait)),
            poll: browser.then_some(poll),
            full: !has_place,
        }
    }

    /// Tokengen forwards nothing itself.
    fn send_on(&mut self, caller: &Caller, ticket: Option<Ticket>) {
        self.trace.step(self.now_us, What::SentOn, caller.guest, 0);
        if caller.ask != RequestKind::Page {
            // An attacker does not follow a redirect.
            return self.reply(caller.guest, Ok(Answer::Refused(302)));
        }
        if let Some(guest) = self.guests.get_mut(caller.guest) {
            match ticket {
                Some(ticket) => guest.hold(&ticket),
                None => guest.drop_ticket(),
            }
            guest.go_to_check(true);
            guest.hop();
        }
        self.agenda.push(self.now_us + 2 * LATENCY_US, Item::Visit(caller.guest));
    }

    fn news(&mut self, caller: &Caller, ticket: Option<Ticket>) {
        let half = &self.halves[caller.half];
        let now = half.now(self.now_us);
        let look = ticket
            .map_or(TicketStatus::Expired, |ticket| half.desk.look_at(&half.live.ingress, &ticket, now));
        let usable = !half.forwards() || self.replicas.any_usable_at(|| self.now_us);
        let (state, wait, _) = poll::standing(look, usable);
        if let Some(ticket) = ticket {
            self.oracle.looked(caller.guest, caller.half, &ticket, &look, usable, &self.halves, self.now_us);
        }
        let every = self.halves[caller.half].desk.ask_every();
        let poll = page::poll_interval(wait, &every, self.rng.random());
        let state = match state {
            page::State::Waiting => State::Waiting,
            page::State::Ready => State::Ready,
            page::State::Expired => State::Expired,
            page::State::Redeemed => State::Redeemed,
            page::State::Full => State::Full,
            page::State::Unavailable => State::Unavailable,
        };
        self.reply(caller.guest, Ok(Answer::Status(RoomStatus { state, poll, wait })));
    }

    /// What the gate makes of a ticket's text that an attacker sends. A used one is sent as it was, an altered one with one
    /// character changed.
    fn seal_and_open(&mut self, caller: &Caller, ticket: &Ticket) -> Presented {
        let live = &self.halves[caller.half].live;
        let ip = [127, 0, 0, 1].into();
        let cookie = u128::from(caller.guest).to_le_bytes();
        let binding = match live.settings.room.binding {
            Bound::None => Binding::None,
            Bound::Ip => Binding::Ip(ip),
            Bound::IpPrefix => Binding::IpPrefix(ip),
            Bound::Cookie => Binding::Cookie(cookie),
        };
        let mut text = live.keys.seal(ticket, &binding).as_bytes().to_vec();
        if caller.ask == RequestKind::Tampered {
            let number = self.guests.get(caller.guest).map_or(0, |guest| guest.visitor.path_number());
            let at = number as usize % text.len();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        }
        let opened = live.keys.open(&text, &Presenter { ip, cookie: Some(cookie) }, live.bindings);
        match opened {
            Ok(ticket) => {
                self.oracle.opened(caller.ask == RequestKind::Tampered);
                Presented::Ticket(ticket)
            }
            Err(_) => Presented::Forged,
        }
    }
}

/// A ticket's due instant, without the years before the run.
fn relative(ticket: &Ticket) -> u64 {
    ticket.due().as_micros() % 1_000_000_000_000
}
