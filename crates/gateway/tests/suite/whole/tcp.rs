//! TCP services: relays between real sockets.

use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tidegate_core::policies::Action;
use tidegate_gateway::shared::tcp::TcpService;
use tidegate_settings::Settings;

use crate::whole::accept_order::connect_from;
use crate::whole::harness::{Gate, Origin, PATIENCE, admin, connect, until};
use crate::whole::policies::{publish, refuse};
use crate::whole::rights::can_run;

/// A service that hands its connections over to the test.
struct Service {
    address: SocketAddr,
    connections: Receiver<TcpStream>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, connections) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                if tell.send(stream).is_err() {
                    return;
                }
            }
        });
        Self { address, connections }
    }

    fn next(&self) -> TcpStream {
        self.connections.recv_timeout(PATIENCE).expect("a connection")
    }
}

/// A gate without an origin, for services alone.
fn gate(toml: &str) -> Gate {
    Gate::before(SocketAddr::from(([127, 0, 0, 1], 1)), toml, |_| Vec::new())
}

/// The configuration of one service at a port of the system's choice.
fn service(name: &str, to: SocketAddr, more: &str) -> String {
    format!("[[tcp]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\nto = \"{to}\"\n{more}\n")
}

fn of(gate: &Gate, name: &str) -> Arc<TcpService> {
    let all = gate.server().shared().tcp.list();
    all.iter().find(|one| one.name() == name).expect("the service").clone()
}

fn address(gate: &Gate, name: &str) -> SocketAddr {
    gate.server().shared().tcp.address_of(&of(gate, name)).expect("it listens")
}

fn visit(gate: &Gate) -> TcpStream {
    connect(address(gate, "it"))
}

fn tune(gate: &Gate, key: &str, value: &str) {
    gate.server().control().store().tune(&[(key, value)], "test", "").unwrap();
}

fn echo(from: &mut TcpStream, to: &mut TcpStream, word: &[u8]) {
    let mut got = vec![0; word.len()];
    from.write_all(word).unwrap();
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, word);
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

fn is_reset(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

/// The counter of one service and result in `/metrics`.
fn result(gate: &Gate, name: &str) -> u64 {
    let (metrics, key) = (admin(gate, "/metrics"), format!("result=\"{name}\"}} "));
    let line = metrics.lines().find_map(|line| {
        line.starts_with("tidegate_tcp_connections_total").then(|| line.split_once(&key)).flatten()
    });
    line.expect("in the metrics").1.parse().unwrap()
}

/// 100 MiB that nobody can guess.
const BLOCK: usize = 1 << 20;
const BLOCKS: u64 = 100;

fn send(mut to: TcpStream) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut block, mut hash) = (vec![0; BLOCK], DefaultHasher::new());
        getrandom::fill(&mut block).unwrap();
        for n in 0..BLOCKS {
            block[..8].copy_from_slice(&n.to_be_bytes());
            hash.write(&block);
            to.write_all(&block).unwrap();
        }
        to.shutdown(Shutdown::Write).unwrap();
        hash.finish()
    })
}

fn receive(mut from: TcpStream) -> JoinHandle<(u64, u64)> {
    std::thread::spawn(move || {
        let (mut block, mut hash, mut blocks) = (vec![0; BLOCK], DefaultHasher::new(), 0);
        while from.read_exact(&mut block).is_ok() {
            hash.write(&block);
            blocks += 1;
        }
        (hash.finish(), blocks)
    })
}

#[test]
fn bytes_pass_unchanged_both_ways_at_once() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let visitor = visit(&gate);
    let served = to.next();
    let (up, down) = (send(visitor.try_clone().unwrap()), send(served.try_clone().unwrap()));
    let (there, here) = (receive(served), receive(visitor));
    assert_eq!(there.join().unwrap(), (up.join().unwrap(), BLOCKS));
    assert_eq!(here.join().unwrap(), (down.join().unwrap(), BLOCKS));
    let figures = of(&gate, "it");
    until(|| figures.figures.open.load(Relaxed).to_string(), |n| n == "0");
    let bytes = BLOCKS * BLOCK as u64;
    assert_eq!(
        (figures.figures.bytes_in.load(Relaxed), figures.figures.bytes_out.load(Relaxed)),
        (bytes, bytes)
    );
    let metrics = admin(&gate, "/metrics");
    for line in [
        "tidegate_tcp_connections{listener=\"it\"} 0",
        "tidegate_tcp_connections_total{listener=\"it\",result=\"relayed\"} 1",
        "tidegate_tcp_bytes_total{listener=\"it\",direction=\"in\"} 104857600",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// Small parts are not held back, and a reader that stops for a while loses nothing.
#[test]
fn a_slow_reader_holds_the_sender_back() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let (mut visitor, mut served) = (visit(&gate), to.next());
    for word in [b"one".as_slice(), b"a word of more letters", &[7; 30_000]] {
        echo(&mut visitor, &mut served, word);
        echo(&mut served, &mut visitor, word);
    }
    // Until nothing fits any more.
    visitor.set_nonblocking(true).unwrap();
    let (part, mut sent) = (vec![9; 64 << 10], 0_usize);
    let figures = &of(&gate, "it").figures;
    let mut before = u64::MAX;
    loop {
        match visitor.write(&part) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let carried = figures.bytes_in.load(Relaxed);
                if std::mem::replace(&mut before, carried) == carried && sent as u64 > carried {
                    break;
                }
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    visitor.set_nonblocking(false).unwrap();
    drop(visitor);
    let mut rest = Vec::new();
    served.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), sent);
    assert!(rest.iter().all(|byte| *byte == 9));
}

#[test]
fn each_side_may_end_its_half_first() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let (mut visitor, mut served) = (visit(&gate), to.next());
    visitor.write_all(b"all").unwrap();
    visitor.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    served.read_to_string(&mut got).unwrap();
    assert_eq!(got, "all");
    echo(&mut served, &mut visitor, b"an answer");
    drop(served);
    assert_eq!(visitor.read(&mut [0; 8]).unwrap(), 0);

    let (mut visitor, mut served) = (visit(&gate), to.next());
    served.write_all(b"banner").unwrap();
    served.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    visitor.read_to_string(&mut got).unwrap();
    assert_eq!(got, "banner");
    echo(&mut visitor, &mut served, b"still heard");
    drop(visitor);
    assert_eq!(served.read(&mut [0; 8]).unwrap(), 0);
    until(|| of(&gate, "it").figures.open.load(Relaxed).to_string(), |n| n == "0");
}

#[test]
fn a_reset_is_passed_on() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let (mut visitor, served) = (visit(&gate), to.next());
    reset(served);
    assert!(is_reset(&mut visitor));
    let (visitor, mut served) = (visit(&gate), to.next());
    reset(visitor);
    assert!(is_reset(&mut served));
    // Also of a side that has ended its half before, and from which nothing more is read.
    let (visitor, mut served) = (visit(&gate), to.next());
    visitor.shutdown(Shutdown::Write).unwrap();
    assert_eq!(served.read(&mut [0; 8]).unwrap(), 0);
    reset(visitor);
    // Its end has been read: only who writes is told.
    until(|| served.write(b"?").is_err().to_string(), |is_gone| is_gone == "true");
    until(|| of(&gate, "it").figures.open.load(Relaxed).to_string(), |n| n == "0");
    let (visitor, mut served) = (visit(&gate), to.next());
    visitor.shutdown(Shutdown::Write).unwrap();
    assert_eq!(served.read(&mut [0; 8]).unwrap(), 0);
    reset(visitor);
    // Also if the other side says nothing.
    until(|| of(&gate, "it").figures.open.load(Relaxed).to_string(), |n| n == "0");
    // What was sent before is delivered.
    let (mut visitor, mut served) = (visit(&gate), to.next());
    served.write_all(b"the last words").unwrap();
    let mut got = [0; 14];
    visitor.read_exact(&mut got).unwrap();
    reset(served);
    assert!(&got == b"the last words" && is_reset(&mut visitor));
    until(|| of(&gate, "it").figures.open.load(Relaxed).to_string(), |n| n == "0");
}

#[test]
fn a_service_that_is_not_there_resets_the_visitor() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gate = gate(&service("it", nobody, ""));
    assert!(is_reset(&mut visit(&gate)));
    assert_eq!((result(&gate, "failed"), result(&gate, "relayed")), (1, 0));
}

#[test]
fn a_service_that_does_not_answer_resets_the_visitor() {
    // Its queue is full: what comes is dropped.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let to = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(to).unwrap();
    let gate = gate(&service("it", to, "connect_timeout = \"50ms\""));
    assert!(is_reset(&mut visit(&gate)));
    assert_eq!(result(&gate, "failed"), 1);
    // A name is resolved, and all its addresses are tried.
    let to = Service::start();
    tune(&gate, "tcp.it.connect_timeout", "10s");
    let toml = format!("localhost:{}", to.address.port());
    let gate = Gate::before(
        to.address,
        &service("it", to.address, "").replace(&to.address.to_string(), &toml),
        |_| Vec::new(),
    );
    let (mut visitor, mut served) = (visit(&gate), to.next());
    echo(&mut visitor, &mut served, b"hello");
}

#[test]
fn a_connection_that_idles_is_closed_and_one_that_does_not_is_kept() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, "idle_timeout = \"1s\""));
    let (mut idle, served) = (visit(&gate), to.next());
    let (mut busy, mut answers) = (visit(&gate), to.next());
    let ended = std::thread::spawn(move || {
        let ended = matches!(idle.read(&mut [0; 8]), Ok(0));
        drop(served);
        ended
    });
    while !ended.is_finished() {
        echo(&mut busy, &mut answers, b"ping");
        std::thread::yield_now();
    }
    assert!(ended.join().unwrap());
    echo(&mut busy, &mut answers, b"still there");
}

#[test]
fn connections_beyond_the_limit_wait_and_are_served_in_the_order_of_their_priority() {
    if !can_run(tidegate_kernel::is_built()) {
        return;
    }
    for workers in [1, 2] {
        let to = Service::start();
        let rules: String = [("high", 1, 0), ("middle", 2, 1), ("low", 3, 2)]
            .map(|(name, host, priority)| {
                format!(
                    "[[syn_rule]]\nname = \"{name}\"\nsrc = \"127.0.0.{host}/32\"\npriority = {priority}\n"
                )
            })
            .concat();
        let gate = gate(&format!(
            "kernel.policing = \"off\"\nlisten.workers = {workers}\n{rules}{}",
            service("it", to.address, "max_connections = 1")
        ));
        let at = address(&gate, "it");
        let first = connect_from(9, at);
        to.next();
        let mut waiting = Vec::new();
        for (host, count) in [(3, 12), (2, 10), (1, 8)] {
            for _ in 0..count {
                let mut visitor = connect_from(host, at);
                visitor.write_all(&[host]).unwrap();
                waiting.push(visitor);
            }
        }
        let figures = of(&gate, "it");
        assert_eq!(figures.figures.accepted.load(Relaxed), 1);
        drop(first);
        let mut order = Vec::new();
        for _ in &waiting {
            let mut served = to.next();
            assert_eq!(figures.figures.open.load(Relaxed), 1);
            let mut host = [0];
            served.read_exact(&mut host).unwrap();
            order.push(host[0]);
            reset(served);
        }
        let expected = [vec![1; 8], vec![2; 10], vec![3; 12]].concat();
        assert_eq!(order, expected, "{workers} workers");
        assert_eq!(gate.server().shared().accepts.by_priority(), [8, 10, 12, 1]);
    }
}

#[test]
fn a_higher_limit_lets_those_in_who_wait() {
    let to = Service::start();
    let gate = gate(&format!("listen.workers = 2\n{}", service("it", to.address, "max_connections = 2")));
    let waiting: Vec<_> = (0..6).map(|_| visit(&gate)).collect();
    let mut served: Vec<_> = (0..2).map(|_| to.next()).collect();
    assert_eq!(of(&gate, "it").figures.open.load(Relaxed), 2);
    tune(&gate, "tcp.it.max_connections", "3");
    served.push(to.next());
    assert_eq!(of(&gate, "it").figures.open.load(Relaxed), 3);
    tune(&gate, "tcp.it.max_connections", "0");
    served.extend((3..6).map(|_| to.next()));
    drop(waiting);
}

#[test]
fn connections_are_accepted_at_the_rate_of_the_service() {
    let to = Service::start();
    // One in a hundred seconds, after the first two.
    let limits = "rate = 0.01\nburst = 2";
    let gate = gate(&format!("listen.workers = 2\n{}", service("it", to.address, limits)));
    // The two that are accepted: workers do not accept in the order in which visitors come.
    let first = [visit(&gate), visit(&gate)];
    let served = [to.next(), to.next()];
    let _others = [visit(&gate), visit(&gate), visit(&gate)];
    let figures = of(&gate, "it");
    // The others are not accepted although they are the only ones.
    drop((first, served));
    until(|| figures.figures.open.load(Relaxed).to_string(), |n| n == "0");
    assert_eq!(figures.figures.accepted.load(Relaxed), 2);
    tune(&gate, "tcp.it.rate", "1000");
    let served: Vec<_> = (2..5).map(|_| to.next()).collect();
    assert_eq!((served.len(), figures.figures.accepted.load(Relaxed)), (3, 5));
}

#[test]
fn connections_over_those_of_the_whole_gate_are_reset() {
    let to = Service::start();
    let gate = gate(&format!("limits.max_connections = 1\n{}", service("it", to.address, "")));
    let (mut visitor, mut served) = (visit(&gate), to.next());
    assert!(is_reset(&mut visit(&gate)));
    assert_eq!((result(&gate, "refused"), result(&gate, "relayed")), (1, 1));
    echo(&mut visitor, &mut served, b"not the first one");
}

/// What a rule does with every connection, it does with those of services.
#[test]
fn a_rule_for_everybody_refuses_connections_of_services() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let (mut before, mut served) = (visit(&gate), to.next());
    publish(&gate, vec![refuse(Action::Reset)]);
    assert!(is_reset(&mut visit(&gate)));
    publish(&gate, vec![refuse(Action::Close)]);
    assert_eq!(visit(&gate).read(&mut [0; 8]).unwrap(), 0);
    // What ends requests under way is not for these.
    publish(&gate, vec![refuse(Action::End)]);
    let (mut visitor, mut other) = (visit(&gate), to.next());
    echo(&mut visitor, &mut other, b"hello");
    echo(&mut before, &mut served, b"still there");
    assert_eq!((result(&gate, "refused"), result(&gate, "relayed")), (2, 2));
}

#[test]
fn a_drain_waits_for_connections_and_takes_no_new_ones() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    let at = address(&gate, "it");
    let (mut visitor, mut served) = (visit(&gate), to.next());
    gate.server().control().drain();
    until(|| TcpStream::connect(at).is_err().to_string(), |refused| refused == "true");
    // Those that came before it was.
    drop(to);
    for _ in 0..100 {
        echo(&mut visitor, &mut served, b"one");
        echo(&mut served, &mut visitor, b"two");
    }
    drop(visitor);
    assert_eq!(served.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_reload_starts_and_stops_services_and_drops_no_connection() {
    let (origin, one, two) = (Origin::start(), Service::start(), Service::start());
    let gate = Gate::start_from_file(&origin, "[origin]\nreplicas = [\"ORIGIN\"]");
    let files = |services: &str| {
        format!(
            "[listen]\nhttp = \"{}\"\nadmin = \"{}\"\n[origin]\nreplicas = [\"ORIGIN\"]\n{services}",
            gate.http, gate.admin
        )
    };
    gate.reload(&origin, &files(&service("it", one.address, "")));
    let (mut kept, mut served) = (visit(&gate), one.next());
    let before = address(&gate, "it");
    // Another destination, for new connections only; and one more service.
    let both = [service("it", two.address, ""), service("other", one.address, "")].concat();
    gate.reload(&origin, &files(&both));
    assert_eq!(address(&gate, "it"), before);
    let (mut new, mut there) = (visit(&gate), two.next());
    echo(&mut new, &mut there, b"new");
    let (mut other, mut here) = (connect(address(&gate, "other")), one.next());
    echo(&mut other, &mut here, b"other");
    assert_eq!(of(&gate, "it").figures.relayed.load(Relaxed), 2);
    // An address that is taken: nothing changes.
    let taken = service("third", one.address, "").replace("127.0.0.1:0", &two.address.to_string());
    let text = files(&[both, taken].concat()).replace("ORIGIN", &origin.address.to_string());
    std::fs::write(gate.state().join("gate.toml"), text).unwrap();
    let error = gate.server().control().store().reload().unwrap_err().to_string();
    assert!(error.contains("tcp.third.listen") && error.contains(&two.address.to_string()), "{error}");
    assert_eq!(gate.server().shared().tcp.list().len(), 2);
    // Gone: nobody listens there any more, and connections go on.
    let left = address(&gate, "other");
    gate.reload(&origin, &files(&service("it", two.address, "")));
    until(|| TcpStream::connect(left).is_err().to_string(), |refused| refused == "true");
    for (a, b) in [(&mut kept, &mut served), (&mut new, &mut there), (&mut other, &mut here)] {
        echo(a, b, b"up");
        echo(b, a, b"down");
    }
}

/// The address stays, with whoever waits there, when its service gets another name.
#[test]
fn a_service_is_renamed_while_connections_wait() {
    let (origin, to) = (Origin::start(), Service::start());
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gate = Gate::start_from_file(&origin, "[origin]\nreplicas = [\"ORIGIN\"]");
    let files = |name: &str| {
        let service =
            service(name, to.address, "max_connections = 1").replace("127.0.0.1:0", &at.to_string());
        format!(
            "[listen]\nhttp = \"{}\"\nadmin = \"{}\"\n[origin]\nreplicas = [\"ORIGIN\"]\n{service}",
            gate.http, gate.admin
        )
    };
    gate.reload(&origin, &files("before"));
    let (_first, _served) = (connect(at), to.next());
    let (mut waiting, other) = (connect(at), of(&gate, "before"));
    gate.reload(&origin, &files("after"));
    // It has a limit of its own.
    let mut served = to.next();
    echo(&mut waiting, &mut served, b"hello");
    assert_eq!(
        (other.figures.accepted.load(Relaxed), of(&gate, "after").figures.accepted.load(Relaxed)),
        (1, 1)
    );
}

/// Ready, although there is no origin; and the example is a whole configuration.
#[test]
fn a_gate_may_have_services_alone() {
    let to = Service::start();
    let gate = gate(&service("it", to.address, ""));
    assert!(admin(&gate, "/readyz").starts_with("HTTP/1.1 200"));
    let example = include_str!("../../../../../examples/redis.toml");
    let settings = Settings::parse(example, "redis.toml").unwrap();
    assert!(settings.is_for_tcp_only() && settings.priorities() > 1);
    let nothing = Settings::parse("", "nothing.toml").unwrap_err();
    assert!(nothing.iter().any(|mistake| mistake.key == "origin.replicas"));
}
