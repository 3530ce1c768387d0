//! The origin over real sockets: what its visitors and its operator see. The model's laws are tested in
//! virtual time.

use super::*;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full as Whole};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::dist::Dist;
use crate::scenario::{PathSpec, Stage};

mod hardships;

const MS: Duration = Duration::from_millis(1);

type Client = SendRequest<Whole<Bytes>>;

fn spec() -> OriginSpec {
    OriginSpec::pool(2, MS, 2, 0.0)
}

/// Requests that never end on `/never`, others at once.
fn held(spec: OriginSpec) -> OriginSpec {
    let path = |path: &str, demand| PathSpec {
        path: path.into(),
        demand: vec![(0, demand)],
        body_bytes: 0,
        ..PathSpec::default()
    };
    OriginSpec { paths: vec![path("/never", Dist::Never), path("**", Dist::Fixed(0.0))], ..spec }
}

fn start(spec: OriginSpec) -> OriginHandle {
    let admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Origin::start(OriginConfig { admin, ..OriginConfig::new(spec) }).expect("origin")
}

async fn connect(addr: SocketAddr) -> io::Result<Client> {
    let stream = TcpStream::connect(addr).await?;
    let (client, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn send(client: &mut Client, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).header("host", "origin");
    let request = request.body(Whole::new(Bytes::from(body.to_owned()))).expect("a request");
    let response = client.send_request(request).await.expect("an answer");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.into()).expect("text"))
}

async fn get(client: &mut Client, path: &str) -> (StatusCode, String) {
    send(client, Method::GET, path, "").await
}

async fn admin(origin: &OriginHandle, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let mut client = connect(origin.admin().expect("an admin port")).await.expect("the admin port");
    send(&mut client, method, path, body).await
}

/// Waits until a condition holds; only a hang fails.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "waited in vain for: {what}");
}

/// Puts a request under way on a connection of its own; aborting the task closes it.
fn under_way(addr: SocketAddr, path: &'static str) -> tokio::task::JoinHandle<(StatusCode, String)> {
    tokio::spawn(async move {
        let stream = TcpStream::connect(addr).await.expect("connect");
        let (mut client, connection) = handshake(TokioIo::new(stream)).await.expect("handshake");
        tokio::select! {
            answer = get(&mut client, path) => answer,
            _ = connection => panic!("the connection ended"),
        }
    })
}

#[tokio::test]
async fn a_connection_is_kept_and_a_page_is_as_long_as_it_should() {
    let mut spec = spec();
    let path = |path: &str, body_bytes| PathSpec {
        path: path.into(),
        demand: Vec::new(),
        body_bytes,
        ..PathSpec::default()
    };
    spec.paths = vec![path("/long", 100_000), path("**", 0)];
    let origin = start(spec);
    let mut client = connect(origin.addr()).await.expect("connect");
    for _ in 0..3 {
        let (status, body) = get(&mut client, "/").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.starts_with("<!doctype html>") && body.contains("You are in"), "{body}");
        assert_eq!(get(&mut client, "/long?n=1").await.1.len(), 100_000);
    }
    let stats = origin.stats();
    assert_eq!((stats.submitted, stats.served, stats.present()), (6, 6, 0));
}

#[tokio::test]
async fn both_modes_refuse_when_full_and_count_who_left() {
    for mode in [Mode::Sleep, Mode::Spin] {
        for notices_leavers in [false, true] {
            let origin = start(OriginSpec { mode, notices_leavers, ..held(spec()) });
            let visitors: Vec<_> = (0..4).map(|_| under_way(origin.addr(), "/never")).collect();
            until("two in service, two waiting", || {
                let stats = origin.stats();
                (stats.in_service, stats.queued) == (2, 2)
            })
            .await;
            let mut client = connect(origin.addr()).await.expect("connect");
            let (status, body) = get(&mut client, "/").await;
            assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "overloaded\n"));

            visitors.iter().for_each(tokio::task::JoinHandle::abort);
            if notices_leavers {
                until("the workers to notice", || origin.stats().present() == 0).await;
                assert_eq!(get(&mut client, "/").await.0, StatusCode::OK, "{mode:?}: there is room again");
                let stats = origin.stats();
                assert_eq!((stats.served, stats.refused, stats.abandoned, stats.wasted), (1, 1, 4, 0));
                let second = origin.series().seconds.into_iter().fold((0, 0, 0, 0), |sum, s| {
                    (sum.0 + s.arrived, sum.1 + s.served, sum.2 + s.refused, sum.3 + s.wasted)
                });
                assert_eq!(second, (6, 1, 1, 4), "{mode:?}");
            } else {
                assert_eq!(get(&mut client, "/").await.0, StatusCode::SERVICE_UNAVAILABLE);
                assert_eq!(origin.stats().present(), 4, "{mode:?}: nobody notices");
            }
            origin.stop();
        }
    }
}

#[tokio::test]
async fn work_that_ends_after_its_visitor_left_is_wasted() {
    for mode in [Mode::Sleep, Mode::Spin] {
        // Long enough that the request is still there when it is looked for.
        let mut spec = OriginSpec { mode, ..OriginSpec::pool(1, 500 * MS, 10, 0.0) };
        spec.paths[0].path = "**".into();
        let origin = start(spec);
        let visitor = under_way(origin.addr(), "/");
        until("a request", || origin.stats().present() == 1).await;
        visitor.abort();
        let mut client = connect(origin.addr()).await.expect("connect");
        assert_eq!(get(&mut client, "/").await.0, StatusCode::OK);
        let stats = origin.stats();
        assert_eq!((stats.served, stats.wasted, stats.abandoned), (1, 1, 0), "{mode:?}");
        let busy: u64 = origin.control.services[0].stages()[0].total_busy_us();
        assert!(busy >= 1_000_000, "{mode:?}: both were worked on: {busy}");
    }
}

#[tokio::test]
async fn replicas_come_and_go_and_keep_their_ports() {
    let changes = vec![Change { at: Duration::from_secs(3600), replicas: Some(3), ..Change::default() }];
    let origin = start(OriginSpec { replicas: 2, changes, ..spec() });
    let addrs = origin.addrs();
    assert_eq!(addrs.len(), 3, "a port for each that will ever be");
    let mut kept = connect(addrs[1]).await.expect("the second is there");
    assert_eq!(get(&mut kept, "/").await.0, StatusCode::OK);
    let refused = connect(addrs[2]).await.expect_err("the third is not");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    let change = |replicas| Change { at: Duration::ZERO, replicas: Some(replicas), ..Change::default() };
    for _ in 0..2 {
        origin.change(&change(1)).expect("a change");
        until("the kept connection to be closed", || kept.is_closed()).await;
        wait_refused(addrs[1]).await;
        origin.change(&change(3)).expect("a change");
        for addr in &addrs {
            kept = wait_open(*addr).await;
            assert_eq!(get(&mut kept, "/").await.0, StatusCode::OK);
        }
        kept = connect(addrs[1]).await.expect("the second again");
    }
}

async fn wait_refused(addr: SocketAddr) {
    let wait = async { while TcpStream::connect(addr).await.is_ok() {} };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "{addr} stays open");
}

async fn wait_open(addr: SocketAddr) -> Client {
    let wait = async {
        loop {
            if let Ok(client) = connect(addr).await {
                return client;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap_or_else(|_| panic!("{addr} stays closed"))
}

#[tokio::test]
async fn the_spec_changes_at_its_times() {
    let change = Change { at: 50 * MS, workers: Some(7), ..Change::default() };
    let origin = start(OriginSpec { changes: vec![change], ..spec() });
    until("seven workers", || origin.control.services[0].stages()[0].servers == 7).await;
}

#[tokio::test]
async fn consecutive_ports_and_ports_in_use() {
    // Three in a row that are free now; somebody else may be quicker, then others are tried.
    let origin = loop {
        let first = start(spec()).addr();
        let config = OriginConfig { addr: first, ..OriginConfig::new(OriginSpec { replicas: 3, ..spec() }) };
        match Origin::start(config) {
            Ok(origin) => break origin,
            Err(OriginError::Listen(..) | OriginError::Ports { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let addrs = origin.addrs();
    let ports: Vec<u16> = addrs.iter().map(SocketAddr::port).collect();
    assert_eq!(ports, [ports[0], ports[0] + 1, ports[0] + 2]);
    let taken = Origin::start(OriginConfig { addr: addrs[1], ..OriginConfig::new(spec()) });
    let error = taken.err().expect("in use").to_string();
    assert!(error.starts_with(&format!("cannot listen on {}:", addrs[1])), "{error}");
    let last = SocketAddr::from(([127, 0, 0, 1], u16::MAX));
    let beyond = OriginConfig { addr: last, ..OriginConfig::new(OriginSpec { replicas: 2, ..spec() }) };
    assert!(Origin::start(beyond).is_err(), "there is no port 65536");
}

#[tokio::test]
async fn stages_look_like_hosts() {
    for mode in [Mode::Sleep, Mode::Spin] {
        let mut spec = OriginSpec { mode, ..held(OriginSpec { replicas: 2, ..spec() }) };
        spec.stages.push(Stage::new("db", 3));
        spec.paths[1].demand = vec![(0, Dist::Fixed(0.001)), (1, Dist::Fixed(0.02))];
        let origin = start(spec);
        let mut client = connect(origin.addrs()[1]).await.expect("connect");
        get(&mut client, "/").await;
        let (status, all) = admin(&origin, Method::GET, "/metrics", "").await;
        assert_eq!(status, StatusCode::OK);
        let sum = |text: &str, start: &str, mode: &str| -> f64 {
            let mode = format!("mode=\"{mode}\"");
            let lines = text.lines().filter(|line| line.starts_with(start) && line.contains(&mode));
            lines
                .map(|line| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).expect("a value"))
                .sum()
        };
        let at = |stage: &str, replica: usize| {
            format!("node_cpu_seconds_total{{stage=\"{stage}\",replica=\"{replica}\",cpu=")
        };
        assert_eq!(sum(&all, &at("db", 0), "user"), 0.0, "{all}");
        // Each of the three figures is rounded down to a microsecond.
        assert!(sum(&all, &at("db", 1), "user") >= 0.019_997, "{all}");
        assert!(sum(&all, &at("app", 1), "idle") > 0.0, "{all}");
        assert!(all.contains("tidegate_origin_requests_total{outcome=\"served\"} 1\n"), "{all}");
        assert!(all.contains("tidegate_origin_stage_servers{stage=\"db\",replica=\"1\"} 3\n"), "{all}");

        let (_, host) = admin(&origin, Method::GET, "/metrics/db", "").await;
        assert!(host.contains("node_cpu_seconds_total{cpu=\"5\",mode=\"idle\"} "), "3 servers twice: {host}");
        assert!(!host.contains("cpu=\"6\"") && !host.contains("stage="), "{host}");
        assert!(sum(&host, "node_cpu_seconds_total", "user") >= 0.019_997, "{host}");
    }
}

#[tokio::test]
async fn the_admin_port_changes_and_explains() {
    let origin = start(spec());
    let (status, body) =
        admin(&origin, Method::PUT, "/change", r#"{"workers": 9, "speed": 2.0, "replicas": 0}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let stats: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(stats["services"][0]["stages"][0]["servers"], 9, "{stats}");
    assert_eq!(stats["replicas"], json!([{"addr": origin.addr(), "open": false}]));
    let (_, series) = admin(&origin, Method::GET, "/series", "").await;
    let series: Value = serde_json::from_str(&series).expect("JSON");
    assert_eq!(series["seconds"][0]["t"], 0, "{series}");
    assert_eq!(series["started_us"].as_u64().map(|us| us % 1_000_000), Some(0), "{series}");
    for (method, path, body, status, says) in [
        (Method::PUT, "/change", r#"{"replicas": 2}"#, 400, "replicas: expected 0 to 1, "),
        (
            Method::PUT,
            "/change",
            r#"{"workers": 1000001}"#,
            400,
            "workers: expected 0 to 1000000, got 1000001",
        ),
        (Method::PUT, "/change", r#"{"speed": 0}"#, 400, "speed: expected 0.001 to 1000, got 0"),
        (Method::PUT, "/change", r#"{"wrokers": 1}"#, 400, "unknown field `wrokers`"),
        (Method::PUT, "/change", "{", 400, "expected an object such as"),
        (Method::GET, "/change", "", 405, "expected PUT"),
        (Method::POST, "/stats", "", 405, "expected GET"),
        (Method::GET, "/metrics/disk", "", 404, "stage: expected one of app; got"),
        (Method::GET, "/metric", "", 404, "expected /metrics, "),
    ] {
        let answer = admin(&origin, method, path, body).await;
        assert_eq!(answer.0.as_u16(), status, "{path} {body}: {answer:?}");
        let error: Value = serde_json::from_str(&answer.1).expect("JSON");
        assert!(error["error"].as_str().is_some_and(|error| error.contains(says)), "{path} {body}: {error}");
    }
}

#[test]
fn a_thread_each_has_its_limit() {
    let error = Origin::start(OriginConfig::new(OriginSpec { mode: Mode::Spin, workers: 5000, ..spec() }));
    let error = error.err().expect("too many").to_string();
    assert_eq!(error, "cannot start: workers: expected at most 4096 where each is a thread; got 5000");
    let origin = start(OriginSpec { mode: Mode::Spin, ..spec() });
    let change = Change { at: Duration::ZERO, workers: Some(5000), ..Change::default() };
    let error = origin.change(&change).expect_err("too many").to_string();
    assert_eq!(error, "workers: expected at most 4096 where each is a thread; got 5000");
}

#[test]
fn globs_are_checked() {
    let mut spec = spec();
    spec.paths[0].path = "search".into();
    let error = Origin::start(OriginConfig::new(spec)).err().expect("no glob").to_string();
    assert!(error.contains("expected a glob") && error.contains("`search`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_takes_nothing_of_the_capacity() {
    // 13 waves of 10 at 33.3 ms: a millisecond of granularity a wave would show as 13 ms.
    let pool = SleepPool::new(Model::new(&OriginSpec::pool(10, Duration::from_micros(33_300), 128, 0.0), 1));
    let driver = tokio::spawn(Arc::clone(&pool).drive());
    let meter = Meter::new();
    let begin = Instant::now();
    let taken: Vec<_> = (0..130).map(|_| pool.submit(0, meter.arrive()).expect("room")).collect();
    for mut taken in taken {
        (&mut taken.reply).await.expect("served");
    }
    let exact = Duration::from_micros(33_300) * 13;
    assert!(begin.elapsed() >= exact && begin.elapsed() <= exact + 2 * MS, "{:?}", begin.elapsed());
    driver.abort();
}
