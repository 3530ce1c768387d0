//! The loaded programs with their maps: one object for policing and priorities, which share the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, PerCpuValues, ReusePortSockArray};
use aya::{Ebpf, EbpfLoader};
use parking_lot::Mutex;
use tidegate_core::policing::{Rules, SynRule};

use crate::error::{KernelError, with_causes};
use crate::layout::{Counters, Group, RuleKey, RuleSet, RuleValue, TotalCounters};
use crate::table::{LIMIT_RATE, Table, rescaled};
use crate::types::{PolicerConfig, RuleCounters, Totals};

/// The objects that `build.rs` compiled: with jumbo frames in several buffers, and without.
#[cfg(tidegate_bpf)]
const OBJECTS: [&[u8]; 2] = [
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tidegate_frags.o")),
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tidegate.o")),
];
#[cfg(not(tidegate_bpf))]
const OBJECTS: [&[u8]; 0] = [];

/// Whether this build has the kernel programs: it was built where clang is, and with the feature `kernel`.
pub fn is_built() -> bool {
    !OBJECTS.is_empty()
}

/// Policing and priorities hold it together; the last one to let go unloads the programs.
pub type Shared = Arc<Mutex<Loaded>>;

/// The programs that a [`crate::Policer`] uses, for others that follow the same rules.
pub struct Programs {
    pub(crate) shared: Shared,
}

/// Which program of the object to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Policing,
    Priorities,
}

/// The object's maps, and what is in them.
pub struct Loaded {
    pub ebpf: Ebpf,
    sets: ArrayOfMaps<MapData, Array<MapData, RuleSet>>,
    rules: HashMap<MapData, RuleKey, RuleValue>,
    buckets: Array<MapData, u64>,
    counters: PerCpuArray<MapData, Counters>,
    totals: PerCpuArray<MapData, TotalCounters>,
    pub groups: HashMap<MapData, u64, Group>,
    pub sockets: ReusePortSockArray<MapData>,
    #[cfg(test)]
    pub test_clock: Array<MapData, crate::layout::TestClock>,
    max_rules: usize,
    generation: u32,
    /// Of the rules in force: their places in `buckets` and `counters`, by name.
    ids: BTreeMap<String, u32>,
    free_ids: BTreeSet<u32>,
    /// The names of the rules in force, the most specific first.
    names: Vec<String>,
    /// What is in `rules`.
    installed: Vec<(RuleKey, RuleValue)>,
    is_test: bool,
}

impl Loaded {
    /// Loads the object and the program that is needed first.
    pub fn new(max_rules: usize, part: Part) -> Result<Shared, KernelError> {
        Self::with_clock(max_rules, part, false)
    }

    /// `is_test`: the program's time is what the test says.
    pub fn with_clock(max_rules: usize, part: Part, is_test: bool) -> Result<Shared, KernelError> {
        let mut failure = KernelError::NotBuilt;
        for object in OBJECTS {
            let loaded = Self::from_object(object, max_rules.clamp(1, PolicerConfig::MOST_RULES), is_test);
            match loaded.and_then(|mut loaded| loaded.load(part).map(|()| loaded)) {
                Ok(loaded) => return Ok(Arc::new(Mutex::new(loaded))),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn from_object(object: &[u8], max_rules: usize, is_test: bool) -> Result<Self, KernelError> {
        // Old and new rules have places of their own until the old ones are out of use, and a rule without
        // addresses is in both families.
        let places = 2 * max_rules as u32;
        let test_clock = u8::from(is_test);
        let mut ebpf = EbpfLoader::new()
            .override_global("has_test_clock", &test_clock, true)
            .map_max_entries("rules", 2 * places)
            .map_max_entries("buckets", places)
            .map_max_entries("counters", places)
            .load(object)
            .map_err(|error| match &error {
                aya::EbpfError::MapError(map) if is_permission(map) => needs_capabilities(),
                error => KernelError::Load(with_causes(error)),
            })?;
        Ok(Self {
            sets: take(&mut ebpf, "rule_sets")?,
            rules: take(&mut ebpf, "rules")?,
            buckets: take(&mut ebpf, "buckets")?,
            counters: take(&mut ebpf, "counters")?,
            totals: take(&mut ebpf, "totals")?,
            groups: take(&mut ebpf, "groups")?,
            sockets: take(&mut ebpf, "sockets")?,
            #[cfg(test)]
            test_clock: take(&mut ebpf, "test_clock")?,
            ebpf,
            max_rules,
            generation: 0,
            ids: BTreeMap::new(),
            free_ids: (0..places).collect(),
            names: Vec::new(),
            installed: Vec::new(),
            is_test,
        })
    }

    /// Gives a program to the verifier.
    pub fn load(&mut self, part: Part) -> Result<(), KernelError> {
        use aya::programs::{SkReuseport, Xdp};
        let name = if part == Part::Policing { "syn_police" } else { "prioritise" };
        let program = self.ebpf.program_mut(name).ok_or_else(|| KernelError::Load(format!("no {name}")))?;
        if program.fd().is_ok() {
            return Ok(());
        }
        let loaded = match part {
            Part::Policing => <&mut Xdp>::try_from(program).and_then(Xdp::load),
            Part::Priorities => <&mut SkReuseport>::try_from(program).and_then(SkReuseport::load),
        };
        loaded.map_err(|error| if is_permission(&error) { needs_capabilities() } else { shortened(&error) })
    }

    /// Replaces the rules: [`crate::SynPolicing::set_rules`].
    pub fn set_rules(&mut self, rules: &[SynRule]) -> Result<(), KernelError> {
        if rules.len() > self.max_rules {
            return Err(KernelError::TooManyRules { given: rules.len(), most: self.max_rules });
        }
        let rules = Rules::new(rules.iter().cloned())?;
        let ids = self.ids_for(&rules)?;
        let generation = self.generation.wrapping_add(1);
        let table = Table::new(&rules, generation, &ids)?;
        let result = self.replace(&table);
        // Also what a failed attempt has inserted.
        let stale = if result.is_ok() { &self.installed } else { &table.entries };
        for (key, _) in stale {
            // Not there: the attempt failed before.
            let _ = self.rules.remove(key);
        }
        result?;
        self.generation = generation;
        let released: Vec<u32> =
            self.ids.iter().filter(|(name, _)| !ids.contains_key(*name)).map(|(_, id)| *id).collect();
        self.free_ids.extend(released);
        for id in ids.values() {
            self.free_ids.remove(id);
        }
        self.names = rules.iter().map(|rule| rule.name.clone()).collect();
        self.ids = ids;
        self.installed = table.entries;
        Ok(())
    }

    /// Places for all rules: a rule that was there keeps its own, and others get free ones, with a full
    /// bucket.
    fn ids_for(&mut self, rules: &Rules) -> Result<BTreeMap<String, u32>, KernelError> {
        let mut free = self.free_ids.iter();
        let mut ids = BTreeMap::new();
        for rule in rules.iter() {
            let id = match self.ids.get(&rule.name) {
                Some(id) => *id,
                None => {
                    let id = *free.next().expect("as many again as there are rules at most");
                    self.buckets.set(id, 0, 0).map_err(|error| KernelError::map("buckets", error))?;
                    let none = vec![
                        Counters::default();
                        aya::util::nr_cpus().map_err(|(_, source)| {
                            KernelError::Io { what: "number of CPUs", source }
                        })?
                    ];
                    let none =
                        PerCpuValues::try_from(none).map_err(|error| KernelError::map("counters", error))?;
                    self.counters.set(id, none, 0).map_err(|error| KernelError::map("counters", error))?;
                    id
                }
            };
            ids.insert(rule.name.clone(), id);
        }
        Ok(ids)
    }

    /// Inserts the rules of the next generation and makes them the ones in force.
    ///
    /// Buckets of rules that change are rescaled while the greater distance of SYNs is in force: before a
    /// rule becomes slower, and after it has become faster. Between the two steps the rule refuses; the
    /// other way round it would let SYNs pass that it never had.
    fn replace(&mut self, table: &Table) -> Result<(), KernelError> {
        for (key, value) in &table.entries {
            self.rules.insert(key, value, 0).map_err(|error| KernelError::map("rules", error))?;
        }
        let old: BTreeMap<u32, RuleValue> = self.installed.iter().map(|(_, rule)| (rule.id, *rule)).collect();
        let mut changed = BTreeMap::new();
        for (_, new) in table.entries.iter().filter(|(_, new)| new.limit == LIMIT_RATE) {
            if let Some(old) = old.get(&new.id)
                && (old.interval, old.depth) != (new.interval, new.depth)
            {
                changed.insert(new.id, (*old, *new));
            }
        }
        let (slower, faster): (Vec<_>, Vec<_>) =
            changed.into_values().partition(|(old, new)| new.interval > old.interval);
        for (old, new) in slower {
            self.rescale(&old, &new)?;
        }
        let mut set = Array::create(1, 0).map_err(|error| KernelError::map("rule_set", error))?;
        set.set(0, table.set, 0).map_err(|error| KernelError::map("rule_set", error))?;
        // The kernel returns when no program can see the old set any more.
        self.sets.set(0, &set, 0).map_err(|error| KernelError::map("rule_sets", error))?;
        for (old, new) in faster {
            self.rescale(&old, &new)?;
        }
        Ok(())
    }

    fn rescale(&mut self, old: &RuleValue, new: &RuleValue) -> Result<(), KernelError> {
        let now = self.now_ns()?;
        let arrival = self.buckets.get(&new.id, 0).map_err(|error| KernelError::map("buckets", error))?;
        let rescaled = rescaled(arrival, now, old, new);
        if rescaled != arrival {
            self.buckets.set(new.id, rescaled, 0).map_err(|error| KernelError::map("buckets", error))?;
        }
        Ok(())
    }

    /// The program's time.
    fn now_ns(&self) -> Result<u64, KernelError> {
        #[cfg(test)]
        if self.is_test {
            return Ok(self
                .test_clock
                .get(&0, 0)
                .map_err(|error| KernelError::map("test_clock", error))?
                .now);
        }
        debug_assert!(!self.is_test, "only unit tests have a clock");
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes to `now` only.
        match unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } {
            0 => Ok(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64),
            _ => Err(KernelError::Io { what: "clock", source: std::io::Error::last_os_error() }),
        }
    }

    /// [`crate::SynPolicing::counters`].
    pub fn counters(&self) -> Result<Vec<RuleCounters>, KernelError> {
        let of = |name: &String| {
            let values = self.counters.get(&self.ids[name], 0);
            let values = values.map_err(|error| KernelError::map("counters", error))?;
            let sum = |field: fn(&Counters) -> u64| values.iter().map(field).sum();
            Ok(RuleCounters {
                name: name.clone(),
                seen: sum(|cpu| cpu.seen),
                passed: sum(|cpu| cpu.passed),
                dropped: sum(|cpu| cpu.dropped),
                reset: sum(|cpu| cpu.reset),
                slowed: sum(|cpu| cpu.slowed),
            })
        };
        self.names.iter().map(of).collect()
    }

    /// [`crate::SynPolicing::totals`].
    pub fn totals(&self) -> Result<Totals, KernelError> {
        let values = self.totals.get(&0, 0).map_err(|error| KernelError::map("totals", error))?;
        Ok(Totals {
            syns: values.iter().map(|cpu| cpu.syns).sum(),
            unmatched: values.iter().map(|cpu| cpu.unmatched).sum(),
        })
    }
}

fn take<M: TryFrom<Map, Error = aya::maps::MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<M, KernelError> {
    let map = ebpf.take_map(name).ok_or_else(|| KernelError::map(name, "not in the object"))?;
    M::try_from(map).map_err(|error| KernelError::map(name, error))
}

/// Whether the kernel refused for want of rights.
fn is_permission(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.raw_os_error() == Some(libc::EPERM)) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn needs_capabilities() -> KernelError {
    KernelError::Permission { what: "loading kernel programs", needs: "root, or CAP_BPF and CAP_NET_ADMIN" }
}

/// Without the verifier's log, of which the last lines say what it did not like.
fn shortened(error: &(dyn std::error::Error + 'static)) -> KernelError {
    let text = with_causes(error);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(4).max(1);
    KernelError::Load(
        lines[..1].iter().chain(&lines[from.min(lines.len())..]).copied().collect::<Vec<_>>().join(" | "),
    )
}

#[cfg(test)]
#[path = "../tests/suite/frames.rs"]
mod frames;

#[cfg(test)]
#[path = "../tests/suite/rights.rs"]
mod rights;

#[cfg(test)]
mod tests;
