//! Runs detectors and rules on the control tick (WAC 3.1, 3.2) and publishes the orders in force.
//!
//! ```text
//! counters ──────────────┐
//! sources, signals ─► board ─► detectors ─► facts ─► conditions ─► rulebook ─► orders ─► publish ─► workers
//! figures of the gate ───┘
//! ```
//!
//! The decisions are `tidegate_core::detect`'s and `tidegate_core::rules`'. Nothing here waits: sources are read by tasks of
//! their own (`sources.rs`), and what they have said stands on the board.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tidegate_core::detect::{DetectorInputs, Judgement, Level, Reading, Resource, SessionCount};
use tidegate_core::measure::Snapshot;
use tidegate_core::rules::{Change, RuleConfig, RuleInput, RuleState, Rulebook, Truth};
use tidegate_core::session::Sessions;
use tidegate_core::units::Timestamp;
use tokio::sync::watch;

pub mod figures;
pub mod look;
pub mod readings;
pub mod sources;

use crate::config::congestion_plan::{self, Plan};
use readings::Readings;
use tidegate_settings::condition::{Condition, Evaluator, Facts};

use crate::control::driver::{Control, lock};
use crate::shared::Drain;
use crate::shared::figures::Figures;
use crate::shared::policies::{PolicyRecord, PublishedPolicies};
use crate::shared::sessions;
use tidegate_settings::Detector;
use tidegate_settings::figures::GateFigure;

/// What is told of rules in force is renewed this often: their figures change, the orders do not.
const RENEW: Duration = Duration::from_secs(1);

/// Detectors, rules, and how they stand.
pub struct Congestion {
    plan: Arc<Plan>,
    watches: Vec<Watch>,
    book: Rulebook,
    facts: Facts,
    evaluator: Evaluator,
    published_at: Timestamp,
    /// Some rule is in force.
    is_any: bool,
}

/// A detector at work.
struct Watch {
    settings: Detector,
    resource: Box<dyn Resource + Send>,
    /// The level that the log knows.
    logged: Level,
}

impl Watch {
    fn new(plan: &Plan, at: usize) -> Self {
        let settings = plan.detectors[at].clone();
        let resource = plan.criteria[at].detector(&settings.common());
        Self { settings, resource, logged: Level::Unknown }
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

/// Where orders go.
pub struct Publish<'a> {
    /// What workers read.
    pub enforcement: &'a PublishedPolicies,
    /// Wakes connections that an order ends.
    pub wake: &'a watch::Sender<Drain>,
}

/// What is measured by others, on a tick.
pub struct Measured<'a> {
    /// All counters.
    pub snapshot: &'a Snapshot,
    /// Visitor connections open now.
    pub connections: u64,
    /// Sessions, if they are counted.
    pub sessions: Option<SessionCount>,
    /// What sources and signals have said.
    pub board: &'a Readings,
}

impl Congestion {
    /// Of a gate that starts.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            watches: (0..plan.detectors.len()).map(|at| Watch::new(&plan, at)).collect(),
            book: Rulebook::new(plan.rules.clone()),
            plan,
            facts: Facts::default(),
            evaluator: Evaluator::default(),
            published_at: Timestamp::default(),
            is_any: false,
        }
    }

    /// The gate's figures of the last second.
    pub fn second(&mut self, figures: &Figures) {
        self.facts.figures =
            GateFigure::ALL.into_iter().map(|figure| figures::value(figure, figures)).collect();
    }

    /// One tick.
    pub fn tick(&mut self, plan: &Arc<Plan>, measured: &Measured<'_>, publish: &Publish<'_>, now: Timestamp) {
        let mut changes = self.follow(plan, measured.board, now);
        let is_other = !changes.is_empty();
        if !self.watches.is_empty() {
            self.look(measured, now);
        }
        changes.extend(self.decide(now));
        for change in &changes {
            self.log(change);
        }
        let is_stale = self.is_any && now.since(self.published_at) >= RENEW;
        if is_other || !changes.is_empty() || is_stale {
            self.publish(publish, now);
        }
    }

    /// Goes over to another plan at once.
    pub fn go_over(&mut self, plan: &Arc<Plan>, board: &Readings, publish: &Publish<'_>, now: Timestamp) {
        if Arc::ptr_eq(plan, &self.plan) {
            return;
        }
        for change in self.follow(plan, board, now) {
            self.log(&change);
        }
        self.publish(publish, now);
    }

    /// Goes over to another plan, if it is another: detectors that are the same keep what they know, and rules go on where they
    /// stood.
    fn follow(&mut self, plan: &Arc<Plan>, board: &Readings, now: Timestamp) -> Vec<Change> {
        if Arc::ptr_eq(plan, &self.plan) {
            return Vec::new();
        }
        let mut old = std::mem::take(&mut self.watches);
        let watches = plan.detectors.iter().enumerate().map(|(at, settings)| {
            let is_same = |watch: &Watch| watch.settings == *settings;
            // A detector that looks at a class, or at its place on the board, does so by number.
            let same = |i: &usize| is_same(&old[*i]) && self.plan.criteria.get(*i) == plan.criteria.get(at);
            match (0..old.len()).find(same) {
                Some(i) => std::mem::replace(&mut old[i], Watch::new(plan, at)),
                None => Watch::new(plan, at),
            }
        });
        self.watches = watches.collect();
        // What was said of something else under the same name is no reading of this.
        let named = |plan: &Plan, name: &str| {
            let detector = plan.detectors.iter().find(|detector| detector.name == name)?;
            Some((detector.kind, detector.source.clone(), detector.figure.clone()))
        };
        board.retain(|name| {
            let (new, old) = (named(plan, name), named(&self.plan, name));
            new.is_some() && (old.is_none() || new == old)
        });
        // What is told before the next look.
        let verdicts = || self.watches.iter().map(|watch| watch.resource.verdict());
        self.facts.levels = verdicts().map(|verdict| verdict.level).collect();
        self.facts.detectors = verdicts().map(|verdict| verdict.figure).collect();
        let mut book = Rulebook::new(plan.rules.clone());
        let changes = book.succeed(&self.book, now);
        (self.book, self.plan) = (book, plan.clone());
        // Orders in force may be others, though no rule came or went.
        self.published_at = Timestamp::default();
        self.is_any = true;
        changes
    }

    fn look(&mut self, measured: &Measured<'_>, now: Timestamp) {
        let readings: Vec<Option<Reading>> =
            self.plan.detectors.iter().map(|detector| measured.board.reading(&detector.name)).collect();
        let seen = DetectorInputs::new(measured.snapshot, measured.connections, measured.sessions, &readings);
        let facts = &mut self.facts;
        (facts.levels, facts.detectors) = (Vec::new(), Vec::new());
        for watch in &mut self.watches {
            watch.resource.update(&seen, now);
            let verdict = watch.resource.verdict();
            watch.log(&verdict);
            facts.levels.push(verdict.level);
            facts.detectors.push(verdict.figure);
        }
    }

    fn decide(&mut self, now: Timestamp) -> Vec<Change> {
        if self.plan.rules.is_empty() {
            return Vec::new();
        }
        self.facts.times = figures::times(now);
        let conditions = &self.plan.conditions;
        let heard: Vec<RuleInput> = self.evaluator.with(&self.facts, |holds| {
            let heard = |c: &congestion_plan::Conditions| RuleInput {
                when: holds(&c.when),
                until: c.until.as_ref().map_or(Truth::Unknown, holds),
            };
            conditions.iter().map(heard).collect()
        });
        self.book.tick(&heard, now)
    }

    fn publish(&mut self, publish: &Publish<'_>, now: Timestamp) {
        let orders = self.book.policies();
        self.is_any = !orders.is_empty();
        self.published_at = now;
        let told = |(id, (rule, standing)): (usize, (&RuleConfig, &RuleState))| {
            standing.in_force.then(|| self.told(id, rule, publish.enforcement))
        };
        let told = self.book.iter().enumerate().map(told).collect();
        publish.enforcement.watch(self.plan.may_cut());
        publish.enforcement.publish(orders, told, publish.wake);
    }

    /// A rule in words, with its figures now.
    fn told(&self, id: usize, rule: &RuleConfig, enforcement: &PublishedPolicies) -> Arc<PolicyRecord> {
        let conditions = self.plan.conditions.get(id).into_iter().flat_map(congestion_plan::Conditions::each);
        let worst = conditions.map(|condition| self.worst(condition)).max().unwrap_or_default();
        enforcement.told(&rule.name, worst.name(), &self.figures_of(id))
    }

    /// The figures that a rule goes by.
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

    /// Every detector with its verdict and how often it was checked.
    pub fn detectors(&self) -> impl Iterator<Item = (&Detector, Judgement, u64)> {
        self.watches.iter().map(|watch| (&watch.settings, watch.resource.verdict(), watch.resource.checks()))
    }

    /// Every rule and how it stands.
    pub fn rules(&self) -> impl Iterator<Item = (&RuleConfig, &RuleState)> {
        self.book.iter()
    }
}

impl Control {
    /// Looks what is congested, and puts in force what rules order. On the control tick.
    pub(crate) fn detect(&self, snapshot: &Snapshot, now: Timestamp) {
        let shared = &self.shared;
        let measured = Measured {
            snapshot,
            connections: shared.connections.load(Ordering::Relaxed) as u64,
            sessions: sessions::counted(shared).map(Sessions::count),
            board: &self.board,
        };
        lock(&self.congestion).tick(&shared.config.load().plan, &measured, &self.publish(), now);
    }

    /// Puts the orders of another configuration in force with it: what they name by number is that configuration's.
    pub(crate) fn follow_rules(&self, now: Timestamp) {
        let shared = &self.shared;
        lock(&self.congestion).go_over(&shared.config.load().plan, &self.board, &self.publish(), now);
    }

    fn publish(&self) -> Publish<'_> {
        Publish { enforcement: &self.shared.policies, wake: &self.shared.drain }
    }

    /// Detectors and rules, and how they stand.
    pub fn congestion(&self) -> MutexGuard<'_, Congestion> {
        lock(&self.congestion)
    }
}

/// Four digits that count.
fn rounded(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    let short = (x * scale).round() / scale;
    if short.is_finite() { short } else { x }
}

#[cfg(test)]
mod tests;
