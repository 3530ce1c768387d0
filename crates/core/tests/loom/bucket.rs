//! Model check of the shared bucket: takes, reservations and succession in every interleaving (see `main.rs`).
use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use tidegate_core::bucket::BucketConfig;
use tidegate_core::bucket::SharedBucket;
use tidegate_core::units::{Cost, Rate, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn config(rate: f64, burst: u64) -> BucketConfig {
    BucketConfig { rate: Rate::per_second(rate).unwrap(), burst: Cost::from_hundredths(burst) }
}

fn take(bucket: &SharedBucket, hundredths: u64) -> u64 {
    if bucket.take(Cost::from_hundredths(hundredths), NOW).is_ok() { hundredths } else { 0 }
}

/// What is left, by taking it.
fn left(bucket: &SharedBucket) -> u64 {
    (0..).take_while(|_| take(bucket, 1) == 1).count() as u64
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(check);
}

#[test]
fn two_takes_share_one_burst() {
    model(|| {
        let bucket = SharedBucket::new(&config(1.0, 10)).unwrap();
        let other = bucket.clone();
        let handle = thread::spawn(move || take(&other, 6));
        let mine = take(&bucket, 6);
        let theirs = handle.join().unwrap();
        assert_eq!(mine + theirs, 6, "one of them");
        assert_eq!(left(&bucket), 4);
    });
}

#[test]
fn a_take_and_a_reservation() {
    model(|| {
        let bucket = SharedBucket::new(&config(1.0, 100)).unwrap();
        let other = bucket.clone();
        let handle = thread::spawn(move || other.reserve(Cost::ONE, Duration::from_secs(9), NOW));
        let mine = take(&bucket, 100);
        let theirs = handle.join().unwrap().unwrap();
        let expected = if mine == 100 { NOW + Duration::from_secs(1) } else { NOW };
        assert_eq!(theirs, expected);
        assert_eq!(left(&bucket), 0);
    });
}

/// Nothing passes twice, and nothing is lost, while another bucket takes over.
#[test]
fn a_take_and_a_succession() {
    model(|| {
        let bucket = SharedBucket::new(&config(1.0, 10)).unwrap();
        let other = Arc::clone(&bucket);
        let handle = thread::spawn(move || take(&other, 4) + take(&other, 5));
        let next = bucket.succeed(&config(3.0, 10), NOW).unwrap();
        let mine = take(&next, 3);
        let theirs = handle.join().unwrap();
        assert_eq!(mine + theirs + left(&next), 10);
        assert_eq!(take(&bucket, 1), 0, "the old one is the new one");
    });
}
