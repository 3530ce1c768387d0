//! What the parsers of both directions share: lines, field lines and limits (RFC 9112 2.2, 5).
//!
//! The verdict depends on the bytes alone, never on how they were cut into segments: lines are checked in
//! order, each only when its LF is there, and the limits are positions in the byte stream. Rejected: waiting
//! for CRLFCRLF and checking the whole (quadratic for small pieces, and a head of bare LFs would never end).

use crate::bytes::{is_clean, is_text, is_token, trimmed};
use crate::error::BadLine;
use crate::fields::{Fields, Line};
use crate::name::Known;

pub(crate) mod request;
pub(crate) mod response;

/// Where the content of a message ends (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// With the head: there is none.
    None,
    /// After so many bytes. A request's are more than zero.
    Fixed(u64),
    /// With the last chunk and the trailer section.
    Chunked,
    /// With the connection. Responses only.
    UntilClose,
}

/// Positions fit 32 bits whatever limits are configured.
const MAX_BYTES: usize = 1 << 30;
/// More fields are refused whatever limits are configured.
const MAX_FIELDS: usize = 1 << 14;

/// The lines of a head, found as its bytes arrive.
#[derive(Clone, Debug, Default)]
struct Lines {
    /// Start of the line that is not yet complete.
    start: usize,
    /// Bytes already searched for LF.
    seen: usize,
    /// Lines that end before this are known to be clean.
    clean: usize,
}

impl Lines {
    /// Looks at all lines that have arrived since the last time, before they are taken one by one.
    fn look(&mut self, head: &[u8]) {
        if let Some(last) = memchr::memrchr(b'\n', &head[self.seen..]) {
            let end = self.seen + last + 1;
            if is_clean(&head[self.start..end]) {
                self.clean = end;
            }
        }
    }

    /// The position of the next LF; `None` if it is not there yet.
    fn find(&mut self, head: &[u8]) -> Option<usize> {
        match memchr::memchr(b'\n', &head[self.seen..]) {
            Some(at) => Some(self.seen + at),
            None => {
                self.seen = head.len();
                None
            }
        }
    }

    /// The line that the LF at `lf` ends.
    fn take<'h>(&mut self, head: &'h [u8], lf: usize) -> Result<Text<'h>, BadLine> {
        let at = self.start;
        let [text @ .., b'\r'] = &head[at..lf] else { return Err(BadLine::BareLf) };
        (self.start, self.seen) = (lf + 1, lf + 1);
        Ok(Text { at, text, is_clean: lf < self.clean })
    }
}

/// A line without its CRLF.
#[derive(Clone, Copy)]
struct Text<'h> {
    /// Its position in the head.
    at: usize,
    text: &'h [u8],
    /// It has no bare CR and no control character but HTAB.
    is_clean: bool,
}

/// The field lines of a head, as they are found. Positions are counted from the first of them.
#[derive(Clone, Debug, Default)]
struct Section {
    fields: Fields,
    /// Where it begins in the head; known when the first line is.
    start: usize,
    count: usize,
}

impl Section {
    /// Checks a line and notes it; returns what it is and its value.
    fn add<'h>(
        &mut self,
        Text { at, text: line, is_clean }: Text<'h>,
        max: usize,
    ) -> Result<(Option<Known>, &'h [u8]), BadLine> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(BadLine::Fold);
        }
        self.count += 1;
        if self.count > max.min(MAX_FIELDS) {
            return Err(BadLine::TooManyFields);
        }
        let colon = line.iter().position(|&b| !is_token(b)).unwrap_or(line.len());
        let (name, [b':', value @ ..]) = line.split_at(colon) else {
            return Err(broken(line).unwrap_or(BadLine::FieldName));
        };
        if name.is_empty() {
            return Err(broken(line).unwrap_or(BadLine::FieldName));
        }
        if !is_clean && !is_text(value) {
            return Err(broken(value).unwrap_or(BadLine::Control));
        }
        let known = Known::of(name);
        self.fields.push(Line::new(at - self.start, line, colon, known));
        Ok((known, trimmed(value).0))
    }

    /// The lines, with the text of the head that ends at `end`.
    fn finish(&mut self, head: &[u8], end: usize) -> Fields {
        let mut fields = std::mem::take(&mut self.fields);
        fields.fill(&head[self.start..end]);
        fields
    }
}

/// The worst mistake in a part that is invalid anyway: a bare CR or a control character, if there is one.
#[cold]
fn broken(part: &[u8]) -> Option<BadLine> {
    if memchr::memchr(b'\r', part).is_some() {
        Some(BadLine::BareCr)
    } else if is_text(part) {
        None
    } else {
        Some(BadLine::Control)
    }
}

#[cfg(test)]
mod tests;
