//! Rules that set tunables (`then = "set"`): set while the rule is in force, and taken back afterwards.

use serde_json::{Value, json};

use crate::whole::harness::{Gate, Origin, api, until};

/// Signals are in force until they are said otherwise; rules follow them at once.
const SETS: &str = r#"
[origin]
replicas = ["ORIGIN"]
[queue]
max_length = 1000
[[class]]
name = "search"
match = { path = "/search" }
cost = 4
[[detector]]
name = "db"
kind = "signal"
time_to_live = "1d"
[[detector]]
name = "disk"
kind = "signal"
time_to_live = "1d"
[[rule]]
name = "dear"
when = 'levels.db == "red"'
hold = "0s"
then = "set"
set = "class.search.cost"
value = "2.5x"
[[rule]]
name = "short"
when = 'levels.db == "red"'
hold = "0s"
then = "set"
set = "queue.max_length"
value = "0.5x"
[[rule]]
name = "shorter"
when = 'levels.disk == "red"'
hold = "0s"
then = "set"
set = "queue.max_length"
value = 7
priority = 200
"#;

fn say(gate: &Gate, detector: &str, level: &str) {
    let body = format!("{{\"value\": \"{level}\"}}");
    let said = api(gate, "PUT", &format!("/v1/signals/{detector}"), "", &body);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

fn tunable(gate: &Gate, name: &str) -> Value {
    gate.admin(&format!("/v1/tunables/{name}"))
}

/// Waits until a tunable has this value, and by which rule.
#[track_caller]
fn becomes(gate: &Gate, name: &str, value: impl Into<Value>, rule: Value) {
    let wanted = (value.into(), rule);
    let seen = || {
        let now = tunable(gate, name);
        format!("{:?}", (&now["value"], &now["rule"]))
    };
    until(seen, |seen| seen == format!("{:?}", (&wanted.0, &wanted.1)));
}

fn put(gate: &Gate, name: &str, value: Value) {
    let answer =
        api(gate, "PUT", &format!("/v1/tunables/{name}"), "", &json!({ "value": value }).to_string());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Who changed a key, from what to what and why, the first change first.
fn changes(gate: &Gate, key: &str) -> Vec<(String, Value, Value, String)> {
    let audit = gate.admin("/v1/audit?limit=100");
    let of_key = audit["changes"].as_array().unwrap().iter().filter(|one| one["key"] == key).rev();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_key.map(|one| (text(&one["who"]), one["old"].clone(), one["new"].clone(), text(&one["why"]))).collect()
}

#[test]
fn a_rule_sets_a_tunable_and_takes_it_back_and_the_audit_names_it() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SETS);
    assert_eq!(tunable(&gate, "class.search.cost")["value"], 4.0);
    say(&gate, "db", "red");
    becomes(&gate, "class.search.cost", 10.0, json!("dear"));
    becomes(&gate, "queue.max_length", 500, json!("short"));
    let shared = gate.server().shared();
    assert_eq!(shared.config.load().settings.queue.max_length, 500, "in force");
    assert_eq!(shared.policies.word() >> 1, 0, "requests pay nothing for it");
    say(&gate, "db", "green");
    becomes(&gate, "class.search.cost", 4.0, Value::Null);
    becomes(&gate, "queue.max_length", 1000, Value::Null);
    let by = |old: f64, new: f64, why: &str| ("rule:dear".to_owned(), json!(old), json!(new), why.to_owned());
    let audit = until(
        || format!("{:?}", changes(&gate, "class.search.cost")),
        |all| all == format!("{:?}", [by(4.0, 10.0, "in force"), by(10.0, 4.0, "over")]),
    );
    assert!(audit.contains("rule:dear"));
    assert!(tunable(&gate, "class.search.cost")["tuned"].is_null());
}

#[test]
fn what_was_tuned_before_comes_back_and_what_is_tuned_meanwhile_stays() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SETS);
    put(&gate, "class.search.cost", json!(6));
    say(&gate, "db", "red");
    becomes(&gate, "class.search.cost", 10.0, json!("dear"));
    say(&gate, "db", "green");
    becomes(&gate, "class.search.cost", 6.0, Value::Null);
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    becomes(&gate, "class.search.cost", 10.0, json!("dear"));
    // By hand, also to the value that it has.
    put(&gate, "class.search.cost", json!(10));
    put(&gate, "queue.max_length", json!(123));
    becomes(&gate, "queue.max_length", 123, Value::Null);
    // Another rule of the same key comes in force: what was changed by hand stays.
    say(&gate, "disk", "red");
    until(|| gate.admin("/v1/state")["rules"][2]["in_force"].to_string(), |in_force| in_force == "true");
    say(&gate, "disk", "green");
    say(&gate, "db", "green");
    until(|| gate.admin("/v1/state")["rules"][0]["in_force"].to_string(), |in_force| in_force == "false");
    // What comes after it in the audit has come after the rules.
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    let by_hand = |who: &str| !who.starts_with("rule:");
    let news: Vec<_> = changes(&gate, "queue.max_length")
        .into_iter()
        .map(|(who, _, new, _)| (by_hand(&who), new.as_u64().unwrap()))
        .collect();
    assert_eq!(news, [(false, 500), (false, 1000), (false, 500), (true, 123), (false, 500)]);
    say(&gate, "db", "green");
    becomes(&gate, "queue.max_length", 123, Value::Null);
    becomes(&gate, "class.search.cost", 10.0, Value::Null);
}

#[test]
fn of_two_rules_the_one_with_precedence_sets_and_then_the_other_one() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SETS);
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    say(&gate, "disk", "red");
    becomes(&gate, "queue.max_length", 7, json!("shorter"));
    say(&gate, "disk", "green");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    say(&gate, "disk", "red");
    becomes(&gate, "queue.max_length", 7, json!("shorter"));
    say(&gate, "db", "green");
    becomes(&gate, "class.search.cost", 4.0, Value::Null);
    becomes(&gate, "queue.max_length", 7, json!("shorter"));
    say(&gate, "disk", "green");
    becomes(&gate, "queue.max_length", 1000, Value::Null);
}

#[test]
fn a_reload_keeps_what_rules_set_and_takes_back_what_no_rule_sets_any_more() {
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, SETS);
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    becomes(&gate, "class.search.cost", 10.0, json!("dear"));
    // Another value in the file: the factor is of that.
    gate.reload(&origin, &SETS.replace("max_length = 1000", "max_length = 300"));
    assert_eq!(
        (&tunable(&gate, "queue.max_length")["value"], &tunable(&gate, "queue.max_length")["file"]),
        (&json!(150), &json!(300))
    );
    assert_eq!(tunable(&gate, "class.search.cost")["value"], 10.0);
    let without = SETS.replace("[[rule]]\nname = \"dear\"\n", "[[rule]]\nname = \"dear\"\nenabled = false\n");
    gate.reload(&origin, &without);
    becomes(&gate, "class.search.cost", 4.0, Value::Null);
    let (rules, _) = SETS.split_once("[[rule]]").unwrap();
    gate.reload(&origin, rules);
    assert_eq!(tunable(&gate, "queue.max_length")["value"], 1000, "at once: the rule is gone");
    assert_eq!(tunable(&gate, "queue.max_length")["rule"], Value::Null);
    gate.reload(&origin, SETS);
    becomes(&gate, "queue.max_length", 500, json!("short"));
}

#[test]
fn no_restart_keeps_what_a_rule_has_set() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SETS);
    put(&gate, "class.search.cost", json!(6));
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    becomes(&gate, "class.search.cost", 10.0, json!("dear"));
    // What a crash would leave.
    let saved = || std::fs::read_to_string(gate.state().join("learned.json")).unwrap_or_default();
    let saved = until(saved, |text| text.contains("class.search.cost"));
    let saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["tuned"]["class.search.cost"]["value"], "6.0", "{saved}");
    assert!(saved["tuned"]["queue.max_length"].is_null(), "{saved}");
    let gate = gate.restarted(&origin, SETS);
    assert_eq!(tunable(&gate, "queue.max_length")["value"], 1000);
    assert_eq!(tunable(&gate, "class.search.cost")["value"], 6.0);
}

#[test]
fn a_rule_in_shadow_sets_nothing_and_is_counted() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, &SETS.replace("name = \"dear\"\n", "name = \"dear\"\nshadow = true\n"));
    say(&gate, "db", "red");
    becomes(&gate, "queue.max_length", 500, json!("short"));
    let dear = gate.admin("/v1/state")["rules"][0].clone();
    assert_eq!((&dear["in_force"], &dear["times"], &dear["shadow"]), (&json!(true), &json!(1), &json!(true)));
    assert_eq!(tunable(&gate, "class.search.cost")["value"], 4.0);
    put(&gate, "enforcement.shadow", json!(true));
    becomes(&gate, "queue.max_length", 1000, Value::Null);
}
