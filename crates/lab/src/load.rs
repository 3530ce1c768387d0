//! Plays a crowd against a real target, open loop.
//!
//! ```text
//!  crowd ─► engine ─► request under way (a task) ─► client ═══ sockets ═══► target
//!             ▲  ▲           │ reply
//!  wheel ─────┘  └───────────┘──► visitor ─► wheel, or leaves
//! ```
//!
//! Requests are sent at their intended time, whether or not earlier ones were answered, and response time
//! counts from then, so that neither a slow target nor a slow bench can hide (no coordinated omission: Tene,
//! "How not to measure latency", 2013). A visitor who waits is a struct in a slab, a few packed bytes of
//! cookies and a timer of 16 bytes: no task, no connection; only requests under way are tasks. Visitors are
//! dealt to the threads in turn, and each thread has its own part of the crowd, its own connections and its
//! own tally: the same seed sends the same crowd at the same times, whatever the number of threads.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tidegate_gateway::base::clock::Clock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Connections, Place, TargetError};
use crate::crowd::replay::ReplayError;
use crate::crowd::{Crowd, VisitorMix};
use crate::limits::raise_open_files;
use crate::outcome::{Outcome, Way};
use crate::scenario::Scenario;
use crate::tally::Tally;

mod alarm;
mod check;
mod engine;
mod probe;
mod script;
mod stop;
mod vitals;

pub use check::Implausible;
pub use probe::probe;
pub use script::BadStep;
pub use stop::{Stop, on_interrupt};

use engine::{Engine, Report};
use script::Script;
use vitals::Vitals;

pub const WATCH_EVERY: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Where to send, instead of the scenario's own target: `http://HOST[:PORT]`. A path in it means nothing
    /// here, the visitors' steps have theirs.
    pub url: Option<String>,
    /// Threads; 0 counts as 1.
    pub threads: usize,
    pub connections: Connections,
    pub stop: Stop,
}

#[derive(Debug)]
pub struct Played {
    pub tally: Tally,
    /// Why the run ended before the crowd did and before the deadline, if it did; visitors present then are
    /// counted as present, neither served nor failed. Or that the target was gone when the crowd had left.
    pub partial: Option<String>,
    /// When it began, in microseconds since 1970.
    pub started_us: u64,
}

impl Played {
    pub fn outcome(&self, scenario: &Scenario) -> Outcome {
        let outcome = self.tally.outcome(&scenario.name, Way::Real, scenario.seed, self.partial.clone());
        Outcome { started_us: Some(self.started_us), ..outcome }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("no target: expected a URL on the command line, or target.url in the scenario")]
    NoTarget,
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Implausible(#[from] Implausible),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Step(#[from] BadStep),
    #[error("the load generator did not start: {0}")]
    System(#[from] io::Error),
    #[error("the target does not answer as expected: {0}")]
    Probe(String),
}

/// Sends the scenario's crowd to its target and returns when everybody has left, at the scenario's deadline,
/// when the target is gone, or when asked to stop. `watch` sees the figures four times a second and at the
/// end, with the time since the start. Blocks; plays on threads of its own.
///
/// Visitors who are still there at the deadline count as failed: a gate that lets nobody in must not look
/// good.
///
/// # Errors
/// See [`LoadError`]. Once the run has begun there is no error, but a [`Played::partial`].
pub fn run(
    scenario: &Scenario,
    options: &LoadOptions,
    mut watch: impl FnMut(&Tally, Duration),
) -> Result<Played, LoadError> {
    let url = options.url.as_deref().or(scenario.target.as_deref()).ok_or(LoadError::NoTarget)?;
    let threads = options.threads.max(1);
    check::plausible(scenario, threads)?;
    let (mix, crowd) = Crowd::of(scenario)?;
    check::plausible_crowd(crowd.size_hint_visitors())?;
    let script = Script::new(&mix)?;
    raise_open_files();
    let place = Place::find(url)?;
    let runtimes: Vec<Runtime> =
        (0..threads).map(|_| Builder::new_current_thread().enable_all().build()).collect::<Result<_, _>>()?;
    let run = Run {
        mix,
        tally: scenario.tally(),
        script,
        place,
        connections: options.connections,
        deadline: scenario.deadline.unwrap_or(Duration::MAX),
        vitals: Vitals::default(),
        stop: options.stop.watcher(),
        started_us: Clock::new().now().as_micros(),
        start: Instant::now(),
    };
    let (tally, partial) = run.play(runtimes, &crowd, &mut watch)?;
    let partial = partial.or_else(|| run.vitals.gone());
    Ok(Played { tally, partial, started_us: run.started_us })
}

struct Run {
    mix: VisitorMix,
    tally: Tally,
    script: Script,
    place: Place,
    connections: Connections,
    deadline: Duration,
    vitals: Vitals,
    stop: watch::Receiver<Option<String>>,
    started_us: u64,
    start: Instant,
}

impl Run {
    fn play(
        &self,
        runtimes: Vec<Runtime>,
        crowd: &Crowd,
        watch: &mut dyn FnMut(&Tally, Duration),
    ) -> io::Result<(Tally, Option<String>)> {
        let threads = runtimes.len();
        let (report, reports) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut playing = Vec::with_capacity(threads);
            for (index, runtime) in runtimes.into_iter().enumerate() {
                let part = crowd.clone().skip(index).step_by(threads);
                let report = report.clone();
                let play = move || runtime.block_on(Engine::play(self, index, part, report));
                let thread = std::thread::Builder::new().name(format!("load-{index}"));
                playing.push(thread.spawn_scoped(scope, play)?);
            }
            drop(report);
            let collected = collect(threads, &reports, watch);
            for thread in playing {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(collected)
        })
    }
}

/// Puts the threads' figures together as they come, until the last thread has ended.
fn collect(
    threads: usize,
    reports: &mpsc::Receiver<Report>,
    watch: &mut dyn FnMut(&Tally, Duration),
) -> (Tally, Option<String>) {
    let mut parts = vec![Tally::default(); threads];
    let mut partial = None;
    let mut look_at = Duration::ZERO;
    let mut last = Duration::ZERO;
    let merged = |parts: &[Tally]| {
        let mut whole = Tally::default();
        parts.iter().for_each(|part| whole.merge(part));
        whole
    };
    for Report { thread, tally, now, partial: why } in reports {
        parts[thread] = *tally;
        partial = partial.or(why);
        last = last.max(now);
        if now >= look_at {
            watch(&merged(&parts), now);
            look_at = now + WATCH_EVERY / 2;
        }
    }
    let whole = merged(&parts);
    watch(&whole, last);
    (whole, partial)
}
