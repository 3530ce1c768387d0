//! Reports for people (a table), for programs (JSON), and as a folder: figures and series as CSV, plots as
//! SVG, and a page with everything.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::page;
use super::report::{Figure, Played, Report};
use crate::report::terminal_table;
use crate::report::units::cell;

/// Size of a plot's file, in CSS pixels.
const PLOT_SIZE: (u32, u32) = (860, 420);

pub fn json(reports: &[Report]) -> Json {
    json!({ "experiments": reports.iter().map(Report::json).collect::<Vec<_>>() })
}

pub fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let Report { name, paper, figure, seconds, .. } = report;
        let _ = writeln!(out, "\n{name}: {paper}, {figure} ({}, {seconds:.0} s)", report.way.name());
        for table in &report.tables {
            let text = terminal_table(table.head.clone(), table.rows.clone());
            let _ = writeln!(out, "\n  {}\n{text}\n  {}", table.title, table.note);
        }
        if report.tables.is_empty() {
            let _ = writeln!(out, "{}", quantities(report));
        }
        for missing in report.missing() {
            let _ = writeln!(out, "  PARTIAL: {missing}");
        }
    }
    out
}

fn quantities(report: &Report) -> String {
    let head = ["quantity", "ours", "paper", "ratio", "unit"].map(str::to_owned).to_vec();
    let row = |figure: &Figure| {
        let (ours, paper, ratio) = (cell(figure.ours), cell(figure.paper), cell(figure.ratio()));
        vec![figure.name.clone(), ours, paper, ratio, figure.unit.clone()]
    };
    terminal_table(head, report.figures.iter().map(row).collect())
}

/// Writes everything below `dir`, which is made if it is not there:
/// `results.json`, `results.csv`, `index.html`, and per experiment `NAME/RUN.csv` and `NAME/PLOT.svg`.
pub fn write(reports: &[Report], dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("results.json"), format!("{:#}\n", json(reports)))?;
    fs::write(dir.join("results.csv"), results_csv(reports))?;
    fs::write(dir.join("index.html"), page::page(reports))?;
    for report in reports {
        let folder = dir.join(&report.name);
        fs::create_dir_all(&folder)?;
        for run in &report.runs {
            fs::write(folder.join(format!("{}.csv", run.name)), run_csv(run))?;
        }
        for (name, plot) in &report.plots {
            fs::write(folder.join(format!("{name}.svg")), plot.svg(PLOT_SIZE.0, PLOT_SIZE.1))?;
        }
    }
    Ok(())
}

pub fn results_csv(reports: &[Report]) -> String {
    let mut out = String::from("experiment,mode,quantity,unit,paper,ours,ratio\n");
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    for report in reports {
        for figure in &report.figures {
            let (paper, ours, ratio) = (number(figure.paper), number(figure.ours), number(figure.ratio()));
            let fields = [&report.name, report.way.name(), &figure.name, &figure.unit, &paper, &ours, &ratio];
            let _ = writeln!(out, "{}", fields.map(field).join(","));
        }
    }
    out
}

/// A run as CSV: second by second; a sweep by its values, with the summary of each.
pub fn run_csv(run: &Played) -> String {
    let [(None, outcome)] = run.points.as_slice() else { return sweep_csv(run) };
    outcome.csv()
}

fn sweep_csv(run: &Played) -> String {
    let keys: Vec<&String> =
        run.points.first().map(|(_, outcome)| outcome.summary.keys().collect()).unwrap_or_default();
    let mut out = String::from("value");
    keys.iter().for_each(|key| _ = write!(out, ",{key}"));
    for (value, outcome) in &run.points {
        let _ = write!(out, "\n{}", value.unwrap_or_default());
        keys.iter().for_each(|key| _ = write!(out, ",{}", outcome.figure(key)));
    }
    out.push('\n');
    out
}

/// A field of RFC 4180.
fn field(text: &str) -> String {
    let plain = !text.contains([',', '"', '\n']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}
