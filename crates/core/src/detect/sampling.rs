//! How often a criterion is checked (WAC 3.4): once in n events, n given or following the load.
//!
//! "verify a criterion for only one in every two (or more) requests … for a URL request arrival criterion the sampling frequency
//! shall be based on the number of arriving URL requests, while for a TCP/IP session based criterion … on the number of initiated
//! TCP/IP sessions. Possibly the sampling routine could be configured dynamically."
//!
//! An event is one of those the criterion is about. They are counted all, so nothing is lost between two checks, and the check
//! comes on the tick on which the n-th is seen. After [`LONGEST`] it comes also without: a load that has ended must be seen to have.

use std::time::Duration;

use super::weigh::Weighted;
use crate::units::Timestamp;

/// The longest time between two checks.
pub const LONGEST: Duration = Duration::from_secs(1);
/// Over which the load is measured that the sampling follows.
const PERIOD: Duration = Duration::from_secs(1);

/// How often.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sampling {
    /// Once in so many events; 1: on every tick that brings one.
    OneIn(u32),
    /// At most so many times a second, and at least once: n follows the load.
    PerSecond(f64),
}

/// Says when to check.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// The counter, and when, at the last check.
    checked: Option<(u64, Timestamp)>,
    /// And on the last tick.
    seen: (u64, Timestamp),
    load: Weighted,
    checks: u64,
}

/// What has happened since the last check.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Checked {
    /// Events.
    pub events: u64,
    /// Time.
    pub span: Duration,
}

impl Sampler {
    /// One that has seen nothing.
    pub fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            checked: None,
            seen: (0, Timestamp::default()),
            load: Weighted::new(PERIOD),
            checks: 0,
        }
    }

    /// Whether to check now, given the number of events since the start. The first time always.
    pub fn check(&mut self, count: u64, now: Timestamp) -> Option<Checked> {
        let Some((at_check, checked_at)) = self.checked else {
            (self.checked, self.seen) = (Some((count, now)), (count, now));
            self.checks += 1;
            return Some(Checked::default());
        };
        self.load.add(count.saturating_sub(self.seen.0), now.since(self.seen.1));
        self.seen = (count, now.max(self.seen.1));
        // Counters that went back were made anew: they count from there.
        let since = Checked { events: count.saturating_sub(at_check), span: now.since(checked_at) };
        if count >= at_check && since.events < self.one_in() && since.span < LONGEST {
            return None;
        }
        self.checked = Some((count, now.max(checked_at)));
        self.checks += 1;
        Some(since)
    }

    /// n.
    pub fn one_in(&self) -> u64 {
        match self.sampling {
            Sampling::OneIn(n) => n.into(),
            // A cast of what is no number is 0.
            Sampling::PerSecond(most) => (self.load.get().unwrap_or_default() / most).ceil() as u64,
        }
        .max(1)
    }

    /// How often it was said to check.
    pub fn checks(&self) -> u64 {
        self.checks
    }
}
