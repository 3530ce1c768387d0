//! Sessions, as the gateway has them: which session a request belongs to, when it is over, and the pass that
//! its visitor keeps.
//!
//! A session is identified by the nonce of its pass, or by its visitor's address, of which each visitor has
//! one.

use rand::RngCore;
use rand::rngs::SmallRng;
use tidegate_core::admission::SessionClaim;
use tidegate_core::session::{SessionKey, SessionRequest};
use tidegate_core::ticket::{Pass, PassKind};

use tidegate_settings::Unit;

use super::process::GateProcess;
use super::request::{SessionOf, slot};
use super::world::World;
use crate::visitor_events::RequestKind;

impl GateProcess {
    pub(crate) fn new_key(&self, number: u32, rng: &mut SmallRng) -> SessionKey {
        if is_by_pass(self) { of_nonce(rng.next_u64()) } else { of_address(number) }
    }

    /// A request of a session is over that the oracle does not track.
    pub(crate) fn finish_quietly(&self, under_way: Option<SessionRequest>, now_us: u64) {
        if let (Some(sessions), Some(under_way)) = (&self.sessions, under_way) {
            sessions.finish(under_way, self.now(now_us));
        }
    }
}

impl World<'_> {
    /// Finds the session that a request belongs to; the request keeps it alive until it is over.
    pub(crate) fn recognise(
        &mut self,
        number: u32,
        process: usize,
        ask: RequestKind,
    ) -> Option<SessionRequest> {
        let process = &self.processes[process];
        let sessions = process.sessions.as_deref()?;
        // An attacker who tries a ticket does not also show a pass, which would let it in anyway.
        if ask != RequestKind::Page {
            return None;
        }
        let now = process.now(self.now_us);
        let client = self.clients.get(number)?;
        let route = &self.routes[client.visitor.kind() as usize][usize::from(client.visitor.step())];
        let tier = self.tiers[client.visitor.kind() as usize];
        let (rules, cost) = (process.config.session_rules(), process.cost(route.class));
        let claim = |key, pass| SessionClaim { sessions, rules, key, pass, tier, cost }.recognise(now).1;
        let (key, request) = if is_by_pass(process) {
            let pass = self.passes.get_mut(number as usize)?.as_mut()?;
            let key = of_nonce(pass.nonce);
            let request = claim(key, Some(pass));
            if request.is_some() && (!rules.holds(pass, now) || rules.is_due_for_renewal(pass, now)) {
                pass.issued = now;
            }
            (key, request)
        } else {
            let key = of_address(number);
            (key, claim(key, None))
        };
        self.oracle.session_asks(number, key, request.is_some(), self.now_us);
        request
    }

    /// A request of a session is over, as far as the gate can tell.
    pub(crate) fn finished(&mut self, number: u32, under_way: Option<SessionRequest>) {
        let sessions = self.processes.last().and_then(|process| Some((process.sessions.as_ref()?, process)));
        if let (Some((sessions, process)), Some(under_way)) = (sessions, under_way) {
            sessions.finish(under_way, process.now(self.now_us));
            self.oracle.session_answered(number, self.now_us);
        }
    }

    /// A visitor gives up the request that its session began with. If sessions are identified by a pass, the
    /// visitor has not received it, so nobody could use the slot.
    pub(crate) fn gave_up_first(
        &mut self,
        number: u32,
        session: SessionOf,
        under_way: Option<SessionRequest>,
    ) {
        let is_voided = self.processes.last().is_some_and(is_by_pass);
        self.void(number, Some(session).filter(|_| is_voided), under_way);
    }

    /// Cookies of the origin's answer after an entry: the ticket is removed, a session's pass is set.
    pub(crate) fn take_cookies(&mut self, number: u32, session: Option<SessionOf>) {
        let Some(process) = self.processes.last() else { return };
        let Some(client) = self.clients.get_mut(number) else { return };
        client.use_up();
        let counts = process.config.settings.counts_sessions();
        client.go_to_check(counts && self.processes.len() == 2);
        let (kind, now) = (client.visitor.kind(), process.now(self.now_us));
        let class = self.routes[kind as usize][usize::from(client.visitor.step())].class;
        let is_for_page = !counts && process.config.settings.room.unit == Unit::Request && self.has_parts;
        let (pass, nonce) = match session.filter(|session| session.begins && is_by_pass(process)) {
            Some(session) => (PassKind::Session, session.key.0 as u64),
            // Each page has its own; the run's random numbers stay what they are.
            None if is_for_page => (PassKind::Page, now.as_micros() << 32 ^ u64::from(number)),
            None => return,
        };
        if !self.mix.kinds[kind as usize].cookies {
            return;
        }
        let pass = Pass { kind: pass, class, issued: now, first: now, nonce };
        let at = number as usize;
        self.passes.resize(self.passes.len().max(at + 1), None);
        self.passes[at] = Some(pass);
    }

    /// Nothing was sent: the ticket is good again.
    pub(super) fn give_back(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(slot(id)) else { return };
        let (client, is_part) = (request.client, request.is_part);
        let (session, under_way) = (request.session.take(), request.under_way.take());
        if let (Some(ticket), Some(process)) = (request.ticket.take(), self.processes.last()) {
            process.admission.give_back(&ticket);
            self.oracle.gave_back(&ticket);
        }
        if is_part {
            if let Some(process) = self.processes.last() {
                process.finish_quietly(under_way, self.now_us);
            }
            return;
        }
        self.void(client, session, under_way);
    }

    /// Nothing was sent: the session that would have begun with the request never did.
    fn void(&mut self, number: u32, session: Option<SessionOf>, under_way: Option<SessionRequest>) {
        if !session.is_some_and(|session| session.begins) {
            return self.finished(number, under_way);
        }
        let sessions = self.processes.last().and_then(|process| Some((process.sessions.as_ref()?, process)));
        if let (Some((sessions, process)), Some(under_way)) = (sessions, under_way) {
            sessions.void(under_way, process.now(self.now_us));
            self.oracle.session_over(number);
        }
    }

    /// Long after the last request every session slot must be free.
    pub(crate) fn session_slots_come_back(&mut self) {
        for at in self.requests.numbers() {
            let Some(request) = self.requests.get_mut(at) else { continue };
            let (client, under_way) = (request.client, request.under_way.take());
            self.finished(client, under_way);
        }
        let Some(process) = self.processes.last() else { return };
        let Some(sessions) = &process.sessions else { return };
        let open = process.open_after_all(sessions, self.now_us);
        self.oracle.session_slots_left(open);
    }
}

/// The key of the session that a visitor claims: of its pass, or of its address.
pub(super) fn key_of(process: &GateProcess, pass: Option<&Pass>, number: u32) -> Option<SessionKey> {
    if is_by_pass(process) { pass.map(|pass| of_nonce(pass.nonce)) } else { Some(of_address(number)) }
}

fn is_by_pass(process: &GateProcess) -> bool {
    process.config.settings.session.key == tidegate_settings::SessionBy::Pass
}

fn of_nonce(nonce: u64) -> SessionKey {
    SessionKey(u128::from(nonce) << 64 | u128::from(nonce))
}

/// Spread as a keyed hash would be.
fn of_address(number: u32) -> SessionKey {
    let spread = |salt: u64| (u64::from(number) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    SessionKey(
        u128::from(spread(1)) << 64 | u128::from(spread(0x1_0000_0001).wrapping_mul(0xBF58_476D_1CE4_E5B9)),
    )
}
