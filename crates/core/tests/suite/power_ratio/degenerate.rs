//! Degenerate input: no panic, no state without a way out, and always a reason.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::capacity::{Estimator, GateLoad, Options, Phase, PowerRatio, PowerRatioConfig, by_name};
use tidegate_core::units::{Rate, Timestamp};

use super::bench::{Bench, curve, idle, waits};
use super::service::{BEGAN_US, sample};

#[test]
fn it_is_created_by_name() {
    let options = Options { rate: Rate::per_second(33.0), ..Options::default() };
    let mut estimator = by_name("power-ratio", &options).expect("a known name");
    let estimate = estimator.tick(&GateLoad::default(), Timestamp::from_micros(BEGAN_US));
    assert_eq!((estimate.capacity.get(), estimate.gain, estimate.max_in_flight), (33.0, 1.0, None));
    assert_eq!(estimate.phase, Phase::Searching);
}

#[test]
fn an_idle_service_does_not_change_the_estimate() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    for _ in 0..100 {
        assert_eq!(bench.end(&idle()), 15.0);
    }
    assert_eq!(bench.last.phase, Phase::Paused);
    assert_eq!(bench.reason(), "paused: nothing to serve (coarse: probing 15.0/s)");
}

#[test]
fn errors_alone_hold_the_estimate_in_every_phase() {
    for epochs in [0, 5, 14, 18, 24, 30] {
        let mut bench = Bench::new(PowerRatioConfig::default(), None);
        bench.follow(epochs, curve);
        let load = bench.load();
        for _ in 0..20 {
            bench.serve(load, 0.001, false);
            bench.end(&waits(0));
            assert!(bench.reason().starts_with("errors only: holding"), "{}", bench.reason());
            assert_eq!(bench.last.phase, Phase::Paused);
        }
        assert!(bench.load() <= load && bench.load() >= 0.7 * load, "{epochs}: {load} {}", bench.load());
        // Afterwards it continues.
        bench.follow(40, curve);
        assert!(bench.reason().starts_with("settled"), "{epochs}: {}", bench.reason());
    }
}

#[test]
fn a_share_of_errors_without_overload_pauses() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    for _ in 0..20 {
        bench.serve(12.0, 0.1, true);
        bench.serve(3.0, 0.1, false);
        assert_eq!(bench.end(&waits(0)), 15.0);
    }
    assert_eq!(bench.reason(), "paused: 20 % of the requests fail (coarse: probing 15.0/s)");
}

#[test]
fn one_sample_is_not_taken_for_a_load() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.estimator.observe(&sample(bench.now_us, 100_000, 1, 1, true));
    assert_eq!(bench.end(&waits(0)), 15.0);
    assert!(bench.reason().starts_with("paused: offered load below"), "{}", bench.reason());
}

#[test]
fn a_response_time_of_zero_has_no_power_ratio() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.epoch(15.0, 0.0);
    assert_eq!((bench.load(), bench.points()), (15.0, 0));
    // Nor does it count as the best response time, with which every other would compare as slow.
    bench.follow(40, curve);
    assert!(bench.reason().starts_with("settled"), "{}", bench.reason());
}

#[test]
fn a_clock_that_goes_back_restarts_the_epoch() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(3, curve);
    let load = bench.load();
    bench.serve(load, 0.1, true);
    bench.now_us -= 900_000_000;
    assert_eq!(bench.tick(&waits(0)), load);
    bench.follow(25, curve);
    assert!(bench.reason().starts_with("settled"), "{}", bench.reason());
    // A clock that stands still ends no epoch.
    let held = bench.load();
    for _ in 0..100 {
        bench.serve(1.0, 5.0, true);
        assert_eq!(bench.tick(&waits(10_000)), held);
    }
}

#[test]
fn an_epoch_with_missing_ticks_is_discarded() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(3, curve);
    let (load, points) = (bench.load(), bench.points());
    bench.serve(load, 0.1, true);
    bench.now_us += 3_600_000_000;
    assert_eq!(bench.tick(&waits(0)), load);
    assert_eq!(bench.points(), points);
    assert!(bench.epoch(load, 0.1) > load);
}

#[test]
fn a_service_without_limit_is_probed_up_to_the_largest_rate_and_held_there() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(400, |_| 0.1);
    assert_eq!(bench.last.capacity, Rate::MAX);
    assert!(bench.points() <= 256);
}

#[test]
fn invalid_parameters_are_clamped() {
    let nan = f64::NAN;
    let invalid = PowerRatioConfig {
        epoch: Duration::ZERO,
        first_load: Rate::ZERO,
        growth: nan,
        backtrack: -1.0,
        step: nan,
        guard_epochs: u32::MAX,
        stable_epochs: u32::MAX,
        closeness: nan,
        alarm_factor: nan,
        least_points: 0,
        below_peak: 7.0,
        overload: nan,
        relieve: 0.0,
        drain: nan,
        break_off: nan,
        peak_window: nan,
        alarms: 0,
        floor: nan,
    };
    let sane = invalid.sane();
    assert_eq!(sane, sane.sane());
    assert_eq!(PowerRatioConfig::default().sane(), PowerRatioConfig::default());
    let epoch = PowerRatioConfig::default().epoch;
    for (config, start, moves) in [
        (invalid, 15.0, false),
        (PowerRatioConfig { epoch, ..invalid }, 0.0, false),
        (PowerRatioConfig { epoch, ..invalid }, 15.0, true),
    ] {
        let loads = Bench::new(config, Some(start)).follow(200, curve);
        assert!(loads.iter().all(|load| load.is_finite() && *load > 0.0), "{loads:?}");
        assert_eq!(loads.windows(2).any(|pair| pair[0] != pair[1]), moves, "{loads:?}");
    }
}

/// An event for an estimator.
#[derive(Clone, Debug)]
enum Event {
    Sample { response_us: u64, count: u64, in_flight: u32, ok: bool },
    Tick { after_us: u64, back: bool, waits: bool, in_flight: u32 },
    Set(f64),
    Rediscover,
}

fn event() -> impl Strategy<Value = Event> {
    let response = prop_oneof![Just(0), 1_000..2_000_000u64, Just(u64::MAX)];
    let count = prop_oneof![Just(0), 1..2_000u64, Just(u64::MAX)];
    let after = prop_oneof![Just(0), Just(100_000), Just(8_000_000), 0..30_000_000u64];
    prop_oneof![
        4 => (response, count, any::<u32>(), prop::bool::weighted(0.9))
            .prop_map(|(response_us, count, in_flight, ok)| {
                Event::Sample { response_us, count, in_flight, ok }
            }),
        8 => (after, prop::bool::weighted(0.03), any::<bool>(), prop_oneof![0..200u32, any::<u32>()])
            .prop_map(|(after_us, back, waits, in_flight)| Event::Tick { after_us, back, waits, in_flight }),
        1 => prop_oneof![Just(0.0), 0.0..1e7].prop_map(Event::Set),
        1 => Just(Event::Rediscover),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any events the estimate is a valid rate with a reason.
    #[test]
    fn nothing_breaks_it(events in prop::collection::vec(event(), 1..300)) {
        let mut estimator = PowerRatio::new(PowerRatioConfig::default(), None);
        let mut now_us = BEGAN_US;
        for event in events {
            match event {
                Event::Sample { response_us, count, in_flight, ok } => {
                    estimator.observe(&sample(now_us, response_us, in_flight, count, ok));
                }
                Event::Tick { after_us, back, waits, in_flight } => {
                    now_us = if back { now_us - after_us.min(now_us) } else { now_us + after_us };
                    let load = GateLoad { room_waits: waits, in_flight, ..GateLoad::default() };
                    let estimate = estimator.tick(&load, Timestamp::from_micros(now_us));
                    let rate = estimate.capacity.get();
                    prop_assert!(rate > 0.0 && rate <= Rate::MAX.get(), "{rate}");
                    prop_assert!((0.0..=1.0).contains(&estimate.confidence), "{}", estimate.confidence);
                    prop_assert_eq!((estimate.gain, estimate.max_in_flight), (1.0, None));
                    let state = estimator.state();
                    prop_assert!(!state.reason.is_empty() && !state.reason.contains("NaN"), "{}", state.reason);
                    prop_assert!(state.curve.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
                }
                Event::Set(rate) => {
                    let rate = Rate::per_second(rate).unwrap_or_default();
                    estimator.set(rate, Timestamp::from_micros(now_us));
                }
                Event::Rediscover => estimator.rediscover(Timestamp::from_micros(now_us)),
            }
        }
    }
}
