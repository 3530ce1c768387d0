//! TLS of connections that the gate makes, to `openssl s_server`.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::certificates::{Authority, Signed};
use super::harness::{Config, Gate, Running, free_address, wait_for};
use super::http::Client;

/// `openssl s_server` with a certificate, in the directory of its authority.
fn server(authority: &Authority, signed: &Signed, more: &[&str]) -> (Running, SocketAddr) {
    let at = free_address();
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-accept", &at.to_string(), "-cert"]).arg(&signed.cert);
    command.arg("-key").arg(&signed.key).args(more).current_dir(authority.dir());
    let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("the server to listen", || std::net::TcpStream::connect(at).ok());
    (running, at)
}

/// A gate before it, whose replica has this name.
fn config(at: SocketAddr, name: &str) -> Config {
    Config::new(&[]).set("origin.replicas", format!("[\"https://{name}:{}\"]", at.port()))
}

#[track_caller]
fn status(gate: &Gate) -> u16 {
    Client::connect(gate.http()).unwrap().get("/", "Connection: close\r\n").unwrap().status()
}

/// What is tried, how the gate is configured for it, the status of its answer.
type Case<'a> = (&'a str, &'a dyn Fn(Config) -> Config, u16);

#[test]
fn only_the_origin_that_is_meant_is_believed() {
    let authority = Authority::new();
    let local = authority.sign("local", &["localhost"]);
    let (_server, at) = server(&authority, &local, &["-www"]);
    let ca = authority.ca();
    let cases: [Case<'_>; 6] = [
        ("its name and authority", &|c| c.text("origin.ca", ca.display()), 200),
        ("an unknown authority", &|c| c, 502),
        (
            "another name",
            &|c| c.text("origin.ca", ca.display()).text("origin.server_name", "shop.example"),
            502,
        ),
        ("another authority, not verified", &|c| c.set("origin.verify", false), 200),
        (
            "an address, and the name that is meant",
            &|c| {
                let replica = format!("[\"https://127.0.0.1:{}\"]", at.port());
                c.text("origin.ca", ca.display())
                    .text("origin.server_name", "localhost")
                    .set("origin.replicas", replica)
            },
            200,
        ),
        (
            "an address that is not in the certificate",
            &|c| {
                let replica = format!("[\"https://127.0.0.1:{}\"]", at.port());
                c.text("origin.ca", ca.display()).set("origin.replicas", replica)
            },
            502,
        ),
    ];
    for (what, change, expected) in cases {
        let gate = Gate::start(change(config(at, "localhost")));
        for _ in 0..2 {
            assert_eq!(status(&gate), expected, "{what}");
        }
        assert_eq!(gate.log().contains("not verified"), what.contains("not verified"), "{what}");
    }
    let expired = authority.expired("expired", &["localhost"]);
    let (_server, at) = server(&authority, &expired, &["-www"]);
    let gate = Gate::start(config(at, "localhost").text("origin.ca", ca.display()));
    assert_eq!(status(&gate), 502);
}

#[test]
fn the_gate_shows_its_certificate_and_checks_health_by_tls() {
    let authority = Authority::new();
    let (local, own) = (authority.sign("local", &["localhost"]), authority.sign("gate", &["gate.example"]));
    let only_known = ["-www", "-Verify", "1", "-verify_return_error", "-CAfile", "ca.pem"];
    let (_server, at) = server(&authority, &local, &only_known);
    let base =
        config(at, "localhost").text("origin.ca", authority.ca().display()).text("origin.health.path", "/");
    let known = base
        .clone()
        .text("origin.certificate", own.cert.display())
        .text("origin.key", own.key.display())
        .text("origin.health.every", "100ms")
        .set("origin.health.fall", 1);
    let gate = Gate::start(known);
    assert_eq!(status(&gate), 200);
    drop(gate);
    let unknown = Gate::start(base.text("origin.health.every", "100ms").set("origin.health.fall", 1));
    wait_for("the replica to be found down", || {
        let all = unknown.admin("GET", "/metrics", "").text();
        let line = all.lines().find(|line| line.starts_with("tidegate_replica_healthy{"))?;
        line.ends_with(" 0").then_some(())
    });
}

#[test]
fn figures_are_read_by_tls() {
    let authority = Authority::new();
    let local = authority.sign("local", &["localhost"]);
    fs::write(authority.dir().join("metrics"), "depth 7\n").unwrap();
    let (_server, at) = server(&authority, &local, &["-WWW"]);
    let detector = format!(
        "name = \"queue\"\nkind = \"host\"\nsource = \"https://localhost:{}/metrics\"\nfigure = \"depth\"\nred = 100\nevery = \"200ms\"\n",
        at.port()
    );
    let origin = super::origin::Origin::answering("served");
    let config = Config::new(&[origin.address()]).detector(&detector);
    let reading = |gate: &Gate| {
        let all = gate.admin("GET", "/metrics", "").text();
        let line = all.lines().find(|line| line.starts_with("tidegate_detector_reading{"))?;
        Some(line.rsplit(' ').next()?.to_owned())
    };
    let gate = Gate::start(config.clone().text("tls.ca", authority.ca().display()));
    assert_eq!(wait_for("a reading", || reading(&gate)), "7");
    drop(gate);
    // Without its authority it is not believed.
    let gate = Gate::start(config);
    wait_for("the source to fail", || gate.log().contains("the source cannot be read").then_some(()));
    assert_eq!(reading(&gate), None);
}
