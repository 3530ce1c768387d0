//! Sessions, as the gateway has them: whose request it is, where its session stands, and the pass that its visitor keeps.
//!
//! A session is told by the nonce of its pass, or by its visitor's address, of which each visitor has one.

use rand::RngCore;
use tidegate_core::admission::{SessionAsk, WhenFull};
use tidegate_core::policies::TierId;
use tidegate_core::session::{SessionKey, SessionRequest, SessionStatus};
use tidegate_core::ticket::{Pass, PassKind};

use super::forward::slot;
use super::half::Half;
use super::world::World;
use crate::visitor_events::RequestKind;

/// The session of a request that was let in.
#[derive(Clone, Copy)]
pub(crate) struct Seated {
    pub(crate) key: SessionKey,
    /// It began with this request.
    pub(crate) begins: bool,
}

/// How a request was let in.
#[derive(Default)]
pub(crate) struct Passage {
    /// The ticket redeemed for it.
    pub(crate) ticket: Option<tidegate_core::ticket::Ticket>,
    /// The answer brings cookies.
    pub(crate) cookies: bool,
    pub(crate) seated: Option<Seated>,
    /// The same in the table.
    pub(crate) under_way: Option<SessionRequest>,
}

impl Half {
    /// The place that a newcomer needs.
    pub(crate) fn seat(&self, key: SessionKey) -> Option<SessionAsk<'_>> {
        let sessions = self.sessions.as_deref()?;
        let when_full = match self.live.settings.session.when_full {
            tidegate_settings::WhenFull::Room => WhenFull::Room,
            tidegate_settings::WhenFull::Refuse => WhenFull::Refuse,
        };
        Some(SessionAsk::new(sessions, key, TierId(0), when_full))
    }
}

impl World<'_> {
    /// A request whose session is admitted: it is kept alive by it until the request is over.
    pub(crate) fn admitted(&mut self, number: u32, half: usize, ask: RequestKind) -> Option<SessionRequest> {
        let half = &self.halves[half];
        let sessions = half.sessions.as_ref()?;
        // Whoever tries a ticket does not show what would let it in anyway.
        if ask != RequestKind::Page {
            return None;
        }
        let now = half.now(self.now_us);
        let guest = self.guests.get(number)?;
        let route = &self.routes[guest.visitor.kind() as usize][usize::from(guest.visitor.step())];
        let cost = route.cost;
        let (key, request) = if is_by_pass(half) {
            let pass = self.passes.get_mut(number as usize)?.as_mut()?;
            let key = of_nonce(pass.nonce);
            let renew = half.live.session_rules().admits(pass, now);
            let request = match sessions.touch(key, cost, now) {
                (SessionStatus::New, _) if renew.is_some() => {
                    sessions.readmit(key, TierId(0), pass.first, now)
                }
                (_, request) => request,
            };
            if request.is_some() && renew != Some(false) {
                pass.issued = now;
            }
            (key, request)
        } else {
            let key = of_address(number);
            (key, sessions.touch(key, cost, now).1)
        };
        self.oracle.session_asks(number, key, request.is_some(), self.now_us);
        request
    }

    /// A request of a session is over, as far as the gate can tell.
    pub(crate) fn finished(&mut self, number: u32, under_way: Option<SessionRequest>) {
        let sessions = self.halves.last().and_then(|half| Some((half.sessions.as_ref()?, half)));
        if let (Some((sessions, half)), Some(under_way)) = (sessions, under_way) {
            sessions.finish(under_way, half.now(self.now_us));
            self.oracle.session_answered(number, self.now_us);
        }
    }

    /// A visitor gives up the request that its session began with. Who was to be told by a pass has none: nobody could use the place.
    pub(crate) fn gave_up_first(&mut self, number: u32, seated: Seated, under_way: Option<SessionRequest>) {
        if self.halves.last().is_some_and(is_by_pass) {
            self.void(number, Some(seated), under_way);
        } else {
            self.finished(number, under_way);
        }
    }

    /// What a session that begins is to be told by.
    pub(crate) fn new_key(&mut self, number: u32, half: usize) -> SessionKey {
        if is_by_pass(&self.halves[half]) { of_nonce(self.rng.next_u64()) } else { of_address(number) }
    }

    /// What comes with an answer of the origin after a place was used: the ticket goes, a session's pass comes.
    pub(crate) fn take_cookies(&mut self, number: u32, seated: Option<Seated>) {
        let Some(half) = self.halves.last() else { return };
        let Some(guest) = self.guests.get_mut(number) else { return };
        guest.use_up();
        let counts = half.live.settings.counts_sessions();
        guest.go_to_check(counts && self.halves.len() == 2);
        let Some(seated) = seated.filter(|seated| seated.begins && is_by_pass(half)) else { return };
        let (kind, now) = (guest.visitor.kind(), half.now(self.now_us));
        if !self.cast.kinds[kind as usize].cookies {
            return;
        }
        let class = self.routes[kind as usize][usize::from(guest.visitor.step())].class;
        let nonce = seated.key.0 as u64;
        let pass = Pass { kind: PassKind::Session, class, issued: now, first: now, nonce };
        let at = number as usize;
        self.passes.resize(self.passes.len().max(at + 1), None);
        self.passes[at] = Some(pass);
    }

    /// Nothing was sent: the ticket is good again.
    pub(super) fn give_back(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(slot(id)) else { return };
        let (guest, seated, under_way) = (request.guest, request.seated.take(), request.under_way.take());
        if let (Some(ticket), Some(half)) = (request.ticket.take(), self.halves.last()) {
            half.desk.give_back(&ticket);
            self.oracle.gave_back(&ticket);
        }
        self.void(guest, seated, under_way);
    }

    /// Nothing was sent: the session that would have begun with the request never did.
    fn void(&mut self, number: u32, seated: Option<Seated>, under_way: Option<SessionRequest>) {
        if !seated.is_some_and(|seated| seated.begins) {
            return self.finished(number, under_way);
        }
        let sessions = self.halves.last().and_then(|half| Some((half.sessions.as_ref()?, half)));
        if let (Some((sessions, half)), Some(under_way)) = (sessions, under_way) {
            sessions.void(under_way, half.now(self.now_us));
            self.oracle.session_over(number);
        }
    }

    /// Long after the last request every place must have come back.
    pub(crate) fn places_come_back(&mut self) {
        for at in self.requests.numbers() {
            let Some(request) = self.requests.get_mut(at) else { continue };
            let (guest, under_way) = (request.guest, request.under_way.take());
            self.finished(guest, under_way);
        }
        let Some(half) = self.halves.last() else { return };
        let Some(sessions) = &half.sessions else { return };
        let open = half.open_after_all(sessions, self.now_us);
        self.oracle.places_left(open);
    }
}

fn is_by_pass(half: &Half) -> bool {
    half.live.settings.session.key == tidegate_settings::SessionBy::Pass
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
