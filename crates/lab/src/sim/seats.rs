//! Sessions, as the gateway has them: whose request it is, where its session stands, and the pass that its visitor keeps.
//!
//! A session is told by the nonce of its pass, or by its visitor's address, of which each visitor has one.

use rand::RngCore;
use tidegate_core::desk::{Seat, WhenFull};
use tidegate_core::orders::TierId;
use tidegate_core::session::{SessionKey, Standing};
use tidegate_core::ticket::{Pass, PassKind};
use tidegate_gateway::settings;

use super::half::Half;
use super::world::World;
use crate::acts::Ask;

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
}

impl Half {
    /// The place that a newcomer needs.
    pub(crate) fn seat(&self, key: SessionKey) -> Option<Seat<'_>> {
        let sessions = self.sessions.as_deref()?;
        let when_full = match self.live.settings.session.when_full {
            settings::WhenFull::Room => WhenFull::Room,
            settings::WhenFull::Refuse => WhenFull::Refuse,
        };
        Some(Seat { sessions, key, tier: TierId(0), when_full })
    }
}

impl World<'_> {
    /// Whose a request is, if its session is admitted: it is kept alive by it.
    pub(crate) fn admitted(&mut self, number: u32, half: usize, ask: Ask) -> Option<SessionKey> {
        let half = &self.halves[half];
        let sessions = half.sessions.as_ref()?;
        // Whoever tries a ticket does not show what would let it in anyway.
        if ask != Ask::Page {
            return None;
        }
        let now = half.now(self.now_us);
        let guest = self.guests.get(number)?;
        let route = &self.routes[guest.visitor.kind() as usize][usize::from(guest.visitor.step())];
        let cost = route.cost;
        let (key, is_in) = if is_by_pass(half) {
            let pass = self.passes.get_mut(number as usize)?.as_mut()?;
            let key = of_nonce(pass.nonce);
            let renew = half.live.session_rules().admits(pass, now);
            let is_in = match sessions.touch(key, cost, now) {
                Standing::Admitted => true,
                Standing::New => renew.is_some() && sessions.readmit(key, TierId(0), pass.first, now),
                Standing::Ended => false,
            };
            if is_in && renew != Some(false) {
                pass.issued = now;
            }
            (key, is_in)
        } else {
            let key = of_address(number);
            (key, sessions.touch(key, cost, now) == Standing::Admitted)
        };
        self.oracle.session_asks(number, key, is_in, self.now_us);
        is_in.then_some(key)
    }

    /// A visitor gives up the request that its session began with. Who was to be told by a pass has none: nobody could use the place.
    pub(crate) fn gave_up_first(&mut self, number: u32, seated: Option<Seated>) {
        if self.halves.last().is_some_and(is_by_pass) {
            self.void(number, seated);
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

    /// The session that would have begun with a request never did: nothing was sent.
    pub(crate) fn void(&mut self, number: u32, seated: Option<Seated>) {
        let Some(half) = self.halves.last() else { return };
        if let (Some(sessions), Some(seated)) = (&half.sessions, seated.filter(|seated| seated.begins)) {
            sessions.void(seated.key, half.now(self.now_us));
            self.oracle.session_over(number);
        }
    }

    /// Long after the last request every place must have come back.
    pub(crate) fn places_come_back(&mut self) {
        let Some(half) = self.halves.last() else { return };
        let Some(sessions) = &half.sessions else { return };
        let open = half.open_after_all(sessions, self.now_us);
        self.oracle.places_left(open);
    }
}

fn is_by_pass(half: &Half) -> bool {
    half.live.settings.session.key == settings::SessionBy::Pass
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
