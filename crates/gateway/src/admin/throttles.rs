//! `/v1/throttles`: selective admission of request types (docs/throttles.md).

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::throttle::ThrottleId;
use tidegate_core::units::{Rate, Timestamp};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{self, exactly, why};
use crate::control::driver::Control;
use crate::control::throttles::{Action, NewThrottle, ThrottleError, ThrottleState};
use tidegate_settings::kind::parse_duration;

pub(super) const ID: Param =
    Param { name: "id", place: Place::Path, about: "Its number.", schema: || json!({ "type": "string" }) };

pub(super) const UNKNOWN: Reply =
    Reply::problem(StatusCode::NOT_FOUND, "There is no throttle of this number.");
pub(super) const WRONG: Reply =
    Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "The type or the action is wrong; nothing has changed.");
pub(super) const TOO_MANY: Reply = Reply::problem(StatusCode::CONFLICT, "There are as many as there may be.");

/// Longest time of a throttle: what is to last longer is configured.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

pub(super) fn get(call: &Call) -> Outcome {
    Ok(document(&Throttles { throttles: all(call.control()) }))
}

pub(super) fn all(control: &Control) -> Vec<ThrottleShown> {
    control.throttles().all().into_iter().map(ThrottleShown::new).collect()
}

pub(super) fn post(call: &Call) -> Outcome {
    let lasts = match call.body["for"].as_str() {
        None => None,
        Some(text) => match parse_duration(text).filter(|lasts| !lasts.is_zero() && *lasts <= LONGEST) {
            Some(lasts) => Some(lasts),
            None => return Err(wrong("for", "a duration from 1ms to 30d, like \"10m\"", text, None)),
        },
    };
    let name = call.body["type"].as_str().unwrap_or_default().to_owned();
    let wanted = NewThrottle { name, action: action(&call.body["action"])?, lasts };
    let id = call.control().throttles().put(&wanted, call.by()).map_err(|e| match e {
        ThrottleError::Wrong { key, expected, got, hint } => wrong(key, &expected, &got, hint),
        ThrottleError::TooMany => Problem::conflict(e.to_string()),
    })?;
    let put = control_shows(call, id).ok_or_else(|| Problem::conflict("its time is over already"))?;
    let mut answer = document(&put);
    *answer.status_mut() = StatusCode::CREATED;
    Ok(answer)
}

/// `{"refuse": 0.6}`, `{"rate": 19}` or `{"bandwidth": 125000}`; the bounds are those of the schema.
fn action(body: &Value) -> Result<Action, Problem> {
    let number = |name: &str| body[name].as_f64();
    match (number("refuse"), number("rate"), number("bandwidth")) {
        (Some(share), None, None) => Ok(Action::Refuse(share)),
        (None, Some(per_s), None) => Ok(Action::Rate(per_s)),
        (None, None, Some(bytes)) => Ok(Action::Bandwidth(bytes as u64)),
        _ => Err(wrong("action", "one of `refuse`, `rate` and `bandwidth`", &body.to_string(), None)),
    }
}

fn wrong(key: &str, expected: &str, got: &str, hint: Option<String>) -> Problem {
    let more = hint.as_ref().map_or(String::new(), |hint| format!(" {hint}"));
    Problem::refused(format!("{key}: expected {expected}; got {got}.{more}"))
        .mistakes(vec![schema::mistake(key, expected, got, hint)])
}

pub(super) fn delete(call: &Call) -> Outcome {
    let id = call.path("id").parse().ok().map(ThrottleId);
    let shown = id.and_then(|id| control_shows(call, id));
    match (id, shown) {
        (Some(id), Some(shown)) if call.control().throttles().remove(id, call.by()) => Ok(document(&shown)),
        _ => {
            let got = tidegate_settings::tree::quoted(call.path("id"));
            Err(Problem::not_found(format!("there is no throttle {got}. `GET /v1/throttles` lists them.")))
        }
    }
}

fn control_shows(call: &Call, id: ThrottleId) -> Option<ThrottleShown> {
    let all = call.control().throttles().all();
    all.into_iter().find(|one| one.id == id).map(ThrottleShown::new)
}

pub(super) fn wanted() -> Value {
    let of = json!({
        "type": "string", "maxLength": 300,
        "description": "The type of requests: `class:NAME`, or `path:` and a template like `/item/{n}/bids`, or a path that \
                        has it.",
    });
    let share = json!({
        "type": "number", "minimum": 0, "maximum": 1,
        "description": "This share of them is refused, evenly spread.",
    });
    let rate = json!({
        "type": "number", "minimum": 0, "maximum": Rate::MAX.get(),
        "description": "So many requests per second pass.",
    });
    let bandwidth = json!({
        "type": "integer", "minimum": 1, "maximum": schema::MOST_EXACT,
        "description": "The bodies of all their answers together get so many bytes per second.",
    });
    let mut action = exactly(&[("refuse", share), ("rate", rate), ("bandwidth", bandwidth)], &[]);
    action["minProperties"] = 1.into();
    action["maxProperties"] = 1.into();
    let lasts = json!({
        "type": ["string", "null"], "maxLength": 32,
        "description": "How long, like \"10m\"; null or left out: until it is removed.",
    });
    exactly(&[("type", of), ("action", action), ("for", lasts), ("why", why())], &["type", "action"])
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Throttles {
    /// In the order in which they were put.
    throttles: Vec<ThrottleShown>,
}

/// A throttle in force.
#[derive(Serialize, JsonSchema)]
pub(super) struct ThrottleShown {
    id: u32,
    /// The type of requests: `class:NAME` or `path:TEMPLATE`.
    #[serde(rename = "type")]
    of: String,
    action: Action,
    /// Since when, in milliseconds since 1970.
    since_ms: u64,
    /// When it ends; null: when it is removed.
    until_ms: Option<u64>,
    /// Who put it: the token's name and the peer's address, or what in the gate.
    by: String,
    /// In their own words; may be empty.
    why: String,
    /// Whether it only counts (`enforcement.shadow`).
    shadow: bool,
    /// Requests of its type since then; those of exempt service levels are not among them.
    seen: u64,
    passed: u64,
    /// Refused; in shadow, those that would have been.
    refused: u64,
    /// Bytes of answers sent within its bandwidth.
    bytes: u64,
}

impl ThrottleShown {
    fn new(state: ThrottleState) -> Self {
        Self {
            id: state.id.0,
            of: state.name.to_string(),
            action: state.action,
            since_ms: state.since.as_millis(),
            until_ms: state.until.map(Timestamp::as_millis),
            by: state.by,
            why: state.why,
            shadow: state.is_shadow,
            seen: state.counts.seen,
            passed: state.counts.passed,
            refused: state.counts.refused,
            bytes: state.counts.bytes,
        }
    }
}
