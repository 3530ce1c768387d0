//! The load generator over real sockets: against the model origin, and against small services that misbehave.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_lab::client::Connections;
use tidegate_lab::crowd::Crowd;
use tidegate_lab::dist::Dist;
use tidegate_lab::load::{self, LoadError, LoadOptions, Played, Stop};
use tidegate_lab::origin::{Origin, OriginConfig, OriginHandle};
use tidegate_lab::outcome::Way;
use tidegate_lab::scenario::{Arrivals, Kind, OriginSpec, Scenario, Step};
use tidegate_lab::tally::Tally;
use tokio::sync::oneshot;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A crowd of one kind.
fn crowd(rate: f64, lasts: Duration, kind: Kind) -> Scenario {
    Scenario { seed: 5, visitors: vec![kind], ..Scenario::short("", rate, lasts) }
}

fn patient() -> Kind {
    Kind { patience: Dist::Fixed(600.0), ..Kind::default() }
}

fn at(addr: SocketAddr) -> LoadOptions {
    LoadOptions { url: Some(format!("http://{addr}")), ..LoadOptions::default() }
}

fn play(scenario: &Scenario, options: &LoadOptions) -> Played {
    load::run(scenario, options, |_, _| {}).expect("a run")
}

fn everybody_is_counted_once(tally: &Tally) {
    assert!(tally.adds_up(), "{tally:?}");
    assert_eq!((tally.present(), tally.waiting, tally.in_flight), (0, 0, 0));
    assert!(tally.offered > 0);
}

fn origin(workers: u32, service: Duration) -> OriginHandle {
    Origin::start(OriginConfig::new(OriginSpec::pool(workers, service, 128, 0.01))).expect("origin")
}

/// A service of one function, on a thread of its own, until dropped.
struct Service {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A request as a test looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    line: String,
    host: String,
    cookies: String,
    body: String,
    connection: String,
}

impl Service {
    fn start(answer: impl Fn(&Seen) -> Response<&'static str> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
        listener.set_nonblocking(true).expect("non-blocking");
        let addr = listener.local_addr().expect("address");
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("runtime").block_on(async move {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, Arc::new(answer)) => {}
                }
            });
        });
        Self { addr, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept<F>(listener: TcpListener, answer: Arc<F>)
where
    F: Fn(&Seen) -> Response<&'static str> + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
    while let Ok((stream, _)) = listener.accept().await {
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = Arc::clone(&answer);
                async move {
                    let response = answer(&see(request).await);
                    Ok::<_, Infallible>(response.map(|body| Full::new(Bytes::from_static(body.as_bytes()))))
                }
            });
            let server = hyper::server::conn::http1::Builder::new();
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn see(request: Request<Incoming>) -> Seen {
    let text = |name| {
        let value = request.headers().get(name).map(|v| v.to_str().expect("text").to_owned());
        value.unwrap_or_default()
    };
    let (host, cookies, connection) = (text(header::HOST), text(header::COOKIE), text(header::CONNECTION));
    let line = format!("{} {}", request.method(), request.uri());
    let body = request.into_body().collect().await.expect("body").to_bytes();
    Seen { line, host, cookies, connection, body: String::from_utf8(body.to_vec()).expect("text") }
}

fn answer(status: u16, fields: &[(&str, &str)], body: &'static str) -> Response<&'static str> {
    let response = fields
        .iter()
        .fold(Response::builder().status(status), |response, (name, value)| response.header(*name, *value));
    response.body(body).expect("an answer")
}

/// What a service has seen, in order.
type Log = Arc<Mutex<Vec<Seen>>>;

fn log(log: &Log, seen: &Seen) {
    log.lock().expect("log").push(seen.clone());
}

#[test]
fn impatience_is_wasted_work_at_the_origin() {
    let origin = origin(2, 100 * MS);
    let kind = Kind { patience: Dist::Uniform(0.025, 0.075), retries: 0, ..Kind::default() };
    let Played { tally, partial, .. } = play(&crowd(200.0, 100 * MS, kind), &at(origin.addr()));
    everybody_is_counted_once(&tally);
    assert_eq!((tally.done, tally.failures.patience), (0, tally.offered));
    assert_eq!((tally.given_up, partial), (tally.offered, None));
    while origin.stats().present() > 0 {
        std::thread::yield_now();
    }
    let stats = origin.stats();
    assert!(stats.wasted > 0, "{stats:?}");
    assert_eq!(stats.served, 0, "{stats:?}");
    assert!(stats.wasted + stats.refused <= tally.offered, "{stats:?}");
}

#[test]
fn a_patient_crowd_is_served_over_shared_connections_whatever_the_threads() {
    let mut offered = Vec::new();
    for threads in [1, 3] {
        let origin = origin(10, 10 * MS);
        let mut last_seen = 0;
        let options = LoadOptions { threads, ..at(origin.addr()) };
        let played =
            load::run(&crowd(300.0, 400 * MS, patient()), &options, |tally, _| last_seen = tally.done);
        let tally = played.expect("a run").tally;
        everybody_is_counted_once(&tally);
        assert_eq!((tally.done, tally.failures.total()), (tally.offered, 0));
        assert_eq!(last_seen, tally.done, "the watcher sees the end");
        assert_eq!(origin.stats().served, tally.done);
        assert!(tally.response_us.min() >= 9_900, "from the intended send: {}", tally.response_us.min());
        assert_eq!((tally.told, tally.goodput_while_waiting()), (0, None));
        offered.push(tally.offered);
    }
    assert_eq!(offered[0], offered[1], "the same crowd");
}

#[test]
fn a_session_asks_step_by_step_with_its_cookies() {
    let seen = Log::default();
    let logged = Arc::clone(&seen);
    let service = Service::start(move |request| {
        log(&logged, request);
        match request.line.as_str() {
            "GET /" => answer(200, &[("set-cookie", "session=abc; Path=/")], "in"),
            _ => answer(200, &[], "in"),
        }
    });
    let step = |method: &str, path: &str, form: Option<&str>| Step {
        method: method.into(),
        path: path.into(),
        form: form.map(Into::into),
        ..Step::default()
    };
    let steps = vec![step("GET", "/", None), step("POST", "/bid?a=b", Some("item=1&bid=2"))];
    let mut scenario = crowd(1000.0, MINUTE, Kind { steps, ..patient() });
    // The first visitor alone: the log is in order.
    let first = Crowd::of(&scenario).expect("no log").1.next().expect("somebody").at;
    scenario.deadline = Some(MINUTE);
    let Arrivals::Phases { phases, .. } = &mut scenario.arrivals else { panic!("phases") };
    phases[0].lasts = first + Duration::from_nanos(1);
    let port = service.addr.port();
    let options = LoadOptions { url: Some(format!("http://LocalHost:{port}/")), ..LoadOptions::default() };
    let tally = play(&scenario, &options).tally;
    everybody_is_counted_once(&tally);
    assert_eq!((tally.offered, tally.done, tally.served), (1, 1, 2));
    let host = format!("LocalHost:{port}");
    let expected =
        [("GET /", "", ""), ("POST /bid?a=b", "session=abc", "item=1&bid=2")].map(|(line, cookies, body)| {
            Seen {
                line: line.into(),
                host: host.clone(),
                cookies: cookies.into(),
                body: body.into(),
                connection: String::new(),
            }
        });
    assert_eq!(*seen.lock().expect("log"), expected);
}

#[test]
fn a_redirect_to_the_same_host_is_followed_to_any_port_with_what_it_sets() {
    let seen = Log::default();
    let logged = Arc::clone(&seen);
    let check = Service::start(move |request| {
        log(&logged, request);
        answer(200, &[], "in")
    });
    let to = format!("http://127.0.0.1:{}/in?tg=1", check.addr.port());
    let generator = Service::start(move |_| answer(303, &[("location", &to), ("set-cookie", "pass=1")], ""));
    let tally = play(&crowd(100.0, 200 * MS, patient()), &at(generator.addr)).tally;
    everybody_is_counted_once(&tally);
    assert_eq!(
        (tally.done, tally.requests),
        (tally.offered, tally.offered),
        "one request, wherever it leads"
    );
    let seen = seen.lock().expect("log");
    assert_eq!(seen.len() as u64, tally.offered);
    let first = &seen[0];
    assert_eq!((first.line.as_str(), first.cookies.as_str()), ("GET /in?tg=1", "pass=1"));
    assert_eq!(first.host, check.addr.to_string());
}

#[test]
fn redirects_elsewhere_and_in_circles_are_refusals() {
    let elsewhere = Service::start(|_| answer(302, &[("location", "http://127.0.0.2:9/")], ""));
    let circle = Service::start(|_| answer(302, &[("location", "/again")], ""));
    for service in [elsewhere, circle] {
        let kind = Kind { retries: 0, ..patient() };
        let tally = play(&crowd(100.0, 100 * MS, kind), &at(service.addr)).tally;
        everybody_is_counted_once(&tally);
        assert_eq!((tally.failed, tally.failures.refused), (tally.offered, tally.offered));
    }
}

#[test]
fn fresh_connections_are_closed_after_each_request() {
    let seen = Log::default();
    let logged = Arc::clone(&seen);
    let service = Service::start(move |request| {
        log(&logged, request);
        answer(200, &[], "in")
    });
    let options = LoadOptions { connections: Connections::Fresh, ..at(service.addr) };
    let tally = play(&crowd(100.0, 100 * MS, patient()), &options).tally;
    assert_eq!(tally.done, tally.offered);
    assert!(seen.lock().expect("log").iter().all(|request| request.connection == "close"));
}

/// The page of a gate that refuses new sessions tells a browser when to try again; clients of a closed loop
/// are turned away, as in virtual time.
#[test]
fn a_closed_loop_counts_the_sessions_that_a_gate_refuses() {
    let gate = Service::start(|_| {
        let page = "<main data-kind=full data-refused=1 data-wait=60000 >";
        answer(503, &[("content-type", "text/html"), ("retry-after", "60")], page)
    });
    let text = "[arrivals.closed]\nbrowsers = 20\njoin = 400\nsettle = \"100ms\"\nfor = \"1s\"\npause = \"50ms\"\n\
        [[visitor]]\npatience = \"1m\"\nretries = 0\nstep = [{ path = \"/a\" }, { path = \"/b\" }]\n";
    let scenario = Scenario::parse(text, "refused.toml", std::path::Path::new(""), &[]);
    let scenario = scenario.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let played = play(&scenario, &at(gate.addr));
    let outcome = played.outcome(&scenario);
    let turned_away = outcome.figure("turned_away_per_min") * outcome.figure("steady_seconds") / 60.0;
    // A visitor who followed the page would have asked once.
    assert!(turned_away > 20.5, "{turned_away} sessions: {:?}", outcome.summary);
    assert_eq!((played.tally.told, outcome.figure("broken_sessions_per_min")), (0, 0.0));
}

#[test]
fn a_room_that_lets_nobody_in_is_a_failure_at_the_deadline() {
    let room = Service::start(|request| match request.line.as_str() {
        "GET /news" => answer(200, &[], r#"{"state":"waiting","poll_ms":50}"#),
        _ => answer(
            503,
            &[("x-tidegate-status", "/news"), ("retry-after", "9")],
            "<main data-kind=waiting data-poll=50 >",
        ),
    });
    let scenario = Scenario { deadline: Some(500 * MS), ..crowd(100.0, 100 * MS, Kind::default()) };
    let Played { tally, partial, .. } = play(&scenario, &at(room.addr));
    everybody_is_counted_once(&tally);
    assert_eq!((tally.failed, tally.told, partial), (tally.offered, tally.offered, None));
    assert!(tally.polls > 0, "they polled the status");
    assert_eq!(tally.failures.total(), 0, "being told to wait is no failed request");
}

#[test]
fn a_stopped_run_keeps_its_results_and_says_so() {
    let room = Service::start(|_| answer(503, &[("retry-after", "600")], "later"));
    let stop = Stop::default();
    let options = LoadOptions { stop: stop.clone(), threads: 2, ..at(room.addr) };
    let scenario = crowd(200.0, MINUTE, Kind::default());
    let played = load::run(&scenario, &options, |tally, _| {
        if tally.waiting > 10 {
            stop.now("enough");
            stop.now("a second reason");
        }
    })
    .expect("a run");
    assert_eq!(played.partial.as_deref(), Some("enough"));
    assert!(played.tally.adds_up() && played.tally.present() > 10, "those who wait are still there");
    assert_eq!((played.tally.failed, played.tally.in_flight), (0, 0));
    let outcome = played.outcome(&scenario);
    assert_eq!((outcome.partial.as_deref(), outcome.way), (Some("enough"), Way::Real));
    assert!(outcome.started_us.is_some());
    // The next run with the same stop ends at once.
    assert_eq!(play(&scenario, &options).partial.as_deref(), Some("enough"));
}

#[test]
fn nothing_is_sent_to_an_absent_target() {
    // Bound and dropped: nothing else is given this port so soon.
    let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a free port");
    let scenario = crowd(10.0, MS, patient());
    let error = load::run(&scenario, &at(addr), |_, _| {}).expect_err("nobody listens");
    assert!(matches!(error, LoadError::Target(_)), "{error}");
    assert!(error.to_string().contains(&format!("no connection to {addr}")), "{error}");
    let implausible = Scenario { target: None, ..crowd(1e7, MS, patient()) };
    assert!(matches!(load::run(&implausible, &LoadOptions::default(), |_, _| {}), Err(LoadError::NoTarget)));
    assert!(matches!(load::run(&implausible, &at(addr), |_, _| {}), Err(LoadError::Implausible(_))));
}

#[test]
fn an_idle_service_is_probed() {
    let origin = origin(10, 5 * MS);
    let times = load::probe(&format!("http://{}/", origin.addr()), "/", 3).expect("answers");
    assert!(times.len() == 3 && times.iter().all(|time| *time >= 5 * MS), "{times:?}");
    let broken = Service::start(|_| answer(500, &[], "no"));
    let error = load::probe(&format!("http://{}/", broken.addr), "/", 3).expect_err("an error");
    assert!(error.to_string().contains("500"), "{error}");
}

#[test]
fn a_target_that_dies_makes_a_short_run_partial_too() {
    let mut service = Some(Service::start(|_| answer(200, &[], "page")));
    let to = at(service.as_ref().expect("running").addr);
    let kind = Kind { pause: Dist::Fixed(0.01), ..Kind::default() };
    let played = load::run(&crowd(100.0, 1000 * MS, kind), &to, |tally, _| {
        if tally.served > 0 {
            drop(service.take());
        }
    });
    let Played { tally, partial, .. } = played.expect("a run");
    everybody_is_counted_once(&tally);
    assert!(tally.failures.connect > 0 && tally.served > 0, "{:?}", tally.failures);
    assert!(partial.is_some_and(|why| why.contains("the target is gone")));
}
