//! The control side: one thread that ticks, answers the admin API, checks the replicas' health and ends the
//! process in good order. Nothing here is on a request's path.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::capacity::{Estimate, Sample};
use tidegate_core::control::{TICK, Tunables};
use tidegate_core::gate::{GateConfig, Totals};
use tidegate_core::measure::{Snapshot, Window};
use tidegate_core::room::RoomState;
use tidegate_core::units::{Rate, Timestamp};
use tokio::sync::Notify;

use crate::capacity::{Capacity, NotHere};
use crate::health;
use crate::live::Live;
use crate::log::LogHandle;
use crate::room::new_key;
use crate::server::Source;
use crate::settings::{self, Change, Mistake};
use crate::shared::{Drain, Shared};
use crate::state::StateDir;
use crate::{admin, feedback};

/// Promises are saved this often: what a crash may lose.
pub const SAVE: Duration = Duration::from_secs(1);
/// Rates shown to people and programs are over this long.
const SHOWN: Duration = Duration::from_secs(1);
/// On shutdown, idle keep-alive connections get this long for a last request before they are closed.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// The control side, shared with the admin API and the command line.
pub struct Control {
    /// What all threads share.
    pub shared: Arc<Shared>,
    source: Source,
    state: StateDir,
    capacity: Mutex<Capacity>,
    /// One reload at a time.
    reloading: Mutex<()>,
    figures: Mutex<Figures>,
    ended: AtomicBool,
    wake: Notify,
    log: OnceLock<LogHandle>,
}

/// What `/v1/state`, `/metrics` and the status line show.
#[derive(Clone)]
pub struct Figures {
    /// When.
    pub at: Timestamp,
    /// All counts since the start.
    pub total: Snapshot,
    /// The last second.
    pub window: Window,
    /// The waiting room.
    pub room: RoomState,
    /// Tier 2.
    pub gate: Totals,
    /// Capacity, outflow and in-flight limit in force.
    pub tunables: Tunables,
    /// What the estimator said last.
    pub estimate: Estimate,
    /// How often it began to look anew.
    pub rediscoveries: u64,
}

/// Why a reload did not happen: the gate keeps what it had.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file or an override is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
    /// The keys kept there.
    #[error("cannot read the keys: {0} (room.state_dir)")]
    State(io::Error),
    /// It cannot be put in force.
    #[error(transparent)]
    Live(#[from] crate::live::LiveError),
}

impl Control {
    /// The control side of a gate that is about to start.
    pub fn new(shared: Arc<Shared>, source: Source, state: StateDir) -> Self {
        let at = shared.clock.now();
        let capacity = Capacity::new(&shared.live.load(), at);
        // Nobody is at the origin yet, and nobody is to get there before there is a limit.
        shared.gate.set_limit(capacity.tunables().max_in_flight);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), at);
        let window = Window::between(&total, &total);
        let figures = Figures {
            at,
            window,
            total,
            room: shared.desk.state(at),
            gate: shared.gate.totals(),
            tunables: capacity.tunables(),
            estimate: capacity.estimate(),
            rediscoveries: 0,
        };
        Self {
            shared,
            source,
            state,
            capacity: Mutex::new(capacity),
            reloading: Mutex::new(()),
            figures: Mutex::new(figures),
            ended: AtomicBool::new(false),
            wake: Notify::new(),
            log: OnceLock::new(),
        }
    }

    /// Lets reloads change the level of the process's log.
    pub fn steer_log(&self, log: LogHandle) {
        _ = self.log.set(log);
    }

    /// The figures of the last second.
    pub fn figures(&self) -> Figures {
        lock(&self.figures).clone()
    }

    /// Sets the capacity while running.
    ///
    /// # Errors
    /// It is kept elsewhere.
    pub fn set_capacity(&self, rate: Rate) -> Result<(), NotHere> {
        let mut capacity = lock(&self.capacity);
        capacity.set(&self.shared, rate, self.shared.clock.now())?;
        tracing::info!(per_second = rate.get(), "capacity set");
        Ok(())
    }

    /// Has the capacity looked for anew.
    ///
    /// # Errors
    /// It is not discovered, or not here.
    pub fn rediscover(&self) -> Result<(), NotHere> {
        lock(&self.capacity).rediscover(&self.shared.live.load(), self.shared.clock.now())?;
        tracing::info!("the capacity is looked for anew");
        Ok(())
    }

    /// The estimator at work, for `/v1/capacity`.
    pub fn capacity(&self) -> MutexGuard<'_, Capacity> {
        lock(&self.capacity)
    }

    /// Reads the configuration again and puts it in force without dropping a connection.
    ///
    /// # Errors
    /// The new configuration is wrong; the old one stays.
    pub fn reload(&self) -> Result<Vec<Change>, ReloadError> {
        // Log rotation asks for a new file whatever becomes of the configuration.
        if let Some(access) = &self.shared.access {
            access.reopen();
        }
        // A signal and the API are two threads.
        let _one = lock(&self.reloading);
        let settings = self.source.read().map_err(ReloadError::Mistakes)?;
        let old = self.shared.live.load_full();
        let changes = old.settings.diff(&settings);
        let keys = if settings.room.keys.is_empty() {
            self.state.keys(new_key).map_err(ReloadError::State)?
        } else {
            settings.room.keys.clone()
        };
        let live = Live::new(settings, &keys)?;
        let now = self.shared.clock.now();
        if let Some(room) = self.shared.desk.room()
            && let Err(e) = room.reconfigure(live.room_config(), now)
        {
            tracing::warn!("{e}: room.max_wait and room.grace take effect with the next start only");
        }
        self.shared.replicas.reconfigure(&live.settings.origin);
        let mut capacity = lock(&self.capacity);
        capacity.reconfigure(&old, &live, now);
        let max_in_flight = capacity.limit(&live);
        self.shared.gate.reconfigure(&GateConfig { max_in_flight, ..live.gate_config() });
        drop(capacity);
        if let Some(log) = self.log.get()
            && let Err(e) = log.set_level(&live.settings.log.level)
        {
            tracing::warn!("log.level: {e}");
        }
        self.shared.live.store(Arc::new(live));
        self.shared.generation.fetch_add(1, Ordering::Release);
        for change in &changes {
            if change.restart {
                tracing::warn!(key = %change.key, "changed, but takes effect with the next start only");
            } else {
                tracing::info!(key = %change.key, "changed");
            }
        }
        tracing::info!(changes = changes.len(), "configuration reloaded");
        Ok(changes)
    }

    /// Starts the shutdown: no new connections, requests in progress end.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.shared.drain.send_if_modified(|d| (*d == Drain::No).then(|| *d = Drain::Accepting).is_some());
        self.wake.notify_one();
    }

    /// Ends the control thread.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// One control tick: measure, estimate, publish.
    fn tick(&self, ticker: &mut Ticker) {
        let shared = &self.shared;
        shared.clock.discipline();
        let now = shared.clock.now();
        shared.gate.tick(now);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), now);
        let mut capacity = lock(&self.capacity);
        ticker.samples.clear();
        let gate = capacity.tick(shared, &mut ticker.samples, now);
        let (tunables, estimate, rediscoveries) =
            (capacity.tunables(), capacity.estimate(), capacity.rediscoveries());
        drop(capacity);
        let busy = shared.desk.busy(now);
        let since = &shared.busy_since_us;
        if !busy {
            since.store(0, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == 0 {
            since.store(now.as_micros(), Ordering::Relaxed);
        }
        ticker.last = total;
        if now.since(ticker.shown_at) >= SHOWN {
            let window = Window::between(&ticker.shown, &ticker.last);
            *lock(&self.figures) = Figures {
                at: now,
                total: ticker.last.clone(),
                window,
                room: shared.desk.state(now),
                gate,
                tunables,
                estimate,
                rediscoveries,
            };
            ticker.shown = ticker.last.clone();
            ticker.shown_at = now;
        }
        if now.since(ticker.saved_at) >= SAVE {
            self.save(now);
            ticker.saved_at = now;
        }
    }

    fn save(&self, now: Timestamp) {
        if let Some(room) = self.shared.desk.room()
            && let Err(e) = self.state.save_promises(&room.save(now))
        {
            tracing::warn!(error = %e, "promises cannot be saved");
        }
    }

    /// From SIGTERM to the last answer, within the drain timeout.
    async fn finish_drain(self: Arc<Self>) {
        let deadline = tokio::time::Instant::now() + self.shared.live.load().drain_timeout();
        let empty = || {
            self.shared.accepting.load(Ordering::Acquire) == 0
                && self.shared.connections.load(Ordering::Relaxed) == 0
        };
        tracing::info!(connections = self.shared.connections.load(Ordering::Relaxed), "draining");
        let idle = tokio::time::Instant::now() + IDLE_GRACE.min(self.shared.live.load().drain_timeout() / 2);
        while !empty() && tokio::time::Instant::now() < deadline {
            if tokio::time::Instant::now() >= idle {
                self.shared
                    .drain
                    .send_if_modified(|d| (*d < Drain::Idle).then(|| *d = Drain::Idle).is_some());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = self.shared.connections.load(Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(connections = left, "drain timeout: closing what is left");
        }
        self.shared.drain.send_replace(Drain::Over);
    }
}

/// The active checks, started anew when their settings change.
#[derive(Default)]
struct Health {
    settings: Option<settings::Health>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Health {
    fn follow(&mut self, shared: &Shared) {
        let live = shared.live.load();
        let wanted = &live.settings.origin.health;
        if self.settings.as_ref() == Some(wanted) {
            return;
        }
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.task = Some(tokio::spawn(health::run(shared.replicas.clone(), wanted.clone())));
        self.settings = Some(wanted.clone());
    }
}

struct Ticker {
    last: Snapshot,
    shown: Snapshot,
    shown_at: Timestamp,
    saved_at: Timestamp,
    /// What ended since the last tick; kept for its memory.
    samples: Vec<Sample>,
}

/// Starts the control thread.
///
/// # Errors
/// The thread or its runtime cannot be started.
pub fn spawn(control: Arc<Control>, admin: TcpListener) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::spawn(feedback::run(control.clone()));
            match tokio::net::TcpListener::from_std(admin) {
                Ok(listener) => drop(tokio::spawn(admin::serve(control.clone(), listener))),
                Err(e) => tracing::error!(error = %e, "no admin API"),
            }
            run(control).await;
        });
    })
}

async fn run(control: Arc<Control>) {
    let now = control.shared.clock.now();
    let first = control.figures().total;
    let mut ticker =
        Ticker { last: first.clone(), shown: first, shown_at: now, saved_at: now, samples: Vec::new() };
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut draining = false;
    let mut health = Health::default();
    while !control.ended() {
        health.follow(&control.shared);
        tokio::select! {
            _ = interval.tick() => control.tick(&mut ticker),
            () = control.wake.notified() => {}
        }
        if control.shared.is_draining() && !draining {
            draining = true;
            tokio::spawn(control.clone().finish_drain());
        }
    }
    control.save(control.shared.clock.now());
}

/// A poisoned lock guards figures, not invariants: go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
