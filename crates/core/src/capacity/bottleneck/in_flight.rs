//! The number in flight over time, and its mean over the life of a request.
//!
//! ```text
//! n = T / ∫ dt/n(t)     over the time T from when it was sent until it ended
//! ```
//!
//! The harmonic mean: of an origin that serves all requests at once a request gets 1/n of the time.
//!
//! With a backlog as many are in flight as the limit says. Where it falls, requests that end are not replaced
//! until so few are left. The number at every tick corrects what that misses.

use std::collections::VecDeque;

use crate::units::Timestamp;

/// Changes that are remembered: after a fall of the limit the number in flight changes with every request
/// that ends. Where it falls by more than this, the next responses count as in line.
const CHANGES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Change {
    at: Timestamp,
    /// Requests in flight from then on.
    to: f64,
    /// Sum of dt/n until then, in seconds.
    shares_s: f64,
}

impl Change {
    fn shares_s(&self, at: Timestamp) -> f64 {
        self.shares_s + at.since(self.at).as_secs_f64() / self.to.max(1.0)
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct InFlight {
    changes: VecDeque<Change>,
}

impl InFlight {
    pub fn now(&self) -> f64 {
        self.changes.back().map_or(0.0, |last| last.to)
    }

    /// So many are in flight from `at` on.
    pub fn set(&mut self, n: f64, at: Timestamp) {
        let (mut at, mut shares_s) = (at, 0.0);
        if let Some(last) = self.changes.back() {
            if last.to == n {
                return;
            }
            at = at.max(last.at);
            shares_s = last.shares_s(at);
        }
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Change { at, to: n, shares_s });
    }

    /// The limit is `limit` from `at` on, and others wait to be sent.
    pub fn fill(&mut self, limit: u32, at: Timestamp) {
        self.set(self.now().max(f64::from(limit)), at);
    }

    /// `count` requests ended. Others took the places of those within the limit.
    pub fn end(&mut self, count: f64, limit: u32, at: Timestamp) {
        let (now, limit) = (self.now(), f64::from(limit));
        if now > limit {
            self.set((now - count).max(limit), at);
        }
    }

    /// Harmonic mean over the life of a request; `None`: it began too long ago, or took no time.
    pub fn over(&self, sent: Timestamp, ended: Timestamp) -> Option<f64> {
        let mean = ended.since(sent).as_secs_f64() / (self.shares_s(ended)? - self.shares_s(sent)?);
        mean.is_finite().then_some(mean)
    }

    /// Forgets all but the present number.
    pub fn start_anew(&mut self, at: Timestamp) {
        let now = self.now();
        self.changes.clear();
        self.set(now, at);
    }

    fn shares_s(&self, at: Timestamp) -> Option<f64> {
        let later = self.changes.partition_point(|change| change.at <= at);
        Some(self.changes.get(later.checked_sub(1)?)?.shares_s(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_request_is_served_among_the_harmonic_mean_of_its_life() {
        let mut in_flight = InFlight::default();
        in_flight.set(2.0, ms(1000));
        in_flight.fill(4, ms(2000));
        let over = |from, to| in_flight.over(ms(from), ms(to));
        assert_eq!((over(1000, 2000), over(2000, 9000)), (Some(2.0), Some(4.0)));
        assert_eq!(over(1000, 3000), Some(2.0 / (0.5 + 0.25)), "a second among two and one among four");
        assert_eq!((over(500, 3000), over(3000, 3000)), (None, None), "nothing is known of it");
    }

    #[test]
    fn where_the_limit_falls_requests_that_end_are_not_replaced() {
        let mut in_flight = InFlight::default();
        in_flight.set(4.0, ms(0));
        in_flight.fill(3, ms(1000));
        in_flight.end(0.5, 3, ms(2000));
        in_flight.end(1.0, 3, ms(3000));
        in_flight.end(1.0, 3, ms(4000));
        let rounded = |from, to| in_flight.over(ms(from), ms(to)).map(|n| (n * 1e9).round() / 1e9);
        assert_eq!([0, 2000, 3000].map(|from| rounded(from, from + 1000)), [4.0, 3.5, 3.0].map(Some));
    }

    #[test]
    fn only_the_last_changes_are_remembered() {
        let mut in_flight = InFlight::default();
        (0..2 * CHANGES as u64).for_each(|i| in_flight.set(1.0 + (i % 2) as f64, ms(i)));
        let (middle, end) = (CHANGES as u64, 2 * CHANGES as u64);
        assert_eq!(in_flight.over(ms(middle - 1), ms(end)), None);
        assert!(in_flight.over(ms(middle), ms(end)).is_some());
    }
}
