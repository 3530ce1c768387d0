//! Figures survive being written and read.

use super::*;

#[test]
fn json_reads_back() {
    let second = Second { t: 0, offered: 3, response_mean_ms: 0.1 + 0.2, ..Second::default() };
    let outcome = Outcome {
        name: "flash".into(),
        way: Way::Sim,
        seed: 7,
        started_us: None,
        seconds: 1.5,
        partial: Some("the target died".into()),
        summary: [("offered".to_string(), 3.0)].into(),
        series: vec![second],
    };
    let text = serde_json::to_string(&outcome).expect("JSON");
    assert!(text.contains(r#""way":"sim""#), "{text}");
    assert_eq!(serde_json::from_str::<Outcome>(&text).expect("as written"), outcome);
}
