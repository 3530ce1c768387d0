//! The text of a configuration as a tree in which every name and value knows where it was written.
//!
//! The TOML parser recovers from syntax errors, so one bad line does not hide the mistakes in the others. The
//! tree stands between parser and reader because overrides from the command line (`--set`) are put into it,
//! each with a source of its own: the reader need not know where a value came from. The module is public
//! because the lab reads its scenarios in the same way, and a configuration may be a part of a scenario
//! ([`Settings::read_part`](super::Settings::read_part)).

use toml::de::{DeTable, DeValue};

/// Where something was written: bytes `start..end` of the source of this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct At {
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

fn at(source: usize, span: std::ops::Range<usize>) -> At {
    At { source, start: span.start, end: span.end }
}

/// One text that values come from: the file, or one override.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the file or of the option.
    pub name: String,
    pub text: String,
}

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Node {
    pub at: At,
    pub value: Value,
}

/// A value as TOML knows it.
#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date, or an integer beyond 64 bits. No key takes it; the text is kept for the message.
    Other(String),
    /// An array, of tables too.
    List(Vec<Node>),
    Table(Table),
}

/// Names and values, in the order of the parser.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The entries; every name occurs once.
    pub entries: Vec<Entry>,
}

/// One `name = value`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name, without quotes.
    pub name: String,
    /// Position of the name.
    pub at: At,
    pub node: Node,
}

/// A syntax error.
pub struct SyntaxError {
    pub at: At,
    pub message: String,
}

/// Longest value repeated in a message, in characters.
const MAX_ECHO: usize = 40;

impl Value {
    /// The value in words, for a message.
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

/// `text` in quotes, escaped, and cut after 40 characters.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", clipped(text))
}

/// A name as it would be written in a key: bare, or in quotes.
pub fn plain_key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare && name.len() <= 64 { name.to_owned() } else { quoted(name) }
}

/// `path.name`, or `name` at the top.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
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

    /// Puts `node` at the dotted path and replaces what is there. Elements of `[[class]]` are found by their
    /// name, or by their index from 0.
    ///
    /// # Errors
    /// The part of the path that does not exist and cannot be made.
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
        let name = self.get("name").map(|entry| &entry.node.value);
        matches!(name, Some(Value::Text(name)) if name == wanted)
    }
}

/// Parses a whole document. What could not be understood is in the errors and not in the tree.
pub fn parse(source: usize, text: &str) -> (Table, Vec<SyntaxError>) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let error = |e: toml::de::Error| SyntaxError {
        at: at(source, e.span().unwrap_or(0..0)),
        message: e.message().into(),
    };
    (table(source, root.get_ref()), errors.into_iter().map(error).collect())
}

/// Parses the right side of `--set key=value` as TOML, or takes it as bare text if it is not TOML: `--set
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

/// Gives every inner value the position of the whole override: the parser counts from the value's start.
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
    let entries = from
        .iter()
        .map(|(name, v)| Entry {
            name: name.get_ref().to_string(),
            at: at(source, name.span()),
            node: node(source, v),
        })
        .collect();
    Table { entries }
}

fn node(source: usize, from: &toml::Spanned<DeValue<'_>>) -> Node {
    Node { at: at(source, from.span()), value: value(source, from.get_ref()) }
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
        DeValue::Array(items) => Value::List(items.iter().map(|v| node(source, v)).collect()),
        DeValue::Table(t) => Value::Table(table(source, t)),
    }
}
