//! Certificates by ACME, from Pebble: an authority for tests (`scripts/test` installs it).

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::certificates::Authority;
use super::harness::{Config, Gate, Running, free_address, wait_for};
use super::origin::Origin;

/// Where `scripts/test` installs it, or where `go install` does.
fn program() -> PathBuf {
    let tools = PathBuf::from(env!("CARGO_BIN_EXE_tidegate")).with_file_name("../tools/go/pebble");
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("go/bin/pebble");
    [tools, home].into_iter().find(|path| path.exists()).expect("pebble: scripts/test installs it")
}

struct Pebble {
    authority: Authority,
    directory: SocketAddr,
    _running: Running,
}

impl Pebble {
    /// Looks for challenges at these ports of `localhost`; its certificates live so long, in seconds.
    fn start(http: u16, https: u16, life: u32) -> Self {
        let authority = Authority::new();
        let own = authority.sign("pebble", &["localhost"]);
        let (directory, management) = (free_address(), free_address());
        let config = serde_json::json!({ "pebble": {
            "listenAddress": directory.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": own.cert, "privateKey": own.key,
            "httpPort": http, "tlsPort": https,
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
            "profiles": { "default": { "description": "for tests", "validityPeriod": life } },
        }});
        let file = authority.dir().join("pebble.json");
        fs::write(&file, config.to_string()).expect("a file");
        let mut command = Command::new(program());
        command.arg("-config").arg(file).env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "20");
        let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("the authority to listen", || std::net::TcpStream::connect(directory).ok());
        Self { authority, directory, _running: running }
    }

    fn config(&self, origin: &Origin, http: SocketAddr, https: SocketAddr) -> Config {
        Config::new(&[origin.address()])
            .text("listen.http", http)
            .text("listen.https", https)
            .set("listen.redirect_https", true)
            .text("acme.domains", "localhost")
            .text("acme.email", "operator@shop.example")
            .text("acme.directory", format_args!("https://localhost:{}/dir", self.directory.port()))
            .text("tls.ca", self.authority.ca().display())
    }
}

fn issued(gate: &Gate) -> u64 {
    let all = gate.admin("GET", "/metrics", "").text();
    let line = all.lines().find(|line| line.starts_with("tidegate_acme_orders_total{result=\"issued\"} "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a metric")
}

/// Serial number of the certificate that is shown, if one is.
fn serial(at: SocketAddr) -> Option<String> {
    let script = format!(
        "openssl s_client -connect {at} -servername localhost </dev/null 2>/dev/null | openssl x509 -noout -serial"
    );
    let output = Command::new("sh").arg("-c").arg(script).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.starts_with("serial=").then_some(text)
}

#[test]
fn a_certificate_is_issued_renewed_and_kept() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (http, https) = (free_address(), free_address());
        let (pebble, origin) = (Pebble::start(http.port(), https.port(), 20), Origin::answering("served"));
        let mut gate = Gate::start(pebble.config(&origin, http, https).text("acme.challenge", challenge));
        let first = wait_for("a certificate", || serial(https));
        let second = wait_for("another one", || serial(https).filter(|serial| *serial != first));
        assert!(issued(&gate) >= 2);
        // The last one is shown again at once, and no other is ordered before its time.
        drop(pebble);
        let last = serial(https).expect("a certificate");
        gate.crash_and_restart();
        assert_eq!(wait_for("the certificate that was kept", || serial(https)), last);
        assert_eq!(issued(&gate), 0);
        assert_ne!(first, second);
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "60"])
            .arg(format!("https://localhost:{}/", https.port()))
            .output()
            .expect("curl");
        assert_eq!(output.stdout, b"served");
    }
}

#[test]
fn an_authority_that_cannot_look_is_asked_again_and_the_gate_serves() {
    let (http, https) = (free_address(), free_address());
    // It looks at a port where nobody is.
    let (pebble, origin) = (Pebble::start(1, 1, 3600), Origin::answering("served"));
    let gate = Gate::start(pebble.config(&origin, http, https).set("listen.redirect_https", false));
    wait_for("the failure to be told", || gate.log().contains("no certificate").then_some(()));
    assert!(gate.log().contains("again_in_s=60"), "{}", gate.log());
    let answer = super::http::Client::connect(http).unwrap().get("/", "").unwrap();
    assert_eq!(answer.text(), "served");
}
