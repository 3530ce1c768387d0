//! The reader: collects every mistake while the sections read themselves, not only the first, and remembers
//! where every key was written. It knows no section by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::mistake::{Found, MAX_MISTAKES, did_you_mean, either, is_close};
use super::tree::{At, Entry, Node, Value, join, plain_key, quoted};

/// The keys there are, for the hints about unknown ones.
pub(crate) struct KnownKeys {
    pub keys: Vec<KnownKey>,
    /// Sections of which there may be any number: `[[class]]`.
    pub lists: &'static [&'static str],
}

pub(crate) struct KnownKey {
    /// Path of the section; of a list without the item's name.
    pub section: String,
    pub name: &'static str,
}

/// Where a key was written.
#[derive(Clone, Copy)]
struct Spot {
    name: At,
    value: At,
}

pub(crate) struct Reader {
    pub found: Vec<Found>,
    /// Values that no message may show.
    pub secrets: Vec<At>,
    /// Seconds since the Unix epoch, if it matters what is valid now.
    pub now: Option<u64>,
    spots: HashMap<String, Spot>,
    known: &'static LazyLock<KnownKeys>,
}

impl Reader {
    pub fn new(known: &'static LazyLock<KnownKeys>) -> Self {
        Self { found: Vec::new(), secrets: Vec::new(), now: None, spots: HashMap::new(), known }
    }

    /// Remembers where a key was written.
    pub fn saw(&mut self, key: &str, entry: &Entry) {
        self.spots.insert(key.to_owned(), Spot { name: entry.at, value: entry.node.at });
    }

    pub fn saw_item(&mut self, key: &str, index: usize, item: &Node) {
        self.spots.insert(format!("{key}#{index}"), Spot { name: item.at, value: item.at });
    }

    pub fn has(&self, key: &str) -> bool {
        self.spots.contains_key(key)
    }

    /// The key of an element of a list; the list's own, if one value was written instead of a list.
    pub fn element(&self, key: &str, index: usize) -> String {
        let item = format!("{key}#{index}");
        if self.has(&item) { item } else { key.to_owned() }
    }

    /// The line of this value is not to be shown.
    pub fn hide(&mut self, at: At) {
        self.secrets.push(at);
    }

    /// Reports a value that its kind does not accept.
    pub fn wrong(&mut self, node: &Node, key: &str, expected: impl Into<String>, hint: Option<String>) {
        self.found.push(Found { hint, ..Found::new(Some(node.at), key, expected, node.value.describe()) });
    }

    /// As [`Reader::wrong`], without showing the value.
    pub fn wrong_secret(
        &mut self,
        node: &Node,
        key: &str,
        expected: impl Into<String>,
        hint: Option<String>,
    ) {
        let got = match &node.value {
            Value::Text(_) => "a text that is not (it is not shown)".into(),
            Value::Table(_) | Value::List(_) | Value::Boolean(_) => node.value.describe(),
            _ => "another type (it is not shown)".into(),
        };
        self.found.push(Found { hint, ..Found::new(Some(node.at), key, expected, got) });
    }

    /// Reports a name that cannot be one, inside a table of free names.
    pub fn wrong_name(&mut self, entry: &Entry, path: &str, expected: String) {
        self.found.push(Found::new(Some(entry.at), path, expected, quoted(&entry.name)));
    }

    /// Reports a mistake found by comparing keys. `key` may be `list#index`. If the key was not written, the
    /// message points to its section.
    pub fn conflict(
        &mut self,
        key: &str,
        expected: impl Into<String>,
        got: impl Into<String>,
        hint: Option<String>,
    ) {
        let at = self.position(key);
        let is_index = |end: &str| end.bytes().all(|b| b.is_ascii_digit());
        let key = key.rsplit_once('#').filter(|(_, end)| is_index(end)).map_or(key, |(list, _)| list);
        self.found.push(Found { hint, ..Found::new(at, key, expected, got) });
    }

    /// Reports a key that must be written because of the value of another, `cause`. If not even its section
    /// was written, the message points to the cause.
    pub fn missing(&mut self, key: &str, cause: &str, expected: String, hint: Option<String>) {
        let at = self.position(key).or_else(|| self.spots.get(cause).map(|spot| spot.value));
        self.found.push(Found { hint, ..Found::new(at, key, expected, "nothing") });
    }

    /// Reports a key that was written but has no effect without `other`.
    pub fn only_with(&mut self, section: &str, key: &str, other: &str) {
        let path = join(section, key);
        if self.has(&path) {
            self.conflict(&path, format!("no `{key}` without {other}"), "one", None);
        }
    }

    /// Reports items of a list without a name, or with the name of an earlier one.
    pub fn check_names(&mut self, list: &str, names: &[&str]) {
        let mut first = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            let key = join(&item_path(list, name, i), "name");
            if name.is_empty() {
                // A name that was refused has a mistake of its own.
                if !self.has(&key) {
                    let (expected, got) = (format!("a `name` for every [[{list}]]"), "one without a name");
                    self.conflict(&format!("{list}#{i}"), expected, got, None);
                }
            } else if let Some(earlier) = first.insert(*name, i + 1) {
                let got = format!("\"{name}\" again (it is also the name of [[{list}]] number {earlier})");
                self.conflict(&key, "names that differ", got, None);
            }
        }
    }

    /// Reports a value that should be the name of an item of a list and is not.
    pub fn check_reference(&mut self, key: &str, wanted: &str, list: &str, names: &[&str]) {
        if names.contains(&wanted) {
            return;
        }
        let all = names.iter().take(10).map(|name| format!("\"{name}\""));
        let expected = match names.is_empty() {
            true => format!("the name of a [[{list}]] (there is none)"),
            false => format!("the name of a [[{list}]]: {}", either(all)),
        };
        let hint = self.wants_hints().then(|| did_you_mean(wanted, names.iter().copied())).flatten();
        self.conflict(key, expected, quoted(wanted), hint);
    }

    /// Reports a key that does not exist in `path`.
    pub fn unknown(&mut self, entry: &Entry, path: &str) {
        let section = self.section_of(path);
        let expected =
            if section.is_empty() { "a section or `role`".into() } else { format!("a key of [{section}]") };
        let hint = self.wants_hints().then(|| self.guess_key(&entry.name, &section)).flatten();
        let got = format!("the unknown name {}", quoted(&entry.name));
        let found = Found::new(Some(entry.at), join(path, &plain_key(&entry.name)), expected, got);
        self.found.push(Found { hint, cut: true, ..found });
    }

    /// A hint costs a comparison with every name. Mistakes beyond the maximum are not reported and need none.
    fn wants_hints(&self) -> bool {
        self.found.len() < MAX_MISTAKES
    }

    fn position(&self, key: &str) -> Option<At> {
        if let Some(spot) = self.spots.get(key) {
            return Some(spot.value);
        }
        let mut path = key;
        while let Some((section, _)) = path.rsplit_once(['.', '#']) {
            if let Some(spot) = self.spots.get(section) {
                return Some(spot.name);
            }
            path = section;
        }
        None
    }

    /// The path without the name of an item: `class.search.match` is in section `class.match`.
    fn section_of(&self, path: &str) -> String {
        let mut parts: Vec<_> = path.split('.').collect();
        if parts.len() > 1 && self.known.lists.contains(&parts[0]) {
            parts.remove(1);
        }
        parts.join(".")
    }

    /// First choice: the same name in other sections. Then the most similar in this one, then in any.
    fn guess_key(&self, name: &str, section: &str) -> Option<String> {
        if (section, name) == ("tokencheck", "feedback_token") {
            let now =
                "It is now `link_token`, the same as tokengen's `link_token`: a secret of the link's own,";
            return Some(format!("{now} not the admin token."));
        }
        let keys = &self.known.keys;
        let same: Vec<_> =
            keys.iter().filter(|key| key.name == name).map(|key| format!("[{}]", key.section)).collect();
        if !same.is_empty() {
            let sections = either(same.into_iter()).replace(" or ", " and ");
            return Some(format!("`{name}` exists in {sections}."));
        }
        let inside = |path: &str| match section {
            "" => (!path.contains('.') && !path.is_empty()).then(|| path.to_owned()),
            _ => path.strip_prefix(section)?.strip_prefix('.').map(str::to_owned),
        };
        let subsections: Vec<String> = keys.iter().filter_map(|key| inside(&key.section)).collect();
        let here = keys.iter().filter(|key| key.section == section).map(|key| key.name);
        did_you_mean(name, here.chain(subsections.iter().map(String::as_str))).or_else(|| {
            let key = keys.iter().min_by_key(|key| strsim::osa_distance(name, key.name))?;
            let place = match key.section.as_str() {
                "" => "at the top".to_owned(),
                section => format!("in [{section}]"),
            };
            is_close(name, key.name).then(|| format!("Did you mean `{}` {place}?", key.name))
        })
    }
}

/// The path of an item of a list in keys: by its name, or by its number if it has no usable one.
pub(crate) fn item_path(list: &str, name: &str, index: usize) -> String {
    if name.is_empty() { format!("{list}.#{}", index + 1) } else { format!("{list}.{}", plain_key(name)) }
}
