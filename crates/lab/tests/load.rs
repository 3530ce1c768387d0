//! The load generator and the model origin over real sockets.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_lab::crowd::old::{Crowd, Temper};
use tidegate_lab::load::{self, Target};
use tidegate_lab::origin::{Origin, OriginConfig};
use tidegate_lab::scenario::OriginSpec;
use tidegate_lab::tally_old::Tally;

const MS: Duration = Duration::from_millis(1);

fn target(addr: SocketAddr, deadline: Duration) -> Target {
    Target { addr, path: "/".into(), deadline }
}

fn everybody_is_counted_once(tally: &Tally) {
    assert_eq!(tally.offered, tally.served + tally.failed + tally.no_shows + tally.tired);
    assert_eq!((tally.waiting, tally.in_flight), (0, 0));
}

#[tokio::test]
async fn impatience_is_wasted_work_at_the_origin() {
    let spec = OriginSpec::pool(2, 100 * MS, 128, 0.01);
    let origin = Origin::start(OriginConfig::new(spec)).expect("origin");
    let temper = Temper { patience: 50 * MS, retries: 0, ..Temper::default() };
    let crowd = Crowd::flash(5, temper, 200.0, 100 * MS);
    let tally = load::run(&target(origin.addr(), Duration::from_secs(60)), crowd, |_, _| {}).await;
    everybody_is_counted_once(&tally);
    // Patience is at most 75 ms, the service takes 100.
    assert_eq!((tally.served, tally.failures.patience), (0, tally.offered));
    while origin.stats().present() > 0 {
        std::thread::yield_now();
    }
    let stats = origin.stats();
    assert!(stats.wasted > 0, "{stats:?}");
    assert_eq!(stats.served, 0, "{stats:?}");
    assert!(stats.wasted + stats.refused <= tally.offered, "{stats:?}");
}

#[tokio::test]
async fn a_patient_crowd_is_served_over_shared_connections() {
    let spec = OriginSpec::pool(10, 10 * MS, 128, 0.01);
    let origin = Origin::start(OriginConfig::new(spec)).expect("origin");
    let temper = Temper { patience: Duration::from_secs(600), ..Temper::default() };
    let crowd = Crowd::flash(5, temper, 300.0, 400 * MS);
    let mut last_seen = 0;
    let tally = load::run(&target(origin.addr(), Duration::from_secs(600)), crowd, |tally, _| {
        last_seen = tally.served;
    })
    .await;
    everybody_is_counted_once(&tally);
    assert_eq!((tally.served, tally.failures.total()), (tally.offered, 0));
    assert_eq!(last_seen, tally.served, "the watcher sees the end");
    assert_eq!(origin.stats().served, tally.served);
    assert!(tally.response_us.min() >= 9_900, "counted from the intended send: {}", tally.response_us.min());
    assert_eq!((tally.waited, tally.goodput_while_waiting()), (0, None));
}

#[tokio::test]
async fn nobody_listens() {
    // Bound and dropped: nothing else is given this port so soon.
    let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a free port");
    let temper = Temper { retries: 1, pause: 10 * MS, ..Temper::default() };
    let tally = load::run(
        &target(addr, Duration::from_secs(60)),
        Crowd::flash(5, temper, 200.0, 100 * MS),
        |_, _| {},
    )
    .await;
    everybody_is_counted_once(&tally);
    assert!(tally.offered > 0);
    assert_eq!((tally.failed, tally.failures.connect), (tally.offered, 2 * tally.offered));
}

#[tokio::test]
async fn a_room_that_lets_nobody_in_is_a_failure_at_the_deadline() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("port");
    let addr = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let news = request.uri().path() == "/news";
                let body = if news { r#"{"state":"waiting","poll_ms":50}"# } else { "<p data-poll=50 >" };
                let mut response = Response::new(Full::<Bytes>::from(body));
                if !news {
                    response
                        .headers_mut()
                        .insert("x-tidegate-status", http::HeaderValue::from_static("/news"));
                }
                Ok::<_, Infallible>(response)
            });
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move { drop(server.serve_connection(TokioIo::new(stream), service).await) });
        }
    });
    let crowd = Crowd::flash(5, Temper::default(), 100.0, 100 * MS);
    let tally = load::run(&target(addr, 500 * MS), crowd, |_, _| {}).await;
    everybody_is_counted_once(&tally);
    assert!(tally.offered > 0);
    assert_eq!((tally.failed, tally.waited), (tally.offered, tally.offered));
    assert!(tally.requests > tally.offered, "they asked for news");
    assert_eq!(tally.failures.total(), 0, "being told to wait is no failed request");
}
