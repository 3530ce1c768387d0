//! Service tiers.

use tidegate_core::policies::{Action, ActivePolicy, Scope};

use crate::whole::harness::{Gate, Origin, admin, ask, get, until};
use crate::whole::policies::{publish, refuse};

const LEVELS: &str = r#"
[origin]
replicas = ["ORIGIN"]
[capacity]
rate = 1
[[class]]
name = "fast"
[[tier]]
name = "gold"
class = "fast"
skip_room = true
rate = 0.001
burst = 3
# printf %s gold-key | sha256sum
[tier.api_key]
sha256 = "HASH"
"#;

fn with_key(gate: &Gate) -> String {
    ask(gate.http, "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: gold-key\r\nConnection: close\r\n\r\n")
}

#[test]
fn a_tier_skips_the_room_and_the_rules_and_has_a_quota() {
    let hash = "6163937e6547cc2853a333d323496f4d5608b3958a3bd3939752708bc9cb0feb";
    let origin = Origin::start();
    let gate = Gate::start(&origin, &LEVELS.replace("HASH", hash));
    assert!((0..20).any(|_| get(gate.http, "/", "a=b").contains("set-cookie: tg")), "the room is in use");
    assert!(with_key(&gate).ends_with("served"));
    let spared = Scope { spared: 1 << 1, ..Scope::default() };
    publish(&gate, vec![ActivePolicy { scope: spared, ..refuse(Action::Answer { status: 418 }) }]);
    assert!(get(gate.http, "/", "").starts_with("HTTP/1.1 418"));
    assert!(with_key(&gate).ends_with("served"));
    publish(&gate, Vec::new());
    assert!(with_key(&gate).ends_with("served"));
    let beyond = with_key(&gate);
    assert!(beyond.starts_with("HTTP/1.1 429") && beyond.contains("retry-after: "), "{beyond}");
    let state = admin(&gate, "/v1/state");
    assert!(state.contains("\"name\":\"fast\""), "{state}");
}

#[test]
fn every_tier_has_figures_of_its_own() {
    let level = |name: &str, net: &str| format!("[[tier]]\nname = \"{name}\"\nclient = \"{net}\"\n");
    let base = "[origin]\nreplicas = [\"ORIGIN\"]\n[proxy]\ntrusted = \"127.0.0.1\"\n";
    let both = format!("{base}{}{}", level("gold", "192.0.2.0/24"), level("crew", "198.51.100.0/24"));
    let origin = Origin::start();
    let gate = Gate::start_from_file(&origin, &both);
    let visit = |client: &str, times: usize| {
        for _ in 0..times {
            let fields = format!("X-Forwarded-For: {client}\r\nConnection: close");
            assert!(
                ask(gate.http, &format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n")).ends_with("served")
            );
        }
    };
    let served = || -> Vec<(String, u64)> {
        let state = gate.admin("/v1/state");
        let one = |tier: &serde_json::Value| {
            (
                tier["name"].as_str().unwrap_or_default().to_owned(),
                tier["served"].as_u64().unwrap_or_default(),
            )
        };
        state["tiers"].as_array().expect("a list").iter().map(one).collect()
    };
    let is = |wanted: &[(&str, u64)]| {
        let wanted: Vec<_> = wanted.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        until(|| format!("{:?}", served()), |seen| seen == format!("{wanted:?}"));
    };
    visit("192.0.2.1", 3);
    visit("198.51.100.1", 2);
    visit("203.0.113.1", 1);
    is(&[("default", 1), ("gold", 3), ("crew", 2)]);
    let metrics = admin(&gate, "/metrics");
    for line in [
        "tidegate_tier_arrivals_total{tier=\"gold\"} 3\n",
        "tidegate_tier_served_total{tier=\"crew\"} 2\n",
        "tidegate_tier_response_seconds_count{tier=\"gold\"} 3\n",
        "tidegate_tier_queue_wait_seconds_bucket{tier=\"default\",le=\"+Inf\"} 1\n",
        "tidegate_tier_shed_total{tier=\"gold\",reason=\"queue_full\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    // In the history, beside the classes.
    let kept = || {
        let history = gate.admin("/v1/history?metric=goodput&tier=gold");
        let rows = history["rows"].as_array().expect("rows");
        rows.iter().filter_map(|row| row[1].as_f64()).sum::<f64>()
    };
    until(|| (kept() > 0.0).to_string(), |is_kept| is_kept == "true");
    let one = gate.admin("/v1/history?metric=response_p95&tier=gold");
    assert_eq!((&one["tier"], &one["class"]), (&serde_json::json!("gold"), &serde_json::Value::Null));
    assert!(gate.admin("/v1/history")["tiers"].to_string().contains("\"crew\""));
    // After a reload an id may be another level's. Its counts are then not.
    gate.reload(
        &origin,
        &format!("{base}{}{}", level("crew", "198.51.100.0/24"), level("new", "192.0.2.0/24")),
    );
    visit("192.0.2.1", 1);
    visit("198.51.100.1", 1);
    is(&[("default", 1), ("crew", 1), ("new", 1)]);
}

#[test]
fn without_tiers_there_are_no_figures_of_tiers() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, "[origin]\nreplicas = [\"ORIGIN\"]\n");
    assert!(get(gate.http, "/", "").ends_with("served"));
    assert!(!admin(&gate, "/metrics").contains("tidegate_tier_"));
    assert_eq!(gate.admin("/v1/state")["tiers"], serde_json::json!([]));
}
