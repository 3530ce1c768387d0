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
//! A change is all or nothing, and in force for the next request when the call returns. Tuned values
//! survive a restart (`learned.rs`) and a reload, unless the *file's* value of that key has changed: then the
//! operator edited the file for that key, and the file wins.

use std::collections::BTreeMap;
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
use crate::control::congestion::CongestionMonitor;
use crate::control::learned::{Saved, SavedTuned};
use crate::control::throttles::Throttles;
use crate::shared::Shared;
use tidegate_settings::{Applied, Change, Mistake, Override, Settings, json_of};

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
    pub(crate) generation: u64,
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
}

impl Tuning {
    pub fn new(file: Settings) -> Self {
        Self { file, tuned: BTreeMap::new(), generation: 0 }
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

/// The parts of the control side that follow a change.
#[derive(Clone)]
pub struct Followers {
    pub capacity: Arc<Mutex<Capacity>>,
    pub congestion: Arc<CongestionMonitor>,
    pub throttles: Arc<Throttles>,
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
        let news: Vec<&Applied> = applied.iter().filter(|applied| applied.old != applied.new).collect();
        if news.is_empty() {
            return Ok((applied, tuning.generation));
        }
        let live = old.tuned(settings).map_err(|e| refused(&news, &e.to_string()))?;
        let now = store.shared.clock.now();
        store.put_in_force(&old, live, now).map_err(|e| refused(&news, &e.to_string()))?;
        for Applied { name, new, .. } in &news {
            let tuned = Tuned { value: new.clone(), who: by.who.into(), why: by.why.into(), at: now };
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
        let old = self.shared.config.load_full();
        let changes = old.settings.diff(&settings);
        // Keys that only a restart changes keep their old values; the result is checked as a whole.
        let settings = settings.until_restart(&old.settings).map_err(ReloadError::Restart)?;
        let keys = ticket_keys(&settings, &self.state).map_err(ReloadError::State)?;
        let mut live = Config::new(settings, &keys)?;
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
        *tuning = Tuning { file, tuned, generation: tuning.generation + 1 };
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
        let (before, after) = (&old.settings, &live.settings);
        if before.origin != after.origin {
            self.shared.replicas.reconfigure(&after.origin);
        }
        self.shared.sessions.follow(old, &live, now);
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
        if before.log.level != after.log.level
            && let Some(log) = self.log.get()
            && let Err(e) = log.set_level(&after.log.level)
        {
            tracing::warn!("log.level: {e}");
        }
        self.shared.config.store(Arc::new(live));
        self.shared.generation.fetch_add(1, Ordering::Release);
        if is_other {
            capacity.put_in_force(&self.shared, now);
        }
        drop(capacity);
        // At once: policies in force name service levels, applications and lighter URLs by index.
        self.parts.congestion.follow_config(now);
        self.parts.throttles.follow_config();
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
