//! What requests of each class cost: the one place that everything that charges them reads.
//!
//! The operator gives a class a number, or has its cost learned ([`CostSource`]). A learned cost begins at
//! [`LEARNED_FROM`] and changes while the gate runs, on the control tick only ([`crate::control`]). A request
//! reads the charged cost with one atomic load, once, and keeps it: a ticket carries its cost to its
//! redemption, and a request that waits at the gate leaves with the cost that it came with.

use crate::sync::{Atomic, AtomicBool, Ordering};
use crate::units::{ClassId, Cost, MAX_CLASSES};

/// What a class costs until its cost is learned, and the unit that it is learned in: an average request.
pub const LEARNED_FROM: Cost = Cost::ONE;

/// Where the cost of a class comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostSource {
    /// The operator's number.
    Configured(Cost),
    Learned,
}

impl From<Cost> for CostSource {
    fn from(cost: Cost) -> Self {
        Self::Configured(cost)
    }
}

/// The costs in force, by class id. Shared by all workers.
#[derive(Debug)]
pub struct ClassCosts {
    charged: Box<[Atomic<Cost>]>,
    is_learned: Box<[AtomicBool]>,
}

impl ClassCosts {
    /// A class that is not in `sources` costs [`Cost::ONE`].
    pub fn new(sources: &[CostSource]) -> Self {
        let costs = Self {
            charged: (0..MAX_CLASSES).map(|_| Atomic::new(Cost::ONE)).collect(),
            is_learned: (0..MAX_CLASSES).map(|_| AtomicBool::new(false)).collect(),
        };
        costs.configure(sources);
        costs
    }

    /// Follows a reload. A class whose cost was learned and still is keeps it.
    pub fn configure(&self, sources: &[CostSource]) {
        for (id, (charged, is_learned)) in self.charged.iter().zip(&self.is_learned).enumerate() {
            match sources.get(id).copied().unwrap_or(CostSource::Configured(Cost::ONE)) {
                CostSource::Configured(cost) => {
                    is_learned.store(false, Ordering::Relaxed);
                    charged.store(cost);
                }
                CostSource::Learned if !is_learned.swap(true, Ordering::Relaxed) => {
                    charged.store(LEARNED_FROM);
                }
                CostSource::Learned => {}
            }
        }
    }

    /// What a request of the class is charged now.
    pub fn charged(&self, class: ClassId) -> Cost {
        self.charged[class.index()].load()
    }

    /// What every class is charged now, by id.
    pub fn all(&self) -> Vec<Cost> {
        self.charged.iter().map(Atomic::load).collect()
    }

    pub fn is_learned(&self, class: ClassId) -> bool {
        self.is_learned[class.index()].load(Ordering::Relaxed)
    }

    /// Charges `cost` from now on, at least [`Cost::MIN`]. A number of the operator stays.
    pub fn charge(&self, class: ClassId, cost: Cost) {
        if self.is_learned(class) {
            self.charged[class.index()].store(cost.clamp(Cost::MIN, Cost::MAX));
        }
    }

    /// The classes whose cost is learned, with what they are charged.
    pub fn learned(&self) -> impl Iterator<Item = (ClassId, Cost)> + '_ {
        let all = (0..=u8::MAX).map(ClassId);
        all.filter(|class| self.is_learned(*class)).map(|class| (class, self.charged(class)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const THREE: Cost = Cost::from_hundredths(300);

    #[test]
    fn a_number_stays_and_a_learned_cost_moves() {
        let costs = ClassCosts::new(&[CostSource::Configured(THREE), CostSource::Learned]);
        let charged = |id| costs.charged(ClassId(id));
        assert_eq!((charged(0), charged(1), charged(255)), (THREE, Cost::ONE, Cost::ONE));
        costs.charge(ClassId(0), Cost::MAX);
        costs.charge(ClassId(1), Cost::ZERO);
        assert_eq!((charged(0), charged(1)), (THREE, Cost::MIN));
        assert_eq!(costs.learned().collect::<Vec<_>>(), [(ClassId(1), Cost::MIN)]);
    }

    #[test]
    fn a_reload_keeps_a_cost_that_is_still_learned() {
        let costs = ClassCosts::new(&[CostSource::Learned, CostSource::Learned]);
        costs.charge(ClassId(0), THREE);
        costs.charge(ClassId(1), THREE);
        costs.configure(&[CostSource::Learned, CostSource::Configured(Cost::MIN)]);
        assert_eq!((costs.charged(ClassId(0)), costs.charged(ClassId(1))), (THREE, Cost::MIN));
        costs.configure(&[CostSource::Configured(Cost::MIN), CostSource::Learned]);
        assert_eq!((costs.charged(ClassId(0)), costs.charged(ClassId(1))), (Cost::MIN, LEARNED_FROM));
    }
}
