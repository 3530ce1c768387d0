//! Health, figures, and what ends or renews the process's work.

use serde_json::{Value, json};

use super::answer::{Outcome, Problem, document, text, whole};
use super::dispatch::Call;
use super::schema::{a, list, maybe, object};
use super::sessions;
use crate::admin::metrics;
use tidegate_settings::Change;

/// Prometheus's media type.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn healthz(_: &Call) -> Outcome {
    Ok(text("ok\n"))
}

pub(super) fn readyz(call: &Call) -> Outcome {
    let shared = &call.control.shared;
    if shared.is_draining() {
        Err(Problem::unavailable("draining"))
    } else if !shared.has_somewhere_to_go(&shared.config.load().settings.role) {
        Err(Problem::unavailable("no replica of the origin is usable"))
    } else {
        Ok(text("ready\n"))
    }
}

pub(super) fn metrics(call: &Call) -> Outcome {
    Ok(whole(PROMETHEUS, metrics::prometheus(&call.control)))
}

pub(super) fn state(call: &Call) -> Outcome {
    Ok(document(&metrics::state(&call.control)))
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
        ("sessions", sessions::state()),
        ("detectors", list(detector(), "What may be congested: docs/rules.md.")),
        ("rules", list(rule(), "What follows, in the order of the file.")),
    ])
}

/// One of the detectors.
fn detector() -> Value {
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
fn rule() -> Value {
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
    match call.control.reload_by(call.by()) {
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
    call.control.drain_by(call.by());
    Ok(document(&json!({ "draining": true })))
}

/// Of [`drain`].
pub(super) fn draining() -> Value {
    object(&[("draining", a("boolean", "True."))])
}

pub(super) fn feedback(call: &Call) -> Outcome {
    match crate::control::feedback::receive(&call.control, &call.body) {
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

/// Of [`feedback`].
pub(super) fn orders() -> Value {
    object(&[
        ("capacity", a("number", "Cost units per second.")),
        ("hand_us", a("integer", "Where the schedule stands, in microseconds since 1970.")),
    ])
}
