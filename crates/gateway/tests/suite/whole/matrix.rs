//! Every criterion of WAC 3.1 with every policy of 3.2 and every action of 3.3, from the figure to what a
//! client sees. One gate has a rule for each combination, with URLs of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_gateway::shared::policies::stats::Done;

use crate::whole::harness::{Gate, Origin, Scripted, api, connect, cookies, get, read_head, reply, until};
use crate::whole::policies::{Seen, read_out};

/// Criterion, name, and its detector: a real figure that is red from the first requests on and stays red.
const CRITERIA: [(&str, &str, &str); 9] = [
    ("a", "requests", "kind = \"request-rate\"\nred = 0.001\n"),
    ("a", "accepts", "kind = \"connection-rate\"\nred = 0.001\n"),
    ("b", "searches", "kind = \"request-rate\"\nclass = \"search\"\nred = 0.001\n"),
    ("c", "slow", "kind = \"response-time\"\ntime_to_live = \"1h\"\nred = 1e-9\n"),
    (
        "d",
        "slow_searches",
        "kind = \"response-time\"\nclass = \"search\"\ntime_to_live = \"1h\"\nred = 1e-9\n",
    ),
    ("e", "open", "kind = \"connections\"\nperiod = \"0s\"\nred = 1\n"),
    ("f", "visits", "kind = \"sessions\"\nperiod = \"0s\"\nred = 1\n"),
    ("g", "memory", "kind = \"host\"\nfigure = \"memory\"\nevery = \"100ms\"\nred = 1e-9\n"),
    ("h", "alarm", "kind = \"signal\"\ntime_to_live = \"1h\"\n"),
];

const ACTIONS: [&str; 7] = ["answer", "lighter", "page", "close", "reset", "end", "stop"];

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
rate = 1
[room]
unit = "session"
classes = ["page"]
[explain]
header = "full"
[[class]]
name = "page"
match = { path = "/page" }
[[class]]
name = "search"
match = { path = "/search/**" }
[[lighter]]
name = "heavy"
to = "/nowhere"
[[lighter]]
name = "lite"
to = "/lite{path}"
[[application]]
name = "other"
url = "http://127.0.0.1:1"
[[application]]
name = "fraud"
url = "http://FRAUD"
ttl = "1h"
deadline = "20s"
[[tier]]
name = "silver"
client = "192.0.2.0/24"
[[tier]]
name = "gold"
# printf %s gold-key | sha256sum
[tier.api_key]
sha256 = "6163937e6547cc2853a333d323496f4d5608b3958a3bd3939752708bc9cb0feb"
[[detector]]
name = "arm"
kind = "signal"
time_to_live = "1h"
[[detector]]
name = "shut"
kind = "signal"
time_to_live = "1h"
[[rule]]
name = "shut"
when = 'levels.shut == "red"'
action = "close"
hold = "0s"
priority = 200
"#;

/// The configuration: detectors that become red, a twin of each that never does, and all rules.
fn shop(fraud: &Scripted) -> String {
    let mut text = SHOP.replace("FRAUD", &fraud.address.to_string());
    for (letter, name, detector) in CRITERIA {
        let never = detector
            .replace("1e-9", "1e15")
            .replace("= 0.001", "= 1e15")
            .replace("red = 1\n", "red = 1e15\n");
        text += &format!("[[detector]]\nname = \"{name}\"\n{detector}");
        if letter != "h" {
            text += &format!("calm = \"1h\"\n[[detector]]\nname = \"no_{name}\"\n{never}");
            rule(&mut text, &format!("no_{name}"), "refuse-answer", "", "then = \"refuse\"\n");
        }
        // Another authoriser and another lighter URL come first in the file.
        for action in ACTIONS {
            let to = if action == "lighter" { "to = \"lite\"\n" } else { "" };
            for (then, more) in
                [("refuse", ""), ("limit", "rate = 0.001\n"), ("ask", "application = \"fraud\"\n")]
            {
                let keys = format!("then = \"{then}\"\naction = \"{action}\"\n{more}{to}");
                rule(&mut text, name, &format!("{then}-{action}"), "", &keys);
            }
        }
        for (then, more) in [("multicast", "period = \"1h\"\n"), ("room", ""), ("reroute", "to = \"lite\"\n")]
        {
            rule(&mut text, name, then, "", &format!("then = \"{then}\"\n{more}"));
        }
        let except = format!("visitors = \"new\"\nexcept = [\"/{name}/new/pay\"]\nspare = [\"gold\"]\n");
        rule(&mut text, name, "new", "", &except);
        rule(&mut text, name, "class", &format!("\"/search/{name}\", "), "class = [\"search\"]\n");
        rule(&mut text, name, "cut", &format!("\"/drip/{name}\", "), "action = \"stop\"\n");
    }
    text
}

/// A rule for `/NAME/WHAT`, everything below, and `urls`.
fn rule(text: &mut String, name: &str, what: &str, urls: &str, keys: &str) {
    *text += &format!(
        "[[rule]]\nname = \"{name}-{what}\"\nwhen = 'levels.{name} == \"red\" && levels.arm == \"red\"'\nhold = \"0s\"\n\
         urls = [{urls}\"/{name}/{what}\", \"/{name}/{what}/**\"]\n{keys}"
    );
}

fn say(gate: &Gate, signal: &str, value: &str) {
    let body = format!("{{\"value\": \"{value}\"}}");
    let answer = api(gate, "PUT", &format!("/v1/signals/{signal}"), "", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Waits until so many rules are in force.
fn in_force(gate: &Gate, wanted: usize) {
    let count = || {
        let state = gate.admin("/v1/state");
        let rules = state["rules"].as_array().unwrap();
        rules.iter().filter(|rule| rule["in_force"] == true).count().to_string()
    };
    until(count, |count| count == wanted.to_string());
}

fn send(gate: &Gate, target: &str, fields: &str) -> TcpStream {
    let mut stream = connect(gate.http);
    let request = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn see(gate: &Gate, target: &str, fields: &str) -> Seen {
    read_out(&mut send(gate, target, fields))
}

fn is_served(gate: &Gate, target: &str, fields: &str) {
    let Seen::End(answer) = see(gate, target, fields) else { panic!("{target}: reset") };
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("served"), "{target}: {answer}");
}

/// Checks what a browser sees of a refusal.
fn is_refused(gate: &Gate, target: &str, rule: &str, action: &str) {
    let seen = see(gate, target, "Accept: text/html\r\n");
    let Seen::End(answer) = &seen else {
        assert!(
            matches!(action, "reset" | "stop") && seen == Seen::Reset(String::new()),
            "{target}: {seen:?}"
        );
        return;
    };
    let wanted: &[&str] = match action {
        "answer" => &["HTTP/1.1 503", "application/problem+json", "retry-after"],
        "lighter" => &["HTTP/1.1 200", "\r\n\r\nlite"],
        "page" => &["HTTP/1.1 503", "<html", "retry-after"],
        "end" => &["HTTP/1.1 503", "connection: close"],
        "close" => return assert_eq!(answer, "", "{target}"),
        _ => panic!("{target}: {answer}"),
    };
    wanted.iter().for_each(|word| assert!(answer.contains(word), "{target}: {word} in {answer}"));
    if action != "lighter" {
        let figure = rule.split('-').next().unwrap();
        let told = format!("; rule=\"{rule}\"; action={action}; level=\"red\"; figures=\"{figure}");
        assert!(answer.contains(&told), "{target}: {told} in {answer}");
        assert!(answer.contains(", arm=1\""), "{target}: {answer}");
    }
    if action == "answer" {
        let id = answer.split("tidegate-decision: id=").nth(1).unwrap().split(';').next().unwrap();
        let record = gate.admin(&format!("/v1/explain/{id}"));
        assert_eq!((&record["rule"], &record["level"]), (&json!(rule), &json!("red")), "{record}");
    }
}

/// Checks every policy with every action for one criterion, while all of its rules are in force. `session` is
/// the cookie of an admitted session.
fn act(gate: &Gate, name: &str, session: &str) {
    let shared = gate.server().shared();
    for action in ACTIONS {
        for then in ["refuse", "ask", "limit"] {
            let rule = format!("{name}-{then}-{action}");
            let target = format!("/{name}/{then}-{action}");
            if then == "limit" {
                is_served(gate, &target, "");
            }
            is_refused(gate, &target, &rule, action);
        }
    }
    // Two requests, one answer.
    let before = shared.coalescer.upstream.load(std::sync::atomic::Ordering::Relaxed);
    (0..2).for_each(|_| is_served(gate, &format!("/{name}/multicast"), ""));
    let made = shared.coalescer.upstream.load(std::sync::atomic::Ordering::Relaxed) - before;
    let multicast = shared.policies.ledger.of(&format!("{name}-multicast"));
    assert_eq!((made, multicast.get(Done::Multicast)), (1, 2), "{name}");
    until(|| get(gate.http, &format!("/{name}/room"), "a=b"), |answer| answer.contains("set-cookie: tg0="));
    assert!(get(gate.http, &format!("/{name}/reroute"), "").ends_with("\r\n\r\nlite"));
    // Admitted sessions, spared tiers and spared URLs are served.
    let new = format!("/{name}/new");
    is_refused(gate, &new, &format!("{name}-new"), "answer");
    is_served(gate, &new, &format!("Cookie: {session}\r\n"));
    is_served(gate, &new, "X-Api-Key: gold-key\r\n");
    is_served(gate, &format!("{new}/pay"), "");
    is_refused(gate, &format!("/search/{name}"), &format!("{name}-class"), "answer");
    is_served(gate, &format!("/{name}/class"), "");
    is_served(gate, &format!("/no_{name}/refuse-answer"), "");
}

// One long test: the gate goes through calm, congestion and calm again, and each part needs the one before.
#[test]
fn every_criterion_brings_about_every_policy_with_every_action() {
    let fraud = Scripted::start(|_, _, stream| reply(stream, "403 No", "", ""));
    let origin = Origin::start();
    let gate = Gate::start(&origin, &shop(&fraud));
    say(&gate, "arm", "green");
    say(&gate, "alarm", "red");
    in_force(&gate, 0);
    let session = cookies(&get(gate.http, "/page", ""));
    assert!(session.contains("tgp="), "a session: {session}");
    let rules = gate.server().shared().config.load().settings.rule.len();
    let never = CRITERIA.iter().filter(|(letter, ..)| *letter != "h").count();

    // Calm: everything is served, and the figures are established.
    let mut dripping: Vec<_> =
        CRITERIA.iter().map(|(_, name, _)| send(&gate, &format!("/drip/{name}"), "")).collect();
    for stream in &mut dripping {
        assert!(read_head(stream).unwrap().starts_with("HTTP/1.1 200"));
        stream.read_exact(&mut [0; 6]).unwrap();
    }
    for (_, name, _) in CRITERIA {
        for target in ["refuse-answer", "limit-close", "ask-stop", "room", "new", "class"] {
            is_served(&gate, &format!("/{name}/{target}"), "");
        }
        is_served(&gate, &format!("/search/{name}"), "");
    }
    let levels = |wanted: &str| {
        let red = |state: &Value| {
            let is = |one: &&Value| {
                CRITERIA.iter().any(|(_, name, _)| one["name"] == *name) && one["level"] == wanted
            };
            state["detectors"].as_array().unwrap().iter().filter(is).count()
        };
        red(&gate.admin("/v1/state")).to_string()
    };
    until(|| levels("red"), |n| n == "9");
    in_force(&gate, 0);

    say(&gate, "arm", "red");
    in_force(&gate, rules - never - 1);
    // Answers under way are cut off.
    for mut stream in dripping {
        assert_eq!(read_out(&mut stream), Seen::Reset(String::new()));
    }
    for (_, name, _) in CRITERIA {
        act(&gate, name, &session);
    }

    say(&gate, "arm", "green");
    in_force(&gate, 0);
    for (_, name, _) in CRITERIA {
        for action in ACTIONS {
            is_served(&gate, &format!("/{name}/refuse-{action}"), "");
        }
    }
    // Connections are refused before they are read.
    say(&gate, "shut", "red");
    in_force(&gate, 1);
    assert_eq!(read_out(&mut connect(gate.http)), Seen::End(String::new()));
}
