//! Performs the room stage: reads what a visitor carries, asks the room, and says what to hand out.
//!
//! The decisions are `tidegate_core::room`'s; here are only cookies, query parameters and seals.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use http::HeaderValue;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};
use tidegate_core::measure::Event;
use tidegate_core::room::{Arrival, Look, Redemption, Wait};
use tidegate_core::ticket::{Binding, KeyRing, Pass, PassKind, Presenter, Sealed, Ticket, TicketError};
use tidegate_core::units::{ClassId, Timestamp};

use crate::cookies::{self, Cookies};
use crate::desk::Desk;
use crate::live::Live;
use crate::page::{self, Kind};
use crate::settings::{self, Role, Unit};

/// A page's own requests (style sheets, images) follow it within this time: long enough for a slow phone.
const PAGE_PASS: Duration = Duration::from_secs(120);

/// When those ask again who have no place, while all replicas are down.
pub const RETRY_DOWN: Duration = Duration::from_secs(5);

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
}

impl Visitor<'_> {
    fn presenter(&self) -> Presenter {
        Presenter { ip: self.ip, cookie: self.cookies.binding }
    }

    /// The ticket shown: the cookie first, because it is the one the gate renews.
    fn ticket(&self, live: &Live) -> Option<Result<Ticket, TicketError>> {
        let shown = self.cookies.ticket.filter(|t| !t.is_empty()).or(self.url_ticket)?;
        Some(live.keys.open(shown.as_bytes(), &self.presenter(), live.bindings))
    }
}

/// What the room says of a request.
pub enum Outcome {
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
    Wait(Box<Waiting>),
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

/// What a visitor who must wait is told.
pub struct Waiting {
    /// Which of the room's answers.
    pub kind: Kind,
    /// Time until the visitor's turn; for [`Kind::Full`], until asking again makes sense.
    pub wait: Duration,
    /// Visitors ahead.
    pub place: u64,
    /// Time waited so far.
    pub waited: Duration,
    /// When the page should ask first.
    pub poll: Duration,
    /// For clients that keep no cookies: the ticket to carry in the URL.
    pub url_ticket: Option<Sealed>,
    /// To set with the answer.
    pub cookies: Vec<HeaderValue>,
}

/// The room stage of one worker: its own randomness, the shared room.
pub struct Stage<'a> {
    /// The room all workers share, or this process's half of it.
    pub desk: &'a Desk,
    /// Configuration in force.
    pub live: &'a Live,
    /// This worker's generator, seeded by the operating system.
    pub rng: &'a mut StdRng,
    /// Counts.
    pub count: &'a dyn Fn(Event),
    /// Time of the request.
    pub now: Timestamp,
}

impl Stage<'_> {
    /// One request of a class that waits.
    pub fn ask(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Outcome {
        if self.live.settings.room.unit == Unit::Session
            && let Some(entered) = self.by_session(class, visitor)
        {
            return entered;
        }
        let ticket = match visitor.ticket(self.live) {
            None => return self.arrive(class, visitor, None, Kind::Waiting),
            Some(Ok(ticket)) if ticket.class == class => ticket,
            // A ticket of another class is none.
            Some(Ok(_)) => {
                (self.count)(Event::TicketExpired);
                return self.arrive(class, visitor, None, Kind::Waiting);
            }
            Some(Err(_)) => return self.forbidden(class, visitor),
        };
        self.redeem(&ticket, class, visitor)
    }

    fn redeem(&mut self, ticket: &Ticket, class: ClassId, visitor: &Visitor<'_>) -> Outcome {
        let redeemed = match self.desk {
            Desk::Room(room) => room.redeem(ticket, self.now),
            Desk::Checker { checker, .. } => checker.redeem(ticket, self.now),
        };
        match redeemed {
            Redemption::Enter => {
                if self.desk.is_late(ticket) {
                    (self.count)(Event::TicketLate);
                }
                if let Role::TokenGen { check_url } = &self.live.settings.role {
                    // Used up here, once; what goes on to tokencheck is a ticket for now.
                    let cookies = vec![cookies::clear_ticket(class, visitor.secure)];
                    return self.send_on(check_url.clone(), class, ticket.nonce, visitor, cookies);
                }
                let cookies = self.entry_cookies(class, visitor);
                Outcome::Enter { by: Event::EnteredByTicket, cookies, ticket: Some(*ticket) }
            }
            Redemption::Wait(wait) => self.same_place(ticket, wait, visitor),
            Redemption::Replayed => {
                (self.count)(Event::TicketReplayed);
                self.arrive(class, visitor, None, Kind::Replaced)
            }
            Redemption::Expired => {
                (self.count)(Event::TicketExpired);
                self.arrive(class, visitor, Some(ticket.arrived), Kind::Late)
            }
        }
    }

    /// A request for a part of a page while others wait: only for visitors who were let in.
    pub fn part_of_page(&self, visitor: &Visitor<'_>) -> bool {
        visitor.cookies.pass.is_some_and(|text| {
            self.live
                .keys
                .open_pass(text.as_bytes(), &visitor.presenter(), self.live.bindings)
                .is_ok_and(|pass| self.now.since(pass.issued) <= self.pass_life(pass.kind))
        })
    }

    /// All replicas are down: nobody enters, everybody keeps or gets a place.
    pub fn hold(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Box<Waiting> {
        let retry = RETRY_DOWN;
        let (wait, place, waited) = match visitor.ticket(self.live) {
            Some(Ok(ticket)) if ticket.class == class => match self.desk.look(&ticket, self.now) {
                Look::Wait(w) => (w.wait.max(retry), people_ahead(&w), self.now.since(ticket.arrived)),
                _ => (retry, 0, self.now.since(ticket.arrived)),
            },
            _ => (retry, 0, Duration::ZERO),
        };
        Box::new(self.told(Kind::Unavailable, wait, place, waited))
    }

    fn by_session(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Option<Outcome> {
        let text = visitor.cookies.pass?;
        let pass =
            self.live.keys.open_pass(text.as_bytes(), &visitor.presenter(), self.live.bindings).ok()?;
        let session = &self.live.settings.session;
        let idle = self.now.since(pass.issued);
        if pass.kind != PassKind::Session
            || idle > session.timeout
            || self.now.since(pass.first) > session.max_age
        {
            return None;
        }
        self.desk.charge(self.live.class(class).cost);
        // Renewed once a quarter of its life is over, not with every answer.
        let mut cookies = Vec::new();
        if idle > session.timeout / 4 {
            self.hand_out(&Pass { issued: self.now, ..pass }, visitor, &mut cookies);
        }
        Some(Outcome::Enter { by: Event::EnteredByPass, cookies, ticket: None })
    }

    fn arrive(
        &mut self,
        class: ClassId,
        visitor: &Visitor<'_>,
        arrived: Option<Timestamp>,
        kind: Kind,
    ) -> Outcome {
        let room = match (self.desk, &self.live.settings.role) {
            (Desk::Room(room), _) => room,
            (Desk::Checker { .. }, Role::TokenCheck { gen_url, .. }) => {
                return Outcome::Elsewhere { base: gen_url.clone(), ticket: None, cookies: Vec::new() };
            }
            (Desk::Checker { .. }, _) => unreachable!("a checker has the role tokencheck"),
        };
        let nonce = self.rng.next_u64();
        match room.arrive(class, nonce, arrived, self.now) {
            Arrival::Enter => {
                if let Role::TokenGen { check_url } = &self.live.settings.role {
                    return self.send_on(check_url.clone(), class, nonce, visitor, Vec::new());
                }
                if kind == Kind::Replaced {
                    // There is room, but not for this ticket again: a place that is due at once, and a page that says so.
                    let ticket = self.ticket_for_now(class, nonce);
                    let wait = Wait { wait: Duration::ZERO, place: 1, due: self.now };
                    return self.new_place(kind, &ticket, wait, visitor);
                }
                let session = self.live.settings.room.unit == Unit::Session;
                let had_place = visitor.cookies.ticket.is_some();
                let cookies = if session || had_place {
                    self.entry_cookies(class, visitor)
                } else {
                    Vec::new() // no overload: the visitor's answer is the origin's, byte for byte
                };
                Outcome::Enter { by: Event::Entered, cookies, ticket: None }
            }
            Arrival::Wait(ticket, wait) => self.new_place(kind, &ticket, wait, visitor),
            Arrival::Full { retry_after } => {
                (self.count)(Event::Full);
                Outcome::Wait(Box::new(self.told(Kind::Full, retry_after, 0, Duration::ZERO)))
            }
        }
    }

    /// From tokengen to tokencheck, with a ticket for now.
    fn send_on(
        &self,
        base: String,
        class: ClassId,
        nonce: u64,
        visitor: &Visitor<'_>,
        cookies: Vec<HeaderValue>,
    ) -> Outcome {
        let ticket = self.ticket_for_now(class, nonce);
        Outcome::Elsewhere { base, ticket: Some(self.url_ticket(&ticket, visitor)), cookies }
    }

    /// A place that is due at once.
    fn ticket_for_now(&self, class: ClassId, nonce: u64) -> Ticket {
        let issued = Timestamp::from_millis(self.now.as_millis());
        let cost = self.live.class(class).cost;
        Ticket { class, cost, issued, wait: Duration::ZERO, arrived: issued, nonce }
    }

    fn new_place(&mut self, kind: Kind, ticket: &Ticket, wait: Wait, visitor: &Visitor<'_>) -> Outcome {
        (self.count)(Event::WaitingAnswers);
        // Longer than any wait may become when the capacity falls: whether a ticket holds is told by what is in it.
        let keep = self.live.settings.room.max_wait * 2 + self.live.settings.room.grace;
        let mut cookies = Vec::with_capacity(2);
        let binding = self.binding(visitor, &mut cookies);
        let sealed = self.live.keys.seal(ticket, &binding);
        cookies.push(cookies::set_ticket(ticket.class, sealed.as_str(), keep, visitor.secure));
        let mut told = self.told(kind, wait.wait, people_ahead(&wait), self.now.since(ticket.arrived));
        told.cookies = cookies;
        told.url_ticket = (!visitor.cookies.any).then(|| self.url_ticket(ticket, visitor));
        Outcome::Wait(Box::new(told))
    }

    fn same_place(&mut self, ticket: &Ticket, wait: Wait, visitor: &Visitor<'_>) -> Outcome {
        (self.count)(Event::WaitingAnswers);
        (self.count)(Event::TicketEarly);
        let waited = self.now.since(ticket.arrived);
        let mut told = self.told(Kind::Waiting, wait.wait, people_ahead(&wait), waited);
        told.url_ticket = (!visitor.cookies.any).then(|| self.url_ticket(ticket, visitor));
        Outcome::Wait(Box::new(told))
    }

    fn forbidden(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Outcome {
        (self.count)(Event::TicketForged);
        let mut told = self.told(Kind::Forbidden, Duration::ZERO, 0, Duration::ZERO);
        // So that an honest browser with a spoilt cookie can start again.
        told.cookies = vec![cookies::clear_ticket(class, visitor.secure)];
        Outcome::Wait(Box::new(told))
    }

    fn told(&mut self, kind: Kind, wait: Duration, place: u64, waited: Duration) -> Waiting {
        let poll = page::poll_interval(wait, self.rng.random());
        Waiting { kind, wait, place, waited, poll, url_ticket: None, cookies: Vec::new() }
    }

    /// What a cookie is bound to; a new binding cookie if the visitor has none.
    fn binding(&mut self, visitor: &Visitor<'_>, cookies: &mut Vec<HeaderValue>) -> Binding {
        match self.live.settings.room.binding {
            settings::Binding::None => Binding::None,
            settings::Binding::Ip => Binding::Ip(visitor.ip),
            settings::Binding::IpPrefix => Binding::IpPrefix(visitor.ip),
            settings::Binding::Cookie => {
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
            settings::Binding::None => Binding::None,
            settings::Binding::Ip => Binding::Ip(visitor.ip),
            settings::Binding::IpPrefix | settings::Binding::Cookie => Binding::IpPrefix(visitor.ip),
        };
        self.live.keys.seal(ticket, &binding)
    }

    /// With the first answer after a place was used: the ticket goes, a pass comes.
    fn entry_cookies(&mut self, class: ClassId, visitor: &Visitor<'_>) -> Vec<HeaderValue> {
        let kind = match self.live.settings.room.unit {
            Unit::Session => PassKind::Session,
            Unit::Request => PassKind::Page,
        };
        let nonce = self.rng.next_u64();
        let pass = Pass { kind, class, issued: self.now, first: self.now, nonce };
        let mut cookies = Vec::with_capacity(3);
        if visitor.cookies.ticket.is_some() {
            cookies.push(cookies::clear_ticket(class, visitor.secure));
        }
        self.hand_out(&pass, visitor, &mut cookies);
        cookies
    }

    /// A pass travels in a cookie and nowhere else, so whoever shows one keeps cookies: it is bound as tickets in
    /// cookies are. Bound to the address, it would be lost with it (a phone leaves the wireless network), and good
    /// for all neighbours.
    fn hand_out(&mut self, pass: &Pass, visitor: &Visitor<'_>, cookies: &mut Vec<HeaderValue>) {
        let binding = self.binding(visitor, cookies);
        let sealed = self.live.keys.seal_pass(pass, &binding);
        cookies.push(cookies::set_pass(sealed.as_str(), self.pass_life(pass.kind), visitor.secure));
    }

    fn pass_life(&self, kind: PassKind) -> Duration {
        match kind {
            PassKind::Session => self.live.settings.session.timeout,
            PassKind::Page => PAGE_PASS,
        }
    }
}

/// The room counts from one: one is next.
pub fn people_ahead(wait: &Wait) -> u64 {
    wait.place.saturating_sub(1)
}

/// What a status poll is told about `ticket`.
pub fn look(desk: &Desk, live: &Live, visitor: &Visitor<'_>, now: Timestamp) -> (Look, Duration) {
    match visitor.ticket(live) {
        Some(Ok(ticket)) => (desk.look(&ticket, now), now.since(ticket.arrived)),
        _ => (Look::Expired, Duration::ZERO),
    }
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
