//! In-flight slots are given back once, and requests that wait only for an egress bucket are woken.

use tidegate_core::bucket::BucketConfig;
use tidegate_core::gate::ClassConfig;
use tidegate_core::units::Rate;

use std::pin::pin;
use std::task::Waker;

use super::*;
use crate::shared::free_slots::Silence;
use tidegate_settings::Settings;

fn keeper() -> Arc<GateKeeper> {
    let config = GateConfig { max_in_flight: Some(1), max_queue: 10, ..GateConfig::default() };
    GateKeeper::new(&config, Arc::new(Clock::new()))
}

async fn slot(keeper: &Arc<GateKeeper>) -> InFlightSlot {
    let now = keeper.clock.now();
    keeper.enter(ClassId(0), Cost::ONE, Lane::Ordinary, None, now).await.expect("a slot")
}

fn samples(keeper: &GateKeeper) -> Vec<Sample> {
    let mut samples = Vec::new();
    keeper.take_samples(&mut samples);
    samples
}

#[tokio::test]
async fn an_answer_that_goes_on_gives_its_slot_back_once() {
    let keeper = keeper();
    let mut first = slot(&keeper).await;
    let sent = keeper.clock.now();
    let head = sent + Duration::from_millis(40);
    first.answers(sent, head, true, 3);
    keeper.tick(head + (STREAM_AFTER - Duration::from_millis(1)));
    assert_eq!(keeper.totals().in_flight, 1, "not yet");
    keeper.tick(head + STREAM_AFTER);
    assert_eq!(keeper.totals().in_flight, 0);
    let told = samples(&keeper)[0];
    assert_eq!((told.response, told.lingered), (Duration::from_millis(40), STREAM_AFTER));
    let second = slot(&keeper).await;
    first.complete(sent, true, keeper.clock.now());
    assert_eq!(
        (keeper.totals().in_flight, samples(&keeper).len()),
        (1, 0),
        "the slot is the second request's"
    );
    drop(second);
    assert_eq!(keeper.totals().in_flight, 0);
}

#[tokio::test]
async fn an_answer_that_ends_in_time_keeps_its_slot_until_then() {
    let keeper = keeper();
    for is_complete in [true, false] {
        let mut first = slot(&keeper).await;
        let sent = keeper.clock.now();
        first.answers(sent, sent, true, 3);
        if is_complete {
            first.complete(sent, true, keeper.clock.now());
        } else {
            drop(first);
        }
        assert_eq!(keeper.totals().in_flight, 0);
        assert_eq!(samples(&keeper).len(), usize::from(is_complete), "an aborted request leaves no sample");
        keeper.tick(sent + 2 * STREAM_AFTER);
        assert!(samples(&keeper).is_empty());
    }
}

/// Of many answers, one goes on. Those that have ended are not met by the tick, under the gate's lock.
#[tokio::test]
async fn nothing_is_kept_of_answers_that_have_ended() {
    let config = GateConfig { max_in_flight: Some(2), max_queue: 10, ..GateConfig::default() };
    let keeper = GateKeeper::new(&config, Arc::new(Clock::new()));
    let (mut long, sent) = (slot(&keeper).await, keeper.clock.now());
    long.answers(sent, sent, true, 3);
    for ms in 0..1_000 {
        let mut short = slot(&keeper).await;
        short.answers(sent, sent + Duration::from_millis(ms), true, 3);
        short.complete(sent, true, keeper.clock.now());
    }
    assert_eq!(keeper.list(3).lock().len(), 1);
    keeper.tick(sent + STREAM_AFTER);
    assert!(keeper.list(3).lock().is_empty());
    assert_eq!(keeper.totals().in_flight, 0);
    drop(long);
    assert_eq!(samples(&keeper).len(), 1_001);
}

#[tokio::test]
async fn a_streaming_answer_gives_its_slot_back_at_its_head() {
    let keeper = keeper();
    let first = slot(&keeper).await;
    first.streams(keeper.clock.now(), true);
    assert_eq!((keeper.totals().in_flight, samples(&keeper).len()), (0, 1));
}

/// The gate's clock does not follow tokio's, so this test waits in real time.
#[tokio::test]
async fn a_request_that_waits_only_for_an_egress_bucket_is_woken() {
    let egress = BucketConfig { rate: Rate::per_second(50.0).expect("a rate"), burst: Cost::ONE };
    let classes = vec![ClassConfig { egress, ..ClassConfig::default() }];
    let config = GateConfig { max_in_flight: Some(9), classes, ..GateConfig::default() };
    let keeper = GateKeeper::new(&config, Arc::new(Clock::new()));
    let first = slot(&keeper).await;
    let alarm = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.wake_for_egress().await }
    });
    // No request finishes, and no tick comes.
    for _ in 0..3 {
        let next = slot(&keeper).await;
        assert!(next.queued > Duration::ZERO);
    }
    drop(first);
    alarm.abort();
}

/// However a request ends that begins a page, it counts no more: as many newcomers go as before.
#[tokio::test]
async fn a_page_that_was_begun_counts_until_its_answer() {
    let config = GateConfig { max_in_flight: Some(6), max_queue: 10, ..GateConfig::default() };
    let keeper = GateKeeper::new(&config, Arc::new(Clock::new()));
    let is_held =
        |newcomer: Pin<&mut Entering>| newcomer.poll(&mut Context::from_waker(Waker::noop())).is_pending();
    let ask = |lane| keeper.enter(ClassId(0), Cost::ONE, lane, None, keeper.clock.now());
    // Others hold slots for an hour, so the share of pages is small.
    let others = [(); 4].map(|()| ask(Lane::Ordinary));
    let later = keeper.clock.now() + Duration::from_secs(3600);
    keeper
        .enter(ClassId(0), Cost::ONE, Lane::Ordinary, None, later)
        .await
        .expect("a slot")
        .complete(later, true, later);
    for lane in [Lane::Newcomer, Lane::Page] {
        for end in 0..7 {
            // Two may begin at once, however few slots there are.
            let (first, second) = (ask(lane), ask(lane).await.expect("a slot"));
            keeper.set_limit(Some(7));
            let mut newcomer = pin!(ask(Lane::Newcomer));
            assert!(is_held(newcomer.as_mut()), "{lane:?}: two pages begin");
            let (sent, head) = (keeper.clock.now(), keeper.clock.now());
            match end {
                0 => drop(first),
                1 => drop(first.await.expect("a slot")),
                2 => first.await.expect("a slot").complete(sent, true, head),
                3 => first.await.expect("a slot").streams(sent, true),
                4 => {
                    let mut slot = first.await.expect("a slot");
                    slot.answers(sent, head, true, 0);
                    keeper.tick(head + STREAM_AFTER);
                    drop(slot);
                }
                5 => {
                    let mut slot = first.await.expect("a slot");
                    slot.answers(sent, head, true, 0);
                    slot.complete(sent, true, head);
                }
                _ => {
                    // Its visitor leaves between its turn and the news of it.
                    let mut slot = first.await.expect("a slot");
                    keeper.set_limit(Some(6));
                    let gone = ask(lane);
                    slot.answers(sent, head, true, 0);
                    drop(slot);
                    drop(gone);
                    keeper.set_limit(Some(7));
                }
            }
            let went = tokio::time::timeout(Duration::from_secs(10), newcomer).await;
            drop(went.expect("a newcomer goes when a page less counts").expect("a slot"));
            drop(second);
            assert_eq!((keeper.totals().in_flight, keeper.totals().queued), (4, 0));
            keeper.set_limit(Some(6));
        }
    }
    drop(others);
}

/// In virtual time, with a timer that is as late as it may be: rounded up to whole milliseconds, and behind a
/// control tick.
#[test]
fn a_late_timer_does_not_lower_the_rate_of_an_egress_bucket() {
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

/// Whether a connection would be accepted now. Its slot is given back at once.
fn is_free(keeper: &GateKeeper) -> bool {
    let slot = pin!(keeper.free_slots().slot());
    slot.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
}

#[tokio::test]
async fn connections_wait_while_requests_have_or_want_all_slots() {
    let keeper = keeper();
    keeper.set_limit(Some(2));
    let first = slot(&keeper).await;
    keeper.accept_while_free(true);
    assert!(is_free(&keeper), "one slot of two");
    let second = slot(&keeper).await;
    assert!(!is_free(&keeper));
    let now = keeper.clock.now();
    let mut third = keeper.enter(ClassId(0), Cost::ONE, Lane::Ordinary, None, now);
    drop(first);
    assert!(!is_free(&keeper), "the slot is the third one's, which was queued");
    drop(second);
    assert!(is_free(&keeper));
    let third = (&mut third).await.expect("a slot");
    keeper.set_limit(Some(1));
    assert!(!is_free(&keeper));
    keeper.set_limit(None);
    assert!(is_free(&keeper));
    keeper.set_limit(Some(1));
    // Without waiting there is no slot to take.
    keeper.accept_while_free(false);
    assert!(keeper.free_slots().slot().await.is_none());
    keeper.accept_while_free(true);
    assert!(!is_free(&keeper));
    drop(third);
    assert!(is_free(&keeper));
}

/// A request that comes to the gate takes over its connection's slot: in no instant are both free.
#[tokio::test]
async fn a_silent_connection_has_a_slot_until_its_request_is_at_the_gate() {
    let keeper = keeper();
    keeper.accept_while_free(true);
    let silence = Silence::new(keeper.free_slots().slot().await);
    assert!(!is_free(&keeper) && !silence.is_over());
    let request = slot(&keeper).await;
    silence.end();
    assert!(!is_free(&keeper) && silence.is_over());
    drop(request);
    assert!(is_free(&keeper));
    // Whoever waits is woken.
    let silence = Silence::new(keeper.free_slots().slot().await);
    let free = keeper.free_slots().clone();
    let waits = tokio::spawn(async move { drop(free.slot().await) });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    silence.end();
    waits.await.expect("a slot");
}

/// Requests that only their class's own limit holds back leave slots for others.
#[tokio::test]
async fn requests_that_their_class_holds_back_do_not_keep_connections_waiting() {
    let classes = vec![ClassConfig { max_in_flight: Some(1), ..ClassConfig::default() }];
    let config = GateConfig { max_in_flight: Some(3), max_queue: 10, classes, ..GateConfig::default() };
    let keeper = GateKeeper::new(&config, Arc::new(Clock::new()));
    keeper.accept_while_free(true);
    let _first = slot(&keeper).await;
    let now = keeper.clock.now();
    let _held: Vec<_> =
        (0..5).map(|_| keeper.enter(ClassId(0), Cost::ONE, Lane::Ordinary, None, now)).collect();
    assert!(is_free(&keeper));
}
