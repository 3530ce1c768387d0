//! Trailer sections (RFC 9110 6.5, RFC 9112 7.1.2): what may be in one, and how one is read.

use crate::bytes::is_token;
use crate::error::BadBody;
use crate::fields::{Fields, Line};
use crate::name::Known;
use crate::recycle::Recycled;

/// Bytes of a trailer section.
const MAX_BYTES: usize = 8 << 10;
/// Fields in a trailer section.
const MAX_FIELDS: usize = 64;
/// Long enough for every name in [`is_forbidden_trailer`].
const LONGEST: usize = 32;

/// What is done with a field that must not be a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// In a request it may be an attack.
    Refused,
    /// In a response it is a mistake of the origin.
    Dropped,
}

/// Field lines as their bytes arrive. Each byte is checked at once: nothing after a mistake is read.
#[derive(Clone, Default)]
pub(crate) struct Trailers {
    text: Recycled<Vec<u8>>,
    count: usize,
    start: usize,
    at: At,
    name_len: usize,
    fields: Fields,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    /// Before a line.
    #[default]
    Start,
    Name,
    Value,
    Lf,
}

impl Trailers {
    /// Whether the next byte begins a line.
    pub(crate) fn is_at_start(&self) -> bool {
        self.at == At::Start
    }

    /// Takes the next byte.
    ///
    /// # Errors
    /// It cannot be part of a trailer section, or there is too much of it.
    pub(crate) fn push(&mut self, b: u8, forbidden: Forbidden) -> Result<(), BadBody> {
        let text = self.text.grown();
        if text.len() == MAX_BYTES {
            return Err(BadBody::Trailer);
        }
        text.push(b);
        let len = text.len();
        self.at = match (self.at, b) {
            (At::Start, _) if is_token(b) => {
                self.count += 1;
                if self.count > MAX_FIELDS {
                    return Err(BadBody::Trailer);
                }
                self.start = len - 1;
                At::Name
            }
            (At::Name, b':') => {
                self.name_len = len - 1 - self.start;
                if forbidden == Forbidden::Refused && self.is_forbidden() {
                    return Err(BadBody::ForbiddenTrailer);
                }
                At::Value
            }
            (At::Name, _) if is_token(b) => At::Name,
            (At::Value, b'\r') => At::Lf,
            (At::Value, b'\t' | 0x20..=0x7e | 0x80..) => At::Value,
            (At::Lf, b'\n') => {
                self.end_line();
                At::Start
            }
            _ => return Err(BadBody::Trailer),
        };
        Ok(())
    }

    /// The section, if it has a field.
    pub(crate) fn finish(mut self) -> Option<Fields> {
        self.fields.fill(self.text.get().map_or(b"", |text| text));
        Some(self.fields).filter(|fields| !fields.is_empty())
    }

    /// The present line, as far as it has come.
    fn line(&self) -> &[u8] {
        self.text.get().map_or(b"", |text| &text[self.start..])
    }

    fn name(&self) -> &[u8] {
        &self.line()[..self.name_len]
    }

    /// `_` counts as `-`, since many origins put fields into variables.
    fn is_forbidden(&self) -> bool {
        let mut plain = [0; LONGEST];
        let len = self.name_len.min(LONGEST);
        for (to, &b) in plain.iter_mut().zip(self.name()) {
            *to = if b == b'_' { b'-' } else { b.to_ascii_lowercase() };
        }
        is_forbidden_trailer(&plain[..len])
    }

    fn end_line(&mut self) {
        if self.is_forbidden() {
            return;
        }
        let Some(line) = self.line().strip_suffix(b"\r\n") else { return };
        let (line, _) = Line::new(self.start, line, self.name_len, Known::of(self.name()));
        self.fields.push(line);
    }
}

/// Fields that must be known before the content: framing, routing, request modifiers, authentication,
/// response control and content format (RFC 9110 6.5.1), and those that the gateway sets itself. `name` is in
/// lower case, with `-` for `_`.
pub fn is_forbidden_trailer(name: &[u8]) -> bool {
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
