//! The result as text and as JSON.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::analysis::{Report, Row};
use crate::show::{instant, number, printable, span};
use crate::suggestion;

/// Significant types and some more are shown; a table of two hundred is not read.
const SHOWN_ROWS: usize = 30;

/// For a terminal.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for line in summary(report) {
        out += &format!("{line}\n");
    }
    out += &format!("\n{}\n", table(report));
    if report.rows.len() > SHOWN_ROWS {
        out +=
            &format!("... and {} more types; --json and --html have all\n", report.rows.len() - SHOWN_ROWS);
    }
    out += &format!("\n{}\n", verdict(report));
    if let Some(configuration) = suggestion::toml(report) {
        out += &format!(
            "\nConfiguration that throttles them (a proposal; `tidegate check` it):\n\n{configuration}"
        );
    }
    out
}

/// What was read and how the times were brought together, line by line.
pub fn summary(report: &Report) -> Vec<String> {
    let tally = &report.tally;
    let mut lines = vec![format!(
        "Log: {} requests of {} lines ({})",
        tally.requests,
        tally.lines,
        report.log_formats.iter().map(|format| printable(format)).collect::<Vec<_>>().join("; ")
    )];
    if tally.unparsed > 0 {
        lines.push(format!("  {} lines could not be read, for example:", tally.unparsed));
        lines.extend(tally.examples.iter().map(|example| format!("    {}", printable_line(example))));
    }
    if tally.too_long > 0 {
        lines.push(format!("  {} lines of more than 1 MiB were left out", tally.too_long));
    }
    if tally.kept_from_origin > 0 {
        lines
            .push(format!("  {} requests were answered by the gate and not counted", tally.kept_from_origin));
    }
    for (file, format) in &report.figure_files {
        lines.push(format!("Figures: {} ({format})", printable(file)));
    }
    lines.push(format!("Figure: {}: {}", printable(&report.figure), report.figure_why));
    let grid = &report.grid;
    lines.push(format!(
        "Time: {} to {}, {} intervals of {}; {} requests are outside",
        instant(grid.start_us),
        instant(grid.time_us(grid.count)),
        grid.count,
        span(grid.interval_us),
        report.outside,
    ));
    lines.push(format!("Clocks: {}", clocks(report)));
    lines.extend(report.notes.iter().map(|note| format!("Note: {}", printable(note))));
    lines
}

/// Lines of a log were escaped when they were kept; a file's name before them was not.
fn printable_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn clocks(report: &Report) -> String {
    let lag = span(report.settings.max_lag as i64 * report.grid.interval_us);
    let Some(shift) = report.shift else {
        return format!(
            "taken as they are; no difference between the two stands out (the figure may follow requests by up to {lag})"
        );
    };
    let by = span(shift.intervals.abs() * report.grid.interval_us);
    let ahead = if shift.intervals > 0 { "ahead of" } else { "behind" };
    let better =
        format!("the strongest r is {:.2} then, and {:.2} as the files are", shift.r, shift.r_before);
    if report.shift_applied {
        format!("the figures' clock is {by} {ahead} the log's; this was taken back ({better})")
    } else {
        format!(
            "taken as they are, but the figures' clock seems to be {by} {ahead} the log's: {better}; --align takes it \
             back"
        )
    }
}

/// Like the paper's figure 1.
fn table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let unit = format!("cost ({})", printable(&report.figure));
    table.set_header(["type", "requests", "share", "r", "p", "lag", "significant", unit.as_str(), "culprit"]);
    for row in report.rows.iter().take(SHOWN_ROWS) {
        let lag = if row.finding.correlation.is_some() {
            span(row.finding.lag as i64 * report.grid.interval_us)
        } else {
            String::new()
        };
        table.add_row([
            printable(&row.name),
            number(row.requests),
            format!("{:.1} %", row.finding.share * 100.0),
            correlation(row).0,
            correlation(row).1,
            lag,
            mark(row.finding.is_significant),
            cost(row),
            mark(row.finding.is_culprit),
        ]);
    }
    for column in [1, 2, 3, 4, 5, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// r and p, as the paper prints them.
pub(crate) fn correlation(row: &Row) -> (String, String) {
    row.finding.correlation.map_or(("not enough data".into(), String::new()), |found| {
        (format!("{:.4}", found.r), format!("{:.4}", found.p))
    })
}

pub(crate) fn cost(row: &Row) -> String {
    row.finding.cost.map_or("–".into(), |cost| {
        format!("{} ({} to {})", number(cost.per_request), number(cost.low), number(cost.high))
    })
}

pub(crate) fn mark(yes: bool) -> String {
    if yes { "yes" } else { "" }.into()
}

pub(crate) fn verdict(report: &Report) -> String {
    let culprits: Vec<&Row> = report.culprits().collect();
    let figure = printable(&report.figure);
    if culprits.is_empty() {
        return format!(
            "No type of request is named: none correlates with {figure} (alpha {}).",
            report.settings.alpha
        );
    }
    let share: f64 = culprits.iter().map(|row| row.finding.share).sum();
    let names: Vec<String> = culprits.iter().map(|row| printable(&row.name)).collect();
    format!("Culprits of {figure}: {} ({:.1} % of the requests).", names.join(", "), share * 100.0)
}

/// Everything as one object.
pub fn json(report: &Report) -> Value {
    let tally = &report.tally;
    let seconds = |us: i64| us as f64 / 1e6;
    let rows = report.rows.iter().map(|row| {
        let finding = &row.finding;
        json!({
            "type": row.name,
            "requests": row.requests,
            "share": finding.share,
            "r": finding.correlation.map(|found| found.r),
            "p": finding.correlation.map(|found| found.p),
            "n": finding.correlation.map(|found| found.n),
            "lag_s": seconds(finding.lag as i64 * report.grid.interval_us),
            "significant": finding.is_significant,
            "cost": finding.cost.map(|cost| json!({"per_request": cost.per_request, "low": cost.low, "high": cost.high})),
            "culprit": finding.is_culprit,
        })
    });
    let files = report.figure_files.iter();
    let files: Vec<Value> = files.map(|(file, format)| json!({"file": file, "format": format})).collect();
    json!({
        "log": {
            "files": report.log_formats, "lines": tally.lines, "requests": tally.requests, "unparsed": tally.unparsed,
            "too_long": tally.too_long, "kept_from_origin": tally.kept_from_origin, "examples": tally.examples,
            "outside": report.outside,
        },
        "figures": files,
        "figure": {"name": report.figure, "why": report.figure_why},
        "time": {
            "from": instant(report.grid.start_us), "to": instant(report.grid.time_us(report.grid.count)),
            "interval_s": seconds(report.grid.interval_us), "intervals": report.grid.count,
        },
        "clocks": {
            "difference_s": report.shift.map(|shift| seconds(shift.intervals * report.grid.interval_us)),
            "applied": report.shift_applied, "text": clocks(report),
        },
        "alpha": report.settings.alpha,
        "notes": report.notes,
        "types": rows.collect::<Vec<_>>(),
        "culprits": report.culprits().map(|row| row.name.as_str()).collect::<Vec<_>>(),
        "configuration": suggestion::toml(report),
    })
}
