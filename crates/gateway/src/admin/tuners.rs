//! `GET /v1/tuners`: the scripts that run, and how they do.

use serde_json::{Map, Value, json};
use tidegate_core::units::Timestamp;

use super::answer::{Outcome, document};
use super::call::Call;
use super::schema::{a, list, maybe, object};
use crate::control::tuners::Status;
use tidegate_settings::json_of;

pub(super) fn get(call: &Call) -> Outcome {
    let all: Vec<Value> =
        call.control().tuners().all().iter().map(|(name, status)| show(name, status)).collect();
    Ok(document(&json!({ "tuners": all })))
}

fn show(name: &str, status: &Status) -> Value {
    let error = status.last_error.as_ref().map(|(e, at)| {
        let (line, column) = e.at.unzip();
        json!({ "at_ms": at.as_millis(), "message": e.what, "line": line, "column": column })
    });
    let change = status.last_change.as_ref().map(|(changes, at)| {
        let changes: Map<_, _> = changes.iter().map(|(name, new)| (name.clone(), json_of(new))).collect();
        json!({ "at_ms": at.as_millis(), "changes": changes })
    });
    json!({
        "name": name, "state": status.state.name(), "runs": status.runs, "errors": status.errors,
        "ran_at_ms": status.ran_at.map(Timestamp::as_millis), "last_error": error, "last_change": change,
    })
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    let tuner = object(&[
        ("name", a("string", "Its file's, without `.rhai`.")),
        (
            "state",
            a(
                "string",
                "running; failing: its last run changed nothing; stale: the file cannot be used, what it was before goes \
                 on; broken: it never could be.",
            ),
        ),
        ("runs", a("integer", "Runs since the file came, those that failed included.")),
        ("errors", a("integer", "Those that failed.")),
        ("ran_at_ms", maybe("integer", "When the last run began, in milliseconds since 1970.")),
        ("last_error", maybe("object", "`at_ms`, `message`, and `line` and `column` where they are known.")),
        ("last_change", maybe("object", "`at_ms`, and `changes`: the new values by name.")),
    ]);
    object(&[("tuners", list(tuner, "In order of their names."))])
}
