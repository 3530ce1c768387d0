//! `/v1/capacity`: what the origin can serve, how that was found out, and what an operator may do about it.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_core::capacity::{Estimate, State};
use tidegate_core::control::{Bounds, Change, Tunables};
use tidegate_core::units::Rate;

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::schema::{a, exactly, list, maybe, object, why};
use crate::control::capacity::finite;
use crate::control::driver::Control;
use tidegate_settings::Role;

/// `GET /v1/capacity`.
pub(super) fn get(call: &Call) -> Outcome {
    Ok(document(&show(call.control())))
}

/// `PUT /v1/capacity`.
pub(super) fn put(call: &Call) -> Outcome {
    let rate = call.body["rate"].as_f64().and_then(Rate::per_second);
    let rate = rate.ok_or_else(|| Problem::bad_request("the rate is not a number"))?;
    match call.control().set_capacity(rate, call.by()) {
        Ok(()) => get(call),
        Err(why) => Err(Problem::conflict(why.to_string())),
    }
}

/// `POST /v1/capacity/rediscover`: accepted, for the finding takes its time.
pub(super) fn rediscover(call: &Call) -> Outcome {
    match call.control().rediscover(call.by()) {
        Ok(()) => {
            let mut answer = get(call)?;
            *answer.status_mut() = StatusCode::ACCEPTED;
            Ok(answer)
        }
        Err(why) => Err(Problem::conflict(why.to_string())),
    }
}

/// What [`put`] takes.
pub(super) fn wanted() -> Value {
    let rate = json!({
        "type": "number", "minimum": 0, "maximum": Rate::MAX.get(), "description": "Cost units per second.",
    });
    exactly(&[("rate", rate), ("why", why())], &["rate"])
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    let change = object(&[
        ("at_ms", a("integer", "When, in milliseconds since 1970.")),
        ("from", maybe("number", "The capacity before; null: none, or unlimited.")),
        ("to", maybe("number", "The capacity after; null: unlimited.")),
        ("phase", a("string", "What the estimator was doing.")),
        ("reason", a("string", "Why.")),
    ]);
    object(&[
        ("rate", maybe("number", "The capacity in force, in cost units per second; null: unlimited.")),
        ("outflow", maybe("number", "What the room lets in; null: unlimited.")),
        ("max_in_flight", maybe("integer", "Requests the origin may work on at once; null: no limit.")),
        ("estimator", maybe("string", "The algorithm at work; null: in another process.")),
        ("configured", a("string", "As the configuration says.")),
        ("phase", a("string", "configured, searching, settled or paused.")),
        ("reason", a("string", "Why it is in this phase.")),
        ("confidence", maybe("number", "0: a guess; 1: certain.")),
        ("samples", a("integer", "Requests in the present fit.")),
        ("figures", a("object", "The algorithm's own, the unit in the name.")),
        ("points", a("array", "What was measured at which load.")),
        ("curve", a("array", "What was fitted to it.")),
        ("floor", maybe("number", "The operator's; null: none.")),
        ("ceiling", maybe("number", "The operator's; null: none.")),
        ("rediscoveries", a("integer", "How often it began to look anew after it had settled.")),
        ("role", a("string", "What this process does.")),
        ("history", list(change, "The last changes of the capacity in force, the latest last.")),
    ])
}

fn show(control: &Control) -> Value {
    let live = control.shared().config.load();
    let (settings, bounds) = (&live.settings, live.bounds());
    let capacity = control.capacity();
    let mut state = capacity.state();
    let is_elsewhere = matches!(settings.role, Role::TokenCheck { .. });
    if is_elsewhere {
        state.reason = "as the tokengen process says, where the estimator works".into();
    }
    let mut shown = describe(&capacity.tunables(), &capacity.estimate(), &state, &bounds);
    shown["role"] = json!(settings.role.name());
    shown["estimator"] = if is_elsewhere { Value::Null } else { json!(settings.estimator()) };
    shown["configured"] = json!(settings.capacity.estimator);
    shown["rediscoveries"] = json!(capacity.rediscoveries());
    shown["history"] = capacity.history().map(change).collect();
    shown
}

fn change(change: &Change) -> Value {
    json!({
        "at_ms": change.at.as_millis(),
        "from": change.from.map(finite),
        "to": finite(change.to),
        "phase": change.phase.name(),
        "reason": change.reason,
    })
}

/// What is not a finite number is `null`: JSON has no other word for it.
fn describe(tunables: &Tunables, estimate: &Estimate, state: &State, bounds: &Bounds) -> Value {
    let figures: Map<_, _> =
        state.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "rate": finite(tunables.capacity),
        "outflow": finite(tunables.outflow),
        "max_in_flight": tunables.max_in_flight,
        "phase": estimate.phase.name(),
        "reason": state.reason,
        "confidence": estimate.confidence,
        "samples": state.samples,
        "figures": figures,
        "points": state.points,
        "curve": state.curve,
        "floor": Some(bounds.floor.get()).filter(|floor| *floor > 0.0),
        "ceiling": finite(bounds.capacity),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::capacity::Phase;

    #[test]
    fn whatever_an_estimator_says_is_json() {
        let tunables =
            Tunables { outflow: Rate::MAX, capacity: Rate::ZERO, max_in_flight: None, keeps_queue: false };
        let estimate = Estimate {
            capacity: Rate::MAX,
            gain: f64::INFINITY,
            max_in_flight: Some(0),
            phase: Phase::Searching,
            confidence: f64::NAN,
        };
        let state = State {
            reason: "\"\u{1}\n".into(),
            samples: u64::MAX,
            figures: vec![("knee", f64::NAN), ("response_ms", 1.5)],
            points: vec![(1.0, f64::INFINITY), (f64::NEG_INFINITY, 2.0)],
            curve: Vec::new(),
        };
        let bounds = Bounds { capacity: Rate::MAX, floor: Rate::ZERO, max_in_flight: None };
        let text = describe(&tunables, &estimate, &state, &bounds).to_string();
        let back: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back["figures"], json!({ "knee": null, "response_ms": 1.5 }));
        assert_eq!(back["points"], json!([[1.0, null], [null, 2.0]]));
        for unknown in ["confidence", "outflow", "max_in_flight", "floor", "ceiling"] {
            assert_eq!(back[unknown], Value::Null, "{unknown}");
        }
        assert_eq!((&back["rate"], &back["samples"]), (&json!(0.0), &json!(u64::MAX)));
    }
}
