//! The control tick: passes the samples of the last tick to the estimator and returns the next tunables.
//!
//! ```text
//! samples, load ─► estimator ─► estimate ─► bounds of the operator ─► tunables ─► room, gate
//! ```
//!
//! Everything that is not done per request is decided here, on one thread; the workers only read the
//! [`Tunables`] published last. Estimators see every request, in one batch per tick: the gate is locked at
//! the end of each request anyway and keeps the samples.

use std::collections::VecDeque;
use std::time::Duration;

use crate::admission::Admission;
use crate::capacity::{Estimate, Estimator, GateLoad, Learned, LearnedCost, Phase, Sample, State, Trust};
use crate::gate::Totals;
use crate::mutants::{self, Mutant};
use crate::room::{ControlUpdate, RemoteOrigin, Room, RoomTargets};
use crate::units::{ClassId, Rate, Timestamp};

mod charging;
mod silence;

use charging::Charging;
use silence::Silence;

/// Time between two control ticks: short against the seconds on which decisions matter.
pub const TICK: Duration = Duration::from_millis(100);

/// Values that the control side sets and the request path obeys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tunables {
    /// Cost units per second that the room admits: the capacity, or more while the origin is probed.
    pub outflow: Rate,
    /// Cost units per second the origin can serve.
    pub capacity: Rate,
    /// Requests the gate lets the origin work on at once; `None`: no limit.
    pub max_in_flight: Option<u32>,
}

/// The operator's bounds on the tunables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Most cost units per second; [`Rate::MAX`] for none.
    pub capacity: Rate,
    /// Least cost units per second, even if the estimate is lower; [`Rate::ZERO`] for none.
    pub floor: Rate,
    /// Most requests at the origin at once; `None`: no bound.
    pub max_in_flight: Option<u32>,
}

/// Runs an estimator within the operator's bounds.
pub struct Control {
    estimator: Box<dyn Estimator>,
    charging: Charging,
    bounds: Bounds,
    history: History,
    silence: Silence,
    last: Option<Estimate>,
}

impl Control {
    /// A control side without history.
    pub fn new(estimator: Box<dyn Estimator>, bounds: Bounds) -> Self {
        let (charging, history, silence) = (Charging::new(), History::default(), Silence::default());
        Self { estimator, charging, bounds, history, silence, last: None }
    }

    /// One tick: passes the samples since the last to the estimator. Returns the tunables and its estimate.
    pub fn tick(&mut self, samples: &[Sample], load: &GateLoad, now: Timestamp) -> (Tunables, Estimate) {
        for sample in samples {
            self.estimator.observe(sample);
        }
        let estimate = self.estimator.tick(load, now);
        self.last = Some(estimate);
        self.put_in_force(estimate, now)
    }

    /// One tick of all parts: reads the load, asks the estimator, and sets the room's targets. The caller
    /// passes the in-flight limit to the gate, which may be behind a lock.
    ///
    /// `gate` is its present state, `samples` are those it has kept. `is_origin_usable`: a replica is
    /// available; without one the schedule stands still. In the two-process form tokencheck's samples go to
    /// tokengen, whose estimator sees them here and whose limit tokencheck applies here.
    pub fn steer(
        &mut self,
        admission: &Admission,
        gate: &Totals,
        is_origin_usable: bool,
        samples: &[Sample],
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let room = match admission {
            Admission::Room(room) => room,
            Admission::Checker { checker, .. } => {
                checker.observe(samples);
                admission.tick(gate, is_origin_usable, now);
                return self.apply_update(admission, checker.last_update(), now);
            }
        };
        self.charging.step(room.costs(), &mut *self.estimator);
        let (tunables, estimate) = match room.remote_origin(now) {
            RemoteOrigin::Here => self.tick(samples, &load(room, gate, Duration::ZERO, now), now),
            RemoteOrigin::Heard { gate, samples, age } => {
                self.silence = Silence::default();
                self.tick(&samples, &load(room, &gate, age, now), now)
            }
            RemoteOrigin::Silent(silence) => self.without_reports(silence, now),
        };
        self.set_room_targets(room, &tunables, now);
        room.look_out(self.is_limit_in_force() && estimate.phase == Phase::Searching, now);
        admission.tick(gate, is_origin_usable, now);
        (tunables, estimate)
    }

    /// Applies the present bounds to the last estimate, without a tick of the estimator. `None` if there is
    /// no estimate, or another process has it; the next tick applies the bounds then.
    pub fn reapply(&mut self, admission: &Admission, now: Timestamp) -> Option<Tunables> {
        let Admission::Room(room) = admission else { return None };
        self.charging.step(room.costs(), &mut *self.estimator);
        let (tunables, _) = self.put_in_force(self.last?, now);
        self.set_room_targets(room, &tunables, now);
        Some(tunables)
    }

    /// Whether the estimator's in-flight limit decides what the origin does. Without reports of the queue
    /// that it leaves, the rate has to.
    fn is_limit_in_force(&self) -> bool {
        !self.silence.is_silent() && self.last.is_some_and(|last| last.max_in_flight.is_some())
    }

    fn set_room_targets(&self, room: &Room, tunables: &Tunables, now: Timestamp) {
        let Tunables { capacity, outflow, .. } = *tunables;
        room.order_limit(tunables.max_in_flight, self.last.is_none_or(|last| last.confidence > 0.0));
        if !mutants::is(Mutant::TargetsStayAsTheyWere) {
            let ceiling = if self.is_limit_in_force() { self.bounds.capacity } else { outflow };
            room.set_targets(&RoomTargets { capacity, outflow, ceiling }, now);
        }
    }

    /// Without reports from the origin the last estimate holds for a while, and then decays.
    fn without_reports(&mut self, silence: Duration, now: Timestamp) -> (Tunables, Estimate) {
        let Some(last) = self.last else { return self.tick(&[], &GateLoad::default(), now) };
        self.silence = Silence::new(silence, &last);
        let estimate = self.silence.decayed(&last, self.bounds.floor);
        self.put_in_force(estimate, now)
    }

    /// In tokencheck: applies tokengen's update, within the bound of the own operator on requests in flight.
    fn apply_update(
        &mut self,
        admission: &Admission,
        update: Option<ControlUpdate>,
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let capacity = admission.capacity();
        let max_in_flight = update.and_then(|update| update.max_in_flight);
        let confidence = if update.is_none_or(|update| update.is_measured) { 1.0 } else { 0.0 };
        let estimate = Estimate { capacity, gain: 1.0, max_in_flight, phase: Phase::Configured, confidence };
        let (tunables, estimate) = self.put_in_force(estimate, now);
        (Tunables { capacity, outflow: capacity, ..tunables }, estimate)
    }

    fn put_in_force(&mut self, estimate: Estimate, now: Timestamp) -> (Tunables, Estimate) {
        let tunables = self.bounds.apply(&estimate);
        if self.history.is_news(tunables.capacity, estimate.phase) {
            let reason = self.state().reason;
            self.history.note(tunables.capacity, estimate.phase, reason, now);
        }
        (tunables, estimate)
    }

    /// The estimator, for its state and for commands.
    pub fn estimator(&mut self) -> &mut dyn Estimator {
        &mut *self.estimator
    }

    /// The state of the estimator, with the reason for the capacity in force.
    pub fn state(&self) -> State {
        let mut state = self.estimator.state();
        if let Some(reason) = self.silence.reason() {
            state.reason = reason;
        }
        state
    }

    /// The changes of the capacity in force, the latest last.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Change> + ExactSizeIterator {
        self.history.0.iter()
    }

    /// An operator requests a rediscovery (`POST /v1/capacity/rediscover`).
    pub fn rediscover(&mut self, now: Timestamp) {
        self.estimator.rediscover(now);
    }

    /// The id belongs to another class from now on.
    pub fn forget(&mut self, class: ClassId) {
        self.estimator.forget(class);
        self.charging.forget(class);
    }

    /// Begins from what an earlier process has learned. For a new estimator, before its first sample.
    pub fn resume(&mut self, learned: &Learned, trust: Trust, now: Timestamp) {
        self.estimator.resume(learned, trust, now);
        self.charging.resume();
    }

    /// What is known of the cost of a class; `None`: the estimator learns no costs.
    pub fn cost(&self, class: ClassId) -> Option<LearnedCost> {
        self.estimator.cost(class)
    }

    /// An operator sets the capacity (`PUT /v1/capacity`); in force from the next tick.
    pub fn set_capacity(&mut self, capacity: Rate, now: Timestamp) {
        self.estimator.set(capacity, now);
        // Without reports from the origin the last estimate would stay in force.
        self.last = None;
    }

    /// Replaces the estimator. The history remains, and the charged costs until the new one knows better.
    pub fn replace(&mut self, estimator: Box<dyn Estimator>) {
        self.estimator = estimator;
        self.charging.replaced();
        self.last = None;
    }

    /// Changes the operator's bounds; in force from the next tick.
    pub fn reconfigure(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
}

fn load(room: &Room, gate: &Totals, age: Duration, now: Timestamp) -> GateLoad {
    // Visitors who wait for a session slot are no backlog of the origin.
    let room_waits = room.busy(now) && !room.session_slots.are_limiting();
    GateLoad { room_waits, coming: room.coming(), queued: gate.backlog(), in_flight: gate.in_flight, age }
}

impl Bounds {
    fn apply(&self, estimate: &Estimate) -> Tunables {
        let within = |rate: f64| {
            let least = if rate > self.floor.get() { rate } else { self.floor.get() };
            let most = self.capacity.get();
            Rate::per_second(if least < most { least } else { most }).unwrap_or(self.capacity)
        };
        let capacity = within(estimate.capacity.get());
        // `None` means unlimited, so any number is the lesser.
        let limits = [self.max_in_flight, estimate.max_in_flight];
        Tunables {
            outflow: within(estimate.capacity.get() * estimate.gain.max(1.0)),
            capacity,
            max_in_flight: limits.into_iter().flatten().min(),
        }
    }
}

/// Least change of the capacity that is recorded, as a share: more than the noise of an estimator per tick.
const STEP: f64 = 0.05;
/// Changes kept: a day of a steady origin, some minutes of a search.
const MAX_CHANGES: usize = 64;

/// A change of the capacity in force.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    pub at: Timestamp,
    /// Cost units per second before; `None` in the first entry.
    pub from: Option<Rate>,
    pub to: Rate,
    pub phase: Phase,
    pub reason: String,
}

/// The last changes of the capacity in force: of its phase, or by more than [`STEP`] since the last.
#[derive(Default)]
struct History(VecDeque<Change>);

impl History {
    fn is_news(&self, capacity: Rate, phase: Phase) -> bool {
        let Some(last) = self.0.back() else { return true };
        let (to, from) = (capacity.get(), last.to.get());
        phase != last.phase || (to - from).abs() > STEP * from
    }

    fn note(&mut self, to: Rate, phase: Phase, reason: String, at: Timestamp) {
        if self.0.len() == MAX_CHANGES {
            self.0.pop_front();
        }
        let from = self.0.back().map(|last| last.to);
        self.0.push_back(Change { at, from, to, phase, reason });
    }
}
