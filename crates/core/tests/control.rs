//! The control tick: estimators by name, samples from a window, and the operator's bounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::capacity::*;
use tidegate_core::control::*;
use tidegate_core::measure::{Outcome, Shard, Snapshot, Window};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(100);
const FREE: Bounds = Bounds { capacity: Rate::MAX, max_in_flight: None };

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).unwrap()
}

fn quiet() -> Window {
    let snapshot = Snapshot::take([&Shard::new(1)], NOW);
    Window::between(&snapshot, &snapshot)
}

#[test]
fn estimators_are_made_by_name() {
    assert!(names().any(|n| n == "fixed"));
    for name in names() {
        assert!(by_name(name, Some(rate(10.0))).is_ok(), "{name}");
    }
    let Err(error) = by_name("fixd", None) else { panic!("`fixd` is no estimator") };
    assert_eq!(error.to_string(), "expected an estimator (`fixed`), got `fixd`");
}

#[test]
fn the_fixed_capacity_is_what_was_set_last() {
    let cases = [
        (None, None, Rate::MAX, 0.0),
        (Some(rate(80.0)), None, rate(80.0), 1.0),
        (Some(rate(80.0)), Some(rate(20.0)), rate(20.0), 1.0),
        (None, Some(Rate::ZERO), Rate::ZERO, 1.0),
    ];
    for (configured, set, capacity, confidence) in cases {
        let mut control = Control::new(by_name("fixed", configured).unwrap(), FREE, vec![]);
        if let Some(rate) = set {
            control.set_capacity(rate, NOW);
        }
        let (tunables, estimate) = control.tick(&quiet(), &Standing::default(), NOW);
        assert_eq!(tunables, Tunables { capacity, max_in_flight: None });
        assert_eq!((estimate.phase.name(), estimate.confidence), ("configured", confidence));
    }
}

/// Believes what it is told and keeps what it saw.
struct Scripted {
    belief: (Rate, Option<u32>),
    seen: Arc<Mutex<Vec<Sample>>>,
}

impl Estimator for Scripted {
    fn observe(&mut self, sample: &Sample, _now: Timestamp) {
        self.seen.lock().unwrap().push(*sample);
    }

    fn tick(&mut self, _now: Timestamp) -> Estimate {
        let (capacity, max_in_flight) = self.belief;
        Estimate { capacity, max_in_flight, phase: Phase::Searching, confidence: 0.5 }
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.belief.0 = capacity;
    }
}

#[test]
fn no_estimate_exceeds_the_operators_bounds() {
    let bounds = |capacity, max_in_flight| Bounds { capacity: rate(capacity), max_in_flight };
    let cases = [
        (bounds(50.0, None), (rate(80.0), None), 50.0, None),
        (bounds(50.0, None), (rate(30.0), Some(7)), 30.0, Some(7)),
        (bounds(50.0, Some(4)), (rate(30.0), Some(7)), 30.0, Some(4)),
        (bounds(50.0, Some(9)), (rate(30.0), Some(7)), 30.0, Some(7)),
        (bounds(50.0, Some(9)), (rate(0.0), None), 0.0, Some(9)),
    ];
    for (bounds, belief, capacity, max_in_flight) in cases {
        let mut control = Control::new(Box::new(Scripted { belief, seen: Arc::default() }), FREE, vec![]);
        control.reconfigure(bounds, vec![]);
        let (tunables, _) = control.tick(&quiet(), &Standing::default(), NOW);
        assert_eq!(tunables, Tunables { capacity: rate(capacity), max_in_flight }, "{bounds:?} {belief:?}");
    }
}

#[test]
fn an_estimator_sees_each_class_and_outcome_once_a_tick() {
    let shard = Shard::new(3);
    let before = Snapshot::take([&shard], NOW);
    for ms in [10, 20, 60] {
        shard.ended(ClassId(1), Outcome::Served, Duration::from_millis(ms));
    }
    shard.ended(ClassId(1), Outcome::OriginError, Duration::from_millis(2));
    shard.ended(ClassId(2), Outcome::ClientGone, Duration::from_millis(9));
    let window = Window::between(&before, &Snapshot::take([&shard], NOW + Duration::from_millis(100)));

    let seen = Arc::<Mutex<Vec<Sample>>>::default();
    let scripted = Scripted { belief: (Rate::MAX, None), seen: seen.clone() };
    let costs = vec![Cost::ONE, Cost::from_hundredths(250)];
    let mut control = Control::new(Box::new(scripted), FREE, costs);
    let waiting = [
        (Standing { in_flight: 5, ..Standing::default() }, false),
        (Standing { in_flight: 5, gate_queued: 1, ..Standing::default() }, true),
        (Standing { in_flight: 5, room_waiting: Cost::MIN, ..Standing::default() }, true),
    ];
    for (standing, backlog) in waiting {
        seen.lock().unwrap().clear();
        control.tick(&window, &standing, NOW);
        let served = Sample {
            class: ClassId(1),
            cost: Cost::from_hundredths(250),
            count: 3,
            response: Duration::from_millis(30),
            in_flight: 5,
            ok: true,
            backlog,
        };
        let failed = Sample { count: 1, response: Duration::from_millis(2), ok: false, ..served };
        assert_eq!(*seen.lock().unwrap(), [served, failed], "visitors who left are no sign of capacity");
    }
}

/// What workers share, and what crosses to the control thread.
#[test]
fn shared_types_cross_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<tidegate_core::ticket::KeyRing>();
    shared::<tidegate_core::classify::Classifier>();
    shared::<Shard>();
    sent::<tidegate_core::gate::Gate>();
    sent::<Control>();
}
