//! The control tick: estimators by name, samples of the gate, and the operator's bounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::admission::{self, Admission, AdmissionRequest};
use tidegate_core::capacity::*;
use tidegate_core::control::*;
use tidegate_core::gate::{Gate, GateConfig, Leaving, Request, Served, Totals};
use tidegate_core::measure::Shard;
use tidegate_core::room::{Room, RoomConfig};
use tidegate_core::session::SessionPace;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use super::samples::SERVED;

const NOW: Timestamp = Timestamp::from_secs(100);
const FREE: Bounds = Bounds { capacity: Rate::MAX, floor: Rate::ZERO, max_in_flight: None };

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).unwrap()
}

#[test]
fn estimators_are_created_by_name() {
    assert!(names().any(|n| n == "fixed"));
    for name in names() {
        assert!(by_name(name, &Options { rate: Some(rate(10.0)), ..Options::default() }).is_ok(), "{name}");
    }
    let Err(error) = by_name("fixd", &Options::default()) else { panic!("`fixd` is no estimator") };
    let error = error.to_string();
    assert!(
        error.starts_with("expected an estimator (`fixed`") && error.ends_with(", got `fixd`"),
        "{error}"
    );
}

#[test]
fn the_fixed_capacity_is_what_was_set_last() {
    let cases = [
        (Some(Rate::MAX), None, Rate::MAX, 0.0),
        (Some(rate(80.0)), None, rate(80.0), 1.0),
        (Some(rate(80.0)), Some(rate(20.0)), rate(20.0), 1.0),
        (None, Some(Rate::ZERO), Rate::ZERO, 1.0),
    ];
    for (configured, set, capacity, confidence) in cases {
        let mut control = Control::new(Box::new(Fixed::new(configured, BottleneckConfig::default())), FREE);
        if let Some(rate) = set {
            control.set_capacity(rate, NOW);
        }
        let (tunables, estimate) = control.tick(&[], &GateLoad::default(), NOW);
        let expected = Tunables { capacity, outflow: capacity, max_in_flight: None };
        assert_eq!(tunables, expected);
        assert_eq!((estimate.phase.name(), estimate.confidence), ("configured", confidence));
    }
}

#[test]
fn a_capacity_that_is_still_to_be_given_is_discovered_and_not_unlimited() {
    let mut awaiting = Control::new(Box::new(Fixed::new(None, BottleneckConfig::default())), FREE);
    let mut discovers = Control::new(Box::new(Bottleneck::new(BottleneckConfig::default(), None)), FREE);
    let served = Sample { in_flight: 4, ..SERVED };
    for ms in (0..2_000).step_by(100) {
        let now = NOW + Duration::from_millis(ms);
        let samples = [Sample { ended: now, ..served }; 5];
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: 4, age: Duration::ZERO };
        assert_eq!(awaiting.tick(&samples, &load, now), discovers.tick(&samples, &load, now), "{ms} ms");
    }
    assert!(awaiting.state().samples > 0);
    awaiting.set_capacity(rate(20.0), NOW);
    let (tunables, _) = awaiting.tick(&[], &GateLoad::default(), NOW);
    assert_eq!((tunables.capacity, tunables.max_in_flight), (rate(20.0), None));
}

/// Returns a fixed estimate and records its inputs.
struct Scripted {
    estimate: Estimate,
    seen: Arc<Mutex<Vec<Sample>>>,
    loads: Arc<Mutex<Vec<GateLoad>>>,
}

impl Scripted {
    fn new(capacity: f64, gain: f64, max_in_flight: Option<u32>) -> Self {
        let capacity = rate(capacity);
        let estimate = Estimate { capacity, gain, max_in_flight, phase: Phase::Searching, confidence: 0.5 };
        Self { estimate, seen: Arc::default(), loads: Arc::default() }
    }
}

impl Estimator for Scripted {
    fn observe(&mut self, sample: &Sample) {
        self.seen.lock().unwrap().push(*sample);
    }

    fn tick(&mut self, load: &GateLoad, _now: Timestamp) -> Estimate {
        self.loads.lock().unwrap().push(*load);
        self.estimate
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.estimate.capacity = capacity;
    }

    fn rediscover(&mut self, _now: Timestamp) {}

    fn state(&self) -> State {
        State::default()
    }
}

#[test]
fn no_estimate_exceeds_the_operators_bounds() {
    let bounds = |floor, capacity, max_in_flight| Bounds {
        capacity: rate(capacity),
        floor: rate(floor),
        max_in_flight,
    };
    // (bounds, estimated capacity, gain, limit) -> (capacity, outflow, limit)
    let cases = [
        (bounds(0.0, 50.0, None), (80.0, 1.0, None), (50.0, 50.0, None)),
        (bounds(0.0, 50.0, None), (30.0, 1.0, Some(7)), (30.0, 30.0, Some(7))),
        (bounds(0.0, 50.0, None), (30.0, 1.5, Some(7)), (30.0, 45.0, Some(7))),
        (bounds(0.0, 50.0, None), (30.0, 2.0, Some(7)), (30.0, 50.0, Some(7))),
        (bounds(0.0, 50.0, Some(4)), (30.0, 1.0, Some(7)), (30.0, 30.0, Some(4))),
        (bounds(0.0, 50.0, Some(9)), (30.0, 0.5, Some(7)), (30.0, 30.0, Some(7))),
        (bounds(0.0, 50.0, Some(9)), (0.0, 1.0, None), (0.0, 0.0, Some(9))),
        (bounds(20.0, 50.0, None), (0.0, 1.0, None), (20.0, 20.0, None)),
        (bounds(20.0, 50.0, None), (15.0, 2.0, None), (20.0, 30.0, None)),
        (bounds(60.0, 50.0, None), (15.0, 1.0, None), (50.0, 50.0, None)),
    ];
    for (bounds, (estimated, gain, limit), (capacity, outflow, max_in_flight)) in cases {
        let mut control = Control::new(Box::new(Scripted::new(estimated, gain, limit)), FREE);
        control.reconfigure(bounds);
        let (tunables, _) = control.tick(&[], &GateLoad::default(), NOW);
        let expected = Tunables { outflow: rate(outflow), capacity: rate(capacity), max_in_flight };
        assert_eq!(tunables, expected, "{bounds:?} {estimated} {gain} {limit:?}");
    }
}

#[test]
fn the_history_records_changes_above_the_noise() {
    let mut control = Control::new(Box::new(Scripted::new(100.0, 1.0, None)), FREE);
    let estimate = |per_s: f64, control: &mut Control| {
        control.set_capacity(rate(per_s), NOW);
        control.tick(&[], &GateLoad::default(), NOW);
    };
    for per_s in [100.0, 104.0, 96.0, 106.0, 102.0, 0.0, 0.0] {
        estimate(per_s, &mut control);
    }
    let recorded = |control: &Control| control.history().map(|c| (c.from, c.to)).collect::<Vec<_>>();
    let first = [(None, rate(100.0)), (Some(rate(100.0)), rate(106.0)), (Some(rate(106.0)), Rate::ZERO)];
    assert_eq!(recorded(&control), first);
    for i in 0..200 {
        estimate(f64::from(10 * (1 + i % 2)), &mut control);
    }
    assert_eq!(control.history().len(), 64);
    assert_eq!(control.history().next_back().map(|c| (c.from, c.to)), Some((Some(rate(10.0)), rate(20.0))));
}

#[test]
fn the_sample_of_a_stream_ends_with_the_head_of_the_answer() {
    let ms = |ms| NOW + Duration::from_millis(ms);
    let mut gate = Gate::new(&GateConfig {
        max_in_flight: Some(1),
        max_queue: 10,
        max_queue_wait: Duration::from_secs(30),
        ..GateConfig::default()
    });
    for id in [1, 2] {
        gate.arrive(Request { id, class: ClassId(0), cost: Cost::ONE }, ms(0));
    }
    let served = Served { sent: ms(0), in_flight: 1, ok: true };
    gate.stream(ClassId(0), Cost::ONE, &served, ms(40), ms(1_040));
    assert_eq!(
        gate.next(ms(1_040)).and_then(Leaving::forwarded).map(|woken| woken.id),
        Some(2),
        "the slot is released"
    );
    let mut samples = Vec::new();
    gate.take_samples(&mut samples);
    gate.complete(ClassId(0), Cost::ONE, &Served { sent: ms(1_040), ..served }, ms(1_140));
    gate.take_samples(&mut samples);
    let recorded =
        samples.iter().map(|s| (s.response.as_millis(), s.lingered.as_millis(), s.ended, s.backlog));
    let expected = [(40, 1_000, ms(40), true), (100, 0, ms(1_140), false)];
    assert_eq!(recorded.collect::<Vec<_>>(), expected, "response time and time lingered");
}

#[test]
fn an_estimator_observes_the_answers_of_the_origin() {
    let ms = |ms| NOW + Duration::from_millis(ms);
    let (cheap, costly) = (Cost::ONE, Cost::from_hundredths(250));
    let mut gate = Gate::new(&GateConfig {
        max_in_flight: Some(2),
        max_queue: 10,
        max_queue_wait: Duration::from_secs(30),
        ..GateConfig::default()
    });
    for (id, cost) in [(1, cheap), (2, costly), (3, cheap)] {
        gate.arrive(Request { id, class: ClassId(id as u8), cost }, ms(0));
    }
    let served = |in_flight, sent, ok| Served { sent: ms(sent), in_flight, ok };
    gate.complete(ClassId(1), cheap, &served(1, 0, true), ms(40));
    assert_eq!(gate.next(ms(40)).and_then(Leaving::forwarded).map(|woken| woken.id), Some(3));
    gate.complete(ClassId(2), costly, &served(2, 0, false), ms(50));
    gate.finish(ClassId(3), cheap, ms(60));

    let scripted = Scripted::new(80.0, 1.0, None);
    let seen = scripted.seen.clone();
    let mut control = Control::new(Box::new(scripted), FREE);
    let mut samples = Vec::new();
    gate.take_samples(&mut samples);
    control.tick(&samples, &GateLoad::default(), ms(100));
    let response = Duration::from_millis(40);
    let first = Sample { class: ClassId(1), cost: cheap, ended: ms(40), response, ..SERVED };
    let second = Sample {
        class: ClassId(2),
        cost: costly,
        ended: ms(50),
        response: Duration::from_millis(50),
        in_flight: 2,
        ok: false,
        backlog: false,
        ..first
    };
    assert_eq!(*seen.lock().unwrap(), [first, second], "visitors who left do not count");
    samples.clear();
    gate.take_samples(&mut samples);
    assert_eq!(samples, [], "each sample is passed on once");
}

#[test]
fn samples_beyond_a_bound_are_merged() {
    let config = GateConfig {
        max_in_flight: None,
        max_queue: 0,
        max_queue_wait: Duration::ZERO,
        ..GateConfig::default()
    };
    let mut gate = Gate::new(&config);
    let requests = 40_000;
    for id in 0..requests {
        gate.arrive(Request { id, class: ClassId(0), cost: Cost::ONE }, NOW);
    }
    let ended = NOW + Duration::from_millis(30);
    for _ in 0..requests {
        gate.complete(ClassId(0), Cost::ONE, &Served { sent: NOW, in_flight: 1, ok: true }, ended);
    }
    let mut samples = Vec::new();
    gate.take_samples(&mut samples);
    assert_eq!(samples.iter().map(|s| s.count).sum::<u64>(), requests);
    assert!(samples.len() < 20_000, "{}", samples.len());
    assert!(samples.iter().all(|s| s.response == Duration::from_millis(30)));
}

/// Types shared by workers, and types that move to the control thread.
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

#[test]
fn visitors_who_wait_for_a_session_slot_are_no_backlog_of_the_origin() {
    let config = RoomConfig { max_wait: Duration::from_secs(600), ..RoomConfig::default() };
    for (free, is_for_origin) in [(Some(1), false), (Some(10_000), true), (None, true)] {
        let admission = Admission::Room(Box::new(Room::new(config.clone(), rate(100.0), NOW)));
        let pace = free.map(|free| SessionPace { free: Some(free), per_s: 0.1, next_s: 0.0 });
        let scripted = Scripted::new(100.0, 1.0, None);
        let loads = scripted.loads.clone();
        let mut control = Control::new(Box::new(scripted), FREE);
        for ticks in 1..10 {
            let now = NOW + TICK * ticks;
            for n in 0..100 {
                let asking = AdmissionRequest {
                    class: ClassId(0),
                    cost: Cost::ONE,
                    shown: admission::Presented::Nothing,
                    sends_on: false,
                };
                admission.ask(&asking, &mut || u64::from(ticks * 100 + n), &|_| {}, now);
            }
            admission.pace_sessions(pace);
            control.steer(&admission, &Totals::default(), true, &[], now);
        }
        // Newcomers count from the next tick on.
        let loads = loads.lock().unwrap();
        assert!(loads[2..].iter().all(|l| l.room_waits == is_for_origin), "{free:?} free: {loads:?}");
    }
}
