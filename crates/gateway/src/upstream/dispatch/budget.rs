//! The retry budget: retries are limited to a share of requests, so that an outage does not double the load.
//!
//! A token bucket: each request puts `share` of a token in, each retry takes one out, and a trickle of
//! [`FLOOR_PER_S`] keeps retries possible on a quiet gate. The bucket holds [`CAPACITY`] tokens and starts
//! full, which covers the requests in flight when a replica dies. As in Finagle's `RetryBudget`; rejected: a
//! fixed number of retries per request, which multiplies the load of an overloaded origin.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Most retries at once, per worker.
pub const CAPACITY: f64 = 100.0;

/// Retries per second and worker that are allowed without any requests to earn them.
pub const FLOOR_PER_S: f64 = 1.0;

#[derive(Debug)]
pub struct Budget {
    share: Cell<f64>,
    tokens: Cell<f64>,
    refilled: Cell<Instant>,
}

impl Budget {
    /// `share` of requests, 0..=1; 0: no retries at all.
    pub fn new(share: f64, now: Instant) -> Self {
        Self { share: Cell::new(share), tokens: Cell::new(CAPACITY), refilled: Cell::new(now) }
    }

    pub fn set_share(&self, share: f64) {
        self.share.set(share);
    }

    pub fn deposit(&self) {
        self.tokens.set((self.tokens.get() + self.share.get()).min(CAPACITY));
    }

    /// Takes one retry, if there is one.
    pub fn withdraw(&self, now: Instant) -> bool {
        let quiet: Duration = now.saturating_duration_since(self.refilled.replace(now));
        let tokens = (self.tokens.get() + quiet.as_secs_f64() * FLOOR_PER_S).min(CAPACITY);
        let allowed = self.share.get() > 0.0 && tokens >= 1.0;
        self.tokens.set(if allowed { tokens - 1.0 } else { tokens });
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_follow_requests_with_a_small_floor() {
        let start = Instant::now();
        let budget = Budget::new(0.2, start);
        let drain = |now| std::iter::repeat_with(|| budget.withdraw(now)).take_while(|ok| *ok).count();
        assert_eq!(drain(start), 100, "starts full");
        (0..1000).for_each(|_| budget.deposit());
        assert!((99..=100).contains(&drain(start)), "capped at the capacity");
        (0..100).for_each(|_| budget.deposit());
        assert!((19..=20).contains(&drain(start)), "a fifth of the requests");
        let later = start + Duration::from_secs(10);
        assert!((9..=11).contains(&drain(later)), "one a second");
        budget.set_share(0.0);
        assert_eq!(drain(later + Duration::from_secs(1000)), 0, "none at share zero");
    }
}
