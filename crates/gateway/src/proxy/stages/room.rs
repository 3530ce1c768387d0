//! Reads and writes a visitor's tickets and passes: cookies, query parameters and seals. It decides nothing.

use std::net::IpAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use tidegate_core::admission::{Admission, PAGE_IDLE, PAGE_PASS, PolicyStep, Position, Presented};
use tidegate_core::measure::Event;
use tidegate_core::room::Wait;
use tidegate_core::session::SessionKey;
use tidegate_core::ticket::{Binding, Pass, PassKind, Presenter, Sealed, Ticket};
use tidegate_core::units::{ClassId, Timestamp};
use tidegate_http::{Fields, RequestHead, name};

use crate::config::page::{self, Kind};
use crate::config::{ClassTag, Config};
use crate::http::target;
use crate::http::visitor_body::VisitorBody;
use crate::proxy::context::RequestContext;
use crate::proxy::cookies::{self, Cookies, SetCookies};
use crate::proxy::navigation::kept_form;
use crate::proxy::respond::{self, AnswerRequest, OwnAnswer, WaitingAnswer};
use crate::shared::sessions;
use tidegate_settings::{Role, SessionBy, Unit};

/// Between a ticket in a URL and what tokencheck wants it bound to. In neither's alphabet.
const REBIND: char = '.';

/// The request's part that the room reads.
pub struct Visitor<'a> {
    /// Its address, as far as trusted proxies tell.
    pub ip: IpAddr,
    pub cookies: Cookies<'a>,
    pub url_ticket: Option<&'a str>,
    /// What tokencheck wants the ticket bound to: its cookie, which this host does not see.
    pub rebind: Option<[u8; 16]>,
    /// It came over TLS (to a proxy in front).
    pub secure: bool,
    /// It gets pages and sends cookies, so it is taken to keep the gate's too.
    pub keeps_cookies: bool,
    /// It is answered with a page, which asks again by itself.
    pub reads_pages: bool,
    /// It says that it can wait and come back: [`RequestKind`](crate::proxy::navigation::RequestKind).
    pub can_return: bool,
}

pub(crate) struct ShownTicket {
    pub(crate) shown: Presented,
    pub(crate) is_from_url: bool,
    /// It is in a cookie, and the URL's is needed no more.
    pub(crate) is_twice: bool,
}

impl Visitor<'_> {
    fn presenter(&self) -> Presenter {
        Presenter { ip: self.ip, cookie: self.cookies.binding }
    }

    /// The ticket shown: the cookie's, because it is the one the gate renews, or the URL's if that one is
    /// better. A client that sends a cookie of its own making, always the same, keeps its position in the
    /// URL. The other process of the two-process form puts a newer one in the URL.
    pub(crate) fn ticket(&self, config: &Config) -> ShownTicket {
        let open = |text: &str| {
            let opened = config.keys.open(text.as_bytes(), &self.presenter(), config.bindings);
            Presented::new(opened.map(|ticket| with_class_id(config, ticket)), text.as_bytes())
        };
        let is_sent_here = self.rebind.is_some() || matches!(config.settings.role, Role::TokenCheck { .. });
        let cookie = self.cookies.ticket.filter(|text| !text.is_empty()).map(open);
        let url = self.url_ticket.map(open);
        let is_from_url = match (cookie, url) {
            (_, Some(_)) if is_sent_here => true,
            (Some(Presented::Ticket(old)), Some(Presented::Ticket(new))) => {
                new.class == old.class && new.issued > old.issued
            }
            (Some(_), Some(new)) => matches!(new, Presented::Ticket(_)),
            (cookie, _) => cookie.is_none(),
        };
        let shown = if is_from_url { url } else { cookie };
        let is_twice = cookie.is_some() && url.is_some() && !is_from_url;
        ShownTicket { shown: shown.unwrap_or(Presented::Nothing), is_from_url, is_twice }
    }

    /// The pass shown, if its seal is authentic and the visitor's own. The core decides whether it is valid.
    pub(crate) fn pass(&self, config: &Config) -> Option<Pass> {
        let text = self.cookies.pass?;
        config.keys.open_pass(text.as_bytes(), &self.presenter(), config.bindings).ok()
    }
}

impl RequestContext {
    pub(crate) fn visitor<'a>(&self, fields: &'a Fields, url_ticket: Option<&'a str>) -> Visitor<'a> {
        let (url_ticket, rebind) = match url_ticket.and_then(|text| text.split_once(REBIND)) {
            Some((ticket, value)) => (Some(ticket), cookies::parse_binding(value)),
            None => (url_ticket, None),
        };
        let rebinds = matches!(self.config.settings.role, Role::TokenGen { .. })
            && self.config.settings.room.binding == tidegate_settings::Binding::Cookie;
        let cookies = Cookies::read(fields, self.config.class(self.class).mark);
        Visitor {
            ip: self.client,
            keeps_cookies: cookies.any && self.kind.wants_html,
            reads_pages: self.kind.wants_html,
            cookies,
            url_ticket,
            rebind: rebind.filter(|_| rebinds),
            secure: target::scheme(fields, self.trusted, self.conn.info.scheme) == "https",
            can_return: self.kind.can_return,
        }
    }

    /// The waiting room's answer; a form is kept in the page.
    pub(crate) async fn waiting_answer(
        &mut self,
        head: &RequestHead,
        body: VisitorBody,
        w: WaitingAnswer,
    ) -> OwnAnswer {
        let mut html = self.kind.wants_html;
        let mut form = None;
        if html && !head.method().is_safe() {
            form = Box::pin(kept_form(head, body, self.config.settings.room.max_form_bytes)).await;
            html = form.is_some();
        }
        let asked = AnswerRequest {
            class: self.class,
            target: head.path_and_query(),
            html,
            language: head.fields.get_str(name::ACCEPT_LANGUAGE),
            form: form.as_ref(),
        };
        let answer = respond::waiting(&self.config, &asked, w);
        self.log_own(&answer, "waiting");
        answer
    }
}

/// A decision, with the cookies and tickets that go with it.
pub(crate) enum Outcome {
    Enter {
        /// The event that counts it.
        by: Event,
        /// To set with the origin's answer.
        cookies: SetCookies,
        ticket: Option<Ticket>,
    },
    Wait(Box<WaitingAnswer>),
    Throttled {
        retry_after: Duration,
    },
    NoSessionSlot {
        retry_after: Duration,
    },
    OverQuota {
        retry_after: Duration,
    },
    /// To another URL, with this ticket in it if there is one: the other process of the two-process form, or
    /// the same URL without a ticket.
    Elsewhere {
        base: String,
        ticket: Option<String>,
        cookies: SetCookies,
    },
    /// It is to be held for a moment; then decide again.
    Delay {
        ticket: Ticket,
        left: Duration,
    },
    /// The ticket's owner is to be asked; then decide again.
    AskOwner(Claiming),
    /// A policy in force is to be performed; then decide again.
    Perform {
        policy: usize,
        step: PolicyStep,
    },
    RefusedByThrottle {
        throttle: usize,
        retry_after: Option<Duration>,
    },
    RefusedByPolicy {
        policy: usize,
        retry_after: Option<Duration>,
    },
}

/// A request that the core had claim its ticket.
pub(crate) struct Claiming {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u16,
    pub(crate) waits: bool,
}

/// Makes what visitors are handed out: tickets, passes, the figures of a waiting answer.
pub(crate) struct RoomStage<'a> {
    /// The process's part of the room.
    pub(crate) admission: &'a Admission,
    pub(crate) config: &'a Config,
    /// The worker's generator, seeded by the operating system.
    pub(crate) rng: &'a mut StdRng,
    pub(crate) now: Timestamp,
}

impl RoomStage<'_> {
    /// Of a visitor who waits with this ticket.
    pub(crate) fn waits(
        &mut self,
        position: Position,
        ticket: &Ticket,
        wait: Wait,
        visitor: &Visitor<'_>,
    ) -> WaitingAnswer {
        let mut answer =
            self.told(kind(position), wait.wait, people_ahead(&wait), self.now.since(ticket.arrived));
        if position == Position::Kept {
            self.keeps(&mut answer, ticket, visitor);
        } else {
            answer.cookies = self.ticket_cookies(ticket, visitor);
            // That a program has sent some cookie does not mean that it keeps those it is given.
            answer.url_ticket = (!visitor.keeps_cookies).then(|| self.url_ticket(ticket, visitor));
        }
        if let Role::TokenGen { .. } = self.config.settings.role {
            answer.check_ticket = Some(self.url_ticket(ticket, visitor));
        }
        if visitor.reads_pages {
            let reload = Duration::from_secs(page::reload_seconds(answer.wait, answer.poll));
            self.admission.page_sent(ticket, position, answer.poll, reload, self.now);
        }
        answer
    }

    /// The visitor keeps the ticket that it shows. One from the URL is not in the page's own URL any more: it
    /// goes into a cookie, and back into the URL of a client that may keep none.
    pub(crate) fn keeps(&mut self, answer: &mut WaitingAnswer, ticket: &Ticket, visitor: &Visitor<'_>) {
        if visitor.url_ticket.is_none() {
            return;
        }
        answer.url_ticket = (!visitor.keeps_cookies).then(|| self.url_ticket(ticket, visitor));
        if visitor.ticket(self.config).is_from_url {
            answer.cookies = self.ticket_cookies(ticket, visitor);
        }
    }

    /// For a ticket that is bound to another address: what it shows, and its cookie to bind it to.
    pub(crate) fn rebinding(&mut self, visitor: &Visitor<'_>) -> (Option<String>, SetCookies) {
        let mut cookies = SetCookies::default();
        let Binding::Cookie(value) = self.binding(visitor, &mut cookies) else { return (None, cookies) };
        let shown = visitor.url_ticket.unwrap_or_default();
        (Some(format!("{shown}{REBIND}{}", cookies::binding_text(value))), cookies)
    }

    /// The ticket for the way to tokencheck.
    pub(crate) fn ticket_to_check(&self, ticket: &Ticket, visitor: &Visitor<'_>) -> String {
        let sealed = match visitor.rebind {
            Some(value) => {
                let mark = self.config.class(ticket.class).mark;
                self.config.keys.seal(&with_mark(mark, ticket), &Binding::Cookie(value))
            }
            None => self.url_ticket(ticket, visitor),
        };
        sealed.as_str().to_owned()
    }

    fn ticket_cookies(&mut self, ticket: &Ticket, visitor: &Visitor<'_>) -> SetCookies {
        // Longer than any wait may become when the capacity falls: the ticket itself says how long it holds.
        let keep = self.config.settings.room.max_wait * 2 + self.config.settings.room.grace;
        let mut cookies = SetCookies::default();
        let binding = self.binding(visitor, &mut cookies);
        let mark = self.config.class(ticket.class).mark;
        let sealed = self.config.keys.seal(&with_mark(mark, ticket), &binding);
        cookies.ticket(mark, sealed.as_bytes(), keep, visitor.secure);
        cookies
    }

    pub(crate) fn forbidden(&mut self, class: ClassId, visitor: &Visitor<'_>) -> WaitingAnswer {
        let mut answer = self.told(Kind::Forbidden, Duration::ZERO, 0, Duration::ZERO);
        // An honest browser with a spoilt cookie can start again.
        answer.cookies.clear_ticket(self.config.class(class).mark, visitor.secure);
        answer
    }

    /// A waiting answer, its first poll spread at random.
    pub(crate) fn told(&mut self, kind: Kind, wait: Duration, place: u64, waited: Duration) -> WaitingAnswer {
        let poll = page::poll_interval(wait, &self.admission.ask_every(), self.rng.random());
        WaitingAnswer { place, waited, poll, ..WaitingAnswer::without_position(kind, wait) }
    }

    /// What a cookie is bound to; a new binding cookie if the visitor has none.
    fn binding(&mut self, visitor: &Visitor<'_>, cookies: &mut SetCookies) -> Binding {
        match self.config.settings.room.binding {
            tidegate_settings::Binding::None => Binding::None,
            tidegate_settings::Binding::Ip => Binding::Ip(visitor.ip),
            tidegate_settings::Binding::IpPrefix => Binding::IpPrefix(visitor.ip),
            tidegate_settings::Binding::Cookie => {
                let value = visitor.cookies.binding.unwrap_or_else(|| {
                    let mut value = [0; 16];
                    self.rng.fill_bytes(&mut value);
                    cookies.binding(value, visitor.secure);
                    value
                });
                Binding::Cookie(value)
            }
        }
    }

    /// The same ticket for clients without cookies: tied to the address instead.
    pub(crate) fn url_ticket(&self, ticket: &Ticket, visitor: &Visitor<'_>) -> Sealed {
        let binding = match self.config.settings.room.binding {
            tidegate_settings::Binding::None => Binding::None,
            tidegate_settings::Binding::Ip => Binding::Ip(visitor.ip),
            tidegate_settings::Binding::IpPrefix | tidegate_settings::Binding::Cookie => {
                Binding::IpPrefix(visitor.ip)
            }
        };
        self.config.keys.seal(&with_mark(self.config.class(ticket.class).mark, ticket), &binding)
    }

    /// With the first answer after somebody was let in: the ticket goes, a pass comes. `session`: the one
    /// that has begun.
    pub(crate) fn entry_cookies(
        &mut self,
        class: ClassId,
        visitor: &Visitor<'_>,
        session: Option<SessionKey>,
    ) -> SetCookies {
        let mark = self.config.class(class).mark;
        let mut cookies = SetCookies::default();
        if visitor.cookies.ticket.is_some() {
            cookies.clear_ticket(mark, visitor.secure);
        }
        let settings = &self.config.settings;
        let (kind, nonce) = match session {
            None if settings.room.unit == Unit::Request => (PassKind::Page, self.rng.next_u64()),
            Some(key) if settings.session.key == SessionBy::Pass => {
                (PassKind::Session, sessions::nonce_of(key))
            }
            // Something else identifies the session, or none begins.
            None | Some(_) => return cookies,
        };
        let pass = Pass { kind, class: ClassId(mark.0), issued: self.now, first: self.now, nonce };
        self.hand_out(&pass, visitor, &mut cookies);
        cookies
    }

    /// The pass of a page that did not wait.
    pub(crate) fn new_page_pass(&mut self, class: ClassId) -> Pass {
        let class = ClassId(self.config.class(class).mark.0);
        let nonce = self.rng.next_u64();
        Pass { kind: PassKind::Page, class, issued: self.now, first: self.now, nonce }
    }

    /// A pass travels in a cookie and nowhere else, so a visitor who shows one keeps cookies: it is bound as
    /// tickets in cookies are. Bound to the address, it would be lost with it (a phone leaves the wireless
    /// network), and good for all neighbours.
    pub(crate) fn hand_out(&mut self, pass: &Pass, visitor: &Visitor<'_>, cookies: &mut SetCookies) {
        let binding = self.binding(visitor, cookies);
        let sealed = self.config.keys.seal_pass(pass, &binding);
        let settings = &self.config.settings;
        let keep = match pass.kind {
            // Longer than its timeout: requests under way, and answers that renew no pass, keep the session
            // for longer than that.
            PassKind::Session => settings.session.max_age.saturating_sub(self.now.since(pass.first)),
            PassKind::Page if settings.room.unit == Unit::Request => PAGE_IDLE,
            PassKind::Page => PAGE_PASS,
        };
        cookies.pass(sealed.as_bytes(), keep, visitor.secure);
    }
}

/// Visitors ahead. The room counts positions from one: one is next.
pub fn people_ahead(wait: &Wait) -> u64 {
    wait.position.saturating_sub(1)
}

fn kind(position: Position) -> Kind {
    match position {
        Position::New | Position::Kept => Kind::Waiting,
        Position::Late => Kind::Late,
        Position::Replaced => Kind::Replaced,
    }
}

/// A ticket that was shown, with its class's id instead of its tag. A class that is not configured any more
/// gets an id that nobody has.
fn with_class_id(config: &Config, ticket: Ticket) -> Ticket {
    Ticket { class: config.marked(ClassTag(ticket.class.0)).unwrap_or(ClassId(u8::MAX)), ..ticket }
}

/// A ticket to be sealed, with its class's tag instead of its id.
fn with_mark(mark: ClassTag, ticket: &Ticket) -> Ticket {
    Ticket { class: ClassId(mark.0), ..*ticket }
}
