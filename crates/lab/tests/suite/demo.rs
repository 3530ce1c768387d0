//! The demonstration end to end over real sockets, with a small gate that speaks the waiting room's protocol.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_lab::client::{Client, Connections, Order, Place};
use tidegate_lab::demo::{DemoError, DemoOptions, GateEstimate, Gatekeeper, RunningGate, compare};
use tidegate_lab::visitor::RequestKind;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// A first-come-first-served schedule: one turn every 1/rate seconds, as a token bucket without burst.
struct FakeGate {
    origin: Arc<Client>,
    turn: Duration,
    clock: Mutex<TurnClock>,
    /// When the next turn is free, and the turns given out by ticket number. Used tickets are emptied.
    book: Mutex<(Duration, Vec<Option<Duration>>)>,
    in_flight: Semaphore,
    expired_once: AtomicU64,
}

/// Runs while the origin has a free worker. On a machine too slow for the schedule turns would otherwise come
/// due faster than they are served, and the test would measure the machine.
struct TurnClock {
    last: Instant,
    time: Duration,
}

impl TurnClock {
    /// Longest step: after a longer sleep it is unknown whether a worker was free meanwhile.
    const STEP: Duration = Duration::from_millis(10);

    fn read(&mut self, has_free_place: bool) -> Duration {
        let passed = self.last.elapsed();
        self.last += passed;
        if has_free_place {
            self.time += passed.min(Self::STEP);
        }
        self.time
    }
}

impl FakeGate {
    fn now(&self) -> Duration {
        self.clock.lock().expect("clock").read(self.in_flight.available_permits() > 0)
    }

    fn ticket(request: &Request<Incoming>) -> Option<usize> {
        request.headers().get(header::COOKIE)?.to_str().ok()?.strip_prefix("tg=")?.parse().ok()
    }

    /// The turn of the visitor: an old ticket's or a new one.
    fn place(&self, ticket: Option<usize>) -> (usize, Duration) {
        let now = self.now();
        let mut book = self.book.lock().expect("book");
        if let Some((number, due)) = ticket.and_then(|n| Some((n, (*book.1.get(n)?)?))) {
            return (number, due);
        }
        let due = book.0.max(now);
        book.0 = due + self.turn;
        book.1.push(Some(due));
        (book.1.len() - 1, due)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let now = self.now();
        let ticket = Self::ticket(&request);
        if request.uri().path() == "/.tidegate/status" {
            let due = ticket.and_then(|n| *self.book.lock().expect("book").1.get(n)?);
            let state = match due {
                Some(due) if due <= now => "ready",
                // Once in a while a ticket is lost: the visitor has to ask for a new one.
                Some(_) if self.expired_once.fetch_add(1, Relaxed) == 20 => "expired",
                Some(_) => "waiting",
                None => "redeemed",
            };
            let poll = poll_ms(due.unwrap_or_default(), now);
            let body =
                format!(r#"{{"state":"{state}","wait_ms":1,"place":1,"poll_ms":{poll},"waited_ms":1}}"#);
            return Response::new(Full::from(body));
        }
        let (number, due) = self.place(ticket);
        if due > now {
            return Response::builder()
                .status(StatusCode::SERVICE_UNAVAILABLE)
                .header(header::RETRY_AFTER, due.as_secs() - now.as_secs() + 1)
                .header(header::SET_COOKIE, format!("tg={number}; Path=/; HttpOnly"))
                .header("x-tidegate-status", "/.tidegate/status?c=0")
                .body(Full::from(format!("<main data-kind=waiting data-poll={}>", poll_ms(due, now))))
                .expect("valid");
        }
        self.book.lock().expect("book").1[number] = None;
        let _place = self.in_flight.acquire().await.expect("open");
        let outcome = self.origin.send(Order::get(RequestKind::Page, "/".parse().expect("a path"))).await;
        let status = outcome.map_or(StatusCode::BAD_GATEWAY, |reply| reply.status);
        Response::builder()
            .status(status)
            .header(header::SET_COOKIE, "tg=; Max-Age=0; Path=/")
            .body(Full::from("in"))
            .expect("valid")
    }
}

/// An eighth of the wait, but not before the turn has come if it is near.
fn poll_ms(due: Duration, now: Duration) -> u128 {
    let wait = due.saturating_sub(now).as_millis();
    (wait / 8).max(200).min(wait + 20)
}

/// Lets through what [`small`]'s origin can take, which no gate could know.
struct FakeKeeper;

/// Requests per second, and at once.
const ESTIMATE: GateEstimate = GateEstimate { capacity_rps: 49.6, in_flight: Some(12), is_settled: true };

impl Gatekeeper for FakeKeeper {
    fn start(&self, origin: SocketAddr) -> io::Result<RunningGate> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            runtime.block_on(async move {
                let gate = Arc::new(FakeGate {
                    origin: Client::new(Place::at(origin), Connections::Keep),
                    turn: Duration::from_secs_f64(1.0 / ESTIMATE.capacity_rps),
                    clock: Mutex::new(TurnClock { last: Instant::now(), time: Duration::ZERO }),
                    book: Mutex::default(),
                    in_flight: Semaphore::new(12),
                    expired_once: AtomicU64::new(0),
                });
                let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
                tokio::select! {
                    _ = stopped => {}
                    () = tick(&gate) => {}
                    () = accept(listener, Arc::clone(&gate)) => {}
                }
            });
        });
        let stop = Box::new(move || {
            let _ = stop.send(());
            thread.join().expect("the gate ends");
        });
        Ok(RunningGate { addr, admin: addr, estimate: Box::new(|| ESTIMATE), stop })
    }
}

/// The clock looks for free workers whether or not anybody asks.
async fn tick(gate: &FakeGate) {
    loop {
        gate.now();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn accept(listener: tokio::net::TcpListener, gate: Arc<FakeGate>) {
    while let Ok((stream, _)) = listener.accept().await {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let gate = Arc::clone(&gate);
                async move { Ok::<_, Infallible>(gate.answer(request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// A small demonstration: 200 ms of service, 500 visitors in 0.4 s, ten seconds to let them in. Alone, they
/// try for some four seconds: for all to be served, a slow machine would have to spread them over as many
/// more.
fn small() -> DemoOptions {
    DemoOptions { capacity: 50.0, factor: 25.0, crowd_secs: 0.4, json: true, ..DemoOptions::default() }
}

#[test]
fn the_crowd_fails_alone_and_is_served_behind_a_gate() {
    let (report, stage) = compare(small(), &FakeKeeper).expect("demo");
    let (direct, gated) = (report.direct, report.gated);
    assert_eq!(direct.offered, gated.side.offered, "the same crowd");
    assert!(direct.offered > 400, "{direct:?}");
    assert_eq!(direct.served + direct.failed, direct.offered);
    assert!(direct.failed > 0 && direct.failed_requests >= direct.failed, "{direct:?}");
    assert_eq!((gated.side.failed, gated.side.failed_requests), (0, 0), "{gated:?}");
    assert_eq!(gated.side.served, gated.side.offered);
    assert!(gated.waited > 0 && gated.waited <= gated.side.offered, "{gated:?}");
    assert!(gated.wait_s.max >= gated.wait_s.p50 && gated.wait_s.p50 > 0.0, "{gated:?}");
    assert!(gated.side.goodput_rps > 0.0);
    assert_eq!(stage.origin().served, gated.side.served, "the origin saw every visitor once");
    assert_eq!(stage.origin().refused, 0);
    assert_eq!(
        (report.found.capacity_rps, report.found.in_flight),
        (ESTIMATE.capacity_rps, ESTIMATE.in_flight)
    );
    assert!(report.found.settled_s.is_some(), "{:?}", report.found);
}

#[test]
fn no_shows_are_no_failures() {
    let (report, _stage) = compare(DemoOptions { no_shows: 0.3, ..small() }, &FakeKeeper).expect("demo");
    let side = report.gated.side;
    assert!(side.no_shows > 0, "{side:?}");
    assert_eq!(side.served + side.no_shows, side.offered, "{side:?}");
    assert_eq!((report.direct.no_shows, side.failed), (0, 0));
}

#[test]
fn json_has_the_promised_keys() {
    let options = DemoOptions { capacity: 1000.0, factor: 2.0, crowd_secs: 0.1, ..small() };
    let (report, _stage) = compare(options, &FakeKeeper).expect("demo");
    let json = serde_json::to_value(report).expect("json");
    for key in [
        "/capacity_rps",
        "/offered_rps",
        "/found/capacity_rps",
        "/found/in_flight",
        "/found/settled_s",
        "/direct/offered",
        "/direct/served",
        "/direct/failed",
        "/direct/goodput_rps",
        "/direct/response_ms/p50",
        "/direct/response_ms/p99",
        "/gated/offered",
        "/gated/served",
        "/gated/failed",
        "/gated/goodput_rps",
        "/gated/response_ms/p50",
        "/gated/response_ms/p99",
        "/gated/waited",
        "/gated/wait_s/p50",
        "/gated/wait_s/max",
    ] {
        assert!(json.pointer(key).is_some_and(serde_json::Value::is_number), "{key} in {json}");
    }
}

#[test]
fn silly_options_are_refused_with_a_reason() {
    let good = small();
    let cases = [
        (DemoOptions { factor: 0.0, ..good }, "factor"),
        (DemoOptions { factor: f64::NAN, ..good }, "factor"),
        (DemoOptions { capacity: 1e9, ..good }, "capacity"),
        (DemoOptions { capacity: -1.0, ..good }, "capacity"),
        (DemoOptions { crowd_secs: f64::INFINITY, ..good }, "crowd length"),
        (DemoOptions { no_shows: 1.1, ..good }, "no-shows"),
        (DemoOptions { factor: 1000.0, capacity: 10_000.0, crowd_secs: 60.0, ..good }, "visitors"),
    ];
    for (options, expected) in cases {
        match compare(options, &FakeKeeper) {
            Err(DemoError::Option { name, .. }) => assert_eq!(name, expected, "{options:?}"),
            other => panic!("{options:?}: {:?}", other.map(|(report, _)| report)),
        }
    }
}

#[test]
fn a_gate_that_does_not_start_is_an_error() {
    struct Broken;
    impl Gatekeeper for Broken {
        fn start(&self, _: SocketAddr) -> io::Result<RunningGate> {
            Err(io::Error::other("no"))
        }
    }
    let options = DemoOptions { capacity: 1000.0, factor: 0.1, crowd_secs: 0.1, ..small() };
    assert!(matches!(compare(options, &Broken), Err(DemoError::Gate(_))));
}
