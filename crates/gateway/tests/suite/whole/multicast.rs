//! URL multicast over real sockets (WAC 3.2 e): one upstream request a period, whose answer all get unless it
//! is private.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::policies::{Action, Policy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::whole::harness::{Gate, Latch, Scripted, ask, connect, get, read_head, reply, until};
use crate::whole::policies::{order, publish};

const CONFIG: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n";

fn gate(origin: &Scripted, period: Duration) -> Gate {
    let gate = Gate::before(origin.address, CONFIG, |_| Vec::new());
    publish(
        &gate,
        vec![order(Policy::Multicast { period, ignores_cookies: None }, Action::Answer { status: 503 })],
    );
    gate
}

/// Sends all requests at once.
fn crowd(to: SocketAddr, requests: Vec<String>) -> Vec<String> {
    let asking: Vec<_> =
        requests.into_iter().map(|request| std::thread::spawn(move || ask(to, &request))).collect();
    asking.into_iter().map(|one| one.join().unwrap()).collect()
}

fn request(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: shop.example\r\n{fields}Connection: close\r\n\r\n")
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// The gate's counters: upstream, shared, alone.
fn figures(gate: &Gate) -> (u64, u64, u64) {
    let m = &gate.server().shared().coalescer;
    (m.upstream.load(Relaxed), m.shared.load(Relaxed), m.alone.load(Relaxed))
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn one_request_goes_upstream_and_all_get_its_answer() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let origin = Scripted::start(move |_, n, stream| {
        held.wait();
        reply(stream, "200 OK", "Cache-Control: public\r\n", &format!("answer {n}"));
    });
    let gate = gate(&origin, LONG);
    let to = gate.http;
    // With and without cookies, since the answer is public.
    let requests =
        (0..20).map(|n| request(&if n % 2 == 0 { format!("Cookie: id={n}\r\n") } else { String::new() }));
    let asking = std::thread::spawn({
        let requests = requests.collect();
        move || crowd(to, requests)
    });
    until(|| origin.came().to_string(), |n| n == "1");
    latch.open();
    for answer in asking.join().unwrap() {
        assert!(answer.starts_with("HTTP/1.1 200") && body(&answer) == "answer 0", "{answer}");
    }
    assert_eq!(body(&get(gate.http, "/a", "")), "answer 0", "a later request within the period");
    assert_eq!(origin.came(), 1);
    assert_eq!(figures(&gate), (1, 21, 0));
    assert_ne!(body(&get(gate.http, "/a?b", "")), "answer 0", "another URL");
    assert_ne!(body(&get(gate.http, "/b", "")), "answer 0", "another URL");
    let elsewhere = request("").replace("shop.example", "other.example");
    assert_ne!(body(&ask(gate.http, &elsewhere)), "answer 0", "another host");
}

#[test]
fn private_answers_are_never_shared() {
    // the headers of the answer, those of the requests
    let table = [
        ("Set-Cookie: a=b\r\nCache-Control: public\r\n", ""),
        ("Cache-Control: private\r\n", ""),
        ("Cache-Control: no-store, public\r\n", ""),
        ("Cache-Control: public\r\nVary: *\r\n", ""),
        ("Cache-Control: public\r\n", "Authorization: Basic abc\r\n"),
        ("Cache-Control: public\r\n", "Range: bytes=0-1\r\n"),
        ("Cache-Control: public\r\nVary: Cookie\r\n", "Cookie: id=ID\r\n"),
        ("Cache-Control: public\r\nVary: Accept, User-Agent\r\n", "User-Agent: ID\r\n"),
        ("Cache-Control: public\r\n", "X-Original-URL: /admin\r\n"),
        ("", "Cookie: id=ID\r\n"),
    ];
    for (says, sends) in table {
        let origin =
            Scripted::start(move |_, n, stream| reply(stream, "200 OK", says, &format!("answer {n}")));
        let gate = gate(&origin, LONG);
        let requests = (0..12).map(|n| request(&sends.replace("ID", &n.to_string()))).collect();
        let answers = crowd(gate.http, requests);
        let mut bodies: Vec<&str> = answers.iter().map(|answer| body(answer)).collect();
        bodies.sort_unstable();
        bodies.dedup();
        assert_eq!(bodies.len(), 12, "{says:?} {sends:?}: {bodies:?}");
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")), "{says:?} {sends:?}");
        assert_eq!(origin.came(), 12, "{says:?} {sends:?}");
    }
}

#[test]
fn requests_whose_answer_turns_out_private_pass_the_gate_one_by_one() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let (at_once, most) =
        (Arc::new(std::sync::atomic::AtomicU32::new(0)), Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let (now, peak) = (at_once.clone(), most.clone());
    let origin = Scripted::start(move |_, n, stream| {
        peak.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
        held.wait();
        now.fetch_sub(1, Relaxed);
        reply(stream, "200 OK", "Cache-Control: private\r\n", &format!("answer {n}"));
    });
    let config = "[origin]\nreplicas = [\"ORIGIN\"]\nmax_in_flight = 2\n";
    let gate = Gate::before(origin.address, config, |_| Vec::new());
    publish(
        &gate,
        vec![order(
            Policy::Multicast { period: LONG, ignores_cookies: None },
            Action::Answer { status: 503 },
        )],
    );
    let to = gate.http;
    let asking = std::thread::spawn(move || crowd(to, (0..20).map(|_| request("")).collect()));
    until(|| origin.came().to_string(), |n| n == "1");
    latch.open();
    let answers = asking.join().unwrap();
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")));
    assert_eq!(origin.came(), 20);
    assert!(most.load(Relaxed) <= 2, "{} at once", most.load(Relaxed));
}

/// A visitor that has received the first bytes of an answer.
pub fn open(gate: &Gate) -> TcpStream {
    let mut stream = connect(gate.http);
    stream.write_all(request("").as_bytes()).unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    let mut first = [0; 10];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"5\r\nfirst\r\n");
    stream
}

#[test]
fn an_answer_under_way_is_streamed_to_newcomers() {
    let latch = Arc::new(Latch::default());
    let held = latch.clone();
    let origin = Scripted::start(move |_, _, stream| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        let _ = stream.write_all(head);
        held.wait();
        let _ = stream.write_all(b"4\r\nlast\r\n0\r\n\r\n");
    });
    let gate = gate(&origin, LONG);
    let (leader, mut follower) = (open(&gate), open(&gate));
    // The leader may leave; the others' answer goes on.
    drop(leader);
    latch.open();
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), origin.came()), ("4\r\nlast\r\n0\r\n\r\n", 1));
}

#[test]
fn failures_are_shared_too() {
    let origin = Scripted::start(|_, n, stream| reply(stream, "500 Oh No", "", &format!("answer {n}")));
    let gate = gate(&origin, LONG);
    let first = get(gate.http, "/a", "");
    assert!(first.starts_with("HTTP/1.1 500"), "{first}");
    // For a second at most, whatever the rule's period; then another request goes upstream.
    until(
        || get(gate.http, "/a", ""),
        |answer| answer.starts_with("HTTP/1.1 500") && body(answer) != "answer 0",
    );
    let answers = crowd(gate.http, (0..20).map(|_| request("")).collect());
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 500")));
    let (upstream, shared, alone) = figures(&gate);
    assert!(
        u64::from(origin.came()) == upstream && upstream < shared && alone == 0,
        "{upstream} {shared} {alone}"
    );
}

/// Visitors of the crowd.
const VISITORS: usize = 10_000;

/// Tells the process that plays the crowd the gate's address. One process may not open the sockets of both.
const CROWD: &str = "TIDEGATE_TEST_CROWD";

#[test]
fn ten_thousand_visitors_are_one_request_a_second() {
    if let Ok(to) = std::env::var(CROWD) {
        return play_crowd(to.parse().unwrap());
    }
    let origin =
        Scripted::start(|_, _, stream| reply(stream, "200 OK", "Cache-Control: public\r\n", "the page"));
    // The first connection must not time out before the last visitor has connected.
    let config = format!("{CONFIG}[limits]\nheader_timeout = \"10m\"\n");
    let gate = Gate::before(origin.address, &config, |_| Vec::new());
    let policy = Policy::Multicast { period: Duration::from_secs(1), ignores_cookies: None };
    publish(&gate, vec![order(policy, Action::Answer { status: 503 })]);
    let clock = &gate.server().shared().clock;
    let began = clock.now();
    let crowd = std::process::Command::new("sh")
        .args(["-c", "ulimit -S -n $(ulimit -H -n) && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "whole::multicast::ten_thousand_visitors_are_one_request_a_second"])
        .env(CROWD, gate.http.to_string())
        .output()
        .unwrap();
    assert!(crowd.status.success(), "{}", String::from_utf8_lossy(&crowd.stdout));
    let (upstream, shared, alone) = figures(&gate);
    let seconds = clock.now().since(began).as_secs();
    assert_eq!((shared, alone), (VISITORS as u64, 0));
    // By the gate's clock this is exact.
    assert!((1..=seconds + 1).contains(&upstream), "{upstream} upstream in {seconds} s");
    assert_eq!(u64::from(origin.came()), upstream);
}

fn play_crowd(to: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(async {
        let all = Arc::new(tokio::sync::Barrier::new(VISITORS));
        let doors = Arc::new(tokio::sync::Semaphore::new(256));
        let mut crowd = tokio::task::JoinSet::new();
        for _ in 0..VISITORS {
            crowd.spawn(visit(to, all.clone(), doors.clone()));
        }
        let mut served = 0;
        while let Some(one) = crowd.join_next().await {
            served += usize::from(one.unwrap());
        }
        served
    });
    assert_eq!(served, VISITORS);
}

/// One visitor, which sends its request when all have connected.
async fn visit(to: SocketAddr, all: Arc<tokio::sync::Barrier>, doors: Arc<tokio::sync::Semaphore>) -> bool {
    let mut stream = {
        let _door = doors.acquire().await.unwrap();
        tokio::net::TcpStream::connect(to).await.unwrap()
    };
    all.wait().await;
    stream.write_all(request("").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nthe page")
}
