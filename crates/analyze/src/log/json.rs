//! One JSON object per line, with the fields that nginx (`escape=json`), Caddy, Traefik, Envoy, logstash and
//! Tidegate itself use. Other fields are passed over without being kept.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::time::{Times, epoch};
use super::{NO_REQUEST, NO_TIME, Reason, Request, path_of, path_of_request};

/// Fields of the time; the first of this list that a line has counts.
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
/// Fields of the target, likewise.
const TARGETS: [&str; 6] = ["target", "request_uri", "uri", "RequestPath", "path", "url"];

#[derive(Clone, Copy)]
enum Key {
    Time(usize),
    Target(usize),
    /// nginx: the request line. Caddy: an object that has the target.
    Request,
    /// Seconds that the response took, of servers that write the time of its end.
    Took,
    Class,
    /// Only Tidegate writes it.
    Verdict,
    Replica,
    Other,
}

impl Key {
    fn of(name: &str) -> Self {
        let rank = |names: &[&str]| names.iter().position(|candidate| *candidate == name);
        match name {
            "request" => Self::Request,
            "request_time" | "duration" => Self::Took,
            "class" => Self::Class,
            "verdict" => Self::Verdict,
            "replica" => Self::Replica,
            _ => rank(&TIMES)
                .map(Self::Time)
                .or_else(|| rank(&TARGETS).map(Self::Target))
                .unwrap_or(Self::Other),
        }
    }
}

#[derive(Default)]
struct Fields<'a> {
    time: Option<(usize, Scalar<'a>)>,
    target: Option<(usize, Cow<'a, str>)>,
    request: Option<Cow<'a, str>>,
    took_s: Option<f64>,
    class: Option<Cow<'a, str>>,
    is_tidegates: bool,
    has_replica: bool,
}

enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
    /// An object's target.
    Target(usize, Cow<'a, str>),
    Other,
}

impl<'a> Fields<'a> {
    fn set(&mut self, key: Key, value: Scalar<'a>) {
        match (key, value) {
            (Key::Time(rank), value @ (Scalar::Text(_) | Scalar::Number(_)))
                if self.time.as_ref().is_none_or(|(before, _)| rank < *before) =>
            {
                self.time = Some((rank, value));
            }
            (Key::Target(rank), Scalar::Text(text)) | (Key::Request, Scalar::Target(rank, text))
                if self.target.as_ref().is_none_or(|(before, _)| rank < *before) =>
            {
                self.target = Some((rank, text));
            }
            (Key::Request, Scalar::Text(text)) => self.request = Some(text),
            (Key::Took, Scalar::Number(seconds)) => self.took_s = Some(seconds),
            // nginx writes numbers in quotes.
            (Key::Took, Scalar::Text(text)) => self.took_s = text.parse().ok(),
            (Key::Class, Scalar::Text(text)) => self.class = Some(text),
            (Key::Verdict, _) => self.is_tidegates = true,
            (Key::Replica, _) => self.has_replica = true,
            _ => {}
        }
    }
}

pub(super) fn parse<'a>(line: &'a [u8], times: &mut Times) -> Result<Request<'a>, Reason> {
    let mut reader = serde_json::Deserializer::from_slice(line);
    let fields = reader.deserialize_map(FieldsVisitor).and_then(|fields| reader.end().map(|()| fields));
    let fields = fields.map_err(|_| "no valid JSON object")?;
    let at_us = match fields.time.ok_or(NO_TIME)?.1 {
        Scalar::Text(text) => times.text(&text),
        Scalar::Number(number) => epoch(number),
        _ => None,
    };
    // Longer than a day is no response time of HTTP, but another unit.
    let took_us = fields.took_s.filter(|s| (0.0..86_400.0).contains(s)).map_or(0, |s| (s * 1e6) as i64);
    let path = match (fields.target, fields.request) {
        (Some((_, target)), _) => part(target, |target| path_of(target).ok_or(NO_REQUEST))?,
        (None, Some(request)) => part(request, path_of_request)?,
        (None, None) => return Err(NO_REQUEST),
    };
    Ok(Request {
        at_us: at_us.ok_or(NO_TIME)? - took_us,
        path,
        kept_from_origin: fields.is_tidegates && !fields.has_replica,
        class: fields.class,
    })
}

/// Part of a text, borrowed where the text is.
fn part<'a>(
    text: Cow<'a, str>,
    of: impl Fn(&[u8]) -> Result<&[u8], Reason>,
) -> Result<Cow<'a, [u8]>, Reason> {
    match text {
        Cow::Borrowed(text) => of(text.as_bytes()).map(Cow::Borrowed),
        Cow::Owned(text) => Ok(Cow::Owned(of(text.as_bytes())?.to_vec())),
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match key {
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
                key => fields.set(key, map.next_value()?),
            }
        }
        Ok(fields)
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Key, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(Key::of(name))
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scalar<'de>, A::Error> {
        let fields = FieldsVisitor.visit_map(map)?;
        Ok(fields.target.map_or(Scalar::Other, |(rank, target)| Scalar::Target(rank, target)))
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<Request<'_>, Reason> {
        parse(line.as_bytes(), &mut Times::new(TimeZone::UTC))
    }

    fn told(line: &str) -> Result<(i64, String), Reason> {
        parsed(line).map(|request| (request.at_us, String::from_utf8_lossy(&request.path).into_owned()))
    }

    const AT: i64 = 1_795_491_733_000_000;

    #[test]
    fn lines_of_servers() {
        let lines = [
            // nginx: all values are texts, and the time is the end of the request.
            (
                r#"{"time_local":"24/Nov/2026:03:42:13 +0000","request":"GET /a?b HTTP/1.1","status":"200","request_time":"0.250"}"#,
                Ok((AT - 250_000, "/a")),
            ),
            (r#"{"msec":"1795491733.000","request_uri":"/b?c=\"d\"","uri":"/index.php"}"#, Ok((AT, "/b"))),
            (
                r#"{"time_iso8601":"2026-11-24T04:42:13+01:00","uri":"/\u0063","request":"GET /other HTTP/1.1"}"#,
                Ok((AT, "/c")),
            ),
            // Caddy.
            (
                r#"{"level":"info","ts":1795491733.5,"logger":"http.log.access","request":{"remote_ip":"::1","headers":{"uri":["/no"]},"method":"GET","uri":"/d?e"},"duration":0.5,"status":200}"#,
                Ok((AT, "/d")),
            ),
            // Traefik writes when a request came; its duration is in nanoseconds.
            (
                r#"{"Duration":5000000,"RequestPath":"/e","StartUTC":"2026-11-24T03:42:13.000Z","time":null}"#,
                Ok((AT, "/e")),
            ),
            (r#"{"@timestamp":"2026-11-24T03:42:13.000Z","url":"https://shop.example/f?g"}"#, Ok((AT, "/f"))),
            (r#"{"time":"yesterday","path":"/g"}"#, Err(NO_TIME)),
            (r#"{"path":"/g"}"#, Err(NO_TIME)),
            (r#"{"ts":1795491733}"#, Err(NO_REQUEST)),
            (r#"{"ts":1795491733,"path":"/a"} x"#, Err("no valid JSON object")),
            (r#"{"ts":1795491733,"path":"/a""#, Err("no valid JSON object")),
            (r#"[1795491733,"/a"]"#, Err("no valid JSON object")),
        ];
        for (line, expected) in lines {
            assert_eq!(told(line), expected.map(|(at, path)| (at, path.to_owned())), "{line}");
        }
    }

    #[test]
    fn tidegates_own_form_tells_class_and_what_reached_the_origin() {
        let line = r#"{"time":"2026-11-24T03:42:13.000Z","client":"::1","method":"GET","target":"/s?q","version":"HTTP/1.1","status":200,"bytes":5,"request_id":"1","class":"search","verdict":"served","wait_ms":0.1,"response_ms":12.5,"replica":"127.0.0.1:80"}"#;
        let request = parsed(line).expect("a request");
        // Its time is the one at which the request came.
        assert_eq!(
            (request.at_us, request.class.as_deref(), request.kept_from_origin),
            (AT, Some("search"), false)
        );
        let refused = line.replace(r#","replica":"127.0.0.1:80""#, "");
        assert!(parsed(&refused).expect("a request").kept_from_origin);
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut times = Times::new(TimeZone::UTC);
            let _ = parse(&line, &mut times);
            let _ = super::super::combined::parse(&line, &mut times);
        }
    }
}
