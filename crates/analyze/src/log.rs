//! Access logs: the common and the combined form of Apache and nginx, and JSON as nginx, Caddy, Traefik and
//! Tidegate itself write it.
//!
//! Lines are looked at where they lie in the buffer. A line in the combined form costs no allocation, and its
//! time is parsed once a second.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use jiff::tz::TimeZone;

use crate::lines::Lines;
use crate::log::time::Times;

mod combined;
mod json;
pub(crate) mod time;

/// A way to write a request on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `host ident user [time] "request" status bytes`, with or without what the combined form adds.
    Combined,
    /// One object per line.
    Json,
}

impl Format {
    /// What an operator calls them.
    pub const NAMES: [(&'static str, Self); 3] =
        [("common", Self::Combined), ("combined", Self::Combined), ("json", Self::Json)];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Combined => "common or combined",
            Self::Json => "JSON",
        })
    }
}

/// A request as a line tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Microseconds since 1970.
    pub at_us: i64,
    /// Without the query.
    pub path: Cow<'a, [u8]>,
    /// The class that the gate gave it; only in Tidegate's own JSON form.
    pub class: Option<Cow<'a, str>>,
    /// The gate answered it itself: it put no load on the origin.
    pub kept_from_origin: bool,
}

/// Why a line could not be parsed.
pub(crate) type Reason = &'static str;

const NO_TIME: Reason = "no time that could be read";
const NO_REQUEST: Reason = "no request that could be read";

/// Lines by which a file's format is found.
const LOOKED_AT: usize = 20;
/// Unparsed lines that are kept, to be shown.
const EXAMPLES: usize = 3;
/// Characters of them.
const EXAMPLE_CHARS: usize = 120;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// All that were looked at, empty ones aside.
    pub lines: u64,
    /// Lines that are a request.
    pub requests: u64,
    /// Lines that are none.
    pub unparsed: u64,
    /// Longer than [`crate::lines::MAX_LINE`].
    pub too_long: u64,
    /// Requests that the gate answered itself.
    pub kept_from_origin: u64,
    /// The first unparsed lines: file, number, reason, text; escaped.
    pub examples: Vec<String>,
    /// The first and the last request, in microseconds since 1970.
    pub span_us: Option<(i64, i64)>,
}

impl Tally {
    fn add(&mut self, request: &Request<'_>) {
        self.requests += 1;
        self.kept_from_origin += u64::from(request.kept_from_origin);
        let at = request.at_us;
        self.span_us = Some(self.span_us.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    fn refuse(&mut self, name: &str, number: u64, why: Reason, line: &[u8]) {
        self.unparsed += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{name}:{number}: {why}: {}", shown(line)));
        }
    }
}

/// Bytes of others as they may be shown on a terminal.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text: String = bytes[..bytes.len().min(EXAMPLE_CHARS)].escape_ascii().to_string();
    if bytes.len() > EXAMPLE_CHARS {
        text.push_str("...");
    }
    text
}

/// Reads a log; `each` is given its requests in the order of the lines. Times without an offset are read as
/// `zone`'s.
///
/// # Errors
/// The file cannot be read, or none of its first lines is in a form that is known.
pub fn read(
    name: &str,
    from: impl Read,
    format: Option<Format>,
    zone: &TimeZone,
    tally: &mut Tally,
    mut each: impl FnMut(&Request<'_>),
) -> Result<Option<Format>, String> {
    let mut lines = Lines::new(from);
    let mut times = Times::new(zone.clone());
    let failed = |e| format!("{name}: {e}");
    let mut number = 0;
    // Lines that have been looked at to find the format.
    let mut head = Vec::new();
    let format = match format {
        Some(format) => format,
        None => {
            while head.len() < LOOKED_AT
                && let Some(line) = lines.next_line().map_err(failed)?
            {
                head.push(line.to_vec());
            }
            match find_format(name, &head, &mut times)? {
                Some(format) => format,
                // Nothing but empty lines.
                None => return Ok(None),
            }
        }
    };
    let mut take = |line: &[u8]| {
        number += 1;
        if line.is_empty() {
            return;
        }
        tally.lines += 1;
        match parse(format, line, &mut times) {
            Ok(request) => {
                tally.add(&request);
                each(&request);
            }
            Err(why) => tally.refuse(name, number, why, line),
        }
    };
    head.iter().for_each(|line| take(line));
    while let Some(line) = lines.next_line().map_err(failed)? {
        take(line);
    }
    tally.too_long += lines.too_long();
    Ok(Some(format))
}

fn parse<'a>(format: Format, line: &'a [u8], times: &mut Times) -> Result<Request<'a>, Reason> {
    match format {
        Format::Combined => combined::parse(line, times),
        Format::Json => json::parse(line, times),
    }
}

/// The format in which most of the lines can be read; `None` if all are empty.
fn find_format(name: &str, head: &[Vec<u8>], times: &mut Times) -> Result<Option<Format>, String> {
    let Some(first) = head.iter().find(|line| !line.is_empty()) else { return Ok(None) };
    let readable =
        |format, times: &mut Times| head.iter().filter(|line| parse(format, line, times).is_ok()).count();
    let (combined, json) = (readable(Format::Combined, times), readable(Format::Json, times));
    match (combined, json) {
        (0, 0) => Err(format!(
            "{name}: unknown format: expected an access log in the common or combined form, or in JSON with a \
             time and a request (path, uri or request), got: {}",
            shown(first)
        )),
        (combined, json) if combined >= json => Ok(Some(Format::Combined)),
        _ => Ok(Some(Format::Json)),
    }
}

/// The path of a request's target: without the query, and without scheme and host where a proxy was asked.
fn path_of(target: &[u8]) -> Option<&[u8]> {
    let target = match target.first()? {
        b'/' => target,
        b'*' if target.len() == 1 => return Some(target),
        _ => {
            let rest = &target[memchr::memmem::find(target, b"://")? + 3..];
            memchr::memchr(b'/', rest).map_or(b"/".as_slice(), |at| &rest[at..])
        }
    };
    Some(&target[..memchr::memchr2(b'?', b'#', target).unwrap_or(target.len())])
}

/// `GET /path HTTP/1.1`: the path.
fn path_of_request(request: &[u8]) -> Result<&[u8], Reason> {
    let at = memchr::memchr(b' ', request).ok_or(NO_REQUEST)?;
    let method = &request[..at];
    if method.is_empty()
        || method == b"CONNECT"
        || !method.iter().all(|b| b.is_ascii_alphabetic() || *b == b'-')
    {
        return Err(NO_REQUEST);
    }
    let target = &request[at + 1..];
    path_of(&target[..memchr::memchr(b' ', target).unwrap_or(target.len())]).ok_or(NO_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &[u8], format: Option<Format>) -> (Result<Option<Format>, String>, Tally, Vec<String>) {
        let (mut tally, mut paths) = (Tally::default(), Vec::new());
        let format = read("a.log", text, format, &TimeZone::UTC, &mut tally, |request| {
            paths.push(String::from_utf8_lossy(&request.path).into_owned());
        });
        (format, tally, paths)
    }

    const COMBINED: &str =
        "127.0.0.1 - - [24/Nov/2026:03:42:13 +0000] \"GET /a?b HTTP/1.1\" 200 5 \"-\" \"x\"\n";
    const JSON: &str = "{\"ts\":1795491733.5,\"request\":{\"method\":\"GET\",\"uri\":\"/c?d\"}}\n";

    #[test]
    fn the_format_is_found_by_itself() {
        let (format, tally, paths) = read_all(COMBINED.repeat(30).as_bytes(), None);
        assert_eq!((format, tally.requests, paths.len()), (Ok(Some(Format::Combined)), 30, 30));
        assert_eq!(paths[29], "/a");
        let (format, tally, paths) = read_all(format!("\nnoise\n{JSON}{JSON}").as_bytes(), None);
        assert_eq!((format, tally.requests, tally.unparsed), (Ok(Some(Format::Json)), 2, 1));
        assert_eq!(paths, ["/c", "/c"]);
        assert_eq!(tally.examples, ["a.log:2: no valid JSON object: noise"]);
        assert_eq!(read_all(b"\n\n", None).0, Ok(None));
    }

    #[test]
    fn an_unknown_format_says_what_was_expected_and_what_came() {
        let error = read_all(b"#Software: \x1b[31mIIS\n", None).0.expect_err("unknown");
        assert!(error.contains("common or combined") && error.contains("JSON"), "{error}");
        assert!(
            error.contains("a.log: ") && error.contains("\\x1b[31mIIS") && !error.contains('\x1b'),
            "{error}"
        );
    }

    #[test]
    fn lines_that_cannot_be_parsed_are_counted_and_the_first_are_shown() {
        let bad = "1.2.3.4 - - [24/Nov/2026:03:42:13 +0000] \"\\x16\\x03\" 400 0\n";
        let text = format!("{COMBINED}{}{COMBINED}", bad.repeat(5));
        let (_, tally, paths) = read_all(text.as_bytes(), Some(Format::Combined));
        assert_eq!((tally.lines, tally.requests, tally.unparsed, paths.len()), (7, 2, 5, 2));
        assert_eq!(tally.examples.len(), 3);
        assert!(tally.examples[2].starts_with("a.log:4: no request that could be read: 1.2.3.4"));
        assert_eq!(tally.span_us, Some((1_795_491_733_000_000, 1_795_491_733_000_000)));
    }

    #[test]
    fn paths_of_targets() {
        let paths = [
            (&b"GET /a/b?c HTTP/1.1"[..], Ok(&b"/a/b"[..])),
            (b"GET /a", Ok(b"/a")),
            (b"GET http://host:80/x/y?z HTTP/1.1", Ok(b"/x/y")),
            (b"GET http://host HTTP/1.1", Ok(b"/")),
            (b"OPTIONS * HTTP/1.1", Ok(b"*")),
            (b"CONNECT host:443 HTTP/1.1", Err(NO_REQUEST)),
            (b"-", Err(NO_REQUEST)),
            (b" /a", Err(NO_REQUEST)),
            (b"GET a", Err(NO_REQUEST)),
            (b"\\x16\\x03 \\x01", Err(NO_REQUEST)),
        ];
        for (request, path) in paths {
            assert_eq!(path_of_request(request), path, "{}", request.escape_ascii());
        }
    }
}
