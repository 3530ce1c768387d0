//! What remains after the end of a process: nothing. What goes on meanwhile: every established connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use tidegate_core::policing::{Filter, SynRule};
use tidegate_kernel::{Mechanism, XdpMode, attach, is_built, probe};

use crate::net::{Cable, SERVER_V4, SERVER_V6, wait_for};
use crate::policing::{MECHANISMS, config, police};
use crate::rights::can_run;

/// Set in the child, to the mechanism.
const CHILD: &str = "TIDEGATE_KERNEL_CHILD";
const THIS_TEST: &str = "survival::killed_with_kill_9_nothing_remains";

fn block_all() -> SynRule {
    SynRule::new("all", Filter::default(), 0.0, 1)
}

/// In the child: polices, says so and waits to be killed.
fn child(mechanism: &str) -> ! {
    let mechanism = if mechanism == "nftables" { Mechanism::Nftables } else { Mechanism::Xdp };
    let mut policing = attach(&config(mechanism, XdpMode::Auto)).expect("attached");
    policing.set_rules(&[block_all()]).expect("set");
    println!("attached");
    loop {
        std::thread::park();
    }
}

#[test]
fn killed_with_kill_9_nothing_remains() {
    if let Ok(mechanism) = std::env::var(CHILD) {
        child(&mechanism);
    }
    if !can_run(is_built()) {
        return;
    }
    for mechanism in ["xdp", "nftables"] {
        let cable = Cable::new();
        let tables = || {
            let output =
                cable.server.run(|| Command::new("nft").args(["list", "tables"]).output().expect("nft"));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let program = || {
            let interfaces = cable.server.run(probe).interfaces;
            interfaces.iter().find(|interface| interface.name == "s0").expect("the interface").xdp_program
        };
        let mut child = cable.server.run(|| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--exact", THIS_TEST, "--nocapture"]).env(CHILD, mechanism);
            command.stdout(Stdio::piped()).spawn().expect("a child")
        });
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("a line").ends_with("attached")));
        assert_eq!(
            (program().is_some(), tables().contains("tidegate")),
            (mechanism == "xdp", mechanism != "xdp")
        );
        // SIGKILL.
        child.kill().expect("killed");
        child.wait().expect("its end");
        wait_for("nothing left", || (program().is_none() && tables().is_empty()).then_some(()));
    }
}

/// One connection of each family, over the cable.
fn connections(cable: &Cable) -> Vec<(TcpStream, TcpStream)> {
    let connection = |address: &str| {
        let to = SocketAddr::new(address.parse().expect("an address"), 0);
        let listener = cable.server.run(|| TcpListener::bind(to).expect("bound"));
        let to = listener.local_addr().expect("an address");
        let client = cable.client.run(|| TcpStream::connect(to).expect("connected"));
        (client, listener.accept().expect("accepted").0)
    };
    vec![connection(SERVER_V4), connection(SERVER_V6)]
}

/// A megabyte there and back on each.
fn exchange(connections: &[(TcpStream, TcpStream)]) {
    for (client, server) in connections {
        for (mut from, mut to) in [(client, server), (server, client)] {
            let sent: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
            let mut received = vec![0; sent.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| from.write_all(&sent).expect("written"));
                to.read_exact(&mut received).expect("read");
            });
            assert!(received == sent);
        }
    }
}

#[test]
fn established_connections_never_break() {
    if !can_run(is_built()) {
        return;
    }
    for (mechanism, xdp_mode, _) in MECHANISMS {
        let cable = Cable::new();
        let connections = connections(&cable);
        exchange(&connections);
        let mut policing = police(&cable, mechanism, xdp_mode);
        exchange(&connections);
        for i in 0..5 {
            let rules = if i % 2 == 0 { vec![block_all()] } else { Vec::new() };
            cable.server.run(|| policing.set_rules(&rules)).expect("set");
            exchange(&connections);
        }
        cable.server.run(|| drop(policing));
        exchange(&connections);
    }
}
