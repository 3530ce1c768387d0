//! The room stage of one request: whether it meets the room, and what the room says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, request};
use tidegate_core::desk;
use tidegate_core::measure::Event;
use tidegate_core::units::Timestamp;

use super::Exchange;
use crate::navigation::{is_part_of_page, wants_html};
use crate::room::{Outcome, Stage, Visitor};
use crate::settings::{Role, WhenFull};
use crate::target;

/// After the first visitor waits, parts of pages that were let in just before still pass for this long.
const PAGE_PARTS_SETTLE: Duration = Duration::from_secs(10);

/// How a request meets the room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meets {
    /// It may have to wait.
    Room,
    /// Part of a page: passes with whoever was let in.
    AsPart,
    /// It would wait, but for its service level.
    Past,
    /// Never waits.
    Never,
}

impl Exchange {
    /// The room stage: enter, or what to answer instead.
    pub(super) fn room(
        &mut self,
        parts: &request::Parts,
        url_ticket: Option<&str>,
        by_order: bool,
    ) -> Outcome {
        let (worker, live) = (self.worker.clone(), self.live.clone());
        let meets = if by_order { Meets::Room } else { self.meets(&parts.headers) };
        let is_guarded =
            live.ingress.limits(self.class) && !matches!(live.settings.role, Role::TokenGen { .. });
        let (is_in, is_asked) = (self.has_seat(), matches!(meets, Meets::Room | Meets::AsPart));
        let may_begin = meets == Meets::Past && self.seat.is_some();
        if !(is_asked || is_guarded || is_in || may_begin) {
            return self.unasked(Event::Entered);
        }
        let visitor = self.visitor(&parts.headers, url_ticket);
        if let Some(clean) = self.without_ticket(parts, &visitor) {
            return clean;
        }
        let mut rng = worker.rng.borrow_mut();
        let count = |event| worker.count(event);
        let desk = &worker.shared.desk;
        let mut stage = Stage { desk, live: &live, rng: &mut rng, count: &count, now: self.started };
        let has_somewhere_to_go = worker.shared.has_somewhere_to_go(&live.settings.role);
        if is_in && (meets != Meets::Room || has_somewhere_to_go) {
            return self.enter_by_session(&mut stage, &visitor);
        }
        match meets {
            Meets::AsPart if self.passes_as_part(&stage, &visitor) => self.enter_as_part(is_guarded),
            Meets::Never => stage.ask(self.class, &visitor, false, None),
            Meets::Past => self.enter_past(&mut stage, &visitor, is_guarded),
            Meets::Room | Meets::AsPart if !has_somewhere_to_go => {
                Outcome::Wait(stage.hold(self.class, &visitor))
            }
            Meets::Room | Meets::AsPart => self.ask_room(&mut stage, &visitor),
        }
    }

    /// Asks for a place, and for one among the sessions where they are counted.
    fn ask_room(&mut self, stage: &mut Stage<'_>, visitor: &Visitor<'_>) -> Outcome {
        let session = &stage.live.settings.session;
        let Some(key) = self.seat.as_ref().map(|seat| seat.offer(session.key, stage.rng)) else {
            return stage.ask(self.class, visitor, true, None);
        };
        let worker = self.worker.clone();
        let when_full = match session.when_full {
            WhenFull::Room => desk::WhenFull::Room,
            WhenFull::Refuse => desk::WhenFull::Refuse,
        };
        let seat = desk::Seat::new(&worker.shared.seats.table, key, self.tier, when_full);
        let outcome = stage.ask(self.class, visitor, true, Some(&seat));
        if let Some(request) = seat.under_way.take() {
            debug_assert!(
                matches!(outcome, Outcome::Enter { .. }),
                "a place is taken by one who does not enter"
            );
            self.begins_session(request);
        }
        outcome
    }

    /// Its service level passes the room, and its class's bucket as all do; its session takes a place if there is one.
    fn enter_past(&mut self, stage: &mut Stage<'_>, visitor: &Visitor<'_>, is_guarded: bool) -> Outcome {
        let mut entered = match is_guarded {
            // Not with the place: who passes may find none.
            true => stage.ask(self.class, visitor, false, None),
            false => self.unasked(Event::Entered),
        };
        let Outcome::Enter { cookies, .. } = &mut entered else { return entered };
        let by = stage.live.settings.session.key;
        let table = &self.worker.shared.seats.table;
        let offered = self.seat.as_ref().filter(|_| table.has_place(self.tier));
        let cost = self.live.class(self.class).cost;
        let begun = offered.map(|seat| seat.offer(by, stage.rng));
        if let Some(request) = begun.and_then(|key| table.admit(key, self.tier, cost, self.started).ok()) {
            *cookies = stage.entry_cookies(self.class, visitor, Some(request.key()));
            self.begins_session(request);
        }
        entered
    }

    /// Parts of pages pass while nobody waits, and later with whoever was let in.
    fn passes_as_part(&self, stage: &Stage<'_>, visitor: &Visitor<'_>) -> bool {
        (!self.is_settled() && self.finds_seat()) || stage.part_of_page(visitor)
    }

    /// Parts of a page do not wait: nobody would come back for their places.
    fn enter_as_part(&self, is_guarded: bool) -> Outcome {
        let cost = self.live.class(self.class).cost;
        let taken = if is_guarded { self.live.ingress.take(self.class, cost, self.started) } else { Ok(()) };
        match taken {
            Ok(()) => self.unasked(Event::EnteredByPass),
            Err(retry_after) => {
                self.worker.count(Event::IngressShed);
                Outcome::Throttled { retry_after }
            }
        }
    }

    /// The first page a browser gets carries the ticket in its URLs, for it may keep no cookies. One that comes back
    /// with the cookie as well is shown the URL it asked for, or the ticket would stay in its address bar.
    fn without_ticket(&self, parts: &request::Parts, visitor: &Visitor<'_>) -> Option<Outcome> {
        visitor.url_ticket?;
        let kept = visitor.cookies.ticket.is_some_and(|t| !t.is_empty());
        let gate = matches!(self.live.settings.role, Role::Gate);
        let shown = parts.method.is_safe() && wants_html(&parts.headers) && target::is_local(&parts.uri);
        (kept && gate && shown).then(|| Outcome::Elsewhere {
            base: String::new(),
            ticket: None,
            cookies: Vec::new(),
        })
    }

    /// Enters without asking the room; tokengen forwards nothing itself.
    fn unasked(&self, by: Event) -> Outcome {
        if let Role::TokenGen { check_url } = &self.live.settings.role {
            return Outcome::Elsewhere { base: check_url.clone(), ticket: None, cookies: Vec::new() };
        }
        self.worker.shared.desk.charge(self.live.class(self.class).cost);
        Outcome::Enter { by, cookies: Vec::new(), ticket: None }
    }

    fn meets(&self, headers: &HeaderMap) -> Meets {
        if !self.live.meets_room(self.class) {
            return Meets::Never;
        }
        if self.live.tiers.get(self.tier).is_some_and(|tier| tier.skips_room) {
            return Meets::Past;
        }
        if self.live.all_navigations && is_part_of_page(headers) { Meets::AsPart } else { Meets::Room }
    }

    /// Visitors wait, and have for longer than pages let in before may still be loading.
    fn is_settled(&self) -> bool {
        if matches!(self.live.settings.role, Role::TokenCheck { .. }) {
            return true;
        }
        let since = self.worker.shared.busy_since_us.load(Ordering::Relaxed);
        since != 0 && self.started.since(Timestamp::from_micros(since)) > PAGE_PARTS_SETTLE
    }
}
