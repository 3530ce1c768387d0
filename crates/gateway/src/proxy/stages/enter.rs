//! The room stage of one request: whether it meets the room, and what the room says.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, request};
use tidegate_core::admission;
use tidegate_core::measure::Event;
use tidegate_core::units::Timestamp;

use crate::http::target;
use crate::proxy::context::RequestContext;
use crate::proxy::navigation::{is_part_of_page, wants_html};
use crate::proxy::stages::room::{RoomOutcome, RoomStage, Visitor};
use tidegate_settings::{Role, WhenFull};

/// After the first visitor waits, parts of pages that were let in just before still pass for this long.
const PAGE_PARTS_SETTLE: Duration = Duration::from_secs(10);

/// How a request meets the room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoomUse {
    /// It may have to wait.
    Room,
    /// Part of a page: passes with whoever was let in.
    AsPart,
    /// It would wait, but for its service level.
    Past,
    /// Never waits.
    Never,
}

impl RequestContext {
    /// The room stage: enter, or what to answer instead.
    pub(crate) fn room(
        &mut self,
        parts: &request::Parts,
        url_ticket: Option<&str>,
        by_order: bool,
    ) -> RoomOutcome {
        let (worker, live) = (self.worker.clone(), self.config.clone());
        let meets = if by_order { RoomUse::Room } else { self.meets(&parts.headers) };
        let is_guarded =
            live.ingress.limits(self.class) && !matches!(live.settings.role, Role::TokenGen { .. });
        let (is_in, is_asked) =
            (self.is_session_admitted(), matches!(meets, RoomUse::Room | RoomUse::AsPart));
        let may_begin = meets == RoomUse::Past && self.session.is_some();
        if !(is_asked || is_guarded || is_in || may_begin) {
            return self.unasked(Event::Entered);
        }
        let visitor = self.visitor(&parts.headers, url_ticket);
        if let Some(clean) = self.without_ticket(parts, &visitor) {
            return clean;
        }
        let mut rng = worker.rng.borrow_mut();
        let count = |event| worker.count(event);
        let admission = &worker.shared.admission;
        let mut stage = RoomStage { admission, live: &live, rng: &mut rng, count: &count, now: self.started };
        let has_somewhere_to_go = worker.shared.has_somewhere_to_go(&live.settings.role);
        if is_in && (meets != RoomUse::Room || has_somewhere_to_go) {
            return self.enter_by_session(&mut stage, &visitor);
        }
        match meets {
            RoomUse::AsPart if self.passes_as_part(&stage, &visitor) => self.enter_as_part(is_guarded),
            RoomUse::Never => stage.ask(self.class, &visitor, false, None),
            RoomUse::Past => self.enter_past(&mut stage, &visitor, is_guarded),
            RoomUse::Room | RoomUse::AsPart if !has_somewhere_to_go => {
                RoomOutcome::Wait(stage.hold(self.class, &visitor))
            }
            RoomUse::Room | RoomUse::AsPart => self.ask_room(&mut stage, &visitor),
        }
    }

    /// Asks for a place, and for one among the sessions where they are counted.
    fn ask_room(&mut self, stage: &mut RoomStage<'_>, visitor: &Visitor<'_>) -> RoomOutcome {
        let session = &stage.live.settings.session;
        let Some(key) = self.session.as_ref().map(|seat| seat.offer(session.key, stage.rng)) else {
            return stage.ask(self.class, visitor, true, None);
        };
        let worker = self.worker.clone();
        let when_full = match session.when_full {
            WhenFull::Room => admission::WhenFull::Room,
            WhenFull::Refuse => admission::WhenFull::Refuse,
        };
        let seat = admission::SessionAsk::new(&worker.shared.sessions.table, key, self.tier, when_full);
        let outcome = stage.ask(self.class, visitor, true, Some(&seat));
        if let Some(request) = seat.under_way.take() {
            debug_assert!(
                matches!(outcome, RoomOutcome::Enter { .. }),
                "a place is taken by one who does not enter"
            );
            self.begins_session(request);
        }
        outcome
    }

    /// Its service level passes the room, and its class's bucket as all do; its session takes a place if there is one.
    fn enter_past(
        &mut self,
        stage: &mut RoomStage<'_>,
        visitor: &Visitor<'_>,
        is_guarded: bool,
    ) -> RoomOutcome {
        let mut entered = match is_guarded {
            // Not with the place: who passes may find none.
            true => stage.ask(self.class, visitor, false, None),
            false => self.unasked(Event::Entered),
        };
        let RoomOutcome::Enter { cookies, .. } = &mut entered else { return entered };
        let by = stage.live.settings.session.key;
        let table = &self.worker.shared.sessions.table;
        let offered = self.session.as_ref().filter(|_| table.has_slot(self.tier));
        let cost = self.config.class(self.class).cost;
        let begun = offered.map(|seat| seat.offer(by, stage.rng));
        if let Some(request) = begun.and_then(|key| table.admit(key, self.tier, cost, self.started).ok()) {
            *cookies = stage.entry_cookies(self.class, visitor, Some(request.key()));
            self.begins_session(request);
        }
        entered
    }

    /// Parts of pages pass while nobody waits, and later with whoever was let in.
    fn passes_as_part(&self, stage: &RoomStage<'_>, visitor: &Visitor<'_>) -> bool {
        (!self.is_settled() && self.finds_seat()) || stage.part_of_page(visitor)
    }

    /// Parts of a page do not wait: nobody would come back for their places.
    fn enter_as_part(&self, is_guarded: bool) -> RoomOutcome {
        let cost = self.config.class(self.class).cost;
        let taken =
            if is_guarded { self.config.ingress.take(self.class, cost, self.started) } else { Ok(()) };
        match taken {
            Ok(()) => self.unasked(Event::EnteredByPass),
            Err(retry_after) => {
                self.worker.count(Event::IngressShed);
                RoomOutcome::Throttled { retry_after }
            }
        }
    }

    /// The first page a browser gets carries the ticket in its URLs, for it may keep no cookies. One that comes back
    /// with the cookie as well is shown the URL it asked for, or the ticket would stay in its address bar.
    fn without_ticket(&self, parts: &request::Parts, visitor: &Visitor<'_>) -> Option<RoomOutcome> {
        visitor.url_ticket?;
        let kept = visitor.cookies.ticket.is_some_and(|t| !t.is_empty());
        let gate = matches!(self.config.settings.role, Role::Gate);
        let shown = parts.method.is_safe() && wants_html(&parts.headers) && target::is_local(&parts.uri);
        (kept && gate && shown).then(|| RoomOutcome::Elsewhere {
            base: String::new(),
            ticket: None,
            cookies: Vec::new(),
        })
    }

    /// Enters without asking the room; tokengen forwards nothing itself.
    fn unasked(&self, by: Event) -> RoomOutcome {
        if let Role::TokenGen { check_url } = &self.config.settings.role {
            return RoomOutcome::Elsewhere { base: check_url.clone(), ticket: None, cookies: Vec::new() };
        }
        self.worker.shared.admission.charge(self.config.class(self.class).cost);
        RoomOutcome::Enter { by, cookies: Vec::new(), ticket: None }
    }

    fn meets(&self, headers: &HeaderMap) -> RoomUse {
        if !self.config.meets_room(self.class) {
            return RoomUse::Never;
        }
        if self.config.tiers.get(self.tier).is_some_and(|tier| tier.skips_room) {
            return RoomUse::Past;
        }
        if self.config.all_navigations && is_part_of_page(headers) { RoomUse::AsPart } else { RoomUse::Room }
    }

    /// Visitors wait, and have for longer than pages let in before may still be loading.
    fn is_settled(&self) -> bool {
        if matches!(self.config.settings.role, Role::TokenCheck { .. }) {
            return true;
        }
        let since = self.worker.shared.busy_since_us.load(Ordering::Relaxed);
        since != 0 && self.started.since(Timestamp::from_micros(since)) > PAGE_PARTS_SETTLE
    }
}
