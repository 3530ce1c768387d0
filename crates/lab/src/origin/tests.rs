//! The pool's laws, in virtual time.

use super::*;
use std::time::Duration;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);

/// Hands in `n` requests at once and returns when each was served, in order of arrival.
async fn serve_batch(pool: &Arc<Pool>, n: usize) -> Vec<Duration> {
    let start = Instant::now();
    let hand_in = |_| {
        let served = pool.submit().expect("room in the backlog");
        tokio::spawn(async move {
            served.await.expect("served");
            start.elapsed()
        })
    };
    let waiting: Vec<_> = (0..n).map(hand_in).collect();
    let mut times = Vec::new();
    for time in waiting {
        times.push(time.await.expect("no panic"));
    }
    times
}

#[test]
fn service_time_follows_the_formula() {
    let law = Law { contention: 0.01, ..Law::default() };
    for (present, expected_us) in
        [(0, 100_000), (1, 100_000), (10, 100_000), (20, 101_000), (30, 104_000), (138, 263_840)]
    {
        assert_eq!(law.service_at(present), Duration::from_micros(expected_us), "n = {present}");
    }
    assert!((law.capacity() - 100.0).abs() < 1e-9);
    let free = Law { contention: 0.0, ..law };
    assert_eq!(free.service_at(10_000), free.service);
}

#[tokio::test(start_paused = true)]
async fn an_unloaded_pool_answers_in_the_service_time() {
    let pool = Pool::new(Law::default());
    for _ in 0..3 {
        let times = serve_batch(&pool, 1).await;
        assert!(times[0] >= 100 * MS && times[0] <= 101 * MS, "{times:?}");
    }
    let times = serve_batch(&pool, 10).await;
    assert!(times.iter().all(|t| *t >= 100 * MS && *t <= 101 * MS), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn three_times_the_workers_wait_their_turn_and_contend() {
    // Of 30 at once: ten start unhindered (nobody was there before them); as each ends, one of 29 - k present
    // takes its place: the k-th of the second wave ends at s0 + s(29 - k), so the last one of it ends first.
    let law = Law { contention: 0.5, ..Law::default() };
    let pool = Pool::new(law);
    let times = serve_batch(&pool, 30).await;
    for (k, time) in times.iter().enumerate() {
        let expected = match k {
            0..10 => law.service,
            10..20 => law.service + law.service_at(29 - (k - 10)),
            _ => continue,
        };
        assert!(*time >= expected && *time <= expected + 2 * MS, "{k}: {time:?}, expected {expected:?}");
    }
    assert!(times[20..].iter().all(|t| *t > 3 * law.service), "contention costs: {times:?}");
    assert_eq!(pool.stats().served, 30);
    assert_eq!(pool.stats().present(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_contention_a_fed_pool_runs_at_capacity() {
    let pool = Pool::new(Law { contention: 0.0, service: Duration::from_micros(33_300), ..Law::default() });
    // 13 waves of 10 at 33.3 ms: timer granularity of a millisecond a wave would show as 13 ms.
    let times = serve_batch(&pool, 130).await;
    let exact = Duration::from_micros(33_300) * 13;
    assert!(times[129] >= exact && times[129] <= exact + 2 * MS, "{:?} against {exact:?}", times[129]);
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_refuses_and_recovers() {
    let pool = Pool::new(Law { workers: 2, backlog: 3, ..Law::default() });
    let waiting: Vec<_> = (0..5).map(|_| pool.submit().expect("2 in service, 3 waiting")).collect();
    assert_eq!(pool.submit().err(), Some(Full));
    assert_eq!(pool.submit().err(), Some(Full));
    let stats = pool.stats();
    assert_eq!((stats.in_service, stats.queued, stats.refused, stats.peak), (2, 3, 2, 5));
    for served in waiting {
        served.await.expect("served");
    }
    assert!(pool.submit().is_ok(), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn work_for_visitors_who_left_is_done_and_wasted() {
    let pool = Pool::new(Law { workers: 1, contention: 0.0, ..Law::default() });
    let start = Instant::now();
    drop(pool.submit().expect("in service"));
    drop(pool.submit().expect("waiting"));
    let last = pool.submit().expect("waiting");
    last.await.expect("served");
    assert!(start.elapsed() >= 300 * MS, "the two who left held the worker: {:?}", start.elapsed());
    let stats = pool.stats();
    assert_eq!((stats.served, stats.wasted, stats.refused), (1, 2, 0));
}
