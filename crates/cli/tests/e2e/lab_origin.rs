//! `tidegate origin` as a user starts it: addresses on standard output, figures and changes on the admin port, signals.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::harness::{TempDir, tidegate, wait_for};
use super::http::{Answer, Client};

/// A running `tidegate origin --json`, killed when dropped.
struct Origin {
    child: Child,
    addrs: Vec<SocketAddr>,
    admin: SocketAddr,
}

impl Origin {
    fn start(args: &[&str]) -> Self {
        let mut command = tidegate();
        command.args(["origin", "--json", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start the origin");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("standard output")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let address = |value: &Value| value.as_str().and_then(|a| a.parse().ok()).expect("an address");
        let addrs = said["addrs"].as_array().expect("addresses").iter().map(address).collect();
        Self { child, addrs, admin: address(&said["admin"]) }
    }

    #[track_caller]
    fn get(&self, path: &str) -> Answer {
        get(self.addrs[0], path)
    }

    fn stats(&self) -> Value {
        serde_json::from_slice(&get(self.admin, "/stats").body).expect("JSON")
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn get(addr: SocketAddr, path: &str) -> Answer {
    exchange(addr, "GET", path, "")
}

#[track_caller]
fn exchange(addr: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut client = Client::connect(addr).expect("connect");
    let length = body.len();
    client
        .send(format!("{method} {path} HTTP/1.1\r\nHost: origin\r\nContent-Length: {length}\r\n\r\n{body}"))
        .expect("send");
    client.answer(method).expect("an answer")
}

fn run(args: &[&str]) -> Output {
    tidegate().arg("origin").args(args).output().expect("run")
}

#[test]
fn a_scenario_is_played_changed_and_stopped_by_a_signal() {
    let dir = TempDir::new();
    let file = dir.path().join("tiers.toml");
    let text = "[origin]\nworkers = 4\nreplicas = 2\n\
        [[origin.stage]]\nname = \"app\"\n[[origin.stage]]\nname = \"db\"\nservers = 2\n\
        [[origin.path]]\npath = \"/search*\"\ndemand = { app = \"1ms\", db = \"2ms\" }\nbody_bytes = 5000\n\
        [[origin.path]]\npath = \"**\"\ndemand = { app = \"1ms\" }\n";
    std::fs::write(&file, text).expect("write");
    let mut origin = Origin::start(&[file.to_str().expect("a path"), "--set", "origin.backlog=7"]);
    assert_eq!(origin.addrs.len(), 2);
    let page = origin.get("/search?q=1");
    assert_eq!((page.status(), page.body.len()), (200, 5000));
    assert_eq!(get(origin.addrs[1], "/").status(), 200);
    let stats = origin.stats();
    assert_eq!((&stats["total"]["served"], &stats["total"]["submitted"]), (&2.into(), &2.into()), "{stats}");
    let metrics = String::from_utf8(get(origin.admin, "/metrics/db").body).expect("text");
    assert!(metrics.contains("node_cpu_seconds_total{cpu=\"3\",mode=\"user\"} "), "{metrics}");

    let changed = exchange(origin.admin, "PUT", "/change", r#"{"replicas": 1, "workers": 3}"#);
    assert_eq!(changed.status(), 200, "{changed:?}");
    wait_for("the second replica to go", || Client::connect(origin.addrs[1]).err());
    assert_eq!(origin.get("/").status(), 200, "the first stays");
    assert_eq!(exchange(origin.admin, "PUT", "/change", r#"{"replicas": 3}"#).status(), 400);

    let kill = format!("kill -TERM {}", origin.child.id());
    assert!(Command::new("sh").arg("-c").arg(kill).status().expect("sh").success());
    let status = wait_for("the origin to end", || origin.child.try_wait().expect("wait"));
    assert!(status.success(), "{status}");
}

#[test]
fn capacity_sets_the_service_time() {
    let origin =
        Origin::start(&["--capacity", "1000", "--workers", "5", "--replicas", "2", "--mode", "spin"]);
    assert_eq!(origin.get("/").status(), 200);
    let stats = origin.stats();
    // 1000 requests a second on ten workers: 10 ms each, burnt.
    let busy = &stats["services"][0]["stages"][0]["busy_us"];
    let busy: u64 = busy.as_array().expect("servers").iter().filter_map(Value::as_u64).sum();
    assert!((10_000..1_000_000).contains(&busy), "{stats}");
}

#[test]
fn the_shop_stands_behind_the_same_doors() {
    let origin = Origin::start(&["--mode", "shop", "--shop-size", "small"]);
    let page = origin.get("/");
    assert_eq!(page.status(), 200, "{page:?}");
    let metrics = String::from_utf8(get(origin.admin, "/metrics/db").body).expect("text");
    assert!(metrics.contains("node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} "), "{metrics}");
    // The worker that made the page says so after it has handed it over.
    wait_for("the page to be counted", || {
        let series = get(origin.admin, "/series").json();
        let seconds = series["seconds"].as_array().expect("seconds");
        let served: u64 = seconds.iter().filter_map(|second| second["served"].as_u64()).sum();
        (served == 1).then_some(())
    });
}

#[test]
fn mistakes_are_explained() {
    for (args, code, says) in [
        (&["--workers", "0"][..], 2, "origin.workers"),
        (&["--service", "fast"], 2, "origin.service"),
        (&["--capacity", "0"], 2, "--capacity: expected 0.001 to 1000000 requests per second; got 0"),
        (&["--capacity", "9", "--service", "1s"], 2, "cannot be used with"),
        (&["--set", "origin.wrokers=1"], 2, "Did you mean `workers`?"),
        (&["--set", "workers"], 2, "invalid value 'workers' for '--set <KEY=VALUE>': expected KEY=VALUE"),
        (&["--mode", "shop", "--capacity", "9"], 2, "--mode shop"),
        (&["no-such-file.toml"], 2, "no-such-file.toml"),
        (&["--listen", "127.0.0.1:65535", "--replicas", "2"], 1, "2 replicas need as many ports in a row"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let owner = TcpListener::bind("127.0.0.1:0").expect("port");
    let taken = owner.local_addr().expect("address").to_string();
    let output = run(&["--listen", &taken]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen on {taken}")), "{said}");
    drop(owner);
}

#[test]
fn it_may_hold_as_many_connections_as_the_system_allows() {
    let program = tidegate();
    let mut command = Command::new("sh");
    // The shell goes, its limits stay.
    command.args(["-c", "ulimit -S -n 256; exec \"$0\" origin --json --listen 127.0.0.1:0"]);
    let mut child = command.arg(program.get_program()).stdout(Stdio::piped()).spawn().expect("sh");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("standard output")).read_line(&mut line).expect("a line");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("Linux");
    child.kill().expect("kill");
    child.wait().expect("wait");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("proc(5)");
    let [soft, hard] = [0, 1].map(|i| files.split_whitespace().nth(i).expect("a limit"));
    assert_eq!(soft, hard, "{files}");
    assert_ne!(soft, "256", "a test that could not fail");
}
