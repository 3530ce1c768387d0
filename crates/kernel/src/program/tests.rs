//! The programs in the kernel, driven by `BPF_PROG_TEST_RUN`, which runs them on frames that never touch a
//! network.
//!
//! Time is virtual where it matters: a constant that is set before loading lets the program read its clock
//! from a map, and each reading advances it by a step, on whatever CPU. So a minute of a flood takes a
//! second, and the result is the same on a slow machine.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate_core::policing::{Excess, Filter, Rules, SynRule, frame};

use super::frames::{ACK, Frame, checksum, extension, fragment};
use super::rights::can_run;
use super::*;
use crate::layout::TestClock;

const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// What the program made of a frame.
struct Ran {
    verdict: u32,
    frame: Vec<u8>,
    /// Per run.
    duration: Duration,
}

/// With a virtual clock.
fn loaded(max_rules: usize) -> Shared {
    Loaded::with_clock(max_rules, Part::Policing, true).expect("the verifier accepts the program")
}

impl Loaded {
    fn run(&self, bytes: &[u8], repeat: u32) -> Ran {
        run(self.ebpf.program("syn_police").expect("loaded").try_into().expect("XDP"), bytes, repeat)
    }

    fn set_clock(&mut self, now: Duration, step: Duration) {
        let clock = TestClock { now: now.as_nanos() as u64, step: step.as_nanos() as u64 };
        self.test_clock.set(0, clock, 0).expect("the clock");
    }
}

fn run(program: &Xdp, bytes: &[u8], repeat: u32) -> Ran {
    let mut out = vec![0; bytes.len()];
    let options =
        TestRunOptions { data_in: Some(bytes), data_out: Some(&mut out), repeat, ..Default::default() };
    let result = program.test_run(options).expect("the program runs");
    out.truncate(result.data_size_out as usize);
    Ran { verdict: result.return_value, frame: out, duration: result.duration }
}

fn net(text: &str) -> Option<IpNet> {
    Some(text.parse().expect("a prefix"))
}

/// About everything.
fn rule(rate: f64, burst: u32) -> SynRule {
    SynRule::new("all", Filter::default(), rate, burst)
}

/// A note that passing tests show too.
fn note(line: &str) {
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}

fn pin_to(cpu: usize) {
    // SAFETY: a zeroed set is an empty one, and the call reads it only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Floods a rule for 60 s of virtual time from `cpus` CPUs at once, and returns how many SYNs passed.
fn passed_in_a_minute(rate: f64, burst: u32, step: Duration, cpus: usize) -> u64 {
    let shared = loaded(1);
    let mut guard = shared.lock();
    guard.set_clock(Duration::from_secs(1000), step);
    guard.set_rules(&[rule(rate, burst)]).expect("set");
    let bytes = Frame::syn("10.0.0.1", 1, "10.0.0.2", 80).bytes();
    let each = (60_000_000_000 / step.as_nanos() as u64 / cpus as u64) as u32;
    let program: &Xdp = guard.ebpf.program("syn_police").expect("loaded").try_into().expect("XDP");
    std::thread::scope(|scope| {
        for cpu in 0..cpus {
            let bytes = &bytes;
            scope.spawn(move || {
                pin_to(cpu);
                run(program, bytes, each)
            });
        }
    });
    let counters = guard.counters().expect("counters").remove(0);
    assert_eq!(counters.seen, u64::from(each) * cpus as u64);
    assert_eq!(counters.passed + counters.dropped, counters.seen);
    counters.passed
}

#[test]
fn a_minute_passes_its_rate_and_one_burst_on_one_cpu_and_on_two() {
    if !can_run(is_built()) {
        return;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    for cpus in 1..=cpus {
        for (rate, burst, step_us) in [(1000.0, 500, 20), (25.5, 5, 200), (0.1, 5, 1000), (40_000.0, 100, 20)]
        {
            let passed = passed_in_a_minute(rate, burst, Duration::from_micros(step_us), cpus);
            let expected = rate * 60.0 + f64::from(burst);
            let off = (passed as f64 / expected - 1.0) * 100.0;
            note(&format!("{cpus} CPUs, {rate}/s, burst {burst}: {passed} of {expected} ({off:+.3} %)"));
            // A whole SYN is more than a percent of few.
            let is_close = off.abs() <= 1.0 || (passed as f64 - expected).abs() <= 1.0;
            assert!(is_close, "{passed} of {expected} on {cpus} CPUs");
        }
    }
}

#[test]
fn changes_of_the_rate_give_no_syn_for_nothing() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(1);
    let mut guard = shared.lock();
    let bytes = Frame::syn("10.0.0.1", 1, "10.0.0.2", 80).bytes();
    let mut now = Duration::from_secs(1000);
    guard.set_clock(now, Duration::ZERO);
    guard.set_rules(&[rule(100.0, 100)]).expect("set");
    guard.run(&bytes, 200);
    assert_eq!(guard.counters().expect("counters")[0].passed, 100, "the burst");
    // 10 ms at each rate, 200 times: one SYN at 100/s, a half at 50/s.
    for i in 0..200 {
        let rate = if i % 2 == 0 { 50.0 } else { 100.0 };
        guard.set_rules(&[rule(rate, 100)]).expect("set");
        now += Duration::from_millis(10);
        guard.set_clock(now, Duration::ZERO);
        guard.run(&bytes, 5);
    }
    let passed = guard.counters().expect("counters")[0].passed;
    assert!((249..=251).contains(&passed), "{passed} of 100 + 100 + 50");
}

#[test]
fn a_rule_keeps_its_bucket_and_counters_and_a_new_one_begins_full() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(3);
    let mut guard = shared.lock();
    guard.set_clock(Duration::from_secs(1000), Duration::ZERO);
    let bytes = Frame::syn("10.0.0.1", 1, "10.0.0.2", 80).bytes();
    let other = SynRule::new("other", Filter { src: net("192.0.2.1/32"), ..Filter::default() }, 1.0, 1);
    guard.set_rules(&[rule(1.0, 3)]).expect("set");
    guard.run(&bytes, 5);
    guard.set_rules(&[other.clone(), rule(1.0, 3)]).expect("set");
    guard.run(&bytes, 5);
    let counters = guard.counters().expect("counters");
    assert_eq!((counters[1].name.as_str(), counters[1].seen, counters[1].passed), ("all", 10, 3));
    guard.set_rules(&[other]).expect("set");
    assert_eq!(guard.run(&bytes, 1).verdict, PASS, "no rule is about it");
    assert_eq!(guard.totals().expect("totals"), Totals { syns: 11, unmatched: 1 });
    guard.set_rules(&[rule(1.0, 3)]).expect("set");
    guard.run(&bytes, 5);
    assert_eq!(guard.counters().expect("counters")[0].passed, 3);
}

#[test]
fn refused_rules_change_nothing() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(2);
    let mut guard = shared.lock();
    guard.set_rules(&[rule(0.0, 1)]).expect("set");
    let named =
        |name: &str, src: &str| SynRule::new(name, Filter { src: net(src), ..Filter::default() }, 1.0, 1);
    let three = [named("a", "10.0.0.1/32"), named("b", "10.0.0.2/32"), named("c", "10.0.0.3/32")];
    assert!(matches!(guard.set_rules(&three), Err(KernelError::TooManyRules { given: 3, most: 2 })));
    assert!(matches!(guard.set_rules(&[rule(-1.0, 1)]), Err(KernelError::Rule(_))));
    assert_eq!(guard.run(&Frame::syn("10.0.0.1", 1, "10.0.0.2", 80).bytes(), 1).verdict, DROP);
    // Many times as many as there is room for at once: places are given back.
    for i in 0..50 {
        let pair = [named(&format!("x{i}"), "10.0.0.1/32"), named(&format!("y{i}"), "10.0.0.2/32")];
        guard.set_rules(&pair).expect("set");
    }
}

#[test]
fn what_is_a_syn() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(1);
    let mut guard = shared.lock();
    guard.set_rules(&[rule(0.0, 1)]).expect("set");
    let v4 = Frame::syn("10.0.0.1", 1, "10.0.0.2", 80);
    let v6 = Frame::syn("2001:db8::1", 1, "2001:db8::2", 80);
    let options = Frame { options: vec![1; 40], ..v4.clone() };
    let chain =
        vec![extension(0, 1), extension(43, 3), extension(60, 2), (51, [vec![0, 4], vec![0; 22]].concat())];
    let cases = [
        ("IPv4", v4.clone(), DROP),
        ("IPv6", v6.clone(), DROP),
        ("SYN ACK", Frame { flags: 2 | ACK, ..v4.clone() }, PASS),
        ("ACK", Frame { flags: ACK, ..v6.clone() }, PASS),
        ("SYN RST", Frame { flags: 6, ..v4.clone() }, PASS),
        ("ECN setup", Frame { flags: 0xc2, ..v4.clone() }, DROP),
        ("a VLAN", Frame { tags: vec![0x8100], ..v4.clone() }, DROP),
        ("two VLANs", Frame { tags: vec![0x88a8, 0x8100], ..v6.clone() }, DROP),
        ("three VLANs", Frame { tags: vec![0x88a8, 0x8100, 0x8100], ..v4.clone() }, PASS),
        ("IP options", options.clone(), DROP),
        ("IP options in a VLAN", Frame { tags: vec![0x8100], ..options }, DROP),
        (
            "TCP options and data",
            Frame { tcp_options: vec![1; 20], payload: vec![7; 100], ..v4.clone() },
            DROP,
        ),
        ("extension headers", Frame { extensions: chain, ..v6.clone() }, DROP),
        ("eight of them", Frame { extensions: vec![extension(60, 1); 8], ..v6.clone() }, DROP),
        ("nine of them", Frame { extensions: vec![extension(60, 1); 9], ..v6.clone() }, PASS),
        ("long ones", Frame { extensions: vec![extension(60, 90); 4], ..v6.clone() }, DROP),
        ("the first fragment", Frame { fragment: 0x2000, ..v4.clone() }, DROP),
        ("a later fragment", Frame { fragment: 0x2004, ..v4.clone() }, PASS),
        ("the last fragment", Frame { fragment: 4, ..v4.clone() }, PASS),
        ("a first fragment without flags", Frame { fragment: 0x2000, cut: 8, ..v4.clone() }, DROP),
        ("the same, and no fragment", Frame { cut: 8, ..v4.clone() }, PASS),
        ("the first fragment, IPv6", Frame { extensions: vec![fragment(1)], ..v6.clone() }, DROP),
        ("a later fragment, IPv6", Frame { extensions: vec![fragment(9)], ..v6.clone() }, PASS),
        ("cut before the flags, IPv6", Frame { extensions: vec![fragment(1)], cut: 8, ..v6.clone() }, DROP),
        // In several buffers, which kernels have from 5.18 on.
        ("a jumbo frame", Frame { payload: vec![0; 9000], ..v4.clone() }, DROP),
    ];
    for (what, frame_of, verdict) in cases {
        let bytes = frame_of.bytes();
        assert_eq!(frame::read(&bytes).is_some(), verdict == DROP, "the reference: {what}");
        let ran = guard.run(&bytes, 1);
        assert_eq!(ran.verdict, verdict, "{what}");
        assert!(ran.frame == bytes, "untouched: {what}");
    }
}

#[test]
fn a_reset_is_what_the_stack_would_answer() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(1);
    let mut guard = shared.lock();
    guard.set_rules(&[SynRule { excess: Excess::Reset, ..rule(0.0, 1) }]).expect("set");
    let v4 = Frame {
        tcp_options: vec![1; 20],
        payload: vec![9; 7],
        ..Frame::syn("10.0.0.1", 1234, "10.0.0.2", 80)
    };
    let v6 = Frame { tags: vec![0x8100], ..Frame::syn("2001:db8::1", 1234, "2001:db8::2", 80) };
    for (sent, tags, data) in [(&v4, 0, 7), (&v6, 4, 0)] {
        let ran = guard.run(&sent.bytes(), 1);
        assert_eq!(ran.verdict, TX);
        let bytes = ran.frame;
        assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        let ip = &bytes[14 + tags..];
        let (addresses, tcp) = if sent.src.is_ipv4() {
            assert_eq!(checksum(&ip[..20]), 0);
            assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 40);
            assert_eq!((&ip[12..16], &ip[16..20]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
            (&ip[12..20], &ip[20..])
        } else {
            assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 20);
            assert_eq!((ip[23], ip[39]), (2, 1));
            (&ip[8..40], &ip[40..])
        };
        assert_eq!(tcp.len(), 20);
        assert_eq!(tcp[..4], [0, 80, 4, 210]);
        assert_eq!(u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]), 1001 + data);
        assert_eq!((tcp[12], tcp[13]), (0x50, 0x14));
        assert_eq!(checksum(&[addresses, &[0, 6, 0, 20], tcp].concat()), 0);
    }
    // An answer to these would need more: they are dropped.
    let options = Frame { options: vec![1; 4], ..v4 };
    let chained = Frame { extensions: vec![extension(0, 1)], ..v6 };
    for sent in [options, chained] {
        assert_eq!(guard.run(&sent.bytes(), 1).verdict, DROP);
    }
    let counters = guard.counters().expect("counters").remove(0);
    assert_eq!((counters.seen, counters.reset, counters.dropped), (4, 2, 2));
}

/// The first of several shapes, each with `rules` rules: sources, or sources and a port.
fn many_rules(rules: usize, shapes: usize) -> Vec<SynRule> {
    (0..rules)
        .map(|i| {
            let address = IpAddr::from((0x0a00_0000u32 + (i / shapes) as u32 * 2).to_be_bytes());
            let length = 32 - (i % shapes % 8) as u8;
            let dst =
                (i % shapes >= 8).then(|| IpNet::new([192, 0, 2, 0].into(), 24 + (i % shapes / 8) as u8));
            let filter = Filter {
                src: IpNet::new(address, length).ok(),
                dst: dst.map(|net| net.expect("a length")),
                ..Filter::default()
            };
            SynRule::new(format!("{i}"), filter, 1.0, 1)
        })
        .collect()
}

#[test]
fn many_rules_cost_what_few_cost() {
    if !can_run(is_built()) {
        return;
    }
    // With the kernel's own clock.
    let shared = Loaded::new(10_000, Part::Policing).expect("loads");
    let mut guard = shared.lock();
    let hit = Frame::syn("10.0.0.0", 1, "192.0.2.1", 80).bytes();
    let miss = Frame::syn("172.16.0.1", 1, "10.9.0.1", 80).bytes();
    let no_syn = Frame { flags: ACK, ..Frame::syn("10.0.0.0", 1, "192.0.2.1", 80) }.bytes();
    let mut lookups = Vec::new();
    for (rules, shapes) in [(10, 1), (10_000, 1), (64, 8), (9_600, 8), (64, 64)] {
        let all = many_rules(rules, shapes);
        let mut seen = BTreeSet::new();
        let all: Vec<_> = all
            .into_iter()
            .filter(|rule| {
                let filter = rule.filter;
                seen.insert((filter.src.map(|net| net.trunc()), filter.dst.map(|net| net.trunc())))
            })
            .collect();
        let begin = guard.now_ns().expect("the clock");
        guard.set_rules(&all).expect("set");
        let set_ms = (guard.now_ns().expect("the clock") - begin) / 1_000_000;
        let ns = |bytes: &[u8]| guard.run(bytes, 300_000).duration.as_nanos();
        let (hit, miss, no_syn) = (ns(&hit), ns(&miss), ns(&no_syn));
        note(&format!(
            "{} rules of {shapes} shapes: {hit} ns for a SYN that the first shape refuses, {miss} ns for one that none \
             is about, {no_syn} ns for another packet; set in {set_ms} ms",
            all.len()
        ));
        lookups.push((shapes, all.len()));
    }
    assert_eq!(lookups[1], (1, 10_000));
}

#[test]
fn a_thousand_updates_under_a_flood_leave_no_gap() {
    if !can_run(is_built()) {
        return;
    }
    let shared = loaded(2);
    let mut guard = shared.lock();
    let refuse = |name: &str, filter: Filter| SynRule::new(name, filter, 0.0, 1);
    // Different shapes, names and places, so that half an update would be seen.
    let sets = [
        [refuse("a", Filter::default())],
        [refuse("b", Filter { src: net("10.0.0.0/8"), dport: Some(80), ..Filter::default() })],
    ];
    guard.set_rules(&sets[0]).expect("set");
    let is_over = AtomicBool::new(false);
    let bytes = Frame::syn("10.0.0.1", 1, "10.0.0.2", 80).bytes();
    // The flood must not wait for the lock that updates hold: another owner for the program, on the same
    // maps.
    let other = loaded(1);
    let mut other = other.lock();
    std::mem::swap(&mut guard.ebpf, &mut other.ebpf);
    let program: &Xdp = other.ebpf.program("syn_police").expect("loaded").try_into().expect("XDP");
    let totals = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Many at once, since the kernel prepares each run for some milliseconds.
                assert_eq!(run(program, &bytes, 20_000).verdict, DROP);
            }
        });
        for i in 1..=1000 {
            guard.set_rules(&sets[i % 2]).expect("set");
        }
        is_over.store(true, Ordering::Relaxed);
        flood.join().expect("no SYN passed");
        guard.totals().expect("totals")
    });
    note(&format!("{} SYNs during 1000 updates, {} without a rule", totals.syns, totals.unmatched));
    assert!(totals.syns >= 1000);
    assert_eq!(totals.unmatched, 0);
}

/// Random rules over few addresses and ports, so that many match.
fn random_rules(rng: &mut StdRng) -> Vec<SynRule> {
    let mut seen = BTreeSet::new();
    let mut rules = Vec::new();
    for i in 0..40 {
        let v6 = rng.random_bool(0.5);
        let net = |rng: &mut StdRng| {
            let longest = if v6 { 128 } else { 32 };
            let length = [0, 8, longest - 2, longest - 1, longest][rng.random_range(0..5)];
            let net = IpNet::new(random_address(rng, v6), length).expect("a length").trunc();
            rng.random_bool(0.6).then_some(net)
        };
        let port = |rng: &mut StdRng| rng.random_bool(0.4).then(|| rng.random_range(0..3));
        let filter = Filter { src: net(rng), dst: net(rng), sport: port(rng), dport: port(rng) };
        let rate = if rng.random_bool(0.5) { 0.0 } else { f64::INFINITY };
        let excess = if rng.random_bool(0.5) { Excess::Drop } else { Excess::Reset };
        if seen.insert(format!("{filter:?}")) {
            rules.push(SynRule { excess, ..SynRule::new(format!("{i}"), filter, rate, 1) });
        }
    }
    rules
}

fn random_address(rng: &mut StdRng, v6: bool) -> IpAddr {
    let host = rng.random_range(0..4);
    if v6 { IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]) } else { IpAddr::from([10, 0, 0, host as u8]) }
}

/// A frame that may be anything, most often nearly a SYN.
fn random_frame(rng: &mut StdRng) -> Vec<u8> {
    let v6 = rng.random_bool(0.5);
    let mut frame = Frame::syn("10.0.0.1", 0, "10.0.0.2", 0);
    (frame.src, frame.dst) = (random_address(rng, v6), random_address(rng, v6));
    (frame.sport, frame.dport) = (rng.random_range(0..4), rng.random_range(0..4));
    let some = |rng: &mut StdRng| rng.random_bool(0.2);
    if some(rng) {
        frame.flags = rng.random();
    }
    if some(rng) {
        frame.tags = (0..rng.random_range(0..4)).map(|_| [0x8100, 0x88a8][rng.random_range(0..2)]).collect();
    }
    if some(rng) {
        frame.options = vec![1; rng.random_range(0..=10) * 4];
    }
    if some(rng) {
        frame.fragment = [0x2000, 0x4000, 1, rng.random()][rng.random_range(0..4)];
    }
    if some(rng) {
        frame.tcp_options = vec![1; rng.random_range(0..=10) * 4];
    }
    if some(rng) {
        frame.cut = rng.random_range(0..24);
    }
    if some(rng) {
        let kinds = [0, 43, 60, 135, 139, 140, 59, 50];
        for _ in 0..rng.random_range(0..10) {
            frame.extensions.push(match rng.random_range(0..5) {
                0 => fragment([0, 1, 8, rng.random()][rng.random_range(0..4)]),
                1 => (51, [vec![0, 4], vec![0; 22]].concat()),
                _ => extension(kinds[rng.random_range(0..kinds.len())], rng.random_range(1..4)),
            });
        }
    }
    let mut bytes = frame.bytes();
    if some(rng) {
        bytes.extend(vec![0; rng.random_range(0..30)]);
    }
    if rng.random_bool(0.5) {
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(12..bytes.len());
            bytes[at] = rng.random();
        }
    }
    if some(rng) {
        bytes.truncate(rng.random_range(14..=bytes.len()));
    }
    if rng.random_bool(0.02) {
        bytes = (0..rng.random_range(14..200)).map(|_| rng.random()).collect();
    }
    // The kernel runs nothing on less than an Ethernet header.
    bytes.resize(bytes.len().max(14), 0);
    bytes
}

/// TIDEGATE_FRAMES random frames (default: 30,000) under random rules: the program does what the reference
/// says, and what passes or is dropped is untouched.
#[test]
fn random_frames_are_never_misread() {
    if !can_run(is_built()) {
        return;
    }
    let frames: u64 = std::env::var("TIDEGATE_FRAMES").map_or(30_000, |n| n.parse().expect("a number"));
    let per_set = 5000;
    let shared = loaded(64);
    let mut guard = shared.lock();
    let (mut syns, mut refused) = (0, 0);
    for seed in 0..frames.div_ceil(per_set) {
        let mut rng = StdRng::seed_from_u64(seed);
        let rules = random_rules(&mut rng);
        let reference = Rules::new(rules.iter().cloned()).expect("valid");
        // So that counters begin at zero.
        guard.set_rules(&[]).expect("set");
        guard.set_rules(&rules).expect("set");
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for i in 0..per_set.min(frames - seed * per_set) {
            let bytes = random_frame(&mut rng);
            let syn = frame::read(&bytes);
            let rule = syn.and_then(|syn| reference.find(&syn));
            let ran = guard.run(&bytes, 1);
            syns += u64::from(syn.is_some());
            let context = || format!("seed {seed}, frame {i}: {syn:?} {rule:?} {bytes:02x?}");
            match rule.filter(|rule| rule.rate == 0.0) {
                None => assert_eq!(ran.verdict, PASS, "{}", context()),
                Some(rule) if rule.excess == Excess::Drop => assert_eq!(ran.verdict, DROP, "{}", context()),
                Some(_) => assert!([DROP, TX].contains(&ran.verdict), "{}", context()),
            }
            if ran.verdict != TX {
                assert_eq!(ran.frame, bytes, "{}", context());
            }
            refused += u64::from(ran.verdict != PASS);
            if let Some(rule) = rule {
                *seen.entry(&rule.name).or_default() += 1;
            }
        }
        for counters in guard.counters().expect("counters") {
            let expected = seen.get(counters.name.as_str()).copied().unwrap_or(0);
            assert_eq!(counters.seen, expected, "seed {seed}, rule {}", counters.name);
        }
    }
    assert_eq!(guard.totals().expect("totals").syns, syns);
    assert!(refused > frames / 20 && syns < frames, "{refused} refused, {syns} SYNs: too few of either kind");
    note(&format!("{frames} frames, {syns} of them SYNs, {refused} refused: as the reference says"));
}
