//! Demand that stays as it is: the loop of agent, clients and server settles, at the right place, and stays.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::world::{Aggregate, CONFIG, World};

/// Plays until long after the last retries of the beginning, and then as long again without a change.
#[track_caller]
fn settles(world: &mut World) {
    world.play(240);
    let later = world.play(240);
    let rates: Vec<f64> = world.aggregates.iter().map(|aggregate| aggregate.rule.rate).collect();
    assert_eq!(later, None, "still changes: {rates:?}");
}

#[track_caller]
fn is_near(figure: f64, expected: f64, within: f64) {
    assert!((figure / expected - 1.0).abs() <= within, "{figure}, expected {expected}");
}

/// What is kept for the lowest priority, but for changes that do not matter.
#[track_caller]
fn keeps_a_share(lowest: &Aggregate, serves: f64) {
    let share = lowest.accepted / (CONFIG.min_share * serves);
    assert!((0.95..1.25).contains(&share), "{share} of its share");
}

fn crowds(fresh: &[(u8, f64)]) -> Vec<Aggregate> {
    let crowd = |(number, (priority, fresh)): (usize, &(u8, f64))| {
        Aggregate::new(&format!("crowd {number}"), *priority, *fresh)
    };
    fresh.iter().enumerate().map(crowd).collect()
}

#[test]
fn at_the_capacity() {
    for life_s in [0.2, 1.0, 5.0, 20.0] {
        let mut world = World::new(crowds(&[(0, 900.0), (0, 60.0), (1, 500.0)]), 400.0);
        (world.is_known, world.life_s) = (true, life_s);
        settles(&mut world);
        is_near(world.accepted(), 400.0, 0.06);
        is_near(world.aggregates[1].accepted, 60.0, 1e-9);
        keeps_a_share(&world.aggregates[2], 400.0);
    }
}

/// Connections per second of all, and of each priority, in the mean of a minute.
fn minute(world: &mut World) -> (f64, Vec<f64>) {
    let mut sums = vec![0.0; world.aggregates.len()];
    for _ in 0..60 {
        world.second();
        sums.iter_mut().zip(&world.aggregates).for_each(|(sum, of)| *sum += of.accepted / 60.0);
    }
    (sums.iter().sum(), sums)
}

#[test]
fn of_a_tcp_service_whose_capacity_shows_in_the_connections_that_end() {
    let mut world = World::new(crowds(&[(0, 500.0), (1, 180.0), (2, 180.0)]), 390.0);
    (world.is_queued, world.is_tcp, world.mix) = (true, true, 1.0);
    // It is found, and found again when it has changed.
    for serves in [390.0, 195.0, 600.0] {
        world.serves = serves;
        world.play(300);
        let (all, of) = minute(&mut world);
        is_near(all, serves, 0.03);
        for (priority, accepted) in of.iter().enumerate() {
            let share = accepted / (CONFIG.min_share * serves);
            // What is probed beyond the capacity is taken from the last priority.
            assert!(share > 0.8, "priority {priority} of {serves}: {share} of its share");
        }
    }
}

#[test]
fn of_a_tcp_service_that_always_has_a_slot_nothing_is_known() {
    let mut world = World::new(crowds(&[(0, 100.0), (1, 50.0)]), 390.0);
    (world.is_queued, world.is_tcp, world.mix) = (true, true, 1.0);
    assert_eq!(world.play(120), None);
}

#[test]
fn at_the_load_of_the_cpu() {
    for (base_cpu, life_s) in [(0.0, 0.2), (0.0, 1.0), (0.5, 1.0), (0.2, 5.0), (0.0, 20.0)] {
        let mut world = World::new(crowds(&[(0, 900.0), (0, 60.0), (1, 500.0)]), 400.0);
        (world.has_cpu, world.base_cpu, world.life_s) = (true, base_cpu, life_s);
        settles(&mut world);
        is_near(world.load, 0.9, 0.06);
        is_near(world.aggregates[1].accepted, 60.0, 1e-9);
    }
}

#[test]
fn in_the_orange_band_of_a_detector() {
    let mut world = World::new(crowds(&[(0, 900.0), (1, 60.0)]), 400.0);
    world.levels = Some((0.75, 0.95));
    settles(&mut world);
    assert!(world.load > 0.75 && world.load <= 0.95, "{}", world.load);
}

#[test]
fn retries_are_no_demand_for_ever() {
    // All of it fits, but for a minute it did not: what was dropped then comes again and again.
    let mut world = World::new(crowds(&[(0, 150.0), (1, 200.0)]), 400.0);
    world.is_known = true;
    world.play(20);
    world.aggregates[0].fresh = 2000.0;
    world.play(60);
    world.aggregates[0].fresh = 150.0;
    settles(&mut world);
    for aggregate in &world.aggregates {
        assert_eq!((aggregate.rule.rate, aggregate.accepted), (f64::INFINITY, aggregate.fresh));
    }
}

#[test]
fn demand_just_above_and_just_below_the_capacity() {
    for (fresh, is_squeezed) in [(380.0, false), (396.0, false), (404.0, true), (450.0, true)] {
        let mut world = World::new(crowds(&[(0, fresh - 100.0), (0, 100.0)]), 400.0);
        world.is_known = true;
        settles(&mut world);
        assert_eq!(world.aggregates[0].rule.rate.is_finite(), is_squeezed, "{fresh}");
        is_near(world.accepted(), fresh.min(400.0), 0.06);
    }
}

#[test]
fn a_capacity_that_changes_is_followed() {
    let mut world = World::new(crowds(&[(0, 900.0), (1, 500.0)]), 400.0);
    world.is_known = true;
    for serves in [400.0, 100.0, 800.0] {
        world.serves = serves;
        settles(&mut world);
        is_near(world.accepted(), serves, 0.06);
        keeps_a_share(&world.aggregates[1], serves);
    }
}

#[test]
fn connections_that_no_rule_is_about_get_what_is_left_and_their_share() {
    let mut world = World::new(crowds(&[(0, 900.0)]), 400.0);
    (world.is_known, world.beside) = (true, 300.0);
    settles(&mut world);
    is_near(world.accepted(), 0.95 * 400.0, 0.06);
    world.beside = 10.0;
    settles(&mut world);
    is_near(world.accepted(), 390.0, 0.06);
    // Where the rules leave more, nobody is squeezed for them.
    world.aggregates[0].fresh = 200.0;
    world.beside = 300.0;
    settles(&mut world);
    is_near(world.accepted(), 200.0, 1e-9);
}

#[test]
fn a_load_that_no_connection_causes_leaves_a_tenth() {
    let mut world = World::new(crowds(&[(0, 300.0)]), 1e6);
    (world.has_cpu, world.base_cpu) = (true, 1.0);
    settles(&mut world);
    is_near(world.accepted(), 30.0, 0.06);
    world.base_cpu = 0.1;
    settles(&mut world);
    assert_eq!(world.accepted(), 300.0);
}

/// Demand at the very limit: what is decided by a hair is not decided anew in every interval.
#[test]
fn preferred_visitors_who_are_as_many_as_fit() {
    for (fresh, others, serves) in [(792.24, 0.0, 880.03), (344.07, 1508.7, 422.34), (41.54, 15.16, 53.57)] {
        let mut world = World::new(crowds(&[(0, fresh), (1, others)]), serves);
        (world.has_cpu, world.aggregates[0].rule.is_preferred) = (true, true);
        settles(&mut world);
        is_near(world.aggregates[0].accepted, fresh, 0.01);
    }
}

/// What a priority asks for is what is kept for it, but for a hair.
#[test]
fn a_priority_that_asks_for_its_share() {
    let mut world = World::new(crowds(&[(0, 1458.57), (3, 11.24), (3, 22.61)]), 678.31);
    world.is_known = true;
    world.aggregates.iter_mut().for_each(|aggregate| aggregate.rule.is_preferred = true);
    settles(&mut world);
}

/// Arrivals at random: the shares are kept on average, and rates are seldom touched.
#[test]
fn random_arrivals() {
    for (is_known, seed) in [(true, 1), (true, 2), (false, 3), (false, 4)] {
        let mut world = World::new(crowds(&[(0, 900.0), (0, 60.0), (1, 500.0), (2, 40.0)]), 400.0);
        (world.is_known, world.has_cpu) = (is_known, !is_known);
        world.noise = Some(StdRng::seed_from_u64(seed));
        world.play(240);
        let (mut accepted, mut small, mut changes) = (0.0, 0.0, 0);
        for _ in 0..600 {
            changes += world.second().len();
            accepted += world.accepted() / 600.0;
            small += world.aggregates[1].accepted / 600.0;
        }
        is_near(accepted, if is_known { 400.0 } else { 360.0 }, 0.06);
        is_near(small, 60.0, 0.02);
        // Of 2400 that would be possible.
        assert!(changes <= 30, "{changes} changes");
    }
}
