//! What a run showed from one instant to the next, kept if asked for: a figure such as the settle time of an estimator needs
//! more than a row per second.

use tidegate_core::units::{Cost, Rate};

/// What the gate believed and held the origin to, from a tick on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Believed {
    /// When, in microseconds.
    pub at_us: u64,
    /// The origin's capacity, in cost units per second; `None`: unknown.
    pub capacity: Option<f64>,
    /// Requests at the origin at once; `None`: no limit.
    pub limit: Option<u32>,
}

/// A request that the origin served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// When, in microseconds.
    pub at_us: u64,
    /// Since it had been sent, in microseconds.
    pub took_us: u32,
    /// What it cost, in the gate's units.
    pub cost: Cost,
}

/// All of it, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// At the start and on every control tick.
    pub believed: Vec<Believed>,
    /// Of the requests that the origin served.
    pub answered: Vec<Answered>,
}

impl Record {
    pub(super) fn believes(&mut self, at_us: u64, capacity: Rate, limit: Option<u32>) {
        let capacity = (capacity < Rate::MAX).then_some(capacity.get());
        self.believed.push(Believed { at_us, capacity, limit });
    }

    pub(super) fn answered(&mut self, at_us: u64, took_us: u64, cost: Cost) {
        let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        self.answered.push(Answered { at_us, took_us, cost });
    }
}
