//! A report as one HTML file: tables, figures, and nothing fetched from anywhere.
//!
//! It works without JavaScript, prints, follows the reader's preference for light or dark, and says in words
//! what its figures show. Several outcomes stand side by side on the same axes.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::outcome::Outcome;
use crate::plot::{self, Plot};
use crate::report::{rows, units, warnings, way};

mod figures;

#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("html/style.css");

/// Size of a figure beside others and alone, in CSS pixels; narrow windows scale it down.
const BESIDE: (u32, u32) = (580, 300);
const ALONE: (u32, u32) = (1000, 320);

pub fn page(outcomes: &[&Outcome]) -> String {
    let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
    let title = match names.as_slice() {
        [] => "No outcome".to_string(),
        names => names.join(" / "),
    };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title} – Tidegate</title>\n<style>\n{STYLE}{}\n</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>",
        plot::STYLE,
        title = escape(&title),
    );
    introduce(&mut out, outcomes);
    summarise(&mut out, outcomes);
    for section in figures::sections(outcomes) {
        draw(&mut out, &section);
    }
    list_all(&mut out, outcomes);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn introduce(out: &mut String, outcomes: &[&Outcome]) {
    out.push_str("<ul class=\"runs\">\n");
    for outcome in outcomes {
        let _ = writeln!(
            out,
            "<li><strong>{}</strong>: played {}, seed {}, {}</li>",
            escape(&outcome.name),
            way(outcome),
            outcome.seed,
            units::span(outcome.seconds),
        );
    }
    out.push_str("</ul>\n");
    for warning in outcomes.iter().flat_map(|outcome| warnings(outcome)) {
        let _ = writeln!(out, "<p class=\"warning\" role=\"note\">{}</p>", escape(&warning));
    }
}

fn summarise(out: &mut String, outcomes: &[&Outcome]) {
    // More than two columns of figures need the whole width.
    let class = if outcomes.len() > 2 { "tables wide" } else { "tables" };
    let _ = writeln!(out, "<h2>Summary</h2>\n<div class=\"{class}\">");
    for group in rows::groups(outcomes) {
        table(out, group.name, "", outcomes, |out| {
            for (label, cells) in &group.rows {
                let class = if label.starts_with(' ') { " class=\"part\"" } else { "" };
                let _ = write!(out, "<tr><th scope=\"row\"{class}>{}</th>", escape(label.trim_start()));
                cells.iter().for_each(|cell| _ = write!(out, "<td>{cell}</td>"));
                out.push_str("</tr>\n");
            }
        });
    }
    out.push_str("</div>\n");
}

/// A table with a column per outcome, scrolled sideways where it is too wide, by keyboard too.
fn table(
    out: &mut String,
    caption: &str,
    first: &str,
    outcomes: &[&Outcome],
    rows: impl FnOnce(&mut String),
) {
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\n<table>\n\
         <caption>{caption}</caption>\n<thead><tr><th scope=\"col\">{first}</th>",
    );
    for outcome in outcomes {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(&outcome.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    rows(out);
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn draw(out: &mut String, section: &figures::Section) {
    let _ = writeln!(out, "<section>\n<h2>{}</h2>\n<div class=\"figures\">", section.title);
    let plots: Vec<&Plot> = section.plots.iter().collect();
    let (width, height) = if plots.len() > 1 { BESIDE } else { ALONE };
    for plot in &plots {
        let svg = plot.svg_among(width, height, if section.alike { &plots } else { &[] });
        let _ = writeln!(out, "<figure>\n{svg}</figure>");
    }
    let _ = writeln!(out, "</div>\n<p class=\"caption\">{}</p>\n</section>", section.caption);
}

fn list_all(out: &mut String, outcomes: &[&Outcome]) {
    let mut keys: Vec<&String> = outcomes.iter().flat_map(|outcome| outcome.summary.keys()).collect();
    keys.sort();
    keys.dedup();
    out.push_str("<details>\n<summary>Every figure by its key</summary>\n");
    table(out, "As in the JSON; the unit is the key's last part", "key", outcomes, |out| {
        for key in keys {
            let _ = write!(out, "<tr><th scope=\"row\"><code>{}</code></th>", escape(key));
            for outcome in outcomes {
                let value =
                    outcome.summary.get(key).map_or("–".to_string(), |value| rounded(*value).to_string());
                let _ = write!(out, "<td>{value}</td>");
            }
            out.push_str("</tr>\n");
        }
    });
    out.push_str("</details>\n");
}

/// To a millionth: what is finer is noise of the arithmetic.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
