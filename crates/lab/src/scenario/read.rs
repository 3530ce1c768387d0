//! From a file to a [`Scenario`]: finds every mistake, not only the first.
//!
//! ```text
//! file, overrides ─► tree (the gateway's) ─► sections ─► Scenario
//!                                └──────── mistakes ───► Mistakes
//! ```
//!
//! The same means as for a gate's configuration, so that both are explained in the same words.

use std::fmt;
use std::path::Path;

use tidegate_gateway::settings::tree::{self, At, Source};
use tidegate_gateway::settings::{Found, Mistake, place};

use super::Scenario;

/// Largest scenario file: far above any real one, and little enough to be read at once.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Everything that is wrong with a scenario, in the order of the text. `Display` shows each as `tidegate check` does:
/// `FILE:LINE:COLUMN: key: expected ...; got ...`, and the line below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

pub(super) fn load(path: &Path, overrides: &[(String, String)]) -> Result<Scenario, Mistakes> {
    let name = path.display().to_string();
    let trouble = |expected: String, got: String| {
        let source = Source { name: name.clone(), text: String::new() };
        let found = Found { at: None, key: String::new(), expected, got, hint: None, cut: false };
        Mistakes(place(vec![found], &[source], &[]))
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| trouble("a readable scenario file".into(), error.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(trouble(format!("a file of at most {MAX_FILE_BYTES} bytes"), "a larger one".into()));
    }
    parse(&text, &name, path.parent().unwrap_or(Path::new("")), overrides)
}

pub(super) fn parse(
    text: &str,
    name: &str,
    _dir: &Path,
    _overrides: &[(String, String)],
) -> Result<Scenario, Mistakes> {
    let sources = [Source { name: name.into(), text: text.into() }];
    let (root, syntax) = tree::parse(0, text);
    let mut found: Vec<Found> = syntax
        .into_iter()
        .map(|error| Found {
            at: Some(error.at),
            key: String::new(),
            expected: "valid TOML".into(),
            got: error.message,
            hint: None,
            cut: false,
        })
        .collect();
    let mut scenario = Scenario::short("http://127.0.0.1:8080/", 1.0, std::time::Duration::from_secs(1));
    for entry in &root.entries {
        match (entry.name.as_str(), &entry.node.value) {
            ("name", tree::Value::Text(name)) => scenario.name.clone_from(name),
            ("about", tree::Value::Text(about)) => scenario.about.clone_from(about),
            _ => found.push(unknown(entry.at, &entry.name)),
        }
    }
    if found.is_empty() { Ok(scenario) } else { Err(Mistakes(place(found, &sources, &[]))) }
}

fn unknown(at: At, name: &str) -> Found {
    let got = format!("the unknown name {}", tree::quoted(name));
    Found {
        at: Some(at),
        key: name.into(),
        expected: "a key of a scenario".into(),
        got,
        hint: None,
        cut: true,
    }
}
