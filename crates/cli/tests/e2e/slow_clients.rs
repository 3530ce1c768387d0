//! Clients that are slow on purpose, played by Debian's slowhttptest in each of its modes: whoever else comes
//! meanwhile is served as if they were not there.

use std::process::{Command, Stdio};

use super::harness::{Config, Gate, Running, wait_for};
use super::http::Client;
use super::nginx::Nginx;
use super::visitor::Visitor;

/// More than there are in-flight slots at the beginning, and than the gate would ever need for such answers.
const CLIENTS: &str = "300";

/// A gate that finds out by itself how much the origin takes, as it is started without a file.
fn gate(nginx: &Nginx) -> Gate {
    let config = Config::new(&[nginx.address()]).without("capacity.rate").text("room.unit", "session");
    Gate::start(config.text("limits.header_timeout", "2s").text("limits.body_timeout", "2s"))
}

/// slowhttptest in a mode, against a path of the gate. It ends by itself when all its connections are closed.
fn attack(gate: &Gate, path: &str, mode: &[&str]) -> Running {
    let url = format!("http://{}{path}", gate.http());
    let mut command = Command::new("slowhttptest");
    command.args(["-c", CLIENTS, "-r", CLIENTS, "-l", "300", "-p", "10", "-u", &url]).args(mode);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Begins the attack. A visitor who was there before it is served again and again while it goes on, and one
/// who comes during it is let in: after so many at once there may be a wait, but it ends.
fn others_are_served(gate: &Gate, path: &str, mode: &[&str], is_over: impl Fn() -> bool) {
    let mut visitor = Visitor::default();
    let mut connection = Client::connect(gate.http()).expect("a connection");
    let mut served = || {
        let answer = visitor.ask(&mut connection, "/name").expect("an answer");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "a"));
    };
    served();
    let attack = attack(gate, path, mode);
    wait_for("all slow clients", || {
        served();
        (metric(gate, "tidegate_connections_total ") > 250).then_some(())
    });
    let newcomer = Visitor::default().wait_for_turn(gate.http(), "/name");
    assert_eq!(newcomer.status(), 200);
    wait_for("the end of the attack", || {
        served();
        is_over().then_some(())
    });
    drop(attack);
}

fn metric(gate: &Gate, name: &str) -> u64 {
    let metrics = gate.admin("GET", "/metrics", "").text();
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or_default()
}

#[test]
fn slow_heads_are_closed_and_keep_nobody_out() {
    let nginx = Nginx::start("a");
    let gate = gate(&nginx);
    others_are_served(&gate, "/name", &["-H", "-i", "1", "-x", "24"], || {
        metric(&gate, "tidegate_header_timeout_total ") >= 250
    });
}

#[test]
fn slow_bodies_take_no_slots_and_keep_nobody_out() {
    let nginx = Nginx::start("a");
    let gate = gate(&nginx);
    let mode = ["-B", "-t", "PUT", "-i", "1", "-s", "8192", "-x", "10"];
    let looks = std::cell::Cell::new(0);
    // Some seconds of it: a byte a second is no silence, and the body would take hours.
    others_are_served(&gate, "/upload/slow", &mode, || looks.replace(looks.get() + 1) > 300);
}

#[test]
fn many_ranges_cost_no_more_than_one() {
    let nginx = Nginx::start("a");
    let gate = gate(&nginx);
    let looks = std::cell::Cell::new(0);
    others_are_served(&gate, "/part", &["-R", "-t", "HEAD", "-a", "10", "-b", "3000"], || {
        looks.replace(looks.get() + 1) > 100
    });
}

#[test]
fn slow_readers_are_closed_and_keep_nobody_out() {
    let nginx = Nginx::start("a");
    let gate = gate(&nginx);
    let mode = ["-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "1"];
    let looks = std::cell::Cell::new(0);
    others_are_served(&gate, "/big", &mode, || looks.replace(looks.get() + 1) > 300);
}
