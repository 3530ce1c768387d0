//! TLS to visitors, with curl and `openssl s_client` as clients.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::certificates::{Authority, Signed};
use super::harness::{Config, Gate, TempDir, free_address, tidegate, wait_for};
use super::http::Client;
use super::origin::Origin;

/// A gate with `listen.https`.
fn config(origin: &Origin, certificates: &[&Signed]) -> Config {
    let config = Config::new(&[origin.address()]).text("listen.https", free_address());
    certificates.iter().fold(config, |config, one| config.section(&one.section()))
}

fn https(config: &Config) -> SocketAddr {
    config.address("listen.https")
}

/// `curl` for `path` of the host `name`.
fn curl(authority: &Authority, name: &str, at: SocketAddr, path: &str, more: &[&str]) -> Output {
    let port = at.port();
    let mut command = Command::new("curl");
    command.args(["--http1.1", "--silent", "--show-error", "--include", "--max-time", "60", "--cacert"]);
    command.arg(authority.ca()).arg("--resolve").arg(format!("{name}:{port}:127.0.0.1"));
    command.args(more).arg(format!("https://{name}:{port}{path}"));
    command.output().expect("curl")
}

#[track_caller]
fn text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `openssl s_client` with a request on its standard input; all that it prints.
fn s_client(at: SocketAddr, more: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &at.to_string(), "-servername", "shop.example", "-ign_eof"]);
    command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("openssl");
    let request = b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    // It may have ended already: then its output says why.
    let _ = child.stdin.take().expect("a pipe").write_all(request);
    let output = child.wait_with_output().expect("openssl");
    [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned()).concat()
}

/// A sample of `/metrics`.
fn metric(gate: &Gate, sample: &str) -> u64 {
    let all = gate.admin("GET", "/metrics", "").text();
    let line = all.lines().find(|line| line.starts_with(sample) && line[sample.len()..].starts_with(' '));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{sample}: {all}"))
}

fn handshakes(gate: &Gate, result: &str) -> u64 {
    metric(gate, &format!("tidegate_tls_handshakes_total{{result=\"{result}\"}}"))
}

/// Waits until handshakes have had this result so often. Figures are those of the last tick.
#[track_caller]
fn counts(gate: &Gate, result: &str, n: u64) {
    wait_for(format_args!("{n} handshakes: {result}"), || (handshakes(gate, result) == n).then_some(()));
}

#[test]
fn certificates_are_chosen_by_name_in_both_versions() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let wild = authority.sign("wild", &["*.cdn.example", "cdn.example"]);
    let config = config(&origin, &[&shop, &wild]);
    let at = https(&config);
    let gate = Gate::start(config);
    for version in ["1.2", "1.3"] {
        let flags: &[&str] = &[&format!("--tlsv{version}"), "--tls-max", version];
        for name in ["shop.example", "cdn.example", "a.cdn.example", "SHOP.example"] {
            let answer = text(&curl(&authority, name, at, "/", flags));
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("served"), "{name}: {answer}");
        }
        // curl does not accept the default certificate for these.
        for name in ["other.example", "a.b.cdn.example"] {
            let output = curl(&authority, name, at, "/", flags);
            assert_eq!(output.status.code(), Some(60), "{name}: {output:?}");
        }
    }
    let seen = origin.seen();
    assert_eq!(seen[0].field("x-forwarded-proto"), Some("https"));
    assert!(seen[0].field("forwarded").is_some_and(|said| said.contains("proto=https")), "{:?}", seen[0]);
    // curl looks at names after the handshake.
    counts(&gate, "full", 12);
    assert!(
        metric(&gate, "tidegate_tls_certificate_expires_timestamp_seconds{certificate=\"shop.example\"}") > 0
    );
}

#[test]
fn sessions_resume_at_any_worker_and_after_a_reload() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = config(&origin, &[&shop]);
    let at = https(&config);
    let gate = Gate::start(config);
    let dir = TempDir::new();
    let (mut resumed, kept) = (0, dir.path().join("session"));
    let kept = kept.to_str().expect("UTF-8");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = s_client(at, &[version, "-sess_out", kept]);
        assert!(first.contains("New, TLSv1"), "{first}");
        for n in 0..12 {
            if n == 6 {
                assert!(gate.admin("POST", "/v1/reload", "").status() < 300);
            }
            let again = s_client(at, &[version, "-sess_in", kept]);
            assert!(again.contains("Reused, TLSv1") && again.contains("served"), "{again}");
            resumed += 1;
        }
    }
    counts(&gate, "resumed", resumed);
    counts(&gate, "full", 2);
}

#[test]
fn a_reload_shows_another_certificate_and_drops_nobody() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let (other, shop) = (Authority::new(), authority.sign("shop", &["shop.example"]));
    let config = config(&origin, &[&shop]);
    let at = https(&config);
    let gate = Gate::start(config);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    // All that the test trusts: which of both is shown changes meanwhile.
                    while !over.load(Ordering::Relaxed) {
                        let output = curl(&authority, "shop.example", at, "/", &["--insecure"]);
                        assert!(text(&output).ends_with("served"));
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        for round in 0..4 {
            let ca = [&other, &authority][round % 2];
            let next = ca.sign("next", &["shop.example"]);
            fs::copy(&next.cert, &shop.cert).expect("copy");
            fs::copy(&next.key, &shop.key).expect("copy");
            gate.signal("HUP");
            wait_for("the other certificate", || {
                let output = curl(ca, "shop.example", at, "/", &[]);
                output.status.success().then_some(())
            });
        }
        over.store(true, Ordering::Relaxed);
        assert!(visitors.into_iter().all(|visitor| visitor.join().expect("a visitor was dropped") > 0));
    });
    assert_eq!(handshakes(&gate, "timeout"), 0);
}

#[test]
fn a_bad_certificate_changes_nothing_at_a_reload() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = config(&origin, &[&shop]);
    let at = https(&config);
    let gate = Gate::start(config);
    fs::copy(authority.sign("other", &["shop.example"]).key, &shop.key).expect("copy");
    let answer = gate.admin("POST", "/v1/reload", "");
    assert_eq!(answer.status(), 422, "{answer:?}");
    assert!(answer.text().contains("the key of the first certificate"), "{}", answer.text());
    assert!(text(&curl(&authority, "shop.example", at, "/", &[])).ends_with("served"));
}

#[test]
fn the_origin_learns_who_showed_a_certificate_and_nobody_forges_it() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let visitors = Authority::new();
    let shop = authority.sign("shop", &["shop.example"]);
    let config = config(&origin, &[&shop])
        .text("tls.client_auth", "optional")
        .text("tls.client_ca", visitors.ca().display());
    let at = https(&config);
    let mut gate = Gate::start(config);
    let forged = ["--header", "X-Client-Cert-Subject: CN=root", "--header", "X_Client_Cert_Subject: CN=root"];
    let ask = |more: &[&str]| curl(&authority, "shop.example", at, "/", more);
    let with = |signed: &Signed| -> Vec<String> {
        ["--cert", signed.cert.to_str().unwrap(), "--key", signed.key.to_str().unwrap()]
            .map(String::from)
            .into()
    };
    let last = || {
        let head = origin.seen().pop().expect("a request");
        assert_eq!(head.field("x_client_cert_subject"), None);
        head.field("x-client-cert-subject").map(str::to_owned)
    };
    let alice = visitors.sign_as("alice", &[], |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Müller, Söhne");
        params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    });
    let alice = with(&alice);
    let alice: Vec<&str> = alice.iter().map(String::as_str).collect();
    assert!(text(&ask(&forged)).ends_with("served"));
    assert_eq!(last(), None);
    assert!(text(&ask(&[&alice[..], &forged[..]].concat())).ends_with("served"));
    assert_eq!(last().as_deref(), Some("CN=alice,O=M\\C3\\BCller\\, S\\C3\\B6hne"));
    // Of another authority.
    let mallory = with(&authority.sign("mallory", &[]));
    let mallory: Vec<&str> = mallory.iter().map(String::as_str).collect();
    assert!(!ask(&mallory).status.success());
    gate.write_config(|config| config.text("tls.client_auth", "required"));
    assert!(gate.admin("POST", "/v1/reload", "").status() < 300);
    assert!(!ask(&[]).status.success());
    assert!(text(&ask(&alice)).ends_with("served"));
    counts(&gate, "failed", 2);
    // Nor does anybody forge it without TLS.
    let mut client = Client::connect(gate.http()).unwrap();
    client.get("/", "X-Client-Cert-Subject: CN=root\r\n").unwrap();
    assert_eq!(last(), None);
}

#[test]
fn an_ocsp_response_is_sent_with_its_certificate() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let dir = authority.dir().to_owned();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(&dir).output().expect("openssl");
        text(&output)
    };
    let serial = openssl(&["x509", "-in", "shop.pem", "-noout", "-serial"]);
    let serial = serial.trim().trim_start_matches("serial=");
    fs::write(dir.join("index.txt"), format!("V\t400101000000Z\t\t{serial}\tunknown\t/CN=shop\n")).unwrap();
    openssl(&["ocsp", "-issuer", "ca.pem", "-cert", "shop.pem", "-reqout", "request.der", "-no_nonce"]);
    let by = ["-index", "index.txt", "-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey", "ca-key.pem"];
    let respond = ["-reqin", "request.der", "-respout", "response.der", "-ndays", "7"];
    openssl(&[&["ocsp"], &by[..], &respond[..]].concat());
    let response = dir.join("response.der");
    let config = config(&origin, &[&shop]).section(&format!("ocsp = {response:?}\n"));
    let at = https(&config);
    let gate = Gate::start(config);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = s_client(at, &[version, "-status", "-CAfile", authority.ca().to_str().unwrap()]);
        assert!(said.contains("OCSP Response Status: successful"), "{said}");
        assert!(said.contains("Cert Status: good"), "{said}");
    }
    drop(gate);
}

#[test]
fn visitors_without_tls_are_sent_to_it() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = config(&origin, &[&shop]).set("listen.redirect_https", true).set("proxy.trusted", "\"::1\"");
    let port = https(&config).port();
    let gate = Gate::start(config);
    let mut client = Client::connect(gate.http()).unwrap();
    let answer = client.get("/a?b=c", "").unwrap();
    assert_eq!(answer.status(), 308);
    assert_eq!(answer.head.field("location"), Some(&*format!("https://shop.example:{port}/a?b=c")));
    // Authorities look there without TLS.
    assert_eq!(client.get("/.well-known/acme-challenge/x", "").unwrap().status(), 200);
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn cookies_of_the_gate_are_only_for_tls_there() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = Config::waiting(&[origin.address()], 0.01)
        .text("listen.https", free_address())
        .section(&shop.section());
    let at = https(&config);
    let gate = Gate::start(config);
    let cookies = |answer: &str| -> Vec<String> {
        answer
            .lines()
            .filter(|l| l.to_ascii_lowercase().starts_with("set-cookie:"))
            .map(str::to_owned)
            .collect()
    };
    let answer = wait_for("a waiting page", || {
        let answer = text(&curl(&authority, "shop.example", at, "/", &["--header", "Accept: text/html"]));
        answer.starts_with("HTTP/1.1 503").then_some(answer)
    });
    let set = cookies(&answer);
    assert!(!set.is_empty() && set.iter().all(|cookie| cookie.contains("Secure")), "{answer}");
    let plain = Client::connect(gate.http()).unwrap().get("/", "Accept: text/html\r\n").unwrap();
    let set: Vec<_> =
        plain.head.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).collect();
    assert!(!set.is_empty() && set.iter().all(|(_, cookie)| !cookie.contains("Secure")), "{set:?}");
}

#[test]
fn what_does_not_speak_tls_is_counted_and_ended() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = config(&origin, &[&shop]).text("limits.header_timeout", "1s").text("tls.min_version", "1.3");
    let at = https(&config);
    let gate = Gate::start(config);
    assert!(Client::connect(at).unwrap().get("/", "").is_err());
    let old = curl(&authority, "shop.example", at, "/", &["--tls-max", "1.2"]);
    assert_eq!(old.status.code(), Some(35), "{old:?}");
    counts(&gate, "failed", 2);
    let silent = TcpStream::connect(at).unwrap();
    counts(&gate, "timeout", 1);
    assert_eq!(std::io::Read::read(&mut &silent, &mut [0]).unwrap_or(0), 0);
    wait_for("its connection to be given back", || {
        (metric(&gate, "tidegate_open_connections") == 0).then_some(())
    });
}

/// What `tidegate check` says of a file with these lines after an origin.
fn check(dir: &Path, lines: &str) -> String {
    let file = dir.join("shop.toml");
    fs::write(&file, format!("origin.replicas = \"app:80\"\nlisten.https = \"0.0.0.0:443\"\n{lines}"))
        .unwrap();
    let output = tidegate().arg("check").arg(&file).output().expect("tidegate check");
    let said = String::from_utf8_lossy(&output.stderr).replace(&*dir.to_string_lossy(), "DIR");
    [format!("{:?}\n", output.status.code().unwrap_or(-1)), said].concat()
}

// Long because: it is one table of mistakes.
#[test]
fn check_tells_mistakes_of_certificates_with_their_line() {
    let authority = Authority::new();
    let dir = authority.dir();
    let (shop, other) = (authority.sign("shop", &["shop.example"]), authority.sign("other", &["b.example"]));
    authority.expired("old", &["shop.example"]);
    let openssl = |line: &str| {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(dir).output().expect("openssl");
        assert!(output.status.success(), "{output:?}");
    };
    openssl("req -x509 -newkey rsa:1024 -nodes -keyout weak-key.pem -out weak.pem -subj /CN=a.example");
    openssl("req -newkey rsa:2048 -nodes -keyout sha1-key.pem -out sha1.csr -subj /CN=a.example");
    openssl("x509 -req -in sha1.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -sha1 -out sha1.pem");
    fs::write(dir.join("noise.pem"), "nothing\n").unwrap();
    let section = |cert: &str, key: &str| {
        format!("[[certificate]]\ncert = \"{}/{cert}\"\nkey = \"{}/{key}\"\n", dir.display(), dir.display())
    };
    let good = section("shop.pem", "shop-key.pem");
    for (lines, expected) in [
        (good.clone(), ": ok"),
        (
            String::new(),
            "shop.toml:2:16: listen.https: expected a [[certificate]] or `acme.domains` beside it; got none.",
        ),
        (
            section("none.pem", "shop-key.pem"),
            "shop.toml:4:8: certificate.#1.cert: expected the path of a readable file",
        ),
        (
            section("noise.pem", "shop-key.pem"),
            "shop.toml:4:8: certificate.#1.cert: expected certificates in PEM",
        ),
        (
            section("shop.pem", "noise.pem"),
            "shop.toml:5:7: certificate.#1.key: expected a private key in PEM",
        ),
        (
            section("shop.pem", "other-key.pem"),
            "shop.toml:5:7: certificate.#1.key: expected the key of the first certificate in `cert`; got the key of another one.",
        ),
        (
            section("old.pem", "old-key.pem"),
            "shop.toml:4:8: certificate.#1.cert: expected a certificate that is valid; got one that expired at 2021-01-01T00:00:00Z.",
        ),
        (
            section("weak.pem", "weak-key.pem"),
            "shop.toml:4:8: certificate.#1.cert: expected RSA keys of at least 2048 bits; got one of 1024 bits.",
        ),
        (
            section("sha1.pem", "sha1-key.pem"),
            "shop.toml:4:8: certificate.#1.cert: expected certificates signed with SHA-256 or better; got one signed with SHA-1.",
        ),
        (
            format!("{good}ocsp = \"{}/noise.pem\"\n", dir.display()),
            "shop.toml:6:8: certificate.#1.ocsp: expected a successful OCSP response in DER",
        ),
        (
            format!("tls.client_auth = \"required\"\n{good}"),
            "shop.toml:3:19: tls.client_auth: expected `tls.client_ca`",
        ),
        (
            format!("tls.client_ca = \"{}/ca.pem\"\n{good}", dir.display()),
            "shop.toml:3:17: tls.client_ca: expected `tls.client_auth`",
        ),
        (
            "listen.admin_https = true\n".to_owned(),
            "shop.toml:3:22: listen.admin_https: expected a [[certificate]] or `acme.domains` beside it",
        ),
        (
            format!("tls.ca = \"{}/noise.pem\"\n{good}", dir.display()),
            "shop.toml:3:10: tls.ca: expected certificates of authorities in PEM; got none.",
        ),
    ] {
        let said = check(dir, &lines);
        let is_good = expected == ": ok";
        assert_eq!(said.starts_with("0\n"), is_good, "{lines}: {said}");
        assert!(is_good || said.contains(expected), "{expected}\n{lines}: {said}");
    }
    drop((shop, other));
}

#[test]
fn a_gate_starts_with_an_expired_certificate_and_says_so() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let old = authority.expired("old", &["shop.example"]);
    let config = config(&origin, &[&old]);
    let at = https(&config);
    let gate = Gate::start(config);
    assert!(text(&curl(&authority, "shop.example", at, "/", &["--insecure"])).ends_with("served"));
    assert!(gate.log().contains("expired"), "{}", gate.log());
}
