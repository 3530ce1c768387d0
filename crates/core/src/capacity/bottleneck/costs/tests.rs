//! What is learned of costs, and how well it is known.

use super::*;

const A: ClassId = ClassId(0);
const B: ClassId = ClassId(1);

/// Pseudo-random numbers of an exponential distribution with mean 1.
fn exponential(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        -(((state >> 33) as f64 + 0.5) / f64::from(1u32 << 31)).ln()
    }
}

/// Costs of two classes whose cost is to be learned.
fn to_learn() -> Costs {
    let mut costs = Costs::new();
    costs.charge(A, Some(1.0));
    costs.charge(B, Some(1.0));
    costs
}

fn known(costs: &Costs, class: ClassId) -> LearnedCost {
    costs.known(class, 0.0)
}

/// `count` requests of each class, which take so much on average.
fn requests(costs: &mut Costs, draw: &mut impl FnMut() -> f64, count: u32, takes: &[(ClassId, f64)]) {
    for _ in 0..count {
        for (class, mean) in takes {
            costs.units(*class, 1.0);
            costs.learn(*class, 1.0, mean * draw());
        }
        costs.anchor();
    }
}

#[track_caller]
fn close(got: f64, expected: f64, within: f64) {
    assert!((got / expected - 1.0).abs() < within, "{got}, expected {expected}");
}

#[test]
fn the_error_is_that_of_a_mean_of_so_many_samples() {
    for (count, expected) in [(25, 0.2), (100, 0.1), (400, 0.05)] {
        let mut errors = 0.0;
        for seed in 0..50 {
            let (mut costs, mut draw) = (to_learn(), exponential(seed));
            requests(&mut costs, &mut draw, count, &[(A, 1.0), (B, 1.0)]);
            errors += known(&costs, A).error / 50.0;
        }
        close(errors, expected, 0.1);
    }
    // Beyond the memory there is nothing to gain.
    let (mut costs, mut draw) = (to_learn(), exponential(1));
    requests(&mut costs, &mut draw, 10_000, &[(A, 1.0), (B, 1.0)]);
    close(known(&costs, A).error, (1.0 / (2.0 * MEMORY)).sqrt(), 0.3);
}

#[test]
fn learned_costs_differ_from_the_truth_by_about_their_error() {
    // With nine requests of a class that is well known for each of the other.
    let mut squares = 0.0;
    for seed in 0..200 {
        let (mut costs, mut draw) = (to_learn(), exponential(seed));
        for _ in 0..150 {
            requests(&mut costs, &mut draw, 8, &[(A, 1.0)]);
            requests(&mut costs, &mut draw, 1, &[(A, 1.0), (B, 1.0)]);
        }
        let of_b = known(&costs, B);
        let ratio = of_b.units / known(&costs, A).units;
        squares += (ratio.ln() / of_b.error).powi(2) / 200.0;
    }
    assert!((0.6..1.3).contains(&squares.sqrt()), "root mean square {}", squares.sqrt());
}

#[test]
fn merged_samples_count_as_many() {
    let (mut one, mut merged) = (to_learn(), to_learn());
    let mut draw = exponential(3);
    for _ in 0..100 {
        let takes: Vec<f64> = (0..5).map(|_| draw()).collect();
        for costs in [&mut one, &mut merged] {
            costs.units(A, 1.0);
            costs.units(B, 1.0);
            costs.learn(B, 5.0, 1.0);
        }
        takes.iter().for_each(|takes| one.learn(A, 1.0, *takes));
        merged.learn(A, 5.0, takes.iter().sum::<f64>() / 5.0);
    }
    close(known(&merged, A).error, known(&one, A).error, 0.25);
    // Half a second of a fast origin: no more than all of the memory.
    merged.learn(A, 50_000.0, 2.0);
    close(known(&merged, A).units, 1.0, 1e-9);
    merged.anchor();
    close(known(&merged, A).units / known(&merged, B).units, 2.0, 0.01);
}

#[test]
fn nothing_is_known_of_a_class_without_samples_or_of_one_alone() {
    let (mut costs, mut draw) = (to_learn(), exponential(5));
    assert_eq!(known(&costs, A), LearnedCost::UNKNOWN);
    requests(&mut costs, &mut draw, 100, &[(A, 4.0)]);
    assert_eq!(known(&costs, A), LearnedCost::UNKNOWN);
    costs.units(B, 1.0);
    assert_eq!(known(&costs, B), LearnedCost::UNKNOWN);
}

#[test]
fn numbers_fix_the_unit_and_its_error_counts() {
    let (mut costs, mut draw) = (to_learn(), exponential(7));
    costs.charge(A, None);
    for _ in 0..400 {
        costs.units(A, 3.0);
        costs.learn(A, 1.0, 4.0 / 3.0 * draw());
        costs.units(B, 9.9);
        costs.learn(B, 1.0, 8.0 / 3.0 * draw());
        costs.anchor();
    }
    // A request of B takes twice what one of A takes, which the operator says costs three.
    let of_b = known(&costs, B);
    close(of_b.units, 6.0, 0.2);
    close(known(&costs, A).units, 3.0, 1e-9);
    close(of_b.error, (2.0_f64 / 400.0).sqrt(), 0.3);
}

#[test]
fn a_charge_changes_the_unit_of_the_capacity_and_nothing_else() {
    let (mut costs, mut draw) = (to_learn(), exponential(9));
    requests(&mut costs, &mut draw, 500, &[(A, 0.5), (B, 1.5)]);
    let before = (known(&costs, A), known(&costs, B), costs.units(B, 1.0));
    close(costs.charge(B, Some(2.0)), 1.5, 1e-9);
    assert_eq!((costs.charged(A, 7.0), costs.charged(B, 7.0)), (1.0, 2.0));
    assert_eq!((known(&costs, A), known(&costs, B), costs.units(B, 2.0)), before);
    assert_eq!(costs.charge(ClassId(9), Some(40.0)), 1.0, "no request of it has come");
}

#[test]
fn a_learned_cost_stays_when_the_operator_gives_a_number_and_takes_it_back() {
    let (mut costs, mut draw) = (to_learn(), exponential(11));
    requests(&mut costs, &mut draw, 500, &[(A, 0.5), (B, 1.5)]);
    let learned = costs.units(B, 1.0);
    costs.charge(B, None);
    for cost in [2.0, 40.0, 2.0, 40.0] {
        assert_eq!(costs.units(B, cost), learned, "requests from before the change still end");
    }
    (0..UNSCALED_ROUNDS).for_each(|_| costs.anchor());
    assert_eq!(costs.units(B, 20.0), learned / 2.0, "another number scales it");
    costs.charge(B, Some(1.0));
    assert_eq!(costs.units(B, 20.0), learned / 2.0);
}

#[test]
fn a_cost_from_before_a_restart_counts_for_some_samples() {
    let mut costs = to_learn();
    costs.restore(A, 0.5, 150.0);
    costs.restore(B, 60.0, 150.0);
    let of_a = known(&costs, A);
    assert_eq!((of_a.units, of_a.samples), (0.5, 150.0));
    close(of_a.error, (1.0_f64 / 150.0).sqrt(), 1e-9);
    assert_eq!(known(&costs, B), LearnedCost::UNKNOWN, "out of bounds");
}

#[test]
fn the_error_of_the_wait_counts_most_for_light_requests() {
    let mut costs = to_learn();
    costs.restore(A, 0.5, 1e9);
    costs.restore(B, 2.0, 1e9);
    let errors = [A, B].map(|class| costs.known(class, 0.05).error);
    close(errors[0], 0.1, 1e-3);
    close(errors[1], 0.025, 1e-3);
    assert_eq!(costs.known(ClassId(9), 0.05), LearnedCost::UNKNOWN);
}
