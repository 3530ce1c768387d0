//! `/v1/tunables`: keys that may change while the gate runs, read and written by name.

use std::collections::HashMap;

use http::StatusCode;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{self, exactly, why};
use crate::control::config_store::{ChangeLock, TuneError, Tuning};
use tidegate_settings::{Applied, MAX_CHANGES, Mistake, Tunable, did_you_mean, json_of, toml_of};

pub(super) const NAME: Param = Param {
    name: "name",
    place: Place::Path,
    about: "Its name: the key's path, with the class's name in it.",
    schema: || json!({ "type": "string", "minLength": 1, "examples": ["queue.max_wait", "class.search.priority"] }),
};

/// Guards against overwriting another client's change.
pub(super) const UNCHANGED: Param = Param {
    name: "If-Match",
    place: Place::Header,
    about: "Only if the settings are still those of this ETag.",
    schema: || json!({ "type": "string" }),
};

pub(super) const STALE: Reply =
    Reply::problem(StatusCode::PRECONDITION_FAILED, "The settings are not those of `If-Match` any more.");
pub(super) const REFUSED: Reply =
    Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "Names or values are wrong; nothing has changed.");
pub(super) const UNKNOWN: Reply = Reply::problem(StatusCode::NOT_FOUND, "There is no tunable of this name.");

pub(super) fn get_all(call: &Call) -> Outcome {
    call.store().with_tuning(|tuning| {
        let live = call.shared().config.load();
        let file: HashMap<_, _> = tuning.file.tunables().into_iter().map(|t| (t.name, t.value)).collect();
        let tunables = live.settings.tunables().into_iter().map(|tunable| {
            let file = file.get(&tunable.name).map(String::as_str);
            TunableShown::new(tunable, file, tuning)
        });
        let (tunables, generation) = (tunables.collect(), tuning.generation);
        Ok(tagged(call, generation, &All { generation, tunables }))
    })
}

pub(super) fn get(call: &Call) -> Outcome {
    call.store().with_tuning(|tuning| one(call, tuning))
}

fn one(call: &Call, tuning: &Tuning) -> Outcome {
    let name = call.path("name");
    let live = call.shared().config.load();
    let Some(tunable) = live.settings.tunable(name) else { return Err(unknown(call)) };
    let file = tuning.file.tunable(name).map(|tunable| tunable.value);
    Ok(tagged(call, tuning.generation, &TunableShown::new(tunable, file.as_deref(), tuning)))
}

fn unknown(call: &Call) -> Problem {
    let (live, name) = (call.shared().config.load(), call.path("name"));
    let tunables = live.settings.tunables();
    let hint = did_you_mean(name, tunables.iter().map(|tunable| tunable.name.as_str()));
    let hint = hint.unwrap_or_else(|| "`GET /v1/tunables` lists them.".into());
    Problem::not_found(format!("there is no tunable {}. {hint}", tidegate_settings::tree::quoted(name)))
}

pub(super) fn put(call: &Call) -> Outcome {
    // Held until the answer is made, so that it shows this change and not the next one.
    let lock = call.store().lock_changes();
    let name = call.path("name");
    if call.shared().config.load().settings.value_of(name).is_none() {
        return Err(unknown(call));
    }
    tune(call, &lock, &[(name, &call.body["value"])])?;
    get(call)
}

/// `DELETE /v1/tunables/{name}`: back to what the file says.
pub(super) fn delete(call: &Call) -> Outcome {
    // A reload must not change the file's value meanwhile.
    let lock = call.store().lock_changes();
    let name = call.path("name");
    let file = call.store().with_tuning(|tuning| tuning.file.value_of(name));
    let Some(value) = file else { return Err(unknown(call)) };
    tune(call, &lock, &[(name, &json_of(&value))])?;
    get(call)
}

/// `PATCH /v1/tunables`: all, or none.
pub(super) fn patch(call: &Call) -> Outcome {
    let changes = call.body["changes"].as_object().into_iter().flatten();
    let changes: Vec<_> = changes.map(|(name, value)| (name.as_str(), value)).collect();
    let (applied, generation) = tune(call, &call.store().lock_changes(), &changes)?;
    let changed = applied.into_iter().map(|Applied { name, old, new }| Change {
        name,
        old: Setting::new(&old),
        new: Setting::new(&new),
    });
    Ok(tagged(call, generation, &Changed { generation, changed: changed.collect() }))
}

fn tune(
    call: &Call,
    lock: &ChangeLock<'_>,
    changes: &[(&str, &Value)],
) -> Result<(Vec<Applied>, u64), Problem> {
    let texts: Result<Vec<_>, _> = changes
        .iter()
        .map(|(name, value)| toml_of(value).map(|text| (*name, text)).ok_or_else(|| no_value(name)))
        .collect();
    tune_texts(call, lock, &texts?)
}

/// Changes tunables to values that are TOML.
pub(super) fn tune_texts<N: AsRef<str>>(
    call: &Call,
    lock: &ChangeLock<'_>,
    texts: &[(N, String)],
) -> Result<(Vec<Applied>, u64), Problem> {
    if call.is_illegible(&IF_MATCH) {
        return Err(Problem::bad_request("If-Match: expected tags in visible ASCII; got others"));
    }
    let expected = call.header(IF_MATCH);
    let expects = |generation| match expected {
        Some(tags) => tags.split(',').map(str::trim).any(|t| t == "*" || t == tag(call, generation)),
        None => true,
    };
    lock.tune_if(texts, call.by(), expects).map_err(|e| match e {
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

pub(super) fn refused(mistakes: &[Mistake]) -> Problem {
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let each = mistakes.iter().map(|m| schema::mistake(&m.key, &m.expected, &m.got, m.hint.clone()));
    Problem::refused(lines.join("\n")).mistakes(each.collect())
}

/// Differs for every process and every state of its settings.
fn tag(call: &Call, generation: u64) -> String {
    format!("\"{:x}-{generation}\"", call.api.started.as_micros())
}

fn tagged(call: &Call, generation: u64, shown: &impl Serialize) -> Answer {
    let mut answer = document(shown);
    let tag = HeaderValue::from_str(&tag(call, generation)).ok();
    answer.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
    answer
}

fn value(about: &str) -> Value {
    json!({ "type": ["number", "string", "boolean", "array"], "description": about })
}

pub(super) fn wanted() -> Value {
    exactly(&[("value", value("The value, as the tunable's `schema` has it.")), ("why", why())], &["value"])
}

pub(super) fn changes() -> Value {
    let changes = json!({
        "type": "object", "description": "Values by name.", "minProperties": 1, "maxProperties": MAX_CHANGES,
        "additionalProperties": value("The value, as the tunable's `schema` has it."),
    });
    exactly(&[("changes", changes), ("why", why())], &["changes"])
}

/// A value of a setting.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("type" = ["number", "string", "boolean", "array"]))]
struct Setting(Value);

impl Setting {
    fn new(toml: &str) -> Self {
        Self(json_of(toml))
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct All {
    /// How often the settings have changed since the start.
    generation: u64,
    /// In the order of the file.
    tunables: Vec<TunableShown>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct TunableShown {
    /// The key's path.
    name: String,
    /// In force.
    value: Setting,
    /// What the file says; null: it has no such class.
    file: Option<Setting>,
    /// If nobody says anything.
    default: Setting,
    /// Who set it, when and why; null: it has the file's value.
    tuned: Option<Tuned>,
    /// The rule that has set it; it is taken back when the rule ends. Null: none has.
    rule: Option<String>,
    /// What it takes, in words.
    expected: String,
    /// What it takes, as JSON Schema.
    #[schemars(extend("type" = "object"))]
    schema: Value,
    /// What it means.
    doc: String,
}

#[derive(Serialize, JsonSchema)]
struct Tuned {
    who: String,
    why: String,
    at_ms: u64,
}

impl TunableShown {
    fn new(tunable: Tunable, file: Option<&str>, tuning: &Tuning) -> Self {
        let Tunable { name, value, default, expected, schema, doc } = tunable;
        let tuned = tuning.tuned().get(&name).map(|tuned| Tuned {
            who: tuned.who.clone(),
            why: tuned.why.clone(),
            at_ms: tuned.at.as_millis(),
        });
        let (value, file, default) = (Setting::new(&value), file.map(Setting::new), Setting::new(&default));
        let rule = tuning.set_by(&name).map(str::to_owned);
        Self { name, value, file, default, tuned, rule, expected, schema, doc }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Changed {
    /// How often the settings have changed since the start.
    generation: u64,
    /// As requested; old and new are equal where nothing changed.
    changed: Vec<Change>,
}

#[derive(Serialize, JsonSchema)]
struct Change {
    name: String,
    old: Setting,
    new: Setting,
}
