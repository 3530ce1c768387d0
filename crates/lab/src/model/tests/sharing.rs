//! Processor sharing against a simulation that recomputes every rate, and against theory.

use proptest::prelude::*;

use super::queueing::{close, erlang_c, poisson, queue};
use super::rules::{MS, ends, pool};
use crate::model::*;
use crate::scenario::Discipline;

/// `servers` shared by all who come.
fn shared(servers: u32, demand: Dist) -> OriginSpec {
    let mut spec = OriginSpec { workers: 1_000_000, ..queue(servers, demand) };
    spec.stages[0].discipline = Discipline::Sharing;
    spec
}

#[test]
fn everybody_is_served_at_an_even_share() {
    let mut model = Model::new(&shared(1, Dist::Fixed(0.1)), 1);
    model.submit(0, 0, 0).expect("room");
    assert_eq!(model.next_event(), Some(100 * MS));
    ends(&mut model, 50 * MS);
    model.submit(1, 0, 50 * MS).expect("room");
    assert_eq!(model.next_event(), Some(150 * MS), "half of it was left: it takes twice as long");
    assert_eq!(ends(&mut model, 1000 * MS), [(0, 150 * MS), (1, 200 * MS)]);
    let stage = &model.stages()[0];
    assert_eq!((stage.total_busy_us(), stage.busy), (200 * MS, 0));

    // Three on two servers: 2/3 each. Nobody gets more than one server.
    let mut model = Model::new(&shared(2, Dist::Fixed(0.1)), 1);
    for id in 0..3 {
        model.submit(id, 0, 0).expect("room");
    }
    let stage = &model.stages()[0];
    assert_eq!((stage.busy, stage.queued), (2, 1));
    assert_eq!(ends(&mut model, 1000 * MS), [(0, 150 * MS), (1, 150 * MS), (2, 150 * MS)]);
    model.submit(3, 0, 1000 * MS).expect("room");
    assert_eq!(ends(&mut model, 2000 * MS), [(3, 1100 * MS)]);
}

#[test]
fn leaving_and_crashing_free_servers() {
    let spec = OriginSpec { notices_leavers: true, ..shared(1, Dist::Fixed(0.1)) };
    let mut model = Model::new(&spec, 1);
    let tickets: Vec<_> = (0..4).map(|id| model.submit(id, 0, 0).expect("room")).collect();
    ends(&mut model, 40 * MS);
    assert!(!model.leave(tickets[1], 40 * MS), "each has had 10 ms");
    assert_eq!(ends(&mut model, 70 * MS), [], "20 ms");
    assert_eq!(model.next_event(), Some((70 + 3 * 80) * MS));
    let mut lost = model.crash(70 * MS);
    lost.sort_unstable();
    assert_eq!((lost, model.next_event(), model.stats().present()), (vec![0, 2, 3], None, 0));
    model.submit(9, 0, 80 * MS).expect("room");
    assert_eq!(ends(&mut model, 1000 * MS), [(9, 180 * MS)]);
    assert_eq!(model.stages()[0].total_busy_us(), 170 * MS);
}

#[test]
fn servers_that_follow_the_workers_are_shared_when_workers_go() {
    let mut spec = pool(4, 100, 10);
    spec.stages[0].discipline = Discipline::Sharing;
    let mut model = Model::new(&spec, 1);
    for id in 0..4 {
        model.submit(id, 0, 0).expect("room");
    }
    model.set_workers(2, 0);
    model.submit(4, 0, 0).expect("waits");
    assert_eq!(ends(&mut model, 250 * MS), [0, 1, 2, 3].map(|id| (id, 200 * MS)));
    model.set_workers(0, 250 * MS);
    assert_eq!(ends(&mut model, 1000 * MS), [(4, 300 * MS)], "the last server ends what it has");
}

/// Ends of arrivals (time, demand, in microseconds) at `servers` shared ones whose speed changes once, with
/// every rate computed anew between any two events.
fn step_by_step(servers: f64, arrivals: &[(u64, u64)], change: (u64, f64)) -> Vec<f64> {
    let mut left: Vec<Option<f64>> = vec![None; arrivals.len()];
    let mut ends = vec![0.0; arrivals.len()];
    let (mut now, mut come, mut speed) = (0.0, 0, 1.0);
    loop {
        let present = left.iter().flatten().count() as f64;
        let rate = speed * (servers / present.max(1.0)).min(1.0);
        let first = left.iter().enumerate().filter_map(|(i, left)| left.map(|left| (left / rate, i)));
        let first = first.min_by(|a, b| a.0.total_cmp(&b.0));
        let next = arrivals.get(come).map(|(at, _)| *at as f64);
        let changes = (speed == 1.0).then_some(change.0 as f64);
        let over = first.map(|(lasts, _)| now + lasts);
        let Some(then) = [next, changes, over].into_iter().flatten().min_by(f64::total_cmp) else {
            return ends;
        };
        left.iter_mut().flatten().for_each(|left| *left -= (then - now) * rate);
        now = then;
        if let Some((_, i)) = first.filter(|_| over == Some(then)) {
            (left[i], ends[i]) = (None, now);
        } else if changes == Some(then) {
            speed = change.1;
        } else {
            left[come] = Some(arrivals[come].1 as f64);
            come += 1;
        }
    }
}

proptest! {
    #[test]
    fn sharing_equals_a_step_by_step_model(
        servers in 1..5u32,
        gaps in prop::collection::vec((0..3000u64, 0..4usize), 1..100),
        change in (0..100_000u64, 0.1..3.0),
    ) {
        let demands = [1u64, 700, 1000, 12_345];
        let mut spec = shared(servers, Dist::Never);
        let path = |us: &u64| {
            let demand = vec![(0, Dist::Fixed(*us as f64 / 1e6))];
            PathSpec { demand, ..PathSpec::default() }
        };
        spec.paths = demands.iter().map(path).collect();
        let mut model = Model::new(&spec, 1);
        let (mut now, mut arrivals, mut over) = (0, Vec::new(), vec![0; gaps.len()]);
        let mut changed = false;
        for (id, (gap, path)) in gaps.iter().enumerate() {
            now += gap;
            if !changed && change.0 <= now {
                changed = true;
                model.advance(change.0, &mut |done| over[done.id as usize] = done.at_us);
                model.set_speed(change.1, change.0);
            }
            model.advance(now, &mut |done| over[done.id as usize] = done.at_us);
            model.submit(id as u64, *path, now).expect("room");
            arrivals.push((now, demands[*path]));
        }
        if !changed {
            let at = change.0.max(now);
            model.advance(at, &mut |done| over[done.id as usize] = done.at_us);
            model.set_speed(change.1, at);
        }
        model.advance(u64::MAX / 4, &mut |done| over[done.id as usize] = done.at_us);
        for (ours, theirs) in over.iter().zip(step_by_step(f64::from(servers), &arrivals, change)) {
            // Rounded up to a microsecond, and the instants of arrivals down to a nanosecond of work.
            prop_assert!((*ours as f64 - theirs).abs() < 1.05, "{ours}, step by step {theirs}");
        }
    }
}

#[test]
fn m_m_1_is_as_long_as_first_come_first_served() {
    let run = poisson(&shared(1, Dist::Exponential(0.010)), 70.0, 400_000, 21);
    close(run.response, 1.0 / (100.0 - 70.0), 0.03, "response");
    close(run.utilisation[0], 0.7, 0.01, "utilisation");
    close(run.present, 70.0 * run.response, 0.01, "Little's law");
}

#[test]
fn m_m_c_is_as_long_as_first_come_first_served() {
    // The number present is the same birth and death process, and Little's law does the rest.
    let run = poisson(&shared(10, Dist::Exponential(0.100)), 85.0, 300_000, 22);
    close(run.response, 0.1 + erlang_c(10, 8.5) / (100.0 - 85.0), 0.03, "response");
    close(run.utilisation[0], 0.85, 0.01, "utilisation");
}

#[test]
fn the_mean_response_depends_on_the_mean_demand_only() {
    // M/G/1-PS: E[T] = E[S] / (1 - rho), whatever S is. First come, first served, the longest of these would
    // wait 12 times as long as the shortest (Pollaczek and Khinchine).
    for (demand, seed) in [
        (Dist::Fixed(0.010), 23),
        (Dist::Uniform(0.0, 0.020), 24),
        (Dist::LogNormal(0.010 / (0.5f64).exp(), 1.0), 25),
        (Dist::Bimodal { short: 0.005, long: 0.055, share: 0.1 }, 26),
    ] {
        close(demand.mean().as_secs_f64(), 0.010, 1e-6, "mean demand");
        let run = poisson(&shared(1, demand), 70.0, 600_000, seed);
        close(run.response, 0.010 / 0.3, 0.04, &demand.to_string());
    }
}

#[test]
fn a_shared_stage_after_a_line_is_jacksons() {
    let mut spec = shared(4, Dist::Never);
    spec.stages.push(crate::scenario::Stage::new("db", 1));
    spec.paths[0].demand = vec![(0, Dist::Exponential(0.040)), (1, Dist::Exponential(0.010))];
    let run = poisson(&spec, 60.0, 400_000, 27);
    close(run.response, 0.040 + erlang_c(4, 2.4) / 40.0 + 1.0 / 40.0, 0.03, "response");
    assert!((run.utilisation[1] - 0.6).abs() < 0.01, "{:?}", run.utilisation);
}
