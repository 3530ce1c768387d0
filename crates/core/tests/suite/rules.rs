//! Rules in virtual time: when they begin and end, unknown conditions, precedence, reloads; and that none
//! oscillates.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::policies::{Action, ActivePolicy, Policy, RuleId, Scope};
use tidegate_core::rules::{Because, OnUnknown, RuleConfig, RuleInput, Rulebook, Truth};
use tidegate_core::units::Timestamp;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn rule(name: &str) -> RuleConfig {
    RuleConfig {
        name: name.into(),
        is_enabled: true,
        priority: 0,
        hold: Duration::ZERO,
        has_until: false,
        unknown: OnUnknown::Ignore,
        follows_level: false,
        policy: ActivePolicy {
            rule: RuleId(0),
            scope: Scope::default(),
            policy: Policy::Refuse,
            action: Action::Answer { status: 503 },
            is_shadow: false,
        },
    }
}

fn at(second: u64) -> Timestamp {
    START + Duration::from_secs(second)
}

fn truth(c: char) -> Truth {
    match c {
        '+' => Truth::True,
        '-' => Truth::False,
        _ => Truth::Unknown,
    }
}

/// Plays conditions, one character a second; returns `x` for the seconds with the rule in force.
fn course(rule: RuleConfig, when: &str, until: &str) -> String {
    let mut book = Rulebook::new(vec![rule]);
    let untils = until.chars().chain(std::iter::repeat('?'));
    let seconds = when.chars().zip(untils).zip(1..);
    let mut held = false;
    seconds
        .map(|((when, until), second)| {
            let changes =
                book.tick(&[RuleInput { when: truth(when), until: truth(until), excess: None }], at(second));
            assert!(changes.len() < 2);
            if let Some(change) = changes.first() {
                assert_eq!(change.in_force, !held, "a change must differ from the state before");
                held = change.in_force;
            }
            assert_eq!(book.policies().iter().count(), usize::from(held));
            assert_eq!(book.iter().next().unwrap().1.in_force, held);
            if held { 'x' } else { '.' }
        })
        .collect()
}

#[test]
fn a_rule_is_in_force_while_its_condition_holds() {
    assert_eq!(course(rule("a"), "-++-+-", ""), ".xx.x.");
}

#[test]
fn only_until_ends_a_rule_that_has_one() {
    let until = RuleConfig { has_until: true, ..rule("a") };
    assert_eq!(course(until.clone(), "-+-----", "-----+-"), ".xxxx..");
    // With both true it stays, otherwise it would oscillate.
    assert_eq!(course(until, "-++++--", "-+++++-"), ".xxxx..");
}

#[test]
fn a_rule_stays_for_its_hold_time() {
    let held = RuleConfig { hold: Duration::from_secs(3), ..rule("a") };
    assert_eq!(course(held.clone(), "+-------", ""), "xxx.....");
    assert_eq!(course(held, "+---+---", ""), "xxx.xxx.");
}

#[test]
fn the_rule_decides_what_unknown_conditions_mean() {
    let unknown = |unknown, has_until| RuleConfig { unknown, has_until, ..rule("a") };
    let cases = [
        (OnUnknown::Ignore, false, "?+?-?", "", ".x..."),
        (OnUnknown::Hold, false, "?+?-?", "", ".xx.."),
        (OnUnknown::Apply, false, "?+?-?", "", "xxx.x"),
        // An unknown `until` does not keep a rule that ignores unknown conditions.
        (OnUnknown::Ignore, true, "+-----", "-?----", "x....."),
        (OnUnknown::Hold, true, "+-----", "-??+--", "xxx..."),
        (OnUnknown::Apply, true, "+-----", "-??+--", "xxx..."),
        // A known condition decides, even if the other one is unknown.
        (OnUnknown::Ignore, true, "++----", "-?-?-+", "xxx..."),
        (OnUnknown::Ignore, true, "+?----", "--+---", "xx...."),
        (OnUnknown::Hold, true, "+?----", "-++---", "xx...."),
    ];
    for (what, has_until, when, until, wanted) in cases {
        assert_eq!(course(unknown(what, has_until), when, until), wanted, "{what:?}: {when} until {until}");
    }
}

#[test]
fn three_valued_logic() {
    use Truth::{False, True, Unknown};
    let all = [Unknown, False, True];
    for a in all {
        assert_eq!(a.not().not(), a);
        for b in all {
            assert_eq!((a.and(b), a.or(b)), (b.and(a), b.or(a)));
        }
        assert_eq!((a.and(False), a.and(True), a.or(True), a.or(False)), (False, a, True, a));
    }
    assert_eq!((Unknown.and(Unknown), Unknown.or(Unknown)), (Unknown, Unknown));
    assert_eq!((Truth::from(true), Truth::from(false)), (True, False));
}

fn all(truth: Truth, n: usize) -> Vec<RuleInput> {
    vec![RuleInput { when: truth, until: Truth::Unknown, excess: None }; n]
}

fn named(book: &Rulebook) -> Vec<u16> {
    book.policies().iter().map(|policy| policy.rule.0).collect()
}

#[test]
fn priority_goes_before_order() {
    let with = |priority| RuleConfig { priority, ..rule(&priority.to_string()) };
    let mut book = Rulebook::new(vec![with(0), with(5), with(-1), with(5)]);
    assert_eq!(book.tick(&all(Truth::True, 4), at(1)).len(), 4);
    assert_eq!(named(&book), [1, 3, 0, 2]);
    let mut heard = all(Truth::True, 4);
    heard[3].when = Truth::False;
    book.tick(&heard, at(2));
    assert_eq!(named(&book), [1, 0, 2]);
    // Missing conditions are unknown.
    book.tick(&all(Truth::True, 1), at(3));
    assert_eq!(named(&book), [0]);
}

#[test]
fn a_change_has_a_reason() {
    let mut book = Rulebook::new(vec![rule("a"), RuleConfig { has_until: true, ..rule("b") }]);
    let mut reasons = |when, until, second| -> Vec<(bool, Because, Option<u64>)> {
        let changes = book.tick(&[RuleInput { when, until, excess: None }; 2], at(second));
        changes.iter().map(|c| (c.in_force, c.because, c.after.map(|after| after.as_secs()))).collect()
    };
    use Truth::{False, True, Unknown};
    assert_eq!(reasons(True, False, 10), [(true, Because::When, None); 2]);
    assert_eq!(reasons(False, False, 12), [(false, Because::Over, Some(2))]);
    assert_eq!(reasons(False, True, 13), [(false, Because::Until, Some(3))]);
    assert_eq!(reasons(True, True, 14), [(true, Because::When, Some(2)), (true, Because::When, Some(1))]);
    assert_eq!(reasons(Unknown, Unknown, 15), [(false, Because::Unknown, Some(1)); 2]);
}

#[test]
fn a_reload_keeps_the_states_of_rules() {
    let mut old = Rulebook::new(vec![rule("a"), rule("b"), rule("c"), rule("d")]);
    old.tick(&all(Truth::True, 3), at(1));
    // `a` stays, at another index and in shadow; `b` is disabled; `c` is removed; `d` was out, `e` is new.
    let mut a = rule("a");
    a.policy.is_shadow = true;
    let mut new = Rulebook::new(vec![rule("e"), rule("d"), RuleConfig { is_enabled: false, ..rule("b") }, a]);
    let changes = new.succeed(&old, at(5));
    let gone: Vec<_> = changes.iter().map(|c| (&*c.name, c.in_force, c.because)).collect();
    assert_eq!(gone, [("b", false, Because::Disabled), ("c", false, Because::Disabled)]);
    assert_eq!(named(&new), [3]);
    assert!(new.policies().iter().all(|policy| policy.is_shadow));
    assert_eq!(new.tick(&all(Truth::False, 4), at(6)).len(), 1);
    assert_eq!(named(&new), [] as [u16; 0]);
    let states: Vec<_> = new.iter().map(|(rule, state)| (&*rule.name, state.times)).collect();
    assert_eq!(states, [("e", 0), ("d", 0), ("b", 1), ("a", 1)]);
}

#[test]
fn a_disabled_rule_ends_at_once_and_is_never_in_force() {
    let off = RuleConfig { is_enabled: false, hold: Duration::from_secs(100), ..rule("a") };
    assert_eq!(course(off.clone(), "++++", ""), "....");
    let mut on = Rulebook::new(vec![RuleConfig { is_enabled: true, ..off.clone() }]);
    on.tick(&all(Truth::True, 1), at(1));
    let mut book = Rulebook::new(vec![off]);
    assert_eq!(book.succeed(&on, at(2)).len(), 1);
    assert_eq!(named(&book), [] as [u16; 0]);
}

fn any_truth() -> impl Strategy<Value = Truth> {
    prop_oneof![Just(Truth::Unknown), Just(Truth::False), Just(Truth::True)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// A rule ends only after `hold` in force, so its ends are that far apart, whatever its conditions do.
    #[test]
    fn a_rule_does_not_oscillate(
        hold_ms in 1u64..5_000,
        has_until in any::<bool>(),
        unknown in prop_oneof![Just(OnUnknown::Ignore), Just(OnUnknown::Hold), Just(OnUnknown::Apply)],
        course in proptest::collection::vec((0u64..2_000, any_truth(), any_truth()), 1..200),
    ) {
        let hold = Duration::from_millis(hold_ms);
        let mut book = Rulebook::new(vec![RuleConfig { hold, has_until, unknown, ..rule("a") }]);
        let (mut now, mut came, mut left) = (START, None::<Timestamp>, None::<Timestamp>);
        for (ms, when, until) in course {
            now = now + Duration::from_millis(ms);
            let changes = book.tick(&[RuleInput { when, until, excess: None }], now);
            for change in &changes {
                if change.in_force {
                    let by_default = when == Truth::Unknown && unknown == OnUnknown::Apply;
                    prop_assert!(when == Truth::True || by_default);
                    came = Some(now);
                } else {
                    prop_assert!(now.since(came.unwrap()) >= hold, "held too short");
                    prop_assert!(left.is_none_or(|left| now.since(left) >= hold), "ended twice within hold");
                    prop_assert!(when != Truth::True, "ended although `when` is true");
                    left = Some(now);
                }
            }
            // The same conditions at the same time change nothing more.
            if hold > Duration::ZERO {
                prop_assert_eq!(book.tick(&[RuleInput { when, until, excess: None }], now).len(), 0);
            }
        }
    }
}

#[test]
fn a_rule_that_follows_a_level_is_for_its_share_of_the_visitors() {
    let follows = |unknown| RuleConfig { follows_level: true, unknown, ..rule("a") };
    let shares = |unknown, excesses: &[Option<f64>]| -> Vec<f64> {
        let mut book = Rulebook::new(vec![follows(unknown)]);
        let mut tick = |(second, excess): (u64, &Option<f64>)| {
            let input = RuleInput { when: Truth::True, until: Truth::Unknown, excess: *excess };
            book.tick(&[input], at(second));
            let set = book.policies();
            let share = set.iter().next().expect("in force").scope.share.expect("a share");
            (share as f64 / u64::MAX as f64 * 100.0).round() / 100.0
        };
        (1..).zip(excesses).map(&mut tick).collect()
    };
    let said = [Some(0.0), Some(0.25), None, Some(0.5), None];
    assert_eq!(shares(OnUnknown::Ignore, &said), [0.0, 0.25, 0.25, 0.5, 0.5]);
    assert_eq!(shares(OnUnknown::Apply, &said), [0.0, 0.25, 0.99, 0.5, 0.99]);
}

#[test]
fn a_rule_that_follows_a_level_ends_when_it_refuses_nobody_any_more() {
    let mut book = Rulebook::new(vec![RuleConfig { follows_level: true, ..rule("a") }]);
    let mut tick = |second, when, excess| {
        book.tick(&[RuleInput { when, until: Truth::Unknown, excess }], at(second));
        book.iter().next().unwrap().1.in_force
    };
    assert!(tick(1, Truth::True, Some(0.0)));
    assert!(tick(2, Truth::False, Some(0.2)), "without it the level would rise again");
    assert!(!tick(3, Truth::False, Some(0.0)));
    assert!(tick(4, Truth::True, Some(0.3)));
    assert!(!tick(5, Truth::Unknown, None), "what is unknown keeps no rule");
}
