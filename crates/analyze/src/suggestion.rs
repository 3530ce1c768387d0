//! The configuration that throttles the culprits: a class for each, with a rate.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::analysis::{Report, Row};
use crate::show::{number, printable};

/// The figure is brought down to this part of its maximum: below it queues are short.
const TARGET: f64 = 0.8;
/// A culprit keeps at least a tenth of what it had, since a suggestion must not switch a function off, and
/// loses at least a tenth, since otherwise nothing would change.
const KEEP: (f64, f64) = (0.1, 0.9);
/// What is kept where the costs are not known.
const KEEP_UNKNOWN: f64 = 0.5;
/// Longest name of a class.
const MAX_NAME: usize = 64;

/// TOML for the gate's configuration file; `None`: no culprit is a path.
pub fn toml(report: &Report) -> Option<String> {
    let culprits: Vec<&Row> = report.culprits().filter(|row| is_glob(&row.name)).collect();
    if culprits.is_empty() {
        return None;
    }
    let (keep, reason) = keep(report);
    let mut out = format!("# {reason}\n");
    let mut names = BTreeSet::new();
    for row in culprits {
        let name = class_name(&row.name, &mut names);
        // Never 0, which would mean no limit.
        let rate = (row.busy_rate * keep).max(0.01);
        let _ = write!(
            out,
            "\n[[class]]\nname = \"{name}\"\nmatch = {{ path = {} }}\ningress = {{ rate = {} }}  # requests per \
             second; it had {}\n",
            quoted(&row.name),
            rounded(rate),
            number(row.busy_rate),
        );
    }
    Some(out)
}

/// Which part of their requests the culprits keep, and why.
fn keep(report: &Report) -> (f64, String) {
    let busy = report.busy_intervals();
    let mean = busy.iter().map(|at| report.figure_values[*at]).sum::<f64>() / busy.len().max(1) as f64;
    let target = TARGET * report.figure_max();
    let seconds = report.grid.interval_us as f64 / 1e6;
    let load: f64 = report
        .culprits()
        .filter_map(|row| Some(row.finding.cost?.per_request * row.busy_rate * seconds))
        .sum();
    if load <= 0.0 {
        return (
            KEEP_UNKNOWN,
            "Half of what the culprits had: their costs are not known well enough to say more.".into(),
        );
    }
    let keep = (1.0 - (mean - target) / load).clamp(KEEP.0, KEEP.1);
    let text = format!(
        "The culprits keep {:.0} % of what they had while {} was near its maximum; by the estimated costs that brings it from \
         {} to {}.",
        keep * 100.0,
        // A comment ends with its line.
        printable(&report.figure),
        number(mean),
        number(mean - load * (1.0 - keep)),
    );
    (keep, text)
}

fn is_glob(name: &str) -> bool {
    name.starts_with('/')
}

/// Letters, digits, `-` and `_` of the path; a number behind it where two would be the same.
fn class_name(path: &str, taken: &mut BTreeSet<String>) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    let mut name = String::new();
    for c in path.chars().map(kept) {
        if c != '-' || !(name.is_empty() || name.ends_with('-')) {
            name.push(c);
        }
    }
    name.truncate(MAX_NAME - 4);
    let name = name.trim_end_matches('-');
    let name = if name.is_empty() || name == "default" { "culprit" } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// Two significant digits, down: more would pretend to know.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 1.0);
    let rounded = (rate / unit).floor() * unit;
    // What the division leaves behind the digits goes.
    (rounded * 1e6).round() / 1e6
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => _ = write!(out, "\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes() {
        let mut taken = BTreeSet::new();
        let names = ["/PHP/SearchItems.php", "/item/*/bids", "/item/bids", "/", "/default", "/é\"\n"];
        let names = names.map(|path| class_name(path, &mut taken));
        assert_eq!(
            names,
            ["php-searchitems-php", "item-bids", "item-bids-2", "culprit", "culprit-2", "culprit-3"]
        );
        assert!(class_name(&format!("/{}", "a".repeat(300)), &mut taken).len() <= MAX_NAME);
    }

    #[test]
    fn rates_and_texts() {
        assert_eq!([123.4, 9.99, 0.0123, 1.0].map(rounded), [120.0, 9.9, 0.012, 1.0]);
        assert_eq!(quoted("/a\"\\\n"), "\"/a\\\"\\\\\\u000A\"");
    }
}
