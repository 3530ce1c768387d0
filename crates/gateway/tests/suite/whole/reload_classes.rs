//! A class keeps its requests and counts over reloads that insert or remove other classes.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Origin, admin, connect, cookies, get, until};

const BEFORE: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
rate = 1000000
"#;

fn class(name: &str) -> String {
    format!("[[class]]\nname = \"{name}\"\nmatch = {{ path = \"/**{name}*\" }}\nmax_in_flight = 1\n")
}

fn file(classes: &[&str]) -> String {
    format!("{BEFORE}{}", classes.iter().map(|name| class(name)).collect::<String>())
}

fn send(gate: &Gate, target: &str) -> TcpStream {
    let mut stream = connect(gate.http);
    let head = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn metrics(gate: &Gate) -> String {
    admin(gate, "/metrics")
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until the state shows this of the class; `null`: there is no such class.
fn wait_for(gate: &Gate, class: &str, said: &Value) {
    let of = |state: &Value| {
        let all = state["classes"].as_array().expect("classes").clone();
        let one = all.into_iter().find(|one| one["name"] == class).unwrap_or_default();
        let figure = |name: &str| (name.to_owned(), one[name].clone());
        match one.is_null() {
            true => Value::Null,
            false => ["queued", "in_flight", "served"].into_iter().map(figure).collect(),
        }
    };
    let state = until(|| gate.admin("/v1/state").to_string(), |text| of(&text.parse().unwrap()) == *said);
    let metrics = metrics(gate);
    let series = format!("tidegate_class_in_flight{{class=\"{class}\"}}");
    assert_eq!(metrics.contains(&series), !said.is_null(), "{class} in {state}");
}

#[test]
fn a_class_keeps_its_requests_its_counts_and_its_queue() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, &file(&["a", "b"]));
    let held = send(&gate, "/hold/a");
    origin.holds();
    let queued = send(&gate, "/then/a");
    wait_for(&gate, "a", &json!({ "queued": 1, "in_flight": 1, "served": 0 }));
    // Another class is inserted in front of it.
    gate.reload(&origin, &file(&["new", "a", "b"]));
    wait_for(&gate, "new", &json!({ "queued": 0, "in_flight": 0, "served": 0 }));
    wait_for(&gate, "a", &json!({ "queued": 1, "in_flight": 1, "served": 0 }));
    assert!(get(gate.http, "/new", "").ends_with("served"), "the new class is served");
    let third = send(&gate, "/third/a");
    wait_for(&gate, "a", &json!({ "queued": 2, "in_flight": 1, "served": 0 }));
    // Both classes are removed; their requests are served as before.
    gate.reload(&origin, &file(&["b"]));
    wait_for(&gate, "new", &Value::Null);
    wait_for(&gate, "a", &json!({ "queued": 2, "in_flight": 1, "served": 0 }));
    assert!(get(gate.http, "/else/a", "").ends_with("served"), "it is of the default class now");
    wait_for(&gate, "default", &json!({ "queued": 0, "in_flight": 0, "served": 1 }));
    origin.release();
    for stream in [held, queued, third] {
        assert!(answer(stream).ends_with("served"));
    }
    wait_for(&gate, "a", &Value::Null);
    // The class comes back with its counts.
    gate.reload(&origin, &file(&["b", "a"]));
    wait_for(&gate, "a", &json!({ "queued": 0, "in_flight": 0, "served": 3 }));
    let totals = gate.server().shared().gate.totals();
    assert_eq!((totals.arrived, totals.finished, totals.in_flight), (5, 5, 0));
}

#[test]
fn a_reused_class_id_starts_with_new_counts() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, &file(&["c0"]));
    for n in 1..40 {
        let (old, new) = (format!("c{}", n - 1), format!("c{n}"));
        assert!(get(gate.http, &format!("/{old}"), "").ends_with("served"));
        gate.reload(&origin, &file(&[&new]));
        let metrics = metrics(&gate);
        let count = |class: &str| format!("tidegate_class_served_total{{class=\"{class}\"}}");
        let of_new = metrics.lines().find(|line| line.starts_with(&count(&new)));
        assert_eq!(of_new, Some(&*format!("{} 0", count(&new))), "after {n} reloads");
    }
}

#[test]
fn a_position_in_the_room_outlives_a_reload_that_moves_its_class() {
    let origin = Origin::start();
    let slow = "[capacity]\nrate = 0.5\n[room]\nclasses = [\"page\"]\n";
    let file = |classes: &[&str]| file(classes).replace("[capacity]\nrate = 1000000\n", slow);
    let gate = Gate::start_from_file(&origin, &file(&["page"]));
    let waiting = until(|| get(gate.http, "/page", "a=b"), |answer| answer.contains("set-cookie: tg"));
    let ticket = cookies(&waiting);
    gate.reload(&origin, &file(&["new", "page"]));
    let again = get(gate.http, "/page", &ticket);
    assert!(
        !again.contains("set-cookie: tg") && again.starts_with("HTTP/1.1 503"),
        "a new position: {again}"
    );
    until(|| get(gate.http, "/page", &ticket), |answer| answer.ends_with("served"));
}
