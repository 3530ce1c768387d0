//! Any input to the readers of scenarios and logs gives a result: no panic, and no scenario that is not what
//! it promises to be.

use std::path::Path;

use proptest::prelude::*;

use tidegate_lab::crowd::Crowd;
use tidegate_lab::crowd::replay::Log;
use tidegate_lab::scenario::{Arrivals, Kind, Scenario, keys};

/// Every ready-made scenario, in one row.
fn examples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder");
    let paths = files.map(|file| file.expect("a file").path());
    let scenarios = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    scenarios.map(|path| std::fs::read_to_string(path).expect("a text")).collect()
}

/// Values right and wrong for most keys.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (-5i64..20).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|x| format!("{x:?}")),
        "[a-z0-9()*/., ]{0,12}".prop_map(|text| format!("{text:?}")),
        "\\PC{0,8}".prop_map(|text| format!("{text:?}")),
        (0u32..100, prop_oneof!["us", "ms", "s", "m", "h", "d"])
            .prop_map(|(n, unit)| format!("\"{n}{unit}\"")),
        prop::sample::select(vec![
            "true",
            "[]",
            "{}",
            "[0, 5]",
            "[[]]",
            "[{}]",
            "nan",
            "\"never\"",
            "\"forever\"",
            "\"exponential(1s)\"",
            "\"poisson\"",
            "\"**\"",
            "1979-05-27",
            "{ app = \"1s\" }",
            "{ visitor = 1 }",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Properties that a holder of a scenario need not check again.
fn keeps_its_promises(scenario: &Scenario) {
    let kinds = scenario.visitors.len();
    assert!(kinds > 0 && scenario.visitors.iter().all(|kind| (1..=255).contains(&kind.steps.len())));
    assert!(scenario.visitors.iter().map(|kind| kind.weight).sum::<f64>() > 0.0);
    if let Arrivals::Phases { phases, repeat, .. } = &scenario.arrivals {
        assert!(!phases.is_empty() && *repeat > 0);
        assert!(phases.iter().all(|phase| !phase.lasts.is_zero()));
        assert!(phases.iter().all(|phase| phase.mix.is_empty() || phase.mix.len() == kinds));
        let weights: Vec<f64> = scenario.visitors.iter().map(|kind| kind.weight).collect();
        let people: Vec<_> = Crowd::new(scenario.seed, &scenario.arrivals, &weights).take(100).collect();
        assert!(people.is_sorted_by_key(|person| person.at));
        assert!(people.iter().all(|person| (person.kind as usize) < kinds));
    }
    let origin = &scenario.origin;
    assert!(!origin.stages.is_empty() && origin.stages.iter().all(|stage| stage.servers > 0));
    assert!(origin.paths.last().is_some_and(|path| path.path.ends_with("**")));
    assert!(origin.paths.iter().flat_map(|path| &path.demand).all(|(stage, _)| *stage < origin.stages.len()));
    assert!(origin.changes.is_sorted_by_key(|change| change.at));
    assert!(scenario.faults.is_sorted_by_key(|fault| fault.at));
    if let Some(gate) = &scenario.gate {
        let again = tidegate_settings::Settings::parse(&gate.text, "gate.toml");
        assert_eq!(again.as_ref(), Ok(&gate.settings), "{}", gate.text);
    }
}

fn read(text: &str, overrides: &[(String, String)]) -> bool {
    match Scenario::parse(text, "garbage.toml", Path::new(""), overrides) {
        Ok(scenario) => {
            keeps_its_promises(&scenario);
            true
        }
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty() && !mistakes.to_string().is_empty());
            false
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}", lines in "[a-z\\[\\]=.\"{}0-9\n ]{0,200}") {
        read(&text, &[]);
        read(&lines, &[]);
    }

    /// An example with a piece cut out, doubled, or put elsewhere.
    #[test]
    fn broken_examples_are_answered(
        which in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        length in 0usize..60,
        to in any::<prop::sample::Index>(),
        keep in any::<bool>(),
    ) {
        let examples = examples();
        let example = which.get(&examples);
        let from = from.index(example.len());
        let piece = &example[from..(from + length).min(example.len())];
        let mut text = example.clone();
        if !keep {
            text.replace_range(from..from + piece.len(), "");
        }
        text.insert_str(to.index(text.len() + 1), piece);
        read(&text, &[]);
    }

    /// Any keys of the language with any values, over an example and over nothing.
    #[test]
    fn any_overrides_are_answered(
        which in any::<prop::sample::Index>(),
        set in prop::collection::vec((any::<prop::sample::Index>(), value(), 0u32..3), 1..4),
    ) {
        let examples = examples();
        let of_gates = ["gate.room.max_wait", "gate.class", "gate.origin", "gate.role", "gate.capacity.rate", "gate"];
        let keys: Vec<String> = keys().into_keys().chain(of_gates.map(String::from)).collect();
        let overrides: Vec<(String, String)> = set
            .into_iter()
            .map(|(key, value, number)| {
                let key = key.get(&keys).as_str();
                // Elements of lists are addressed by their numbers.
                let listed = ["visitor.step", "visitor", "fault", "arrivals.phase", "origin.path", "origin.stage", "origin.change"];
                let list = listed.iter().find(|list| key.starts_with(&format!("{list}.")));
                let key = match list {
                    Some(list) => key.replacen(&format!("{list}."), &format!("{list}.{number}.").replace("visitor.step", "visitor.0.step"), 1),
                    None => key.to_owned(),
                };
                (key, value)
            })
            .collect();
        read(which.get::<String>(&examples), &overrides);
        read("", &overrides);
    }

    #[test]
    fn any_log_is_answered(
        text in "\\PC{0,100}",
        lines in prop::collection::vec("([a-z.]{1,8} - - )?\\[?[0-9]{1,2}/(Oct|Feb|Xyz)/[0-9]{1,5}:[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,7})? [+-][0-9]{4}\\]? \"?(GET|POST|-)? ?/?[a-z\\\\\"x]{0,9}( HTTP/1\\.1)?\"?", 0..20),
        objects in prop::collection::vec("\\{\"(time|ts|msec)\":(\"[-0-9TZ:.+ ]{0,30}\"|-?[0-9]{1,20}(\\.[0-9]{1,9})?),\"(path|uri|request)\":\"/?[a-zA-Z0-9/ .%?]{0,20}\"\\}?", 0..20),
    ) {
        let whole = [vec![text], lines, objects].concat().join("\n");
        if let Ok(log) = Log::read(whole.as_bytes(), Path::new("garbage.log"), &Kind::default(), 1) {
            prop_assert!(log.arrivals.is_sorted_by_key(|arrival| arrival.at_us));
            prop_assert_eq!(log.arrivals.first().map(|arrival| arrival.at_us), Some(0));
            let kinds = 1..=log.kinds.len() as u32;
            prop_assert!(log.arrivals.iter().all(|arrival| kinds.contains(&arrival.kind)));
            prop_assert!(log.kinds.iter().all(|kind| kind.steps[0].path.starts_with('/')));
        }
    }
}

/// The strategies above are only worth something if they also hit what is right.
#[test]
fn the_examples_are_accepted() {
    assert!(examples().iter().all(|text| read(text, &[])));
}
