//! Changes while the gate runs: single keys by name (tunables), and the whole configuration (reload).
//!
//! ```text
//! names and values ─► Settings::tuned ─► Live::tuned ─┐
//!                                                     ├─► room, gate, capacity, replicas ─► live ─► generation
//! file ─► Settings::load ─► tuned again ─► Live::new ─┘
//! ```
//!
//! One change is made at a time ([`Alone`]), record included, so that the record has them in the order in which they took effect;
//! the numbers themselves are behind a lock of their own, which nobody holds while a disk is waited for.
//!
//! A change is all or nothing, and in force for the next request when the call returns. What was tuned lives as long as
//! the process. A reload leaves it alone, unless the *file's* value of that key has changed: then the file was edited
//! for it, and the file has the last word.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use serde_json::Value;
use tidegate_core::gate::GateConfig;
use tidegate_core::measure::Snapshot;
use tidegate_core::room::NeedsNewRoom;
use tidegate_core::units::Timestamp;

use crate::base::audit::{By, Entry};
use crate::config::{Config, ConfigError};
use crate::control::capacity::seated;
use crate::control::driver::{Control, lock};
use crate::proxy::stages::room::new_key;
use tidegate_settings::{Applied, Change, Mistake, Settings, json_of};

/// What was tuned since the start.
#[derive(Clone)]
pub struct Tuning {
    /// What the file said last.
    file: Settings,
    /// By name; what has the file's value is not here.
    tuned: BTreeMap<String, Tuned>,
    /// Counts changes of the settings, by whatever means.
    generation: u64,
}

/// A tunable that has another value than the file gives it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// As TOML.
    pub value: String,
    /// Who set it.
    pub who: String,
    /// Why, in their own words.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// Why nothing was tuned.
#[derive(Debug)]
pub enum TuneError {
    /// Names or values.
    Mistakes(Vec<Mistake>),
    /// The settings are not those that the caller has seen: their generation now.
    Stale(u64),
}

/// Why a reload did not happen: the gate keeps what it had.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file or an override is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
    /// The file is right, but does not go together with what was tuned.
    #[error(
        "the file does not go together with what was tuned while running (tidegate ctl get --tuned):\n{}",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    )]
    Tuned(Vec<Mistake>),
    /// The file is right, but not for the process that runs.
    #[error(
        "the file does not go together with what takes effect with the next start only:\n{}",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    )]
    Restart(Vec<Mistake>),
    /// The keys kept there.
    #[error("cannot read the keys: {0} (room.state_dir)")]
    State(io::Error),
    /// It cannot be put in force.
    #[error(transparent)]
    Live(#[from] ConfigError),
}

impl Tuning {
    /// Of a gate that starts with what its file says.
    pub fn new(file: Settings) -> Self {
        Self { file, tuned: BTreeMap::new(), generation: 0 }
    }

    /// How often the settings have changed.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What the file says.
    pub fn file(&self) -> &Settings {
        &self.file
    }

    /// What differs from it, by name.
    pub fn tuned(&self) -> &BTreeMap<String, Tuned> {
        &self.tuned
    }

    /// What a new file comes to with what was tuned, and what is still tuned then.
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

/// Nobody else changes anything meanwhile. Held while disks are waited for: not to be asked for on the control thread.
pub struct ChangeLock<'c> {
    control: &'c Control,
    _others_wait: MutexGuard<'c, ()>,
}

impl Control {
    /// Waits until nobody else changes anything.
    pub fn alone(&self) -> ChangeLock<'_> {
        ChangeLock { control: self, _others_wait: lock(&self.changing) }
    }

    /// Changes tunables by name, to values as in `--set`: all of them, or none. In force for the next request when this
    /// returns, and recorded. What already has its value is left alone.
    ///
    /// # Errors
    /// Everything that is wrong with names and values; nothing has changed then.
    pub fn tune<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
        who: &str,
        why: &str,
    ) -> Result<Vec<Applied>, Vec<Mistake>> {
        match self.alone().tune_if(changes, By { who, why }, |_| true) {
            Ok((applied, _)) => Ok(applied),
            Err(TuneError::Mistakes(mistakes)) => Err(mistakes),
            Err(TuneError::Stale(_)) => unreachable!("any generation will do"),
        }
    }

    /// What was tuned, for as long as nobody is to change it.
    pub fn with_tuning<T>(&self, look: impl FnOnce(&Tuning) -> T) -> T {
        look(&lock(&self.tuning))
    }
}

impl ChangeLock<'_> {
    /// As [`Control::tune`], if the settings' generation is as expected; with the new one.
    ///
    /// # Errors
    /// As [`Control::tune`], or somebody else was faster.
    pub fn tune_if<N: AsRef<str>, V: AsRef<str>>(
        &self,
        changes: &[(N, V)],
        by: By<'_>,
        expects: impl FnOnce(u64) -> bool,
    ) -> Result<(Vec<Applied>, u64), TuneError> {
        let control = self.control;
        let mut tuning = lock(&control.tuning);
        if !expects(tuning.generation) {
            return Err(TuneError::Stale(tuning.generation));
        }
        let old = control.shared.config.load_full();
        let (settings, applied) = old.settings.tuned(changes).map_err(TuneError::Mistakes)?;
        let news: Vec<&Applied> = applied.iter().filter(|applied| applied.old != applied.new).collect();
        if news.is_empty() {
            return Ok((applied, tuning.generation));
        }
        let live = old.tuned(settings).map_err(|e| refused(&news, &e.to_string()))?;
        let now = control.shared.clock.now();
        control.put_in_force(&old, live, now).map_err(|e| refused(&news, &e.to_string()))?;
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
        // Whoever asks what was tuned does not wait for the record's disk.
        drop(tuning);
        let entries: Vec<_> = news.iter().map(|applied| entry(applied)).collect();
        control.audit.record(by, &entries, now);
        tracing::debug!(who = by.who, changes = entries.len(), "tuned");
        Ok((applied, generation))
    }
}

impl Control {
    /// As [`Control::reload_by`], because of a signal.
    ///
    /// # Errors
    /// The new configuration is wrong; the old one stays.
    pub fn reload(&self) -> Result<Vec<Change>, ReloadError> {
        self.reload_by(By::SIGNAL)
    }

    /// Reads the configuration again and puts it in force without dropping a connection. What was tuned stays, unless the
    /// file's value of that key has changed.
    ///
    /// # Errors
    /// The new configuration is wrong; the old one stays.
    pub fn reload_by(&self, by: By<'_>) -> Result<Vec<Change>, ReloadError> {
        // Log rotation asks for a new file whatever becomes of the configuration.
        if let Some(access) = &self.shared.access {
            access.reopen();
        }
        // A signal and the API are two threads. What the disk has to say is waited for without the lock that readers need.
        let _alone = self.alone();
        let file = self.source.read().map_err(ReloadError::Mistakes)?;
        let before = self.with_tuning(Tuning::clone);
        let (settings, tuned) = before.rebase(&file)?;
        let old = self.shared.config.load_full();
        let changes = old.settings.diff(&settings);
        // A socket stays where it is, whoever may change things there: what only a restart changes is as it was, and checked with the rest.
        let settings = settings.until_restart(&old.settings).map_err(ReloadError::Restart)?;
        let keys = if settings.room.keys.is_empty() {
            self.state.keys(new_key).map_err(ReloadError::State)?
        } else {
            settings.room.keys.clone()
        };
        let mut live = Config::new(settings, &keys)?;
        let now = self.shared.clock.now();
        let lines = self.shared.gate.by_class(old.classes.len());
        let total = Snapshot::take(self.shared.shards.iter().map(|s| &**s), now);
        live.follow(&old, &total, |id| lines.get(id.index()).is_none_or(|line| *line == (0, 0)));
        let mut tuning = lock(&self.tuning);
        if let Err(refused) = self.put_in_force(&old, live, now) {
            let Refused { why, mut live } = *refused;
            tracing::warn!("{why}: room.max_wait and room.grace take effect with the next start only");
            // Without them, or the room would refuse every later change as well.
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

    /// Hands other settings to whoever goes by them. The room is asked first: it alone may refuse, and nothing has changed
    /// then.
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
        let mut capacity = lock(&self.capacity);
        live.taken_over(old).for_each(|id| capacity.forget(id));
        let is_other = before.capacity != after.capacity
            || old.bounds() != live.bounds()
            || before.estimator() != after.estimator();
        if is_other {
            capacity.reconfigure(old, &live, now);
        }
        let (was, config) = (old.gate_config(), live.gate_config());
        if was != config {
            let max_in_flight = seated(capacity.limit(&live), &self.shared);
            self.shared.gate.reconfigure(&GateConfig { max_in_flight, ..config });
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
        // At once: orders name service levels, applications and lighter URLs by their places in the file.
        self.follow_rules(now);
    }
}

/// The room keeps what it has; the rest may go on.
struct Refused {
    why: NeedsNewRoom,
    live: Config,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

/// What the parts of the gate refuse, in the settings' words. The text names what is too much.
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
