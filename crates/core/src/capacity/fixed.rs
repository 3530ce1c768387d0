//! The capacity that an operator or another system gives: no algorithm, but the baseline of all comparisons.

use super::{Bottleneck, BottleneckConfig, Estimate, Estimator, GateLoad, LearnedCost, Phase, Sample, State};
use crate::units::{ClassId, Cost, Rate, Timestamp};

/// The estimator `fixed`: holds one capacity until another is set.
///
/// Until there is one it discovers the capacity: somebody who is to give it (an estimator outside the gate)
/// is not there yet or no longer, and a gate that lets everybody in until then is none.
pub struct Fixed {
    given: Option<Given>,
    until_given: Bottleneck,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Given {
    Configured(Rate),
    Set(Rate),
}

impl Fixed {
    /// `None`: until a capacity is set it is discovered, as `until_given` says.
    pub fn new(capacity: Option<Rate>, until_given: BottleneckConfig) -> Self {
        Self { given: capacity.map(Given::Configured), until_given: Bottleneck::new(until_given, None) }
    }
}

impl Estimator for Fixed {
    fn observe(&mut self, sample: &Sample) {
        if self.given.is_none() {
            self.until_given.observe(sample);
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        let Some(Given::Configured(capacity) | Given::Set(capacity)) = self.given else {
            return self.until_given.tick(load, now);
        };
        // "Unlimited" says nothing about the origin.
        let confidence = if capacity < Rate::MAX { 1.0 } else { 0.0 };
        Estimate { capacity, gain: 1.0, max_in_flight: None, phase: Phase::Configured, confidence }
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.given = Some(Given::Set(capacity));
    }

    fn rediscover(&mut self, now: Timestamp) {
        if self.given.is_none() {
            self.until_given.rediscover(now);
        }
    }

    fn forget(&mut self, class: ClassId) {
        self.until_given.forget(class);
    }

    fn charge(&mut self, class: ClassId, charged: Option<Cost>) {
        self.until_given.charge(class, charged);
    }

    /// A capacity that is given counts requests whose cost is not learned.
    fn cost(&self, class: ClassId) -> Option<LearnedCost> {
        if self.given.is_none() { self.until_given.cost(class) } else { None }
    }

    fn state(&self) -> State {
        let reason = match self.given {
            None => {
                let state = self.until_given.state();
                return State { reason: format!("no capacity is given yet: {}", state.reason), ..state };
            }
            Some(Given::Configured(_)) => "as configured",
            Some(Given::Set(_)) => "as set",
        };
        State { reason: reason.into(), ..State::default() }
    }
}
