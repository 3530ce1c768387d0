//! How often a criterion is checked (WAC 3.4): once in n events, where n is configured or follows the load.
//!
//! "verify a criterion for only one in every two (or more) requests … for a URL request arrival criterion the
//! sampling frequency shall be based on the number of arriving URL requests, while for a TCP/IP session based
//! criterion … on the number of initiated TCP/IP sessions. Possibly the sampling routine could be configured
//! dynamically."
//!
//! The events are those of the criterion. All of them are counted, so nothing is lost between two checks, and
//! the check is made on the tick on which the n-th is seen. After [`LONGEST`] it is made in any case.

use std::time::Duration;

use super::averages::Weighted;
use crate::units::Timestamp;

/// The longest time between two checks.
pub const LONGEST: Duration = Duration::from_secs(1);
/// Averaging time of the load that the sampling follows.
const PERIOD: Duration = Duration::from_secs(1);

/// How often a criterion is checked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sampling {
    /// Once in so many events; 1: on every tick with an event.
    OneIn(u32),
    /// At most so many times a second, and at least once: n follows the load.
    PerSecond(f64),
}

/// Decides when to check.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    sampling: Sampling,
    checked: Option<Count>,
    ticked: Count,
    load: Weighted,
    checks: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    events: u64,
    at: Timestamp,
}

/// Events and time since the last check.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Elapsed {
    pub events: u64,
    pub span: Duration,
}

impl Sampler {
    /// A sampler without data.
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, checked: None, ticked: Count::default(), load: Weighted::new(PERIOD), checks: 0 }
    }

    /// Goes over to another frequency; what was counted stays.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Returns the time since the last check if one is due; the first is. `count`: events since the start.
    pub fn check(&mut self, count: u64, now: Timestamp) -> Option<Elapsed> {
        let Some(last) = self.checked else {
            self.ticked = Count { events: count, at: now };
            self.checked = Some(self.ticked);
            self.checks += 1;
            return Some(Elapsed::default());
        };
        self.load.add(count.saturating_sub(self.ticked.events), now.since(self.ticked.at));
        self.ticked = Count { events: count, at: now.max(self.ticked.at) };
        // A counter that went back was replaced by a new one: events count from there.
        let since = Elapsed { events: count.saturating_sub(last.events), span: now.since(last.at) };
        if count >= last.events && since.events < self.one_in() && since.span < LONGEST {
            return None;
        }
        self.checked = Some(Count { events: count, at: now.max(last.at) });
        self.checks += 1;
        Some(since)
    }

    /// n: events per check, at least 1.
    pub fn one_in(&self) -> u64 {
        match self.sampling {
            Sampling::OneIn(n) => n.into(),
            // NaN is cast to 0.
            Sampling::PerSecond(most) => (self.load.get().unwrap_or_default() / most).ceil() as u64,
        }
        .max(1)
    }

    /// Checks so far.
    pub fn checks(&self) -> u64 {
        self.checks
    }
}
