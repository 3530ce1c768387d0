//! The gate discovers the capacity of an origin while a crowd of ten times that capacity comes.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::mpsc::{self, TryRecvError};

use serde_json::Value;

use super::harness::{Config, Gate, ModelOrigin, Running, TempDir, free_address, tidegate, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;
use super::roles::pair_of;

/// What the model origin can take, in requests per second.
const CAPACITY: f64 = 12.0;
/// Requests that it serves at once.
const WORKERS: f64 = 3.0;

fn ask(admin: SocketAddr, method: &str, path: &str) -> std::io::Result<Answer> {
    let mut client = Client::connect(admin)?;
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"))?;
    client.answer(method)
}

/// `tidegate run` in front of a model origin.
struct Service {
    http: SocketAddr,
    admin: SocketAddr,
    _gate: Running,
    _origin: ModelOrigin,
    _state: TempDir,
}

/// The gate knows only the address of the origin.
fn service() -> Service {
    let takes = [CAPACITY.to_string(), WORKERS.to_string()];
    let origin = ModelOrigin::start(&["--capacity", &takes[0], "--workers", &takes[1]]);
    let address = origin.addrs[0].to_string();
    let (http, admin, state) = (free_address(), free_address(), TempDir::new());
    let directory = format!("room.state_dir={}", state.path().display());
    let listen = [http.to_string(), admin.to_string()];
    let mut run = tidegate();
    run.args([
        "run", "--origin", &address, "--listen", &listen[0], "--admin", &listen[1], "--set", &directory,
    ]);
    let gate = Running::start(run.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("the gate to be ready", || {
        ask(admin, "GET", "/readyz").ok().filter(|answer| answer.status() == 200)
    });
    Service { http, admin, _gate: gate, _origin: origin, _state: state }
}

impl Service {
    fn capacity(&self) -> Value {
        ask(self.admin, "GET", "/v1/capacity").expect("an answer").json()
    }

    /// A crowd of ten times the capacity comes for 2.5 s and is admitted in order: 25 s of work. The visitors
    /// are patient, because the speed depends on the machine.
    fn crowd(&self) {
        let url = format!("http://{}/", self.http);
        let (rate, patient) = ((10.0 * CAPACITY).to_string(), "visitor.0.patience=2m");
        let crowd = [&url, "--rate", &rate, "--for", "2500ms", "--seed", "5", "--set", patient, "--json"];
        let output = tidegate().arg("load").args(crowd).stdin(Stdio::null()).output().expect("tidegate load");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let figure = |key: &str| json["summary"][key].as_f64().unwrap_or_else(|| panic!("{key}: {json}"));
        assert!(figure("offered") > 20.0 * CAPACITY, "{}", json["summary"]);
        assert_eq!((figure("failed_requests"), figure("failed")), (0.0, 0.0), "{}", json["summary"]);
        assert_eq!(figure("done"), figure("offered"), "{}", json["summary"]);
    }
}

/// The share of the capacity that is served is checked in the simulator (`crates/lab/tests/suite/sim.rs`),
/// where no machine stalls.
#[test]
fn the_capacity_of_an_unknown_origin_is_discovered_under_ten_times_that_load() {
    let service = service();
    let believed = |found: &Value| found["rate"].as_f64().expect("a rate");
    assert!(believed(&service.capacity()) > 2.0 * CAPACITY, "it starts with another capacity");
    let found = std::thread::scope(|scope| {
        let (looking, is_found) = mpsc::channel::<()>();
        let service = &service;
        scope.spawn(move || {
            service.crowd();
            // If the machine stalled while the first crowd was there, the gate needs another one to learn
            // from.
            while is_found.try_recv() == Err(TryRecvError::Empty) {
                service.crowd();
            }
        });
        let found = wait_for("the capacity to be found", || {
            let now = service.capacity();
            let is_right = (0.8 * CAPACITY..=1.25 * CAPACITY).contains(&believed(&now));
            (is_right && now["phase"] == "settled").then_some(now)
        });
        drop(looking);
        found
    });
    assert_eq!(
        (&found["estimator"], &found["configured"]),
        (&"bottleneck".into(), &"auto".into()),
        "{found}"
    );
    let in_flight = found["max_in_flight"].as_f64().unwrap_or_else(|| panic!("a limit: {found}"));
    assert!((1.0..=4.0 * WORKERS).contains(&in_flight), "{found}");
    assert!(found["samples"].as_u64() > Some(0), "{found}");
    assert!(found["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{found}");
    let again = ask(service.admin, "POST", "/v1/capacity/rediscover").expect("an answer");
    assert_eq!(again.status(), 202);
    wait_for("the search to begin anew", || {
        let now: Value = ask(service.admin, "GET", "/v1/capacity").ok()?.json();
        (now["phase"] != "settled").then_some(())
    });
}

#[test]
fn tokencheck_reports_the_capacity_of_tokengen_and_refuses_to_set_it() {
    let origin = Origin::answering("welcome");
    let pair = pair_of(Config::new(&[]).set("capacity.rate", 0), Config::new(&[origin.address()]));
    let (generator, check) = (pair.generator, pair.check);
    let capacity = |gate: &Gate| -> Value { gate.admin("GET", "/v1/capacity", "").json() };
    let found = capacity(&generator);
    assert_eq!((&found["role"], &found["estimator"]), (&"tokengen".into(), &"bottleneck".into()), "{found}");
    assert_eq!(generator.admin("POST", "/v1/capacity/rediscover", "").status(), 202);
    generator.set_rate(50.0);
    wait_for("tokengen's figures at tokencheck", || {
        let (said, told) = (capacity(&generator), capacity(&check));
        assert_eq!((&told["role"], &told["estimator"]), (&"tokencheck".into(), &Value::Null), "{told}");
        (said["rate"] == told["rate"]).then_some(())
    });
    for (method, path, body) in
        [("PUT", "/v1/capacity", "{\"rate\": 5}"), ("POST", "/v1/capacity/rediscover", "")]
    {
        let refused = check.admin(method, path, body);
        assert_eq!(refused.status(), 409, "{method} {path}");
        assert!(refused.text().contains("tokengen"), "{method} {path}: {refused:?}");
    }
}
