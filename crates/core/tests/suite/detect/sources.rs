//! A source that hangs, lies or is gone: unknown after its time to live, whatever it says meanwhile.

use std::time::Duration;

use tidegate_core::detect::{Criterion, Level, SourceId};

use super::bench::{Bench, TICK, common, fixed, secs};

const LIES: [f64; 8] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e-300, f64::MIN, 1.1e15, f64::MAX];

fn both() -> [Criterion; 2] {
    [Criterion::Host(SourceId(0)), Criterion::Signal(SourceId(0))]
}

#[test]
fn a_source_that_hangs_is_believed_for_its_time_to_live() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.say(1.0, Duration::MAX);
        assert_eq!(bench.run(secs(4.9), |_| ()).level, Level::Red, "{criterion:?}");
        assert_eq!(bench.run(secs(0.2), |_| ()).level, Level::Unknown, "{criterion:?}");
        assert_eq!(bench.tick(TICK).fraction, None);
        // It comes back, and what it said before counts no more.
        bench.say(0.0, Duration::MAX);
        assert_eq!(bench.tick(TICK).figure, Some(0.0), "{criterion:?}");
        assert_eq!(bench.tick(TICK).level, Level::Green, "{criterion:?}");
    }
}

#[test]
fn a_reading_may_bring_a_shorter_time() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.say(1.0, secs(1.0));
        assert_eq!(bench.run(secs(0.9), |_| ()).level, Level::Red);
        assert_eq!(bench.run(secs(0.2), |_| ()).level, Level::Unknown);
        // None that is over before it began.
        bench.say(1.0, Duration::ZERO);
        assert_eq!(bench.level(TICK), Level::Unknown);
    }
}

#[test]
fn lies_are_not_heard() {
    for criterion in both() {
        for lie in LIES {
            let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
            bench.say(lie, Duration::MAX);
            assert_eq!(bench.level(TICK), Level::Unknown, "{criterion:?} {lie}");
            bench.say(1.0, Duration::MAX);
            assert_eq!(bench.level(TICK), Level::Red);
            // It goes on lying: the last true word holds for its time, no longer.
            let verdict = bench.run(secs(4.8), |bench| bench.say(lie, Duration::MAX));
            assert_eq!((verdict.level, verdict.figure), (Level::Red, Some(1.0)), "{criterion:?} {lie}");
            let verdict = bench.run(secs(0.3), |bench| bench.say(lie, Duration::MAX));
            assert_eq!((verdict.level, verdict.figure), (Level::Unknown, None), "{criterion:?} {lie}");
        }
    }
}

#[test]
fn a_source_that_disappears_is_one_that_hangs() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.say(1.0, Duration::MAX);
        assert_eq!(bench.level(TICK), Level::Red);
        bench.readings.clear();
        assert_eq!(bench.run(secs(4.8), |_| ()).level, Level::Red);
        assert_eq!(bench.run(secs(0.3), |_| ()).level, Level::Unknown);
    }
}

#[test]
fn a_reading_from_the_future_is_of_now() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        let now = bench.now;
        bench.now = now + secs(1e6);
        bench.say(1.0, Duration::MAX);
        bench.now = now;
        assert_eq!(bench.level(TICK), Level::Red);
        assert_eq!(bench.run(secs(5.0), |_| ()).level, Level::Unknown);
    }
}
