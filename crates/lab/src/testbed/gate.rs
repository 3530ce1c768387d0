//! A gate as what accepts connections at the server's machine: it polices SYNs, accepts by priority, relays
//! at most as many connections at once as the server has processes, and lets the others wait in the kernel.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::Deserialize;
use tidegate_gateway::base::clock::Clock;
use tidegate_kernel::{RuleCounters, listen};

use super::addresses::{SERVER, machines_of};
use super::network::Network;
use super::server::BACKLOG;
use super::spec::{Policing, Testbed};
use super::trouble::{Trouble, system};
use crate::child::{Child, Place, pause};
use crate::experiment::admin;
use crate::scratch::Scratch;

/// Time to be ready; only a broken gate needs it all.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for an answer of the admin port.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Gate {
    // Ended before its directory is removed.
    _child: Child,
    admin: SocketAddr,
    _scratch: Scratch,
}

#[derive(Deserialize)]
struct Ready {
    admin: SocketAddr,
}

impl Gate {
    /// Starts a gate at the server's address. Returns it with the socket to which it relays.
    pub fn start(
        program: &Path,
        testbed: &Testbed,
        network: &Network,
        stop: &AtomicBool,
    ) -> Result<(Self, TcpListener), Trouble> {
        let backend = || listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1, 1, BACKLOG);
        let backend = network.server.run(backend).and_then(|listeners| listeners);
        let backend = backend.map_err(system("the server's socket"))?.into_iter().flatten().next();
        let backend = backend.ok_or_else(|| Trouble::Process("the server has no socket".into()))?;
        let to = backend.local_addr().map_err(system("the server's socket"))?;
        let scratch = Scratch::new("testbed").map_err(|(_, error)| system("a directory")(error))?;
        let file = scratch.path().join("gate.toml");
        let state = scratch.path().join("state");
        let text = configuration(testbed, &network.interface, to);
        std::fs::write(&file, format!("{text}room.state_dir = '{}'\n", state.display()))
            .map_err(system("the gate's configuration"))?;
        let arguments = ["run".into(), "--config".into(), file.into(), "--quiet".into()];
        let namespace = Some(network.server.as_fd());
        let place = Place { dir: scratch.path(), temporary: None, namespace };
        let mut child =
            Child::start(program, "gate", &arguments, &place).map_err(system("starting the gate"))?;
        let admin = ready(&mut child, stop)?.admin;
        Ok((Self { _child: child, admin, _scratch: scratch }, backend))
    }

    /// What its rules have done so far, from its admin port.
    pub fn counters(&self, network: &Network) -> Result<Vec<RuleCounters>, Trouble> {
        let ask = || admin(self.admin, "/v1/kernel", ADMIN_PATIENCE);
        let text = network.server.run(ask).and_then(|text| text).map_err(system("the gate's admin port"))?;
        let Kernel { rules } = serde_json::from_str(&text)
            .map_err(|error| Trouble::Process(format!("/v1/kernel of the gate: {error}")))?;
        let counters = |rule: Rule| RuleCounters {
            name: rule.name,
            seen: rule.seen,
            passed: rule.passed,
            dropped: rule.dropped,
            ..RuleCounters::default()
        };
        Ok(rules.into_iter().map(counters).collect())
    }
}

#[derive(Deserialize)]
struct Kernel {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    name: String,
    seen: u64,
    passed: u64,
    dropped: u64,
}

fn ready(child: &mut Child, stop: &AtomicBool) -> Result<Ready, Trouble> {
    let clock = Clock::new();
    let deadline = clock.now() + READY_PATIENCE;
    loop {
        if let Some(ready) = child.log().lines().find_map(|line| serde_json::from_str(line).ok()) {
            return Ok(ready);
        }
        if child.ended().is_some() {
            return Err(Trouble::Process(child.ending()));
        }
        if stop.load(Relaxed) {
            return Err(Trouble::Stopped);
        }
        if clock.now() >= deadline {
            let seconds = READY_PATIENCE.as_secs();
            return Err(Trouble::Process(format!("the gate was not ready within {seconds} s")));
        }
        pause();
    }
}

/// The gate's file, but for its directory.
pub(super) fn configuration(testbed: &Testbed, interface: &str, to: SocketAddr) -> String {
    let (policing, xdp_mode) = match testbed.policing {
        Policing::Off => ("off", "auto"),
        Policing::Xdp => ("xdp", "auto"),
        Policing::XdpGeneric => ("xdp", "generic"),
        Policing::Nftables => ("nftables", "auto"),
    };
    let adapt = testbed.adapt.map_or(String::new(), |share| format!(", adapt = true, min_share = {share:?}"));
    let mut text = format!(
        "listen = {{ http = \"127.0.0.1:0\", admin = \"127.0.0.1:0\", workers = 1, backlog = {BACKLOG} }}\n\
         log.format = \"json\"\n\
         kernel = {{ policing = \"{policing}\", xdp_mode = \"{xdp_mode}\", interfaces = [\"{interface}\"], \
         priorities = {}{adapt} }}\n\
         tcp = [{{ name = \"server\", listen = \"{SERVER}\", to = \"{to}\", max_connections = {} }}]\n",
        testbed.priorities(),
        testbed.server.processes,
    );
    let rules = testbed.rules.iter().map(|rule| {
        let src = rule.client.map_or("*".to_owned(), |group| machines_of(group).to_string());
        // A rule without a rate has no burst: the agent gives it that of its rate.
        let burst = if rule.rate > 0.0 { rule.burst } else { 0 };
        let (name, rate, priority) = (&rule.name, rule.rate, rule.priority);
        format!(
            "{{ name = \"{name}\", src = \"{src}\", dport = {}, rate = {rate}, burst = {burst}, priority = {priority} }}",
            SERVER.port()
        )
    });
    let _ = writeln!(text, "syn_rule = [{}]", rules.collect::<Vec<_>>().join(", "));
    text
}
