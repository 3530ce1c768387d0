//! Checks which visitors never wait, and which requests policies refuse. The oracle has its own reading of a
//! policy's scope, since it checks the core's.

use tidegate_core::admission::Decision;
use tidegate_core::policies::{ActivePolicy, MAX_TIERS, Policy, PolicyRequest, PolicySet};
use tidegate_core::throttle::ThrottledType;

use super::{Finding, Oracle, require};

/// A decision, and what the policies in force had to do with it.
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    /// A policy sent the request to the room, whatever its class.
    pub(crate) was_sent_to_room: bool,
}

impl Decided {
    /// The request is redirected and has to come again.
    fn waits(&self) -> bool {
        matches!(self.decision, Decision::Wait { .. } | Decision::Hold { .. } | Decision::Full { .. })
    }

    fn refused_by(&self) -> Option<usize> {
        match self.decision {
            Decision::RefusedByPolicy { policy, .. } => Some(policy),
            _ => None,
        }
    }
}

/// Whether one of these service levels, one bit each, is the request's.
fn is_spared(levels: u64, request: &PolicyRequest<'_>) -> bool {
    (0..MAX_TIERS as u8).any(|tier| levels >> tier & 1 == 1 && tier == request.tier.0)
}

fn is_for(policy: &ActivePolicy, request: &PolicyRequest<'_>) -> bool {
    let scope = &policy.scope;
    let spared = is_spared(scope.spared, request);
    let class = usize::from(request.class.0);
    let is_class = scope.classes.as_ref().is_none_or(|classes| classes.get(class) == Some(&true));
    let is_url = scope.urls.as_ref().is_none_or(|urls| urls.matches(request.path));
    let is_new = request.is_new_session || !scope.new_sessions;
    let is_of_share = scope.share.is_none_or(|share| request.visitor < share);
    is_of_share && is_class && is_url && is_new && !spared && !scope.except.matches(request.path)
}

fn policies(policies: &PolicySet, request: &PolicyRequest<'_>, decided: &Decided) -> Finding {
    let for_it =
        || policies.iter().enumerate().filter(|(_, policy)| !policy.is_shadow && is_for(policy, request));
    let certain = |policy: &ActivePolicy| matches!(policy.policy, Policy::Refuse | Policy::Room);
    let first = for_it().find(|(_, policy)| certain(policy));
    let refuses = first.filter(|(_, policy)| matches!(policy.policy, Policy::Refuse)).map(|(at, _)| at);
    let before = first.map_or(usize::MAX, |(at, _)| at);
    let name = |at: usize| policies.get(at).map(|policy| policy.rule);
    match (decided.refused_by(), refuses) {
        (None, None) => Ok(()),
        (None, Some(at)) => {
            Err(("policy", format!("{:?} is in force, and {request:?} is {:?}", name(at), decided.decision)))
        }
        (Some(at), _) => {
            let by = for_it().find(|(one, _)| *one == at).map(|(_, policy)| &policy.policy);
            let may = match by {
                Some(Policy::Refuse | Policy::Room) => at == before,
                Some(Policy::Limit(_)) => at < before,
                _ => false,
            };
            require(may, "policy", || format!("{:?} refuses {request:?}", name(at)))
        }
    }
}

/// A throttle refuses only requests of its type, and before any rule decides on them.
fn throttles(policies: &PolicySet, request: &PolicyRequest<'_>, throttle: usize) -> Finding {
    let by = policies.throttles().get(throttle);
    let may = by.is_some_and(|by| {
        let is_of_type = match &by.of {
            ThrottledType::Class(class) => *class == request.class,
            ThrottledType::Path(_) => true,
            ThrottledType::Nothing => false,
        };
        is_of_type && !by.is_shadow && !is_spared(by.spared, request)
    });
    require(may, "throttle", || format!("throttle {throttle} refuses {request:?}"))
}

impl Oracle {
    pub(crate) fn under_policies(
        &mut self,
        in_force: Option<&PolicySet>,
        request: &PolicyRequest<'_>,
        decided: &Decided,
    ) {
        let none = PolicySet::default();
        let in_force = in_force.unwrap_or(&none);
        match decided.decision {
            // A quota refuses before any policy is asked.
            Decision::OverQuota { .. } => {}
            Decision::RefusedByThrottle { throttle, .. } => {
                self.apply(|_| throttles(in_force, request, throttle))
            }
            _ => self.apply(|_| policies(in_force, request, decided)),
        }
    }

    /// A visitor of a service level that skips the room has asked.
    pub(crate) fn skips_room(&mut self, client: u32, decided: &Decided) {
        let holds = !decided.waits() || decided.was_sent_to_room;
        let what = || format!("visitor {client} skips the room, and is {:?}", decided.decision);
        self.apply(|_| require(holds, "tier", what));
    }

    /// A browser has asked for a part of a page that it was let in for.
    pub(crate) fn part(&mut self, client: u32, decided: &Decided, keeps_cookies: bool) {
        let decision = &decided.decision;
        let is_kept_out = decided.waits()
            || matches!(decision, Decision::NoSessionSlot { .. } | Decision::Forbidden | Decision::SendBack);
        let holds = !keeps_cookies || !is_kept_out || decided.was_sent_to_room;
        let what = || format!("visitor {client} has the page, and a part of it is {decision:?}");
        self.apply(|_| require(holds, "part", what));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_core::policies::{Action, ActiveThrottle, RuleId, Scope, TierId};
    use tidegate_core::throttle::{Throttle, ThrottleAction, ThrottleId};
    use tidegate_core::units::{ClassId, Cost};

    use super::*;

    fn policy(rule: u16, policy: Policy, scope: Scope) -> ActivePolicy {
        let action = Action::Answer { status: 503 };
        ActivePolicy { rule: RuleId(rule), scope, policy, action, is_shadow: false }
    }

    #[test]
    fn a_throttle_refuses_only_requests_of_its_type() {
        let action = ThrottleAction::Refuse(1.0);
        let throttle = Arc::new(Throttle::new(ThrottleId(1), "class:search".into(), action));
        let of = ThrottledType::Class(ClassId(1));
        let active = ActiveThrottle { of, spared: 1 << 3, is_shadow: false, throttle };
        let set = PolicySet::default().with_throttles([active].into());
        let request = |class, tier| PolicyRequest {
            path: "/",
            query: "",
            class: ClassId(class),
            cost: Cost::ONE,
            tier: TierId(tier),
            visitor: 0,
            is_new_session: true,
            is_plain: true,
        };
        for (class, tier, at, is_right) in
            [(1, 0, 0, true), (2, 0, 0, false), (1, 3, 0, false), (1, 0, 1, false)]
        {
            assert_eq!(throttles(&set, &request(class, tier), at).is_ok(), is_right, "{class} {tier} {at}");
        }
    }

    #[test]
    fn a_rule_refuses_exactly_the_requests_in_its_scope() {
        let newcomers = Scope { new_sessions: true, spared: 1 << 3, ..Scope::default() };
        let set = PolicySet::new(vec![policy(0, Policy::Refuse, newcomers)]);
        let request = |is_new_session, tier| PolicyRequest {
            path: "/",
            query: "",
            class: ClassId(0),
            cost: Cost::ONE,
            tier: TierId(tier),
            visitor: 0,
            is_new_session,
            is_plain: true,
        };
        let refused = Decision::RefusedByPolicy { policy: 0, retry_after: None };
        for (request, decision, is_right) in [
            (request(true, 0), refused, true),
            (request(true, 0), Decision::SendBack, false),
            (request(true, 3), refused, false),
            (request(true, 3), Decision::SendBack, true),
            (request(false, 0), refused, false),
            (request(false, 0), Decision::SendBack, true),
        ] {
            let decided = Decided { decision, was_sent_to_room: false };
            assert_eq!(policies(&set, &request, &decided).is_ok(), is_right, "{request:?}: {decision:?}");
        }
    }
}
