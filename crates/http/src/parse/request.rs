//! Request heads (RFC 9112 2.2, 3, 5, 6 and 9.3): one pass over the bytes, line by line.
//!
//! Other parsers are lenient where RFC 9112 allows it: bare LF, repeated equal Content-Length, a list of
//! transfer codings. An origin behind the gateway may be lenient in another way, and request smuggling uses
//! the difference (RFC 9112 11.2). So such a head is refused rather than repaired: a proxy in front of us may
//! have read the message differently in any case.

use http::{Method, Version};

use super::{Framing, Lines, MAX_BYTES, Section, Text, broken};
use crate::bytes::{decimal, find, is_token};
use crate::error::Refusal;
use crate::fields::Fields;
use crate::name::{self, Known};
use crate::request::RequestHead;
use crate::target;

/// The longest registered method has 17 bytes (UPDATEREDIRECTREF).
const MAX_METHOD: usize = 32;
/// Empty lines accepted before a request line: old clients send one after a form.
const MAX_EMPTY_LINES: u8 = 4;
/// ` HTTP/1.1` and the space before the target.
const LINE_EXTRA: usize = MAX_METHOD + 12;

/// How much a request head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the whole head, its last CRLF included.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
    /// Largest `Content-Length`; 0: no limit.
    pub body: u64,
}

/// What a request head says about its message and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the head, empty lines before it and its last CRLF included.
    pub len: usize,
    /// HTTP/1.1; else HTTP/1.0.
    pub http_11: bool,
    /// Where its content ends.
    pub framing: Framing,
    /// `Expect: 100-continue` was sent, by HTTP/1.1.
    pub expect_continue: bool,
    /// The connection may be used for another request (RFC 9112 9.3).
    pub keep_alive: bool,
    /// `Upgrade` was sent and named by `Connection`, by HTTP/1.1 (RFC 9110 7.8).
    pub upgrade: bool,
}

/// Parses one request head after another.
#[derive(Clone, Debug, Default)]
pub struct RequestParser {
    /// Bytes of the empty lines before the head.
    skipped: usize,
    empty_lines: u8,
    lines: Lines,
    line: Option<(Method, Version)>,
    target: RequestTarget,
    section: Section,
    hosts: u8,
    lengths: u8,
    codings: u8,
    length: u64,
    expect_continue: bool,
}

/// Where the target stands in the head.
#[derive(Clone, Copy, Debug, Default)]
struct RequestTarget {
    start: usize,
    end: usize,
}

impl RequestParser {
    /// Before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues. `bytes` is everything since the end of the message before, including what was there last
    /// time. `None`: the head is not complete yet. When it is, the parser is ready for the next one.
    ///
    /// # Errors
    /// The head is refused. The parser is of no use afterwards.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<(RequestHead, Facts)>, Refusal> {
        self.skip_empty_lines(bytes);
        let head = &bytes[self.skipped..];
        // Half a CRLF: the next byte decides whether it is an empty line.
        if head == b"\r" {
            return Ok(None);
        }
        while let Some(lf) = self.lines.find(head) {
            self.check_size(lf + 1, limits)?;
            let line = self.lines.take(head, lf)?;
            if line.at == 0 {
                self.request_line(line.text, limits)?;
                self.section.start = lf + 1;
            } else if line.text.is_empty() {
                return self.finish(head, line.at, limits).map(Some);
            } else {
                self.field(line, limits)?;
            }
        }
        self.check_size(head.len(), limits)?;
        Ok(None)
    }

    /// Whether a head has begun, in the bytes that [`RequestParser::parse`] was given last: if not, the
    /// connection is idle.
    pub fn has_begun(&self, bytes: &[u8]) -> bool {
        bytes.len() > self.skipped
    }

    /// The number of bytes at the front that the caller may now drop: empty lines (RFC 9112 2.2).
    pub fn take_skipped(&mut self) -> usize {
        std::mem::take(&mut self.skipped)
    }

    fn skip_empty_lines(&mut self, bytes: &[u8]) {
        while self.lines.seen == 0
            && self.empty_lines < MAX_EMPTY_LINES
            && bytes[self.skipped..].starts_with(b"\r\n")
        {
            self.empty_lines += 1;
            self.skipped += 2;
        }
    }

    /// `end`: bytes of the head so far. Called for complete and incomplete lines alike, so that the verdict
    /// does not depend on segments.
    fn check_size(&self, end: usize, limits: &HeadLimits) -> Result<(), Refusal> {
        if self.lines.start == 0 && end > limits.target + LINE_EXTRA {
            return Err(Refusal::TargetTooLong);
        }
        if end > limits.bytes.min(MAX_BYTES) { Err(Refusal::HeadTooLarge) } else { Ok(()) }
    }

    fn request_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
        let worst = |part, otherwise| broken(part).map_or(otherwise, Refusal::from);
        let method_end = find(b' ', line).ok_or_else(|| worst(line, Refusal::RequestLine))?;
        let (method, rest) = (&line[..method_end], &line[method_end + 1..]);
        if method.is_empty() || !method.iter().all(|&b| is_token(b)) {
            return Err(worst(method, Refusal::Method));
        }
        if method.len() > MAX_METHOD {
            return Err(Refusal::MethodTooLong);
        }
        let target_end = find(b' ', rest).ok_or_else(|| worst(rest, Refusal::RequestLine))?;
        let (target, version) = (&rest[..target_end], &rest[target_end + 1..]);
        let version = match version {
            b"HTTP/1.1" => Version::HTTP_11,
            b"HTTP/1.0" => Version::HTTP_10,
            [b'H', b'T', b'T', b'P', b'/', a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit() => {
                return Err(Refusal::Version);
            }
            _ => return Err(worst(version, Refusal::RequestLine)),
        };
        if target.len() > limits.target {
            return Err(Refusal::TargetTooLong);
        }
        if target.is_empty() || !target::is_target(method, target) {
            return Err(worst(target, Refusal::Target));
        }
        self.target = RequestTarget { start: method_end + 1, end: method_end + 1 + target_end };
        let method = Method::from_bytes(method).map_err(|_| Refusal::Method)?;
        self.line = Some((method, version));
        Ok(())
    }

    fn field(&mut self, line: Text<'_>, limits: &HeadLimits) -> Result<(), Refusal> {
        let (known, value) = self.section.add(line, limits.fields)?;
        match known {
            Some(Known::Host) => self.hosts = self.hosts.saturating_add(1),
            Some(Known::Expect) => self.expect_continue = value.eq_ignore_ascii_case(b"100-continue"),
            Some(Known::ContentLength) => {
                self.lengths = self.lengths.saturating_add(1);
                self.length = decimal(value).ok_or(Refusal::ContentLength)?;
            }
            Some(Known::TransferEncoding) => {
                self.codings = self.codings.saturating_add(1);
                coding(value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// `end`: where the line begins that ends the head.
    fn finish(
        &mut self,
        head: &[u8],
        end: usize,
        limits: &HeadLimits,
    ) -> Result<(RequestHead, Facts), Refusal> {
        let (method, version) = self.line.take().ok_or(Refusal::RequestLine)?;
        let http_11 = version == Version::HTTP_11;
        match (self.lengths, self.codings) {
            (2.., _) => return Err(Refusal::ManyContentLengths),
            (_, 2..) => return Err(Refusal::TransferEncoding),
            (1, 1) => return Err(Refusal::TwoFramings),
            // RFC 9112 6.1: HTTP/1.0 does not know it, so its framing is "faulty".
            (_, 1) if !http_11 => return Err(Refusal::TransferEncoding),
            _ => {}
        }
        match self.hosts {
            0 if http_11 => return Err(Refusal::NoHost),
            2.. => return Err(Refusal::ManyHosts),
            _ => {}
        }
        if limits.body > 0 && self.length > limits.body {
            return Err(Refusal::BodyTooLarge);
        }
        let framing = match (self.codings, self.length) {
            (1, _) => Framing::Chunked,
            (_, 0) => Framing::None,
            (_, n) => Framing::Fixed(n),
        };
        let fields = self.section.finish(head, end);
        let facts = Facts {
            len: self.skipped + self.lines.start,
            http_11,
            framing,
            expect_continue: self.expect_continue && http_11,
            keep_alive: keeps_alive(http_11, &fields),
            upgrade: http_11 && fields.contains(name::UPGRADE) && fields.lists(name::CONNECTION, "upgrade"),
        };
        let target = &head[self.target.start..self.target.end];
        let head = RequestHead::parsed(method, target, version, fields);
        *self = Self::default();
        Ok((head, facts))
    }
}

/// Whether a sender means to use the connection again (RFC 9112 9.3).
pub(super) fn keeps_alive(http_11: bool, fields: &Fields) -> bool {
    if !fields.contains(name::CONNECTION) {
        return http_11;
    }
    !fields.lists(name::CONNECTION, "close") && (http_11 || fields.lists(name::CONNECTION, "keep-alive"))
}

/// Checks a `Transfer-Encoding` line (RFC 9112 6.1).
fn coding(value: &[u8]) -> Result<(), Refusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|&b| b == b',').map(<[u8]>::trim_ascii);
    let last_is_chunked = codings.next().is_some_and(|c| c.eq_ignore_ascii_case(b"chunked"));
    let others_are_tokens = codings
        .all(|c| !c.is_empty() && !c.eq_ignore_ascii_case(b"chunked") && c.iter().all(|&b| is_token(b)));
    Err(if last_is_chunked && others_are_tokens {
        Refusal::TransferCoding
    } else {
        Refusal::TransferEncoding
    })
}
