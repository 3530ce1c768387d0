//! `tidegate demo`: the same flash crowd at the same service, first alone and then behind the gate.
//!
//! Nothing is scripted: the origin is the model of `origin`, the visitors behave as `visitor` says, both over
//! real sockets on loopback, and the gate is the one that `tidegate run` starts. It knows nothing of the
//! origin but its address, and has to discover the capacity while the crowd arrives. Each way gets a fresh
//! origin, so that the second does not suffer from the first.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::crowd::Crowd;
use crate::load::{self, LoadError, LoadOptions, Stop};
use crate::origin::{Origin, OriginConfig, OriginError, OriginHandle, Stats};
use crate::progress::Progress;
pub use crate::report::GateEstimate;
use crate::report::{DemoReport, Found, Gated, Side};
use crate::scenario::{Arrivals, OriginSpec, Phase, Process, Scenario, Shape};
use crate::tally::Tally;

/// Requests that measure the idle origin.
const PROBES: usize = 10;
/// Time that a run gets beyond what it should take. Directly, the last visitors are gone after three times
/// their patience and two pauses, 26 s at most.
const GRACE: Duration = Duration::from_secs(60);
/// Wait that the background crowd of `--serve` keeps up.
const SERVE_WAIT: Duration = Duration::from_secs(20);
/// Most visitors of a demonstration: more would take hours at any sensible capacity.
const MAX_VISITORS: f64 = 1e6;

/// Starts a gate in front of an origin. The binary implements it with the real gate.
pub trait Gatekeeper {
    /// Starts a gate in front of `origin`, of which it knows nothing more. It listens when this returns.
    fn start(&self, origin: SocketAddr) -> io::Result<RunningGate>;
}

pub struct RunningGate {
    pub addr: SocketAddr,
    pub admin: SocketAddr,
    pub estimate: Box<dyn Fn() -> GateEstimate>,
    pub stop: Box<dyn FnOnce()>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemoOptions {
    /// Arrival rate of the crowd, as a multiple of the capacity.
    pub factor: f64,
    /// The origin's capacity, in requests per second.
    pub capacity: f64,
    pub crowd_secs: f64,
    /// Share of visitors who never come back after they had to wait (0..=1).
    pub no_shows: f64,
    /// One JSON object instead of the table; no progress.
    pub json: bool,
    /// Keep origin, gate and a background crowd running until Ctrl-C.
    pub serve: bool,
    /// The crowd: the same seed sends the same people at the same times.
    pub seed: u64,
}

impl Default for DemoOptions {
    /// Four seconds at ten times the capacity take the gate 40 seconds to serve: long enough to see, and the
    /// whole demonstration stays under 75.
    fn default() -> Self {
        Self {
            factor: 10.0,
            capacity: 100.0,
            crowd_secs: 4.0,
            no_shows: 0.0,
            json: false,
            serve: false,
            seed: 1,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{name}: expected {expected}, got {got}")]
    Option { name: &'static str, expected: &'static str, got: f64 },
    #[error("the model origin did not start: {0}")]
    Origin(#[source] OriginError),
    #[error("the gate did not start: {0}")]
    Gate(#[source] io::Error),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Runs the demonstration and prints its result to standard output. Blocks; with `serve`, until Ctrl-C.
///
/// # Errors
/// See [`DemoError`]. A gate that does badly is a result, not an error.
pub fn demo(options: DemoOptions, gatekeeper: &dyn Gatekeeper) -> Result<DemoReport, DemoError> {
    let (report, stage) = compare(options, gatekeeper)?;
    if options.json {
        println!("{}", serde_json::json!(report));
    } else {
        println!("{}", report.table());
    }
    if options.serve {
        serve(options, &stage)?;
    }
    Ok(report)
}

/// The origin and the gate that the second half of the comparison used; dropping it stops them.
pub struct Stage {
    origin: OriginHandle,
    gate: SocketAddr,
    admin: SocketAddr,
    estimate: Box<dyn Fn() -> GateEstimate>,
    stop: Option<Box<dyn FnOnce()>>,
}

impl Stage {
    pub fn origin(&self) -> Stats {
        self.origin.stats()
    }

    pub fn gate(&self) -> SocketAddr {
        self.gate
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The gate goes first: it would report an origin that vanishes.
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

/// Runs both halves and leaves the second one's origin and gate running.
pub fn compare(options: DemoOptions, gatekeeper: &dyn Gatekeeper) -> Result<(DemoReport, Stage), DemoError> {
    check(&options)?;
    // The default pool, its service time set so that it takes `capacity`.
    let law = OriginSpec::pool(10, Duration::from_secs_f64(10.0 / options.capacity), 128, 0.01);
    let crowd_lasts = Duration::from_secs_f64(options.crowd_secs);
    let crowd = flash(&options, options.factor * options.capacity, crowd_lasts);

    let alone = Origin::start(OriginConfig::new(law.clone())).map_err(DemoError::Origin)?;
    let unloaded = load::probe(&url(alone.addr()), "/", PROBES)?;
    let (tally, busy) = play_direct(&options, &crowd, &alone)?;
    let direct = Side::direct(&tally, &alone.stats(), busy);
    alone.stop();

    let stage = raise(law.clone(), gatekeeper)?;
    // Twice the time that the crowd takes at capacity: a gate that needs longer has failed.
    let drain = Duration::from_secs_f64(2.0 * tally.offered as f64 / options.capacity);
    let deadline = crowd_lasts + drain + GRACE;
    let mut found = Found::default();
    let tally = play(&options, "through the gate", &crowd, stage.gate, deadline, |tally, now| {
        found.look(&(stage.estimate)(), tally.present() > 0, now);
    })?;
    let report = DemoReport {
        capacity_rps: law.capacity(0),
        offered_rps: tally.offered as f64 / options.crowd_secs,
        crowd_s: options.crowd_secs,
        found,
        unloaded_ms: median_ms(unloaded),
        direct,
        gated: Gated::new(&tally, &stage.origin.stats()),
    };
    Ok((report, stage))
}

/// Visitors who ask for one page and are as patient as people are.
fn flash(options: &DemoOptions, rate: f64, lasts: Duration) -> Scenario {
    let mut crowd = Scenario { seed: options.seed, ..Scenario::short("", rate, lasts) };
    crowd.visitors[0].no_show = options.no_shows;
    crowd
}

fn url(addr: SocketAddr) -> String {
    format!("http://{addr}/")
}

fn check(options: &DemoOptions) -> Result<(), DemoError> {
    let DemoOptions { factor, capacity, crowd_secs, no_shows, .. } = *options;
    let visitors = factor * capacity * crowd_secs;
    let bounds = [
        ("factor", "0.01 to 1000", factor, 0.01..=1000.0),
        ("capacity", "1 to 10000 requests per second", capacity, 1.0..=10_000.0),
        ("crowd length", "0.1 to 3600 seconds", crowd_secs, 0.1..=3600.0),
        ("no-shows", "a share from 0 to 1", no_shows, 0.0..=1.0),
        ("visitors", "factor × capacity × crowd length up to 1,000,000", visitors, 0.0..=MAX_VISITORS),
    ];
    match bounds.into_iter().find(|(.., got, allowed)| !allowed.contains(got)) {
        Some((name, expected, got, _)) => Err(DemoError::Option { name, expected, got }),
        None => Ok(()),
    }
}

fn raise(law: OriginSpec, gatekeeper: &dyn Gatekeeper) -> Result<Stage, DemoError> {
    let origin = Origin::start(OriginConfig::new(law)).map_err(DemoError::Origin)?;
    let RunningGate { addr, admin, estimate, stop } =
        gatekeeper.start(origin.addr()).map_err(DemoError::Gate)?;
    Ok(Stage { origin, gate: addr, admin, estimate, stop: Some(stop) })
}

/// Straight at the origin. Also returns how long the origin was busy with the crowd.
fn play_direct(
    options: &DemoOptions,
    crowd: &Scenario,
    origin: &OriginHandle,
) -> Result<(Tally, Duration), DemoError> {
    let deadline = Duration::from_secs_f64(options.crowd_secs) + GRACE;
    let start = Instant::now();
    let tally = play(options, "directly", crowd, origin.addr(), deadline, |_, _| {})?;
    // The visitors are gone; the origin works off what they left behind.
    while origin.stats().present() > 0 && start.elapsed() < deadline + GRACE {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((tally, start.elapsed()))
}

fn play(
    options: &DemoOptions,
    name: &'static str,
    crowd: &Scenario,
    target: SocketAddr,
    deadline: Duration,
    mut watch: impl FnMut(&Tally, Duration),
) -> Result<Tally, DemoError> {
    let scenario = Scenario { deadline: Some(deadline), ..crowd.clone() };
    let visitors = Crowd::of(&scenario).map_err(LoadError::from)?.1.count() as u64;
    let mut progress = Progress::new(options.json, name, visitors);
    let how = LoadOptions { url: Some(url(target)), ..LoadOptions::default() };
    let played = load::run(&scenario, &how, |tally, now| {
        watch(tally, now);
        progress.show(tally, now);
    })?;
    progress.finish();
    Ok(played.tally)
}

/// Keeps the stage alive with a crowd that makes a newcomer wait about twenty seconds, until Ctrl-C.
fn serve(options: DemoOptions, stage: &Stage) -> Result<(), DemoError> {
    // First a crowd that fills the room for that long, then as many as leave it: by what the gate found,
    // since more would make the wait grow without end.
    let rate = (stage.estimate)().capacity_rps.clamp(1.0, options.capacity);
    let rush = Duration::from_secs(2);
    let filling = rate * (SERVE_WAIT + rush).as_secs_f64() / rush.as_secs_f64();
    let phase = |rate, lasts| Phase { rate: Shape::Flat(rate), lasts, mix: Vec::new() };
    let phases = vec![phase(filling, rush), phase(rate, Duration::MAX)];
    let arrivals = Arrivals::Phases { process: Process::Poisson, phases, repeat: 1 };
    let crowd = Scenario { arrivals, ..flash(&options, rate, rush) };
    eprintln!("  The gate stays open: http://{}/ (operator: http://{}/)", stage.gate, stage.admin);
    eprintln!("  A crowd keeps coming; expect to wait about {} s. Ctrl-C ends it.", SERVE_WAIT.as_secs());
    let mut progress = Progress::new(options.json, "background crowd", 0);
    let stop = Stop::on_interrupt().map_err(LoadError::System)?;
    let how = LoadOptions { url: Some(url(stage.gate)), stop, ..LoadOptions::default() };
    load::run(&crowd, &how, |tally, now| progress.show(tally, now))?;
    progress.finish();
    Ok(())
}

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}
