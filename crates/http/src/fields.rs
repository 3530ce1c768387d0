//! The field lines of a message (RFC 9110 5, RFC 9112 5): one text and a list of spans over it.
//!
//! The text of a parsed head is copied once and never changed. Edits mark lines as gone and put new text at
//! the end; when the lines are written, everything between two edits is one copy. Names stay as they were
//! sent and are compared without case; the position of the first line of every known name is kept.

use std::fmt;

use crate::bytes::{is_text, is_token, trimmed};
use crate::name::{COUNT, Known, Name};
use crate::recycle::{Pooled, Recycled};

/// Lines of new lists.
const LINES: usize = 32;
/// More lines than this are not kept by edits (the parsers refuse far fewer).
const MAX_LINES: usize = u16::MAX as usize - 1;

/// Where a line stands in the text: `name: value CRLF`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) start: u32,
    /// Of the value, white space left out.
    pub(crate) value: u32,
    pub(crate) value_end: u32,
    /// After CRLF.
    pub(crate) end: u32,
    pub(crate) name_len: u32,
    pub(crate) kind: Kind,
}

impl Line {
    /// A line without its CRLF, which begins at `start`.
    pub(crate) fn new(start: usize, line: &[u8], name_len: usize, known: Option<Known>) -> Self {
        let (value, before) = trimmed(&line[name_len + 1..]);
        let value_at = start + name_len + 1 + before;
        Self {
            start: start as u32,
            value: value_at as u32,
            value_end: (value_at + value.len()) as u32,
            end: (start + line.len() + 2) as u32,
            name_len: name_len as u32,
            kind: known.map_or(Kind::Other, Kind::Known),
        }
    }
}

/// What a line is to lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Known(Known),
    Other,
    /// Removed or replaced.
    Gone,
}

impl Pooled for Line {
    const CAPACITY: usize = LINES;
    fn with_list<R>(f: impl FnOnce(&mut Vec<Vec<Line>>) -> R) -> Option<R> {
        use std::cell::RefCell;
        thread_local!(static LISTS: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) });
        LISTS.try_with(|list| list.try_borrow_mut().ok().map(|mut list| f(&mut list))).ok().flatten()
    }
}

/// Field lines in the order of the message. See the [module](self).
#[derive(Clone)]
pub struct Fields {
    text: Recycled<u8>,
    lines: Recycled<Line>,
    /// By known name, one more than the index of its first line; 0: there is none.
    first: [u16; COUNT],
    gone: usize,
}

impl Default for Fields {
    fn default() -> Self {
        Self { text: Recycled::new(), lines: Recycled::new(), first: [0; COUNT], gone: 0 }
    }
}

impl Fields {
    /// Without lines and without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all lines and keeps the memory.
    pub fn clear(&mut self) {
        if !self.lines.is_empty() {
            self.text.grown().clear();
            self.lines.grown().clear();
        }
        (self.first, self.gone) = ([0; COUNT], 0);
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len() - self.gone
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the first line of this name, without white space around it.
    pub fn get(&self, name: Name<'_>) -> Option<&[u8]> {
        self.find(name).map(|at| self.value(&self.lines[at]))
    }

    /// The same, if it is visible ASCII, spaces and tabs.
    pub fn get_str(&self, name: Name<'_>) -> Option<&str> {
        as_visible(self.get(name)?)
    }

    /// The values of all lines of this name.
    pub fn get_all<'a>(&'a self, name: Name<'a>) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let name = name.resolved();
        let from = self.find(name).unwrap_or(self.lines.len());
        self.lines[from..].iter().filter(move |line| self.is(line, name)).map(|line| self.value(line))
    }

    /// Whether there is a line of this name.
    pub fn contains(&self, name: Name<'_>) -> bool {
        self.find(name).is_some()
    }

    /// Whether a list such as `Connection` has this member, in whatever case (RFC 9110 5.6.1).
    pub fn lists(&self, name: Name<'_>, member: &str) -> bool {
        let member = member.as_bytes();
        self.get_all(name).any(|value| crate::bytes::list(value).any(|m| m.eq_ignore_ascii_case(member)))
    }

    /// Names as they were sent, and values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.lines
            .iter()
            .filter(|line| line.kind != Kind::Gone)
            .map(|line| (self.name(line), self.value(line)))
    }

    /// Adds a line at the end. What cannot be a field line is left out: a name that is no token, a value with
    /// a control character. That is a mistake of the caller.
    pub fn append(&mut self, name: Name<'_>, value: &[u8]) {
        let name = name.resolved();
        if let Some(line) = self.write_line(name, value) {
            self.push(line);
        }
    }

    /// Replaces all lines of this name by one, which takes the place of the first.
    pub fn set(&mut self, name: Name<'_>, value: &[u8]) {
        let name = name.resolved();
        let Some(at) = self.find(name) else { return self.append(name, value) };
        let Some(line) = self.write_line(name, value) else { return };
        self.remove_from(at, name);
        self.gone -= 1;
        self.lines[at] = line;
        self.note_first(line.kind, at);
    }

    /// Removes all lines of this name; whether there was one.
    pub fn remove(&mut self, name: Name<'_>) -> bool {
        let name = name.resolved();
        let Some(at) = self.find(name) else { return false };
        self.remove_from(at, name);
        true
    }

    /// Removes the lines for which `keep` says no; it is given names as sent, and values.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        self.first = [0; COUNT];
        for at in 0..self.lines.len() {
            let line = self.lines[at];
            if line.kind == Kind::Gone {
                continue;
            }
            if keep(self.name(&line), self.value(&line)) {
                self.note_first(line.kind, at);
            } else {
                self.lines[at].kind = Kind::Gone;
                self.gone += 1;
            }
        }
    }

    /// Adds all lines of `other` at the end.
    pub fn extend_from(&mut self, other: &Fields) {
        for line in other.lines.iter().filter(|line| line.kind != Kind::Gone) {
            let from = self.text.len() as u32;
            self.text.grown().extend_from_slice(&other.text[line.start as usize..line.end as usize]);
            let moved = |at: u32| at - line.start + from;
            self.push(Line {
                start: from,
                value: moved(line.value),
                value_end: moved(line.value_end),
                end: moved(line.end),
                ..*line
            });
        }
    }

    /// Writes all lines, each with its CRLF.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.write_without(Set::NONE, out);
    }

    /// Writes all lines but those of some known names.
    pub(crate) fn write_without(&self, left_out: Set, out: &mut Vec<u8>) {
        let (mut start, mut end) = (0, 0);
        for line in self.lines.iter() {
            let is_kept = match line.kind {
                Kind::Known(known) => !left_out.has(known),
                Kind::Other => true,
                Kind::Gone => false,
            };
            if !is_kept {
                continue;
            }
            if line.start != end {
                out.extend_from_slice(&self.text[start as usize..end as usize]);
                start = line.start;
            }
            end = line.end;
        }
        out.extend_from_slice(&self.text[start as usize..end as usize]);
    }

    /// Takes the text of the lines that were pushed before: their spans are positions in it.
    pub(crate) fn fill(&mut self, text: &[u8]) {
        let buffer = self.text.grown();
        buffer.clear();
        buffer.extend_from_slice(text);
    }

    /// Adds a line, whose text may come later.
    pub(crate) fn push(&mut self, line: Line) {
        let at = self.lines.len();
        if at >= MAX_LINES {
            return debug_assert!(false, "too many field lines");
        }
        self.note_first(line.kind, at);
        self.lines.grown().push(line);
    }

    fn note_first(&mut self, kind: Kind, at: usize) {
        if let Kind::Known(known) = kind
            && self.first[known as usize] == 0
        {
            self.first[known as usize] = at as u16 + 1;
        }
    }

    /// Puts the text of a line at the end.
    fn write_line(&mut self, name: Name<'_>, value: &[u8]) -> Option<Line> {
        let value = value.trim_ascii();
        let text = name.as_str().as_bytes();
        let is_name =
            matches!(name, Name::Known(_)) || (!text.is_empty() && text.iter().all(|&b| is_token(b)));
        let name_len = u32::try_from(text.len()).ok().filter(|_| is_name && is_text(value));
        debug_assert!(name_len.is_some(), "no field line: {}", text.escape_ascii());
        let name_len = name_len?;
        let buffer = self.text.grown();
        let start = buffer.len() as u32;
        buffer.extend_from_slice(text);
        buffer.extend_from_slice(b": ");
        let from = buffer.len() as u32;
        buffer.extend_from_slice(value);
        let to = buffer.len() as u32;
        buffer.extend_from_slice(b"\r\n");
        let kind = match name {
            Name::Known(known) => Kind::Known(known),
            Name::Other(_) => Kind::Other,
        };
        Some(Line { start, value: from, value_end: to, end: to + 2, name_len, kind })
    }

    /// Marks the line at `at`, the first of its name, and all others of it.
    fn remove_from(&mut self, at: usize, name: Name<'_>) {
        for i in at..self.lines.len() {
            if self.is(&self.lines[i], name) {
                self.lines[i].kind = Kind::Gone;
                self.gone += 1;
            }
        }
        if let Name::Known(known) = name {
            self.first[known as usize] = 0;
        }
    }

    fn find(&self, name: Name<'_>) -> Option<usize> {
        let name = name.resolved();
        match name {
            Name::Known(known) => (self.first[known as usize] as usize).checked_sub(1),
            Name::Other(_) => self.lines.iter().position(|line| self.is(line, name)),
        }
    }

    /// Whether a line has this name, which is resolved.
    fn is(&self, line: &Line, name: Name<'_>) -> bool {
        match name {
            Name::Known(known) => line.kind == Kind::Known(known),
            Name::Other(text) => {
                line.kind == Kind::Other && self.name(line).eq_ignore_ascii_case(text.as_bytes())
            }
        }
    }

    fn name(&self, line: &Line) -> &[u8] {
        let start = line.start as usize;
        &self.text[start..start + line.name_len as usize]
    }

    fn value(&self, line: &Line) -> &[u8] {
        &self.text[line.value as usize..line.value_end as usize]
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        f.debug_list().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

const _: () = assert!(COUNT <= 64, "a set of names is one word");

/// A set of known names.
#[derive(Clone, Copy)]
pub(crate) struct Set(u64);

impl Set {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn with(self, known: Known) -> Self {
        Self(self.0 | 1 << known as u8)
    }

    const fn has(self, known: Known) -> bool {
        self.0 >> (known as u8) & 1 == 1
    }
}

/// A value as text, if it is visible ASCII, spaces and tabs.
pub(crate) fn as_visible(value: &[u8]) -> Option<&str> {
    let is_visible = is_text(value) && value.is_ascii();
    is_visible.then(|| std::str::from_utf8(value).ok()).flatten()
}

#[cfg(test)]
mod tests;
