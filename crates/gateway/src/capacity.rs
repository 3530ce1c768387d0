//! Performs the capacity stage of the control side: runs the estimator on the ticks, keeps what it said last, and does to it
//! what an operator may (set, look anew, reconfigure).
//!
//! The decisions are `tidegate_core::capacity`'s and `tidegate_core::control`'s. A reload keeps what was learned: a new
//! ceiling or floor touches no estimator, and a new estimator starts from the capacity in force.

use tidegate_core::capacity::{Estimate, Load, Phase, Sample, State};
use tidegate_core::control::{Control as Steering, Tunables};
use tidegate_core::gate::Totals;
use tidegate_core::units::{Rate, Timestamp};

use crate::live::Live;
use crate::settings::Role;
use crate::shared::Shared;

/// The estimator at work.
pub struct Capacity {
    steering: Steering,
    tunables: Tunables,
    estimate: Estimate,
    rediscoveries: u64,
    /// Since it began to search last.
    has_settled: bool,
}

/// Why the capacity cannot be changed or looked for here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotHere {
    /// WebQ's second half.
    #[error("the capacity is kept by the tokengen process: ask there")]
    TokenCheck,
    /// Nothing is discovered.
    #[error(
        "the capacity is given (capacity.rate, or PUT /v1/capacity), not discovered: \
         there is nothing to look for; capacity.estimator chooses an algorithm"
    )]
    Given,
}

impl Capacity {
    /// An estimator that has seen nothing.
    pub fn new(live: &Live, now: Timestamp) -> Self {
        let mut steering = live.steering();
        let (tunables, estimate) = steering.tick(&[], &Load::default(), now);
        Self { steering, tunables, estimate, rediscoveries: 0, has_settled: false }
    }

    /// One tick: learns from `samples` and what the gate has kept since, and sets room and gate accordingly.
    pub fn tick(&mut self, shared: &Shared, samples: &mut Vec<Sample>, now: Timestamp) -> Totals {
        let gate = shared.gate.totals();
        shared.gate.take_samples(samples);
        let usable = shared.has_somewhere_to_go(&shared.live.load().settings.role);
        (self.tunables, self.estimate) = self.steering.steer(&shared.desk, &gate, usable, samples, now);
        if shared.desk.room().is_none() {
            // Tokencheck goes by what tokengen says.
            self.tunables.capacity = shared.desk.capacity();
            self.tunables.outflow = self.tunables.capacity;
        }
        shared.gate.set_limit(self.tunables.max_in_flight);
        self.count();
        gate
    }

    fn count(&mut self) {
        match self.estimate.phase {
            Phase::Settled => self.has_settled = true,
            Phase::Searching if self.has_settled => {
                self.has_settled = false;
                self.rediscoveries += 1;
            }
            Phase::Searching | Phase::Configured | Phase::Paused => {}
        }
    }

    /// An operator says what the capacity is; in force at once.
    ///
    /// # Errors
    /// The estimator works elsewhere.
    pub fn set(&mut self, shared: &Shared, rate: Rate, now: Timestamp) -> Result<(), NotHere> {
        if let Role::TokenCheck { .. } = shared.live.load().settings.role {
            return Err(NotHere::TokenCheck);
        }
        self.steering.set_capacity(rate, now);
        self.tick(shared, &mut Vec::new(), now);
        Ok(())
    }

    /// An operator wants the capacity looked for anew.
    ///
    /// # Errors
    /// It is not discovered, or not here.
    pub fn rediscover(&mut self, live: &Live, now: Timestamp) -> Result<(), NotHere> {
        match live.settings.role {
            Role::TokenCheck { .. } => Err(NotHere::TokenCheck),
            _ if !live.settings.discovers() => Err(NotHere::Given),
            _ => {
                self.steering.estimator().rediscover(now);
                Ok(())
            }
        }
    }

    /// Follows a reload. In force from the next tick.
    pub fn reconfigure(&mut self, old: &Live, new: &Live, now: Timestamp) {
        let is_same = old.settings.estimator() == new.settings.estimator();
        let (before, after) = (&old.settings.capacity, &new.settings.capacity);
        if !is_same || !after.is_tuned_like(before, new.settings.estimator()) {
            // "Unlimited" is nobody's finding.
            let known = Some(self.estimate.capacity).filter(|rate| *rate > Rate::ZERO && *rate < Rate::MAX);
            self.steering = Steering::new(new.estimator(known), new.bounds());
        } else if before.rate != after.rate && !new.settings.discovers() {
            match after.given() {
                Some(rate) => self.steering.set_capacity(rate, now),
                None => self.steering = new.steering(),
            }
        }
        self.steering.reconfigure(new.bounds());
    }

    /// The in-flight limit under `live`'s bounds: the operator's or the last estimate, whichever is less.
    pub fn limit(&self, live: &Live) -> Option<u32> {
        [live.bounds().max_in_flight, self.estimate.max_in_flight].into_iter().flatten().min()
    }

    /// What is in force.
    pub fn tunables(&self) -> Tunables {
        self.tunables
    }

    /// What the estimator said last.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// How the estimator came to it.
    pub fn state(&mut self) -> State {
        self.steering.estimator().state()
    }

    /// How often it began to look anew after it had settled, by itself or because it was told to.
    pub fn rediscoveries(&self) -> u64 {
        self.rediscoveries
    }
}
