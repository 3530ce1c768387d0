//! Nobody tells the gate what the origin can take: it finds out, while a crowd of ten times that is at the door.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, TryRecvError};

use serde_json::Value;

use super::harness::{Config, Gate, TempDir, free_address, tidegate, wait_for};
use super::http::{Answer, Client};
use super::origin::Origin;

/// Requests per second: what the model origin can take.
const CAPACITY: f64 = 40.0;
/// And at once.
const WORKERS: f64 = 4.0;

/// A process that goes when the test does.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("start"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tidegate origin`, and where it listens.
fn model_origin() -> (Running, String) {
    let mut command = tidegate();
    let takes = [CAPACITY.to_string(), WORKERS.to_string()];
    command.args(["origin", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--capacity", &takes[0], "--workers", &takes[1]]);
    let mut origin = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(origin.0.stdout.take().expect("standard output")).read_line(&mut line).expect("a line");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    (origin, said["addrs"][0].as_str().expect("an address").to_owned())
}

fn ask(admin: SocketAddr, method: &str, path: &str) -> std::io::Result<Answer> {
    let mut client = Client::connect(admin)?;
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"))?;
    client.answer(method)
}

/// `tidegate run` before a model origin of its own.
struct Service {
    http: SocketAddr,
    admin: SocketAddr,
    _gate: Running,
    _origin: Running,
    _state: TempDir,
}

/// The gate is told nothing of the origin.
fn service() -> Service {
    let (origin, address) = model_origin();
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

    /// Ten times what it takes come for 2.5 s and get in by turn, all of them: 25 s of work. Nobody is impatient: how fast it goes
    /// is the machine's affair.
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

/// What share of the capacity is served is said of the same crowd in the simulator (`crates/lab/tests/sim.rs`): there, no machine
/// stands still.
#[test]
fn an_unknown_origin_is_found_out_under_a_crowd_of_ten_times_its_capacity() {
    let service = service();
    let believed = |found: &Value| found["rate"].as_f64().expect("a rate");
    assert!(believed(&service.capacity()) > 2.0 * CAPACITY, "it begins with something else");
    let found = std::thread::scope(|scope| {
        let (looking, is_found) = mpsc::channel::<()>();
        let service = &service;
        scope.spawn(move || {
            service.crowd();
            // Who stood still while the first crowd was there has another one to learn from.
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
fn both_halves_tell_of_the_capacity_and_tokengen_keeps_it() {
    const KEY: &str = "[\"1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"]";
    let origin = Origin::answering("welcome");
    let (check_http, generator_http, generator_admin) = (free_address(), free_address(), free_address());
    let generator = Gate::start(
        Config::new(&[])
            .text("capacity.estimator", "auto")
            .text("listen.http", generator_http)
            .text("listen.admin", generator_admin)
            .text("role", "tokengen")
            .text("tokengen.check_url", format!("http://{check_http}"))
            .set("room.keys", KEY),
    );
    let check = Gate::start(
        Config::new(&[origin.address()])
            .text("listen.http", check_http)
            .text("role", "tokencheck")
            .text("tokencheck.gen_url", format!("http://{generator_http}"))
            .text("tokencheck.feedback_url", format!("http://{generator_admin}"))
            .set("room.keys", KEY),
    );
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
