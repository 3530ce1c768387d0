//! Which requests may share which answers.
//!
//! **Requests**: `GET` and `HEAD` without a body, and with no other headers than those that browsers and
//! proxies send ([`USUAL`]). If an origin answers by another header and does not say so (`X-Original-URL`, an
//! API key), one visitor would choose what all others see. `Authorization`, `Range`, `Origin`, `Upgrade` and
//! `Expect` are therefore excluded. Conditions (`If-None-Match` and the like) are not sent upstream: a whole
//! answer suits everybody, a 304 only those who have the rest. `Referer` is not sent either.
//!
//! What a trusted proxy says of the visitor's connection (`X-Forwarded-Host` and the like, not the address)
//! is part of the key ([`forwarded`]).
//!
//! **Answers** are not shared with `Set-Cookie`, `Cache-Control: private` or `no-store`, `Vary: *`, as a part
//! (206), with a status about the one request (401, 403, 407, 412, 416, 429, 304), or as an event stream,
//! which has no end. `no-cache` and `max-age` say how old an answer may be, not whose it is; how old it may
//! be, the operator says with the rule's period.
//!
//! **Cookies.** An origin that writes a visitor's name into a page because of a cookie does not always say so
//! (`Vary: Cookie`, `private`). So an answer to a request with cookies is given to nobody else, and an answer
//! to a request without cookies to nobody with cookies. The exception is `Cache-Control: public` or
//! `s-maxage`, which allow a shared cache the same even for requests with credentials (RFC 9111 3.5).
//!
//! Where the operator says that cookies take no part ([`super::SharedCookies`]), the request for all is sent
//! without them, and the fields that the operator names are removed from its answer before it is judged here.
//!
//! All this is read from the request's head as the origin gets it ([`crate::http::hygiene`]): without the
//! gate's own cookies and the headers that `Connection` names, with the address that the gate adds. The
//! origin, and so its `Vary`, goes by that head.
//!
//! **Errors.** 404, 410 and failures of the origin or the gate (5xx) are shared, because the crowd must be
//! kept from a failing service, but for [`ERRORS`] at most. A refusal of the gate's queue is for the same
//! class and lane only: see [`super::flight`].

use std::time::Duration;

use http::Method;
use tidegate_http::{Fields, Name, RequestHead, decimal, is_token, name};

use crate::http::hygiene::beside_addresses;

/// Longest time for which an error is given to others.
pub(crate) const ERRORS: Duration = Duration::from_secs(1);

/// Headers that a request with a shared answer may have, beside `Sec-Fetch-*`, `Sec-CH-*` and
/// `X-Forwarded-*`. The gate removes those that only a trusted proxy may set.
#[rustfmt::skip]
const USUAL: [&[u8]; 22] = [
    b"accept", b"accept-charset", b"accept-encoding", b"accept-language", b"cache-control", b"connection",
    b"content-length", b"cookie", b"dnt", b"forwarded", b"host", b"pragma", b"te",
    b"upgrade-insecure-requests", b"user-agent", b"via", b"keep-alive", b"priority", b"sec-gpc",
    b"sec-purpose", b"x-real-ip", b"x-request-id",
];
const USUAL_PREFIXES: [&[u8]; 3] = [b"sec-fetch-", b"sec-ch-", b"x-forwarded-"];

/// Headers that are not sent upstream for all.
const NOT_FOR_ALL: [&[u8]; 6] =
    [b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"referer"];

/// Whether only its own visitor has a use for this header.
pub(crate) fn is_not_for_all(name: &[u8]) -> bool {
    NOT_FOR_ALL.iter().any(|one| one.eq_ignore_ascii_case(name))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    All,
    Cookieless,
    /// Only its own request. `cookieless`: requests without cookies cannot share one either.
    None {
        cookieless: bool,
    },
}

pub(crate) fn may_share(head: &RequestHead) -> bool {
    let is_usual = |name: &[u8]| {
        USUAL.iter().any(|one| one.eq_ignore_ascii_case(name))
            || USUAL_PREFIXES.iter().any(|prefix| {
                name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            })
    };
    matches!(*head.method(), Method::GET | Method::HEAD)
        && head.fields.iter().all(|(name, _)| is_usual(name) || is_not_for_all(name))
}

/// What proxies, including the gate, tell the origin of the visitor's connection beside its address: the
/// host, scheme or prefix that the origin writes into links and redirects, seldom with a `Vary`, or the user
/// that a proxy authenticated.
pub(crate) fn forwarded(sent: &Fields) -> Box<[u8]> {
    let lines = sent.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let mut lines: Vec<_> =
        lines.filter(|(name, _)| name.starts_with(b"x-forwarded-") && name != b"x-forwarded-for").collect();
    // Lines of one name stay in their order.
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    let mut said = Vec::new();
    let mut say = |name: &[u8], value: &[u8]| {
        said.extend_from_slice(name);
        said.push(b':');
        said.extend_from_slice(value);
        said.push(b'\n');
    };
    for (name, value) in lines {
        say(&name, value);
    }
    for line in sent.get_all(name::FORWARDED) {
        match visible(line) {
            Some(text) => beside_addresses(text).for_each(|parameter| say(b"", parameter.as_bytes())),
            None => say(b"", line),
        }
    }
    said.into()
}

fn visible(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// The requests that may share this answer to a request with or without cookies.
pub(crate) fn sharing(status: u16, headers: &Fields, asked_with_cookies: bool) -> Sharing {
    let nobody = Sharing::None { cookieless: true };
    let says = |word: &str| has_directive(headers, word);
    let too_large = length(headers).is_some_and(|length| length > super::MAX_ANSWER as u64);
    if headers.contains(name::SET_COOKIE)
        || headers.contains(name::CONTENT_RANGE)
        || says("private")
        || says("no-store")
        || vary(headers).is_none()
        || too_large
        || is_event_stream(headers)
    {
        return nobody;
    }
    let is_public = says("public") || says("s-maxage");
    let by_status = match status {
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 410 | 500..=599 => true,
        206 | 304 | 401 | 403 | 407 | 412 | 416 | 429 => false,
        _ => is_public,
    };
    match (by_status, is_public, asked_with_cookies) {
        (false, ..) => nobody,
        (true, true, _) => Sharing::All,
        (true, false, false) => Sharing::Cookieless,
        (true, false, true) => Sharing::None { cookieless: false },
    }
}

/// The headers by which this answer was selected, in lower case; `None`: by anything (`Vary: *`).
pub(crate) fn vary(headers: &Fields) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for value in headers.get_all(name::VARY) {
        for name in visible(value)?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "*" || !name.bytes().all(is_token) {
                return None;
            }
            names.push(name.to_ascii_lowercase());
        }
    }
    // Even if `Vary` does not name it: a client that did not offer the coding cannot read the answer.
    if headers.contains(name::CONTENT_ENCODING) {
        names.push(name::ACCEPT_ENCODING.as_str().to_owned());
    }
    Some(names)
}

pub(crate) fn same(names: &[String], one: &Fields, other: &Fields) -> bool {
    names.iter().all(|name| one.get_all(Name::of(name)).eq(other.get_all(Name::of(name))))
}

pub(crate) fn kept(status: u16, period: Duration) -> Duration {
    if status >= 400 { period.min(ERRORS) } else { period }
}

/// Whether the answer is a stream of server-sent events, which has no end.
pub(crate) fn is_event_stream(headers: &Fields) -> bool {
    headers.get(name::CONTENT_TYPE).is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

pub(crate) fn length(headers: &Fields) -> Option<u64> {
    decimal(headers.get(name::CONTENT_LENGTH)?)
}

/// Whether `Cache-Control` has a directive of this name, with or without an argument. A header that cannot be
/// read counts as `private` and `no-store`.
fn has_directive(headers: &Fields, word: &str) -> bool {
    headers.get_all(name::CACHE_CONTROL).any(|value| match visible(value) {
        Some(text) => text.split(',').any(|directive| {
            let name = directive.split('=').next().unwrap_or_default().trim();
            name.eq_ignore_ascii_case(word)
        }),
        None => matches!(word, "private" | "no-store"),
    })
}
