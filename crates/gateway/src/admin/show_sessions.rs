//! Sessions in figures: for `/metrics`, `/v1/state` and `/v1/sessions`.

use std::fmt::Write;

use serde_json::{Value, json};
use tidegate_core::policies::TierId;
use tidegate_core::session::{SessionLine, SessionsState};

use crate::admin::metrics::{label, number};
use crate::config::Config;
use crate::shared::Shared;
use crate::shared::sessions::{counted, written};
use tidegate_settings::DEFAULT;

/// A service level's name; `default`: everybody's.
pub fn tier_name(live: &Config, tier: TierId) -> &str {
    live.tiers.get(tier).map_or(DEFAULT, |tier| &*tier.name)
}

/// Everything; null: sessions are not counted here.
pub fn state(shared: &Shared) -> Value {
    let Some(table) = counted(shared) else { return Value::Null };
    let (live, s) = (shared.config.load(), table.state());
    let pools: Vec<Value> = s
        .pools
        .iter()
        .map(|pool| json!({ "tier": tier_name(&live, pool.tier), "open": pool.open, "places": pool.cap }))
        .collect();
    let ended: serde_json::Map<String, Value> =
        endings(&s).into_iter().map(|(how, n)| (how.to_owned(), n.into())).collect();
    json!({
        "open": s.count.open, "begun": s.count.begun, "readmitted": s.readmitted, "refused": s.refused,
        "ended": ended, "pools": pools, "entries": s.entries, "free_per_s": s.per_s,
        "length_s": s.length_s, "work": s.work, "held": s.is_held, "correction": s.correction,
    })
}

/// One session, for operators.
pub fn line(live: &Config, line: &SessionLine) -> Value {
    json!({
        "key": written(line.key), "tier": tier_name(live, line.tier),
        "begun_ms": line.begun.as_millis(), "last_ms": line.last.as_millis(), "requests": line.requests,
        "under_way": line.under_way,
    })
}

fn endings(s: &SessionsState) -> [(&'static str, u64); 6] {
    let e = &s.ended;
    [
        ("idle", e.idle),
        ("age", e.age),
        ("origin", e.origin),
        ("operator", e.operator),
        ("left", e.left),
        ("void", e.void),
    ]
}

/// In Prometheus's text form; nothing where sessions are not counted.
pub fn prometheus(out: &mut String, shared: &Shared) {
    let Some(table) = counted(shared) else { return };
    let (live, s) = (shared.config.load(), table.state());
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(
            out,
            "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}\ntidegate_{name} {}",
            number(value)
        );
    };
    one("sessions", "gauge", "Admitted sessions open now.", s.count.open as f64);
    one(
        "sessions_known",
        "gauge",
        "Sessions kept in memory, those ended early among them.",
        s.entries as f64,
    );
    one("sessions_begun_total", "counter", "Sessions admitted.", s.count.begun as f64);
    let help = "Sessions taken in by a pass that this process did not know.";
    one("sessions_readmitted_total", "counter", help, s.readmitted as f64);
    one("sessions_freed_per_second", "gauge", "Places that become free, as learned.", s.per_s);
    let help = "1 while no place is given because requests of sessions wait at the gate.";
    one("sessions_held", "gauge", help, f64::from(u8::from(s.is_held)));
    one(
        "session_correction",
        "gauge",
        "What the gate's queue makes of the learned number of places.",
        s.correction,
    );
    if let Some(length) = s.length_s {
        one("session_length_seconds", "gauge", "How long a place is held, as learned.", length);
    }
    if let Some(work) = s.work {
        one("session_work", "gauge", "Work of a whole session in cost units, as learned.", work);
    }
    let name = "tidegate_sessions_ended_total";
    let _ = writeln!(out, "# HELP {name} Sessions that ended, by what ended them.\n# TYPE {name} counter");
    for (how, n) in endings(&s) {
        let _ = writeln!(out, "{name}{{how=\"{how}\"}} {n}");
    }
    for (name, help) in [
        ("tidegate_session_places_taken", "Places taken, by whose they are."),
        ("tidegate_session_places", "Places there are; +Inf: no bound."),
    ] {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for pool in &s.pools {
            let value = match name.ends_with("taken") {
                true => f64::from(pool.open),
                false => pool.cap.map_or(f64::INFINITY, f64::from),
            };
            let _ =
                writeln!(out, "{name}{{tier=\"{}\"}} {}", label(tier_name(&live, pool.tier)), number(value));
        }
    }
}
