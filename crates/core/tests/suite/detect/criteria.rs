//! Each criterion: its figure, and the levels that follow from it.

use std::time::Duration;

use tidegate_core::detect::{Common, Counted, Criterion, Level, Sampling, SessionCount, SourceId, Statistic};
use tidegate_core::units::ClassId;

use super::bench::{Bench, TICK, common, fixed, secs};

const NEVER: Duration = Duration::MAX;

fn is_near(got: Option<f64>, wanted: f64, share: f64) -> bool {
    got.is_some_and(|got| (got / wanted - 1.0).abs() < share)
}

#[test]
fn a_the_overall_rate_of_requests() {
    let mut bench = Bench::new(Criterion::RequestRate(Counted::Requests), &common(fixed(80.0, 150.0)));
    assert_eq!(bench.level(TICK), Level::Unknown, "no data yet");
    // Both classes count: 100 a second.
    let verdict = bench.run(secs(5.0), |bench| {
        bench.arrive(0, 4);
        bench.arrive(1, 6);
    });
    assert!(is_near(verdict.figure, 100.0, 1e-6), "{verdict:?}");
    assert_eq!(verdict.level, Level::Orange);
    assert!(is_near(verdict.fraction, 100.0 / 150.0, 1e-6));
    // Twice as many: 1 - 1/e of the way after one period.
    let verdict = bench.run(secs(1.0), |bench| bench.arrive(0, 20));
    assert!(is_near(verdict.figure, 100.0 + 100.0 * 0.632_12, 1e-3), "{verdict:?}");
    assert_eq!((verdict.level, verdict.fraction), (Level::Red, Some(1.0)));
    // No more arrivals: noticed within a second, although there is no event to check on.
    assert_eq!(bench.run(secs(3.0), |_| ()).level, Level::Green);
}

#[test]
fn a_the_rate_of_connections() {
    let mut bench = Bench::new(Criterion::RequestRate(Counted::Connections), &common(fixed(80.0, 150.0)));
    let verdict = bench.run(secs(5.0), |bench| {
        bench.connect(10);
        bench.arrive(0, 500);
    });
    assert!(is_near(verdict.figure, 100.0, 1e-3), "{verdict:?}");
}

#[test]
fn b_the_rate_of_a_class() {
    let mut bench = Bench::new(Criterion::ClassRate(ClassId(1)), &common(fixed(40.0, 50.0)));
    let verdict = bench.run(secs(5.0), |bench| {
        bench.arrive(0, 100);
        bench.arrive(1, 6);
    });
    assert!(is_near(verdict.figure, 60.0, 1e-3), "{verdict:?}");
    assert_eq!(verdict.level, Level::Red);
    let mut nowhere = Bench::new(Criterion::ClassRate(ClassId(7)), &common(fixed(40.0, 50.0)));
    assert_eq!(nowhere.run(secs(5.0), |bench| bench.arrive(7, 100)).level, Level::Unknown);
}

#[test]
fn c_the_response_time_of_all_requests() {
    for (statistic, wanted) in [
        (Statistic::Mean, 0.19),
        (Statistic::Quantile(0.5), 0.1),
        (Statistic::Quantile(0.95), 1.0),
        (Statistic::Deviation, 0.27),
    ] {
        let criterion = Criterion::ResponseTime(None, statistic);
        let mut bench = Bench::new(criterion, &common(fixed(wanted * 0.9, 10.0)));
        assert_eq!(bench.level(TICK), Level::Unknown);
        let verdict = bench.run(secs(10.0), |bench| {
            (0..9).for_each(|_| bench.serve(0, 100));
            bench.serve(1, 1000);
        });
        assert!(is_near(verdict.figure, wanted, 0.03), "{statistic:?}: {verdict:?}");
        assert_eq!(verdict.level, Level::Orange);
        // The past fades: ten periods later only the new times count.
        let verdict = bench.run(secs(10.0), |bench| bench.serve(0, 1));
        assert_eq!(verdict.level, Level::Green, "{statistic:?}: {verdict:?}");
    }
}

#[test]
fn d_the_response_time_of_a_class() {
    let criterion = Criterion::ResponseTime(Some(ClassId(1)), Statistic::Mean);
    let mut bench = Bench::new(criterion, &common(fixed(0.5, 1.0)));
    let verdict = bench.run(secs(5.0), |bench| {
        bench.serve(0, 60_000);
        bench.serve(1, 700);
    });
    assert!(is_near(verdict.figure, 0.7, 1e-6), "{verdict:?}");
    assert_eq!(verdict.level, Level::Orange);
    // Nothing completes: the last measurement is valid for five seconds.
    assert_eq!(bench.run(secs(4.0), |_| ()).level, Level::Orange);
    assert_eq!(bench.run(secs(2.0), |_| ()).level, Level::Unknown);
    assert_eq!(bench.run(secs(1.0), |bench| bench.serve(1, 2_000)).level, Level::Red);
}

const STATISTICS: [Statistic; 3] = [Statistic::Mean, Statistic::Quantile(0.95), Statistic::Deviation];

fn slow(statistic: Statistic) -> Bench {
    Bench::new(Criterion::ResponseTime(None, statistic), &common(fixed(1.0, 2.0)))
}

#[test]
fn c_an_origin_that_hangs_is_red_and_never_unknown() {
    for statistic in STATISTICS {
        // Busy before, or hung from the start; a crowd, or one request alone.
        for (before, crowd) in [(0.0, 1), (0.0, 20), (10.0, 1), (10.0, 20)] {
            let mut bench = slow(statistic);
            bench.run(secs(before), |bench| (0..20).for_each(|_| bench.serve(0, 10)));
            let begin = bench.now;
            (0..crowd).for_each(|_| bench.shard.enters(ClassId(0), begin));
            let verdict = bench.run(secs(3.5), |_| ());
            assert_eq!(verdict.level, Level::Red, "{statistic:?}, {before} s, {crowd}: {verdict:?}");
            let verdict = bench.run(secs(60.0), |_| ());
            assert_eq!(verdict.level, Level::Red, "for as long as they hang: {verdict:?}");
            // They fail in the end, and the origin recovers.
            for _ in 0..crowd {
                bench.shard.leaves(ClassId(0), begin);
                bench.fail(0, 63_500);
            }
            let verdict = bench.run(secs(15.0), |bench| (0..20).for_each(|_| bench.serve(0, 10)));
            assert_eq!(verdict.level, Level::Green, "{statistic:?}: {verdict:?}");
        }
    }
}

#[test]
fn c_visitors_who_give_up_early_hide_no_silence() {
    for statistic in STATISTICS {
        let mut bench = slow(statistic);
        bench.run(secs(5.0), |bench| bench.serve(0, 10));
        // Nobody waits for longer than half a second, and nobody gets an answer.
        let mut there = std::collections::VecDeque::new();
        let verdict = bench.run(secs(4.0), |bench| {
            bench.shard.enters(ClassId(0), bench.now);
            there.push_back(bench.now);
            if there.len() > 5 {
                bench.shard.leaves(ClassId(0), there.pop_front().unwrap());
            }
        });
        assert_eq!(verdict.level, Level::Red, "{statistic:?}: {verdict:?}");
        there.drain(..).for_each(|since| bench.shard.leaves(ClassId(0), since));
        // Without requests there is no silence: what was served last counts until it is too old.
        assert_eq!(bench.run(secs(3.0), |_| ()).level, Level::Unknown, "{statistic:?}");
    }
}

#[test]
fn c_failures_count_with_their_time_and_quick_ones_are_not_fast() {
    for statistic in [Statistic::Mean, Statistic::Quantile(0.95)] {
        // Time-outs beside quick answers.
        let verdict = slow(statistic).run(secs(10.0), |bench| {
            bench.serve(0, 10);
            (0..3).for_each(|_| bench.fail(0, 4_000));
        });
        assert_eq!(verdict.level, Level::Red, "{statistic:?}: {verdict:?}");
        // Quick failures beside slow answers.
        let verdict = slow(statistic).run(secs(10.0), |bench| {
            bench.serve(0, 4_000);
            (0..300).for_each(|_| bench.fail(0, 1));
        });
        assert_eq!(verdict.level, Level::Red, "{statistic:?}: {verdict:?}");
        // Nothing but quick failures.
        let verdict = slow(statistic).run(secs(4.0), |bench| bench.fail(0, 1));
        assert_eq!(verdict.level, Level::Red, "{statistic:?}: {verdict:?}");
    }
    // One failure in an idle service is no silence.
    let mut bench = slow(Statistic::Mean);
    bench.run(secs(1.0), |bench| bench.serve(0, 10));
    bench.fail(0, 1);
    let verdict = bench.run(secs(4.0), |_| ());
    assert_eq!(verdict.level, Level::Green, "{verdict:?}");
}

#[test]
fn c_requests_under_way_make_a_service_no_slower_than_it_is() {
    // 50 at once that take a second each: all ages from nothing to a second are always there.
    for (statistic, wanted) in [(Statistic::Mean, 1.0), (Statistic::Quantile(0.95), 1.0)] {
        let mut bench = slow(statistic);
        let mut there = std::collections::VecDeque::new();
        let verdict = bench.run(secs(20.0), |bench| {
            (0..5).for_each(|_| bench.shard.enters(ClassId(0), bench.now));
            there.push_back(bench.now);
            if there.len() > 10 {
                let since = there.pop_front().unwrap();
                (0..5).for_each(|_| bench.shard.leaves(ClassId(0), since));
                (0..5).for_each(|_| bench.serve(0, 1_000));
            }
        });
        assert!(is_near(verdict.figure, wanted, 0.03), "{statistic:?}: {verdict:?}");
    }
    // One that hangs among a thousand does not count for the 95th percentile.
    let mut bench = slow(Statistic::Quantile(0.95));
    bench.shard.enters(ClassId(0), bench.now);
    let verdict = bench.run(secs(20.0), |bench| (0..100).for_each(|_| bench.serve(0, 10)));
    assert_eq!(verdict.level, Level::Green, "{verdict:?}");
}

#[test]
fn e_open_connections() {
    let now = common(fixed(80.0, 100.0));
    let now = tidegate_core::detect::Common { period: Duration::ZERO, ..now };
    let mut bench = Bench::new(Criterion::Connections, &now);
    bench.connections = 80;
    assert_eq!(bench.level(TICK), Level::Orange);
    bench.connections = 100;
    bench.connect(20);
    let verdict = bench.tick(TICK);
    assert_eq!((verdict.figure, verdict.level), (Some(100.0), Level::Red));
    // Connections end, and none begins.
    bench.connections = 3;
    assert_eq!(bench.run(secs(1.1), |_| ()).level, Level::Green);
}

#[test]
fn f_concurrent_sessions() {
    let mut bench = Bench::new(Criterion::Sessions, &common(fixed(8.0, 10.0)));
    assert_eq!(bench.run(secs(2.0), |_| ()).level, Level::Unknown, "they are not counted");
    let verdict = bench.run(secs(10.0), |bench| {
        let begun = bench.sessions.map_or(0, |sessions| sessions.begun + 1);
        bench.sessions = Some(SessionCount { open: 10, begun });
    });
    assert_eq!((verdict.figure, verdict.level), (Some(10.0), Level::Red));
    bench.sessions = None;
    assert_eq!(bench.level(TICK), Level::Unknown);
}

#[test]
fn g_the_processor_load_is_averaged_over_the_period() {
    let mut bench = Bench::new(Criterion::Host(SourceId(0)), &common(fixed(0.7, 0.9)));
    assert_eq!(bench.level(TICK), Level::Unknown);
    bench.read(0.5, NEVER);
    assert_eq!(bench.tick(TICK).figure, Some(0.5), "the first reading is the mean");
    let verdict = bench.run(secs(1.0), |bench| bench.read(1.0, NEVER));
    assert!(is_near(verdict.figure, 0.5 + 0.5 * 0.632_12, 1e-3), "{verdict:?}");
    assert_eq!(verdict.level, Level::Orange);
    assert_eq!(bench.run(secs(2.0), |bench| bench.read(1.0, NEVER)).level, Level::Red);
}

#[test]
fn g_a_low_figure_may_be_the_bad_one() {
    // Free memory: red below 1 GiB.
    let mut bench = Bench::new(Criterion::Host(SourceId(0)), &common(fixed(2.0, 1.0)));
    let mut at = |value| bench.run(secs(20.0), |bench| bench.read(value, NEVER));
    assert_eq!((at(8.0).level, at(8.0).fraction), (Level::Green, Some(0.125)));
    assert_eq!(at(1.9).level, Level::Orange);
    assert_eq!((at(0.5).level, at(0.0).fraction), (Level::Red, Some(1.0)));
    assert_eq!(at(1.05).level, Level::Red, "within the band");
    assert_eq!(at(1.2).level, Level::Orange);
}

#[test]
fn h_a_signal_of_another_application_counts_at_once() {
    let mut bench = Bench::new(Criterion::Signal(SourceId(0)), &common(fixed(0.5, 1.0)));
    assert_eq!(bench.level(TICK), Level::Unknown, "no signal yet");
    for (signal, level) in [(1.0, Level::Red), (0.0, Level::Green), (0.5, Level::Orange), (1.0, Level::Red)] {
        bench.read(signal, NEVER);
        assert_eq!(bench.level(TICK), level, "{signal}");
    }
}

#[test]
fn one_check_in_n_events_loses_no_event() {
    let one_in = |n| {
        let common =
            tidegate_core::detect::Common { sampling: Sampling::OneIn(n), ..common(fixed(80.0, 150.0)) };
        let mut bench = Bench::new(Criterion::RequestRate(Counted::Requests), &common);
        let verdict = bench.run(secs(20.0), |bench| bench.arrive(0, 10));
        (verdict, bench.detector.checks())
    };
    let (every, checks) = one_in(1);
    assert_eq!(checks, 200);
    let (some, checks) = one_in(50);
    assert_eq!(checks, 40, "100 a second, one in 50, for 20 s");
    assert!(is_near(some.figure, every.figure.unwrap(), 1e-6));
    // With fewer events than n there is still one check a second.
    assert_eq!(one_in(1_000_000).1, 20);
}

#[test]
fn sampling_follows_the_load() {
    let judge = fixed(1e6, 2e6);
    let common = tidegate_core::detect::Common { sampling: Sampling::PerSecond(3.0), ..common(judge) };
    let mut bench = Bench::new(Criterion::RequestRate(Counted::Requests), &common);
    bench.run(secs(5.0), |bench| bench.arrive(0, 10));
    for per_tick in [10, 1000, 1, 200] {
        bench.run(secs(10.0), |bench| bench.arrive(0, per_tick));
        let before = bench.detector.checks();
        let verdict = bench.run(secs(10.0), |bench| bench.arrive(0, per_tick));
        let checks = bench.detector.checks() - before;
        assert!((9..=30).contains(&checks), "{per_tick} a tick: {checks} checks in 10 s");
        assert!(is_near(verdict.figure, per_tick as f64 * 10.0, 1e-3), "{verdict:?}");
    }
}

#[test]
fn other_parameters_keep_what_was_measured() {
    let slow = Common { period: secs(60.0), ..common(fixed(40.0, 80.0)) };
    let other = Common { sampling: Sampling::OneIn(5), ..common(fixed(10.0, 20.0)) };
    let criteria = [
        Criterion::RequestRate(Counted::Requests),
        Criterion::Connections,
        Criterion::ResponseTime(None, Statistic::Mean),
        Criterion::Host(SourceId(0)),
        Criterion::Signal(SourceId(0)),
    ];
    for criterion in criteria {
        let mut bench = Bench::new(criterion, &slow);
        bench.connections = 30;
        let before = bench.run(secs(100.0), |bench| {
            bench.arrive(0, 3);
            bench.connect(1);
            bench.serve(0, 30_000);
            bench.read(30.0, secs(60.0));
        });
        assert_eq!(before.level, Level::Green, "{criterion:?}: {before:?}");
        bench.detector.retune(&other, bench.now);
        let after = bench.detector.verdict();
        assert_eq!((after.figure, after.level), (before.figure, Level::Red), "{criterion:?}");
        assert_ne!(bench.level(TICK), Level::Unknown, "{criterion:?}");
        assert!(bench.detector.checks() > 100, "{criterion:?}");
    }
}
