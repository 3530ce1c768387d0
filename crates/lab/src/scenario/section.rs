//! One section of a scenario while it is read.
//!
//! A reader takes the keys of a section one by one and names each one's type and default. Every other name in
//! the section is a mistake. The list of all keys, which the documentation is compared with, comes from the
//! same calls.

use std::collections::BTreeMap;

use tidegate_settings::kind::Leaf;
use tidegate_settings::tree::{At, Entry, Node, Table, Value, quoted};
use tidegate_settings::{Found, did_you_mean, plain_key};

/// Mistakes beyond which no suggestions are looked for: no more are shown.
const MAX_HINTS: usize = 100;

/// A key's accepted values and its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As TOML; `None`: none, or it depends on other keys.
    pub default: Option<String>,
    pub expected: String,
}

/// Collects mistakes, and the keys that were asked for.
pub(crate) struct Reader {
    pub found: Vec<Found>,
    pub secrets: Vec<At>,
    /// `section.key`, without the numbers and names of list elements.
    pub keys: BTreeMap<String, Key>,
    /// Says in which sections a key of this name exists.
    elsewhere: fn(&str) -> Option<String>,
}

/// A table that is being read. What borrows from the text lives as long as `'t`.
pub(crate) struct Section<'t, 'r> {
    table: &'t Table,
    at: At,
    /// As messages name it: `visitor.buyer`.
    pub path: String,
    /// As the documentation names it: `visitor`.
    kind: String,
    /// Whether there may be many of it: `[[visitor]]`.
    listed: bool,
    asked: Vec<&'static str>,
    pub out: &'r mut Reader,
}

pub(crate) struct Item<'t> {
    pub table: &'t Table,
    pub at: At,
    /// As messages name it: by its name, or by its number from 0, as an override would.
    pub path: String,
    kind: String,
}

impl Reader {
    pub fn new(elsewhere: fn(&str) -> Option<String>) -> Self {
        Self { found: Vec::new(), secrets: Vec::new(), keys: BTreeMap::new(), elsewhere }
    }

    pub fn root<'t>(&mut self, table: &'t Table) -> Section<'t, '_> {
        let at = At::default();
        Section {
            table,
            at,
            path: String::new(),
            kind: String::new(),
            listed: false,
            asked: Vec::new(),
            out: self,
        }
    }

    pub fn mistake(&mut self, at: At, key: &str, expected: impl Into<String>, got: impl Into<String>) {
        self.hinted(at, key, expected, got, None);
    }

    pub fn hinted(
        &mut self,
        at: At,
        key: &str,
        expected: impl Into<String>,
        got: impl Into<String>,
        hint: Option<String>,
    ) {
        let (expected, got) = (expected.into(), got.into());
        self.found.push(Found { at: Some(at), key: key.into(), expected, got, hint, cut: false });
    }

    /// A value that its kind refuses.
    pub fn wrong(&mut self, node: &Node, key: &str, expected: impl Into<String>, hint: Option<String>) {
        self.hinted(node.at, key, expected, node.value.describe(), hint);
    }

    pub fn value<T>(&mut self, node: &Node, key: &str, kind: &impl Leaf<T>) -> Option<T> {
        kind.parse(&node.value).map_err(|hint| self.wrong(node, key, kind.expected(), hint)).ok()
    }

    /// A section below the root, for an element of a list.
    pub fn item<'t>(&mut self, item: &Item<'t>) -> Section<'t, '_> {
        let (path, kind) = (item.path.clone(), item.kind.clone());
        Section { table: item.table, at: item.at, path, kind, listed: true, asked: Vec::new(), out: self }
    }
}

impl<'t> Section<'t, '_> {
    pub fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }

    pub fn table(&self) -> &'t Table {
        self.table
    }

    pub fn at(&self) -> At {
        self.at
    }

    /// The text written for a key, unchecked.
    pub fn entry(&mut self, name: &'static str, key: Key) -> Option<&'t Entry> {
        self.out.keys.entry(join(&self.kind, name)).or_insert(key);
        self.asked.push(name);
        self.table.get(name)
    }

    /// A key that may be missing.
    pub fn maybe<T>(&mut self, name: &'static str, kind: &impl Leaf<T>) -> Option<T> {
        let key = Key { default: None, expected: kind.expected() };
        let entry = self.entry(name, key)?;
        self.out.value(&entry.node, &join(&self.path, name), kind)
    }

    pub fn take<T>(&mut self, name: &'static str, kind: &impl Leaf<T>, default: T) -> T {
        let key = Key { default: Some(kind.show(&default)), expected: kind.expected() };
        let Some(entry) = self.entry(name, key) else { return default };
        self.out.value(&entry.node, &join(&self.path, name), kind).unwrap_or(default)
    }

    /// A key that must be there. `stand_in` goes on for it when it is not.
    pub fn need<T>(&mut self, name: &'static str, kind: &impl Leaf<T>, stand_in: T) -> T {
        if self.table.get(name).is_none() {
            let (at, key) = (self.at, self.key(name));
            self.out.mistake(at, &key, kind.expected(), "nothing");
        }
        self.maybe(name, kind).unwrap_or(stand_in)
    }

    pub fn inside(&mut self, name: &'static str) -> Option<Section<'t, '_>> {
        self.asked.push(name);
        let entry = self.table.get(name)?;
        let (path, kind) = (self.key(name), join(&self.kind, name));
        let Value::Table(table) = &entry.node.value else {
            self.out.wrong(&entry.node, &path, format!("a table of keys, like [{path}]"), None);
            return None;
        };
        Some(Section { table, at: entry.at, path, kind, listed: false, asked: Vec::new(), out: self.out })
    }

    /// The elements of `[[name]]`, at most `max` of them.
    pub fn items(&mut self, name: &'static str, max: usize) -> Vec<Item<'t>> {
        self.asked.push(name);
        let Some(entry) = self.table.get(name) else { return Vec::new() };
        let (path, kind) = (self.key(name), join(&self.kind, name));
        let Value::List(nodes) = &entry.node.value else {
            let hint = format!("Write [[{path}]] with double brackets, once for each.");
            self.out.wrong(&entry.node, &path, "an array of tables", Some(hint));
            return Vec::new();
        };
        if let Some(node) = nodes.get(max) {
            self.out.mistake(node.at, &path, format!("at most {max}"), nodes.len().to_string());
        }
        let mut items = Vec::new();
        for (i, node) in nodes.iter().take(max).enumerate() {
            let path = format!("{path}.{}", label(node, i));
            match &node.value {
                Value::Table(table) => items.push(Item { table, at: node.at, path, kind: kind.clone() }),
                _ => self.out.wrong(node, &path, "a table", None),
            }
        }
        items
    }

    /// A mistake that a key of this section is the reason for; the section's own position if it was not
    /// written.
    pub fn conflict(&mut self, name: &str, expected: impl Into<String>, got: impl Into<String>) {
        let at = self.table.get(name).map_or(self.at, |entry| entry.node.at);
        let key = self.key(name);
        self.out.mistake(at, &key, expected, got);
    }

    pub fn has(&self, name: &str) -> bool {
        self.table.get(name).is_some()
    }

    /// Everything has been asked for: other names are mistakes.
    pub fn finish(&mut self) {
        for entry in self.table.entries.iter().filter(|entry| !self.asked.contains(&entry.name.as_str())) {
            let expected = match self.kind.as_str() {
                "" => "a section or a key of a scenario".to_owned(),
                kind if self.listed => format!("a key of [[{kind}]]"),
                kind => format!("a key of [{kind}]"),
            };
            let hint = match self.out.found.len() {
                0..MAX_HINTS => did_you_mean(&entry.name, self.asked.iter().copied())
                    .or_else(|| (self.out.elsewhere)(&entry.name)),
                _ => None,
            };
            let key = join(&self.path, &plain_key(&entry.name));
            let got = format!("the unknown name {}", quoted(&entry.name));
            self.out.found.push(Found { at: Some(entry.at), key, expected, got, hint, cut: true });
        }
    }
}

/// An element's name in a key: its own, if it has a plain one, else its number.
fn label(node: &Node, number: usize) -> String {
    let name = match &node.value {
        Value::Table(table) => table.get("name").map(|entry| &entry.node.value),
        _ => None,
    };
    match name {
        Some(Value::Text(name)) if plain_key(name) == *name => name.clone(),
        _ => number.to_string(),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
