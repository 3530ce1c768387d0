//! SYN policing by nftables, where XDP does not work: the same rules, applied at the entry of the stack.
//!
//! One table of the family `netdev`, with a chain at the ingress of the interfaces. Rules stand in it most
//! specific first, each with a named limit (the bucket) and named counters, which outlive a change of the
//! rules:
//!
//! ```text
//! ip saddr 10.1.1.5 tcp dport 80 counter name seen_4 limit name limit_4_1 counter name refused_4 drop
//! ip saddr 10.1.1.5 tcp dport 80 accept
//! ```
//!
//! **It vanishes with the process**, also when that is killed: the table has the flag `owner` (Linux 5.12),
//! so the kernel removes it with the netlink socket that made it. The socket is that of a child, `nft -i`,
//! which ends when its input does. Rejected: netlink by hand, which would be another thousand lines for a
//! fallback.
//!
//! Each change is one transaction: a SYN meets all of the old rules or all of the new ones.
//!
//! What XDP does better: a SYN costs a comparison per rule. A rule whose rate or burst changes starts with
//! a full bucket. `slow` drops, since nothing can tell the choice of a listening socket which SYN is meant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, PipeReader, Write as _};
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ipnet::IpNet;
use serde::Deserialize;
use tidegate_core::policing::{Excess, Filter, Rules, SynRule};

use crate::error::KernelError;
use crate::link;
use crate::policing::SynPolicing;
use crate::types::{AttachedTo, Mode, PolicerConfig, RuleCounters, Totals};

/// What a SYN is: SYN without ACK, RST and FIN.
const BARE_SYN: &str = "tcp flags & (fin|syn|rst|ack) == syn";
/// No command of nft. Its complaint about it tells that everything before has been carried out, or refused.
const MARKER: &str = "tidegate_done";
/// Of the tables of this process, so that each has a name of its own.
static TABLES: AtomicU32 = AtomicU32::new(0);

/// A table of nftables.
pub struct Nft {
    session: Session,
    table: String,
    attached: Vec<AttachedTo>,
    rules: Rules,
    /// Of the rules in force, by name.
    places: BTreeMap<String, Place>,
    last_id: u32,
    attach_notes: Vec<String>,
    notes: Vec<String>,
}

/// The objects of a rule.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    id: u32,
    /// Counts changes of the limit, which nftables cannot change in place.
    version: u32,
    rate: f64,
    burst: u32,
}

impl Place {
    fn has_limit(&self) -> bool {
        self.rate > 0.0 && self.rate.is_finite()
    }

    fn limit(&self) -> String {
        format!("limit_{}_{}", self.id, self.version)
    }
}

impl Nft {
    /// Makes the table, without rules at first: every SYN passes.
    pub fn attach(config: &PolicerConfig) -> Result<Self, KernelError> {
        for interface in &config.interfaces {
            link::index_of(interface)?;
        }
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let table = format!("tidegate_{}_{number}", std::process::id());
        let devices: Vec<String> = config.interfaces.iter().map(|name| format!("\"{name}\"")).collect();
        let devices = devices.join(", ");
        let mut session = Session::start()?;
        session.run(&format!("add table netdev {table} {{ flags owner; }}"))?;
        let mut commands = String::new();
        for counter in ["syns", "unmatched"] {
            let _ = writeln!(commands, "add counter netdev {table} {counter}");
        }
        let _ = writeln!(commands, "add chain netdev {table} police");
        if !config.interfaces.is_empty() {
            let _ = writeln!(
                commands,
                "add chain netdev {table} ingress {{ type filter hook ingress devices = {{ {devices} }} \
                 priority -500; policy accept; }}\n\
                 add rule netdev {table} ingress {BARE_SYN} counter name syns jump police"
            );
        }
        let _ = writeln!(commands, "add rule netdev {table} police counter name unmatched");
        session.transaction(&table, &commands)?;
        let attached = config.interfaces.iter();
        let attached = attached.map(|name| AttachedTo { interface: name.clone(), mode: Mode::Nftables });
        Ok(Self {
            session,
            table,
            attached: attached.collect(),
            rules: Rules::default(),
            places: BTreeMap::new(),
            last_id: 0,
            attach_notes: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Adds a line to [`SynPolicing::notes`].
    pub(crate) fn note(&mut self, line: String) {
        self.attach_notes.push(line.clone());
        self.notes.push(line);
    }

    fn places_for(&mut self, rules: &Rules) -> BTreeMap<String, Place> {
        let mut places = BTreeMap::new();
        for rule in rules.iter() {
            let place = match self.places.get(&rule.name) {
                Some(old) if (old.rate, old.burst) == (rule.rate, rule.burst) => *old,
                Some(old) => Place { version: old.version + 1, rate: rule.rate, burst: rule.burst, ..*old },
                None => {
                    self.last_id += 1;
                    Place { id: self.last_id, version: 0, rate: rule.rate, burst: rule.burst }
                }
            };
            places.insert(rule.name.clone(), place);
        }
        places
    }

    /// The transaction that replaces the rules.
    fn commands(&self, rules: &Rules, places: &BTreeMap<String, Place>) -> String {
        let table = &self.table;
        let mut commands = format!("flush chain netdev {table} police\n");
        let kept: BTreeSet<u32> = places.values().map(|place| place.id).collect();
        let known: BTreeMap<u32, Place> = self.places.values().map(|place| (place.id, *place)).collect();
        for (name, old) in &self.places {
            if !kept.contains(&old.id) {
                let _ = writeln!(
                    commands,
                    "delete counter netdev {table} seen_{0}\ndelete counter netdev {table} refused_{0}",
                    old.id
                );
            }
            if old.has_limit() && places.get(name) != Some(old) {
                let _ = writeln!(commands, "delete limit netdev {table} {}", old.limit());
            }
        }
        for place in places.values() {
            if !known.contains_key(&place.id) {
                let _ = writeln!(
                    commands,
                    "add counter netdev {table} seen_{0}\nadd counter netdev {table} refused_{0}",
                    place.id
                );
            }
            if place.has_limit() && known.get(&place.id) != Some(place) {
                let (count, unit) = whole_rate(place.rate);
                let _ = writeln!(
                    commands,
                    "add limit netdev {table} {} {{ rate over {count}/{unit} burst {} packets }}",
                    place.limit(),
                    place.burst
                );
            }
        }
        for rule in rules.iter() {
            let (place, matches) = (&places[&rule.name], matches(&rule.filter));
            let id = place.id;
            let refuse = match rule.excess {
                Excess::Reset => "reject with tcp reset",
                Excess::Drop | Excess::Slow => "drop",
            };
            let head = format!("add rule netdev {table} police {matches} counter name seen_{id}");
            let _ = if rule.rate == 0.0 {
                writeln!(commands, "{head} counter name refused_{id} {refuse}")
            } else if place.has_limit() {
                writeln!(
                    commands,
                    "{head} limit name {} counter name refused_{id} {refuse}\n\
                     add rule netdev {table} police {matches} accept",
                    place.limit()
                )
            } else {
                writeln!(commands, "{head} accept")
            };
        }
        let _ = writeln!(commands, "add rule netdev {table} police counter name unmatched");
        commands
    }

    /// Packets by the name of the counter.
    fn packets(&self) -> Result<BTreeMap<String, u64>, KernelError> {
        let output = Command::new("nft")
            .args(["-j", "list", "counters", "table", "netdev", &self.table])
            .output()
            .map_err(KernelError::NoNft)?;
        if !output.status.success() {
            return Err(KernelError::Nft(String::from_utf8_lossy(&output.stderr).trim().into()));
        }
        let listing: Listing =
            serde_json::from_slice(&output.stdout).map_err(|error| KernelError::Nft(error.to_string()))?;
        let counters = listing.nftables.into_iter().filter_map(|object| object.counter);
        Ok(counters.map(|counter| (counter.name, counter.packets)).collect())
    }
}

impl SynPolicing for Nft {
    fn set_rules(&mut self, rules: &[SynRule]) -> Result<(), KernelError> {
        let rules = Rules::new(rules.iter().cloned())?;
        let places = self.places_for(&rules);
        let commands = self.commands(&rules, &places);
        self.session.transaction(&self.table, &commands)?;
        self.notes = self.attach_notes.clone();
        let slow = rules.iter().filter(|rule| rule.excess == Excess::Slow);
        self.notes.extend(
            slow.map(|rule| format!("rule {:?}: nftables drops the excess, \"slow\" needs XDP", rule.name)),
        );
        self.rules = rules;
        self.places = places;
        Ok(())
    }

    fn counters(&mut self) -> Result<Vec<RuleCounters>, KernelError> {
        let packets = self.packets()?;
        let of = |kind: &str, id: u32| packets.get(&format!("{kind}_{id}")).copied().unwrap_or(0);
        let counters = self.rules.iter().map(|rule| {
            let id = self.places[&rule.name].id;
            // The two are not read in the same instant.
            let refused = of("refused", id).min(of("seen", id));
            let is_reset = rule.excess == Excess::Reset;
            RuleCounters {
                name: rule.name.clone(),
                seen: of("seen", id),
                passed: of("seen", id) - refused,
                dropped: if is_reset { 0 } else { refused },
                reset: if is_reset { refused } else { 0 },
                slowed: 0,
            }
        });
        Ok(counters.collect())
    }

    fn totals(&mut self) -> Result<Totals, KernelError> {
        let packets = self.packets()?;
        let of = |name: &str| packets.get(name).copied().unwrap_or(0);
        Ok(Totals { syns: of("syns"), unmatched: of("unmatched") })
    }

    fn attached(&self) -> &[AttachedTo] {
        &self.attached
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    counter: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    packets: u64,
}

/// The child that owns the table.
struct Session {
    child: Child,
    /// `None` once it is to end.
    input: Option<ChildStdin>,
    output: BufReader<PipeReader>,
}

impl Session {
    fn start() -> Result<Self, KernelError> {
        let pipe = |source| KernelError::Io { what: "pipe", source };
        // One pipe for both, so that messages come in order.
        let (reader, writer) = io::pipe().map_err(pipe)?;
        let mut command = Command::new("nft");
        command.arg("-i").stdin(Stdio::piped()).stdout(writer.try_clone().map_err(pipe)?).stderr(writer);
        // Not in the terminal's group: a Ctrl-C ends the gate in order, and policing with it.
        let mut child = command.process_group(0).spawn().map_err(KernelError::NoNft)?;
        // Holds the pipe's writing ends, which would keep it open after the child's end.
        drop(command);
        let input = child.stdin.take();
        Ok(Self { child, input, output: BufReader::new(reader) })
    }

    /// Carries out a line, and waits until it is.
    fn run(&mut self, line: &str) -> Result<(), KernelError> {
        let failed = |source| KernelError::Io { what: "the child nft", source };
        let input = self.input.as_mut().expect("open until it is dropped");
        writeln!(input, "{line}\n{MARKER}").and_then(|()| input.flush()).map_err(failed)?;
        let mut answer: Vec<String> = Vec::new();
        loop {
            let mut text = String::new();
            let is_over = self.output.read_line(&mut text).map_err(failed)? == 0;
            // Where nft is built with another line editor it prints its prompt, and what it reads.
            let text = text.trim_end().trim_start_matches("nft> ");
            let is_complaint = answer.last().is_some_and(|last| last.contains("rror: syntax error"));
            if is_over {
                return Err(KernelError::Nft(format!("the child nft ended: {}", answer.join(" "))));
            }
            if text == MARKER && is_complaint {
                answer.pop();
                break;
            }
            // Lines of carets point at what is wrong in the line before.
            if text.chars().any(|c| !" ^~".contains(c)) {
                answer.push(text.to_owned());
            }
        }
        let is_refused = answer.iter().any(|line| line.contains("rror: "));
        // A transaction of thousands of rules may have as many complaints.
        answer.truncate(6);
        if is_refused { Err(KernelError::Nft(answer.join(" "))) } else { Ok(()) }
    }

    /// Carries out all of `commands` or none.
    fn transaction(&mut self, table: &str, commands: &str) -> Result<(), KernelError> {
        let file = TemporaryFile::new(table, commands)
            .map_err(|source| KernelError::Io { what: "a temporary file for nft", source })?;
        self.run(&format!("include \"{}\"", file.path))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A file that is removed at the end. A line of commands would do for few rules, but not for thousands.
struct TemporaryFile {
    path: String,
}

impl TemporaryFile {
    fn new(name: &str, text: &str) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = std::env::temp_dir().join(format!("{name}.nft")).to_string_lossy().into_owned();
        // Left by a process of the same number that was killed. A link of somebody else is removed, not
        // followed.
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let made = Self { path };
        file.write_all(text.as_bytes())?;
        Ok(made)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The conditions of a filter. One without any matches every SYN, which has been found to be one before.
fn matches(filter: &Filter) -> String {
    let mut conditions = Vec::new();
    for (net, side) in [(filter.src, "saddr"), (filter.dst, "daddr")] {
        conditions.extend(net.map(|net| address(net, side)));
    }
    for (port, side) in [(filter.sport, "sport"), (filter.dport, "dport")] {
        conditions.extend(port.map(|port| format!("tcp {side} {port}")));
    }
    conditions.join(" ")
}

fn address(net: IpNet, side: &str) -> String {
    let family = if matches!(net.addr(), IpAddr::V4(_)) { "ip" } else { "ip6" };
    // nft knows no prefix of no length.
    if net.prefix_len() == 0 { format!("meta protocol {family}") } else { format!("{family} {side} {net}") }
}

/// A rate as nftables writes it: a whole number in a unit in which rounding is less than a thousandth.
fn whole_rate(per_second: f64) -> (u64, &'static str) {
    let units = [(1.0, "second"), (60.0, "minute"), (3600.0, "hour"), (86_400.0, "day")];
    let fits = units.into_iter().find(|(seconds, _)| per_second * seconds >= 1000.0);
    let (seconds, unit) = fits.unwrap_or((86_400.0, "day"));
    (((per_second * seconds).round() as u64).max(1), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_in_whole_numbers() {
        assert_eq!(whole_rate(1e6), (1_000_000, "second"));
        assert_eq!(whole_rate(100.25), (6015, "minute"));
        assert_eq!(whole_rate(0.5), (1800, "hour"));
        assert_eq!(whole_rate(0.01), (864, "day"));
        for rate in [0.01, 0.3, 1.0 / 3.0, 7.77, 33.3, 1234.56] {
            let (count, unit) = whole_rate(rate);
            let seconds = [("second", 1.0), ("minute", 60.0), ("hour", 3600.0), ("day", 86_400.0)];
            let seconds = seconds.into_iter().find(|(name, _)| *name == unit).expect("a unit").1;
            assert!((count as f64 / seconds / rate - 1.0).abs() < 0.001, "{rate}");
        }
    }

    #[test]
    fn filters_as_conditions() {
        let net = |text: &str| Some(text.parse().expect("a prefix"));
        let filter =
            Filter { src: net("10.1.0.0/16"), dst: net("10.0.0.1/32"), sport: Some(7), dport: Some(80) };
        assert_eq!(matches(&filter), "ip saddr 10.1.0.0/16 ip daddr 10.0.0.1/32 tcp sport 7 tcp dport 80");
        assert_eq!(matches(&Filter { src: net("::/0"), ..Filter::default() }), "meta protocol ip6");
        assert_eq!(matches(&Filter::default()), "");
    }
}
