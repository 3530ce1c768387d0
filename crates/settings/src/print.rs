//! The configuration as text: the whole file, the reference page, and the differences between two.

use std::fmt::Write as _;

use super::declare::{Block, Key};
use super::{DEFAULT, LISTS, Settings};

/// A key whose value differs between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The full key, e.g. `room.max_wait`, `class.search.cost`.
    pub key: String,
    /// The old value as TOML; `None`: its class, rule or other item is new. Secrets read `(secret)`.
    pub old: Option<String>,
    /// The new value as TOML; `None`: its item is gone. Secrets read `(secret)`.
    pub new: Option<String>,
    /// Whether only a restart makes it effective.
    pub restart: bool,
}

/// Longest line of the printed file, in characters.
const MAX_WIDTH: usize = 118;

const HEADER: &str = "\
# Tidegate's configuration, whole: every key with its default.
#
# Every key may be left out. Durations are written \"250ms\", \"30s\", \"1h30m\"; sizes 4096, \"64KiB\", \"1MiB\";
# instead of an array, one value may be written. `tidegate check FILE` explains every mistake; a running gate takes
# over a changed file on SIGHUP, except keys marked (restart).

# What this process does: \"gate\" (everything), or one half of the two-process form: \"tokengen\" gives visitors their
# turns, \"tokencheck\" checks tickets and forwards. (restart)
role = ";

const EXAMPLE_CLASS: &str = "
# [[class]]
# name = \"search\"
# match = { path = \"/search*\", method = [\"GET\"] }
# cost = 3.0
# priority = 2
";

/// Whether a section is printed as a comment: those of other roles, and of lists.
fn is_comment(path: &str) -> bool {
    let first = path.split('.').next().unwrap_or_default();
    matches!(first, "tokengen" | "tokencheck") || LISTS.contains(&first)
}

/// The lines of a documentation comment, without the blank before each.
fn lines<'d>(doc: &'d [&'d str]) -> impl Iterator<Item = &'d str> {
    doc.iter().map(|line| line.trim())
}

impl Settings {
    /// The whole file with every key's documentation and default.
    pub fn print_default() -> String {
        let mut out = String::from(HEADER);
        out.push_str("\"gate\"\n");
        for block in Self::default().all_blocks() {
            let mark = if is_comment(&block.path) { "# " } else { "" };
            out.push('\n');
            lines(block.doc).for_each(|line| comment(&mut out, line));
            let (open, close) = if LISTS.contains(&block.path.as_str()) { ("[[", "]]") } else { ("[", "]") };
            let path = &block.path;
            _ = writeln!(out, "{mark}{open}{path}{close}");
            block.keys.iter().for_each(|key| print_key(&mut out, mark, key));
        }
        out.push_str("\n# An example of a class.");
        out.push_str(EXAMPLE_CLASS);
        out
    }

    /// The reference page, in Markdown (`docs/configuration.md`).
    pub fn reference() -> String {
        let mut out = String::from(
            "# Configuration\n\n\
             One TOML file; every key has a default. `tidegate config default` prints it whole, `tidegate check FILE` explains\n\
             every mistake, `--set section.key=value` overrides a key on the command line. Durations are written `\"250ms\"`,\n\
             `\"30s\"`, `\"1h30m\"`; sizes `4096`, `\"64KiB\"`, `\"1MiB\"`; instead of an array, one value may be written.\n\
             A running gate takes over a changed file on SIGHUP; keys marked *restart* need a new process.\n\
             Those marked *tunable* may also be changed one by one while it runs: see [tuning.md](tuning.md).\n\n\
             This page is generated from the declarations that the program reads the file by.\n\n\
             ## Top level\n\n| key | default | meaning |\n| --- | --- | --- |\n\
             | `role` | `\"gate\"` | What this process does: `\"gate\"` (everything), `\"tokengen\"` (gives visitors their turns) or \
             `\"tokencheck\"` (checks tickets and forwards). *restart* |\n",
        );
        for block in Self::default().all_blocks() {
            let many = LISTS.contains(&block.path.as_str());
            let title = if many { format!("[[{}]]", block.path) } else { format!("[{}]", block.path) };
            let doc: Vec<_> = lines(block.doc).collect();
            _ = write!(
                out,
                "\n## `{title}`\n\n{}\n\n| key | default | meaning |\n| --- | --- | --- |\n",
                doc.join(" ")
            );
            for key in &block.keys {
                let doc: Vec<_> = lines(key.doc).collect();
                let restart = match (key.restart, key.tunable) {
                    (true, _) => " *restart*",
                    (false, true) => " *tunable*",
                    (false, false) => "",
                };
                let text = format!("{} Takes {}.{restart}", doc.join(" "), key.expected).replace('|', "\\|");
                _ = writeln!(out, "| `{}` | `{}` | {text} |", key.name, key.value);
            }
        }
        out
    }

    /// Which keys differ from `self` to `new`, and which of them need a restart.
    pub fn diff(&self, new: &Self) -> Vec<Change> {
        let (before, after) = (flat(self), flat(new));
        let find = |all: &[(String, Key)], path: &str| {
            all.iter().find(|(p, _)| p == path).map(|(_, key)| key.clone())
        };
        let shown = |key: &Key| if key.secret { "(secret)".to_owned() } else { key.value.clone() };
        let mut changes = Vec::new();
        for (path, key) in &before {
            match find(&after, path) {
                Some(now) if now.value == key.value => {}
                now => changes.push(Change {
                    key: path.clone(),
                    old: Some(shown(key)),
                    new: now.as_ref().map(shown),
                    restart: key.restart,
                }),
            }
        }
        for (path, key) in after.iter().filter(|(path, _)| find(&before, path).is_none()) {
            changes.push(Change {
                key: path.clone(),
                old: None,
                new: Some(shown(key)),
                restart: key.restart,
            });
        }
        changes
    }
}

/// A comment, wrapped at blanks.
fn comment(out: &mut String, text: &str) {
    let mut width = MAX_WIDTH;
    for word in text.split(' ') {
        width += word.chars().count() + 1;
        if width > MAX_WIDTH {
            out.push_str(if out.ends_with('\n') { "#" } else { "\n#" });
            width = word.chars().count() + 2;
        }
        out.push(' ');
        out.push_str(word);
    }
    out.push('\n');
}

fn print_key(out: &mut String, mark: &str, key: &Key) {
    let restart = if key.restart { " (restart)" } else { "" };
    let last = key.doc.len().saturating_sub(1);
    for (i, line) in lines(key.doc).enumerate() {
        comment(out, &format!("{line}{}", if i == last { restart } else { "" }));
    }
    comment(out, &format!("Takes {}.", key.expected));
    _ = writeln!(out, "{mark}{} = {}", key.name, key.value);
}

/// Every key with its value. The order of a list counts as a key, because the first match wins.
fn flat(settings: &Settings) -> Vec<(String, Key)> {
    let top = |name: &'static str, value, restart| {
        let schema = || serde_json::json!({});
        let (doc, expected, tunable, secret): (&[_], _, _, _) = (&[], String::new(), false, false);
        (name.to_owned(), Key { name, doc, value, expected, schema, restart, tunable, secret })
    };
    let mut out = vec![top("role", format!("\"{}\"", settings.role.name()), true)];
    let mut blocks: Vec<Block> = Vec::new();
    settings.section_blocks(&mut blocks);
    settings.role_blocks(&mut blocks);
    settings.all_item_blocks(&mut blocks);
    for block in blocks {
        out.extend(block.keys.into_iter().map(|key| (format!("{}.{}", block.path, key.name), key)));
    }
    // The default class is the last one wherever it is written, or not.
    let names = |list| {
        let all = settings.item_names(list).into_iter();
        all.filter(|name| (list, *name) != ("class", DEFAULT)).collect::<Vec<_>>()
    };
    out.extend(["class", "tier", "rule"].map(|list| top(list, format!("{:?}", names(list)), false)));
    out
}
