//! `/v1/correlation` of a whole gate: what is counted, what is shown, and what is off.

use serde_json::Value;

use crate::whole::harness::{Gate, Origin, admin, api, get, until};

const SHOP: &str = r#"
[origin]
replicas = ["ORIGIN"]

[[class]]
name = "search"
match = { path = "/search*" }
cost = 3.0

[[detector]]
name = "db"
kind = "signal"
"#;

fn types(document: &Value) -> Vec<&str> {
    let types = document["types"].as_array().expect("types");
    let names = types.iter().map(|of| of["type"].as_str().expect("a name"));
    // The first request of each path is one, and may have come before the first interval.
    let mut names: Vec<_> = names.filter(|name| *name != "other").collect();
    names.sort_unstable();
    names
}

/// Asks for pages, and for the correlation, until all of these types have been seen.
fn seen(gate: &Gate, expected: &[&str]) -> Value {
    let ask = || {
        for path in ["/search?q=1", "/item/1", "/item/2", "/pay?step=1"] {
            assert!(get(gate.http, path, "").starts_with("HTTP/1.1 200"), "{path}");
        }
        let answer = admin(gate, "/v1/correlation");
        answer.split_once("\r\n\r\n").expect("an answer").1.to_owned()
    };
    let is_there = |text: &str| {
        let document: Value = serde_json::from_str(text).expect("JSON");
        document["types"].is_array() && types(&document) == expected
    };
    serde_json::from_str(&until(ask, is_there)).expect("JSON")
}

#[test]
fn requests_are_counted_by_class_by_path_or_by_both() {
    let origin = Origin::start();
    let correlate = "[correlate]\nparameters = [\"step\"]\n";
    let gate = Gate::start(&origin, &format!("{SHOP}{correlate}"));
    let auto = seen(&gate, &["class:search", "path:/item/{n}", "path:/pay?step"]);
    let search = auto["types"].as_array().unwrap().iter().find(|of| of["name"] == "search").unwrap();
    assert_eq!(search["kind"], "class");
    let of_search = &auto["costs"][0];
    assert_eq!((&of_search["class"], &of_search["configured"]), (&"search".into(), &3.0.into()));
    assert_eq!(auto["costs"].as_array().map(Vec::len), Some(1), "the default class is no type");

    let tune = |name: &str, value: &str| {
        let answer =
            api(&gate, "PUT", &format!("/v1/tunables/{name}"), "", &format!("{{\"value\":{value}}}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    tune("correlate.types", "\"class\"");
    let class = seen(&gate, &["class:default", "class:search"]);
    assert_eq!(class["types"][0]["r"], Value::Null, "not enough data: {class}");
    tune("correlate.types", "\"path\"");
    tune("correlate.parameters", "[]");
    seen(&gate, &["path:/item/{n}", "path:/pay", "path:/search"]);

    tune("correlate.enabled", "false");
    let off = admin(&gate, "/v1/correlation");
    assert!(off.starts_with("HTTP/1.1 404") && off.contains("correlate.enabled"), "{off}");
}

#[test]
fn figures_are_those_of_detectors_and_of_the_gate() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, SHOP);
    let said = api(&gate, "PUT", "/v1/signals/db", "", "{\"value\":0.75}");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let is_heard = |text: &str| text.contains("\"value\":0.75");
    let answer = until(|| admin(&gate, "/v1/correlation?figure=db&recent=3"), is_heard);
    let document: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let figures = document["figures"].as_array().unwrap();
    let names: Vec<_> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["db", "response_time", "in_flight", "gate_cpu"]);
    assert_eq!((&figures[0]["kind"], &figures[1]["kind"]), (&"detector".into(), &"gate".into()));
    assert_eq!((&figures[0]["level"], &figures[1]["level"]), (&"orange".into(), &Value::Null));
    assert_eq!(document["recent"].as_array().unwrap().last(), Some(&0.75.into()), "{document}");
    // It is orange, and nothing else has a level.
    assert_eq!(gate.admin("/v1/correlation")["figure"], "db");
    assert_eq!(gate.admin("/v1/correlation?figure=in_flight")["figure"], "in_flight");
    let unknown = admin(&gate, "/v1/correlation?figure=in_fligt");
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("in_flight"), "{unknown}");
}
