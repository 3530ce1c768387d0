//! Rules for every text file: white space, and nothing that belongs to one machine.

use crate::Finding;

/// Files whose white space is their own: generated, or cases of a test.
fn is_exempt(path: &str) -> bool {
    let by_name = ["LICENSE", "Cargo.lock", "package-lock.json"].iter().any(|name| path.ends_with(name));
    let is_case = path.contains("/tests/") && path.ends_with(".txt");
    by_name || is_case || path.starts_with("fuzz/") && !path.ends_with(".rs") || path.ends_with(".svg")
}

/// Paths of one machine and hosts of registries, written so that this file does not hold them.
fn machine_names() -> Vec<String> {
    let homes = ["work", "root", "home"].map(|dir| format!("/{dir}/"));
    let hosts =
        [["index", "crates.io"], ["registry", "npmjs.org"], ["static", "crates.io"], ["deb", "debian.org"]];
    homes.into_iter().chain(hosts.map(|parts| parts.join("."))).collect()
}

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| findings.push(Finding::new(path, line, what));
    let names = machine_names();
    let lock_file = path.ends_with("Cargo.lock") || path.ends_with("package-lock.json");
    for (number, line) in (1..).zip(text.split('\n')) {
        if !is_exempt(path) {
            if line.ends_with([' ', '\t', '\r']) {
                find(number, "white space at the end of the line".into());
            }
            if line.contains('\t') && !path.ends_with("Makefile") {
                find(number, "a tab".into());
            }
        }
        for name in names.iter().filter(|name| !lock_file && starts_path(line, name)) {
            find(number, format!("{name} belongs to one machine"));
        }
    }
    if !is_exempt(path) && !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        find(text.lines().count(), "a file ends with one line break".into());
    }
    findings
}

/// `name` in `line`, not as the middle of a longer path such as an URL's or a relative one's.
fn starts_path(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-*}".contains(c))
    })
}
