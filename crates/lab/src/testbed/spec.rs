//! What a testbed's file says: the server, who comes to it, the rules of its kernel.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use tidegate_core::policing::{Filter, SynRule};
use tidegate_settings::kind::{Choice, Count, Flag, Named, Number, Portion, Text};
use tidegate_settings::tree::{self, Value};

use super::addresses::{PORT, machines_of};
use crate::scenario::{ABOUT, MOMENT, Mistakes, NAME, Reader, SPAN, Section, document};

/// Most groups of clients, most machines of a group: each has a part of an address for itself.
const MAX_CLIENTS: usize = 100;
const MAX_MACHINES: u64 = 100;
/// Most connections that a machine has under way: more would run out of ports within a minute.
const MAX_SESSIONS: u64 = 1000;
const MAX_RULES: usize = 100;
/// Largest file that a client asks for: it fits into a socket's buffer, so that sending it takes no time.
const MAX_BODY_BYTES: u64 = 64 << 10;
/// The file of the paper's Webstone clients.
const BODY_BYTES: u64 = 8 << 10;

#[derive(Clone, Debug, PartialEq)]
pub struct Testbed {
    pub name: String,
    /// From the start of the clients until counting begins.
    pub settle: Duration,
    /// How long is counted.
    pub measure: Duration,
    pub policing: Policing,
    /// The gate's agent sets the rates of rules; each priority keeps this share of the capacity. `None`: they
    /// stay as they are.
    pub adapt: Option<f64>,
    pub server: ServerSpec,
    pub clients: Vec<ClientSpec>,
    pub rules: Vec<RuleSpec>,
    /// The machine that floods the server with SYNs; `None`: there is none.
    pub flood: Option<FloodSpec>,
}

/// What polices SYNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policing {
    #[default]
    Off,
    /// By XDP in the driver, else in the stack.
    Xdp,
    /// By XDP in the stack.
    XdpGeneric,
    Nftables,
}

impl Named for Policing {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("xdp", Self::Xdp),
        ("xdp-generic", Self::XdpGeneric),
        ("nftables", Self::Nftables),
    ];
}

/// Who accepts connections at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acceptor {
    /// Its own processes, as the paper's Apache.
    #[default]
    Server,
    /// A gate (`[[tcp]]`), which relays them to the server.
    Gate,
}

impl Named for Acceptor {
    const NAMES: &'static [(&'static str, Self)] = &[("server", Self::Server), ("gate", Self::Gate)];
}

/// What the server does for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Occupies a processor of its own that does not exist: it sleeps.
    #[default]
    Sleep,
    /// Burns CPU time.
    Spin,
}

impl Named for Work {
    const NAMES: &'static [(&'static str, Self)] = &[("sleep", Self::Sleep), ("spin", Self::Spin)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    pub acceptor: Acceptor,
    /// Connections that it has accepted and not answered, at most.
    pub processes: u32,
    /// Time of its one processor for a request.
    pub service: Duration,
    pub work: Work,
    /// Whether a full queue of SYNs is met by SYN cookies.
    pub has_syn_cookies: bool,
}

/// A group of client machines that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSpec {
    pub name: String,
    pub machines: u32,
    /// Clients of each machine: each asks, waits for the answer, and asks again over a new connection.
    pub sessions: u32,
    /// What a client asks for.
    pub body_bytes: u32,
    /// Time between an answer and the next request.
    pub think: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RuleSpec {
    pub name: String,
    /// The group of clients it is for, by number; `None`: everybody.
    pub client: Option<usize>,
    /// SYNs per second; 0: no limit.
    pub rate: f64,
    pub burst: u32,
    pub priority: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodSpec {
    /// Whether it sends, or is only there.
    pub sends: bool,
}

/// Whether a file describes a testbed, and not a scenario.
pub fn is_described(text: &str) -> bool {
    matches!(tree::parse(0, text).0.get("testbed"), Some(entry) if matches!(entry.node.value, Value::Table(_)))
}

impl Testbed {
    /// Reads a testbed's file, with these keys set.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str, name: &str, set: &[(String, String)]) -> Result<Self, Mistakes> {
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        document(text, name, set, Reader::new(|_| None), |root, out| {
            let mut root = out.root(root);
            let name = root.maybe("name", &NAME).unwrap_or_else(|| stem.into_owned());
            root.take("about", &ABOUT, String::new());
            let testbed = match root.inside("testbed") {
                Some(mut section) => read(name, &mut section),
                None => Self::empty(name),
            };
            root.finish();
            testbed
        })
    }

    /// The priorities in which connections are accepted, at least 1. Who has no rule has the lowest.
    pub fn priorities(&self) -> usize {
        1 + self.rules.iter().map(|rule| usize::from(rule.priority)).max().unwrap_or(0)
    }

    /// Its rules for the kernel.
    pub fn syn_rules(&self) -> Vec<SynRule> {
        let compiled = |rule: &RuleSpec| {
            let src = rule.client.map(|group| machines_of(group).into());
            let filter = Filter { src, dport: Some(PORT), ..Filter::default() };
            let rate = if rule.rate > 0.0 { rule.rate } else { f64::INFINITY };
            SynRule { priority: rule.priority, ..SynRule::new(rule.name.clone(), filter, rate, rule.burst) }
        };
        self.rules.iter().map(compiled).collect()
    }

    fn empty(name: String) -> Self {
        let server = ServerSpec {
            acceptor: Acceptor::Server,
            processes: 1,
            service: Duration::from_millis(1),
            work: Work::Sleep,
            has_syn_cookies: true,
        };
        Self {
            name,
            settle: Duration::ZERO,
            measure: Duration::from_secs(1),
            policing: Policing::Off,
            adapt: None,
            server,
            clients: Vec::new(),
            rules: Vec::new(),
            flood: None,
        }
    }
}

/// Names of a figure's key: letters and digits.
const KEY: Text = Text {
    expected: "a name of 1 to 32 letters and digits that begins with a letter",
    check: |name| {
        let fine = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= 32
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        if fine { Ok(()) } else { Err(None) }
    },
    secret: false,
};

fn read(name: String, section: &mut Section<'_, '_>) -> Testbed {
    let usual = Testbed::empty(name);
    let clients = clients(section);
    let testbed = Testbed {
        settle: section.take("settle", &MOMENT, usual.settle),
        measure: section.need("measure", &SPAN, usual.measure),
        policing: section.take("policing", &Choice, usual.policing),
        adapt: section.maybe("adapt_min_share", &Portion),
        server: server(section, usual.server),
        rules: rules(section, &clients),
        clients,
        flood: flood(section),
        ..usual
    };
    if testbed.flood.is_some() && testbed.server.acceptor == Acceptor::Gate {
        section.conflict("flood", "no flood beside a gate, which is not bound to a core", "one");
    }
    if testbed.adapt.is_some() && testbed.server.acceptor == Acceptor::Server {
        section.conflict("adapt_min_share", "`acceptor = \"gate\"` of [testbed.server]", "no gate");
    }
    section.finish();
    testbed
}

fn server(section: &mut Section<'_, '_>, usual: ServerSpec) -> ServerSpec {
    let Some(mut server) = section.inside("server") else {
        section.conflict("server", "a section [testbed.server]", "none");
        return usual;
    };
    let spec = ServerSpec {
        acceptor: server.take("acceptor", &Choice, usual.acceptor),
        processes: server.need("processes", &Count(1..=10_000), usual.processes),
        service: server.need("service", &SPAN, usual.service),
        work: server.take("work", &Choice, usual.work),
        has_syn_cookies: server.take("syn_cookies", &Flag, usual.has_syn_cookies),
    };
    server.finish();
    spec
}

fn clients(section: &mut Section<'_, '_>) -> Vec<ClientSpec> {
    let sessions = || Count(1..=MAX_SESSIONS);
    // For all groups that say nothing else, so that a sweep can move them together.
    let usual = section.maybe("sessions", &sessions());
    let mut clients: Vec<ClientSpec> = Vec::new();
    for item in section.items("client", MAX_CLIENTS) {
        let mut inside = section.out.item(&item);
        let client = ClientSpec {
            name: inside.need("name", &KEY, String::new()),
            machines: inside.take("machines", &Count(1..=MAX_MACHINES), 1u32),
            sessions: match usual {
                Some(usual) => inside.take("sessions", &sessions(), usual),
                None => inside.need("sessions", &sessions(), 1u32),
            },
            body_bytes: inside.take("body_bytes", &Count(1..=MAX_BODY_BYTES), BODY_BYTES as u32),
            think: inside.take("think", &MOMENT, Duration::ZERO),
        };
        if clients.iter().any(|other| other.name == client.name) {
            inside.conflict("name", "names that differ", format!("\"{}\" again", client.name));
        }
        inside.finish();
        clients.push(client);
    }
    if clients.is_empty() {
        section.conflict("client", "at least one [[testbed.client]]", "none");
    }
    clients
}

fn rules(section: &mut Section<'_, '_>, clients: &[ClientSpec]) -> Vec<RuleSpec> {
    let mut names = HashSet::new();
    let mut rules = Vec::new();
    for item in section.items("rule", MAX_RULES) {
        let mut inside = section.out.item(&item);
        let name = inside.need("name", &KEY, String::new());
        let client = inside.maybe("client", &KEY);
        let found = client.as_ref().map(|name| clients.iter().position(|client| client.name == *name));
        if let (Some(name), Some(None)) = (&client, found) {
            let all: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
            inside.conflict("client", format!("a client ({})", all.join(", ")), format!("\"{name}\""));
        }
        let rule = RuleSpec {
            name,
            client: found.flatten(),
            rate: inside.take("rate", &Number(0.0..=SynRule::MAX_RATE), 0.0),
            burst: inside.take("burst", &Count(1..=u64::from(SynRule::MAX_BURST)), 1u32),
            priority: inside.take("priority", &Count(0..=7), 0u8),
        };
        if rule.rate > 0.0 && rule.rate < SynRule::MIN_RATE {
            inside.conflict("rate", "0 or at least 0.01", rule.rate.to_string());
        }
        if !names.insert(rule.name.clone()) {
            inside.conflict("name", "names that differ", format!("\"{}\" again", rule.name));
        }
        inside.finish();
        rules.push(rule);
    }
    rules
}

fn flood(section: &mut Section<'_, '_>) -> Option<FloodSpec> {
    let mut inside = section.inside("flood")?;
    let flood = FloodSpec { sends: inside.take("sends", &Flag, true) };
    inside.finish();
    Some(flood)
}

/// Figures of a group of clients: `NAME_rps`, ...
pub(super) const OF_CLIENT: [&str; 5] = ["rps", "kbps", "share", "mean_ms", "failed_per_s"];
/// Figures of a rule: `rule_NAME_seen_per_s`, ...
pub(super) const OF_RULE: [&str; 3] = ["seen_per_s", "passed_per_s", "dropped_per_s"];
/// Figures of the testbed.
pub(super) const OF_ALL: [&str; 5] =
    ["total_rps", "server_cpu", "server_kernel_cpu", "flood_sent_per_s", "packets_per_s"];

/// Every key of the summary of a run on this testbed.
pub fn keys(testbed: &Testbed) -> Vec<String> {
    let of_clients =
        testbed.clients.iter().flat_map(|client| OF_CLIENT.map(|key| client_key(&client.name, key)));
    let of_rules = testbed.rules.iter().flat_map(|rule| OF_RULE.map(|key| rule_key(&rule.name, key)));
    OF_ALL.into_iter().map(str::to_owned).chain(of_clients).chain(of_rules).collect()
}

pub(super) fn client_key(name: &str, key: &str) -> String {
    format!("{name}_{key}")
}

pub(super) fn rule_key(name: &str, key: &str) -> String {
    format!("rule_{name}_{key}")
}
