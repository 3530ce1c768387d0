//! The text of a configuration as a tree in which every name and value knows where it was written.
//!
//! The TOML parser recovers from syntax errors, so one bad line does not hide the mistakes in the others. Why a tree
//! of our own between parser and reader: overrides from the command line (`--set`) join the file here, each with its
//! own source, and everything behind this module neither knows nor cares which of the two a value came from. Public, with
//! [`Found`](super::Found) and [`place`](super::place): a scenario of the lab is read with the same means, and a
//! configuration may be a part of one ([`Settings::read_part`](super::Settings::read_part)).

use toml::de::{DeTable, DeValue};

/// Where something was written: bytes `start..end` of source number `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct At {
    /// Number of the source.
    pub source: usize,
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// One text that takes part: the file, or one override.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name, or the option's.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub at: At,
    /// What.
    pub value: Value,
}

/// A value as TOML knows it.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// An integer of 64 bits.
    Integer(i64),
    /// A number with a fraction, an exponent, or none.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A date, or an integer beyond 64 bits: right for no key, kept as written for the message.
    Other(String),
    /// An array, of tables too.
    List(Vec<Node>),
    /// A table, however it was written.
    Table(Table),
}

/// Names and values, in the order of the parser.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Each name once.
    pub entries: Vec<Entry>,
}

/// One `name = value`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name, without quotes.
    pub name: String,
    /// Where the name stands.
    pub at: At,
    /// The value.
    pub node: Node,
}

/// A syntax error: where, and what the parser says.
pub struct SyntaxError {
    /// Where.
    pub at: At,
    /// What the parser says.
    pub message: String,
}

/// Longest value repeated in a message, in characters.
const MAX_ECHO: usize = 40;

impl Value {
    /// How a message says what was found.
    pub fn describe(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Integer(n) => format!("{n} (an integer)"),
            Self::Float(x) => format!("{x} (a number)"),
            Self::Boolean(b) => format!("{b} (a boolean)"),
            Self::Other(text) => format!("{} (a date or an oversized number)", clipped(text)),
            Self::List(items) if items.is_empty() => "an empty array".into(),
            Self::List(_) => "an array".into(),
            Self::Table(_) => "a table".into(),
        }
    }
}

/// `text` in quotes, escaped, not longer than a message can bear.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", clipped(text))
}

fn clipped(text: &str) -> String {
    let short: String = text.chars().take(MAX_ECHO).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    // `escape_debug` also escapes single quotes, which are harmless inside double ones.
    format!("{}{dots}", short.escape_debug().to_string().replace("\\'", "'"))
}

impl Table {
    /// The entry called `name`.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// Puts `node` at the dotted path, over whatever stands there. Elements of `[[class]]` are found by their name, or
    /// by their number from 0.
    ///
    /// # Errors
    /// The part of the path that leads nowhere.
    pub fn put<'p>(&mut self, path: &[&'p str], at: At, node: Node) -> Result<(), &'p str> {
        let Some((&name, rest)) = path.split_first() else { return Ok(()) };
        if rest.is_empty() {
            self.entries.retain(|e| e.name != name);
            self.entries.push(Entry { name: name.into(), at, node });
            return Ok(());
        }
        if self.get(name).is_none() {
            let value = Value::Table(Table::default());
            self.entries.push(Entry { name: name.into(), at, node: Node { at, value } });
        }
        let found = self.entries.iter_mut().find(|e| e.name == name).ok_or(name)?;
        match &mut found.node.value {
            Value::Table(table) => table.put(rest, at, node),
            Value::List(items) => {
                let named =
                    |item: &Node| matches!(&item.value, Value::Table(table) if table.is_named(rest[0]));
                let number = items.iter().position(named).or_else(|| rest[0].parse().ok());
                let item = number.and_then(|number| items.get_mut(number)).ok_or(rest[0])?;
                match &mut item.value {
                    _ if rest.len() == 1 => *item = node,
                    Value::Table(table) => return table.put(&rest[1..], at, node),
                    _ => return Err(rest[0]),
                }
                Ok(())
            }
            _ => Err(name),
        }
    }

    fn is_named(&self, wanted: &str) -> bool {
        matches!(self.get("name"), Some(Entry { node: Node { value: Value::Text(name), .. }, .. }) if name == wanted)
    }
}

/// Parses a whole document. The tree holds what could be understood, the errors the rest.
pub fn parse(source: usize, text: &str) -> (Table, Vec<SyntaxError>) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let errors = errors
        .into_iter()
        .map(|e| {
            let span = e.span().unwrap_or(0..0);
            SyntaxError { at: At { source, start: span.start, end: span.end }, message: e.message().into() }
        })
        .collect();
    (table(source, root.get_ref()), errors)
}

/// Parses the right side of `--set key=value`: TOML if it is, the bare text otherwise, so that `--set
/// room.max_wait=10m` needs no quotes inside quotes.
pub fn parse_value(at: At, text: &str) -> Node {
    let parsed = DeValue::parse(text).ok();
    let value = match parsed.as_ref().map(|v| v.get_ref()) {
        None | Some(DeValue::Datetime(_)) => Value::Text(text.into()),
        Some(v) => {
            let mut found = value(at.source, v);
            place(&mut found, at);
            found
        }
    };
    Node { at, value }
}

/// Inner spans of an override count from its value; the whole value is precise enough.
fn place(value: &mut Value, at: At) {
    match value {
        Value::List(items) => items.iter_mut().for_each(|item| {
            item.at = at;
            place(&mut item.value, at);
        }),
        Value::Table(table) => table.entries.iter_mut().for_each(|entry| {
            entry.at = at;
            entry.node.at = at;
            place(&mut entry.node.value, at);
        }),
        _ => {}
    }
}

fn table(source: usize, from: &DeTable<'_>) -> Table {
    let at = |span: std::ops::Range<usize>| At { source, start: span.start, end: span.end };
    let entries = from
        .iter()
        .map(|(name, v)| Entry {
            name: name.get_ref().to_string(),
            at: at(name.span()),
            node: Node { at: at(v.span()), value: value(source, v.get_ref()) },
        })
        .collect();
    Table { entries }
}

// Recursion is bounded: the parser refuses nesting beyond its own limit (80).
fn value(source: usize, from: &DeValue<'_>) -> Value {
    match from {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map_or_else(|_| Value::Other(n.to_string()), Value::Integer),
        DeValue::Float(x) => x.as_str().parse().map_or_else(|_| Value::Other(x.to_string()), Value::Float),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Datetime(d) => Value::Other(d.to_string()),
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|v| {
                    let span = v.span();
                    let at = At { source, start: span.start, end: span.end };
                    Node { at, value: value(source, v.get_ref()) }
                })
                .collect(),
        ),
        DeValue::Table(t) => Value::Table(table(source, t)),
    }
}
