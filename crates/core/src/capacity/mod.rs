//! How much the origin can serve: the number that everything else follows.
//!
//! An [`Estimator`] is told what was served and says, on every tick, what it believes the capacity to be. One
//! algorithm a file, chosen by name in the configuration; the shape is that of a congestion controller in quinn.

use std::fmt;
use std::time::Duration;

use crate::units::{ClassId, Cost, Rate, Timestamp};

mod fixed;

pub use fixed::Fixed;

/// Requests of one class that ended in like manner: one, or all of a tick.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Their class.
    pub class: ClassId,
    /// What each of them costs.
    pub cost: Cost,
    /// How many.
    pub count: u64,
    /// Their mean response time.
    pub response: Duration,
    /// Requests at the origin when they ended.
    pub in_flight: u32,
    /// Whether the origin served them (status below 500).
    pub ok: bool,
    /// Whether others waited for a place meanwhile. Without a backlog the origin was not tried to its limit, and
    /// completions per second tell of the load, not of the capacity.
    pub backlog: bool,
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
    /// Requests the origin should work on at once; `None` if the algorithm has no opinion.
    pub max_in_flight: Option<u32>,
    /// What the algorithm is doing.
    pub phase: Phase,
    /// 0: a guess, 1: certain.
    pub confidence: f64,
}

/// Finds out the origin's capacity.
pub trait Estimator: Send {
    /// Requests ended.
    fn observe(&mut self, sample: &Sample, now: Timestamp);

    /// What the capacity is; called on every control tick, after the tick's samples.
    fn tick(&mut self, now: Timestamp) -> Estimate;

    /// An operator says what the capacity is: the new truth for `fixed`, a starting point for the others.
    fn set(&mut self, capacity: Rate, now: Timestamp);
}

/// Makes an estimator by its configured name.
///
/// `rate` is the configured capacity; `None`: none given, so nothing is limited until one is set.
pub fn by_name(name: &str, rate: Option<Rate>) -> Result<Box<dyn Estimator>, UnknownEstimator> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    known.map(|(_, make)| make(rate)).ok_or_else(|| UnknownEstimator { got: name.into() })
}

/// The names that [`by_name`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, _)| *name)
}

type Make = fn(Option<Rate>) -> Box<dyn Estimator>;

const KNOWN: &[(&str, Make)] = &[("fixed", |rate| Box::new(Fixed::new(rate)))];

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
