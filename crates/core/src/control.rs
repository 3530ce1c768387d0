//! The control tick: what ended since the last one goes in, the tunables for the next tick come out.
//!
//! ```text
//! samples, backlog ─► estimator ─► estimate ─► bounds of the operator ─► tunables ─► room, gate
//! ```
//!
//! Everything slower than a request is decided here, on one thread; workers only read the [`Tunables`] published
//! last. Estimators see every request, in batches of a tick: the gate, which is locked at each end anyway, keeps them.

use std::time::Duration;

use crate::capacity::{Estimate, Estimator, Load, Sample};
use crate::desk::Desk;
use crate::gate::Totals;
use crate::room::Course;
use crate::units::{Rate, Timestamp};

/// Between two ticks of the control side: a visitor's page never waits long for a decision of second scale.
pub const TICK: Duration = Duration::from_millis(100);

/// What the control side sets and the request path obeys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tunables {
    /// Cost units per second that the room lets in: the capacity, or more while the origin is tried.
    pub outflow: Rate,
    /// Cost units per second the origin can serve.
    pub capacity: Rate,
    /// Requests the gate lets the origin work on at once; `None`: no limit.
    pub max_in_flight: Option<u32>,
    /// The estimator governs by the in-flight limit: the room keeps the gate's queue from running dry.
    pub keeps_queue: bool,
}

/// The operator's bounds, which no estimate exceeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Most cost units per second; [`Rate::MAX`] for none.
    pub capacity: Rate,
    /// Least cost units per second, also where the estimate is lower; [`Rate::ZERO`] for none.
    pub floor: Rate,
    /// Most requests at the origin at once; `None`: no bound.
    pub max_in_flight: Option<u32>,
}

/// Runs an estimator within the operator's bounds.
pub struct Control {
    estimator: Box<dyn Estimator>,
    bounds: Bounds,
}

impl Control {
    /// A control side that starts from what the estimator starts from.
    pub fn new(estimator: Box<dyn Estimator>, bounds: Bounds) -> Self {
        Self { estimator, bounds }
    }

    /// One tick: shows the estimator what ended since the last one and returns its estimate and what follows from it.
    pub fn tick(&mut self, samples: &[Sample], load: &Load, now: Timestamp) -> (Tunables, Estimate) {
        for sample in samples {
            self.estimator.observe(sample);
        }
        let estimate = self.estimator.tick(load, now);
        (self.bounds.apply(&estimate), estimate)
    }

    /// One tick of the whole: looks where requests stand, has the estimator say what it believes, and sets the room
    /// accordingly. The in-flight limit is the caller's to hand to the gate, which may be behind a lock.
    ///
    /// `gate` is tier 2 as it is now and `samples` what it has kept; `is_origin_usable`: there is a replica to go to. With
    /// none the schedule stands still; when one comes back it goes on where it stood.
    pub fn steer(
        &mut self,
        desk: &Desk,
        gate: &Totals,
        is_origin_usable: bool,
        samples: &[Sample],
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let load = Load { room_waits: desk.busy(now), queued: gate.queued, in_flight: gate.in_flight };
        let (tunables, estimate) = self.tick(samples, &load, now);
        let Tunables { capacity, outflow, keeps_queue, .. } = tunables;
        desk.steer(&Course { capacity, outflow, ceiling: self.bounds.capacity, keeps_queue }, now);
        desk.tick(gate, is_origin_usable, now);
        (tunables, estimate)
    }

    /// The estimator, to be asked how it came to its estimate or told to look anew.
    pub fn estimator(&mut self) -> &mut dyn Estimator {
        &mut *self.estimator
    }

    /// An operator sets the capacity (`PUT /v1/capacity`); in force from the next tick.
    pub fn set_capacity(&mut self, capacity: Rate, now: Timestamp) {
        self.estimator.set(capacity, now);
    }

    /// Changes the operator's bounds; in force from the next tick.
    pub fn reconfigure(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
}

impl Bounds {
    fn apply(&self, estimate: &Estimate) -> Tunables {
        let within = |rate: f64| {
            let least = if rate > self.floor.get() { rate } else { self.floor.get() };
            let most = self.capacity.get();
            Rate::per_second(if least < most { least } else { most }).unwrap_or(self.capacity)
        };
        let capacity = within(estimate.capacity.get());
        // `None` means unlimited, so it gives way to any number.
        let limits = [self.max_in_flight, estimate.max_in_flight];
        Tunables {
            outflow: within(estimate.capacity.get() * estimate.gain.max(1.0)),
            capacity,
            max_in_flight: limits.into_iter().flatten().min(),
            keeps_queue: estimate.max_in_flight.is_some(),
        }
    }
}
