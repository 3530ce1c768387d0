//! A request arrives: performs the room's verdict, as the gateway's room stage does with cookies and pages.

use std::time::Duration;

use rand::{Rng, RngCore};
use tidegate_core::admission::{AdmissionRequest, Decision, Position, Presented};
use tidegate_core::room::{TicketStatus, Wait};
use tidegate_core::session::SessionRequest;
use tidegate_core::ticket::{Binding, Presenter, Ticket};
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_gateway::config::page;
use tidegate_gateway::proxy::respond;
use tidegate_gateway::proxy::stages::poll;
use tidegate_settings::Binding as Bound;

use super::LATENCY_US;
use super::seats::{Passage, Seated};
use super::trace::What;
use super::world::{Item, World};
use crate::answer::{Answer, RoomStatus, State};
use crate::oracle::Entry;
use crate::visitor_events::{Failure, RequestKind};

/// A request at the gate's door.
pub(crate) struct Caller {
    pub(crate) guest: u32,
    ask: RequestKind,
    kind: u32,
    class: ClassId,
    /// Which half it asks.
    half: usize,
    /// It may have to wait in the room, not only at its class's ingress.
    meets_room: bool,
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
        let route = &self.routes[kind as usize][usize::from(step)];
        let class = route.class;
        if self.halves.is_empty() {
            return self.straight_to_the_origin(number);
        }
        if self.gate_is_down() {
            return self.reply(number, Err(Failure::Connect));
        }
        let caller = Caller { guest: number, ask, kind, class, half, meets_room: route.meets_room };
        if ask == RequestKind::Status {
            return self.news(&caller, ticket);
        }
        self.halves[half].shard.arrived(class);
        let (cost, meets_room) = (route.cost, route.meets_room);
        let can_go = !meets_room || self.replicas.any_usable_at(|| self.now_us);
        match self.admitted(number, half, ask) {
            Some(request) if can_go => return self.goes_on_with_session(&caller, request),
            request => self.finished(number, request),
        }
        if meets_room {
            self.meets_room(&caller, ticket);
        } else if self.halves[half].forwards() && self.halves[half].live.ingress.limits(class) {
            let now = self.halves[half].now(self.now_us);
            self.asks(&caller, ticket, now);
        } else if self.halves[half].forwards() {
            self.halves[half].desk.charge(cost);
            self.trace.step(self.now_us, What::Passes, number, u64::from(class.0));
            self.oracle.entered(Entry::Unasked { cost }, &self.halves, self.now_us);
            self.forward(number, Passage::default());
        } else {
            self.send_on(&caller, None);
        }
    }

    /// The answer of whoever decides here and now.
    pub(crate) fn reply(&mut self, number: u32, outcome: Result<Answer, Failure>) {
        self.answer(number, outcome, self.now_us + LATENCY_US);
    }

    fn meets_room(&mut self, caller: &Caller, ticket: Option<Ticket>) {
        let half = &self.halves[caller.half];
        let now = half.now(self.now_us);
        if half.forwards() && !self.replicas.any_usable_at(|| self.now_us) {
            return self.hold(caller, ticket, now);
        }
        self.asks(caller, ticket, now);
    }

    fn asks(&mut self, caller: &Caller, ticket: Option<Ticket>, now: Timestamp) {
        let shown = match (ticket, caller.ask) {
            (None, _) => Presented::Nothing,
            (Some(ticket), RequestKind::Page | RequestKind::Status) => Presented::Ticket(ticket),
            (Some(ticket), RequestKind::Tampered | RequestKind::Replayed) => {
                self.seal_and_open(caller, &ticket)
            }
        };
        let counts = caller.meets_room && self.halves[caller.half].sessions.is_some();
        let key = counts.then(|| self.new_key(caller.guest, caller.half));
        let half = &self.halves[caller.half];
        let seat = key.and_then(|key| half.seat(key));
        let asking = AdmissionRequest {
            class: caller.class,
            cost: half.live.class(caller.class).cost,
            shown,
            sends_on: !half.forwards(),
        };
        let rng = &mut self.rng;
        let (entrance, count) =
            (half.live.entrance(caller.meets_room, true), |event| half.shard.count(event));
        let verdict =
            half.desk.ask_for(&entrance, &asking, seat.as_ref(), &mut || rng.next_u64(), &count, now);
        let under_way = seat.and_then(|seat| seat.under_way.take());
        if let (Decision::Enter { .. }, Some(key)) = (&verdict, key) {
            self.oracle.session_begins(caller.guest, key, half, self.now_us);
        }
        self.perform_verdict(caller, verdict, &asking, under_way, now);
    }

    fn perform_verdict(
        &mut self,
        caller: &Caller,
        verdict: Decision,
        asking: &AdmissionRequest,
        under_way: Option<SessionRequest>,
        now: Timestamp,
    ) {
        let (number, at) = (caller.guest, self.now_us);
        match verdict {
            Decision::Enter { ticket } => {
                let (class, cost) = (asking.class, asking.cost);
                let entry = match ticket {
                    Some(ticket) => {
                        self.trace.step(at, What::Redeems, number, relative(&ticket));
                        Entry::Ticket { ticket, half: caller.half }
                    }
                    None if !caller.meets_room => {
                        self.trace.step(at, What::Passes, number, u64::from(class.0));
                        Entry::Unasked { cost }
                    }
                    None => {
                        self.trace.step(at, What::Enters, number, u64::from(class.0));
                        Entry::AtOnce { cost }
                    }
                };
                self.oracle.entered(entry, &self.halves, at);
                let seated = under_way.as_ref().map(|request| Seated { key: request.key(), begins: true });
                let cookies = seated.is_some() || asking.shown != Presented::Nothing;
                self.forward(number, Passage { ticket, cookies, seated, under_way });
            }
            Decision::SendOn { ticket, redeemed } => {
                if redeemed {
                    let Presented::Ticket(shown) = asking.shown else {
                        unreachable!("what was redeemed was shown")
                    };
                    self.oracle.sent_on(&shown, &self.halves, at);
                }
                self.send_on(caller, Some(ticket));
            }
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
            Decision::Wait { ticket, wait, place } => self.told_to_wait(caller, &ticket, &wait, place, now),
            Decision::Full { retry_after } => {
                self.trace.step(at, What::Full, number, 0);
                let answer = self.wait_answer(caller, retry_after, false);
                self.reply(number, Ok(answer));
            }
            Decision::Refused { .. } | Decision::NoPlace { .. } => {
                self.trace.step(at, What::Shed, number, 0);
                self.reply(number, Ok(Answer::Refused(503)));
            }
            Decision::Forbidden => {
                self.trace.step(at, What::Forbidden, number, 0);
                self.reply(number, Ok(Answer::Refused(403)));
            }
        }
    }

    fn told_to_wait(
        &mut self,
        caller: &Caller,
        ticket: &Ticket,
        wait: &Wait,
        place: Position,
        now: Timestamp,
    ) {
        let what = if place == Position::Kept { What::Keeps } else { What::Promised };
        self.trace.step(self.now_us, what, caller.guest, relative(ticket));
        self.oracle.waits(caller.guest, caller.half, ticket, wait, place, &self.halves, self.now_us);
        debug_assert!(ticket.arrived <= now || self.halves.len() == 2, "{ticket:?} at {now:?}");
        // What an altered ticket is answered with is not kept.
        if place == Position::Replaced
            && let Some(shown) = self.guests.get(caller.guest).and_then(|guest| guest.held().or(guest.used()))
        {
            self.oracle.called_used(&shown, caller.half);
        }
        if let Some(guest) = self.guests.get_mut(caller.guest)
            && caller.ask != RequestKind::Tampered
            && place != Position::Kept
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

    /// No replica is up: everybody keeps or gets a place.
    fn hold(&mut self, caller: &Caller, ticket: Option<Ticket>, now: Timestamp) {
        let shown = ticket.map_or(Presented::Nothing, Presented::Ticket);
        let wait = self.halves[caller.half].desk.hold(caller.class, &shown, now);
        self.trace.step(self.now_us, What::Held, caller.guest, 0);
        self.oracle.held(caller.guest);
        let answer = self.wait_answer(caller, wait.wait, true);
        self.reply(caller.guest, Ok(answer));
    }

    /// A session that was admitted goes on: past the room and its class's bucket.
    fn goes_on_with_session(&mut self, caller: &Caller, request: SessionRequest) {
        let half = &self.halves[caller.half];
        let (class, cost, now) = (caller.class, half.live.class(caller.class).cost, half.now(self.now_us));
        half.live.ingress.charge(class, cost, now);
        half.desk.charge(cost);
        self.trace.step(self.now_us, What::Passes, caller.guest, u64::from(class.0));
        self.oracle.entered(Entry::Unasked { cost }, &self.halves, self.now_us);
        let seated = Some(Seated { key: request.key(), begins: false });
        let under_way = Some(request);
        self.forward(caller.guest, Passage { seated, under_way, ..Passage::default() });
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
