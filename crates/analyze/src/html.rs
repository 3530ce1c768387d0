//! The result as one HTML file: it fetches nothing, works without JavaScript, and prints.

use std::fmt::Write as _;

use crate::analysis::{Report, Row};
use crate::report::{correlation, cost, mark, summary, verdict};
use crate::show::{escape, number, span};
use crate::suggestion;
use crate::svg::{self, Plot};

const STYLE: &str = include_str!("html/style.css");
/// Types whose counts are drawn against the figure: the first of the table.
const SCATTERED: usize = 6;

pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let title = format!("What loads {}", report.figure);
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title} – Tidegate</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         <p class=\"verdict\">{}</p>",
        escape(&verdict(report)),
        title = escape(&title),
    );
    table(&mut out, report);
    plots(&mut out, report);
    if let Some(configuration) = suggestion::toml(report) {
        let _ = writeln!(
            out,
            "<h2>Configuration that throttles them</h2>\n<p>A proposal. <code>tidegate check</code> it before it is \
             used.</p>\n<pre>{}</pre>",
            escape(&configuration)
        );
    }
    let _ = writeln!(out, "<h2>What was read</h2>\n<pre>{}</pre>", escape(&summary(report).join("\n")));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn table(out: &mut String, report: &Report) {
    let unit = escape(&report.figure);
    let _ = write!(
        out,
        "<h2>Types of requests</h2>\n<div class=\"scroll\" role=\"region\" aria-label=\"Types of requests\" \
         tabindex=\"0\">\n<table>\n<thead><tr><th scope=\"col\">type</th><th scope=\"col\">requests</th>\
         <th scope=\"col\">share</th><th scope=\"col\">r</th><th scope=\"col\">p</th><th scope=\"col\">lag</th>\
         <th scope=\"col\">significant</th><th scope=\"col\">cost: {unit} per request</th>\
         <th scope=\"col\">culprit</th></tr></thead>\n<tbody>\n"
    );
    for row in &report.rows {
        let finding = &row.finding;
        let (r, p) = correlation(row);
        let lag =
            finding.correlation.map_or(String::new(), |_| span(finding.lag as i64 * report.grid.interval_us));
        let class = match () {
            () if finding.is_culprit => " class=\"culprit\"",
            () if finding.is_significant => " class=\"significant\"",
            () => "",
        };
        let _ = writeln!(
            out,
            "<tr{class}><th scope=\"row\">{}</th><td>{}</td><td>{:.1} %</td><td>{r}</td><td>{p}</td><td>{lag}</td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            number(row.requests),
            finding.share * 100.0,
            mark(finding.is_significant),
            cost(row),
            mark(finding.is_culprit),
        );
    }
    let _ = writeln!(
        out,
        "</tbody>\n</table>\n</div>\n<p class=\"caption\">r is Pearson's correlation of the requests per interval with \
         the figure, p its two-sided probability without any relation; significant: positive at alpha {}. The cost is \
         what a request adds to the figure, with its 95 % confidence interval, when all types are estimated together. \
         A culprit is significant, and not only because it travels with another type.</p>",
        report.settings.alpha
    );
}

fn plots(out: &mut String, report: &Report) {
    let seconds = report.grid.interval_us as f64 / 1e6;
    let over_time = |values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(at, value)| (at as f64 * seconds, *value)).collect()
    };
    let totals: Vec<f64> = (0..report.grid.count)
        .map(|at| report.rows.iter().map(|row| row.counts[at]).sum::<f64>() / seconds)
        .collect();
    let mut requests = vec![("all requests".to_owned(), over_time(&totals))];
    for row in report.culprits().take(3) {
        let rate: Vec<f64> = row.counts.iter().map(|count| count / seconds).collect();
        requests.push((row.name.clone(), over_time(&rate)));
    }
    let figure = vec![(report.figure.clone(), over_time(&report.figure_values))];
    let plot =
        |title: &str, y: &str, lines| Plot { title: title.into(), x: "time (s)".into(), y: y.into(), lines };
    let _ = writeln!(
        out,
        "<h2>Over time</h2>\n<div class=\"figures\">\n<figure>\n{}</figure>\n<figure>\n{}</figure>\n</div>",
        svg::lines(&plot(&report.figure, &report.figure, figure)),
        svg::lines(&plot("Requests", "per second", requests)),
    );
    out.push_str("<h2>Requests and the figure, interval by interval</h2>\n<div class=\"figures\">\n");
    for row in report.rows.iter().filter(|row| row.finding.correlation.is_some()).take(SCATTERED) {
        let _ = writeln!(out, "<figure>\n{}</figure>", svg::scatter(&scatter_of(report, row)));
    }
    out.push_str("</div>\n");
}

fn scatter_of(report: &Report, row: &Row) -> Plot {
    let lag = row.finding.lag;
    let dots =
        row.counts.iter().zip(report.figure_values.iter().skip(lag)).map(|(count, value)| (*count, *value));
    Plot {
        title: format!("{}, r = {}", row.name, correlation(row).0),
        x: format!("requests in {}", span(report.grid.interval_us)),
        y: report.figure.clone(),
        lines: vec![(String::new(), dots.collect())],
    }
}
