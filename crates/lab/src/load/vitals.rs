//! Whether the target still lives.
//!
//! A target is given up when connections have failed for ten seconds and nothing has answered in that time: a
//! restart takes less, and what is measured after it is of no use. Requests that break or take too long prove
//! nothing: an overloaded service does that, and is exactly what a bench is for. A crowd that has left before
//! the ten seconds are over, as a short one does, has met a dead target all the same if nothing answered any
//! more.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Time without any answer, counted from the first connection that failed, after which a target is given up.
const PATIENCE: Duration = Duration::from_secs(10);
const NEVER: u64 = u64::MAX;

pub(super) struct Vitals {
    /// When the first connection failed since the last answer, in microseconds since the start of the run.
    failing_since_us: AtomicU64,
    failed_last_us: AtomicU64,
}

impl Default for Vitals {
    fn default() -> Self {
        Self { failing_since_us: AtomicU64::new(NEVER), failed_last_us: AtomicU64::new(0) }
    }
}

impl Vitals {
    pub(super) fn answered(&self) {
        // Reading first keeps the cache line shared: this is called for every answer.
        if self.failing_since_us.load(Relaxed) != NEVER {
            self.failing_since_us.store(NEVER, Relaxed);
        }
    }

    pub(super) fn unreachable(&self, now: Duration) {
        let now_us = now.as_micros() as u64;
        let _ = self.failing_since_us.compare_exchange(NEVER, now_us, Relaxed, Relaxed);
        self.failed_last_us.fetch_max(now_us, Relaxed);
    }

    /// Why the run should end, if it should. Counted up to the last failure: a time in which nobody asked
    /// proves nothing.
    pub(super) fn given_up(&self) -> Option<String> {
        let since_us = self.failing_since_us.load(Relaxed);
        let lasted = Duration::from_micros(self.failed_last_us.load(Relaxed).saturating_sub(since_us));
        if lasted >= PATIENCE { self.gone() } else { None }
    }

    /// Why a run that is over is not whole, if the target was not there at its end.
    pub(super) fn gone(&self) -> Option<String> {
        let since = self.failing_since_us.load(Relaxed);
        (since != NEVER).then(|| {
            format!(
                "the target is gone: since second {:.1} nothing has answered and no connection was made",
                Duration::from_micros(since).as_secs_f64()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_target_is_given_up_after_ten_seconds_without_an_answer() {
        let vitals = Vitals::default();
        assert_eq!(vitals.given_up(), None, "nobody asked");
        vitals.unreachable(20 * SECOND);
        vitals.unreachable(29 * SECOND);
        assert_eq!(vitals.given_up(), None, "and nobody has asked since, however long");
        vitals.unreachable(30 * SECOND);
        let why = vitals.given_up().expect("ten seconds");
        assert!(why.contains("since second 20.0"), "{why}");
        vitals.answered();
        assert_eq!(vitals.given_up(), None, "it is back");
        vitals.unreachable(41 * SECOND);
        vitals.unreachable(50 * SECOND);
        assert_eq!(vitals.given_up(), None, "counted anew");
        vitals.unreachable(51 * SECOND);
        assert!(vitals.given_up().is_some());
    }

    #[test]
    fn a_target_that_is_gone_at_the_end_is_reported_however_short_the_run() {
        let vitals = Vitals::default();
        assert_eq!(vitals.gone(), None);
        vitals.unreachable(2 * SECOND);
        assert!(vitals.gone().is_some_and(|why| why.contains("since second 2.0")));
        vitals.answered();
        assert_eq!(vitals.gone(), None, "it came back");
    }
}
