//! What operators read about scenarios is true: the documentation's keys, defaults and examples, and the
//! ready-made files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tidegate_lab::crowd::Crowd;
use tidegate_lab::scenario::{Arrivals, Scenario, keys};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root").join(path)
}

fn page() -> String {
    std::fs::read_to_string(repository("docs/scenarios.md")).expect("the page")
}

/// Key and default of each row of the page's tables of keys.
fn rows(page: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut of_keys = false;
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        match cells.as_slice() {
            _ if !line.starts_with('|') => of_keys = false,
            ["key", "default", "meaning"] => of_keys = true,
            [key, default, ..] if of_keys && key.starts_with('`') => {
                rows.push((key.trim_matches('`').into(), default.trim_matches('`').into()));
            }
            _ => {}
        }
    }
    rows
}

#[test]
fn the_page_names_every_key_and_no_other() {
    let rows = rows(&page());
    let named: BTreeSet<&str> = rows.iter().map(|(key, _)| key.as_str()).collect();
    let all = keys();
    let exist: BTreeSet<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(named.len(), rows.len(), "each key once");
    assert_eq!(named, exist);
}

#[test]
fn the_pages_defaults_are_the_codes() {
    let all = keys();
    for (key, said) in rows(&page()) {
        let key_is = &all[key.as_str()];
        if let Some(default) = &key_is.default {
            assert_eq!(&said, default, "{key}");
        }
    }
}

#[test]
fn the_pages_examples_are_scenarios() {
    let page = page();
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 8);
    for block in blocks {
        let arrivals =
            if block.contains("arrivals") { "" } else { "\n[[arrivals.phase]]\nrate = 1\nfor = \"1s\"\n" };
        let text = format!("{block}{arrivals}");
        let parsed = Scenario::parse(&text, "docs/scenarios.md", Path::new(""), &[]);
        assert!(parsed.is_ok(), "{block}\n{}", parsed.unwrap_err());
    }
}

#[test]
fn every_example_is_a_scenario() {
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(repository("examples/scenarios")).expect("the folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let scenario = Scenario::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert_eq!(Some(scenario.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
        assert!(!scenario.about.is_empty(), "{}: no word about it", scenario.name);
        let (mix, crowd) = Crowd::of(&scenario).unwrap_or_else(|error| panic!("{error}"));
        let expected = crowd.size_hint_visitors().expect("an end");
        let people: Vec<_> = crowd.collect();
        assert!(people.is_sorted_by_key(|person| person.at), "{}", scenario.name);
        assert!(people.iter().all(|person| (person.kind as usize) < mix.kinds.len()));
        assert!((people.len() as f64 - expected).abs() <= 6.0 * expected.sqrt(), "{}", scenario.name);
        names.insert(scenario.name);
    }
    let wanted =
        ["attacks", "bursts", "diurnal", "faults", "flash-crowd", "ramp", "replay", "sessions", "storm"];
    assert!(wanted.iter().all(|name| names.contains(*name)), "{names:?}");
}

#[test]
fn the_example_log_is_read_whole() {
    let scenario = Scenario::load(&repository("examples/scenarios/replay.toml")).expect("right");
    assert!(matches!(scenario.arrivals, Arrivals::Replay { .. }));
    let (mix, crowd) = Crowd::of(&scenario).expect("a log");
    assert_eq!(crowd.skipped().map(|skipped| skipped.lines), Some(0));
    let people: Vec<_> = crowd.collect();
    assert_eq!(people.len(), 60);
    let posts = mix.kinds.iter().filter(|kind| kind.steps[0].method == "POST").count();
    assert_eq!(posts, 1);
    assert!(mix.kinds.iter().skip(1).all(|kind| kind.retries == 1), "they behave as the scenario says");
}

#[test]
fn files_that_cannot_be_read_are_said_to_be() {
    for (path, expected) in [
        ("examples/scenarios/none.toml", "expected a readable scenario file in UTF-8; got"),
        ("examples/scenarios", "expected a readable scenario file in UTF-8; got a directory"),
    ] {
        let path = repository(path);
        let said = Scenario::load(&path).unwrap_err().to_string();
        assert!(said.starts_with(&format!("{}: {expected}", path.display())), "{said}");
    }
}
