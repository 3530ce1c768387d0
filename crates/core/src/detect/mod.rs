//! Congestion detection (WAC 3.1): how near each resource is to its limit.
//!
//! ```text
//! counters, readings ─► sampling ─► figure (exponentially weighted) ─► judge (thresholds, hysteresis) ─► level ─► rules
//! ```
//!
//! A resource is what may be congested: a rate, a response time, a processor. Each criterion of the paper is one file with one
//! [`Resource`]; they differ in how the figure comes about and share how it is judged.
//!
//! WAC updates a resource at the arrival of a request. Here requests only count, as they do anyway, and resources read the
//! counters on the tick: nothing on a request's path, whatever the number of detectors.
//!
//! **Never a guess.** What nobody measures, or whose source hangs, lies or is gone, is [`Level::Unknown`] once its time to live
//! has passed. What that means is the rules' business.

use std::cell::OnceCell;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::measure::{ClassTotals, Event, Snapshot};
use crate::units::{ClassId, Timestamp};

mod weigh;

mod sampling;
pub use sampling::{Checked, Sampler, Sampling};

mod adaptive;
pub use adaptive::{Adaptive, AdaptiveConfig};

mod judge;
pub use judge::{Judge, JudgeConfig, Judgement, Limit};

mod class_rate;
mod connections;
mod host;
mod request_rate;
mod response_time;
mod sessions;
mod signal;

pub use class_rate::ClassRate;
pub use connections::Connections;
pub use host::HostFigure;
pub use request_rate::{Counted, RequestRate};
pub use response_time::{ResponseTime, Statistic};
pub use sessions::Sessions;
pub use signal::Signal;
pub use weigh::{Mean, Weighted};

/// Largest figure that is believed: a thousand times what any host has of anything countable in bytes, and far from where
/// sums of `f64` lose their units.
pub const MAX_FIGURE: f64 = 1e15;

/// How congested a resource is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Level {
    /// Nobody knows.
    #[default]
    Unknown,
    /// There is room.
    Green,
    /// It is getting close.
    Orange,
    /// Congested.
    Red,
}

impl Level {
    /// Every level.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Green, Self::Orange, Self::Red];

    /// Its name in rules, metrics and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Green => "green",
            Self::Orange => "orange",
            Self::Red => "red",
        }
    }
}

/// What a resource says of itself (WAC 3.1: "enumerated (green, orange, red) or fraction").
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Congestion {
    /// The figure as a share of what is congestion, 0..=1; `None`: unknown.
    pub fraction: Option<f64>,
    /// The level.
    pub level: Level,
}

/// Something that may be congested.
pub trait Resource {
    /// Looks at what was counted and read until `now`.
    fn update(&mut self, seen: &DetectorInputs<'_>, now: Timestamp);

    /// How congested it is, as of the last [`Resource::update`].
    fn congestion(&self) -> Congestion {
        self.verdict().congestion()
    }

    /// How that came about.
    fn verdict(&self) -> Judgement;

    /// How often its criterion was checked.
    fn checks(&self) -> u64;
}

/// A source of readings, by its place among all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceId(pub usize);

/// What a source said last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reading {
    /// Whatever it said: not to be believed yet.
    pub value: f64,
    /// When.
    pub at: Timestamp,
    /// For how long it is true; what the detector grants at most is its own.
    pub good_for: Duration,
    /// Counts what the source has said.
    pub number: u64,
}

/// The sessions there are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SessionCount {
    /// Now.
    pub open: u64,
    /// Begun since the start.
    pub begun: u64,
}

/// What detectors see on a tick.
pub struct DetectorInputs<'a> {
    snapshot: &'a Snapshot,
    open_connections: u64,
    sessions: Option<SessionCount>,
    readings: &'a [Option<Reading>],
    response: OnceCell<Histogram>,
}

impl<'a> DetectorInputs<'a> {
    /// The sum of all counters, the connections open now, the sessions if somebody counts them, and what sources have said.
    pub fn new(
        snapshot: &'a Snapshot,
        open_connections: u64,
        sessions: Option<SessionCount>,
        readings: &'a [Option<Reading>],
    ) -> Self {
        Self { snapshot, open_connections, sessions, readings, response: OnceCell::new() }
    }

    /// Requests of every class since the start, whatever became of them.
    fn arrivals(&self) -> u64 {
        self.snapshot.classes().iter().map(|class| class.arrivals).sum()
    }

    /// Connections accepted since the start.
    fn connections_made(&self) -> u64 {
        self.snapshot.event(Event::Connections)
    }

    fn class(&self, class: ClassId) -> Option<&ClassTotals> {
        self.snapshot.classes().get(class.index())
    }

    /// Response times of a class, or of all: added up once, for whoever asks.
    fn response(&self, class: Option<ClassId>) -> Option<&Histogram> {
        match class {
            Some(class) => self.class(class).map(|totals| &totals.response),
            None => Some(self.response.get_or_init(|| {
                let mut all = Histogram::default();
                self.snapshot.classes().iter().for_each(|class| all.merge(&class.response));
                all
            })),
        }
    }

    fn reading(&self, source: SourceId) -> Option<&Reading> {
        self.readings.get(source.0)?.as_ref()
    }
}

/// A figure that can be one: finite, not negative, not absurd.
pub fn plausible(figure: f64) -> Option<f64> {
    (0.0..=MAX_FIGURE).contains(&figure).then_some(figure)
}

/// What all detectors have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Common {
    /// Over which the past fades; zero: only the present counts.
    pub period: Duration,
    /// How often the criterion is checked.
    pub sampling: Sampling,
    /// From when on it is congestion.
    pub judge: JudgeConfig,
    /// How long what was measured last is believed when nothing more comes.
    pub time_to_live: Duration,
}

/// What is looked at: the criteria of WAC 3.1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Criterion {
    /// (a) Requests, or connections, per second.
    RequestRate(Counted),
    /// (b) Requests of a class per second.
    ClassRate(ClassId),
    /// (c) Response times in seconds, (d) of a class.
    ResponseTime(Option<ClassId>, Statistic),
    /// (e) Open TCP connections.
    Connections,
    /// (f) Concurrent sessions.
    Sessions,
    /// (g) A figure of a host.
    Host(SourceId),
    /// (h) What another application says.
    Signal(SourceId),
}

impl Criterion {
    /// Its detector.
    pub fn detector(self, common: &Common) -> Box<dyn Resource + Send> {
        match self {
            Self::RequestRate(counted) => Box::new(RequestRate::new(counted, common)),
            Self::ClassRate(class) => Box::new(ClassRate::new(class, common)),
            Self::ResponseTime(class, statistic) => Box::new(ResponseTime::new(class, statistic, common)),
            Self::Connections => Box::new(Connections::new(common)),
            Self::Sessions => Box::new(Sessions::new(common)),
            Self::Host(source) => Box::new(HostFigure::new(source, common)),
            Self::Signal(source) => Box::new(Signal::new(source, common)),
        }
    }
}
