//! Places: given back once, whenever the answer's end comes; and those who wait for a bucket alone.

use tidegate_core::bucket::BucketConfig;
use tidegate_core::gate::ClassConfig;
use tidegate_core::units::Rate;

use super::*;
use tidegate_settings::Settings;

fn keeper() -> Arc<GateKeeper> {
    let config = GateConfig { max_in_flight: Some(1), max_queue: 10, ..GateConfig::default() };
    GateKeeper::new(&config, Arc::new(Clock::new()))
}

async fn place(keeper: &Arc<GateKeeper>) -> InFlightSlot {
    let now = keeper.clock.now();
    keeper.enter(ClassId(0), Cost::ONE, Lane::Ordinary, None, now).await.expect("a place")
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

/// In virtual time, where the timer is late by as much as it may be: whole milliseconds, rounded up, and the control tick before it.
#[test]
fn a_bucket_that_a_late_timer_empties_loses_nothing() {
    for (rate, burst) in [(5_000.0, 0.0), (5_000.0, 1.0), (800.0, 1.0), (50.0, 1.0)] {
        let class = format!("name = \"all\"\negress = {{ rate = {rate}, burst = {burst} }}");
        let text = format!("origin.replicas = \"app:8000\"\n[[class]]\n{class}");
        let class = Settings::parse(&text, "test").expect("sound settings").class[0].gate_config();
        let config = GateConfig { max_queue: 100_000, classes: vec![class], ..GateConfig::default() };
        let (mut gate, start) = (Gate::new(&config), Timestamp::from_secs(1_800_000_000));
        for id in 0..100_000 {
            gate.arrive(Request { id, class: ClassId(0), cost: Cost::ONE }, start);
        }
        let (mut now, mut passed, mut late) =
            (start, gate.totals().forwarded, [1, 1, 2, 9].into_iter().cycle());
        while now.since(start) < Duration::from_secs(10) {
            while gate.next(now).is_some() {
                passed += 1;
            }
            let ready = gate.next_ready().expect("somebody waits for the bucket alone");
            let whole = Timestamp::from_millis(ready.as_micros().div_ceil(1_000));
            now = whole.max(now) + Duration::from_millis(late.next().unwrap_or_default());
        }
        let due = rate * now.since(start).as_secs_f64();
        let burst = class.egress.burst.units();
        assert!(passed as f64 >= due - 0.01 * rate - 1.0, "{passed} of {due} at {rate}/s");
        assert!(passed as f64 <= due + burst, "{passed} of {due} at {rate}/s: beyond the burst of {burst}");
    }
}
