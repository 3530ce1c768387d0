//! URL multicast: requests share an answer if the origin would get the same, and unwanted answers end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::policies::{Action, Policy};

use crate::whole::harness::{Gate, Origin, Scripted, ask, connect, reply, until};
use crate::whole::multicast::open;
use crate::whole::policies::{order, publish};

const CONFIG: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n";
const BEHIND_A_PROXY: &str =
    "[origin]\nreplicas = [\"ORIGIN\"]\n[proxy]\ntrusted = [\"127.0.0.1/32\"]\nforwarded = true\n";
const LONG: Duration = Duration::from_secs(3600);

fn gate(origin: SocketAddr, config: &str, period: Duration) -> Gate {
    let gate = Gate::before(origin, config, |_| Vec::new());
    publish(
        &gate,
        vec![order(Policy::Multicast { period, ignores_cookies: None }, Action::Answer { status: 503 })],
    );
    gate
}

fn request(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n")
}

fn get(gate: &Gate, fields: &str) -> String {
    let answer = ask(gate.http, &request(&format!("{fields}Connection: close\r\n")));
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// All values of a header.
fn field<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// An origin that answers by one header of the request, with a public answer.
fn echo(name: &'static str, says: &'static str) -> Scripted {
    Scripted::start(move |head, _, stream| {
        let fields = format!("Cache-Control: public\r\n{says}");
        reply(stream, "200 OK", &fields, &format!("for {:?}", field(head, name)));
    })
}

/// As [`get`], from one of this host's addresses.
fn get_from(gate: &Gate, address: [u8; 4]) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        socket.connect(gate.http).await.unwrap().into_std().unwrap()
    });
    let mut stream = stream;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(crate::whole::harness::PATIENCE)).unwrap();
    stream.write_all(request("Connection: close\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

#[test]
fn vary_by_address_selects_by_the_address_that_the_gate_sends() {
    let origin = echo("x-forwarded-for", "Vary: X-Forwarded-For\r\n");
    let gate = gate(origin.address, CONFIG, LONG);
    for _ in 0..2 {
        assert_eq!(get_from(&gate, [127, 0, 0, 1]), "for [\"127.0.0.1\"]");
        assert_eq!(get_from(&gate, [127, 0, 0, 2]), "for [\"127.0.0.2\"]");
    }
    assert_eq!(origin.came(), 2);
}

#[test]
fn the_gates_own_cookies_do_not_select() {
    let origin = echo("cookie", "Vary: Cookie\r\n");
    let gate = gate(origin.address, CONFIG, LONG);
    for n in 0..5 {
        assert_eq!(get(&gate, &format!("Cookie: tgp=pass{n}; tgid=x{n}\r\n")), "for []");
        assert_eq!(get(&gate, &format!("Cookie: tgp=pass{n}; a=b\r\n")), "for [\"a=b\"]");
    }
    assert_eq!(origin.came(), 2);
}

#[test]
fn headers_that_the_origin_does_not_get_do_not_select() {
    let origin = echo("accept-language", "Vary: Accept-Language\r\n");
    let gate = gate(origin.address, CONFIG, LONG);
    assert_eq!(get(&gate, "Accept-Language: de\r\nConnection: accept-language\r\n"), "for []");
    assert_eq!(get(&gate, "Accept-Language: de\r\n"), "for [\"de\"]");
    assert_eq!(get(&gate, "Accept-Language: fr\r\nConnection: accept-language\r\n"), "for []");
    assert_eq!(origin.came(), 2);
}

#[test]
fn forwarded_headers_select_even_if_vary_does_not_name_them() {
    // the header that the origin looks at, as one visitor's proxy sends it, as the others' does
    let table = [
        ("x-forwarded-host", "X-Forwarded-Host: evil.example\r\n", "X-Forwarded-Host: shop.example\r\n"),
        ("x-forwarded-prefix", "X-Forwarded-Prefix: /evil\r\n", ""),
        ("x-forwarded-port", "X-Forwarded-Port: 81\r\n", "X-Forwarded-Port: 443\r\n"),
        ("x-forwarded-proto", "X-Forwarded-Proto: evil\r\n", "X-Forwarded-Proto: http\r\n"),
        ("x-forwarded-user", "X-Forwarded-User: anna\r\n", "X-Forwarded-User: bert\r\n"),
        ("forwarded", "Forwarded: for=192.0.2.1;host=evil.example\r\n", "Forwarded: for=192.0.2.1\r\n"),
    ];
    for (name, one, other) in table {
        let origin = echo(name, "");
        let gate = gate(origin.address, BEHIND_A_PROXY, LONG);
        let first = get(&gate, &format!("X-Forwarded-For: 192.0.2.1\r\n{one}"));
        let second = get(&gate, &format!("X-Forwarded-For: 192.0.2.2\r\n{other}"));
        assert!(first.starts_with("for ") && first != second, "{name}: {first} {second}");
        // The address does not select.
        assert_eq!(get(&gate, &format!("X-Forwarded-For: 192.0.2.3\r\n{one}")), first, "{name}");
        let same = other.replace("for=192.0.2.1", "for=\"[2001:db8::1]:80\"");
        assert_eq!(get(&gate, &format!("X-Forwarded-For: 192.0.2.4\r\n{same}")), second, "{name}");
        assert_eq!(origin.came(), 2, "{name}");
    }
}

/// An origin with endless answers, and the number of those that were cut off.
fn endless(fields: &'static str) -> (Scripted, Arc<AtomicU32>) {
    let ended = Arc::new(AtomicU32::new(0));
    let counter = ended.clone();
    let origin = Scripted::start(move |_, _, stream| {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // Until the gate closes the connection.
        let _ = stream.read(&mut [0]);
        counter.fetch_add(1, Relaxed);
    });
    (origin, ended)
}

#[test]
fn event_streams_are_not_shared_and_end_with_their_visitor() {
    let (origin, ended) = endless("Content-Type: text/event-stream\r\nCache-Control: public\r\n");
    let gate = gate(origin.address, CONFIG, LONG);
    let visitors = [open(&gate), open(&gate)];
    assert_eq!((origin.came(), ended.load(Relaxed)), (2, 0));
    drop(visitors);
    until(|| ended.load(Relaxed).to_string(), |n| n == "2");
}

#[test]
fn an_answer_without_readers_ends_with_its_period() {
    let (origin, ended) = endless("");
    let gate = gate(origin.address, CONFIG, Duration::from_secs(1));
    // A reader goes on after the period.
    let reader = open(&gate);
    until(
        || {
            drop(open(&gate));
            origin.came().to_string()
        },
        |n| n == "2",
    );
    until(|| ended.load(Relaxed).to_string(), |n| n == "1");
    drop(reader);
    until(|| ended.load(Relaxed).to_string(), |n| n == "2");
}

/// One in-flight slot; the class "hasty" does not wait long for it.
const CLASSES: &str = r#"
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[proxy]
trusted = ["127.0.0.1/32"]
[explain]
header = "id"
[[class]]
name = "hasty"
match = { header = { Accept-Language = "de" } }
queue = { patience = "10ms" }
"#;

/// A gate whose only in-flight slot is taken.
fn full(config: &str, who: &str) -> (Origin, Gate, std::net::TcpStream) {
    let origin = Origin::start();
    let gate = Gate::start(&origin, config);
    let mut holds = connect(gate.http);
    holds.write_all(format!("GET /hold HTTP/1.1\r\nHost: shop.example\r\n{who}\r\n").as_bytes()).unwrap();
    origin.holds();
    publish(
        &gate,
        vec![order(
            Policy::Multicast { period: LONG, ignores_cookies: None },
            Action::Answer { status: 503 },
        )],
    );
    (origin, gate, holds)
}

/// Sends a request, frees the slot once the request waits for it or is answered, and returns the answer.
fn ask_and_release(gate: &Gate, origin: &Origin, fields: &str) -> String {
    let (to, request) = (gate.http, request(&format!("{fields}Connection: close\r\n")));
    let asking = std::thread::spawn(move || ask(to, &request));
    let queued = || gate.admin("/v1/state")["gate"]["queued"].to_string();
    until(|| if asking.is_finished() { "1".into() } else { queued() }, |n| n == "1");
    origin.release();
    asking.join().unwrap()
}

#[test]
fn a_refusal_by_the_gate_is_shared_within_its_class_only() {
    let (origin, gate, _holds) = full(CLASSES, "");
    let hasty = |id: &str| {
        ask(
            gate.http,
            &request(&format!("Accept-Language: de\r\nX-Request-Id: {id}\r\nConnection: close\r\n")),
        )
    };
    for id in ["one", "two"] {
        let refused = hasty(id);
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        let told = field(&refused, "tidegate-decision");
        assert!(told.len() == 1 && told[0].starts_with(&format!("id={id};")), "{id}: {refused}");
        assert_eq!(gate.admin(&format!("/v1/explain/{id}"))["path"], "/a");
    }
    let patient = ask_and_release(&gate, &origin, "");
    assert!(patient.starts_with("HTTP/1.1 200") && patient.ends_with("served"), "{patient}");
}

const SESSIONS: &str = r#"
[origin]
replicas = ["ORIGIN"]
max_in_flight = 1
[queue]
max_length = 0
[proxy]
trusted = ["127.0.0.1/32"]
[room]
unit = "session"
[session]
key = "ip"
max = 10
"#;

#[test]
fn a_refusal_by_the_gate_is_not_shared_with_admitted_sessions() {
    let (origin, gate, _holds) = full(SESSIONS, "X-Forwarded-For: 192.0.2.1\r\n");
    let stranger = ask(gate.http, &request("X-Forwarded-For: 192.0.2.9\r\nConnection: close\r\n"));
    assert!(stranger.starts_with("HTTP/1.1 503"), "{stranger}");
    let admitted = ask_and_release(&gate, &origin, "X-Forwarded-For: 192.0.2.1\r\n");
    assert!(admitted.starts_with("HTTP/1.1 200") && admitted.ends_with("served"), "{admitted}");
}

/// A gate with a rule that ignores cookies and removes these fields from what is shared.
fn ignoring_cookies(origin: SocketAddr, strip: &[&str]) -> Gate {
    let gate = Gate::before(origin, CONFIG, |_| Vec::new());
    let ignores_cookies = Some(strip.iter().map(|field| (*field).into()).collect());
    let policy = Policy::Multicast { period: LONG, ignores_cookies };
    publish(&gate, vec![order(policy, Action::Answer { status: 503 })]);
    gate
}

/// An origin that sets a cookie with every answer, and says for which cookies the answer is.
fn sets_cookies(says: &'static str) -> Scripted {
    Scripted::start(move |head, n, stream| {
        let fields = format!("Set-Cookie: sid=new{n}\r\nX-Part: {n}\r\n{says}");
        reply(stream, "200 OK", &fields, &format!("for {:?}", field(head, "cookie")));
    })
}

fn whole(gate: &Gate, cookies: &str) -> String {
    ask(gate.http, &request(&format!("{cookies}Connection: close\r\n")))
}

#[test]
fn by_the_operators_word_cookies_take_no_part() {
    let origin = sets_cookies("Vary: Cookie\r\n");
    let gate = ignoring_cookies(origin.address, &["set-cookie", "x-part"]);
    for cookies in ["Cookie: id=anna\r\n", "", "Cookie: id=bert; sid=1\r\n"] {
        let answer = whole(&gate, cookies);
        assert!(answer.ends_with("for []"), "no visitor's cookies were sent on: {answer}");
        let told = answer.to_ascii_lowercase();
        assert!(!told.contains("set-cookie") && !told.contains("x-part"), "{answer}");
    }
    assert_eq!(origin.came(), 1);
    // Only what is named is removed, so one who is given another's cookie is not to be found.
    let origin = sets_cookies("");
    let gate = ignoring_cookies(origin.address, &["x-part"]);
    for n in 0..3 {
        let answer = whole(&gate, &format!("Cookie: id={n}\r\n"));
        assert!(answer.ends_with(&format!("for [\"id={n}\"]")) && answer.contains("sid=new"), "{answer}");
    }
}

#[test]
fn without_cookies_a_private_answer_is_still_its_visitors_own() {
    for says in ["Cache-Control: private\r\n", "Cache-Control: no-store\r\n", "Vary: *\r\n"] {
        let origin = sets_cookies(says);
        let gate = ignoring_cookies(origin.address, &["set-cookie"]);
        for n in 0..4 {
            // With the visitor's own cookies, and with the one that is set, the first one's too.
            let answer = whole(&gate, &format!("Cookie: id={n}\r\n"));
            assert!(answer.ends_with(&format!("for [\"id={n}\"]")), "{says}: {answer}");
            assert!(answer.to_ascii_lowercase().contains("set-cookie: sid=new"), "{says}: {answer}");
        }
        assert_eq!(origin.came(), 5, "one of them without cookies, and then nobody tries for the period");
    }
    // Unless the operator says otherwise of that too.
    let origin = sets_cookies("Cache-Control: private\r\n");
    let gate = ignoring_cookies(origin.address, &["set-cookie", "cache-control"]);
    for n in 0..4 {
        let answer = whole(&gate, &format!("Cookie: id={n}\r\n"));
        assert!(answer.ends_with("for []"), "{answer}");
    }
    assert_eq!(origin.came(), 1);
}
