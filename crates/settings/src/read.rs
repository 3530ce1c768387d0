//! From the tree to [`Settings`]: finds every mistake, not only the first.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::congestion::{Detector, Rule};
use super::declare::{Block, Kind, Section, join};
use super::enforcing::{Application, Lighter, Tier};
use super::kinds::Choice;
use super::mistake::{Found, MAX_MISTAKES};
use super::sections::{Class, TokenCheckKeys, TokenGenKeys};
use super::tree::{At, Entry, Node, Table, Value, quoted};
use super::{Role, RoleName, Settings};
use tidegate_core::policies::MAX_TIERS;
use tidegate_core::units::MAX_CLASSES;

/// Collects mistakes while the sections read themselves, and remembers where everything was.
pub(crate) struct Reader {
    pub found: Vec<Found>,
    pub secrets: Vec<At>,
    /// Where keys stand (the name), and what was given to them.
    spots: HashMap<String, (At, At)>,
}

/// `section.key` of every key there is.
static KNOWN: LazyLock<Vec<(String, &'static str)>> = LazyLock::new(|| {
    let mut known = Vec::new();
    for block in all_blocks(&Settings::default()) {
        known.extend(block.keys.iter().map(|key| (block.path.clone(), key.name)));
    }
    known
});

impl Reader {
    pub fn new() -> Self {
        Self { found: Vec::new(), secrets: Vec::new(), spots: HashMap::new() }
    }

    /// Remembers where a key stands.
    pub fn saw(&mut self, key: &str, entry: &Entry) {
        self.spots.insert(key.to_owned(), (entry.at, entry.node.at));
    }

    /// Remembers where an element of a list stands.
    pub fn saw_item(&mut self, key: &str, index: usize, item: &Node) {
        self.spots.insert(format!("{key}#{index}"), (item.at, item.at));
    }

    /// The line of this value is not to be shown.
    pub fn hide(&mut self, at: At) {
        self.secrets.push(at);
    }

    /// A value that its kind refuses.
    pub fn wrong(&mut self, node: &Node, key: &str, expected: String, hint: Option<String>, secret: bool) {
        let got = match &node.value {
            Value::Text(_) if secret => "a text that is not (it is not shown)".into(),
            Value::Table(_) | Value::List(_) | Value::Boolean(_) => node.value.describe(),
            _ if secret => "another type (it is not shown)".into(),
            other => other.describe(),
        };
        self.found.push(Found { at: Some(node.at), key: key.into(), expected, got, hint, cut: false });
    }

    /// A name inside a table of free names that cannot be one.
    pub fn wrong_name(&mut self, entry: &Entry, path: &str, expected: String) {
        let (key, got) = (path.to_owned(), quoted(&entry.name));
        self.found.push(Found { at: Some(entry.at), key, expected, got, hint: None, cut: false });
    }

    /// A mistake found by comparing keys. `key` may be `list#index`; if it was not written, its section is shown.
    pub fn conflict(&mut self, key: &str, expected: &str, got: String, hint: Option<String>) {
        let at = self.place_of(key);
        let key = key.split('#').next().unwrap_or_default().to_owned();
        self.found.push(Found { at, key, expected: expected.into(), got, hint, cut: false });
    }

    /// Whether the key was written.
    pub fn has(&self, key: &str) -> bool {
        self.spots.contains_key(key)
    }

    fn place_of(&self, key: &str) -> Option<At> {
        if let Some((_, value)) = self.spots.get(key) {
            return Some(*value);
        }
        let mut path = key;
        while let Some((section, _)) = path.rsplit_once(['.', '#']) {
            if let Some((name, _)) = self.spots.get(section) {
                return Some(*name);
            }
            path = section;
        }
        // What a role needs is missing because of the role.
        let of_role = matches!(path, "tokengen" | "tokencheck" | "room");
        self.spots.get("role").filter(|_| of_role).map(|(_, value)| *value)
    }

    /// A key that does not exist in `path`.
    pub fn unknown(&mut self, entry: &Entry, path: &str) {
        let section = generic(path);
        let expected =
            if section.is_empty() { "a section or `role`".into() } else { format!("a key of [{section}]") };
        // Nobody reads that many hints, and each one costs a comparison with every key.
        let hint = if self.found.len() < MAX_MISTAKES { self.guess_key(&entry.name, &section) } else { None };
        let key = join(path, &plain_key(&entry.name));
        let got = format!("the unknown name {}", quoted(&entry.name));
        self.found.push(Found { at: Some(entry.at), key, expected, got, hint, cut: true });
    }

    /// First choice: the same name in other sections. Then the most similar in this one, then in any.
    fn guess_key(&self, name: &str, section: &str) -> Option<String> {
        let same: Vec<_> = KNOWN.iter().filter(|(_, key)| *key == name).map(|(path, _)| path).collect();
        if !same.is_empty() {
            let places =
                super::kinds::either(same.iter().map(|path| format!("[{path}]"))).replace(" or ", " and ");
            return Some(format!("`{name}` exists in {places}."));
        }
        let mut here: Vec<&str> = KNOWN.iter().filter(|(p, _)| p == section).map(|(_, key)| *key).collect();
        let inside = |path: &'_ str| match section {
            "" => (!path.contains('.') && !path.is_empty()).then(|| path.to_owned()),
            _ => path.strip_prefix(section)?.strip_prefix('.').map(str::to_owned),
        };
        let sections: Vec<String> = KNOWN.iter().filter_map(|(path, _)| inside(path)).collect();
        here.extend(sections.iter().map(String::as_str));
        did_you_mean(name, here.into_iter()).or_else(|| {
            let (path, key) = KNOWN.iter().min_by_key(|(_, key)| strsim::osa_distance(name, key))?;
            let place = if path.is_empty() { String::from("at the top") } else { format!("in [{path}]") };
            is_close(name, key).then(|| format!("Did you mean `{key}` {place}?"))
        })
    }
}

/// Sections of which there may be any number: `[[class]]`.
pub(crate) const LISTS: [&str; 6] = ["class", "tier", "lighter", "application", "detector", "rule"];

/// The section's name without the name of a class: `class.search.match` is `class.match`.
fn generic(path: &str) -> String {
    let mut parts: Vec<_> = path.split('.').collect();
    if parts.len() > 1 && LISTS.contains(&parts[0]) {
        parts.remove(1);
    }
    parts.join(".")
}

/// Close enough to be a slip: one edit in three characters.
fn is_close(a: &str, b: &str) -> bool {
    // Names are short; a hostile one is not worth the quadratic distance.
    a.len() <= 64 && strsim::osa_distance(a, b) <= (b.chars().count() / 3).max(1)
}

/// "Did you mean `b`?" for the most similar choice, if any is similar.
pub fn did_you_mean<'c>(text: &str, choices: impl Iterator<Item = &'c str>) -> Option<String> {
    let text = text.get(..64).unwrap_or(text);
    let best = choices.min_by_key(|choice| strsim::osa_distance(text, choice))?;
    is_close(text, best).then(|| format!("Did you mean `{best}`?"))
}

/// A name as it would be written in a key: bare, or in quotes.
pub fn plain_key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare && name.len() <= 64 { name.to_owned() } else { quoted(name) }
}

/// Every section with the present values, in the order of the file. Sections of other roles and one example class
/// are included with their defaults: `diff` and the printer choose.
pub(crate) fn all_blocks(settings: &Settings) -> Vec<Block> {
    let mut out = Vec::new();
    settings.section_blocks(&mut out);
    let (token_gen, token_check) = role_keys(&settings.role);
    token_gen.blocks("tokengen", &mut out);
    token_check.blocks("tokencheck", &mut out);
    Class::default().blocks("class", &mut out);
    Tier::default().blocks("tier", &mut out);
    Lighter::default().blocks("lighter", &mut out);
    Application::default().blocks("application", &mut out);
    Detector::default().blocks("detector", &mut out);
    Rule::default().blocks("rule", &mut out);
    out
}

pub(crate) fn role_keys(role: &Role) -> (TokenGenKeys, TokenCheckKeys) {
    let (mut token_gen, mut token_check) = (TokenGenKeys::default(), TokenCheckKeys::default());
    match role {
        Role::Gate => {}
        Role::TokenGen { check_url } => token_gen.check_url.clone_from(check_url),
        Role::TokenCheck { gen_url, feedback_url, feedback_token } => {
            token_check.gen_url.clone_from(gen_url);
            token_check.feedback_url.clone_from(feedback_url);
            token_check.feedback_token.clone_from(feedback_token);
        }
    }
    (token_gen, token_check)
}

/// Reads the whole tree.
pub(crate) fn settings(root: &Table, out: &mut Reader) -> Settings {
    let mut new = Settings::default();
    let (mut token_gen, mut token_check) = (TokenGenKeys::default(), TokenCheckKeys::default());
    let mut role = RoleName::Gate;
    for entry in &root.entries {
        let key = plain_key(&entry.name);
        out.saw(&key, entry);
        match entry.name.as_str() {
            "role" => role = Choice.read(&entry.node, &key, out).unwrap_or_default(),
            "tokengen" => token_gen = Section::read_node(&entry.node, &key, out),
            "tokencheck" => token_check = Section::read_node(&entry.node, &key, out),
            "class" => new.class = list(&entry.node, "class", MAX_CLASSES - 1, out),
            "tier" => new.tier = list(&entry.node, "tier", MAX_TIERS - 1, out),
            "lighter" => new.lighter = list(&entry.node, "lighter", MAX_NAMED, out),
            "application" => new.application = list(&entry.node, "application", MAX_NAMED, out),
            "detector" => new.detector = list(&entry.node, "detector", MAX_DETECTORS, out),
            "rule" => new.rule = list(&entry.node, "rule", MAX_RULES, out),
            _ if new.read_section(entry, out) => {}
            _ => out.unknown(entry, ""),
        }
    }
    new.role = match role {
        RoleName::Gate => Role::Gate,
        RoleName::TokenGen => Role::TokenGen { check_url: token_gen.check_url },
        RoleName::TokenCheck => {
            let TokenCheckKeys { gen_url, feedback_url, feedback_token } = token_check;
            Role::TokenCheck { gen_url, feedback_url, feedback_token }
        }
    };
    new
}

/// Most lighter URLs, and most applications: each is configured by hand.
const MAX_NAMED: usize = 256;
/// Most detectors, and most rules: each is looked at on every tick.
const MAX_DETECTORS: usize = 256;
const MAX_RULES: usize = 1024;

/// Where the `index`th class lives in keys: by its name, or by its number if it has no usable one.
pub(crate) fn class_path(name: &str, index: usize) -> String {
    item_path("class", name, index)
}

/// As [`class_path`], of any list of sections.
pub(crate) fn item_path(list: &str, name: &str, index: usize) -> String {
    if name.is_empty() { format!("{list}.#{}", index + 1) } else { format!("{list}.{}", plain_key(name)) }
}

/// Reads a list of sections that have names.
fn list<T: Section>(node: &Node, what: &str, most: usize, out: &mut Reader) -> Vec<T> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        // `[class]` with single brackets.
        _ => {
            let hint = Some(format!("Write [[{what}]] with double brackets, once per {what}."));
            out.wrong(node, what, "an array of tables".into(), hint, false);
            return Vec::new();
        }
    };
    if items.len() > most {
        let plural = if what == "class" { "classes".into() } else { format!("[[{what}]]") };
        let (expected, got) = (format!("at most {most} {plural}"), items.len().to_string());
        let at = Some(items[most].at);
        out.found.push(Found { at, key: what.into(), expected, got, hint: None, cut: false });
    }
    let mut all = Vec::with_capacity(items.len().min(most));
    for (i, item) in items.iter().take(most).enumerate() {
        let name = match &item.value {
            Value::Table(table) => table.get("name").map(|entry| &entry.node.value),
            _ => None,
        };
        let name = if let Some(Value::Text(name)) = name { name.as_str() } else { "" };
        let bare = plain_key(name) == name;
        let path = item_path(what, if bare { name } else { "" }, i);
        out.saw_item(what, i, item);
        all.push(T::read_node(item, &path, out));
    }
    all
}
