//! `tidegate ctl throttle` against a running gate: what it holds back, what it does not, and how it ends.

use std::process::Output;

use serde_json::Value;

use super::harness::{Config, Gate, tidegate, wait_for};
use super::http::Client;
use super::origin::Origin;

const READ: &str = "the-token-that-may-read";
const WRITE: &str = "the-token-that-may-write";

fn ctl_with(gate: &Gate, token: &str, arguments: &[&str]) -> Output {
    tidegate()
        .arg("ctl")
        .args(arguments)
        .env("TIDEGATE_URL", format!("http://{}", gate.admin_address()))
        .env("TIDEGATE_TOKEN", token)
        .output()
        .expect("tidegate ctl")
}

/// What it prints. It must succeed.
#[track_caller]
fn ctl(gate: &Gate, arguments: &[&str]) -> String {
    let output = ctl_with(gate, "", arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Its exit status and the reason.
fn refused(gate: &Gate, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ctl_with(gate, "", arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn search_of(origin: &Origin) -> Config {
    Config::new(&[origin.address()]).class("name = \"search\"\nmatch = { path = \"/search\" }")
}

/// How many of so many requests are answered by the origin.
fn served(gate: &Gate, target: &str, n: usize) -> usize {
    let mut client = Client::connect(gate.http()).unwrap();
    (0..n)
        .filter(|_| match client.get(target, "").unwrap() {
            answer if answer.status() == 200 => true,
            answer => {
                assert_eq!(answer.status(), 503, "{answer:?}");
                assert!(answer.head.field("retry-after").is_some(), "{answer:?}");
                false
            }
        })
        .count()
}

#[test]
fn a_share_or_a_rate_of_a_type_is_refused_until_it_is_unthrottled() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(search_of(&origin));
    assert_eq!(ctl(&gate, &["throttles"]), "nothing is throttled\n");
    let put = ctl(&gate, &["throttle", "class:search", "--refuse", "0.6", "--why", "the database is red"]);
    assert_eq!(put, "throttle 1: class:search, 60 % refused, until it is removed\n");
    let put = ctl(&gate, &["throttle", "path:/item/4711", "--rate", "0.01", "--for", "1h"]);
    assert!(put.starts_with("throttle 2: path:/item/{n}, 0.010/s pass, until 2"), "{put}");
    assert_eq!((served(&gate, "/search?q=a", 50), served(&gate, "/", 10)), (20, 10));
    assert_eq!((served(&gate, "/item/1", 10), served(&gate, "/item/new", 10)), (1, 10));
    let table = ctl(&gate, &["throttles"]);
    let row = |of: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{table}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("class:search")[2..7], ["60", "%", "refused", "50", "30"], "{table}");
    assert!(table.contains("the database is red"), "{table}");
    assert_eq!(ctl(&gate, &["unthrottle", "class:search"]), "class:search is not throttled any more\n");
    assert_eq!(served(&gate, "/search?q=a", 10), 10);
    assert_eq!(ctl(&gate, &["unthrottle", "2"]), "path:/item/{n} is not throttled any more\n");
    assert_eq!(served(&gate, "/item/1", 10), 10);
    let audit = ctl(&gate, &["audit"]);
    assert_eq!(audit.matches("unthrottle").count(), 2, "{audit}");
    assert!(audit.contains("class:search: –") && audit.contains("the database is red"), "{audit}");
}

#[test]
fn wrong_throttles_are_refused_with_a_reason_and_a_hint() {
    let origin = Origin::answering("ok");
    let gate = Gate::start(search_of(&origin));
    ctl(&gate, &["throttle", "path:/a", "--refuse", "0.5"]);
    for (arguments, status, said) in [
        (&["throttle", "class:serch", "--refuse", "0.5"][..], 1, "Did you mean `search`?"),
        (&["throttle", "search", "--refuse", "0.5"], 1, "Write \"class:search\"?"),
        (&["throttle", "path:/a", "--refuse", "60"], 2, "write 0.6 for 60 %"),
        (&["throttle", "path:/a", "--bandwidth", "1Mbit"], 2, "125kB"),
        (&["throttle", "path:/a", "--rate", "much"], 2, "requests per second"),
        (&["throttle", "path:/a"], 2, "--refuse"),
        (&["throttle", "path:/a", "--rate", "1", "--refuse", "1"], 2, "cannot be used with"),
        (&["throttle", "path:/a", "--rate", "1", "--for", "soon"], 1, "a duration"),
        (&["unthrottle", "path:/b"], 1, "Did you mean `path:/a`?"),
        (&["unthrottle", "7"], 1, "there is no throttle"),
    ] {
        let (code, why) = refused(&gate, arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {why}");
        assert!(why.contains(said), "{arguments:?}: {why}");
    }
    assert_eq!(served(&gate, "/a", 10), 5, "the first is as it was");
}

#[test]
fn an_operator_who_may_only_read_sees_throttles_and_changes_none() {
    let origin = Origin::answering("ok");
    let config = search_of(&origin).text("listen.admin_token", WRITE).text("listen.admin_read_token", READ);
    let gate = Gate::start(config);
    let put = ctl_with(&gate, WRITE, &["throttle", "class:search", "--refuse", "1"]);
    assert!(put.status.success(), "{put:?}");
    for arguments in [
        &["throttle", "class:search", "--refuse", "0"][..],
        &["unthrottle", "1"],
        &["unthrottle", "class:search"],
    ] {
        let output = ctl_with(&gate, READ, arguments);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {why}");
        assert!(why.contains("may only read"), "{arguments:?}: {why}");
    }
    let seen = ctl_with(&gate, READ, &["throttles", "--json"]);
    let seen: Value = serde_json::from_slice(&seen.stdout).unwrap();
    assert_eq!(seen["throttles"][0]["action"]["refuse"], 1.0, "{seen}");
    assert_eq!(served(&gate, "/search", 5), 0);
}

const BODY: usize = 400_000;

/// Two halves of a download, the first of which has been read.
struct Download {
    client: Client,
    got: usize,
}

impl Download {
    fn begin(gate: &Gate, target: &str) -> Self {
        let mut client = Client::connect(gate.http()).unwrap();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).unwrap();
        let head = super::http::read_head(&mut client.stream).unwrap();
        assert_eq!((head.status(), head.content_length()), (200, Some(BODY as u64)), "{head:?}");
        Self { client, got: 0 }
    }

    fn read(&mut self, bytes: usize) {
        let copied = super::http::copy(&mut self.client.stream, bytes as u64, &mut |_| ()).unwrap();
        assert_eq!(copied, bytes as u64);
        self.got += bytes;
    }

    fn finish(mut self) {
        self.read(BODY - self.got);
    }
}

/// Bytes sent within the first throttle's bandwidth.
fn sent(gate: &Gate) -> usize {
    gate.admin("GET", "/v1/throttles", "").json()["throttles"][0]["bytes"].as_u64().unwrap() as usize
}

#[test]
fn a_bandwidth_is_shared_by_the_downloads_of_a_type_and_others_pass_them() {
    let origin = Origin::start(|exchange| {
        exchange.body()?;
        exchange.ok(&"x".repeat(BODY))
    });
    let gate = Gate::start(Config::new(&[origin.address()]));
    let put = ctl(&gate, &["throttle", "path:/video/7.mp4", "--bandwidth", "100kB"]);
    assert_eq!(put, "throttle 1: path:/video/{n}.mp4, 100000 bytes/s, until it is removed\n");
    // On any workers.
    let (mut one, mut other) =
        (Download::begin(&gate, "/video/1.mp4"), Download::begin(&gate, "/video/2.mp4"));
    one.read(50_000);
    // A download of the same size that is not of the type overtakes them.
    Download::begin(&gate, "/music/1.mp3").finish();
    let rest = sent(&gate) - one.got;
    assert!(sent(&gate) < BODY, "{} of {} while others are served", sent(&gate), 2 * BODY);
    // Half of what was sent until the one had its part is the other's, but for what came meanwhile.
    other.read(30_000.min(rest));
    assert!(rest >= 30_000, "{rest} of the other while the one got {}", one.got);
    // The end of the throttle is the end of the wait.
    ctl(&gate, &["unthrottle", "path:/video/{n}.mp4"]);
    one.finish();
    other.finish();
    wait_for("no request at the origin", || {
        (gate.admin("GET", "/v1/state", "").json()["gate"]["in_flight"] == 0).then_some(())
    });
}
