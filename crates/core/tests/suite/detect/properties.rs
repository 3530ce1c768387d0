//! Properties for all figures, all settings and all courses of time.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::detect::{
    AdaptiveConfig, Common, Counted, Criterion, Judge, JudgeConfig, Level, Limit, Sampling, SessionCount,
    SourceId, Statistic, Weighted,
};
use tidegate_core::units::{ClassId, Timestamp};

use super::bench::{Bench, TICK, secs};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Every f64, and usual ones often.
fn any_figure() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        0.0..200.0f64,
        Just(f64::NAN),
        Just(-0.0),
        Just(f64::INFINITY)
    ]
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(TICK),
        Just(Duration::ZERO),
        (0u64..5_000_000).prop_map(Duration::from_micros),
        (0u64..1 << 45).prop_map(Duration::from_micros)
    ]
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let fixed = (proptest::option::of(any_figure()), any_figure());
    let adaptive = (any_figure(), any_span(), any_figure(), any_figure());
    prop_oneof![
        fixed.prop_map(|(orange, red)| Limit::Fixed { orange, red }),
        adaptive.prop_map(|(k, learn, floor, ceiling)| Limit::Adaptive(AdaptiveConfig {
            k,
            learn,
            floor,
            ceiling
        })),
    ]
}

fn any_common() -> impl Strategy<Value = Common> {
    let sampling =
        prop_oneof![any::<u32>().prop_map(Sampling::OneIn), any_figure().prop_map(Sampling::PerSecond)];
    (any_limit(), any_figure(), any_span(), any_span(), any_span(), sampling).prop_map(
        |(limit, hysteresis, calm, period, time_to_live, sampling)| {
            let judge = JudgeConfig { limit, hysteresis, calm };
            Common { period, sampling, judge, time_to_live }
        },
    )
}

fn any_criterion() -> impl Strategy<Value = Criterion> {
    let statistic = prop_oneof![
        Just(Statistic::Mean),
        any_figure().prop_map(Statistic::Quantile),
        Just(Statistic::Deviation)
    ];
    prop_oneof![
        Just(Criterion::RequestRate(Counted::Requests)),
        Just(Criterion::RequestRate(Counted::Connections)),
        any::<u8>().prop_map(|class| Criterion::ClassRate(ClassId(class))),
        (proptest::option::of(0u8..3), statistic)
            .prop_map(|(class, statistic)| Criterion::ResponseTime(class.map(ClassId), statistic)),
        Just(Criterion::Connections),
        Just(Criterion::Sessions),
        (0usize..3).prop_map(|source| Criterion::Host(SourceId(source))),
        (0usize..3).prop_map(|source| Criterion::Signal(SourceId(source))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No detector panics, and its judgement is consistent, for all settings and inputs.
    #[test]
    fn nothing_makes_a_detector_panic(
        criterion in any_criterion(),
        common in any_common(),
        course in proptest::collection::vec(
            (any_span(), any_figure(), any::<u64>(), any_span(), 0u64..100_000),
            1..30,
        ),
    ) {
        let mut bench = Bench::new(criterion, &common);
        for (span, figure, count, good_for, ms) in course {
            bench.read(figure, good_for);
            bench.connections = count;
            bench.connect(count);
            bench.sessions = (count % 3 > 0).then_some(SessionCount { open: count, begun: count });
            bench.arrive((count % 4) as u8, (count % 50) as usize);
            bench.serve((count % 4) as u8, ms);
            let verdict = bench.tick(span);
            prop_assert_eq!(verdict.level == Level::Unknown, verdict.fraction.is_none());
            prop_assert!(verdict.fraction.is_none_or(|share| (0.0..=1.0).contains(&share)), "{:?}", verdict);
            prop_assert!(verdict.figure.is_none_or(|x| (0.0..=1e15).contains(&x)), "{:?}", verdict);
            // A clock that stands still or goes back does no harm.
            bench.now = bench.now.saturating_sub(good_for);
            bench.tick(Duration::ZERO);
        }
    }

    /// The times at which red ends are `calm` apart, so within any time T it ends at most T / calm + 1 times.
    #[test]
    fn red_does_not_oscillate(
        calm_ms in 1u64..5_000,
        hysteresis in 0.0..0.5f64,
        course in proptest::collection::vec((0u64..3_000, 0.0..200.0f64), 1..300),
    ) {
        let limit = Limit::Fixed { orange: Some(80.0), red: 100.0 };
        let calm = Duration::from_millis(calm_ms);
        let mut judge = Judge::new(&JudgeConfig { limit, hysteresis, calm });
        let (mut now, mut was, mut left) = (START, Level::Unknown, None::<Timestamp>);
        for (ms, figure) in course {
            now = now + Duration::from_millis(ms);
            judge.take(Some(figure), now);
            let level = judge.verdict().level;
            prop_assert!(level == Level::Red || figure < 100.0, "up at once");
            if was == Level::Red && level < Level::Red {
                prop_assert!(figure < 100.0 * (1.0 - hysteresis), "left within the band: {}", figure);
                prop_assert!(left.is_none_or(|left| now.since(left) >= calm), "left twice within {calm:?}");
                left = Some(now);
            }
            was = level;
        }
    }

    /// A steady stream has the same rate however it is cut, because the weighting is exact.
    #[test]
    fn a_rate_does_not_depend_on_when_it_is_sampled(
        period_ms in 10u64..10_000,
        cuts in proptest::collection::vec(1u64..400, 1..60),
    ) {
        let period = Duration::from_millis(period_ms);
        let (mut often, mut once) = (Weighted::new(period), Weighted::new(period));
        // Three events a millisecond, then none.
        let total: u64 = cuts.iter().sum();
        cuts.iter().for_each(|ms| often.add(3 * ms, Duration::from_millis(*ms)));
        once.add(3 * total, Duration::from_millis(total));
        cuts.iter().for_each(|ms| often.add(0, Duration::from_millis(*ms)));
        once.add(0, Duration::from_millis(total));
        match (often.get(), once.get()) {
            (Some(often), Some(once)) => {
                prop_assert!((often - once).abs() <= 1e-6 * once.max(1e-9), "{} and {}", often, once);
            }
            // At the border of half a period.
            (often, once) => prop_assert!(often.is_none() || once.is_none()),
        }
    }

    /// While the level is red, the threshold is constant.
    #[test]
    fn red_is_never_learned(
        k in 1.0..8.0f64,
        course in proptest::collection::vec(0.0..1_000.0f64, 100..400),
    ) {
        let adaptive = AdaptiveConfig { k, learn: secs(10.0), floor: 0.0, ceiling: f64::INFINITY };
        let limit = Limit::Adaptive(adaptive);
        let mut judge = Judge::new(&JudgeConfig { limit, hysteresis: 0.1, calm: secs(1.0) });
        let (mut now, mut before) = (START, judge.verdict());
        for figure in course {
            now = now + TICK;
            judge.take(Some(figure), now);
            let verdict = judge.verdict();
            if before.level == Level::Red && verdict.level == Level::Red {
                prop_assert_eq!((before.orange, before.red), (verdict.orange, verdict.red));
            }
            before = verdict;
        }
    }
}
