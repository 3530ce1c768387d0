//! Rules: the decision module of WAC 3.2. The truth of conditions decides which policies are in force.
//!
//! ```text
//! truth of `when` and `until` on the tick ─► rule: out ⇄ in force ─► policies, highest precedence first
//!
//! out ──── when ────────────────────────────────────────────► in force
//! out ◄─── after `hold`: not when, and until if there is one ─ in force
//! ```
//!
//! "The decision rules specify what enforcement policy is executed for specific combinations of congestion
//! criteria." The conditions are evaluated elsewhere; only their truth is known here.
//!
//! A rule that follows a level ends no sooner than its share of the visitors is none.
//!
//! A rule whose `when` and `until` are both true stays in force: otherwise it would change on every tick. So
//! within any time T a rule ends at most T / `hold` + 1 times. Disabling a rule takes effect at once.
//!
//! **Unknown** is neither true nor false ([`OnUnknown`]). By default it neither starts nor keeps a rule.

use std::sync::Arc;
use std::time::Duration;

use crate::detect::LEAST;
use crate::policies::{ActivePolicy, Policy, PolicySet, RuleId, part_of_visitors};
use crate::units::Timestamp;

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Truth {
    #[default]
    Unknown,
    False,
    True,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Kleene's three-valued logic: the result is known if it does not depend on the unknown operand.
impl Truth {
    /// Conjunction.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Unknown,
        }
    }

    /// Disjunction.
    pub fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }

    /// Negation.
    #[expect(clippy::should_implement_trait, reason = "it stands with the other two")]
    pub fn not(self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::False => Self::True,
            Self::True => Self::False,
        }
    }
}

/// The effect of an unknown condition on a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnUnknown {
    /// As if `when` were false and `until` true.
    #[default]
    Ignore,
    /// The rule keeps its state.
    Hold,
    /// As if `when` were true and `until` false.
    Apply,
}

/// A configured rule.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    /// Its name, which identifies it across reloads.
    pub name: Arc<str>,
    pub is_enabled: bool,
    /// Higher values come first; among equals, the first in the configuration.
    pub priority: i32,
    /// Least time in force.
    pub hold: Duration,
    /// Whether there is an `until`; without one, the rule ends with `when`.
    pub has_until: bool,
    pub unknown: OnUnknown,
    /// The policy is for the share of the visitors by which the detectors of the conditions are exceeded.
    pub follows_level: bool,
    /// The policy while the rule is in force. [`Rulebook::new`] sets its rule id.
    pub policy: ActivePolicy,
}

/// The truth of a rule's conditions on a tick.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct RuleInput {
    pub when: Truth,
    /// Whether it may end; ignored without an `until`.
    pub until: Truth,
    /// The greatest [share](crate::detect::Excess::share) of the detectors in its conditions; `None`: all of
    /// them are unknown.
    pub excess: Option<f64>,
}

/// Why a rule changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    When,
    /// `when` is no longer true, and there is no `until`.
    Over,
    Until,
    /// A condition is unknown; see [`OnUnknown`].
    Unknown,
    /// It was disabled, or removed from the configuration.
    Disabled,
}

impl Because {
    /// Its name in logs and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::Over => "over",
            Self::Until => "until",
            Self::Unknown => "unknown",
            Self::Disabled => "disabled",
        }
    }
}

/// A rule that came into force or ended, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub name: Arc<str>,
    pub in_force: bool,
    pub because: Because,
    /// The policy is in shadow: it is only recorded.
    pub is_shadow: bool,
    /// How long the state before lasted; `None`: since the start.
    pub after: Option<Duration>,
}

/// The state of a rule.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct RuleState {
    pub in_force: bool,
    /// Time of the last change; `None`: since the start.
    pub since: Option<Timestamp>,
    pub times: u64,
    /// Its conditions on the last tick.
    pub heard: RuleInput,
    /// The share of the visitors that it is for, where it follows the level.
    pub share: f64,
}

/// The rules and their states.
#[derive(Clone, Debug, Default)]
pub struct Rulebook {
    rules: Vec<RuleConfig>,
    states: Vec<RuleState>,
    by_precedence: Vec<usize>,
}

impl Rulebook {
    /// Rules in the order of the configuration; none is in force.
    pub fn new(mut rules: Vec<RuleConfig>) -> Self {
        for (id, rule) in rules.iter_mut().enumerate() {
            rule.policy.rule = RuleId(u16::try_from(id).unwrap_or(u16::MAX));
        }
        let mut by_precedence: Vec<usize> = (0..rules.len()).collect();
        // A stable sort: equals keep their order.
        by_precedence.sort_by_key(|id| std::cmp::Reverse(rules[*id].priority));
        Self { states: vec![RuleState::default(); rules.len()], rules, by_precedence }
    }

    /// Takes over states by rule name, so that a reload does not end rules. Removed or disabled rules end.
    pub fn succeed(&mut self, old: &Self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (rule, was) in old.rules.iter().zip(&old.states) {
            let kept = self.rules.iter().position(|new| new.name == rule.name);
            if let Some(id) = kept {
                self.states[id] = *was;
            }
            if was.in_force && !kept.is_some_and(|id| self.rules[id].is_enabled) {
                if let Some(id) = kept {
                    self.states[id] = RuleState { in_force: false, since: Some(now), ..*was };
                }
                changes.push(change(rule, was, false, Because::Disabled, now));
            }
        }
        changes
    }

    /// One tick with the conditions by rule; missing ones are unknown. Returns the rules that changed.
    pub fn tick(&mut self, heard: &[RuleInput], now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (id, (rule, state)) in self.rules.iter().zip(&mut self.states).enumerate() {
            state.heard = heard.get(id).copied().unwrap_or_default();
            state.share = match (state.heard.excess, rule.unknown) {
                (Some(excess), _) => excess,
                (None, OnUnknown::Apply) => 1.0 - LEAST,
                (None, _) => state.share,
            };
            let Some(because) = turn(rule, state, now) else { continue };
            let in_force = !state.in_force;
            changes.push(change(rule, state, in_force, because, now));
            let times = state.times + u64::from(in_force);
            *state = RuleState { in_force, since: Some(now), times, ..*state };
        }
        changes
    }

    /// The rules in force, highest precedence first, by their position in the configuration.
    pub fn in_force(&self) -> impl Iterator<Item = usize> {
        self.by_precedence.iter().copied().filter(|id| self.states[*id].in_force)
    }

    /// The policies in force that decide on requests.
    pub fn policies(&self) -> PolicySet {
        let policy = |id: usize| {
            let (rule, mut policy) = (&self.rules[id], self.rules[id].policy.clone());
            if rule.follows_level {
                policy.scope.share = Some(part_of_visitors(self.states[id].share));
            }
            policy
        };
        let decides = |policy: &ActivePolicy| !matches!(policy.policy, Policy::Set);
        PolicySet::new(self.in_force().map(policy).filter(decides).collect())
    }

    /// Every rule and its state, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = (&RuleConfig, &RuleState)> {
        self.rules.iter().zip(&self.states)
    }
}

fn turn(rule: &RuleConfig, state: &RuleState, now: Timestamp) -> Option<Because> {
    let RuleInput { when, until, excess } = state.heard;
    if !rule.is_enabled {
        return state.in_force.then_some(Because::Disabled);
    }
    if !state.in_force {
        return match (when, rule.unknown) {
            (Truth::True, _) => Some(Because::When),
            (Truth::Unknown, OnUnknown::Apply) => Some(Because::Unknown),
            _ => None,
        };
    }
    // While requests must be refused to keep a figure where it is, the end of the rule would be its
    // beginning.
    let is_needed = rule.follows_level && excess.is_some_and(|excess| excess > 0.0);
    let is_held = is_needed || state.since.is_some_and(|since| now.since(since) < rule.hold);
    let until = if rule.has_until { until } else { Truth::True };
    let may_end = when.not().and(until);
    match (may_end, rule.unknown) {
        _ if is_held => None,
        (Truth::True, _) if rule.has_until => Some(Because::Until),
        (Truth::True, _) => Some(Because::Over),
        // No condition demands that it stays.
        (Truth::Unknown, OnUnknown::Ignore) => Some(Because::Unknown),
        _ => None,
    }
}

fn change(rule: &RuleConfig, was: &RuleState, in_force: bool, because: Because, now: Timestamp) -> Change {
    Change {
        name: rule.name.clone(),
        in_force,
        because,
        is_shadow: rule.policy.is_shadow,
        after: was.since.map(|since| now.since(since)),
    }
}
