//! Detectors and rules for programs: in `/v1/state` and `/metrics`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_core::detect::{Judgement, Level};
use tidegate_core::rules::{RuleConfig, RuleState, Truth};
use tidegate_core::units::Timestamp;

use crate::admin::metrics::{label, number};
use crate::control::congestion::Congestion;
use crate::control::congestion::readings::Readings;
use crate::control::driver::Control;
use tidegate_settings::kind::Named as _;
use tidegate_settings::{Detector, Watched};

/// A detector's kind as the configuration has it.
fn kind_name(detector: &Detector) -> &'static str {
    Watched::NAMES.iter().find(|(_, kind)| *kind == detector.kind).map_or("", |(name, _)| *name)
}

fn has_source(detector: &Detector) -> bool {
    matches!(detector.kind, Watched::Host | Watched::Signal)
}

/// What detectors say.
pub fn detectors(congestion: &Congestion, board: &Readings, now: Timestamp) -> Value {
    let show = |(detector, verdict, checks): (&Detector, Judgement, u64)| {
        let said = board.reading(&detector.name);
        json!({
            "name": detector.name, "kind": kind_name(detector), "level": verdict.level.name(),
            "fraction": verdict.fraction, "figure": verdict.figure, "orange": verdict.orange, "red": verdict.red,
            "checks": checks, "heard_s": said.map(|said| now.since(said.at).as_secs_f64()),
            "trouble": board.trouble(&detector.name),
        })
    };
    congestion.detectors().map(show).collect()
}

/// How rules stand.
pub fn rules(congestion: &Congestion) -> Value {
    let show = |(id, (rule, standing)): (usize, (&RuleConfig, &RuleState))| {
        json!({
            "name": &*rule.name, "enabled": rule.is_enabled, "shadow": rule.policy.is_shadow,
            "priority": rule.priority, "in_force": standing.in_force,
            "since_ms": standing.since.map(Timestamp::as_millis), "times": standing.times,
            "when": truth(standing.heard.when),
            "until": rule.has_until.then(|| truth(standing.heard.until)),
            "figures": congestion.figures_of(id),
        })
    };
    congestion.rules().enumerate().map(show).collect()
}

fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::Unknown => "unknown",
        Truth::False => "false",
        Truth::True => "true",
    }
}

/// In Prometheus's text form.
pub fn prometheus(out: &mut String, control: &Control) {
    let congestion = control.congestion();
    let name = "tidegate_detector_level";
    let _ = writeln!(out, "# HELP {name} 1 for the detector's level.\n# TYPE {name} gauge");
    for (detector, verdict, _) in congestion.detectors() {
        for level in Level::ALL {
            let (is, detector) = (u8::from(level == verdict.level), label(&detector.name));
            let _ = writeln!(out, "{name}{{detector=\"{detector}\",level=\"{}\"}} {is}", level.name());
        }
    }
    type Of = fn(&Judgement) -> Option<f64>;
    let gauges: [(&str, &str, Of); 3] = [
        ("figure", "The detector's figure, in its own unit; absent: unknown.", |v| v.figure),
        ("fraction", "The figure as a share of what is red, from 0 to 1; absent: unknown.", |v| v.fraction),
        ("red", "From this figure on the level is red; absent: not learned yet.", |v| v.red),
    ];
    for (name, help, of) in gauges {
        let name = format!("tidegate_detector_{name}");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (detector, verdict, _) in congestion.detectors() {
            if let Some(value) = of(&verdict) {
                let _ = writeln!(out, "{name}{{detector=\"{}\"}} {}", label(&detector.name), number(value));
            }
        }
    }
    let name = "tidegate_detector_checks_total";
    let _ = writeln!(out, "# HELP {name} How often the criterion was checked.\n# TYPE {name} counter");
    for (detector, _, checks) in congestion.detectors() {
        let _ = writeln!(out, "{name}{{detector=\"{}\"}} {checks}", label(&detector.name));
    }
    let name = "tidegate_detector_source_failures_total";
    let _ = writeln!(out, "# HELP {name} How often the source could not be read.\n# TYPE {name} counter");
    for (detector, ..) in congestion.detectors().filter(|(detector, ..)| has_source(detector)) {
        let failures = control.board.failures(&detector.name);
        let _ = writeln!(out, "{name}{{detector=\"{}\"}} {failures}", label(&detector.name));
    }
    for (name, kind, help) in [
        ("tidegate_rule_in_force", "gauge", "1 while the rule is in force."),
        ("tidegate_rule_shadow", "gauge", "1 if the rule is in shadow: decided and counted only."),
        ("tidegate_rule_times_total", "counter", "How often the rule came in force."),
    ] {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (rule, standing) in congestion.rules() {
            let value = match name {
                "tidegate_rule_in_force" => u64::from(standing.in_force),
                "tidegate_rule_shadow" => u64::from(rule.policy.is_shadow),
                _ => standing.times,
            };
            let _ = writeln!(out, "{name}{{rule=\"{}\"}} {value}", label(&rule.name));
        }
    }
}
