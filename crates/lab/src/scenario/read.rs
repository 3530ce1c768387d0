//! From a file to a [`Scenario`]: finds every mistake, not only the first.
//!
//! ```text
//! file, overrides ─► tree (the gateway's) ─► sections ─► Scenario
//!                                └──────── mistakes ───► Mistakes
//! ```
//!
//! The same means as for a gate's configuration, so that both are explained in the same words.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

use tidegate_settings::kind::Count;
use tidegate_settings::tree;
use tidegate_settings::tree::{At, Source, Table};
use tidegate_settings::{Found, Mistake, place, plain_key};

use super::kinds::{ABOUT, NAME, SPAN, URL, is_name};
use super::section::{Key, Reader, Section};
use super::{Arrivals, Kind, Scenario, arrivals, closed, faults, gate, service, visitors};

/// Largest scenario file: far above any real one, and little enough to be read at once.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Everything that is wrong with a scenario, in the order of the text. `Display` shows each as `tidegate
/// check` does: `FILE:LINE:COLUMN: key: expected ...; got ...`, and the line below.
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
    let mut text = String::new();
    // Asked before opening: opening a pipe would wait for its other end.
    std::fs::metadata(path)
        .and_then(|meta| {
            if meta.is_file() {
                std::fs::File::open(path)
            } else {
                let what = if meta.is_dir() { "a directory" } else { "something else than a file" };
                Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what))
            }
        })
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| trouble("a readable scenario file in UTF-8".into(), error.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(trouble(format!("a file of at most {MAX_FILE_BYTES} bytes"), "a larger one".into()));
    }
    parse(&text, &name, path.parent().unwrap_or(Path::new("")), overrides)
}

pub(super) fn parse(
    text: &str,
    name: &str,
    dir: &Path,
    overrides: &[(String, String)],
) -> Result<Scenario, Mistakes> {
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
    document(text, name, overrides, Reader::new(elsewhere), |root, out| scenario(root, &stem, dir, out))
}

/// Reads a document into which overrides are put before `read` makes something of it. What an experiment
/// makes of the document is for `experiment` to read.
///
/// # Errors
/// Every mistake in it.
pub(crate) fn document<T>(
    text: &str,
    name: &str,
    overrides: &[(String, String)],
    mut out: Reader,
    read: impl FnOnce(&Table, &mut Reader) -> T,
) -> Result<T, Mistakes> {
    let mut sources = vec![Source { name: name.into(), text: text.into() }];
    let (mut root, syntax) = tree::parse(0, text);
    for (key, value) in overrides {
        let number = sources.len();
        sources.push(put(number, key, value, &mut root, &mut out));
    }
    root.entries.retain(|entry| entry.name != "experiment");
    let made = read(&root, &mut out);
    // A line the parser could not read gives no sensible value: its syntax is the only mistake worth telling.
    let line_ends: Vec<_> = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect();
    let line_of = |at: &At| line_ends.partition_point(|end| *end < at.start);
    let broken: HashSet<_> = syntax.iter().map(|error| line_of(&error.at)).collect();
    out.found.retain(|m| m.at.is_none_or(|at| at.source > 0 || !broken.contains(&line_of(&at))));
    for error in syntax {
        out.mistake(error.at, "", "valid TOML", error.message);
    }
    if out.found.is_empty() { Ok(made) } else { Err(Mistakes(place(out.found, &sources, &out.secrets))) }
}

/// Puts an override into the tree. Its source is what would have been written after `--set`.
fn put(number: usize, key: &str, value: &str, root: &mut Table, out: &mut Reader) -> Source {
    let text = format!("{key}={value}");
    let name_at = At { source: number, start: 0, end: key.len() };
    let at = At { source: number, start: key.len() + 1, end: text.len() };
    let path: Vec<_> = key.split('.').collect();
    let put = match key {
        "" => Err("nothing before the `=`".to_owned()),
        _ => root
            .put(&path, name_at, tree::parse_value(at, value.trim()))
            .map_err(|part| format!("{}, which leads nowhere", tree::quoted(part))),
    };
    if let Err(got) = put {
        let key = key.split('.').map(plain_key).collect::<Vec<_>>().join(".");
        out.mistake(name_at, &key, "a key of the scenario, as in \"arrivals.phase.0.rate=600\"", got);
    }
    Source { name: "--set".into(), text }
}

/// The whole document. The parts that others name are read before those.
fn scenario(root: &Table, stem: &str, dir: &Path, out: &mut Reader) -> Scenario {
    let mut root = out.root(root);
    let name = root.maybe("name", &NAME).unwrap_or_else(|| default_name(stem));
    let about = root.take("about", &ABOUT, String::new());
    let seed = root.take("seed", &Count(0..=i64::MAX as u64), 1u64);
    let deadline = root.maybe("deadline", &SPAN);
    let target = target(&mut root);
    let visitors = visitors::read(&mut root);
    let arrivals = arrivals::read(&mut root, dir, &visitors);
    let origin = service::read(&mut root);
    let gate = gate::read(&mut root, origin.replicas);
    let faults = faults::read(&mut root, &origin, gate.as_ref());
    let stall = service::stall(&mut root);
    closed::check(&mut root, &arrivals, &visitors);
    if matches!(arrivals, Arrivals::Replay { .. }) {
        replayed(&mut root, &visitors);
    }
    root.finish();
    Scenario { name, about, seed, deadline, target, arrivals, visitors, origin, gate, faults, stall }
}

fn target(root: &mut Section<'_, '_>) -> Option<String> {
    let mut section = root.inside("target")?;
    let url = section.maybe("url", &URL);
    section.finish();
    url
}

/// A log says who asks for what; one kind of visitor may say how they behave.
fn replayed(root: &mut Section<'_, '_>, visitors: &[Kind]) {
    if visitors.len() > 1 {
        let expected = "at most one [[visitor]] with `arrivals.replay`: how the visitors of the log behave";
        root.conflict("visitor", expected, visitors.len().to_string());
    }
    if visitors[0].steps != Kind::default().steps {
        let expected =
            "no `path` and no [[visitor.step]] with `arrivals.replay`: the log says what is asked for";
        root.conflict("visitor", expected, "one that has no effect");
    }
}

/// A name from a file's: what cannot stand in a name becomes a dash.
fn default_name(stem: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).take(64).collect();
    if is_name(&name) { name } else { "scenario".into() }
}

/// Every key of the language but those of a gate, with its default: what the documentation is compared with.
pub fn keys() -> BTreeMap<String, Key> {
    let (root, _) = tree::parse(0, EVERY_SECTION);
    let mut out = Reader::new(|_| None);
    scenario(&root, "", Path::new(""), &mut out);
    out.keys
}

fn elsewhere(name: &str) -> Option<String> {
    static KEYS: LazyLock<BTreeMap<String, Key>> = LazyLock::new(keys);
    let places: Vec<String> = KEYS
        .keys()
        .filter_map(|key| key.rsplit_once('.').filter(|(_, last)| *last == name))
        .map(|(section, _)| format!("[{section}]"))
        .collect();
    (!places.is_empty()).then(|| format!("`{name}` exists in {}.", places.join(" and ")))
}

/// One of each section, so that each asks for its keys.
const EVERY_SECTION: &str = "
target = {}
arrivals = { closed = {}, phase = [{ diurnal = {} }] }
visitor = [{ step = [{}] }]
origin = { shop = {}, pause = {}, neighbour = {}, stage = [{}], path = [{}], change = [{}] }
gate = {}
fault = [{}]
stall = {}
";
