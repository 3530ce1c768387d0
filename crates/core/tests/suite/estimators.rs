//! Properties of all estimators. The published steps of the other algorithms are in `steps`.

mod steps;

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::capacity::*;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use super::samples::SERVED;

const START: Timestamp = Timestamp::from_secs(1_000_000);
const TICK: Duration = Duration::from_millis(100);
const CROWD: GateLoad =
    GateLoad { room_waits: true, coming: 0, queued: 20, in_flight: 10, age: Duration::ZERO };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A request of cost 1 that ended at `START` with others waiting.
fn sample(response_ms: u64, in_flight: u32) -> Sample {
    Sample { ended: START, response: ms(response_ms), in_flight, ..SERVED }
}

fn make(name: &str) -> Box<dyn Estimator> {
    by_name(name, &Options::default()).expect("one of names()")
}

/// Invariants after every tick.
fn check(name: &str, estimator: &dyn Estimator, estimate: &Estimate) {
    let state = estimator.state();
    assert!(estimate.capacity.get().is_finite() && estimate.capacity.get() >= 0.0, "{name}: {estimate:?}");
    assert!(estimate.gain.is_finite() && estimate.gain >= 1.0, "{name}: {estimate:?}");
    assert!(estimate.max_in_flight.is_none_or(|limit| limit >= 1), "{name}: {estimate:?}");
    assert!((0.0..=1.0).contains(&estimate.confidence), "{name}: {estimate:?}");
    assert!(!state.reason.is_empty(), "{name}: {state:?}");
    let pairs = state.points.iter().chain(&state.curve).flat_map(|(x, y)| [*x, *y]);
    let all = pairs.chain(state.figures.iter().map(|(_, value)| *value));
    assert!(all.into_iter().all(|value| !value.is_nan()), "{name}: {state:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Observe(Sample),
    /// A tick after so many milliseconds; negative: the clock goes backwards.
    Tick(i64, GateLoad),
    Set(f64),
    Rediscover,
}

fn any_step() -> impl Strategy<Value = Step> {
    let response_us = prop_oneof![Just(0), 1..1_000_u64, 1_000..10_000_000_u64, Just(u64::MAX / 2)];
    let count = prop_oneof![9 => Just(1_u64), 1 => Just(0), 1 => 2..100_000_u64];
    let cost = prop_oneof![9 => Just(100_u64), 1 => Just(0), 1 => 1..1_000_000_u64];
    let in_flight = prop_oneof![0..40_u32, Just(u32::MAX)];
    let observe = (response_us, count, cost, in_flight, any::<(u8, bool, bool)>(), 0..2_000_u64).prop_map(
        |(us, count, cost, in_flight, (class, ok, backlog), ended)| {
            Step::Observe(Sample {
                class: ClassId(class),
                cost: Cost::from_hundredths(cost),
                count,
                // In any order, also out of step with the ticks.
                ended: START + ms(ended * 10),
                response: Duration::from_micros(us),
                lingered: Duration::ZERO,
                in_flight,
                ok,
                backlog,
            })
        },
    );
    let load = (any::<bool>(), prop_oneof![Just(0), 0..100_usize, Just(usize::MAX)], 0..100_u32).prop_map(
        |(room_waits, queued, in_flight)| GateLoad {
            room_waits,
            coming: 0,
            queued,
            in_flight,
            age: Duration::ZERO,
        },
    );
    let after = prop_oneof![8 => Just(100_i64), 1 => Just(0), 1 => -100_000..100_000_i64];
    let rate = prop_oneof![Just(0.0), 0.0..1e6, Just(1e6)];
    prop_oneof![
        20 => observe,
        10 => (after, load).prop_map(|(after, load)| Step::Tick(after, load)),
        1 => rate.prop_map(Step::Set),
        1 => Just(Step::Rediscover),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_input_makes_an_estimate_invalid(steps in prop::collection::vec(any_step(), 1..300)) {
        for name in names() {
            let mut estimator = make(name);
            let mut now = START;
            for step in &steps {
                match step {
                    Step::Observe(sample) => estimator.observe(sample),
                    Step::Tick(after, load) => {
                        let by = ms(after.unsigned_abs());
                        now = if *after < 0 { now.saturating_sub(by) } else { now + by };
                        let estimate = estimator.tick(load, now);
                        check(name, &*estimator, &estimate);
                    }
                    Step::Set(rate) => estimator.set(Rate::per_second(*rate).unwrap(), now),
                    Step::Rediscover => estimator.rediscover(now),
                }
            }
        }
    }
}

/// Ten workers at 100 ms without noise, and always a backlog; time passes in ticks.
struct Origin {
    now: Timestamp,
    present: u32,
    /// Fraction of a request that the rate has admitted.
    due: f64,
    estimate: Estimate,
    served: u64,
}

impl Origin {
    const WORKERS: u32 = 10;

    fn new(name: &str, estimator: &mut dyn Estimator) -> Self {
        let estimate = estimator.tick(&CROWD, START);
        check(name, estimator, &estimate);
        Self { now: START, present: 0, due: 0.0, estimate, served: 0 }
    }

    /// Plays on; `ok`: the origin serves, otherwise it fails every request within a millisecond.
    fn play(&mut self, name: &str, estimator: &mut dyn Estimator, seconds: u64, ok: bool) {
        self.served = 0;
        for _ in 0..seconds * 10 {
            match self.estimate.max_in_flight {
                Some(limit) => self.present = self.present.max(limit.min(1_000)),
                None => {
                    self.due += (self.estimate.capacity.get() * self.estimate.gain * 0.1).min(100.0);
                    self.present = (self.present + self.due as u32).min(300);
                    self.due = self.due.fract();
                }
            }
            self.now = self.now + TICK;
            let ended = if ok { self.present.min(Self::WORKERS) } else { self.present };
            let response = if ok { ms(u64::from(self.present.max(Self::WORKERS)) * 10) } else { ms(1) };
            for i in 0..ended {
                let ended = self.now.saturating_sub(Duration::from_micros(u64::from(i)));
                let limited = self.estimate.max_in_flight.is_some();
                estimator.observe(&Sample {
                    ended,
                    response,
                    ok,
                    backlog: limited,
                    ..sample(0, self.present)
                });
            }
            self.present -= ended;
            self.served += u64::from(if ok { ended } else { 0 });
            let queued = if self.estimate.max_in_flight.is_some() { 20 } else { 0 };
            let load = GateLoad {
                room_waits: true,
                coming: 0,
                queued,
                in_flight: self.present,
                age: Duration::ZERO,
            };
            self.estimate = estimator.tick(&load, self.now);
            check(name, estimator, &self.estimate);
        }
    }
}

#[test]
fn an_estimator_recovers_from_a_time_of_errors_only() {
    for name in names().filter(|name| *name != "fixed") {
        for before_s in [0, 60] {
            let mut estimator = make(name);
            let mut origin = Origin::new(name, &mut *estimator);
            origin.play(name, &mut *estimator, before_s, true);
            origin.play(name, &mut *estimator, 60, false);
            // Up to two discoveries of 25 epochs of 8 s.
            let recovers_s = if origin.estimate.max_in_flight.is_none() { 600 } else { 60 };
            origin.play(name, &mut *estimator, recovers_s, true);
            origin.play(name, &mut *estimator, 60, true);
            assert!(
                origin.served >= 60 * 50,
                "{name} after {before_s} s and errors: {} of 6000 in the last minute, {:?}, {:?}",
                origin.served,
                origin.estimate,
                estimator.state()
            );
        }
    }
}

#[test]
fn no_request_and_a_single_request_are_valid_input() {
    for name in names() {
        let mut estimator = make(name);
        for second in 0..100 {
            let estimate = estimator.tick(&GateLoad::default(), START + Duration::from_secs(second));
            check(name, &*estimator, &estimate);
        }
        estimator.observe(&sample(100, 1));
        for second in 100..200 {
            let estimate = estimator.tick(&CROWD, START + Duration::from_secs(second));
            check(name, &*estimator, &estimate);
        }
    }
}

#[test]
fn a_class_without_cost_is_valid_input_and_may_get_a_cost() {
    for name in names() {
        let mut estimator = make(name);
        for (second, hundredths) in [0, 0, 100, 100, 0, 250].into_iter().enumerate() {
            let now = START + Duration::from_secs(second as u64);
            for class in [ClassId(0), ClassId(1)] {
                for _ in 0..30 {
                    let cost = Cost::from_hundredths(hundredths);
                    estimator.observe(&Sample { class, cost, ended: now, ..sample(100, 4) });
                }
            }
            let estimate = estimator.tick(&CROWD, now);
            check(name, &*estimator, &estimate);
        }
    }
}
