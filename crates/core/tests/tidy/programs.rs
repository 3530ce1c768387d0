//! Programs that tests start are in the list of what `scripts/test` installs: a machine that lacks one fails.

use std::collections::BTreeSet;

use super::source::Source;
use crate::Finding;

const START: &str = "Command::new(\"";

/// Commands of the list in `scripts/test`: the words COMMAND:PACKAGE of its function `packages`.
pub fn installed(script: &str) -> BTreeSet<String> {
    let function = script.split_once("\npackages() {\n").expect("scripts/test has a function `packages`").1;
    let body = function.split("\n}").next().unwrap_or_default();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
    let words = body.split(|c: char| c.is_whitespace() || "()".contains(c));
    let pairs = words.filter_map(|word| word.split_once(':'));
    pairs
        .filter(|(command, package)| [command, package].iter().all(|name| !name.is_empty() && is_name(name)))
        .map(|(command, _)| command.to_owned())
        .collect()
}

/// Literal names that are not in the list.
pub fn check(source: &Source, installed: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, code) in source.numbered() {
        for (at, _) in code.match_indices(START) {
            // Both have as many characters, not bytes.
            let before = code[..at].chars().count() + START.len();
            let name: String =
                source.lines[number - 1].chars().skip(before).take_while(|c| *c != '"').collect();
            if !installed.contains(&name) {
                let what =
                    format!("starts {name}, which scripts/test does not install: add it to `packages`");
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
    findings
}
