//! Places: given back once, whenever the answer's end comes; and those who wait for a bucket alone.

use tidegate_core::gate::{BucketConfig, ClassConfig};
use tidegate_core::units::Rate;

use super::*;

fn keeper() -> Arc<GateKeeper> {
    let config = GateConfig { max_in_flight: Some(1), max_queue: 10, ..GateConfig::default() };
    GateKeeper::new(&config, Arc::new(Clock::new()))
}

async fn place(keeper: &Arc<GateKeeper>) -> Place {
    let now = keeper.clock.now();
    keeper.enter(ClassId(0), Cost::ONE, None, now).await.expect("a place")
}

fn samples(keeper: &GateKeeper) -> Vec<Sample> {
    let mut samples = Vec::new();
    keeper.take_samples(&mut samples);
    samples
}

#[tokio::test]
async fn an_answer_that_goes_on_gives_its_place_back_once() {
    let keeper = keeper();
    let mut first = place(&keeper).await;
    let sent = keeper.clock.now();
    let head = sent + Duration::from_millis(40);
    first.answers(sent, head, true);
    keeper.tick(head + (STREAM_AFTER - Duration::from_millis(1)));
    assert_eq!(keeper.totals().in_flight, 1, "not yet");
    keeper.tick(head + STREAM_AFTER);
    assert_eq!(keeper.totals().in_flight, 0);
    let told = samples(&keeper)[0];
    assert_eq!((told.response, told.lingered), (Duration::from_millis(40), STREAM_AFTER));
    let second = place(&keeper).await;
    first.complete(sent, true);
    assert_eq!((keeper.totals().in_flight, samples(&keeper).len()), (1, 0), "the place is the second's");
    drop(second);
    assert_eq!(keeper.totals().in_flight, 0);
}

#[tokio::test]
async fn an_answer_that_ends_in_time_keeps_its_place_until_then() {
    let keeper = keeper();
    for is_complete in [true, false] {
        let mut first = place(&keeper).await;
        let sent = keeper.clock.now();
        first.answers(sent, sent, true);
        if is_complete {
            first.complete(sent, true);
        } else {
            drop(first);
        }
        assert_eq!(keeper.totals().in_flight, 0);
        assert_eq!(samples(&keeper).len(), usize::from(is_complete), "who leaves tells nothing");
        keeper.tick(sent + 2 * STREAM_AFTER);
        assert!(samples(&keeper).is_empty());
    }
}

#[tokio::test]
async fn an_answer_without_end_gives_its_place_back_at_its_head() {
    let keeper = keeper();
    let first = place(&keeper).await;
    first.streams(keeper.clock.now(), true);
    assert_eq!((keeper.totals().in_flight, samples(&keeper).len()), (0, 1));
}

/// On tokio's clock, which the gate's own does not follow: what is awaited is real.
#[tokio::test]
async fn who_waits_for_an_egress_bucket_alone_is_woken_by_it() {
    let egress = BucketConfig { rate: Rate::per_second(50.0).expect("a rate"), burst: Cost::ONE };
    let classes = vec![ClassConfig { egress, ..ClassConfig::default() }];
    let config = GateConfig { max_in_flight: Some(9), classes, ..GateConfig::default() };
    let keeper = GateKeeper::new(&config, Arc::new(Clock::new()));
    let first = place(&keeper).await;
    let alarm = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.wake_for_egress().await }
    });
    // Nobody finishes, and no tick comes.
    for _ in 0..3 {
        let next = place(&keeper).await;
        assert!(next.queued > Duration::ZERO);
    }
    drop(first);
    alarm.abort();
}
