//! The layering and the habits of this code base, checked from its sources.
//!
//! Every broken rule is listed, with file and line, before the test fails. The rules themselves are tested on
//! small snippets, so that a rule which can no longer fail is noticed.

mod tidy {
    pub mod graph;
    pub mod layers;
    pub mod limits;
    pub mod programs;
    pub mod source;
    pub mod text;

    mod snippets;
}

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidy::graph::Graph;
use tidy::source::Source;

/// Crates whose import graph is free of circles already: the others join as they are cut.
const GRAPH_CHECKED: [&str; 8] = ["core", "http", "settings", "kernel", "gateway", "lab", "analyze", "cli"];

/// Crates whose lines are no longer than `max_width`, comments included: the others join as they are wrapped.
const WIDTH_CHECKED: [&str; 8] = ["core", "http", "settings", "kernel", "gateway", "lab", "analyze", "cli"];

/// A broken rule and where.
pub struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/core lies two below the root")
        .into()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every file that is, or is about to be, part of the project: what git tracks and what it does not ignore.
fn project_files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git");
    assert!(output.status.success(), "git ls-files");
    let names = String::from_utf8(output.stdout).expect("file names in UTF-8");
    names
        .split('\0')
        .filter(|name| !name.is_empty() && root().join(name).is_file())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_sources_keep_their_rules() {
    let files = project_files();
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for path in &files {
        // Pictures and fuzz corpora are no text.
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        findings.extend(tidy::text::check(path, &text));
        if path.ends_with(".rs") {
            sources.push(Source::new(path, &text));
        }
        if path.starts_with("crates/") && path.ends_with("/Cargo.toml") {
            findings.extend(tidy::layers::check_manifest(path, &text));
        }
    }
    assert!(sources.len() > 5, "the sources were found");
    let max_width = tidy::limits::max_width(&read("rustfmt.toml"));
    let programs = tidy::programs::installed(&read("scripts/test"));
    for source in &sources {
        if WIDTH_CHECKED.contains(&source.krate()) {
            findings.extend(tidy::limits::check_width(source, max_width));
        }
        findings.extend(tidy::programs::check(source, &programs));
        findings.extend(tidy::layers::check(source));
        findings.extend(tidy::limits::check(source));
    }
    findings.extend(tidy::layers::check_modules(&sources));
    for krate in GRAPH_CHECKED {
        let texts: Vec<_> =
            sources.iter().map(|source| (source.path.as_str(), source.lines.join("\n"))).collect();
        let found = Graph::new(krate, texts.iter().map(|(path, text)| (*path, text.as_str()))).check();
        findings.extend(found);
    }
    let report: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "{} rules broken:{report}", findings.len());
}
