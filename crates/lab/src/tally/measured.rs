//! Figures of the measured part of a closed loop, from the time when all browsers are there.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::MAX_RESPONSE_US;
use crate::stats::{add_fields, ratio};
use crate::visitor_events::SessionEnd;

#[derive(Clone, Debug)]
pub(super) struct Measured {
    from: Duration,
    to: Duration,
    response_us: Histogram<u64>,
    sum_us: u64,
    sessions: Sessions,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sessions {
    good: u64,
    slow: u64,
    broken: u64,
    turned_away: u64,
}

impl Measured {
    pub fn new(from: Duration, to: Duration) -> Self {
        let response_us = Histogram::new_with_bounds(1, MAX_RESPONSE_US, 3).expect("sensible bounds");
        Self { from, to, response_us, sum_us: 0, sessions: Sessions::default() }
    }

    pub fn span(&self) -> (Duration, Duration) {
        (self.from, self.to)
    }

    /// A request was served at `now`, after `us` microseconds.
    pub fn served(&mut self, us: u64, now: Duration) {
        if (self.from..self.to).contains(&now) {
            self.response_us.saturating_record(us);
            self.sum_us += us;
        }
    }

    pub fn session(&mut self, end: SessionEnd, now: Duration) {
        if !(self.from..self.to).contains(&now) {
            return;
        }
        *match end {
            SessionEnd::Good => &mut self.sessions.good,
            SessionEnd::Slow => &mut self.sessions.slow,
            SessionEnd::Broken => &mut self.sessions.broken,
            SessionEnd::TurnedAway => &mut self.sessions.turned_away,
        } += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        self.response_us.add(&other.response_us).expect("histograms of the same bounds");
        self.sum_us += other.sum_us;
        add_fields!(self.sessions, other.sessions; good, slow, broken, turned_away);
    }

    /// The figures; of a run that ended at `lasted`, up to there.
    pub fn figures(&self, lasted: Duration) -> [(&'static str, f64); 10] {
        let seconds = lasted.min(self.to).saturating_sub(self.from).as_secs_f64();
        let (served, max_ms) = (self.response_us.len() as f64, self.response_us.max() as f64 / 1000.0);
        let ms = |q| (self.response_us.value_at_quantile(q) as f64 / 1000.0).min(max_ms);
        let Sessions { good, slow, broken, turned_away } = self.sessions;
        let per_min = |count: u64| ratio(60.0 * count as f64, seconds);
        [
            ("steady_seconds", seconds),
            ("steady_goodput_rps", ratio(served, seconds)),
            ("steady_response_mean_ms", ratio(self.sum_us as f64 / 1000.0, served)),
            ("steady_response_p50_ms", ms(0.5)),
            ("steady_response_p99_ms", ms(0.99)),
            ("steady_response_max_ms", max_ms),
            ("good_sessions_per_min", per_min(good)),
            ("whole_sessions_per_min", per_min(good + slow)),
            ("broken_sessions_per_min", per_min(broken)),
            ("turned_away_per_min", per_min(turned_away)),
        ]
    }

    pub fn keys() -> [&'static str; 10] {
        Self::new(Duration::ZERO, Duration::ZERO).figures(Duration::ZERO).map(|(key, _)| key)
    }
}
