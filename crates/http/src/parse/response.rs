//! Response heads of the origin (RFC 9112 4, 5, 6.3 and 9.3), as strict as those of requests: a response that
//! two parsers may read in two ways would hand one visitor's answer to another.
//!
//! Lenient in one point, which frames nothing: the space after the status may be missing where there is no
//! reason phrase (RFC 9112 4 requires it).

use http::{StatusCode, Version};

use super::request::keeps_alive;
use super::{Framing, Lines, MAX_BYTES, Section, broken};
use crate::bytes::{decimal, is_text};
use crate::error::{BadLine, BadResponse};
use crate::fields::Fields;
use crate::name::{self, Known};
use crate::response::ResponseHead;

/// How much a response head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Bytes of the whole head, its last CRLF included.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
}

impl Default for ResponseLimits {
    /// More than any origin needs; a head is in memory once for every request in flight.
    fn default() -> Self {
        Self { bytes: 128 << 10, fields: 256 }
    }
}

/// What of the request decides how its response is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// By HEAD: the response has no content.
    pub head: bool,
    /// With `Upgrade`: the response may be 101.
    pub upgrade: bool,
}

/// What becomes of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// 1xx: another head follows.
    Interim,
    /// 101: what follows is another protocol.
    Switched,
    /// The response.
    Final,
}

/// What a response head says about its message and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFacts {
    /// Bytes of the head, its last CRLF included.
    pub len: usize,
    /// What becomes of the exchange.
    pub stage: Stage,
    /// Where its content ends.
    pub framing: Framing,
    /// `Content-Length`, if it has a meaning: of a response without content, what GET would have had.
    pub length: Option<u64>,
    /// The connection may be used for another request after the content (RFC 9112 9.3).
    pub keep_alive: bool,
}

/// Parses one response head after another.
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    lines: Lines,
    line: Option<StatusLine>,
    section: Section,
    framing: FramingFields,
}

/// Where its reason phrase stands in the head: from byte 13 of the status line.
#[derive(Clone, Copy, Debug)]
struct StatusLine {
    status: StatusCode,
    version: Version,
    reason_end: usize,
}

/// `HTTP/1.1 200 `
const BEFORE_REASON: usize = 13;

/// What the framing fields say, each before it is known whether it counts.
#[derive(Clone, Copy, Debug, Default)]
struct FramingFields {
    lengths: u8,
    length: Option<u64>,
    codings: u8,
    is_other_coding: bool,
}

impl ResponseParser {
    /// Before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues. `head` is everything since the end of the message before, including what was there last
    /// time. `None`: the head is not complete yet. When it is, the parser is ready for the next one.
    ///
    /// Afterwards the head has no `Transfer-Encoding`, and a `Content-Length` only if it has a meaning.
    ///
    /// # Errors
    /// The head is refused. The parser is of no use afterwards.
    pub fn parse(
        &mut self,
        head: &[u8],
        asked: Asked,
        limits: &ResponseLimits,
    ) -> Result<Option<(ResponseHead, ResponseFacts)>, BadResponse> {
        let max = limits.bytes.min(MAX_BYTES);
        while let Some(lf) = self.lines.find(head) {
            if lf >= max {
                return Err(BadResponse::HeadTooLarge);
            }
            let line = self.lines.take(head, lf)?;
            if line.at == 0 {
                self.line = Some(status_line(line.text)?);
                self.section.start = lf + 1;
            } else if line.text.is_empty() {
                return self.finish(head, line.at, asked).map(Some);
            } else {
                let (known, value) = self.section.add(line, limits.fields)?;
                self.framing.note(known, value);
            }
        }
        if head.len() > max { Err(BadResponse::HeadTooLarge) } else { Ok(None) }
    }

    /// `end`: where the line begins that ends the head.
    fn finish(
        &mut self,
        head: &[u8],
        end: usize,
        asked: Asked,
    ) -> Result<(ResponseHead, ResponseFacts), BadResponse> {
        let line = self.line.ok_or(BadResponse::StatusLine)?;
        let mut response = ResponseHead::new(line.status);
        response.set_version(line.version);
        response.set_reason(head.get(BEFORE_REASON..line.reason_end).unwrap_or_default());
        response.fields = self.section.finish(head, end);
        let fields = &mut response.fields;
        let len = self.lines.start;
        let facts = if line.status.is_informational() {
            fields.remove(name::TRANSFER_ENCODING);
            fields.remove(name::CONTENT_LENGTH);
            let stage = match line.status {
                StatusCode::SWITCHING_PROTOCOLS if !asked.upgrade => return Err(BadResponse::NotAsked),
                StatusCode::SWITCHING_PROTOCOLS if !fields.contains(name::UPGRADE) => {
                    return Err(BadResponse::NoUpgrade);
                }
                StatusCode::SWITCHING_PROTOCOLS => Stage::Switched,
                _ => Stage::Interim,
            };
            let keep_alive = stage == Stage::Interim;
            ResponseFacts { len, stage, framing: Framing::None, length: None, keep_alive }
        } else {
            self.framing.settle(line, len, asked, fields)?
        };
        *self = Self::default();
        Ok((response, facts))
    }
}

impl FramingFields {
    fn note(&mut self, known: Option<Known>, value: &[u8]) {
        match known {
            Some(Known::ContentLength) => {
                self.lengths = self.lengths.saturating_add(1);
                self.length = decimal(value);
            }
            Some(Known::TransferEncoding) => {
                self.codings = self.codings.saturating_add(1);
                self.is_other_coding |= !value.eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
    }

    /// RFC 9112 6.3 for a final response.
    fn settle(
        self,
        line: StatusLine,
        len: usize,
        asked: Asked,
        fields: &mut Fields,
    ) -> Result<ResponseFacts, BadResponse> {
        let http_11 = line.version == Version::HTTP_11;
        let is_chunked = self.codings > 0;
        let has_no_content = line.status == StatusCode::NO_CONTENT;
        // No coding but one "chunked" was offered, and passing on what is still encoded without saying so
        // would corrupt it (RFC 9112 6.1).
        if self.is_other_coding || self.codings > 1 || (is_chunked && !http_11) {
            return Err(BadResponse::TransferCoding);
        }
        let mut length = None;
        if is_chunked {
            fields.remove(name::TRANSFER_ENCODING);
            fields.remove(name::CONTENT_LENGTH);
        } else if has_no_content {
            fields.remove(name::CONTENT_LENGTH);
        } else if self.lengths > 0 {
            length = self.length.filter(|_| self.lengths == 1);
            length.ok_or(BadResponse::ContentLength)?;
        }
        let framing = match length {
            _ if asked.head || has_no_content || line.status == StatusCode::NOT_MODIFIED => Framing::None,
            _ if is_chunked => Framing::Chunked,
            Some(length) => Framing::Fixed(length),
            None => Framing::UntilClose,
        };
        // With both fields the origin may be under attack (RFC 9112 6.3); a 204 that announces content may
        // send it (RFC 9112 6.1, RFC 9110 8.6).
        let is_doubtful = is_chunked && self.lengths > 0
            || has_no_content && (is_chunked || (self.lengths > 0 && self.length != Some(0)));
        let keep_alive = keeps_alive(http_11, fields) && framing != Framing::UntilClose && !is_doubtful;
        Ok(ResponseFacts { len, stage: Stage::Final, framing, length, keep_alive })
    }
}

/// `HTTP/1.1 200 OK`
fn status_line(line: &[u8]) -> Result<StatusLine, BadResponse> {
    let worst = || broken(line).map_or(BadResponse::StatusLine, BadResponse::from);
    let [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ', rest @ ..] = line else {
        return Err(worst());
    };
    let version = match (major, minor) {
        (b'1', b'1') => Version::HTTP_11,
        (b'1', b'0') => Version::HTTP_10,
        (b'0'..=b'9', b'0'..=b'9') => return Err(BadResponse::Version),
        _ => return Err(worst()),
    };
    let (digits, reason) = match rest {
        [a, b, c] => ([*a, *b, *c], &[][..]),
        [a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
        _ => return Err(worst()),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(worst());
    }
    if !is_text(reason) {
        return Err(broken(reason).unwrap_or(BadLine::Control).into());
    }
    let status = StatusCode::from_bytes(&digits).ok().filter(|status| status.as_u16() < 600);
    Ok(StatusLine { status: status.ok_or(BadResponse::Status)?, version, reason_end: line.len() })
}
