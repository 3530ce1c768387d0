//! `sadf -j`: an object per instant, with an object or a list of objects for each kind of figure.

use jiff::tz::TimeZone;
use serde_json::Value;

use super::Table;
use crate::log::time::Times;

/// # Errors
/// It is no JSON, or none of sadf's.
pub(super) fn read(text: &str, zone: &TimeZone, table: &mut Table) -> Result<(), String> {
    let document: Value = serde_json::from_str(text).map_err(|e| format!("no valid JSON: {e}"))?;
    let hosts =
        document["sysstat"]["hosts"].as_array().ok_or("expected `sysstat.hosts`, as `sadf -j` writes")?;
    if hosts.len() > 1 {
        table
            .notes
            .push(format!("figures of {} hosts in one file: only those of the first were read", hosts.len()));
    }
    let instants = hosts.first().and_then(|host| host["statistics"].as_array());
    let instants = instants.ok_or("expected `statistics` of a host, as `sadf -j` writes")?;
    let mut times = Times::new(zone.clone());
    for instant in instants {
        let stamp = &instant["timestamp"];
        let (Some(date), Some(time)) = (stamp["date"].as_str(), stamp["time"].as_str()) else {
            table.unparsed += 1;
            continue;
        };
        let is_utc = stamp["utc"] == 1;
        let Some(at) = times.iso(&format!("{date}T{time}{}", if is_utc { "Z" } else { "" })) else {
            table.unparsed += 1;
            continue;
        };
        table.used_zone |= !is_utc;
        let kinds = instant.as_object().into_iter().flatten().filter(|(name, _)| *name != "timestamp");
        let mut next = 0;
        for (name, value) in kinds {
            walk(name, "", value, at, table, &mut next);
        }
    }
    Ok(())
}

/// `next` is where the series of the next value probably is: every instant has the same ones.
fn walk(name: &str, item: &str, value: &Value, at: i64, table: &mut Table, next: &mut usize) {
    match value {
        Value::Number(number) => {
            let series = if item.is_empty() { name.to_owned() } else { format!("{name}:{item}") };
            *next = table.push(*next, &series, at, number.as_f64().unwrap_or(f64::NAN)) + 1;
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                walk(&format!("{name}.{field}"), item, value, at, table, next);
            }
        }
        Value::Array(items) => {
            for of_item in items {
                let Some(fields) = of_item.as_object() else { continue };
                let label = ITEMS.iter().find(|label| fields.contains_key(**label));
                let item = label.map_or(String::new(), |label| match &fields[*label] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                for (field, value) in fields.iter().filter(|(field, _)| Some(&field.as_str()) != label) {
                    walk(&format!("{name}.{field}"), &item, value, at, table, next);
                }
            }
        }
        _ => {}
    }
}

/// Fields that tell the items of a list apart.
const ITEMS: [&str; 11] = [
    "cpu",
    "disk-device",
    "iface",
    "intr",
    "line",
    "filesystem",
    "mountpoint",
    "number",
    "bus_number",
    "hba",
    "fchost",
];
