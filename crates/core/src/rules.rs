//! Rules: which hold, and so which orders are in force (WAC 3.2, the decision module).
//!
//! ```text
//! truth of `when` and `until` on the tick ─► rule: out ⇄ in force ─► orders, highest precedence first
//! ```
//!
//! "The decision rules specify what enforcement policy is executed for specific combinations of congestion criteria." What the
//! conditions say is not known here, only whether they are true.
//!
//! ```text
//! out ──── when ────────────────────────────────────────────► in force
//! out ◄─── after `hold`: not when, and until if there is one ─ in force
//! ```
//!
//! A rule whose `when` and `until` are both true stays: otherwise it would come and go with every tick. So within any stretch T a
//! rule ends at most T / `hold` + 1 times, whatever its conditions do; an operator who switches it off is not made to wait.
//!
//! **Unknown** ([`OnUnknown`]) is neither true nor false. By default a rule does not rest on what nobody knows: it does not
//! come in force for it, and goes when it would have to stay for it.

use std::sync::Arc;
use std::time::Duration;

use crate::policies::{ActivePolicy, PolicySet, RuleId};
use crate::units::Timestamp;

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Truth {
    /// It depends on something nobody knows.
    #[default]
    Unknown,
    /// It does not.
    False,
    /// It does.
    True,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Kleene's logic: what is decided whatever the unknown turns out to be, is decided.
impl Truth {
    /// Both.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, Self::True) => Self::True,
            _ => Self::Unknown,
        }
    }

    /// One of them.
    pub fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }

    /// The opposite.
    #[expect(clippy::should_implement_trait, reason = "it stands with the other two")]
    pub fn not(self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::False => Self::True,
            Self::True => Self::False,
        }
    }
}

/// What a condition that is unknown means to a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnUnknown {
    /// The rule does not count on it: as if `when` were false and `until` true.
    #[default]
    Ignore,
    /// The rule stays what it is, in force or not.
    Hold,
    /// The worst is supposed: as if `when` were true and `until` false.
    Apply,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    /// Its name, by which it is the same rule after a reload.
    pub name: Arc<str>,
    /// Switched off, it never holds.
    pub is_enabled: bool,
    /// Higher comes first; of equals, the first in the configuration.
    pub priority: i32,
    /// How long it stays in force at least.
    pub hold: Duration,
    /// There is an `until`; without, it ends when `when` does.
    pub has_until: bool,
    /// If a condition is unknown.
    pub unknown: OnUnknown,
    /// What it asks while it holds. Whose it is, is set here.
    pub order: ActivePolicy,
}

/// What a rule's conditions are on this tick.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RuleInput {
    /// Whether it is to come in force.
    pub when: Truth,
    /// Whether it may end; without an `until` it does not matter.
    pub until: Truth,
}

/// Why a rule came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// `when` is true.
    When,
    /// `when` is not true any more, and there is no `until`.
    Over,
    /// `until` is true.
    Until,
    /// A condition is unknown, and the rule says what that means.
    Unknown,
    /// It was switched off, or is gone from the configuration.
    Disabled,
}

impl Because {
    /// As logs and the API have it.
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

/// A rule that came or went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which.
    pub name: Arc<str>,
    /// It came.
    pub in_force: bool,
    /// Why.
    pub because: Because,
    /// In shadow: nothing follows from it.
    pub is_shadow: bool,
    /// How long it was as it was; `None`: since the start.
    pub after: Option<Duration>,
}

/// How a rule stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RuleState {
    /// It holds.
    pub in_force: bool,
    /// Since when it does, or does not; `None`: since the start.
    pub since: Option<Timestamp>,
    /// How often it came in force.
    pub times: u64,
    /// What its conditions were last.
    pub heard: RuleInput,
}

/// The rules, and how they stand.
#[derive(Clone, Debug, Default)]
pub struct Rulebook {
    rules: Vec<RuleConfig>,
    standings: Vec<RuleState>,
    /// Indices, highest precedence first.
    order: Vec<usize>,
}

impl Rulebook {
    /// Rules of which none is in force, in the order of the configuration.
    pub fn new(mut rules: Vec<RuleConfig>) -> Self {
        for (id, rule) in rules.iter_mut().enumerate() {
            rule.order.rule = RuleId(u16::try_from(id).unwrap_or(u16::MAX));
        }
        let mut order: Vec<usize> = (0..rules.len()).collect();
        // Stable: equals keep their order.
        order.sort_by_key(|id| std::cmp::Reverse(rules[*id].priority));
        Self { standings: vec![RuleState::default(); rules.len()], rules, order }
    }

    /// Goes on where other rules stood, by their names: a reload does not end what is in force. What is gone or was switched
    /// off has ended.
    pub fn succeed(&mut self, old: &Self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (rule, was) in old.rules.iter().zip(&old.standings) {
            let kept = self.rules.iter().position(|new| new.name == rule.name);
            if let Some(id) = kept {
                self.standings[id] = *was;
            }
            if was.in_force && !kept.is_some_and(|id| self.rules[id].is_enabled) {
                if let Some(id) = kept {
                    self.standings[id] = RuleState { in_force: false, since: Some(now), ..*was };
                }
                changes.push(change(rule, was, false, Because::Disabled, now));
            }
        }
        changes
    }

    /// One tick: what the conditions are, by rule; a rule of which nothing is said has conditions that are unknown. What came and
    /// went: nothing, mostly.
    pub fn tick(&mut self, heard: &[RuleInput], now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (id, (rule, standing)) in self.rules.iter().zip(&mut self.standings).enumerate() {
            standing.heard = heard.get(id).copied().unwrap_or_default();
            let Some(because) = turn(rule, standing, now) else { continue };
            let in_force = !standing.in_force;
            changes.push(change(rule, standing, in_force, because, now));
            let times = standing.times + u64::from(in_force);
            *standing = RuleState { in_force, since: Some(now), times, ..*standing };
        }
        changes
    }

    /// The orders in force.
    pub fn orders(&self) -> PolicySet {
        let in_force = self.order.iter().filter(|id| self.standings[**id].in_force);
        PolicySet::new(in_force.map(|id| self.rules[*id].order.clone()).collect())
    }

    /// Every rule and how it stands, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = (&RuleConfig, &RuleState)> {
        self.rules.iter().zip(&self.standings)
    }
}

/// Whether the rule comes or goes now, and why.
fn turn(rule: &RuleConfig, standing: &RuleState, now: Timestamp) -> Option<Because> {
    let RuleInput { when, until } = standing.heard;
    if !rule.is_enabled {
        return standing.in_force.then_some(Because::Disabled);
    }
    if !standing.in_force {
        return match (when, rule.unknown) {
            (Truth::True, _) => Some(Because::When),
            (Truth::Unknown, OnUnknown::Apply) => Some(Because::Unknown),
            _ => None,
        };
    }
    let is_held = standing.since.is_some_and(|since| now.since(since) < rule.hold);
    let until = if rule.has_until { until } else { Truth::True };
    let may_end = when.not().and(until);
    match (may_end, rule.unknown) {
        _ if is_held => None,
        (Truth::True, _) if rule.has_until => Some(Because::Until),
        (Truth::True, _) => Some(Because::Over),
        // Neither condition says that it should stay.
        (Truth::Unknown, OnUnknown::Ignore) => Some(Because::Unknown),
        _ => None,
    }
}

fn change(rule: &RuleConfig, was: &RuleState, in_force: bool, because: Because, now: Timestamp) -> Change {
    Change {
        name: rule.name.clone(),
        in_force,
        because,
        is_shadow: rule.order.is_shadow,
        after: was.since.map(|since| now.since(since)),
    }
}
