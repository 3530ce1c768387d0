//! `tidegate origin` as a user starts it: addresses on standard output, figures and changes on the admin
//! port, signals.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::harness::{ModelOrigin, Running, TempDir, tidegate, wait_for};
use super::http::{Answer, Client};

fn stats(origin: &ModelOrigin) -> Value {
    get(origin.admin, "/stats").json()
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
fn an_origin_from_a_scenario_can_be_changed_and_stopped() {
    let dir = TempDir::new();
    let file = dir.path().join("tiers.toml");
    let text = "[origin]\nworkers = 4\nreplicas = 2\n\
        [[origin.stage]]\nname = \"app\"\n[[origin.stage]]\nname = \"db\"\nservers = 2\n\
        [[origin.path]]\npath = \"/search*\"\ndemand = { app = \"1ms\", db = \"2ms\" }\nbody_bytes = 5000\n\
        [[origin.path]]\npath = \"**\"\ndemand = { app = \"1ms\" }\n";
    std::fs::write(&file, text).expect("write");
    let mut origin = ModelOrigin::start(&[file.to_str().expect("a path"), "--set", "origin.backlog=7"]);
    assert_eq!(origin.addrs.len(), 2);
    let page = get(origin.addrs[0], "/search?q=1");
    assert_eq!((page.status(), page.body.len()), (200, 5000));
    assert_eq!(get(origin.addrs[1], "/").status(), 200);
    let stats = stats(&origin);
    assert_eq!((&stats["total"]["served"], &stats["total"]["submitted"]), (&2.into(), &2.into()), "{stats}");
    let metrics = String::from_utf8(get(origin.admin, "/metrics/db").body).expect("text");
    assert!(metrics.contains("node_cpu_seconds_total{cpu=\"3\",mode=\"user\"} "), "{metrics}");

    let changed = exchange(origin.admin, "PUT", "/change", r#"{"replicas": 1, "workers": 3}"#);
    assert_eq!(changed.status(), 200, "{changed:?}");
    wait_for("the second replica to go", || Client::connect(origin.addrs[1]).err());
    assert_eq!(get(origin.addrs[0], "/").status(), 200, "the first stays");
    assert_eq!(exchange(origin.admin, "PUT", "/change", r#"{"replicas": 3}"#).status(), 400);

    origin.process.signal("TERM");
    let status = origin.process.wait_exit();
    assert!(status.success(), "{status}");
}

#[test]
fn capacity_sets_the_service_time() {
    let origin =
        ModelOrigin::start(&["--capacity", "1000", "--workers", "5", "--replicas", "2", "--mode", "spin"]);
    assert_eq!(get(origin.addrs[0], "/").status(), 200);
    let stats = stats(&origin);
    // 1000 requests a second on ten workers: each takes 10 ms of CPU time.
    let busy = &stats["services"][0]["stages"][0]["busy_us"];
    let busy: u64 = busy.as_array().expect("servers").iter().filter_map(Value::as_u64).sum();
    assert!((10_000..1_000_000).contains(&busy), "{stats}");
}

#[test]
fn the_shop_has_the_same_ports_as_the_model() {
    let origin = ModelOrigin::start(&["--mode", "shop", "--shop-size", "small"]);
    let page = get(origin.addrs[0], "/");
    assert_eq!(page.status(), 200, "{page:?}");
    let metrics = String::from_utf8(get(origin.admin, "/metrics/db").body).expect("text");
    assert!(metrics.contains("node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} "), "{metrics}");
    // The worker counts the page after it has sent it.
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
fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
    let program = tidegate();
    let mut command = Command::new("sh");
    // `exec` replaces the shell and keeps its limits.
    command.args(["-c", "ulimit -S -n 256; exec \"$0\" origin --json --listen 127.0.0.1:0"]);
    let mut origin = Running::start(command.arg(program.get_program()).stdout(Stdio::piped()));
    origin.first_line();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", origin.0.id())).expect("Linux");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("proc(5)");
    let [soft, hard] = [0, 1].map(|i| files.split_whitespace().nth(i).expect("a limit"));
    assert_eq!(soft, hard, "{files}");
    assert_ne!(soft, "256", "the hard limit is too low for this test");
}
