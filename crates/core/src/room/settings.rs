//! The room's settings, and the part of them that requests read.

use std::time::Duration;

use super::types::MAX_WAIT;
use crate::class_costs::CostSource;
use crate::sync::{Atomic, AtomicF64};
use crate::units::Rate;

/// Cost units that may enter in one instant, however small the origin.
const MIN_BURST_UNITS: f64 = 10.0;
/// Longest burst: the paper's rule, a second's worth of visitors.
const MAX_BURST: Duration = Duration::from_secs(1);
/// Longest grace that the schedule is made for.
const MAX_GRACE_S: u64 = 86_400;
/// Seconds of schedule beyond what the settings ask for: charges past the longest wait, clock skew.
pub(super) const SLACK_S: u64 = 64;

/// Settings of the room; the meaning of each is in the configuration's `[room]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomConfig {
    /// Longest wait for which a ticket is given.
    pub max_wait: Duration,
    /// How late a visitor may come with a ticket that is still good.
    pub grace: Duration,
    /// How early a visitor may come.
    pub tolerance: Duration,
    /// Capacity's worth of visitors that may enter in one instant, at most a second's.
    pub burst: Duration,
    /// Most promises per second, as a multiple of capacity.
    pub overbook_max: f64,
    /// Who gets the new room when capacity rises: newcomers (`true`, WebQ III-D) or the waiting in order.
    pub rise_to_newcomers: bool,
    /// Part of the longest wait that may be promised to one address prefix, however little of it is free; 1
    /// and more: no bound.
    pub prefix_share: f64,
    /// Whether tickets due before this process started are still good.
    pub after_restart_accept: bool,
    /// Cost per class; a class without one costs [`crate::units::Cost::ONE`].
    pub class_costs: Vec<CostSource>,
}

impl Default for RoomConfig {
    /// The settings' defaults for a gateway in one process, whose requests cost one unit each.
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(60),
            tolerance: Duration::ZERO,
            burst: Duration::from_millis(200),
            overbook_max: 1.5,
            rise_to_newcomers: false,
            prefix_share: 0.25,
            after_restart_accept: true,
            class_costs: Vec::new(),
        }
    }
}

impl RoomConfig {
    /// Seconds of schedule that the settings ask for: the longest wait twice, as the clock may lag as much.
    pub(super) fn schedule_s(&self) -> u64 {
        2 * self.max_wait.as_secs().clamp(1, MAX_WAIT.as_secs())
            + self.grace.as_secs().min(MAX_GRACE_S)
            + SLACK_S
    }
}

pub(super) struct RequestSettings {
    burst: Atomic<Duration>,
    max_wait: Atomic<Duration>,
    prefix_share: AtomicF64,
}

impl RequestSettings {
    pub(super) fn new(config: &RoomConfig) -> Self {
        let settings = Self {
            burst: Atomic::new(Duration::ZERO),
            max_wait: Atomic::new(MAX_WAIT),
            prefix_share: AtomicF64::new(1.0),
        };
        settings.configure(config);
        settings
    }

    pub(super) fn configure(&self, config: &RoomConfig) {
        self.burst.store(config.burst);
        self.max_wait.store(config.max_wait.min(MAX_WAIT));
        self.prefix_share.store(config.prefix_share);
    }

    pub(super) fn max_wait(&self) -> Duration {
        self.max_wait.load()
    }

    pub(super) fn prefix_share(&self) -> f64 {
        self.prefix_share.load()
    }

    /// Time at capacity whose visitors may enter in one instant. Small origins, which take less than ten
    /// visitors in the burst that is set, get a longer one.
    pub(super) fn burst(&self, capacity: Rate) -> Duration {
        let least = (MIN_BURST_UNITS / capacity.get()).min(1.0);
        self.burst.load().max(Duration::from_secs_f64(least)).min(MAX_BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_origins_get_a_longer_burst() {
        let settings = RequestSettings::new(&RoomConfig::default());
        for (per_s, burst_ms) in [(1_000.0, 200), (20.0, 500), (1.0, 1_000), (0.0, 1_000)] {
            let capacity = Rate::per_second(per_s).unwrap_or_default();
            assert_eq!(settings.burst(capacity), Duration::from_millis(burst_ms), "{per_s}/s");
        }
    }

    #[test]
    fn the_schedule_holds_the_longest_wait_twice() {
        let config = RoomConfig { max_wait: Duration::from_secs(100), ..RoomConfig::default() };
        assert_eq!(config.schedule_s(), 200 + 60 + SLACK_S);
        let absurd = RoomConfig { max_wait: Duration::MAX, grace: Duration::MAX, ..config };
        assert_eq!(absurd.schedule_s(), 3 * 86_400 + SLACK_S);
    }
}
