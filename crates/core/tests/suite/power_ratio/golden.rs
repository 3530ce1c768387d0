//! Every load probed, epoch by epoch, in front of a service that answers exactly as M/M/10 does on average.

use tidegate_core::capacity::{Estimator, Phase, PowerRatioConfig};
use tidegate_core::units::Timestamp;

use super::bench::{Bench, curve};

/// From c0 = 15: fourteen steps of 1.15, back to 0.8 * 92.29, two epochs to become stable, the one that sees the peak and
/// seven more, then the peak of the fit.
const COLD: &str = "15.00 17.25 19.84 22.81 26.24 30.17 34.70 39.90 45.89 52.77 60.68 69.79 80.25 92.29 | \
    73.83 73.83 | 73.83 75.68 77.53 79.37 81.22 83.06 84.91 86.75 | 73.49 73.49 | 73.49 73.49 73.49";

/// The service becomes twice as fast while it is held at the 37.21 per second that were found: two epochs of suspicion, then
/// steps of 1.15 from there.
const RISE: &str = "37.21 37.21 | 37.21 42.79 49.21 56.59 65.08 74.84 86.07 98.97 | 79.18 79.18 | \
    79.18 81.16 83.14 85.12 87.10 89.08 91.06 93.04 | 75.17 75.17 | 75.17 75.17 75.17";

/// It becomes twice as slow while it is held at 73.49: two epochs of suspicion, one to work off what it has, then from c0.
const FALL: &str = "73.49 73.49 | 1.50 | 15.00 15.00 | 15.00 17.25 19.84 22.81 26.24 30.17 34.70 39.90 45.89 | \
    36.71 36.71 | 36.71 37.63 38.54 39.46 40.38 41.30 42.21 43.13 | 37.21 37.21 | 37.21";

/// The loads of a trajectory, as they are let in, with a bar wherever the phase changes.
fn trajectory(bench: &mut Bench, epochs: usize, response_s: impl Fn(f64) -> f64) -> String {
    let mut text = String::new();
    let mut phase = String::new();
    for _ in 0..epochs {
        let reason = bench.reason();
        let now = reason.split([':', ',']).next().unwrap_or_default().to_owned();
        let now = if reason.contains("relieved") { "relieved".into() } else { now };
        // Cooling off and watching are both "settled".
        let now = if reason.contains("cooling off") { "cooling off".into() } else { now };
        if !phase.is_empty() && now != phase {
            text += "| ";
        }
        phase = now;
        let load = bench.load();
        text += &format!("{load:.2} ");
        bench.epoch(load, response_s(load));
    }
    text.trim_end().to_owned()
}

fn squeezed(golden: &str) -> String {
    golden.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn cold_start() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    assert_eq!(trajectory(&mut bench, 29, curve), squeezed(COLD));
    assert_eq!(bench.last.phase, Phase::Settled);
    let state = bench.estimator.state();
    assert_eq!(state.reason, "settled: the power ratio is on its curve");
    assert_eq!((state.samples, state.points.len(), state.curve.len()), (22, 22, 25));
    // What the figures of the state say is what is let in.
    let peak = state.figures.iter().find(|(name, _)| *name == "peak_load_per_s").expect("a peak");
    assert_eq!(peak.1, bench.load());
}

#[test]
fn a_rise_is_discovered_from_the_present_estimate() {
    // Of half the speed: everything takes twice as long, at half the load.
    let slow = |load: f64| 2.0 * curve(2.0 * load);
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(40, slow);
    assert_eq!(bench.last.phase, Phase::Settled);
    assert_eq!(trajectory(&mut bench, 25, curve), squeezed(RISE));
    assert!(bench.reason().starts_with("settled:"), "{}", bench.reason());
}

#[test]
fn a_fall_is_discovered_from_c0() {
    let slow = |load: f64| 2.0 * curve(2.0 * load);
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(28, curve);
    assert_eq!(trajectory(&mut bench, 27, slow), squeezed(FALL));
    assert!(bench.reason().starts_with("settled:"), "{}", bench.reason());
}

#[test]
fn the_trigger_discovers_from_the_present_estimate() {
    let mut bench = Bench::new(PowerRatioConfig::default(), None);
    bench.follow(28, curve);
    let found = bench.load();
    bench.estimator.rediscover(Timestamp::from_micros(bench.now_us));
    assert_eq!(bench.tick(&super::bench::waits(0)), found);
    assert_eq!(bench.reason(), "coarse: probing 73.5/s, as requested");
    assert_eq!(bench.estimator.state().samples, 0);
    // While it discovers: from where that began.
    bench.follow(2, |_| 0.1);
    assert!(bench.load() > found);
    bench.estimator.rediscover(Timestamp::from_micros(bench.now_us));
    assert_eq!(bench.tick(&super::bench::waits(0)), found);
}
