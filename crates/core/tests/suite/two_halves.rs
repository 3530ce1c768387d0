//! Two processes: tokencheck's samples drive tokengen's estimator, whose limit is in force at tokencheck's
//! gate. Without reports the last estimate holds, then falls to the floor, and is resumed with the next
//! report.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::admission::Admission;
use tidegate_core::capacity::{Estimate, Estimator, GateLoad, Phase, Sample, State};
use tidegate_core::control::{Bounds, Control};
use tidegate_core::gate::{Gate, GateConfig, Request, Served};
use tidegate_core::room::{Checker, MAX_REPORTED_SAMPLES, REPORT_EVERY, Room, RoomConfig};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const TICK: Duration = Duration::from_millis(100);

/// Estimates 100 a second and twenty at once, and keeps its inputs.
#[derive(Default)]
struct Recorder {
    confidence: Arc<Mutex<f64>>,
    samples: Arc<Mutex<Vec<Sample>>>,
    loads: Arc<Mutex<Vec<GateLoad>>>,
}

impl Estimator for Recorder {
    fn observe(&mut self, sample: &Sample) {
        self.samples.lock().unwrap().push(*sample);
    }

    fn tick(&mut self, load: &GateLoad, _now: Timestamp) -> Estimate {
        self.loads.lock().unwrap().push(*load);
        let (capacity, max_in_flight, confidence) = (rate(100.0), Some(20), *self.confidence.lock().unwrap());
        Estimate { capacity, gain: 2.0, max_in_flight, phase: Phase::Settled, confidence }
    }

    fn set(&mut self, _capacity: Rate, _now: Timestamp) {}

    fn rediscover(&mut self, _now: Timestamp) {}

    fn state(&self) -> State {
        State { reason: "recorder".into(), ..State::default() }
    }
}

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).expect("a rate")
}

fn config() -> RoomConfig {
    RoomConfig {
        max_wait: Duration::from_secs(600),
        tolerance: Duration::from_secs(1),
        ..RoomConfig::default()
    }
}

/// A tokencheck with requests at its gate.
struct Check {
    admission: Admission,
    control: Control,
    gate: Gate,
    from: u64,
}

impl Check {
    fn new(from: u64) -> Self {
        let checker = Checker::new(&config(), rate(100.0), START);
        let max_queue_wait = Duration::from_secs(30);
        let gate =
            GateConfig { max_in_flight: None, max_queue: 1_000, max_queue_wait, ..GateConfig::default() };
        Self {
            admission: Admission::Checker { checker, capacity: Mutex::new(rate(100.0)) },
            control: Control::new(Box::new(Recorder::default()), UNBOUNDED),
            gate: Gate::new(&gate),
            from,
        }
    }

    fn checker(&self) -> &Checker {
        match &self.admission {
            Admission::Checker { checker, .. } => checker,
            Admission::Room(_) => panic!("a tokencheck"),
        }
    }

    /// `n` requests that took 50 ms among as many.
    fn serve(&mut self, n: u64, now: Timestamp) {
        for id in 0..n {
            self.gate.arrive(Request { id, class: ClassId(0), cost: Cost::ONE }, now);
        }
        let sent = now.saturating_sub(Duration::from_millis(50));
        while self.gate.in_flight_now() > 0 {
            let served = Served { sent, in_flight: n as u32, ok: true };
            self.gate.complete(ClassId(0), Cost::ONE, &served, now);
            while self.gate.next(now).is_some() {}
        }
    }

    fn tick(&mut self, now: Timestamp) -> Estimate {
        let mut samples = Vec::new();
        self.gate.take_samples(&mut samples);
        let (tunables, estimate) =
            self.control.steer(&self.admission, &self.gate.totals(), true, &samples, now);
        self.gate.set_limit(tunables.max_in_flight);
        estimate
    }
}

struct Gen {
    admission: Admission,
    control: Control,
    confidence: Arc<Mutex<f64>>,
    samples: Arc<Mutex<Vec<Sample>>>,
    loads: Arc<Mutex<Vec<GateLoad>>>,
}

impl Gen {
    fn new(bounds: Bounds) -> Self {
        let recorder = Recorder::default();
        let (samples, loads) = (recorder.samples.clone(), recorder.loads.clone());
        let confidence = recorder.confidence.clone();
        let admission = Admission::Room(Box::new(Room::new(config(), rate(100.0), START)));
        Self { admission, control: Control::new(Box::new(recorder), bounds), confidence, samples, loads }
    }

    fn tick(&mut self, now: Timestamp) -> Estimate {
        let idle = Gate::new(&GateConfig {
            max_in_flight: None,
            max_queue: 0,
            max_queue_wait: Duration::ZERO,
            ..GateConfig::default()
        });
        self.control.steer(&self.admission, &idle.totals(), true, &[], now).1
    }

    fn exchange(&self, check: &Check, now: Timestamp) {
        let mut report = check.checker().report(&check.gate.totals(), now);
        report.from = check.from;
        check.checker().follow(self.admission.room().expect("a room").feedback(&report), now);
    }
}

const UNBOUNDED: Bounds = Bounds { capacity: Rate::MAX, floor: Rate::ZERO, max_in_flight: None };

#[test]
fn tokenchecks_samples_reach_tokengens_estimator_and_its_limit_comes_back() {
    let (mut tokengen, mut check) = (Gen::new(UNBOUNDED), Check::new(1));
    let mut now = START;
    for _ in 0..10 {
        for _ in 0..5 {
            now = now + TICK;
            check.serve(8, now);
            check.tick(now);
            tokengen.tick(now);
        }
        check.gate.arrive(Request { id: 99, class: ClassId(0), cost: Cost::ONE }, now);
        tokengen.exchange(&check, now);
        check.gate.finish(ClassId(0), Cost::ONE, now);
    }
    tokengen.tick(now + TICK);
    check.tick(now + TICK);
    let samples = tokengen.samples.lock().unwrap();
    assert_eq!(samples.iter().map(|sample| sample.count).sum::<u64>(), 400);
    assert!(samples.iter().all(|s| s.in_flight == 8 && s.response == Duration::from_millis(50)));
    assert!(samples.is_sorted_by_key(|sample| sample.ended));
    let last = *tokengen.loads.lock().unwrap().last().unwrap();
    assert_eq!((last.in_flight, last.queued), (1, 0), "the load is that of tokencheck's gate");
    assert_eq!(check.gate.limit(), Some(20));
    assert!(check.checker().last_update().is_some_and(|update| update.ceiling == Rate::MAX));
}

#[test]
fn without_reports_the_estimate_holds_then_falls_to_the_floor_and_is_resumed() {
    for (floor, least) in [(0.0, 10.0), (40.0, 40.0)] {
        let (mut tokengen, mut check) = (Gen::new(Bounds { floor: rate(floor), ..UNBOUNDED }), Check::new(1));
        check.tick(START);
        tokengen.exchange(&check, START);
        assert_eq!(tokengen.tick(START + TICK).capacity, rate(100.0));
        tokengen.exchange(&check, START + TICK);
        let ticks = tokengen.loads.lock().unwrap().len();
        let held = tokengen.tick(START + Duration::from_secs(5));
        assert_eq!((held.capacity, held.phase, held.gain), (rate(100.0), Phase::Paused, 1.0));
        assert!(
            tokengen.control.state().reason.ends_with(": holding"),
            "{}",
            tokengen.control.state().reason
        );
        let falling = tokengen.tick(START + TICK + Duration::from_secs(15)).capacity.get();
        let expected = least + (100.0 - least) / std::f64::consts::E;
        assert!((falling - expected).abs() < 1.0, "{falling}, expected {expected}");
        assert!(tokengen.control.state().reason.ends_with("falling to the floor"));
        let fallen = tokengen.tick(START + Duration::from_secs(600)).capacity.get();
        assert!((fallen - least).abs() < 0.1, "{fallen}");
        assert_eq!(tokengen.loads.lock().unwrap().len(), ticks, "an estimator without samples is not asked");
        // The limit of the last update remains in force at tokencheck.
        check.tick(START + Duration::from_secs(600));
        assert_eq!(check.gate.limit(), Some(20));
        let back = START + Duration::from_secs(601);
        tokengen.exchange(&check, back);
        assert_eq!(tokengen.tick(back + TICK).capacity, rate(100.0));
        assert_eq!(tokengen.control.state().reason, "recorder");
        let reasons: Vec<_> = tokengen.control.history().map(|change| change.reason.as_str()).collect();
        assert!(reasons.iter().any(|reason| reason.ends_with("falling to the floor")), "{reasons:?}");
    }
}

#[test]
fn before_the_first_report_tokengens_estimator_is_not_asked() {
    let mut tokengen = Gen::new(UNBOUNDED);
    tokengen.tick(START);
    let request = tidegate_core::admission::AdmissionRequest {
        class: ClassId(0),
        cost: Cost::ONE,
        shown: tidegate_core::admission::Presented::Nothing,
        sends_on: true,
    };
    tokengen.admission.ask(&request, &mut || 1, &|_| {}, START);
    let ticks = tokengen.loads.lock().unwrap().len();
    assert_eq!(tokengen.tick(START + TICK).capacity, rate(100.0));
    assert_eq!(tokengen.loads.lock().unwrap().len(), ticks);
}

#[test]
fn tokencheck_knows_whether_visitors_wait_and_whether_the_capacity_was_measured() {
    let (mut tokengen, mut check) = (Gen::new(UNBOUNDED), Check::new(1));
    assert!(!check.admission.is_waited(START));
    assert_eq!(
        check.tick(START).confidence,
        1.0,
        "before the first update the capacity is the configured one"
    );
    let room = tokengen.admission.room().expect("a room");
    (0..500).for_each(|nonce| _ = room.arrive(ClassId(0), nonce, None, START));
    for (n, confidence) in [(1, 0.0), (2, 0.3)] {
        *tokengen.confidence.lock().unwrap() = confidence;
        let now = START + n * TICK;
        // After the first report the estimator is asked, the second one's answer has the estimate.
        for _ in 0..2 {
            tokengen.exchange(&check, now);
            tokengen.tick(now);
        }
        assert_eq!(check.tick(now).confidence > 0.0, confidence > 0.0);
        assert!(check.admission.is_waited(now), "visitors wait in tokengen's room");
    }
    let later = START + Duration::from_secs(60);
    tokengen.tick(later);
    tokengen.exchange(&check, later);
    assert!(!check.admission.is_waited(later));
}

#[test]
fn several_tokenchecks_share_the_limit() {
    let mut tokengen = Gen::new(UNBOUNDED);
    let mut checks = [Check::new(1), Check::new(2), Check::new(3)];
    let mut now = START;
    for _ in 0..6 {
        now = now + TICK;
        tokengen.tick(now);
        for check in &mut checks {
            check.serve(4, now);
            check.tick(now);
            tokengen.exchange(check, now);
        }
    }
    checks.iter_mut().for_each(|check| _ = check.tick(now));
    assert_eq!(checks[0].gate.limit(), Some(7), "a third of twenty");
    tokengen.samples.lock().unwrap().clear();
    tokengen.tick(now + TICK);
    assert!(tokengen.samples.lock().unwrap().iter().all(|sample| sample.in_flight == 12));
    // Two of them stop: the one that is left has all of it.
    let later = now + Duration::from_secs(3);
    tokengen.tick(later);
    tokengen.exchange(&checks[0], later);
    checks[0].tick(later);
    assert_eq!(checks[0].gate.limit(), Some(20));
}

#[test]
fn a_report_is_bounded_and_loses_no_request() {
    let mut check = Check::new(1);
    let mut reported = tidegate_core::room::Feedback::default();
    for n in 1..=2_000u64 {
        let now = START + Duration::from_millis(n);
        check.gate.arrive(Request { id: n, class: ClassId(0), cost: Cost::ONE }, now);
        let served = Served { sent: now, in_flight: n as u32, ok: true };
        check.gate.complete(ClassId(0), Cost::ONE, &served, now);
        if n % 500 == 0 {
            check.tick(now);
            reported.merge(check.checker().report(&check.gate.totals(), now));
        }
    }
    assert_eq!(reported.samples.len(), MAX_REPORTED_SAMPLES);
    assert_eq!(reported.samples.iter().map(|sample| sample.count).sum::<u64>(), 2_000);
    assert_eq!(reported.over, Duration::from_millis(2_000));
    assert!(REPORT_EVERY < reported.over);
}
