//! The control side: one thread that ticks, answers the admin API, checks the replicas' health and ends the
//! process in good order. Nothing here is on a request's path.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::capacity::Sample;
use tidegate_core::control::TICK;
use tidegate_core::measure::{Snapshot, Window};
use tidegate_core::tune::{Demand, Overload};
use tidegate_core::units::{Cost, Rate, Timestamp};
use tokio::sync::{Notify, watch};

use crate::admin;
use crate::admin::events::Events;
use crate::admin::finite;
use crate::admin::metrics;
use crate::base::audit::{Audit, By, Entry};
use crate::base::log::LogHandle;
use crate::base::state_dir::{Saver, StateDir};
use crate::config::Config;
use crate::control::capacity::{Capacity, NotHere};
use crate::control::congestion::Congestion;
use crate::control::congestion::readings::Readings;
use crate::control::congestion::sources::Sources;
use crate::control::feedback;
use crate::control::health;
use crate::control::observe::Observer;
use crate::control::tune::Tuning;
use crate::control::tuners::Tuners;
use crate::history::History;
use crate::server::Source;
use crate::shared::figures::Figures;
use crate::shared::{Drain, Shared};

/// Promises are saved this often: what a crash may lose.
pub const SAVE: Duration = Duration::from_secs(1);
/// How long the end of the process waits for changes and answers that wait for a disk.
const LAST_CHANGES: Duration = Duration::from_secs(5);
/// On shutdown, idle keep-alive connections get this long for a last request before they are closed.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// The control side, shared with the admin API and the command line.
pub struct Control {
    /// What all threads share.
    pub shared: Arc<Shared>,
    pub(crate) source: Source,
    pub(crate) state: StateDir,
    saver: Saver,
    pub(crate) capacity: Mutex<Capacity>,
    pub(crate) congestion: Mutex<Congestion>,
    /// What sources and other applications have said.
    pub board: Readings,
    /// Held by whoever changes something, until it is on record: see [`crate::control::tune::Alone`].
    pub(crate) changing: Mutex<()>,
    /// A place for the admin API's next change: those behind it wait without a thread.
    pub(crate) next_change: Arc<tokio::sync::Semaphore>,
    /// What was changed while running. Never held while a disk is waited for.
    pub(crate) tuning: Mutex<Tuning>,
    /// Who changed what.
    pub audit: Audit,
    /// Who listens to the state of every second.
    pub(crate) events: Events,
    /// When the process started: tells its ETags from those of others.
    pub(crate) born: Timestamp,
    /// The scripts that run, and how they do.
    pub tuners: Tuners,
    figures: Mutex<Figures>,
    history: History,
    ended: AtomicBool,
    wake: Notify,
    pub(crate) log: OnceLock<LogHandle>,
}

impl Control {
    /// The control side of a gate that is about to start.
    pub fn new(shared: Arc<Shared>, source: Source, state: StateDir) -> Self {
        let at = shared.clock.now();
        let plan = shared.config.load().plan.clone();
        // Before the first request.
        shared.policies.watch(plan.may_cut());
        let capacity = Capacity::new(&shared.config.load(), at);
        // Nobody is at the origin yet, and nobody is to get there before there is a limit.
        shared.gate.set_limit(capacity.tunables().max_in_flight);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), at);
        let window = Window::between(&total, &total);
        let figures = Figures {
            at,
            window,
            total,
            room: shared.admission.state(at),
            gate: shared.gate.totals(),
            lines: shared.gate.by_class(shared.config.load().classes.len()),
            tunables: capacity.tunables(),
            estimate: capacity.estimate(),
            rediscoveries: 0,
            is_overloaded: false,
        };
        Self {
            tuners: Tuners::default(),
            history: History::start(
                &shared.config.load().settings.history,
                state.path(),
                shared.clock.clone(),
            ),
            capacity: Mutex::new(capacity),
            congestion: Mutex::new(Congestion::new(plan)),
            board: Readings::default(),
            changing: Mutex::default(),
            next_change: Arc::new(tokio::sync::Semaphore::new(1)),
            tuning: Mutex::new(Tuning::new(shared.config.load().settings.clone())),
            audit: Audit::open(state.path()),
            events: Events::default(),
            born: at,
            saver: Saver::start(state.clone()),
            shared,
            source,
            state,
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

    /// What was measured, back to a year ago.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Sets the capacity while running.
    ///
    /// # Errors
    /// It is kept elsewhere.
    pub fn set_capacity(&self, rate: Rate, by: By<'_>) -> Result<(), NotHere> {
        let _alone = self.alone();
        let now = self.shared.clock.now();
        let mut capacity = lock(&self.capacity);
        let old = finite(capacity.tunables().capacity);
        capacity.set(&self.shared, rate, now)?;
        let new = finite(capacity.tunables().capacity);
        drop(capacity);
        let key = Some("capacity".into());
        self.audit.record(by, &[Entry { action: "capacity", key, old, new }], now);
        tracing::info!(per_second = rate.get(), "capacity set");
        Ok(())
    }

    /// Has the capacity looked for anew.
    ///
    /// # Errors
    /// It is not discovered, or not here.
    pub fn rediscover(&self, by: By<'_>) -> Result<(), NotHere> {
        let _alone = self.alone();
        let now = self.shared.clock.now();
        lock(&self.capacity).rediscover(&self.shared.config.load(), now)?;
        self.audit.record(by, &[Entry::act("rediscover")], now);
        tracing::info!("the capacity is looked for anew");
        Ok(())
    }

    /// The estimator at work, for `/v1/capacity`.
    pub fn capacity(&self) -> MutexGuard<'_, Capacity> {
        lock(&self.capacity)
    }

    /// As [`Control::drain`], on somebody's word.
    pub fn drain_by(&self, by: By<'_>) {
        let is_first = !self.shared.is_draining();
        // First of all: the record's disk may hang.
        self.drain();
        if is_first {
            self.audit.record(by, &[Entry::act("drain")], self.shared.clock.now());
        }
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
        self.tuners.end();
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
        shared.coalescer.sweep(now);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), now);
        let mut capacity = lock(&self.capacity);
        ticker.samples.clear();
        let gate = capacity.tick(shared, &mut ticker.samples, now);
        let (tunables, estimate, rediscoveries) =
            (capacity.tunables(), capacity.estimate(), capacity.rediscoveries());
        drop(capacity);
        let busy = shared.admission.busy(now);
        let since = &shared.busy_since_us;
        if !busy {
            since.store(0, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == 0 {
            since.store(now.as_micros(), Ordering::Relaxed);
        }
        ticker.last = total;
        // Figures are those of the clock's last second: none is left out, and none kept twice.
        if now.second() > ticker.shown_at.second() {
            let window = Window::between(&ticker.shown, &ticker.last);
            let room = shared.admission.state(now);
            let is_overloaded = ticker.overload.observe(&Demand {
                offered: window.offered(&costs(&shared.config.load())),
                capacity: tunables.capacity,
                waiting: room.waiting,
                queued: gate.backlog(),
            });
            let figures = Figures {
                at: now,
                total: ticker.last.clone(),
                window,
                room,
                is_overloaded,
                gate,
                lines: shared.gate.by_class(shared.config.load().classes.len()),
                tunables,
                estimate,
                rediscoveries,
            };
            lock(&self.congestion).second(&figures);
            ticker.observer.observe(&figures, shared, |second| self.history.record(second));
            *lock(&self.figures) = figures;
            ticker.shown = ticker.last.clone();
            ticker.shown_at = now;
            self.events.publish(|| metrics::state(self));
        }
        self.detect(&ticker.last, now);
        if now.since(ticker.saved_at) >= SAVE {
            self.save(now);
            ticker.saved_at = now;
        }
    }

    fn save(&self, now: Timestamp) {
        if let Some(room) = self.shared.admission.room() {
            self.saver.save(room.save(now));
        }
    }

    /// From SIGTERM to the last answer, within the drain timeout.
    async fn finish_drain(self: Arc<Self>) {
        let deadline = tokio::time::Instant::now() + self.shared.config.load().drain_timeout();
        let empty = || {
            self.shared.accepting.load(Ordering::Acquire) == 0
                && self.shared.connections.load(Ordering::Relaxed) == 0
        };
        tracing::info!(connections = self.shared.connections.load(Ordering::Relaxed), "draining");
        let idle =
            tokio::time::Instant::now() + IDLE_GRACE.min(self.shared.config.load().drain_timeout() / 2);
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
    settings: Option<tidegate_settings::Health>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Health {
    fn follow(&mut self, shared: &Shared) {
        let live = shared.config.load();
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
    observer: Observer,
    overload: Overload,
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
            let gate = control.shared.gate.clone();
            tokio::spawn(async move { gate.wake_for_egress().await });
            let (over, told) = watch::channel(());
            let api = tokio::spawn(admin::serve(control.clone(), admin, told));
            run(control).await;
            drop(over);
            // Had it panicked, there would be nobody to wait for.
            let _ = api.await;
        });
        // Not for ever: a record whose disk hangs is waited for by a thread of this runtime.
        runtime.shutdown_timeout(LAST_CHANGES);
    })
}

async fn run(control: Arc<Control>) {
    let now = control.shared.clock.now();
    let first = control.figures().total;
    let mut ticker = Ticker {
        last: first.clone(),
        shown: first,
        shown_at: now,
        saved_at: now,
        observer: Observer::default(),
        overload: Overload::default(),
        samples: Vec::new(),
    };
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut draining = false;
    let mut health = Health::default();
    let mut sources = Sources::default();
    while !control.ended() {
        health.follow(&control.shared);
        sources.follow(&control);
        tokio::select! {
            _ = interval.tick() => control.tick(&mut ticker),
            () = control.wake.notified() => {}
        }
        if control.shared.is_draining() && !draining {
            draining = true;
            control.events.close();
            tokio::spawn(control.clone().finish_drain());
        }
    }
    control.save(control.shared.clock.now());
    control.saver.close();
    control.history.close();
}

/// What a request of each class costs.
fn costs(live: &Config) -> Vec<Cost> {
    live.classes.iter().map(|class| class.cost).collect()
}

/// A poisoned lock guards figures, not invariants: go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
