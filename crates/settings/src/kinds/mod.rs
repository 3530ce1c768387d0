//! The kinds of values: flags, choices, lists, paths. Amounts: [`quantity`]; names and addresses: [`net`].

use std::path::PathBuf;

use serde_json::json;

use crate::declare::{Kind, Leaf};
use crate::mistake::{did_you_mean, either};
use crate::read::Reader;
use crate::tree::{Node, Value};

pub(crate) mod net;
pub(crate) mod quantity;

/// A string as TOML.
pub fn toml_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `true` or `false`.
pub struct Flag;

impl Leaf<bool> for Flag {
    fn parse(&self, value: &Value) -> Result<bool, Option<String>> {
        match value {
            Value::Boolean(b) => Ok(*b),
            Value::Text(t) if t == "true" || t == "false" => Err(Some(format!("Write {t} without quotes."))),
            _ => Err(None),
        }
    }

    fn expected(&self) -> String {
        "true or false".into()
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": "boolean" })
    }
}

/// One of a few numbers.
pub(crate) struct OneOf(pub &'static [u16]);

impl Leaf<u16> for OneOf {
    fn parse(&self, value: &Value) -> Result<u16, Option<String>> {
        let Value::Integer(n) = value else { return Err(None) };
        self.0.iter().copied().find(|choice| i64::from(*choice) == *n).ok_or(None)
    }

    fn expected(&self) -> String {
        either(self.0.iter().map(u16::to_string))
    }

    fn show(&self, value: &u16) -> String {
        value.to_string()
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": "integer", "enum": self.0 })
    }
}

/// An enum whose values have names.
pub trait Named: Sized + Copy + PartialEq + 'static {
    /// Every value with its name.
    const NAMES: &'static [(&'static str, Self)];
}

/// Declares enums whose values have names in the configuration, in the order in which messages list them.
macro_rules! named {
    ($(
        $(#[doc = $doc:literal])+
        $vis:vis enum $Name:ident { $( $(#[$attr:meta])* $Variant:ident = $name:literal, )+ }
    )+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        $vis enum $Name { $( $(#[$attr])* $Variant, )+ }

        impl $crate::kinds::Named for $Name {
            const NAMES: &'static [(&'static str, Self)] = &[$( ($name, Self::$Variant) ),+];
        }
    )+ };
}

/// One of an enum's names.
pub struct Choice;

impl<T: Named> Leaf<T> for Choice {
    fn parse(&self, value: &Value) -> Result<T, Option<String>> {
        let Value::Text(text) = value else { return Err(None) };
        let found = T::NAMES.iter().find(|(name, _)| name == text).map(|(_, v)| *v);
        found.ok_or_else(|| did_you_mean(text, T::NAMES.iter().map(|(name, _)| *name)))
    }

    fn expected(&self) -> String {
        either(T::NAMES.iter().map(|(name, _)| format!("\"{name}\"")))
    }

    fn show(&self, value: &T) -> String {
        let found = T::NAMES.iter().find(|(_, v)| v == value);
        toml_string(found.map_or("", |(name, _)| name))
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": "string", "enum": T::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
    }
}

/// Most elements of a list: each is compared with every request or with every other element.
const MAX_ITEMS: usize = 1024;

/// One value or an array of them.
pub(crate) struct List<L>(pub L);

impl<T, L: Leaf<T>> Kind<Vec<T>> for List<L> {
    fn read(&self, node: &Node, key: &str, out: &mut Reader) -> Option<Vec<T>> {
        let Value::List(items) = &node.value else { return self.0.read(node, key, out).map(|one| vec![one]) };
        if items.len() > MAX_ITEMS {
            out.wrong(node, key, format!("at most {MAX_ITEMS} values"), None);
            return None;
        }
        let mut all = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            out.saw_item(key, i, item);
            all.push(self.0.read(item, key, out));
        }
        all.into_iter().collect()
    }

    fn expected(&self) -> String {
        format!("{}, or an array of such", Leaf::expected(&self.0))
    }

    fn show(&self, value: &Vec<T>) -> String {
        let items: Vec<_> = value.iter().map(|v| Leaf::show(&self.0, v)).collect();
        format!("[{}]", items.join(", "))
    }

    fn schema(&self) -> serde_json::Value {
        json!({ "type": "array", "items": Leaf::schema(&self.0), "maxItems": MAX_ITEMS })
    }

    fn secret(&self) -> bool {
        Leaf::secret(&self.0)
    }
}

/// A path; empty text: none.
#[derive(PartialEq)]
pub(crate) enum PathName {
    Any,
    /// It must name a file that can be read.
    ReadableFile,
}

impl Leaf<Option<PathBuf>> for PathName {
    fn parse(&self, value: &Value) -> Result<Option<PathBuf>, Option<String>> {
        let Value::Text(text) = value else { return Err(None) };
        if text.is_empty() {
            return Ok(None);
        }
        if text.contains('\0') {
            return Err(None);
        }
        let path = PathBuf::from(text);
        if *self == Self::ReadableFile {
            let unreadable = |e: std::io::Error| Some(format!("It cannot be read: {}.", e.kind()));
            // Asked before opening: opening a pipe would wait for its other end.
            if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
                return Err(Some("It is not a regular file.".into()));
            }
            std::fs::File::open(&path).map_err(unreadable)?;
        }
        Ok(Some(path))
    }

    fn expected(&self) -> String {
        match self {
            Self::Any => "a path, or \"\"".into(),
            Self::ReadableFile => "the path of a readable file, or \"\"".into(),
        }
    }

    fn show(&self, value: &Option<PathBuf>) -> String {
        toml_string(&value.as_deref().map(|p| p.to_string_lossy()).unwrap_or_default())
    }
}
