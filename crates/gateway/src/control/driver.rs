//! The control thread: ticks, and ends the process in good order. Nothing here is on a request's path.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::capacity::Sample;
use tidegate_core::control::TICK;
use tidegate_core::gate::Totals;
use tidegate_core::measure::{Snapshot, Window};
use tidegate_core::tune::{Demand, Overload};
use tidegate_core::units::{ClassId, Rate, Timestamp};
use tidegate_settings::{Accept, OriginProtocol};
use tokio::sync::{Notify, watch};

use crate::base::audit::{Audit, By, Entry};
use crate::base::state_dir::{Saver, StateDir, StateFile};
use crate::control::capacity::{Capacity, NotHere, finite};
use crate::control::config_store::{ConfigStore, Followers, Source, Tuning};
use crate::control::congestion::CongestionMonitor;
use crate::control::congestion::sources::Sources;
use crate::control::correlation::Correlation;
use crate::control::kernel::KernelControl;
use crate::control::kernel::adapt::Sources as AgentSources;
use crate::control::kernel::syn_rules::SynRules;
use crate::control::learned::{Saved, SavedSessions};
use crate::control::observe::{self, Observer};
use crate::control::tcp::TcpListeners;
use crate::control::throttles::Throttles;
use crate::control::tuners::{TunedGate, Tuners};
use crate::control::{feedback, health, peers};
use crate::history::History;
use crate::shared::figures::{CostFigures, Figures};
use crate::shared::{Drain, Shared};

/// Between two warnings of the same state.
const WARN_AGAIN: Duration = Duration::from_secs(60);
/// State is saved this often: a crash loses at most the promises and the changes made since.
pub const SAVE: Duration = Duration::from_secs(1);
/// How long the end of the process waits for changes and answers that wait for a disk.
const LAST_CHANGES: Duration = Duration::from_secs(5);
/// On shutdown, idle keep-alive connections get this long for a last request before they are closed.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// The parts of the control side, as the control thread, the admin API and the command line hold them.
pub struct Control {
    shared: Arc<Shared>,
    store: Arc<ConfigStore>,
    capacity: Arc<Mutex<Capacity>>,
    congestion: Arc<CongestionMonitor>,
    correlation: Arc<Correlation>,
    throttles: Arc<Throttles>,
    kernel: Arc<SynRules>,
    tuners: Arc<Tuners>,
    history: Arc<History>,
    figures: watch::Sender<Arc<Figures>>,
    saver: Saver,
    /// What was learned of sessions last, also by an earlier process.
    learned_sessions: Mutex<Option<SavedSessions>>,
    ended: AtomicBool,
    wake: Notify,
}

impl Control {
    /// `saved`: what an earlier process has learned; `tuning`: what was tuned in it, and is in force.
    pub fn new(
        shared: Arc<Shared>,
        (kernel, tcp): (Arc<KernelControl>, Arc<TcpListeners>),
        source: Source,
        state: StateDir,
        saved: &Saved,
        tuning: Tuning,
    ) -> Self {
        let at = shared.clock.now();
        let live = shared.config.load_full();
        let mut capacity = Capacity::new(&live, at);
        capacity.resume(&live, saved, at);
        capacity.put_in_force(&shared, at);
        shared.sessions.resume(saved.sessions.as_ref().map(|saved| (saved.learned(), saved.trust(at))));
        // Workers start after this; none may admit a request before there is a limit.
        shared.gate.set_limit(capacity.tunables().max_in_flight);
        shared.gate.accept_while_free(live.settings.kernel.accept == Accept::WhileFree);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), at);
        let figures = figures(&shared, &capacity, shared.gate.totals(), &total, total.clone());
        let capacity = Arc::new(Mutex::new(capacity));
        let congestion = Arc::new(CongestionMonitor::new(shared.clone()));
        let history = History::start(&live.settings.history, state.path(), shared.clock.clone());
        let saver = Saver::start(state.clone());
        let audit = Arc::new(Audit::open(state.path()));
        let throttles = Arc::new(Throttles::new(shared.clone(), audit.clone(), &saved.throttles));
        let figures = watch::Sender::new(Arc::new(figures));
        let (of_agent, congested) = (figures.subscribe(), congestion.clone());
        let sources = AgentSources { shared: shared.clone(), congestion: congested, figures: of_agent };
        let kernel = Arc::new(SynRules::new(audit.clone(), kernel, sources, &saved.syn_rules));
        let parts = Followers {
            capacity: capacity.clone(),
            congestion: congestion.clone(),
            throttles: throttles.clone(),
            kernel: kernel.clone(),
            tcp,
        };
        let store = ConfigStore::new(shared.clone(), parts, audit, source, state, tuning);
        let correlation = Correlation::new(shared.clone(), throttles.clone());
        Self {
            shared,
            store: Arc::new(store),
            capacity,
            congestion,
            correlation: Arc::new(correlation),
            throttles,
            kernel,
            tuners: Arc::default(),
            history: Arc::new(history),
            figures,
            saver,
            learned_sessions: Mutex::new(saved.sessions),
            ended: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn store(&self) -> &ConfigStore {
        &self.store
    }

    pub fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock()
    }

    pub fn congestion(&self) -> &CongestionMonitor {
        &self.congestion
    }

    pub fn correlation(&self) -> &Arc<Correlation> {
        &self.correlation
    }

    pub fn throttles(&self) -> &Throttles {
        &self.throttles
    }

    pub fn kernel(&self) -> &Arc<SynRules> {
        &self.kernel
    }

    pub fn tuners(&self) -> &Tuners {
        &self.tuners
    }

    /// The figures of the last second.
    pub fn figures(&self) -> Arc<Figures> {
        self.figures.borrow().clone()
    }

    pub fn watch_figures(&self) -> watch::Receiver<Arc<Figures>> {
        self.figures.subscribe()
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn tuned_gate(&self) -> TunedGate {
        TunedGate {
            shared: self.shared.clone(),
            figures: self.figures.subscribe(),
            history: self.history.clone(),
            correlation: self.correlation.clone(),
            congestion: self.congestion.clone(),
            store: self.store.clone(),
            tuners: self.tuners.clone(),
        }
    }

    pub fn set_capacity(&self, rate: Rate, ttl: Option<Duration>, by: By<'_>) -> Result<(), NotHere> {
        let _lock = self.store.lock_changes();
        let now = self.shared.clock.now();
        let mut capacity = self.capacity();
        let old = finite(capacity.tunables().capacity);
        capacity.set(&self.shared, rate, ttl, now)?;
        let new = finite(capacity.tunables().capacity);
        drop(capacity);
        let key = Some("capacity".into());
        self.store.audit().record(
            by,
            &[Entry { action: "capacity", key, old: old.into(), new: new.into() }],
            now,
        );
        tracing::info!(per_second = rate.get(), ?ttl, "capacity set");
        Ok(())
    }

    pub fn rediscover(&self, by: By<'_>) -> Result<(), NotHere> {
        let _lock = self.store.lock_changes();
        let now = self.shared.clock.now();
        self.capacity().rediscover(&self.shared.config.load(), now)?;
        self.store.audit().record(by, &[Entry::act("rediscover")], now);
        tracing::info!("the capacity is looked for anew");
        Ok(())
    }

    /// As [`Control::drain`], and records who asked for it.
    pub fn drain_by(&self, by: By<'_>) {
        let is_first = !self.shared.is_draining();
        // Before the audit record: its disk may hang.
        self.drain();
        if is_first {
            self.store.audit().record(by, &[Entry::act("drain")], self.shared.clock.now());
        }
    }

    /// Starts the shutdown: no new connections, requests in progress end.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.shared.drain.send_if_modified(|d| (*d == Drain::No).then(|| *d = Drain::Accepting).is_some());
        self.wake.notify_one();
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake.notify_one();
        self.tuners.end();
        self.correlation.end();
        self.kernel.end();
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn tick(&self, ticker: &mut Ticker) {
        let shared = &self.shared;
        let has_stepped = shared.clock.discipline();
        let now = shared.clock.now();
        if has_stepped {
            shared.sessions.table.clock_stepped(now);
        }
        shared.gate.tick(now);
        shared.coalescer.sweep(now);
        let total = Snapshot::take(shared.shards.iter().map(|s| &**s), now);
        let mut capacity = self.capacity();
        ticker.samples.clear();
        let gate = capacity.tick(shared, &mut ticker.samples, now);
        drop(capacity);
        let busy = shared.admission.busy(now);
        let since = &shared.busy_since_us;
        if !busy {
            since.store(0, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == 0 {
            since.store(now.as_micros(), Ordering::Relaxed);
        }
        ticker.last = total;
        // Figures are published once for each second of the clock.
        if now.second() > ticker.shown_at.second() {
            let mut figures = figures(shared, &self.capacity(), gate, &ticker.shown, ticker.last.clone());
            figures.is_overloaded = ticker.overload.observe(&Demand {
                offered: figures.window.offered(&shared.admission.costs().all()),
                capacity: figures.tunables.capacity,
                waiting: figures.room.waiting,
                queued: gate.backlog(),
            });
            let mut congestion = self.congestion.lock();
            congestion.second(&figures);
            let detectors = observe::detectors(&congestion, now);
            self.correlation.second(&figures, &congestion);
            drop(congestion);
            let syns = self.kernel.state().second();
            ticker.observer.observe(&figures, shared, syns, detectors, |second| self.history.record(second));
            self.figures.send_replace(Arc::new(figures));
            ticker.shown = ticker.last.clone();
            ticker.shown_at = now;
            self.warn_of_full_table(ticker);
        } else {
            self.correlation.tick();
        }
        self.congestion.tick(&ticker.last, now);
        if let Some(assigned) = self.congestion.lock().reassigned() {
            self.store.assign(assigned);
            let store = self.store.clone();
            tokio::task::spawn_blocking(move || store.follow_rules());
        }
        let over = self.throttles.tick(now);
        if !over.is_empty() {
            let throttles = self.throttles.clone();
            tokio::task::spawn_blocking(move || throttles.record_expiry(&over));
        }
        if now.since(ticker.saved_at) >= SAVE {
            for (file, bytes) in self.state(now) {
                self.saver.save(file, bytes);
            }
            shared.redeemed.rotate(shared.admission.oldest_valid(now), now);
            ticker.saved_at = now;
        }
    }

    /// Says, once a minute while it lasts, that no session begins because the table is full.
    fn warn_of_full_table(&self, ticker: &mut Ticker) {
        let is_due = ticker.warned_at.is_none_or(|at| ticker.shown_at.since(at) >= WARN_AGAIN);
        if is_due && self.shared.sessions.table.is_table_full() {
            ticker.warned_at = Some(ticker.shown_at);
            let max_entries = self.shared.config.load().settings.session.max_entries;
            tracing::warn!(
                max_entries,
                "no session begins: as many are known as session.max_entries allows; set it higher and restart, or \
                 shorten session.timeout"
            );
        }
    }

    /// What outlives the process.
    fn state(&self, now: Timestamp) -> Vec<(StateFile, Vec<u8>)> {
        let live = self.shared.config.load();
        let mut saved = Saved::new();
        (saved.capacity, saved.pushed) = self.capacity().learned(&live, now);
        let mut sessions = self.learned_sessions.lock();
        if let Some(learned) = self.shared.sessions.table.learned() {
            *sessions = Some(SavedSessions::new(&learned, now));
        }
        saved.sessions = *sessions;
        saved.tuned = self.store.with_tuning(Tuning::to_save);
        saved.throttles = self.throttles.to_save();
        saved.syn_rules = self.kernel.to_save();
        let promises = self.shared.admission.room().map(|room| (StateFile::Promises, room.save(now)));
        promises.into_iter().chain([(StateFile::Learned, saved.to_bytes())]).collect()
    }

    /// After the last request: saves all that outlives the process.
    fn save_last(&self, now: Timestamp) {
        let redeemed = self.shared.redeemed.to_save(&self.shared.admission.redeemed());
        let last = self.state(now).into_iter().chain([(StateFile::Redeemed, redeemed)]);
        if self.saver.close(last) {
            self.shared.redeemed.remove();
        }
    }

    /// From SIGTERM to the last answer, within the drain timeout.
    async fn finish_drain(self: Arc<Self>) {
        let timeout = self.shared.config.load().settings.limits.drain_timeout;
        let now = tokio::time::Instant::now();
        let (deadline, idle) = (now + timeout, now + IDLE_GRACE.min(timeout / 2));
        tracing::info!(connections = self.shared.connections.load(Ordering::Relaxed), "draining");
        while !self.shared.is_empty() && tokio::time::Instant::now() < deadline {
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

/// The active health checks, started anew when their settings change.
#[derive(Default)]
struct Health {
    settings: Option<(tidegate_settings::Health, OriginProtocol)>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Health {
    fn follow(&mut self, shared: &Shared) {
        let live = shared.config.load();
        let origin = &live.settings.origin;
        let wanted = (origin.health.clone(), origin.protocol);
        if self.settings.as_ref() == Some(&wanted) {
            return;
        }
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.task = Some(tokio::spawn(health::run(shared.replicas.clone(), wanted.0.clone(), wanted.1)));
        self.settings = Some(wanted);
    }
}

struct Ticker {
    last: Snapshot,
    shown: Snapshot,
    shown_at: Timestamp,
    saved_at: Timestamp,
    observer: Observer,
    overload: Overload,
    /// When the operator was last told that the table of sessions is full.
    warned_at: Option<Timestamp>,
    /// Samples of the last tick; kept for its memory.
    samples: Vec<Sample>,
}

/// Starts the control thread, which also runs `api` until the other end of its receiver is gone.
pub fn spawn<A>(
    control: Arc<Control>,
    api: impl FnOnce(watch::Receiver<()>) -> A + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    A: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::spawn(feedback::run(control.shared.clone()));
            peers::spawn(&control.shared);
            let gate = control.shared.gate.clone();
            tokio::spawn(async move { gate.wake_for_egress().await });
            let (end, ended) = watch::channel(());
            let api = tokio::spawn(api(ended));
            run(control).await;
            drop(end);
            // An error is a panic of the API; there is nothing to wait for then.
            let _ = api.await;
        });
        // Bounded: a thread of this runtime may wait for a disk that hangs.
        runtime.shutdown_timeout(LAST_CHANGES);
    })
}

async fn run(control: Arc<Control>) {
    let now = control.shared.clock.now();
    let first = control.figures().total.clone();
    let mut ticker = Ticker {
        last: first.clone(),
        shown: first,
        shown_at: now,
        saved_at: now,
        observer: Observer::default(),
        overload: Overload::default(),
        warned_at: None,
        samples: Vec::new(),
    };
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut draining = false;
    let mut health = Health::default();
    let mut sources = Sources::default();
    while !control.ended() {
        health.follow(&control.shared);
        sources.follow(&control.shared, control.congestion.readings());
        tokio::select! {
            _ = interval.tick() => control.tick(&mut ticker),
            () = control.wake.notified() => {}
        }
        if control.shared.is_draining() && !draining {
            draining = true;
            tokio::spawn(control.clone().finish_drain());
        }
    }
    control.save_last(control.shared.clock.now());
    control.history.close();
}

/// The figures now, with the window from `since` to `total`.
fn figures(shared: &Shared, capacity: &Capacity, gate: Totals, since: &Snapshot, total: Snapshot) -> Figures {
    let at = total.at;
    let mut room = shared.admission.state(at);
    // A newcomer whose turn has come and who is held at the gate still waits.
    room.waiting += gate.newcomers as u64;
    let classes = shared.config.load().classes.len();
    let costs = shared.admission.costs();
    let cost = |id| CostFigures { charged: costs.charged(id), learned: capacity.cost(id) };
    Figures {
        at,
        window: Window::between(since, &total),
        total,
        room,
        gate,
        loads: shared.gate.by_class(classes),
        costs: (0..=u8::MAX).map(ClassId).take(classes).map(cost).collect(),
        tunables: capacity.tunables(),
        estimate: capacity.estimate(),
        rediscoveries: capacity.rediscoveries(),
        is_overloaded: false,
    }
}
