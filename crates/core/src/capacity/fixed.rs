//! The capacity that an operator has configured: no algorithm, but the baseline of all comparisons.

use super::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use crate::units::{Rate, Timestamp};

/// The estimator `fixed`: holds one capacity until another is set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fixed {
    capacity: Option<Rate>,
}

impl Fixed {
    /// `None`: unlimited until a capacity is set.
    pub fn new(capacity: Option<Rate>) -> Self {
        Self { capacity }
    }
}

impl Estimator for Fixed {
    fn observe(&mut self, _sample: &Sample) {}

    fn tick(&mut self, _load: &GateLoad, _now: Timestamp) -> Estimate {
        Estimate {
            capacity: self.capacity.unwrap_or(Rate::MAX),
            gain: 1.0,
            max_in_flight: None,
            phase: Phase::Configured,
            confidence: if self.capacity.is_some() { 1.0 } else { 0.0 },
        }
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.capacity = Some(capacity);
    }

    fn rediscover(&mut self, _now: Timestamp) {}

    fn state(&self) -> State {
        let reason = if self.capacity.is_some() { "as configured" } else { "no capacity is configured" };
        State { reason: reason.into(), ..State::default() }
    }
}
