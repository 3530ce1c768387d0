//! `GET /metrics`: all figures in Prometheus's text form (version 0.0.4). Times are in seconds, work in cost
//! units.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;

use tidegate_core::capacity::Phase;
use tidegate_core::detect::{Judgement, Level};
use tidegate_core::histogram::{Histogram, PROMETHEUS_BOUNDS};
use tidegate_core::measure::{ClassTotals, Event};
use tidegate_settings::Watched;

use super::sessions::{endings, tier_name};
use crate::config::Config;
use crate::control::driver::Control;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::counted;

/// The text form. Names are written with the prefix `tidegate_`.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.0, "# HELP tidegate_{name} {help}\n# TYPE tidegate_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        _ = write!(self.0, "tidegate_{name}");
        for (i, (label, of)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            _ = write!(self.0, "{open}{label}=\"{}\"", escaped(of));
        }
        _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of one sample. The name of a counter ends in `_total`.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.single(&format!("{name}_total"), "counter", help, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.single(name, "gauge", help, value);
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `None` is unlimited.
fn limit(limit: Option<u32>) -> String {
    limit.map_or_else(|| "+Inf".into(), |limit| limit.to_string())
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { value.to_string() }
}

pub(super) fn prometheus(control: &Control) -> String {
    let (shared, figures) = (control.shared(), control.figures());
    let mut out = Exposition(String::with_capacity(16 << 10));
    for event in Event::ALL {
        let count = figures.total.event(*event) + of_dispatch(shared, *event);
        out.counter(event.name(), event.help(), count);
    }
    counters(&mut out, control, &figures);
    gauges(&mut out, control, &figures);
    classes(&mut out, &shared.config.load(), &figures);
    replicas(&mut out, shared);
    tuners(&mut out, control);
    rule_actions(&mut out, shared);
    authorisers(&mut out, &shared.config.load());
    sessions(&mut out, shared);
    congestion(&mut out, control);
    out.0
}

/// The dispatchers' own counters, beside the workers' shards.
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

fn counters(out: &mut Exposition, control: &Control, f: &Figures) {
    let shared = control.shared();
    out.counter("origin_connects", "Connections to replicas begun.", shared.upstream(|s| &s.connects));
    out.counter("origin_reused", "Requests sent on a pooled connection.", shared.upstream(|s| &s.reused));
    let help = "How often the estimator began to look anew after it had settled.";
    out.counter("capacity_rediscoveries", help, f.rediscoveries);
    out.counter("queue_abandoned", "Requests whose visitors left the queue.", f.gate.abandoned);
    let coalescer = &shared.coalescer;
    let help = "Requests made of the origin for all who ask for a URL.";
    out.counter("multicast_upstream", help, coalescer.upstream.load(Relaxed));
    let help = "Requests answered with an answer that others have too.";
    out.counter("multicast_shared", help, coalescer.shared.load(Relaxed));
    let help = "Requests under URL multicast whose answer could not be shared.";
    out.counter("multicast_alone", help, coalescer.alone.load(Relaxed));
    let help = "Requests refused by rules, quotas and the gate.";
    out.counter("refusals", help, shared.policies.refusals.count());
    let history = control.history().health();
    out.counter("history_dropped", "Seconds of history dropped because the disk was slow.", history.dropped);
    out.counter("history_failed", "Attempts to use the history file that failed.", history.failures);
    if let Some(access) = &shared.access {
        let help = "Access log lines dropped because the disk was slow.";
        out.counter("access_log_dropped", help, access.dropped());
        out.counter("access_log_failed", "Access log lines that could not be written.", access.failed());
    }
}

fn gauges(out: &mut Exposition, control: &Control, f: &Figures) {
    let shared = control.shared();
    out.gauge("open_connections", "Visitor connections open now.", shared.connections.load(Relaxed));
    out.gauge("open_tunnels", "Upgraded connections open now.", shared.upstream(|s| &s.tunnels_open));
    let help = "Capacity in force, in cost units per second.";
    out.gauge("capacity", help, number(f.tunables.capacity.get()));
    let help = "Work that the room lets in, in cost units per second.";
    out.gauge("capacity_outflow", help, number(f.tunables.outflow.get()));
    let help = "How sure the estimator is, from 0 to 1.";
    out.gauge("capacity_confidence", help, number(f.estimate.confidence));
    let help = "Requests that the gate lets the origin work on at once.";
    out.gauge("max_in_flight", help, limit(f.tunables.max_in_flight));
    let help = "1 if more work comes than fits (docs/tuning.md defines it).";
    out.gauge("overloaded", help, u8::from(f.is_overloaded));
    out.gauge("waiting", "Visitors promised a later place.", f.room.waiting);
    out.gauge("promised_cost", "Work promised to them.", number(f.room.promised.units()));
    out.gauge("newcomer_wait_seconds", "What a newcomer would wait now.", f.room.wait.as_secs_f64());
    let help = "The schedule's hand against the clock: negative is behind.";
    out.gauge("schedule_offset_seconds", help, number(f.room.lead_s));
    let help = "Share of promised work that comes, as learned.";
    out.gauge("show_up_ratio", help, number(f.room.show_up));
    out.gauge("overbooking", "Promises per second as a multiple of capacity.", number(f.room.overbook));
    out.gauge("origin_in_flight", "Requests at the origin.", f.gate.in_flight);
    out.gauge("queued", "Admitted requests that wait for the origin.", f.gate.queued);
    let help = "Of those, requests that only their class's own limit or egress bucket holds back.";
    out.gauge("queued_held", help, f.gate.held);
    let history = control.history().health();
    let help = "1 if the history is kept in its file, 0 if it is off or in memory only.";
    out.gauge("history_on_disk", help, u8::from(history.on_disk));
    out.gauge("history_bytes", "Size of the history's file and its log.", history.bytes);
    out.family("capacity_phase", "gauge", "1 for what the estimator is doing.");
    for phase in Phase::ALL {
        out.sample("capacity_phase", &[("phase", phase.name())], u8::from(phase == f.estimate.phase));
    }
}

fn classes(out: &mut Exposition, live: &Config, f: &Figures) {
    let counted = || f.classes(live).filter_map(|class| Some((class.facts, class.totals?)));
    type Of<T> = fn(&ClassTotals) -> T;
    let counters: [(&str, &str, Of<u64>); 5] = [
        ("arrivals", "Requests that came.", |c| c.arrivals),
        ("forwarded", "Requests sent to the origin.", |c| c.forwarded),
        ("served", "Requests the origin answered below 500.", |c| c.served),
        ("origin_errors", "Requests the origin failed.", |c| c.origin_errors),
        ("client_gone", "Requests given up by their visitors.", |c| c.client_gone),
    ];
    for (name, help, get) in counters {
        let name = format!("class_{name}_total");
        out.family(&name, "counter", help);
        for (facts, totals) in counted() {
            out.sample(&name, &[("class", &facts.name)], get(&totals));
        }
    }
    let name = "class_queued";
    out.family(name, "gauge", "Requests of the class that wait for the origin.");
    for class in f.classes(live) {
        out.sample(name, &[("class", &class.facts.name)], class.load.queued);
    }
    let name = "class_in_flight";
    out.family(name, "gauge", "Requests at the origin, answers under way included.");
    for (facts, totals) in counted() {
        out.sample(name, &[("class", &facts.name)], totals.in_flight());
    }
    let name = "class_shed_total";
    out.family(name, "counter", "Requests refused on purpose, by reason.");
    for (facts, totals) in counted() {
        for (reason, n) in Event::SHED.iter().zip(totals.shed) {
            out.sample(name, &[("class", &facts.name), ("reason", reason.name())], n);
        }
    }
    type Get = fn(&ClassTotals) -> &Histogram;
    let histograms: [(&str, &str, Get); 2] = [
        ("response_seconds", "Response time of the origin.", |c| &c.response),
        ("queue_wait_seconds", "Wait of admitted requests for an in-flight slot.", |c| &c.queue_wait),
    ];
    for (name, help, get) in histograms {
        out.family(name, "histogram", help);
        for (facts, totals) in counted() {
            histogram(out, name, &facts.name, get(&totals));
        }
    }
}

fn histogram(out: &mut Exposition, name: &str, class: &str, h: &Histogram) {
    let bucket = format!("{name}_bucket");
    for bound in PROMETHEUS_BOUNDS {
        let le = bound.as_secs_f64().to_string();
        out.sample(&bucket, &[("class", class), ("le", &le)], h.at_most(bound));
    }
    out.sample(&bucket, &[("class", class), ("le", "+Inf")], h.count());
    out.sample(&format!("{name}_sum"), &[("class", class)], h.sum().as_secs_f64());
    out.sample(&format!("{name}_count"), &[("class", class)], h.count());
}

fn replicas(out: &mut Exposition, shared: &Shared) {
    let list = shared.replicas.list();
    for (name, kind, help) in [
        ("replica_in_flight", "gauge", "Requests at the replica."),
        ("replica_requests_total", "counter", "Requests sent to the replica."),
        ("replica_errors_total", "counter", "Requests the replica failed."),
        ("replica_healthy", "gauge", "1 if its health checks pass."),
    ] {
        out.family(name, kind, help);
        for replica in list.iter() {
            let value = match name {
                "replica_in_flight" => replica.in_flight() as u64,
                "replica_requests_total" => replica.requests(),
                "replica_errors_total" => replica.errors(),
                _ => u64::from(replica.is_healthy()),
            };
            out.sample(name, &[("replica", replica.authority())], value);
        }
    }
}

fn tuners(out: &mut Exposition, control: &Control) {
    let all = control.tuners().all();
    out.family("tuner_runs_total", "counter", "Runs of the tuner.");
    for (tuner, status) in &all {
        out.sample("tuner_runs_total", &[("tuner", tuner)], status.runs);
    }
    out.family("tuner_errors_total", "counter", "Runs that failed and changed nothing.");
    for (tuner, status) in &all {
        out.sample("tuner_errors_total", &[("tuner", tuner)], status.errors);
    }
}

fn rule_actions(out: &mut Exposition, shared: &Shared) {
    let all = shared.policies.ledger.all();
    let name = "rule_actions_total";
    out.family(name, "counter", "What rules did with requests and connections, by action.");
    for rule in &all {
        for done in Done::ALL {
            out.sample(name, &[("rule", &rule.name), ("action", done.name())], rule.get(done));
        }
    }
    let name = "rule_would_refuse_total";
    out.family(name, "counter", "Requests that a rule in shadow would have decided on.");
    for rule in &all {
        out.sample(name, &[("rule", &rule.name)], rule.would());
    }
}

fn authorisers(out: &mut Exposition, live: &Config) {
    let name = "application_verdicts_total";
    out.family(name, "counter", "What other applications said.");
    for one in &live.applications {
        let (application, counts) = (one.settings().name.as_str(), &one.counts);
        for (verdict, n) in [("yes", &counts.yes), ("no", &counts.no), ("none", &counts.none)] {
            out.sample(name, &[("application", application), ("verdict", verdict)], n.load(Relaxed));
        }
    }
}

/// Nothing where sessions are not counted.
fn sessions(out: &mut Exposition, shared: &Shared) {
    let Some(table) = counted(shared) else { return };
    let (live, s) = (shared.config.load(), table.state());
    out.gauge("sessions", "Admitted sessions open now.", s.count.open);
    out.gauge("sessions_known", "Sessions kept in memory, those ended early among them.", s.entries);
    out.counter("sessions_begun", "Sessions admitted.", s.count.begun);
    let help = "Sessions taken in by a pass that this process did not know.";
    out.counter("sessions_readmitted", help, s.readmitted);
    out.gauge("sessions_freed_per_second", "Places that become free, as learned.", number(s.per_s));
    let help = "1 while no place is given because requests of sessions wait at the gate.";
    out.gauge("sessions_held", help, u8::from(s.is_held));
    let help = "What the gate's queue makes of the learned number of places.";
    out.gauge("session_correction", help, number(s.correction));
    if let Some(length) = s.length_s {
        out.gauge("session_length_seconds", "How long a place is held, as learned.", number(length));
    }
    if let Some(work) = s.work {
        out.gauge("session_work", "Work of a whole session in cost units, as learned.", number(work));
    }
    let name = "sessions_ended_total";
    out.family(name, "counter", "Sessions that ended, by what ended them.");
    for (how, n) in endings(&s) {
        out.sample(name, &[("how", how)], n);
    }
    let name = "session_places_taken";
    out.family(name, "gauge", "Places taken, by whose they are.");
    for pool in &s.pools {
        out.sample(name, &[("tier", tier_name(&live, pool.tier))], pool.open);
    }
    let name = "session_places";
    out.family(name, "gauge", "Places there are; +Inf: no bound.");
    for pool in &s.pools {
        out.sample(name, &[("tier", tier_name(&live, pool.tier))], limit(pool.cap));
    }
}

fn congestion(out: &mut Exposition, control: &Control) {
    let (readings, congestion) = (control.congestion().readings(), control.congestion().lock());
    let name = "detector_level";
    out.family(name, "gauge", "1 for the detector's level.");
    for (detector, judgement, _) in congestion.detectors() {
        for level in Level::ALL {
            let labels = [("detector", detector.name.as_str()), ("level", level.name())];
            out.sample(name, &labels, u8::from(level == judgement.level));
        }
    }
    type Of = fn(&Judgement) -> Option<f64>;
    let gauges: [(&str, &str, Of); 3] = [
        ("detector_figure", "The detector's figure, in its own unit; absent: unknown.", |j| j.figure),
        ("detector_fraction", "The figure as a share of what is red, from 0 to 1; absent: unknown.", |j| {
            j.fraction
        }),
        ("detector_red", "From this figure on the level is red; absent: not learned yet.", |j| j.red),
    ];
    for (name, help, get) in gauges {
        out.family(name, "gauge", help);
        for (detector, judgement, _) in congestion.detectors() {
            if let Some(value) = get(&judgement) {
                out.sample(name, &[("detector", &detector.name)], number(value));
            }
        }
    }
    let name = "detector_checks_total";
    out.family(name, "counter", "How often the criterion was checked.");
    for (detector, _, checks) in congestion.detectors() {
        out.sample(name, &[("detector", &detector.name)], checks);
    }
    let name = "detector_source_failures_total";
    out.family(name, "counter", "How often the source could not be read.");
    for (detector, ..) in congestion.detectors() {
        if matches!(detector.kind, Watched::Host | Watched::Signal) {
            out.sample(name, &[("detector", &detector.name)], readings.failures(&detector.name));
        }
    }
    for (name, kind, help) in [
        ("rule_in_force", "gauge", "1 while the rule is in force."),
        ("rule_shadow", "gauge", "1 if the rule is in shadow: decided and counted only."),
        ("rule_times_total", "counter", "How often the rule came in force."),
    ] {
        out.family(name, kind, help);
        for (rule, state) in congestion.rules() {
            let value = match name {
                "rule_in_force" => u64::from(state.in_force),
                "rule_shadow" => u64::from(rule.policy.is_shadow),
                _ => state.times,
            };
            out.sample(name, &[("rule", &rule.name)], value);
        }
    }
}
