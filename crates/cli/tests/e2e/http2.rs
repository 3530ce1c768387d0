//! HTTP/2 against h2spec: all of its cases, those that a port of two protocols answers otherwise by name.

use std::path::PathBuf;
use std::process::Command;

use super::harness::{Config, Gate};
use super::nginx::Nginx;

/// What begins neither as HTTP/2 nor as a request gets HTTP/1.1's 400, where h2spec expects an end without a
/// word (section 3.5, case 2).
const NOT_HERE: &str = "Sends invalid connection preface";

/// `scripts/test` puts it there; go, where it puts what it installs.
fn h2spec() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let gobin = std::env::var_os("GOBIN").map_or_else(|| home.join("go/bin"), PathBuf::from);
    gobin.join("h2spec")
}

#[test]
fn all_of_h2spec_passes() {
    let origin = Nginx::start("a");
    let gate = Gate::start(Config::new(&[origin.address()]));
    let address = gate.http();
    let out = Command::new(h2spec())
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string(), "--timeout", "20"])
        .args(["--path", "/page"])
        .output()
        .expect("h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest");
    let report = String::from_utf8_lossy(&out.stdout);
    let failed: Vec<&str> = report.lines().map(str::trim).filter(|line| line.starts_with('×')).collect();
    // Each failure is in the list of cases, and again at the end.
    assert!(failed.iter().all(|case| case.ends_with(NOT_HERE)), "{failed:#?}\n{report}");
    assert!(report.contains("145 tests, 144 passed, 0 skipped, 1 failed"), "{report}");
}
