//! Keys that may change while the gate runs, one by one and by name: every key of a section marked `[tunable]` in its
//! declaration. The name is the key's path, with the class's or rule's name in it: `queue.max_wait`, `class.search.priority`.
//!
//! One declaration gives type, bounds, documentation, parser and messages, so a value that a tunable refuses is one
//! that the file could not have had, and says so in the same words.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::congestion::Rule;
use super::declare::{Block, Key, Section, Tune};
use super::mistake::{Found, Mistake, unplaced};
use super::read::{Reader, did_you_mean, plain_key};
use super::sections::Class;
use super::tree::{At, Value, parse_value, quoted};
use super::{Settings, check, kinds};

/// Changes in one call: more than there are tunables of a gate with a few classes; keeps messages readable.
pub const MAX_CHANGES: usize = 256;

static DEFAULTS: LazyLock<Settings> = LazyLock::new(Settings::default);

/// A key that may change while the gate runs.
#[derive(Clone, Debug)]
pub struct Tunable {
    /// Its path: `room.max_wait`.
    pub name: String,
    /// The present value as TOML.
    pub value: String,
    /// The value it has if nobody says anything, as TOML.
    pub default: String,
    /// What it takes, in words.
    pub expected: String,
    /// What it takes, as JSON Schema.
    pub schema: serde_json::Value,
    /// What it means.
    pub doc: String,
}

/// A tunable that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its name.
    pub name: String,
    /// The value before, as TOML.
    pub old: String,
    /// The value now, as TOML.
    pub new: String,
}

impl Settings {
    /// Every tunable with its present value, in the order of the file.
    pub fn tunables(&self) -> Vec<Tunable> {
        let (mut now, mut defaults) = (Vec::new(), Vec::new());
        self.section_blocks(&mut now);
        DEFAULTS.section_blocks(&mut defaults);
        for class in &self.class {
            class.blocks(&class_name(class), &mut now);
            Class::default().blocks(&class_name(class), &mut defaults);
        }
        for rule in &self.rule {
            rule.blocks(&rule_name(rule), &mut now);
            Rule::default().blocks(&rule_name(rule), &mut defaults);
        }
        now.iter().zip(&defaults).flat_map(|(now, default)| of_block(now, default)).collect()
    }

    /// One tunable, if there is one of this name.
    pub fn tunable(&self, name: &str) -> Option<Tunable> {
        let path: Vec<&str> = name.split('.').collect();
        let default = match path.as_slice() {
            ["class", _, rest @ ..] => Class::default().find(rest, false),
            ["rule", _, rest @ ..] => Rule::default().find(rest, false),
            _ => DEFAULTS.find(name),
        };
        Some(of_key(name.to_owned(), self.find(name)?, &default?))
    }

    /// The value of one tunable as TOML, if there is one of this name.
    pub fn value_of(&self, name: &str) -> Option<String> {
        Some(self.find(name)?.value)
    }

    fn find(&self, name: &str) -> Option<Key> {
        let path: Vec<&str> = name.split('.').collect();
        match path.as_slice() {
            ["class", class, rest @ ..] => {
                self.class.iter().find(|known| known.name == *class)?.find(rest, false)
            }
            ["rule", rule, rest @ ..] => {
                self.rule.iter().find(|known| known.name == *rule)?.find(rest, false)
            }
            [section, rest @ ..] => self.find_in(section, rest),
            [] => None,
        }
    }

    /// These settings with other values for some tunables (names, and values as in `--set`): all of them, or none.
    ///
    /// ```
    /// use crate::Settings;
    ///
    /// let settings = Settings::parse("origin.replicas = \"app:8000\"", "shop.toml").unwrap();
    /// let (new, applied) = settings.tuned(&[("queue.max_wait", "5s")]).unwrap();
    /// assert_eq!((new.queue.max_wait.as_secs(), applied[0].old.as_str()), (5, "\"30s\""));
    ///
    /// let mistakes = settings.tuned(&[("queue.max_wiat", "5s")]).unwrap_err();
    /// assert!(mistakes[0].to_string().ends_with("Did you mean `queue.max_wait`?"));
    /// ```
    ///
    /// # Errors
    /// All mistakes, as the file's own.
    pub fn tuned<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
    ) -> Result<(Self, Vec<Applied>), Vec<Mistake>> {
        if changes.len() > MAX_CHANGES {
            let (expected, got) =
                (format!("at most {MAX_CHANGES} changes at once"), changes.len().to_string());
            let found = Found { at: None, key: String::new(), expected, got, hint: None, cut: false };
            return Err(unplaced(vec![found]));
        }
        self.tuned_anew(changes)
    }

    /// As [`Settings::tuned`], however many: with all that was tuned before.
    ///
    /// # Errors
    /// All mistakes, as the file's own.
    pub fn tuned_anew<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
    ) -> Result<(Self, Vec<Applied>), Vec<Mistake>> {
        let mut new = self.clone();
        let (mut out, mut applied, mut seen) = (Reader::new(), Vec::new(), HashSet::new());
        for (name, value) in changes {
            let (name, value) = (name.as_ref(), value.as_ref());
            if !seen.insert(name) {
                out.found.push(twice(name));
                continue;
            }
            match new.tune_one(name, value, &mut out) {
                Tune::Done(old, new) => applied.push(Applied { name: name.into(), old, new }),
                Tune::Wrong => {}
                Tune::Fixed(restart) => out.found.push(fixed(name, restart)),
                Tune::Unknown => out.found.push(self.unknown(name)),
            }
        }
        // As with a file: what one key got wrong would only be reported twice.
        if out.found.is_empty() {
            check::check(&new, &mut out);
        }
        if out.found.is_empty() { Ok((new, applied)) } else { Err(unplaced(out.found)) }
    }

    /// What a process that was started with `old` goes by from now on: `self`, but what only a restart changes is `old`'s.
    ///
    /// # Errors
    /// What of `self` does not go together with that.
    pub fn until_restart(mut self, old: &Self) -> Result<Self, Vec<Mistake>> {
        self.role.clone_from(&old.role);
        self.keep_sections(old);
        let mut out = Reader::new();
        check::check(&self, &mut out);
        if out.found.is_empty() { Ok(self) } else { Err(unplaced(out.found)) }
    }

    fn tune_one(&mut self, name: &str, value: &str, out: &mut Reader) -> Tune {
        let path: Vec<&str> = name.split('.').collect();
        let node = parse_value(At::default(), value.trim());
        match path.as_slice() {
            ["class", class, rest @ ..] if !rest.is_empty() => {
                match self.class.iter_mut().find(|known| known.name == *class) {
                    Some(found) => found.tune(rest, false, &node, name, out),
                    None => Tune::Unknown,
                }
            }
            ["rule", rule, rest @ ..] if !rest.is_empty() => {
                match self.rule.iter_mut().find(|known| known.name == *rule) {
                    Some(found) => found.tune(rest, false, &node, name, out),
                    None => Tune::Unknown,
                }
            }
            [section, rest @ ..] => self.tune_section(section, rest, &node, name, out),
            [] => Tune::Unknown,
        }
    }

    fn unknown(&self, name: &str) -> Found {
        let tunables = self.tunables();
        let mut hint = did_you_mean(name, tunables.iter().map(|tunable| tunable.name.as_str()));
        let classes = self.class.iter().map(|class| class.name.as_str()).collect();
        let rules = self.rule.iter().map(|rule| rule.name.as_str()).collect();
        for (list, plural, names) in [("class", "classes", classes), ("rule", "rules", rules)] {
            hint = unknown_item(name, list, plural, names).or(hint);
        }
        let got = format!("the unknown name {}", quoted(name));
        let (expected, key) = ("the name of a tunable".into(), plain_name(name));
        Found { at: None, key, expected, got, hint, cut: false }
    }
}

/// A value as TOML, as the value of JSON that it is.
pub fn json_of(toml: &str) -> serde_json::Value {
    fn convert(value: &Value) -> serde_json::Value {
        match value {
            Value::Text(text) | Value::Other(text) => text.as_str().into(),
            Value::Integer(n) => (*n).into(),
            Value::Float(x) => (*x).into(),
            Value::Boolean(b) => (*b).into(),
            Value::List(items) => items.iter().map(|item| convert(&item.value)).collect(),
            Value::Table(table) => {
                let entries = table.entries.iter();
                entries.map(|entry| (entry.name.clone(), convert(&entry.node.value))).collect()
            }
        }
    }
    convert(&parse_value(At::default(), toml).value)
}

/// A value of JSON as TOML, to be read as any other; `None`: no key takes such a value.
pub fn toml_of(json: &serde_json::Value) -> Option<String> {
    use serde_json::Value as Json;
    match json {
        Json::Bool(b) => Some(b.to_string()),
        Json::Number(n) => Some(n.to_string()),
        Json::String(text) => Some(kinds::toml_string(text)),
        Json::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(toml_of).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        Json::Null | Json::Object(_) => None,
    }
}

fn of_block<'b>(now: &'b Block, default: &'b Block) -> impl Iterator<Item = Tunable> + 'b {
    let tunable = now.keys.iter().zip(&default.keys).filter(|(now, _)| now.tunable);
    tunable.map(|(key, default)| of_key(format!("{}.{}", now.path, key.name), key.clone(), default))
}

fn of_key(name: String, key: Key, default: &Key) -> Tunable {
    Tunable {
        name,
        value: key.value,
        default: default.value.clone(),
        expected: key.expected,
        schema: (key.schema)(),
        doc: key.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
    }
}

fn class_name(class: &Class) -> String {
    format!("class.{}", class.name)
}

fn rule_name(rule: &Rule) -> String {
    format!("rule.{}", rule.name)
}

/// If `name` is of something in a list that is not there: what is.
fn unknown_item(name: &str, list: &str, plural: &str, known: Vec<&str>) -> Option<String> {
    let (item, _) = name.strip_prefix(list)?.strip_prefix('.')?.split_once('.')?;
    if known.contains(&item) {
        return None;
    }
    let names = known.iter().take(10).map(|name| format!("\"{name}\""));
    Some(match known.is_empty() {
        true => format!("There is no [[{list}]]."),
        false => format!("The {plural} are {}.", kinds::either(names)),
    })
}

fn plain_name(name: &str) -> String {
    name.split('.').take(8).map(plain_key).collect::<Vec<_>>().join(".")
}

fn twice(name: &str) -> Found {
    let (expected, got) = ("every name once".into(), "the name again".into());
    Found { at: None, key: plain_name(name), expected, got, hint: None, cut: false }
}

fn fixed(name: &str, restart: bool) -> Found {
    let how = if restart { "a restart" } else { "a changed file and a reload" };
    let (expected, got) = ("a tunable".into(), format!("a key that takes {how}"));
    Found { at: None, key: name.into(), expected, got, hint: None, cut: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn with_origin(text: &str) -> Settings {
        let text = format!("origin.replicas = \"app:80\"\n{text}");
        Settings::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{}", mistakes[0]))
    }

    #[test]
    fn what_only_a_restart_changes_stays_as_it_was() {
        let token = "listen.admin_token = \"0123456789abcdef\"\n";
        let old = with_origin(&format!("{token}listen.admin = \"0.0.0.0:9000\"\n"));
        let new = "listen.workers = 2\nlisten.backlog = 7\nroom.max_wait = \"5m\"\nroom.state_dir = \"/there\"\n\
                   history.enabled = false\nhistory.max_series = 9\nlog.format = \"json\"\nlog.access = \"json\"\n";
        let kept = with_origin(&format!("{token}{new}")).until_restart(&old).unwrap();
        let changes = old.diff(&kept);
        assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["room.max_wait"]);
        // The socket is still open to everybody, whatever the file says of another one.
        let mistakes = with_origin(new).until_restart(&old).unwrap_err();
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].to_string().contains("0.0.0.0:9000 without a token"), "{}", mistakes[0]);
        // Another role is another process.
        let keys = "room.keys = [\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]\n";
        let generator = with_origin(&format!(
            "{keys}role = \"tokengen\"\ntokengen.check_url = \"https://check.example\"\n"
        ));
        let kept = generator.until_restart(&with_origin(keys)).unwrap();
        assert_eq!(kept.role, Role::Gate);
    }
}
