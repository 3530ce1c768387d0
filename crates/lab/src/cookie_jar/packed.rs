//! A list of named values in one block of bytes.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Names a table holds: a number of one byte. A gate has at most 256 classes, a service a few dozen cookies;
/// a target that makes up a new name for every visitor fills the table and no more.
const MAX_NAMES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Cookie,
    /// Path and query of the status document: a name without a value.
    Status,
    /// A value without a name.
    UrlTicket,
    UsedCookie,
    UsedUrlTicket,
}

impl Part {
    const ALL: [Self; 5] =
        [Self::Cookie, Self::Status, Self::UrlTicket, Self::UsedCookie, Self::UsedUrlTicket];

    pub(super) fn is_used(self) -> bool {
        matches!(self, Self::UsedCookie | Self::UsedUrlTicket)
    }
}

/// A tag's bits above the part: the name is text; the value stands for base64url.
const TEXT_NAME: u8 = 1 << 3;
const BASE64_VALUE: u8 = 1 << 4;

/// Names of cookies and paths of status documents, each kept once for all visitors that share this. What it
/// tells by number it tells only to a jar that was packed with it.
#[derive(Clone, Debug, Default)]
pub struct Names {
    cookies: Vec<Box<str>>,
    paths: Vec<Box<str>>,
}

impl Names {
    pub(super) fn intern_cookie<'n>(&mut self, name: &'n str) -> Name<'n> {
        intern(&mut self.cookies, name)
    }

    pub(super) fn intern_path<'n>(&mut self, path: &'n str) -> Name<'n> {
        intern(&mut self.paths, path)
    }

    pub(super) fn cookie<'a>(&'a self, entry: &Entry<'a>) -> Cow<'a, str> {
        look_up(&self.cookies, entry.name)
    }

    pub(super) fn path<'a>(&'a self, entry: &Entry<'a>) -> Cow<'a, str> {
        look_up(&self.paths, entry.name)
    }
}

fn intern<'n>(table: &mut Vec<Box<str>>, name: &'n str) -> Name<'n> {
    match table.iter().position(|known| **known == *name) {
        Some(number) => Name::Number(number as u8),
        None if table.len() < MAX_NAMES => {
            table.push(name.into());
            Name::Number((table.len() - 1) as u8)
        }
        None => Name::Text(name),
    }
}

fn look_up<'a>(table: &'a [Box<str>], name: Name<'a>) -> Cow<'a, str> {
    match name {
        Name::Number(number) => table.get(usize::from(number)).map_or("", |name| name).into(),
        Name::Text(text) => text.into(),
    }
}

/// A name, by its number in [`Names`] or as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Number(u8),
    Text(&'a str),
}

/// A value as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value<'a> {
    Text(&'a str),
    Base64(Cow<'a, [u8]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) part: Part,
    name: Name<'a>,
    value: Value<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn cookie(name: Name<'a>, value: &'a str) -> Self {
        Self { part: Part::Cookie, name, value: Value::shortest(value) }
    }

    pub(super) fn named(part: Part, name: Name<'a>) -> Self {
        Self { part, name, value: Value::Text("") }
    }

    pub(super) fn unnamed(part: Part, value: &'a str) -> Self {
        Self { part, name: Name::Text(""), value: Value::shortest(value) }
    }

    pub(super) fn into_part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    pub(super) fn text(&self) -> Cow<'a, str> {
        match &self.value {
            Value::Text(text) => (*text).into(),
            Value::Base64(bytes) => URL_SAFE_NO_PAD.encode(bytes).into(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let text_name = if matches!(self.name, Name::Text(_)) { TEXT_NAME } else { 0 };
        let base64 = if matches!(self.value, Value::Base64(_)) { BASE64_VALUE } else { 0 };
        out.push(self.part as u8 | text_name | base64);
        match self.name {
            Name::Number(number) => out.push(number),
            Name::Text(text) => write_bytes(text.as_bytes(), out),
        }
        match &self.value {
            Value::Text(text) => write_bytes(text.as_bytes(), out),
            Value::Base64(bytes) => write_bytes(bytes, out),
        }
    }
}

impl<'a> Value<'a> {
    /// As bytes if it is base64url that comes back exactly as it was: decoding refuses padding and spare
    /// bits.
    fn shortest(text: &'a str) -> Self {
        match URL_SAFE_NO_PAD.decode(text) {
            Ok(bytes) if !bytes.is_empty() => Self::Base64(bytes.into()),
            _ => Self::Text(text),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed(Box<[u8]>);

impl Packed {
    pub(super) fn entries(&self) -> Entries<'_> {
        Entries(&self.0)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.len()
    }
}

impl<'a> FromIterator<Entry<'a>> for Packed {
    fn from_iter<I: IntoIterator<Item = Entry<'a>>>(entries: I) -> Self {
        let mut bytes = Vec::new();
        entries.into_iter().for_each(|entry| entry.write(&mut bytes));
        Self(bytes.into())
    }
}

/// Reads the list. What is in it was written by [`Entry::write`]: there is nothing to doubt.
#[derive(Clone)]
pub(super) struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        let part = Part::ALL[usize::from(tag & (TEXT_NAME - 1))];
        let name = if tag & TEXT_NAME == 0 {
            let (&number, rest) = self.0.split_first().expect("a number follows");
            self.0 = rest;
            Name::Number(number)
        } else {
            Name::Text(self.read_text())
        };
        let value = if tag & BASE64_VALUE == 0 {
            Value::Text(self.read_text())
        } else {
            Value::Base64(self.read_bytes().into())
        };
        Some(Entry { part, name, value })
    }
}

impl<'a> Entries<'a> {
    fn read_text(&mut self) -> &'a str {
        std::str::from_utf8(self.read_bytes()).expect("it was written as text")
    }

    fn read_bytes(&mut self) -> &'a [u8] {
        let mut len = 0;
        for (i, &byte) in self.0.iter().enumerate() {
            len |= usize::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                let (bytes, rest) = self.0[i + 1..].split_at(len);
                self.0 = rest;
                return bytes;
            }
        }
        unreachable!("a length was written to its end")
    }
}

/// The length, seven bits a byte, the lowest first, and the bytes.
fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 & 0x7f | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
}
