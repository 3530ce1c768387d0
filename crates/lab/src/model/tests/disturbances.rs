//! Pauses and neighbours.

use super::queueing::close;
use super::rules::{MS, ends, pool};
use crate::model::*;
use crate::scenario::{Discipline, Spell};

fn spell(every: f64, lasts: f64, speed: f64) -> Option<Spell> {
    Some(Spell { every: Dist::Fixed(every), lasts: Dist::Fixed(lasts), speed })
}

/// When the first spell begins on a replica of this spec.
fn first_spell(spec: &OriginSpec, seed: u64) -> u64 {
    let mut model = Model::new(spec, seed);
    model.submit(0, 0, 0).expect("room");
    while model.pace() == 1.0 {
        let next = model.next_event().expect("the request is under way");
        model.advance(next, &mut |done| panic!("{done:?} before the first spell"));
        model.now_us = next;
    }
    model.now_us
}

#[test]
fn a_pause_stops_work_under_way() {
    for discipline in [Discipline::Fifo, Discipline::Sharing] {
        let mut spec = OriginSpec { pause: spell(10.0, 0.25, 0.0), ..pool(2, 20_000, 10) };
        spec.stages[0].discipline = discipline;
        let begin = first_spell(&spec, 3);
        assert!(begin > 0 && begin < 10_000_000, "within the first `every`: {begin}");
        let mut model = Model::new(&spec, 3);
        model.submit(0, 0, 0).expect("room");
        model.advance(begin + 100 * MS, &mut |done| panic!("{done:?}"));
        // Comes in the pause: starts when it is over.
        model.submit(1, 0, begin + 100 * MS).expect("room");
        let pauses = |from: u64, work: u64| {
            let mut end = from + work;
            for begin in (0..9).map(|i| begin + i * 10_000 * MS).filter(|begin| begin + 250 * MS > from) {
                end += if begin < from {
                    begin + 250 * MS - from
                } else if begin < end {
                    250 * MS
                } else {
                    0
                };
            }
            end
        };
        let expected = [(0, pauses(0, 20_000 * MS)), (1, pauses(begin + 100 * MS, 20_000 * MS))];
        assert_eq!(ends(&mut model, 100_000 * MS), expected, "{discipline:?}");
        let busy = model.stages()[0].total_busy_us();
        assert!(busy.abs_diff(2 * 20_000 * MS) < 4, "standing still is not work: {busy}");
    }
}

#[test]
fn replicas_pause_at_times_of_their_own() {
    let spec = OriginSpec { pause: spell(10.0, 0.25, 0.0), ..pool(2, 20_000, 10) };
    let mut begins: Vec<u64> = (0..50).map(|seed| first_spell(&spec, seed)).collect();
    assert_eq!(begins[7], first_spell(&spec, 7), "the same seed, the same pauses");
    begins.sort_unstable();
    begins.dedup();
    assert_eq!(begins.len(), 50, "at any time");
    let mean = begins.iter().sum::<u64>() as f64 / 50.0;
    assert!((mean / 5e6 - 1.0).abs() < 0.3, "evenly over `every`: {mean}");
}

#[test]
fn an_idle_replica_has_nothing_due_and_misses_nothing() {
    let dist = |text: &str| text.parse::<Dist>().expect(text);
    let pause = Spell { every: dist("exponential(300ms)"), lasts: dist("uniform(1ms, 90ms)"), speed: 0.0 };
    let neighbour = Spell { every: dist("exponential(1s)"), lasts: dist("exponential(500ms)"), speed: 0.5 };
    let mut spec = OriginSpec { pause: Some(pause), neighbour: Some(neighbour), ..pool(2, 20, 10) };
    spec.paths.push(PathSpec { demand: vec![(0, Dist::Fixed(3600.0))], ..PathSpec::default() });
    let mut idle = Model::new(&spec, 5);
    // The other one has something to do all the time.
    let mut busy = Model::new(&spec, 5);
    busy.submit(u64::MAX, 1, 0).expect("room");
    for id in 0..1000 {
        let now = id * 777_777;
        assert_eq!(idle.next_event(), None);
        busy.advance(now, &mut |done| panic!("{done:?}"));
        idle.submit(id, 0, now).expect("room");
        busy.submit(id, 0, now).expect("room");
        let (ours, theirs) = (ends(&mut idle, now + 777 * MS), ends(&mut busy, now + 777 * MS));
        assert!(ours.len() == 1 && ours == theirs, "{ours:?}, {theirs:?}");
    }
}

/// Requests a second that a saturated replica serves, as a share of its capacity without spells.
fn share(spec: &OriginSpec) -> f64 {
    let mut model = Model::new(spec, 11);
    let mut next = 0;
    while next < 2 * u64::from(spec.workers) {
        model.submit(next, 0, 0).expect("room");
        next += 1;
    }
    let (mut served, end) = (0u64, 2_000_000_000);
    while let Some(due) = model.next_event().filter(|due| *due <= end) {
        let mut over = 0;
        model.advance(due, &mut |_| over += 1);
        for _ in 0..over {
            model.submit(next, 0, due).expect("room");
            next += 1;
        }
        served += over;
    }
    served as f64 / (end as f64 / 1e6) / spec.capacity(0)
}

#[test]
fn spells_take_their_share_of_the_capacity() {
    let dist = |text: &str| text.parse::<Dist>().expect(text);
    let drawn = Some(Spell { every: dist("uniform(1s, 3s)"), lasts: dist("uniform(0, 400ms)"), speed: 0.0 });
    for discipline in [Discipline::Fifo, Discipline::Sharing] {
        for (pause, neighbour, left) in [
            (None, None, 1.0),
            (spell(2.0, 0.1, 0.0), None, 0.95),
            (drawn, None, 0.9),
            (None, spell(10.0, 5.0, 0.6), 0.8),
            (spell(2.0, 0.1, 0.0), spell(10.0, 5.0, 0.6), 0.76),
        ] {
            let mut spec = OriginSpec { pause, neighbour, ..pool(4, 40, 100) };
            spec.stages[0].discipline = discipline;
            close(spec.availability(), left, 1e-12, "as computed");
            close(share(&spec), left, 0.01, "as served");
        }
    }
}

#[test]
fn spells_longer_than_their_distance_follow_one_another() {
    let spec = OriginSpec { neighbour: spell(0.1, 0.3, 0.5), ..pool(1, 10, 10) };
    close(spec.availability(), 0.5, 1e-12, "all the time");
    close(share(&spec), 0.5, 0.01, "as served");
}
