//! `GET /v1/tuners`: the tuner scripts and their state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tidegate_core::units::Timestamp;

use super::answer::{Outcome, document};
use super::call::Call;
use crate::control::tuners;
use tidegate_settings::json_of;

pub(super) fn get(call: &Call) -> Outcome {
    let all = call.control().tuners().all();
    Ok(document(&Tuners { tuners: all.into_iter().map(Tuner::new).collect() }))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Tuners {
    /// In order of their names.
    tuners: Vec<Tuner>,
}

#[derive(Serialize, JsonSchema)]
struct Tuner {
    /// Its file's, without `.rhai`.
    name: String,
    /// running; failing (last run), stale (file; the old one runs), broken (file).
    state: &'static str,
    /// Runs since the file came, those that failed included.
    runs: u64,
    /// Those that failed.
    errors: u64,
    /// When the last run began, in milliseconds since 1970.
    ran_at_ms: Option<u64>,
    last_error: Option<LastError>,
    last_change: Option<LastChange>,
}

#[derive(Serialize, JsonSchema)]
struct LastError {
    at_ms: u64,
    message: String,
    /// Of the script; null: unknown.
    line: Option<usize>,
    column: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct LastChange {
    at_ms: u64,
    /// The new values by name.
    changes: BTreeMap<String, Value>,
}

impl Tuner {
    fn new((name, status): (String, tuners::Status)) -> Self {
        let last_error = status.last_error.map(|tuners::LastError { error, at }| {
            let (line, column) = error.at.unzip();
            LastError { at_ms: at.as_millis(), message: error.what, line, column }
        });
        let last_change = status.last_change.map(|tuners::LastChange { changes, at }| LastChange {
            at_ms: at.as_millis(),
            changes: changes.into_iter().map(|(name, new)| (name, json_of(&new))).collect(),
        });
        let ran_at_ms = status.ran_at.map(Timestamp::as_millis);
        let (state, runs, errors) = (status.state.name(), status.runs, status.errors);
        Self { name, state, runs, errors, ran_at_ms, last_error, last_change }
    }
}
