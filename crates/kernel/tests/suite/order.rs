//! The order of accept(), with real sockets.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, RawFd};

use socket2::Socket;
use tidegate_core::policing::{Excess, Filter, SynRule};
use tidegate_kernel::{
    Mechanism, Policer, PolicerConfig, Priorities, PriorityConfig, SynPolicing as _, XdpMode, accept_first,
    is_built, listen,
};

use crate::net::{Namespace, outcome, try_connect, wait_for};
use crate::rights::can_run;

const PRIORITIES: usize = 3;

fn prioritised(src: &str, priority: u8) -> SynRule {
    let filter = Filter { src: Some(src.parse().expect("a prefix")), ..Filter::default() };
    SynRule { priority, ..SynRule::new(src, filter, f64::INFINITY, 1) }
}

fn fds(listeners: &[Vec<TcpListener>]) -> Vec<Vec<RawFd>> {
    listeners.iter().map(|of| of.iter().map(|listener| listener.as_raw_fd()).collect()).collect()
}

fn connect(from: &str, to: SocketAddr) -> Socket {
    let socket = try_connect(from, to);
    wait_for("a connection", || outcome(&socket)).expect("accepted by the kernel");
    socket
}

/// Priorities and sources of all that wait at one worker, in the order in which they are accepted.
fn drain(listeners: &[Vec<TcpListener>], worker: usize) -> Vec<(usize, String)> {
    let mut accepted = Vec::new();
    loop {
        let of_worker = listeners.iter().map(|of| &of[worker]);
        match accept_first(of_worker).expect("accept") {
            None => return accepted,
            Some((priority, connection)) => {
                let from = connection.peer_addr().expect("a peer").ip().to_canonical();
                accepted.push((priority, from.to_string()));
            }
        }
    }
}

/// A crowd waits, then others come: those of higher priority are accepted first, and each priority in its
/// order.
fn later_but_first(address: &str, [high, middle, low]: [&str; 3], workers: usize) {
    let listeners =
        listen(address.parse().expect("an address"), PRIORITIES, workers, 100).expect("listeners");
    let mut to = listeners[0][0].local_addr().expect("an address");
    let length = if high.contains(':') { 128 } else { 32 };
    // Sockets of IPv6 that take IPv4 too.
    if length == 32 {
        to.set_ip([127, 0, 0, 1].into());
    }
    let config = PriorityConfig::default();
    let mut priorities = Priorities::new(None, &config).expect("loads");
    let rules = [prioritised(&format!("{high}/{length}"), 0), prioritised(&format!("{middle}/{length}"), 1)];
    priorities.set_rules(&rules).expect("set");
    priorities.attach(&fds(&listeners), &config).expect("attached");
    let mut clients = Vec::new();
    for (from, count) in [(low, 30), (middle, 10), (high, 5)] {
        clients.extend((0..count).map(|_| connect(from, to)));
    }
    let mut all = 0;
    for worker in 0..workers {
        let accepted = drain(&listeners, worker);
        all += accepted.len();
        assert!(accepted.is_sorted_by_key(|(priority, _)| *priority), "{accepted:?}");
        for (priority, from) in &accepted {
            assert_eq!(from, [high, middle, low][*priority]);
        }
    }
    assert_eq!(all, 45);
    // One of the crowd comes, and then a preferred one: the latter is next.
    clients.extend([connect(low, to), connect(high, to)]);
    let order: Vec<_> = (0..workers).flat_map(|worker| drain(&listeners, worker)).collect();
    assert!(order.len() == 2 && (workers > 1 || order[0].1 == high), "{order:?}");
    // Other rules, and other priorities from then on.
    priorities.set_rules(&[prioritised(&format!("{low}/{length}"), 0)]).expect("set");
    clients.extend([connect(high, to), connect(low, to)]);
    let order: BTreeSet<_> = (0..workers).flat_map(|worker| drain(&listeners, worker)).collect();
    assert_eq!(order, [(0, low.to_owned()), (2, high.to_owned())].into());
    // Without the program the kernel spreads them by hash, and none is lost.
    drop(priorities);
    clients.extend((0..30).map(|_| connect(high, to)));
    let spread: Vec<_> = (0..workers).flat_map(|worker| drain(&listeners, worker)).collect();
    assert_eq!(spread.len(), 30);
    assert!(spread.iter().any(|(priority, _)| *priority > 0));
}

#[test]
fn the_highest_priority_is_accepted_first() {
    if !can_run(is_built()) {
        return;
    }
    let namespace = Namespace::new();
    for host in 1..=3 {
        namespace.ip(&format!("addr add fd77::{host}/128 dev lo nodad"));
    }
    namespace.run(|| {
        for workers in [1, 2] {
            let v4 = ["127.0.1.1", "127.0.1.2", "127.0.1.3"];
            later_but_first("127.0.0.1:0", v4, workers);
            later_but_first("[::]:0", v4, workers);
            later_but_first("[::1]:0", ["fd77::1", "fd77::2", "fd77::3"], workers);
        }
    });
}

#[test]
fn two_addresses_share_the_program() {
    if !can_run(is_built()) {
        return;
    }
    Namespace::new().run(|| {
        let config = PriorityConfig::default();
        let mut priorities = Priorities::new(None, &config).expect("loads");
        priorities.set_rules(&[prioritised("127.0.1.1/32", 0)]).expect("set");
        let mut clients = Vec::new();
        let mut all = Vec::new();
        for _ in 0..2 {
            let listeners = listen("127.0.0.1:0".parse().expect("an address"), 2, 2, 50).expect("listeners");
            priorities.attach(&fds(&listeners), &config).expect("attached");
            all.push(listeners);
        }
        for listeners in &all {
            let to = listeners[0][0].local_addr().expect("an address");
            for _ in 0..8 {
                clients.extend([connect("127.0.0.1", to), connect("127.0.1.1", to)]);
            }
        }
        for listeners in &all {
            let mut accepted: Vec<_> = (0..2).flat_map(|worker| drain(listeners, worker)).collect();
            accepted.sort();
            assert_eq!(accepted.len(), 16);
            assert!(accepted[..8].iter().all(|(priority, from)| *priority == 0 && from == "127.0.1.1"));
            assert!(accepted[8..].iter().all(|(priority, from)| *priority == 1 && from == "127.0.0.1"));
        }
        let uneven = [vec![0], vec![0, 1]];
        assert!(priorities.attach(&uneven, &config).is_err());
    });
}

/// Addresses that are no longer listened at leave their places to others.
#[test]
fn closed_addresses_leave_room_for_others() {
    if !can_run(is_built()) {
        return;
    }
    Namespace::new().run(|| {
        let config = PriorityConfig::default();
        let mut priorities = Priorities::new(None, &config).expect("loads");
        priorities.set_rules(&[prioritised("127.0.1.1/32", 0)]).expect("set");
        let new = || listen("127.0.0.1:0".parse().expect("an address"), 8, 40, 50).expect("listeners");
        let kept = new();
        priorities.attach(&fds(&kept), &config).expect("attached");
        // There are places for twelve at a time.
        for _ in 0..30 {
            priorities.attach(&fds(&new()), &config).expect("attached");
        }
        let to = kept[0][0].local_addr().expect("an address");
        let _clients = [connect("127.0.0.1", to), connect("127.0.1.1", to)];
        let mut accepted: Vec<_> = (0..40).flat_map(|worker| drain(&kept, worker)).collect();
        accepted.sort();
        assert_eq!(accepted, [(0, "127.0.1.1".to_owned()), (7, "127.0.0.1".to_owned())]);
        let mut open = Vec::new();
        let full = (0..13).find_map(|_| {
            open.push(new());
            priorities.attach(&fds(open.last()?), &config).err()
        });
        assert!(full.expect("too many").to_string().contains("4096"));
    });
}

/// The excess of a rule with `slow` passes, and waits behind all others.
#[test]
fn slow_connections_wait_behind_all_others() {
    if !can_run(is_built()) {
        return;
    }
    Namespace::new().run(|| {
        let config = PolicerConfig {
            interfaces: vec!["lo".into()],
            mechanism: Mechanism::Xdp,
            xdp_mode: XdpMode::Generic,
            ..PolicerConfig::default()
        };
        let mut policer = Policer::attach(&config).expect("attached");
        let config = PriorityConfig::default();
        let mut priorities = Priorities::new(Some(&policer), &config).expect("loads");
        let listeners =
            listen("127.0.0.1:0".parse().expect("an address"), PRIORITIES, 1, 100).expect("listeners");
        let to = listeners[0][0].local_addr().expect("an address");
        priorities.attach(&fds(&listeners), &config).expect("attached");
        // Three an hour is none in the time of this test.
        let eager = SynRule { rate: 0.01, burst: 3, excess: Excess::Slow, ..prioritised("127.0.1.1/32", 0) };
        policer.set_rules(&[eager, prioritised("127.0.1.2/32", 1)]).expect("set");
        let mut clients: Vec<_> = (0..8).map(|_| connect("127.0.1.1", to)).collect();
        clients.extend((0..4).map(|_| connect("127.0.1.2", to)));
        let priorities_of: Vec<usize> =
            drain(&listeners, 0).into_iter().map(|(priority, _)| priority).collect();
        assert_eq!(priorities_of, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        let counters = policer.counters().expect("counters");
        assert_eq!((counters[0].seen, counters[0].passed, counters[0].slowed), (8, 3, 5));
    });
}
