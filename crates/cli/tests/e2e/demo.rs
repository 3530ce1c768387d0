//! `tidegate demo`: a crowd at a service alone, and at the same service behind the real gate.

use std::process::Stdio;

use serde_json::Value;

use super::harness::tidegate;

#[test]
fn the_service_collapses_alone_and_serves_the_crowd_behind_the_gate() {
    // 500 visitors in less than half a second, at a service that needs ten seconds for them.
    let output = tidegate()
        .args(["demo", "--capacity", "50", "--factor", "25", "--crowd", "0.4", "--json"])
        .stdin(Stdio::null())
        .output()
        .expect("tidegate demo");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {errors}", output.status);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{errors}"));
    let figure =
        |key: &str| report.pointer(key).and_then(Value::as_f64).unwrap_or_else(|| panic!("{key}: {report}"));
    let of_both = |name: &str| (figure(&format!("/direct/{name}")), figure(&format!("/gated/{name}")));

    let (alone, behind_the_gate) = of_both("offered");
    assert!(alone > 400.0 && alone == behind_the_gate, "the same crowd: {report}");
    assert!(figure("/direct/failed") > 0.0 && figure("/direct/wasted") > 0.0, "it collapses: {report}");
    assert_eq!((figure("/gated/failed"), figure("/gated/served")), (0.0, alone), "{report}");
    assert!(figure("/gated/waited") > 0.0, "{report}");
    let (alone, behind_the_gate) = of_both("goodput_rps");
    assert!(behind_the_gate > alone, "{report}");
    assert!(figure("/found/capacity_rps") > 0.0, "{report}");
}
