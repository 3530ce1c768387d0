//! Checks the request head on the raw bytes: one pass, line by line, no allocation (RFC 9112 2 to 6).
//!
//! hyper's parser is lenient where RFC 9112 allows it: bare LF, repeated equal Content-Length, a list of
//! transfer codings. An origin behind the gateway may be lenient in another way, and request smuggling uses
//! the difference (RFC 9112 11.2). So the head is checked before hyper sees it, and refused rather than
//! repaired: a proxy in front of us may have read the message differently in any case.
//!
//! The verdict depends on the bytes alone, never on how they were cut into segments: lines are checked in
//! order, each only when its LF is there, and the limits are positions in the byte stream. Rejected: waiting
//! for CRLFCRLF and checking the whole (quadratic for small pieces, and a head of bare LFs would never end).

use super::error::Refusal;
use super::target;

/// The longest registered method has 17 bytes (UPDATEREDIRECTREF).
pub(crate) const MAX_METHOD: usize = 32;
/// Empty lines accepted before a request line: old clients send one after a form.
const MAX_EMPTY_LINES: u8 = 4;
/// ` HTTP/1.1` and the space before the target.
const LINE_EXTRA: usize = MAX_METHOD + 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the whole head, its last CRLF included.
    pub bytes: usize,
    pub fields: usize,
    pub target: usize,
    /// Largest `Content-Length`; 0: no limit.
    pub body: u64,
}

/// Where the message ends (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// With the head.
    None,
    /// After so many bytes, more than zero.
    Fixed(u64),
    /// With the last chunk and the trailer section.
    Chunked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the head, its last CRLF included.
    pub len: usize,
    /// HTTP/1.1; else HTTP/1.0.
    pub http_11: bool,
    pub framing: Framing,
    /// `Expect: 100-continue` was sent, by HTTP/1.1.
    pub expect_continue: bool,
}

#[derive(Clone, Debug, Default)]
pub struct HeadScan {
    /// Start of the line that is not yet complete.
    line: usize,
    /// Bytes already searched for LF.
    seen: usize,
    empty_lines: u8,
    fields: usize,
    hosts: u8,
    lengths: u8,
    codings: u8,
    length: u64,
    http_11: bool,
    expect_continue: bool,
}

impl HeadScan {
    /// Continues the scan. `head` is everything since the first byte of the head, including what was there
    /// last time. `None`: the head is not complete yet.
    pub fn scan(&mut self, head: &[u8], limits: &HeadLimits) -> Result<Option<Facts>, Refusal> {
        while let Some(found) = memchr::memchr(b'\n', &head[self.seen..]) {
            let lf = self.seen + found;
            self.check_size(lf + 1, limits)?;
            let line = match head[self.line..lf] {
                [ref line @ .., b'\r'] => line,
                _ => return Err(Refusal::BareLf),
            };
            let first = self.line == 0;
            (self.line, self.seen) = (lf + 1, lf + 1);
            if first {
                self.request_line(line, limits)?;
            } else if line.is_empty() {
                return self.finish(limits).map(Some);
            } else {
                self.field(line, limits)?;
            }
        }
        self.seen = head.len();
        self.check_size(head.len(), limits)?;
        Ok(None)
    }

    /// The number of bytes that empty lines before the request line take (RFC 9112 2.2); to be dropped.
    pub fn skip_empty_lines(&mut self, bytes: &[u8]) -> usize {
        let mut skipped = 0;
        while self.seen == 0 && self.empty_lines < MAX_EMPTY_LINES && bytes[skipped..].starts_with(b"\r\n") {
            self.empty_lines += 1;
            skipped += 2;
        }
        skipped
    }

    /// `end`: bytes of the head so far. Called for complete and incomplete lines alike, so that the verdict
    /// does not depend on segments.
    fn check_size(&self, end: usize, limits: &HeadLimits) -> Result<(), Refusal> {
        if self.line == 0 && end > limits.target + LINE_EXTRA {
            return Err(Refusal::TargetTooLong);
        }
        if end > limits.bytes { Err(Refusal::HeadTooLarge) } else { Ok(()) }
    }

    fn request_line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
        let method_end = memchr::memchr(b' ', line).ok_or_else(|| broken(line, Refusal::RequestLine))?;
        let (method, rest) = (&line[..method_end], &line[method_end + 1..]);
        if method.is_empty() || !method.iter().all(|&b| is_token(b)) {
            return Err(broken(method, Refusal::Method));
        }
        if method.len() > MAX_METHOD {
            return Err(Refusal::MethodTooLong);
        }
        let target_end = memchr::memchr(b' ', rest).ok_or_else(|| broken(rest, Refusal::RequestLine))?;
        let (target, version) = (&rest[..target_end], &rest[target_end + 1..]);
        self.http_11 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            [b'H', b'T', b'T', b'P', b'/', a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit() => {
                return Err(Refusal::Version);
            }
            _ => return Err(broken(version, Refusal::RequestLine)),
        };
        if target.len() > limits.target {
            return Err(Refusal::TargetTooLong);
        }
        if target.is_empty() || !target::is_target(method, target) {
            return Err(broken(target, Refusal::Target));
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Refusal> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(Refusal::Fold);
        }
        self.fields += 1;
        if self.fields > limits.fields {
            return Err(Refusal::TooManyFields);
        }
        let mut colon = 0;
        while colon < line.len() && is_token(line[colon]) {
            colon += 1;
        }
        if colon == 0 || line.get(colon) != Some(&b':') {
            return Err(broken(line, Refusal::FieldName));
        }
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !is_text(value) {
            return Err(broken(value, Refusal::Control));
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts = self.hosts.saturating_add(1),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expect_continue = value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.lengths = self.lengths.saturating_add(1);
                self.length = decimal(value.trim_ascii()).ok_or(Refusal::ContentLength)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.codings = self.codings.saturating_add(1);
                coding(value.trim_ascii())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, limits: &HeadLimits) -> Result<Facts, Refusal> {
        match (self.lengths, self.codings) {
            (2.., _) => return Err(Refusal::ManyContentLengths),
            (_, 2..) => return Err(Refusal::TransferEncoding),
            (1, 1) => return Err(Refusal::TwoFramings),
            // RFC 9112 6.1: HTTP/1.0 does not know it, so its framing is "faulty".
            (_, 1) if !self.http_11 => return Err(Refusal::TransferEncoding),
            _ => {}
        }
        match self.hosts {
            0 if self.http_11 => return Err(Refusal::NoHost),
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
        let expect_continue = self.expect_continue && self.http_11;
        Ok(Facts { len: self.line, http_11: self.http_11, framing, expect_continue })
    }
}

/// The worst mistake in a part that is invalid anyway: a bare CR or control character, or `otherwise`.
#[cold]
fn broken(part: &[u8], otherwise: Refusal) -> Refusal {
    if memchr::memchr(b'\r', part).is_some() {
        Refusal::BareCr
    } else if is_text(part) {
        otherwise
    } else {
        Refusal::Control
    }
}

/// One decimal number below 2^63: digits only, no sign, no list (RFC 9110 8.6). Half of `u64`, so that
/// neither a sum of lengths in the gateway nor an origin's signed integer can overflow.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
    (n <= i64::MAX as u64).then_some(n)
}

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

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// The set of ASCII letters, digits and `more`, by byte.
pub(crate) const fn alphanumeric_and(more: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut b = 0;
    while b < 256 {
        set[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut i = 0;
    while i < more.len() {
        set[more[i] as usize] = true;
        i += 1;
    }
    set
}

/// A character of a token (RFC 9110 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Characters of a field value (RFC 9110 5.5): no control character but HTAB. Written without a branch per
/// byte, so that the compiler vectorises it.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |bad, &b| bad | (u8::from(b < 0x20) & u8::from(b != b'\t')) | u8::from(b == 0x7f))
        == 0
}

/// Body of the fuzz target `head`: scans `data` whole and in two pieces, cut where its first byte says, and
/// checks that the verdicts agree and that the parser behind us accepts what we accept, with the same length.
///
/// # Panics
/// If they do not: that is what a fuzzer looks for.
pub fn fuzz_head(data: &[u8]) {
    let limits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 0 };
    let whole = HeadScan::default().scan(data, &limits);
    let cut = data.first().map_or(0, |&b| usize::from(b) * 7 % (data.len() + 1));
    let mut scan = HeadScan::default();
    let halves = match scan.scan(&data[..cut], &limits) {
        Ok(None) => scan.scan(data, &limits),
        verdict => verdict,
    };
    assert_eq!(whole, halves, "the verdict depends on segmentation at {cut}");
    if let Ok(Some(facts)) = whole {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(data).expect("httparse refuses what the scan accepts");
        assert_eq!(parsed, httparse::Status::Complete(facts.len));
        assert_eq!(request.version, Some(u8::from(facts.http_11)));
        let target = request.path.expect("complete");
        target.parse::<http::Uri>().expect("http refuses a target that the scan accepts");
    }
}
