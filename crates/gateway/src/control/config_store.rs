//! The settings in force and every way to change them: keys by name (tunables), and the whole file (reload).
//!
//! ```text
//! names and values ─► Settings::tuned ─► Config::tuned ─┐
//!                                                       ├─► room, gate, capacity, replicas ─► config
//! file ─► Settings::load ─► tuned again ─► Config::new ─┘
//! ```
//!
//! Changes are made one at a time ([`ChangeLock`]), their audit record included, so that the audit lists them
//! in the order in which they took effect. The numbers have a lock of their own, which nobody holds while a
//! disk is waited for.
//!
//! Rules in force may set tunables too. Their values lie on top of everything else, and are taken back when
//! the rule ends: to what was tuned, or to the file's value. They are not saved, so that no restart keeps
//! them. A change by anybody else meanwhile stands, and nothing is taken back then.
//!
//! A change is all or nothing, and in force for the next request when the call returns. Tuned values
//! survive a restart (`learned.rs`) and a reload, unless the *file's* value of that key has changed: then the
//! operator edited the file for that key, and the file wins.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tidegate_core::capacity::Trust;
use tidegate_core::gate::GateConfig;
use tidegate_core::measure::Snapshot;
use tidegate_core::room::NeedsNewRoom;
use tidegate_core::ticket::KeyRing;
use tidegate_core::units::Timestamp;

use crate::base::audit::{Audit, By, Entry};
use crate::base::log::LogHandle;
use crate::base::state_dir::StateDir;
use crate::config::{Config, ConfigError};
use crate::control::capacity::{Capacity, usable_limit};
use crate::control::congestion::{Assigned, CongestionMonitor};
use crate::control::kernel::syn_rules::SynRules;
use crate::control::learned::{Saved, SavedTuned};
use crate::control::tcp::TcpListeners;
use crate::control::throttles::Throttles;
use crate::shared::Shared;
use crate::shared::listening::ListenError;
use tidegate_settings::{Accept, Applied, Change, Mistake, Override, Rule, Settings, Then, json_of};

/// Where the settings came from, so that they can be read again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub file: Option<PathBuf>,
    /// Values that the command line sets on top of the file.
    pub overrides: Vec<Override>,
}

impl Source {
    pub fn read(&self) -> Result<Settings, Vec<Mistake>> {
        match &self.file {
            Some(file) => Settings::load_with(file, &self.overrides),
            None => Settings::parse_with("", "command line", &self.overrides),
        }
    }
}

/// The ring of keys that sign tickets and passes: those configured, or those kept in the state directory,
/// where one is made if there is none yet.
pub fn ticket_keys(settings: &Settings, state: &StateDir) -> io::Result<Vec<String>> {
    if settings.room.keys.is_empty() { state.keys(new_key) } else { Ok(settings.room.keys.clone()) }
}

fn new_key() -> io::Result<String> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let id = getrandom::u32().map_err(io::Error::other)? % 255 + 1;
    Ok(KeyRing::entry(id as u8, &secret))
}

/// Values that were tuned, and the file's values.
#[derive(Clone)]
pub struct Tuning {
    /// The file's settings as of the last reload.
    pub(crate) file: Settings,
    /// By name, without keys that have the file's value.
    tuned: BTreeMap<String, Tuned>,
    /// Set by rules in force, by name.
    by_rules: BTreeMap<String, ByRule>,
    /// What somebody else has changed while a rule in force sets it.
    claimed: BTreeSet<String>,
    pub(crate) generation: u64,
}

/// The value of a tunable while a rule is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ByRule {
    rule: Arc<str>,
    /// As TOML.
    value: String,
}

/// A tunable that a rule sets, or does not set any more.
struct Step {
    key: String,
    value: String,
    rule: Arc<str>,
    begins: bool,
}

/// A tunable whose value is not the file's.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// As TOML.
    pub value: String,
    pub who: String,
    pub why: String,
    pub at: Timestamp,
}

#[derive(Debug)]
pub enum TuneError {
    Mistakes(Vec<Mistake>),
    /// The settings are not those that the caller has seen. Contains their generation now.
    Stale(u64),
}

/// Why a reload failed. The gate keeps its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
    #[error(
        "the file does not go together with what was tuned while running (tidegate ctl get --tuned):\n{}",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    )]
    Tuned(Vec<Mistake>),
    #[error(
        "the file does not go together with what takes effect with the next start only:\n{}",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    )]
    Restart(Vec<Mistake>),
    #[error("cannot read the keys: {0} (room.state_dir)")]
    State(io::Error),
    #[error(transparent)]
    Live(#[from] ConfigError),
    /// Of a TCP service.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl Tuning {
    pub fn new(file: Settings) -> Self {
        let (tuned, by_rules, claimed) = Default::default();
        Self { file, tuned, by_rules, claimed, generation: 0 }
    }

    /// What was tuned before a restart, on top of the file: as far as the file's value is still the one that
    /// was tuned, and not forgotten. Returns the settings of the two together.
    pub fn restored(file: Settings, saved: &Saved, now: Timestamp) -> (Settings, Self) {
        let mut tuned = BTreeMap::new();
        for (name, saved) in &saved.tuned {
            let SavedTuned { at_ms, value, file: before, who, why } = saved.clone();
            let at = Timestamp::from_millis(at_ms);
            if file.value_of(name).as_ref() != Some(&before) {
                tracing::info!(%name, value, "no longer tuned: the file has another value since then");
            } else if Trust::of(at, now) == Trust::Forgotten {
                tracing::info!(%name, value, "no longer tuned: too long ago; the file has the last word");
            } else {
                tuned.insert(name.clone(), Tuned { value, who, why, at });
            }
        }
        let changes: Vec<_> = tuned.iter().map(|(name, tuned)| (name, &tuned.value)).collect();
        match file.tuned_anew(&changes) {
            Ok((settings, _)) => {
                for (name, Tuned { value, who, .. }) in &tuned {
                    tracing::info!(%name, value, who, "tuned before the restart");
                }
                (settings, Self { tuned, ..Self::new(file) })
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    tracing::warn!(%mistake, "nothing that was tuned before the restart is in force");
                }
                (file.clone(), Self::new(file))
            }
        }
    }

    pub(crate) fn to_save(&self) -> BTreeMap<String, SavedTuned> {
        let saved = |name: &str, tuned: &Tuned| {
            let Tuned { value, who, why, at } = tuned.clone();
            let file = self.file.value_of(name).unwrap_or_default();
            SavedTuned { at_ms: at.as_millis(), value, file, who, why }
        };
        self.tuned.iter().map(|(name, tuned)| (name.clone(), saved(name, tuned))).collect()
    }

    pub fn tuned(&self) -> &BTreeMap<String, Tuned> {
        &self.tuned
    }

    /// The rule in force that has set a tunable.
    pub fn set_by(&self, name: &str) -> Option<&str> {
        self.by_rules.get(name).map(|by| &*by.rule)
    }

    /// What a tunable has when no rule sets it.
    fn usual(&self, name: &str) -> Option<String> {
        self.tuned.get(name).map(|tuned| tuned.value.clone()).or_else(|| self.file.value_of(name))
    }

    /// The value that a rule of the file gives to a tunable; `None`: it gives none.
    fn value_by(&self, rule: &str, name: &str) -> Option<String> {
        let sets = |one: &&Rule| one.name == rule && one.then == Then::Set && one.set == name;
        let found = self.file.rule.iter().find(sets)?;
        let value = self.file.value_by_rule(found);
        value.map_err(|mistakes| say(rule, &mistakes)).ok()
    }

    /// What is to be done so that tunables have the values of these rules, the first of several.
    fn steps(&mut self, assigned: &[Assigned]) -> Vec<Step> {
        self.claimed.retain(|name| assigned.iter().any(|one| *one.key == **name));
        let mut wanted = BTreeMap::new();
        for Assigned { rule, key } in assigned {
            if self.claimed.contains(&**key) || wanted.contains_key(&**key) {
                continue;
            }
            if let Some(value) = self.value_by(rule, key) {
                wanted.insert(key.to_string(), ByRule { rule: rule.clone(), value });
            }
        }
        let over = self.by_rules.iter().filter(|(name, _)| !wanted.contains_key(*name));
        let over = over.filter_map(|(name, by)| {
            let (key, rule) = (name.clone(), by.rule.clone());
            Some(Step { value: self.usual(name)?, key, rule, begins: false })
        });
        let news = wanted.iter().filter(|(name, by)| self.by_rules.get(*name) != Some(*by));
        let news = news.map(|(name, by)| {
            let (key, value, rule) = (name.clone(), by.value.clone(), by.rule.clone());
            Step { key, value, rule, begins: true }
        });
        let steps: Vec<_> = over.chain(news).collect();
        self.by_rules.retain(|name, _| wanted.contains_key(name));
        steps
    }

    /// The settings of another file with what rules set on top, as far as they still do.
    fn ruled(&self, file: &Settings, mut settings: Settings) -> (Settings, BTreeMap<String, ByRule>) {
        let new = Self { file: file.clone(), ..Self::new(Settings::default()) };
        let mut by_rules = BTreeMap::new();
        for (name, ByRule { rule, .. }) in &self.by_rules {
            let Some(value) = new.value_by(rule, name) else { continue };
            match settings.tuned_anew(&[(name, &value)]) {
                Ok((ruled, _)) => {
                    settings = ruled;
                    by_rules.insert(name.clone(), ByRule { rule: rule.clone(), value });
                }
                Err(mistakes) => say(rule, &mistakes),
            }
        }
        (settings, by_rules)
    }

    /// The settings of a new file with what was tuned on top, and what remains tuned.
    fn rebase(&self, file: &Settings) -> Result<(Settings, BTreeMap<String, Tuned>), ReloadError> {
        let mut kept = self.tuned.clone();
        if kept.is_empty() {
            return Ok((file.clone(), kept));
        }
        let values = |settings: &Settings| -> BTreeMap<String, String> {
            settings.tunables().into_iter().map(|tunable| (tunable.name, tunable.value)).collect()
        };
        let (before, after) = (values(&self.file), values(file));
        kept.retain(|name, _| after.contains_key(name) && before.get(name) == after.get(name));
        let changes: Vec<_> = kept.iter().map(|(name, tuned)| (name, &tuned.value)).collect();
        let (settings, _) = file.tuned_anew(&changes).map_err(ReloadError::Tuned)?;
        Ok((settings, kept))
    }
}

fn say(rule: &str, mistakes: &[Mistake]) {
    for mistake in mistakes {
        tracing::warn!(rule, %mistake, "the rule cannot set its tunable");
    }
}

/// The parts of the control side that follow a change.
#[derive(Clone)]
pub struct Followers {
    pub capacity: Arc<Mutex<Capacity>>,
    pub congestion: Arc<CongestionMonitor>,
    pub throttles: Arc<Throttles>,
    pub kernel: Arc<SynRules>,
    pub tcp: Arc<TcpListeners>,
}

/// The settings in force, what was tuned, and the parts of the gate that follow a change.
pub struct ConfigStore {
    shared: Arc<Shared>,
    parts: Followers,
    source: Source,
    state: StateDir,
    /// Held during a change, until it is in the audit.
    changing: Mutex<()>,
    tuning: Mutex<Tuning>,
    /// What rules in force set, as of the last tick.
    assigned: Mutex<Vec<Assigned>>,
    audit: Arc<Audit>,
    log: OnceLock<LogHandle>,
}

/// Excludes every other change. Held while disks are waited for, so never take it on the control thread.
pub struct ChangeLock<'c> {
    store: &'c ConfigStore,
    _others_wait: MutexGuard<'c, ()>,
}

impl ConfigStore {
    pub fn new(
        shared: Arc<Shared>,
        parts: Followers,
        audit: Arc<Audit>,
        source: Source,
        state: StateDir,
        tuning: Tuning,
    ) -> Self {
        Self {
            changing: Mutex::default(),
            tuning: Mutex::new(tuning),
            assigned: Mutex::default(),
            audit,
            log: OnceLock::new(),
            shared,
            parts,
            source,
            state,
        }
    }

    /// Lets changes of `log.level` reach the process's log.
    pub fn steer_log(&self, log: LogHandle) {
        _ = self.log.set(log);
    }

    pub fn lock_changes(&self) -> ChangeLock<'_> {
        ChangeLock { store: self, _others_wait: self.changing.lock() }
    }

    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Changes tunables by name, to values as in `--set`: all of them, or none. In force for the next request
    /// when this returns, and recorded. Keys that already have their value are left alone.
    pub fn tune<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
        who: &str,
        why: &str,
    ) -> Result<Vec<Applied>, Vec<Mistake>> {
        match self.lock_changes().tune_if(changes, By { who, why }, |_| true) {
            Ok((applied, _)) => Ok(applied),
            Err(TuneError::Mistakes(mistakes)) => Err(mistakes),
            Err(TuneError::Stale(_)) => unreachable!("any generation will do"),
        }
    }

    /// Calls `look` with what was tuned; no change takes effect meanwhile.
    pub fn with_tuning<T>(&self, look: impl FnOnce(&Tuning) -> T) -> T {
        look(&self.tuning.lock())
    }
}

impl ChangeLock<'_> {
    /// As [`ConfigStore::tune`], if the settings' generation is as expected. Returns the new generation too.
    pub fn tune_if<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
        by: By<'_>,
        expects: impl FnOnce(u64) -> bool,
    ) -> Result<(Vec<Applied>, u64), TuneError> {
        let store = self.store;
        let mut tuning = store.tuning.lock();
        if !expects(tuning.generation) {
            return Err(TuneError::Stale(tuning.generation));
        }
        let old = store.shared.config.load_full();
        let (settings, applied) = old.settings.tuned(changes).map_err(TuneError::Mistakes)?;
        // What a rule has set becomes the caller's, also if the value is the same.
        let is_new = |one: &&Applied| one.old != one.new || tuning.by_rules.contains_key(&one.name);
        let news: Vec<&Applied> = applied.iter().filter(is_new).collect();
        if news.is_empty() {
            return Ok((applied, tuning.generation));
        }
        let live = old.tuned(settings).map_err(|e| refused(&news, &e.to_string()))?;
        let now = store.shared.clock.now();
        store.put_in_force(&old, live, now).map_err(|e| refused(&news, &e.to_string()))?;
        for Applied { name, new, .. } in &news {
            let tuned = Tuned { value: new.clone(), who: by.who.into(), why: by.why.into(), at: now };
            if tuning.by_rules.remove(name).is_some() {
                tuning.claimed.insert(name.clone());
            }
            if tuning.file.value_of(name).as_ref() == Some(new) {
                tuning.tuned.remove(name);
            } else {
                tuning.tuned.insert(name.clone(), tuned);
            }
        }
        tuning.generation += 1;
        let generation = tuning.generation;
        // Readers of the tuning do not wait for the audit's disk.
        drop(tuning);
        let entries: Vec<_> = news.iter().map(|applied| entry(applied)).collect();
        store.audit.record(by, &entries, now);
        tracing::debug!(who = by.who, changes = entries.len(), "tuned");
        Ok((applied, generation))
    }
}

impl ConfigStore {
    /// Takes note of what rules in force set, highest precedence first. In force with
    /// [`ConfigStore::follow_rules`].
    pub fn assign(&self, assigned: Vec<Assigned>) {
        *self.assigned.lock() = assigned;
    }

    /// Gives tunables the values of the rules in force, and those back that no rule sets any more. Waits for
    /// the audit's disk: not to be called on the control thread.
    pub fn follow_rules(&self) {
        let _alone = self.lock_changes();
        let assigned = self.assigned.lock().clone();
        let mut tuning = self.tuning.lock();
        let now = self.shared.clock.now();
        let mut done = Vec::new();
        for step in tuning.steps(&assigned) {
            match self.take(&step, now) {
                Ok(applied) => {
                    if step.begins {
                        let Step { key, value, rule, .. } = &step;
                        let by = ByRule { rule: rule.clone(), value: value.clone() };
                        tuning.by_rules.insert(key.clone(), by);
                    }
                    tuning.generation += 1;
                    done.push((step, applied));
                }
                Err(mistakes) => say(&step.rule, &mistakes),
            }
        }
        drop(tuning);
        for (Step { rule, begins, .. }, applied) in done {
            let who = format!("rule:{rule}");
            let why = if begins { "in force" } else { "over" };
            let news: Vec<_> = applied.iter().filter(|one| one.old != one.new).map(entry).collect();
            tracing::info!(rule = &*rule, why, changes = ?applied, "set by a rule");
            self.audit.record(By { who: &who, why }, &news, now);
        }
    }

    fn take(&self, step: &Step, now: Timestamp) -> Result<Vec<Applied>, Vec<Mistake>> {
        let old = self.shared.config.load_full();
        let (settings, applied) = old.settings.tuned(&[(&step.key, &step.value)])?;
        let news: Vec<&Applied> = applied.iter().collect();
        let mistakes = |why: &dyn std::fmt::Display| match refused(&news, &why.to_string()) {
            TuneError::Mistakes(mistakes) => mistakes,
            TuneError::Stale(_) => Vec::new(),
        };
        let live = old.tuned(settings).map_err(|e| mistakes(&e))?;
        self.put_in_force(&old, live, now).map_err(|e| mistakes(&e))?;
        Ok(applied)
    }

    /// As [`ConfigStore::reload_by`], because of a signal.
    pub fn reload(&self) -> Result<Vec<Change>, ReloadError> {
        self.reload_by(By::SIGNAL)
    }

    /// Reads the configuration again and puts it in force without dropping a connection. What was tuned
    /// stays, unless the file's value of that key has changed.
    pub fn reload_by(&self, by: By<'_>) -> Result<Vec<Change>, ReloadError> {
        // Log rotation asks for a new file whatever becomes of the configuration.
        if let Some(access) = &self.shared.access {
            access.reopen();
        }
        // A signal and the API are two threads. The disk is waited for without the lock that readers need.
        let _alone = self.lock_changes();
        let file = self.source.read().map_err(ReloadError::Mistakes)?;
        let before = self.with_tuning(Tuning::clone);
        let (settings, tuned) = before.rebase(&file)?;
        let (settings, by_rules) = before.ruled(&file, settings);
        let old = self.shared.config.load_full();
        let changes = old.settings.diff(&settings);
        // Keys that only a restart changes keep their old values; the result is checked as a whole.
        let settings = settings.until_restart(&old.settings).map_err(ReloadError::Restart)?;
        let keys = ticket_keys(&settings, &self.state).map_err(ReloadError::State)?;
        let mut live = Config::new(settings, &keys)?;
        let new_addresses = self.parts.tcp.listen(&live.settings)?;
        let now = self.shared.clock.now();
        let loads = self.shared.gate.by_class(old.classes.len());
        let total = Snapshot::take(self.shared.shards.iter().map(|s| &**s), now);
        live.follow(&old, &total, |id| loads.get(id.index()).is_none_or(|load| load.is_idle()));
        let mut tuning = self.tuning.lock();
        if let Err(refused) = self.put_in_force(&old, live, now) {
            let Refused { why, mut live } = *refused;
            tracing::warn!("{why}: room.max_wait and room.grace take effect with the next start only");
            // Their old values stay, or the room would refuse every later change as well.
            let (room, was) = (&mut live.settings.room, &old.settings.room);
            (room.max_wait, room.grace) = (was.max_wait, was.grace);
            if let Err(refused) = self.put_in_force(&old, live, now) {
                self.put_the_rest_in_force(&old, refused.live, now);
            }
        }
        let in_force = self.shared.config.load();
        self.parts.tcp.put_in_force(&in_force.settings, new_addresses, &self.shared.clock);
        let (claimed, generation) = (tuning.claimed.clone(), tuning.generation + 1);
        *tuning = Tuning { file, tuned, by_rules, claimed, generation };
        drop(tuning);
        for change in &changes {
            if change.restart {
                tracing::warn!(key = %change.key, "changed, but takes effect with the next start only");
            } else {
                tracing::info!(key = %change.key, "changed");
            }
        }
        tracing::info!(changes = changes.len(), "configuration reloaded");
        let mut entries: Vec<_> = changes.iter().map(of_reload).collect();
        if entries.is_empty() {
            entries.push(Entry::act("reload"));
        }
        self.audit.record(by, &entries, now);
        Ok(changes)
    }

    /// Hands other settings to the parts that follow them. The room is asked first: it alone may refuse, and
    /// nothing has changed then.
    fn put_in_force(&self, old: &Config, live: Config, now: Timestamp) -> Result<(), Box<Refused>> {
        if let Some(room) = self.shared.admission.room()
            && live.room_config() != old.room_config()
            && let Err(why) = room.reconfigure(live.room_config(), now)
        {
            return Err(Box::new(Refused { why, live }));
        }
        self.put_the_rest_in_force(old, live, now);
        Ok(())
    }

    fn put_the_rest_in_force(&self, old: &Config, mut live: Config, now: Timestamp) {
        live.succeed(old, now);
        // Not at each change of a tunable.
        if let Some(tls) =
            live.tls.as_ref().filter(|tls| !old.tls.as_ref().is_some_and(|t| Arc::ptr_eq(t, tls)))
        {
            tls.warn(now.as_millis() / 1000);
        }
        let (before, after) = (&old.settings, &live.settings);
        self.shared.replicas.set_tls(live.origin_tls.clone());
        if before.origin != after.origin {
            self.shared.replicas.reconfigure(&after.origin);
        }
        self.shared.sessions.follow(old, &live, now);
        self.shared.admission.costs().configure(&live.cost_sources());
        let mut capacity = self.parts.capacity.lock();
        live.taken_over(old).for_each(|id| capacity.forget(id));
        let is_other = before.capacity != after.capacity
            || old.bounds() != live.bounds()
            || before.estimator() != after.estimator();
        if is_other {
            capacity.reconfigure(old, &live, now);
        }
        if old.gate() != live.gate() {
            let max_in_flight = usable_limit(capacity.limit(&live), &self.shared);
            self.shared.gate.reconfigure(&GateConfig { max_in_flight, ..live.gate().clone() });
        }
        if before.tcp != after.tcp {
            // New addresses follow, if any.
            self.parts.tcp.put_in_force(after, Vec::new(), &self.shared.clock);
        }
        self.shared.gate.accept_while_free(after.kernel.accept == Accept::WhileFree);
        if before.log.level != after.log.level
            && let Some(log) = self.log.get()
            && let Err(e) = log.set_level(&after.log.level)
        {
            tracing::warn!("log.level: {e}");
        }
        let has_other_syn_rules = before.syn_rule != after.syn_rule || before.kernel != after.kernel;
        self.shared.config.store(Arc::new(live));
        self.shared.generation.fetch_add(1, Ordering::Release);
        if is_other {
            capacity.put_in_force(&self.shared, now);
        }
        drop(capacity);
        // At once: policies in force name service levels, applications and lighter URLs by index.
        self.parts.congestion.follow_config(now);
        self.parts.throttles.follow_config();
        if has_other_syn_rules {
            self.parts.kernel.follow_config();
        }
    }
}

/// The room keeps its configuration; the caller may put the rest of `live` in force.
struct Refused {
    why: NeedsNewRoom,
    live: Config,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

/// A refusal of a part of the gate, as a mistake in the settings. `why` names the value that is too large.
fn refused(news: &[&Applied], why: &str) -> TuneError {
    let of_room = news.iter().find(|applied| applied.name.starts_with("room."));
    let (key, got) =
        of_room.or(news.first()).map_or_else(Default::default, |a| (a.name.clone(), a.new.clone()));
    let expected = "a value that a running gate can take over".into();
    let hint = Some(format!("{why}: put it into the file and restart."));
    let (file, line, column, excerpt) = (String::new(), 0, 0, None);
    TuneError::Mistakes(vec![Mistake { file, line, column, key, expected, got, hint, excerpt }])
}

fn entry(applied: &Applied) -> Entry {
    let Applied { name, old, new } = applied;
    Entry { action: "tune", key: Some(name.clone()), old: json_of(old), new: json_of(new) }
}

fn of_reload(change: &Change) -> Entry {
    let json = |value: &Option<String>| value.as_deref().map_or(Value::Null, json_of);
    Entry { action: "reload", key: Some(change.key.clone()), old: json(&change.old), new: json(&change.new) }
}
