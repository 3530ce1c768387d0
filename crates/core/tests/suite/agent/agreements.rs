//! What the operator writes into rules, and what the agent makes of rules that come and go.

use proptest::prelude::*;
use tidegate_core::detect::Level;
use tidegate_core::policing::agent::{
    Agent, AgentConfig, Bound, Change, Inputs, RuleState, ServiceState, Why,
};
use tidegate_core::policing::{Filter, SynRule};
use tidegate_core::units::Timestamp;

use super::world::{Aggregate, CONFIG, World};

fn rule(name: &str, rate: f64, burst: u32) -> SynRule {
    SynRule { max_rate: rate, ..SynRule::new(name, Filter::default(), rate, burst) }
}

/// One tick after `second` seconds in which each rule had `(seen, passed)` SYNs per second, all of which
/// were accepted with one request each.
fn tick(
    agent: &mut Agent,
    rules: &[(&SynRule, u64, u64)],
    capacity: Option<f64>,
    second: u64,
) -> Vec<Change> {
    let state = |&(rule, seen, passed): &(_, u64, u64)| RuleState {
        rule,
        seen: seen * second,
        passed: passed * second,
    };
    let states: Vec<RuleState<'_>> = rules.iter().map(state).collect();
    let accepted = rules.iter().map(|(_, _, passed)| passed * second).sum();
    let inputs = Inputs {
        rules: &states,
        unmatched: 0,
        accepted,
        requests: accepted,
        cpu: None,
        capacity,
        services: &[],
        waiting: &[],
        level: Level::Green,
    };
    agent.tick(&inputs, Timestamp::from_secs(100 + second))
}

#[test]
fn the_burst_follows_the_rate_and_comes_back() {
    let mut agent = Agent::new(CONFIG);
    let (mut wide, mut narrow) = (rule("wide", 1000.0, 500), rule("narrow", 1000.0, 1));
    for second in 0..20 {
        let rules = [(&wide, 800, 100), (&narrow, 800, 100)];
        for change in tick(&mut agent, &rules, Some(200.0), second) {
            let rule = if change.name == "wide" { &mut wide } else { &mut narrow };
            (rule.rate, rule.burst) = (change.rate, change.burst);
        }
    }
    assert_eq!((wide.rate, wide.burst, narrow.rate, narrow.burst), (100.0, 50, 100.0, 1));
    let mut changes = Vec::new();
    for second in 20..60 {
        for change in tick(&mut agent, &[(&wide, 800, 100), (&narrow, 800, 100)], None, second) {
            let rule = if change.name == "wide" { &mut wide } else { &mut narrow };
            (rule.rate, rule.burst) = (change.rate, change.burst);
            changes.push(change);
        }
    }
    assert_eq!((wide.rate, wide.burst, narrow.rate, narrow.burst), (1000.0, 500, 1000.0, 1));
    assert!(changes.iter().all(|change| change.why == Why::Fits), "{changes:?}");
    let steps: Vec<f64> = changes.iter().filter(|c| c.name == "wide").map(|change| change.rate).collect();
    assert_eq!(steps, [300.0, 500.0, 700.0, 900.0, 1000.0], "a quarter of the demand at a time");
}

#[test]
fn the_least_rate_is_kept_though_the_sum_is_above_the_limit() {
    let crowds =
        [Aggregate::new("one", 0, 900.0).at_least(250.0), Aggregate::new("two", 1, 900.0).at_least(250.0)];
    let mut world = World::new(crowds.into(), 400.0);
    world.is_known = true;
    world.play(240);
    let rates: Vec<f64> = world.aggregates.iter().map(|aggregate| aggregate.rule.rate).collect();
    assert_eq!(rates, [250.0, 250.0]);
}

#[test]
fn a_rate_outside_of_its_bounds_is_brought_back() {
    let mut agent = Agent::new(CONFIG);
    let mut crowd = SynRule { rate: 102.0, min_rate: 99.0, ..rule("crowd", 100.0, 10) };
    for (second, (rate, expected)) in
        [(102.0, None), (102.0, Some(100.0)), (98.0, Some(100.0))].into_iter().enumerate()
    {
        crowd.rate = rate;
        let changes = tick(&mut agent, &[(&crowd, 1, 1)], None, second as u64);
        assert_eq!(changes.first().map(|change| change.rate), expected);
    }
}

#[test]
fn a_reload_forgets_rules_that_vanish_and_takes_the_new_burst() {
    let mut agent = Agent::new(CONFIG);
    let (mut stays, goes) = (rule("stays", 1000.0, 500), rule("goes", 1000.0, 500));
    for second in 0..10 {
        for change in tick(&mut agent, &[(&stays, 800, 100), (&goes, 800, 100)], Some(200.0), second) {
            if change.name == "stays" {
                (stays.rate, stays.burst) = (change.rate, change.burst);
            }
        }
    }
    assert_eq!((stays.rate, stays.burst), (100.0, 50));
    let demand = |agent: &Agent| agent.view().rules.iter().map(|rule| rule.demand).collect::<Vec<_>>();
    assert_eq!(demand(&agent), [800.0, 800.0]);
    agent.reconfigure(AgentConfig { min_share: 0.1, ..CONFIG }, &[rule("stays", 1000.0, 1000)]);
    assert_eq!(demand(&agent), [800.0], "what was learned stays");
    // Now with the whole limit, a burst of twice the size, and beside a rule that is new.
    let new = rule("new", 50.0, 5);
    for second in 10..30 {
        for change in tick(&mut agent, &[(&stays, 800, 200), (&new, 0, 0)], Some(200.0), second) {
            assert_eq!(change.name, "stays", "the new one is at its configured rate");
            (stays.rate, stays.burst) = (change.rate, change.burst);
        }
    }
    assert_eq!((stays.rate, stays.burst), (200.0, 200));
}

#[test]
fn counters_that_begin_again_are_no_demand() {
    let mut agent = Agent::new(CONFIG);
    let crowd = rule("crowd", 1000.0, 100);
    for second in 0..10 {
        tick(&mut agent, &[(&crowd, 80, 80)], Some(1000.0), second);
    }
    for (second, seen) in [(10, 0), (11, 80), (12, 160)] {
        let state = [RuleState { rule: &crowd, seen, passed: seen }];
        let inputs = Inputs {
            rules: &state,
            unmatched: 0,
            accepted: seen,
            requests: seen,
            cpu: None,
            capacity: Some(1000.0),
            services: &[],
            waiting: &[],
            level: Level::Green,
        };
        assert_eq!(agent.tick(&inputs, Timestamp::from_secs(100 + second)), []);
        let demand = agent.view().rules[0].demand;
        assert!((demand - 80.0).abs() < 1e-9, "{demand}");
    }
}

#[test]
fn the_view_says_what_was_found_and_why() {
    let crowds = vec![
        Aggregate::new("customers", 0, 60.0).preferred(),
        Aggregate::new("crowd", 1, 900.0),
        Aggregate::new("few", 1, 5.0),
    ];
    let mut world = World::new(crowds, 300.0);
    (world.is_known, world.mix) = (true, 4.0);
    world.play(240);
    let view = world.agent.as_ref().expect("an agent").view();
    let limit = view.limit.expect("known");
    assert!(
        view.is_overloaded && limit.bound == Bound::Capacity && (limit.per_s - 300.0).abs() < 1.0,
        "{view:?}"
    );
    let mix = view.averages.requests_per_connection.expect("known");
    assert!((mix - 4.0).abs() < 0.01, "{mix}");
    let why = |name: &str| {
        let rule = view.rules.iter().find(|rule| rule.name == name).expect("a rule");
        rule.why.expect("decided").to_string()
    };
    assert!(why("customers").starts_with("preferred, and fits: "), "{}", why("customers"));
    assert!(why("few").starts_with("not squeezed, up to its share: "), "{}", why("few"));
    let crowd = why("crowd");
    assert!(
        crowd.starts_with("squeezed to its share: ") && crowd.ends_with("fit for the capacity"),
        "{crowd}"
    );
    let crowd = view.rules.iter().find(|rule| rule.name == "crowd").expect("a rule");
    assert!(crowd.served().is_some_and(|served| served < 0.3), "{crowd:?}");
}

#[test]
fn ticks_too_close_together_are_one() {
    let mut agent = Agent::new(CONFIG);
    let crowd = rule("crowd", 1000.0, 100);
    let mut at = |ms: u64, seen: u64| {
        let state = [RuleState { rule: &crowd, seen, passed: seen }];
        let inputs = Inputs {
            rules: &state,
            unmatched: 0,
            accepted: seen,
            requests: seen,
            cpu: None,
            capacity: None,
            services: &[],
            waiting: &[],
            level: Level::Unknown,
        };
        agent.tick(&inputs, Timestamp::from_millis(ms));
        agent.view().rules[0].demand
    };
    assert_eq!((at(1000, 0), at(1001, 50), at(1400, 60)), (0.0, 0.0, 0.0));
    assert_eq!(at(2000, 100), 100.0);
}

fn any_aggregate() -> impl Strategy<Value = (u8, bool, f64, Option<(f64, u32)>, f64)> {
    let fresh = prop_oneof![Just(0.0), 0.5..50.0, 50.0..2000.0];
    let limited = prop::option::of((1.0..3000.0, 1u32..3000));
    let least = prop_oneof![3 => Just(0.0), 1 => 0.0..1.0];
    (0u8..4, any::<bool>(), fresh, limited, least)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever comes, and however it changes: rates and bursts stay in their bounds and are valid rules.
    #[test]
    fn rates_and_bursts_stay_in_bounds(
        aggregates in prop::collection::vec(any_aggregate(), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0.0..3000.0), 0..6),
        serves in 1.0..2000.0,
        (is_known, has_cpu, base_cpu, beside) in (any::<bool>(), any::<bool>(), 0.0..1.0, 0.0..300.0),
    ) {
        let mut world = World::new(Vec::new(), serves);
        for (number, (priority, is_preferred, fresh, limited, least)) in aggregates.iter().enumerate() {
            let mut aggregate = Aggregate::new(&number.to_string(), *priority, *fresh);
            if let Some((rate, burst)) = limited {
                aggregate = aggregate.limited(*rate, *burst);
                aggregate = aggregate.at_least(least * rate);
            }
            aggregate.rule.is_preferred = *is_preferred;
            world.aggregates.push(aggregate);
        }
        (world.is_known, world.has_cpu, world.base_cpu, world.beside) = (is_known, has_cpu, base_cpu, beside);
        let configured: Vec<SynRule> = world.aggregates.iter().map(|a| a.rule.clone()).collect();
        for turn in 0..=changes.len() {
            for _ in 0..20 {
                world.second();
                for (aggregate, configured) in world.aggregates.iter().zip(&configured) {
                    let SynRule { rate, burst, min_rate, max_rate, .. } = aggregate.rule;
                    prop_assert!(rate >= min_rate && rate <= max_rate, "{:?}", aggregate.rule);
                    prop_assert!(burst >= 1 && burst <= configured.burst, "{:?}", aggregate.rule);
                    let rule = aggregate.rule.clone();
                    prop_assert!(tidegate_core::policing::Rules::new([rule]).is_ok(), "{:?}", aggregate.rule);
                }
            }
            if let Some((index, fresh)) = changes.get(turn) {
                let index = index.index(world.aggregates.len());
                world.aggregates[index].fresh = *fresh;
            }
        }
    }

    /// Demand that stays: the rates come to rest.
    #[test]
    fn constant_demand_comes_to_rest(
        aggregates in prop::collection::vec(any_aggregate(), 1..6),
        serves in 50.0..1000.0,
        is_known in any::<bool>(),
    ) {
        let mut world = World::new(Vec::new(), serves);
        for (number, (priority, is_preferred, fresh, limited, _)) in aggregates.iter().enumerate() {
            let mut aggregate = Aggregate::new(&number.to_string(), *priority, *fresh);
            if let Some((rate, burst)) = limited {
                aggregate = aggregate.limited(*rate, *burst);
            }
            aggregate.rule.is_preferred = *is_preferred;
            world.aggregates.push(aggregate);
        }
        (world.is_known, world.has_cpu) = (is_known, !is_known);
        // A bucket whose rate is just below the demand is empty after long.
        world.play(3000);
        // Counters are whole numbers, which is a ripple of its own: a decision may follow from it once.
        let decisions = (0..1000).filter(|_| !world.second().is_empty()).count();
        let rates: Vec<f64> = world.aggregates.iter().map(|aggregate| aggregate.rule.rate).collect();
        prop_assert!(decisions <= 1, "{decisions} decisions: {rates:?}");
    }
}

/// A preferred rule asks for 90 % of what is free for it: below that a capped rule gets its configured rate
/// back. Counters are whole numbers, so its demand is measured now just above and now just below.
#[test]
fn a_preferred_rule_that_just_fits_comes_to_rest() {
    let crowds = vec![
        Aggregate::new("customers", 2, 534.365).preferred(),
        Aggregate::new("crowd", 3, 175.222),
        Aggregate::new("nobody", 3, 0.0),
    ];
    let mut world = World::new(crowds, 695.248);
    world.has_cpu = true;
    world.play(1500);
    assert_eq!(world.play(200), None, "{:?}", world.aggregate("customers").rule);
}

/// Clients who wait for an answer before they ask again send no SYN while they wait. The first priority gets
/// all that the service can serve, and asks for no more; whoever waits behind it is seen all the same.
#[test]
fn who_waits_to_be_accepted_is_demand_without_a_syn() {
    let rule = |name: &str, priority| SynRule {
        priority,
        ..SynRule::new(name, Filter::default(), f64::INFINITY, SynRule::MAX_BURST)
    };
    let (first, second) = (rule("first", 0), rule("second", 1));
    let lowest_rate = |waiting: &[u64]| {
        let mut agent = Agent::new(CONFIG);
        let mut lowest = f64::INFINITY;
        for second_no in 0..30 {
            let all = 390 * second_no;
            let state = |rule, seen| RuleState { rule, seen, passed: seen };
            let inputs = Inputs {
                rules: &[state(&first, all), state(&second, 0)],
                unmatched: 0,
                accepted: all,
                requests: 0,
                cpu: None,
                capacity: Some(0.0),
                services: &[ServiceState { name: "service", is_full: true, accepted: all, ended: all }],
                waiting,
                level: Level::Unknown,
            };
            let changes = agent.tick(&inputs, Timestamp::from_secs(100 + second_no));
            let of_first = changes.iter().filter(|change| change.name == "first");
            lowest = of_first.fold(lowest, |lowest, change| lowest.min(change.rate));
        }
        lowest
    };
    assert_eq!(lowest_rate(&[0, 0]), f64::INFINITY, "everything fits");
    let kept = 390.0 * (1.0 - CONFIG.min_share);
    let rate = lowest_rate(&[100, 30]);
    assert!((rate / kept - 1.0).abs() < 0.01, "{rate}, expected {kept}");
}
