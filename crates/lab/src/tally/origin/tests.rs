//! The origin's load, and a gate's own figures.

use std::time::Duration;

use super::*;
use crate::outcome::{DoorSecond, GateSecond, Way};
use crate::tally::tests::{expect, visit};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_origins_side() {
    let mut tally = Tally::default();
    visit(&mut tally, Duration::ZERO, 2 * SECOND);
    [0, 100, 200, 1500].into_iter().for_each(|at| tally.door(at * MS));
    [0, 100].into_iter().for_each(|at| tally.door_units(at * MS, 1.5));
    tally.capacity(500 * MS, 2.5, Some(7));
    tally.origin_served(900 * MS, 800 * MS);
    tally.origin_lost(950 * MS);
    let mut outcome = tally.outcome("door", Way::Sim, 1, None);
    expect(&outcome, &[("door_rps_max", 3.0), ("door_rps_mean", 2.0)]);
    let present: Vec<_> = outcome.series.iter().map(|s| (s.origin_present, s.capacity_rps)).collect();
    assert_eq!(present, [(1, 2.5), (2, 2.5), (2, 2.5)]);
    assert_eq!(outcome.series.iter().map(|s| s.door_units).collect::<Vec<_>>(), [3.0, 0.0, 0.0]);
    assert_eq!(outcome.series.iter().map(|s| s.limit).collect::<Vec<_>>(), [7, 7, 7]);
    // A real origin's own series replaces it, and may go on longer.
    outcome.set_door([
        DoorSecond { t: 1, door: 7, ..DoorSecond::default() },
        DoorSecond { t: 4, door: 1, served: 8, present: 0 },
    ]);
    expect(&outcome, &[("door_rps_max", 7.0), ("door_rps_mean", 5.5)]);
    assert_eq!(outcome.series.iter().map(|s| s.t).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn response_times_of_the_origin_are_exact_in_every_second() {
    let mut tally = Tally::default();
    visit(&mut tally, Duration::ZERO, 3 * SECOND);
    // 200 answers of 1 to 200 ms in second 0, in no order; one of 5 ms in second 2.
    for k in 0..200 {
        tally.door(MS);
        tally.origin_served(4 * k * MS, (k * 7 % 200 + 1) * MS);
    }
    tally.door(2 * SECOND);
    tally.origin_served(2 * SECOND, 5 * MS);
    let figures = |tally: &Tally| {
        let outcome = tally.outcome("answers", Way::Sim, 1, None);
        let of = |s: &crate::outcome::Second| (s.origin_response_mean_ms, s.origin_response_p99_ms);
        outcome.series.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(figures(&tally), [(100.5, 198.0), (0.0, 0.0), (5.0, 5.0), (0.0, 0.0)]);
    let mut whole = Tally::default();
    visit(&mut whole, Duration::ZERO, 3 * SECOND);
    whole.merge(&tally);
    assert_eq!(figures(&whole), figures(&tally), "only one part of a run sees the origin");
}

#[test]
fn a_gates_figures_hold_until_the_next_ones() {
    let mut tally = Tally::default();
    visit(&mut tally, Duration::ZERO, 4 * SECOND);
    tally.capacity(Duration::ZERO, 80.0, None);
    let mut outcome = tally.outcome("gate", Way::Real, 1, None);
    let told = |t, capacity_rps, limit| GateSecond {
        t,
        capacity_rps,
        limit,
        response_mean_ms: 3.0,
        response_p99_ms: 9.0,
    };
    outcome.set_gate(&[told(1, 20.0, 4), told(1, 40.0, 8), told(3, 100.0, 12), told(9, 1.0, 1)]);
    let now: Vec<_> = outcome.series.iter().map(|s| (s.capacity_rps, s.limit)).collect();
    assert_eq!(now, [(0.0, 0), (40.0, 8), (40.0, 8), (100.0, 12), (100.0, 12)]);
    let p99: Vec<_> = outcome.series.iter().map(|s| s.origin_response_p99_ms).collect();
    assert_eq!(p99, [0.0, 9.0, 0.0, 9.0, 0.0]);
}
