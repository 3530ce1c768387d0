//! The field lines of a message (RFC 9110 5, RFC 9112 5): one text and a list of spans over it.
//!
//! The text of a parsed head is copied once and never changed. Edits mark lines as gone and put new text at
//! the end; when the lines are written, everything between two edits is one copy. Names stay as they were
//! sent and are compared without case; the position of the first line of every known name is kept.

use std::cell::RefCell;
use std::fmt;

use crate::bytes::{is_text, is_token, is_visible, trimmed};
use crate::name::{COUNT, Known, Name};
use crate::recycle::{self, Pooled, Recycled, TEXT};

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
    /// A line without its CRLF, which begins at `start`; and its value.
    pub(crate) fn new(start: usize, line: &[u8], name_len: usize, known: Option<Known>) -> (Self, &[u8]) {
        let (value, before) = trimmed(&line[name_len + 1..]);
        let value_at = start + name_len + 1 + before;
        let new = Self {
            start: start as u32,
            value: value_at as u32,
            value_end: (value_at + value.len()) as u32,
            end: (start + line.len() + 2) as u32,
            name_len: name_len as u32,
            kind: known.map_or(Kind::Other, Kind::Known),
        };
        (new, value)
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

/// Field lines in the order of the message. See the [module](self). One word: it is moved often.
#[derive(Clone, Default)]
pub struct Fields(Recycled<List>);

/// The lines, and the text that they are parts of.
struct List {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// The known names that lines have.
    known: Set,
    /// By known name, the index of its first line, where there is one.
    first: [u16; COUNT],
    gone: usize,
    /// Each line begins where the one before it ends, and none is gone.
    is_whole: bool,
}

impl Pooled for List {
    fn new() -> Self {
        let (text, lines) = (Vec::with_capacity(TEXT), Vec::with_capacity(LINES));
        Self { text, lines, known: Set::NONE, first: [0; COUNT], gone: 0, is_whole: true }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
        (self.known, self.gone, self.is_whole) = (Set::NONE, 0, true);
    }

    fn size(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<Line>()
    }

    fn with_list<R>(f: impl FnOnce(&recycle::List<Self>) -> R) -> Option<R> {
        thread_local!(static LISTS: recycle::List<List> = const { RefCell::new(Vec::new()) });
        LISTS.try_with(f).ok()
    }
}

impl Clone for List {
    fn clone(&self) -> Self {
        let mut copy = <Self as Pooled>::new();
        copy.clone_from(self);
        copy
    }

    /// Into the memory that is there.
    fn clone_from(&mut self, from: &Self) {
        self.text.clone_from(&from.text);
        self.lines.clone_from(&from.lines);
        (self.known, self.first, self.gone, self.is_whole) =
            (from.known, from.first, from.gone, from.is_whole);
    }
}

impl Fields {
    /// Without lines and without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all lines and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(list) = self.0.get_mut() {
            list.clear();
        }
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.0.get().map_or(0, |list| list.lines.len() - list.gone)
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the first line of this name, without white space around it.
    #[inline]
    pub fn get(&self, name: Name<'_>) -> Option<&[u8]> {
        let list = self.0.get()?;
        list.find(name.resolved()).map(|at| list.value(&list.lines[at]))
    }

    /// The same, if it is visible ASCII, spaces and tabs.
    pub fn get_str(&self, name: Name<'_>) -> Option<&str> {
        as_visible(self.get(name)?)
    }

    /// The values of all lines of this name.
    pub fn get_all<'a>(&'a self, name: Name<'a>) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let name = name.resolved();
        let found = self.0.get().and_then(|list| list.find(name).map(|from| (list, &list.lines[from..])));
        let (list, lines) = found.unzip();
        let value =
            move |line: &'a Line| list.filter(|list| list.is(line, name)).map(|list| list.value(line));
        lines.unwrap_or_default().iter().filter_map(value)
    }

    /// Whether there is a line of this name.
    #[inline]
    pub fn contains(&self, name: Name<'_>) -> bool {
        self.0.get().is_some_and(|list| list.find(name.resolved()).is_some())
    }

    /// Whether a list such as `Connection` has this member, in whatever case (RFC 9110 5.6.1).
    pub fn lists(&self, name: Name<'_>, member: &str) -> bool {
        let member = member.as_bytes();
        self.contains(name)
            && self
                .get_all(name)
                .any(|value| crate::bytes::list(value).any(|m| m.eq_ignore_ascii_case(member)))
    }

    /// Names as they were sent, and values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.0.get().into_iter().flat_map(|list| {
            let lines = list.lines.iter().filter(|line| line.kind != Kind::Gone);
            lines.map(|line| (list.name(line), list.value(line)))
        })
    }

    /// Adds a line at the end. What cannot be a field line is left out: a name that is no token, a value with
    /// a control character. That is a mistake of the caller.
    pub fn append(&mut self, name: Name<'_>, value: &[u8]) {
        let value = value.trim_ascii();
        self.append_with(name, |out| out.extend_from_slice(value));
    }

    /// As [`Fields::append`], with the value that `write` puts behind what is there.
    pub fn append_with(&mut self, name: Name<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let list = self.0.grown();
        if let Some(line) = list.write_line(name.resolved(), write) {
            list.push(line);
        }
    }

    /// Replaces all lines of this name by one, which takes the place of the first.
    pub fn set(&mut self, name: Name<'_>, value: &[u8]) {
        let (name, value) = (name.resolved(), value.trim_ascii());
        let list = self.0.grown();
        let at = list.find(name);
        let Some(line) = list.write_line(name, |out| out.extend_from_slice(value)) else { return };
        let Some(at) = at else { return list.push(line) };
        list.remove_from(at, name);
        list.gone -= 1;
        list.lines[at] = line;
        list.note_first(line.kind, at);
    }

    /// Removes all lines of this name; whether there was one.
    pub fn remove(&mut self, name: Name<'_>) -> bool {
        let (name, Some(list)) = (name.resolved(), self.0.get_mut()) else { return false };
        let Some(at) = list.find(name) else { return false };
        list.remove_from(at, name);
        true
    }

    /// Removes the lines for which `keep` says no; it is given names as they were sent, what is known of
    /// them, and values.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], Option<Known>, &[u8]) -> bool) {
        let Some(list) = self.0.get_mut() else { return };
        list.known = Set::NONE;
        for at in 0..list.lines.len() {
            let line = list.lines[at];
            let known = match line.kind {
                Kind::Known(known) => Some(known),
                Kind::Other => None,
                Kind::Gone => continue,
            };
            if keep(list.name(&line), known, list.value(&line)) {
                list.note_first(line.kind, at);
            } else {
                list.remove_at(at);
            }
        }
    }

    /// Adds all lines of `other` at the end.
    pub fn extend_from(&mut self, other: &Fields) {
        let Some(other) = other.0.get() else { return };
        let list = self.0.grown();
        for line in other.lines.iter().filter(|line| line.kind != Kind::Gone) {
            let from = list.text.len() as u32;
            list.text.extend_from_slice(&other.text[line.start as usize..line.end as usize]);
            let moved = |at: u32| at - line.start + from;
            list.push(Line {
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
        if let Some(list) = self.0.get() {
            list.write_without(left_out, out);
        }
    }

    /// Takes the text of the lines that were pushed before: their spans are positions in it.
    pub(crate) fn fill(&mut self, text: &[u8]) {
        let buffer = &mut self.0.grown().text;
        buffer.clear();
        buffer.extend_from_slice(text);
    }

    /// Adds a line, whose text may come later.
    pub(crate) fn push(&mut self, line: Line) {
        self.0.grown().push(line);
    }
}

impl List {
    fn push(&mut self, line: Line) {
        let at = self.lines.len();
        if at >= MAX_LINES {
            return debug_assert!(false, "too many field lines");
        }
        self.note_first(line.kind, at);
        self.is_whole &= line.start == self.end();
        self.lines.push(line);
    }

    /// Where the last line ends.
    fn end(&self) -> u32 {
        self.lines.last().map_or(0, |line| line.end)
    }

    fn note_first(&mut self, kind: Kind, at: usize) {
        if let Kind::Known(known) = kind
            && !self.known.has(known)
        {
            self.known = self.known.with(known);
            self.first[known as usize] = at as u16;
        }
    }

    /// Puts the text of a line at the end.
    fn write_line(&mut self, name: Name<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Option<Line> {
        let start = self.text.len();
        let (kind, name_len) = match name {
            Name::Known(known) => {
                self.text.extend_from_slice(known.with_colon().as_bytes());
                (Kind::Known(known), known.as_str().len())
            }
            Name::Other(name) => {
                self.text.extend_from_slice(name.as_bytes());
                self.text.extend_from_slice(b": ");
                (Kind::Other, name.len())
            }
        };
        let from = self.text.len();
        write(&mut self.text);
        let to = self.text.len();
        let is_name = match name {
            Name::Known(_) => true,
            Name::Other(name) => !name.is_empty() && name.bytes().all(is_token),
        };
        if !is_name || !is_text(&self.text[from..to]) {
            debug_assert!(false, "no field line: {}", self.text[start..].escape_ascii());
            self.text.truncate(start);
            return None;
        }
        self.text.extend_from_slice(b"\r\n");
        Some(Line {
            start: start as u32,
            value: from as u32,
            value_end: to as u32,
            end: to as u32 + 2,
            name_len: name_len as u32,
            kind,
        })
    }

    fn remove_at(&mut self, at: usize) {
        self.lines[at].kind = Kind::Gone;
        self.gone += 1;
        self.is_whole = false;
    }

    /// Marks the line at `at`, the first of its name, and all others of it.
    fn remove_from(&mut self, at: usize, name: Name<'_>) {
        for i in at..self.lines.len() {
            if self.is(&self.lines[i], name) {
                self.remove_at(i);
            }
        }
        if let Name::Known(known) = name {
            self.known = self.known.without(known);
        }
    }

    /// Of a resolved name.
    #[inline]
    fn find(&self, name: Name<'_>) -> Option<usize> {
        match name {
            Name::Known(known) => self.known.has(known).then(|| self.first[known as usize] as usize),
            Name::Other(_) => self.find_other(name),
        }
    }

    fn find_other(&self, name: Name<'_>) -> Option<usize> {
        self.lines.iter().position(|line| self.is(line, name))
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

    fn write_without(&self, left_out: Set, out: &mut Vec<u8>) {
        if self.is_whole && !self.known.meets(left_out) {
            return out.extend_from_slice(&self.text[..self.end() as usize]);
        }
        let (mut start, mut end) = (0, 0);
        for line in &self.lines {
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

    const fn without(self, known: Known) -> Self {
        Self(self.0 & !(1 << known as u8))
    }

    const fn has(self, known: Known) -> bool {
        self.0 >> (known as u8) & 1 == 1
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A value as text, if it is visible ASCII, spaces and tabs.
pub(crate) fn as_visible(value: &[u8]) -> Option<&str> {
    if is_visible(value) { std::str::from_utf8(value).ok() } else { None }
}

#[cfg(test)]
mod tests;
