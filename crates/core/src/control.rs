//! The control tick: what ended since the last one goes in, the tunables for the next tick come out.
//!
//! ```text
//! samples, backlog ─► estimator ─► estimate ─► bounds of the operator ─► tunables ─► room, gate
//! ```
//!
//! Everything slower than a request is decided here, on one thread; workers only read the [`Tunables`] published
//! last. Estimators see every request, in batches of a tick: the gate, which is locked at each end anyway, keeps them.

use std::time::Duration;

use crate::admission::Admission;
use crate::capacity::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use crate::gate::Totals;
use crate::mutants::{self, Mutant};
use crate::room::{ControlUpdate, RemoteOrigin, Room, RoomTargets};
use crate::units::{ClassId, Rate, Timestamp};

mod history;
mod silence;

pub use history::Change;
use history::History;
use silence::Silence;

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
    history: History,
    silence: Silence,
    /// The estimator's last.
    last: Option<Estimate>,
}

impl Control {
    /// A control side that starts from what the estimator starts from.
    pub fn new(estimator: Box<dyn Estimator>, bounds: Bounds) -> Self {
        Self { estimator, bounds, history: History::default(), silence: Silence::default(), last: None }
    }

    /// One tick: shows the estimator what ended since the last one and returns its estimate and what follows from it.
    pub fn tick(&mut self, samples: &[Sample], load: &GateLoad, now: Timestamp) -> (Tunables, Estimate) {
        for sample in samples {
            self.estimator.observe(sample);
        }
        let estimate = self.estimator.tick(load, now);
        self.last = Some(estimate);
        self.put_in_force(estimate, now)
    }

    /// One tick of the whole: looks where requests stand, has the estimator say what it believes, and sets the room
    /// accordingly. The in-flight limit is the caller's to hand to the gate, which may be behind a lock.
    ///
    /// `gate` is tier 2 as it is now and `samples` what it has kept; `is_origin_usable`: there is a replica to go to. With
    /// none the schedule stands still; when one comes back it goes on where it stood. In the two-process form tokencheck's
    /// samples go to tokengen, whose estimator sees them here, and whose limit tokencheck returns from here.
    pub fn steer(
        &mut self,
        desk: &Admission,
        gate: &Totals,
        is_origin_usable: bool,
        samples: &[Sample],
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let room = match desk {
            Admission::Room(room) => room,
            Admission::Checker { checker, .. } => {
                checker.observe(samples);
                desk.tick(gate, is_origin_usable, now);
                return self.ordered(desk, checker.orders(), now);
            }
        };
        let (tunables, estimate) = match room.remote_origin(now) {
            RemoteOrigin::Here => self.tick(samples, &load(room, gate, now), now),
            RemoteOrigin::Heard(gate, samples) => {
                self.silence = Silence::default();
                self.tick(&samples, &load(room, &gate, now), now)
            }
            RemoteOrigin::Silent(silence) => self.unheard(silence, now),
        };
        let keeps_queue = self.set_course(room, &tunables, now);
        room.look_out(keeps_queue && estimate.phase == Phase::Searching, now);
        desk.tick(gate, is_origin_usable, now);
        (tunables, estimate)
    }

    /// What follows from the last estimate under the bounds of now, put in force without a tick: no estimator is asked, and time
    /// does not go on for one. `None`: there is no estimate, or it is another process's; the next tick has it.
    pub fn reapply(&mut self, desk: &Admission, now: Timestamp) -> Option<Tunables> {
        let Admission::Room(room) = desk else { return None };
        let (tunables, _) = self.put_in_force(self.last?, now);
        self.set_course(room, &tunables, now);
        Some(tunables)
    }

    /// Has the room go by `tunables`; whether a queue is kept.
    fn set_course(&self, room: &Room, tunables: &Tunables, now: Timestamp) -> bool {
        let Tunables { capacity, outflow, .. } = *tunables;
        room.order_limit(tunables.max_in_flight, self.last.is_none_or(|last| last.confidence > 0.0));
        // Of a queue that nobody tells of, none can be kept: the rate governs until somebody does.
        let keeps_queue = tunables.keeps_queue && !self.silence.is_silent();
        if !mutants::is(Mutant::TargetsStayAsTheyWere) {
            let targets = RoomTargets { capacity, outflow, ceiling: self.bounds.capacity, keeps_queue };
            room.set_targets(&targets, now);
        }
        keeps_queue
    }

    /// Nothing is known of the origin: what was believed last, for a while.
    fn unheard(&mut self, silence: Duration, now: Timestamp) -> (Tunables, Estimate) {
        let Some(last) = self.last else { return self.tick(&[], &GateLoad::default(), now) };
        self.silence = Silence::new(silence, &last);
        let estimate = self.silence.decayed(&last, self.bounds.floor);
        self.put_in_force(estimate, now)
    }

    /// Tokencheck's: what tokengen has ordered, within its own operator's bound on requests in flight.
    fn ordered(
        &mut self,
        desk: &Admission,
        orders: Option<ControlUpdate>,
        now: Timestamp,
    ) -> (Tunables, Estimate) {
        let capacity = desk.capacity();
        let max_in_flight = orders.and_then(|orders| orders.max_in_flight);
        let confidence = if orders.is_none_or(|orders| orders.is_measured) { 1.0 } else { 0.0 };
        let estimate = Estimate { capacity, gain: 1.0, max_in_flight, phase: Phase::Configured, confidence };
        let (tunables, estimate) = self.put_in_force(estimate, now);
        let keeps_queue = orders.is_some_and(|orders| orders.keeps_queue);
        (Tunables { capacity, outflow: capacity, keeps_queue, ..tunables }, estimate)
    }

    fn put_in_force(&mut self, estimate: Estimate, now: Timestamp) -> (Tunables, Estimate) {
        let tunables = self.bounds.apply(&estimate);
        if self.history.is_news(tunables.capacity, estimate.phase) {
            let reason = self.state().reason;
            self.history.note(tunables.capacity, estimate.phase, reason, now);
        }
        (tunables, estimate)
    }

    /// The estimator, to be asked how it came to its estimate or told to look anew.
    pub fn estimator(&mut self) -> &mut dyn Estimator {
        &mut *self.estimator
    }

    /// How the capacity in force came about.
    pub fn state(&self) -> State {
        let mut state = self.estimator.state();
        if let Some(reason) = self.silence.reason() {
            state.reason = reason;
        }
        state
    }

    /// The changes of the capacity in force, the latest last.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Change> + ExactSizeIterator {
        self.history.changes()
    }

    /// An operator wants the capacity looked for anew (`POST /v1/capacity/rediscover`).
    pub fn rediscover(&mut self, now: Timestamp) {
        self.estimator.rediscover(now);
    }

    /// A class's id is another class's from now on.
    pub fn forget(&mut self, class: ClassId) {
        self.estimator.forget(class);
    }

    /// An operator sets the capacity (`PUT /v1/capacity`); in force from the next tick.
    pub fn set_capacity(&mut self, capacity: Rate, now: Timestamp) {
        self.estimator.set(capacity, now);
        // Also while nothing is heard of the origin: what was believed last does not count any more.
        self.last = None;
    }

    /// Puts another estimator in the place of the present one, of which nothing stays but the history.
    pub fn replace(&mut self, estimator: Box<dyn Estimator>) {
        self.estimator = estimator;
        self.last = None;
    }

    /// Changes the operator's bounds; in force from the next tick.
    pub fn reconfigure(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }
}

fn load(room: &Room, gate: &Totals, now: Timestamp) -> GateLoad {
    // Who waits for the place of a session says nothing of what the origin could take.
    let room_waits = room.busy(now) && !room.waits_for_places();
    GateLoad { room_waits, queued: gate.backlog(), in_flight: gate.in_flight }
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
