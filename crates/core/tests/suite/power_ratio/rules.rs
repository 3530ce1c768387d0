//! The rules: the paper's, and those of its reading.

use tidegate_core::capacity::{Phase, PowerRatioConfig};

use super::bench::{Bench, curve, idle, waits};

fn discovering() -> Bench {
    Bench::new(PowerRatioConfig::default(), None)
}

/// After the coarse phase, at 73.8 of 92.3.
fn backtracked() -> Bench {
    let mut bench = discovering();
    bench.follow(14, curve);
    assert!(bench.reason().starts_with("stabilising: 0 of 2"), "{}", bench.reason());
    bench
}

/// At the beginning of the fine phase.
fn in_fine() -> Bench {
    let mut bench = backtracked();
    bench.follow(2, curve);
    assert_eq!(bench.reason(), "fine: probing 73.8/s");
    bench
}

fn settled() -> Bench {
    let mut bench = discovering();
    bench.follow(26, curve);
    assert_eq!(bench.reason(), "settled: the power ratio is on its curve");
    bench
}

#[test]
fn coarse_steps_are_multiplicative() {
    let loads = discovering().follow(5, |_| 0.1);
    for pair in loads.windows(2) {
        assert!((pair[1] / pair[0] - 1.15).abs() < 1e-12, "{pair:?}");
    }
}

#[test]
fn no_step_forward_while_fewer_come() {
    let mut bench = discovering();
    bench.follow(3, |_| 0.1);
    let load = bench.load();
    for _ in 0..50 {
        bench.serve(0.5 * load, 0.1, true);
        assert_eq!(bench.end(&idle()), load);
        assert_eq!(bench.last.phase, Phase::Paused);
    }
    assert_eq!(bench.reason(), "paused: offered load below the estimate (coarse: probing 22.8/s)");
    // The samples of a pause do not enter the curve.
    let points = bench.points();
    assert_eq!(points, 3);
    // It advances as soon as enough visitors come.
    assert!(bench.epoch(load, 0.1) > load);
    assert_eq!(bench.last.phase, Phase::Searching);
}

#[test]
fn goodput_is_close_within_a_tenth_of_itself() {
    for (share, moves) in [(0.90, false), (0.92, true), (1.0, true), (1.10, true), (1.12, false)] {
        let mut bench = Bench::new(PowerRatioConfig::default(), Some(1000.0));
        bench.serve(share * 1000.0, 0.1, true);
        bench.end(&idle());
        assert_eq!(bench.load() > 1000.0, moves, "{share}");
    }
}

#[test]
fn overload_is_not_taken_for_low_load() {
    // The service serves 80 % of the rate and takes three times as long, while visitors wait: the load
    // advances ...
    let mut bench = discovering();
    bench.follow(8, |_| 0.1);
    let load = bench.load();
    assert!(bench.epoch(0.8 * load, 0.3) != load);
    // ... but not if nobody waits, or if the response time is unchanged, or with the literal rule.
    let literal = PowerRatioConfig { overload: f64::INFINITY, ..PowerRatioConfig::default() };
    for (config, response_s, waiting) in [
        (PowerRatioConfig::default(), 0.3, false),
        (PowerRatioConfig::default(), 0.1, true),
        (literal, 0.3, true),
    ] {
        let mut bench = Bench::new(config, None);
        bench.follow(8, |_| 0.1);
        bench.serve(0.8 * load, response_s, true);
        assert_eq!(bench.end(&if waiting { waits(0) } else { idle() }), load, "{response_s} {waiting}");
        assert_eq!(bench.last.phase, Phase::Paused);
    }
}

#[test]
fn the_coarse_phase_ends_at_a_peak_inside_the_range_and_backtracks_by_beta() {
    let mut bench = discovering();
    let loads = bench.follow(14, curve);
    let (end, back) = (loads[13], loads[14]);
    assert!((back - 0.8 * end).abs() < 1e-9, "{loads:?}");
}

#[test]
fn a_slight_drop_is_not_yet_a_peak() {
    // The power ratio of the seventh load is 5 % below the sixth's.
    let dented = |load: f64| if load > 33.0 { 0.1 * load / (0.95 * 30.17) } else { 0.1 };
    let mut bench = discovering();
    bench.follow(7, dented);
    assert!(bench.reason().starts_with("coarse"), "{}", bench.reason());
    // With the literal rule it is.
    let mut bench = Bench::new(PowerRatioConfig { below_peak: 0.0, ..PowerRatioConfig::default() }, None);
    bench.follow(7, dented);
    assert!(bench.reason().starts_with("stabilising"), "{}", bench.reason());
}

#[test]
fn four_points_define_a_cubic_but_not_yet_a_peak() {
    // One bad epoch, the fourth.
    let bad = |load: f64| if (22.0..23.0).contains(&load) { 0.2 } else { 0.1 };
    let mut bench = discovering();
    bench.follow(6, bad);
    assert!(bench.reason().starts_with("coarse"), "{}", bench.reason());
    let mut bench = Bench::new(PowerRatioConfig { least_points: 4, ..PowerRatioConfig::default() }, None);
    bench.follow(4, bad);
    assert!(bench.reason().starts_with("stabilising"), "{}", bench.reason());
}

#[test]
fn stabilising_takes_two_close_epochs_in_a_row_and_adds_no_sample() {
    let mut bench = backtracked();
    let (load, points) = (bench.load(), bench.points());
    // Requests admitted before are still served, so the goodput exceeds the load.
    for (goodput, reason) in [(1.3, "0 of 2"), (1.0, "1 of 2"), (1.2, "0 of 2"), (0.95, "1 of 2")] {
        assert_eq!(bench.epoch(goodput * load, 0.15), load);
        assert!(bench.reason().contains(reason), "{goodput}: {}", bench.reason());
    }
    bench.epoch(load, 0.11);
    assert_eq!(bench.reason(), "fine: probing 73.8/s");
    assert_eq!(bench.points(), points);
}

#[test]
fn a_service_that_stays_overloaded_is_relieved() {
    let mut bench = backtracked();
    let load = bench.load();
    // Slow, and not even serving the load.
    bench.serve(0.5 * load, 1.0, true);
    let relief = bench.end(&waits(200));
    assert!((relief - 0.1 * load).abs() < 1e-9, "{relief}");
    // A hundred are too many, ten are few enough: the tick that sees them ends the relief.
    bench.now_us += 100_000;
    assert_eq!(bench.tick(&waits(100)), relief);
    bench.now_us += 100_000;
    assert_eq!(bench.tick(&waits(10)), load);
    // Slow again at the same load: the load is too high.
    bench.now_us += 100_000;
    bench.tick(&waits(10));
    bench.serve(0.5 * load, 1.0, true);
    bench.end(&waits(20));
    bench.now_us += 100_000;
    bench.tick(&waits(60));
    bench.now_us += 100_000;
    assert!((bench.tick(&waits(5)) - 0.8 * load).abs() < 1e-9, "{}", bench.load());
    // With the literal rule the load stays.
    let config = PowerRatioConfig { relieve: f64::INFINITY, ..PowerRatioConfig::default() };
    let mut literal = Bench::new(config, None);
    literal.follow(14, curve);
    literal.serve(0.5 * load, 1.0, true);
    assert_eq!(literal.end(&waits(200)), load);
}

#[test]
fn relief_without_known_requests_ends_with_a_fast_epoch() {
    let mut bench = backtracked();
    let load = bench.load();
    assert!((bench.epoch(0.5 * load, 1.0) - 0.1 * load).abs() < 1e-9);
    // While slow, the rate falls further. Once fast, the load is restored.
    assert!((bench.epoch(0.5 * load, 1.0) - 0.01 * load).abs() < 1e-9);
    assert_eq!(bench.epoch(0.01 * load, 0.1), load);
}

#[test]
fn fine_steps_are_linear() {
    let mut bench = in_fine();
    let loads = bench.follow(7, curve);
    for pair in loads.windows(2) {
        assert!((pair[1] - pair[0] - 0.02 * 92.29).abs() < 0.01, "{pair:?}");
    }
}

#[test]
fn the_peak_must_stay_for_the_guard_epochs() {
    let mut bench = in_fine();
    bench.follow(4, curve);
    assert!(bench.reason().starts_with("fine: guard epoch 4 of 7"), "{}", bench.reason());
    bench.follow(3, curve);
    assert!(bench.reason().starts_with("fine: guard epoch 7 of 7"), "{}", bench.reason());
    bench.follow(1, curve);
    assert_eq!(bench.reason(), "settled, cooling off: 0 of 2 epochs close to 73.5/s");
    // If the service becomes faster from the fifth epoch on, the peak vanishes and the guard begins anew.
    let mut bench = in_fine();
    bench.follow(4, curve);
    bench.follow(3, |_| 0.03);
    assert_eq!(bench.reason(), "fine: probing 86.8/s");
}

#[test]
fn the_fine_phase_pauses_too_and_ends_in_overload() {
    let mut bench = in_fine();
    bench.follow(2, curve);
    let load = bench.load();
    bench.serve(0.5 * load, 0.1, true);
    assert_eq!(bench.end(&idle()), load);
    assert_eq!(bench.last.phase, Phase::Paused);
    bench.epoch(0.6 * load, 1.5);
    assert!(bench.reason().starts_with("settled, cooling off"), "{}", bench.reason());
}

#[test]
fn an_epoch_with_too_many_requests_at_the_service_is_broken_off() {
    let mut bench = discovering();
    bench.follow(12, |_| 0.1);
    let load = bench.load();
    assert!((load - 80.25).abs() < 0.01);
    bench.now_us += 1_000_000;
    bench.serve(5.0, 0.15, true);
    // Ten times 80 * 0.1.
    assert_eq!(bench.tick(&waits(80)), load);
    assert!((bench.tick(&waits(81)) - 0.8 * load).abs() < 1e-9, "{}", bench.load());
    assert!(bench.reason().starts_with("stabilising"), "{}", bench.reason());
}

#[test]
fn change_needs_two_epochs_off_the_curve() {
    let found = settled().load();
    let mut bench = settled();
    // One slow epoch, one good, one far too fast.
    for response_s in [0.9, 0.113, 0.02, 0.113] {
        assert_eq!(bench.epoch(found, response_s), found);
    }
    bench.epoch(found, 0.9);
    assert_eq!(bench.reason(), "settled: off the curve for 1 of 2 epochs");
    // An epoch off to the other side starts the count anew.
    bench.epoch(found, 0.02);
    assert_eq!(bench.reason(), "settled: off the curve for 1 of 2 epochs");
    bench.epoch(found, 0.02);
    assert_eq!(bench.reason(), "coarse: probing 73.5/s, since the capacity rose");
    // With the literal rule one is enough.
    let mut bench = Bench::new(PowerRatioConfig { alarms: 1, ..PowerRatioConfig::default() }, None);
    bench.follow(26, curve);
    bench.epoch(found, 0.02);
    assert!(bench.reason().contains("rose"), "{}", bench.reason());
}

#[test]
fn low_load_is_no_change_but_a_slow_service_is_one_at_any_load() {
    let mut bench = settled();
    let found = bench.load();
    for share in [0.1, 0.3, 0.5, 0.8] {
        for _ in 0..5 {
            bench.serve(share * found, 0.1, true);
            assert_eq!(bench.end(&idle()), found, "{share}: {}", bench.reason());
        }
    }
    // A faster service without waiting visitors is no change.
    for _ in 0..5 {
        bench.serve(0.5 * found, 0.01, true);
        assert_eq!((bench.end(&idle()), bench.last.phase), (found, Phase::Settled));
    }
    for _ in 0..2 {
        bench.serve(0.5 * found, 1.0, true);
        bench.end(&idle());
    }
    assert!(bench.load() < 15.01, "{}", bench.reason());
}

#[test]
fn a_start_beyond_the_capacity_begins_again_at_c0() {
    let mut bench = Bench::new(PowerRatioConfig::default(), Some(90.0));
    bench.follow(1, curve);
    bench.epoch(80.0, 2.0);
    assert_eq!(bench.load(), 15.0);
    assert!(bench.reason().ends_with("since the start was too high"), "{}", bench.reason());
    // A start at c0 itself that is too high begins again below c0.
    let mut bench = discovering();
    bench.epoch(5.0, 2.0);
    assert_eq!(bench.load(), 15.0);
    bench.epoch(5.0, 6.0);
    assert_eq!(bench.load(), 3.75);
}

#[test]
fn a_service_that_sheds_load_itself_has_a_peak_too() {
    // It serves 60 per second in 0.1 s and refuses the rest.
    let mut bench = discovering();
    for _ in 0..80 {
        let load = bench.load();
        bench.serve(load.min(60.0), 0.1, true);
        bench.serve((load - 60.0).max(0.0), 0.001, false);
        bench.end(&waits(0));
    }
    assert!(bench.load() <= 66.0 && bench.load() > 50.0, "{} {}", bench.load(), bench.reason());
    assert!(bench.reason().starts_with("settled"), "{}", bench.reason());
}

/// Sixty long polls do not become fewer, whatever the rate.
#[test]
fn relief_does_not_wait_for_long_polls() {
    let mut bench = backtracked();
    let load = bench.load();
    bench.serve(0.7 * load, 1.0, true);
    let relief = bench.end(&waits(200));
    assert!(relief < 0.2 * load, "{relief}");
    let epochs = (0..20).take_while(|_| {
        bench.serve(0.05 * load, 0.1, true);
        bench.end(&waits(60)) < 0.2 * load
    });
    assert_eq!(epochs.count(), 1, "{}", bench.reason());
    assert!(bench.reason().starts_with("stabilising: 0 of 2"), "{}", bench.reason());
}
