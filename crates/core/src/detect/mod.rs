//! Congestion detection (WAC 3.1): how close each resource is to its limit.
//!
//! ```text
//! counters, readings ─► sampling ─► average ─► judge (thresholds, hysteresis) ─► level ─► rules
//! ```
//!
//! A resource is what may be congested: a rate, a response time, a processor. Each criterion of the paper is
//! a [`Resource`]. They differ in how the figure is computed, and share how it is judged.
//!
//! WAC updates a resource at the arrival of a request. Here requests only increment counters, as they do
//! anyway, and resources read the counters on the tick: detectors cost nothing on the request path.
//!
//! **Unknown is a level.** Where nothing is measured, or a source hangs, is implausible or is gone, the level
//! is [`Level::Unknown`] once the time to live has passed. The rules decide what follows from that.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::measure::{ClassTotals, Cohort, Event, Snapshot};
use crate::units::{ClassId, Timestamp};

mod adaptive;
mod averages;
mod counters;
mod excess;
mod judge;
mod response_time;
mod sampling;
mod sources;

pub use adaptive::{Adaptive, AdaptiveConfig, Thresholds};
pub use averages::Weighted;
pub use counters::Counted;
pub use excess::{Excess, ExcessConfig, LEAST};
pub use judge::{Judge, JudgeConfig, Judgement, Limit};
pub use response_time::Statistic;
pub use sampling::{Elapsed, Sampler, Sampling};

use counters::{EventRate, Events, Open, OpenLevel};
use response_time::ResponseTime;
use sources::{HostFigure, Signal};

/// Largest plausible figure: a thousand times the bytes of any host; `f64` sums of such keep their units.
pub const MAX_FIGURE: f64 = 1e15;

/// How congested a resource is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Level {
    #[default]
    Unknown,
    Green,
    /// Above the lower threshold.
    Orange,
    /// Above the upper threshold: congested.
    Red,
}

impl Level {
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

/// The congestion of a resource (WAC 3.1: "enumerated (green, orange, red) or fraction").
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Congestion {
    /// The figure as a share of the upper threshold, 0..=1; `None`: unknown.
    pub fraction: Option<f64>,
    pub level: Level,
}

/// Something that may become congested.
pub trait Resource {
    /// Reads the counters and readings at `now`.
    fn update(&mut self, inputs: &DetectorInputs<'_>, now: Timestamp);

    /// The congestion at the last [`Resource::update`].
    fn congestion(&self) -> Congestion {
        self.verdict().congestion()
    }

    /// Goes over to other parameters, by which the present figure is judged. What was measured and learned
    /// stays: averages, the level and its timer.
    fn retune(&mut self, common: &Common, now: Timestamp);

    /// The judgement that the congestion follows from.
    fn verdict(&self) -> Judgement;

    /// The last reading of its source, not averaged, while it is valid. `None` too if it has no source.
    fn reading(&self, _now: Timestamp) -> Option<f64> {
        None
    }

    /// How often its criterion was checked.
    fn checks(&self) -> u64;
}

/// A source of readings, by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceId(pub usize);

/// The last reading of a source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reading {
    /// The value, not checked for plausibility.
    pub value: f64,
    pub at: Timestamp,
    /// How long it is valid; the detector may bound this.
    pub good_for: Duration,
    /// Number of the reading, counted by the source.
    pub number: u64,
}

/// Things that begin and end (sessions or connections): open now, and begun since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SessionCount {
    pub open: u64,
    pub begun: u64,
}

/// The inputs of all detectors on a tick.
pub struct DetectorInputs<'a> {
    snapshot: &'a Snapshot,
    open_connections: u64,
    sessions: Option<SessionCount>,
    readings: &'a [Option<Reading>],
    times: OnceCell<Times>,
}

/// Times from the arrival of requests, since the start; and the ages of those under way.
#[derive(Clone, Default)]
struct Times {
    served: Histogram,
    /// Of the served and the failed together.
    ended: Histogram,
    under_way: Vec<Cohort>,
}

impl Times {
    fn add(&mut self, class: &ClassTotals) {
        self.served.merge(&class.served_time);
        self.ended.merge(&class.served_time);
        self.ended.merge(&class.failed_time);
        self.under_way.extend_from_slice(&class.under_way);
    }
}

impl<'a> DetectorInputs<'a> {
    /// All counters, the connections open now, the sessions if they are counted, and the readings of sources.
    pub fn new(
        snapshot: &'a Snapshot,
        open_connections: u64,
        sessions: Option<SessionCount>,
        readings: &'a [Option<Reading>],
    ) -> Self {
        Self { snapshot, open_connections, sessions, readings, times: OnceCell::new() }
    }

    /// Requests of all classes since the start, whatever their outcome.
    fn arrivals(&self) -> u64 {
        self.snapshot.classes().iter().map(|class| class.arrivals).sum()
    }

    fn connections_made(&self) -> u64 {
        self.snapshot.event(Event::Connections)
    }

    fn class(&self, class: ClassId) -> Option<&ClassTotals> {
        self.snapshot.classes().get(class.index())
    }

    /// Times of a class, or of all classes, which are added up once.
    fn times(&self, class: Option<ClassId>) -> Option<Cow<'_, Times>> {
        match class {
            Some(class) => self.class(class).map(|totals| {
                let mut times = Times::default();
                times.add(totals);
                Cow::Owned(times)
            }),
            None => Some(Cow::Borrowed(self.times.get_or_init(|| {
                let mut all = Times::default();
                self.snapshot.classes().iter().for_each(|class| all.add(class));
                all
            }))),
        }
    }

    fn reading(&self, source: SourceId) -> Option<&Reading> {
        self.readings.get(source.0)?.as_ref()
    }
}

/// The figure, if it is finite, not negative and at most [`MAX_FIGURE`].
pub fn plausible(figure: f64) -> Option<f64> {
    (0.0..=MAX_FIGURE).contains(&figure).then_some(figure)
}

/// Parameters of all detectors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Common {
    /// Averaging time; zero: only the present counts.
    pub period: Duration,
    pub sampling: Sampling,
    pub judge: JudgeConfig,
    /// How long the last measurement is valid without a new one.
    pub time_to_live: Duration,
}

/// The criteria of WAC 3.1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Criterion {
    /// (a) Requests, or connections, per second.
    RequestRate(Counted),
    /// (b) Requests of a class per second.
    ClassRate(ClassId),
    /// (c) Response times in seconds, (d) of a class. Then (e) connections, (f) sessions.
    ResponseTime(Option<ClassId>, Statistic),
    Connections,
    Sessions,
    /// (g) A figure of a host.
    Host(SourceId),
    /// (h) The signal of another application.
    Signal(SourceId),
}

impl Criterion {
    /// The detector for this criterion.
    pub fn detector(self, common: &Common) -> Box<dyn Resource + Send> {
        match self {
            Self::RequestRate(counted) => Box::new(EventRate::new(Events::All(counted), common)),
            Self::ClassRate(class) => Box::new(EventRate::new(Events::OfClass(class), common)),
            Self::ResponseTime(class, statistic) => Box::new(ResponseTime::new(class, statistic, common)),
            Self::Connections => Box::new(OpenLevel::new(Open::Connections, common)),
            Self::Sessions => Box::new(OpenLevel::new(Open::Sessions, common)),
            Self::Host(source) => Box::new(HostFigure::new(source, common)),
            Self::Signal(source) => Box::new(Signal::new(source, common)),
        }
    }
}
