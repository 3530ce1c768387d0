//! Tuners that run inside the gate (MASTH, section 2 and Figure 2(b)): scripts of a directory, on one thread of their own.
//!
//! ```text
//! *.rhai ─► script (compiled; the last good one goes on) ─► run ─► changes ─► ConfigStore::tune, all or none ─► status
//! ```
//!
//! A script cannot hurt the gate: a run is bounded, what fails changes nothing, and neither a worker nor the control thread
//! waits for one. The files are read at every round and compared by content, which no time stamp can do as well.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_core::tune::{Change, Seen, Tuner as _, TunerError};
use tidegate_core::units::Timestamp;
use tokio::sync::watch;

pub mod script;
pub mod view;

use crate::control::config_store::ConfigStore;
use crate::history::History;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use script::Script;
use view::LiveView;

/// Scripts at once, the first by name: each may take [`script::MAX_TIME`] of a round.
pub const MAX_SCRIPTS: usize = 32;
/// Bytes of one.
pub const MAX_BYTES: u64 = 64 << 10;
/// How a script's file ends.
const SUFFIX: &str = "rhai";
/// Stack of the thread: [`script::MAX_CALLS`] calls of the deepest expressions, many times over.
const STACK: usize = 16 << 20;
/// Another `every` is noticed within this time.
const NAP: Duration = Duration::from_secs(1);

/// How the scripts do: written by their thread, read by whoever asks.
#[derive(Default)]
pub struct Tuners {
    all: Mutex<BTreeMap<String, Status>>,
    ended: Mutex<bool>,
    wake: Condvar,
}

/// How a script does.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What it is up to.
    pub state: State,
    /// Runs, those that failed included.
    pub runs: u64,
    /// Those that failed; they changed nothing.
    pub errors: u64,
    /// When the last run began.
    pub ran_at: Option<Timestamp>,
    /// The last thing that went wrong, also in compiling, and when.
    pub last_error: Option<(TunerError, Timestamp)>,
    /// What it changed last, and when.
    pub last_change: Option<(Vec<Change>, Timestamp)>,
}

/// What a script is up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// Its last run ended well.
    #[default]
    Running,
    /// Its last run failed.
    Failing,
    /// The file cannot be used: what it was before goes on.
    Stale,
    /// The file cannot be used, and never could be.
    Broken,
}

impl State {
    /// As the API has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Stale => "stale",
            Self::Broken => "broken",
        }
    }
}

impl Tuners {
    /// By name.
    pub fn all(&self) -> BTreeMap<String, Status> {
        self.all.lock().clone()
    }

    /// Ends their thread after the present run.
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
    pub(crate) store: Arc<ConfigStore>,
    pub(crate) tuners: Arc<Tuners>,
}

impl TunedGate {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn view(&self) -> Seen {
        Arc::new(LiveView {
            clock: self.shared.clock.clone(),
            config: self.shared.config.load_full(),
            figures: self.figures.borrow().clone(),
            history: self.history.clone(),
        })
    }
}

/// The scripts of a directory.
pub struct Keeper {
    gate: TunedGate,
    kept: BTreeMap<String, Kept>,
    /// Why the directory could not be read.
    trouble: Option<String>,
}

/// One file.
#[derive(Default)]
struct Kept {
    /// What was compiled last, or could not be.
    text: Option<Result<String, String>>,
    script: Option<Script>,
    status: Status,
    /// The error that is in the log.
    logged: Option<TunerError>,
}

impl Keeper {
    /// Of a gate whose scripts have not been read yet.
    pub fn new(gate: TunedGate) -> Self {
        Self { gate, kept: BTreeMap::new(), trouble: None }
    }

    /// One round: looks at the directory, and runs every script once.
    pub fn round(&mut self, dir: Option<&Path>) {
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

    /// Compiles what is new or has changed, and forgets what is gone.
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
                    self.status.last_change = Some((news, now));
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
        self.status.last_error = Some((e, now));
    }
}

/// Puts one run's changes in force, all of them or none; those that were news.
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

/// The scripts of a directory, by name.
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
    // A pipe would be waited for.
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
///
/// # Errors
/// The thread cannot be started.
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
