//! A gate that was idle, at a clock that shows today's date, when the crowd comes: what the estimator says from tick to tick.

use std::time::Duration;

use tidegate_core::capacity::{GateLoad, Options, Sample, by_name};
use tidegate_core::control::TICK;
use tidegate_core::units::{ClassId, Cost, Timestamp};

/// An origin that answers in 50 ms however many it works on, and a queue that is never empty.
fn served(now: Timestamp, in_flight: u32) -> Vec<Sample> {
    let sample = Sample {
        class: ClassId(0),
        cost: Cost::ONE,
        count: 1,
        ended: now,
        response: Duration::from_millis(50),
        lingered: Duration::ZERO,
        in_flight,
        ok: true,
        backlog: true,
    };
    vec![sample; 2 * in_flight as usize]
}

#[test]
fn the_time_before_the_crowd_is_not_held_against_the_origin() {
    for idle in [0, 1, 36_000] {
        let mut estimator = by_name("bottleneck", &Options::default()).expect("ours");
        let mut now = Timestamp::from_secs(1_795_000_000);
        let mut said = estimator.tick(&GateLoad::default(), now);
        for _ in 0..idle {
            now = now + TICK;
            said = estimator.tick(&GateLoad::default(), now);
        }
        for tick in 0..10 {
            now = now + TICK;
            let in_flight = said.max_in_flight.expect("a limit").min(16);
            served(now, in_flight).iter().for_each(|sample| estimator.observe(sample));
            said = estimator.tick(&GateLoad { room_waits: true, queued: 50, in_flight }, now);
            // Four at once in 50 ms each are 80/s; the first guess is 20/s.
            assert!(said.capacity.get() >= 20.0, "after {idle} idle ticks, tick {tick}: {said:?}");
        }
    }
}
