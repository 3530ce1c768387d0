//! `/v1/tunables`: keys that may change while the gate runs, read and written by name.

use http::StatusCode;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{a, exactly, list, object, why};
use crate::control::config_store::{ChangeLock, TuneError, Tuning};
use tidegate_settings::{Applied, MAX_CHANGES, Mistake, Tunable, did_you_mean, json_of, toml_of};

/// Which one.
pub(super) const NAME: Param = Param {
    name: "name",
    place: Place::Path,
    about: "Its name: the key's path, with the class's name in it.",
    schema: || json!({ "type": "string", "minLength": 1, "examples": ["queue.max_wait", "class.search.priority"] }),
};

/// Not over somebody else's change.
pub(super) const UNCHANGED: Param = Param {
    name: "If-Match",
    place: Place::Header,
    about: "Only if the settings are still those of this ETag.",
    schema: || json!({ "type": "string" }),
};

/// What every change may meet.
pub(super) const STALE: Reply =
    Reply::problem(StatusCode::PRECONDITION_FAILED, "The settings are not those of `If-Match` any more.");
/// The same.
pub(super) const REFUSED: Reply =
    Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "Names or values are wrong; nothing has changed.");
/// The same.
pub(super) const UNKNOWN: Reply = Reply::problem(StatusCode::NOT_FOUND, "There is no tunable of this name.");

/// `GET /v1/tunables`.
pub(super) fn get_all(call: &Call) -> Outcome {
    call.store().with_tuning(|tuning| {
        let live = call.shared().config.load();
        let file: Map<String, Value> = tuning.file().tunables().into_iter().map(of_file).collect();
        let shown = live.settings.tunables().into_iter().map(|tunable| {
            let file = file.get(&tunable.name).cloned().unwrap_or_default();
            show(tunable, file, tuning)
        });
        let shown: Vec<Value> = shown.collect();
        let generation = tuning.generation();
        Ok(tagged(call, generation, &json!({ "generation": generation, "tunables": shown })))
    })
}

/// `GET /v1/tunables/{name}`.
pub(super) fn get(call: &Call) -> Outcome {
    call.store().with_tuning(|tuning| one(call, tuning))
}

fn one(call: &Call, tuning: &Tuning) -> Outcome {
    let name = call.path("name");
    let live = call.shared().config.load();
    let Some(tunable) = live.settings.tunable(name) else { return Err(unknown(call)) };
    let file = tuning.file().tunable(name).map_or(Value::Null, |tunable| of_file(tunable).1);
    Ok(tagged(call, tuning.generation(), &show(tunable, file, tuning)))
}

fn unknown(call: &Call) -> Problem {
    let (live, name) = (call.shared().config.load(), call.path("name"));
    let tunables = live.settings.tunables();
    let hint = did_you_mean(name, tunables.iter().map(|tunable| tunable.name.as_str()));
    let hint = hint.unwrap_or_else(|| "`GET /v1/tunables` lists them.".into());
    Problem::not_found(format!("there is no tunable {}. {hint}", tidegate_settings::tree::quoted(name)))
}

/// `PUT /v1/tunables/{name}`.
pub(super) fn put(call: &Call) -> Outcome {
    // Until it is answered: what is shown is what was made, not what the next one has made of it.
    let alone = call.store().lock_changes();
    let name = call.path("name");
    if call.shared().config.load().settings.value_of(name).is_none() {
        return Err(unknown(call));
    }
    tune(call, &alone, &[(name, &call.body["value"])])?;
    get(call)
}

/// `DELETE /v1/tunables/{name}`: back to what the file says.
pub(super) fn delete(call: &Call) -> Outcome {
    // Nor does a reload change the file's value under it.
    let alone = call.store().lock_changes();
    let name = call.path("name");
    let file = call.store().with_tuning(|tuning| tuning.file().value_of(name));
    let Some(value) = file else { return Err(unknown(call)) };
    tune(call, &alone, &[(name, &json_of(&value))])?;
    get(call)
}

/// `PATCH /v1/tunables`: all, or none.
pub(super) fn patch(call: &Call) -> Outcome {
    let changes = call.body["changes"].as_object().into_iter().flatten();
    let changes: Vec<_> = changes.map(|(name, value)| (name.as_str(), value)).collect();
    let (applied, generation) = tune(call, &call.store().lock_changes(), &changes)?;
    let changed: Vec<_> = applied.iter().map(change).collect();
    Ok(tagged(call, generation, &json!({ "generation": generation, "changed": changed })))
}

fn tune(
    call: &Call,
    alone: &ChangeLock<'_>,
    changes: &[(&str, &Value)],
) -> Result<(Vec<Applied>, u64), Problem> {
    let texts: Result<Vec<_>, _> = changes
        .iter()
        .map(|(name, value)| toml_of(value).map(|text| (*name, text)).ok_or_else(|| no_value(name)))
        .collect();
    if call.is_illegible(&IF_MATCH) {
        return Err(Problem::bad_request("If-Match: expected tags in visible ASCII; got others"));
    }
    let expected = call.header(IF_MATCH);
    let expects = |generation| match expected {
        Some(tags) => tags.split(',').map(str::trim).any(|t| t == "*" || t == tag(call, generation)),
        None => true,
    };
    alone.tune_if(&texts?, call.by(), expects).map_err(|e| match e {
        TuneError::Mistakes(mistakes) => refused(&mistakes),
        TuneError::Stale(now) => {
            Problem::precondition("the settings have changed since; read them again before you change them")
                .with(ETAG, &tag(call, now))
        }
    })
}

fn no_value(name: &str) -> Problem {
    Problem::refused(format!(
        "{name}: expected a number, a text, true, false or an array of such; got an object or null"
    ))
}

/// Settings' mistakes as a problem.
pub(super) fn refused(mistakes: &[Mistake]) -> Problem {
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let each = mistakes
        .iter()
        .map(|m| json!({ "key": m.key, "expected": m.expected, "got": m.got, "hint": m.hint }));
    Problem::refused(lines.join("\n")).mistakes(each.collect())
}

/// Unlike any other process's, and any other state of this one.
fn tag(call: &Call, generation: u64) -> String {
    format!("\"{:x}-{generation}\"", call.api.started.as_micros())
}

fn tagged(call: &Call, generation: u64, value: &Value) -> Answer {
    let mut answer = document(value);
    let tag = HeaderValue::from_str(&tag(call, generation)).ok();
    answer.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
    answer
}

fn of_file(tunable: Tunable) -> (String, Value) {
    (tunable.name, json_of(&tunable.value))
}

fn show(tunable: Tunable, file: Value, tuning: &Tuning) -> Value {
    let tuned = tuning
        .tuned()
        .get(&tunable.name)
        .map(|tuned| json!({ "who": tuned.who, "why": tuned.why, "at_ms": tuned.at.as_millis() }));
    json!({
        "name": tunable.name, "value": json_of(&tunable.value), "file": file,
        "default": json_of(&tunable.default), "tuned": tuned,
        "expected": tunable.expected, "schema": tunable.schema, "doc": tunable.doc,
    })
}

fn change(applied: &Applied) -> Value {
    json!({ "name": applied.name, "old": json_of(&applied.old), "new": json_of(&applied.new) })
}

fn value(about: &str) -> Value {
    json!({ "type": ["number", "string", "boolean", "array"], "description": about })
}

/// What [`put`] takes.
pub(super) fn wanted() -> Value {
    exactly(&[("value", value("The value, as the tunable's `schema` has it.")), ("why", why())], &["value"])
}

/// What [`patch`] takes.
pub(super) fn changes() -> Value {
    let changes = json!({
        "type": "object", "description": "Values by name.", "minProperties": 1, "maxProperties": MAX_CHANGES,
        "additionalProperties": value("The value, as the tunable's `schema` has it."),
    });
    exactly(&[("changes", changes), ("why", why())], &["changes"])
}

/// Of [`get`].
pub(super) fn schema() -> Value {
    let tuned = json!({
        "type": ["object", "null"], "description": "Who set it, when (at_ms) and why; null: it has the file's value.",
    });
    object(&[
        ("name", a("string", "The key's path.")),
        ("value", value("In force.")),
        ("file", json!({ "description": "What the file says; null: it has no such class." })),
        ("default", value("If nobody says anything.")),
        ("tuned", tuned),
        ("expected", a("string", "What it takes, in words.")),
        ("schema", a("object", "What it takes, as JSON Schema.")),
        ("doc", a("string", "What it means.")),
    ])
}

/// Of [`get_all`].
pub(super) fn schema_of_all() -> Value {
    object(&[
        ("generation", a("integer", "How often the settings have changed since the start.")),
        ("tunables", list(schema(), "In the order of the file.")),
    ])
}

/// Of [`patch`].
pub(super) fn changed() -> Value {
    let change =
        object(&[("name", a("string", "Which.")), ("old", value("Before.")), ("new", value("Now."))]);
    object(&[
        ("generation", a("integer", "How often the settings have changed since the start.")),
        (
            "changed",
            list(change, "What was asked for; old and new are the same where nothing had to change."),
        ),
    ])
}
