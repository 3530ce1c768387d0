//! Bypass traffic: work let in without a slot of the schedule (sessions, classes that never wait).
//!
//! It takes of the capacity that the schedule counts on, so the virtual clock and the waits are computed with
//! what it leaves. Its rate is a decaying sum of work over the equally decaying sum of time. Of sessions it
//! is what they will ask for (`session/forecast.rs`): measured, it would come too late, after more visitors
//! have been let in than can be served.
//!
//! While no reports come (two processes), tokengen assumes less and less capacity, and expects sessions to
//! ask for less by the same factor: newcomers keep their part. Otherwise the sessions of the last report
//! would soon take all of a capacity that fell to two thirds, and waits of 4 s would be announced as 40 s.

use super::outflow::{Foreseen, Outflow};
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
    /// All bypass traffic, and all but what sessions are foreseen to ask for.
    per_s: AtomicF64,
    others_per_s: AtomicF64,
    /// All bypass traffic that is of no session.
    ordinary_per_s: AtomicF64,
    /// Of [`Foreseen`].
    each_per_s: AtomicF64,
    newcomers_share: AtomicF64,
    /// Work of a newcomer's first page over that of its first request, where it is foreseen; else zero.
    first_page_ratio: AtomicF64,
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
        left_of(rate.get(), self.per_s()) / self.first_page_ratio()
    }

    /// Bypass traffic that is of no session.
    pub(super) fn ordinary_per_s(&self) -> f64 {
        self.ordinary_per_s.load()
    }

    /// Work per second of sessions under way: foreseen, or measured where nothing is.
    pub(super) fn of_sessions_per_s(&self) -> f64 {
        (self.per_s() - self.ordinary_per_s()).max(0.0)
    }

    /// What sessions under way leave of `rate` to first requests of newcomers and other bypass traffic.
    pub(super) fn entering_of(&self, rate: Rate) -> f64 {
        self.left_of(rate) + self.ordinary_per_s()
    }

    /// The part of a capacity of `rate` that first requests of newcomers get in the long run; 1 where that is
    /// not foreseen.
    pub(super) fn newcomers_part(&self, rate: Rate) -> f64 {
        if !self.is_foreseen() || rate == Rate::ZERO {
            return 1.0;
        }
        let available = left_of(rate.get(), self.others_per_s.load()) / rate.get();
        self.newcomers_share.load() * available / self.first_page_ratio()
    }

    /// Work of a newcomer's first page over that of its first request.
    pub(super) fn first_page_ratio(&self) -> f64 {
        self.first_page_ratio.load().max(1.0)
    }

    /// Whether it is known what sessions will ask for.
    pub(super) fn is_foreseen(&self) -> bool {
        self.newcomers_share.load() > 0.0
    }

    /// How fast the schedule is worked off at a capacity of `rate`.
    pub(super) fn outflow(&self, rate: Rate) -> Outflow {
        if !self.is_foreseen() || rate == Rate::ZERO {
            return Outflow::steady(self.left_of(rate));
        }
        let (per_s, others_per_s) = (self.per_s.load(), self.others_per_s.load());
        let sessions = Foreseen {
            per_s: (per_s - others_per_s).max(0.0),
            each_per_s: self.each_per_s.load(),
            newcomers_share: self.newcomers_share.load(),
        };
        Outflow::foreseen(left_of(rate.get(), others_per_s), sessions).over(self.first_page_ratio())
    }
}

/// What bypass traffic leaves of so many cost units per second.
fn left_of(rate: f64, bypass: f64) -> f64 {
    (rate - bypass).max(rate / MIN_LEFT)
}

/// The tick's part: averages what was counted.
pub(super) struct BypassMeter {
    others: Recent,
    sessions: Recent,
    /// What open sessions will ask for, where that is known.
    pub(super) expected: Option<ExpectedSessions>,
    /// Factor on what sessions are expected to ask for: while no reports come, the assumed capacity over the
    /// last reported one.
    pub(super) silence_discount: f64,
}

impl Default for BypassMeter {
    fn default() -> Self {
        Self { others: Recent::default(), sessions: Recent::default(), expected: None, silence_discount: 1.0 }
    }
}

impl BypassMeter {
    pub(super) fn tick(&mut self, bypass: &Bypass, dt_s: f64) {
        let others = self.others.tick(bypass.admitted.load(), dt_s);
        let sessions = self.sessions.tick(bypass.of_sessions.load(), dt_s);
        let mut foreseen = self.expected.unwrap_or_default();
        foreseen.per_s *= self.silence_discount;
        foreseen.each_per_s *= self.silence_discount;
        let measured = if self.expected.is_some() { 0.0 } else { sessions };
        bypass.per_s.store(others + measured + foreseen.per_s);
        bypass.others_per_s.store(others + measured);
        bypass.ordinary_per_s.store(others);
        bypass.each_per_s.store(foreseen.each_per_s);
        bypass.newcomers_share.store(foreseen.newcomers_share);
        bypass.first_page_ratio.store(foreseen.first_page_ratio);
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
        assert!((bypass.outflow(capacity).time_for(99.0) - 1.0).abs() < 1e-9);
        bypass.count(Cost::ONE);
        let (per_s, each_per_s, newcomers_share) = (60.0, 0.25, 0.125);
        meter.expected =
            Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first: 1.0, first_page_ratio: 1.0 });
        meter.tick(&bypass, 1.0);
        assert!((60.0..61.0).contains(&bypass.per_s()), "other bypass traffic is added: {}", bypass.per_s());
        assert!((39.0..40.0).contains(&bypass.left_of(capacity)));
        let hour_s = bypass.outflow(capacity).time_for(12.5 * 3_600.0);
        assert!((3_550.0..3_650.0).contains(&hour_s), "those who are let in will come back: {hour_s}");
    }

    #[test]
    fn newcomers_keep_their_part_of_an_assumed_capacity_that_falls() {
        let with = |silence_discount| {
            let (bypass, mut meter) =
                (Bypass::default(), BypassMeter { silence_discount, ..Default::default() });
            let (per_s, each_per_s, newcomers_share) = (80.0, 0.25, 0.125);
            let (first, first_page_ratio) = (1.0, 1.0);
            meter.expected =
                Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first, first_page_ratio });
            meter.tick(&bypass, 1.0);
            let capacity = Rate::per_second(100.0 * silence_discount).unwrap_or_default();
            (bypass.left_of(capacity), bypass.outflow(capacity).time_for(1_000.0))
        };
        let ((left, time_s), (left_of_half, time_at_half_s)) = (with(1.0), with(0.5));
        assert!((left - 20.0).abs() < 1e-9 && (left_of_half - 10.0).abs() < 1e-9, "{left_of_half}");
        assert!((time_at_half_s - 2.0 * time_s).abs() < 1e-6, "{time_s} s, {time_at_half_s} s");
    }

    #[test]
    fn of_what_is_left_first_requests_get_their_part_of_a_page() {
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        let with = |first_page_ratio: f64| {
            let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
            let (per_s, each_per_s, newcomers_share) = (30.0, 0.25, 0.7);
            meter.expected =
                Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first: 1.0, first_page_ratio });
            meter.tick(&bypass, 1.0);
            (bypass.left_of(capacity), bypass.outflow(capacity).work_within(600.0))
        };
        let ((left, within), (left_with_parts, within_with_parts)) = (with(1.0), with(7.0));
        assert_eq!((left, left_with_parts), (70.0, 10.0));
        assert!((within / within_with_parts - 7.0).abs() < 1e-9);
    }

    #[test]
    fn newcomers_have_the_part_of_the_capacity_that_first_requests_get_in_the_long_run() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        let capacity = Rate::per_second(100.0).unwrap_or_default();
        for _ in 0..1_000 {
            bypass.count(Cost::from_hundredths(200));
            bypass.count_session(Cost::ONE);
            meter.tick(&bypass, 0.1);
        }
        assert_eq!(bypass.newcomers_part(capacity), 1.0, "nothing is foreseen");
        assert!((bypass.entering_of(capacity) - 90.0).abs() < 0.1, "all but the requests of sessions");
        assert!((bypass.of_sessions_per_s() - 10.0).abs() < 0.1, "{}", bypass.of_sessions_per_s());
        let (per_s, each_per_s, newcomers_share) = (20.0, 0.25, 0.5);
        meter.expected =
            Some(ExpectedSessions { per_s, each_per_s, newcomers_share, first: 1.0, first_page_ratio: 4.0 });
        bypass.count(Cost::from_hundredths(200));
        meter.tick(&bypass, 0.1);
        // Of the 80/s that are left half are of first pages, of which first requests are a quarter.
        assert!((bypass.newcomers_part(capacity) - 0.1).abs() < 1e-3, "{}", bypass.newcomers_part(capacity));
        assert!((bypass.entering_of(capacity) - 35.0).abs() < 0.1, "{}", bypass.entering_of(capacity));
    }

    #[test]
    fn a_first_tick_is_no_rate() {
        let (bypass, mut meter) = (Bypass::default(), BypassMeter::default());
        bypass.count(Cost::ONE);
        meter.tick(&bypass, 0.001);
        assert_eq!(bypass.per_s(), 1.0);
    }
}
