//! `[kernel]`, `[[syn_rule]]` and `[[tcp]]`: what the kernel does with connections before the gate accepts
//! them, and TCP services that the gate relays (docs/kernel.md).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::policing::{Excess, Filter, SynRule as CoreRule};

use super::declare::Leaf;
use super::kinds::net::{Address, INTERFACE, NAME, NetworkOrAny, TCP_SERVICE};
use super::kinds::quantity::{Count, DAY, MIN, MS, Number, Portion, S, secs, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named, toml_string};
use super::mistake::Mistake;
use super::proxy_protocol::ProxyHeader;
use super::read::{Reader, item_path};
use super::{Role, Settings};

named! {
    /// What polices SYNs.
    pub enum Policing {
        /// XDP; nftables where XDP does not work.
        #[default] Auto = "auto",
        Xdp = "xdp",
        Nftables = "nftables",
        /// Nothing: rules give priorities only.
        Off = "off",
    }

    /// Where XDP runs.
    pub enum XdpMode {
        /// In the driver if it can, else in the stack.
        #[default] Auto = "auto",
        Native = "native",
        Generic = "generic",
    }

    /// When connections of visitors are accepted.
    pub enum Accept {
        /// At once: those who must wait get the waiting page.
        #[default] Always = "always",
        /// While an in-flight slot is free. The others wait in the kernel, in the order of their priority.
        WhileFree = "while-free",
    }
}

impl Policing {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

impl Named for Excess {
    const NAMES: &'static [(&'static str, Self)] =
        &[("drop", Self::Drop), ("reset", Self::Reset), ("slow", Self::Slow)];
}

/// Most priorities: each has a socket for each worker (paper, section 4.2: "a small number").
pub const MAX_PRIORITIES: usize = 8;

section! {
    /// What the kernel does with connections before the gate accepts them.
    pub struct Kernel [tunable] {
        /// What polices SYNs by the rules of [[syn_rule]]: "auto" XDP, or nftables where XDP does not work;
        /// "xdp"; "nftables"; "off" nothing. Without rules nothing is attached.
        [restart] policing: Policing = Policing::Auto => Choice;
        /// Network interfaces that are policed; empty: those with the addresses that the gate listens at.
        [restart] interfaces: Vec<String> = Vec::new() => List(INTERFACE);
        /// Where XDP runs: "native" in the driver, "generic" in the stack, "auto" the first that works.
        [restart] xdp_mode: XdpMode = XdpMode::Auto => Choice;
        /// Rules that there is room for. Their memory is taken at the start, 100 bytes for each rule and 80
        /// for each rule and core.
        [restart] max_rules: usize = 16_384 => Count(1..=65_536);
        /// Priorities in which connections are accepted; 0: as many as rules name, and one below them for
        /// connections that no rule is about. 1: no order.
        [restart] priorities: usize = 0 => Count(0..=MAX_PRIORITIES as u64);
        /// When connections of visitors are accepted: "always", or "while-free" while an in-flight slot is
        /// free. "while-free" is for services without a waiting room: who waits in the kernel sees no page.
        accept: Accept = Accept::Always => Choice;
        /// The agent sets rates and bursts of rules from what is measured, up to their `rate`.
        adapt: bool = false => Flag;
        /// Time between two decisions of the agent.
        adapt_every: Duration = secs(1) => span(100, MIN);
        /// Intervals that the agent's exponential averages reach back (paper, section 5: n).
        adapt_intervals: u32 = 5 => Count(1..=100);
        /// Share of the capacity that each priority keeps, if it asks for as much, however many come with a
        /// higher one.
        min_share: f64 = 0.05 => Portion;
        /// Load of the CPU above which the agent lets fewer connections begin.
        max_cpu: f64 = 0.9 => Portion;
    }

    /// Rules for connection requests (SYNs). The most specific one decides, wherever it stands in the file.
    pub struct SynRule [tunable] {
        /// Its name in metrics and in the API.
        [fixed] name: String = String::new() => NAME;
        /// The visitor's network; "*": any.
        [fixed] src: Option<IpNet> = None => NetworkOrAny;
        /// The visitor's port; 0: any.
        [fixed] sport: u16 = 0 => Count(0..=65_535);
        /// The network asked for; "*": any.
        [fixed] dst: Option<IpNet> = None => NetworkOrAny;
        /// The port asked for; 0: any.
        [fixed] dport: u16 = 0 => Count(0..=65_535);
        /// SYNs per second; 0: no limit, the rule gives a priority only.
        rate: f64 = 0.0 => Number(0.0..=CoreRule::MAX_RATE);
        /// SYNs that may come in one instant; 0: one second's worth of `rate`.
        burst: u32 = 0 => Count(0..=CoreRule::MAX_BURST as u64);
        /// In which order its connections are accepted: 0 first.
        priority: u8 = 0 => Count(0..=MAX_PRIORITIES as u64 - 1);
        /// What becomes of SYNs beyond the rate: "drop" them silently, "reset" them, or accept them after
        /// all others ("slow").
        excess: Excess = Excess::Drop => Choice;
        /// The agent leaves the rule whole as long as its visitors fit.
        preferred: bool = false => Flag;
        /// Least rate that the agent sets, in SYNs per second.
        min_rate: f64 = 0.0 => Number(0.0..=CoreRule::MAX_RATE);
    }

    /// TCP services that the gate relays: connections are policed, accepted in the order of their priority,
    /// and limited, whatever the protocol.
    pub struct Tcp [tunable] {
        /// Its name in metrics and in the API.
        [fixed] name: String = String::new() => NAME;
        /// Address for visitors.
        [fixed] listen: SocketAddr = ([0, 0, 0, 0], 0).into() => Address;
        /// `HOST:PORT` of the service.
        [fixed] to: String = String::new() => TCP_SERVICE;
        /// Header of the PROXY protocol that connections to the service begin with: "v1" or "v2".
        proxy_protocol: ProxyHeader = ProxyHeader::Off => Choice;
        /// Connections relayed at once. The others wait in the kernel, in the order of their priority; 0: no
        /// limit.
        max_connections: usize = 0 => Count(0..=1_000_000);
        /// Connections accepted per second; the others wait in the kernel; 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=CoreRule::MAX_RATE);
        /// Connections that may be accepted in one instant; 0: one second's worth of `rate`.
        burst: u32 = 0 => Count(0..=CoreRule::MAX_BURST as u64);
        /// Time to establish a connection to the service.
        connect_timeout: Duration = secs(3) => span(MS, 5 * MIN);
        /// A connection that is silent in both directions for so long is closed; 0: never.
        idle_timeout: Duration = Duration::ZERO => span_or_zero(S, DAY);
    }
}

impl SynRule {
    /// A rule that does not stand in the file: keys with values as TOML.
    ///
    /// # Errors
    /// All mistakes, in the words of those of a file; their keys are those of the rule.
    pub fn from_values<'v>(
        name: &str,
        values: impl IntoIterator<Item = (&'v str, String)>,
    ) -> Result<Self, Vec<Mistake>> {
        let lines = values.into_iter().map(|(key, value)| format!("{key} = {value}\n"));
        let text: String = lines.collect();
        // The origin, which a file must have, is nobody's.
        let text = format!(
            "origin.replicas = [\"127.0.0.1:1\"]\n[[syn_rule]]\nname = {}\n{text}",
            toml_string(name)
        );
        match Settings::parse(&text, "request") {
            Ok(settings) => Ok(settings.syn_rule.into_iter().next().expect("one was written")),
            Err(mut mistakes) => {
                let prefixes = [item_path("syn_rule", name, 0), item_path("syn_rule", "", 0)];
                for mistake in &mut mistakes {
                    let key = prefixes.iter().find_map(|prefix| mistake.key.strip_prefix(prefix.as_str()));
                    if let Some(key) = key.map(|key| key.trim_start_matches('.').to_owned()) {
                        mistake.key = key;
                    }
                }
                Err(mistakes)
            }
        }
    }

    /// Its keys but the name, with values as TOML.
    pub fn to_values(&self) -> Vec<(&'static str, String)> {
        vec![
            ("src", NetworkOrAny.show(&self.src)),
            ("sport", self.sport.to_string()),
            ("dst", NetworkOrAny.show(&self.dst)),
            ("dport", self.dport.to_string()),
            ("rate", format!("{:?}", self.rate)),
            ("burst", self.burst.to_string()),
            ("priority", self.priority.to_string()),
            ("excess", Choice.show(&self.excess)),
            ("preferred", self.preferred.to_string()),
            ("min_rate", format!("{:?}", self.min_rate)),
        ]
    }

    fn filter(&self) -> Filter {
        let port = |port: u16| (port != 0).then_some(port);
        Filter { dst: self.dst, dport: port(self.dport), src: self.src, sport: port(self.sport) }
    }

    /// For the kernel. The agent moves `rate` between the bounds.
    pub fn compiled(&self) -> CoreRule {
        let max_rate = if self.rate == 0.0 { f64::INFINITY } else { self.rate.max(CoreRule::MIN_RATE) };
        let second = if max_rate.is_finite() { max_rate.ceil() as u32 } else { CoreRule::MAX_BURST };
        let burst = if self.burst == 0 { second.clamp(1, CoreRule::MAX_BURST) } else { self.burst };
        CoreRule {
            priority: self.priority,
            excess: self.excess,
            is_preferred: self.preferred,
            min_rate: self.min_rate.min(max_rate),
            max_rate,
            ..CoreRule::new(self.name.clone(), self.filter(), max_rate, burst)
        }
    }
}

impl Settings {
    /// The rules for SYNs as the file has them.
    pub fn syn_rules(&self) -> Vec<CoreRule> {
        self.syn_rule.iter().map(SynRule::compiled).collect()
    }

    /// Whether there is no origin, and there are only TCP services.
    pub fn is_for_tcp_only(&self) -> bool {
        self.role == Role::Gate && self.origin.replicas.is_empty() && !self.tcp.is_empty()
    }

    /// The priorities in which connections are accepted, at least 1.
    pub fn priorities(&self) -> usize {
        let named = self.syn_rule.iter().map(|rule| usize::from(rule.priority) + 2).max();
        match self.kernel.priorities {
            0 => named.unwrap_or(1).min(MAX_PRIORITIES),
            n => n,
        }
    }
}

/// Reports what rules and TCP services must have, and what they must not have in common.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    for list in ["syn_rule", "tcp"] {
        out.check_names(list, &settings.item_names(list));
    }
    let kernel = &settings.kernel;
    for (i, rule) in settings.syn_rule.iter().enumerate() {
        let path = item_path("syn_rule", &rule.name, i);
        if rule.rate > 0.0 && rule.rate < CoreRule::MIN_RATE {
            let expected = format!("0 (no limit), or at least {}", CoreRule::MIN_RATE);
            out.conflict(&format!("{path}.rate"), expected, rule.rate.to_string(), None);
        }
        if let (Some(src), Some(dst)) = (rule.src, rule.dst)
            && src.addr().is_ipv4() != dst.addr().is_ipv4()
        {
            let expected = "a network of the same family as `src`";
            out.conflict(&format!("{path}.dst"), expected, format!("{dst} beside {src}"), None);
        }
        if kernel.priorities != 0 && usize::from(rule.priority) >= kernel.priorities {
            let expected = format!("less than `kernel.priorities`, which is {}", kernel.priorities);
            out.conflict(&format!("{path}.priority"), expected, rule.priority.to_string(), None);
        }
        if rule.rate != 0.0 && rule.min_rate > rule.rate {
            let expected = format!("at most `rate`, which is {}", rule.rate);
            out.conflict(&format!("{path}.min_rate"), expected, rule.min_rate.to_string(), None);
        }
        let filter = rule.filter().canonical();
        let is_same = |first: &&SynRule| first.filter().canonical() == filter;
        if let Some(first) = settings.syn_rule[..i].iter().find(is_same) {
            let got = format!("the same as those of syn_rule.{}", first.name);
            let hint = "The most specific rule decides, so one must be.".to_owned();
            let keys = ["src", "sport", "dst", "dport", "name"].map(|key| format!("{path}.{key}"));
            let at = keys.iter().find(|key| out.has(key)).unwrap_or(&path);
            out.conflict(at, "addresses and ports that no other rule has", got, Some(hint));
        }
    }
    if settings.syn_rule.len() > kernel.max_rules {
        let expected = format!("at least the number of [[syn_rule]], which is {}", settings.syn_rule.len());
        out.conflict("kernel.max_rules", expected, kernel.max_rules.to_string(), None);
    }
    check_tcp(settings, out);
}

fn check_tcp(settings: &Settings, out: &mut Reader) {
    let mut taken: Vec<(String, SocketAddr)> = vec![("listen.admin".into(), settings.listen.admin)];
    taken.extend(settings.listen.http.ip().map(|http| ("listen.http".into(), http)));
    taken.extend(settings.listen.https.map(|https| ("listen.https".into(), https)));
    for (i, tcp) in settings.tcp.iter().enumerate() {
        let path = item_path("tcp", &tcp.name, i);
        if tcp.to.is_empty() {
            out.conflict(&format!("{path}.to"), "HOST:PORT of the service", "nothing", None);
        }
        // Not whether it is in the file: a tunable is checked without one.
        if tcp.listen == Tcp::default().listen {
            out.conflict(&format!("{path}.listen"), "IP:PORT to listen at", "nothing", None);
            continue;
        }
        if let Some((key, _)) = taken.iter().find(|(_, other)| overlap(*other, tcp.listen)) {
            let expected = format!("another port than `{key}`");
            out.conflict(&format!("{path}.listen"), expected, format!("{} for both", tcp.listen), None);
        }
        taken.push((format!("{path}.listen"), tcp.listen));
    }
}

/// Whether two listeners would get each other's connections. With port 0 the kernel chooses.
pub(crate) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}
