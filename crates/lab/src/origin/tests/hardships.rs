//! What makes a service hard to estimate, over real sockets: streams, errors, sharing, pauses.

use super::*;
use crate::scenario::{Discipline, Errors, Spell};

/// Answers at once; on `/stream` they go on for `lasts`.
fn streaming(lasts: Dist) -> OriginSpec {
    let path = |path: &str, stream| PathSpec { path: path.into(), stream, ..PathSpec::default() };
    OriginSpec { paths: vec![path("/stream", Some(lasts)), path("**", None)], ..spec() }
}

#[tokio::test]
async fn a_stream_is_sent_whole_but_not_before_its_end() {
    let origin = start(streaming(Dist::Fixed(0.25)));
    let mut client = connect(origin.addr()).await.expect("connect");
    let begin = Instant::now();
    let (status, body) = get(&mut client, "/stream").await;
    assert!(begin.elapsed() >= 250 * MS, "{:?}", begin.elapsed());
    assert!(status == StatusCode::OK && body.len() == 400 && body.contains("You are in"), "{body}");
    until("the end of the stream", || origin.stats().streaming == 0).await;
    // The connection is kept.
    assert_eq!(get(&mut client, "/").await.1.len(), 400);
    let stats = origin.stats();
    assert_eq!((stats.served, stats.abandoned, stats.present()), (2, 0, 0));
}

#[tokio::test]
async fn a_stream_holds_no_worker_and_breaks_off_with_its_visitor() {
    let origin = start(streaming(Dist::Fixed(3600.0)));
    // More than the workers and the backlog hold.
    let visitors: Vec<_> = (0..7).map(|_| under_way(origin.addr(), "/stream")).collect();
    until("seven streams", || origin.stats().streaming == 7).await;
    assert_eq!(origin.stats().in_service, 0);
    let (_, metrics) = admin(&origin, Method::GET, "/metrics", "").await;
    assert!(metrics.contains("\ntidegate_origin_streaming 7\n"), "{metrics}");

    // The head and the begin of the body are there.
    let mut client = connect(origin.addr()).await.expect("connect");
    let request = Request::builder().uri("/stream").header("host", "origin");
    let request = request.body(Whole::new(Bytes::new())).expect("a request");
    let mut response = client.send_request(request).await.expect("a head");
    assert_eq!(response.headers()["content-length"], "400");
    let first = response.body_mut().frame().await.expect("a chunk").expect("bytes");
    assert!(first.data_ref().is_some_and(|chunk| !chunk.is_empty() && chunk.len() < 400), "{first:?}");

    drop((response, client));
    visitors.iter().for_each(tokio::task::JoinHandle::abort);
    until("all to be gone", || origin.stats().present() == 0).await;
    let stats = origin.stats();
    assert_eq!((stats.submitted, stats.served, stats.abandoned), (8, 0, 8));
}

#[tokio::test]
async fn errors_come_and_go() {
    let errors = Errors { share: 1.0, status: 502, ..Errors::default() };
    let paths = vec![PathSpec { errors, ..PathSpec::default() }];
    let origin = start(OriginSpec { paths, ..spec() });
    let mut client = connect(origin.addr()).await.expect("connect");
    assert_eq!(get(&mut client, "/").await, (StatusCode::BAD_GATEWAY, "an error\n".into()));
    let (status, body) = admin(&origin, Method::PUT, "/change", r#"{"errors": 0}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(get(&mut client, "/").await.0, StatusCode::OK);
    let errors = Change { errors: Some(1.0), ..Change::default() };
    origin.change(&errors).expect("a change");
    assert_eq!(get(&mut client, "/").await.0, StatusCode::BAD_GATEWAY);
    let stats = origin.stats();
    assert_eq!((stats.submitted, stats.failed, stats.served), (3, 2, 1));
    let refused: u64 = origin.series().seconds.iter().map(|second| second.refused).sum();
    assert_eq!(refused, 2, "at the door");
    let (_, metrics) = admin(&origin, Method::GET, "/metrics", "").await;
    assert!(metrics.contains("tidegate_origin_requests_total{outcome=\"failed\"} 2\n"), "{metrics}");
    let (status, body) = admin(&origin, Method::PUT, "/change", r#"{"errors": 1.5}"#).await;
    assert!(
        status == StatusCode::BAD_REQUEST && body.contains("errors: expected a share from 0 to 1"),
        "{body}"
    );
}

#[test]
fn threads_burn_and_nothing_else() {
    let origin = start(OriginSpec { mode: Mode::Spin, ..spec() });
    let error = origin.change(&Change { errors: Some(0.5), ..Change::default() }).expect_err("cannot");
    assert_eq!(error.to_string(), "errors need mode \"sleep\"");
}

/// When all of `n` requests have been served that came at once to this service.
async fn all_served(spec: &OriginSpec, n: usize) -> Duration {
    let pool = SleepPool::new(Model::new(spec, 1));
    let driver = tokio::spawn(Arc::clone(&pool).drive());
    let (meter, begin) = (Meter::new(), Instant::now());
    let taken: Vec<_> = (0..n).map(|_| pool.submit(0, meter.arrive()).expect("room")).collect();
    for mut taken in taken {
        (&mut taken.reply).await.expect("served");
    }
    driver.abort();
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn shared_servers_and_pauses_are_the_models() {
    let mut shared = OriginSpec::pool(10, 100 * MS, 10, 0.0);
    shared.stages = vec![Stage { discipline: Discipline::Sharing, ..Stage::new("app", 2) }];
    let took = all_served(&shared, 8).await;
    assert!(took >= 400 * MS && took <= 402 * MS, "eight share two: {took:?}");
    // Half of the time stands still, in pieces of 5 ms: 100 ms of work end in the 20th or 21st piece.
    let pause = Spell { every: Dist::Fixed(0.01), lasts: Dist::Fixed(0.005), speed: 0.0 };
    let paused = OriginSpec { pause: Some(pause), ..OriginSpec::pool(2, 100 * MS, 10, 0.0) };
    let took = all_served(&paused, 2).await;
    assert!(took >= 195 * MS && took <= 212 * MS, "{took:?}");
}
