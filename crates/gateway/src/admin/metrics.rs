//! `GET /metrics`: all figures in Prometheus's text form 0.0.4. Times are in seconds, work in cost units.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::capacity::Phase;
use tidegate_core::detect::{Judgement, Level};
use tidegate_core::histogram::{Histogram, PROMETHEUS_BOUNDS, WAIT_BOUNDS};
use tidegate_core::measure::{ClassTotals, Event};
use tidegate_core::rules::{RuleConfig, RuleState};
use tidegate_settings::{Detector, Watched};

use super::sessions::{endings, tier_name};
use crate::config::Config;
use crate::control::driver::Control;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use crate::shared::policies::stats::Done;
use crate::shared::sessions::counted;
use crate::upstream::balance::Replica;

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

    /// A family of one sample for each value of a label.
    fn by<L: AsRef<str>, V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        label: &str,
        samples: impl Iterator<Item = (L, V)>,
    ) {
        self.family(name, kind, help);
        samples.for_each(|(of, value)| self.sample(name, &[(label, of.as_ref())], value));
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

fn limit(limit: Option<u32>) -> String {
    limit.map_or_else(|| "+Inf".into(), |limit| limit.to_string())
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { value.to_string() }
}

/// One metric, by its label.
const TLS_HANDSHAKES: [(Event, &str); 4] = [
    (Event::TlsHandshakesFull, "full"),
    (Event::TlsHandshakesResumed, "resumed"),
    (Event::TlsHandshakesFailed, "failed"),
    (Event::TlsHandshakesTimeout, "timeout"),
];

/// Nothing where nobody listens for TLS.
fn certificates(out: &mut Exposition, config: &Config) {
    let Some(tls) = &config.tls else { return };
    let help = "When a certificate for visitors expires, in seconds since the Unix epoch.";
    let (acme, family) = (tls.certificates().acme(), "tls_certificate_expires_timestamp_seconds");
    let of_acme = acme.shown();
    let shown = tls.certificates().of_files().iter().chain(of_acme.as_deref());
    out.by((family, "gauge", help), "certificate", shown.map(|one| (&one.name, one.certified.not_after)));
    let orders = [("issued", acme.issued.load(Relaxed)), ("failed", acme.failed.load(Relaxed))];
    let family = ("acme_orders_total", "counter", "Orders of certificates by ACME, by their result.");
    out.by(family, "result", orders.into_iter());
}

pub(super) fn prometheus(control: &Control) -> String {
    let (shared, figures) = (control.shared(), control.figures());
    let mut out = Exposition(String::with_capacity(16 << 10));
    for event in Event::ALL.iter().filter(|event| !TLS_HANDSHAKES.iter().any(|(tls, _)| tls == *event)) {
        let count = figures.total.event(*event) + of_dispatch(shared, *event);
        out.counter(event.name(), event.help(), count);
    }
    let family = ("tls_handshakes_total", "counter", "TLS handshakes with visitors, by their result.");
    let results = TLS_HANDSHAKES.iter().map(|(event, result)| (result, figures.total.event(*event)));
    out.by(family, "result", results);
    certificates(&mut out, &shared.config.load());
    counters(&mut out, control, &figures);
    gauges(&mut out, control, &figures);
    classes(&mut out, &shared.config.load(), &figures);
    tiers(&mut out, &shared.config.load(), &figures);
    replicas(&mut out, shared);
    tuners(&mut out, control);
    rule_actions(&mut out, shared);
    throttles(&mut out, control);
    authorisers(&mut out, &shared.config.load());
    accepts(&mut out, shared);
    tcp(&mut out, shared);
    sessions(&mut out, shared);
    congestion(&mut out, control);
    correlation(&mut out, control);
    kernel(&mut out, control);
    out.0
}

/// Most rules for SYNs that are shown one by one: this is written on the control thread.
const MOST_SYN_RULES: usize = 256;

/// Nothing where SYNs are not policed.
fn kernel(out: &mut Exposition, control: &Control) {
    let state = control.kernel().state();
    if state.attached.is_empty() {
        return;
    }
    let name = "syn_total";
    out.family(name, "counter", "Connection requests (SYNs) that a rule is about, by what became of them.");
    for (_, counters) in state.rules.iter().take(MOST_SYN_RULES) {
        for (result, n) in [
            ("passed", counters.passed),
            ("dropped", counters.dropped),
            ("reset", counters.reset),
            ("slowed", counters.slowed),
        ] {
            out.sample(name, &[("rule", &counters.name), ("result", result)], n);
        }
    }
    out.counter("syn_seen", "SYNs on the interfaces that are policed.", state.totals.syns);
    out.counter("syn_unmatched", "SYNs that no rule is about; they pass.", state.totals.unmatched);
    let family = ("syn_rule_rate", "gauge", "SYNs per second that the rule lets pass; +Inf: no limit.");
    let rules = state.rules.iter().take(MOST_SYN_RULES);
    out.by(family, "rule", rules.map(|(ruled, _)| (&ruled.rule.name, number(ruled.rule.rate))));
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

fn correlation(out: &mut Exposition, control: &Control) {
    let analyses = control.correlation().last_analyses();
    let help = "Share of the requests that is of types which load the figure, of the last minutes.";
    let shares = analyses.iter().map(|found| (&*found.figure, number(found.correlated_share())));
    out.by(("correlated_share", "gauge", help), "figure", shares);
    let help = "Types of requests that load the figure.";
    let culprits = analyses.iter().map(|found| (&*found.figure, found.culprits().count()));
    out.by(("correlated_types", "gauge", help), "figure", culprits);
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
    let help = "Connections of visitors and of TCP services open now.";
    out.gauge("open_connections", help, shared.connections.load(Relaxed));
    out.gauge("open_tunnels", "Upgraded connections open now.", shared.upstream(|s| &s.tunnels_open));
    out.gauge("capacity", "Capacity in force, in cost units per second.", number(f.tunables.capacity.get()));
    let help = "Work that the room lets in, in cost units per second.";
    out.gauge("capacity_outflow", help, number(f.tunables.outflow.get()));
    let help = "How sure the estimator is, from 0 to 1.";
    out.gauge("capacity_confidence", help, number(f.estimate.confidence));
    let help = "Requests that the gate lets the origin work on at once.";
    out.gauge("max_in_flight", help, limit(f.tunables.max_in_flight));
    let help = "1 if more work comes than fits (docs/tuning.md defines it).";
    out.gauge("overloaded", help, u8::from(f.is_overloaded));
    let help = "1 if rules, quotas, room and session slots only count (enforcement.shadow).";
    out.gauge("shadow", help, u8::from(control.shared().config.load().settings.enforcement.shadow));
    out.gauge("waiting", "Visitors promised a later place, and newcomers held at the gate.", f.room.waiting);
    out.gauge("waiting_present", "Of these, visitors whose page still asks.", f.room.present);
    out.gauge("promised_cost", "Work promised to them.", number(f.room.promised.units()));
    out.gauge("newcomer_wait_seconds", "What a newcomer would wait now.", f.room.wait.as_secs_f64());
    let help = "The virtual clock against real time: negative is behind.";
    out.gauge("schedule_offset_seconds", help, number(f.room.lead_s));
    out.gauge("show_up_ratio", "Share of promised work that comes, as learned.", number(f.room.show_up));
    out.gauge("overbooking", "Promises per second as a multiple of capacity.", number(f.room.overbook));
    out.gauge("origin_in_flight", "Requests at the origin.", f.gate.in_flight);
    out.gauge("queued", "Admitted requests that wait for the origin.", f.gate.queued);
    let help = "Of those, requests that only their class's own limit or egress bucket holds back.";
    out.gauge("queued_held", help, f.gate.held);
    let history = control.history().health();
    let help = "1 if the history is kept in its file, 0 if it is off or in memory only.";
    out.gauge("history_on_disk", help, u8::from(history.on_disk));
    out.gauge("history_bytes", "Size of the history's file and its log.", history.bytes);
    let phases = Phase::ALL.iter().map(|phase| (phase.name(), u8::from(*phase == f.estimate.phase)));
    out.by(("capacity_phase", "gauge", "1 for what the estimator is doing."), "phase", phases);
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
        out.by(
            (&name, "counter", help),
            "class",
            counted().map(|(facts, totals)| (&facts.name, get(&totals))),
        );
    }
    let queued = f.classes(live).map(|class| (&class.facts.name, class.load.queued));
    out.by(("class_queued", "gauge", "Requests of the class that wait for the origin."), "class", queued);
    let in_flight = counted().map(|(facts, totals)| (&facts.name, totals.in_flight()));
    let family = ("class_in_flight", "gauge", "Requests at the origin, answers under way included.");
    out.by(family, "class", in_flight);
    costs(out, live, f);
    let name = "class_shed_total";
    out.family(name, "counter", "Requests refused on purpose, by reason.");
    for (facts, totals) in counted() {
        for (reason, n) in Event::SHED.iter().zip(totals.shed) {
            out.sample(name, &[("class", &facts.name), ("reason", reason.name())], n);
        }
    }
    for Shown { name, help, bounds, get } in HISTOGRAMS {
        out.family(name, "histogram", help);
        for (facts, totals) in counted() {
            histogram(out, name, ("class", &facts.name), bounds, get(&totals));
        }
    }
}

fn costs(out: &mut Exposition, live: &Config, f: &Figures) {
    let charged = f.classes(live).map(|class| (&class.facts.name, number(class.cost.charged.units())));
    out.by(("class_cost", "gauge", "What a request is charged, in cost units."), "class", charged);
    let known = || f.classes(live).filter_map(|class| Some((&class.facts.name, class.cost.known()?)));
    let learned = known().map(|(name, cost)| (name, number(cost.units)));
    out.by(("class_learned_cost", "gauge", "What a request costs the origin, as learned."), "class", learned);
    let errors = known().map(|(name, cost)| (name, number(cost.standard_error())));
    out.by(("class_learned_cost_error", "gauge", "Standard error of the learned cost."), "class", errors);
}

/// Nothing where there are no service levels.
fn tiers(out: &mut Exposition, live: &Config, f: &Figures) {
    let all: Vec<_> = f.tiers(live).collect();
    if all.is_empty() {
        return;
    }
    type Of<T> = fn(&ClassTotals) -> T;
    let counters: [(&str, &str, Of<u64>); 5] = [
        ("arrivals", "Requests that came, by the service level they came with.", |c| c.arrivals),
        ("forwarded", "Requests of the service level sent to the origin.", |c| c.forwarded),
        ("served", "Requests of the service level that the origin answered below 500.", |c| c.served),
        ("origin_errors", "Requests of the service level that the origin failed.", |c| c.origin_errors),
        ("client_gone", "Requests of the service level given up by their visitors.", |c| c.client_gone),
    ];
    for (name, help, get) in counters {
        let samples = all.iter().map(|tier| (tier.name, get(&tier.totals)));
        out.by((&format!("tier_{name}_total"), "counter", help), "tier", samples);
    }
    let name = "tier_shed_total";
    out.family(name, "counter", "Requests of the service level refused on purpose, by reason.");
    for tier in &all {
        for (reason, n) in Event::SHED.iter().zip(tier.totals.shed) {
            out.sample(name, &[("tier", tier.name), ("reason", reason.name())], n);
        }
    }
    for Shown { name, help, bounds, get } in HISTOGRAMS {
        let name = format!("tier_{name}");
        out.family(&name, "histogram", &format!("By service level: {help}"));
        all.iter().for_each(|tier| histogram(out, &name, ("tier", tier.name), bounds, get(&tier.totals)));
    }
}

/// The histograms of each class, and with the prefix `tier_` of each service level.
const HISTOGRAMS: [Shown; 5] = [
    Shown {
        name: "response_seconds",
        help: "Response time of the origin: from the sending of the request to the end of the answer, of requests answered below 500.",
        bounds: &PROMETHEUS_BOUNDS,
        get: |c| &c.response,
    },
    Shown {
        name: "queue_wait_seconds",
        help: "Wait of admitted requests for an in-flight slot.",
        bounds: &PROMETHEUS_BOUNDS,
        get: |c| &c.queue_wait,
    },
    Shown {
        name: "visitor_response_seconds",
        help: "Response time as the visitor sees it: from the arrival of the request to the end of the answer, the wait at the gate included, of requests answered below 500.",
        bounds: &PROMETHEUS_BOUNDS,
        get: |c| &c.served_time,
    },
    Shown {
        name: "visitor_failure_seconds",
        help: "The same of requests that the origin failed, and of those that the gate refused after a wait.",
        bounds: &PROMETHEUS_BOUNDS,
        get: |c| &c.failed_time,
    },
    Shown {
        name: "waiting_seconds",
        help: "Wait of visitors who were let in after a wait: from their first arrival to the request that was let in, and of one that begins a session its wait at the gate too.",
        bounds: &WAIT_BOUNDS,
        get: |c| &c.waited,
    },
];

struct Shown {
    name: &'static str,
    help: &'static str,
    bounds: &'static [Duration],
    get: fn(&ClassTotals) -> &Histogram,
}

fn histogram(out: &mut Exposition, name: &str, of: (&str, &str), bounds: &[Duration], h: &Histogram) {
    let bucket = format!("{name}_bucket");
    for bound in bounds.iter().copied() {
        let le = bound.as_secs_f64().to_string();
        out.sample(&bucket, &[of, ("le", &le)], h.at_most(bound));
    }
    out.sample(&bucket, &[of, ("le", "+Inf")], h.count());
    out.sample(&format!("{name}_sum"), &[of], h.sum().as_secs_f64());
    out.sample(&format!("{name}_count"), &[of], h.count());
}

fn replicas(out: &mut Exposition, shared: &Shared) {
    type Get = fn(&Replica) -> u64;
    let families: [(_, Get); 4] = [
        (("replica_in_flight", "gauge", "Requests at the replica."), |r| r.in_flight() as u64),
        (("replica_requests_total", "counter", "Requests sent to the replica."), Replica::requests),
        (("replica_errors_total", "counter", "Requests the replica failed."), Replica::errors),
        (("replica_healthy", "gauge", "1 if its health checks pass."), |r| r.is_healthy().into()),
    ];
    for (family, get) in families {
        out.by(family, "replica", shared.replicas.list().iter().map(|r| (r.authority(), get(r))));
    }
}

fn tuners(out: &mut Exposition, control: &Control) {
    let all = control.tuners().all();
    let runs = all.iter().map(|(tuner, status)| (tuner, status.runs));
    out.by(("tuner_runs_total", "counter", "Runs of the tuner."), "tuner", runs);
    let errors = all.iter().map(|(tuner, status)| (tuner, status.errors));
    out.by(("tuner_errors_total", "counter", "Runs that failed and changed nothing."), "tuner", errors);
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
    let family =
        ("rule_would_refuse_total", "counter", "Requests that a rule in shadow would have decided on.");
    out.by(family, "rule", all.iter().map(|rule| (&rule.name, rule.would())));
}

fn throttles(out: &mut Exposition, control: &Control) {
    let all = control.throttles().all();
    let name = "throttle_requests_total";
    out.family(name, "counter", "Requests of a type that is throttled, by what became of them.");
    for one in &all {
        for (outcome, n) in [("passed", one.counts.passed), ("refused", one.counts.refused)] {
            out.sample(name, &[("type", &one.name), ("outcome", outcome)], n);
        }
    }
    let family =
        ("throttle_bytes_total", "counter", "Bytes of answers sent within the bandwidth of a throttle.");
    out.by(family, "type", all.iter().map(|one| (&one.name, one.counts.bytes)));
}

fn authorisers(out: &mut Exposition, live: &Config) {
    let name = "application_verdicts_total";
    out.family(name, "counter", "What other applications said.");
    for one in &live.applications {
        let (application, counts) = (one.settings.name.as_str(), &one.counts);
        for (verdict, n) in [
            ("yes", &counts.yes),
            ("no", &counts.no),
            ("none", &counts.none),
            ("unknown-name", &counts.unknown),
        ] {
            out.sample(name, &[("application", application), ("verdict", verdict)], n.load(Relaxed));
        }
    }
}

fn accepts(out: &mut Exposition, shared: &Shared) {
    let accepted = shared.accepts.by_priority();
    let accepted = accepted.iter().enumerate().map(|(priority, n)| (priority.to_string(), n));
    let help = "Connections accepted, of visitors and of TCP services, by priority (0 first).";
    out.by(("accepted_total", "counter", help), "priority", accepted);
    let waiting = shared.accepts.waiting();
    let waiting = waiting.iter().enumerate().map(|(priority, n)| (priority.to_string(), n));
    let help = "Connections that wait in the kernel to be accepted, by priority.";
    out.by(("accept_queue", "gauge", help), "priority", waiting);
}

/// Nothing where there are no TCP services.
fn tcp(out: &mut Exposition, shared: &Shared) {
    let services: Vec<_> = shared.tcp.list().iter().map(|one| (one.name(), one.clone())).collect();
    if services.is_empty() {
        return;
    }
    let open = services.iter().map(|(name, one)| (name, one.figures.open.load(Relaxed)));
    let family = ("tcp_connections", "gauge", "Connections of the TCP service that are open now.");
    out.by(family, "listener", open);
    let name = "tcp_connections_total";
    out.family(name, "counter", "Connections of the TCP service, by what became of them.");
    for (listener, one) in &services {
        let of = &one.figures;
        for (result, n) in [("relayed", &of.relayed), ("refused", &of.refused), ("failed", &of.failed)] {
            out.sample(name, &[("listener", listener), ("result", result)], n.load(Relaxed));
        }
    }
    let name = "tcp_bytes_total";
    out.family(name, "counter", "Bytes relayed: in from visitors, out to visitors.");
    for (listener, one) in &services {
        for (direction, n) in [("in", &one.figures.bytes_in), ("out", &one.figures.bytes_out)] {
            out.sample(name, &[("listener", listener), ("direction", direction)], n.load(Relaxed));
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
    let family = ("sessions_ended_total", "counter", "Sessions that ended, by what ended them.");
    out.by(family, "how", endings(&s).into_iter());
    let taken = s.pools.iter().map(|pool| (tier_name(&live, pool.tier), pool.open));
    out.by(("session_places_taken", "gauge", "Places taken, by whose they are."), "tier", taken);
    let places = s.pools.iter().map(|pool| (tier_name(&live, pool.tier), limit(pool.cap)));
    out.by(("session_places", "gauge", "Places there are; +Inf: no bound."), "tier", places);
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
    let now = control.shared().clock.now();
    let help = "Last reading of the detector's source, in its own unit, not averaged; absent: unknown.";
    let known = congestion.seconds(now).filter_map(|(d, second)| Some((&d.name, number(second.reading?))));
    out.by(("detector_reading", "gauge", help), "detector", known);
    type Of = fn(&Judgement) -> Option<f64>;
    let gauges: [(&str, &str, Of); 3] = [
        ("detector_figure", "The detector's figure, in its own unit; absent: unknown.", |j| j.figure),
        ("detector_fraction", "The figure as a share of what is red, from 0 to 1; absent: unknown.", |j| {
            j.fraction
        }),
        ("detector_red", "From this figure on the level is red; absent: not learned yet.", |j| j.red),
    ];
    for (name, help, get) in gauges {
        let known = congestion.detectors().filter_map(|(d, j, _)| Some((&d.name, number(get(&j)?))));
        out.by((name, "gauge", help), "detector", known);
    }
    let checks = congestion.detectors().map(|(detector, _, checks)| (&detector.name, checks));
    let family = ("detector_checks_total", "counter", "How often the criterion was checked.");
    out.by(family, "detector", checks);
    let has_source = |detector: &&Detector| matches!(detector.kind, Watched::Host | Watched::Signal);
    let with_source = congestion.detectors().map(|(detector, ..)| detector).filter(has_source);
    let failures = with_source.map(|detector| (&detector.name, readings.failures(&detector.name)));
    let family = ("detector_source_failures_total", "counter", "How often the source could not be read.");
    out.by(family, "detector", failures);
    type Get = fn(&RuleConfig, &RuleState) -> u64;
    let families: [(_, Get); 3] = [
        (("rule_in_force", "gauge", "1 while the rule is in force."), |_, state| state.in_force.into()),
        (("rule_shadow", "gauge", "1 if the rule is in shadow: decided and counted only."), |rule, _| {
            rule.policy.is_shadow.into()
        }),
        (("rule_times_total", "counter", "How often the rule came in force."), |_, state| state.times),
    ];
    for (family, get) in families {
        out.by(family, "rule", congestion.rules().map(|(rule, state)| (&rule.name, get(rule, state))));
    }
    let following = congestion.rules().filter(|(rule, _)| rule.follows_level);
    let family = ("rule_share", "gauge", "Share of the visitors that a rule which follows a level is for.");
    out.by(family, "rule", following.map(|(rule, state)| (&rule.name, number(state.share))));
}
