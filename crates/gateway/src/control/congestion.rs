//! Runs detectors and rules on the control tick (WAC 3.1, 3.2) and publishes the policies in force.
//!
//! ```text
//! counters ─────────────────┐
//! sources, signals ─► readings ─► detectors ─► facts ─► conditions ─► rulebook ─► policies ─► workers
//! figures of the gate ──────┘
//! ```
//!
//! `tidegate_core::detect` and `tidegate_core::rules` decide. Nothing here waits: tasks of their own
//! (`sources.rs`) ask the sources and leave the answers in [`Readings`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::tz::TimeZone;
use parking_lot::{Mutex, MutexGuard};
use tidegate_core::detect::{DetectorInputs, Excess, Judgement, Level, Reading, Resource, SessionCount};
use tidegate_core::measure::Snapshot;
use tidegate_core::rules::{Change, RuleConfig, RuleInput, RuleState, Rulebook, Truth};
use tidegate_core::session::Sessions;
use tidegate_core::units::{Rate, Timestamp};
use tokio::sync::watch;

pub mod look;
pub mod readings;
pub mod sources;

use crate::config::congestion_plan::{self, Plan};
use readings::Readings;
use tidegate_settings::condition::{Condition, Evaluator, Facts};

use crate::history::metrics::DetectorSecond;
use crate::shared::figures::Figures;
use crate::shared::policies::{PolicyRecord, PublishedPolicies};
use crate::shared::sessions;
use crate::shared::{Drain, Shared};
use tidegate_settings::Detector;
use tidegate_settings::figures::{GateFigure, TIMES};

/// A share is published when it has moved by so much, or with the record.
const MOVE: f64 = 0.01;
/// The published record of a rule in force is renewed this often: its figures change, its policy does not.
const RENEW: Duration = Duration::from_secs(1);

pub struct Congestion {
    plan: Arc<Plan>,
    watches: Vec<Watch>,
    book: Rulebook,
    facts: Facts,
    evaluator: Evaluator,
    published_at: Timestamp,
    /// The shares of the rules that follow a level, by rule.
    published_shares: Vec<f64>,
    any_in_force: bool,
    assigned: Vec<Assigned>,
    /// They have changed since somebody asked.
    has_reassigned: bool,
}

/// A tunable that a rule in force sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assigned {
    pub rule: Arc<str>,
    pub key: Arc<str>,
}

struct Watch {
    settings: Detector,
    resource: Box<dyn Resource + Send>,
    excess: Excess,
    logged: Level,
}

impl Watch {
    fn new(plan: &Plan, at: usize) -> Self {
        let settings = plan.detectors[at].clone();
        let resource = plan.criteria[at].detector(&settings.common());
        Self { settings, resource, excess: Excess::default(), logged: Level::Unknown }
    }

    /// The same with other parameters.
    fn with(mut self, settings: &Detector, now: Timestamp) -> Self {
        if self.settings != *settings {
            self.resource.retune(&settings.common(), now);
            self.settings.clone_from(settings);
        }
        self
    }

    fn log(&mut self, verdict: &Judgement) {
        if self.logged == verdict.level {
            return;
        }
        let (name, figure) = (self.settings.name.as_str(), verdict.figure);
        tracing::info!(
            detector = name,
            from = self.logged.name(),
            to = verdict.level.name(),
            figure,
            "level"
        );
        self.logged = verdict.level;
    }
}

pub struct Publish<'a> {
    pub enforcement: &'a PublishedPolicies,
    /// Wakes connections that a policy ends.
    pub wake: &'a watch::Sender<Drain>,
}

/// What detectors judge on one tick.
pub struct Measured<'a> {
    pub snapshot: &'a Snapshot,
    pub connections: u64,
    pub sessions: Option<SessionCount>,
    /// What sources and other applications reported.
    pub readings: &'a Readings,
}

impl Congestion {
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            watches: (0..plan.detectors.len()).map(|at| Watch::new(&plan, at)).collect(),
            book: Rulebook::new(plan.rules.clone()),
            plan,
            facts: Facts::default(),
            evaluator: Evaluator::default(),
            published_at: Timestamp::default(),
            published_shares: Vec::new(),
            any_in_force: false,
            assigned: Vec::new(),
            has_reassigned: false,
        }
    }

    /// Takes in the gate's figures of the last second.
    pub fn second(&mut self, figures: &Figures) {
        self.facts.figures =
            GateFigure::ALL.into_iter().map(|figure| figure_value(figure, figures)).collect();
    }

    pub fn tick(&mut self, plan: &Arc<Plan>, measured: &Measured<'_>, publish: &Publish<'_>, now: Timestamp) {
        let mut changes = self.follow(plan, measured.readings, now);
        let is_other = !changes.is_empty();
        if !self.watches.is_empty() {
            self.look(measured, now);
        }
        changes.extend(self.decide(now));
        for change in &changes {
            self.log(change);
        }
        let is_stale =
            self.any_in_force && (now.since(self.published_at) >= RENEW || self.shares_have_moved());
        if is_other || !changes.is_empty() || is_stale {
            self.publish(publish, now);
        }
    }

    /// Goes over to another plan at once, if it is another.
    pub fn go_over(&mut self, plan: &Arc<Plan>, readings: &Readings, publish: &Publish<'_>, now: Timestamp) {
        if Arc::ptr_eq(plan, &self.plan) {
            return;
        }
        for change in self.follow(plan, readings, now) {
            self.log(&change);
        }
        self.publish(publish, now);
    }

    /// Goes over to another plan, if it is another. Detectors that measure the same keep what they measured,
    /// their level and what they have learned, whatever their thresholds; rules of the same name their state.
    fn follow(&mut self, plan: &Arc<Plan>, readings: &Readings, now: Timestamp) -> Vec<Change> {
        if Arc::ptr_eq(plan, &self.plan) {
            return Vec::new();
        }
        let mut old = std::mem::take(&mut self.watches);
        let watches = plan.detectors.iter().enumerate().map(|(at, settings)| {
            let is_same = |watch: &Watch| watch.settings.measures_as(settings);
            // A criterion names classes and readings by index, so equal settings alone are not enough.
            let same = |i: &usize| is_same(&old[*i]) && self.plan.criteria.get(*i) == plan.criteria.get(at);
            match (0..old.len()).find(same) {
                Some(i) => std::mem::replace(&mut old[i], Watch::new(plan, at)).with(settings, now),
                None => Watch::new(plan, at),
            }
        });
        self.watches = watches.collect();
        // A reading taken for another detector of the same name is not a reading of this one.
        let named = |plan: &Plan, name: &str| {
            let detector = plan.detectors.iter().find(|detector| detector.name == name)?;
            Some((detector.kind, detector.source.clone(), detector.figure.clone()))
        };
        readings.retain(|name| {
            let (new, old) = (named(plan, name), named(&self.plan, name));
            new.is_some() && (old.is_none() || new == old)
        });
        // Shown until detectors judge again.
        let verdicts = || self.watches.iter().map(|watch| watch.resource.verdict());
        self.facts.levels = verdicts().map(|verdict| verdict.level).collect();
        self.facts.detectors = verdicts().map(|verdict| verdict.figure).collect();
        let mut book = Rulebook::new(plan.rules.clone());
        let changes = book.succeed(&self.book, now);
        (self.book, self.plan) = (book, plan.clone());
        // Policies may differ although no rule came in force or ended.
        self.published_at = Timestamp::default();
        self.any_in_force = true;
        changes
    }

    fn look(&mut self, measured: &Measured<'_>, now: Timestamp) {
        let readings: Vec<Option<Reading>> =
            self.plan.detectors.iter().map(|detector| measured.readings.reading(&detector.name)).collect();
        let seen = DetectorInputs::new(measured.snapshot, measured.connections, measured.sessions, &readings);
        let acting = self.acting();
        let facts = &mut self.facts;
        (facts.levels, facts.detectors) = (Vec::new(), Vec::new());
        for (watch, acts) in self.watches.iter_mut().zip(acting) {
            watch.resource.update(&seen, now);
            let verdict = watch.resource.verdict();
            watch.excess.update(&verdict, acts, &watch.settings.excess(), now);
            watch.log(&verdict);
            facts.levels.push(verdict.level);
            facts.detectors.push(verdict.figure);
        }
    }

    /// By detector: whether a rule refuses requests by its share.
    fn acting(&self) -> Vec<bool> {
        let mut acting = vec![false; self.watches.len()];
        for ((rule, state), conditions) in self.book.iter().zip(self.plan.conditions.iter()) {
            if rule.follows_level && state.in_force && !rule.policy.is_shadow {
                conditions.detectors().for_each(|at| acting[at] = true);
            }
        }
        acting
    }

    fn decide(&mut self, now: Timestamp) -> Vec<Change> {
        if self.plan.rules.is_empty() {
            return Vec::new();
        }
        self.facts.times = times(now);
        let (conditions, watches) = (&self.plan.conditions, &self.watches);
        let excess = |at: usize| {
            let watch = watches.get(at).filter(|watch| watch.settings.can_be_followed())?;
            (watch.resource.verdict().level > Level::Unknown).then(|| watch.excess.share())
        };
        let inputs: Vec<RuleInput> = self.evaluator.with(&self.facts, |holds| {
            let input = |c: &congestion_plan::Conditions| RuleInput {
                when: holds(&c.when),
                until: c.until.as_ref().map_or(Truth::Unknown, holds),
                excess: c.detectors().filter_map(excess).reduce(f64::max),
            };
            conditions.iter().map(input).collect()
        });
        self.book.tick(&inputs, now)
    }

    fn shares_have_moved(&self) -> bool {
        let both = self.shares().zip(self.published_shares.iter().copied());
        both.into_iter().any(|(now, published)| (now - published).abs() >= MOVE)
    }

    /// Of the rules that follow a level and are in force; 0 of all others.
    fn shares(&self) -> impl Iterator<Item = f64> {
        let is_followed = |rule: &RuleConfig, state: &RuleState| rule.follows_level && state.in_force;
        self.book.iter().map(move |(rule, state)| if is_followed(rule, state) { state.share } else { 0.0 })
    }

    fn publish(&mut self, publish: &Publish<'_>, now: Timestamp) {
        let policies = self.book.policies();
        self.any_in_force = !policies.is_empty();
        self.published_at = now;
        self.published_shares = self.shares().collect();
        let assigned = self.assigned();
        self.has_reassigned |= assigned != self.assigned;
        self.assigned = assigned;
        let record = |(id, (rule, standing)): (usize, (&RuleConfig, &RuleState))| {
            standing.in_force.then(|| self.record(id, rule, publish.enforcement))
        };
        let records = self.book.iter().enumerate().map(record).collect();
        publish.enforcement.watch(self.plan.may_cut());
        publish.enforcement.publish(policies, records, publish.wake);
    }

    /// What the rules in force set, highest precedence first. Rules in shadow set nothing.
    fn assigned(&self) -> Vec<Assigned> {
        let rules: Vec<&RuleConfig> = self.book.iter().map(|(rule, _)| rule).collect();
        let sets = |id: usize| {
            let (rule, key) = (rules.get(id)?, self.plan.sets.get(id)?.clone()?);
            (!rule.policy.is_shadow).then(|| Assigned { rule: rule.name.clone(), key })
        };
        self.book.in_force().filter_map(sets).collect()
    }

    /// What the rules in force set, highest precedence first, if it has changed since the last call.
    pub fn reassigned(&mut self) -> Option<Vec<Assigned>> {
        std::mem::take(&mut self.has_reassigned).then(|| self.assigned.clone())
    }

    /// The record of a rule in force: its worst level and its figures now.
    fn record(&self, id: usize, rule: &RuleConfig, enforcement: &PublishedPolicies) -> Arc<PolicyRecord> {
        let conditions = self.plan.conditions.get(id).into_iter().flat_map(congestion_plan::Conditions::each);
        let worst = conditions.map(|condition| self.worst(condition)).max().unwrap_or_default();
        enforcement.record(&rule.name, worst.name(), &self.figures_of(id))
    }

    pub fn figures_of(&self, rule: usize) -> String {
        let mut shown = Vec::new();
        if let Some(conditions) = self.plan.conditions.get(rule) {
            conditions.each().for_each(|condition| self.show(condition, &mut shown));
        }
        shown.join(", ")
    }

    fn worst(&self, condition: &Condition) -> Level {
        let levels = condition.detectors.iter().filter_map(|at| self.facts.levels.get(*at));
        levels.copied().max().unwrap_or_default()
    }

    fn show(&self, condition: &Condition, shown: &mut Vec<String>) {
        let mut figure = |name: &str, figure: Option<f64>| {
            let mut text = format!("{name}=");
            _ = match figure {
                Some(x) => write!(text, "{}", rounded(x)),
                None => write!(text, "?"),
            };
            if !shown.contains(&text) {
                shown.push(text);
            }
        };
        for at in &condition.detectors {
            if let Some(watch) = self.watches.get(*at) {
                figure(&watch.settings.name, self.facts.detectors.get(*at).copied().flatten());
            }
        }
        for at in &condition.figures {
            figure(GateFigure::ALL[*at].name(), self.facts.figures.get(*at).copied().flatten());
        }
    }

    fn log(&self, change: &Change) {
        let found = self.book.iter().enumerate().find(|(_, (rule, _))| rule.name == change.name);
        let figures = found.map(|(id, _)| self.figures_of(id));
        let (rule, because, shadow) = (&*change.name, change.because.name(), change.is_shadow);
        let after = change.after.map(|after| after.as_secs_f64());
        match change.in_force {
            true => tracing::info!(rule, because, shadow, figures, "rule in force"),
            false => tracing::info!(rule, because, shadow, after_s = after, "rule over"),
        }
    }

    /// Every detector with its judgement and how often it was checked.
    pub fn detectors(&self) -> impl Iterator<Item = (&Detector, Judgement, u64)> {
        self.watches.iter().map(|watch| (&watch.settings, watch.resource.verdict(), watch.resource.checks()))
    }

    /// Every detector with its figures of now, for the history.
    pub fn seconds(&self, now: Timestamp) -> impl Iterator<Item = (&Detector, DetectorSecond)> {
        self.watches.iter().map(move |watch| {
            let (reading, judgement) = (watch.resource.reading(now), watch.resource.verdict());
            (&watch.settings, DetectorSecond { reading, judgement })
        })
    }

    pub fn rules(&self) -> impl Iterator<Item = (&RuleConfig, &RuleState)> {
        self.book.iter()
    }
}

/// The detectors and rules of a running gate, and the readings they judge.
pub struct CongestionMonitor {
    shared: Arc<Shared>,
    readings: Arc<Readings>,
    congestion: Mutex<Congestion>,
}

impl CongestionMonitor {
    pub fn new(shared: Arc<Shared>) -> Self {
        let plan = shared.config.load().plan.clone();
        // Before the first request.
        shared.policies.watch(plan.may_cut());
        Self { shared, readings: Arc::default(), congestion: Mutex::new(Congestion::new(plan)) }
    }

    pub fn readings(&self) -> &Arc<Readings> {
        &self.readings
    }

    pub fn lock(&self) -> MutexGuard<'_, Congestion> {
        self.congestion.lock()
    }

    /// One control tick: judges the detectors, and puts the policies of the rules in force.
    pub(crate) fn tick(&self, snapshot: &Snapshot, now: Timestamp) {
        let shared = &self.shared;
        let measured = Measured {
            snapshot,
            connections: shared.connections.load(Ordering::Relaxed) as u64,
            sessions: sessions::counted(shared).map(Sessions::count),
            readings: &self.readings,
        };
        self.lock().tick(&shared.config.load().plan, &measured, &self.publish(), now);
    }

    /// Publishes the policies of a new configuration together with it: they name its parts by index.
    pub(crate) fn follow_config(&self, now: Timestamp) {
        let plan = self.shared.config.load().plan.clone();
        self.lock().go_over(&plan, &self.readings, &self.publish(), now);
    }

    fn publish(&self) -> Publish<'_> {
        Publish { enforcement: &self.shared.policies, wake: &self.shared.drain }
    }
}

/// The value of a figure that conditions may name; `None`: not known.
fn figure_value(figure: GateFigure, f: &Figures) -> Option<f64> {
    let total = || f.window.total();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    match figure {
        GateFigure::OfferedPerS => Some(total().offered_per_s),
        GateFigure::AdmittedPerS => Some(total().admitted_per_s),
        GateFigure::GoodputPerS => Some(total().goodput_per_s),
        GateFigure::ErrorsPerS => Some(total().errors_per_s),
        GateFigure::ResponseMean => seconds(total().response.mean),
        GateFigure::ResponseP95 => seconds(total().response.p95),
        GateFigure::ResponseP99 => seconds(total().response.p99),
        GateFigure::InFlight => Some(f.gate.in_flight.into()),
        GateFigure::Queued => Some(f.gate.queued as f64),
        GateFigure::Oldest => Some(f.total.oldest().as_secs_f64()),
        GateFigure::Waiting => Some(f.room.waiting as f64),
        GateFigure::NewcomerWait => Some(f.room.wait.as_secs_f64()),
        GateFigure::Capacity => Some(f.tunables.capacity).filter(|rate| *rate < Rate::MAX).map(Rate::get),
        GateFigure::Overloaded => Some(f64::from(u8::from(f.is_overloaded))),
    }
}

/// The parts of the time of day and date, in the order of [`TIMES`].
fn times(now: Timestamp) -> [f64; TIMES.len()] {
    let us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    // A time beyond the calendar (after the year 9999) counts as the calendar's beginning.
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_zoned(TimeZone::UTC);
    [at.hour(), at.minute(), at.weekday().to_monday_one_offset(), at.day(), at.month()].map(f64::from)
}

/// Rounded to four significant digits.
fn rounded(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    let short = (x * scale).round() / scale;
    if short.is_finite() { short } else { x }
}

#[cfg(test)]
mod excess_tests;
#[cfg(test)]
mod tests;
