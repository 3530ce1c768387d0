//! Publication of policies, and the record of refusals.

use std::time::Duration;

use tidegate_core::classify::Paths;
use tidegate_core::policies::{AuthoriserId, RuleId};

use super::*;
use crate::shared::policies::refusals::{Cause, KEPT, Refusal};
use crate::shared::policies::stats::Done;

fn in_force(action: Action) -> ActivePolicy {
    ActivePolicy {
        rule: RuleId(0),
        scope: Scope::default(),
        policy: Policy::Refuse,
        action,
        is_shadow: false,
    }
}

fn set_of(list: Vec<ActivePolicy>) -> PolicySet {
    PolicySet::new(list)
}

fn conn() -> ConnControl {
    ConnControl::new(-1)
}

fn asked(tier: TierId) -> PolicyRequest<'static> {
    PolicyRequest {
        path: "/",
        query: "",
        class: ClassId(0),
        cost: Cost::ONE,
        tier,
        visitor: 0,
        is_new_session: true,
        is_plain: true,
    }
}

const NOW: Timestamp = Timestamp::from_secs(1);

#[test]
fn without_policies_in_force_the_word_is_zero() {
    let (enforcement, wake) = (PublishedPolicies::default(), watch::Sender::new(Drain::No));
    assert_eq!(enforcement.word(), 0);
    enforcement.publish(
        set_of(vec![in_force(Action::Close)]),
        vec![Some(enforcement.record("r", "red", "cpu=1"))],
        &wake,
    );
    let word = enforcement.word();
    assert!(is_in_force(word) && !is_watched(word));
    assert_eq!(enforcement.standing().record_of(&in_force(Action::Close)).unwrap().rule.as_ref(), "r");
    enforcement.publish(PolicySet::default(), Vec::new(), &wake);
    assert_eq!(enforcement.word(), 0);
    enforcement.watch(true);
    assert!(is_watched(enforcement.word()) && !is_in_force(enforcement.word()));
    enforcement.publish(set_of(vec![in_force(Action::Close)]), Vec::new(), &wake);
    assert!(
        enforcement.word() != word && is_watched(enforcement.word()),
        "two publications never look the same"
    );
}

#[test]
fn connections_are_woken_only_when_the_policies_that_cut_off_change() {
    let (enforcement, wake) = (PublishedPolicies::default(), watch::Sender::new(Drain::No));
    let mut woken = wake.subscribe();
    let mut publish = |list: Vec<ActivePolicy>| {
        let records = vec![Some(enforcement.record("r", "red", ""))];
        enforcement.publish(set_of(list), records, &wake);
        let is_woken = woken.has_changed().unwrap();
        woken.mark_unchanged();
        (is_woken, enforcement.cuts())
    };
    assert_eq!(publish(vec![in_force(Action::Answer { status: 503 })]), (false, 0));
    assert_eq!(publish(vec![in_force(Action::Stop)]), (true, 1));
    assert_eq!(publish(vec![in_force(Action::Stop)]), (false, 1));
    assert_eq!(publish(vec![in_force(Action::End)]), (true, 2));
    assert_eq!(publish(vec![ActivePolicy { is_shadow: true, ..in_force(Action::End) }]), (true, 3));
    assert_eq!(publish(Vec::new()), (false, 3));
}

#[test]
fn a_policy_that_cuts_off_is_checked_against_the_connections_request() {
    let mut of_downloads = in_force(Action::Stop);
    of_downloads.scope.urls = Some(Paths::compile(["/files/**"]).unwrap());
    let standing =
        |list: Vec<ActivePolicy>| PoliciesInForce { set: PolicySet::new(list), records: Box::default() };
    let conn = conn();
    let of_file = |tier| PolicyRequest { path: "/files/a", query: "b", ..asked(tier) };
    let some = standing(vec![of_downloads]);
    assert!(conn.cut_by(&some, NOW).is_none(), "nothing is known of the request");
    conn.take(&of_file(TierId(0)));
    assert!(conn.cut_by(&some, NOW).is_some());
    conn.take(&asked(TierId(0)));
    assert!(conn.cut_by(&some, NOW).is_none());
    let mut spared = in_force(Action::End);
    spared.scope.spared = 1 << 2;
    conn.take(&of_file(TierId(2)));
    assert!(conn.cut_by(&standing(vec![spared]), NOW).is_none());
    // An admitted request stays.
    let mut newcomers = in_force(Action::Stop);
    newcomers.scope.new_sessions = true;
    let newcomers = standing(vec![newcomers]);
    assert!(conn.cut_by(&newcomers, NOW).is_some());
    conn.take(&PolicyRequest { is_new_session: false, ..of_file(TierId(0)) });
    assert!(conn.cut_by(&newcomers, NOW).is_none());
    assert!(
        super::ConnControl::new(-1).cut_by(&standing(vec![in_force(Action::End)]), NOW).is_some(),
        "everybody"
    );
    assert!(conn.cut_by(&standing(vec![in_force(Action::Close)]), NOW).is_none(), "only what ends an answer");
}

#[test]
fn an_answer_under_way_has_been_asked_about_and_is_shared_or_not() {
    let before = |policy: Policy| ActivePolicy { policy, ..in_force(Action::Answer { status: 503 }) };
    let standing = |first: Policy| PoliciesInForce {
        set: PolicySet::new(vec![before(first), in_force(Action::Stop)]),
        records: Box::default(),
    };
    let conn = conn();
    conn.take(&asked(TierId(0)));
    let (ask, multicast) = (
        Policy::Ask(AuthoriserId(0)),
        Policy::Multicast { period: Duration::from_secs(1), ignores_cookies: None },
    );
    let (ask, multicast) = (standing(ask), standing(multicast));
    let is_cut = |by: &PoliciesInForce| conn.cut_by(by, NOW).is_some();
    assert!(is_cut(&ask) && is_cut(&multicast), "who was let in by the one and is alone for the other");
    conn.share();
    assert!(is_cut(&ask) && !is_cut(&multicast), "whose answer is others' too");
    assert!(!is_cut(&standing(Policy::Room)) && !is_cut(&standing(Policy::Refuse)), "decided by another");
}

#[test]
fn the_last_refusals_are_found_and_the_ring_is_bounded() {
    let enforcement = PublishedPolicies::default();
    assert!(enforcement.refusals.find("none").is_none());
    let record = enforcement.record("cpu", "red", &"é".repeat(500));
    assert_eq!(record.figures.len(), MAX_FIGURES);
    let refusal = |id: usize| {
        let cause = Cause::Rule(record.clone(), Done::Answer);
        let at = NOW + Duration::from_micros(id as u64);
        Refusal::new(&format!("id-{id}"), "/", ClassId(0), TierId(0), cause, at).retry_after(5)
    };
    for id in 0..=KEPT {
        enforcement.refusals.keep(refusal(id));
    }
    assert!(enforcement.refusals.find("id-0").is_none(), "the oldest has given its place");
    assert!(enforcement.refusals.find("id-1").is_some());
    assert!(enforcement.refusals.find(&format!("id-{KEPT}")).is_some());
    assert!(enforcement.refusals.find("id").is_none(), "a part of an id is no id");
    assert_eq!(enforcement.refusals.count(), KEPT as u64 + 1);
    // The memory of an entry: the figure in the documentation.
    assert!(size_of::<Mutex<Option<Refusal>>>() <= 240, "{}", size_of::<Mutex<Option<Refusal>>>());
}
