//! Plays a testbed: sets up its machines, lets clients and flood loose on the server, counts for as long as
//! the file says, and takes everything down.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tidegate_gateway::base::clock::Clock;
use tidegate_kernel::{
    Mechanism, PolicerConfig, Priorities, PriorityConfig, RuleCounters, SynPolicing, XdpMode, attach, listen,
};

use super::addresses::SERVER;
use super::clients::{Clients, Seen};
use super::cpu::{self, CoreTime, Cores};
use super::flood::Flood;
use super::gate::Gate;
use super::network::Network;
use super::server::{BACKLOG, Server};
use super::spec::{
    Acceptor, OF_ALL, OF_CLIENT, OF_RULE, Policing, ServerSpec, Testbed, client_key, rule_key,
};
use super::trouble::{Trouble, system};
use crate::child::pause;
use crate::outcome::{Outcome, Way};
use crate::stats::ratio;

pub struct Order<'a> {
    pub testbed: &'a Testbed,
    /// This program, which the gate is started from.
    pub program: &'a Path,
    pub seed: u64,
    /// Set from outside when everything shall end.
    pub stop: &'a AtomicBool,
}

/// Plays it.
///
/// # Errors
/// See [`Trouble`]: there is no outcome then, and nothing is left of the testbed.
pub fn play(order: &Order) -> Result<Outcome, Trouble> {
    let Order { testbed, stop, .. } = *order;
    let clock = Arc::new(Clock::new());
    let started_us = clock.now().as_micros();
    let network = Network::new(testbed)?;
    let cores = match testbed.flood {
        Some(_) => Some(Cores::new().map_err(system("the cores of this machine"))?),
        None => None,
    };
    if let Some(cores) = cores {
        cpu::send_plainly(&network.server, &network.interface)?;
        cpu::send_plainly(&network.switch, &network.port)?;
        cpu::receive_on(&network.server, &network.interface, cores.server)?;
        cpu::receive_on(&network.switch, &network.port, cores.flood)?;
    }
    // In this order they are dropped: who comes first, whom they come to last.
    let core = cores.map(|cores| cores.server);
    let mut service = Service::start(order, &network, core, &clock)?;
    let clients = Clients::start(testbed, &network, core, &clock)?;
    let flood = match (&network.flood, testbed.flood, cores) {
        (Some(machine), Some(flood), Some(cores)) if flood.sends => Some(Flood::start(machine, cores.flood)?),
        _ => None,
    };
    let watch = |lasts: Duration| wait(lasts, &clock, stop, &clients, flood.as_ref());
    watch(testbed.settle)?;
    let before = Moment::take(&mut service, &network, &clients, flood.as_ref(), core)?;
    let from = clock.now();
    watch(testbed.measure)?;
    let after = Moment::take(&mut service, &network, &clients, flood.as_ref(), core)?;
    let seconds = clock.now().since(from).as_secs_f64();
    drop(flood);
    drop(clients);
    Ok(Outcome {
        name: testbed.name.clone(),
        way: Way::Real,
        seed: order.seed,
        started_us: Some(started_us),
        seconds,
        partial: None,
        summary: summary(testbed, &before, &after, seconds),
        series: Vec::new(),
        times: BTreeMap::new(),
    })
}

/// Waits, unless somebody stops it or a part of the testbed has ended.
fn wait(
    lasts: Duration,
    clock: &Clock,
    stop: &AtomicBool,
    clients: &Clients,
    flood: Option<&Flood>,
) -> Result<(), Trouble> {
    let end = clock.now() + lasts;
    while clock.now() < end {
        if stop.load(Relaxed) {
            return Err(Trouble::Stopped);
        }
        if clients.has_ended() || flood.is_some_and(Flood::has_ended) {
            return Err(Trouble::Process("a machine of the testbed has ended early".into()));
        }
        pause();
    }
    Ok(())
}

/// The server's side: policing, order of accepts, processes. Fields are dropped in this order: the order of
/// accepts belongs to sockets that are still open then.
struct Service {
    policing: Option<Box<dyn SynPolicing>>,
    _priorities: Option<Priorities>,
    gate: Option<Gate>,
    _server: Server,
}

impl Service {
    fn start(
        order: &Order,
        network: &Network,
        core: Option<usize>,
        clock: &Arc<Clock>,
    ) -> Result<Self, Trouble> {
        let testbed = order.testbed;
        if testbed.server.acceptor == Acceptor::Gate {
            let (gate, listener) = Gate::start(order.program, testbed, network, order.stop)?;
            // How many connections there are at once is the gate's business.
            let spec = ServerSpec { processes: BACKLOG, ..testbed.server };
            let server = Server::start(vec![listener], spec, core, clock)?;
            return Ok(Self { policing: None, _priorities: None, gate: Some(gate), _server: server });
        }
        let set_up = || set_up(testbed, network);
        let (listeners, policing, priorities) =
            network.server.run(set_up).map_err(system("the server's machine"))??;
        let server = Server::start(listeners, testbed.server, core, clock)?;
        Ok(Self { policing, _priorities: priorities, gate: None, _server: server })
    }

    /// What the rules have done so far.
    fn counters(&mut self, network: &Network) -> Result<Vec<RuleCounters>, Trouble> {
        if let Some(gate) = &self.gate {
            return gate.counters(network);
        }
        let Some(policing) = &mut self.policing else { return Ok(Vec::new()) };
        let counters = network.server.run(|| policing.counters()).map_err(system("the server's machine"))?;
        Ok(counters?)
    }
}

type SetUp = (Vec<TcpListener>, Option<Box<dyn SynPolicing>>, Option<Priorities>);

/// The server's sockets by priority, with the mechanisms in front of them. Called in its namespace.
fn set_up(testbed: &Testbed, network: &Network) -> Result<SetUp, Trouble> {
    let rules = testbed.syn_rules();
    let mechanism = match testbed.policing {
        Policing::Off => None,
        Policing::Xdp | Policing::XdpGeneric => Some(Mechanism::Xdp),
        Policing::Nftables => Some(Mechanism::Nftables),
    };
    let config = |mechanism| PolicerConfig {
        interfaces: vec![network.interface.clone()],
        mechanism,
        xdp_mode: if testbed.policing == Policing::XdpGeneric { XdpMode::Generic } else { XdpMode::Auto },
        max_rules: 1024,
    };
    let mut policing = mechanism.map(|mechanism| attach(&config(mechanism))).transpose()?;
    if let Some(policing) = &mut policing {
        policing.set_rules(&rules)?;
    }
    let priorities = testbed.priorities();
    let listeners = listen(SERVER.into(), priorities, 1, BACKLOG).map_err(system("the server's sockets"))?;
    let mut order = None;
    if priorities > 1 {
        let config = PriorityConfig::default();
        let mut own = Priorities::new(policing.as_deref(), &config)?;
        own.set_rules(&rules)?;
        let fds = |of: &Vec<TcpListener>| of.iter().map(|one| one.as_raw_fd()).collect::<Vec<RawFd>>();
        own.attach(&listeners.iter().map(fds).collect::<Vec<_>>(), &config)?;
        order = Some(own);
    }
    Ok((listeners.into_iter().flatten().collect(), policing, order))
}

/// All counters at some instant.
#[derive(Default)]
pub(super) struct Moment {
    pub clients: Vec<Seen>,
    pub rules: Vec<RuleCounters>,
    pub flood_sent: u64,
    pub packets: u64,
    pub core: CoreTime,
}

impl Moment {
    fn take(
        service: &mut Service,
        network: &Network,
        clients: &Clients,
        flood: Option<&Flood>,
        core: Option<usize>,
    ) -> Result<Self, Trouble> {
        Ok(Self {
            clients: clients.seen(),
            flood_sent: flood.map_or(0, Flood::sent),
            packets: network.received()?,
            core: core.map(CoreTime::now).transpose()?.unwrap_or_default(),
            // Last: asking nftables takes a while.
            rules: service.counters(network)?,
        })
    }
}

/// The figures of what happened between the two.
pub(super) fn summary(
    testbed: &Testbed,
    before: &Moment,
    after: &Moment,
    seconds: f64,
) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let per_s = |from: u64, to: u64| ratio(to.saturating_sub(from) as f64, seconds);
    let served = |moment: &Moment| moment.clients.iter().map(|seen| seen.served).sum::<u64>();
    let all = served(after) - served(before);
    for ((client, from), to) in testbed.clients.iter().zip(&before.clients).zip(&after.clients) {
        let count = (to.served - from.served) as f64;
        let values = [
            per_s(from.served, to.served),
            per_s(from.body_bytes, to.body_bytes) / 1024.0,
            ratio(count, all as f64),
            ratio((to.time_us - from.time_us) as f64 / 1000.0, count),
            per_s(from.failed, to.failed),
        ];
        figures.extend(OF_CLIENT.map(|key| client_key(&client.name, key)).into_iter().zip(values));
    }
    for rule in &testbed.rules {
        let find = |moment: &Moment| {
            moment.rules.iter().find(|counters| counters.name == rule.name).cloned().unwrap_or_default()
        };
        let (from, to) = (find(before), find(after));
        let values =
            [per_s(from.seen, to.seen), per_s(from.passed, to.passed), per_s(from.dropped, to.dropped)];
        figures.extend(OF_RULE.map(|key| rule_key(&rule.name, key)).into_iter().zip(values));
    }
    let (busy, kernel) = after.core.since(before.core);
    let of_all = [
        ratio(all as f64, seconds),
        busy,
        kernel,
        per_s(before.flood_sent, after.flood_sent),
        per_s(before.packets, after.packets),
    ];
    figures.extend(OF_ALL.map(str::to_owned).into_iter().zip(of_all));
    figures
}
