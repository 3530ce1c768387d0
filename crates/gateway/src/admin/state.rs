//! Health, figures, and what ends or renews the process's work.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::detect::Judgement;
use tidegate_core::rules::{RuleConfig, RuleState, Truth};
use tidegate_core::units::Timestamp;

use super::answer::{Outcome, Problem, document, stream, text, whole};
use super::call::Call;
use super::listeners::{MAX_LISTENERS, event};
use super::metrics;
use super::route::{Param, Place};
use super::schema::{a, list, maybe, object, whole_number};
use super::sessions;
use crate::control::capacity::finite;
use crate::control::congestion::Congestion;
use crate::control::congestion::readings::Readings;
use crate::control::driver::Control;
use crate::control::feedback;
use crate::shared::coalesce::Coalescer;
use crate::shared::figures::ClassShown;
use tidegate_settings::kind::Named as _;
use tidegate_settings::{Change, Detector, Watched};

/// Prometheus's media type.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn healthz(_: &Call) -> Outcome {
    Ok(text("ok\n"))
}

pub(super) fn readyz(call: &Call) -> Outcome {
    let shared = call.shared();
    if shared.is_draining() {
        Err(Problem::unavailable("draining"))
    } else if !shared.has_somewhere_to_go(&shared.config.load().settings.role) {
        Err(Problem::unavailable("no replica of the origin is usable"))
    } else {
        Ok(text("ready\n"))
    }
}

pub(super) fn metrics(call: &Call) -> Outcome {
    Ok(whole(PROMETHEUS, metrics::prometheus(call.control())))
}

pub(super) fn state(call: &Call) -> Outcome {
    Ok(document(&document_of(call.control())))
}

pub(super) const EVERY: Param = Param {
    name: "every",
    place: Place::Query,
    about: "Seconds between two events; 1 if not given.",
    schema: || whole_number(1, 3600, "Seconds."),
};

/// The media type of the events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

pub(super) fn events(call: &Call) -> Outcome {
    if call.shared().is_draining() {
        return Err(Problem::unavailable("draining"));
    }
    let every = call.query_integer("every").map_or(1, |every| every as u32).max(1);
    let now = event(&document_of(call.control()));
    let parts = call.api.listeners.listen(every, call.aged.clone(), now);
    let parts = parts.ok_or_else(|| Problem::unavailable(format!("{MAX_LISTENERS} listen already")))?;
    Ok(stream(EVENT_STREAM, parts))
}

/// Everything at a glance.
pub(super) fn document_of(control: &Control) -> Value {
    let f = control.figures();
    let live = control.shared().config.load();
    let total = f.window.total();
    let congestion = control.congestion().lock();
    let classes: Vec<Value> = f
        .classes(&live)
        .filter_map(|class| {
            let (ClassShown { id, facts, queued, in_flight, .. }, counts) = (&class, class.totals.as_ref()?);
            let now = f.window.class(*id);
            Some(json!({
                "name": &*facts.name, "cost": facts.cost.units(), "waits": facts.waits || live.all_navigations,
                "offered_per_s": now.offered_per_s, "admitted_per_s": now.admitted_per_s,
                "goodput_per_s": now.goodput_per_s, "response_p99_ms": ms(now.response.p99),
                "arrivals": counts.arrivals, "served": counts.served, "errors": counts.origin_errors,
                "queued": queued, "in_flight": in_flight,
            }))
        })
        .collect();
    let replicas: Vec<Value> = control
        .shared()
        .replicas
        .list()
        .iter()
        .map(|r| {
            json!({
                "address": r.authority(), "healthy": r.is_healthy(), "in_flight": r.in_flight(),
                "requests": r.requests(), "errors": r.errors(),
            })
        })
        .collect();
    json!({
        "at_ms": f.at.as_millis(),
        "draining": control.shared().is_draining(),
        "overloaded": f.is_overloaded,
        "offered_per_s": total.offered_per_s,
        "admitted_per_s": total.admitted_per_s,
        "goodput_per_s": total.goodput_per_s,
        "response_ms": { "mean": ms(total.response.mean), "p50": ms(total.response.p50), "p99": ms(total.response.p99) },
        "capacity": {
            "rate": finite(f.tunables.capacity), "outflow": finite(f.tunables.outflow),
            "max_in_flight": f.tunables.max_in_flight, "estimator": live.settings.estimator(),
            "phase": f.estimate.phase.name(), "confidence": f.estimate.confidence,
        },
        "room": {
            "waiting": f.room.waiting, "promised": f.room.promised.units(),
            "newcomer_wait_s": f.room.wait.as_secs_f64(), "schedule_offset_s": f.room.lead_s,
            "show_up_ratio": f.room.show_up, "overbooking": f.room.overbook,
        },
        "gate": { "in_flight": f.gate.in_flight, "queued": f.gate.queued, "held": f.gate.held },
        "connections": control.shared().connections.load(Relaxed),
        "classes": classes,
        "replicas": replicas,
        "detectors": detectors(&congestion, control.congestion().readings(), f.at),
        "rules": rules(&congestion),
        "enforced": control.shared().policies.ledger.json(),
        "multicast": multicast(&control.shared().coalescer),
        "sessions": sessions::state(control.shared()),
    })
}

fn multicast(m: &Coalescer) -> Value {
    let (urls, bytes) = m.size();
    json!({
        "urls": urls, "bytes": bytes, "upstream": m.upstream.load(Relaxed),
        "shared": m.shared.load(Relaxed), "alone": m.alone.load(Relaxed),
    })
}

fn ms(time: Option<Duration>) -> Option<f64> {
    time.map(|t| t.as_secs_f64() * 1000.0)
}

/// A detector's kind as the configuration has it.
fn kind_name(detector: &Detector) -> &'static str {
    Watched::NAMES.iter().find(|(_, kind)| *kind == detector.kind).map_or("", |(name, _)| *name)
}

/// What detectors say.
fn detectors(congestion: &Congestion, readings: &Readings, now: Timestamp) -> Value {
    let show = |(detector, verdict, checks): (&Detector, Judgement, u64)| {
        let said = readings.reading(&detector.name);
        json!({
            "name": detector.name, "kind": kind_name(detector), "level": verdict.level.name(),
            "fraction": verdict.fraction, "figure": verdict.figure, "orange": verdict.orange, "red": verdict.red,
            "checks": checks, "heard_s": said.map(|said| now.since(said.at).as_secs_f64()),
            "trouble": readings.trouble(&detector.name),
        })
    };
    congestion.detectors().map(show).collect()
}

/// How rules stand.
fn rules(congestion: &Congestion) -> Value {
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

/// Of [`state`].
pub(super) fn schema() -> Value {
    let rate = |about| a("number", about);
    let class = object(&[
        ("name", a("string", "Its name.")),
        ("cost", a("number", "Its work, in cost units.")),
        ("waits", a("boolean", "Whether it meets the room.")),
        ("queued", a("integer", "Requests that wait for a place at the origin.")),
        ("in_flight", a("integer", "Requests at the origin now.")),
        ("offered_per_s", rate("Requests that came, per second.")),
        ("admitted_per_s", rate("Requests sent to the origin, per second.")),
        ("goodput_per_s", rate("Requests served, per second.")),
        ("response_p99_ms", maybe("number", "99th percentile of the origin's response time.")),
        ("arrivals", a("integer", "Requests that came since the start.")),
        ("served", a("integer", "Requests served since the start.")),
        ("errors", a("integer", "Requests the origin failed since the start.")),
    ]);
    let replica = object(&[
        ("address", a("string", "HOST:PORT.")),
        ("healthy", a("boolean", "Whether its checks pass.")),
        ("in_flight", a("integer", "Requests there now.")),
        ("requests", a("integer", "Requests sent to it since the start.")),
        ("errors", a("integer", "Requests it failed since the start.")),
    ]);
    let enforced = object(&[
        ("name", a("string", "The rule.")),
        ("actions", a("object", "Requests and connections since the start, by action.")),
        ("would_refuse", a("integer", "Requests that it would have decided on, had it not been in shadow.")),
    ]);
    object(&[
        ("at_ms", a("integer", "When, in milliseconds since 1970.")),
        ("draining", a("boolean", "Whether the process ends.")),
        ("overloaded", a("boolean", "Whether more work comes than fits: docs/tuning.md.")),
        ("offered_per_s", rate("Requests that came, per second.")),
        ("admitted_per_s", rate("Requests sent to the origin, per second.")),
        ("goodput_per_s", rate("Requests served, per second.")),
        ("response_ms", a("object", "Mean, p50 and p99 of the origin's response time; null: no answer.")),
        ("capacity", a("object", "What is in force: see /v1/capacity.")),
        ("room", a("object", "The waiting room.")),
        ("gate", a("object", "Requests at the origin, and those that wait for a place there.")),
        ("connections", a("integer", "Visitor connections open now.")),
        (
            "classes",
            list(
                class,
                "In the order of the file, the default class last; then those removed of whom somebody is left.",
            ),
        ),
        ("replicas", list(replica, "By replica.")),
        ("enforced", list(enforced, "By rule that was in force since the start.")),
        (
            "multicast",
            a(
                "object",
                "URLs and bytes kept; requests that shared an answer, that could not, and those made for all.",
            ),
        ),
        ("sessions", sessions::schema_of_state()),
        ("detectors", list(schema_of_detector(), "What may be congested: docs/rules.md.")),
        ("rules", list(schema_of_rule(), "What follows, in the order of the file.")),
    ])
}

/// One of the detectors.
fn schema_of_detector() -> Value {
    object(&[
        ("name", a("string", "Its name.")),
        ("kind", a("string", "What it looks at.")),
        ("level", a("string", "green, orange, red or unknown.")),
        ("figure", maybe("number", "What it measured, in its own unit.")),
        ("fraction", maybe("number", "The figure as a share of what is red, from 0 to 1.")),
        ("orange", maybe("number", "From here on it is orange.")),
        ("red", maybe("number", "From here on it is red.")),
        ("checks", a("integer", "How often it was checked.")),
        ("heard_s", maybe("number", "How long ago its source said something.")),
        ("trouble", maybe("string", "Why its source cannot be heard.")),
    ])
}

/// One of the rules.
fn schema_of_rule() -> Value {
    object(&[
        ("name", a("string", "Its name.")),
        ("enabled", a("boolean", "Whether it may hold.")),
        ("shadow", a("boolean", "Whether it is decided and counted only.")),
        ("priority", a("integer", "Higher comes first.")),
        ("in_force", a("boolean", "Whether it holds.")),
        (
            "since_ms",
            maybe("integer", "Since when it does, or does not, in milliseconds since 1970; null: the start."),
        ),
        ("times", a("integer", "How often it came in force.")),
        ("when", a("string", "What its condition is now: true, false or unknown.")),
        ("until", maybe("string", "The same of `until`; null: there is none.")),
        ("figures", a("string", "The figures it goes by.")),
    ])
}

pub(super) fn reload(call: &Call) -> Outcome {
    match call.store().reload_by(call.by()) {
        Ok(changes) => Ok(document(&json!({ "changed": changes.iter().map(change).collect::<Vec<_>>() }))),
        Err(e) => Err(Problem::refused(e.to_string())),
    }
}

fn change(change: &Change) -> Value {
    json!({ "key": change.key, "old": change.old, "new": change.new, "needs_restart": change.restart })
}

/// Of [`reload`].
pub(super) fn reloaded() -> Value {
    let change = object(&[
        ("key", a("string", "The full key.")),
        ("old", maybe("string", "The old value as TOML; null: there was none.")),
        ("new", maybe("string", "The new value as TOML; null: there is none.")),
        ("needs_restart", a("boolean", "Whether it takes effect with the next start only.")),
    ]);
    object(&[("changed", list(change, "What differs from what was in force."))])
}

pub(super) fn drain(call: &Call) -> Outcome {
    call.control().drain_by(call.by());
    Ok(document(&json!({ "draining": true })))
}

/// Of [`drain`].
pub(super) fn draining() -> Value {
    object(&[("draining", a("boolean", "True."))])
}

pub(super) fn take_feedback(call: &Call) -> Outcome {
    match feedback::receive(call.shared(), &call.body) {
        Ok(orders) => Ok(document(&orders)),
        Err(e) => Err(Problem::bad_request(e)),
    }
}

/// A report: its form is checked by its reader, which knows the forms of other versions.
pub(super) fn report() -> Value {
    let mut report = object(&[
        ("admitted", a("integer", "Work admitted, in hundredths of a cost unit.")),
        ("queued", a("integer", "Work that waits for the origin, in the same.")),
        ("shown", a("array", "Tickets shown: [SECOND, WORK].")),
    ]);
    report["description"] = json!("As written by a tokencheck process, which may tell more.");
    report
}

/// Of [`take_feedback`].
pub(super) fn orders() -> Value {
    object(&[
        ("capacity", a("number", "Cost units per second.")),
        ("hand_us", a("integer", "Where the schedule stands, in microseconds since 1970.")),
    ])
}
