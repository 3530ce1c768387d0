//! The `[experiment]` section of a file, read and checked: all mistakes at once, each with its line.
//!
//! The rest of the file is a scenario, read by the scenario's own reader when the runs are made. The means
//! and the words of a mistake are those of a gate's configuration.

use tidegate_settings::tree;
use tidegate_settings::tree::{At, Entry, Node, Table, Value};
use tidegate_settings::{Found, did_you_mean};

use super::expect::Expectation;
use super::formula::{Formula, Kind, Mistake};
use super::{PlotSpec, Quantity, Run, Sweep};
use crate::outcome::Way;
use crate::tournament::Tournament;
use crate::tournament::summary::figure_names;

mod tournament;

pub use tournament::seeds;

/// Longest sweep: ten times what a figure needs.
const MAX_VALUES: usize = 100;
/// How the ways are written.
const WAYS: [(&str, Way); 2] = [("real", Way::Real), ("sim", Way::Sim)];

/// The section as it stands; names between its parts are not looked up yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub paper: String,
    pub figure: String,
    pub about: String,
    pub runs_of: Option<(At, String)>,
    pub ways: Vec<Way>,
    pub runs: Vec<(At, Run)>,
    pub quantities: Vec<Quantity>,
    pub plots: Vec<PlotSpec>,
    pub expectations: Vec<Expectation>,
    pub tournament: Option<Tournament>,
    pub formulas: Vec<Placed>,
    pub found: Vec<Found>,
}

/// A formula whose names are still to be looked up.
#[derive(Debug)]
pub(super) struct Placed {
    pub at: At,
    pub key: String,
    pub formula: Formula,
    pub kind: Kind,
}

pub(super) fn read(text: &str) -> Draft {
    let mut reader = Reader { text, found: Vec::new(), formulas: Vec::new() };
    let (root, syntax) = tree::parse(0, text);
    for error in syntax {
        reader.wrong(Some(error.at), "", "valid TOML", error.message);
    }
    let mut draft = Draft::default();
    match root.get("experiment") {
        Some(Entry { at, node: Node { value: Value::Table(table), .. }, .. }) => {
            draft = reader.section(&Keys { path: "experiment".into(), at: *at, table });
        }
        _ if reader.found.is_empty() => reader.wrong(None, "experiment", "a section [experiment]", "none"),
        _ => {}
    }
    draft.formulas = reader.formulas;
    draft.found = reader.found;
    draft
}

struct Keys<'t> {
    path: String,
    at: At,
    table: &'t Table,
}

impl<'t> Keys<'t> {
    fn key(&self, name: &str) -> String {
        format!("{}.{}", self.path, tidegate_settings::plain_key(name))
    }

    fn get(&self, name: &str) -> Option<&'t Node> {
        self.table.get(name).map(|entry| &entry.node)
    }

    /// The entries in the order of the file; the parser sorts them.
    fn in_order(&self) -> Vec<&'t Entry> {
        let mut entries: Vec<&Entry> = self.table.entries.iter().collect();
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}

struct Reader<'t> {
    text: &'t str,
    found: Vec<Found>,
    formulas: Vec<Placed>,
}

impl Reader<'_> {
    fn section(&mut self, keys: &Keys) -> Draft {
        let known = "paper figure about runs_of ways run quantity plot expect tournament";
        self.only(keys, &known.split(' ').collect::<Vec<_>>());
        let mut draft = Draft {
            paper: self.text(keys, "paper"),
            figure: self.text(keys, "figure"),
            about: self.text(keys, "about"),
            runs_of: keys.get("runs_of").map(|node| (node.at, self.text(keys, "runs_of"))),
            ways: self.ways(keys),
            tournament: self.tournament(keys),
            ..Draft::default()
        };
        if let Some(tournament) = &draft.tournament {
            self.tournament_alone(keys, &draft.ways);
            draft.expectations = self.expectations(keys, &draft.ways, &figure_names(tournament));
            return draft;
        }
        for (name, keys) in self.tables(keys, "run", '_') {
            draft.runs.push((keys.at, self.run(name, &keys)));
        }
        for (name, keys) in self.tables(keys, "quantity", '_') {
            draft.quantities.push(self.quantity(name, &keys));
        }
        for (name, keys) in self.tables(keys, "plot", '_') {
            draft.plots.push(self.plot(name, &keys));
        }
        if draft.runs.is_empty() && draft.runs_of.is_none() {
            let expected = "at least one [experiment.run.NAME], or runs_of";
            self.wrong(Some(keys.at), "experiment.run", expected, "none");
        }
        if draft.quantities.is_empty() {
            let expected = "at least one [experiment.quantity.NAME]";
            self.wrong(Some(keys.at), "experiment.quantity", expected, "none");
        }
        let names: Vec<String> = draft.quantities.iter().map(|quantity| quantity.name.clone()).collect();
        draft.expectations = self.expectations(keys, &draft.ways, &names);
        draft
    }

    /// A tournament has its own runs, quantities and plots, and takes too long for real time.
    fn tournament_alone(&mut self, keys: &Keys, ways: &[Way]) {
        for name in ["runs_of", "run", "quantity", "plot"] {
            if let Some(node) = keys.get(name) {
                let expected = "nothing beside a tournament, which has its own";
                self.wrong(Some(node.at), &keys.key(name), expected, node.value.describe());
            }
        }
        if ways != [Way::Sim] {
            self.wrong(Some(keys.at), &keys.key("ways"), "[\"sim\"] with a tournament", "others");
        }
    }

    fn ways(&mut self, keys: &Keys) -> Vec<Way> {
        let Some(node) = keys.get("ways") else { return vec![Way::Real] };
        let expected = "an array of one or both of \"real\" and \"sim\"";
        let mut ways = Vec::new();
        match &node.value {
            Value::List(items) if !items.is_empty() => {
                for item in items {
                    match way(&item.value) {
                        Some(way) if !ways.contains(&way) => ways.push(way),
                        _ => self.wrong(Some(item.at), &keys.key("ways"), expected, item.value.describe()),
                    }
                }
            }
            other => self.wrong(Some(node.at), &keys.key("ways"), expected, other.describe()),
        }
        ways
    }

    fn run(&mut self, name: String, keys: &Keys) -> Run {
        self.only(keys, &["way", "gate", "set", "sweep"]);
        let way = keys.get("way").and_then(|node| {
            let found = way(&node.value);
            if found.is_none() {
                self.wrong(Some(node.at), &keys.key("way"), "\"real\" or \"sim\"", node.value.describe());
            }
            found
        });
        let set = self.set(keys);
        let sweep = self.table(keys, "sweep").map(|sweep| {
            self.only(&sweep, &["key", "values"]);
            Sweep { key: self.text(&sweep, "key"), values: self.values(&sweep) }
        });
        let gate = self.boolean(keys, "gate", true);
        Run { name, way, gate, set, sweep }
    }

    /// Keys that are set: the text as it stands is the value in TOML, whatever its type.
    fn set(&mut self, keys: &Keys) -> Vec<(String, String)> {
        let Some(set) = self.table(keys, "set") else { return Vec::new() };
        let source = |entry: &Entry| self.text[entry.node.at.start..entry.node.at.end].to_owned();
        set.in_order().into_iter().map(|entry| (entry.name.clone(), source(entry))).collect()
    }

    fn values(&mut self, keys: &Keys) -> Vec<f64> {
        let expected = format!("an array of 2 to {MAX_VALUES} rising numbers");
        let Some(node) = keys.get("values") else {
            self.wrong(Some(keys.at), &keys.key("values"), &expected, "none");
            return Vec::new();
        };
        let values: Vec<f64> = match &node.value {
            Value::List(items) => items.iter().map(|item| number(&item.value).unwrap_or(f64::NAN)).collect(),
            _ => Vec::new(),
        };
        // Not a number is not less than anything.
        if !(2..=MAX_VALUES).contains(&values.len()) || !values.is_sorted_by(|a, b| a < b) {
            self.wrong(Some(node.at), &keys.key("values"), &expected, node.value.describe());
        }
        values
    }

    fn quantity(&mut self, name: String, keys: &Keys) -> Quantity {
        self.only(keys, &["unit", "paper", "of"]);
        let paper = self.number(keys, "paper");
        let of = self.formula(keys, "of", Kind::Number);
        Quantity { name, unit: self.text(keys, "unit"), paper, of }
    }

    fn plot(&mut self, name: String, keys: &Keys) -> PlotSpec {
        self.only(keys, &["title", "x", "y", "log_y", "lines", "levels"]);
        let lines = self.curves(keys, "lines", Kind::Curve);
        if lines.is_empty() {
            self.wrong(Some(keys.at), &keys.key("lines"), "a table of names and formulas", "none");
        }
        PlotSpec {
            name,
            title: self.text(keys, "title"),
            x: self.text(keys, "x"),
            y: self.text(keys, "y"),
            log_y: self.boolean(keys, "log_y", false),
            lines,
            levels: self.curves(keys, "levels", Kind::Number),
        }
    }

    fn curves(&mut self, keys: &Keys, name: &str, kind: Kind) -> Vec<(String, Formula)> {
        let Some(table) = self.table(keys, name) else { return Vec::new() };
        let entries = table.in_order();
        entries.into_iter().map(|e| (e.name.clone(), self.formula(&table, &e.name, kind))).collect()
    }

    /// `[experiment.expect]`, and inside it those of one mode alone.
    fn expectations(&mut self, keys: &Keys, ways: &[Way], quantities: &[String]) -> Vec<Expectation> {
        let mut expectations = Vec::new();
        let Some(expect) = self.table(keys, "expect") else { return expectations };
        for entry in expect.in_order() {
            match WAYS.into_iter().find(|(name, _)| *name == entry.name) {
                Some((_, way)) if ways.contains(&way) => {
                    let Some(inside) = self.table(&expect, &entry.name) else { continue };
                    for entry in inside.in_order() {
                        expectations.extend(self.expectation(&inside, entry, Some(way), quantities));
                    }
                }
                Some((name, _)) => {
                    let expected = "a mode that `ways` names";
                    self.wrong(Some(entry.at), &expect.key(name), expected, tree::quoted(name));
                }
                None => expectations.extend(self.expectation(&expect, entry, None, quantities)),
            }
        }
        expectations
    }

    fn expectation(
        &mut self,
        keys: &Keys,
        entry: &Entry,
        way: Option<Way>,
        quantities: &[String],
    ) -> Option<Expectation> {
        let name = &entry.name;
        if !quantities.contains(name) {
            self.found.push(Found {
                hint: did_you_mean(name, quantities.iter().map(String::as_str)),
                ..found(Some(entry.at), &keys.key(name), "the name of a quantity", tree::quoted(name))
            });
            return None;
        }
        let bounds = self.table(keys, name)?;
        self.only(&bounds, &["min", "max"]);
        let [min, max] = ["min", "max"].map(|side| self.number(&bounds, side));
        if min.or(max).is_none() || min.zip(max).is_some_and(|(min, max)| min > max) {
            let expected = "bounds like { min = 0.95 } or { min = 1, max = 3 }";
            self.wrong(Some(entry.node.at), &keys.key(name), expected, entry.node.value.describe());
        }
        Some(Expectation { quantity: name.clone(), way, min, max })
    }

    fn formula(&mut self, keys: &Keys, name: &str, kind: Kind) -> Formula {
        let text = self.text(keys, name);
        let at = keys.get(name).map_or(keys.at, |node| node.at);
        match Formula::parse(&text) {
            Ok(formula) => {
                self.formulas.push(Placed { at, key: keys.key(name), formula: formula.clone(), kind });
                formula
            }
            Err(Mistake { expected, got }) => {
                // A missing text has been reported already.
                if !text.is_empty() {
                    self.wrong(Some(at), &keys.key(name), &expected, got);
                }
                Formula::nothing()
            }
        }
    }

    /// The tables `[NAME.*]`, in the order of the file. Their names are of letters, digits and `also`.
    fn tables<'t>(&mut self, keys: &Keys<'t>, name: &str, also: char) -> Vec<(String, Keys<'t>)> {
        let Some(parent) = self.table(keys, name) else { return Vec::new() };
        let mut tables = Vec::new();
        for entry in parent.in_order() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == also;
            if !entry.name.starts_with(|c: char| c.is_ascii_alphabetic()) || !entry.name.chars().all(plain) {
                let expected = format!("a name of letters, digits and \"{also}\" that begins with a letter");
                self.wrong(Some(entry.at), &parent.path, &expected, tree::quoted(&entry.name));
            }
            if let Some(table) = self.table(&parent, &entry.name) {
                tables.push((entry.name.clone(), table));
            }
        }
        tables
    }

    fn table<'t>(&mut self, keys: &Keys<'t>, name: &str) -> Option<Keys<'t>> {
        let entry = keys.table.get(name)?;
        match &entry.node.value {
            Value::Table(table) => Some(Keys { path: keys.key(name), at: entry.at, table }),
            other => {
                self.wrong(Some(entry.node.at), &keys.key(name), "a table", other.describe());
                None
            }
        }
    }

    fn text(&mut self, keys: &Keys, name: &str) -> String {
        let (at, got) = match keys.get(name) {
            Some(Node { value: Value::Text(text), .. }) if !text.trim().is_empty() => {
                return text.trim().to_owned();
            }
            Some(Node { at, value }) => (*at, value.describe()),
            None => (keys.at, "nothing".into()),
        };
        self.wrong(Some(at), &keys.key(name), "a text", got);
        String::new()
    }

    fn number(&mut self, keys: &Keys, name: &str) -> Option<f64> {
        let node = keys.get(name)?;
        let found = number(&node.value);
        if found.is_none() {
            self.wrong(Some(node.at), &keys.key(name), "a number", node.value.describe());
        }
        found
    }

    fn boolean(&mut self, keys: &Keys, name: &str, default: bool) -> bool {
        match keys.get(name) {
            None => default,
            Some(Node { value: Value::Boolean(value), .. }) => *value,
            Some(Node { at, value }) => {
                self.wrong(Some(*at), &keys.key(name), "true or false", value.describe());
                default
            }
        }
    }

    fn only(&mut self, keys: &Keys, known: &[&str]) {
        for entry in &keys.table.entries {
            if !known.contains(&entry.name.as_str()) {
                let hint = did_you_mean(&entry.name, known.iter().copied());
                self.found.push(Found {
                    at: Some(entry.at),
                    key: keys.key(&entry.name),
                    expected: format!("a key of [{}] ({})", keys.path, known.join(", ")),
                    got: format!("the unknown name {}", tree::quoted(&entry.name)),
                    hint,
                    cut: true,
                });
            }
        }
    }

    fn wrong(&mut self, at: Option<At>, key: &str, expected: &str, got: impl Into<String>) {
        self.found.push(found(at, key, expected, got));
    }
}

pub(super) fn found(at: Option<At>, key: &str, expected: impl Into<String>, got: impl Into<String>) -> Found {
    Found { at, key: key.into(), expected: expected.into(), got: got.into(), hint: None, cut: false }
}

fn way(value: &Value) -> Option<Way> {
    let Value::Text(text) = value else { return None };
    WAYS.iter().find(|(name, _)| name == text).map(|(_, way)| *way)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    }
    .filter(|number| number.is_finite())
}
