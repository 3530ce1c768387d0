//! Trajectories, line by line. A change of the agent that changes one of them is seen, and explained in the
//! commit that replaces it.

use super::world::{Aggregate, World};

#[track_caller]
fn is_golden(found: &str, golden: &str) {
    assert!(found == golden, "expected\n{golden}\nfound\n{found}");
}

/// The paper's Table 2: three clients with priorities, and a server that takes 390 connections per second.
/// Without policing the first one gets all of them.
fn table_2(min_share: f64) -> World {
    let clients = vec![
        Aggregate::new("client-1", 0, 500.0),
        Aggregate::new("client-2", 1, 180.0),
        Aggregate::new("client-3", 2, 180.0),
    ];
    let mut world = World::new(clients, 390.0);
    (world.is_queued, world.mix) = (true, 1.0);
    if let Some(agent) = &mut world.agent {
        let config = tidegate_core::policing::agent::AgentConfig { min_share, ..super::world::CONFIG };
        agent.reconfigure(config, &[]);
    }
    world
}

#[test]
fn priorities_alone_starve_the_low_ones() {
    let mut world = table_2(0.05);
    world.agent = None;
    world.play(30);
    let served: Vec<f64> = world.aggregates.iter().map(|aggregate| aggregate.accepted).collect();
    assert_eq!(served, [390.0, 0.0, 0.0]);
}

#[test]
fn table_2_a_share_for_each_priority() {
    let mut world = table_2(0.05);
    world.play(10);
    world.is_known = true;
    is_golden(&world.trace(120), include_str!("golden/table-2.txt"));
}

/// As much for the lowest as the paper's third column gives to the second.
#[test]
fn table_2_a_greater_share() {
    let mut world = table_2(0.2);
    world.play(10);
    world.is_known = true;
    is_golden(&world.trace(120), include_str!("golden/table-2-greater-share.txt"));
}

#[test]
fn a_flash_crowd_beside_preferred_visitors_comes_and_leaves() {
    let visitors = vec![
        Aggregate::new("customers", 1, 60.0).preferred(),
        Aggregate::new("crowd", 1, 100.0).limited(1000.0, 2000),
        Aggregate::new("partner", 1, 50.0),
    ];
    let mut world = World::new(visitors, 300.0);
    world.is_known = true;
    let mut text = world.trace(20);
    world.aggregate("crowd").fresh = 3000.0;
    text += "the crowd comes\n";
    text += &world.trace(60);
    world.aggregate("crowd").fresh = 100.0;
    text += "the crowd leaves\n";
    text += &world.trace(120);
    is_golden(&text, include_str!("golden/flash-crowd.txt"));
}

#[test]
fn an_overloaded_cpu_without_a_known_capacity() {
    let visitors = vec![Aggregate::new("members", 0, 100.0), Aggregate::new("others", 1, 150.0)];
    let mut world = World::new(visitors, 400.0);
    (world.has_cpu, world.base_cpu) = (true, 0.2);
    let mut text = world.trace(20);
    world.aggregate("others").fresh = 900.0;
    text += "nine hundred others\n";
    text += &world.trace(90);
    world.aggregate("others").fresh = 150.0;
    text += "they leave\n";
    text += &world.trace(120);
    is_golden(&text, include_str!("golden/cpu.txt"));
}
