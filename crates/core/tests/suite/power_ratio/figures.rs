//! Results in front of a simulated service of ten workers and 0.1 s of work, over sixty seeds.

use tidegate_core::capacity::{Estimate, PowerRatio, PowerRatioConfig};

use super::service::{Service, Work, is_settled};

const SEEDS: u64 = 60;
/// Seconds for which a capacity is held before the service changes.
const HELD_S: f64 = 60.0;

/// Result of a discovery.
struct Found {
    took_s: f64,
    capacity: f64,
}

/// Discoveries by seed; `None` for one that did not end in time.
fn discoveries(work: Work, before: Option<f64>, mean_s: f64, within_s: f64) -> Vec<Option<Found>> {
    (0..SEEDS)
        .map(|seed| {
            let mut service = Service::new(work, seed);
            let mut estimator = PowerRatio::new(PowerRatioConfig::default(), None);
            let mut changed_s = 0.0;
            let mut found = 0.0;
            if let Some(mean_s) = before {
                service.mean_s = mean_s;
                changed_s = HELD_S + service.run(&mut estimator, 600.0, |_, e| is_settled(e))?;
                service.run(&mut estimator, changed_s, |_, e| {
                    found = e.capacity.get();
                    false
                });
            }
            service.mean_s = mean_s;
            let mut capacity = 0.0;
            let done_s = service.run(&mut estimator, changed_s + within_s, |_, e| {
                capacity = e.capacity.get();
                is_settled(e) && capacity != found
            })?;
            Some(Found { took_s: done_s - changed_s, capacity })
        })
        .collect()
}

/// The sorted values; discoveries without one come last.
fn sorted(found: &[Option<Found>], value: impl Fn(&Found) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> =
        found.iter().map(|found| found.as_ref().map_or(f64::INFINITY, &value)).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    values[values.len() / 2]
}

/// Medians over the seeds, and the extremes of the capacity.
struct Summary {
    took_s: f64,
    capacity: f64,
    least: f64,
    most: f64,
}

/// Asserts that at least 55 of the 60 discoveries have ended.
fn summary(found: &[Option<Found>]) -> Summary {
    let complete = found.iter().flatten().count();
    assert!(complete >= 55, "{complete} of {SEEDS}");
    let capacities = sorted(found, |found| found.capacity);
    let took_s = median(&sorted(found, |found| found.took_s));
    Summary { took_s, capacity: median(&capacities), least: capacities[0], most: capacities[complete - 1] }
}

#[test]
fn from_cold_to_80_per_second() {
    let Summary { took_s, capacity, least, most } = summary(&discoveries(Work::Fixed, None, 0.1, 300.0));
    assert!((190.0..=220.0).contains(&took_s), "{took_s} s");
    assert!((76.0..=84.0).contains(&least) && (76.0..=84.0).contains(&most), "{least}..{capacity}..{most}");
}

#[test]
fn from_cold_to_76_per_second_where_work_varies() {
    let Summary { took_s, capacity, .. } = summary(&discoveries(Work::Exponential, None, 0.1, 330.0));
    assert!((185.0..=225.0).contains(&took_s), "{took_s} s");
    assert!((72.2..=79.8).contains(&capacity), "{capacity}");
}

#[test]
fn a_rise_from_40_to_80_within_360_seconds() {
    for (work, around) in [(Work::Fixed, 80.0), (Work::Exponential, 76.0)] {
        let Summary { took_s, capacity, .. } = summary(&discoveries(work, Some(0.2), 0.1, 360.0));
        assert!(took_s < 200.0, "{work:?}: {took_s} s");
        assert!((capacity / around - 1.0_f64).abs() <= 0.05, "{work:?}: {capacity}");
    }
}

#[test]
fn a_fall_from_80_to_40_within_420_seconds() {
    for (work, around) in [(Work::Fixed, 41.0), (Work::Exponential, 39.0)] {
        let Summary { took_s, capacity, .. } = summary(&discoveries(work, Some(0.1), 0.2, 420.0));
        assert!(took_s < 240.0, "{work:?}: {took_s} s");
        assert!((capacity / around - 1.0_f64).abs() <= 0.05, "{work:?}: {capacity}");
    }
}

/// With contention, a service that is fed at 0.8 of the load that overloaded it never drains: hence the
/// relief.
#[test]
fn contention_does_not_end_a_discovery() {
    let complete = |config: PowerRatioConfig| {
        let done = (0..SEEDS).filter(|seed| {
            let mut service = Service::new(Work::Exponential, *seed);
            service.contention = 0.3;
            service.run(&mut PowerRatio::new(config, None), 420.0, |_, e| is_settled(e)).is_some()
        });
        done.count()
    };
    assert!(complete(PowerRatioConfig::default()) >= 55);
    let literal =
        PowerRatioConfig { relieve: f64::INFINITY, break_off: f64::INFINITY, ..PowerRatioConfig::default() };
    assert!(complete(literal) <= 20, "taken literally, most never end");
}

/// Nine of ten workers are away from 400 s to 900 s. At the load that one can serve, ten answer as fast.
#[test]
fn a_bad_hour_does_not_leave_the_capacity_low_for_good() {
    const RUNS: usize = 20;
    let recovered = |floor: f64| {
        let done = (0..RUNS as u64).filter(|seed| {
            let mut service = Service::new(Work::Exponential, *seed);
            let config = PowerRatioConfig { floor, ..PowerRatioConfig::default() };
            let mut estimator = PowerRatio::new(config, None);
            service.run(&mut estimator, 400.0, |_, _| false);
            service.workers = 1;
            service.run(&mut estimator, 900.0, |_, _| false);
            service.workers = 10;
            let is_back = |_, e: &Estimate| is_settled(e) && e.capacity.get() > 60.0;
            service.run(&mut estimator, 2700.0, is_back).is_some()
        });
        done.count()
    };
    let (with, literal) = (recovered(PowerRatioConfig::default().floor), recovered(0.0));
    assert_eq!(with, RUNS);
    assert!(literal <= 12, "{literal} of {RUNS} without it");
}

/// An offered load of 100, as in the paper: little above the capacity, and enough.
#[test]
fn an_offered_load_little_above_the_capacity_is_enough() {
    for seed in 0..20 {
        let mut service = Service::new(Work::Fixed, seed);
        service.offered = 100.0;
        let mut estimator = PowerRatio::new(PowerRatioConfig::default(), None);
        let mut capacity = 0.0;
        let done_s = service.run(&mut estimator, 300.0, |_, e| {
            capacity = e.capacity.get();
            is_settled(e)
        });
        assert!(done_s.is_some() && (76.0..=84.0).contains(&capacity), "{seed}: {done_s:?} {capacity}");
    }
}
