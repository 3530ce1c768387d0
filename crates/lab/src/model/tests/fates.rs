//! Answers that go on, and errors.

use super::queueing::close;
use super::rules::{MS, ends, pool};
use crate::model::*;
use crate::scenario::{Errors, Spell};

/// One worker of 10 ms whose answers go on for 100 ms.
fn streaming() -> OriginSpec {
    let mut spec = pool(1, 10, 10);
    spec.paths[0].stream = Some(Dist::Fixed(0.1));
    spec
}

fn failing(share: f64) -> OriginSpec {
    let mut spec = pool(4, 40, 1_000_000);
    spec.paths[0].errors = Errors { share, ..Errors::default() };
    spec
}

fn parts(model: &mut Model, now_us: u64) -> Vec<(u64, u64, Part)> {
    let mut parts = Vec::new();
    model.advance(now_us, &mut |done| parts.push((done.id, done.at_us, done.part)));
    parts
}

#[test]
fn an_answer_goes_on_without_a_worker() {
    let mut model = Model::new(&streaming(), 1);
    for id in 0..3 {
        model.submit(id, 0, 0).expect("room");
    }
    let head = |id: u64| (id, 10 * (id + 1) * MS, Part::Head { ends_us: (10 * (id + 1) + 100) * MS });
    assert_eq!(parts(&mut model, 50 * MS), [0, 1, 2].map(head));
    let stats = model.stats();
    assert_eq!((stats.in_service, stats.streaming, stats.present(), stats.served), (0, 3, 3, 0));
    assert!(stats.adds_up(), "{stats:?}");
    let rest = |id: u64| (id, (10 * (id + 1) + 100) * MS, Part::Rest);
    assert_eq!(parts(&mut model, 1000 * MS), [0, 1, 2].map(rest));
    assert_eq!((model.stats().served, model.next_event()), (3, None));
    assert_eq!(model.stages()[0].total_busy_us(), 30 * MS);
}

#[test]
fn a_stream_breaks_off_when_its_visitor_leaves() {
    let mut model = Model::new(&streaming(), 1);
    let tickets: Vec<_> = (0..3).map(|id| model.submit(id, 0, 0).expect("room")).collect();
    assert!(model.leave(tickets[1], 5 * MS), "nobody notices before there is an answer");
    let mut wasted = Vec::new();
    model.advance(35 * MS, &mut |done| wasted.push((done.id, done.wasted, done.part == Part::Whole)));
    assert_eq!(wasted, [(0, false, false), (1, true, true), (2, false, false)]);
    assert!(!model.leave(tickets[0], 40 * MS), "who writes notices");
    let stats = model.stats();
    assert_eq!((stats.streaming, stats.abandoned, stats.wasted), (1, 1, 1));
    assert_eq!(model.crash(50 * MS), [2]);
    assert_eq!((model.stats().lost, model.stats().present(), model.next_event()), (1, 0, None));
    assert!(model.stats().adds_up());
}

#[test]
fn streams_go_on_over_a_pause() {
    let pause = Spell { every: Dist::Fixed(0.01), lasts: Dist::Fixed(0.005), speed: 0.0 };
    let mut model = Model::new(&OriginSpec { pause: Some(pause), ..streaming() }, 1);
    model.submit(0, 0, 0).expect("room");
    let both = parts(&mut model, 1000 * MS);
    let [(_, head_us, Part::Head { ends_us }), (_, rest_us, Part::Rest)] = both[..] else {
        panic!("{both:?}")
    };
    assert!((15 * MS..=25 * MS).contains(&head_us), "a demand of 10 ms, and a pause or two: {head_us}");
    assert_eq!((ends_us, rest_us), (head_us + 100 * MS, head_us + 100 * MS));
}

#[test]
fn littles_law_holds_for_streams() {
    // Arrivals every 10 ms on the average; streams of mean 300 ms: 30 of them at any time (M/G/inf).
    let mut spec = pool(100, 1, 10);
    spec.paths[0].stream = Some(Dist::Exponential(0.3));
    let mut model = Model::new(&spec, 3);
    let (mut sum, n) = (0u64, 100_000);
    let gap = Dist::Exponential(0.01);
    let mut rng = SmallRng::seed_from_u64(4);
    let mut now = 0;
    for id in 0..n {
        now += gap.sample(&mut rng).as_micros() as u64;
        model.advance(now, &mut |_| {});
        // Poisson arrivals see time averages.
        sum += model.stats().streaming as u64;
        model.submit(id, 0, now).expect("room");
    }
    close(sum as f64 / n as f64, 30.0, 0.03, "streaming");
}

#[test]
fn errors_come_at_once_and_take_no_worker() {
    let mut model = Model::new(&failing(1.0), 1);
    for id in 0..100 {
        model.submit(id, 0, 0).expect("never refused");
    }
    let stats = model.stats();
    assert_eq!((stats.failing, stats.in_service, stats.queued, stats.peak), (100, 0, 0, 100));
    assert!(stats.adds_up());
    let errors = parts(&mut model, 1000 * MS);
    assert!(errors.iter().all(|(_, at_us, part)| (*at_us, *part) == (MS, Part::Error)), "{errors:?}");
    assert_eq!((errors.len(), model.stats().failed, model.stats().served), (100, 100, 0));
    assert_eq!(model.stages()[0].total_busy_us(), 0);
}

#[test]
fn a_share_fails_and_the_others_are_served_as_without() {
    let n = 100_000u64;
    let play = |spec: &OriginSpec| {
        let (mut model, mut ends) = (Model::new(spec, 5), vec![Part::Rest; n as usize]);
        for id in 0..n {
            model.advance(id * 10 * MS, &mut |done| ends[done.id as usize] = done.part);
            model.submit(id, 0, id * 10 * MS).expect("room");
        }
        model.advance(u64::MAX / 4, &mut |done| ends[done.id as usize] = done.part);
        (model.stats(), ends)
    };
    let (stats, ends) = play(&failing(0.3));
    close(stats.failed as f64 / n as f64, 0.3, 0.015, "share");
    assert_eq!(stats.served + stats.failed, n);
    let told = ends.iter().filter(|part| **part == Part::Error).count() as u64;
    assert_eq!((told, ends.contains(&Part::Rest)), (stats.failed, false));
    assert_eq!(play(&failing(0.0)).0.served, n);
}

#[test]
fn a_burst_of_errors_comes_and_goes() {
    let mut model = Model::new(&failing(0.0), 6);
    let failed = |model: &mut Model, from: u64| {
        let mut errors = 0;
        for id in from..from + 1000 {
            model.advance(id * 20 * MS, &mut |done| errors += u64::from(done.part == Part::Error));
            model.submit(id, 0, id * 20 * MS).expect("room");
        }
        model.advance((from + 1000) * 20 * MS, &mut |done| errors += u64::from(done.part == Part::Error));
        errors
    };
    assert_eq!(failed(&mut model, 0), 0);
    model.set_errors(0.5, 1000 * 20 * MS);
    let burst = failed(&mut model, 1001);
    assert!((400..600).contains(&burst), "{burst}");
    model.set_errors(0.0, model.now_us);
    assert_eq!(failed(&mut model, 2002), 0);
}

#[test]
fn leaving_before_the_error_is_noticed_or_not() {
    for notices_leavers in [false, true] {
        let mut model = Model::new(&OriginSpec { notices_leavers, ..failing(1.0) }, 1);
        let ticket = model.submit(0, 0, 0).expect("room");
        assert_eq!(model.leave(ticket, 500), !notices_leavers);
        assert_eq!(ends(&mut model, 1000 * MS).len(), usize::from(!notices_leavers));
        let stats = model.stats();
        let expected = if notices_leavers { (0, 1) } else { (1, 0) };
        assert_eq!((stats.failed, stats.abandoned), expected);
        assert!(stats.adds_up());
    }
}
