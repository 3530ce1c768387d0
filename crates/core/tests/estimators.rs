//! What every estimator keeps to, whatever it is shown; and the published steps of the rivals' laws.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::capacity::*;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_000_000);
const TICK: Duration = Duration::from_millis(100);
const CROWD: Load = Load { room_waits: true, queued: 20, in_flight: 10 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A request of cost 1 that ended at `START` with others waiting.
fn sample(response_ms: u64, in_flight: u32) -> Sample {
    Sample {
        class: ClassId(0),
        cost: Cost::ONE,
        count: 1,
        ended: START,
        response: ms(response_ms),
        in_flight,
        ok: true,
        backlog: true,
    }
}

fn failed(response_ms: u64, in_flight: u32) -> Sample {
    Sample { ok: false, ..sample(response_ms, in_flight) }
}

fn make(name: &str) -> Box<dyn Estimator> {
    by_name(name, &Options::default()).expect("one of names()")
}

fn figure(estimator: &dyn Estimator, name: &str) -> f64 {
    let state = estimator.state();
    state.figures.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} in {state:?}")).1
}

/// What must hold after every tick.
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
    /// Ticks after so many milliseconds; before none, backwards.
    Tick(i64, Load),
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
                // In any order, before the ticks and after them.
                ended: START + ms(ended * 10),
                response: Duration::from_micros(us),
                in_flight,
                ok,
                backlog,
            })
        },
    );
    let load = (any::<bool>(), prop_oneof![Just(0), 0..100_usize, Just(usize::MAX)], 0..100_u32)
        .prop_map(|(room_waits, queued, in_flight)| Load { room_waits, queued, in_flight });
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
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_shown_makes_an_estimate_senseless(steps in prop::collection::vec(any_step(), 1..300)) {
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

/// Ten workers at 100 ms, always more who want in; the time goes by in ticks. What a law sees of a service, without noise.
struct Origin {
    now: Timestamp,
    present: u32,
    /// Part of a request that the rate has let in.
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

    /// Plays on; `ok`: it serves, else it fails everybody within a millisecond.
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
            let load = Load { room_waits: true, queued, in_flight: self.present };
            self.estimate = estimator.tick(&load, self.now);
            check(name, estimator, &self.estimate);
        }
    }
}

#[test]
fn errors_only_do_not_leave_a_law_stuck() {
    for name in names().filter(|name| *name != "fixed") {
        for before_s in [0, 60] {
            let mut estimator = make(name);
            let mut origin = Origin::new(name, &mut *estimator);
            origin.play(name, &mut *estimator, before_s, true);
            origin.play(name, &mut *estimator, 60, false);
            // Epochs of 8 s, 25 of them for a discovery, of which there may be two.
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
fn nothing_at_all_and_a_single_request_are_borne() {
    for name in names() {
        let mut estimator = make(name);
        for second in 0..100 {
            let estimate = estimator.tick(&Load::default(), START + Duration::from_secs(second));
            check(name, &*estimator, &estimate);
        }
        estimator.observe(&sample(100, 1));
        for second in 100..200 {
            let estimate = estimator.tick(&CROWD, START + Duration::from_secs(second));
            check(name, &*estimator, &estimate);
        }
    }
}

/// Shows samples one by one and compares a figure after each.
fn steps(estimator: &mut dyn Estimator, of: &str, table: &[(Sample, f64)]) {
    for (i, (sample, expected)) in table.iter().enumerate() {
        estimator.observe(sample);
        let got = figure(estimator, of);
        assert!((got - expected).abs() < 1e-9, "step {i}: {of} {got}, expected {expected}; {sample:?}");
    }
}

#[test]
fn aimd_steps_as_published() {
    let mut published = Aimd::new(AimdConfig::default(), None);
    let table = [
        (sample(100, 20), 21.0),
        // Not half used.
        (sample(100, 10), 21.0),
        (sample(100, 11), 22.0),
        // 19.8, but 20 at least.
        (failed(1, 22), 20.0),
        (sample(5_000, 20), 21.0),
        (sample(5_001, 20), 20.0),
    ];
    steps(&mut published, "limit", &table);
    for _ in 0..300 {
        published.observe(&sample(100, 200));
    }
    assert_eq!(figure(&published, "limit"), 200.0);

    let mut free = Aimd::new(AimdConfig { min_in_flight: 1, ..AimdConfig::default() }, None);
    // 18, 16.2, 14.4 ...: cut to whole requests each time.
    let table = [18.0, 16.0, 14.0, 12.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0];
    steps(&mut free, "limit", &table.map(|limit| (failed(1, 1), limit)));
}

#[test]
fn vegas_steps_as_published() {
    let mut vegas = Vegas::new(VegasConfig::default(), None);
    let table = [
        // The first one is the baseline.
        (sample(100, 20), 20.0),
        (sample(100, 20), 26.0),
        // q = ⌈26 · 0.2⌉ = 6: between 3 and 6.
        (sample(125, 26), 26.0),
        // q = ⌈26/3⌉ = 9.
        (sample(150, 26), 25.0),
        // q = ⌈2.27⌉ = 3.
        (sample(110, 25), 25.0),
        // q = ⌈1.19⌉ = 2.
        (sample(105, 25), 26.0),
        // Not half used.
        (sample(100, 12), 26.0),
        (failed(200, 12), 25.0),
        // A new baseline.
        (sample(50, 25), 25.0),
        // q = ⌈12.5⌉ = 13.
        (sample(100, 25), 24.0),
        // Passed over.
        (sample(0, 24), 24.0),
    ];
    steps(&mut vegas, "limit", &table);
    assert_eq!(figure(&vegas, "unloaded_ms"), 50.0);
}

#[test]
fn vegas_probes_after_thirty_limits_less_the_jitter() {
    let mut vegas = Vegas::new(VegasConfig::default(), None);
    // The first jitter is its least, one half: 300 requests at a limit of 20, none of which half uses it.
    for _ in 0..299 {
        vegas.observe(&sample(100, 1));
    }
    assert_eq!(figure(&vegas, "unloaded_ms"), 100.0);
    vegas.observe(&sample(200, 1));
    assert_eq!((figure(&vegas, "unloaded_ms"), figure(&vegas, "limit")), (200.0, 20.0));
}

#[test]
fn gradient2_steps_as_published() {
    let mut gradient2 = Gradient2::new(Gradient2Config::default(), None);
    let table = [
        (sample(100, 20), 20.8),
        // Baseline 200 ms, g = 1.
        (sample(300, 20), 21.6),
        // Baseline 400 ms, g = 0.75.
        (sample(800, 20), 0.8 * 21.6 + 0.2 * (0.75 * 21.6 + 4.0)),
        // Not half used, but part of the baseline: 325 ms.
        (sample(100, 10), 21.32),
    ];
    steps(&mut gradient2, "limit", &table);
    // More than twice 100 ms, so it is led back by 5 %.
    let long_ms = figure(&gradient2, "long_ms");
    assert!((long_ms - 325.0 * 0.95).abs() < 1e-6, "{long_ms}");
    // A response of no time at all counts as one of a microsecond.
    gradient2.observe(&sample(0, 10));
    let long_ms = figure(&gradient2, "long_ms");
    assert!((long_ms - (308.75 * 4.0 + 0.001) / 5.0 * 0.95).abs() < 1e-6, "{long_ms}");
    for _ in 0..2_000 {
        gradient2.observe(&sample(100, 200));
    }
    assert_eq!(figure(&gradient2, "limit"), 200.0);
}

#[test]
fn gradient_steps_as_published() {
    let mut gradient = Gradient::new(GradientConfig::default(), None);
    let mut now = START;
    assert_eq!(gradient.tick(&CROWD, now).max_in_flight, Some(3));
    // Sent before the measurement began: does not count.
    gradient.observe(&sample(5, 3));
    now = now + Duration::from_secs(10);
    let at = |now: Timestamp, response_ms: u64| Sample { ended: now, ..sample(response_ms, 3) };
    for i in 0..50 {
        assert_eq!(figure(&gradient, "unloaded_ms"), 0.0);
        // The 45th of fifty is 100 ms.
        gradient.observe(&at(now, if i < 45 { 100 } else { 900 }));
    }
    assert_eq!(figure(&gradient, "unloaded_ms"), 100.0);
    gradient.tick(&CROWD, now);
    let table = [
        // 3.75 + 1.94, 6.25 + 2.5, 10 + 3.16.
        (100, 5),
        (100, 8),
        (100, 13),
        // Half, with its root: 6.5 + 2.55, 4.5 + 2.12, 3 + 1.73, 2 + 1.41, then 1.5 + 1.22.
        (250, 9),
        (1_000, 6),
        (1_000, 4),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
    ];
    for (response_ms, limit) in table {
        // Sent after the measurement: requests of a second take ten ticks.
        now = now + ms(response_ms).max(TICK) + TICK;
        gradient.observe(&at(now, response_ms));
        assert_eq!(gradient.tick(&CROWD, now).max_in_flight, Some(limit), "{response_ms} ms");
    }
    // Five times in a row at the least limit: what is unloaded is measured anew.
    assert!(!gradient.state().reason.contains("measures"));
    gradient.tick(&CROWD, now + TICK);
    assert!(gradient.state().reason.contains("measures"), "{:?}", gradient.state());
}

#[test]
fn gradient_measures_once_a_minute_and_goes_back_to_its_limit() {
    let mut gradient = Gradient::new(GradientConfig::default(), None);
    let mut estimate = gradient.tick(&CROWD, START);
    let mut pinned = Vec::new();
    for tick in 1..1_000_u64 {
        let now = START + TICK * tick as u32;
        for _ in 0..20 {
            gradient.observe(&Sample { ended: now, ..sample(100, 20) });
        }
        estimate = gradient.tick(&CROWD, now);
        if estimate.max_in_flight == Some(3) {
            pinned.push(tick);
        }
    }
    // The first jitter is none: sixty seconds after the first measurement's end, which took three ticks of twenty.
    assert_eq!(pinned, [1, 2, 3, 603, 604, 605]);
    assert_eq!(estimate.max_in_flight, Some(1000));
}

#[test]
fn throughput_is_what_comes_back_while_others_wait() {
    let mut aimd = Aimd::new(AimdConfig::default(), None);
    let mut now = START;
    let mut second = |aimd: &mut Aimd, per_tick: u32, ok: bool, load: Load| {
        let mut estimate = None;
        for _ in 0..10 {
            now = now + TICK;
            for _ in 0..per_tick {
                let cost = Cost::from_hundredths(200);
                let backlog = load.queued > 0;
                aimd.observe(&Sample { ended: now, cost, ok, backlog, ..sample(100, 20) });
            }
            estimate = Some(aimd.tick(&load, now));
        }
        estimate.expect("ten ticks")
    };
    let idle = Load { room_waits: false, queued: 0, in_flight: 0 };
    let starved = Load { room_waits: true, queued: 0, in_flight: 0 };
    // Nothing is known: low. Visitors wait for nothing: more, but not without end.
    let first = second(&mut aimd, 0, true, idle);
    assert_eq!((first.capacity.get(), first.phase, first.confidence), (20.0, Phase::Paused, 0.0));
    let grown = second(&mut aimd, 0, true, starved);
    assert!(grown.capacity.get() > 30.0 && grown.gain > 1.0 && grown.phase == Phase::Searching, "{grown:?}");
    for _ in 0..10 {
        assert!(second(&mut aimd, 0, true, starved).capacity.get() <= 80.0);
    }
    // Served without a backlog: at least twice that.
    second(&mut aimd, 10, true, idle);
    let twice = second(&mut aimd, 10, true, idle);
    assert!((twice.capacity.get() - 400.0).abs() < 1.0, "{twice:?}");
    // Saturated: that, in cost units.
    second(&mut aimd, 6, true, CROWD);
    let known = second(&mut aimd, 6, true, CROWD);
    assert!((known.capacity.get() - 120.0).abs() < 1e-9 && known.gain == 1.0, "{known:?}");
    assert_eq!(known.phase, Phase::Settled);
    // Nobody waits, or everything fails: it holds, and says why.
    second(&mut aimd, 1, true, idle);
    second(&mut aimd, 1, true, idle);
    assert_eq!(second(&mut aimd, 1, true, idle).capacity, known.capacity);
    assert_eq!(aimd.state().reason, "nobody waits: holding");
    for _ in 0..5 {
        second(&mut aimd, 50, false, CROWD);
    }
    assert_eq!(second(&mut aimd, 50, false, CROWD).capacity, known.capacity);
    assert_eq!(aimd.state().reason, "errors only: holding");
    // More comes back than was believed, without a backlog: that much is proved.
    for _ in 0..3 {
        second(&mut aimd, 20, true, starved);
    }
    assert!(second(&mut aimd, 20, true, starved).capacity.get() >= 400.0);
}
