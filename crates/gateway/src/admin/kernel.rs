//! `/v1/kernel`: SYN policing and prioritised accept (docs/kernel.md).

use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::policing::agent::{RuleView, View};
use tidegate_core::policing::{Excess, SynRule as CoreRule};
use tidegate_settings::{MAX_PRIORITIES, SynRule, did_you_mean, json_of, toml_of, tree::quoted};

use super::answer::{Outcome, Problem, document};
use super::call::Call;
use super::route::{Param, Place, Reply};
use super::schema::{self, exactly, why};
use super::tunables;
use crate::control::kernel::state::KernelState;
use crate::control::kernel::syn_rules::{SynRuleError, json_of_rule};
use crate::shared::tcp::TcpService;

pub(super) const NAME: Param = Param {
    name: "name",
    place: Place::Path,
    about: "Its name.",
    schema: || json!({ "type": "string", "minLength": 1, "examples": ["crowd"] }),
};

pub(super) const UNKNOWN: Reply = Reply::problem(StatusCode::NOT_FOUND, "There is no rule of this name.");
pub(super) const WRONG: Reply =
    Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "A value is wrong; nothing has changed.");
pub(super) const OTHERWISE: Reply = Reply::problem(
    StatusCode::CONFLICT,
    "The rule stands in the file, contradicts another one, or has no effect here; nothing has changed.",
);

/// Keys of a rule that a change of a rule of the file may have: the tunables.
const TUNABLE: [&str; 6] = ["rate", "burst", "priority", "excess", "preferred", "min_rate"];

pub(super) fn get(call: &Call) -> Outcome {
    Ok(document(&Kernel::new(call)))
}

/// The whole rule: what is left out has its default.
pub(super) fn put(call: &Call) -> Outcome {
    let name = call.path("name");
    if call.control().kernel().is_of_file(name) {
        return Err(problem(SynRuleError::OfFile(name.into())));
    }
    let rule =
        SynRule::from_values(name, values(&call.body)?).map_err(|e| problem(SynRuleError::Wrong(e)))?;
    call.control().kernel().put(rule, call.by()).map_err(problem)?;
    one(call)
}

/// Single values of a rule: those of a rule of the file are its tunables.
pub(super) fn patch(call: &Call) -> Outcome {
    let (name, rules) = (call.path("name"), call.control().kernel());
    let given = values(&call.body)?;
    if rules.is_of_file(name) {
        if let Some((key, _)) = given.iter().find(|(key, _)| !TUNABLE.contains(key)) {
            let (expected, hint) = ("a key that may change while running", "Change the file, and reload.");
            return Err(wrong(key, expected, "one of a rule of the file that is fixed", Some(hint.into())));
        }
        let changes: Vec<_> =
            given.into_iter().map(|(key, value)| (format!("syn_rule.{name}.{key}"), value)).collect();
        let lock = call.store().lock_changes();
        tunables::tune_texts(call, &lock, &changes)?;
        drop(lock);
        rules.settle();
        return one(call);
    }
    let Some(made) = rules.made(name) else { return Err(unknown(call)) };
    let mut all = json_of_rule(&made);
    for (key, value) in given {
        all[key] = json_of(&value);
    }
    let rule = SynRule::from_values(name, values(&all)?).map_err(|e| problem(SynRuleError::Wrong(e)))?;
    rules.put(rule, call.by()).map_err(problem)?;
    one(call)
}

pub(super) fn delete(call: &Call) -> Outcome {
    let name = call.path("name");
    let state = call.control().kernel().state();
    let shown = state.rules.iter().find(|(ruled, _)| ruled.rule.name == name);
    let shown = shown.map(|(ruled, counters)| RuleShown::new(call, ruled, counters));
    call.control().kernel().remove(name, call.by()).map_err(|error| match error {
        SynRuleError::Unknown(_) => unknown(call),
        error => problem(error),
    })?;
    Ok(document(&Gone { name: name.into(), rule: shown }))
}

fn one(call: &Call) -> Outcome {
    let (name, state) = (call.path("name"), call.control().kernel().state());
    match state.rules.iter().find(|(ruled, _)| ruled.rule.name == name) {
        Some((ruled, counters)) => Ok(document(&RuleShown::new(call, ruled, counters))),
        None => Err(problem(SynRuleError::Aside {
            name: name.into(),
            why: state.trouble.clone().unwrap_or_else(|| "it was removed meanwhile".into()),
        })),
    }
}

/// The keys of a rule that a body has, with values as TOML; null is as if left out.
fn values(body: &Value) -> Result<Vec<(&str, String)>, Problem> {
    let fields = body.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, value)| *key != "why" && !value.is_null());
    let text = |(key, value)| match toml_of(value) {
        Some(text) => Ok((String::as_str(key), text)),
        None => Err(wrong(key, "a number, a text, true or false", &value.to_string(), None)),
    };
    fields.map(text).collect()
}

fn wrong(key: &str, expected: &str, got: &str, hint: Option<String>) -> Problem {
    let more = hint.as_ref().map_or(String::new(), |hint| format!(" {hint}"));
    Problem::refused(format!("{key}: expected {expected}; got {got}.{more}"))
        .mistakes(vec![schema::mistake(key, expected, got, hint)])
}

fn problem(error: SynRuleError) -> Problem {
    let text = error.to_string();
    match error {
        SynRuleError::Wrong(mistakes) => {
            let each = mistakes.iter().map(|m| schema::mistake(&m.key, &m.expected, &m.got, m.hint.clone()));
            Problem::refused(text).mistakes(each.collect())
        }
        SynRuleError::Refused(_) => Problem::refused(text),
        SynRuleError::Unknown(_) => Problem::not_found(text),
        SynRuleError::Over => Problem::unavailable(text),
        SynRuleError::OfFile(_) | SynRuleError::Aside { .. } | SynRuleError::NoEffect(_) => {
            Problem::conflict(text)
        }
    }
}

fn unknown(call: &Call) -> Problem {
    let (name, state) = (call.path("name"), call.control().kernel().state());
    let hint = did_you_mean(name, state.rules.iter().map(|(ruled, _)| &*ruled.rule.name));
    let hint = hint.unwrap_or_else(|| "`GET /v1/kernel` lists them.".into());
    Problem::not_found(format!("there is no rule {}. {hint}", quoted(name)))
}

/// A rule as it is put, and single values of one.
pub(super) fn wanted() -> Value {
    let network = |about: &str| json!({ "type": ["string", "null"], "maxLength": 64, "description": about });
    let whole = |most: u64, about: &str| json!({ "type": ["integer", "null"], "minimum": 0, "maximum": most, "description": about });
    let rate = |about: &str| json!({ "type": ["number", "null"], "minimum": 0, "maximum": CoreRule::MAX_RATE, "description": about });
    let excess = json!({
        "type": ["string", "null"], "maxLength": 16,
        "description": "What becomes of SYNs beyond the rate: \"drop\", \"reset\", or \"slow\" (accepted after all others).",
    });
    let preferred = json!({
        "type": ["boolean", "null"],
        "description": "The agent leaves the rule whole as long as its visitors fit.",
    });
    exactly(
        &[
            ("src", network("The visitor's network or address; \"*\": any.")),
            ("sport", whole(65_535, "The visitor's port; 0: any.")),
            ("dst", network("The network or address asked for; \"*\": any.")),
            ("dport", whole(65_535, "The port asked for; 0: any.")),
            ("rate", rate("SYNs per second; 0 or null: no limit, the rule gives a priority only.")),
            (
                "burst",
                whole(
                    CoreRule::MAX_BURST.into(),
                    "SYNs that may come in one instant; 0 or null: one second's worth of the rate.",
                ),
            ),
            ("priority", whole(MAX_PRIORITIES as u64 - 1, "0: its connections are accepted first.")),
            ("excess", excess),
            ("preferred", preferred),
            ("min_rate", rate("Least rate that the agent sets.")),
            ("why", why()),
        ],
        &[],
    )
}

/// What the kernel does with connections before the gate accepts them.
#[derive(Serialize, JsonSchema)]
pub(super) struct Kernel {
    /// When the figures were read, in milliseconds since 1970.
    at_ms: u64,
    /// What polices SYNs: "xdp-native", "xdp-generic" or "nftables"; null: nothing.
    mechanism: Option<&'static str>,
    /// The interfaces that are policed.
    attached: Vec<Attached>,
    /// What an operator should know.
    notes: Vec<String>,
    /// What does not work, and why.
    error: Option<String>,
    /// `kernel.policing`: what is wanted.
    policing: &'static str,
    priorities: Priorities,
    totals: Totals,
    /// In the order of the file, those of the API last.
    rules: Vec<RuleShown>,
    agent: AgentShown,
    /// The TCP services that are relayed, in the order of the file.
    tcp: Vec<TcpShown>,
}

/// A TCP service (`[[tcp]]`).
#[derive(Serialize, JsonSchema)]
struct TcpShown {
    name: String,
    listen: String,
    to: String,
    /// Connections now.
    open: usize,
    /// Since the start, as all that follow.
    accepted: u64,
    /// Reset at once, by a rule in force or for want of connections.
    refused: u64,
    /// The service could not be reached.
    failed: u64,
    /// From visitors.
    bytes_in: u64,
    /// To visitors.
    bytes_out: u64,
}

impl TcpShown {
    fn new(call: &Call, service: &TcpService) -> Self {
        let (in_force, figures) = (service.in_force(), &service.figures);
        let settings = &in_force.settings;
        Self {
            name: settings.name.clone(),
            listen: call.shared().tcp.address_of(service).unwrap_or(settings.listen).to_string(),
            to: settings.to.clone(),
            open: figures.open.load(Relaxed),
            accepted: figures.accepted.load(Relaxed),
            refused: figures.refused.load(Relaxed),
            failed: figures.failed.load(Relaxed),
            bytes_in: figures.bytes_in.load(Relaxed),
            bytes_out: figures.bytes_out.load(Relaxed),
        }
    }
}

/// The adaptation agent (`kernel.adapt`).
#[derive(Serialize, JsonSchema)]
struct AgentShown {
    enabled: bool,
    /// Whether more connections are asked for than fit.
    overloaded: bool,
    /// Over the last intervals; null: it is off.
    averages: Option<Averages>,
    /// Connections per second that fit; null: not known.
    limit_per_s: Option<f64>,
    /// What the limit follows from: capacity, cpu or level; null: not known.
    bound: Option<&'static str>,
    /// What it makes of each rule, and why.
    reasons: Vec<Reason>,
}

#[derive(Serialize, JsonSchema)]
struct Averages {
    /// Load of the CPU, from 0 to 1; null: no detector reads it.
    cpu: Option<f64>,
    /// Connections accepted per second.
    accepted_per_s: f64,
    /// Connections per second that are asked for, SYNs sent again included.
    demand_per_s: f64,
    /// Of these, those that no rule is about.
    unmatched_per_s: f64,
    /// The request mix; null: not known.
    requests_per_connection: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Reason {
    rule: String,
    /// SYNs per second, those sent again included.
    demand_per_s: f64,
    passed_per_s: f64,
    /// The service level: the part of the demand that passed; null: no demand.
    served: Option<f64>,
    why: String,
}

impl AgentShown {
    fn new(view: Option<&View>) -> Self {
        let averages = view.map(|view| Averages {
            cpu: view.averages.cpu,
            accepted_per_s: view.averages.accepted,
            demand_per_s: view.demand,
            unmatched_per_s: view.averages.unmatched,
            requests_per_connection: view.averages.requests_per_connection,
        });
        let reason = |rule: &RuleView| {
            let why = rule.why.map_or_else(|| "nothing is decided yet".into(), |why| why.to_string());
            let (demand_per_s, passed_per_s, served) = (rule.demand, rule.accepted, rule.served());
            Reason { rule: rule.name.clone(), demand_per_s, passed_per_s, served, why }
        };
        let limit = view.and_then(|view| view.limit);
        Self {
            enabled: view.is_some(),
            overloaded: view.is_some_and(|view| view.is_overloaded),
            averages,
            limit_per_s: limit.map(|limit| limit.per_s),
            bound: limit.map(|limit| limit.bound.name()),
            reasons: view.map_or_else(Vec::new, |view| view.rules.iter().map(reason).collect()),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct Attached {
    interface: String,
    mode: &'static str,
}

/// The order in which connections are accepted.
#[derive(Serialize, JsonSchema)]
struct Priorities {
    /// Priorities that there are; 1: no order.
    count: usize,
    /// Whether the kernel puts connections into the queue of their priority.
    ordered: bool,
    /// Connections accepted since the start, of visitors and of TCP services, by priority.
    accepted: Vec<u64>,
    /// Connections that wait in the kernel to be accepted, by priority.
    waiting: Vec<u64>,
}

/// SYNs on all interfaces that are policed.
#[derive(Serialize, JsonSchema)]
struct Totals {
    syns: u64,
    /// Those that no rule is about; they pass.
    unmatched: u64,
    /// Those that a rule let pass; also rules that are gone.
    passed: u64,
    /// Those that a rule dropped or reset.
    refused: u64,
    /// All, in the last second.
    syns_per_s: f64,
    passed_per_s: f64,
    refused_per_s: f64,
}

/// A rule for SYNs.
#[derive(Serialize, JsonSchema)]
pub(super) struct RuleShown {
    name: String,
    /// The visitor's network; "*": any.
    src: String,
    /// 0: any.
    sport: u16,
    /// The network asked for; "*": any.
    dst: String,
    /// 0: any.
    dport: u16,
    /// SYNs per second in force; null: no limit.
    rate: Option<f64>,
    /// In force.
    burst: u32,
    /// 0 is accepted first.
    priority: u8,
    /// drop, reset or slow.
    excess: &'static str,
    preferred: bool,
    min_rate: f64,
    /// As file, tunables or API say; the agent sets at most this. Null: no limit.
    configured_rate: Option<f64>,
    /// Whose rule it is; agent: whose rate the agent has set.
    set_by: &'static str,
    /// Whether it was made by the API, and can be removed there.
    made: bool,
    /// Who made it; null: it stands in the file.
    by: Option<String>,
    /// Why; may be empty.
    why: String,
    seen: u64,
    passed: u64,
    dropped: u64,
    reset: u64,
    /// Passed beyond the rate, with the lowest priority.
    slowed: u64,
}

/// A rule that is gone.
#[derive(Serialize, JsonSchema)]
pub(super) struct Gone {
    name: String,
    /// As it was last; null: it was set aside.
    rule: Option<RuleShown>,
}

impl Kernel {
    fn new(call: &Call) -> Self {
        let state = call.control().kernel().state();
        let KernelState { at, attached, notes, trouble, is_ordered, totals, sums, per_s, rules, .. } =
            &*state;
        let live = call.shared().config.load();
        Self {
            at_ms: at.as_millis(),
            mechanism: attached.first().map(|to| to.mode.name()),
            attached: attached
                .iter()
                .map(|to| Attached { interface: to.interface.clone(), mode: to.mode.name() })
                .collect(),
            notes: notes.clone(),
            error: trouble.clone(),
            policing: live.settings.kernel.policing.name(),
            priorities: Priorities {
                count: state.priorities,
                ordered: *is_ordered,
                accepted: call.shared().accepts.by_priority(),
                waiting: call.shared().accepts.waiting(),
            },
            totals: Totals {
                syns: totals.syns,
                unmatched: totals.unmatched,
                passed: sums.passed,
                refused: sums.refused,
                syns_per_s: per_s.came_per_s,
                passed_per_s: per_s.passed_per_s,
                refused_per_s: per_s.refused_per_s,
            },
            rules: rules.iter().map(|(ruled, counters)| RuleShown::new(call, ruled, counters)).collect(),
            agent: AgentShown::new(state.agent.as_ref()),
            tcp: call.shared().tcp.list().iter().map(|one| TcpShown::new(call, one)).collect(),
        }
    }
}

impl RuleShown {
    fn new(
        call: &Call,
        ruled: &crate::control::kernel::book::Ruled,
        counters: &tidegate_kernel::RuleCounters,
    ) -> Self {
        let CoreRule { name, filter, rate, burst, priority, excess, is_preferred, min_rate, max_rate } =
            &ruled.rule;
        let network = |net: Option<ipnet::IpNet>| net.map_or_else(|| "*".into(), |net| net.to_string());
        let finite = |rate: f64| rate.is_finite().then_some(rate);
        let made = if ruled.is_made { call.control().kernel().made_by(name) } else { None };
        let (by, why) = made.map_or((None, String::new()), |(by, why)| (Some(by), why));
        Self {
            name: name.clone(),
            src: network(filter.src),
            sport: filter.sport.unwrap_or(0),
            dst: network(filter.dst),
            dport: filter.dport.unwrap_or(0),
            rate: finite(*rate),
            burst: *burst,
            priority: *priority,
            excess: match excess {
                Excess::Drop => "drop",
                Excess::Reset => "reset",
                Excess::Slow => "slow",
            },
            preferred: *is_preferred,
            min_rate: *min_rate,
            configured_rate: finite(*max_rate),
            set_by: ruled.set_by.name(),
            made: ruled.is_made,
            by,
            why,
            seen: counters.seen,
            passed: counters.passed,
            dropped: counters.dropped,
            reset: counters.reset,
            slowed: counters.slowed,
        }
    }
}
