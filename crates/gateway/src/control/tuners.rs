//! Tuners that run inside the gate (MASTH, section 2 and Figure 2(b)): a directory's scripts, on one thread.
//!
//! ```text
//! *.rhai ─► script (the last one that compiled) ─► run ─► changes ─► ConfigStore::tune ─► status
//! ```
//!
//! A script cannot hurt the gate: a run is bounded, a run that fails changes nothing, and neither a worker
//! nor the control thread waits for one. The files are read in every round and compared by content, which is
//! more reliable than timestamps.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_core::detect::Judgement;
use tidegate_core::tune::{Change, Seen, Tuner as _, TunerError};
use tidegate_core::units::Timestamp;
use tokio::sync::watch;

pub mod script;
pub mod view;

use crate::control::config_store::ConfigStore;
use crate::control::congestion::CongestionMonitor;
use crate::control::correlation::Correlation;
use crate::history::History;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use script::Script;
use view::LiveView;

/// Most scripts, the first by name: each may take [`script::MAX_TIME`] of a round.
pub const MAX_SCRIPTS: usize = 32;
pub const MAX_BYTES: u64 = 64 << 10;
const SUFFIX: &str = "rhai";
/// Stack of the thread, in bytes: many times what [`script::MAX_CALLS`] of the deepest calls take.
const STACK: usize = 16 << 20;
/// A change of `tuners.every` is noticed within this time.
const NAP: Duration = Duration::from_secs(1);

/// The state of the scripts: written by their thread, read by the API.
#[derive(Default)]
pub struct Tuners {
    all: Mutex<BTreeMap<String, Status>>,
    ended: Mutex<bool>,
    wake: Condvar,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) runs: u64,
    /// Runs that failed; they changed nothing.
    pub(crate) errors: u64,
    pub(crate) ran_at: Option<Timestamp>,
    /// Of compiling or running.
    pub(crate) last_error: Option<LastError>,
    pub(crate) last_change: Option<LastChange>,
}

#[derive(Clone, Debug)]
pub(crate) struct LastError {
    pub(crate) error: TunerError,
    pub(crate) at: Timestamp,
}

#[derive(Clone, Debug)]
pub(crate) struct LastChange {
    pub(crate) changes: Vec<Change>,
    /// When the run began.
    pub(crate) at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum State {
    #[default]
    Running,
    Failing,
    /// The file cannot be used; its last usable version goes on.
    Stale,
    /// The file cannot be used, and never could be.
    Broken,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Stale => "stale",
            Self::Broken => "broken",
        }
    }
}

impl Tuners {
    pub(crate) fn all(&self) -> BTreeMap<String, Status> {
        self.all.lock().clone()
    }

    pub fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Waits for `time` or the end; whether it is the end.
    fn nap(&self, time: Duration) -> bool {
        let mut ended = self.ended.lock();
        self.wake.wait_while_for(&mut ended, |ended| !*ended, time);
        *ended
    }
}

/// What scripts see of the gate and change in it.
#[derive(Clone)]
pub struct TunedGate {
    pub(crate) shared: Arc<Shared>,
    pub(crate) figures: watch::Receiver<Arc<Figures>>,
    pub(crate) history: Arc<History>,
    pub(crate) correlation: Arc<Correlation>,
    pub(crate) congestion: Arc<CongestionMonitor>,
    pub(crate) store: Arc<ConfigStore>,
    pub(crate) tuners: Arc<Tuners>,
}

impl TunedGate {
    fn detectors(&self) -> Vec<(String, Judgement)> {
        let congestion = self.congestion.lock();
        congestion.detectors().map(|(detector, judgement, _)| (detector.name.clone(), judgement)).collect()
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn view(&self) -> Seen {
        Arc::new(LiveView {
            clock: self.shared.clock.clone(),
            config: self.shared.config.load_full(),
            figures: self.figures.borrow().clone(),
            history: self.history.clone(),
            correlation: self.correlation.clone(),
            detectors: self.detectors(),
        })
    }
}

pub struct Keeper {
    gate: TunedGate,
    kept: BTreeMap<String, Kept>,
    trouble: Option<String>,
}

#[derive(Default)]
struct Kept {
    /// The text that was compiled last, or why the file could not be read.
    text: Option<Result<String, String>>,
    script: Option<Script>,
    status: Status,
    logged: Option<TunerError>,
}

impl Keeper {
    pub fn new(gate: TunedGate) -> Self {
        Self { gate, kept: BTreeMap::new(), trouble: None }
    }

    /// One round: reads the directory, and runs every script once.
    pub fn round(&mut self, dir: Option<&Path>) {
        if dir.is_none() && self.kept.is_empty() {
            self.trouble = None;
            return;
        }
        let now = self.gate.now();
        match dir.map_or(Ok(BTreeMap::new()), files) {
            Ok(files) => {
                self.trouble = None;
                self.take_in(&files, now);
            }
            Err(e) => {
                let trouble = Some(e.to_string());
                if self.trouble != trouble {
                    tracing::warn!(error = %e, "tuners.dir cannot be read: what ran goes on");
                    self.trouble = trouble;
                }
            }
        }
        self.gate.tuners.all.lock().retain(|name, _| self.kept.contains_key(name));
        for (name, kept) in &mut self.kept {
            kept.run(name, &self.gate);
            self.gate.tuners.all.lock().insert(name.clone(), kept.status.clone());
        }
    }

    fn take_in(&mut self, files: &BTreeMap<String, PathBuf>, now: Timestamp) {
        self.kept.retain(|name, _| {
            let stays = files.contains_key(name);
            if !stays {
                tracing::info!(tuner = name, "gone");
            }
            stays
        });
        for (name, path) in files {
            self.kept.entry(name.clone()).or_default().take_in(name, read(path), now);
        }
    }
}

impl Kept {
    fn take_in(&mut self, name: &str, text: Result<String, String>, now: Timestamp) {
        if self.text.as_ref() == Some(&text) {
            return;
        }
        let unreadable = |what: &String| TunerError { what: what.clone(), at: None };
        match text.as_ref().map_err(unreadable).and_then(|text| Script::new(text)) {
            Ok(script) => {
                tracing::info!(tuner = name, "runs");
                self.script = Some(script);
                self.status.state = State::Running;
            }
            Err(e) => {
                self.status.state = if self.script.is_some() { State::Stale } else { State::Broken };
                self.failed(name, e, now);
            }
        }
        self.text = Some(text);
    }

    fn run(&mut self, name: &str, gate: &TunedGate) {
        let Some(script) = &mut self.script else { return };
        let now = gate.now();
        self.status.runs += 1;
        self.status.ran_at = Some(now);
        let news = script.tune(&gate.view()).and_then(|changes| apply(name, &changes, script, &gate.store));
        let is_stale = self.status.state == State::Stale;
        match news {
            Ok(news) => {
                if !news.is_empty() {
                    self.status.last_change = Some(LastChange { changes: news, at: now });
                }
                if !is_stale {
                    self.status.state = State::Running;
                }
            }
            Err(e) => {
                self.status.errors += 1;
                if !is_stale {
                    self.status.state = State::Failing;
                }
                self.failed(name, e, now);
            }
        }
    }

    fn failed(&mut self, name: &str, e: TunerError, now: Timestamp) {
        if self.logged.as_ref() != Some(&e) {
            tracing::warn!(tuner = name, "{e}");
            self.logged = Some(e.clone());
        }
        self.status.last_error = Some(LastError { error: e, at: now });
    }
}

/// Puts one run's changes in force, all of them or none. Returns those that changed a value.
fn apply(
    name: &str,
    changes: &[Change],
    script: &Script,
    store: &ConfigStore,
) -> Result<Vec<Change>, TunerError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let applied = store.tune(changes, &format!("tuner:{name}"), "").map_err(|mistakes| TunerError {
        at: mistakes.iter().find_map(|mistake| script.place_of(&mistake.key)),
        what: mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })?;
    let news = applied.into_iter().filter(|applied| applied.old != applied.new);
    Ok(news.map(|applied| (applied.name, applied.new)).collect())
}

fn files(dir: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        if let Some(name) = name
            && path.extension().is_some_and(|suffix| suffix == SUFFIX)
        {
            files.insert(name, path);
        }
    }
    while files.len() > MAX_SCRIPTS {
        files.pop_last();
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String, String> {
    // Opening a pipe would block.
    if !std::fs::metadata(path).map_err(|e| e.to_string())?.is_file() {
        return Err("it is no file".into());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    Ok(text)
}

/// Starts the scripts' thread. It ends with [`Tuners::end`].
pub fn spawn(gate: TunedGate) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("tuners".into()).stack_size(STACK);
    thread.spawn(move || {
        let mut keeper = Keeper::new(gate.clone());
        let mut last = None;
        loop {
            let live = gate.shared.config.load_full();
            let settings = &live.settings.tuners;
            let since = |last| gate.now().since(last);
            let left = last.map_or(Duration::ZERO, |last| settings.every.saturating_sub(since(last)));
            if left.is_zero() {
                last = Some(gate.now());
                keeper.round(settings.dir.as_deref());
            }
            let pause = if left.is_zero() { settings.every } else { left };
            if gate.tuners.nap(pause.min(NAP)) {
                return;
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
