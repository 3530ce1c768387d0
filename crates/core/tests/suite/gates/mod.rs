//! Gates of every kind, for property tests.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::bucket::BucketConfig;
use tidegate_core::gate::*;
use tidegate_core::queue::{DisciplineKind, QueueConfig};
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::{ClassId, Cost, Rate, Share, Timestamp};

pub const CLASSES: usize = 4;

pub fn ms(n: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + n)
}

pub fn class() -> impl Strategy<Value = ClassConfig> {
    use DisciplineKind::{AdaptiveLifo, CoDel, Fifo, Lifo};
    let queue = (
        prop::sample::select(vec![Fifo, Lifo, AdaptiveLifo, CoDel]),
        prop::option::of(0usize..6),
        prop::option::of(1u64..80),
    );
    let egress = prop::option::of((1.0f64..200.0, 100u64..400));
    (0u8..3, 1u32..5, prop::option::of(0u32..4), queue, egress, 0u32..250_000).prop_map(
        |(priority, weight, max_in_flight, (discipline, max_length, patience_ms), egress, share)| {
            let bucket = |(rate, burst): (f64, u64)| BucketConfig {
                rate: Rate::per_second(rate).unwrap(),
                burst: Cost::from_hundredths(burst),
            };
            ClassConfig {
                priority,
                weight,
                max_in_flight,
                guarantee: Share::from_fraction(f64::from(share) / 1e6).unwrap(),
                queue: QueueConfig {
                    discipline,
                    max_length,
                    patience: patience_ms.map(Duration::from_millis),
                    target: Duration::from_millis(10),
                    interval: Duration::from_millis(50),
                },
                egress: egress.map(bucket).unwrap_or_default(),
            }
        },
    )
}

pub fn config() -> impl Strategy<Value = GateConfig> {
    use Scheduling::{Deficit, Priority, RoundRobin};
    let kind = prop::sample::select(vec![Priority, RoundRobin, Deficit]);
    (prop::option::of(0u32..6), 0usize..14, kind, prop::collection::vec(class(), CLASSES)).prop_map(
        |(max_in_flight, max_queue, scheduler, classes)| GateConfig {
            max_in_flight,
            max_queue,
            max_queue_wait: Duration::from_millis(60),
            scheduler,
            classes,
        },
    )
}

pub fn cost(class: ClassId) -> Cost {
    Cost::from_hundredths(60 + 70 * u64::from(class.0))
}
