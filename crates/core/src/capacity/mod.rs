//! Capacity estimation: how much the origin can serve.
//!
//! An [`Estimator`] observes every request that ended and returns an [`Estimate`] of the capacity on every
//! tick. One algorithm per file, chosen by name; the interface resembles congestion controllers in quinn.
//!
//! Some choose a rate ([`Estimate::capacity`] alone: WebQ's power ratio). The others choose how many requests
//! the origin works on at once ([`Estimate::max_in_flight`]), and the rate follows from the throughput.

use std::time::Duration;

use crate::units::{ClassId, Cost, Rate, Timestamp};

mod aimd;
mod bottleneck;
mod breakwater;
mod cinnamon;
mod fixed;
mod gradient;
mod gradient2;
mod learned;
mod power_ratio;
mod throughput;
mod vegas;

pub use aimd::{Aimd, AimdConfig};
pub use bottleneck::{Bottleneck, BottleneckConfig};
pub use breakwater::{Breakwater, BreakwaterConfig};
pub use cinnamon::{Cinnamon, CinnamonConfig};
pub use fixed::Fixed;
pub use gradient::{Gradient, GradientConfig};
pub use gradient2::{Gradient2, Gradient2Config};
pub use learned::{Knee, Learned, LearnedCost, Trust};
pub use power_ratio::{PowerRatio, PowerRatioConfig};
pub use vegas::{Vegas, VegasConfig};

/// A request that ended, or several of one class with the same outcome.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    pub class: ClassId,
    /// What each was charged.
    pub cost: Cost,
    /// How many: 1, unless a report merged some.
    pub count: u64,
    /// When they ended; for several, the last.
    pub ended: Timestamp,
    /// Mean response time: from the request's dispatch to the end of the answer, or to the head of a stream.
    pub response: Duration,
    /// Mean time for which each kept its in-flight slot after that: see [`crate::gate::Gate::stream`].
    pub lingered: Duration,
    /// Requests at the origin when they were sent, including themselves.
    pub in_flight: u32,
    /// Whether the origin served them (status below 500).
    pub ok: bool,
    /// Whether others queued at the gate when they ended. Without a backlog the origin was not saturated, and
    /// completions per second measure the load, not the capacity.
    pub backlog: bool,
}

impl Sample {
    /// Merges a later sample of the same class and outcome into this one.
    pub fn absorb(&mut self, later: &Self) {
        let count = self.count + later.count;
        let mean = |mine: Duration, theirs: Duration| {
            let sum = mine.as_nanos() * u128::from(self.count) + theirs.as_nanos() * u128::from(later.count);
            Duration::from_nanos(u64::try_from(sum / u128::from(count.max(1))).unwrap_or(u64::MAX))
        };
        (self.response, self.lingered) =
            (mean(self.response, later.response), mean(self.lingered, later.lingered));
        self.count = count;
        self.ended = later.ended;
        self.in_flight = later.in_flight;
        self.backlog &= later.backlog;
    }
}

/// Where requests are at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GateLoad {
    pub room_waits: bool,
    /// Visitors whom the room has let in and who are not here yet.
    pub coming: u32,
    pub queued: usize,
    pub in_flight: u32,
    /// How long ago the gate was so, and the last sample could have been known: another process reports its
    /// gate once in [`REPORT_EVERY`](crate::room::REPORT_EVERY). Zero for a gate of this process.
    pub age: Duration,
}

impl GateLoad {
    /// Whether anybody waits for the origin, in the room or at the gate.
    pub fn backlog(&self) -> bool {
        self.room_waits || self.queued > 0
    }
}

/// What an estimator is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The capacity is configured; nothing is estimated.
    Configured,
    Searching,
    /// Holds the capacity and watches for changes.
    Settled,
    /// Waits until there is enough load to measure.
    Paused,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Configured, Self::Searching, Self::Settled, Self::Paused];

    /// Its name in metrics and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Searching => "searching",
            Self::Settled => "settled",
            Self::Paused => "paused",
        }
    }
}

/// The result of an estimator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Cost units per second the origin can serve.
    pub capacity: Rate,
    /// Work per second to admit, over `capacity`: 1, or more while the origin is probed (BBR's pacing gain).
    pub gain: f64,
    /// Requests the origin should work on at once; `None`: no limit. With a limit, the room keeps the gate's
    /// queue from running empty while visitors wait, so that the limit controls the origin.
    pub max_in_flight: Option<u32>,
    pub phase: Phase,
    /// From 0 (nothing measured) to 1 (certain).
    pub confidence: f64,
}

/// The internal state of an estimator, for `GET /v1/capacity`.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct State {
    /// Why it is in its phase, such as "errors only: holding".
    pub reason: String,
    pub samples: u64,
    /// The algorithm's own figures by name; the name contains the unit: `knee`, `response_ms`.
    pub figures: Vec<(&'static str, f64)>,
    /// Pairs of load (as the algorithm defines it) and the value measured there.
    pub points: Vec<(f64, f64)>,
    /// The fitted curve at some loads; empty without a fit.
    pub curve: Vec<(f64, f64)>,
}

/// Estimates the origin's capacity.
pub trait Estimator: Send {
    /// Requests ended. Samples come about in the order of their ends.
    fn observe(&mut self, sample: &Sample);

    /// The estimate; called on every control tick, after the tick's samples.
    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate;

    /// An operator sets the capacity: the value of `fixed`, a starting point for the others.
    fn set(&mut self, capacity: Rate, now: Timestamp);

    /// Forgets the measurements and searches anew, from the present estimate.
    fn rediscover(&mut self, now: Timestamp);

    /// The id belongs to another class from now on, so what is known of the class is void.
    fn forget(&mut self, _class: ClassId) {}

    /// The cost of the class is learned, and each of its requests is charged `charged` from now on; `None`:
    /// the operator has given a number, which is the cost in its samples. Capacities are in charged units.
    fn charge(&mut self, _class: ClassId, _charged: Option<Cost>) {}

    /// What is known of the cost of a class; `None`: the algorithm learns no costs.
    fn cost(&self, _class: ClassId) -> Option<LearnedCost> {
        None
    }

    /// What it has learned beside the capacity of its last estimate, for [`Estimator::resume`].
    fn learned(&self) -> Option<Learned> {
        None
    }

    /// Begins from what an earlier process has learned. For a new estimator, before its first sample.
    fn resume(&mut self, learned: &Learned, _trust: Trust, now: Timestamp) {
        self.set(learned.capacity, now);
    }

    /// The present figures and the reason for the phase, for operators.
    fn state(&self) -> State;
}

/// Parameters of all estimators.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Options {
    /// The configured capacity: the value of `fixed` (`None`: discovered until one is set), a starting point
    /// for the others.
    pub rate: Option<Rate>,
    pub power_ratio: PowerRatioConfig,
    pub aimd: AimdConfig,
    pub vegas: VegasConfig,
    pub gradient: GradientConfig,
    pub gradient2: Gradient2Config,
    pub cinnamon: CinnamonConfig,
    pub breakwater: BreakwaterConfig,
    pub bottleneck: BottleneckConfig,
}

/// Creates an estimator by its configured name.
///
/// # Errors
/// There is no estimator of this name.
pub fn by_name(name: &str, options: &Options) -> Result<Box<dyn Estimator>, UnknownEstimator> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    known.map(|(_, make)| make(options)).ok_or_else(|| UnknownEstimator { got: name.into() })
}

/// The names that [`by_name`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

type Make = fn(&Options) -> Box<dyn Estimator>;

const KNOWN: &[(&str, Make)] = &[
    ("fixed", |options| Box::new(Fixed::new(options.rate, options.bottleneck))),
    ("power-ratio", |options| Box::new(PowerRatio::new(options.power_ratio, options.rate))),
    ("aimd", |options| Box::new(Aimd::new(options.aimd, options.rate))),
    ("vegas", |options| Box::new(Vegas::new(options.vegas, options.rate))),
    ("gradient", |options| Box::new(Gradient::new(options.gradient, options.rate))),
    ("gradient2", |options| Box::new(Gradient2::new(options.gradient2, options.rate))),
    ("cinnamon", |options| Box::new(Cinnamon::new(options.cinnamon, options.rate))),
    ("breakwater", |options| Box::new(Breakwater::new(options.breakwater, options.rate))),
    ("bottleneck", |options| Box::new(Bottleneck::new(options.bottleneck, options.rate))),
];

/// There is no estimator of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected an estimator (`{}`), got `{got}`", names().collect::<Vec<_>>().join("`, `"))]
pub struct UnknownEstimator {
    pub got: String,
}
