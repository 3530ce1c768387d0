//! Health, metrics, the state document and its events, reload, drain, and the report of a tokencheck.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::class_costs::{CostSource, LEARNED_FROM};
use tidegate_core::measure::{Figures as WindowFigures, Times};
use tidegate_core::rules::Truth;
use tidegate_core::units::Timestamp;

use super::answer::{Outcome, Problem, document, stream, text, whole};
use super::call::Call;
use super::capacity::InForce;
use super::listeners::{MAX_LISTENERS, event};
use super::metrics;
use super::route::{Param, Place};
use super::schema::whole_number;
use super::sessions::{self, SessionsShown};
use super::throttles::{self, ThrottleShown};
use crate::config::Config;
use crate::control::congestion::Congestion;
use crate::control::congestion::readings::Readings;
use crate::control::driver::Control;
use crate::control::feedback;
use crate::shared::Shared;
use crate::shared::coalesce::Coalescer;
use crate::shared::figures::{ClassShown, CostFigures, Figures, TierShown};
use crate::shared::policies::stats::Done;
use crate::upstream::balance;
use tidegate_settings::kind::Named as _;
use tidegate_settings::{Change, Detector, Watched};

pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn healthz(_: &Call) -> Outcome {
    Ok(text("ok\n"))
}

pub(super) fn readyz(call: &Call) -> Outcome {
    let (shared, config) = (call.shared(), call.shared().config.load());
    if shared.is_draining() {
        Err(Problem::unavailable("draining"))
    } else if !config.settings.is_for_tcp_only() && !shared.has_somewhere_to_go(&config.settings.role) {
        Err(Problem::unavailable("no replica of the origin is usable"))
    } else {
        Ok(text("ready\n"))
    }
}

pub(super) fn metrics(call: &Call) -> Outcome {
    Ok(whole(PROMETHEUS, metrics::prometheus(call.control())))
}

pub(super) fn state(call: &Call) -> Outcome {
    Ok(document(&State::new(call.control())))
}

pub(super) const EVERY: Param = Param {
    name: "every",
    place: Place::Query,
    about: "Seconds between two events; 1 if not given.",
    schema: || whole_number(1, 3600, "Seconds."),
};

pub(super) const EVENT_STREAM: &str = "text/event-stream";

pub(super) fn events(call: &Call) -> Outcome {
    if call.shared().is_draining() {
        return Err(Problem::unavailable("draining"));
    }
    let every = call.query_integer("every").map_or(1, |every| every as u32).max(1);
    let now = event_of(call.control());
    let parts = call.api.listeners.listen(every, call.aged.clone(), now);
    let parts = parts.ok_or_else(|| Problem::unavailable(format!("{MAX_LISTENERS} listen already")))?;
    Ok(stream(EVENT_STREAM, parts))
}

pub(super) fn event_of(control: &Control) -> Bytes {
    let state = State::new(control);
    event(state.at_ms, &state)
}

/// The state document of `GET /v1/state` and `/v1/events`.
#[derive(Serialize, JsonSchema)]
pub(super) struct State {
    /// When, in milliseconds since 1970.
    at_ms: u64,
    /// Whether the process ends.
    draining: bool,
    /// Whether more work comes than fits: docs/tuning.md.
    overloaded: bool,
    /// Whether rules, quotas, room and session slots only count (`enforcement.shadow`).
    shadow: bool,
    #[serde(flatten)]
    rates: Rates,
    /// The origin's response time; null: no answer.
    response_ms: ResponseTimes,
    /// What is in force: see /v1/capacity.
    capacity: InForce,
    /// The waiting room.
    room: Room,
    /// Requests at the origin, and those that wait for it.
    gate: Gate,
    /// Visitor connections open now.
    connections: usize,
    /// In the order of the file, then the default class and removed ones.
    classes: Vec<Class>,
    /// Service levels, that of everybody else first; none where there are none.
    tiers: Vec<Tier>,
    replicas: Vec<Replica>,
    /// What may be congested: docs/rules.md.
    detectors: Vec<DetectorShown>,
    /// What follows, in the order of the file.
    rules: Vec<Rule>,
    /// By rule that was in force since the start.
    enforced: Vec<Enforced>,
    /// Types of requests that are throttled: docs/throttles.md.
    throttles: Vec<ThrottleShown>,
    /// URLs and bytes kept; requests shared, alone, and sent upstream.
    multicast: Multicast,
    sessions: Option<SessionsShown>,
}

#[derive(Serialize, JsonSchema)]
struct Rates {
    /// Requests that came, per second.
    offered_per_s: f64,
    /// Requests sent to the origin, per second.
    admitted_per_s: f64,
    /// Requests served, per second.
    goodput_per_s: f64,
    /// Requests refused for whatever reason, and visitors told that the room is full, per second.
    shed_per_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct ResponseTimes {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Room {
    /// Visitors that wait.
    waiting: u64,
    /// Of these, visitors whose page still asks; the others sleep until their turn, or have left.
    present: u64,
    /// Work promised to them, in cost units.
    promised: f64,
    newcomer_wait_s: f64,
    /// How far the schedule is ahead of the clock; negative: behind.
    schedule_offset_s: f64,
    /// Share of the promised work that comes to be redeemed.
    show_up_ratio: f64,
    /// Promises per second as a multiple of the capacity.
    overbooking: f64,
}

#[derive(Serialize, JsonSchema)]
struct Gate {
    in_flight: u32,
    queued: usize,
    held: usize,
}

#[derive(Serialize, JsonSchema)]
struct Class {
    name: String,
    /// What a request of it is charged now, in cost units.
    cost: f64,
    configured_cost: ConfiguredCost,
    cost_source: CostOrigin,
    /// What a request of it costs the origin, in cost units; null: not known.
    learned_cost: Option<f64>,
    /// Standard error of that, in cost units.
    learned_cost_error: Option<f64>,
    /// Requests that it was learned from; earlier ones count less and less.
    learned_cost_samples: u64,
    /// Whether it meets the room.
    waits: bool,
    #[serde(flatten)]
    rates: Rates,
    /// 99th percentile of the origin's response time.
    response_p99_ms: Option<f64>,
    /// Requests that came since the start.
    arrivals: u64,
    /// Requests served since the start.
    served: u64,
    /// Requests the origin failed since the start.
    errors: u64,
    /// Requests that wait for the origin.
    queued: usize,
    /// Requests at the origin now.
    in_flight: u32,
}

/// `cost` in the configuration.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ConfiguredCost {
    Number(f64),
    Word(LearnedWord),
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum LearnedWord {
    Learned,
}

/// Where the charged cost comes from.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CostOrigin {
    /// The configuration has a number.
    Configured,
    /// It is learned.
    Learned,
    /// It is to be learned, and nothing is known: no request of the class has been measured, or the estimator
    /// learns no costs.
    Initial,
}

#[derive(Serialize, JsonSchema)]
struct Tier {
    name: String,
    #[serde(flatten)]
    rates: Rates,
    /// Requests that the origin failed, in the last second.
    errors_per_s: f64,
    /// Response time of the origin, in the last second.
    response_ms: ResponseTimes,
    /// Wait of admitted requests for an in-flight slot, in the last second.
    queue_wait_ms: ResponseTimes,
    /// Since the start.
    arrivals: u64,
    served: u64,
    errors: u64,
}

#[derive(Serialize, JsonSchema)]
struct Replica {
    /// HOST:PORT.
    address: String,
    /// Whether its checks pass.
    healthy: bool,
    /// Requests there now.
    in_flight: usize,
    /// Requests sent to it since the start.
    requests: u64,
    /// Requests it failed since the start.
    errors: u64,
}

#[derive(Serialize, JsonSchema)]
struct DetectorShown {
    name: String,
    /// What it looks at.
    kind: &'static str,
    /// green, orange, red or unknown.
    level: &'static str,
    /// What it measured, in its own unit.
    figure: Option<f64>,
    /// The figure as a share of what is red, from 0 to 1.
    fraction: Option<f64>,
    /// From here on it is orange.
    orange: Option<f64>,
    /// From here on it is red.
    red: Option<f64>,
    /// How often it was checked.
    checks: u64,
    /// How long ago its source said something.
    heard_s: Option<f64>,
    /// Why its source cannot be heard.
    trouble: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Rule {
    name: String,
    /// Whether it may hold.
    enabled: bool,
    /// Whether it is decided and counted only.
    shadow: bool,
    /// Higher comes first.
    priority: i32,
    /// Whether it holds.
    in_force: bool,
    /// Since when, in milliseconds since 1970; null: the start.
    since_ms: Option<u64>,
    /// How often it came in force.
    times: u64,
    /// What its condition is now: true, false or unknown.
    when: &'static str,
    /// The same of `until`; null: there is none.
    until: Option<&'static str>,
    /// The share of the visitors that it is for now, if it follows the level (`share = "level"`).
    share: Option<f64>,
    /// The figures it goes by.
    figures: String,
}

#[derive(Serialize, JsonSchema)]
struct Enforced {
    /// The rule.
    name: String,
    /// Requests and connections since the start, by action.
    actions: BTreeMap<&'static str, u64>,
    /// Requests that it would have decided on, had it not been in shadow.
    would_refuse: u64,
}

#[derive(Serialize, JsonSchema)]
struct Multicast {
    urls: usize,
    bytes: usize,
    upstream: u64,
    shared: u64,
    alone: u64,
}

impl State {
    fn new(control: &Control) -> Self {
        let (f, shared) = (control.figures(), control.shared());
        let live = shared.config.load();
        let total = f.window.total();
        let congestion = control.congestion().lock();
        let (room, gate) = (&f.room, &f.gate);
        Self {
            at_ms: f.at.as_millis(),
            draining: shared.is_draining(),
            overloaded: f.is_overloaded,
            shadow: live.settings.enforcement.shadow,
            response_ms: ResponseTimes::new(&total.response),
            rates: Rates::new(&total),
            capacity: InForce::new(&f.tunables, &f.estimate, Some(live.settings.estimator())),
            room: Room {
                waiting: room.waiting,
                present: room.present,
                promised: room.promised.units(),
                newcomer_wait_s: room.wait.as_secs_f64(),
                schedule_offset_s: room.lead_s,
                show_up_ratio: room.show_up,
                overbooking: room.overbook,
            },
            gate: Gate { in_flight: gate.in_flight, queued: gate.queued, held: gate.held },
            connections: shared.connections.load(Relaxed),
            classes: f.classes(&live).filter_map(|class| Class::new(&class, &f, &live)).collect(),
            tiers: f.tiers(&live).map(|tier| Tier::new(&tier, &f)).collect(),
            replicas: shared.replicas.list().iter().map(|replica| Replica::new(replica)).collect(),
            detectors: detectors(&congestion, control.congestion().readings(), f.at),
            rules: rules(&congestion),
            enforced: enforced(shared),
            throttles: throttles::all(control),
            multicast: Multicast::new(&shared.coalescer),
            sessions: sessions::state(shared),
        }
    }
}

impl Rates {
    fn new(f: &WindowFigures) -> Self {
        let WindowFigures { offered_per_s, admitted_per_s, goodput_per_s, .. } = *f;
        let shed_per_s = f.shed_per_s.iter().sum();
        Self { offered_per_s, admitted_per_s, goodput_per_s, shed_per_s }
    }
}

impl Class {
    /// `None`: it is not counted apart.
    fn new(class: &ClassShown<'_>, f: &Figures, live: &Config) -> Option<Self> {
        let (ClassShown { id, facts, load, cost, .. }, counts) = (class, class.totals.as_ref()?);
        let (now, known) = (f.window.class(*id), cost.known());
        Some(Self {
            name: facts.name.to_string(),
            cost: cost.charged.units(),
            configured_cost: ConfiguredCost::new(facts.cost),
            cost_source: CostOrigin::new(facts.cost, cost),
            learned_cost: known.map(|known| known.units),
            learned_cost_error: known.map(|known| known.standard_error()),
            learned_cost_samples: known.map_or(0, |known| known.samples as u64),
            waits: facts.waits || live.all_navigations,
            response_p99_ms: ms(now.response.p99),
            rates: Rates::new(&now),
            arrivals: counts.arrivals,
            served: counts.served,
            errors: counts.origin_errors,
            queued: load.queued,
            in_flight: load.in_flight,
        })
    }
}

impl ConfiguredCost {
    pub(super) fn new(source: CostSource) -> Self {
        match source {
            CostSource::Configured(cost) => Self::Number(cost.units()),
            CostSource::Learned => Self::Word(LearnedWord::Learned),
        }
    }
}

impl CostOrigin {
    fn new(source: CostSource, cost: &CostFigures) -> Self {
        match source {
            CostSource::Configured(_) => Self::Configured,
            // Tokencheck charges what tokengen has learned.
            CostSource::Learned if cost.known().is_some() || cost.charged != LEARNED_FROM => Self::Learned,
            CostSource::Learned => Self::Initial,
        }
    }
}

impl Tier {
    fn new(tier: &TierShown<'_>, f: &Figures) -> Self {
        let now = f.window.tier(tier.id);
        Self {
            name: tier.name.to_owned(),
            rates: Rates::new(&now),
            errors_per_s: now.errors_per_s,
            response_ms: ResponseTimes::new(&now.response),
            queue_wait_ms: ResponseTimes::new(&now.queue_wait),
            arrivals: tier.totals.arrivals,
            served: tier.totals.served,
            errors: tier.totals.origin_errors,
        }
    }
}

impl ResponseTimes {
    fn new(times: &Times) -> Self {
        Self { mean: ms(times.mean), p50: ms(times.p50), p99: ms(times.p99) }
    }
}

impl Replica {
    fn new(r: &balance::Replica) -> Self {
        let (in_flight, requests, errors) = (r.in_flight(), r.requests(), r.errors());
        Self { address: r.authority().to_owned(), healthy: r.is_healthy(), in_flight, requests, errors }
    }
}

impl Multicast {
    fn new(m: &Coalescer) -> Self {
        let ((urls, bytes), upstream) = (m.size(), m.upstream.load(Relaxed));
        Self { urls, bytes, upstream, shared: m.shared.load(Relaxed), alone: m.alone.load(Relaxed) }
    }
}

fn enforced(shared: &Shared) -> Vec<Enforced> {
    let rules = shared.policies.ledger.all();
    let shown = rules.iter().map(|rule| Enforced {
        name: rule.name.to_string(),
        actions: Done::ALL.iter().map(|done| (done.name(), rule.get(*done))).collect(),
        would_refuse: rule.would(),
    });
    shown.collect()
}

fn ms(time: Option<Duration>) -> Option<f64> {
    time.map(|t| t.as_secs_f64() * 1000.0)
}

fn kind_name(detector: &Detector) -> &'static str {
    Watched::NAMES.iter().find(|(_, kind)| *kind == detector.kind).map_or("", |(name, _)| *name)
}

fn detectors(congestion: &Congestion, readings: &Readings, now: Timestamp) -> Vec<DetectorShown> {
    let shown = congestion.detectors().map(|(detector, verdict, checks)| DetectorShown {
        name: detector.name.clone(),
        kind: kind_name(detector),
        level: verdict.level.name(),
        figure: verdict.figure,
        fraction: verdict.fraction,
        orange: verdict.orange,
        red: verdict.red,
        checks,
        heard_s: readings.reading(&detector.name).map(|said| now.since(said.at).as_secs_f64()),
        trouble: readings.trouble(&detector.name),
    });
    shown.collect()
}

fn rules(congestion: &Congestion) -> Vec<Rule> {
    let shown = congestion.rules().enumerate().map(|(id, (rule, standing))| Rule {
        name: rule.name.to_string(),
        enabled: rule.is_enabled,
        shadow: rule.policy.is_shadow,
        priority: rule.priority,
        in_force: standing.in_force,
        since_ms: standing.since.map(Timestamp::as_millis),
        times: standing.times,
        when: truth(standing.heard.when),
        until: rule.has_until.then(|| truth(standing.heard.until)),
        share: rule.follows_level.then_some(standing.share),
        figures: congestion.figures_of(id),
    });
    shown.collect()
}

fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::Unknown => "unknown",
        Truth::False => "false",
        Truth::True => "true",
    }
}

pub(super) fn reload(call: &Call) -> Outcome {
    let changes = call.store().reload_by(call.by()).map_err(|e| Problem::refused(e.to_string()))?;
    let changed = changes.into_iter().map(|Change { key, old, new, restart }| ChangedKey {
        key,
        old,
        new,
        needs_restart: restart,
    });
    Ok(document(&Reloaded { changed: changed.collect() }))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Reloaded {
    /// What differs from what was in force.
    changed: Vec<ChangedKey>,
}

#[derive(Serialize, JsonSchema)]
struct ChangedKey {
    /// The full key.
    key: String,
    /// The old value as TOML; null: there was none.
    old: Option<String>,
    /// The new value as TOML; null: there is none.
    new: Option<String>,
    /// Whether it takes effect with the next start only.
    needs_restart: bool,
}

pub(super) fn drain(call: &Call) -> Outcome {
    call.control().drain_by(call.by());
    Ok(document(&Draining { draining: true }))
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Draining {
    /// Whether the gate drains now: always, after this request.
    draining: bool,
}

pub(super) fn take_feedback(call: &Call) -> Outcome {
    match feedback::receive(call.shared(), &call.body) {
        Ok(update) => Ok(document(&update)),
        Err(e) => Err(Problem::bad_request(e)),
    }
}

/// A report. Its reader checks it, since it knows the forms of other versions.
pub(super) fn report() -> Value {
    let work = |about| json!({ "type": "integer", "description": about });
    json!({
        "type": "object",
        "description": "As written by a tokencheck process, which may tell more.",
        "required": ["admitted", "queued", "shown"],
        "properties": {
            "admitted": work("Work admitted, in hundredths of a cost unit."),
            "queued": work("Work that waits for the origin, in the same."),
            "shown": { "type": "array", "description": "Tickets shown: [SECOND, WORK]." },
        },
    })
}
