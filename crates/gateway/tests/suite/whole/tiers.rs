//! Service tiers.

use tidegate_core::policies::{Action, ActivePolicy, Scope};

use crate::whole::harness::{Gate, Origin, admin, ask, get};
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
