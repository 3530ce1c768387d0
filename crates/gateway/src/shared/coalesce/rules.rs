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

use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING,
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, DNT, FORWARDED, HOST, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, REFERER, SET_COOKIE, TE,
    UPGRADE_INSECURE_REQUESTS, USER_AGENT, VARY, VIA,
};
use http::{HeaderMap, Method, request};

use crate::http::hygiene::{beside_addresses, content_length};

/// Longest time for which an error is given to others.
pub(crate) const ERRORS: Duration = Duration::from_secs(1);

/// Headers that a request with a shared answer may have, beside `Sec-Fetch-*`, `Sec-CH-*` and
/// `X-Forwarded-*`. The gate removes those that only a trusted proxy may set.
#[rustfmt::skip]
const USUAL: [HeaderName; 22] = [
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH,
    COOKIE, DNT, FORWARDED, HOST, PRAGMA, TE, UPGRADE_INSECURE_REQUESTS, USER_AGENT, VIA,
    HeaderName::from_static("keep-alive"), HeaderName::from_static("priority"),
    HeaderName::from_static("sec-gpc"), HeaderName::from_static("sec-purpose"),
    HeaderName::from_static("x-real-ip"), HeaderName::from_static("x-request-id"),
];
const USUAL_PREFIXES: [&str; 3] = ["sec-fetch-", "sec-ch-", "x-forwarded-"];

/// Headers that are not sent upstream for all.
pub(crate) const NOT_FOR_ALL: [HeaderName; 6] =
    [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, REFERER];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    All,
    Cookieless,
    /// Only its own request. `cookieless`: requests without cookies cannot share one either.
    None {
        cookieless: bool,
    },
}

pub(crate) fn may_share(parts: &request::Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD)
        && parts.headers.keys().all(|name| {
            USUAL.contains(name)
                || NOT_FOR_ALL.contains(name)
                || USUAL_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
        })
}

/// What proxies, including the gate, tell the origin of the visitor's connection beside its address: the
/// host, scheme or prefix that the origin writes into links and redirects, seldom with a `Vary`, or the user
/// that a proxy authenticated.
pub(crate) fn forwarded(sent: &HeaderMap) -> Box<[u8]> {
    let names = sent.keys().map(HeaderName::as_str);
    let mut names: Vec<&str> =
        names.filter(|name| name.starts_with("x-forwarded-") && *name != "x-forwarded-for").collect();
    names.sort_unstable();
    let mut said = Vec::new();
    let mut say = |name: &str, value: &[u8]| {
        said.extend_from_slice(name.as_bytes());
        said.push(b':');
        said.extend_from_slice(value);
        said.push(b'\n');
    };
    for name in names {
        sent.get_all(name).iter().for_each(|value| say(name, value.as_bytes()));
    }
    for line in sent.get_all(FORWARDED) {
        match line.to_str() {
            Ok(text) => beside_addresses(text).for_each(|parameter| say("", parameter.as_bytes())),
            Err(_) => say("", line.as_bytes()),
        }
    }
    said.into()
}

/// The requests that may share this answer to a request with or without cookies.
pub(crate) fn sharing(status: u16, headers: &HeaderMap, asked_with_cookies: bool) -> Sharing {
    let nobody = Sharing::None { cookieless: true };
    let says = |word: &str| has_directive(headers, word);
    let too_large = length(headers).is_some_and(|length| length > super::MAX_ANSWER as u64);
    if headers.contains_key(SET_COOKIE)
        || headers.contains_key(CONTENT_RANGE)
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

/// The headers by which this answer was selected; `None`: by anything (`Vary: *`).
pub(crate) fn vary(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for value in headers.get_all(VARY) {
        for name in value.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            // `*` is no valid header name either.
            names.push(HeaderName::from_bytes(name.as_bytes()).ok().filter(|_| name != "*")?);
        }
    }
    // Even if `Vary` does not name it: a client that did not offer the coding cannot read the answer.
    if headers.contains_key(CONTENT_ENCODING) {
        names.push(ACCEPT_ENCODING);
    }
    Some(names)
}

pub(crate) fn same(names: &[HeaderName], one: &HeaderMap, other: &HeaderMap) -> bool {
    names.iter().all(|name| one.get_all(name).iter().eq(other.get_all(name).iter()))
}

pub(crate) fn kept(status: u16, period: Duration) -> Duration {
    if status >= 400 { period.min(ERRORS) } else { period }
}

/// Whether the answer is a stream of server-sent events, which has no end.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"))
}

pub(crate) fn length(headers: &HeaderMap) -> Option<u64> {
    content_length(headers).ok()?
}

/// Whether `Cache-Control` has a directive of this name, with or without an argument. A header that cannot be
/// read counts as `private` and `no-store`.
fn has_directive(headers: &HeaderMap, word: &str) -> bool {
    headers.get_all(CACHE_CONTROL).iter().any(|value| match value.to_str() {
        Ok(text) => text.split(',').any(|directive| {
            let name = directive.split('=').next().unwrap_or_default().trim();
            name.eq_ignore_ascii_case(word)
        }),
        Err(_) => matches!(word, "private" | "no-store"),
    })
}
