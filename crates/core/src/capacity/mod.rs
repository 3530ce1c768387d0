//! How much the origin can serve: the number that everything else follows.
//!
//! An [`Estimator`] is told of every request that ended and says, on every tick, what it believes the capacity to be.
//! One algorithm a file, chosen by name in the configuration; the shape is that of a congestion controller in quinn.
//!
//! Two kinds: those that choose a rate ([`Estimate::capacity`] alone, WebQ's power ratio) and those that choose how
//! many requests the origin works on at once ([`Estimate::max_in_flight`]); the rate follows from what comes back.

use std::fmt;
use std::time::Duration;

use crate::units::{ClassId, Cost, Rate, Timestamp};

mod aimd;
mod bottleneck;
mod cubic;
mod fixed;
mod gradient;
mod gradient2;
mod power_ratio;
mod throughput;
mod vegas;

pub use aimd::{Aimd, AimdConfig};
pub use bottleneck::{Bottleneck, BottleneckConfig};
pub use fixed::Fixed;
pub use gradient::{Gradient, GradientConfig};
pub use gradient2::{Gradient2, Gradient2Config};
pub use power_ratio::{PowerRatio, PowerRatioConfig};
pub use vegas::{Vegas, VegasConfig};

/// A request that ended, or several of one class that ended in like manner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Their class.
    pub class: ClassId,
    /// What each of them costs, as configured.
    pub cost: Cost,
    /// How many: 1, unless a report put some together.
    pub count: u64,
    /// When they ended; of several, the last.
    pub ended: Timestamp,
    /// Their mean response time, from being sent to the origin to the end of the answer, or to the head of one that went on.
    pub response: Duration,
    /// For how long, in the mean, each of them kept its place after that: an answer that went on ([`crate::gate::Gate::stream`]).
    pub lingered: Duration,
    /// Requests at the origin when they were sent, themselves included.
    pub in_flight: u32,
    /// Whether the origin served them (status below 500).
    pub ok: bool,
    /// Whether others queued for their places when they ended. Without a backlog the origin was not tried to its limit,
    /// and completions per second tell of the load, not of the capacity.
    pub backlog: bool,
}

impl Sample {
    /// Puts another one's requests with these: of the same class, ended in like manner, later.
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

/// Where requests stand at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GateLoad {
    /// Visitors wait in the room.
    pub room_waits: bool,
    /// Requests in the gate's queue.
    pub queued: usize,
    /// Requests at the origin.
    pub in_flight: u32,
}

impl GateLoad {
    /// Whether somebody waits for the origin, in the room or at the gate.
    pub fn backlog(&self) -> bool {
        self.room_waits || self.queued > 0
    }
}

/// What an estimator is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The capacity was given; nothing is estimated.
    Configured,
    /// Looking for the capacity.
    Searching,
    /// Holds the capacity and watches for change.
    Settled,
    /// Waits for enough load to learn from.
    Paused,
}

impl Phase {
    /// Every phase.
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

/// What an estimator believes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Cost units per second the origin can serve.
    pub capacity: Rate,
    /// Work per second to let in, as a multiple of `capacity`: 1, or more while the origin must be tried (BBR's pacing
    /// gain). At least 1.
    pub gain: f64,
    /// Requests the origin should work on at once; `None` if the algorithm has no opinion. With one, the room keeps the
    /// gate's queue from running dry while people wait, so that the limit, not the schedule, is what the origin feels.
    pub max_in_flight: Option<u32>,
    /// What the algorithm is doing.
    pub phase: Phase,
    /// 0: a guess, 1: certain.
    pub confidence: f64,
}

/// What an estimator can tell of itself, for `GET /v1/capacity`.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct State {
    /// Why it is in its phase, in a few words: "origin slower: probing down", "errors only: holding".
    pub reason: String,
    /// Samples in the present fit.
    pub samples: u64,
    /// The algorithm's own figures by name, with the unit in the name: `knee`, `response_ms`.
    pub figures: Vec<(&'static str, f64)>,
    /// What was measured: load (as the algorithm means it) and what it saw there.
    pub points: Vec<(f64, f64)>,
    /// The fitted curve at some loads; empty if nothing is fitted.
    pub curve: Vec<(f64, f64)>,
}

/// Finds out the origin's capacity.
pub trait Estimator: Send {
    /// Requests ended. In order of their end, as well as the sender knows.
    fn observe(&mut self, sample: &Sample);

    /// What the capacity is; called on every control tick, after the tick's samples.
    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate;

    /// An operator says what the capacity is: the new truth for `fixed`, a starting point for the others.
    fn set(&mut self, capacity: Rate, now: Timestamp);

    /// Forgets what it believes and looks anew, from where it stands.
    fn rediscover(&mut self, now: Timestamp);

    /// A class's id is another class's from now on: what is known of it is of no use.
    fn forget(&mut self, _class: ClassId) {}

    /// How it came to its estimate.
    fn state(&self) -> State;
}

/// What estimators are made with.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Options {
    /// The configured capacity; for `fixed` the truth (`None`: nothing is limited), for the others where to start.
    pub rate: Option<Rate>,
    /// Of `power-ratio`.
    pub power_ratio: PowerRatioConfig,
    /// Of `aimd`.
    pub aimd: AimdConfig,
    /// Of `vegas`.
    pub vegas: VegasConfig,
    /// Of `gradient`.
    pub gradient: GradientConfig,
    /// Of `gradient2`.
    pub gradient2: Gradient2Config,
    /// For `bottleneck`.
    pub bottleneck: BottleneckConfig,
}

/// Makes an estimator by its configured name.
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
    ("fixed", |options| Box::new(Fixed::new(options.rate))),
    ("power-ratio", |options| Box::new(PowerRatio::new(options.power_ratio, options.rate))),
    ("aimd", |options| Box::new(Aimd::new(options.aimd, options.rate))),
    ("vegas", |options| Box::new(Vegas::new(options.vegas, options.rate))),
    ("gradient", |options| Box::new(Gradient::new(options.gradient, options.rate))),
    ("gradient2", |options| Box::new(Gradient2::new(options.gradient2, options.rate))),
    ("bottleneck", |options| Box::new(Bottleneck::new(options.bottleneck, options.rate))),
];

/// There is no estimator of this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownEstimator {
    /// The name that was asked for.
    pub got: String,
}

impl fmt::Display for UnknownEstimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = names().map(|n| format!("`{n}`")).collect();
        write!(f, "expected an estimator ({}), got `{}`", known.join(", "), self.got)
    }
}

impl std::error::Error for UnknownEstimator {}
