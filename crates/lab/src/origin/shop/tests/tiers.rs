//! The tiers: what is refused, what is busy, what becomes of visitors who leave. The database is held up by
//! taking the writer's turn: bids then wait, and whatever waits behind them.

#![expect(
    clippy::await_holding_lock,
    reason = "who waits for the writer's turn is a thread of the database, no task"
)]

use std::sync::mpsc;

use tokio::task::JoinHandle;

use super::*;
use crate::model::{StageStats, Stats};
use crate::origin::shop::database::Found;
use crate::origin::shop::route::Query;
use crate::origin::shop::store;
use crate::origin::shop::visit::{DbJob, Unanswered, Visiting};
use crate::origin::shop::{Ended, ShopError};

const ONE: Tiers = Tiers { workers: 1, backlog: 1, connections: 1, notices_leavers: false };

/// Waits until the figures are as they should become.
pub(super) async fn until(service: &Service, reached: impl Fn(&Stats) -> bool) -> Stats {
    loop {
        let stats = service.stats();
        let there = stats.in_service + stats.queued;
        let gone = stats.served + stats.refused + stats.wasted + stats.abandoned;
        assert_eq!(stats.submitted, gone + there as u64, "{stats:?}");
        if reached(&stats) {
            return stats;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the database's figures are as they should become.
async fn until_db(service: &Service, reached: impl Fn(&StageStats) -> bool) -> [StageStats; 2] {
    loop {
        let stages = service.stages();
        if reached(&stages[1]) {
            return stages;
        }
        tokio::task::yield_now().await;
    }
}

fn send(service: &Arc<Service>, request: Request<Bytes>) -> JoinHandle<Response<Bytes>> {
    let service = Arc::clone(service);
    tokio::spawn(async move { service.answer(request).await })
}

fn lucky_bid() -> Request<Bytes> {
    request(Method::POST, "/lucky/1", "", "application/json")
}

#[tokio::test]
async fn a_full_backlog_refuses() {
    let (shop, service) = open(ONE);
    let turn = shop.writer.lock();
    let bid = send(&service, lucky_bid());
    until_db(&service, |db| db.busy == 1).await;
    let waiting = send(&service, get("/"));
    until(&service, |stats| stats.queued == 1).await;
    for expected in 1..=3 {
        let refused = service.answer(get("/")).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(!refused.headers().contains_key(header::RETRY_AFTER), "the shop promises nothing");
        assert_eq!(service.stats().refused, expected);
    }
    let healthy = service.answer(get("/healthz")).await;
    assert_eq!(healthy.status(), StatusCode::OK, "overload is no illness");
    drop(turn);
    assert_eq!(bid.await.expect("bid").status(), StatusCode::CREATED);
    assert_eq!(waiting.await.expect("home").status(), StatusCode::OK);
    // A worker counts its job a moment after the answer has gone.
    let stats = until(&service, |stats| stats.present() == 0).await;
    assert_eq!((stats.served, stats.refused, stats.wasted), (2, 3, 0));
    assert_eq!(stats.peak, 2);
}

#[tokio::test]
async fn time_in_the_database_is_the_databases() {
    let (shop, service) = open(ONE);
    let turn = shop.writer.lock();
    let bid = send(&service, lucky_bid());
    until_db(&service, |db| db.busy == 1 && db.busy_us[0] > 0).await;
    // One tier is read after the other: only now was the worker read after the database had begun.
    let before = service.stages();
    let after = until_db(&service, |db| db.busy_us[0] > before[1].busy_us[0]).await;
    assert_eq!(service.stats().in_service, 1, "the worker is held");
    assert_eq!((after[0].busy, &after[0].busy_us), (0, &before[0].busy_us), "but it does nothing");
    assert_eq!([after[0].name.as_str(), &after[1].name], ["app", "db"]);
    drop(turn);
    assert_eq!(bid.await.expect("bid").status(), StatusCode::CREATED);
    until(&service, |stats| stats.present() == 0).await;
    let idle = until_db(&service, |db| db.busy == 0).await;
    let later = until_db(&service, |db| db.idle_us[0] > idle[1].idle_us[0]).await;
    assert_eq!(later[1].busy_us, idle[1].busy_us, "nobody is busy with nothing");
}

#[tokio::test]
async fn work_for_those_who_left_goes_on_unless_the_service_notices() {
    for (notices_leavers, wasted, abandoned) in [(false, 2, 0), (true, 1, 1)] {
        let (shop, service) = open(Tiers { workers: 2, notices_leavers, ..ONE });
        let before = audit(&shop.connect().expect("connection"));
        let turn = shop.writer.lock();
        let bid = send(&service, lucky_bid());
        until_db(&service, |db| db.busy == 1).await;
        let search = send(&service, get("/search?q=clock"));
        until_db(&service, |db| db.queued == 1).await;
        for visitor in [bid, search] {
            visitor.abort();
            assert!(visitor.await.expect_err("gone").is_cancelled());
        }
        drop(turn);
        let stats = until(&service, |stats| stats.present() == 0).await;
        assert_eq!(
            (stats.served, stats.wasted, stats.abandoned),
            (0, wasted, abandoned),
            "{notices_leavers}"
        );
        assert_eq!(audit(&shop.connect().expect("connection")), before + 1, "who pressed the button has bid");
    }
}

#[test]
fn a_running_query_is_interrupted_when_its_visitor_leaves() {
    let connection = Connection::open_in_memory().expect("memory");
    let interrupt = Arc::new(connection.get_interrupt_handle());
    let visiting = Visiting::new(true);
    let (job, answer) = DbJob::new(Query::Home, &visiting.visit());
    let (started, starts) = mpsc::channel();
    let database = std::thread::spawn(move || {
        job.run(&interrupt, |_| {
            // A query without end: only the interrupt ends it.
            let mut endless = connection
                .prepare("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT i FROM n")?;
            let mut rows = endless.query([])?;
            while rows.next()?.is_some() {
                let _ = started.send(());
            }
            Ok(Found::Shop(store::Found::Nothing))
        });
    });
    starts.recv().expect("runs");
    drop(visiting);
    assert!(matches!(answer.recv(), Ok(Err(Unanswered::Left))));
    database.join().expect("database");
}

#[tokio::test]
async fn the_visitor_learns_how_the_query_ended() {
    let (shop, service) = open(ONE);
    let (ended, ends) = mpsc::channel();
    let tell = || {
        let ended = ended.clone();
        move |how| ended.send(how).expect("somebody listens")
    };
    service.answer_then(get("/"), tell()).await;
    assert_eq!(ends.recv(), Ok(Ended::Served));
    let turn = shop.writer.lock();
    let (asking, told) = (Arc::clone(&service), tell());
    let bid = tokio::spawn(async move { asking.answer_then(lucky_bid(), told).await });
    // The worker answers before it is free again: until it takes the bid, that holds the backlog.
    until(&service, |stats| stats.in_service == 1 && stats.queued == 0).await;
    until_db(&service, |db| db.busy == 1).await;
    let waiting = send(&service, get("/"));
    until(&service, |stats| stats.queued == 1).await;
    service.answer_then(get("/"), tell()).await;
    assert_eq!(ends.recv(), Ok(Ended::Refused));
    bid.abort();
    assert!(bid.await.expect_err("gone").is_cancelled());
    assert_eq!(ends.try_recv(), Err(mpsc::TryRecvError::Empty), "the work goes on");
    drop(turn);
    assert_eq!(ends.recv(), Ok(Ended::Wasted));
    assert_eq!(waiting.await.expect("home").status(), StatusCode::OK);
}

#[tokio::test]
async fn a_service_that_ends_lets_go_of_everybody() {
    let (shop, service) = open(ONE);
    let turn = shop.writer.lock();
    let served = send(&service, lucky_bid());
    until_db(&service, |db| db.busy == 1).await;
    let waiting = send(&service, get("/"));
    until(&service, |stats| stats.queued == 1).await;
    drop(turn);
    assert_eq!(served.await.expect("bid").status(), StatusCode::CREATED);
    waiting.await.expect("answered in one way or another");
    let dir = shop.path().parent().expect("directory").to_owned();
    drop((service, shop));
    assert!(!dir.exists(), "the threads have let the shop go");
}

#[test]
fn a_tier_needs_servers_that_there_can_be() {
    let shop = Arc::new(Shop::open(None, Size::Small, 1).expect("shop"));
    for (tiers, name) in [
        (Tiers { workers: 0, ..ONE }, "workers"),
        (Tiers { workers: 100_000, ..ONE }, "workers"),
        (Tiers { connections: 0, ..ONE }, "connections"),
    ] {
        let error = Service::start(Arc::clone(&shop), tiers).map(drop).expect_err(name);
        assert!(matches!(error, ShopError::Servers { name: named, .. } if named == name), "{error}");
    }
}
