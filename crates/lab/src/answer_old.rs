//! What an answer means to a visitor: the page, a place in a waiting room, news about that place, or a refusal.
//!
//! A waiting room is known by `X-Tidegate-Status`, the path of a small JSON document about the visitor's place;
//! whatever the status code, since operators choose it. Its page says in `data-poll` when its script asks first and
//! in `data-kind` whether there is a place at all; the visitor does what the script does. Other rooms are known by `Refresh` (WebQ's redirect by
//! refresh header) or by `Retry-After` on 429 and 503: their visitors come again after that time. Nothing that
//! an answer says is trusted beyond its bounds: paths must be local and short, times are clamped.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

/// Field that carries the path of the status document.
pub const STATUS_FIELD: &str = "x-tidegate-status";

/// Longest path followed; the gate's are under 50 bytes.
const MAX_PATH: usize = 512;
/// Longest that an answer can send a visitor away: a room's own limit is half an hour.
const MAX_DELAY: Duration = Duration::from_secs(3600);
/// Bytes of cookies kept per visitor: a ticket and a nonce fit five times.
const MAX_JAR: usize = 1024;

/// An answer as a visitor reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// What the visitor came for.
    Served,
    /// A place in a waiting room.
    Wait {
        /// Where to ask for news, if the room has them.
        status_path: Option<Box<str>>,
        /// When to come again, if the room says so.
        after: Option<Duration>,
        /// When to ask for news first, if the page says so.
        poll: Option<Duration>,
    },
    /// News about the place.
    News(News),
    /// Anything else: an error, or an answer that makes no sense here.
    Refused(StatusCode),
}

/// The status document of the gate's waiting room, as far as a page needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct News {
    /// How the place stands.
    pub state: State,
    /// Milliseconds until the page should ask again.
    #[serde(default = "News::default_poll_ms")]
    pub poll_ms: u64,
}

/// How a place stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not yet.
    Waiting,
    /// The visitor's turn: ask for the page now.
    Ready,
    /// The turn was missed: ask for the page to get a new place.
    Expired,
    /// The place has been used: ask for the page to get a new one.
    Redeemed,
    /// No place was given; come again later.
    Full,
    /// The service is down; the place is kept.
    Unavailable,
    /// Whatever a later gate may say: the page itself will know.
    #[serde(other)]
    Other,
}

impl News {
    const fn default_poll_ms() -> u64 {
        2_000
    }

    /// When to ask again: as told, within reason.
    pub fn poll(&self) -> Duration {
        within_reason(self.poll_ms)
    }
}

fn within_reason(ms: u64) -> Duration {
    Duration::from_millis(ms).clamp(Duration::from_millis(50), MAX_DELAY)
}

/// Reads the answer to a request for the page. Of the body only the waiting page's attributes are read.
pub fn read_page(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    let status_path = text(headers, STATUS_FIELD)
        .filter(|path| path.starts_with('/') && path.len() <= MAX_PATH)
        .map(Box::<str>::from);
    let retry_after = text(headers, header::RETRY_AFTER.as_str()).and_then(seconds);
    // `Refresh: 5` or `Refresh: 5; url=...`; the visitor comes back to the address it came to.
    let refresh = text(headers, "refresh").and_then(|v| v.split([';', ',']).next()).and_then(seconds);
    let busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    if status_path.is_some() || refresh.is_some() || (busy && retry_after.is_some()) {
        let after = retry_after.or(refresh);
        if status_path.is_none() || attribute(body, b" data-kind=") == Some(b"full") {
            return Answer::Wait { status_path: None, after, poll: None };
        }
        let poll = attribute(body, b" data-poll=").and_then(|v| std::str::from_utf8(v).ok()?.parse().ok());
        return Answer::Wait { status_path, after, poll: poll.map(within_reason) };
    }
    if status.is_success() { Answer::Served } else { Answer::Refused(status) }
}

/// Reads the answer to a request for the status document.
pub fn read_news(status: StatusCode, body: &[u8]) -> Answer {
    // The status code may tell the state as well (409, 503); the document is what counts.
    serde_json::from_slice(body).map_or(Answer::Refused(status), Answer::News)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Value of an attribute, bare or quoted; `name` includes the `=`.
fn attribute<'b>(body: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let rest = &body[memchr::memmem::find(body, name)? + name.len()..];
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let end = rest.iter().position(|b| matches!(b, b' ' | b'"' | b'>' | b'/' | b'\n'))?;
    Some(&rest[..end])
}

/// Whole seconds; the date form of `Retry-After` is not read, a visitor has no calendar.
fn seconds(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(|s| Duration::from_secs(s).min(MAX_DELAY))
}

/// A visitor's cookies, kept as the `Cookie` field they are sent as: `a=1; b=2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jar(Option<Box<str>>);

impl Jar {
    /// The field to send, if there is any cookie.
    pub fn field(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Takes in what an answer sets and removes. Attributes other than `Max-Age=0` mean nothing on one host
    /// within one visit. A jar that would grow beyond its bound keeps what it has.
    pub fn absorb(&mut self, headers: &HeaderMap) {
        for value in headers.get_all(header::SET_COOKIE) {
            let Some((pair, attributes)) = value.to_str().ok().map(|v| v.split_once(';').unwrap_or((v, "")))
            else {
                continue;
            };
            let Some((name, _)) = pair.split_once('=') else { continue };
            let gone = attributes.split(';').any(|a| a.trim().eq_ignore_ascii_case("max-age=0"));
            self.replace(name.trim(), (!gone).then_some(pair.trim()));
        }
    }

    fn replace(&mut self, name: &str, pair: Option<&str>) {
        let others = self
            .field()
            .unwrap_or_default()
            .split("; ")
            .filter(|kept| kept.split_once('=').is_some_and(|(kept_name, _)| kept_name != name));
        let field = others.chain(pair).collect::<Vec<_>>().join("; ");
        if field.len() <= MAX_JAR {
            self.0 = (!field.is_empty()).then(|| field.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(n, v)| {
                (
                    HeaderName::from_bytes(n.as_bytes()).expect("name"),
                    HeaderValue::from_str(v).expect("value"),
                )
            })
            .collect()
    }

    fn wait(path: Option<&str>, after_s: Option<u64>) -> Answer {
        Answer::Wait {
            status_path: path.map(Into::into),
            after: after_s.map(Duration::from_secs),
            poll: None,
        }
    }

    #[test]
    fn pages() {
        let long = format!("/{}", "x".repeat(MAX_PATH));
        type Fields<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(u16, Fields<'_>, Answer)] = &[
            (200, &[], Answer::Served),
            (204, &[("retry-after", "3")], Answer::Served),
            (503, &[], Answer::Refused(StatusCode::SERVICE_UNAVAILABLE)),
            (502, &[("retry-after", "3")], Answer::Refused(StatusCode::BAD_GATEWAY)),
            (302, &[("location", "/")], Answer::Refused(StatusCode::FOUND)),
            (503, &[("retry-after", "3")], wait(None, Some(3))),
            (429, &[("retry-after", "9999999")], wait(None, Some(3600))),
            (
                503,
                &[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")],
                Answer::Refused(StatusCode::SERVICE_UNAVAILABLE),
            ),
            (200, &[("refresh", "7; url=/x")], wait(None, Some(7))),
            (200, &[("refresh", "soon")], Answer::Served),
            (
                503,
                &[("retry-after", "40"), ("x-tidegate-status", "/.tidegate/status?c=0")],
                wait(Some("/.tidegate/status?c=0"), Some(40)),
            ),
            (200, &[("x-tidegate-status", "/s")], wait(Some("/s"), None)),
            (409, &[("x-tidegate-status", "/s"), ("refresh", "2")], wait(Some("/s"), Some(2))),
            (
                503,
                &[("x-tidegate-status", "http://elsewhere/")],
                Answer::Refused(StatusCode::SERVICE_UNAVAILABLE),
            ),
            (503, &[("x-tidegate-status", &long)], Answer::Refused(StatusCode::SERVICE_UNAVAILABLE)),
        ];
        for (status, fields, expected) in cases {
            let status = StatusCode::from_u16(*status).expect("status");
            assert_eq!(read_page(status, &headers(fields), b""), *expected, "{status} {fields:?}");
        }
    }

    #[test]
    fn waiting_pages() {
        let fields = headers(&[("x-tidegate-status", "/s"), ("retry-after", "9")]);
        let (after, path) = (Some(Duration::from_secs(9)), Some(Box::<str>::from("/s")));
        let cases = [
            ("<main data-kind=waiting data-poll=700 data-x=1>", path.clone(), Some(700)),
            ("<main data-poll=\"0\">", path.clone(), Some(50)),
            ("<main data-poll=soon>", path.clone(), None),
            ("<main data-poll=70", path.clone(), None),
            ("{}", path, None),
            ("<main data-kind=full data-poll=700>", None, None),
        ];
        for (body, status_path, poll_ms) in cases {
            let expected = Answer::Wait { status_path, after, poll: poll_ms.map(Duration::from_millis) };
            assert_eq!(
                read_page(StatusCode::SERVICE_UNAVAILABLE, &fields, body.as_bytes()),
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn news() {
        let full = br#"{"state":"waiting","wait_ms":1500,"place":3,"poll_ms":700,"waited_ms":9}"#;
        let expected = News { state: State::Waiting, poll_ms: 700 };
        assert_eq!(read_news(StatusCode::OK, full), Answer::News(expected));
        for (name, state) in [
            ("ready", State::Ready),
            ("expired", State::Expired),
            ("redeemed", State::Redeemed),
            ("full", State::Full),
            ("unavailable", State::Unavailable),
            ("asleep", State::Other),
        ] {
            let body = format!(r#"{{"state":"{name}"}}"#);
            assert_eq!(
                read_news(StatusCode::OK, body.as_bytes()),
                Answer::News(News { state, poll_ms: 2000 })
            );
        }
        for body in [&b""[..], b"{}", b"[]", br#"{"state":7}"#, b"\xff\x00"] {
            assert_eq!(read_news(StatusCode::OK, body), Answer::Refused(StatusCode::OK), "{body:?}");
        }
        assert_eq!(News { state: State::Waiting, poll_ms: 0 }.poll(), Duration::from_millis(50));
        assert_eq!(News { state: State::Waiting, poll_ms: u64::MAX }.poll(), MAX_DELAY);
    }

    #[test]
    fn cookies() {
        let mut jar = Jar::default();
        assert_eq!(jar.field(), None);
        for (set, field) in [
            ("tg=1; Path=/; HttpOnly", Some("tg=1")),
            ("nonce=a=b", Some("tg=1; nonce=a=b")),
            ("tg=2; Max-Age=60", Some("nonce=a=b; tg=2")),
            ("no pair", Some("nonce=a=b; tg=2")),
            ("nonce=; Max-Age=0", Some("tg=2")),
            ("tg=x; max-age=0; Path=/", None),
        ] {
            jar.absorb(&headers(&[("set-cookie", set)]));
            assert_eq!(jar.field(), field, "after {set}");
        }
        let small = headers(&[("set-cookie", "a=1")]);
        let large = format!("b={}", "x".repeat(MAX_JAR));
        jar.absorb(&small);
        jar.absorb(&headers(&[("set-cookie", &large)]));
        assert_eq!(jar.field(), Some("a=1"));
    }
}
