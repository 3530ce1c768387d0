//! A visitor's state between requests over sockets: cookies, the ticket in the URL, the path of the status
//! document.
//!
//! A million visitors wait at once, so all of it is one block of bytes on the heap, and a gate's ticket and
//! binding cookie with the status path take 70 of them:
//!
//! ```text
//!  tag │ name: number in Names, or length and text │ length │ value: text, or what base64url stands for
//! ```
//!
//! Names repeat from visitor to visitor and are kept once ([`Names`]), a ticket of 60 characters stands for
//! 45 bytes. Everything else (a cookie of the origin's own, names beyond a table's bound) is kept as text.
//! Rejected: a cookie library (a jar of strings takes some 500 bytes), and rebuilding tickets from their
//! meaning (the bench must not know how they are made, only that they come back as they were).
//!
//! The only attributes that count are those that remove a cookie, `Max-Age` and `Expires`: a visit has one
//! host.

use std::borrow::Cow;

use http::{HeaderMap, header};

use crate::answer::{Answer, Reading, http_date};
use crate::visitor::RequestKind;

mod packed;

#[cfg(test)]
mod tests;

use packed::{Entry, Packed, Part};

pub use packed::Names;

/// Text of cookies kept per visitor. A ticket, a pass and a binding cookie fit four times; what would go
/// beyond is not taken, as browsers do beyond their bounds.
const MAX_COOKIES: usize = 1024;
/// The gate's parameter for a ticket in a URL.
const URL_TICKET: &str = "tg";
/// The gate's pass: it would let an attacker in whether or not the ticket is good.
const PASS: &str = "tgp";
/// Characters of a ticket that name its key.
const KEY_ID: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieJar {
    packed: Packed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub target: String,
    pub cookies: Option<String>,
}

impl CookieJar {
    /// The fields that a request for `ask` sends; `page` is the path and query of the present step. `alter`
    /// picks the character of the ticket that is altered for [`RequestKind::Tampered`];
    /// [`path_number`](crate::visitor::Visitor::path_number) is as good as any.
    ///
    /// `None`: there is no ticket to attack with, or no status document to ask for; see
    /// [`skip_attack`](crate::visitor::Visitor::skip_attack).
    pub fn show(&self, names: &Names, ask: RequestKind, page: &str, alter: u32) -> Option<Shown> {
        let (target, cookies) = match ask {
            RequestKind::Page => (page.to_owned(), self.cookies(names)),
            RequestKind::Status => (self.status_path(names)?, self.cookies(names)),
            RequestKind::Tampered => (page.to_owned(), self.tampered(names, alter)),
            RequestKind::Replayed => (page.to_owned(), self.used(names)),
        };
        let in_url = match ask {
            RequestKind::Page | RequestKind::Status => self.url_ticket(Part::UrlTicket),
            RequestKind::Tampered => self.url_ticket(Part::UrlTicket).map(|ticket| altered(&ticket, alter)),
            RequestKind::Replayed => self.url_ticket(Part::UsedUrlTicket),
        };
        let attack = matches!(ask, RequestKind::Tampered | RequestKind::Replayed);
        if attack && in_url.is_none() && cookies.is_none() {
            return None;
        }
        let target = match in_url {
            Some(ticket) => with_ticket(target, &ticket),
            None => target,
        };
        Some(Shown { target, cookies })
    }

    /// The `Cookie` field, as for the next hop of a redirect; `None`: there are no cookies.
    pub fn cookies(&self, names: &Names) -> Option<String> {
        let cookies = self.packed.entries().filter(|entry| entry.part == Part::Cookie);
        field(cookies.map(|entry| (names.cookie(&entry), entry.text())))
    }

    /// The `Cookie` field with one character of each ticket altered and no pass; `None`: there is no ticket
    /// among the cookies.
    pub fn tampered(&self, names: &Names, alter: u32) -> Option<String> {
        let cookies = self.packed.entries().filter(|entry| entry.part == Part::Cookie);
        let mut tickets = 0;
        let pairs = cookies.filter_map(|entry| {
            let (name, text) = (names.cookie(&entry), entry.text());
            match name.as_ref() {
                PASS => None,
                ticket if is_ticket(ticket) && !text.is_empty() => {
                    tickets += 1;
                    let text = altered(&text, alter).into();
                    Some((name, text))
                }
                _ => Some((name, text)),
            }
        });
        let shown = field(pairs);
        shown.filter(|_| tickets > 0)
    }

    /// The `Cookie` field with the tickets of [`CookieJar::keep_used`] instead of newer ones and no pass;
    /// `None`: no ticket was kept.
    pub fn used(&self, names: &Names) -> Option<String> {
        self.packed.entries().find(|entry| entry.part == Part::UsedCookie)?;
        let pairs = self.packed.entries().filter_map(|entry| {
            let name = names.cookie(&entry);
            let shown = match entry.part {
                Part::Cookie => name != PASS && !is_ticket(&name),
                Part::UsedCookie => true,
                Part::Status | Part::UrlTicket | Part::UsedUrlTicket => false,
            };
            shown.then(|| (name, entry.text()))
        });
        field(pairs)
    }

    /// The path and query of the status document, without a ticket.
    pub fn status_path(&self, names: &Names) -> Option<String> {
        let entry = self.packed.entries().find(|entry| entry.part == Part::Status)?;
        Some(names.path(&entry).into_owned())
    }

    /// Takes in what the answer to `ask` sets and says. Answers to attacks are not kept, as if they came to
    /// another window. With `keeps_cookies` false (see [`cookies`](crate::scenario::Kind::cookies)) the
    /// ticket is taken from the URL that the answer names; a visitor who keeps cookies needs none there, as
    /// the page's script finds out with its first poll.
    pub fn absorb(
        &mut self,
        names: &mut Names,
        ask: RequestKind,
        headers: &HeaderMap,
        reading: &Reading,
        keeps_cookies: bool,
    ) {
        match ask {
            RequestKind::Page | RequestKind::Status => {}
            RequestKind::Tampered => return,
            RequestKind::Replayed => {
                let others = self.packed.entries().filter(|entry| !entry.part.is_used());
                self.packed = others.collect();
                return;
            }
        }
        if keeps_cookies {
            self.absorb_cookies(names, headers);
        }
        if ask == RequestKind::Page && reading.answer == Answer::Served {
            let kept = |entry: &Entry<'_>| !matches!(entry.part, Part::Status | Part::UrlTicket);
            self.packed = self.packed.entries().filter(kept).collect();
        }
        let Some(path) = &reading.status_path else { return };
        let (path, ticket) = without_ticket(path);
        let name = names.intern_path(&path);
        self.replace(Entry::named(Part::Status, name));
        if let Some(ticket) = ticket.filter(|_| !keeps_cookies) {
            self.replace(Entry::unnamed(Part::UrlTicket, ticket));
        }
    }

    /// Keeps a copy of the tickets at hand, for [`RequestKind::Replayed`]. To be called when a visitor who
    /// was served asks for that next, and before the answer is absorbed: it takes the ticket away.
    pub fn keep_used(&mut self, names: &Names) {
        let entries = self.packed.entries().filter(|entry| !entry.part.is_used());
        self.packed =
            entries.chain(self.packed.entries().filter_map(|entry| as_used(entry, names))).collect();
    }

    pub fn heap_bytes(&self) -> usize {
        self.packed.heap_bytes()
    }

    fn absorb_cookies(&mut self, names: &mut Names, headers: &HeaderMap) {
        for value in headers.get_all(header::SET_COOKIE) {
            let Some((pair, attributes)) = value.to_str().ok().map(|v| v.split_once(';').unwrap_or((v, "")))
            else {
                continue;
            };
            let Some((name, value)) = pair.split_once('=').map(|(n, v)| (n.trim(), v.trim())) else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            let others = self.packed.entries().filter(|e| e.part != Part::Cookie || names.cookie(e) != name);
            if is_removed(attributes, headers) {
                self.packed = others.collect();
                continue;
            }
            let cookies = others.clone().filter(|entry| entry.part == Part::Cookie);
            let text: usize = cookies.map(|e| names.cookie(&e).len() + e.text().len() + "=; ".len()).sum();
            if text + name.len() + value.len() < MAX_COOKIES {
                let rest: Packed = others.collect();
                let name = names.intern_cookie(name);
                self.packed = rest.entries().chain([Entry::cookie(name, value)]).collect();
            }
        }
    }

    /// Replaces the entries of its part by `entry`.
    fn replace(&mut self, entry: Entry<'_>) {
        let others = self.packed.entries().filter(|other| other.part != entry.part);
        self.packed = others.chain([entry.clone()]).collect();
    }

    fn url_ticket(&self, part: Part) -> Option<String> {
        self.packed.entries().find(|entry| entry.part == part).map(|entry| entry.text().into_owned())
    }
}

fn as_used<'a>(entry: Entry<'a>, names: &Names) -> Option<Entry<'a>> {
    match entry.part {
        Part::Cookie if is_ticket(&names.cookie(&entry)) => Some(entry.into_part(Part::UsedCookie)),
        Part::UrlTicket => Some(entry.into_part(Part::UsedUrlTicket)),
        _ => None,
    }
}

/// `a=1; b=2`; `None` if there are no pairs.
fn field<'a>(pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> Option<String> {
    let mut field = String::new();
    for (name, value) in pairs {
        if !field.is_empty() {
            field.push_str("; ");
        }
        field.push_str(&name);
        field.push('=');
        field.push_str(&value);
    }
    (!field.is_empty()).then_some(field)
}

/// `tg` and the number of a class.
fn is_ticket(name: &str) -> bool {
    let class = name.strip_prefix(URL_TICKET).unwrap_or_default();
    !class.is_empty() && class.bytes().all(|b| b.is_ascii_digit())
}

/// `ticket` with one character exchanged for another of the alphabet, after the key's id: a ticket of a key
/// that nobody knows is not forged, and its visitor a newcomer.
pub(crate) fn altered(ticket: &str, alter: u32) -> String {
    let at = KEY_ID + alter as usize % ticket.len().saturating_sub(KEY_ID).max(1);
    ticket
        .chars()
        .enumerate()
        .map(|(i, c)| {
            if i != at {
                c
            } else if c == 'A' {
                'B'
            } else {
                'A'
            }
        })
        .collect()
}

/// The path with the ticket as its last parameter, as the gate's own pages have it.
fn with_ticket(mut path: String, ticket: &str) -> String {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(URL_TICKET);
    path.push('=');
    path.push_str(ticket);
    path
}

fn without_ticket(target: &str) -> (Cow<'_, str>, Option<&str>) {
    let Some((path, query)) = target.split_once('?') else { return (target.into(), None) };
    let is_ticket = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| name == URL_TICKET);
    let Some(ticket) = query.split('&').find(is_ticket) else { return (target.into(), None) };
    let rest = query.split('&').filter(|pair| !is_ticket(pair)).collect::<Vec<_>>().join("&");
    let path = if rest.is_empty() { path.to_owned() } else { format!("{path}?{rest}") };
    (path.into(), Some(&ticket[URL_TICKET.len() + 1..]))
}

/// Whether a cookie's attributes take it away: `Max-Age` counts before `Expires` (RFC 6265 5.3), which is
/// held against the answer's own `Date`.
fn is_removed(attributes: &str, headers: &HeaderMap) -> bool {
    let attribute = |wanted: &str| {
        let pairs = attributes.split(';').filter_map(|a| a.split_once('='));
        pairs
            .filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.trim())
            .next_back()
    };
    if let Some(age) = attribute("max-age").and_then(|age| age.parse::<i64>().ok()) {
        return age <= 0;
    }
    let expires = attribute("expires").and_then(http_date);
    let date = headers.get(header::DATE).and_then(|v| http_date(v.to_str().ok()?));
    expires.is_some_and(|expires| expires <= date.unwrap_or(0))
}
