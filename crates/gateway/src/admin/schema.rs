//! The schemas of answers, derived from their types, and those of requests, against which bodies and
//! parameters are checked. So a description cannot promise what the dispatch refuses.
//!
//! Rejected: a crate for all of JSON Schema. Request bodies have three forms, and the messages are in the
//! settings' form: what was expected, what came, what was probably meant.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};

use tidegate_settings::did_you_mean;

/// Largest whole number that every reader of JSON keeps exactly (RFC 8259, 6).
pub(super) const MOST_EXACT: u64 = (1 << 53) - 1;

/// The schema of answers of the type `T`, with its doc comments as descriptions.
pub(super) fn schema_for<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.inline_subschemas = true;
    settings.into_generator().subschema_for::<T>().to_value()
}

/// An object of a request: these fields and no others, `required` of them.
pub(super) fn exactly(fields: &[(&str, Value)], required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties(fields), "required": required, "additionalProperties": false,
    })
}

fn properties(fields: &[(&str, Value)]) -> Map<String, Value> {
    fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect()
}

pub(super) fn whole_number(least: u64, most: u64, about: &str) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": about })
}

pub(super) fn why() -> Value {
    json!({ "type": "string", "maxLength": 500, "description": "Why, for the audit." })
}

pub(super) fn reason() -> Value {
    exactly(&[("why", why())], &[])
}

/// A problem (RFC 9457), described once among the document's components.
pub(super) fn problem() -> Value {
    json!({ "$ref": "#/components/schemas/Problem" })
}

pub(super) fn check(schema: &Value, value: &Value, at: &str, out: &mut Vec<Mistake>) {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_a(kind, value)) {
        return out.push(mistake(at, &kinds.join(" or "), &describe(value), None));
    }
    match value {
        Value::Number(number) => bounds(schema, number.as_f64().unwrap_or_default(), at, out),
        Value::String(text) => {
            let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
            if text.chars().count() as u64 > most {
                out.push(mistake(at, &format!("a text of at most {most} characters"), "a longer one", None));
            }
        }
        Value::Object(fields) => members(schema, fields, at, out),
        _ => {}
    }
    if let Value::Array(choices) = &schema["enum"]
        && !choices.contains(value)
    {
        let names = || choices.iter().filter_map(Value::as_str);
        let expected: Vec<String> = choices.iter().map(Value::to_string).collect();
        let hint = value.as_str().and_then(|text| did_you_mean(text, names()));
        out.push(mistake(at, &expected.join(" or "), &describe(value), hint));
    }
}

fn bounds(schema: &Value, number: f64, at: &str, out: &mut Vec<Mistake>) {
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
        let least = least.map_or_else(String::new, |least| format!(" from {least}"));
        let most = most.map_or_else(String::new, |most| format!(" to {most}"));
        out.push(mistake(at, &format!("a number{least}{most}"), &number.to_string(), None));
    }
}

fn members(schema: &Value, fields: &Map<String, Value>, at: &str, out: &mut Vec<Mistake>) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            out.push(mistake(&join(at, name), "a value", "nothing", None));
        }
    }
    let known = schema["properties"].as_object();
    if let Some(most) = schema["maxProperties"].as_u64()
        && fields.len() as u64 > most
    {
        out.push(mistake(at, &format!("at most {most} fields"), &fields.len().to_string(), None));
    }
    if let Some(least) = schema["minProperties"].as_u64()
        && (fields.len() as u64) < least
    {
        out.push(mistake(at, &format!("at least {least} field"), "none", None));
    }
    for (name, value) in fields {
        match known.and_then(|known| known.get(name)) {
            Some(schema) => check(schema, value, &join(at, name), out),
            None => match &schema["additionalProperties"] {
                Value::Bool(false) => {
                    let names = || known.into_iter().flat_map(|known| known.keys()).map(String::as_str);
                    let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                    out.push(mistake(
                        &join(at, name),
                        &format!("one of {}", all.join(", ")),
                        "an unknown name",
                        did_you_mean(name, names()),
                    ));
                }
                schema @ Value::Object(_) => check(schema, value, &join(at, name), out),
                _ => {}
            },
        }
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        // 5.0 is an integer in JSON Schema.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

/// One of a problem's `mistakes`, of the same form as those of the settings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Mistake {
    /// A settings key, field or parameter; empty: the whole.
    pub key: String,
    /// What would have been right.
    pub expected: String,
    /// What came.
    pub got: String,
    /// What was probably meant.
    pub hint: Option<String>,
}

pub(super) fn mistake(key: &str, expected: &str, got: &str, hint: Option<String>) -> Mistake {
    Mistake { key: key.into(), expected: expected.into(), got: got.into(), hint }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        Value::String(text) => tidegate_settings::tree::quoted(text),
        other => other.to_string(),
    }
}

fn join(at: &str, name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    if at.is_empty() { name } else { format!("{at}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_checked_against_its_schema() {
        let schema = exactly(
            &[
                ("rate", json!({ "type": "number", "minimum": 0, "maximum": 10 })),
                ("why", json!({ "type": "string", "maxLength": 3 })),
                (
                    "changes",
                    json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "integer" } }),
                ),
                ("kind", json!({ "type": "string", "enum": ["fifo", "lifo"] })),
            ],
            &["rate"],
        );
        for (value, wrong) in [
            (json!({ "rate": 0 }), None),
            (json!({ "rate": 10.0, "why": "äöü", "changes": { "a": 1.0 }, "kind": "lifo" }), None),
            (json!([]), Some("")),
            (json!({}), Some("rate")),
            (json!({ "rate": null }), Some("rate")),
            (json!({ "rate": -0.1 }), Some("rate")),
            (json!({ "rate": 11 }), Some("rate")),
            (json!({ "rate": true }), Some("rate")),
            (json!({ "rate": 1, "why": "long" }), Some("why")),
            (json!({ "rate": 1, "changes": {} }), Some("changes")),
            (json!({ "rate": 1, "changes": { "a": 1.5 } }), Some("changes.a")),
            (json!({ "rate": 1, "kind": "lfio" }), Some("kind")),
            (json!({ "rate": 1, "rat": 1 }), Some("rat")),
        ] {
            let mut found = Vec::new();
            check(&schema, &value, "", &mut found);
            let keys: Vec<_> = found.iter().map(|m| &*m.key).collect();
            assert_eq!(keys, wrong.into_iter().collect::<Vec<_>>(), "{value}: {found:?}");
        }
        let mut found = Vec::new();
        check(&schema, &json!({ "rate": 1, "wyh": "x" }), "", &mut found);
        assert_eq!(found[0].hint.as_deref(), Some("Did you mean `why`?"));
    }
}
