//! What an estimator has learned, to begin from after a restart.
//!
//! How it is used depends on how old it is ([`Trust`]): an origin is likely to be what it was minutes ago,
//! and may have been replaced since last week. What is trusted is tested against every answer all the same.

use std::time::Duration;

use crate::units::{ClassId, Rate, Timestamp};

/// As long a restart, a deployment or a short outage takes: what was learned holds.
const TRUSTED: Duration = Duration::from_secs(3600);
/// Longer than a week, so that the crowd of last week's same day is remembered.
const REMEMBERED: Duration = Duration::from_secs(8 * 24 * 3600);

/// What becomes of a value that was learned some time ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// It holds until answers contradict it.
    Trusted,
    /// It is where the search begins.
    Checked,
    Forgotten,
}

impl Trust {
    /// In a value of the instant `at`. One of the future is of a clock that was set: it is checked.
    pub fn of(at: Timestamp, now: Timestamp) -> Self {
        match now.since(at) {
            age if age > REMEMBERED => Self::Forgotten,
            age if age > TRUSTED || at > now + TRUSTED => Self::Checked,
            _ => Self::Trusted,
        }
    }

    /// At most [`Trust::Checked`]: something else has changed since.
    #[must_use]
    pub fn at_most_checked(self) -> Self {
        if self == Self::Trusted { Self::Checked } else { self }
    }
}

/// What an estimator has learned of the origin.
#[derive(Clone, PartialEq, Debug)]
pub struct Learned {
    /// Charged cost units per second.
    pub capacity: Rate,
    /// `None`: the algorithm knows a rate only.
    pub knee: Option<Knee>,
    /// Learned cost of a class, relative to the configured one, or to 1 where the operator gave none.
    pub costs: Vec<(ClassId, f64)>,
}

/// What is known of the cost of a class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnedCost {
    /// In the unit that the operator's numbers fix; without numbers, in mean requests.
    pub units: f64,
    /// Relative standard error of `units`; infinite without samples.
    pub error: f64,
    /// Requests of the class that it was learned from, the earlier ones counting less and less.
    pub samples: f64,
}

impl LearnedCost {
    /// Nothing is known yet.
    pub const UNKNOWN: Self = Self { units: 1.0, error: f64::INFINITY, samples: 0.0 };

    /// Standard error in cost units; infinite without samples.
    pub fn standard_error(&self) -> f64 {
        self.units * self.error
    }
}

/// The curve of response time over requests in flight, and the traffic that it was measured with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Knee {
    /// Requests in flight beyond which they wait.
    pub in_flight: f64,
    /// Response time of one learned cost unit without a wait, in seconds.
    pub base_s: f64,
    pub contention: f64,
    /// Learned cost units per second at saturation.
    pub units_per_s: f64,
    /// Learned cost units per request.
    pub units: f64,
    /// Squared coefficient of variation of response times.
    pub dispersion: f64,
}

impl Knee {
    /// As it is, if each figure is one that an estimator can have found.
    pub fn sound(self) -> Option<Self> {
        let within = |x: f64, least: f64, most: f64| x >= least && x <= most;
        let is_sound = within(self.in_flight, 0.5, 1e6)
            && within(self.base_s, 1e-7, 1e5)
            && within(self.contention, 0.0, 10.0)
            && within(self.units_per_s, 1e-6, 1e9)
            && within(self.units, 1e-4, 1e7)
            && within(self.dispersion, 0.0, 1e3);
        is_sound.then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_a_value_the_less_it_is_trusted() {
        let now = Timestamp::from_secs(1_800_000_000);
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for (at, expected) in [
            (now.saturating_sub(hours(1)), Trust::Trusted),
            (now.saturating_sub(hours(2)), Trust::Checked),
            (now.saturating_sub(hours(8 * 24)), Trust::Checked),
            (now.saturating_sub(hours(8 * 24 + 1)), Trust::Forgotten),
            (now + hours(1), Trust::Trusted),
            (now + hours(2), Trust::Checked),
        ] {
            assert_eq!(Trust::of(at, now), expected, "{at:?}");
        }
        assert_eq!(Trust::Trusted.at_most_checked(), Trust::Checked);
        assert_eq!(Trust::Forgotten.at_most_checked(), Trust::Forgotten);
    }
}
