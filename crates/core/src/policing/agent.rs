//! The adaptation agent: sets the rates and bursts of rules from what is measured (Voigt et al., section 5
//! and Figure 7).
//!
//! The paper names what its agent looks at over the last n intervals (the CPU, accepted connections, the
//! request mix, service level agreements) and that it computes "new values for the TCP SYN policer's burst
//! size and rate" from exponential averages of them. It does not say how. This is how:
//!
//! ```text
//! counters, CPU ─► averages ─► limit S: connections/s ─► allocation: a ceiling per rule ─► steps ─► rates
//! (averages.rs)                (limit.rs)                (allocation.rs)                   (here)
//! ```
//!
//! 1. **S** is the least of capacity / (requests per connection), accepted * `max_cpu` / CPU while the CPU
//!    is overloaded, and what a red detector leaves.
//! 2. **Overload** begins when the demand, what SYNs ask for, exceeds S, and ends when it is below 0.9 S.
//!    Without overload every rule goes back to its configured rate.
//! 3. **Ceilings.** Preferred rules are whole as long as they fit. Then come the others by priority, and the
//!    greatest aggregates of a priority are squeezed first. Each priority keeps `min_share` of S, so that
//!    those above it are policed just enough.
//! 4. **Steps.** A rate falls at once, rises by at most a quarter in an interval, and is left alone if the
//!    change does not matter. The burst follows in the proportion configured.
//!
//! **Retried SYNs.** A client whose SYN is dropped sends it again after 1, 2, 4, ... seconds, up to six
//! times, so a squeezed rule sees up to seven times its real demand. They count as demand while they come,
//! and this cannot last where it would be wrong: a claim above its ceiling has lost SYNs, so its real demand
//! is above the ceiling too, and how far above makes no difference to max-min shares. A claim whose real
//! demand is below its ceiling loses none, and its retries run dry. So the ceilings settle where those of
//! the real demand are. Meanwhile the rule has more than it needs: a client gives up after two minutes.
//! Rejected: to estimate the retries and subtract them. A flood does not retry, and would look smaller than
//! it is in one interval and greater in the next.
//!
//! **Who waits.** Clients who ask again only after an answer send no SYN while their connections wait to be
//! accepted: what they ask for is hidden, most of all in a priority that starves. Those who wait count as
//! demand of their priority, as connections that are to be accepted in the next interval.
//!
//! **The request mix** has a longer memory than the other averages. Requests follow their connection over
//! its life. If fewer connections are accepted, requests of the older ones still come; a short average would
//! take that for hungrier connections, accept fewer still, and swing.
//!
//! **Agreements** with customers are what the operator writes into the rules: priority, `preferred`,
//! `min_rate` and `rate`. How they are kept is in [`RuleView::served`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::decaying::{DecayingRatio, Ewma};
use crate::detect::Level;
use crate::policing::SynRule;
use crate::units::Timestamp;

mod allocation;
mod averages;
mod limit;
mod services;

use allocation::{Ceiling, Claim, allocate};
use averages::keep;
use limit::{CpuLoad, Limits, Load};
use services::Services;

pub use limit::{Bound, Limit};
pub use services::ServiceState;

/// Share of S below which the demand must fall before overload is over: more than the ripple of a steady
/// demand in the averages of five intervals.
const EXIT: f64 = 0.9;
/// Most by which a rate rises in an interval, as a share of the rate, or of the demand if that is more: a
/// rule that was shut opens in four intervals, in which averages follow.
const RISE: f64 = 0.25;
/// Above so many times the demand a rate binds nothing, and need not rise by steps.
const FREE: f64 = 2.0;
/// Changes below this share of a rate do not matter. Counts of one second scatter by as much.
const MATTERS: f64 = 0.05;
/// A fall that the scatter of S explains does not matter, or who gets what others leave would be changed in
/// every interval. A fall by this share does in any case, so that many small rules do not exceed S together.
const ALWAYS_MATTERS: f64 = 0.25;
/// How many times longer the memory of the request mix is: 50 s by default, in which a browser's connection
/// makes nearly all of its requests.
const MIX_INTERVALS: u32 = 10;
/// Connections in the memory of the mix before it says anything.
const LEAST_CONNECTIONS: f64 = 10.0;
/// Two ticks closer than this share of an interval are one: the figures of a moment are noise.
const LEAST_INTERVAL: f64 = 0.5;

/// What an operator sets (`[kernel]`).
#[derive(Clone, PartialEq, Debug)]
pub struct AgentConfig {
    /// Time between two decisions.
    pub every: Duration,
    /// Intervals that averages reach back (paper: n), from 1.
    pub intervals: u32,
    /// Share of S that each priority keeps, 0..=1.
    pub min_share: f64,
    /// Load of the CPU that is too much, in 0..=1.
    pub max_cpu: f64,
}

/// A rule in force, and what it has done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RuleState<'a> {
    /// Its `rate` and `burst` are those in force; `max_rate` is the rate configured.
    pub rule: &'a SynRule,
    /// SYNs since the start.
    pub seen: u64,
    /// Of these, those within the rate.
    pub passed: u64,
}

/// What the agent sees. Counters are cumulative.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub rules: &'a [RuleState<'a>],
    /// SYNs that no rule is about. Nothing polices them; they count as the lowest priority.
    pub unmatched: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests that came for the origin, also those that were refused or must wait, but no polls of
    /// visitors who wait already.
    pub requests: u64,
    /// Load of the CPU, 0..=1: the greatest of the hosts'. `None`: not measured.
    pub cpu: Option<f64>,
    /// Requests per second that the origin serves; 0: there is no origin. `None`: not known.
    pub capacity: Option<f64>,
    /// Connections that wait to be accepted, by priority.
    pub waiting: &'a [u64],
    /// TCP services. Each of their connections counts as one request.
    pub services: &'a [ServiceState<'a>],
    /// The worst detector.
    pub level: Level,
}

/// A new rate and burst for a rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    pub name: String,
    /// SYNs per second.
    pub rate: f64,
    pub burst: u32,
    pub why: Why,
}

/// Why a rule has the ceiling that it has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Why {
    /// Everything that comes can be served, or nothing is known about what can.
    Fits,
    /// There is overload, and the rule is preferred and fits.
    Preferred { limit: Limit, demand: f64 },
    /// There is overload: `demand` connections per second of all rules. The rule's is below its ceiling.
    Ceiling { limit: Limit, demand: f64 },
    /// There is overload, and the rule asks for more than its ceiling.
    Squeezed { limit: Limit, demand: f64 },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, limit, demand) = match self {
            Self::Fits => return f.write_str("all connections that are asked for fit"),
            Self::Preferred { limit, demand } => ("preferred, and fits", limit, demand),
            Self::Ceiling { limit, demand } => ("not squeezed, up to its share", limit, demand),
            Self::Squeezed { limit, demand } => ("squeezed to its share", limit, demand),
        };
        let bound = match limit.bound {
            Bound::Capacity => "for the capacity",
            Bound::Cpu => "for the CPU",
            Bound::Level => "for a detector that is red",
        };
        write!(f, "{what}: {demand:.1} connections/s are asked for, {:.1} fit {bound}", limit.per_s)
    }
}

/// What the agent has found, for the API.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct View {
    pub averages: Averages,
    /// S; `None`: nothing is known.
    pub limit: Option<Limit>,
    /// Connections per second that are asked for, of all rules and of no rule, retries included.
    pub demand: f64,
    pub is_overloaded: bool,
    /// By name.
    pub rules: Vec<RuleView>,
}

/// Per second, over the last intervals.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Averages {
    pub cpu: Option<f64>,
    pub accepted: f64,
    /// Connections that no rule is about.
    pub unmatched: f64,
    pub requests_per_connection: Option<f64>,
}

/// A rule as the agent sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleView {
    pub name: String,
    /// SYNs per second, retries included.
    pub demand: f64,
    /// SYNs per second that passed.
    pub accepted: f64,
    /// `None` before the first decision.
    pub why: Option<Why>,
}

impl RuleView {
    /// The service level: the part of the demand that passed. `None` without demand.
    pub fn served(&self) -> Option<f64> {
        (self.demand > 0.0).then(|| self.accepted / self.demand)
    }
}

/// Sets rates and bursts of rules: one [`Agent::tick`] in each interval.
#[derive(Clone, Debug)]
pub struct Agent {
    config: AgentConfig,
    last: Option<(Timestamp, Totals)>,
    cpu: Ewma,
    accepted: Ewma,
    unmatched: Ewma,
    /// Requests per connection.
    mix: DecayingRatio,
    services: Services,
    /// By priority.
    waiting: Vec<Ewma>,
    rules: BTreeMap<String, Tracked>,
    limits: Limits,
    limit: Option<Limit>,
    demand: f64,
    is_overloaded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Totals {
    accepted: u64,
    requests: u64,
    unmatched: u64,
}

impl Totals {
    fn of(inputs: &Inputs<'_>) -> Self {
        let Inputs { accepted, unmatched, .. } = *inputs;
        let over_tcp = inputs.services.iter().fold(0u64, |sum, service| sum.wrapping_add(service.accepted));
        Self { accepted, requests: inputs.requests.wrapping_add(over_tcp), unmatched }
    }
}

/// What is kept of a rule.
#[derive(Clone, Debug)]
struct Tracked {
    seen: u64,
    passed: u64,
    /// As configured.
    burst: u32,
    demand: Ewma,
    accepted: Ewma,
    why: Option<Why>,
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
        Self {
            config,
            last: None,
            cpu: Ewma::default(),
            accepted: Ewma::default(),
            unmatched: Ewma::default(),
            mix: DecayingRatio::default(),
            services: Services::default(),
            waiting: Vec::new(),
            rules: BTreeMap::new(),
            limits: Limits::default(),
            limit: None,
            demand: 0.0,
            is_overloaded: false,
        }
    }

    /// Follows a reload. `rules` are those configured, each with its configured burst. What was learned of
    /// the rules that remain stays; the others are forgotten.
    pub fn reconfigure(&mut self, config: AgentConfig, rules: &[SynRule]) {
        self.config = config;
        let mut known = std::mem::take(&mut self.rules);
        for rule in rules {
            if let Some((name, tracked)) = known.remove_entry(&rule.name) {
                self.rules.insert(name, Tracked { burst: rule.burst, ..tracked });
            }
        }
    }

    /// One interval: the changes to make. Nothing on the first call, which only reads the counters.
    pub fn tick(&mut self, inputs: &Inputs<'_>, now: Timestamp) -> Vec<Change> {
        let Some(elapsed) = self.elapsed(inputs, now) else { return Vec::new() };
        self.measure(inputs, elapsed);
        let load = Load {
            accepted: self.accepted.get().unwrap_or(0.0),
            cpu: inputs.cpu.zip(self.cpu.get()).map(|(last, average)| CpuLoad { average, last }),
            mix: self.mix(),
            capacity: self.capacity(inputs),
            level: inputs.level,
        };
        self.limit = self.limits.update(&load, &self.config);
        let mut claims: Vec<Claim> = inputs.rules.iter().map(|state| self.claim(state.rule)).collect();
        let beside = self.beside() + self.add_waiting(&mut claims);
        self.demand = claims.iter().map(|claim| claim.demand).sum::<f64>() + beside;
        let limit = self.judge();
        let ceilings = match limit {
            Some(limit) => allocate(&claims, beside, limit.per_s, self.config.min_share),
            None => vec![Ceiling::Whole; claims.len()],
        };
        let decided = inputs.rules.iter().zip(&claims).zip(ceilings);
        decided
            .filter_map(|((state, claim), ceiling)| self.decide(state.rule, claim, ceiling, limit))
            .collect()
    }

    pub fn view(&self) -> View {
        let rule = |(name, tracked): (&String, &Tracked)| RuleView {
            name: name.clone(),
            demand: some_demand(tracked.demand.get().unwrap_or(0.0)),
            accepted: some_demand(tracked.accepted.get().unwrap_or(0.0)),
            why: tracked.why,
        };
        View {
            averages: Averages {
                cpu: self.cpu.get(),
                accepted: self.accepted.get().unwrap_or(0.0),
                unmatched: self.beside(),
                requests_per_connection: self.mix(),
            },
            limit: self.limit,
            demand: self.demand,
            is_overloaded: self.is_overloaded,
            rules: self.rules.iter().map(rule).collect(),
        }
    }

    /// Intervals since the last decision. `None`: it is too soon for another.
    fn elapsed(&mut self, inputs: &Inputs<'_>, now: Timestamp) -> Option<f64> {
        let Some((last, _)) = self.last else {
            self.last = Some((now, Totals::of(inputs)));
            self.services.update(inputs.services, 0.0, 0.0);
            self.track(inputs.rules, None);
            return None;
        };
        let elapsed = now.since(last).as_secs_f64() / self.config.every.as_secs_f64();
        (elapsed >= LEAST_INTERVAL).then_some(elapsed)
    }

    /// Adds an interval to all averages.
    fn measure(&mut self, inputs: &Inputs<'_>, elapsed: f64) {
        let AgentConfig { every, intervals, .. } = self.config;
        let per_s = 1.0 / (elapsed * every.as_secs_f64());
        let kept = keep(intervals, elapsed);
        let totals = Totals::of(inputs);
        let Totals { accepted, requests, unmatched } = totals;
        if let Some((last, before)) = self.last {
            let accepted = since(before.accepted, accepted);
            if let Some(accepted) = accepted {
                self.accepted.add(accepted * per_s, kept);
            }
            if let Some(unmatched) = since(before.unmatched, unmatched) {
                self.unmatched.add(unmatched * per_s, kept);
            }
            if let Some((accepted, requests)) = accepted.zip(since(before.requests, requests)) {
                self.mix.decay_and_add(keep(MIX_INTERVALS * intervals, elapsed), requests, accepted);
            }
            self.last = Some((last + every.mul_f64(elapsed), totals));
        }
        if let Some(cpu) = inputs.cpu {
            self.cpu.add(cpu, kept);
        }
        self.waiting.resize(inputs.waiting.len(), Ewma::default());
        for (average, waiting) in self.waiting.iter_mut().zip(inputs.waiting) {
            average.add(*waiting as f64, kept);
        }
        self.services.update(inputs.services, per_s, kept);
        self.track(inputs.rules, Some((per_s, kept)));
    }

    /// Requests per second that origin and TCP services serve.
    fn capacity(&self, inputs: &Inputs<'_>) -> Option<f64> {
        match inputs.capacity {
            Some(0.0) => self.services.capacity(),
            of_origin => of_origin.map(|of_origin| of_origin + self.services.need()),
        }
    }

    /// Notes the counters of rules, and averages them by `weight`: per second, and what averages keep. Rules
    /// that are no longer there are forgotten.
    fn track(&mut self, rules: &[RuleState<'_>], weight: Option<(f64, f64)>) {
        let mut known = std::mem::take(&mut self.rules);
        for state in rules {
            let (name, mut tracked) = known
                .remove_entry(&state.rule.name)
                .unwrap_or_else(|| (state.rule.name.clone(), Tracked::new(state)));
            if let Some((per_s, kept)) = weight {
                tracked.measure(state, per_s, kept);
            }
            self.rules.insert(name, tracked);
        }
    }

    /// Requests per connection.
    fn mix(&self) -> Option<f64> {
        let is_known = self.mix.over >= LEAST_CONNECTIONS;
        self.mix.get().filter(|mix| is_known && *mix > 0.0)
    }

    /// What a rule asks for.
    fn claim(&self, rule: &SynRule) -> Claim {
        let tracked = self.rules.get(&rule.name);
        let demand = tracked.and_then(|tracked| tracked.demand.get()).unwrap_or(0.0);
        let demand = some_demand(demand).min(rule.max_rate);
        Claim {
            is_preferred: rule.is_preferred,
            priority: rule.priority,
            demand,
            floor: rule.min_rate.clamp(0.0, demand),
            was_capped: tracked.is_some_and(Tracked::is_capped),
        }
    }

    /// Adds those who wait to what their priority asks for: they want to be accepted in the next interval.
    /// Returns what is left, of priorities that no rule has.
    fn add_waiting(&self, claims: &mut [Claim]) -> f64 {
        let mut left = 0.0;
        for (priority, waiting) in self.waiting.iter().enumerate() {
            let per_s = waiting.get().unwrap_or(0.0) / self.config.every.as_secs_f64();
            let is_of = |claim: &&mut Claim| usize::from(claim.priority) == priority;
            let count = claims.iter_mut().filter(is_of).count();
            let demand: f64 = claims.iter_mut().filter(is_of).map(|claim| claim.demand).sum();
            for claim in claims.iter_mut().filter(is_of) {
                let part = if demand > 0.0 { claim.demand / demand } else { 1.0 / count as f64 };
                claim.demand += part * per_s;
            }
            left += if count == 0 { per_s } else { 0.0 };
        }
        left
    }

    /// Connections per second that no rule is about, and those that came past policing: by an interface that
    /// is not policed, or beyond the rate of a rule that lets such connections pass behind all others.
    fn beside(&self) -> f64 {
        let passed: f64 = self.rules.values().filter_map(|tracked| tracked.accepted.get()).sum();
        let past = self.accepted.get().unwrap_or(0.0) - passed;
        some_demand(self.unmatched.get().unwrap_or(0.0).max(past))
    }

    /// The limit, if there is overload.
    fn judge(&mut self) -> Option<Limit> {
        let share = if self.is_overloaded { EXIT } else { 1.0 };
        let limit = self.limit.filter(|limit| self.demand > share * limit.per_s);
        self.is_overloaded = limit.is_some();
        if !self.is_overloaded {
            self.limits.forget();
        }
        limit
    }

    fn decide(
        &mut self,
        rule: &SynRule,
        claim: &Claim,
        ceiling: Ceiling,
        limit: Option<Limit>,
    ) -> Option<Change> {
        let tracked = self.rules.get_mut(&rule.name)?;
        let target = target(rule, ceiling);
        let demand = self.demand;
        let why = match limit {
            None => Why::Fits,
            Some(limit) if ceiling == Ceiling::Whole => Why::Preferred { limit, demand },
            Some(limit) if claim.demand > target => Why::Squeezed { limit, demand },
            Some(limit) => Why::Ceiling { limit, demand },
        };
        tracked.why = Some(why);
        // The standard deviation of a rate that is averaged over so much time.
        let memory_s = f64::from(self.config.intervals) * self.config.every.as_secs_f64();
        let ripple = limit.map_or(0.0, |limit| (limit.per_s / memory_s).sqrt());
        let rate = next_rate(rule, target, claim.demand, ripple)?;
        Some(Change { name: rule.name.clone(), rate, burst: tracked.burst_at(rule, rate), why })
    }
}

impl Tracked {
    fn new(state: &RuleState<'_>) -> Self {
        Self {
            seen: state.seen,
            passed: state.passed,
            burst: state.rule.burst,
            demand: Ewma::default(),
            accepted: Ewma::default(),
            why: None,
        }
    }

    fn measure(&mut self, state: &RuleState<'_>, per_s: f64, kept: f64) {
        let counted = since(self.seen, state.seen).zip(since(self.passed, state.passed));
        if let Some((seen, passed)) = counted {
            self.demand.add(seen * per_s, kept);
            self.accepted.add(passed * per_s, kept);
        }
        (self.seen, self.passed) = (state.seen, state.passed);
        if state.rule.rate == state.rule.max_rate {
            self.burst = state.rule.burst;
        }
    }

    /// Whether the last decision gave it a share of the limit instead of its configured rate.
    fn is_capped(&self) -> bool {
        matches!(self.why, Some(Why::Ceiling { .. } | Why::Squeezed { .. }))
    }

    /// The burst of a rate, in the proportion configured. Of a rule without a rate: one second's worth.
    fn burst_at(&self, rule: &SynRule, rate: f64) -> u32 {
        if rate >= rule.max_rate {
            return self.burst;
        }
        let second = if rule.max_rate.is_finite() { f64::from(self.burst) / rule.max_rate } else { 1.0 };
        ((rate * second).round() as u32).clamp(1, self.burst.max(1))
    }
}

/// What a counter counted; `None` if it began again.
fn since(before: u64, now: u64) -> Option<f64> {
    Some(now.checked_sub(before)? as f64)
}

/// What is left of a demand that has ended is none.
fn some_demand(per_s: f64) -> f64 {
    if per_s < SynRule::MIN_RATE { 0.0 } else { per_s }
}

/// The rate that a rule is to have, in its bounds and in those of policing.
fn target(rule: &SynRule, ceiling: Ceiling) -> f64 {
    match ceiling {
        Ceiling::PerSecond(level) if level <= SynRule::MAX_RATE => {
            level.max(rule.min_rate).max(SynRule::MIN_RATE).min(rule.max_rate)
        }
        _ => rule.max_rate,
    }
}

/// The next rate on the way to `target`; `None`: no change that matters. `ripple`: by how much the target
/// scatters.
fn next_rate(rule: &SynRule, target: f64, demand: f64, ripple: f64) -> Option<f64> {
    let now = rule.rate;
    let step = now + RISE * now.max(demand.min(target));
    let is_there = step >= target || step >= FREE * demand;
    let rate = if target <= now || is_there { target } else { step.max(rule.min_rate) };
    let is_outside = now < rule.min_rate || now > rule.max_rate;
    let is_great = if rate < now {
        now.is_infinite() || now - rate > ripple.min(ALWAYS_MATTERS * now).max(MATTERS * now)
    } else {
        // The configured rate is reached exactly, and no rule loses what there is room for.
        let is_enough = now < demand && demand <= rate;
        rate == rule.max_rate || is_enough || rate - now > MATTERS * now
    };
    (rate != now && (is_great || is_outside)).then_some(rate)
}
