//! One request and its session: which one it is, what begins with it, and what the answer does to it.

use rand::RngCore;
use tidegate_core::admission::{Presented, SessionClaim};
use tidegate_core::session::{Ender, SessionRequest, SessionStatus};
use tidegate_core::ticket::{Pass, PassKind};
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_http::{Fields, Name};

use crate::proxy::context::RequestContext;
use crate::proxy::cookies::{Cookies, SetCookies};
use crate::proxy::navigation::{comes_from_here, program};
use crate::proxy::stages::room::{RoomStage, Visitor};
use crate::shared::sessions::{RequestSession, SessionGuard, of_nonce};
use tidegate_settings::SessionBy;

const FIELD: Name<'static> = Name::Other("tidegate-session");
const END: &[u8] = b"end";

impl RequestContext {
    /// Finds the session that a request belongs to; the request keeps it alive from now on.
    pub(crate) fn recognise_session(&mut self, fields: &Fields, url_ticket: Option<&str>) {
        if !self.config.counts_sessions() {
            return;
        }
        let by = self.config.settings.session.key;
        let visitor = self.visitor(fields, url_ticket);
        let shared = &self.worker.shared.sessions;
        let mut session = RequestSession {
            binding: visitor.cookies.binding,
            is_secure: visitor.secure,
            is_without_cookies: by == SessionBy::Pass && visitor.cookies.are_none(),
            ..RequestSession::default()
        };
        if by == SessionBy::Pass {
            self.recognise_by_pass(&mut session, &visitor, fields);
        } else {
            let settings = &self.config.settings.session;
            session.key = shared.keys.shown(settings, fields, self.client, self.conn.session.number);
            self.touch_session(&mut session);
        }
        self.session = Some(Box::new(session));
    }

    /// By the pass; before the visitor has one, by the ticket that it was let in with; without cookies, by
    /// the address.
    fn recognise_by_pass(&self, session: &mut RequestSession, visitor: &Visitor<'_>, fields: &Fields) {
        let by_address = &self.worker.shared.sessions.by_address;
        session.pass = visitor.pass(&self.config).filter(|pass| pass.kind == PassKind::Session);
        if let Some(pass) = &session.pass {
            let key = of_nonce(pass.nonce);
            by_address.keeps_cookies(self.client, program(fields), key);
            session.key = Some(key);
            self.touch_session(session);
        }
        if session.is_admitted() {
            return;
        }
        let noted = || by_address.find(self.client, program(fields));
        let shown = visitor.ticket(&self.config);
        if let Presented::Ticket(ticket) = shown.shown {
            let key = of_nonce(ticket.nonce);
            session.ticket_key = Some(key);
            // Neighbours may have a URL from its visitor: a ticket in a URL is good for all of a network.
            if !shown.is_from_url || noted() == Some(key) {
                (session.key, session.pass) = (Some(key), None);
                self.touch_session(session);
            }
        } else if session.is_without_cookies && comes_from_here(fields) {
            session.key = noted();
            self.touch_session(session);
        }
    }

    /// Finds the session of the key, if it is open.
    fn touch_session(&self, session: &mut RequestSession) {
        let Some(key) = session.key else { return };
        let claim = SessionClaim {
            sessions: &self.worker.shared.sessions.table,
            rules: self.config.session_rules(),
            key,
            pass: session.pass.as_ref(),
            tier: self.tier,
            cost: self.cost(),
        };
        let (standing, request) = claim.recognise(self.started);
        session.standing = standing;
        session.stay = request.map(|request| SessionGuard {
            worker: self.worker.clone(),
            request: Some(request),
            begins: None,
        });
    }

    pub(crate) fn begins_session(&mut self, fields: &Fields, request: SessionRequest) {
        if let Some(session) = &mut self.session {
            if session.is_without_cookies {
                let sessions = &self.worker.shared.sessions;
                let (key, now) = (request.key(), self.started);
                sessions.by_address.note(self.client, program(fields), key, &sessions.table, now);
            }
            self.conn.session.ends_with(self.config.settings.session.key, request.key());
            session.begins(&self.worker, request);
        }
    }

    /// Applies the origin's answer to the session; whether it ends it. The field that says so is for the gate
    /// alone, even without sessions.
    pub(crate) fn answered(&mut self, fields: &mut Fields, cookies: &mut SetCookies) -> bool {
        let is_told = fields.contains(FIELD);
        let ends = is_told && fields.get_all(FIELD).any(|value| value.eq_ignore_ascii_case(END));
        if is_told {
            fields.remove(FIELD);
        }
        if ends {
            self.end_session(cookies);
        } else if let Some(mut session) = self.session.take() {
            match self.config.settings.session.key {
                SessionBy::Cookie => self.rename(&mut session, fields, self.worker.now()),
                _ => session.keep(),
            }
            self.session = Some(session);
        }
        ends
    }

    /// Ends the session of the request by the origin's order, which may be in an answer for many.
    pub(crate) fn end_session(&mut self, cookies: &mut SetCookies) {
        let Some(mut session) = self.session.take() else { return };
        let now = self.worker.now();
        if let Some(request) = session.request() {
            self.worker.shared.sessions.table.end_of(request, Ender::Origin, now);
            session.keep();
            session.standing = SessionStatus::Ended;
            self.hand_out_last(&session, cookies, now);
        } else if session.pass.is_some() {
            cookies.clear_pass(session.is_secure);
        }
        self.session = Some(session);
    }

    /// The page that ends a session has parts that are still to come. Instead of the session's pass it gets
    /// one for them, which begins no session.
    fn hand_out_last(&self, session: &RequestSession, cookies: &mut SetCookies, now: Timestamp) {
        cookies.forget_pass();
        let (worker, config) = (&self.worker, &self.config);
        let mut rng = worker.rng.borrow_mut();
        let class = ClassId(config.class(self.class).mark.0);
        let pass = Pass { kind: PassKind::Page, class, issued: now, first: now, nonce: rng.next_u64() };
        let binding = session.binding.or_else(|| cookies.new_binding());
        let shown = Cookies { binding, ..Cookies::default() };
        let (ip, secure) = (self.client, session.is_secure);
        let visitor = Visitor {
            ip,
            cookies: shown,
            url_ticket: None,
            rebind: None,
            secure,
            keeps_cookies: true,
            reads_pages: false,
            can_return: true,
        };
        let mut stage = RoomStage { admission: &worker.shared.admission, config, rng: &mut rng, now };
        stage.hand_out(&pass, &visitor, cookies);
    }

    /// An application decides on its cookie's value: an admitted session goes on under the value it sets.
    fn rename(&self, session: &mut RequestSession, fields: &Fields, now: Timestamp) {
        if !session.is_admitted() {
            return;
        }
        let shared = &self.worker.shared.sessions;
        let begins = session.stay.as_ref().and_then(|stay| stay.begins.as_ref());
        let is_untold = begins.is_some_and(|begins| begins.is_untold);
        match shared.keys.set(&self.config.settings.session.cookie, fields, now) {
            Some(new) if Some(new) != session.key => {
                if let Some(request) = session.request() {
                    shared.table.rename(request, new, now);
                }
                session.key = Some(new);
                session.keep();
            }
            // Nobody will ever show the key that it was admitted by: the session and its slot are freed.
            None if is_untold => session.stay = None,
            _ => session.keep(),
        }
    }
}
