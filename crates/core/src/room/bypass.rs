//! Bypass traffic: work let in without a slot of the schedule (sessions, classes that never wait).
//!
//! It takes of the capacity that the schedule counts on, so the virtual clock and the waits are computed with
//! what it leaves. Its rate is a decaying sum of work over the equally decaying sum of time. Of sessions it
//! is what they will ask for (`session/forecast.rs`): measured, it would come too late, after more visitors
//! have been let in than can be served.

use crate::decaying::{DecayingRatio, keep};
use crate::session::ExpectedSessions;
use crate::sync::{Atomic, AtomicF64};
use crate::units::{Cost, Rate};

/// In seconds: sessions come and go over minutes.
const MEMORY_S: f64 = 10.0;
/// Not over less than a second: two requests in the first tick are no rate.
const MIN_OVER_S: f64 = 1.0;
/// The schedule is left at least one part in so many, so that waits are finite.
const MIN_LEFT: f64 = 10.0;

/// Counts bypass traffic, and publishes how much of it comes.
#[derive(Default)]
pub(super) struct Bypass {
    admitted: Atomic<Cost>,
    of_sessions: Atomic<Cost>,
    per_s: AtomicF64,
    /// Most of the capacity that newcomers get in the long run; 0: not known.
    newcomers_share: AtomicF64,
}

impl Bypass {
    pub(super) fn count(&self, cost: Cost) {
        self.admitted.add(cost);
    }

    pub(super) fn count_session(&self, cost: Cost) {
        self.of_sessions.add(cost);
    }

    pub(super) fn per_s(&self) -> f64 {
        self.per_s.load()
    }

    /// Cost units per second of `rate` that are left to the schedule.
    pub(super) fn left_of(&self, rate: Rate) -> f64 {
        let rate = rate.get();
        (rate - self.per_s()).max(rate / MIN_LEFT)
    }

    /// Whether it is known what sessions will ask for.
    pub(super) fn is_foreseen(&self) -> bool {
        self.newcomers_share.load() > 0.0
    }

    /// Cost units per second of `rate` that visitors who wait can count on: those who are let in before them
    /// will come back.
    pub(super) fn left_in_the_long_run(&self, rate: Rate) -> f64 {
        let left = self.left_of(rate);
        if self.is_foreseen() { left.min(self.newcomers_share.load() * rate.get()) } else { left }
    }
}

/// The tick's part: averages what was counted.
#[derive(Default)]
pub(super) struct BypassMeter {
    others: Recent,
    sessions: Recent,
    /// What open sessions will ask for, where that is known.
    pub(super) expected: Option<ExpectedSessions>,
}

impl BypassMeter {
    pub(super) fn tick(&mut self, bypass: &Bypass, dt_s: f64) {
        let others = self.others.tick(bypass.admitted.load(), dt_s);
        let sessions = self.sessions.tick(bypass.of_sessions.load(), dt_s);
        bypass.per_s.store(others + self.expected.map_or(sessions, |expected| expected.per_s));
        bypass.newcomers_share.store(self.expected.map_or(0.0, |expected| expected.newcomers_share));
    }
}

/// The rate of one kind of work.
#[derive(Default)]
struct Recent {
    seen: Cost,
    rate: DecayingRatio,
}

impl Recent {
    fn tick(&mut self, admitted: Cost, dt_s: f64) -> f64 {
        let new = admitted.hundredths().wrapping_sub(self.seen.hundredths()) as f64 / 100.0;
        self.seen = admitted;
        self.rate.decay_and_add(keep(dt_s, MEMORY_S), new, dt_s);
        self.rate.sum / self.rate.over.max(MIN_OVER_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_measured_and_the_rest_is_left_to_the_schedule() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        let capacity = Rate::per_second(20.0).unwrap_or_default();
        assert_eq!(bypass.left_of(capacity), 20.0);
        for _ in 0..100 {
            bypass.count(Cost::ONE);
            meter.tick(&bypass, 0.1);
        }
        assert!((bypass.left_of(capacity) - 10.0).abs() < 1e-6, "{}", bypass.left_of(capacity));
        for _ in 0..100 {
            bypass.count(Cost::MAX);
            meter.tick(&bypass, 0.1);
        }
        assert_eq!(bypass.left_of(capacity), 2.0, "a tenth in any case");
    }

    #[test]
    fn sessions_count_with_what_they_will_ask_for() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        bypass.count_session(Cost::ONE);
        meter.tick(&bypass, 1.0);
        assert_eq!(bypass.per_s(), 1.0, "measured as long as nothing is expected");
        assert_eq!(bypass.left_in_the_long_run(capacity), 99.0);
        bypass.count(Cost::ONE);
        meter.expected = Some(ExpectedSessions { per_s: 60.0, newcomers_share: 0.125 });
        meter.tick(&bypass, 1.0);
        assert!((60.0..61.0).contains(&bypass.per_s()), "other bypass traffic is added: {}", bypass.per_s());
        assert!((39.0..40.0).contains(&bypass.left_of(capacity)));
        assert_eq!(bypass.left_in_the_long_run(capacity), 12.5, "those who are let in will come back");
    }

    #[test]
    fn a_first_tick_is_no_rate() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        bypass.count(Cost::ONE);
        meter.tick(&bypass, 0.001);
        assert_eq!(bypass.per_s(), 1.0);
    }
}
