//! Files and their mistakes, frames of the flood, figures from counters written by hand, and small testbeds
//! of real kernels, where this machine has the rights.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::policing::frame;
use tidegate_gateway::base::clock::Clock;
use tidegate_kernel::{RuleCounters, is_built};

use super::addresses::{FLOOD_FROM, SERVER, machines_of};
use super::clients::Seen;
use super::cpu::CoreTime;
use super::flood;
use super::namespace::Namespace;
use super::network;
use super::play::{Moment, summary};
use super::*;

#[path = "../../../kernel/tests/suite/rights.rs"]
mod rights;

use rights::can_run;

const FILE: &str = r#"
name = "small"
[testbed]
measure = "1s"
policing = "xdp"
sessions = 3
[testbed.server]
processes = 2
service = "2ms"
[[testbed.client]]
name = "high"
[[testbed.client]]
name = "low"
machines = 2
sessions = 5
body_bytes = 100
[[testbed.rule]]
name = "high"
client = "high"
[[testbed.rule]]
name = "others"
rate = 50.5
burst = 7
priority = 1
"#;

fn parse(text: &str) -> Testbed {
    Testbed::parse(text, "small.toml", &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn a_file_says_who_comes_to_what() {
    assert!(is_described(FILE) && !is_described("[origin]\nworkers = 1"));
    let testbed = parse(FILE);
    let clients: Vec<_> = testbed.clients.iter().map(|c| (c.machines, c.sessions, c.body_bytes)).collect();
    assert_eq!(clients, [(1, 3, 8192), (2, 5, 100)]);
    assert_eq!((testbed.priorities(), testbed.flood.is_none()), (2, true));
    let [high, others] = &testbed.syn_rules()[..] else { panic!("two rules") };
    assert_eq!((high.filter.src, high.rate), (Some(machines_of(0).into()), f64::INFINITY));
    assert_eq!((others.filter.src, others.rate, others.burst), (None, 50.5, 7));
    assert_eq!((high.priority, others.priority, others.filter.dport), (0, 1, Some(80)));
    assert_eq!(machines_of(1).to_string(), "10.77.2.0/24");
    let set = [("testbed.sessions", "9"), ("testbed.rule.1.rate", "0"), ("testbed.policing", "\"off\"")];
    let set: Vec<_> = set.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let testbed = Testbed::parse(FILE, "small", &set).expect("a testbed");
    assert_eq!((testbed.clients[0].sessions, testbed.clients[1].sessions), (9, 5));
    assert_eq!((testbed.syn_rules()[1].rate, testbed.policing), (f64::INFINITY, Policing::Off));
}

#[test]
fn mistakes_are_reported_with_their_line() {
    for (from, to, line, expected) in [
        ("client = \"high\"", "client = \"hihg\"", 19, "expected a client (high, low); got \"hihg\""),
        ("policing = \"xdp\"", "policing = \"xpd\"", 5, "Did you mean `xdp`?"),
        (
            "[testbed.server]\nprocesses = 2\nservice = \"2ms\"\n",
            "",
            3,
            "expected a section [testbed.server]",
        ),
        ("service = \"2ms\"", "service = 2", 9, "expected a time"),
        ("name = \"low\"", "name = \"high\"", 13, "expected names that differ"),
        ("name = \"low\"", "name = \"low_1\"", 13, "expected a name of 1 to 32 letters and digits"),
        ("burst = 7", "bursts = 7", 23, "the unknown name \"bursts\""),
        ("rate = 50.5", "rate = 0.001", 22, "expected 0 or at least 0.01"),
        ("sessions = 3\n", "", 9, "testbed.client.high.sessions"),
        ("measure = \"1s\"\n", "", 3, "testbed.measure"),
        ("processes = 2", "processes = 2\nacceptor = \"gate\"", 0, ""),
    ] {
        assert!(FILE.contains(from), "{from}");
        let flood = if expected.is_empty() { "[testbed.flood]\n" } else { "" };
        let text = FILE.replacen(from, to, 1) + flood;
        let said = Testbed::parse(&text, "small.toml", &[]).expect_err(to).to_string();
        let expected = if expected.is_empty() { "expected no flood beside a gate" } else { expected };
        assert!(said.contains(expected), "{to}: {said}");
        assert!(line == 0 || said.contains(&format!("small.toml:{line}:")), "{to}: {said}");
    }
}

#[test]
fn figures_follow_from_the_counters_between_two_moments() {
    let testbed = parse(FILE);
    let seen = |served, body_bytes, time_us, failed| Seen { served, body_bytes, time_us, failed };
    let rule = |name: &str, seen, passed, dropped| RuleCounters {
        name: name.into(),
        seen,
        passed,
        dropped,
        ..RuleCounters::default()
    };
    let before = Moment { clients: vec![seen(10, 0, 0, 1), seen(0, 0, 0, 0)], ..Moment::default() };
    let after = Moment {
        clients: vec![seen(40, 61_440, 90_000, 1), seen(10, 1000, 5000, 4)],
        // One that nftables or a gate did not have at first.
        rules: vec![rule("others", 100, 60, 40), rule("high", 8, 8, 0)],
        flood_sent: 5000,
        packets: 6000,
        core: CoreTime { all: 200, busy: 150, kernel: 50 },
    };
    let figures = summary(&testbed, &before, &after, 2.0);
    let expected = [
        ("high_rps", 15.0),
        ("high_kbps", 30.0),
        ("high_share", 0.75),
        ("high_mean_ms", 3.0),
        ("high_failed_per_s", 0.0),
        ("low_rps", 5.0),
        ("low_share", 0.25),
        ("low_failed_per_s", 2.0),
        ("rule_others_seen_per_s", 50.0),
        ("rule_others_dropped_per_s", 20.0),
        ("rule_high_passed_per_s", 4.0),
        ("total_rps", 20.0),
        ("server_cpu", 0.75),
        ("server_kernel_cpu", 0.25),
        ("flood_sent_per_s", 2500.0),
        ("packets_per_s", 3000.0),
    ];
    for (key, value) in expected {
        assert_eq!(figures.get(key), Some(&value), "{key}");
    }
    let named: BTreeSet<String> = keys(&testbed).into_iter().collect();
    assert_eq!(named, figures.into_keys().collect(), "formulas know what there is");
}

#[test]
fn a_flood_is_of_whole_syns_from_senders_that_differ() {
    let mut sent = flood::frame();
    let mut senders = BTreeSet::new();
    for number in 0..20_000 {
        flood::stamp(&mut sent, number);
        let syn = frame::read(&sent).expect("a SYN");
        assert_eq!((syn.dst, syn.dport), ((*SERVER.ip()).into(), 80));
        let std::net::IpAddr::V4(src) = syn.src else { panic!("an IPv4 address") };
        assert_eq!(u32::from(src) >> 17, u32::from(FLOOD_FROM) >> 17, "{src}");
        assert!(syn.sport >= 1024);
        senders.insert((src, syn.sport));
        // Sums with the checksum in them are all ones, and so is what they are turned into: nothing.
        let (ip, tcp) = (&sent[14..34], &sent[34..]);
        assert_eq!(flood::checksum(ip, 0), 0);
        let mut pseudo = ip[12..20].to_vec();
        pseudo.extend([0, 6, 0, tcp.len() as u8]);
        pseudo.extend(tcp);
        assert_eq!(flood::checksum(&pseudo, 0), 0);
    }
    assert!(senders.len() > 19_900, "{} of 20,000", senders.len());
}

#[test]
fn counters_of_the_system_are_read() {
    let dev = "Inter-|   Receive\n  eth0: 100 7 0 0\nt12x1: 900 12345 0 0 1\nt12x10: 1 2 3\n";
    assert_eq!(network::packets(dev, "t12x1"), Some(12_345));
    assert_eq!((network::packets(dev, "eth0"), network::packets(dev, "x1")), (Some(7), None));
    let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu10 10 0 0 0 0 0 0 0 0 0\n";
    assert_eq!(CoreTime::read(stat, 0), Some(CoreTime { all: 36, busy: 27, kernel: 16 }));
    assert_eq!(CoreTime::read(stat, 10).map(|time| time.busy), Some(10));
    assert_eq!(CoreTime::read(stat, 1), None);
}

/// Plays a file; the machine must have the rights.
fn played(text: &str) -> std::collections::BTreeMap<String, f64> {
    let testbed = parse(text);
    let stop = AtomicBool::new(false);
    let order = Order { testbed: &testbed, program: Path::new(""), seed: 0, stop: &stop };
    play(&order).unwrap_or_else(|trouble| panic!("{trouble}")).summary
}

#[test]
fn who_is_policed_gets_the_burst_and_no_more() {
    if !can_run(is_built()) {
        return;
    }
    // One SYN in a hundred seconds, after four at once: five at most of all, also before counting begins.
    let text = FILE.replace("rate = 50.5\nburst = 7", "rate = 0.01\nburst = 4");
    for policing in ["xdp", "xdp-generic", "nftables"] {
        let figures = played(&text.replace("\"xdp\"", &format!("\"{policing}\"")));
        assert!(figures["high_rps"] > 0.0 && figures["high_failed_per_s"] == 0.0, "{policing}: {figures:?}");
        assert!(figures["low_rps"] <= 5.0, "{policing}: {figures:?}");
        assert!(figures["rule_others_passed_per_s"] <= 5.0, "{policing}: {figures:?}");
    }
    // Without policing the same clients get through, also those whose first SYN was lost: their kernels send
    // it again after a second.
    let text = text.replace("\"xdp\"", "\"off\"").replace("priority = 1", "priority = 0");
    let figures = played(&text.replace("measure = \"1s\"", "measure = \"5s\""));
    assert!(figures["low_rps"] > 5.0, "{figures:?}");
}

#[test]
fn who_has_priority_starves_the_others() {
    if !can_run(is_built()) {
        return;
    }
    // As many low ones as processes hold can have been accepted before the high ones came.
    let text = FILE.replace("rate = 50.5", "rate = 0").replace("sessions = 3", "sessions = 12");
    let text = text.replace("measure", "settle = \"300ms\"\nmeasure");
    let figures = played(&text);
    assert!(figures["high_share"] > 0.9, "{figures:?}");
    let same = played(&text.replace("priority = 1", "priority = 0"));
    assert!(same["high_share"] < 0.8, "{same:?}");
}

#[test]
fn a_flood_stays_where_it_belongs() {
    if !can_run(is_built()) {
        return;
    }
    let machine = Namespace::new().expect("a namespace");
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let refused = flood::send(&machine, 1, &sent, &stop).expect_err("outside");
    assert!(matches!(refused, Trouble::Outside), "{refused}");
    // Inside, it looks for the cable of its testbed.
    let missing = machine.run(|| flood::send(&machine, 1, &sent, &stop)).expect("inside");
    assert!(matches!(missing, Err(Trouble::System { .. })), "{missing:?}");
    assert_eq!(sent.load(Relaxed), 0);
    let text = FILE.replace("[[testbed.rule]]", "[testbed.flood]\n[[testbed.rule]]");
    let text = text.replacen("[testbed.flood]\n", "", 1);
    // A SYN that a full queue of the interface drops comes again after a second.
    let figures = played(&text.replace("measure = \"1s\"", "measure = \"5s\""));
    assert!(figures["flood_sent_per_s"] > 0.0 && figures["high_rps"] > 0.0, "{figures:?}");
    assert!(figures["rule_others_seen_per_s"] > figures["rule_others_passed_per_s"], "{figures:?}");
}

#[test]
fn a_flood_ends_with_its_number() {
    if !can_run(is_built()) {
        return;
    }
    let testbed = parse(&format!("{FILE}[testbed.flood]\nsends = false\n"));
    let network = network::Network::new(&testbed).expect("a network");
    let machine = network.flood.as_ref().expect("its machine");
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let before = network.received().expect("counters");
    let clock = Clock::new();
    let end = clock.now() + Duration::from_secs(60);
    // In small parts, which find room in the queue of a core beside what other tests send: it holds 1,000
    // (net.core.netdev_max_backlog), and what it has no room for is lost.
    for all in (1..=10).map(|part| 50 * part) {
        machine.run(|| flood::send(machine, 50, &sent, &stop)).expect("inside").expect("sent");
        assert_eq!(sent.load(Relaxed), all);
        while network.received().expect("counters") < before + all {
            assert!(clock.now() < end, "they arrive");
            std::thread::yield_now();
        }
    }
}

#[test]
fn nothing_is_left_of_a_testbed_that_is_stopped() {
    if !can_run(is_built()) {
        return;
    }
    let testbed = parse(FILE);
    let stop = AtomicBool::new(true);
    let order = Order { testbed: &testbed, program: Path::new(""), seed: 0, stop: &stop };
    assert!(matches!(play(&order), Err(Trouble::Stopped)));
    // The other end of a cable to a machine that is gone.
    let ours = Namespace::new().expect("a namespace");
    let theirs = Namespace::new().expect("a namespace");
    ours.ip(&[format!("link add cable type veth peer name eth0 netns {}", theirs.path())]).expect("a cable");
    let has_cable = || {
        let read = ours.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        network::packets(&read.expect("inside").expect("interfaces"), "cable").is_some()
    };
    assert!(has_cable());
    drop(theirs);
    let clock = Clock::new();
    let end = clock.now() + Duration::from_secs(60);
    while has_cable() {
        assert!(clock.now() < end, "the kernel removes it");
        std::thread::yield_now();
    }
}

#[test]
fn what_ip_refuses_is_said() {
    if !can_run(true) {
        return;
    }
    let machine = Arc::new(Namespace::new().expect("a namespace"));
    let said = machine.ip(&["link set nowhere up".into()]).expect_err("no such interface").to_string();
    assert!(said.contains("nowhere"), "{said}");
    assert!(
        !machine.is_current().expect("known")
            && machine.run(|| machine.is_current().expect("known")).expect("inside")
    );
}

#[test]
fn a_gate_is_configured_as_the_testbed_says() {
    let testbed = parse(FILE);
    let text = gate::configuration(&testbed, "t1x0", ([127, 0, 0, 1], 8000).into());
    let settings = tidegate_settings::Settings::parse(&text, "gate.toml");
    let settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"));
    let tcp = &settings.tcp[0];
    assert_eq!((tcp.listen, tcp.max_connections, tcp.to.as_str()), (SERVER.into(), 2, "127.0.0.1:8000"));
    let rules = settings.syn_rules();
    let ours = testbed.syn_rules();
    let short =
        |rule: &tidegate_core::policing::SynRule| (rule.name.clone(), rule.filter, rule.rate, rule.priority);
    assert_eq!(rules.iter().map(short).collect::<Vec<_>>(), ours.iter().map(short).collect::<Vec<_>>());
    assert_eq!((rules[1].burst, settings.kernel.interfaces), (7, vec!["t1x0".to_owned()]));
}
