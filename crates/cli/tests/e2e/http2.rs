//! HTTP/2 with other programs: all of h2spec, curl, and one gate in front of another by TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::certificates::Authority;
use super::harness::{Config, Gate, free_address};
use super::http::Client;
use super::nginx::Nginx;

/// What begins neither as HTTP/2 nor as a request gets HTTP/1.1's 400 without TLS, where h2spec expects an
/// end without a word (section 3.5, case 2).
const NOT_WITHOUT_TLS: &str = "Sends invalid connection preface";

/// `scripts/test` puts it there; go, where it puts what it installs.
fn h2spec(at: SocketAddr, more: &[&str]) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let bin = std::env::var_os("GOBIN").map_or_else(|| home.join("go/bin"), PathBuf::from);
    let out = Command::new(bin.join("h2spec"))
        .args(["--host", &at.ip().to_string(), "--port", &at.port().to_string(), "--timeout", "20"])
        .args(["--path", "/page"])
        .args(more)
        .output()
        .expect("h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A gate with `listen.https` for `localhost`, before nginx.
fn gate(origin: &Nginx, authority: &Authority) -> (Gate, SocketAddr) {
    let at = free_address();
    let signed = authority.sign("local", &["localhost"]);
    let config = Config::new(&[origin.address()]).text("listen.https", at).section(&signed.section());
    (Gate::start(config), at)
}

#[test]
fn all_of_h2spec_passes() {
    let (origin, authority) = (Nginx::start("a"), Authority::new());
    let (gate, https) = gate(&origin, &authority);
    let report = h2spec(gate.http(), &[]);
    let failed = report.lines().map(str::trim).filter(|line| line.starts_with('×'));
    let unexpected: Vec<&str> = failed.filter(|case| !case.ends_with(NOT_WITHOUT_TLS)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}\n{report}");
    assert!(report.contains("145 tests, 144 passed, 0 skipped, 1 failed"), "{report}");
    let report = h2spec(https, &["--tls", "--insecure"]);
    assert!(report.contains("145 tests, 145 passed, 0 skipped, 0 failed"), "{report}");
}

#[test]
fn curl_is_offered_http_2_in_tls() {
    let (origin, authority) = (Nginx::start("a"), Authority::new());
    let (_gate, at) = gate(&origin, &authority);
    for (flag, version) in [("--http2", "HTTP/2 200"), ("--http1.1", "HTTP/1.1 200")] {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--include", "--max-time", "60", flag, "--cacert"]);
        command.arg(authority.ca()).arg(format!("https://localhost:{}/page", at.port()));
        let output = command.output().expect("curl");
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.starts_with(version) && answer.contains("a page of the shop"), "{flag}: {output:?}");
    }
}

/// A gate is an origin of HTTP/2, too: `Via` tells what each hop was.
#[test]
fn an_origin_chooses_its_protocol_in_tls() {
    let (origin, authority) = (Nginx::start("a"), Authority::new());
    let (_gate, at) = gate(&origin, &authority);
    for (protocol, via) in [("h2", "2.0 tidegate"), ("auto", "2.0 tidegate"), ("http1", "1.1 tidegate")] {
        let before = Config::new(&[])
            .set("origin.replicas", format!("[\"https://localhost:{}\"]", at.port()))
            .text("origin.ca", authority.ca().display())
            .text("origin.protocol", protocol)
            .text("origin.health.path", "/page")
            .text("origin.health.every", "100ms");
        let before = Gate::start(before);
        let mut client = Client::connect(before.http()).unwrap();
        for _ in 0..3 {
            let answer = client.get("/page", "").unwrap();
            assert_eq!(answer.status(), 200, "{protocol}");
            let said = answer.head.field("via").unwrap_or_default().to_owned();
            assert!(said.ends_with(via), "{protocol}: {said}");
        }
    }
}
