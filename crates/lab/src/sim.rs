//! The simulator: a whole scenario in virtual time, on the gate's own core.
//!
//! ```text
//!             ┌──────────── agenda (wheel) ◄── next request ───────────┐
//!             ▼                                                        │
//!  crowd ─► admission ─► decide, room, gate ─► forward ─► replica pool ─► answer ─► visitor ─► tally
//!             │     (tidegate-core)       │                            ▲
//!             └──────── oracle ◄──────────┴───────── process: control tick, feedback, restart
//! ```
//!
//! Nothing is decided here. The core (`admission`, `room`, `gate`, `control`) decides who enters, who waits
//! and for how long; it is built from the scenario's gate configuration by the gateway's own `Config`. The
//! gateway's own functions choose the replica, what may be repeated and when a page asks again.
//! [`crate::visitor`] says what a visitor does next, and [`crate::model`] how long the origin takes. This
//! module carries events between them in order of time and performs the decisions.
//!
//! **Time** is whole microseconds. Things due at the same instant happen in this order: the origin, the
//! agenda (in order of insertion), arrivals. The only delay of the network is [`LATENCY_US`] each way between
//! visitor and service.
//! **Randomness** is three generators made from the seed: the crowd's, the origin's, the gate's.
//! Same scenario, same seed: the same steps, the same figures, bit for bit.
//!
//! **What counts as an event** is a step of the trace: something that happens at an instant of virtual time
//! to one visitor or request (it arrives, is decided on, goes to the origin, is served; its answer reaches
//! the visitor), a control tick, a fault.
//!
//! Left out: connections, bytes and parsing, and with them every limit on those; active health checks
//! (replicas are ejected passively); what policies do outside the gate.

use thiserror::Error;
use tidegate_core::classify::ClassifyError;
use tidegate_gateway::config::ConfigError;

use crate::crowd::replay::ReplayError;
use crate::oracle::Violation;
use crate::outcome::{Outcome, Way};
use crate::scenario::Scenario;

mod admission;
mod answered;
pub mod chance;
mod client;
mod control;
mod forward;
mod parts;
pub(crate) mod process;
pub mod record;
pub(crate) mod replica_pool;
pub(crate) mod request;
mod rules;
mod sessions;
mod stalls;
mod sweep;
pub mod trace;
mod world;

use record::Record;
pub use sweep::{SweepReport, sweep};
use trace::Step;
use world::World;

/// One way between visitor and service, in microseconds: two hosts of one data centre. Between gate and
/// origin there is none: where it matters, it is part of the service time.
pub const LATENCY_US: u64 = 100;

#[derive(Clone, Debug)]
pub struct SimOptions {
    pub seed: u64,
    /// How many of the last steps to return.
    pub trace: usize,
    pub check: bool,
    /// Whether to keep every belief of the gate and every answer of the origin.
    pub record: bool,
}

impl SimOptions {
    /// Everything is checked; no steps are returned, nothing is recorded.
    pub fn new(seed: u64) -> Self {
        Self { seed, trace: 0, check: true, record: false }
    }
}

#[derive(Clone, Debug)]
pub struct SimRun {
    pub outcome: Outcome,
    pub violations: Vec<Violation>,
    pub events: u64,
    pub digest: u64,
    pub steps: Vec<Step>,
    /// The most by which admitted work ran ahead of the capacity, and the bound, in seconds of work.
    pub lead_s: (f64, f64),
    /// The recording; empty unless asked for.
    pub record: Record,
}

#[derive(Debug, Error)]
pub enum SimError {
    #[error("the scenario's gate cannot be set up: {0}")]
    Gate(#[from] ConfigError),
    #[error("expected the name of a [[gate.tier]] as `visitor.tier`; got \"{0}\"")]
    Tier(String),
    #[error("the scenario's origin: {0}")]
    Paths(ClassifyError),
    #[error("{0}")]
    Replay(#[from] ReplayError),
    /// It would never end.
    #[error("expected an end: arrivals that go on for ever need a `deadline`")]
    Endless,
}

/// Plays a scenario.
pub fn run(scenario: &Scenario, options: &SimOptions) -> Result<SimRun, SimError> {
    let mut world = World::new(scenario, options)?;
    world.run()?;
    let partial =
        world.oracle.is_done().then(|| "stopped: too many rules were broken to explain more".into());
    let mut outcome = world.tally.outcome(&scenario.name, Way::Sim, options.seed, partial);
    let violations = world.oracle.take_violations();
    if world.has_parts {
        let parts = [
            ("parts", world.parts.asked),
            ("parts_refused", world.parts.refused),
            ("parts_failed", world.parts.failed),
        ];
        outcome.summary.extend(parts.map(|(name, count)| (name.into(), count as f64)));
    }
    outcome.summary.extend(world.session_times.figures().map(|(name, figure)| (name.into(), figure)));
    outcome.summary.insert("events".into(), world.trace.count as f64);
    outcome.summary.insert("violations".into(), violations.len() as f64);
    Ok(SimRun {
        outcome,
        violations,
        events: world.trace.count,
        digest: world.trace.digest,
        steps: world.trace.last(options.trace),
        lead_s: world.oracle.lead(),
        record: world.record.take().unwrap_or_default(),
    })
}
