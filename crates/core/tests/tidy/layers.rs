//! Rules of the layers: who may depend on whom, and who may touch clocks, sockets and status codes.

use std::collections::BTreeSet;

use super::source::Source;
use crate::Finding;

/// What each crate may depend on, of our own.
const BELOW: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("http", &[]),
    ("settings", &["tidegate-core"]),
    ("kernel", &["tidegate-core"]),
    ("gateway", &["tidegate-core", "tidegate-http", "tidegate-settings", "tidegate-kernel"]),
    ("lab", &["tidegate-core", "tidegate-http", "tidegate-settings", "tidegate-kernel", "tidegate-gateway"]),
    ("analyze", &["tidegate-core"]),
    (
        "cli",
        &[
            "tidegate-core",
            "tidegate-settings",
            "tidegate-kernel",
            "tidegate-gateway",
            "tidegate-lab",
            "tidegate-analyze",
        ],
    ),
];

/// Everything the core may depend on. A list of what is allowed: of what is forbidden there is no complete
/// one.
const CORE_DEPENDENCIES: [&str; 9] =
    ["arrayvec", "base64", "hmac", "ipnet", "loom", "memchr", "sha2", "subtle", "thiserror"];

/// What the core never names, because it is given to it (time, randomness) or done by others (the rest).
const CORE_FORBIDDEN: [&str; 17] = [
    "Instant::now",
    "SystemTime",
    "UNIX_EPOCH",
    "thread_rng",
    "rand::rng",
    "rand::random",
    "getrandom",
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "thread::spawn",
    "async fn",
    "tokio",
    "hyper",
];

/// The switch of deliberate faults is in no release (a feature of tests): it alone reads the environment.
const MUTANTS: &str = "crates/core/src/mutants.rs";

/// The only place of the gateway that reads a clock. `tokio::time::Instant`, which timers need, is the
/// runtime's own: it stands still when a test stops the time. (`clippy.toml` sees through re-exports; this
/// sees the import.)
const CLOCK: &str = "crates/gateway/src/base/clock.rs";
const CLOCKS: [&str; 4] = ["std::time::Instant", "SystemTime", "clock_gettime", "UNIX_EPOCH"];

/// What an answer is made with.
const ANSWERS: [&str; 2] = ["StatusCode", "ResponseHead::new"];
/// Where answers are made. A status anywhere else would be a decision in the wrong place.
const MAY_ANSWER: [&str; 6] =
    ["proxy/respond", "proxy/http2", "http/http1", "http/http2", "config/page", "admin"];
/// The side of the origin, and of other applications, which reads the statuses that those have chosen.
const MAY_READ: [&str; 8] = [
    "proxy/stages/forward",
    "proxy/stages/coalesce",
    "shared/coalesce",
    "upstream",
    "control/health",
    "http/hygiene",
    "http/visitor_link",
    "config/authoriser",
];

/// Who starts dependency sections that count (tests and builds may use more).
const COUNTED: [&str; 2] = ["dependencies", "target."];

/// Dependencies point one way, and the core's are few.
pub fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let krate = path.split('/').nth(1).unwrap_or_default();
    let Some((_, below)) = BELOW.iter().find(|(name, _)| *name == krate) else {
        return vec![Finding::new(
            path,
            1,
            "a crate that the layers do not know: name it in tests/tidy/layers.rs",
        )];
    };
    let mut findings = Vec::new();
    let mut counted = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(section) = line.strip_prefix('[') {
            counted = COUNTED.iter().any(|start| section.starts_with(start)) && !section.contains("dev-dep");
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let is_ours = name.starts_with("tidegate-");
        if is_ours && !below.contains(&name) {
            findings.push(Finding::new(path, number, format!("{krate} must not depend on {name}")));
        }
        if counted && is_ours && line.contains("\"mutants\"") {
            findings.push(Finding::new(path, number, "deliberate faults belong to tests: a dev-dependency"));
        }
        let names_crate = counted && !name.is_empty() && !name.starts_with('#') && !is_ours;
        if krate == "core" && names_crate && !CORE_DEPENDENCIES.contains(&name) {
            findings.push(Finding::new(path, number, format!("the core decides, it needs no {name}")));
        }
    }
    findings
}

/// What a file may name, by the crate it lies in.
pub fn check(source: &Source) -> Vec<Finding> {
    let Some(below) = source.below_src() else { return Vec::new() };
    let first_test = source.first_test_line();
    let mut findings = Vec::new();
    let mut forbid = |line: usize, what: String| findings.push(Finding::new(&source.path, line, what));
    for (number, code) in source.numbered().take_while(|(number, _)| *number < first_test) {
        if source.krate() == "core" {
            let may_read = |name: &str| name == "std::env" && source.path == MUTANTS;
            for name in CORE_FORBIDDEN.iter().filter(|name| contains_name(code, name) && !may_read(name)) {
                forbid(number, format!("the core never names {name}"));
            }
        }
        if source.krate() == "gateway" && source.path != CLOCK {
            for name in CLOCKS.iter().filter(|name| contains_name(code, name)) {
                forbid(number, format!("{name}: the gateway reads the clock in clock.rs only"));
            }
            if code.contains("std::time::{") && contains_name(code, "Instant") {
                forbid(number, "Instant: the gateway reads the clock in clock.rs only".into());
            }
        }
        let answers = MAY_ANSWER.iter().chain(&MAY_READ).any(|stem| below.starts_with(stem));
        if source.krate() == "gateway" && !answers {
            for name in ANSWERS.iter().filter(|name| contains_name(code, name)) {
                forbid(number, format!("{name} belongs to {MAY_ANSWER:?}"));
            }
        }
    }
    findings
}

/// `name` in `code`, not as the middle of a longer word.
pub fn contains_name(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| !code[..at].chars().next_back().is_some_and(is_word))
}

/// Every module that is declared has its file, and every file is declared by the file above it.
pub fn check_modules(sources: &[Source]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let mut declared = BTreeSet::new();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.below_src().is_some()) {
        for (number, code) in source.numbered() {
            let Some(name) = declared_module(code) else { continue };
            let candidates = module_files(&source.path, name);
            match candidates.iter().find(|path| paths.contains(path.as_str())) {
                Some(path) => drop(declared.insert(path.clone())),
                // A module named by #[path] is found by the compiler.
                None if number > 1 && source.code[number - 2].contains("#[path") => {}
                None => {
                    findings.push(Finding::new(&source.path, number, format!("no file for `mod {name}`")))
                }
            }
        }
    }
    for source in sources {
        let Some(below) = source.below_src() else { continue };
        let is_root = matches!(below, "lib.rs" | "main.rs") || below.starts_with("bin/");
        let named = sources.iter().any(|other| {
            let name = format!("\"{}\"", source.path.rsplit('/').next().unwrap_or_default());
            other.lines.iter().any(|line| line.contains("#[path") && line.contains(&name))
        });
        if !is_root && !named && !declared.contains(&source.path) {
            findings.push(Finding::new(&source.path, 1, "no `mod` declares this file"));
        }
    }
    findings
}

/// `name` of a line such as `pub(crate) mod name;`.
fn declared_module(code: &str) -> Option<&str> {
    let (before, after) = code.split_once("mod ")?;
    let visibility = before.trim();
    let plain = visibility.is_empty() || visibility.starts_with("pub") || visibility.starts_with("#[cfg");
    let name = after.trim().strip_suffix(';')?;
    (plain && !name.is_empty()).then_some(name)
}

/// Where the module `name` of the file `path` may lie.
fn module_files(path: &str, name: &str) -> [String; 2] {
    let (dir, file) = path.rsplit_once('/').unwrap_or_default();
    let stem = file.trim_end_matches(".rs");
    let dir = if matches!(stem, "lib" | "main" | "mod") { dir.to_owned() } else { format!("{dir}/{stem}") };
    [format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")]
}
