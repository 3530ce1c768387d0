//! `[gate]`: a gate's configuration as a part of a scenario.
//!
//! The gate's own reader reads it, so that there is one language for gates. What a scenario adds: `split`,
//! and replicas that need not be named, since the program that starts the gate also starts the origin and
//! knows its addresses. Instead it has names that never lead anywhere (`.invalid`, RFC 2606): a gate that was
//! started without the real ones fails to find its origin instead of disturbing somebody.

use tidegate_settings::kind::{Flag, toml_string};
use tidegate_settings::tree::{Entry, Node, Table, Value};
use tidegate_settings::{Role, Settings, plain_key};

use super::GateSpec;
use super::section::Section;

pub(super) fn read(root: &mut Section<'_, '_>, replicas: u32) -> Option<GateSpec> {
    let mut section = root.inside("gate")?;
    let split = section.take("split", &Flag, false);
    let at = section.at();
    let mut table = section.table().clone();
    table.entries.retain(|entry| entry.name != "split");
    let has_replicas = matches!(
        table.get("origin"),
        Some(Entry { node: Node { value: Value::Table(origin), .. }, .. }) if origin.get("replicas").is_some()
    );
    if !has_replicas {
        let stand_ins = (0..replicas).map(|i| Value::Text(format!("replica-{i}.invalid:80")));
        let list = Value::List(stand_ins.map(|value| Node { at, value }).collect());
        // It leads nowhere if `origin` is no table: a mistake that the gate's reader will report.
        let _ = table.put(&["origin", "replicas"], at, Node { at, value: list });
    }
    let part = Settings::read_part(&table, "gate");
    section.out.found.extend(part.found);
    section.out.secrets.extend(part.secrets);
    if part.settings.role != Role::Gate {
        let expected = "\"gate\" (`gate.split = true` makes a tokengen and a tokencheck of it)";
        section.conflict("role", expected, format!("\"{}\"", part.settings.role.name()));
    }
    Some(GateSpec { settings: part.settings, text: file(&table), split })
}

/// The table as a configuration file: plain keys first, then each section under its name.
fn file(table: &Table) -> String {
    let mut out = String::new();
    for entry in table.entries.iter().filter(|entry| section(entry).is_none()) {
        line(entry, &mut out);
    }
    for (entry, (tables, is_list)) in table.entries.iter().filter_map(|entry| Some((entry, section(entry)?)))
    {
        let name = name(&entry.name);
        for table in tables {
            out.push_str(&if is_list { format!("[[{name}]]\n") } else { format!("[{name}]\n") });
            table.entries.iter().for_each(|entry| line(entry, &mut out));
        }
    }
    out
}

/// The tables of a section, and whether they are a list; `None`: it is a plain key.
fn section(entry: &Entry) -> Option<(Vec<&Table>, bool)> {
    match &entry.node.value {
        Value::Table(table) => Some((vec![table], false)),
        Value::List(items) if !items.is_empty() => {
            let tables = items.iter().map(|item| match &item.value {
                Value::Table(table) => Some(table),
                _ => None,
            });
            Some((tables.collect::<Option<_>>()?, true))
        }
        _ => None,
    }
}

fn line(entry: &Entry, out: &mut String) {
    out.push_str(&format!("{} = {}\n", name(&entry.name), shown(&entry.node.value)));
}

/// A name as TOML: bare if it can be, else in quotes and not shortened.
fn name(text: &str) -> String {
    if plain_key(text) == text { text.to_owned() } else { toml_string(text) }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => toml_string(text),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => format!("{x:?}"),
        Value::Boolean(b) => b.to_string(),
        Value::Other(text) => text.clone(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|item| shown(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            let entries = table.entries.iter();
            let entries =
                entries.map(|entry| format!("{} = {}", name(&entry.name), shown(&entry.node.value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}
