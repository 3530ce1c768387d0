//! The tournament of estimators: every law that finds a capacity, in every scenario, over many seeds, in the
//! whole simulator (visitors, room, gate, estimator, origin).
//!
//! ```text
//!             ┌─► stretch ─► truth    what the origin can serve between its changes, by offline sweep
//!  scenarios ─┤                │
//!             └─► sim, each law, each seed ─► figures ─► medians ─► table, verdicts, plots
//! ```
//!
//! The yardstick is an oracle that knows the best fixed number of requests in flight of each stretch: the one
//! with the highest goodput among those that keep the mean response time within 1.5 times the unloaded one.
//! Parameters of the laws are fixed on other seeds than those that are reported ([`Tournament::tune_seeds`]).
//!
//! Same file, same seeds: the same figures, bit for bit, on any number of threads.

use std::ops::RangeInclusive;

pub mod drawn;
pub mod figures;
pub mod play;
pub mod stretch;
pub mod summary;
pub mod truth;

#[cfg(test)]
mod tests;

#[derive(Clone, Debug, PartialEq)]
pub struct Tournament {
    /// Estimators, by the names that `capacity.estimator` knows.
    pub estimators: Vec<String>,
    pub scenarios: Vec<Setting>,
    /// The seeds that figures are reported on.
    pub seeds: RangeInclusive<u64>,
    /// The same where all experiments are played, so that one of them does not take as long as all the
    /// others.
    pub all_seeds: RangeInclusive<u64>,
    /// The seeds on which parameters were fixed; none of them is reported unless asked for.
    pub tune_seeds: RangeInclusive<u64>,
    /// Seeds of the drawn origins ([`drawn`]) that figures are reported on, and of those on which parameters
    /// were fixed. The former are among the scenarios.
    pub drawn: Option<Drawn>,
    /// Requests served at each in-flight limit that the oracle tries.
    pub truth_requests: u32,
}

/// Which of the drawn origins are reported, and which served for tuning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub origins: RangeInclusive<u64>,
    pub tune_origins: RangeInclusive<u64>,
}

/// One scenario of a tournament: the file's own with some keys set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    pub about: String,
    /// Keys of the scenario that it sets, as TOML.
    pub set: Vec<(String, String)>,
}
