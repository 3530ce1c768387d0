//! Figures for people, on a terminal: of one run, of several side by side, of the demonstration.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::outcome::{Outcome, Way};

mod demo;
pub(crate) mod rows;
pub(crate) mod units;

#[cfg(test)]
mod tests;

pub use demo::{DemoReport, Found, GateEstimate, Gated, Millis, Side, Waits};

/// Widest name of a column; longer ones are cut.
const MAX_NAME: usize = 24;
/// Lateness of the bench, at the 99th percentile, beyond which response times are no longer the service's
/// alone: a tenth of a response time that people do not notice (100 ms; Nielsen, "Response Times: The 3
/// Important Limits").
const LATE_MS: f64 = 10.0;

/// The outcomes' figures side by side, one column each, and what must be known to trust them.
pub fn table(outcomes: &[&Outcome]) -> String {
    let names = outcomes.iter().map(|outcome| outcome.name.chars().take(MAX_NAME).collect());
    let head = std::iter::once(String::new()).chain(names).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for group in rows::groups(outcomes) {
        rows.push(vec![group.name.into()]);
        let of_group = group.rows.into_iter();
        rows.extend(
            of_group.map(|(label, cells)| std::iter::once(format!("  {label}")).chain(cells).collect()),
        );
    }
    let mut out = format!("\n{}\n", terminal_table(head, rows));
    for warning in outcomes.iter().flat_map(|outcome| warnings(outcome)) {
        let _ = writeln!(out, "\n  {warning}");
    }
    out
}

/// A table for a terminal: the first column to the left, the others to the right, a rule under the head.
pub(crate) fn terminal_table(head: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─')));
    table.set_header(head).add_rows(rows);
    for (k, column) in table.column_iter_mut().enumerate() {
        column.set_padding((2, 0));
        column.set_cell_alignment(if k == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.trim_fmt()
}

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

pub(crate) fn way(outcome: &Outcome) -> &'static str {
    match outcome.way {
        Way::Real => "over sockets",
        Way::Sim => "in virtual time",
    }
}
