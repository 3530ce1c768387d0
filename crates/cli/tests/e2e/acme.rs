//! Certificates by ACME, from Pebble: an authority for tests (`scripts/test` installs it).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::certificates::Authority;
use super::harness::{Config, Gate, Running, free_address, wait_for};
use super::origin::Origin;

/// Where `go install` puts it.
fn program() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("go/bin");
    std::env::var_os("GOBIN").map_or_else(home, PathBuf::from).join("pebble")
}

/// A name server for which every name is 127.0.0.1: what `localhost` is first differs between machines.
/// Pebble asks by TCP.
fn name_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || while answer_query(&mut stream).is_some() {});
        }
    });
    at
}

/// RFC 1035, 4.1 and 4.2.2: a length before each message, a header of 12 bytes, then the name, which ends
/// with an empty label. `None`: the end.
fn answer_query(stream: &mut TcpStream) -> Option<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut query).ok()?;
    let end = 12 + query.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    let is_a = query.get(end - 4..end - 2)? == [0, 1];
    let counts = [0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
    let mut answer = [&query[..2], &[0x81, 0x80], &counts, &query[12..end]].concat();
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    let length = (answer.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &answer].concat()).ok()
}

struct Pebble {
    authority: Authority,
    directory: SocketAddr,
    running: Running,
}

impl Pebble {
    /// Looks for challenges at these ports of 127.0.0.1; its certificates live so long, in seconds.
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
        command
            .arg("-dnsserver")
            .arg(name_server().to_string())
            .arg("-config")
            .arg(file)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", "20");
        let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("the authority to listen", || std::net::TcpStream::connect(directory).ok());
        Self { authority, directory, running }
    }

    fn config(&self, origin: &Origin, http: SocketAddr, https: SocketAddr) -> Config {
        Config::new(&[origin.address()])
            .text("listen.http", http)
            .text("listen.https", https)
            .set("listen.redirect_https", true)
            .text("acme.domains", "shop.example")
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
        "openssl s_client -connect {at} -servername shop.example </dev/null 2>/dev/null \
         | openssl x509 -noout -serial"
    );
    let output = Command::new("sh").arg("-c").arg(script).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.starts_with("serial=").then_some(text)
}

#[test]
fn a_certificate_is_issued_renewed_and_kept() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (http, https) = (free_address(), free_address());
        let (mut pebble, origin) =
            (Pebble::start(http.port(), https.port(), 20), Origin::answering("served"));
        let mut gate = Gate::start(pebble.config(&origin, http, https).text("acme.challenge", challenge));
        let first = wait_for("a certificate", || serial(https));
        let second = wait_for("another one", || serial(https).filter(|serial| *serial != first));
        assert!(issued(&gate) >= 2);
        // The last one is shown again at once, and no other is ordered before its time.
        // The authority is gone; its root, which the settings name, stays.
        pebble.running.0.kill().expect("kill");
        let last = serial(https).expect("a certificate");
        gate.crash_and_restart();
        assert_eq!(wait_for("the certificate that was kept", || serial(https)), last);
        assert_eq!(issued(&gate), 0);
        assert_ne!(first, second);
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "60"])
            .args(["--resolve", &format!("shop.example:{}:127.0.0.1", https.port())])
            .arg(format!("https://shop.example:{}/", https.port()))
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
