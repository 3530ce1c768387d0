//! The operator of an experiment's real run: throttles what the gate suggests, when its detector is red for
//! some seconds.
//!
//! ```text
//! GET /v1/correlation, once a second ─► suggestion remembered ─► red for ACT_AFTER looks: POST /v1/throttles
//! ```
//!
//! What is applied is the last suggestion from before. In an overload everything stands in line together: the
//! figure follows no requests any more, and nothing can be found out.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Looks in a row at which the level must be red: a busy service is red for a moment now and then.
const ACT_AFTER: u32 = 5;
/// From so many on, suggestions are no longer remembered.
const LATE: u32 = 3;

/// Pure: documents in, throttles to put out.
#[derive(Clone, Debug, Default)]
pub(super) struct Operator {
    /// Types and what to do with each, as last suggested before the overload.
    suggested: BTreeMap<String, Value>,
    applied: Vec<String>,
    /// Looks in a row at which the level was red.
    red: u32,
}

impl Operator {
    /// Looks at `GET /v1/correlation`; returns the bodies for `POST /v1/throttles`.
    pub fn look(&mut self, correlation: &Value) -> Vec<Value> {
        let figure = correlation["figures"].as_array().into_iter().flatten();
        let mut figure = figure.filter(|figure| figure["name"] == correlation["figure"]);
        let is_red = figure.any(|figure| figure["level"] == "red");
        self.red = if is_red { self.red.saturating_add(1) } else { 0 };
        if self.red < LATE {
            let throttles = correlation.pointer("/suggestion/throttles").and_then(Value::as_array);
            if let Some(throttles) = throttles {
                let each = |throttle: &Value| {
                    Some((throttle["type"].as_str()?.to_owned(), throttle["action"].clone()))
                };
                self.suggested = throttles.iter().filter_map(each).collect();
            }
        }
        if self.red < ACT_AFTER {
            return Vec::new();
        }
        let fresh = self.suggested.iter().filter(|(name, _)| !self.applied.contains(name));
        let put: Vec<(String, Value)> = fresh
            .map(|(name, action)| {
                let why = "suggested before the overload";
                (name.clone(), json!({ "type": name, "action": action, "for": "1h", "why": why }))
            })
            .collect();
        self.applied.extend(put.iter().map(|(name, _)| name.clone()));
        put.into_iter().map(|(_, body)| body).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(level: &str, types: &[&str]) -> Value {
        let throttles: Vec<Value> = types
            .iter()
            .map(|name| json!({"type": name, "action": {"rate": 2.0}, "had_per_s": 20}))
            .collect();
        let suggestion = if types.is_empty() { Value::Null } else { json!({ "throttles": throttles }) };
        json!({"figure": "db", "suggestion": suggestion,
            "figures": [{"name": "cpu", "level": "red"}, {"name": "db", "level": level}]})
    }

    /// The types that are throttled when this has been red for so long.
    fn looks(operator: &mut Operator, level: &str, types: &[&str], times: u32) -> Vec<String> {
        let put: Vec<Value> = (0..times).flat_map(|_| operator.look(&document(level, types))).collect();
        put.iter().map(|body| body["type"].as_str().expect("a type").to_owned()).collect()
    }

    #[test]
    fn what_was_suggested_before_the_overload_is_applied_once() {
        let mut operator = Operator::default();
        let nothing: [&str; 0] = [];
        assert_eq!(looks(&mut operator, "green", &["path:/a"], 9), nothing, "no reason yet");
        assert_eq!(looks(&mut operator, "orange", &[], 9), nothing);
        assert_eq!(looks(&mut operator, "red", &[], ACT_AFTER - 1), nothing, "a moment");
        assert_eq!(looks(&mut operator, "green", &[], 1), nothing);
        assert_eq!(looks(&mut operator, "red", &[], 2), nothing);
        assert_eq!(looks(&mut operator, "red", &["path:/b"], 9), ["path:/a"], "found out too late: b");
        assert_eq!(looks(&mut operator, "green", &["path:/a", "path:/c"], 1), nothing);
        assert_eq!(looks(&mut operator, "red", &[], 9), ["path:/c"]);
    }

    #[test]
    fn the_throttle_is_the_suggested_one() {
        let mut operator = Operator::default();
        operator.look(&document("green", &["path:/a"]));
        let put: Vec<Value> = (0..9).flat_map(|_| operator.look(&document("red", &[]))).collect();
        assert_eq!((put.len(), &put[0]["action"], &put[0]["for"]), (1, &json!({"rate": 2.0}), &json!("1h")));
    }
}
