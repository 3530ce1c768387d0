//! Figures for people, on a terminal: of one run, of several side by side, of the demonstration.

use std::fmt::Write as _;

use crate::outcome::{Outcome, Way};

mod demo;
pub(crate) mod rows;
pub(crate) mod units;

#[cfg(test)]
mod tests;

pub use demo::{Belief, DemoReport, Found, Gated, Millis, Side, Waits};

/// Widest name of a column; longer ones are cut.
const MAX_NAME: usize = 24;
/// Lateness of the bench, at the 99th percentile, beyond which response times are no longer the service's alone: a
/// tenth of a response time that people do not notice (100 ms; Nielsen, "Response Times: The 3 Important Limits").
const LATE_MS: f64 = 10.0;

/// The outcomes' figures side by side, one column each, and what must be known to trust them.
pub fn table(outcomes: &[&Outcome]) -> String {
    let groups = rows::groups(outcomes);
    let labels = groups.iter().flat_map(|group| &group.rows).map(|(label, _)| label.chars().count() + 2);
    let first = labels.max().unwrap_or(0).max(12);
    let names: Vec<String> = outcomes.iter().map(|o| o.name.chars().take(MAX_NAME).collect()).collect();
    let widths: Vec<usize> = (0..outcomes.len())
        .map(|k| {
            let cells = groups.iter().flat_map(|group| &group.rows).map(|(_, cells)| &cells[k]);
            cells.chain([&names[k]]).map(|cell| cell.chars().count()).max().unwrap_or(0).max(10)
        })
        .collect();
    let mut out = String::from("\n");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", row("", first, &names, &widths));
    let _ = writeln!(out, "  {}", "─".repeat(first + widths.iter().map(|width| width + 2).sum::<usize>()));
    for group in &groups {
        let _ = writeln!(out, "  {}", group.name);
        for (label, cells) in &group.rows {
            let _ = writeln!(out, "{}", row(&format!("  {label}"), first, cells, &widths));
        }
    }
    for warning in outcomes.iter().flat_map(|outcome| warnings(outcome)) {
        let _ = writeln!(out, "\n  {warning}");
    }
    out
}

fn row(label: &str, first: usize, cells: &[String], widths: &[usize]) -> String {
    let mut out = format!("  {label:<first$}");
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(out, "  {cell:>width$}");
    }
    out.trim_end().to_string()
}

/// What whoever reads the figures must know.
pub(crate) fn warnings(outcome: &Outcome) -> Vec<String> {
    let name = &outcome.name;
    let mut out = Vec::new();
    if let Some(why) = &outcome.partial {
        out.push(format!("{name}: these figures are partial: {why}."));
    }
    let late = outcome.figure("lag_p99_ms");
    if outcome.way == Way::Real && late > LATE_MS {
        let late = units::millis(late);
        out.push(format!(
            "{name}: the bench itself sent requests {late} late at p99; response times contain it."
        ));
    }
    let bench = outcome.figure("failures_bench");
    if bench > 0.0 {
        let count = units::count(bench as u64);
        out.push(format!(
            "{name}: the bench ran out of sockets {count} times: raise the limit of open files and repeat."
        ));
    }
    let let_in = outcome.figure("attacks_let_in");
    if let_in > 0.0 {
        out.push(format!("{name}: {} altered or used tickets were let in.", units::count(let_in as u64)));
    }
    out
}

/// How a run was played, in a few words.
pub(crate) fn way(outcome: &Outcome) -> &'static str {
    match outcome.way {
        Way::Real => "over sockets",
        Way::Sim => "in virtual time",
    }
}
