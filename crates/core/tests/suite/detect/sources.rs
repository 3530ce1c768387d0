//! A source that hangs, is implausible or is gone: the level is unknown after the time to live.

use std::time::Duration;

use tidegate_core::detect::{Criterion, Level, SourceId};

use super::bench::{Bench, TICK, common, fixed, secs};

const IMPLAUSIBLE: [f64; 8] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e-300, f64::MIN, 1.1e15, f64::MAX];

fn both() -> [Criterion; 2] {
    [Criterion::Host(SourceId(0)), Criterion::Signal(SourceId(0))]
}

#[test]
fn the_last_reading_is_valid_for_its_time_to_live() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.read(1.0, Duration::MAX);
        assert_eq!(bench.run(secs(4.9), |_| ()).level, Level::Red, "{criterion:?}");
        assert_eq!(bench.run(secs(0.2), |_| ()).level, Level::Unknown, "{criterion:?}");
        assert_eq!(bench.tick(TICK).fraction, None);
        // It comes back, and its earlier readings do not count any more.
        bench.read(0.0, Duration::MAX);
        assert_eq!(bench.tick(TICK).figure, Some(0.0), "{criterion:?}");
        assert_eq!(bench.tick(TICK).level, Level::Green, "{criterion:?}");
    }
}

#[test]
fn a_reading_may_have_a_shorter_validity() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.read(1.0, secs(1.0));
        assert_eq!(bench.run(secs(0.9), |_| ()).level, Level::Red);
        assert_eq!(bench.run(secs(0.2), |_| ()).level, Level::Unknown);
        // A validity of zero is none.
        bench.read(1.0, Duration::ZERO);
        assert_eq!(bench.level(TICK), Level::Unknown);
    }
}

#[test]
fn implausible_readings_are_ignored() {
    for criterion in both() {
        for value in IMPLAUSIBLE {
            let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
            bench.read(value, Duration::MAX);
            assert_eq!(bench.level(TICK), Level::Unknown, "{criterion:?} {value}");
            bench.read(1.0, Duration::MAX);
            assert_eq!(bench.level(TICK), Level::Red);
            // While it stays implausible, the last plausible reading is valid for its time.
            let verdict = bench.run(secs(4.8), |bench| bench.read(value, Duration::MAX));
            assert_eq!((verdict.level, verdict.figure), (Level::Red, Some(1.0)), "{criterion:?} {value}");
            let verdict = bench.run(secs(0.3), |bench| bench.read(value, Duration::MAX));
            assert_eq!((verdict.level, verdict.figure), (Level::Unknown, None), "{criterion:?} {value}");
        }
    }
}

#[test]
fn a_source_that_disappears_counts_as_one_that_hangs() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        bench.read(1.0, Duration::MAX);
        assert_eq!(bench.level(TICK), Level::Red);
        bench.readings.clear();
        assert_eq!(bench.run(secs(4.8), |_| ()).level, Level::Red);
        assert_eq!(bench.run(secs(0.3), |_| ()).level, Level::Unknown);
    }
}

#[test]
fn a_reading_from_the_future_counts_as_of_now() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        let now = bench.now;
        bench.now = now + secs(1e6);
        bench.read(1.0, Duration::MAX);
        bench.now = now;
        assert_eq!(bench.level(TICK), Level::Red);
        assert_eq!(bench.run(secs(5.0), |_| ()).level, Level::Unknown);
    }
}

#[test]
fn a_reading_is_what_the_source_said_and_not_the_average() {
    for criterion in both() {
        let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
        assert_eq!(bench.detector.reading(bench.now), None, "{criterion:?}");
        for value in [0.2, 0.9] {
            bench.read(value, Duration::MAX);
            bench.tick(TICK);
            assert_eq!(bench.detector.reading(bench.now), Some(value), "{criterion:?}");
        }
        let figure = bench.detector.verdict().figure.unwrap();
        assert_eq!(figure < 0.9, criterion == Criterion::Host(SourceId(0)), "{criterion:?}: {figure}");
        bench.run(secs(5.1), |_| ());
        assert_eq!(bench.detector.reading(bench.now), None, "{criterion:?}: after its time to live");
    }
    // The gate's own figures have no source.
    let mut bench = Bench::new(Criterion::Connections, &common(fixed(0.5, 1.0)));
    bench.connections = 5;
    assert_eq!((bench.tick(TICK).figure.is_some(), bench.detector.reading(bench.now)), (true, None));
}
