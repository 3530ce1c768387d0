//! `/v1/capacity`: the origin's capacity, how it was found, and how an operator may change it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::capacity::{Estimate, State};
use tidegate_core::control::{self, Bounds, Tunables};
use tidegate_core::units::Rate;

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::schema::{exactly, why};
use crate::control::capacity::{MOST_TTL, finite};
use crate::control::driver::Control;
use tidegate_settings::Role;

pub(super) fn get(call: &Call) -> Outcome {
    Ok(document(&Capacity::new(call.control())))
}

pub(super) fn put(call: &Call) -> Outcome {
    let rate = call.body["rate"].as_f64().and_then(Rate::per_second);
    let rate = rate.ok_or_else(|| Problem::bad_request("the rate is not a number"))?;
    let ttl = call.body["ttl_s"].as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
    match call.control().set_capacity(rate, ttl, call.by()) {
        Ok(()) => get(call),
        Err(why) => Err(Problem::conflict(why.to_string())),
    }
}

/// `POST /v1/capacity/rediscover`: 202, since the search takes its time.
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

pub(super) fn wanted() -> Value {
    let rate = json!({
        "type": "number", "minimum": 0, "maximum": Rate::MAX.get(), "description": "Cost units per second.",
    });
    let ttl = json!({
        "type": "number", "minimum": 1, "maximum": MOST_TTL.as_secs(),
        "description": "Seconds after which a capacity that is not discovered is forgotten; without: never.",
    });
    exactly(&[("rate", rate), ("ttl_s", ttl), ("why", why())], &["rate"])
}

/// How much work the origin is given.
#[derive(Serialize, JsonSchema)]
pub(super) struct InForce {
    /// The capacity in force, in cost units per second; null: unlimited.
    rate: Option<f64>,
    /// What the room lets in; null: unlimited.
    outflow: Option<f64>,
    /// Requests the origin may work on at once; null: no limit.
    max_in_flight: Option<u32>,
    /// The algorithm at work; null: in another process.
    estimator: Option<String>,
    /// configured, searching, settled or paused.
    phase: &'static str,
    /// 0: a guess; 1: certain.
    confidence: Option<f64>,
}

impl InForce {
    pub fn new(tunables: &Tunables, estimate: &Estimate, estimator: Option<&str>) -> Self {
        Self {
            rate: finite(tunables.capacity),
            outflow: finite(tunables.outflow),
            max_in_flight: tunables.max_in_flight,
            estimator: estimator.map(str::to_owned),
            phase: estimate.phase.name(),
            confidence: number(estimate.confidence),
        }
    }
}

/// `None`, and so null, for what JSON has no number for.
fn number(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

#[derive(Serialize, JsonSchema)]
struct Evidence {
    /// Why it is in this phase.
    reason: String,
    /// Requests in the present fit.
    samples: u64,
    /// The algorithm's own, the unit in the name.
    figures: BTreeMap<&'static str, Option<f64>>,
    /// What was measured at which load.
    points: Vec<[Option<f64>; 2]>,
    /// What was fitted to it.
    curve: Vec<[Option<f64>; 2]>,
}

impl From<State> for Evidence {
    fn from(State { reason, samples, figures, points, curve }: State) -> Self {
        let figures = figures.into_iter().map(|(name, value)| (name, number(value))).collect();
        let pairs = |pairs: Vec<_>| pairs.into_iter().map(|(x, y)| [number(x), number(y)]).collect();
        Self { reason, samples, figures, points: pairs(points), curve: pairs(curve) }
    }
}

/// The answer of `/v1/capacity`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Capacity {
    #[serde(flatten)]
    in_force: InForce,
    /// As the configuration says.
    configured: String,
    #[serde(flatten)]
    evidence: Evidence,
    /// The operator's; null: none.
    floor: Option<f64>,
    /// The operator's; null: none.
    ceiling: Option<f64>,
    /// When the capacity that was set is forgotten, in milliseconds since 1970; null: none was set, or for
    /// good.
    expires_at_ms: Option<u64>,
    /// How often it began to look anew after it had settled.
    rediscoveries: u64,
    /// What this process does.
    role: &'static str,
    /// The last changes of the capacity in force, the latest last.
    history: Vec<Change>,
}

#[derive(Serialize, JsonSchema)]
struct Change {
    /// When, in milliseconds since 1970.
    at_ms: u64,
    /// The capacity before; null: none, or unlimited.
    from: Option<f64>,
    /// The capacity after; null: unlimited.
    to: Option<f64>,
    /// What the estimator was doing.
    phase: &'static str,
    reason: String,
}

impl Capacity {
    fn new(control: &Control) -> Self {
        let live = control.shared().config.load();
        let settings = &live.settings;
        let capacity = control.capacity();
        let mut state = capacity.state();
        let is_elsewhere = matches!(settings.role, Role::TokenCheck { .. });
        if is_elsewhere {
            state.reason = "as the tokengen process says, where the estimator works".into();
        }
        let estimator = (!is_elsewhere).then(|| settings.estimator());
        let in_force = InForce::new(&capacity.tunables(), &capacity.estimate(), estimator);
        let (floor, ceiling) = shown(&live.bounds());
        Self {
            in_force,
            configured: settings.capacity.estimator.clone(),
            evidence: state.into(),
            floor,
            ceiling,
            expires_at_ms: capacity.expires_at_ms(),
            rediscoveries: capacity.rediscoveries(),
            role: settings.role.name(),
            history: capacity.history().map(Change::new).collect(),
        }
    }
}

fn shown(bounds: &Bounds) -> (Option<f64>, Option<f64>) {
    (Some(bounds.floor.get()).filter(|floor| *floor > 0.0), finite(bounds.capacity))
}

impl Change {
    fn new(change: &control::Change) -> Self {
        Self {
            at_ms: change.at.as_millis(),
            from: change.from.and_then(finite),
            to: finite(change.to),
            phase: change.phase.name(),
            reason: change.reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::answer::json;
    use serde_json::json;
    use tidegate_core::capacity::Phase;

    #[test]
    fn any_state_of_an_estimator_is_valid_json() {
        let tunables = Tunables { outflow: Rate::MAX, capacity: Rate::ZERO, max_in_flight: None };
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
        let (floor, ceiling) = shown(&bounds);
        let shown = Capacity {
            in_force: InForce::new(&tunables, &estimate, None),
            configured: String::new(),
            evidence: state.into(),
            floor,
            ceiling,
            expires_at_ms: None,
            rediscoveries: 0,
            role: "",
            history: Vec::new(),
        };
        let back: Value = serde_json::from_str(&json(&shown)).expect("JSON");
        assert_eq!(back["figures"], json!({ "knee": null, "response_ms": 1.5 }));
        assert_eq!(back["points"], json!([[1.0, null], [null, 2.0]]));
        for unknown in ["confidence", "outflow", "max_in_flight", "floor", "ceiling"] {
            assert_eq!(back[unknown], Value::Null, "{unknown}");
        }
        assert_eq!((&back["rate"], &back["samples"]), (&json!(0.0), &json!(u64::MAX)));
    }
}
