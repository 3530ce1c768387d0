//! SYN policing by a running gate: rules of the file and of the API, their counters, and a gate that must not
//! or cannot. Each test has a network namespace of its own, which vanishes with the thread that made it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::harness::{Config, Gate, tidegate, wait_for};
use super::http::Client;
use super::origin::Origin;

/// CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_BPF.
const CAPABILITIES: [u32; 3] = [12, 21, 39];

/// Whether this process may police and make network namespaces. Otherwise it says loudly that the test does
/// not run: past the capture of what passing tests print.
pub fn can_run() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let needs = match (CAPABILITIES.iter().all(|bit| set & (1 << bit) != 0), tidegate_kernel::is_built()) {
        (true, true) => return true,
        (false, _) => "root with CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
        (true, false) => "a build with the kernel programs: install clang and build again",
    };
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = io::stderr().write_all(format!("\nNOT RUN: {test}: it needs {needs}\n").as_bytes());
    false
}

/// Runs in a network namespace of its own, with the loopback interface. What it starts is in it too.
fn apart(work: impl FnOnce() + Send) {
    let enter = || {
        // SAFETY: no memory.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "unshare: {}", io::Error::last_os_error());
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("ip").success());
        work();
    };
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, enter).expect("a thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// An attempt to connect that does not wait for its end.
fn attempt(from: &str, to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(from.parse().expect("an address"), 0).into()).expect("its address");
    socket.set_nonblocking(true).expect("a mode");
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => panic!("{from} to {to}: {error}"),
        _ => socket,
    }
}

fn is_connected(socket: &Socket) -> bool {
    socket.peer_addr().is_ok()
}

/// Waits until it is connected.
#[track_caller]
fn connected(socket: &Socket) {
    wait_for("a connection", || is_connected(socket).then_some(()));
}

fn ctl(gate: &Gate, arguments: &[&str]) -> Output {
    let url = format!("http://{}", gate.admin_address());
    tidegate().arg("ctl").args(arguments).env("TIDEGATE_URL", url).output().expect("tidegate ctl")
}

/// What it prints. It must succeed.
#[track_caller]
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

fn kernel(gate: &Gate) -> Value {
    gate.admin("GET", "/v1/kernel", "").json()
}

fn rule(gate: &Gate, name: &str) -> Value {
    let all = kernel(gate)["rules"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|rule| rule["name"] == name).unwrap_or_default()
}

/// Waits until a rule has let so many pass and dropped at least so many.
#[track_caller]
fn wait_counted(gate: &Gate, name: &str, passed: u64, dropped: u64) {
    let mut last = Value::Null;
    wait_for(format_args!("{name} {passed} {dropped}"), || {
        last = rule(gate, name);
        (last["passed"] == passed && last["dropped"].as_u64()? >= dropped).then_some(())
    });
}

fn put(gate: &Gate, name: &str, body: &Value) -> (u16, Value) {
    let answer = gate.admin("PUT", &format!("/v1/kernel/rules/{name}"), &body.to_string());
    (answer.status(), answer.json())
}

/// A gate with one rule: of those who come to it, three at once, and then nearly none.
fn policed(origin: &Origin, policing: &str) -> Config {
    let config = Config::new(&[origin.address()]).text("kernel.policing", policing);
    let port = config.address("listen.http").port();
    config.syn_rule(&format!("name = \"crowd\"\ndport = {port}\nrate = 0.01\nburst = 3"))
}

fn ip_link() -> String {
    let output = Command::new("ip").args(["link", "show", "lo"]).output().expect("ip");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn nft_tables() -> String {
    let output = Command::new("nft").args(["list", "tables"]).output().expect("nft");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rules_of_file_and_api_hold_back_syns_and_are_counted() {
    if !can_run() {
        return;
    }
    apart(|| {
        let origin = Origin::answering("ok");
        let mut gate = Gate::start(policed(&origin, "xdp"));
        let (http, port) = (gate.http(), gate.http().port());
        let began = kernel(&gate);
        assert_eq!(began["attached"], json!([{ "interface": "lo", "mode": "xdp-generic" }]), "{began:#}");
        assert_eq!((&began["mechanism"], &began["error"]), (&json!("xdp-generic"), &Value::Null));

        // Three pass; the others are dropped, and try again.
        let early: Vec<_> = (0..3).map(|_| attempt("127.0.0.1", http)).collect();
        early.iter().for_each(connected);
        let late: Vec<_> = (0..4).map(|_| attempt("127.0.0.1", http)).collect();
        wait_counted(&gate, "crowd", 3, 4);
        assert!(!late.iter().any(is_connected));
        let metrics = gate.admin("GET", "/metrics", "").text();
        assert!(metrics.contains("\ntidegate_syn_total{rule=\"crowd\",result=\"passed\"} 3\n"), "{metrics}");
        let unmatched = metrics.lines().find_map(|line| line.strip_prefix("tidegate_syn_unmatched_total "));
        assert!(
            unmatched.is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0)),
            "the admin API's: {metrics}"
        );

        // A rule of the API for one visitor, who passes at once.
        let friends = json!({ "src": "127.0.0.5", "dport": port, "preferred": true, "why": "they pay" });
        let (status, made) = put(&gate, "friends", &friends);
        assert_eq!(
            (status, &made["src"], &made["rate"]),
            (200, &json!("127.0.0.5/32"), &Value::Null),
            "{made}"
        );
        connected(&attempt("127.0.0.5", http));
        wait_counted(&gate, "friends", 1, 0);

        // A reload with another rate does not fill the bucket, and begins nothing anew.
        let seen = rule(&gate, "crowd")["seen"].as_u64().unwrap();
        for rate in [0.02, 0.01] {
            gate.write_config(|config| config.replace("rate = ", &format!("rate = {rate} # ")));
            gate.admin("POST", "/v1/reload", "");
            wait_for("the reload", || (rule(&gate, "crowd")["rate"] == rate).then_some(()));
            let seen = rule(&gate, "crowd")["seen"].as_u64().unwrap();
            let _more: Vec<_> = (0..4).map(|_| attempt("127.0.0.1", http)).collect();
            let count = |name: &str| rule(&gate, "crowd")[name].as_u64().unwrap();
            wait_for("four more", || (count("seen") >= seen + 4).then_some(()));
            // The rate lets one more pass in 50 s, a bucket that was filled anew three.
            assert!(count("passed") <= 4, "{}", rule(&gate, "crowd"));
        }
        assert!(rule(&gate, "crowd")["seen"].as_u64().unwrap() >= seen);
        gate.write_config(|config| {
            config.replace("rate = ", "rate = 1000.0 # ").replace("burst = ", "burst = 50 # ")
        });
        gate.admin("POST", "/v1/reload", "");
        wait_for("the rate of the file", || (rule(&gate, "crowd")["rate"] == 1000.0).then_some(()));
        connected(&attempt("127.0.0.1", http));
    });
}

#[test]
fn a_rule_of_the_api_gives_its_priority_with_and_without_policing() {
    if !can_run() {
        return;
    }
    for policing in ["xdp", "nftables", "off"] {
        apart(|| {
            let origin = Origin::answering("ok");
            let gate = Gate::start(policed(&origin, policing));
            let http = gate.http();
            let accepted = || kernel(&gate)["priorities"]["accepted"].clone();
            assert_eq!(kernel(&gate)["priorities"]["ordered"], true, "{:#}", kernel(&gate));
            connected(&attempt("127.0.0.1", http));
            wait_for("the first priority", || (accepted() == json!([1, 0])).then_some(()));
            let later = json!({ "src": "127.0.0.5", "dport": http.port(), "priority": 1 });
            assert_eq!(put(&gate, "later", &later).0, 200);
            connected(&attempt("127.0.0.5", http));
            wait_for("the second priority", || (accepted() == json!([1, 1])).then_some(()));
            // By a tunable of the file's rule.
            let set = gate.admin("PUT", "/v1/tunables/syn_rule.crowd.priority", "{\"value\": 1}");
            assert_eq!(set.status(), 200, "{set:?}");
            wait_for("the new priority", || (rule(&gate, "crowd")["priority"] == 1).then_some(()));
            connected(&attempt("127.0.0.1", http));
            wait_for("the second priority again", || (accepted() == json!([1, 2])).then_some(()));
        });
    }
}

#[test]
fn after_kill_9_nothing_is_left_but_the_rules_of_the_api() {
    if !can_run() {
        return;
    }
    apart(|| {
        let origin = Origin::answering("ok");
        let mut gate = Gate::start(policed(&origin, "xdp"));
        let http = gate.http();
        let friends = json!({ "src": "127.0.0.5", "dport": http.port(), "why": "they pay" });
        assert_eq!(put(&gate, "friends", &friends).0, 200);
        wait_for("the rule to be saved", || gate.has_saved("learned.json", "friends").then_some(()));
        assert!(ip_link().contains("xdp"), "{}", ip_link());
        gate.kill();
        wait_for("nothing left", || (!ip_link().contains("xdp") && nft_tables().is_empty()).then_some(()));
        gate.restart();
        wait_for("the rule of the API", || (rule(&gate, "friends")["made"] == true).then_some(()));
        assert_eq!(rule(&gate, "friends")["why"], "they pay");
        connected(&attempt("127.0.0.5", http));
        wait_counted(&gate, "friends", 1, 0);
        let removed = gate.admin("DELETE", "/v1/kernel/rules/friends", "");
        assert_eq!((removed.status(), rule(&gate, "friends")), (200, Value::Null), "{removed:?}");
    });
}

#[test]
fn wrong_rules_are_refused_with_a_reason_and_change_nothing() {
    if !can_run() {
        return;
    }
    apart(|| {
        let origin = Origin::answering("ok");
        let gate = Gate::start(policed(&origin, "auto"));
        let port = gate.http().port();
        assert_eq!(put(&gate, "a", &json!({ "dport": 81 })).0, 200);
        let before = kernel(&gate)["rules"].clone();
        for (name, body, status, reason) in [
            ("b", json!({ "src": "10.0.0.0/33" }), 422, "src: expected \"*\", a network"),
            ("b", json!({ "src": "10.0.0.0/8", "dst": "fd00::/8" }), 422, "of the same family"),
            ("b", json!({ "rate": -1 }), 400, "rate: expected a number from 0"),
            ("b", json!({ "rate": 5, "min_rate": 6 }), 422, "min_rate: expected at most `rate`, which is 5"),
            ("b", json!({ "dport": 70_000 }), 400, "dport: expected a number from 0 to 65535"),
            ("b", json!({ "excess": "dorp" }), 422, "Did you mean `drop`?"),
            ("b", json!({ "ratte": 5 }), 400, "Did you mean `rate`?"),
            ("b", json!({ "priority": 7 }), 422, "priority: expected less than 2"),
            ("b c", json!({ "rate": 5 }), 422, "a name of 1 to 64 letters"),
            ("b", json!({ "dport": 81 }), 409, "another rule has its addresses and ports"),
            ("b", json!({ "dport": port }), 409, "another rule has its addresses and ports"),
            ("crowd", json!({ "rate": 5 }), 409, "set `syn_rule.crowd.rate`"),
        ] {
            let (got, problem) = put(&gate, &name.replace(' ', "%20"), &body);
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(got == status && detail.contains(reason), "{name} {body}: {got} {problem:#}");
        }
        let answer = gate.admin("DELETE", "/v1/kernel/rules/crowd", "");
        assert_eq!(answer.status(), 409, "{answer:?}");
        let answer = gate.admin("DELETE", "/v1/kernel/rules/crwod", "");
        assert!(answer.status() == 404 && answer.text().contains("Did you mean `crowd`?"), "{answer:?}");
        assert_eq!(kernel(&gate)["rules"], before);
    });
}

#[test]
fn ctl_shows_sets_and_removes_rules() {
    if !can_run() {
        return;
    }
    apart(|| {
        let origin = Origin::answering("ok");
        let gate = Gate::start(policed(&origin, "nftables"));
        let set = said(&ctl(
            &gate,
            &["kernel", "set", "far", "--src", "10.0.0.0/8", "--rate", "20", "--burst", "5"],
        ));
        assert_eq!(set, "rule far: 10.0.0.0/8 * to * *: 20/s, 5 at once, then drop; priority 0\n");
        // What is not given stays.
        let set = said(&ctl(
            &gate,
            &["kernel", "set", "far", "--rate", "30", "--excess", "reset", "--why", "less"],
        ));
        assert_eq!(set, "rule far: 10.0.0.0/8 * to * *: 30/s, 5 at once, then reset; priority 0\n");
        // A rule of the file by its tunables.
        let set = said(&ctl(&gate, &["kernel", "set", "crowd", "--rate", "2"]));
        assert!(set.contains("2/s, 3 at once"), "{set}");
        assert_eq!(gate.admin("GET", "/v1/tunables/syn_rule.crowd.rate", "").json()["value"], 2.0);
        let fixed = ctl(&gate, &["kernel", "set", "crowd", "--dport", "1"]);
        let why = String::from_utf8_lossy(&fixed.stderr);
        assert!(fixed.status.code() == Some(1) && why.contains("Change the file"), "{why}");
        let table = said(&ctl(&gate, &["kernel"]));
        assert!(table.starts_with("SYNs are policed at lo (nftables)\n"), "{table}");
        assert!(table.contains("crowd") && table.contains("far") && table.contains("30/s"), "{table}");
        let all: Value = serde_json::from_str(&said(&ctl(&gate, &["kernel", "--json"]))).expect("JSON");
        assert_eq!(all["rules"][1]["name"], "far", "{all:#}");
        assert_eq!(said(&ctl(&gate, &["kernel", "remove", "far"])), "far is removed\n");
        let audit = said(&ctl(&gate, &["audit"]));
        assert!(audit.matches("syn-rule").count() == 3 && audit.contains("less"), "{audit}");
        // SIGTERM, and nothing is left.
        gate.signal("TERM");
        wait_for("nothing left", || nft_tables().is_empty().then_some(()));
    });
}

#[test]
fn the_agent_lowers_a_rate_while_more_is_asked_for_than_fits() {
    if !can_run() {
        return;
    }
    apart(|| {
        let origin = Origin::answering("ok");
        let config = policed(&origin, "xdp").replace("rate = 0.01\nburst = 3", "rate = 1000.0\nmin_rate = 1");
        let config =
            config.set("capacity.rate", "5.0").set("kernel.adapt", true).text("kernel.adapt_every", "200ms");
        let gate = Gate::start(config);
        assert_eq!(kernel(&gate)["agent"]["enabled"], true);
        // A request on each connection, far more of them than five a second.
        let mut under_way: Vec<Socket> = Vec::new();
        let squeezed = wait_for("the agent", || {
            under_way.extend((0..10).map(|_| attempt("127.0.0.1", gate.http())));
            under_way.retain(|socket| {
                !is_connected(socket)
                    || socket.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").is_err()
            });
            Some(kernel(&gate)).filter(|now| now["rules"][0]["set_by"] == "agent")
        });
        let (rule, agent) = (&squeezed["rules"][0], &squeezed["agent"]);
        assert!(rule["rate"].as_f64() < Some(1000.0) && rule["configured_rate"] == 1000.0, "{rule:#}");
        assert_eq!((&agent["overloaded"], &agent["bound"]), (&json!(true), &json!("capacity")), "{agent:#}");
        let why = agent["reasons"][0]["why"].as_str().unwrap_or_default();
        assert!(why.contains("fit for the capacity"), "{agent:#}");
        wait_for("a line in the audit", || {
            let audit = said(&ctl(&gate, &["audit"]));
            (audit.contains("kernel.adapt") && audit.contains("syn_rule.crowd.rate")).then_some(())
        });
        assert!(said(&ctl(&gate, &["kernel"])).contains("agent, of 1000/s"));
        // Off: the rate is the configured one again.
        said(&ctl(&gate, &["set", "kernel.adapt=false"]));
        wait_for("the configured rate", || {
            let rule = &kernel(&gate)["rules"][0];
            (rule["set_by"] == "file" && rule["rate"] == 1000.0).then_some(())
        });
        assert_eq!(kernel(&gate)["agent"]["averages"], Value::Null);
    });
}

#[test]
fn without_rights_the_gate_runs_without_and_says_so_once() {
    let origin = Origin::answering("ok");
    for policing in ["auto", "xdp", "nftables"] {
        let gate = Gate::start_with(policed(&origin, policing), |command| {
            // SAFETY: system calls without memory, in the child before it is another program.
            unsafe { command.pre_exec(drop_capabilities) };
        });
        assert_eq!(Client::connect(gate.http()).unwrap().get("/", "").unwrap().status(), 200);
        let told = kernel(&gate);
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("SYNs are not policed, and the gate runs without: "), "{told:#}");
        assert_eq!((&told["mechanism"], &told["rules"][0]["name"]), (&Value::Null, &json!("crowd")));
        let (status, problem) = put(&gate, "far", &json!({ "src": "10.0.0.0/8" }));
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 409 && detail.contains("have no effect here"), "{status} {problem}");
        assert_eq!(gate.log().matches("SYNs are not policed").count(), 1, "{}", gate.log());
        let shown = said(&ctl(&gate, &["kernel"]));
        assert!(shown.contains(error) && shown.contains("crowd"), "{shown}");
        let metrics = gate.admin("GET", "/metrics", "").text();
        assert!(!metrics.contains("tidegate_syn_total"), "nothing is counted");
    }
}

/// Without them a process of root may do no more to the network than any other.
fn drop_capabilities() -> io::Result<()> {
    for capability in CAPABILITIES {
        // SAFETY: no memory. Who has no rights cannot drop them, and need not.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    Ok(())
}
