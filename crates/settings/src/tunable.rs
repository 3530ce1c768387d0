//! Tunables: keys that may be changed by name while the gate runs. These are the keys of sections marked
//! `[tunable]` in their declaration. The name is the path of the key, with the name of the class or rule:
//! `queue.max_wait`, `class.search.priority`. Values are read and refused as in the file.

use std::collections::HashSet;

use super::class::DEFAULT;
use super::declare::{Block, Key, Section as _, Tune};
use super::mistake::{Found, Mistake, did_you_mean, either, unplaced};
use super::read::Reader;
use super::tree::{At, Value, parse_value, plain_key, quoted};
use super::{KNOWN, LISTS, Settings, check, congestion, kinds};

/// Most changes in one call: a gate with a few classes has fewer tunables, and messages stay readable.
pub const MAX_CHANGES: usize = 256;

/// A key that may change while the gate runs.
#[derive(Clone, Debug)]
pub struct Tunable {
    /// Its path: `room.max_wait`.
    pub name: String,
    /// As TOML, as is the default.
    pub value: String,
    pub default: String,
    /// What it takes, in words, and as JSON Schema.
    pub expected: String,
    pub schema: serde_json::Value,
    pub doc: String,
}

/// A tunable that has changed; the values are TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub name: String,
    pub old: String,
    pub new: String,
}

impl Settings {
    /// Every tunable with its present value, in the order of the file.
    pub fn tunables(&self) -> Vec<Tunable> {
        let mut blocks = Vec::new();
        self.section_blocks(&mut blocks);
        self.all_item_blocks(&mut blocks);
        let keys = blocks.iter().flat_map(|block| block.keys.iter().map(move |key| (&block.path, key)));
        let names = keys.filter(|(_, key)| key.tunable).map(|(path, key)| format!("{path}.{}", key.name));
        names.filter_map(|name| self.tunable(&name)).collect()
    }

    pub fn tunable(&self, name: &str) -> Option<Tunable> {
        let path: Vec<&str> = name.split('.').collect();
        let (key, default) = (self.find_key(&path)?, Self::find_default(&path)?);
        Some(Tunable {
            name: name.to_owned(),
            value: key.value,
            default: default.value,
            expected: key.expected,
            schema: (key.schema)(),
            doc: key.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
        })
    }

    /// The value of a tunable as TOML.
    pub fn value_of(&self, name: &str) -> Option<String> {
        Some(self.find_key(&name.split('.').collect::<Vec<_>>())?.value)
    }

    /// The tunable at `path`. The default class has its keys although no item of the file may be named so.
    fn find_key(&self, path: &[&str]) -> Option<Key> {
        let of_default = || match path {
            ["class", DEFAULT, rest @ ..] => self.unwritten_default()?.find(rest),
            _ => None,
        };
        self.find(path).or_else(of_default)
    }

    /// The sections of every item of the lists, and of the default class in any case.
    pub(crate) fn all_item_blocks(&self, out: &mut Vec<Block>) {
        if let Some(default) = self.unwritten_default() {
            default.blocks(&format!("class.{DEFAULT}"), out);
        }
        self.item_blocks(out);
    }

    /// These settings with other values for some tunables (names, and values as in `--set`): all of them, or
    /// none.
    ///
    /// ```
    /// use tidegate_settings::Settings;
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
    /// All mistakes, in the words of those of a file.
    pub fn tuned<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
    ) -> Result<(Self, Vec<Applied>), Vec<Mistake>> {
        if changes.len() > MAX_CHANGES {
            let expected = format!("at most {MAX_CHANGES} changes at once");
            return Err(unplaced(vec![Found::new(None, "", expected, changes.len().to_string())]));
        }
        self.tuned_anew(changes)
    }

    /// As [`Settings::tuned`] with any number of changes: for everything that was tuned before a reload.
    ///
    /// # Errors
    /// All mistakes, in the words of those of a file.
    pub fn tuned_anew<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
    ) -> Result<(Self, Vec<Applied>), Vec<Mistake>> {
        let mut new = self.clone();
        let (mut out, mut applied, mut seen) = (Reader::new(&KNOWN), Vec::new(), HashSet::new());
        for (name, value) in changes {
            let (name, value) = (name.as_ref(), value.as_ref());
            if !seen.insert(name) {
                out.found.push(Found::new(None, plain_name(name), "every name once", "the name again"));
                continue;
            }
            let path: Vec<&str> = name.split('.').collect();
            let node = parse_value(At::default(), value.trim());
            if path.starts_with(&["class", DEFAULT]) {
                new.class.extend(new.unwritten_default());
            }
            match new.tune(&path, &node, name, &mut out) {
                Tune::Done { old, new } => applied.push(Applied { name: name.into(), old, new }),
                Tune::Wrong => {}
                Tune::Fixed { needs_restart } => {
                    let how = if needs_restart { "a restart" } else { "a changed file and a reload" };
                    let got = format!("a key that takes {how}");
                    out.found.push(Found::new(None, name, "a tunable", got));
                }
                Tune::Unknown => out.found.push(self.unknown(name)),
            }
        }
        // A refused value would cause further mistakes here.
        if out.found.is_empty() {
            check::check(&new, &mut out);
        }
        let conditions = |of: &Self| -> Vec<_> {
            of.rule.iter().map(|rule| (rule.when.clone(), rule.until.clone(), rule.share)).collect()
        };
        if out.found.is_empty() && conditions(&new) != conditions(self) {
            congestion::check_conditions(&new, &mut out);
        }
        if out.found.is_empty() { Ok((new, applied)) } else { Err(unplaced(out.found)) }
    }

    /// What a process that was started with `old` uses from now on: `self`, except keys that only a restart
    /// changes; those are taken from `old`.
    ///
    /// # Errors
    /// Keys of `self` that contradict those of `old`.
    pub fn until_restart(mut self, old: &Self) -> Result<Self, Vec<Mistake>> {
        self.role.clone_from(&old.role);
        self.keep_sections(old);
        let mut out = Reader::new(&KNOWN);
        check::check(&self, &mut out);
        if out.found.is_empty() { Ok(self) } else { Err(unplaced(out.found)) }
    }

    fn unknown(&self, name: &str) -> Found {
        let tunables = self.tunables();
        let guess = || did_you_mean(name, tunables.iter().map(|tunable| tunable.name.as_str()));
        let hint = self.unknown_item(name).or_else(guess);
        let got = format!("the unknown name {}", quoted(name));
        Found { hint, ..Found::new(None, plain_name(name), "the name of a tunable", got) }
    }

    /// If `name` begins with an item of a list that does not exist: which ones do.
    fn unknown_item(&self, name: &str) -> Option<String> {
        let [list, item, _, ..] = name.split('.').collect::<Vec<_>>()[..] else { return None };
        let known = match list {
            "class" => self.class_names(),
            _ => LISTS.contains(&list).then(|| self.item_names(list))?,
        };
        if known.contains(&item) {
            return None;
        }
        let names = known.iter().take(10).map(|name| format!("\"{name}\""));
        Some(match known.is_empty() {
            true => format!("There is no [[{list}]]."),
            false if list == "class" => format!("The classes are {}.", either(names)),
            false => format!("The {list}s are {}.", either(names)),
        })
    }
}

/// Converts a value from TOML to JSON.
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

/// Converts a value from JSON to TOML; `None`: no key takes such a value.
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

fn plain_name(name: &str) -> String {
    name.split('.').take(8).map(plain_key).collect::<Vec<_>>().join(".")
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
    fn keys_that_need_a_restart_keep_their_values() {
        let token = "listen.admin_token = \"0123456789abcdef\"\n";
        let old = with_origin(&format!("{token}listen.admin = \"0.0.0.0:9000\"\n"));
        let new = "listen.workers = 2\nlisten.backlog = 7\nroom.max_wait = \"5m\"\nroom.state_dir = \"/there\"\n\
                   history.enabled = false\nhistory.max_series = 9\nlog.format = \"json\"\nlog.access = \"json\"\n";
        let kept = with_origin(&format!("{token}{new}")).until_restart(&old).unwrap();
        let changes = old.diff(&kept);
        assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["room.max_wait"]);
        // The old socket stays open to everybody, whatever the new file says of the address.
        let mistakes = with_origin(new).until_restart(&old).unwrap_err();
        assert_eq!(mistakes.len(), 1);
        assert!(mistakes[0].to_string().contains("0.0.0.0:9000 without a token"), "{}", mistakes[0]);
        // A process keeps its role.
        let keys = "room.keys = [\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]\n";
        let generator = with_origin(&format!(
            "{keys}role = \"tokengen\"\ntokengen.check_url = \"https://check.example\"\n"
        ));
        let kept = generator.until_restart(&with_origin(keys)).unwrap();
        assert_eq!(kept.role, Role::Gate);
    }
}
