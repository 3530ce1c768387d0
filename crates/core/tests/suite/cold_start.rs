//! The estimates of `bottleneck` when a crowd arrives at an idle gate, with a clock at today's date.

use std::time::Duration;

use tidegate_core::capacity::{GateLoad, Options, Sample, by_name};
use tidegate_core::control::TICK;
use tidegate_core::units::Timestamp;

use super::samples::SERVED;

/// An origin that always answers in 50 ms, and a queue that is never empty.
fn served(now: Timestamp, in_flight: u32) -> Vec<Sample> {
    let sample = Sample { ended: now, response: Duration::from_millis(50), in_flight, ..SERVED };
    vec![sample; 2 * in_flight as usize]
}

#[test]
fn idle_time_before_a_crowd_does_not_lower_the_estimate() {
    for idle in [0, 1, 36_000] {
        let mut estimator = by_name("bottleneck", &Options::default()).expect("a known name");
        let mut now = Timestamp::from_secs(1_795_000_000);
        let mut estimate = estimator.tick(&GateLoad::default(), now);
        for _ in 0..idle {
            now = now + TICK;
            estimate = estimator.tick(&GateLoad::default(), now);
        }
        for tick in 0..10 {
            now = now + TICK;
            let in_flight = estimate.max_in_flight.expect("a limit").min(16);
            served(now, in_flight).iter().for_each(|sample| estimator.observe(sample));
            estimate = estimator.tick(&GateLoad { room_waits: true, queued: 50, in_flight }, now);
            // Four at once in 50 ms each are 80/s; a quarter of that is the least.
            assert!(estimate.capacity.get() >= 20.0, "after {idle} idle ticks, tick {tick}: {estimate:?}");
        }
    }
}
