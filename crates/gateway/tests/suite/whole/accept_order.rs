//! Who is accepted next: prioritised accept, and accept while the gate has an in-flight slot.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};

use socket2::{Domain, Socket, Type};
use tidegate_gateway::shared::Shared;

use crate::whole::harness::{Gate, Latch, Origin, PATIENCE, connect, read_head, reply, until};
use crate::whole::rights::can_run;

/// Three visitors, each with a rule of its own. Policing is not asked for: it would be on the interface that
/// all tests share.
const RULES: &str = r#"
kernel.policing = "off"
[[syn_rule]]
name = "high"
src = "127.0.0.1/32"
priority = 0
[[syn_rule]]
name = "middle"
src = "127.0.0.2/32"
priority = 1
[[syn_rule]]
name = "low"
src = "127.0.0.3/32"
priority = 2
"#;

/// Connects from an address of this machine. When it returns, the connection waits to be accepted.
pub fn connect_from(host: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, target: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

fn served(stream: &mut TcpStream) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// An origin that tells the targets in the order in which they come, and answers when its latch is open.
struct Recorder {
    address: SocketAddr,
    targets: Receiver<String>,
    latch: Arc<Latch>,
    answered: Arc<AtomicU64>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, targets) = mpsc::channel();
        let (latch, answered) = (Arc::new(Latch::default()), Arc::new(AtomicU64::new(0)));
        let (opened, count) = (latch.clone(), answered.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, tell) = (stream.unwrap(), tell.clone());
                let (opened, count) = (opened.clone(), count.clone());
                std::thread::spawn(move || {
                    while let Some(head) = read_head(&mut stream) {
                        let _ = tell.send(head.split(' ').nth(1).unwrap_or_default().to_owned());
                        opened.wait();
                        count.fetch_add(1, Ordering::SeqCst);
                        reply(&mut stream, "200 OK", "", "served");
                    }
                });
            }
        });
        Self { address, targets, latch, answered }
    }

    fn next(&self) -> String {
        self.targets.recv_timeout(PATIENCE).expect("a request")
    }
}

fn gate(origin: &Recorder, slots: u32, workers: u32, more: &str) -> Gate {
    let toml = format!(
        "listen.workers = {workers}\norigin.replicas = [\"ORIGIN\"]\norigin.max_in_flight = {slots}\n{more}"
    );
    Gate::before(origin.address, &toml, |_| Vec::new())
}

fn accepted(shared: &Shared) -> u64 {
    shared.accepts.by_priority().iter().sum()
}

#[test]
fn the_origin_gets_requests_in_the_order_of_their_priority() {
    if !can_run(tidegate_kernel::is_built()) {
        return;
    }
    for workers in [1, 2] {
        let origin = Recorder::start();
        let gate = gate(&origin, 1, workers, &format!("kernel.accept = \"while-free\"\n{RULES}"));
        // No rule is about this one: it has the lowest priority, and comes first all the same.
        let mut first = connect_from(9, gate.http);
        ask(&mut first, "/first");
        assert_eq!(origin.next(), "/first");
        let mut visitors = Vec::new();
        for (host, name, count) in [(3, "low", 6), (2, "middle", 4), (1, "high", 3)] {
            for _ in 0..count {
                let mut visitor = connect_from(host, gate.http);
                ask(&mut visitor, &format!("/{name}"));
                visitors.push(visitor);
            }
        }
        let accepts = &gate.server().shared().accepts;
        until(|| format!("{:?}", accepts.waiting()), |waiting| waiting == "[3, 4, 6, 0]");
        origin.latch.open();
        let order: Vec<_> = visitors.iter().map(|_| origin.next()).collect();
        let expected = [vec!["/high"; 3], vec!["/middle"; 4], vec!["/low"; 6]].concat();
        assert_eq!(order, expected, "{workers} workers");
        served(&mut first);
        visitors.iter_mut().for_each(served);
        assert_eq!((accepts.by_priority(), accepts.waiting()), (vec![3, 4, 6, 1], vec![0; 4]));
        let metrics = crate::whole::harness::admin(&gate, "/metrics");
        assert!(metrics.contains("\ntidegate_accepted_total{priority=\"1\"} 4\n"), "{metrics}");
    }
}

/// The same visitors where connections do not wait: each worker takes the highest priority first, and all
/// come in.
#[test]
fn all_priorities_are_accepted_where_connections_do_not_wait() {
    let origin = Recorder::start();
    let gate = gate(&origin, 1000, 2, RULES);
    origin.latch.open();
    let mut visitors: Vec<_> = (0..30).map(|n| connect_from(n % 3 + 1, gate.http)).collect();
    for visitor in &mut visitors {
        ask(visitor, "/");
    }
    visitors.iter_mut().for_each(served);
    assert_eq!(accepted(gate.server().shared()), 30);
}

#[test]
fn no_more_are_accepted_than_there_are_slots() {
    for (slots, workers) in [(1, 1), (3, 2)] {
        let origin = Recorder::start();
        let gate = gate(&origin, slots, workers, "kernel.accept = \"while-free\"");
        let shared = gate.server().shared();
        let mut visitors = Vec::new();
        for _ in 0..40 {
            let mut visitor = connect(gate.http);
            ask(&mut visitor, "/");
            visitors.push(visitor);
        }
        for _ in 0..slots {
            origin.next();
        }
        let readers: Vec<_> = visitors
            .into_iter()
            .map(|mut visitor| std::thread::spawn(move || served(&mut visitor)))
            .collect();
        origin.latch.open();
        for _ in slots..40 {
            // Read before the other: it only rises.
            let accepted = accepted(shared);
            assert!(accepted <= origin.answered.load(Ordering::SeqCst) + u64::from(slots));
            origin.next();
        }
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(accepted(shared), 40);
    }
}

/// Connections without a request keep slots for a moment only, also those that send half of one.
#[test]
fn silent_connections_do_not_block_others() {
    for workers in [1, 2] {
        let origin = Recorder::start();
        origin.latch.open();
        let limits = "limits.header_timeout = \"10m\"";
        let gate = gate(&origin, 1, workers, &format!("kernel.accept = \"while-free\"\n{limits}"));
        let _silent: Vec<_> = (0..4).map(|_| connect(gate.http)).collect();
        let mut slow = connect(gate.http);
        slow.write_all(b"GET /slow HTT").unwrap();
        let mut visitor = connect(gate.http);
        ask(&mut visitor, "/");
        served(&mut visitor);
        // A request that comes late is served as well.
        slow.write_all(b"P/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").unwrap();
        served(&mut slow);
    }
}

/// A connection that is kept alive holds no slot between its requests, and its later requests do not wait in
/// the kernel.
#[test]
fn connections_that_are_kept_alive_hold_no_slots() {
    let origin = Recorder::start();
    let gate = gate(&origin, 1, 1, "kernel.accept = \"while-free\"");
    origin.latch.open();
    let mut kept = connect(gate.http);
    for _ in 0..3 {
        kept.write_all(b"GET /kept HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
        assert!(read_head(&mut kept).unwrap().starts_with("HTTP/1.1 200"));
        kept.read_exact(&mut [0; 6]).unwrap();
        let mut other = connect(gate.http);
        ask(&mut other, "/other");
        served(&mut other);
    }
    assert_eq!(accepted(gate.server().shared()), 4);
}

/// Requests that the gate answers itself, and visitors who leave without one, give their slots back.
#[test]
fn slots_come_back_without_a_request_to_the_origin() {
    let origin = Recorder::start();
    let gate = gate(&origin, 1, 1, "kernel.accept = \"while-free\"");
    origin.latch.open();
    for _ in 0..20 {
        let mut bad = connect(gate.http);
        bad.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
        assert!(read_head(&mut bad).unwrap().starts_with("HTTP/1.1 400"));
        drop(connect(gate.http));
        let mut refused = connect(gate.http);
        refused.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\nExpect: x\r\n\r\n").unwrap();
        assert!(read_head(&mut refused).unwrap().starts_with("HTTP/1.1 417"));
    }
    let mut visitor = connect(gate.http);
    ask(&mut visitor, "/");
    served(&mut visitor);
}

#[test]
fn connections_can_be_told_to_wait_and_not_to_wait_while_the_gate_runs() {
    let origin = Recorder::start();
    let gate = gate(&origin, 1, 2, "");
    let tune = |mode: &str| {
        gate.server().control().store().tune(&[("kernel.accept", mode)], "test", "").unwrap();
    };
    let shared = gate.server().shared();
    tune("while-free");
    let mut visitors = Vec::new();
    for _ in 0..10 {
        let mut visitor = connect(gate.http);
        ask(&mut visitor, "/");
        visitors.push(visitor);
    }
    origin.next();
    assert_eq!(accepted(shared), 1);
    tune("always");
    until(|| accepted(shared).to_string(), |n| n == "10");
    tune("while-free");
    let mut late = connect(gate.http);
    ask(&mut late, "/late");
    // Those that were accepted meanwhile wait at the gate; the late one in the kernel, until they are served.
    origin.latch.open();
    visitors.iter_mut().for_each(served);
    served(&mut late);
    assert_eq!(accepted(shared), 11);
}

/// What the kernel has accepted is served, whether there are slots or not.
#[test]
fn who_waits_in_the_kernel_is_served_when_the_gate_drains() {
    let origin = Recorder::start();
    let gate = gate(&origin, 1, 2, "kernel.accept = \"while-free\"");
    let mut visitors = Vec::new();
    for _ in 0..10 {
        let mut visitor = connect(gate.http);
        ask(&mut visitor, "/");
        visitors.push(visitor);
    }
    origin.next();
    gate.server().control().drain();
    until(|| accepted(gate.server().shared()).to_string(), |n| n == "10");
    origin.latch.open();
    visitors.iter_mut().for_each(served);
}

/// Two gates cannot share an address by accident, with whatever number of sockets.
#[test]
fn an_address_is_listened_at_once() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]");
    let config = tidegate_gateway::shared::listening::ListenConfig { priorities: 2, workers: 1, backlog: 8 };
    let error = tidegate_gateway::shared::listening::listen("listen.http", gate.http, config).err();
    assert!(error.expect("the address is taken").to_string().contains("listen.http"));
}
