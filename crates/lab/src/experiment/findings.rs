//! What a gate found out by itself during a real run: the types that it correlates with the bottleneck, and
//! those that it throttled. Beside the truth that only the scenario knows, they become figures.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::scenario::Scenario;
use crate::tally::type_key;

/// Figures of every run whose scenario has types and a gate.
const KEYS: [&str; 5] =
    ["culprits_found", "culprits_wrong", "types_throttled", "throttled_after_s", "correlated_share"];
/// Figures of each type.
const OF_TYPE: [&str; 5] = ["r", "p", "culprit", "share", "cost"];

/// The two documents of the gate's admin port, as they were told during the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// The last correlation.
    correlation: Value,
    /// Every type that was ever throttled, by the gate's own name of it.
    throttled: BTreeSet<String>,
    /// When the first throttle was seen, in microseconds since 1970.
    first_us: Option<u64>,
}

impl Findings {
    /// Notes both documents at a time. A gate that has neither tells nothing.
    pub fn note(&mut self, correlation: Option<Value>, throttles: Option<&Value>, now_us: u64) {
        if let Some(correlation) = correlation.filter(|document| document["types"].is_array()) {
            self.correlation = correlation;
        }
        let list = throttles.and_then(|document| document["throttles"].as_array());
        for throttle in list.into_iter().flatten().filter(|throttle| throttle["shadow"] != true) {
            self.throttled.extend(throttle["type"].as_str().map(str::to_owned));
            self.first_us.get_or_insert(now_us);
        }
    }

    /// The figures, for a load that began at `started_us`. A type that was throttled was named; of a gate
    /// that throttled none, those count that its last correlation calls culprits.
    pub fn figures(&self, scenario: &Scenario, started_us: u64) -> BTreeMap<String, f64> {
        let types = scenario.types().types;
        let mut figures = BTreeMap::new();
        let known = |name: &str| type_of(scenario, name).and_then(|of| types.iter().find(|(t, _)| *t == of));
        let mut culprits = BTreeSet::new();
        for found in self.correlation["types"].as_array().into_iter().flatten() {
            let Some(name) = found["type"].as_str() else { continue };
            if found["culprit"] == true {
                culprits.insert(name.to_owned());
            }
            let Some((of_type, _)) = known(name) else { continue };
            let cost = found.pointer("/cost/per_request");
            let values = [&found["r"], &found["p"], &found["culprit"], &found["share"]];
            for (figure, value) in OF_TYPE.into_iter().zip(values.into_iter().chain(cost)) {
                let number = value.as_f64().or(value.as_bool().map(f64::from));
                figures.extend(number.map(|number| (type_key(of_type, figure), number)));
            }
        }
        let named = if self.throttled.is_empty() { &culprits } else { &self.throttled };
        let is_costly = |name: &&String| known(name).is_some_and(|(_, costly)| *costly);
        let found = named.iter().filter(is_costly).count() as f64;
        let share = self.correlation["correlated_share"].as_f64();
        let after = self.first_us.map(|us| us.saturating_sub(started_us) as f64 / 1e6);
        let of_run =
            [Some(found), Some(named.len() as f64 - found), Some(self.throttled.len() as f64), after, share];
        let of_run = KEYS.into_iter().zip(of_run);
        figures.extend(of_run.filter_map(|(key, value)| Some((key.to_owned(), value?))));
        figures
    }
}

/// Every key that [`Findings::figures`] may give for this scenario.
pub(super) fn keys(scenario: &Scenario) -> Vec<String> {
    let types = scenario.types().types;
    let of_types = types.iter().flat_map(|(name, _)| OF_TYPE.map(|figure| type_key(name, figure)));
    KEYS.into_iter().map(str::to_owned).chain(of_types).collect()
}

/// The scenario's name of a type: that of the step whose path the gate names, or the class of that name.
fn type_of<'s>(scenario: &'s Scenario, name: &str) -> Option<&'s str> {
    let (kind, name) = name.split_once(':')?;
    let steps = scenario.visitors.iter().flat_map(|visitor| &visitor.steps);
    let mut typed = steps.filter(|step| !step.of_type.is_empty());
    let found = typed.find(|step| match kind {
        "path" => step.path.split('?').next() == Some(name),
        _ => step.of_type == name,
    });
    found.map(|step| step.of_type.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn scenario() -> Scenario {
        let text = r#"
            [arrivals]
            phase = [{ rate = 5, for = "1s" }]
            [[visitor]]
            step = [
                { path = "/rubis/Search?q={n}", type = "search", costly = true },
                { path = "/rubis/View?item={n}", type = "view" },
                { path = "/" },
            ]
        "#;
        Scenario::parse(text, "small", Path::new(""), &[]).unwrap_or_else(|m| panic!("{m}"))
    }

    fn correlation(culprits: &[&str]) -> Value {
        let found = |name: &str, r: Option<f64>| {
            json!({"type": name, "r": r, "p": 0.01, "culprit": culprits.contains(&name), "share": 0.5,
                "cost": if r.is_some() { json!({"per_request": 2.0}) } else { Value::Null }})
        };
        json!({"correlated_share": 0.15, "types": [
            found("path:/rubis/Search", Some(0.5)),
            found("path:/rubis/View", None),
            found("other", Some(0.1)),
        ]})
    }

    #[test]
    fn what_the_gate_names_is_laid_beside_the_truth() {
        let scenario = scenario();
        for (culprits, found, wrong) in [
            (&[][..], 0.0, 0.0),
            (&["path:/rubis/Search"], 1.0, 0.0),
            (&["path:/rubis/Search", "path:/rubis/View", "other"], 1.0, 2.0),
        ] {
            let mut findings = Findings::default();
            findings.note(Some(correlation(culprits)), None, 1);
            let figures = findings.figures(&scenario, 0);
            assert_eq!((figures["culprits_found"], figures["culprits_wrong"]), (found, wrong));
            assert_eq!((figures["type_search_r"], figures["type_search_cost"]), (0.5, 2.0));
            assert_eq!((figures["type_view_p"], figures.get("type_view_r")), (0.01, None));
            assert!(!figures.contains_key("throttled_after_s"));
            let keys = keys(&scenario);
            assert!(figures.keys().all(|key| keys.contains(key)), "{figures:?}");
        }
    }

    #[test]
    fn a_type_that_was_ever_throttled_was_named() {
        let throttles = |of: &str, shadow: bool| json!({"throttles": [{"type": of, "shadow": shadow}]});
        let mut findings = Findings::default();
        findings.note(Some(correlation(&["other"])), Some(&throttles("class:view", true)), 1_000_000);
        findings.note(None, Some(&throttles("path:/rubis/Search", false)), 4_500_000);
        findings.note(None, Some(&throttles("class:view", false)), 9_000_000);
        findings.note(Some(json!({"error": "busy"})), Some(&json!({"throttles": []})), 10_000_000);
        let figures = findings.figures(&scenario(), 2_000_000);
        assert_eq!((figures["culprits_found"], figures["culprits_wrong"]), (1.0, 1.0));
        assert_eq!((figures["types_throttled"], figures["throttled_after_s"]), (2.0, 2.5));
        assert_eq!(figures["correlated_share"], 0.15);
    }

    #[test]
    fn a_gate_without_findings_names_nobody() {
        let figures = Findings::default().figures(&scenario(), 0);
        assert_eq!((figures["culprits_found"], figures["culprits_wrong"]), (0.0, 0.0));
        assert_eq!(figures.len(), 3);
    }
}
