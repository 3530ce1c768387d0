//! The shop behind the gate: a visitor browses and bids, and the operator sees which tier worked.

use std::net::SocketAddr;

use super::harness::{Config, Gate, ModelOrigin, TempDir, tidegate, wait_for};
use super::http::{Answer, Client};

/// The shop's own scenario, whose `[origin]` has the tiers' sizes.
const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios/shop.toml");

/// A running `tidegate origin --mode shop`.
struct Shop {
    origin: ModelOrigin,
    /// Its temporary directories are made here.
    dir: TempDir,
}

impl Shop {
    fn start() -> Self {
        let dir = TempDir::new();
        let mut command = tidegate();
        command
            .args(["origin", SCENARIO, "--mode", "shop", "--shop-size", "small"])
            .env("TMPDIR", dir.path());
        Self { origin: ModelOrigin::from(&mut command), dir }
    }

    fn address(&self) -> SocketAddr {
        self.origin.addrs[0]
    }
}

fn get(address: SocketAddr, target: &str, accept: &str) -> Answer {
    let mut client = Client::connect(address).expect("connect");
    client.get(target, &format!("Accept: {accept}\r\n")).unwrap_or_else(|e| panic!("{target}: {e}"))
}

fn bid(address: SocketAddr, form: &str) -> Answer {
    let mut client = Client::connect(address).expect("connect");
    let request = format!(
        "POST /bid HTTP/1.1\r\nHost: shop.example\r\nAccept: text/html\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    client.send(request).expect("send");
    client.answer("POST").expect("answer")
}

#[test]
fn a_visitor_bids_through_the_gate() {
    let shop = Shop::start();
    let gate = Gate::start(Config::new(&[shop.address()]));
    let json = "application/json";
    let found = get(gate.http(), "/search?q=clock", json).json();
    let item = &found["items"][0];
    let (id, bids) = (item["id"].as_i64().expect("id"), item["bids"].as_i64().expect("bids"));
    let page = get(gate.http(), &format!("/item/{id}"), "text/html");
    assert_eq!(page.status(), 200);
    assert!(page.text().contains(&format!("name=\"item\" value=\"{id}\"")), "a form: {}", page.text());
    let item = get(gate.http(), &format!("/item/{id}"), json).json();
    let cents = item["least_cents"].as_i64().expect("least");
    let user = 1 + item["seller"].as_i64().expect("seller") % 300;
    let form = format!("item={id}&user={user}&amount={}.{:02}", cents / 100, cents % 100);
    let answer = bid(gate.http(), &form);
    assert_eq!((answer.status(), answer.head.field("location")), (303, Some(&*format!("/item/{id}"))));
    let again = bid(gate.http(), &form);
    assert_eq!(again.status(), 409, "somebody leads with as much: {}", again.text());
    let item = get(gate.http(), &format!("/item/{id}"), json).json();
    assert_eq!((item["price_cents"].as_i64(), item["bids"].as_i64()), (Some(cents), Some(bids + 1)));
    assert_eq!(get(gate.http(), "/search?q=", "text/html").status(), 400);
}

#[test]
fn the_operator_sees_both_tiers_and_no_file_is_left_behind() {
    let mut shop = Shop::start();
    for target in ["/", "/browse?category=3", "/search?q=clock", "/user/1", "/lucky/12345"] {
        assert_eq!(get(shop.address(), target, "text/html").status(), 200, "{target}");
    }
    wait_for("five requests served", || {
        let stats = get(shop.origin.admin, "/stats", "*/*").text();
        stats.contains("\"served\":5").then_some(())
    });
    let metrics = get(shop.origin.admin, "/metrics", "*/*").text();
    for stage in ["app", "db"] {
        let user =
            format!("node_cpu_seconds_total{{stage=\"{stage}\",replica=\"0\",cpu=\"0\",mode=\"user\"}}");
        assert!(metrics.lines().any(|line| line.starts_with(&user)), "{user} in {metrics}");
    }
    let kept = || std::fs::read_dir(shop.dir.path()).expect("directory").count();
    assert_eq!(kept(), 1, "the database");
    shop.origin.process.signal("TERM");
    let status = shop.origin.process.wait_exit();
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read_dir(shop.dir.path()).expect("directory").count(), 0);
}

#[test]
fn a_scenario_may_describe_a_shop_with_the_requests_of_rubis() {
    let dir = TempDir::new();
    let file = dir.path().join("shop.toml");
    std::fs::write(&file, "[origin.shop]\nsize = \"small\"\nworkers = 3\nconnections = 4\n").expect("file");
    let mut command = tidegate();
    command.arg("origin").arg(&file).env("TMPDIR", dir.path());
    let origin = ModelOrigin::from(&mut command);
    let address = origin.addrs[0];
    for target in ["BrowseCategories", "SearchItemsByCategory?category=3", "SearchItemsByRegion?region=3"] {
        let answer = get(address, &format!("/rubis/{target}"), "text/html");
        assert_eq!(answer.status(), 200, "{target}");
    }
    assert_eq!(get(address, "/rubis/PutBid", "text/html").status(), 405);
    let load = wait_for("a load of the database", || {
        let metrics = get(origin.admin, "/metrics/db", "*/*").text();
        let value = |name: &str| -> Option<f64> {
            let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")))?;
            line.split(' ').nth(1)?.parse().ok()
        };
        let seconds = value("tidegate_origin_stage_load_seconds_total")?;
        (seconds > 0.0).then_some(value("node_load1")?)
    });
    assert!((0.0..=4.0).contains(&load), "{load}");
    let metrics = get(origin.admin, "/metrics", "*/*").text();
    for line in [
        "tidegate_origin_stage_servers{stage=\"app\",replica=\"0\"} 3",
        "tidegate_origin_stage_servers{stage=\"db\",replica=\"0\"} 4",
        "tidegate_origin_stage_load_seconds_total{stage=\"db\",replica=\"0\"} ",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} in {metrics}");
    }
}

#[test]
fn wrong_options_of_the_shop_are_explained() {
    let dir = TempDir::new();
    std::fs::write(dir.path().join("shop.db"), "no database".repeat(100)).expect("write");
    let not_a_directory = dir.path().join("shop.db/x").display().to_string();
    let existing = dir.path().display().to_string();
    for (args, expected) in [
        (["--shop-size", "huge"], "expected small, medium or large; got \"huge\""),
        (["--shop-dir", &existing], "not a database"),
        (["--shop-dir", &not_a_directory], "cannot make"),
    ] {
        let mut command = tidegate();
        command.args(["origin", SCENARIO, "--mode", "shop", "--listen", "127.0.0.1:0"]).args(args);
        let output = command.output().expect("tidegate origin");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}
