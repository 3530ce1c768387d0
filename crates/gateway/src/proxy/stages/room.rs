//! Performs the room stage: reads what a visitor carries, asks the room, and says what to hand out.
//!
//! The decisions are `tidegate_core::room`'s; here are only cookies, query parameters and seals.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_LANGUAGE;
use http::{HeaderMap, HeaderValue, Response, request};
use hyper::body::Incoming;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use tidegate_core::admission::{Admission, AdmissionRequest, Decision, Position, Presented, SessionAsk};
use tidegate_core::measure::Event;
use tidegate_core::room::Wait;
use tidegate_core::session::SessionKey;
use tidegate_core::ticket::{Binding, KeyRing, Pass, PassKind, Presenter, Sealed, Ticket, TicketError};
use tidegate_core::units::{ClassId, Timestamp};

use crate::config::page;
use crate::config::page::Kind;
use crate::config::{ClassTag, Config};
use crate::http::target;
use crate::proxy::context::RequestContext;
use crate::proxy::cookies;
use crate::proxy::cookies::Cookies;
use crate::proxy::navigation::{can_return, kept_form, wants_html};
use crate::proxy::respond;
use crate::proxy::respond::{AnswerRequest, WaitingAnswer};
use crate::shared::sessions;
use tidegate_settings::{Role, SessionBy, Unit};

/// A page's own requests (style sheets, images) follow it within this time: long enough for a slow phone.
const PAGE_PASS: Duration = Duration::from_secs(120);

/// What a request carries that the room must know.
pub struct Visitor<'a> {
    /// Its address, as far as trusted proxies tell.
    pub ip: IpAddr,
    /// Its cookies.
    pub cookies: Cookies<'a>,
    /// The ticket in the URL.
    pub url_ticket: Option<&'a str>,
    /// It came over TLS (to a proxy in front).
    pub secure: bool,
    /// It says that it can wait and come back: [`can_return`](crate::proxy::navigation::can_return).
    pub can_return: bool,
}

impl Visitor<'_> {
    fn presenter(&self) -> Presenter {
        Presenter { ip: self.ip, cookie: self.cookies.binding }
    }

    /// The ticket shown: the cookie first, because it is the one the gate renews.
    pub(crate) fn ticket(&self, live: &Config) -> Option<Result<Ticket, TicketError>> {
        let shown = self.cookies.ticket.filter(|t| !t.is_empty()).or(self.url_ticket)?;
        Some(
            live.keys
                .open(shown.as_bytes(), &self.presenter(), live.bindings)
                .map(|ticket| taken_in(live, ticket)),
        )
    }

    fn shown(&self, live: &Config) -> Presented {
        match self.ticket(live) {
            None => Presented::Nothing,
            Some(Ok(ticket)) => Presented::Ticket(ticket),
            Some(Err(_)) => Presented::Forged,
        }
    }
}

impl RequestContext {
    pub(crate) fn visitor<'a>(&self, headers: &'a HeaderMap, url_ticket: Option<&'a str>) -> Visitor<'a> {
        Visitor {
            ip: self.client,
            cookies: Cookies::read(headers, self.config.class(self.class).mark),
            url_ticket,
            secure: target::scheme(headers, self.trusted) == "https",
            can_return: can_return(headers),
        }
    }

    /// The waiting room's answer; a form is kept in the page.
    pub(crate) async fn waiting_answer(
        &mut self,
        parts: &request::Parts,
        body: Incoming,
        w: WaitingAnswer,
    ) -> Response<Bytes> {
        let mut html = wants_html(&parts.headers);
        let mut form = None;
        if html && !parts.method.is_safe() {
            form = kept_form(parts, body, self.config.settings.room.max_form_bytes).await;
            html = form.is_some();
        }
        let asked = AnswerRequest {
            class: self.class,
            target: parts.uri.path_and_query().map_or("/", |t| t.as_str()),
            html,
            language: parts.headers.get(ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()),
            form: form.as_ref(),
        };
        let response = respond::waiting(&self.config, &asked, w);
        self.log_own(&response, "waiting");
        response
    }
}

/// What the room says of a request.
pub enum RoomOutcome {
    /// Forward it, and hand these cookies out with the answer.
    Enter {
        /// Why it may.
        by: Event,
        /// To set with the origin's answer.
        cookies: Vec<HeaderValue>,
        /// The ticket redeemed for it, if it was one.
        ticket: Option<Ticket>,
    },
    /// Answer it.
    Wait(Box<WaitingAnswer>),
    /// Its class's ingress bucket is empty: refuse it.
    Throttled {
        /// When to come again.
        retry_after: Duration,
    },
    /// No place is free for the session that it would begin: refuse it.
    NoPlace {
        /// When to come again.
        retry_after: Duration,
    },
    /// Send it to the other half of the two-process form, with this ticket in the URL if there is one.
    Elsewhere {
        /// The base URL of the other half.
        base: String,
        /// What it shows there.
        ticket: Option<Sealed>,
        /// To set with the redirect.
        cookies: Vec<HeaderValue>,
    },
}

/// The room stage of one worker: its own randomness, the shared room.
pub struct RoomStage<'a> {
    /// The room all workers share, or this process's half of it.
    pub admission: &'a Admission,
    /// Configuration in force.
    pub live: &'a Config,
    /// This worker's generator, seeded by the operating system.
    pub rng: &'a mut StdRng,
    /// Counts.
    pub count: &'a dyn Fn(Event),
    /// Time of the request.
    pub now: Timestamp,
}

impl RoomStage<'_> {
    /// One request of a class that waits, or (`waits` is false) whose ingress may have it wait. `seat`: the session that it would
    /// begin needs a place.
    pub fn ask(
        &mut self,
        class: ClassId,
        visitor: &Visitor<'_>,
        waits: bool,
        seat: Option<&SessionAsk<'_>>,
    ) -> RoomOutcome {
        let asking = AdmissionRequest {
            class,
            cost: self.live.class(class).cost,
            shown: visitor.shown(self.live),
            sends_on: matches!(self.live.settings.role, Role::TokenGen { .. }),
        };
        let rng = &mut *self.rng;
        // Whoever carries a cookie of ours has understood an answer of the room before.
        let is_known = visitor.cookies.binding.is_some() || visitor.cookies.pass.is_some();
        let entrance = self.live.entrance(waits, visitor.can_return || is_known);
        let mut nonce = || rng.next_u64();
        let verdict = self.admission.ask_for(&entrance, &asking, seat, &mut nonce, self.count, self.now);
        self.perform(verdict, class, visitor, seat.map(|seat| seat.key))
    }

    fn perform(
        &mut self,
        verdict: Decision,
        class: ClassId,
        visitor: &Visitor<'_>,
        session: Option<SessionKey>,
    ) -> RoomOutcome {
        match verdict {
            Decision::Enter { ticket: Some(ticket) } => {
                let cookies = self.entry_cookies(class, visitor, session);
                RoomOutcome::Enter { by: Event::EnteredByTicket, cookies, ticket: Some(ticket) }
            }
            Decision::Enter { ticket: None } => {
                let had_place = visitor.cookies.ticket.is_some();
                let cookies = if session.is_some() || had_place {
                    self.entry_cookies(class, visitor, session)
                } else {
                    Vec::new() // no overload: the visitor's answer is the origin's, byte for byte
                };
                RoomOutcome::Enter { by: Event::Entered, cookies, ticket: None }
            }
            Decision::SendOn { ticket, redeemed } => {
                let base = match &self.live.settings.role {
                    Role::TokenGen { check_url } => check_url.clone(),
                    _ => unreachable!("only tokengen sends on"),
                };
                let cookies = match redeemed {
                    true => vec![cookies::clear_ticket(self.live.class(class).mark, visitor.secure)],
                    false => Vec::new(),
                };
                RoomOutcome::Elsewhere { base, ticket: Some(self.url_ticket(&ticket, visitor)), cookies }
            }
            Decision::SendBack => {
                let base = match &self.live.settings.role {
                    Role::TokenCheck { gen_url, .. } => gen_url.clone(),
                    _ => unreachable!("only tokencheck sends back"),
                };
                RoomOutcome::Elsewhere { base, ticket: None, cookies: Vec::new() }
            }
            Decision::Wait { ticket, wait, place: Position::Kept } => self.same_place(&ticket, wait, visitor),
            Decision::Wait { ticket, wait, place } => self.new_place(kind(place), &ticket, wait, visitor),
            Decision::Full { retry_after } => {
                RoomOutcome::Wait(Box::new(self.told(Kind::Full, retry_after, 0, Duration::ZERO)))
            }
            Decision::Forbidden => self.forbidden(class, visitor),
            Decision::Refused { retry_after } => RoomOutcome::Throttled { retry_after },
            Decision::NoPlace { retry_after } => RoomOutcome::NoPlace { retry_after },
        }
    }

    /// A request for a part of a page while others wait: only for visitors who were let in. Where sessions are counted, the pass of
    /// one is good for what the table says, and nothing else.
    pub fn part_of_page(&self, visitor: &Visitor<'_>) -> bool {
        let Some(text) = visitor.cookies.pass else { return false };
        let opened = self.live.keys.open_pass(text.as_bytes(), &visitor.presenter(), self.live.bindings);
        opened.is_ok_and(|pass| match pass.kind {
            PassKind::Session if self.live.seats_visitors() => false,
            PassKind::Session => self.now.since(pass.issued) <= self.live.settings.session.timeout,
            PassKind::Page => self.now.since(pass.issued) <= PAGE_PASS,
        })
    }

    /// All replicas are down: nobody enters, everybody keeps or gets a place.
    pub fn hold(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Box<WaitingAnswer> {
        let shown = visitor.shown(self.live);
        let wait = self.admission.hold(class, &shown, self.now);
        let waited = match shown {
            Presented::Ticket(ticket) if ticket.class == class => self.now.since(ticket.arrived),
            _ => Duration::ZERO,
        };
        Box::new(self.told(Kind::Unavailable, wait.wait, people_ahead(&wait), waited))
    }

    fn new_place(&mut self, kind: Kind, ticket: &Ticket, wait: Wait, visitor: &Visitor<'_>) -> RoomOutcome {
        // Longer than any wait may become when the capacity falls: whether a ticket holds is told by what is in it.
        let keep = self.live.settings.room.max_wait * 2 + self.live.settings.room.grace;
        let mut cookies = Vec::with_capacity(2);
        let binding = self.binding(visitor, &mut cookies);
        let mark = self.live.class(ticket.class).mark;
        let sealed = self.live.keys.seal(&handed_out(mark, ticket), &binding);
        cookies.push(cookies::set_ticket(mark, sealed.as_str(), keep, visitor.secure));
        let mut told = self.told(kind, wait.wait, people_ahead(&wait), self.now.since(ticket.arrived));
        told.cookies = cookies;
        told.url_ticket = (!visitor.cookies.any).then(|| self.url_ticket(ticket, visitor));
        RoomOutcome::Wait(Box::new(told))
    }

    fn same_place(&mut self, ticket: &Ticket, wait: Wait, visitor: &Visitor<'_>) -> RoomOutcome {
        let waited = self.now.since(ticket.arrived);
        let mut told = self.told(Kind::Waiting, wait.wait, people_ahead(&wait), waited);
        told.url_ticket = (!visitor.cookies.any).then(|| self.url_ticket(ticket, visitor));
        RoomOutcome::Wait(Box::new(told))
    }

    fn forbidden(&mut self, class: ClassId, visitor: &Visitor<'_>) -> RoomOutcome {
        let mut told = self.told(Kind::Forbidden, Duration::ZERO, 0, Duration::ZERO);
        // So that an honest browser with a spoilt cookie can start again.
        told.cookies = vec![cookies::clear_ticket(self.live.class(class).mark, visitor.secure)];
        RoomOutcome::Wait(Box::new(told))
    }

    fn told(&mut self, kind: Kind, wait: Duration, place: u64, waited: Duration) -> WaitingAnswer {
        let poll = page::poll_interval(wait, &self.admission.ask_every(), self.rng.random());
        WaitingAnswer { kind, wait, place, waited, poll, url_ticket: None, cookies: Vec::new(), status: None }
    }

    /// What a cookie is bound to; a new binding cookie if the visitor has none.
    fn binding(&mut self, visitor: &Visitor<'_>, cookies: &mut Vec<HeaderValue>) -> Binding {
        match self.live.settings.room.binding {
            tidegate_settings::Binding::None => Binding::None,
            tidegate_settings::Binding::Ip => Binding::Ip(visitor.ip),
            tidegate_settings::Binding::IpPrefix => Binding::IpPrefix(visitor.ip),
            tidegate_settings::Binding::Cookie => {
                let value = visitor.cookies.binding.unwrap_or_else(|| {
                    let mut value = [0; 16];
                    self.rng.fill_bytes(&mut value);
                    cookies.push(cookies::set_binding(value, visitor.secure));
                    value
                });
                Binding::Cookie(value)
            }
        }
    }

    /// The same ticket for clients without cookies: tied to the address instead.
    fn url_ticket(&self, ticket: &Ticket, visitor: &Visitor<'_>) -> Sealed {
        let binding = match self.live.settings.room.binding {
            tidegate_settings::Binding::None => Binding::None,
            tidegate_settings::Binding::Ip => Binding::Ip(visitor.ip),
            tidegate_settings::Binding::IpPrefix | tidegate_settings::Binding::Cookie => {
                Binding::IpPrefix(visitor.ip)
            }
        };
        self.live.keys.seal(&handed_out(self.live.class(ticket.class).mark, ticket), &binding)
    }

    /// With the first answer after a place was used: the ticket goes, a pass comes. `session`: what it begins, if sessions are
    /// counted.
    pub fn entry_cookies(
        &mut self,
        class: ClassId,
        visitor: &Visitor<'_>,
        session: Option<SessionKey>,
    ) -> Vec<HeaderValue> {
        let mark = self.live.class(class).mark;
        let mut cookies = Vec::with_capacity(3);
        if visitor.cookies.ticket.is_some() {
            cookies.push(cookies::clear_ticket(mark, visitor.secure));
        }
        let settings = &self.live.settings;
        let (kind, nonce) = match session {
            None if settings.room.unit == Unit::Request => (PassKind::Page, self.rng.next_u64()),
            Some(key) if settings.session.key == SessionBy::Pass => {
                (PassKind::Session, sessions::nonce_of(key))
            }
            // Something else tells the session, or none begins.
            None | Some(_) => return cookies,
        };
        let pass = Pass { kind, class: ClassId(mark.0), issued: self.now, first: self.now, nonce };
        self.hand_out(&pass, visitor, &mut cookies);
        cookies
    }

    /// A pass travels in a cookie and nowhere else, so whoever shows one keeps cookies: it is bound as tickets in
    /// cookies are. Bound to the address, it would be lost with it (a phone leaves the wireless network), and good
    /// for all neighbours.
    pub fn hand_out(&mut self, pass: &Pass, visitor: &Visitor<'_>, cookies: &mut Vec<HeaderValue>) {
        let binding = self.binding(visitor, cookies);
        let sealed = self.live.keys.seal_pass(pass, &binding);
        let keep = match pass.kind {
            // Not for its timeout: requests under way, and answers that renew no pass, keep the session for longer.
            PassKind::Session => {
                self.live.settings.session.max_age.saturating_sub(self.now.since(pass.first))
            }
            PassKind::Page => PAGE_PASS,
        };
        cookies.push(cookies::set_pass(sealed.as_str(), keep, visitor.secure));
    }
}

/// The pass of a session that the visitor shows, if it is its own: whether it still holds is another matter.
pub fn authentic_pass(live: &Config, visitor: &Visitor<'_>) -> Option<Pass> {
    let text = visitor.cookies.pass?;
    let pass = live.keys.open_pass(text.as_bytes(), &visitor.presenter(), live.bindings).ok()?;
    (pass.kind == PassKind::Session).then_some(pass)
}

/// The room counts from one: one is next.
pub fn people_ahead(wait: &Wait) -> u64 {
    wait.position.saturating_sub(1)
}

fn kind(place: Position) -> Kind {
    match place {
        Position::New | Position::Kept => Kind::Waiting,
        Position::Late => Kind::Late,
        Position::Replaced => Kind::Replaced,
    }
}

/// A ticket that was shown, with its class's id in place of its mark. That of a class that is not there any more is no class's.
fn taken_in(live: &Config, ticket: Ticket) -> Ticket {
    Ticket { class: live.marked(ClassTag(ticket.class.0)).unwrap_or(ClassId(u8::MAX)), ..ticket }
}

/// And the other way.
fn handed_out(mark: ClassTag, ticket: &Ticket) -> Ticket {
    Ticket { class: ClassId(mark.0), ..*ticket }
}

/// A new key for the ring.
///
/// # Errors
/// The operating system has no randomness to give.
pub fn new_key() -> io::Result<String> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let id = getrandom::u32().map_err(io::Error::other)? % 255 + 1;
    Ok(KeyRing::entry(id as u8, &secret))
}
