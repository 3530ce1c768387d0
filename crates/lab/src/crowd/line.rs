//! One line of an access log: Apache's and nginx's combined form (the common form and those with a virtual
//! host in front too), or a JSON object with the fields that nginx, Caddy, Traefik, Envoy, logstash and
//! Tidegate itself use.
//!
//! Only what a visitor needs is looked at: the time and the request. Quoted texts are taken apart with their
//! escapes, so that a quote inside a URL or a user agent does not end a field.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub at_us: i64,
    /// The time has no fraction: it may have been any instant of its second.
    pub whole_second: bool,
    pub method: String,
    pub target: String,
}

pub(super) type Reason = &'static str;

const NO_TIME: Reason = "no time that could be read";
const NO_REQUEST: Reason = "no request that could be read";

/// Longest target that is played, in bytes: what the gate accepts by default.
const MAX_TARGET: usize = 8192;

/// Fields of the time, the first that holds one counts.
const TIMES: [&str; 10] = [
    "time",
    "ts",
    "@timestamp",
    "msec",
    "timestamp",
    "time_iso8601",
    "time_local",
    "StartUTC",
    "start_time",
    "date",
];
const METHODS: [&str; 3] = ["method", "request_method", "RequestMethod"];
const TARGETS: [&str; 6] = ["target", "request_uri", "uri", "RequestPath", "path", "url"];

pub(super) fn read(line: &str) -> Result<Line, Reason> {
    if line.trim_start().starts_with('{') { json(line) } else { combined(line) }
}

/// `host ident user [time] "request" status bytes "referer" "user agent"`.
fn combined(line: &str) -> Result<Line, Reason> {
    // Brackets may also be part of an address or of a user's name: the first that hold a time are the time's.
    let (at_us, whole_second, rest) = line
        .match_indices('[')
        .find_map(|(at, _)| {
            let (text, rest) = line[at + 1..].split_once(']')?;
            let (at_us, whole) = clf_time(text)?;
            Some((at_us, whole, rest))
        })
        .ok_or(NO_TIME)?;
    let quoted = rest.trim_start().strip_prefix('"').ok_or(NO_REQUEST)?;
    let (method, target) = request(&unquoted(quoted).ok_or(NO_REQUEST)?)?;
    Ok(Line { at_us, whole_second, method, target })
}

/// The text up to the closing quote, its escapes undone: `\"`, `\\`, `\xHH`.
fn unquoted(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len().min(256));
    let mut bytes = text.bytes();
    loop {
        match bytes.next()? {
            b'"' => return String::from_utf8(out).ok(),
            b'\\' => match bytes.next()? {
                b'x' => {
                    let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
                    out.push(high << 4 | low);
                }
                other => out.push(other),
            },
            byte => out.push(byte),
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// `GET /path HTTP/1.1`.
fn request(text: &str) -> Result<(String, String), Reason> {
    let mut words = text.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Err(NO_REQUEST) };
    // HTTP/0.9 has no version; anything else behind the target is no request.
    if words.next().is_some_and(|version| !version.starts_with("HTTP/")) || words.next().is_some() {
        return Err(NO_REQUEST);
    }
    asked(method, target)
}

fn asked(method: &str, target: &str) -> Result<(String, String), Reason> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if method.is_empty() || method.len() > 32 || !method.bytes().all(token) {
        return Err("no method");
    }
    if method == "CONNECT" {
        return Err("a tunnel, which no visitor opens");
    }
    // The absolute form, as proxies get it.
    let path = match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphabetic()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    let path = path.split('#').next().unwrap_or_default();
    if !path.starts_with('/') || path.len() > MAX_TARGET || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("no path that could be asked for");
    }
    // A scenario's placeholder is meant as such only in a scenario.
    Ok((method.into(), path.replace("{n}", "%7Bn%7D")))
}

/// `10/Oct/2000:13:55:36 -0700`, the seconds perhaps with a fraction.
fn clf_time(text: &str) -> Option<(i64, bool)> {
    let time = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S%.f %z", text).ok()?.to_timestamp().ok()?;
    Some((time.as_microsecond(), !text.contains('.')))
}

fn json(line: &str) -> Result<Line, Reason> {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Err("no valid JSON object") };
    let times = TIMES.iter().filter_map(|name| fields.get(*name));
    let (at_us, whole_second) = times.filter_map(json_time).next().ok_or(NO_TIME)?;
    let (method, target) = match fields.get("request") {
        Some(Value::String(text)) => request(text)?,
        // Caddy puts the request into an object of its own.
        Some(Value::Object(inner)) => json_request(inner)?,
        _ => json_request(&fields)?,
    };
    Ok(Line { at_us, whole_second, method, target })
}

fn json_request(fields: &Map<String, Value>) -> Result<(String, String), Reason> {
    let text = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)).and_then(Value::as_str);
    let target = text(&TARGETS).ok_or(NO_REQUEST)?;
    let query = text(&["query", "args", "query_string"]).filter(|q| !q.is_empty() && !target.contains('?'));
    let target = match query {
        Some(query) => Cow::Owned(format!("{target}?{}", query.trim_start_matches('?'))),
        None => Cow::Borrowed(target),
    };
    // A log that tells no methods is one of pages.
    asked(text(&METHODS).unwrap_or("GET"), &target)
}

fn json_time(value: &Value) -> Option<(i64, bool)> {
    match value {
        Value::Number(number) => number_time(number.as_f64()?, number.is_f64()),
        Value::String(text) => text_time(text.trim()),
        _ => None,
    }
}

/// Unix time in seconds, or in milli-, micro- or nanoseconds: its magnitude tells, as no log is from after
/// the year 5138 or from before 1973.
fn number_time(number: f64, fraction: bool) -> Option<(i64, bool)> {
    let (unit, whole) = match number {
        0.0..1e11 => (1e6, !fraction),
        1e11..1e14 => (1e3, false),
        1e14..1e17 => (1.0, false),
        1e17..1e20 => (1e-3, false),
        _ => return None,
    };
    Some(((number * unit).round() as i64, whole))
}

/// RFC 3339 (without an offset: UTC), the combined form's way, or a number in quotes.
fn text_time(text: &str) -> Option<(i64, bool)> {
    if let Ok(number) = text.parse::<f64>() {
        return number_time(number, text.contains('.'));
    }
    if let Some(time) = clf_time(text) {
        return Some(time);
    }
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let local = text.parse::<DateTime>().ok()?;
        Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    Some((time.as_microsecond(), !text.contains(['.', ','])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2000-10-10 13:55:36 in California, in microseconds.
    const OCTOBER: i64 = 971_211_336_000_000;

    fn line(at_us: i64, whole_second: bool, method: &str, target: &str) -> Result<Line, Reason> {
        Ok(Line { at_us, whole_second, method: method.into(), target: target.into() })
    }

    #[test]
    fn combined_lines() {
        let agent = r#""http://a/\"b\"" "Mozilla/5.0 (X11; \"quoted\" [en])""#;
        for (text, expected) in [
            (
                format!(r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.0" 200 23 {agent}"#),
                line(OCTOBER, true, "GET", "/a?b=c"),
            ),
            // The common form, IPv6 in brackets, a user's name with a bracket, a fraction, another zone.
            (
                r#"[::1] - a[b] [10/Oct/2000:20:55:36.250 +0000] "POST /x HTTP/1.1" 200 -"#.into(),
                line(OCTOBER + 250_000, false, "POST", "/x"),
            ),
            // A virtual host in front, escapes, the absolute form.
            (
                r#"shop:80 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET http://shop/a\x22\"\\b HTTP/1.1" 200 1"#.into(),
                line(OCTOBER, true, "GET", r#"/a""\b"#),
            ),
            (
                r#"h - - [10/Oct/2000:13:55:36 -0700] "GET /{n}#f HTTP/1.1" 200 1"#.into(),
                line(OCTOBER, true, "GET", "/%7Bn%7D"),
            ),
            (r#"h - - [10/Oct/2000:13:55:36 -0700] "-" 408 0"#.into(), Err(NO_REQUEST)),
            (r#"h - - [10/Oct/2000:13:55:36 -0700] "GET /a"#.into(), Err(NO_REQUEST)),
            (r#"h - - [10/Oct/2000:13:55:36 -0700] "GET /a b c" 400 0"#.into(), Err(NO_REQUEST)),
            (r#"h - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 0"#.into(), Err(NO_TIME)),
            (
                r#"h - - [10/Oct/2000:13:55:36 -0700] "CONNECT a:443 HTTP/1.1" 200 0"#.into(),
                Err("a tunnel, which no visitor opens"),
            ),
            (
                r#"h - - [10/Oct/2000:13:55:36 -0700] "OPTIONS * HTTP/1.1" 200 0"#.into(),
                Err("no path that could be asked for"),
            ),
            ("hello".into(), Err(NO_TIME)),
        ] {
            assert_eq!(read(&text), expected, "{text}");
        }
    }

    #[test]
    fn json_lines() {
        for (text, expected) in [
            // Tidegate's own form.
            (
                r#"{"time":"2000-10-10T20:55:36.125Z","client":"::1","method":"GET","target":"/a?b"}"#,
                line(OCTOBER + 125_000, false, "GET", "/a?b"),
            ),
            (
                r#"{"ts":971211336.5,"request":{"method":"PUT","uri":"/c"}}"#,
                line(OCTOBER + 500_000, false, "PUT", "/c"),
            ),
            (
                r#"{"@timestamp":"2000-10-10T13:55:36-07:00","request":"GET /x HTTP/1.1"}"#,
                line(OCTOBER, true, "GET", "/x"),
            ),
            (
                r#"{"msec":"971211336.001","uri":"/d","args":"q=1"}"#,
                line(OCTOBER + 1000, false, "GET", "/d?q=1"),
            ),
            (r#"{"timestamp":971211336000,"path":"/e"}"#, line(OCTOBER, false, "GET", "/e")),
            (r#"{"time":971211336,"path":"/e"}"#, line(OCTOBER, true, "GET", "/e")),
            (r#"{"time":"10/Oct/2000:13:55:36 -0700","path":"/f"}"#, line(OCTOBER, true, "GET", "/f")),
            (r#"{"time":"2000-10-10 20:55:36","path":"/g"}"#, line(OCTOBER, true, "GET", "/g")),
            (r#"{"path":"/e"}"#, Err(NO_TIME)),
            (r#"{"time":-5,"path":"/e"}"#, Err(NO_TIME)),
            (r#"{"time":"never","path":"/e"}"#, Err(NO_TIME)),
            (r#"{"time":971211336}"#, Err(NO_REQUEST)),
            (r#"{"time":971211336,"path":"e"}"#, Err("no path that could be asked for")),
            (r#"{"time":971211336,"path":"/e","method":"A B"}"#, Err("no method")),
            (r#"{"time":971211336,"#, Err("no valid JSON object")),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
