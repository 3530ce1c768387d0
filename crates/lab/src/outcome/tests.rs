//! Figures survive being written and read.

use super::*;
use crate::tally::tests::gated;

fn outcome() -> Outcome {
    let mut outcome = gated().outcome("flash \"crowd\"", Way::Sim, u64::MAX, Some("the target died".into()));
    outcome.started_us = Some(1_700_000_000_000_000);
    outcome.series[0].response_mean_ms = 0.1 + 0.2;
    outcome.series[1].capacity_rps = 1.0 / 3.0;
    outcome
}

#[test]
fn json_reads_back() {
    let outcome = outcome();
    let text = serde_json::to_string(&outcome).expect("JSON");
    assert!(text.contains(r#""way":"sim""#), "{text}");
    assert_eq!(serde_json::from_str::<Outcome>(&text).expect("as written"), outcome);
}

#[test]
fn json_of_fewer_columns_reads_back_too() {
    let text = r#"{"name":"old","way":"real","seed":1,"started_us":null,"seconds":2.5,"partial":null,
        "summary":{"offered":3},"series":[{"t":0,"offered":3}]}"#;
    let outcome: Outcome = serde_json::from_str(text).expect("an outcome");
    assert_eq!(outcome.series, [Second { t: 0, offered: 3, ..Second::default() }]);
    assert_eq!((outcome.figure("offered"), outcome.figure("no such figure")), (3.0, 0.0));
}

#[test]
fn csv_reads_back() {
    let outcome = outcome();
    let csv = outcome.csv();
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    let mut read = Vec::new();
    for line in lines {
        let values = line.split(',').map(|value| value.parse::<f64>().expect("a number"));
        let object: serde_json::Map<String, serde_json::Value> = names
            .iter()
            .zip(values)
            .map(|(name, value)| {
                let is_count = !name.ends_with("_s") && !name.ends_with("_ms") && !name.ends_with("_rps");
                let value = if is_count { serde_json::json!(value as u64) } else { serde_json::json!(value) };
                (name.to_string(), value)
            })
            .collect();
        assert_eq!(object.len(), COLUMNS.len());
        read.push(serde_json::from_value::<Second>(object.into()).expect("a second"));
    }
    assert_eq!(read, outcome.series);
}

#[test]
fn csv_has_every_column_of_the_json() {
    let json = serde_json::to_value(Second::default()).expect("JSON");
    let mut keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut columns: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    keys.sort_unstable();
    columns.sort_unstable();
    assert_eq!(keys, columns);
}
