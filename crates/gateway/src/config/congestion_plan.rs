//! Detectors and rules, compiled.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bucket::{BucketConfig, SharedBucket};
use tidegate_core::classify::Paths;
use tidegate_core::detect::{Criterion, SourceId};
use tidegate_core::policies::{
    Action, ActivePolicy, AuthoriserId, Policy, RouteId, RuleId, Scope, part_of_visitors,
};
use tidegate_core::rules::RuleConfig;
use tidegate_core::units::{Cost, Rate, Timestamp};

use crate::config::ClassFacts;
use tidegate_settings::condition::{Condition, Wrong};
use tidegate_settings::{Detector, How, Rule, Settings, Share, Then, Visitors};

/// Why detectors and rules cannot be compiled; `tidegate check` reports the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    #[error("rule.{rule}: expected {}; got {}", .wrong.expected, .wrong.got)]
    Condition { rule: String, wrong: Wrong },
    #[error("rule.{rule}: the path glob {glob:?} is too long from its first wildcard on")]
    Glob { rule: String, glob: String },
}

#[derive(Debug)]
pub struct Conditions {
    pub when: Condition,
    pub until: Option<Condition>,
}

impl Conditions {
    pub fn each(&self) -> impl Iterator<Item = &Condition> {
        std::iter::once(&self.when).chain(&self.until)
    }

    /// The detectors that they name, by index.
    pub fn detectors(&self) -> impl Iterator<Item = usize> {
        self.each().flat_map(|condition| condition.detectors.iter().copied())
    }
}

#[derive(Debug)]
pub struct Plan {
    pub detectors: Vec<Detector>,
    pub criteria: Vec<Criterion>,
    pub rules: Vec<RuleConfig>,
    /// By rule.
    pub conditions: Arc<Vec<Conditions>>,
    /// By rule: the tunable that it sets.
    pub sets: Vec<Option<Arc<str>>>,
}

impl Plan {
    /// Compiles the settings; `classes` are the names of the classes by id.
    pub fn new(settings: &Settings, classes: &[&str]) -> Result<Self, PlanError> {
        let detectors = settings.item_names("detector");
        let conditions = settings.rule.iter().map(|rule| conditions(rule, &detectors));
        let conditions = Arc::new(conditions.collect::<Result<_, _>>()?);
        Self::with(settings, classes, conditions)
    }

    /// The same with the values of tunables that `new` has and `old` had not.
    pub fn tuned(
        self: &Arc<Self>,
        old: &Settings,
        new: &Settings,
        classes: &[ClassFacts],
    ) -> Result<Arc<Self>, PlanError> {
        let texts = |s: &Settings| -> Vec<_> {
            s.rule.iter().map(|rule| (rule.when.clone(), rule.until.clone())).collect()
        };
        if texts(old) == texts(new) {
            return Ok(self.renumbered(new, classes));
        }
        Self::new(new, &class_names(classes)).map(Arc::new)
    }

    /// The same with other values of tunables and other ids of classes; conditions depend on neither.
    pub fn renumbered(self: &Arc<Self>, settings: &Settings, classes: &[ClassFacts]) -> Arc<Self> {
        // Errors do not depend on these, so that there are none.
        let plan = Self::with(settings, &class_names(classes), self.conditions.clone());
        plan.map_or_else(|_| self.clone(), Arc::new)
    }

    fn with(
        settings: &Settings,
        classes: &[&str],
        conditions: Arc<Vec<Conditions>>,
    ) -> Result<Self, PlanError> {
        let rules = settings.rule.iter().map(|rule| compile(rule, settings, classes));
        let criteria = settings.detector.iter().enumerate();
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            criteria: criteria.map(|(at, detector)| detector.criterion(SourceId(at), classes)).collect(),
            detectors: settings.detector.clone(),
            sets: settings.rule.iter().map(sets).collect(),
            conditions,
        })
    }

    /// Takes over the state of another plan's rates, by the names of the rules.
    fn succeed(&mut self, old: &Self, now: Timestamp) {
        for rule in &mut self.rules {
            let before = old.rules.iter().find(|before| before.name == rule.name);
            if let (Policy::Limit(bucket), Some(Policy::Limit(before))) =
                (&mut rule.policy.policy, before.map(|before| &before.policy.policy))
            {
                let rate = bucket.gcra().rate();
                *bucket = before.succeed(&bucket_config(rate), now).unwrap_or_else(|| bucket.clone());
            }
        }
    }

    /// Whether a rule may end a response in progress (WAC 3.3 e, f).
    pub fn may_cut(&self) -> bool {
        let cuts = |policy: &ActivePolicy| {
            matches!(policy.policy, Policy::Refuse) && matches!(policy.action, Action::End | Action::Stop)
        };
        self.rules.iter().any(|rule| cuts(&rule.policy))
    }
}

/// As [`Plan::succeed`], unless `plan` is shared: then it is the one in force.
pub fn succeed(plan: &mut Arc<Plan>, old: &Plan, now: Timestamp) {
    if let Some(plan) = Arc::get_mut(plan) {
        plan.succeed(old, now);
    }
}

/// Names by id; a removed class has none, so that no rule refers to it.
pub fn class_names(classes: &[ClassFacts]) -> Vec<&str> {
    classes.iter().map(|facts| if facts.is_gone { "" } else { &*facts.name }).collect()
}

fn sets(rule: &Rule) -> Option<Arc<str>> {
    (rule.then == Then::Set).then(|| rule.set.as_str().into())
}

fn conditions(rule: &Rule, detectors: &[&str]) -> Result<Conditions, PlanError> {
    let compile = |text: &str| {
        Condition::compile(text, detectors)
            .map_err(|wrong| PlanError::Condition { rule: rule.name.clone(), wrong })
    };
    let until = (!rule.until.is_empty()).then(|| compile(&rule.until)).transpose()?;
    Ok(Conditions { when: compile(&rule.when)?, until })
}

/// As a class's buckets: the burst is a second's worth of the rate, and at least one request.
fn bucket_config(rate: Rate) -> BucketConfig {
    BucketConfig { rate, burst: rate.over(Duration::from_secs(1)).max(Cost::ONE) }
}

fn compile(rule: &Rule, settings: &Settings, classes: &[&str]) -> Result<RuleConfig, PlanError> {
    let paths = |globs: &[String]| {
        Paths::compile(globs.iter().map(String::as_str))
            .map_err(|at| PlanError::Glob { rule: rule.name.clone(), glob: globs[at].clone() })
    };
    let in_scope = |name: &&str| rule.class.iter().any(|wanted| wanted == name);
    let exempt = settings.tier.iter().filter(|tier| tier.exempt).map(|tier| &tier.name);
    let tiers = rule.spare.iter().chain(exempt).filter_map(|name| settings.tier_id(name));
    let scope = Scope {
        new_sessions: rule.visitors == Visitors::New,
        classes: (!rule.class.is_empty()).then(|| classes.iter().map(in_scope).collect()),
        urls: if rule.urls.is_empty() { None } else { Some(paths(&rule.urls)?) },
        except: paths(&rule.except)?,
        spared: tiers.fold(0, |bits, tier| bits | 1 << tier.0),
        share: match rule.share {
            Share::Portion(share) => (share < 1.0).then(|| part_of_visitors(share)),
            // That of the level is set when the policy is put in force.
            Share::Level | Share::IgnoreCookies => None,
        },
    };
    // Unknown names were already rejected by the settings check.
    let index = |list: &str, name: &str| {
        let at = settings.item_names(list).iter().position(|known| *known == name);
        at.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX)
    };
    let route = || RouteId(index("lighter", &rule.to));
    let policy = match rule.then {
        Then::Refuse => Policy::Refuse,
        Then::Limit => SharedBucket::new(&bucket_config(Rate::per_second(rule.rate).unwrap_or_default()))
            .map_or(Policy::Refuse, Policy::Limit),
        Then::Multicast => Policy::Multicast {
            period: rule.period,
            ignores_cookies: (rule.share == Share::IgnoreCookies)
                .then(|| rule.strip.iter().map(|field| field.as_str().into()).collect()),
        },
        Then::Ask => Policy::Ask(AuthoriserId(index("application", &rule.application))),
        Then::Room => Policy::Room,
        Then::Reroute => Policy::Reroute(route()),
        Then::Set => Policy::Set,
    };
    let action = match rule.action {
        How::Answer => Action::Answer { status: rule.status },
        How::Page => Action::Page { status: rule.status },
        How::Lighter => Action::Lighter(route()),
        How::Close => Action::Close,
        How::Reset => Action::Reset,
        How::End => Action::End,
        How::Stop => Action::Stop,
    };
    Ok(RuleConfig {
        name: rule.name.as_str().into(),
        is_enabled: rule.enabled,
        priority: rule.priority.into(),
        hold: rule.hold,
        has_until: !rule.until.is_empty(),
        unknown: rule.unknown,
        follows_level: rule.share == Share::Level,
        policy: ActivePolicy {
            rule: RuleId::default(),
            scope,
            policy,
            action,
            is_shadow: rule.shadow || settings.enforcement.shadow,
        },
    })
}
