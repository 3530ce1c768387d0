//! Rules of size and of leftovers: a reader's patience, and what no commit may hold.

use super::layers::contains_name;
use super::source::Source;
use crate::Finding;

/// Lines in a function before it needs a reason.
const MAX_FUNCTION: usize = 70;
/// How a reason begins, above the function.
const REASON: &str = "Long because:";

/// What no file may hold, written so that this file does not hold it.
const LEFTOVERS: [(&str, &str); 4] = [
    ("todo!", "unfinished"),
    ("unimplemented!", "unfinished"),
    ("dbg!", "a leftover"),
    ("#[ignore", "a test that does not run proves nothing"),
];

/// The pause between two looks at a condition, in a test that drives real processes.
const MAY_SLEEP: [&str; 2] = ["crates/cli/tests/e2e/harness.rs", "crates/kernel/tests/suite/net.rs"];

pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| findings.push(Finding::new(&source.path, line, what));
    let first = source.lines.iter().find(|line| !line.starts_with("#![") && !line.is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        find(1, "a file opens with `//!`: what it is".into());
    }
    for (line, length) in functions(source).filter(|(_, length)| *length > MAX_FUNCTION) {
        if !has_reason(source, line) {
            find(
                line,
                format!("a function of {length} lines: more than {MAX_FUNCTION} need a `// {REASON} ...`"),
            );
        }
    }
    for (number, code) in source.numbered() {
        for (name, why) in LEFTOVERS.iter().filter(|(name, _)| contains_name(code, name)) {
            find(number, format!("{name}: {why}"));
        }
        let sleeps = contains_name(code, "thread::sleep") || contains_name(code, "sleep_ms");
        if sleeps && number >= source.first_test_line() && !MAY_SLEEP.contains(&source.path.as_str()) {
            find(number, "a test waits for a condition, it does not sleep".into());
        }
    }
    findings
}

/// Lines of more columns than `max`. The insides of strings do not count, which `rustfmt` does not break
/// either, nor do rows of a table in the documentation, which cannot be broken.
pub fn check_width(source: &Source, max: usize) -> Vec<Finding> {
    let is_row = |line: usize| {
        let text = source.lines[line - 1].trim_start();
        ["//! |", "/// |"].iter().any(|row| text.starts_with(row))
    };
    let lines = (1..).zip(&source.widths).filter(|(line, width)| **width > max && !is_row(*line));
    lines
        .map(|(line, width)| Finding::new(&source.path, line, format!("{width} columns, {max} are allowed")))
        .collect()
}

/// `max_width` of `rustfmt.toml`.
pub fn max_width(rustfmt: &str) -> usize {
    let value = rustfmt.lines().find_map(|line| line.strip_prefix("max_width = "));
    value.and_then(|value| value.parse().ok()).expect("rustfmt.toml sets max_width")
}

/// Line and length of every function with a body.
fn functions(source: &Source) -> impl Iterator<Item = (usize, usize)> {
    let starts = source.code.iter().enumerate().filter(|(_, code)| is_function(code)).map(|(i, _)| i);
    starts.filter_map(|start| {
        let mut depth = 0usize;
        for (i, code) in source.code.iter().enumerate().skip(start) {
            for c in code.chars() {
                match c {
                    ';' if depth == 0 && !code.contains('[') => return None,
                    '{' => depth += 1,
                    '}' if depth == 1 => return Some((start + 1, i + 1 - start)),
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
        None
    })
}

fn is_function(code: &str) -> bool {
    let Some((before, after)) = code.split_once("fn ") else { return false };
    let words_only = before.chars().all(|c| c.is_alphanumeric() || " _()\":".contains(c));
    words_only && after.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A reason in the comments and attributes right above line `number`.
fn has_reason(source: &Source, number: usize) -> bool {
    let above = source.lines[..number - 1].iter().rev();
    let mut above =
        above.take_while(|line| line.trim_start().starts_with("//") || line.trim_start().starts_with('#'));
    above.any(|line| line.contains(REASON))
}
