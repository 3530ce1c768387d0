//! `/v1/capacity`: what the origin can serve, how that was found out, and what an operator may do about it.

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_core::capacity::{Estimate, State};
use tidegate_core::control::{Bounds, Change, Tunables};
use tidegate_core::units::Rate;

use super::{Answer, finite, json_answer, problem};
use crate::driver::Control;
use crate::settings::Role;

/// `GET /v1/capacity`.
pub(super) fn get(control: &Control) -> Answer {
    json_answer(&show(control))
}

/// `PUT /v1/capacity`.
pub(super) fn put(control: &Control, value: &Value) -> Answer {
    let rate = value.get("rate").and_then(Value::as_f64).filter(|r| r.is_finite() && *r >= 0.0);
    let Some(rate) = rate.and_then(Rate::per_second) else {
        return problem(
            StatusCode::BAD_REQUEST,
            &format!("expected {{\"rate\": N}} with N >= 0 in cost units per second; got {value}"),
        );
    };
    match control.set_capacity(rate) {
        Ok(()) => get(control),
        Err(why) => problem(StatusCode::CONFLICT, &why.to_string()),
    }
}

/// `POST /v1/capacity/rediscover`: accepted, for the finding takes its time.
pub(super) fn rediscover(control: &Control) -> Answer {
    match control.rediscover() {
        Ok(()) => {
            let mut answer = get(control);
            *answer.status_mut() = StatusCode::ACCEPTED;
            answer
        }
        Err(why) => problem(StatusCode::CONFLICT, &why.to_string()),
    }
}

fn show(control: &Control) -> Value {
    let live = control.shared.live.load();
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
