//! Policing of what crosses a cable, by XDP in both modes and by nftables.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::policing::{Excess, Filter, SynRule};
use tidegate_kernel::{
    KernelError, Mechanism, Mode, PolicerConfig, SynPolicing, XdpMode, attach, is_built, probe,
};

use crate::frames::Frame;
use crate::net::{Cable, SERVER_V4, SERVER_V6, now, outcome, try_connect, wait_for};
use crate::rights::can_run;

/// Every mechanism, on the server's end.
pub const MECHANISMS: [(Mechanism, XdpMode, Mode); 3] = [
    (Mechanism::Xdp, XdpMode::Native, Mode::XdpNative),
    (Mechanism::Xdp, XdpMode::Generic, Mode::XdpGeneric),
    (Mechanism::Nftables, XdpMode::Auto, Mode::Nftables),
];

pub fn config(mechanism: Mechanism, xdp_mode: XdpMode) -> PolicerConfig {
    PolicerConfig { interfaces: vec!["s0".into()], mechanism, xdp_mode, ..PolicerConfig::default() }
}

pub fn police(cable: &Cable, mechanism: Mechanism, xdp_mode: XdpMode) -> Box<dyn SynPolicing> {
    cable.server.run(|| attach(&config(mechanism, xdp_mode))).expect("attached")
}

fn note(line: &str) {
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}

fn to(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), 80)
}

/// About one client.
fn about(src: &str, rate: f64, burst: u32) -> SynRule {
    SynRule::new(src, Filter { src: Some(src.parse().expect("a prefix")), ..Filter::default() }, rate, burst)
}

#[test]
fn connections_are_refused_by_rule() {
    if !can_run(is_built()) {
        return;
    }
    for (mechanism, xdp_mode, mode) in MECHANISMS {
        let cable = Cable::new();
        let _listeners =
            cable.server.run(|| [SERVER_V4, SERVER_V6].map(|to_| TcpListener::bind(to(to_)).expect("bound")));
        let mut policing = police(&cable, mechanism, xdp_mode);
        assert_eq!(policing.attached()[0].mode, mode);
        for (family, server) in [("10.77.0.", SERVER_V4), ("fd77::", SERVER_V6)] {
            let length = if family == "fd77::" { 128 } else { 32 };
            let rules = [
                about(&format!("{family}2/{length}"), 0.0, 1),
                about(&format!("{family}3/{length}"), 0.01, 2),
                SynRule { excess: Excess::Reset, ..about(&format!("{family}4/{length}"), 0.0, 1) },
                SynRule::new(
                    format!("all {family}"),
                    Filter { dport: Some(80), ..Filter::default() },
                    f64::INFINITY,
                    1,
                ),
            ];
            cable.server.run(|| policing.set_rules(&rules)).expect("set");
            let attempt =
                |host: u32| cable.client.run(|| try_connect(&format!("{family}{host}"), to(server)));
            let mut count = |name: &str, of: fn(&tidegate_kernel::RuleCounters) -> u64| {
                let counters = cable.server.run(|| policing.counters()).expect("counters");
                of(counters.iter().find(|rule| rule.name == name).expect("the rule"))
            };
            // Others connect; the blocked do not.
            let free = attempt(5);
            wait_for("a connection", || outcome(&free)).expect("not refused");
            let blocked = attempt(2);
            wait_for("a drop", || (count(&rules[0].name, |rule| rule.dropped) > 0).then_some(()));
            assert!(outcome(&blocked).is_none());
            // The burst, and no more.
            let eager: Vec<_> = (0..4).map(|_| attempt(3)).collect();
            wait_for("drops", || (count(&rules[1].name, |rule| rule.dropped) >= 2).then_some(()));
            let passed = wait_for("the burst", || {
                let passed = eager.iter().filter(|socket| matches!(outcome(socket), Some(Ok(())))).count();
                (passed >= 2).then_some(passed)
            });
            assert_eq!(passed, 2);
            assert_eq!(count(&rules[1].name, |rule| rule.passed), 2);
            assert_eq!(count(&rules[3].name, |rule| rule.passed), 1);
            // A driver's answer needs a receiver that polls, which this one is not (docs/kernel.md).
            if mode != Mode::XdpNative {
                let told = attempt(4);
                let error = wait_for("a reset", || outcome(&told)).expect_err("refused");
                assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED), "{mode:?}");
                assert!(count(&rules[2].name, |rule| rule.reset) > 0);
            }
        }
    }
}

/// What the transaction of nftables does not take is told, and the next one is carried out.
#[test]
fn a_device_that_is_gone_is_told() {
    if !can_run(is_built()) {
        return;
    }
    let cable = Cable::new();
    let strange = PolicerConfig {
        interfaces: vec!["lo".into(), "s0".into(), "s0".into()],
        ..config(Mechanism::Nftables, XdpMode::Auto)
    };
    let refused = cable.server.run(|| attach(&strange).map(|_| ()));
    assert!(matches!(refused, Err(KernelError::Nft(_))), "{refused:?}");
    police(&cable, Mechanism::Nftables, XdpMode::Auto);
}

/// Two seconds of a real flood. The upper bound holds on a slow machine too.
#[test]
fn a_real_flood_passes_no_more_than_rate_and_burst() {
    if !can_run(is_built()) {
        return;
    }
    for (mechanism, xdp_mode, mode) in MECHANISMS {
        let cable = Cable::new();
        let mut policing = police(&cable, mechanism, xdp_mode);
        let socket = cable.raw_socket();
        let frames: Vec<_> =
            (0..100).map(|i| Frame::syn("10.77.0.2", 1000 + i, SERVER_V4, 80).bytes()).collect();
        let begin = now();
        cable.server.run(|| policing.set_rules(&[about("10.77.0.2/32", 400.0, 100)])).expect("set");
        let counters = wait_for("900 SYNs that pass", || {
            frames.iter().for_each(|frame| socket.send(frame));
            let counters = cable.server.run(|| policing.counters()).expect("counters").remove(0);
            (counters.passed >= 900).then_some(counters)
        });
        let seconds = now() - begin;
        let most = 400.0 * seconds + 100.0;
        note(&format!(
            "{}: {} of {} SYNs in {seconds:.2} s passed, {most:.0} may",
            mode.name(),
            counters.passed,
            counters.seen
        ));
        assert!(counters.passed as f64 <= most * 1.01, "{counters:?} in {seconds} s");
    }
}

#[test]
fn updates_under_a_real_flood_leave_no_gap() {
    if !can_run(is_built()) {
        return;
    }
    for (mechanism, xdp_mode, mode) in MECHANISMS {
        let cable = Cable::new();
        let mut policing = police(&cable, mechanism, xdp_mode);
        let sets = [
            [about("10.77.0.2/32", 0.0, 1)],
            [SynRule::new("other", Filter { dport: Some(80), ..Filter::default() }, 0.0, 1)],
        ];
        let listener = cable.server.run(|| TcpListener::bind(to(SERVER_V4)).expect("bound"));
        listener.set_nonblocking(true).expect("a mode");
        cable.server.run(|| policing.set_rules(&sets[0])).expect("set");
        let socket = cable.raw_socket();
        let is_over = AtomicBool::new(false);
        let updates = if mode == Mode::Nftables { 100 } else { 1000 };
        let totals = std::thread::scope(|scope| {
            scope.spawn(|| {
                let frame = Frame::syn("10.77.0.2", 1000, SERVER_V4, 80).bytes();
                while !is_over.load(Ordering::Relaxed) {
                    socket.send(&frame);
                }
            });
            let totals = cable.server.run(|| {
                for i in 1..=updates {
                    policing.set_rules(&sets[i % 2]).expect("set");
                }
                policing.totals().expect("totals")
            });
            is_over.store(true, Ordering::Relaxed);
            totals
        });
        note(&format!(
            "{}: {} SYNs during {updates} updates, {} without a rule",
            mode.name(),
            totals.syns,
            totals.unmatched
        ));
        assert!(totals.syns > updates as u64);
        assert_eq!(totals.unmatched, 0);
    }
}

#[test]
fn another_program_is_left_alone() {
    if !can_run(is_built()) {
        return;
    }
    let cable = Cable::new();
    let first = police(&cable, Mechanism::Xdp, XdpMode::Generic);
    let id_of = || {
        let report = cable.server.run(probe);
        assert!(report.xdp.works() && report.priorities.works() && report.nftables.works(), "{report}");
        let s0 = report.interfaces.iter().find(|interface| interface.name == "s0").expect("the interface");
        assert_eq!((s0.driver.as_deref(), s0.is_up), (Some("veth"), true));
        s0.xdp_program
    };
    let id = id_of().expect("a program");
    for mode in [XdpMode::Auto, XdpMode::Native, XdpMode::Generic] {
        match cable.server.run(|| attach(&config(Mechanism::Xdp, mode)).map(|_| ())) {
            Err(KernelError::OtherProgram { interface, id: other }) => {
                assert_eq!((interface, other), ("s0".into(), id))
            }
            other => panic!("{other:?}"),
        }
    }
    // Automatically: nftables, and a note that says why.
    let second = cable.server.run(|| attach(&config(Mechanism::Auto, XdpMode::Auto))).expect("nftables");
    assert_eq!(second.attached()[0].mode, Mode::Nftables);
    assert!(second.notes()[0].contains(&format!("another XDP program (id {id})")), "{:?}", second.notes());
    assert_eq!(id_of(), Some(id));
    drop(first);
    wait_for("the end of the program", || id_of().is_none().then_some(()));
    let unknown = PolicerConfig { interfaces: vec!["nobody0".into()], ..PolicerConfig::default() };
    assert!(matches!(attach(&unknown).map(|_| ()), Err(KernelError::NoInterface(_))));
}

#[test]
fn nftables_drops_what_it_cannot_slow_and_says_so() {
    if !can_run(is_built()) {
        return;
    }
    let cable = Cable::new();
    let mut policing = police(&cable, Mechanism::Nftables, XdpMode::Auto);
    let slow = SynRule { excess: Excess::Slow, ..about("10.77.0.2/32", 5.0, 1) };
    cable.server.run(|| policing.set_rules(std::slice::from_ref(&slow))).expect("set");
    assert!(policing.notes()[0].contains("\"slow\" needs XDP"), "{:?}", policing.notes());
    // A rule that nft does not take leaves those in force as they are.
    let broken = cable.server.run(|| policing.set_rules(&[SynRule { burst: 0, ..slow.clone() }]));
    assert!(broken.is_err());
    assert_eq!(cable.server.run(|| policing.counters()).expect("counters")[0].name, slow.name);
}
