//! Token buckets against an exact account in whole numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::bucket::{Bucket, BucketConfig, SharedBucket};
use tidegate_core::units::{Cost, Rate, Timestamp};

const START_US: u64 = 1_800_000_000_000_000;

fn config(rate: f64, burst: u64) -> BucketConfig {
    BucketConfig { rate: Rate::per_second(rate).unwrap(), burst: Cost::from_hundredths(burst) }
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(START_US + us)
}

/// A rate of `n / d` a second. The level, in 1 / (d * 10^6) of a hundredth, is negative after a request
/// beyond the burst.
struct Account {
    n: i128,
    d: i128,
    burst: i128,
    level: i128,
    last_us: u64,
}

impl Account {
    fn unit(&self) -> i128 {
        self.d * 1_000_000
    }

    fn take(&mut self, cost: u64, us: u64) -> Result<(), Duration> {
        self.level += 100 * self.n * i128::from(us - self.last_us);
        self.level = self.level.min(self.burst * self.unit());
        self.last_us = us;
        let missing = i128::from(cost).min(self.burst) * self.unit() - self.level;
        if missing > 0 {
            let per_us = 100 * self.n;
            return Err(Duration::from_micros(((missing + per_us - 1) / per_us) as u64));
        }
        self.level -= i128::from(cost) * self.unit();
        Ok(())
    }
}

fn rates() -> impl Strategy<Value = (u64, u64)> {
    (1u64..4_000, prop::sample::select(vec![1u64, 2, 4, 5, 8, 10, 25]))
}

/// Pauses of all sizes, and costs beside the burst.
fn stream() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![Just(0u64), 1u64..100, 100u64..50_000, 50_000u64..5_000_000];
    prop::collection::vec((pause, 1u64..1_500), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_buckets_equal_the_account((n, d) in rates(), burst in 1u64..2_000, stream in stream()) {
        let config = config(n as f64 / d as f64, burst);
        let (mut bucket, shared) = (Bucket::new(&config), SharedBucket::new(&config).unwrap());
        let mut account = Account { n: n.into(), d: d.into(), burst: burst.into(), level: 0, last_us: 0 };
        account.level = account.burst * account.unit();
        let mut us = 0;
        for (pause, hundredths) in stream {
            us += pause;
            let cost = Cost::from_hundredths(hundredths);
            let wait = bucket.wait(cost, at(us));
            let expected = account.take(hundredths, us);
            prop_assert_eq!(wait, expected.err().unwrap_or_default());
            prop_assert_eq!(bucket.take(cost, at(us)), expected);
            prop_assert_eq!(shared.take(cost, at(us)), expected);
        }
    }

    /// At most burst + rate * time passes in every stretch.
    #[test]
    fn every_stretch_is_bounded(
        rate in prop_oneof![1e-6f64..1e-3, 1e-3..1.0, 1.0..1e4, 1e4..1e6],
        burst in 100u64..2_000,
        stream in stream(),
    ) {
        let mut bucket = Bucket::new(&config(rate, burst));
        let mut passed: Vec<(u64, u64)> = Vec::new();
        let mut us = 0;
        for (pause, cost) in stream {
            us += pause;
            let cost = cost.min(burst);
            if bucket.take(Cost::from_hundredths(cost), at(us)).is_ok() {
                passed.push((us, cost));
            }
        }
        for (i, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (until, cost) in &passed[i..] {
                sum += cost;
                // The rate in force differs from an odd one by less than a two-thousandth.
                let most = burst as f64 + rate * 1.0005 * 100.0 * (until - from) as f64 / 1e6;
                prop_assert!(sum as f64 <= most + 1e-6, "{sum} > {most} in {} us", until - from);
            }
        }
    }

    #[test]
    fn a_request_passes_exactly_after_its_wait(rate in 1e-3f64..1e5, burst in 1u64..500, cost in 1u64..500) {
        let mut bucket = Bucket::new(&config(rate, burst));
        let cost = Cost::from_hundredths(cost);
        while bucket.take(cost, at(0)).is_ok() {}
        let wait = bucket.wait(cost, at(0));
        prop_assert!(wait > Duration::ZERO);
        prop_assert!(bucket.clone().take(cost, at(0) + (wait - Duration::from_micros(1))).is_err());
        prop_assert!(bucket.take(cost, at(0) + wait).is_ok());
    }

    #[test]
    fn a_change_keeps_the_level_up_to_the_new_burst(
        (n, d) in rates(), burst in 1u64..500, (m, e) in rates(), depth in 1u64..500,
        used in 0u64..500, pause in 0u64..2_000_000,
    ) {
        let (old, new) = (config(n as f64 / d as f64, burst), config(m as f64 / e as f64, depth));
        let (mut bucket, shared) = (Bucket::new(&old), SharedBucket::new(&old).unwrap());
        let (one, now) = (Cost::from_hundredths(1), at(pause));
        let mut there = 0;
        for _ in 0..used.min(burst) {
            bucket.take(one, at(0)).unwrap();
            shared.take(one, at(0)).unwrap();
        }
        let mut probe = bucket.clone();
        while there < depth && probe.take(one, now).is_ok() {
            there += 1;
        }
        bucket.reconfigure(&new, now);
        let successor = shared.succeed(&new, now).unwrap();
        for _ in 0..there {
            prop_assert_eq!(bucket.take(one, now), Ok(()));
            // The old bucket takes from the new one.
            prop_assert_eq!(shared.take(one, now), Ok(()));
        }
        // A part of a hundredth may be left, but not another one.
        prop_assert!(bucket.take(one, now).is_err());
        prop_assert_eq!(successor.take(one, now), shared.take(one, now));
    }
}

#[test]
fn usual_rates_are_exact() {
    for rate in [35.0, 0.25, 1234.56, 1.0, 1e6, 0.001, 400_000.0] {
        let shared = SharedBucket::new(&config(rate, 100)).unwrap();
        assert_eq!(shared.gcra().rate().get(), rate);
    }
    for rate in [std::f64::consts::PI, 1e5 / 7.0, 98_765.432_1, 1e-7] {
        let real = SharedBucket::new(&config(rate, 100)).unwrap().gcra().rate().get();
        assert!((real / rate - 1.0).abs() < 1e-6, "{rate}: {real}");
    }
    assert!(SharedBucket::new(&config(0.0, 100)).is_none(), "no limit");
    assert_eq!(Bucket::new(&config(0.0, 0)).take(Cost::MAX, at(0)), Ok(()));
}

#[test]
fn a_day_at_an_odd_rate_does_not_drift() {
    // One request every 10/7 s, rounded up to microseconds; the burst has a hundredth to spare for the
    // rounding.
    let mut bucket = Bucket::new(&config(0.7, 101));
    for k in 0..60_480u64 {
        let due = at((k * 10_000_000).div_ceil(7));
        assert_eq!(bucket.take(Cost::ONE, due), Ok(()), "request {k} keeps to the rate");
        let wait = bucket.wait(Cost::ONE, due).as_micros();
        assert!((1_414_285..=1_414_288).contains(&wait), "request {k}: {wait}");
    }
}

#[test]
fn reservations_are_spaced_by_the_rate() {
    let bucket = SharedBucket::new(&config(2.0, 200)).unwrap();
    let within = Duration::from_secs(2);
    let due: Vec<_> = (0..7).map(|_| bucket.reserve(Cost::ONE, within, at(0))).collect();
    let ms = |ms: u64| Ok(at(ms * 1_000));
    assert_eq!(due[..6], [ms(0), ms(0), ms(500), ms(1_000), ms(1_500), ms(2_000)]);
    assert_eq!(due[6], Err(Duration::from_millis(2_500)));
    bucket.give_back(Cost::ONE);
    assert_eq!(bucket.reserve(Cost::ONE, within, at(0)), ms(2_000));
    assert_eq!(bucket.take(Cost::ONE, at(2_500_000)), Ok(()));
    assert_eq!(bucket.take(Cost::ONE, at(2_500_000)), Err(Duration::from_millis(500)));
}

#[test]
fn many_threads_share_one_burst() {
    let bucket = SharedBucket::new(&config(1.0, 1_000_000)).unwrap();
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (bucket, passed) = (&bucket, &passed);
            scope.spawn(move || {
                for i in 0..5_000 {
                    if bucket.take(Cost::from_hundredths(1 + (i * 7 + thread) % 150), at(0)).is_ok() {
                        passed.fetch_add(1 + (i * 7 + thread) % 150, Ordering::Relaxed);
                    }
                }
            });
        }
        let bucket = &bucket;
        scope.spawn(move || {
            let mut last: Arc<SharedBucket> = bucket.clone();
            for k in 1..200u64 {
                last = last.succeed(&config(1.0 + (k % 3) as f64, 1_000_000), at(0)).unwrap();
            }
        });
    });
    let passed = passed.into_inner();
    assert!(passed <= 1_000_000 && passed > 1_000_000 - 150, "{passed} of 1000000");
}
