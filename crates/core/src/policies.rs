//! Policies in force: the part of WAC's decision module (3.2) that requests meet, and its enforcement (3.3).
//!
//! ```text
//! levels, figures ─► rules (tick) ─► policies in force ─► request ─► pass | refuse | multicast
//!                                                                    | ask | room | reroute
//! ```
//!
//! The tick decides which rules hold. Their policies are published as one list in order of precedence, and
//! the first policy whose scope covers a request decides on it. Policies in shadow are only counted, so that
//! operators learn what a rule would do. Without a rule in force a request pays for one comparison.
//!
//! Throttles of request types come before the rules ([`PolicySet::throttle`]).
//!
//! WAC 3.2: (a) new sessions, (b) the same except some URLs, (c) everything, (d) a class are four scopes of
//! one policy, [`Policy::Refuse`]; (e) is [`Policy::Multicast`], (f) [`Policy::Ask`]. Ours: room, URL, rate.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::SharedBucket;
use crate::classify::Paths;
use crate::mutants::{self, Mutant};
use crate::throttle::{Folded, Throttle, ThrottledType};
use crate::units::{ClassId, Cost, Timestamp};

/// A rule, by its position in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RuleId(pub u16);

/// A service level (SLA), by its position in the configuration; 0 is that of everybody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct TierId(pub u8);

/// Most service levels, that of everybody else included.
pub const MAX_TIERS: usize = 64;

/// An external authoriser, by its position in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthoriserId(pub u16);

/// A lighter URL, by its position in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteId(pub u16);

/// Which requests a policy is for: all conditions must hold.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Scope {
    /// Only those that would begin a session.
    pub new_sessions: bool,
    /// Only these classes, by id; `None`: all.
    pub classes: Option<Box<[bool]>>,
    /// Only these URLs; `None`: all.
    pub urls: Option<Paths>,
    /// URLs that it never covers.
    pub except: Paths,
    /// Service levels that it never covers, one bit each.
    pub spared: u64,
    /// Only visitors whose number is below this; `None`: all.
    pub share: Option<u64>,
}

impl Scope {
    /// Whether it covers every request of every visitor, so that no request need be read to decide.
    pub fn is_everything(&self) -> bool {
        !self.new_sessions
            && self.classes.is_none()
            && self.urls.is_none()
            && self.except.is_empty()
            && self.spared == 0
            && self.share.is_none()
    }

    /// Whether it covers this request. Cheapest conditions first.
    pub fn covers(&self, asked: &PolicyRequest<'_>) -> bool {
        (!self.new_sessions || asked.is_new_session)
            && !is_among(self.spared, asked.tier)
            && self
                .classes
                .as_ref()
                .is_none_or(|classes| classes.get(asked.class.index()).copied().unwrap_or(false))
            && self.urls.as_ref().is_none_or(|urls| urls.matches(asked.path))
            && !self.except.matches(asked.path)
            && self.share.is_none_or(|share| asked.visitor < share)
    }
}

/// Whether the level is one of these, one bit each.
fn is_among(levels: u64, tier: TierId) -> bool {
    levels & (1 << (u32::from(tier.0) % MAX_TIERS as u32)) != 0
}

/// What is done with the requests in scope (WAC 3.2).
#[derive(Clone, Debug)]
pub enum Policy {
    /// They are refused, as [`ActivePolicy::action`] says.
    Refuse,
    /// They pass at this rate; the rest is refused.
    Limit(Arc<SharedBucket>),
    /// *URL multicast*: at most one upstream request per URL and `period`; its answer goes to all who asked.
    ///
    /// `ignores_cookies`: cookies take no part, and these fields of its answer are removed. `None`: answers
    /// are shared as the origin allows it.
    Multicast { period: Duration, ignores_cookies: Option<Arc<[Box<str>]>> },
    /// Another application is asked; what it refuses is refused.
    Ask(AuthoriserId),
    /// They go to the waiting room, whatever their class.
    Room,
    /// A lighter URL is served instead.
    Reroute(RouteId),
}

/// How a refusal is carried out (WAC 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// (a) An answer for programs: status and problem JSON.
    Answer { status: u16 },
    /// (b) A lighter URL instead.
    Lighter(RouteId),
    /// (c) The "overloaded" page.
    Page { status: u16 },
    /// (d) The connection is closed without an answer; before it is read where the scope is everything.
    Close,
    /// (d) The same with a reset.
    Reset,
    /// (e) The active connection is ended: what is being answered on it is completed, nothing more is read.
    End,
    /// (f) No more data is sent: what is being answered on the connection is cut off.
    Stop,
}

/// A rule in force.
#[derive(Clone, Debug)]
pub struct ActivePolicy {
    pub rule: RuleId,
    pub scope: Scope,
    pub policy: Policy,
    /// How requests are refused, where the policy refuses.
    pub action: Action,
    /// The policy is decided and counted, but not carried out.
    pub is_shadow: bool,
}

/// A throttle in force.
#[derive(Clone, Debug)]
pub struct ActiveThrottle {
    pub of: ThrottledType,
    /// Service levels that it never covers, one bit each.
    pub spared: u64,
    /// It counts, and holds nobody.
    pub is_shadow: bool,
    pub throttle: Arc<Throttle>,
}

/// What the throttles in force make of a request. Numbers are positions in [`PolicySet::throttles`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Throttling {
    /// The one that refuses it, and when it would pass, if that is known.
    pub refused: Option<(usize, Option<Duration>)>,
    /// The one whose bandwidth the answer's body is part of: the first of several.
    pub shaped: Option<usize>,
}

/// A request, as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// The path component, as it was sent.
    pub path: &'a str,
    /// The query, without the question mark.
    pub query: &'a str,
    pub class: ClassId,
    pub cost: Cost,
    pub tier: TierId,
    /// A number that its visitor always has, uniform over all visitors: see [`visitor_number`].
    pub visitor: u64,
    /// It belongs to no session that was admitted.
    pub is_new_session: bool,
    /// The method is safe (RFC 9110 9.2.1) and the request carries no body: its answer may be another's.
    pub is_plain: bool,
}

/// The number of a visitor with this identity: a session's key, or an address. A rule for a share of the
/// visitors then meets the same ones with every request, and a larger share includes those of a smaller one.
pub fn visitor_number(identity: u128) -> u64 {
    // The finaliser of SplitMix64, twice: addresses are not uniform.
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    mix(mix(identity as u64 ^ 0x9e37_79b9_7f4a_7c15) ^ (identity >> 64) as u64)
}

/// The numbers below this are those of a share of the visitors.
pub fn part_of_visitors(share: f64) -> u64 {
    // The cast saturates.
    (share * u64::MAX as f64) as u64
}

/// What becomes of a request, by `policy`.
#[derive(Clone, Copy, Debug)]
pub enum PolicyDecision<'a> {
    /// No policy decides on it.
    Pass,
    /// Refused, as the policy's action says. `retry_after`: when it would pass, if that is known.
    Refuse {
        policy: &'a ActivePolicy,
        retry_after: Option<Duration>,
    },
    /// Shares an upstream request with others, whose answer is used for `period`.
    Multicast {
        policy: &'a ActivePolicy,
        period: Duration,
    },
    /// Ask the application; if it agrees, go on with [`PolicySet::decide`] from position `next`.
    Ask {
        policy: &'a ActivePolicy,
        application: AuthoriserId,
        next: usize,
    },
    Room {
        policy: &'a ActivePolicy,
    },
    Reroute {
        policy: &'a ActivePolicy,
        route: RouteId,
    },
}

/// The policies in force: throttles, and those of rules, highest precedence first.
#[derive(Clone, Default, Debug)]
pub struct PolicySet {
    throttles: Arc<[ActiveThrottle]>,
    list: Box<[ActivePolicy]>,
}

impl PolicySet {
    /// A set of policies in order of precedence, the highest first.
    pub fn new(list: Vec<ActivePolicy>) -> Self {
        Self { throttles: Arc::default(), list: list.into() }
    }

    /// The same with these throttles.
    pub fn with_throttles(self, throttles: Arc<[ActiveThrottle]>) -> Self {
        Self { throttles, ..self }
    }

    /// Nothing is in force: the usual case.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.throttles.is_empty()
    }

    /// The throttles in force.
    pub fn throttles(&self) -> &[ActiveThrottle] {
        &self.throttles
    }

    /// The policies, highest precedence first.
    pub fn iter(&self) -> impl Iterator<Item = &ActivePolicy> {
        self.list.iter()
    }

    /// The policy at this position.
    pub fn get(&self, at: usize) -> Option<&ActivePolicy> {
        self.list.get(at)
    }

    /// The position of one of these policies.
    pub fn index_of(&self, policy: &ActivePolicy) -> usize {
        self.list.iter().position(|one| std::ptr::eq(one, policy)).unwrap_or(usize::MAX)
    }

    /// What becomes of a connection before anything is read from it: the first policy that covers everything
    /// and refuses at connection level, unless a policy before it might say otherwise.
    pub fn at_accept(&self) -> Option<&ActivePolicy> {
        let first = self.list.iter().find(|policy| !policy.is_shadow)?;
        let refuses =
            matches!(first.policy, Policy::Refuse) && matches!(first.action, Action::Close | Action::Reset);
        (first.scope.is_everything() && refuses).then_some(first)
    }

    /// What the throttles in force make of a request, before [`PolicySet::decide`]. Each that covers it
    /// counts it, until one refuses it.
    pub fn throttle(&self, asked: &PolicyRequest<'_>, now: Timestamp) -> Throttling {
        let mut throttling = Throttling::default();
        let mut folded = None;
        for (at, active) in self.throttles.iter().enumerate() {
            let covers = match &active.of {
                ThrottledType::Class(class) => *class == asked.class,
                ThrottledType::Path(path) => {
                    path.covers(folded.get_or_insert_with(|| Folded::new(asked.path, asked.query)))
                }
                ThrottledType::Nothing => false,
            };
            if !covers || is_among(active.spared, asked.tier) {
                continue;
            }
            let admitted = active.throttle.admit(now);
            if active.is_shadow {
                continue;
            }
            if let Err(retry_after) = admitted {
                return Throttling { refused: Some((at, retry_after)), ..throttling };
            }
            if active.throttle.shaper().is_some() {
                throttling.shaped.get_or_insert(at);
            }
        }
        throttling
    }

    /// What becomes of a request by the rules. `from`: 0, or where an application was asked. `shadow` is called
    /// for every policy in shadow that would have decided: its rate bucket is charged, as it would have been.
    pub fn decide(
        &self,
        asked: &PolicyRequest<'_>,
        from: usize,
        now: Timestamp,
        shadow: &mut dyn FnMut(&ActivePolicy),
    ) -> PolicyDecision<'_> {
        let mut is_shadowed = false;
        for (at, policy) in self.list.iter().enumerate().skip(from) {
            // Only the first policy in shadow would have decided.
            if (policy.is_shadow && is_shadowed) || !policy.scope.covers(asked) {
                continue;
            }
            let decision = match &policy.policy {
                Policy::Refuse if mutants::is(Mutant::RuleRefusesNobody) => continue,
                Policy::Refuse => PolicyDecision::Refuse { policy, retry_after: None },
                Policy::Limit(bucket) => match bucket.take(asked.cost, now) {
                    Ok(()) => continue,
                    Err(wait) => PolicyDecision::Refuse { policy, retry_after: Some(wait) },
                },
                // A request with a body or side effect cannot share an answer or get a lighter page.
                Policy::Multicast { .. } | Policy::Reroute(_) if !asked.is_plain => continue,
                Policy::Multicast { period, .. } => PolicyDecision::Multicast { policy, period: *period },
                Policy::Ask(application) => {
                    PolicyDecision::Ask { policy, application: *application, next: at + 1 }
                }
                Policy::Room => PolicyDecision::Room { policy },
                Policy::Reroute(route) => PolicyDecision::Reroute { policy, route: *route },
            };
            if policy.is_shadow {
                is_shadowed = true;
                shadow(policy);
                continue;
            }
            return decision;
        }
        PolicyDecision::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::BucketConfig;
    use crate::throttle::{PathType, ThrottleAction, ThrottleId};
    use crate::units::Rate;

    fn asked(path: &str) -> PolicyRequest<'_> {
        PolicyRequest {
            path,
            query: "",
            class: ClassId(1),
            cost: Cost::ONE,
            tier: TierId(0),
            visitor: 0,
            is_new_session: true,
            is_plain: true,
        }
    }

    fn policy(rule: u16, policy: Policy) -> ActivePolicy {
        ActivePolicy {
            rule: RuleId(rule),
            scope: Scope::default(),
            policy,
            action: Action::Answer { status: 503 },
            is_shadow: false,
        }
    }

    fn refused_by(policies: &PolicySet, asked: &PolicyRequest<'_>) -> Option<u16> {
        match policies.decide(asked, 0, Timestamp::from_secs(1), &mut |_| ()) {
            PolicyDecision::Refuse { policy, .. } => Some(policy.rule.0),
            PolicyDecision::Pass => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_policy_in_scope_decides() {
        let mut first = policy(0, Policy::Refuse);
        first.scope.classes = Some([false, false, true].into());
        let mut second = policy(1, Policy::Refuse);
        second.scope.new_sessions = true;
        second.scope.except = Paths::compile(["/checkout/**"]).unwrap();
        let policies = PolicySet::new(vec![first, second]);
        assert_eq!(refused_by(&policies, &asked("/")), Some(1));
        assert_eq!(refused_by(&policies, &asked("/checkout/pay")), None);
        assert_eq!(refused_by(&policies, &PolicyRequest { is_new_session: false, ..asked("/") }), None);
        assert_eq!(refused_by(&policies, &PolicyRequest { class: ClassId(2), ..asked("/") }), Some(0));
        assert_eq!(
            refused_by(&policies, &PolicyRequest { class: ClassId(9), is_new_session: false, ..asked("/") }),
            None
        );
    }

    #[test]
    fn a_spared_tier_passes() {
        let mut all = policy(0, Policy::Refuse);
        all.scope.spared = 1 << 3;
        let policies = PolicySet::new(vec![all]);
        assert_eq!(refused_by(&policies, &PolicyRequest { tier: TierId(3), ..asked("/") }), None);
        assert_eq!(refused_by(&policies, &PolicyRequest { tier: TierId(2), ..asked("/") }), Some(0));
        assert!(policies.at_accept().is_none());
    }

    #[test]
    fn a_share_of_the_visitors_is_always_the_same_and_grows() {
        let refused = |share: f64, visitor: u128| {
            let mut part = policy(0, Policy::Refuse);
            part.scope.share = Some((share * u64::MAX as f64) as u64);
            let policies = PolicySet::new(vec![part]);
            assert!(policies.at_accept().is_none(), "the visitor must be known");
            let asked = PolicyRequest { visitor: visitor_number(visitor), ..asked("/") };
            refused_by(&policies, &asked).is_some()
        };
        // Neighbours in a network, of both families.
        for first in [0xffff_0a00_0000_u128, 0x2001_0db8_u128 << 96] {
            for step in [1, 1 << 64] {
                let visitors: Vec<_> = (0..4_000).map(|n| first + n * step).collect();
                let met = |share| visitors.iter().filter(|v| refused(share, **v)).count();
                assert_eq!((met(0.0), met(1.0)), (0, 4_000));
                let (third, half) = (met(0.3), met(0.5));
                assert!((1_100..1_300).contains(&third) && (1_880..2_120).contains(&half), "{third}, {half}");
                assert!(visitors.iter().all(|v| !refused(0.3, *v) || refused(0.5, *v)));
            }
        }
    }

    fn throttled(of: ThrottledType, action: ThrottleAction) -> ActiveThrottle {
        let throttle = Arc::new(Throttle::new(ThrottleId(1), "class:search".into(), action));
        ActiveThrottle { of, spared: 0, is_shadow: false, throttle }
    }

    fn throttle(list: Vec<ActiveThrottle>, asked: &PolicyRequest<'_>) -> Throttling {
        PolicySet::default().with_throttles(list.into()).throttle(asked, Timestamp::from_secs(1))
    }

    #[test]
    fn a_throttle_is_for_its_type_and_spares_service_levels() {
        let of_class = || ThrottledType::Class(ClassId(1));
        let refuse = |of| vec![throttled(of, ThrottleAction::Refuse(1.0))];
        let refused = Throttling { refused: Some((0, None)), shaped: None };
        assert_eq!(throttle(refuse(of_class()), &asked("/")), refused);
        let other = PolicyRequest { class: ClassId(2), ..asked("/") };
        assert_eq!(throttle(refuse(of_class()), &other), Throttling::default());
        assert_eq!(throttle(refuse(ThrottledType::Nothing), &asked("/")), Throttling::default());
        let of_path = ThrottledType::Path(PathType::new("/item/{n}"));
        assert_eq!(throttle(refuse(of_path.clone()), &asked("/item/7")), refused);
        assert_eq!(throttle(refuse(of_path), &asked("/item/new")), Throttling::default());
        let spared = ActiveThrottle { spared: 1 << 3, ..throttled(of_class(), ThrottleAction::Refuse(1.0)) };
        let counts = spared.throttle.clone();
        let gold = PolicyRequest { tier: TierId(3), ..asked("/") };
        assert_eq!(throttle(vec![spared.clone()], &gold), Throttling::default());
        assert_eq!(counts.counts().seen, 0);
        assert_eq!(throttle(vec![spared], &asked("/")), refused);
    }

    #[test]
    fn throttles_are_asked_in_order_until_one_refuses_and_those_in_shadow_only_count() {
        let of = || ThrottledType::Class(ClassId(1));
        let slow = throttled(of(), ThrottleAction::Bandwidth(1_000));
        let slower = throttled(of(), ThrottleAction::Bandwidth(10));
        let none = throttled(of(), ThrottleAction::Refuse(1.0));
        let shadow = ActiveThrottle { is_shadow: true, ..throttled(of(), ThrottleAction::Refuse(1.0)) };
        let list = vec![shadow, slow, slower];
        let shaped = Throttling { refused: None, shaped: Some(1) };
        assert_eq!(throttle(list.clone(), &asked("/")), shaped);
        assert_eq!(list[0].throttle.counts().refused, 1, "counted");
        let list = [vec![none], list].concat();
        assert_eq!(
            throttle(list.clone(), &asked("/")),
            Throttling { refused: Some((0, None)), shaped: None }
        );
        assert_eq!(list[1].throttle.counts().seen, 1, "not asked again");
        assert!(!PolicySet::default().with_throttles(list.into()).is_empty());
    }

    #[test]
    fn a_policy_in_shadow_decides_nothing_and_only_the_first_is_reported() {
        let shadow = |rule| ActivePolicy { is_shadow: true, ..policy(rule, Policy::Refuse) };
        let policies = PolicySet::new(vec![shadow(0), shadow(1), policy(2, Policy::Refuse)]);
        let mut told = Vec::new();
        let decision =
            policies.decide(&asked("/"), 0, Timestamp::from_secs(1), &mut |policy| told.push(policy.rule.0));
        assert!(matches!(decision, PolicyDecision::Refuse { policy, .. } if policy.rule.0 == 2));
        assert_eq!(told, [0]);
    }

    #[test]
    fn a_rate_limit_passes_requests_within_the_rate_to_the_next_policy() {
        let config = BucketConfig { rate: Rate::per_second(1.0).unwrap(), burst: Cost::ONE };
        let limit = Policy::Limit(SharedBucket::new(&config).unwrap());
        let policies = PolicySet::new(vec![policy(0, limit)]);
        assert_eq!(refused_by(&policies, &asked("/")), None);
        assert_eq!(refused_by(&policies, &asked("/")), Some(0));
    }

    #[test]
    fn after_an_agreement_the_next_policies_are_asked() {
        let policies =
            PolicySet::new(vec![policy(0, Policy::Ask(AuthoriserId(0))), policy(1, Policy::Refuse)]);
        let now = Timestamp::from_secs(1);
        let PolicyDecision::Ask { next, .. } = policies.decide(&asked("/"), 0, now, &mut |_| ()) else {
            panic!()
        };
        let decision = policies.decide(&asked("/"), next, now, &mut |_| ());
        assert!(matches!(decision, PolicyDecision::Refuse { policy, .. } if policy.rule.0 == 1));
    }

    #[test]
    fn a_request_that_changes_something_is_not_shared() {
        let multicast = Policy::Multicast { period: Duration::from_secs(1), ignores_cookies: None };
        let policies = PolicySet::new(vec![policy(0, multicast)]);
        assert_eq!(refused_by(&policies, &PolicyRequest { is_plain: false, ..asked("/") }), None);
        let now = Timestamp::from_secs(1);
        assert!(matches!(
            policies.decide(&asked("/"), 0, now, &mut |_| ()),
            PolicyDecision::Multicast { .. }
        ));
        let policies = PolicySet::new(vec![policy(0, Policy::Reroute(RouteId(0)))]);
        assert_eq!(refused_by(&policies, &PolicyRequest { is_plain: false, ..asked("/") }), None);
        assert!(matches!(policies.decide(&asked("/"), 0, now, &mut |_| ()), PolicyDecision::Reroute { .. }));
    }

    #[test]
    fn only_policies_that_cover_everything_are_decided_before_reading() {
        let reset = ActivePolicy { action: Action::Reset, ..policy(0, Policy::Refuse) };
        assert!(PolicySet::new(vec![reset.clone()]).at_accept().is_some());
        let mut narrow = reset.clone();
        narrow.scope.classes = Some([true].into());
        assert!(PolicySet::new(vec![narrow, reset]).at_accept().is_none());
        assert!(PolicySet::new(vec![policy(0, Policy::Refuse)]).at_accept().is_none());
    }
}
