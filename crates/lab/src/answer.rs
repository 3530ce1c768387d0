//! The meaning of an answer to a visitor: the page, a position in a waiting room, the status of that
//! position, or a refusal.
//!
//! A waiting room is recognised by `X-Tidegate-Status`, the path of a small JSON document about the visitor's
//! position. Its status code does not matter, since operators choose it. Attributes of its page give the wait
//! and the time of the script's first poll; its answer to programs gives the same in JSON. Other rooms are
//! known by `Refresh` (WebQ's redirect by refresh field) or by `Retry-After` on 429 and 503: their visitors
//! come again after that time. Nothing that an answer says is trusted beyond its bounds: paths must be local
//! and short, times are clamped.
//!
//! An [`Answer`] holds no text, so that a simulator can make a million of them a second; the paths that a
//! real answer names are returned beside it, in a [`Reading`].

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, StatusCode, header};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use tidegate_gateway::proxy::respond;

use crate::visitor::RequestKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Served,
    Wait {
        /// The room has a status document about the position.
        has_status: bool,
        /// Time until the turn, as exactly as the room says it; for a full room, until asking again makes
        /// sense.
        after: Option<Duration>,
        /// When a page without JavaScript asks again.
        refresh: Option<Duration>,
        /// When the page first asks for it.
        poll: Option<Duration>,
        full: bool,
    },
    /// Refused by a gate that says when to try again, be it with its page or as problem JSON: not the room's
    /// answer, however much it looks like it.
    TurnedAway {
        /// Time until asking again makes sense.
        after: Option<Duration>,
        /// When a page without JavaScript asks again.
        refresh: Option<Duration>,
    },
    Status(RoomStatus),
    /// Anything else, by its status code: an error, or an answer that makes no sense here.
    Refused(u16),
}

/// The status document of the gate's waiting room, as far as a page needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomStatus {
    pub state: State,
    pub poll: Duration,
    pub wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Ready,
    /// The turn was missed: ask for the page to get a new position.
    Expired,
    /// The position has been used: ask for the page to get a new one.
    Redeemed,
    Full,
    /// The service is down; the position is kept.
    Unavailable,
    /// A state of a later gate: ask for the page.
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub answer: Answer,
    /// Path and query of the status document; there is one if the answer is a wait with one, and only then.
    pub status_path: Option<String>,
    /// Where a redirect leads. The answer beside it is `Refused`: what a visitor makes of a redirect that is
    /// not followed.
    pub redirect: Option<Redirect>,
}

/// Where a redirect leads. The visitor's player follows it, within the same request as to time and patience,
/// a few hops far and to hosts it may send to; the visitor hears of the last answer only. A gate split into
/// tokengen and tokencheck sends everybody from one to the other in this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Host and port, if the redirect names them; plain HTTP.
    pub authority: Option<String>,
    pub path: String,
    /// Whether method and body stay (307, 308), or the new place is asked with GET (301, 302, 303).
    pub same_method: bool,
}

/// Longest path followed: a kilobyte of path and a ticket.
const MAX_PATH: usize = 2048;
/// Longest that an answer can send a visitor away. Rooms hold people for hours at most.
const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);
/// Shortest time between two requests for the status document, whatever the room says.
const MIN_POLL: Duration = Duration::from_millis(50);
/// Shortest time after which a page reloads itself, whatever it says. A browser obeys `Refresh: 0` as fast as
/// the network allows; a bench that did would send as much as it can, and not the configured load.
const MIN_REFRESH: Duration = Duration::from_secs(1);
/// When a page asks again for which a status document does not say it.
const DEFAULT_POLL_MS: u64 = 2_000;
/// The beginning of a waiting page's reload for browsers without JavaScript.
const META_REFRESH: &[u8] = b"http-equiv=\"refresh\" content=\"";
/// The types of the answers to programs in a full room, and to those who are refused (RFC 9457), as far as
/// they matter.
const FULL: &str = ":full";
const OVERLOADED: &str = ":overloaded";

/// Whether a body is worth keeping, as far as the head tells: 16 KiB of it will do. All waiting answers of
/// the gate have `Retry-After`.
pub fn wants_body(ask: RequestKind, headers: &HeaderMap) -> bool {
    ask == RequestKind::Status
        || headers.contains_key(respond::STATUS_FIELD)
        || headers.contains_key(header::RETRY_AFTER)
}

/// Reads the answer to a request. `body` may be cut or left out; `now` is the wall clock in seconds since
/// 1970, for the date form of `Retry-After`.
pub fn read(ask: RequestKind, status: StatusCode, headers: &HeaderMap, body: &[u8], now: u64) -> Reading {
    let plain = |answer| Reading { answer, status_path: None, redirect: None };
    let refused = Answer::Refused(status.as_u16());
    if ask == RequestKind::Status {
        // The status code may tell the state as well (409, 503); the document is what counts.
        return plain(read_status(body).map_or(refused, Answer::Status));
    }
    if status.is_redirection() {
        return Reading { redirect: read_redirect(status, headers), ..plain(refused) };
    }
    let told = if wants_body(ask, headers) { Told::read(headers, body) } else { Told::default() };
    let status_path = text(headers, &HeaderName::from_static(respond::STATUS_FIELD))
        .or(told.status_url.as_deref())
        .filter(|path| is_local(path));
    let retry_after = text(headers, &header::RETRY_AFTER).and_then(|value| delay(value, now));
    // `Refresh: 5` or `Refresh: 5; url=...`; the visitor comes back to the address it came to.
    let refresh = text(headers, &REFRESH).and_then(|value| seconds(value.split([';', ',']).next()?));
    let refresh = refresh.or(told.refresh).map(|after| after.max(MIN_REFRESH));
    let busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    if told.refused {
        return plain(Answer::TurnedAway { after: told.wait.or(retry_after), refresh });
    }
    if status_path.is_some() || told.full || refresh.is_some() || (busy && retry_after.is_some()) {
        let status_path = status_path.filter(|_| !told.full).map(str::to_owned);
        let answer = Answer::Wait {
            has_status: status_path.is_some(),
            after: told.wait.or(retry_after),
            refresh,
            poll: told.poll,
            full: told.full,
        };
        return Reading { status_path, ..plain(answer) };
    }
    plain(if status.is_success() { Answer::Served } else { refused })
}

/// Reads the body of a room's answer, the page or the answer to programs.
#[derive(Default)]
struct Told {
    wait: Option<Duration>,
    poll: Option<Duration>,
    refresh: Option<Duration>,
    full: bool,
    refused: bool,
    status_url: Option<String>,
}

impl Told {
    fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let kind = text(headers, &header::CONTENT_TYPE).unwrap_or_default();
        if kind.starts_with("application/problem+json") {
            return serde_json::from_slice(body).map_or_else(|_| Self::default(), Self::of_problem);
        }
        // The page's figures stand in attributes for its script. A page of the origin's has none; an
        // operator's template may leave them out.
        let ms = |name| attribute(body, name).and_then(number).map(Duration::from_millis);
        let refresh = memchr::memmem::find(body, META_REFRESH).map(|at| &body[at + META_REFRESH.len()..]);
        let Some(kind) = attribute(body, b" data-kind=") else { return Self::default() };
        Self {
            wait: ms(b" data-wait=").map(|wait| wait.min(MAX_DELAY)),
            poll: ms(b" data-poll=").map(|poll| poll.clamp(MIN_POLL, MAX_DELAY)),
            refresh: refresh.and_then(|rest| number(until(rest, b";\""))).map(bounded),
            full: kind == b"full",
            refused: attribute(body, b" data-refused=").is_some(),
            status_url: None,
        }
    }

    fn of_problem(problem: Problem) -> Self {
        let wait = problem.wait_s.and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self {
            wait: wait.map(|wait| wait.min(MAX_DELAY)),
            full: problem.kind.ends_with(FULL),
            refused: problem.kind.ends_with(OVERLOADED),
            status_url: problem.status_url,
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct Problem {
    #[serde(rename = "type", default)]
    kind: String,
    wait_s: Option<f64>,
    status_url: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    state: State,
    poll_ms: Option<u64>,
    wait_ms: Option<u64>,
}

fn read_status(body: &[u8]) -> Option<RoomStatus> {
    let document: Document = serde_json::from_slice(body).ok()?;
    let poll = Duration::from_millis(document.poll_ms.unwrap_or(DEFAULT_POLL_MS));
    let wait = Duration::from_millis(document.wait_ms.unwrap_or(0));
    Some(RoomStatus {
        state: document.state,
        poll: poll.clamp(MIN_POLL, MAX_DELAY),
        wait: wait.min(MAX_DELAY),
    })
}

fn read_redirect(status: StatusCode, headers: &HeaderMap) -> Option<Redirect> {
    let same_method = match status.as_u16() {
        301..=303 => false,
        307 | 308 => true,
        _ => return None,
    };
    let location = text(headers, &header::LOCATION)?.split('#').next()?;
    let there = location.strip_prefix("http:").unwrap_or(location);
    let (authority, path) = match there.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            let authority: Authority = authority.parse().ok()?;
            (Some(authority.to_string()), path)
        }
        None => (None, location),
    };
    let path = match path.as_bytes().first() {
        Some(b'/') => path.to_owned(),
        None | Some(b'?') if authority.is_some() => format!("/{path}"),
        // Relative to the page, or a scheme that is not spoken here.
        _ => return None,
    };
    is_local(&path).then_some(Redirect { authority, path, same_method })
}

/// Whether a path can be asked for: on this host, of sane length, and without what an address cannot hold.
fn is_local(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= MAX_PATH
        && path.parse::<PathAndQuery>().is_ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Value of an attribute, bare or quoted; `name` includes the `=`.
fn attribute<'b>(body: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let rest = &body[memchr::memmem::find(body, name)? + name.len()..];
    Some(until(rest.strip_prefix(b"\"").unwrap_or(rest), b" \">/\n")).filter(|value| value.len() < rest.len())
}

/// What comes before the first of `ends`; all of it if there is none.
fn until<'b>(bytes: &'b [u8], ends: &[u8]) -> &'b [u8] {
    &bytes[..bytes.iter().position(|b| ends.contains(b)).unwrap_or(bytes.len())]
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim().parse().ok()
}

fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_DELAY)
}

fn seconds(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(bounded)
}

/// `Retry-After`: seconds or a date (RFC 9110 10.2.3); one that has passed means now.
fn delay(value: &str, now: u64) -> Option<Duration> {
    seconds(value).or_else(|| {
        let date = u64::try_from(http_date(value.trim())?).unwrap_or(0);
        Some(bounded(date.saturating_sub(now)))
    })
}

/// Seconds since 1970 of an HTTP date, in any of its three forms (RFC 9110 5.6.7).
pub(crate) fn http_date(text: &str) -> Option<i64> {
    let old = |format: &str| {
        let parsed = BrokenDownTime::parse(format, text).ok()?.to_datetime().ok()?;
        parsed.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
    };
    let date = DateTimeParser::new().parse_timestamp(text).ok();
    let date = date.or_else(|| old("%A, %d-%b-%y %H:%M:%S GMT")).or_else(|| old("%a %b %e %H:%M:%S %Y"));
    date.map(|time| time.as_second())
}

const REFRESH: HeaderName = HeaderName::from_static("refresh");

#[cfg(test)]
mod tests;
