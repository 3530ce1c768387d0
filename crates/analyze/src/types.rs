//! Types of requests: classes, or paths in which what differs from one item to the next is folded.

use std::collections::HashMap;

use crate::log::Request;

/// Most types. A site has dozens; more have too few requests each to say anything, and a table of them is
/// not read.
const MAX_TYPES: usize = 200;
/// Paths whose type is remembered. When there are more, all are forgotten: memory stays flat.
const REMEMBERED: usize = 1 << 16;
/// Longer paths are not remembered.
const MAX_REMEMBERED_PATH: usize = 256;
/// The type of what comes when there are [`MAX_TYPES`] already.
pub const OTHERS: &str = "(others)";

/// What requests are told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Path,
    /// The class that Tidegate's own log names.
    Class,
}

/// Names of the types, and which request is of which.
#[derive(Default)]
pub struct Types {
    by: By,
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    by_path: HashMap<Box<[u8]>, usize>,
}

impl Types {
    pub fn new(by: By) -> Self {
        Self { by, ..Self::default() }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The type's number; `None`: the line names no class.
    pub fn of(&mut self, request: &Request<'_>) -> Option<usize> {
        if self.by == By::Class {
            let class = request.class.as_deref()?;
            return Some(self.by_name.get(class).copied().unwrap_or_else(|| self.number(class.to_owned())));
        }
        let path = request.path.as_ref();
        if let Some(number) = self.by_path.get(path) {
            return Some(*number);
        }
        let number = self.number(template(&String::from_utf8_lossy(path)));
        if path.len() <= MAX_REMEMBERED_PATH {
            if self.by_path.len() >= REMEMBERED {
                self.by_path.clear();
            }
            self.by_path.insert(path.into(), number);
        }
        Some(number)
    }

    fn number(&mut self, name: String) -> usize {
        if let Some(number) = self.by_name.get(&name) {
            return *number;
        }
        let name = if self.names.len() >= MAX_TYPES { OTHERS.to_owned() } else { name };
        *self.by_name.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }
}

/// The path as a glob of a class: segments that name an item are `*`.
fn template(path: &str) -> String {
    let folded: Vec<&str> =
        path.split('/').map(|segment| if names_item(segment) { "*" } else { segment }).collect();
    folded.join("/")
}

/// A number, a UUID, a hash, or a text with a number of four digits or more in it.
fn names_item(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let is_hex = bytes.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    let is_hash = bytes.len() >= 16 && is_hex && bytes.iter().any(u8::is_ascii_digit);
    let has_number = bytes.windows(4).any(|four| four.iter().all(u8::is_ascii_digit));
    is_number || is_hash || has_number
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn items_are_folded() {
        let paths = [
            ("/", "/"),
            ("/search", "/search"),
            ("/item/7/bids", "/item/*/bids"),
            ("/p/123456-blue-shoes", "/p/*"),
            ("/u/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "/u/*"),
            ("/static/app.9f86d081884c7d65.js", "/static/*"),
            ("/static/9f86d081884c7d659a2f/a.js", "/static/*/a.js"),
            ("/v2/items", "/v2/items"),
            ("/defaced", "/defaced"),
        ];
        for (path, folded) in paths {
            assert_eq!(template(path), folded);
        }
    }

    #[test]
    fn the_number_of_types_and_the_memory_are_bounded() {
        let mut types = Types::new(By::Path);
        let mut last = 0;
        for number in 0..REMEMBERED + 10 {
            let path = format!("/page-{}x{}", number / 900, number % 900);
            let request =
                Request { at_us: 0, path: Cow::Owned(path.into()), class: None, kept_from_origin: false };
            last = types.of(&request).expect("a type");
        }
        assert_eq!((types.names().len(), last), (MAX_TYPES + 1, MAX_TYPES));
        assert_eq!(types.names()[MAX_TYPES], OTHERS);
        assert!(types.by_path.len() <= REMEMBERED);
    }
}
