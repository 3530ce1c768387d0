//! All reports as one page that needs nothing else: tables, plots, how they were made.

use std::fmt::Write as _;

use super::report::{Figure, Report, Table};
use crate::escape::escape;
use crate::report::units::cell;

/// Size of a plot within the page, in CSS pixels; it shrinks with the window.
const PLOT_SIZE: (u32, u32) = (860, 420);
/// The same of one among many, side by side.
const SMALL_SIZE: (u32, u32) = (430, 280);

const HEAD: &str = include_str!("page_head.html");

pub(super) fn page(reports: &[Report]) -> String {
    let mut out = String::from(HEAD);
    let _ = writeln!(out, "<h1>The papers' figures, played again</h1>\n<nav><ul>");
    for report in reports {
        let name = escape(&report.name);
        let _ = writeln!(out, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    out.push_str("</ul></nav>\n");
    for report in reports {
        section(&mut out, report);
    }
    out.push_str("</html>\n");
    out
}

fn section(out: &mut String, report: &Report) {
    let name = escape(&report.name);
    let way = match report.way {
        crate::outcome::Way::Real => "real processes and sockets",
        crate::outcome::Way::Sim => "simulated",
    };
    let _ = writeln!(
        out,
        "<section id=\"{name}\">\n<h2>{name}: {}, {}</h2>",
        escape(&report.paper),
        escape(&report.figure)
    );
    let _ =
        writeln!(out, "<p>{}</p>\n<p>Played in {:.0} s, {way}.</p>", escape(&report.about), report.seconds);
    for missing in report.missing() {
        let _ = writeln!(out, "<p class=\"partial\">Partial: {}</p>", escape(&missing));
    }
    for found in &report.tables {
        table(out, found);
    }
    let many = !report.tables.is_empty();
    if many {
        out.push_str("<details><summary>Every quantity</summary>\n");
    }
    out.push_str("<table>\n<tr><th>quantity</th><th>ours</th><th>paper</th><th>ratio</th><th>unit</th><th>formula</th></tr>\n");
    for figure in &report.figures {
        row(out, figure);
    }
    out.push_str("</table>\n");
    if many {
        out.push_str("</details>\n<div class=\"many\">\n");
    }
    let (width, height) = if many { SMALL_SIZE } else { PLOT_SIZE };
    for (_, plot) in &report.plots {
        let _ = writeln!(out, "<figure>{}</figure>", plot.svg(width, height));
    }
    if many {
        out.push_str("</div>\n");
    }
    if report.runs.is_empty() {
        out.push_str("</section>\n");
        return;
    }
    let _ = write!(out, "<p>Data ({}):", report.way.name());
    for run in &report.runs {
        let file = escape(&format!("{}/{}.csv", report.name, run.name));
        let _ = write!(out, " <a href=\"{file}\">{}</a>", escape(&run.name));
    }
    out.push_str("</p>\n</section>\n");
}

fn table(out: &mut String, table: &Table) {
    let title = escape(&table.title);
    let _ = writeln!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\">\n<table>\n<caption>{title}</caption>"
    );
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let _ = writeln!(out, "<tr>{}</tr>", cells("th", &table.head));
    for row in &table.rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells("td", row));
    }
    let _ = writeln!(out, "</table>\n</div>\n<p>{}</p>", escape(&table.note));
}

fn row(out: &mut String, figure: &Figure) {
    let cells = [
        &figure.name,
        &cell(figure.ours),
        &cell(figure.paper),
        &cell(figure.ratio()),
        &figure.unit,
        &figure.of,
    ];
    let cells: String = cells.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
    let _ = writeln!(out, "<tr>{cells}</tr>");
}
