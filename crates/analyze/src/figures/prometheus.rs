//! Prometheus' answer to a range query: a matrix of series, each with its labels.

use serde_json::Value;

use super::Table;
use crate::log::time::epoch;

/// # Errors
/// It is an error of Prometheus, or the answer to another query.
pub(super) fn read(text: &str, table: &mut Table) -> Result<(), String> {
    let document: Value = serde_json::from_str(text).map_err(|e| format!("no valid JSON: {e}"))?;
    if document["status"] == "error" {
        let why = document["error"].as_str().unwrap_or("without a reason").escape_debug();
        return Err(format!("Prometheus answered with an error: {why}"));
    }
    // Tools that keep only the data leave out what is around it.
    let data = if document["data"].is_object() { &document["data"] } else { &document };
    let kind = data["resultType"].as_str().unwrap_or("matrix");
    if kind != "matrix" {
        return Err(format!(
            "a query of Prometheus for one instant (`{}`): expected one over time, /api/v1/query_range",
            kind.escape_debug()
        ));
    }
    let result = data["result"].as_array().ok_or("expected `data.result`, as Prometheus answers")?;
    for (number, series) in result.iter().enumerate() {
        let name = name_of(&series["metric"], number);
        for sample in series["values"].as_array().into_iter().flatten() {
            let value =
                sample[1].as_str().and_then(|text| text.parse::<f64>().ok()).or_else(|| sample[1].as_f64());
            match (sample[0].as_f64().and_then(epoch), value) {
                (Some(at), Some(value)) => _ = table.push(number, &name, at, value),
                _ => table.unparsed += 1,
            }
        }
    }
    Ok(())
}

/// `name{label=value,...}`; an expression has no name, and its series perhaps no label.
fn name_of(metric: &Value, number: usize) -> String {
    let labels: Vec<String> = metric
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(label, _)| *label != "__name__")
        .map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default()))
        .collect();
    match (metric["__name__"].as_str().unwrap_or_default(), labels.as_slice()) {
        ("", []) => format!("value{}", if number == 0 { String::new() } else { format!("-{number}") }),
        (name, []) => name.to_owned(),
        (name, labels) => format!("{name}{{{}}}", labels.join(",")),
    }
}
