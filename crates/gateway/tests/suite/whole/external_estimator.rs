//! An estimator outside the gate: its capacity is in force for as long as it says, over a restart too. The
//! example is run as it is shipped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::whole::harness::{Gate, Origin, Scripted, api, reply, until};

const EXAMPLE: &str = include_str!("../../../../../examples/external-estimator.toml");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/external_estimator.py");
const FIXED: &str = "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nestimator = \"fixed\"\n";

/// Ended when dropped.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn capacity(gate: &Gate) -> Value {
    gate.admin("/v1/capacity")
}

fn wait_for(gate: &Gate, good: impl Fn(&Value) -> bool) -> Value {
    let is_good = |answer: &str| good(&serde_json::from_str(answer).expect("JSON"));
    let last = until(|| capacity(gate).to_string(), is_good);
    serde_json::from_str(&last).expect("JSON")
}

fn set(gate: &Gate, body: &str) -> String {
    api(gate, "PUT", "/v1/capacity", "", body)
}

#[test]
fn the_example_sets_the_capacity_and_the_gate_forgets_it_when_the_service_is_silent() {
    static IS_SILENT: AtomicBool = AtomicBool::new(false);
    let service = Scripted::start(|_, _, stream| {
        let status = if IS_SILENT.load(Ordering::SeqCst) { "503 Service Unavailable" } else { "200 OK" };
        reply(stream, status, "", "{\"workers\": 8, \"seconds_per_request\": 0.08}");
    });
    let origin = Origin::start();
    let gate = Gate::start(&origin, &EXAMPLE.replace("10.0.0.5:8000", "ORIGIN"));
    let first = capacity(&gate);
    assert!(first["rate"].as_f64().is_some_and(|rate| rate <= 250.0), "not unlimited: {first}");
    assert_eq!((&first["phase"], &first["expires_at_ms"]), (&"searching".into(), &Value::Null), "{first}");

    let url = |address| format!("http://{address}");
    let arguments = [url(service.address), url(gate.admin), "0.3".into()];
    let script = Command::new("python3").arg(SCRIPT).args(arguments).stderr(Stdio::null()).spawn();
    let _script = Script(script.expect("python3"));
    let told = wait_for(&gate, |now| now["phase"] == "configured");
    assert_eq!((&told["rate"], &told["reason"]), (&90.0.into(), &"as set".into()), "{told}");
    // It is said again and again, for longer each time.
    wait_for(&gate, |now| now["expires_at_ms"].as_u64() > told["expires_at_ms"].as_u64());
    IS_SILENT.store(true, Ordering::SeqCst);
    let forgotten = wait_for(&gate, |now| now["phase"] == "searching");
    assert_eq!(forgotten["expires_at_ms"], Value::Null, "{forgotten}");
    IS_SILENT.store(false, Ordering::SeqCst);
    wait_for(&gate, |now| now["rate"] == 90.0);
}

/// A gate whose state directory has this capacity.
fn with_saved(origin: &Origin, toml: &str, saved: &[u8]) -> Gate {
    let write = |state: &Path| {
        std::fs::create_dir_all(state).unwrap();
        std::fs::write(state.join("learned.json"), saved).unwrap();
        Vec::new()
    };
    Gate::start_with(origin, toml, write)
}

#[test]
fn a_capacity_with_a_time_to_live_outlives_the_process() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, FIXED);
    let saved = || std::fs::read(gate.state().join("learned.json")).unwrap_or_default();
    assert!(set(&gate, r#"{"rate": 7, "ttl_s": 3600}"#).starts_with("HTTP/1.1 200"));
    let before = capacity(&gate);
    until(|| String::from_utf8(saved()).unwrap(), |saved| saved.contains("\"rate\":7.0"));
    let bytes = saved();
    let again = with_saved(&origin, FIXED, &bytes);
    let after = capacity(&again);
    for key in ["rate", "outflow", "phase", "reason", "expires_at_ms"] {
        assert_eq!((&after[key], key), (&before[key], key), "{after}");
    }
    assert_eq!(again.server().shared().admission.capacity().get(), 7.0, "before the first request");
    // Where the capacity is discovered, or the time is over, or nothing sensible stands there.
    let text = String::from_utf8(bytes.clone()).unwrap();
    let until_ms = before["expires_at_ms"].to_string();
    let late = text.replace(&until_ms, "1000").into_bytes();
    let far = text.replace(&until_ms, "99999999999999").into_bytes();
    let discovers = FIXED.replace("fixed", "bottleneck");
    for (toml, saved) in [(&*discovers, &*bytes), (FIXED, &late), (FIXED, &far), (FIXED, b""), (FIXED, b"7 ")]
    {
        let fresh = capacity(&with_saved(&origin, toml, saved));
        assert_eq!(
            (&fresh["phase"], &fresh["expires_at_ms"]),
            (&"searching".into(), &Value::Null),
            "{fresh}"
        );
    }
    // Without a time to live it holds until another is set.
    assert!(set(&gate, r#"{"rate": 9}"#).starts_with("HTTP/1.1 200"));
    assert_eq!((&capacity(&gate)["rate"], &capacity(&gate)["expires_at_ms"]), (&9.0.into(), &Value::Null));
    let forever = "\"rate\":9.0,\"configured\":null,\"until_ms\":null";
    until(|| String::from_utf8(saved()).unwrap(), |saved| saved.contains(forever));
    for wrong in
        [r#"{"rate": 7, "ttl_s": 0}"#, r#"{"rate": 7, "ttl_s": "1m"}"#, r#"{"rate": 7, "ttl_s": 1e9}"#]
    {
        assert!(set(&gate, wrong).starts_with("HTTP/1.1 400"), "{wrong}");
    }
}
