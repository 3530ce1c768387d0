//! What classes whose cost is learned are charged: decided here, on the control tick.
//!
//! An estimator tells what it has learned and how well ([`LearnedCost`]). The charged cost is 1 at first. It
//! moves to the learned cost w once the two differ by more than chance and by more than it is worth:
//!
//! ```text
//! | ln (w / charged) | > max(5 %, 2 e)        e: relative standard error of w
//! ```
//!
//! One rule does three things. A class of which little is known stays at 1, because its error is wide. The
//! charged cost comes closer as the evidence grows, because the band narrows with 1/√n. Afterwards it rests:
//! estimates of an unchanged origin stay within their error, and 5 % is less than a difference in hardness
//! that anybody would notice in a wait. The logarithm treats a class that costs half as one that costs twice.
//!
//! Rejected: shrinking w towards 1 by its error. It moves with every sample, so it needs a band besides; and
//! an estimate that is right is charged too little or too much for as long as it is noisy.
//!
//! **No feedback.** Estimators learn relative to 1, or to the operator's number, and never relative to what
//! is charged. Charges only change the unit in which they publish the capacity ([`Estimator::charge`]).

use crate::capacity::{Estimator, LearnedCost};
use crate::class_costs::{ClassCosts, LEARNED_FROM};
use crate::units::{ClassId, Cost, MAX_CLASSES};

/// Least relative change.
const STEP: f64 = 0.05;
/// Standard errors by which learned and charged cost must differ.
const DIFFERS: f64 = 2.0;
/// Bounds of a charged cost that is learned, in cost units: those of the learned one.
const LEAST: f64 = 0.02;
const MOST: f64 = 50.0;

pub(super) struct Charging {
    /// What the estimator was told last, by class.
    told: Vec<Option<Cost>>,
    /// Ids that belong to other classes now.
    forgotten: Vec<ClassId>,
    /// Costs that were learned before the restart are charged at once.
    resumes: bool,
}

impl Charging {
    pub(super) fn new() -> Self {
        Self { told: vec![None; MAX_CLASSES], forgotten: Vec::new(), resumes: false }
    }

    /// The estimator is another one. What is charged stays until the new one knows better.
    pub(super) fn replaced(&mut self) {
        self.told.fill(None);
    }

    pub(super) fn resume(&mut self) {
        self.resumes = true;
    }

    pub(super) fn forget(&mut self, class: ClassId) {
        self.forgotten.push(class);
    }

    /// Puts what was learned until the last tick in force, in `costs` and in the estimator.
    pub(super) fn step(&mut self, costs: &ClassCosts, estimator: &mut dyn Estimator) {
        for class in self.forgotten.drain(..) {
            costs.charge(class, LEARNED_FROM);
        }
        // Before it is asked: its answers are in the unit of the classes that have numbers.
        self.tell(costs, estimator);
        for (class, charged) in costs.learned() {
            let next = match estimator.cost(class) {
                None => LEARNED_FROM,
                Some(known) if self.resumes && known.samples > 0.0 => rounded(known.units),
                Some(known) => next(charged, &known),
            };
            if next != charged {
                costs.charge(class, next);
            }
        }
        self.resumes = false;
        self.tell(costs, estimator);
    }

    fn tell(&mut self, costs: &ClassCosts, estimator: &mut dyn Estimator) {
        for (class, told) in (0..=u8::MAX).map(ClassId).zip(&mut self.told) {
            let charged = costs.is_learned(class).then(|| costs.charged(class));
            if *told != charged {
                estimator.charge(class, charged);
                *told = charged;
            }
        }
    }
}

fn next(charged: Cost, known: &LearnedCost) -> Cost {
    let difference = (known.units / charged.units()).ln().abs();
    if difference > STEP.max(DIFFERS * known.error) { rounded(known.units) } else { charged }
}

fn rounded(units: f64) -> Cost {
    Cost::class_cost(units.clamp(LEAST, MOST)).unwrap_or(LEARNED_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::{Estimate, GateLoad, Phase, Sample, State};
    use crate::class_costs::CostSource;
    use crate::units::{Rate, Timestamp};

    const CLASS: ClassId = ClassId(0);

    /// Says this of every class, and keeps what it is told.
    #[derive(Default)]
    struct Says {
        cost: Option<LearnedCost>,
        told: Vec<(ClassId, Option<Cost>)>,
    }

    impl Estimator for Says {
        fn observe(&mut self, _sample: &Sample) {}

        fn tick(&mut self, _load: &GateLoad, _now: Timestamp) -> Estimate {
            let (capacity, phase) = (Rate::ZERO, Phase::Settled);
            Estimate { capacity, gain: 1.0, max_in_flight: None, phase, confidence: 1.0 }
        }

        fn set(&mut self, _capacity: Rate, _now: Timestamp) {}

        fn rediscover(&mut self, _now: Timestamp) {}

        fn charge(&mut self, class: ClassId, charged: Option<Cost>) {
            self.told.push((class, charged));
        }

        fn cost(&self, _class: ClassId) -> Option<LearnedCost> {
            self.cost
        }

        fn state(&self) -> State {
            State::default()
        }
    }

    struct World {
        charging: Charging,
        costs: ClassCosts,
        estimator: Says,
    }

    impl World {
        fn new() -> Self {
            let costs = ClassCosts::new(&[CostSource::Learned]);
            Self { charging: Charging::new(), costs, estimator: Says::default() }
        }

        /// What is charged when the estimator has learned this.
        fn learned(&mut self, units: f64, error: f64) -> f64 {
            self.says(Some(LearnedCost { units, error, samples: 100.0 }))
        }

        fn says(&mut self, cost: Option<LearnedCost>) -> f64 {
            self.estimator.cost = cost;
            self.charging.step(&self.costs, &mut self.estimator);
            self.costs.charged(CLASS).units()
        }
    }

    #[test]
    fn a_cost_moves_when_the_difference_is_more_than_chance_and_worth_it() {
        let mut world = World::new();
        for (units, error, charged) in [
            (5.0, f64::INFINITY, 1.0),
            (5.0, 0.9, 1.0),
            (2.7, 0.45, 2.7),
            // Within two errors of what is charged.
            (3.5, 0.15, 2.7),
            (4.9, 0.05, 4.9),
            (5.1, 0.01, 4.9),
            (4.7, 0.01, 4.9),
            (5.16, 0.01, 5.16),
            (0.2, 0.01, 0.2),
            (0.0004, 0.01, 0.02),
            (900.0, 0.01, 50.0),
        ] {
            assert_eq!(world.learned(units, error), charged, "{units} with an error of {error}");
        }
    }

    #[test]
    fn an_estimator_is_told_once_and_a_new_one_again() {
        let mut world = World::new();
        world.learned(1.0, 0.1);
        world.learned(2.0, 0.1);
        world.learned(2.0, 0.1);
        let two = Cost::from_hundredths(200);
        let expected = [(CLASS, Some(Cost::ONE)), (CLASS, Some(two))];
        assert_eq!(world.estimator.told, expected);
        world.charging.replaced();
        assert_eq!(world.says(Some(LearnedCost::UNKNOWN)), 2.0);
        assert_eq!(world.estimator.told.last(), Some(&(CLASS, Some(two))));
        world.costs.configure(&[two.into()]);
        world.says(Some(LearnedCost::UNKNOWN));
        assert_eq!(world.estimator.told.last(), Some(&(CLASS, None)), "it is a number now");
    }

    #[test]
    fn a_class_that_takes_over_an_id_and_an_estimator_without_costs_begin_from_one() {
        let mut world = World::new();
        assert_eq!(world.learned(3.0, 0.1), 3.0);
        world.charging.forget(CLASS);
        assert_eq!(world.says(Some(LearnedCost::UNKNOWN)), 1.0);
        assert_eq!(world.learned(3.0, 0.1), 3.0);
        assert_eq!(world.says(None), 1.0);
    }

    #[test]
    fn a_cost_from_before_a_restart_is_charged_at_once() {
        let mut world = World::new();
        world.charging.resume();
        assert_eq!(world.learned(1.09, 0.08), 1.09);
        assert_eq!(world.learned(1.16, 0.08), 1.09, "once");
    }
}
