//! Finds the end of a request body in the raw bytes (RFC 9112 7.1).
//!
//! hyper decodes; this state machine only decides what hyper may see. It is stricter than hyper: a chunk size
//! is followed by `;` or CRLF and nothing else, and a bare LF is an error everywhere. No byte after an error
//! is handed on, so that nothing can be taken for a trailer or for the next request.

use super::error::BadBody;
use super::head::{Framing, is_token};

/// Bytes of chunk extensions in one body. Nobody uses them; hyper gives up at 16 KiB.
const MAX_EXTENSIONS: u32 = 4 << 10;
/// Bytes of a trailer section; hyper gives up at 16 KiB.
const MAX_TRAILER: u32 = 8 << 10;
/// Fields in a trailer section; hyper gives up at 100.
const MAX_TRAILER_FIELDS: u32 = 64;
/// Hexadecimal digits of a chunk size: what fits 64 bits, leading zeros counted.
const MAX_SIZE_DIGITS: u8 = 16;
/// Long enough for every name in [`is_forbidden_trailer`].
const NAME: usize = 32;

#[derive(Clone, Debug)]
pub struct BodyScan {
    state: State,
    /// Bytes of content that may still come; `u64::MAX`: no limit.
    allowance: u64,
    extensions: u32,
    trailer: u32,
    fields: u32,
    name: [u8; NAME],
    name_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fixed(u64),
    Size { value: u64, digits: u8 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl BodyScan {
    /// A body framed like this, of at most `max` bytes of content (0: no limit).
    pub fn new(framing: Framing, max: u64) -> Self {
        let state = match framing {
            Framing::None => State::Done,
            Framing::Fixed(n) => State::Fixed(n),
            Framing::Chunked => State::Size { value: 0, digits: 0 },
        };
        let allowance = if max == 0 || matches!(framing, Framing::Fixed(_)) { u64::MAX } else { max };
        Self { state, allowance, extensions: 0, trailer: 0, fields: 0, name: [0; NAME], name_len: 0 }
    }

    /// Whether the last byte of the message has been seen.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Scans `bytes` and returns how many of them belong to the message and are valid. Fewer than all: the
    /// message ends there, or the next byte is invalid, and the error says why.
    pub fn feed(&mut self, bytes: &[u8]) -> (usize, Result<(), BadBody>) {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let State::Fixed(left) | State::Data(left) = self.state {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += n;
                self.state = match (self.state, left - n as u64) {
                    (State::Fixed(_), 0) => State::Done,
                    (State::Fixed(_), left) => State::Fixed(left),
                    (_, 0) => State::DataCr,
                    (_, left) => State::Data(left),
                };
                continue;
            }
            match self.step(bytes[at]) {
                Ok(next) => self.state = next,
                Err(bad) => return (at, Err(bad)),
            }
            at += 1;
        }
        (at, Ok(()))
    }

    fn step(&mut self, b: u8) -> Result<State, BadBody> {
        Ok(match (self.state, b) {
            (State::Size { digits: 1.., value }, b'\r') => self.sized(value)?,
            (State::Size { digits: 1.., value }, b';') => State::Extension { size: value },
            (State::Size { digits, value }, _) => {
                let digit = char::from(b).to_digit(16).ok_or(BadBody::ChunkSize)?;
                if digits == MAX_SIZE_DIGITS {
                    return Err(BadBody::ChunkSize);
                }
                State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::Extension { size }, b'\r') => self.sized(size)?,
            (State::Extension { size }, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSIONS {
                    return Err(BadBody::ChunkExtension);
                }
                State::Extension { size }
            }
            (State::Extension { .. }, _) => return Err(BadBody::ChunkExtension),
            (State::SizeLf { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeLf { size }, b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { value: 0, digits: 0 },
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::Done,
            (State::SizeLf { .. } | State::DataCr | State::DataLf | State::EndLf, _) => {
                return Err(BadBody::ChunkEnd);
            }
            _ => self.trailer(b)?,
        })
    }

    fn sized(&mut self, size: u64) -> Result<State, BadBody> {
        self.allowance = self.allowance.checked_sub(size).ok_or(BadBody::TooLarge)?;
        Ok(State::SizeLf { size })
    }

    fn trailer(&mut self, b: u8) -> Result<State, BadBody> {
        self.trailer += 1;
        if self.trailer > MAX_TRAILER {
            return Err(BadBody::Trailer);
        }
        Ok(match (self.state, b) {
            (State::TrailerStart, _) if is_token(b) => {
                self.fields += 1;
                if self.fields > MAX_TRAILER_FIELDS {
                    return Err(BadBody::Trailer);
                }
                self.name_len = 0;
                self.push_name(b);
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                if is_forbidden_trailer(&self.name[..self.name_len.min(NAME)]) {
                    return Err(BadBody::ForbiddenTrailer);
                }
                State::TrailerValue
            }
            (State::TrailerName, _) if is_token(b) => {
                self.push_name(b);
                State::TrailerName
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, b'\t' | 0x20..=0x7e | 0x80..) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            _ => return Err(BadBody::Trailer),
        })
    }

    /// `_` counts as `-`, since many origins put fields into variables.
    fn push_name(&mut self, b: u8) {
        if let Some(slot) = self.name.get_mut(self.name_len) {
            *slot = if b == b'_' { b'-' } else { b.to_ascii_lowercase() };
        }
        self.name_len += 1;
    }
}

/// Fields that must be known before the content: framing, routing, request modifiers, authentication,
/// response control and content format (RFC 9110 6.5.1), and those that the gateway sets itself.
pub(crate) fn is_forbidden_trailer(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 5] = [b"content-", b"if-", b"proxy-", b"x-forwarded-", b"access-control-"];
    #[rustfmt::skip]
    const NAMES: [&[u8]; 31] = [
        b"age", b"authorization", b"cache-control", b"connection", b"cookie", b"date", b"expect", b"expires",
        b"forwarded", b"host", b"keep-alive", b"location", b"max-forwards", b"origin", b"pragma", b"range",
        b"referer", b"retry-after", b"set-cookie", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"vary", b"via", b"warning", b"www-authenticate", b"x-real-ip", b"x-request-id",
        b"x-http-method-override", b"user-agent",
    ];
    PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name)
}
