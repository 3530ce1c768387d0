//! The PROXY protocol, in and out, and Unix sockets.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

use super::certificates::Authority;
use super::harness::{Config, Gate, TempDir, free_address, wait_for};
use super::http::{Client, read_head};
use super::origin::Origin;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";

fn refused(gate: &Gate) -> u64 {
    let all = gate.admin("GET", "/metrics", "").text();
    let line = all.lines().find(|line| line.starts_with("tidegate_proxy_headers_refused_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a metric")
}

/// The gate's answer to a header and a request; empty: the connection was closed.
fn answer(gate: &Gate, header: &[u8]) -> String {
    let mut client = TcpStream::connect(gate.http()).unwrap();
    // The gate may have closed it before all is written.
    let _ = client.write_all(&[header, REQUEST.as_bytes()].concat());
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    String::from_utf8(all).unwrap()
}

#[test]
fn a_trusted_proxy_names_the_visitor() {
    let origin = Origin::answering("served");
    let config = Config::new(&[origin.address()])
        .text("listen.proxy_protocol", "any")
        .text("proxy.trusted", "127.0.0.0/8");
    let mut gate = Gate::start(config);
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x7f\0\0\x01\0\x05\0\x50";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, named) in [
        (&b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"[..], "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 5 80\r\n", "2001:db8::7"),
        (v2, "192.0.2.7"),
        (local, "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    ] {
        assert!(answer(&gate, header).ends_with("served"), "{header:?}");
        let head = origin.seen().pop().unwrap();
        assert_eq!(head.field("x-forwarded-for"), Some(named), "{head:?}");
    }
    // Without a header, or with half of one: nobody is served.
    for header in [&b""[..], b"PROXY TCP4 192.0.2.7\r\n", b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\n"] {
        assert_eq!(answer(&gate, header), "", "{header:?}");
    }
    wait_for("the refusals to be counted", || (refused(&gate) == 3).then_some(()));
    gate.write_config(|config| config.text("listen.proxy_protocol", "v2"));
    assert!(gate.admin("POST", "/v1/reload", "").status() < 300);
    assert_eq!(answer(&gate, b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"), "");
    assert!(answer(&gate, v2).ends_with("served"));
    // Only who is trusted may name anybody.
    gate.write_config(|config| config.text("proxy.trusted", "192.0.2.0/24"));
    assert!(gate.admin("POST", "/v1/reload", "").status() < 300);
    assert_eq!(answer(&gate, v2), "");
    wait_for("the refusals to be counted", || (refused(&gate) == 5).then_some(()));
}

#[test]
fn the_visitor_is_named_before_the_handshake() {
    let (authority, origin) = (Authority::new(), Origin::answering("served"));
    let shop = authority.sign("shop", &["shop.example"]);
    let config = Config::new(&[origin.address()])
        .text("listen.https", free_address())
        .text("listen.proxy_protocol", "v1")
        .text("proxy.trusted", "127.0.0.1")
        .section(&shop.section());
    let at = config.address("listen.https");
    let _gate = Gate::start(config);
    let output = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60", "--haproxy-protocol", "--cacert"])
        .arg(authority.ca())
        .args(["--resolve", &format!("shop.example:{}:127.0.0.1", at.port())])
        .arg(format!("https://shop.example:{}/", at.port()))
        .output()
        .expect("curl");
    assert_eq!(output.stdout, b"served", "{output:?}");
    assert_eq!(origin.seen()[0].field("x-forwarded-for"), Some("127.0.0.1"));
}

/// Takes connections and tells their first bytes, a header and a head; answers each.
fn named_origin(listener: TcpListener) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut header = String::new();
            std::io::BufRead::read_line(&mut stream, &mut header).unwrap();
            let _ = tell.send(header);
            while read_head(&mut stream).is_ok() {
                let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved");
            }
        }
    });
    told
}

#[test]
fn the_origin_learns_the_visitor_of_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let told = named_origin(listener);
    let gate = Gate::start(Config::new(&[at]).text("origin.proxy_protocol", "v1"));
    for _ in 0..3 {
        let mut client = Client::connect(gate.http()).unwrap();
        let from = client.stream.get_ref().local_addr().unwrap();
        for _ in 0..2 {
            assert_eq!(client.get("/", "").unwrap().text(), "served");
            // One connection a request: none is another visitor's.
            let expected =
                format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), gate.http().port());
            assert_eq!(told.recv().unwrap(), expected);
        }
    }
}

#[test]
fn a_tcp_service_learns_the_visitor() {
    let (service, listener) = (free_address(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = listener.local_addr().unwrap();
    let told = named_origin(listener);
    let section =
        format!("\n[[tcp]]\nname = \"db\"\nlisten = \"{service}\"\nto = \"{to}\"\nproxy_protocol = \"v1\"\n");
    let _gate = Gate::start(Config::new(&[to]).section(&section));
    let mut client = Client::connect(service).unwrap();
    let from = client.stream.get_ref().local_addr().unwrap();
    assert_eq!(client.get("/", "").unwrap().text(), "served");
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), service.port());
    assert_eq!(told.recv().unwrap(), expected);
}

/// Answers with the visitor's address.
fn tell_visitor(mut stream: BufReader<UnixStream>) {
    while let Ok(head) = read_head(&mut stream) {
        let body = head.field("x-forwarded-for").unwrap_or_default().to_owned();
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let _ = stream.get_mut().write_all(answer.as_bytes());
    }
}

/// A gate that cannot listen there.
fn run_at(socket: &std::path::Path) -> std::process::Output {
    super::harness::tidegate()
        .args(["run", "--quiet", "--admin", "127.0.0.1:0", "--origin", "127.0.0.1:1", "--listen"])
        .arg(format!("unix:{}", socket.display()))
        .output()
        .expect("tidegate run")
}

#[test]
fn visitors_and_origin_may_be_at_unix_sockets() {
    let dir = TempDir::new();
    let (front, back) = (dir.path().join("front.sock"), dir.path().join("back.sock"));
    let listener = UnixListener::bind(&back).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || tell_visitor(BufReader::new(stream)));
        }
    });
    // Left there by a process that has ended.
    drop(UnixListener::bind(&front).unwrap());
    let config = Config::new(&[])
        .text("listen.http", format_args!("unix:{}", front.display()))
        .text("listen.unix_mode", "0600")
        .set("origin.replicas", format!("[\"unix:{}\"]", back.display()))
        .text("origin.health.path", "/");
    let mut gate = Gate::start(config);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&front).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    for _ in 0..8 {
        let mut client = UnixStream::connect(&front).unwrap();
        client.write_all(REQUEST.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("127.0.0.1"), "{answer}");
    }
    // Another gate does not take the socket away.
    let other = run_at(&front);
    assert!(!other.status.success());
    assert!(String::from_utf8_lossy(&other.stderr).contains("front.sock"), "{other:?}");
    UnixStream::connect(&front).unwrap();
    gate.signal("TERM");
    assert!(gate.wait_exit().success());
    assert!(!front.exists(), "the socket was left there");
    // A file that is no socket is nobody's to remove.
    std::fs::write(&front, "precious").unwrap();
    assert!(!run_at(&front).status.success());
    assert_eq!(std::fs::read(&front).unwrap(), b"precious");
}
