//! The virtual backlog: work admitted but not yet done by an origin of the given capacity.
//!
//! Held as the instant when that work will be done (the theoretical arrival time of the generic cell rate
//! algorithm, ITU-T I.371 annex A): admitting is one addition, and time takes the work off.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::units::{Cost, Rate, Timestamp};

/// Largest backlog that is kept when the capacity changes, in seconds.
const MAX_RESCALED_S: f64 = 3_600.0;

pub(super) struct Backlog {
    clear_ns: AtomicU64,
}

impl Backlog {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { clear_ns: AtomicU64::new(now.as_micros() * 1_000) }
    }

    pub(super) fn add(&self, cost: Cost, capacity: Rate) {
        self.clear_ns.fetch_add(nanos(cost, capacity), Ordering::Relaxed);
    }

    /// Takes back what [`Backlog::add`] added: the work will not come.
    pub(super) fn remove(&self, cost: Cost, capacity: Rate) {
        self.clear_ns.fetch_sub(nanos(cost, capacity), Ordering::Relaxed);
    }

    /// Bounds the backlog to `longest` at capacity, whatever was added.
    pub(super) fn bound(&self, now: Timestamp, longest: Duration) {
        let longest = (now + longest).as_micros().saturating_mul(1_000);
        self.clear_ns.fetch_min(longest, Ordering::Relaxed);
    }

    /// In seconds at capacity; negative if the origin had time to spare.
    pub(super) fn seconds(&self, now: Timestamp) -> f64 {
        let clear = self.clear_ns.load(Ordering::Relaxed) as i64;
        (clear - (now.as_micros() * 1_000) as i64) as f64 / 1e9
    }

    /// Forgets spare time beyond `burst_s`: an origin cannot work in advance. Returns the seconds forgotten.
    pub(super) fn forget_spare(&self, now: Timestamp, burst_s: f64) -> f64 {
        let floor = (now.as_micros() * 1_000).saturating_sub((burst_s * 1e9) as u64);
        let clear = self.clear_ns.fetch_max(floor, Ordering::Relaxed);
        floor.saturating_sub(clear) as f64 / 1e9
    }

    pub(super) fn rescale(&self, now: Timestamp, from: Rate, to: Rate) {
        let ratio = if to > Rate::ZERO && from > Rate::ZERO { from.get() / to.get() } else { 0.0 };
        let seconds = (self.seconds(now) * ratio).clamp(-1.0, MAX_RESCALED_S);
        let clear = (now.as_micros() * 1_000) as i64 + (seconds * 1e9) as i64;
        self.clear_ns.store(clear.max(0) as u64, Ordering::Relaxed);
    }
}

/// Time that the work takes; none where the origin is closed.
fn nanos(cost: Cost, capacity: Rate) -> u64 {
    if capacity > Rate::ZERO { (cost.units() / capacity.get() * 1e9) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_falls_with_time() {
        let (start, capacity) = (Timestamp::from_secs(1_000), Rate::per_second(10.0).unwrap_or_default());
        let backlog = Backlog::new(start);
        backlog.add(Cost::from_hundredths(3_000), capacity);
        assert_eq!(backlog.seconds(start), 3.0);
        backlog.remove(Cost::from_hundredths(1_000), capacity);
        assert_eq!(backlog.seconds(start + Duration::from_secs(1)), 1.0);
        backlog.rescale(start, capacity, Rate::per_second(5.0).unwrap_or_default());
        assert_eq!(backlog.seconds(start), 4.0, "the same work at half the capacity");
        backlog.bound(start, Duration::from_secs(1));
        assert_eq!(backlog.seconds(start), 1.0);
        backlog.add(Cost::MAX, Rate::ZERO);
        assert_eq!(backlog.seconds(start), 1.0, "a closed origin has no backlog in seconds");
    }

    #[test]
    fn spare_time_is_kept_for_a_burst() {
        let start = Timestamp::from_secs(1_000);
        let backlog = Backlog::new(start);
        let now = start + Duration::from_secs(5);
        assert_eq!(backlog.forget_spare(now, 0.5), 4.5);
        assert_eq!(backlog.seconds(now), -0.5);
        assert_eq!(backlog.forget_spare(now, 0.5), 0.0);
    }
}
