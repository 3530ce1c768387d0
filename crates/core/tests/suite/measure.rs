//! Counting, adding up, and what comes out as rates and quantiles.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::histogram::{Histogram, PROMETHEUS_BOUNDS, Recorder, WAIT_BOUNDS};
use tidegate_core::measure::*;
use tidegate_core::policies::TierId;
use tidegate_core::units::{ClassId, Cost, Timestamp};

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn histogram(times: &[u64]) -> Histogram {
    let recorder = Recorder::default();
    times.iter().for_each(|&t| recorder.record(us(t)));
    let mut h = Histogram::default();
    h.absorb(&recorder);
    h
}

/// From microseconds to an hour, as evenly over the magnitudes as over the numbers.
fn time() -> impl Strategy<Value = u64> {
    (0u32..32, any::<u32>()).prop_map(|(shift, n)| u64::from(n >> shift))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn quantiles_are_within_the_promised_error(
        times in prop::collection::vec(time(), 1..200),
        q in 0.0..=1.0f64,
    ) {
        let h = histogram(&times);
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
        let exact = sorted[rank - 1] as f64;
        let got = h.quantile(q).unwrap().as_micros() as f64;
        prop_assert!((got - exact).abs() <= exact / 64.0, "{} for {}", got, exact);
        prop_assert_eq!(h.count(), times.len() as u64);
        prop_assert_eq!(h.sum(), us(times.iter().sum()));
        prop_assert_eq!(h.mean(), Some(us(times.iter().sum::<u64>() / times.len() as u64)));
    }

    #[test]
    fn merging_is_counting_together(
        a in prop::collection::vec(time(), 0..60),
        b in prop::collection::vec(time(), 0..60),
    ) {
        let mut merged = histogram(&a);
        merged.merge(&histogram(&b));
        let together = histogram(&[a.clone(), b.clone()].concat());
        prop_assert_eq!(&merged, &together);
        prop_assert_eq!(together.since(&histogram(&a)), histogram(&b));
    }

    #[test]
    fn cumulative_counts_are_within_a_bucket(
        times in prop::collection::vec(time(), 0..100),
        bound in time(),
    ) {
        let h = histogram(&times);
        let at_most = |limit: u64| times.iter().filter(|&&t| t <= limit).count() as u64;
        let got = h.at_most(us(bound));
        prop_assert!(got <= at_most(bound));
        prop_assert!(got >= at_most(bound - bound / 32));
    }
}

#[test]
fn the_ends_of_the_range_are_safe() {
    let h = histogram(&[0, 1, u64::MAX / 2_000]);
    assert_eq!(h.quantile(0.0), Some(us(0)));
    assert_eq!(h.quantile(0.5), Some(us(1)));
    let longest = h.quantile(1.0).unwrap().as_secs();
    assert!((4_200..=4_295).contains(&longest), "{longest} s: about 71 minutes");
    assert_eq!(h.at_most(Duration::MAX), 3);
    let empty = Histogram::default();
    assert_eq!((empty.quantile(0.5), empty.mean(), empty.at_most(us(9))), (None, None, 0));
    assert!(PROMETHEUS_BOUNDS.is_sorted() && WAIT_BOUNDS.is_sorted());
    let recorder = Recorder::default();
    recorder.record(Duration::MAX);
    let mut h = Histogram::default();
    h.absorb(&recorder);
    assert_eq!(h.count(), 1);
}

#[test]
fn event_names_are_a_stable_interface() {
    let mut names = HashSet::new();
    for event in Event::ALL {
        let snake = event.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(snake && !event.name().is_empty(), "{}", event.name());
        assert!(names.insert(event.name()), "{} twice", event.name());
        assert!(event.help().ends_with('.') && !event.help().contains('\n'), "{}", event.help());
        assert_eq!(Event::ALL[*event as usize], *event, "the index of its counter");
        // The name is the variant in snake case.
        let camel: String = event.name().split('_').map(|w| w[..1].to_uppercase() + &w[1..]).collect();
        assert_eq!(camel, format!("{event:?}"));
    }
    assert_eq!(names.len(), Event::COUNT);
}

#[test]
fn a_window_holds_the_events_between_two_snapshots() {
    let (a, b) = (Shard::new(2), Shard::new(2));
    let busy = |shard: &Shard, n: u64| {
        for i in 0..n {
            shard.count(Event::Requests);
            shard.arrived(ClassId(1));
            if i % 2 == 0 {
                shard.forwarded(ClassId(1), us(40));
                shard.ended(ClassId(1), Outcome::Served, us(10_000));
            }
        }
    };
    busy(&a, 100);
    a.ended(ClassId(0), Outcome::Served, us(60_000_000));
    a.ended(ClassId(0), Outcome::OriginError, us(7_000));
    let before = Snapshot::take([&a, &b], Timestamp::from_secs(10));
    busy(&a, 10);
    busy(&b, 30);
    b.ended(ClassId(0), Outcome::OriginError, us(3));
    b.ended(ClassId(0), Outcome::OriginError, us(5));
    b.ended(ClassId(0), Outcome::ClientGone, us(4));
    b.count_many(Event::UpgradeBytes, 1 << 40);
    b.arrived(ClassId(7)); // From before a reload: not counted, not a panic.
    let after = Snapshot::take([&a, &b], Timestamp::from_secs(12));

    assert_eq!((before.event(Event::Requests), after.event(Event::Requests)), (100, 140));
    let window = Window::between(&before, &after);
    assert_eq!(window.span, Duration::from_secs(2));
    assert_eq!((window.event(Event::Requests), window.event(Event::UpgradeBytes)), (40, 1 << 40));
    let one = window.class(ClassId(1));
    assert_eq!(
        (one.offered_per_s, one.admitted_per_s, one.goodput_per_s, one.errors_per_s),
        (20.0, 10.0, 10.0, 0.0)
    );
    assert_eq!(one.queue_wait.p50, Some(us(40)));
    assert_eq!(one.response.mean, Some(us(10_000)));
    let p99 = one.response.p99.unwrap().as_micros();
    assert!((9_844..=10_156).contains(&p99), "{p99}");
    let zero = window.class(ClassId(0));
    assert_eq!((zero.errors_per_s, zero.goodput_per_s), (1.0, 0.0));
    assert_eq!(zero.response.mean, None, "the minute before the window and failures do not count");
    assert_eq!(window.classes()[0].error_time, us(8));
    assert_eq!(window.classes()[0].client_gone, 1);
    assert_eq!(window.class(ClassId(9)), Figures::default());
    assert_eq!(window.total().offered_per_s, 20.0);
    let costs = [Cost::ONE, Cost::from_hundredths(300)];
    assert_eq!((window.offered(&costs).get(), window.goodput(&costs).get()), (60.0, 30.0));
    assert_eq!(window.offered(&[]).get(), 20.0, "an unknown cost is average");

    let backwards = Window::between(&after, &before);
    assert_eq!((backwards.event(Event::Requests), backwards.total().offered_per_s), (0, 0.0));
}

/// Reading beside a writer: never more than was written, never less than a moment ago, all of it in the end.
#[test]
fn a_shard_is_read_while_written() {
    const N: u64 = 200_000;
    let (shard, done) = (Shard::new(1), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 0..N {
                shard.count(Event::Requests);
                shard.ended(ClassId(0), Outcome::Served, us(i % 5_000));
            }
            done.store(true, Ordering::Release);
        });
        let mut last = Snapshot::take([&shard], Timestamp::default());
        while !done.load(Ordering::Acquire) {
            let now = Snapshot::take([&shard], Timestamp::default());
            assert!(now.event(Event::Requests) >= last.event(Event::Requests));
            assert!(now.classes()[0].response.count() >= last.classes()[0].response.count());
            assert!(now.classes()[0].response.count() <= N);
            last = now;
        }
    });
    let end = Snapshot::take([&shard], Timestamp::default());
    assert_eq!((end.event(Event::Requests), end.classes()[0].response.count()), (N, N));
}

#[test]
fn refusals_are_counted_by_class_and_reason() {
    let shard = Shard::new(2);
    let before = Snapshot::take([&shard], Timestamp::from_secs(1));
    shard.shed(ClassId(1), Event::QueueFull);
    shard.shed(ClassId(1), Event::QueueFull);
    (0..3).for_each(|_| shard.shed(ClassId(1), Event::RuleRefused));
    shard.shed(ClassId(1), Event::QuotaRefused);
    shard.shed(ClassId(0), Event::Full);
    shard.shed(ClassId(0), Event::Retries); // refuses nobody
    shard.shed(ClassId(7), Event::Full); // outlived a reload
    shard.forwarded(ClassId(0), us(1));
    shard.ended(ClassId(0), Outcome::ClientGone, us(1));
    let after = Snapshot::take([&shard, &shard], Timestamp::from_secs(3));
    let window = Window::between(&before, &after);
    let per_s = |shed: [f64; Event::SHED.len()]| -> Vec<(Event, f64)> {
        Event::SHED.into_iter().zip(shed).filter(|(_, n)| *n > 0.0).collect()
    };
    let (full, queue) = ((Event::Full, 1.0), (Event::QueueFull, 2.0));
    let (rule, quota) = ((Event::RuleRefused, 3.0), (Event::QuotaRefused, 1.0));
    assert_eq!(per_s(window.class(ClassId(0)).shed_per_s), [full]);
    assert_eq!(per_s(window.class(ClassId(1)).shed_per_s), [queue, rule, quota]);
    assert_eq!(per_s(window.total().shed_per_s), [full, queue, rule, quota]);
    assert_eq!((window.total().client_gone_per_s, after.classes()[0].in_flight()), (1.0, 0));
}

#[test]
fn what_visitors_see_is_timed_beside_the_origin() {
    let shards = [Shard::new(2), Shard::new(2)];
    let begin = Snapshot::take(&shards, Timestamp::from_secs(1));
    let ms = Duration::from_millis;
    // Half of its time at the gate.
    shards[0].ended(ClassId(1), Outcome::Served, ms(20));
    shards[0].took(ClassId(1), true, ms(40));
    // Refused by the gate: not among the served.
    shards[0].took(ClassId(1), false, ms(9_000));
    for (shard, wait) in [(0, 60_000), (1, 120_000)] {
        shards[shard].waited(ClassId(1), ms(wait));
        shards[shard].tier(TierId(1)).waited(ms(wait));
    }
    shards[1].tier(TierId(1)).took(true, ms(40));
    let end = Snapshot::take(&shards, Timestamp::from_secs(3));
    let window = Window::between(&begin, &end);
    let near = |time: Option<Duration>, ms: f64| {
        time.is_some_and(|t| (t.as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.03)
    };
    let (class, tier) = (window.class(ClassId(1)), window.tier(TierId(1)));
    assert!(near(class.response.mean, 20.0) && near(class.visitor.mean, 40.0), "{class:?}");
    assert!(near(class.visitor.p99, 40.0) && near(tier.visitor.p50, 40.0), "{class:?} {tier:?}");
    for figures in [class, tier, window.total()] {
        assert_eq!(figures.waited_per_s, 1.0);
        // The total is that of the classes.
        assert!(near(figures.waited.mean, 90_000.0) && near(figures.waited.p99, 120_000.0), "{figures:?}");
    }
    assert_eq!((end.classes()[1].failed_time.count(), end.classes()[1].served_time.count()), (1, 1));
    assert_eq!(window.class(ClassId(0)).waited, Times::default());
    let still = Window::between(&end, &Snapshot::take(&shards, Timestamp::from_secs(4)));
    assert_eq!((still.total().waited_per_s, still.total().visitor.mean), (0.0, None));
}

#[test]
fn service_levels_are_counted_beside_the_classes() {
    let shards = [Shard::new(1), Shard::new(1)];
    let start = Snapshot::take(&shards, Timestamp::from_secs(10));
    assert!(start.tiers().is_empty(), "none is counted before its first request");
    for (shard, tier, ms) in [(0, 2, 10), (1, 2, 30), (1, 0, 500)] {
        let counters = shards[shard].tier(TierId(tier));
        counters.arrived();
        counters.forwarded(Duration::from_millis(1));
        counters.ended(Outcome::Served, Duration::from_millis(ms));
    }
    shards[0].tier(TierId(0)).shed(Event::QueueFull);
    let end = Snapshot::take(&shards, Timestamp::from_secs(12));
    let served: Vec<u64> = end.tiers().iter().map(|tier| tier.served).collect();
    assert_eq!(served, [1, 0, 2]);
    let window = Window::between(&start, &end);
    let (gold, others) = (window.tier(TierId(2)), window.tier(TierId(0)));
    assert_eq!((gold.goodput_per_s, others.goodput_per_s), (1.0, 0.5));
    let at = Event::SHED.iter().position(|reason| *reason == Event::QueueFull).unwrap();
    assert_eq!((gold.shed_per_s[at], others.shed_per_s[at]), (0.0, 0.5));
    let near = |time: Option<Duration>, ms: f64| {
        time.is_some_and(|t| (t.as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.1)
    };
    assert!(near(gold.response.mean, 20.0) && near(others.response.p95, 500.0), "{gold:?} {others:?}");
    assert_eq!(window.tier(TierId(7)).goodput_per_s, 0.0);
    assert!(end.classes().iter().all(|class| class.arrivals == 0), "a class has counters of its own");
}
