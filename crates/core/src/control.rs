//! The control tick: what was measured goes in, the tunables for the next tick come out.
//!
//! ```text
//! window, backlog ─► samples ─► estimator ─► estimate ─► bounds of the operator ─► tunables
//! ```
//!
//! Everything slower than a request is decided here, on one thread; workers only read the [`Tunables`] published
//! last. Estimators are fed from the window's sums, one sample per class and outcome, rather than from every
//! request: a tick then costs the same at any load, and no queue leads from the workers to the control thread.

use std::time::Duration;

use crate::capacity::{Estimate, Estimator, Sample};
use crate::desk::Desk;
use crate::gate::Totals;
use crate::measure::Window;
use crate::units::{ClassId, Cost, Rate, Timestamp};

/// Between two ticks of the control side: a visitor's page never waits long for a decision of second scale.
pub const TICK: Duration = Duration::from_millis(100);
/// Work that stands for "the origin is gone": the schedule's hand stands still.
const ORIGIN_GONE: Cost = Cost::from_hundredths(u64::MAX / 4);

/// What the control side sets and the request path obeys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tunables {
    /// Cost units per second that the room lets in.
    pub capacity: Rate,
    /// Requests the gate lets the origin work on at once; `None`: no limit.
    pub max_in_flight: Option<u32>,
}

/// The operator's bounds, which no estimate exceeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Most cost units per second; [`Rate::MAX`] for none.
    pub capacity: Rate,
    /// Most requests at the origin at once; `None`: no bound.
    pub max_in_flight: Option<u32>,
}

/// Where requests stand at the tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Work promised to visitors in the waiting room.
    pub room_waiting: Cost,
    /// Requests in the gate's queue.
    pub gate_queued: usize,
    /// Requests at the origin.
    pub in_flight: u32,
}

/// Runs an estimator within the operator's bounds.
pub struct Control {
    estimator: Box<dyn Estimator>,
    bounds: Bounds,
    /// By class id; beyond the end, [`Cost::ONE`].
    costs: Vec<Cost>,
}

impl Control {
    /// `costs` is the cost of each class by its id.
    pub fn new(estimator: Box<dyn Estimator>, bounds: Bounds, costs: Vec<Cost>) -> Self {
        Self { estimator, bounds, costs }
    }

    /// One tick: shows the estimator what ended within `window` and returns its estimate and what follows from it.
    pub fn tick(&mut self, window: &Window, standing: &Standing, now: Timestamp) -> (Tunables, Estimate) {
        let backlog = standing.gate_queued > 0 || standing.room_waiting > Cost::ZERO;
        for (id, class) in window.classes().iter().enumerate() {
            let sample = |count, ok, response| Sample {
                class: ClassId(id as u8),
                cost: self.costs.get(id).copied().unwrap_or(Cost::ONE),
                count,
                response,
                in_flight: standing.in_flight,
                ok,
                backlog,
            };
            if let Some(mean) = class.response.mean() {
                self.estimator.observe(&sample(class.served, true, mean), now);
            }
            if let Some(mean_us) = (class.error_time.as_micros() as u64).checked_div(class.origin_errors) {
                let mean = Duration::from_micros(mean_us);
                self.estimator.observe(&sample(class.origin_errors, false, mean), now);
            }
        }
        let estimate = self.estimator.tick(now);
        (self.bounds.apply(&estimate), estimate)
    }

    /// One tick of the whole: looks where requests stand, has the estimator say what it believes, and sets the room
    /// accordingly. The in-flight limit is the caller's to hand to the gate, which may be behind a lock.
    ///
    /// `gate` is tier 2 as it is now; `is_origin_usable`: there is a replica to go to. With none the schedule stands still;
    /// when one comes back it goes on where it stood.
    pub fn steer(
        &mut self,
        desk: &Desk,
        gate: &Totals,
        is_origin_usable: bool,
        window: &Window,
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let standing = Standing {
            room_waiting: if desk.busy(now) { Cost::ONE } else { Cost::ZERO },
            gate_queued: gate.queued,
            in_flight: gate.in_flight,
        };
        let (tunables, estimate) = self.tick(window, &standing, now);
        desk.publish(tunables.capacity, now);
        desk.tick(now, if is_origin_usable { gate.queued_cost } else { ORIGIN_GONE });
        (tunables, estimate)
    }

    /// An operator sets the capacity (`PUT /v1/capacity`); in force from the next tick.
    pub fn set_capacity(&mut self, capacity: Rate, now: Timestamp) {
        self.estimator.set(capacity, now);
    }

    /// Changes the operator's bounds and the classes' costs; in force from the next tick.
    pub fn reconfigure(&mut self, bounds: Bounds, costs: Vec<Cost>) {
        self.bounds = bounds;
        self.costs = costs;
    }
}

impl Bounds {
    fn apply(&self, estimate: &Estimate) -> Tunables {
        let capacity = if estimate.capacity > self.capacity { self.capacity } else { estimate.capacity };
        // `None` means unlimited, so it gives way to any number.
        let limits = [self.max_in_flight, estimate.max_in_flight];
        Tunables { capacity, max_in_flight: limits.into_iter().flatten().min() }
    }
}
