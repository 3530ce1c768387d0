//! One request and its session: which one it is, what begins with it, and what the answer does to it.

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use rand::RngCore;
use tidegate_core::admission::SessionClaim;
use tidegate_core::session::{Ender, SessionRequest, SessionStatus};
use tidegate_core::ticket::{Pass, PassKind};
use tidegate_core::units::{ClassId, Timestamp};

use crate::proxy::context::RequestContext;
use crate::proxy::cookies::{self, Cookies};
use crate::proxy::stages::room::{RoomStage, Visitor};
use crate::shared::sessions::{RequestSession, SessionGuard, of_nonce};
use tidegate_settings::SessionBy;

const FIELD: HeaderName = HeaderName::from_static("tidegate-session");
const END: &str = "end";
/// How the page that made a request is related to its target (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl RequestContext {
    /// Finds the session that a request belongs to; the request keeps it alive from now on.
    pub(crate) fn recognise_session(&mut self, headers: &HeaderMap) {
        if !self.config.counts_sessions() {
            return;
        }
        let by = self.config.settings.session.key;
        let visitor = self.visitor(headers, None);
        let pass = if by == SessionBy::Pass { visitor.pass(&self.config) } else { None };
        let pass = pass.filter(|pass| pass.kind == PassKind::Session);
        let shared = &self.worker.shared.sessions;
        let cookies = &visitor.cookies;
        let is_without_cookies = by == SessionBy::Pass
            && cookies.pass.is_none()
            && cookies.binding.is_none()
            && cookies.ticket.is_none();
        let key = match &pass {
            Some(pass) => {
                let key = of_nonce(pass.nonce);
                shared.by_address.keeps_cookies(self.client, program(headers), key);
                Some(key)
            }
            None if is_without_cookies && comes_from_here(headers) => {
                shared.by_address.find(self.client, program(headers))
            }
            None => shared.keys.shown(
                &self.config.settings.session,
                headers,
                self.client,
                self.conn.session.number,
            ),
        };
        let claim = key.map(|key| SessionClaim {
            sessions: &shared.table,
            rules: self.config.session_rules(),
            key,
            pass: pass.as_ref(),
            tier: self.tier,
            cost: self.config.class(self.class).cost,
        });
        let (standing, request) =
            claim.map_or((SessionStatus::New, None), |claim| claim.recognise(self.started));
        let (binding, is_secure) = (visitor.cookies.binding, visitor.secure);
        let stay = request.map(|request| {
            let worker = self.worker.clone();
            SessionGuard { worker, request: Some(request), begins: None }
        });
        self.session = Some(Box::new(RequestSession {
            key,
            standing,
            pass,
            binding,
            is_secure,
            is_without_cookies,
            stay,
        }));
    }

    pub(crate) fn begins_session(&mut self, headers: &HeaderMap, request: SessionRequest) {
        if let Some(session) = &mut self.session {
            if session.is_without_cookies {
                let sessions = &self.worker.shared.sessions;
                let (key, now) = (request.key(), self.started);
                sessions.by_address.note(self.client, program(headers), key, &sessions.table, now);
            }
            self.conn.session.ends_with(self.config.settings.session.key, request.key());
            session.begins(&self.worker, request);
        }
    }

    /// Applies the origin's answer to the session; whether it ends it. The field that says so is for the gate
    /// alone, even without sessions.
    pub(crate) fn answered(&mut self, headers: &mut HeaderMap, cookies: &mut Vec<HeaderValue>) -> bool {
        let ends = headers.get_all(&FIELD).iter().any(says_end);
        headers.remove(&FIELD);
        if ends {
            self.end_session(cookies);
        } else if let Some(mut session) = self.session.take() {
            match self.config.settings.session.key {
                SessionBy::Cookie => self.rename(&mut session, headers, self.worker.now()),
                _ => session.keep(),
            }
            self.session = Some(session);
        }
        ends
    }

    /// Ends the session of the request by the origin's order, which may be in an answer for many.
    pub(crate) fn end_session(&mut self, cookies: &mut Vec<HeaderValue>) {
        let Some(mut session) = self.session.take() else { return };
        let now = self.worker.now();
        if let Some(request) = session.request() {
            self.worker.shared.sessions.table.end_of(request, Ender::Origin, now);
            session.keep();
            session.standing = SessionStatus::Ended;
            self.hand_out_last(&session, cookies, now);
        } else if session.pass.is_some() {
            cookies.push(cookies::clear_pass(session.is_secure));
        }
        self.session = Some(session);
    }

    /// The page that ends a session has parts that are still to come. Instead of the session's pass it gets
    /// one for them, which begins no session.
    fn hand_out_last(&self, session: &RequestSession, cookies: &mut Vec<HeaderValue>, now: Timestamp) {
        cookies.retain(|cookie| !cookies::is_pass(cookie));
        let (worker, config) = (&self.worker, &self.config);
        let mut rng = worker.rng.borrow_mut();
        let class = ClassId(config.class(self.class).mark.0);
        let pass = Pass { kind: PassKind::Page, class, issued: now, first: now, nonce: rng.next_u64() };
        let binding = session.binding.or_else(|| cookies::binding_set(cookies));
        let shown = Cookies { binding, ..Cookies::default() };
        let (ip, secure) = (self.client, session.is_secure);
        let visitor = Visitor {
            ip,
            cookies: shown,
            url_ticket: None,
            rebind: None,
            secure,
            keeps_cookies: true,
            can_return: true,
        };
        let mut stage = RoomStage { admission: &worker.shared.admission, config, rng: &mut rng, now };
        stage.hand_out(&pass, &visitor, cookies);
    }

    /// An application decides on its cookie's value: an admitted session goes on under the value it sets.
    fn rename(&self, session: &mut RequestSession, headers: &HeaderMap, now: Timestamp) {
        if !session.is_admitted() {
            return;
        }
        let shared = &self.worker.shared.sessions;
        let begins = session.stay.as_ref().and_then(|stay| stay.begins.as_ref());
        let is_untold = begins.is_some_and(|begins| begins.is_untold);
        match shared.keys.set(&self.config.settings.session.cookie, headers, now) {
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

/// Whether a request was made by a page of the site that it is for.
fn comes_from_here(headers: &HeaderMap) -> bool {
    if headers.get(&SEC_FETCH_SITE).is_some_and(|site| site == "same-origin") {
        return true;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let authority =
        |url: &'_ str| url.split_once("://").map(|(_, rest)| rest.split('/').next() == text(HOST));
    text(REFERER).and_then(authority).unwrap_or(false)
}

/// The program that a client says it is.
fn program(headers: &HeaderMap) -> &[u8] {
    headers.get(USER_AGENT).map_or(&[], HeaderValue::as_bytes)
}

fn says_end(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.trim().eq_ignore_ascii_case(END))
}
