//! One request and its session: where it stands, what it begins, what the origin's answer makes of it.

use http::{HeaderMap, HeaderName, HeaderValue};
use rand::RngCore;
use tidegate_core::measure::Event;
use tidegate_core::session::{Ender, SessionKey, SessionRequest, SessionStatus};
use tidegate_core::ticket::{Pass, PassKind};
use tidegate_core::units::{ClassId, Timestamp};

use crate::proxy::context::RequestContext;
use crate::proxy::cookies;
use crate::proxy::cookies::Cookies;
use crate::proxy::stages::room::{RoomOutcome, RoomStage, Visitor, authentic_pass};
use crate::shared::sessions::{RENEWALS, RequestSession, SessionGuard, SessionLink, of_nonce};
use tidegate_settings::SessionBy;

/// By which the origin ends a session.
const FIELD: HeaderName = HeaderName::from_static("tidegate-session");
/// What the field says then.
const END: &str = "end";

impl RequestContext {
    /// Finds out whose session a request is of, which is kept alive by it from now on.
    pub(crate) fn sit(&mut self, headers: &HeaderMap) {
        if !self.config.seats_visitors() {
            return;
        }
        let (by, now) = (self.config.settings.session.key, self.started);
        let visitor = self.visitor(headers, None);
        let pass = if by == SessionBy::Pass { authentic_pass(&self.config, &visitor) } else { None };
        let seats = &self.worker.shared.sessions;
        let key = match &pass {
            Some(pass) => Some(of_nonce(pass.nonce)),
            None => seats.keys.shown(
                &self.config.settings.session,
                headers,
                self.client,
                self.conn.session.number,
            ),
        };
        let cost = self.config.class(self.class).cost;
        let (mut standing, mut request) =
            key.map_or((SessionStatus::New, None), |key| seats.table.touch(key, cost, now));
        if let (SessionStatus::New, Some(pass), Some(key)) = (standing, &pass, key)
            && self.config.session_rules().admits(pass, now).is_some()
        {
            request = seats.table.readmit(key, self.tier, pass.first, now);
            standing = if request.is_some() { SessionStatus::Admitted } else { standing };
        }
        let (binding, is_secure) = (visitor.cookies.binding, visitor.secure);
        let stay = request.map(|request| {
            let worker = self.worker.clone();
            SessionGuard { worker, request: Some(request), begins: None }
        });
        self.session = Some(Box::new(RequestSession { key, standing, pass, binding, is_secure, stay }));
    }

    /// A place is free for the session that the request would begin; where sessions are not counted there always is one.
    pub(crate) fn finds_seat(&self) -> bool {
        self.session.is_none() || self.worker.shared.sessions.table.has_slot(self.tier)
    }

    /// Enters by its session, past room and buckets, which are told of it.
    pub(crate) fn enter_by_session(&self, stage: &mut RoomStage<'_>, visitor: &Visitor<'_>) -> RoomOutcome {
        let cost = self.config.class(self.class).cost;
        self.config.ingress.charge(self.class, cost, self.started);
        stage.admission.charge(cost);
        let mut cookies = Vec::new();
        let pass = self.session.as_ref().and_then(|seat| seat.pass);
        if let Some(pass) = pass.filter(|pass| self.is_due_for_renewal(pass)) {
            stage.hand_out(&Pass { issued: self.started, ..pass }, visitor, &mut cookies);
        }
        RoomOutcome::Enter { by: Event::EnteredByPass, cookies, ticket: None }
    }

    fn is_due_for_renewal(&self, pass: &Pass) -> bool {
        self.started.since(pass.issued) > self.config.settings.session.timeout / RENEWALS
    }

    /// The room has let the request in: its session has begun.
    pub(crate) fn begins_session(&mut self, request: SessionRequest) {
        if let Some(seat) = &mut self.session {
            self.conn.session.ends_with(self.config.settings.session.key, request.key());
            seat.begins(&self.worker, request);
        }
    }

    /// What the origin's answer makes of the session. The field is for the gate alone, also where it counts none.
    pub(crate) fn answered(&mut self, headers: &mut HeaderMap, cookies: &mut Vec<HeaderValue>) {
        let ends = headers.get_all(&FIELD).iter().any(says_end);
        headers.remove(&FIELD);
        let now = self.worker.now();
        let Some(mut seat) = self.session.take() else { return };
        let by = self.config.settings.session.key;
        let table = &self.worker.shared.sessions.table;
        if ends {
            if let Some(request) = seat.request() {
                table.end_of(request, Ender::Origin, now);
                seat.keep();
                seat.standing = SessionStatus::Ended;
                self.hand_out_last(&seat, cookies, now);
            } else if seat.pass.is_some() {
                cookies.push(cookies::clear_pass(seat.is_secure));
            }
        } else if by == SessionBy::Cookie {
            self.rename(&mut seat, headers, now);
        } else {
            seat.keep();
        }
        self.session = Some(seat);
    }

    /// The page that ends a session has parts that are still to come: in place of the session's pass it gets one for them, which begins
    /// no session.
    fn hand_out_last(&self, seat: &RequestSession, cookies: &mut Vec<HeaderValue>, now: Timestamp) {
        cookies.retain(|cookie| !cookies::is_pass(cookie));
        let (worker, live) = (&self.worker, &self.config);
        let mut rng = worker.rng.borrow_mut();
        let class = ClassId(live.class(self.class).mark.0);
        let pass = Pass { kind: PassKind::Page, class, issued: now, first: now, nonce: rng.next_u64() };
        let binding = seat.binding.or_else(|| cookies::binding_set(cookies));
        let shown = Cookies { binding, any: true, ..Cookies::default() };
        let (ip, secure) = (self.client, seat.is_secure);
        let visitor = Visitor { ip, cookies: shown, url_ticket: None, secure, can_return: true };
        let count = |event| worker.count(event);
        let mut stage =
            RoomStage { admission: &worker.shared.admission, live, rng: &mut rng, count: &count, now };
        stage.hand_out(&pass, &visitor, cookies);
    }

    /// An application has the last word on its cookie: an admitted session goes on under the value it sets.
    fn rename(&self, seat: &mut RequestSession, headers: &HeaderMap, now: Timestamp) {
        if !seat.is_admitted() {
            return;
        }
        let seats = &self.worker.shared.sessions;
        let begins = seat.stay.as_ref().and_then(|stay| stay.begins.as_ref());
        let is_untold = begins.is_some_and(|begins| begins.is_untold);
        match seats.keys.set(&self.config.settings.session.cookie, headers, now) {
            Some(new) if Some(new) != seat.key => {
                if let Some(request) = seat.request() {
                    seats.table.rename(request, new, now);
                }
                seat.key = Some(new);
                seat.keep();
            }
            // Nobody will ever show what it was admitted by: dropped, its place is free.
            None if is_untold => seat.stay = None,
            _ => seat.keep(),
        }
    }
}

impl SessionLink {
    /// The session that a request has begun ends with the connection, if that is what tells it.
    fn ends_with(&self, by: SessionBy, key: SessionKey) {
        if by == SessionBy::Connection {
            self.session.replace(Some(key));
        }
    }
}

fn says_end(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.trim().eq_ignore_ascii_case(END))
}
