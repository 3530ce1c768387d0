//! The arena against what queueing theory says of a loop.

use super::figures::score;
use super::scenarios::{ALL, named};
use super::*;
use tidegate_core::capacity::{BottleneckConfig, Fixed};
use tidegate_core::units::Rate;

fn spec(name: &str, lasts_s: u64) -> ArenaSpec {
    named(name)[0].spec(Some(lasts_s))
}

#[test]
fn every_scenario_can_be_played_and_names_are_unique() {
    for (i, scenario) in ALL.iter().enumerate() {
        assert!(ALL[..i].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
        let mut spec = scenario.spec(Some(2));
        spec.seed = 7;
        let trace = spec.run(&mut Held(5));
        assert_eq!(trace.seconds.len(), 2, "{}", scenario.name);
        assert_eq!(trace.capacity.len(), 20, "{}", scenario.name);
        assert!(trace.seconds[1].served > 0, "{}", scenario.name);
    }
}

#[test]
fn one_seed_is_one_run() {
    let spec = spec("mix-shift", 10);
    let other = ArenaSpec { seed: 2, ..spec.clone() };
    assert_eq!(spec.run(&mut Held(12)), spec.run(&mut Held(12)));
    assert_ne!(spec.run(&mut Held(12)), other.run(&mut Held(12)));
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    // Ten workers at 100 ms: L / 100 ms below ten in flight, 100 per second from there on, and the response
    // time L / 100.
    for (limit, rate, response_s) in [(1, 10.0, 0.1), (5, 50.0, 0.1), (10, 100.0, 0.1), (20, 100.0, 0.2)] {
        let trace = spec("deterministic", 20).run(&mut Held(limit));
        let last = &trace.seconds[19];
        assert_eq!(last.served as f64, rate, "limit {limit}");
        assert!((last.mean_response_s() - response_s).abs() < 1e-3, "limit {limit}: {last:?}");
        assert_eq!(last.limit, Some(f64::from(limit)));
    }
}

#[test]
fn a_rate_is_released_as_it_says() {
    let rate = Rate::per_second(60.0).unwrap();
    for (name, release) in [("exponential", Process::Poisson), ("exponential", Process::Constant)] {
        let spec = ArenaSpec { release, ..spec(name, 200) };
        let trace = spec.run(&mut Fixed::new(Some(rate), BottleneckConfig::default()));
        let served: u64 = trace.seconds.iter().map(|s| s.served).sum();
        assert!((served as f64 / 200.0 / 60.0 - 1.0).abs() < 0.03, "{release:?}: {served}");
        assert_eq!(trace.seconds[100].limit, None);
    }
    // No more is served than arrives, and no more than the capacity.
    for (rate, expected) in [(100.0, 60.0), (40.0, 40.0)] {
        let trace =
            spec("low-load", 200).run(&mut Fixed::new(Rate::per_second(rate), BottleneckConfig::default()));
        let served: u64 = trace.seconds.iter().map(|s| s.served).sum();
        assert!((served as f64 / 200.0 / expected - 1.0).abs() < 0.03, "{rate}: {served}");
    }
}

#[test]
fn removed_replicas_finish_their_requests() {
    let trace = spec("fall-workers", 70).run(&mut Held(20));
    let failed: Vec<u64> = trace.seconds.iter().map(|s| s.failed).collect();
    assert_eq!(failed.iter().sum::<u64>(), 0, "{failed:?}");
    let rate = |from: usize, to: usize| {
        trace.seconds[from..to].iter().map(|s| s.goodput).sum::<f64>() / (to - from) as f64
    };
    assert!((rate(5, 60) / 200.0 - 1.0).abs() < 0.1 && (rate(61, 70) / 120.0 - 1.0).abs() < 0.15);
}

#[test]
fn a_full_origin_refuses_but_the_run_goes_on() {
    let mut spec = spec("deterministic", 3);
    spec.origin.backlog = 0;
    let trace = spec.run(&mut Held(50));
    let last = &trace.seconds[2];
    assert_eq!(last.served, 100);
    // Forty at a time, each refused after a millisecond.
    assert!((39_000..=40_100).contains(&last.failed), "{}", last.failed);
}

#[test]
fn the_delay_counts_as_response_time() {
    let spec = ArenaSpec { delay: Duration::from_millis(50), ..spec("deterministic", 10) };
    let trace = spec.run(&mut Held(3));
    // Three every 150 ms, the last of them before ten seconds are over.
    assert_eq!(trace.responses_us.len(), 3 * 66);
    assert!((trace.seconds[9].mean_response_s() - 0.15).abs() < 1e-6);
}

#[test]
fn the_oracle_finds_the_workers() {
    let truth = oracle(&spec("deterministic", 30));
    assert_eq!(truth.len(), 1);
    assert_eq!((truth[0].from_s, truth[0].to_s, truth[0].limit), (0, 30, 10));
    assert!((truth[0].capacity - 100.0).abs() < 0.1 && (truth[0].unloaded_s - 0.1).abs() < 1e-6, "{truth:?}");
}

#[test]
fn figures_of_a_run_without_fault() {
    /// Believes the truth after a while.
    struct Knows {
        ticks: u32,
    }
    impl tidegate_core::capacity::Estimator for Knows {
        fn observe(&mut self, _: &tidegate_core::capacity::Sample) {}
        fn tick(
            &mut self,
            load: &tidegate_core::capacity::GateLoad,
            now: tidegate_core::units::Timestamp,
        ) -> tidegate_core::capacity::Estimate {
            self.ticks += 1;
            let capacity =
                if self.ticks <= 40 { 50.0 } else { 110.0_f64.min(94.0 + f64::from(self.ticks) * 0.1) };
            let capacity = if self.ticks > 100 { 100.0 } else { capacity };
            let held = Held(10).tick(load, now);
            tidegate_core::capacity::Estimate { capacity: Rate::per_second(capacity).unwrap(), ..held }
        }
        fn set(&mut self, _: Rate, _: tidegate_core::units::Timestamp) {}
        fn rediscover(&mut self, _: tidegate_core::units::Timestamp) {}
        fn state(&self) -> tidegate_core::capacity::State {
            tidegate_core::capacity::State::default()
        }
    }
    let truth =
        Stretch { from_s: 0, to_s: 60, limit: 10, capacity: 100.0, unloaded_s: 0.1, unloaded_p99_s: 0.1 };
    let trace = spec("deterministic", 60).run(&mut Knows { ticks: 0 });
    let score = score(&trace, &[truth]);
    let figures = score.stretches[0];
    // Five seconds from 3.5 s on: half a second at 50, the rest near 100.
    let settle = figures.settle_s.unwrap();
    assert!((3.4..=3.7).contains(&settle), "{settle}");
    assert_eq!(figures.error_pct, Some(0.0));
    assert_eq!(figures.oscillation_pct, Some(0.0));
    assert!((figures.overshoot_pct.unwrap() - 3.55).abs() < 0.1, "{figures:?}");
    assert!((figures.p99_ratio.unwrap() - 1.0).abs() < 1e-3 && (figures.goodput_share - 1.0).abs() < 0.01);
    assert!((score.mean_rt_ratio.unwrap() - 1.0).abs() < 1e-3);
}

#[test]
fn where_the_origin_is_never_saturated_there_is_nothing_to_settle() {
    let spec = spec("low-load", 60);
    let truth = oracle(&spec);
    let score = score(&spec.run(&mut Held(10)), &truth);
    assert_eq!(score.stretches[0].settle_s, None);
    assert!((score.goodput_share - 1.0).abs() < 0.02, "{score:?}");
}
