//! `GET /metrics`: all figures in Prometheus's text form.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_core::capacity::Phase;
use tidegate_core::detect::{Judgement, Level};
use tidegate_core::histogram::{Histogram, PROMETHEUS_BOUNDS};
use tidegate_core::measure::Event;

use super::sessions::{endings, tier_name};
use crate::config::Config;
use crate::control::driver::Control;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use crate::shared::sessions::counted;
use tidegate_settings::{Detector, Watched};

/// Everything in Prometheus's text form (version 0.0.4). Times in seconds, work in cost units.
pub(super) fn prometheus(control: &Control) -> String {
    let figures = control.figures();
    let mut out = String::with_capacity(16 << 10);
    for event in Event::ALL {
        let name = event.name();
        let _ = writeln!(
            out,
            "# HELP tidegate_{name}_total {}\n# TYPE tidegate_{name}_total counter",
            event.help()
        );
        let count = figures.total.event(*event) + of_dispatch(control.shared(), *event);
        let _ = writeln!(out, "tidegate_{name}_total {count}");
    }
    extra_counters(&mut out, control, &figures);
    gauges(&mut out, control, &figures);
    classes(&mut out, control, &figures);
    replicas(&mut out, control);
    tuners(&mut out, control);
    control.shared().policies.ledger.prometheus(&mut out, label);
    applications(&mut out, control);
    sessions(&mut out, control.shared());
    congestion(&mut out, control);
    out
}

fn applications(out: &mut String, control: &Control) {
    let live = control.shared().config.load();
    let name = "tidegate_application_verdicts_total";
    let _ = writeln!(out, "# HELP {name} What other applications said.\n# TYPE {name} counter");
    for one in &live.applications {
        let counts = &one.counts;
        for (verdict, n) in [("yes", &counts.yes), ("no", &counts.no), ("none", &counts.none)] {
            let (application, n) = (label(&one.settings().name), n.load(Relaxed));
            let _ = writeln!(out, "{name}{{application=\"{application}\",verdict=\"{verdict}\"}} {n}");
        }
    }
}

/// What the dispatchers count themselves, beside the workers' shards.
fn of_dispatch(shared: &Shared, event: Event) -> u64 {
    match event {
        Event::Retries => shared.upstream(|s| &s.retries),
        Event::RetryBudgetEmpty => shared.upstream(|s| &s.retry_budget_empty),
        Event::StaleConnection => shared.upstream(|s| &s.stale_connection),
        Event::UpgradeBytes => {
            shared.upstream(|s| &s.tunnel_bytes_up) + shared.upstream(|s| &s.tunnel_bytes_down)
        }
        _ => 0,
    }
}

fn extra_counters(out: &mut String, control: &Control, figures: &Figures) {
    let shared = control.shared();
    let mut counter = |name: &str, help: &str, value: u64| {
        let _ = writeln!(
            out,
            "# HELP tidegate_{name}_total {help}\n# TYPE tidegate_{name}_total counter\ntidegate_{name}_total {value}"
        );
    };
    counter("origin_connects", "Connections to replicas begun.", shared.upstream(|s| &s.connects));
    counter("origin_reused", "Requests sent on a pooled connection.", shared.upstream(|s| &s.reused));
    counter(
        "capacity_rediscoveries",
        "How often the estimator began to look anew after it had settled.",
        figures.rediscoveries,
    );
    counter("queue_abandoned", "Requests whose visitors left the queue.", figures.gate.abandoned);
    let multicast = &shared.coalescer;
    let n = multicast.upstream.load(Relaxed);
    counter("multicast_upstream", "Requests made of the origin for all who ask for a URL.", n);
    let n = multicast.shared.load(Relaxed);
    counter("multicast_shared", "Requests answered with an answer that others have too.", n);
    let n = multicast.alone.load(Relaxed);
    counter("multicast_alone", "Requests under URL multicast whose answer could not be shared.", n);
    counter("refusals", "Requests refused by rules, quotas and the gate.", shared.policies.refusals.count());
    let history = control.history().health();
    counter("history_dropped", "Seconds of history dropped because the disk was slow.", history.dropped);
    counter("history_failed", "Attempts to use the history file that failed.", history.failures);
    if let Some(access) = &shared.access {
        counter(
            "access_log_dropped",
            "Access log lines dropped because the disk was slow.",
            access.dropped(),
        );
        counter("access_log_failed", "Access log lines that could not be written.", access.failed());
    }
}

fn gauges(out: &mut String, control: &Control, f: &Figures) {
    let connections = control.shared().connections.load(Relaxed);
    let mut gauge = |name: &str, help: &str, value: f64| {
        let _ = writeln!(
            out,
            "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} gauge\ntidegate_{name} {}",
            number(value)
        );
    };
    gauge("open_connections", "Visitor connections open now.", connections as f64);
    gauge(
        "open_tunnels",
        "Upgraded connections open now.",
        control.shared().upstream(|s| &s.tunnels_open) as f64,
    );
    gauge("capacity", "Capacity in force, in cost units per second.", f.tunables.capacity.get());
    gauge(
        "capacity_outflow",
        "Work that the room lets in, in cost units per second.",
        f.tunables.outflow.get(),
    );
    gauge("capacity_confidence", "How sure the estimator is, from 0 to 1.", f.estimate.confidence);
    gauge(
        "max_in_flight",
        "Requests that the gate lets the origin work on at once.",
        f.tunables.max_in_flight.map_or(f64::INFINITY, f64::from),
    );
    gauge(
        "overloaded",
        "1 if more work comes than fits (docs/tuning.md defines it).",
        f64::from(u8::from(f.is_overloaded)),
    );
    gauge("waiting", "Visitors promised a later place.", f.room.waiting as f64);
    gauge("promised_cost", "Work promised to them.", f.room.promised.units());
    gauge("newcomer_wait_seconds", "What a newcomer would wait now.", f.room.wait.as_secs_f64());
    gauge(
        "schedule_offset_seconds",
        "The schedule's hand against the clock: negative is behind.",
        f.room.lead_s,
    );
    gauge("show_up_ratio", "Share of promised work that comes, as learned.", f.room.show_up);
    gauge("overbooking", "Promises per second as a multiple of capacity.", f.room.overbook);
    gauge("origin_in_flight", "Requests at the origin.", f.gate.in_flight as f64);
    gauge("queued", "Admitted requests that wait for the origin.", f.gate.queued as f64);
    gauge(
        "queued_held",
        "Of those, requests that only their class's own limit or egress bucket holds back.",
        f.gate.held as f64,
    );
    let history = control.history().health();
    gauge(
        "history_on_disk",
        "1 if the history is kept in its file, 0 if it is off or in memory only.",
        f64::from(u8::from(history.on_disk)),
    );
    gauge("history_bytes", "Size of the history's file and its log.", history.bytes as f64);
    let _ = writeln!(
        out,
        "# HELP tidegate_capacity_phase 1 for what the estimator is doing.\n# TYPE tidegate_capacity_phase gauge"
    );
    for phase in Phase::ALL {
        let is = u8::from(phase == f.estimate.phase);
        let _ = writeln!(out, "tidegate_capacity_phase{{phase=\"{}\"}} {is}", phase.name());
    }
}

/// As the text form writes it.
fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { value.to_string() }
}

fn classes(out: &mut String, control: &Control, f: &Figures) {
    let live = control.shared().config.load();
    let known = || f.classes(&live).filter_map(|class| Some((class.facts, class.totals?)));
    let mut family = |name: &str, help: &str, get: &dyn Fn(&tidegate_core::measure::ClassTotals) -> u64| {
        let _ = writeln!(
            out,
            "# HELP tidegate_class_{name}_total {help}\n# TYPE tidegate_class_{name}_total counter"
        );
        for (facts, totals) in known() {
            let _ = writeln!(
                out,
                "tidegate_class_{name}_total{{class=\"{}\"}} {}",
                label(&facts.name),
                get(&totals)
            );
        }
    };
    family("arrivals", "Requests that came.", &|c| c.arrivals);
    family("forwarded", "Requests sent to the origin.", &|c| c.forwarded);
    family("served", "Requests the origin answered below 500.", &|c| c.served);
    family("origin_errors", "Requests the origin failed.", &|c| c.origin_errors);
    family("client_gone", "Requests given up by their visitors.", &|c| c.client_gone);
    let name = "tidegate_class_queued";
    let _ =
        writeln!(out, "# HELP {name} Requests of the class that wait for the origin.\n# TYPE {name} gauge");
    for class in f.classes(&live) {
        let _ = writeln!(out, "{name}{{class=\"{}\"}} {}", label(&class.facts.name), class.queued);
    }
    in_flight_and_shed(out, &live, f);
    for (name, help) in [
        ("response_seconds", "Response time of the origin."),
        ("queue_wait_seconds", "Wait of admitted requests for a place at the origin."),
    ] {
        let _ = writeln!(out, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} histogram");
        for (facts, totals) in known() {
            let h = if name.starts_with('r') { &totals.response } else { &totals.queue_wait };
            histogram(out, name, &label(&facts.name), h);
        }
    }
}

fn in_flight_and_shed(out: &mut String, live: &Config, f: &Figures) {
    let name = "tidegate_class_in_flight";
    let _ = writeln!(
        out,
        "# HELP {name} Requests at the origin, answers under way included.\n# TYPE {name} gauge"
    );
    let known = || f.classes(live).filter_map(|class| Some((class.facts, class.totals?)));
    for (facts, totals) in known() {
        let _ = writeln!(out, "{name}{{class=\"{}\"}} {}", label(&facts.name), totals.in_flight());
    }
    let name = "tidegate_class_shed_total";
    let _ = writeln!(out, "# HELP {name} Requests refused on purpose, by reason.\n# TYPE {name} counter");
    for (facts, totals) in known() {
        for (reason, n) in Event::SHED.iter().zip(totals.shed) {
            let class = label(&facts.name);
            let _ = writeln!(out, "{name}{{class=\"{class}\",reason=\"{}\"}} {n}", reason.name());
        }
    }
}

fn histogram(out: &mut String, name: &str, class: &str, h: &Histogram) {
    for bound in PROMETHEUS_BOUNDS {
        let (le, n) = (bound.as_secs_f64(), h.at_most(bound));
        let _ = writeln!(out, "tidegate_{name}_bucket{{class=\"{class}\",le=\"{le}\"}} {n}");
    }
    let _ = writeln!(out, "tidegate_{name}_bucket{{class=\"{class}\",le=\"+Inf\"}} {}", h.count());
    let _ = writeln!(out, "tidegate_{name}_sum{{class=\"{class}\"}} {}", h.sum().as_secs_f64());
    let _ = writeln!(out, "tidegate_{name}_count{{class=\"{class}\"}} {}", h.count());
}

fn replicas(out: &mut String, control: &Control) {
    let list = control.shared().replicas.list();
    for (name, kind, help) in [
        ("replica_in_flight", "gauge", "Requests at the replica."),
        ("replica_requests_total", "counter", "Requests sent to the replica."),
        ("replica_errors_total", "counter", "Requests the replica failed."),
        ("replica_healthy", "gauge", "1 if its health checks pass."),
    ] {
        let _ = writeln!(out, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
        for replica in list.iter() {
            let value = match name {
                "replica_in_flight" => replica.in_flight() as u64,
                "replica_requests_total" => replica.requests(),
                "replica_errors_total" => replica.errors(),
                _ => u64::from(replica.is_healthy()),
            };
            let _ = writeln!(out, "tidegate_{name}{{replica=\"{}\"}} {value}", label(replica.authority()));
        }
    }
}

fn tuners(out: &mut String, control: &Control) {
    let all = control.tuners().all();
    for (name, help) in [("runs", "Runs of the tuner."), ("errors", "Runs that failed and changed nothing.")]
    {
        let _ = writeln!(
            out,
            "# HELP tidegate_tuner_{name}_total {help}\n# TYPE tidegate_tuner_{name}_total counter"
        );
        for (tuner, status) in &all {
            let value = if name == "runs" { status.runs } else { status.errors };
            let _ = writeln!(out, "tidegate_tuner_{name}_total{{tuner=\"{}\"}} {value}", label(tuner));
        }
    }
}

/// Escaped as the text form asks.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nothing where sessions are not counted.
fn sessions(out: &mut String, shared: &Shared) {
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

fn has_source(detector: &Detector) -> bool {
    matches!(detector.kind, Watched::Host | Watched::Signal)
}

fn congestion(out: &mut String, control: &Control) {
    let (readings, congestion) = (control.congestion().readings(), control.congestion().lock());
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
        let failures = readings.failures(&detector.name);
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
