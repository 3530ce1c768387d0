//! What the parsers of both directions share: lines, field lines and limits (RFC 9112 2.2, 5).
//!
//! The verdict depends on the bytes alone, never on how they were cut into segments: lines are checked in
//! order, each only when its LF is there, and the limits are positions in the byte stream. Rejected: waiting
//! for CRLFCRLF and checking the whole (quadratic for small pieces, and a head of bare LFs would never end).

use crate::bytes::{find, first_control, is_text, is_token};
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
    /// The line that was found is known to be clean.
    is_clean: bool,
}

impl Lines {
    /// The position of the next LF; `None` if it is not there yet.
    fn find(&mut self, head: &[u8]) -> Option<usize> {
        // Nearly every line comes whole, and its CRLF is its first control character.
        if self.seen == self.start
            && let Some(at) = first_control(&head[self.start..]).map(|at| self.start + at)
            && head[at..].starts_with(b"\r\n")
        {
            self.is_clean = true;
            return Some(at + 1);
        }
        self.is_clean = false;
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
        Ok(Text { at, text, is_clean: self.is_clean })
    }
}

/// A line without its CRLF.
#[derive(Clone, Copy)]
struct Text<'h> {
    /// Its position in the head.
    at: usize,
    text: &'h [u8],
    /// It has no control character.
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
        let colon = find(b':', line).unwrap_or_default();
        let name = &line[..colon];
        let known = Known::of(name);
        if known.is_none() && (name.is_empty() || !name.iter().all(|&b| is_token(b))) {
            return Err(broken(line).unwrap_or(BadLine::FieldName));
        }
        if !is_clean && !is_text(&line[colon..]) {
            return Err(broken(&line[colon..]).unwrap_or(BadLine::Control));
        }
        let (line, value) = Line::new(at - self.start, line, colon, known);
        self.fields.push(line);
        Ok((known, value))
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
