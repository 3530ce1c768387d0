//! `/v1/signals`: readings from other applications, for detectors of kind "signal" (WAC 3.1 h).

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{exactly, why};
use crate::base::audit::Entry;
use crate::control::congestion::look::as_figure;
use tidegate_settings::kind::parse_duration;
use tidegate_settings::{Detector, Watched, did_you_mean};

pub(super) const NAME: Param = Param {
    name: "name",
    place: Place::Path,
    about: "The detector's name.",
    schema: || json!({ "type": "string", "minLength": 1, "maxLength": 64 }),
};

pub(super) const UNKNOWN: Reply =
    Reply::problem(http::StatusCode::NOT_FOUND, "There is no detector of kind \"signal\" of this name.");

pub(super) fn put(call: &Call) -> Outcome {
    let detector = find(call)?;
    let value = as_figure(&call.body["value"]).ok_or_else(|| {
        Problem::bad_request(
            "value: expected a number, true, false, \"green\", \"orange\" or \"red\"; got another text",
        )
    })?;
    let good_for = match call.body["ttl"].as_str() {
        None => detector.time_to_live,
        Some(text) => parse_duration(text)
            .ok_or_else(|| Problem::bad_request("ttl: expected a duration like \"30s\"; got another text"))?,
    };
    say(call, &detector, value, good_for.min(detector.time_to_live))
}

pub(super) fn delete(call: &Call) -> Outcome {
    let detector = find(call)?;
    say(call, &detector, 0.0, Duration::ZERO)
}

fn find(call: &Call) -> Result<Detector, Problem> {
    let (live, name) = (call.shared().config.load(), call.path("name"));
    let signals = || live.plan.detectors.iter().filter(|detector| detector.kind == Watched::Signal);
    signals().find(|detector| detector.name == name).cloned().ok_or_else(|| {
        let hint = did_you_mean(name, signals().map(|detector| detector.name.as_str()));
        let hint = hint.unwrap_or_else(|| "A [[detector]] of kind \"signal\" makes one.".into());
        Problem::not_found(format!("there is no signal {}. {hint}", tidegate_settings::tree::quoted(name)))
    })
}

/// Whether the figure is beyond the orange and the red threshold.
fn beyond(detector: &Detector, value: f64) -> [bool; 2] {
    let is_set = detector.orange > 0.0 || detector.red > 0.0;
    let (orange, red) = if is_set { (detector.orange, detector.red) } else { (0.5, 1.0) };
    let is_less_worse = red > 0.0 && red < orange;
    [orange, red].map(|bound| bound > 0.0 && if is_less_worse { value <= bound } else { value >= bound })
}

/// Records only figures that cross a threshold in the audit: one that always moves would fill it.
fn say(call: &Call, detector: &Detector, value: f64, good_for: Duration) -> Outcome {
    let (readings, name) = (call.control().congestion().readings(), detector.name.as_str());
    let now = call.shared().clock.now();
    let holds = |reading: tidegate_core::detect::Reading| now.since(reading.at) < reading.good_for;
    let before = readings.reading(name).filter(|reading| holds(*reading)).map(|reading| reading.value);
    readings.say(name, value, now, good_for);
    let after = (!good_for.is_zero()).then_some(value);
    let news = |value: Option<f64>| value.map(|value| beyond(detector, value));
    if news(before) != news(after) {
        let key = Some(format!("signal.{name}"));
        let entry = Entry { action: "signal", key, old: json!(before), new: json!(after) };
        call.record(entry, now);
    }
    Ok(document(&Signal { name: name.into(), value: after, good_for_s: good_for.as_secs_f64() }))
}

pub(super) fn said() -> Value {
    let value = json!({
        "type": ["number", "boolean", "string"],
        "description": "A figure, or true (1), false (0), \"green\" (0), \"orange\" (0.5), \"red\" (1).",
    });
    let ttl = json!({
        "type": "string", "maxLength": 32,
        "description": "For how long it holds, like \"30s\"; at most, and if it is left out, the detector's `time_to_live`.",
    });
    exactly(&[("value", value), ("ttl", ttl), ("why", why())], &["value"])
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Signal {
    /// The detector's.
    name: String,
    /// What it says; null: nothing.
    value: Option<f64>,
    /// For how many seconds that holds.
    good_for_s: f64,
}
