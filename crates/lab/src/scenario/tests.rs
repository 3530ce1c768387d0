//! The language: what it means, what it refuses and how it says so.

use std::path::Path;
use std::time::Duration;

use super::*;

/// A scenario that is complete but for what a test adds.
const LEAST: &str = "[arrivals]\n[[arrivals.phase]]\nrate = 10\nfor = \"1s\"\n";

fn parse(text: &str) -> Result<Scenario, Mistakes> {
    Scenario::parse(text, "some/flash.toml", Path::new("some"), &[])
}

fn with(overrides: &[(&str, &str)], text: &str) -> Result<Scenario, Mistakes> {
    let overrides: Vec<_> = overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Scenario::parse(text, "flash.toml", Path::new(""), &overrides)
}

#[test]
fn least_of_all_scenarios_has_the_defaults() {
    let scenario = parse(LEAST).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.about.as_str(), scenario.seed), ("flash", "", 1));
    assert_eq!((scenario.deadline, scenario.target, scenario.gate.is_none()), (None, None, true));
    assert_eq!(scenario.visitors, [Kind::default()]);
    assert_eq!(scenario.origin, OriginSpec::default());
    assert_eq!(scenario.faults, []);
    let phase = Phase { rate: Shape::Flat(10.0), lasts: Duration::from_secs(1), mix: Vec::new() };
    let arrivals = Arrivals::Phases { process: Process::Poisson, phases: vec![phase], repeat: 1 };
    assert_eq!(scenario.arrivals, arrivals);
}

/// Each text is refused with exactly these mistakes: place, key and the begin of what was expected.
#[test]
fn mistakes_say_where_and_what() {
    let cases: &[(&str, &[&str])] = &[
        ("", &["some/flash.toml:1:1: arrivals: expected phases"]),
        (
            "[arrivals]\n",
            &["some/flash.toml:1:2: arrivals: expected [[arrivals.phase]] or `replay`; got neither"],
        ),
        ("[arrivals]\nphase = []\n", &["some/flash.toml:2:9: arrivals.phase: expected at least one phase"]),
        ("[arrivals\n", &["some/flash.toml:1:10: expected valid TOML"]),
    ];
    for (text, expected) in cases {
        said(text, expected);
    }
}

/// Refused lines below a scenario that is fine.
#[test]
fn silly_values_are_refused() {
    for (text, expected) in [(
        "nme = 1",
        "nme: expected a section or a key of a scenario; got the unknown name \"nme\". Did you mean `name`?",
    )] {
        said(&format!("{text}\n{LEAST}"), &[&format!("some/flash.toml:1:1: {expected}")]);
    }
}

fn said(text: &str, expected: &[&str]) {
    let mistakes = parse(text).expect_err(text);
    let said: Vec<String> = mistakes.0.iter().map(|mistake| mistake.to_string()).collect();
    let fits = said.len() == expected.len()
        && expected.iter().all(|start| said.iter().any(|line| line.starts_with(start)));
    assert!(fits, "{text}\nexpected {expected:#?}\n{mistakes}");
}

#[test]
fn overrides_count_over_the_text() {
    let scenario = with(&[("arrivals.phase.0.rate", "600"), ("seed", "7"), ("about", "x y")], LEAST).unwrap();
    assert_eq!((scenario.seed, scenario.about.as_str()), (7, "x y"));
    let Arrivals::Phases { phases, .. } = scenario.arrivals else { panic!("{:?}", scenario.arrivals) };
    assert_eq!(phases[0].rate, Shape::Flat(600.0));
}

#[test]
fn a_gates_text_is_a_gates_file() {
    let scenario = parse(&format!(
        "{LEAST}[gate]\ncapacity.rate = 100\nroom.max_wait='10m'\nroom.classes=['a']\nsplit = true\n\
         [[gate.class]]\nname='a'\nmatch={{path='/x', header={{x-y='a \"b\" \\c'}}}}\n"
    ))
    .unwrap();
    let gate = scenario.gate.unwrap();
    assert!(gate.split);
    assert_eq!(Settings::parse(&gate.text, "gate.toml").unwrap(), gate.settings);
    assert_eq!(gate.settings.capacity.rate, 100.0);
    assert_eq!(gate.settings.origin.replicas, ["replica-0.invalid:80"]);
}
