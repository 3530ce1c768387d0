//! The crowd keeps its promises: sorted, repeatable, at the rate its phases say.

use proptest::prelude::*;

use super::*;
use crate::scenario::{Kind, Shape};

const WEIGHTS: [f64; 3] = [3.0, 0.0, 1.0];

fn phase(rate: Shape, seconds: f64) -> Phase {
    Phase { rate, lasts: Duration::from_secs_f64(seconds), mix: Vec::new() }
}

fn crowd(seed: u64, process: Process, phases: &[Phase], repeat: u32) -> Crowd {
    Crowd::new(seed, &Arrivals::Phases { process, phases: phases.to_vec(), repeat }, &WEIGHTS)
}

fn poisson(seed: u64, phases: &[Phase]) -> Vec<Person> {
    crowd(seed, Process::Poisson, phases, 1).collect()
}

/// How many arrive in a part of the time, in seconds.
fn within(people: &[Person], from: f64, to: f64) -> f64 {
    let (from, to) = (Duration::from_secs_f64(from), Duration::from_secs_f64(to));
    people.iter().filter(|person| (from..to).contains(&person.at)).count() as f64
}

/// The integral of a shape from its begin to `t`, by adding up slices: nothing in common with the code under
/// test.
fn summed(shape: Shape, lasts: f64, t: f64) -> f64 {
    let rate = |t: f64| match shape {
        Shape::Flat(rate) => rate,
        Shape::Ramp(from, to) => from + (to - from) * t / lasts,
        Shape::Diurnal { low, high, period } => {
            low + (high - low) * (1.0 - (std::f64::consts::TAU * t / period.as_secs_f64()).cos()) / 2.0
        }
    };
    let slice = t / 1e5;
    (0..100_000).map(|i| rate((f64::from(i) + 0.5) * slice) * slice).sum()
}

fn day(low: f64, high: f64, period: f64) -> Shape {
    Shape::Diurnal { low, high, period: Duration::from_secs_f64(period) }
}

#[test]
fn every_shape_keeps_its_rate() {
    for (shape, lasts) in [
        (Shape::Flat(1000.0), 10.0),
        (Shape::Ramp(0.0, 2000.0), 10.0),
        (Shape::Ramp(2000.0, 0.0), 10.0),
        (Shape::Ramp(500.0, 500.0), 10.0),
        // Cut into cells, from a night in which nobody comes; then too quiet to be cut.
        (day(0.0, 2000.0, 8.0), 10.0),
        (day(1900.0, 2000.0, 2.5), 10.0),
        (day(10.0, 100.0, 4.0), 200.0),
    ] {
        let people = poisson(3, &[phase(shape, lasts)]);
        let even: Vec<_> = crowd(3, Process::Constant, &[phase(shape, lasts)], 1).collect();
        let hint = crowd(3, Process::Constant, &[phase(shape, lasts)], 1).size_hint_visitors().unwrap();
        assert!((hint / summed(shape, lasts, lasts) - 1.0).abs() < 1e-6, "{shape:?}: {hint}");
        for tenth in 0..10 {
            let (from, to) = (lasts * f64::from(tenth) / 10.0, lasts * f64::from(tenth + 1) / 10.0);
            let mean = summed(shape, lasts, to) - summed(shape, lasts, from);
            let count = within(&people, from, to);
            // Five standard deviations of a Poisson count.
            assert!((count - mean).abs() <= 5.0 * mean.sqrt(), "{shape:?} {from}: {count}, expected {mean}");
            let count = within(&even, from, to);
            assert!((count - mean).abs() <= 1.0 + 1e-6, "{shape:?} {from}: {count} evenly, expected {mean}");
        }
    }
}

#[test]
fn gaps_are_exponential_or_even() {
    let phases = [phase(Shape::Flat(1000.0), 10.0)];
    let spread = |process| {
        let at: Vec<_> = crowd(1, process, &phases, 1).map(|person| person.at.as_secs_f64()).collect();
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
    };
    let (random, even) = (spread(Process::Poisson), spread(Process::Constant));
    assert!((random - 1.0).abs() < 0.05, "{random}");
    assert!(even < 1e-5, "{even}");
}

#[test]
fn even_arrivals_are_exactly_where_they_belong() {
    let at = |phases: &[Phase], repeat| -> Vec<f64> {
        crowd(1, Process::Constant, phases, repeat).map(|person| person.at.as_secs_f64()).collect()
    };
    assert_eq!(at(&[phase(Shape::Flat(2.0), 2.0)], 1), [0.25, 0.75, 1.25, 1.75]);
    // One every two seconds, in phases of one second: the fraction is carried over.
    assert_eq!(at(&[phase(Shape::Flat(0.5), 1.0)], 6), [1.0, 3.0, 5.0]);
    // R(t) = t²: where it passes 0.5, 1.5, ...
    let expected: Vec<f64> = (0..9).map(|k| (f64::from(k) + 0.5).sqrt()).collect();
    let ramp = at(&[phase(Shape::Ramp(0.0, 6.0), 3.0)], 1);
    assert_eq!(ramp.len(), expected.len());
    assert!(ramp.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-9), "{ramp:?}");
    // WebQ's bursts: 2400 in the first four seconds of each cycle, 96 in the 32 after.
    let cycle = [phase(Shape::Flat(600.0), 4.0), phase(Shape::Flat(3.0), 32.0)];
    let cycles = crowd(1, Process::Constant, &cycle, 4).collect::<Vec<_>>();
    for (begin, count) in [(0.0, 2400.0), (36.0, 2400.0), (72.0, 2400.0), (108.0, 2400.0)] {
        assert_eq!(within(&cycles, begin, begin + 4.0), count);
        assert_eq!(within(&cycles, begin + 4.0, begin + 36.0), 96.0);
    }
    assert_eq!(crowd(1, Process::Constant, &cycle, 4).size_hint_visitors(), Some(9984.0));
}

#[test]
fn kinds_come_as_the_mix_says() {
    let mixed = Phase { mix: vec![0.0, 1.0, 1.0], ..phase(Shape::Flat(10_000.0), 1.0) };
    let people = poisson(5, &[phase(Shape::Flat(10_000.0), 1.0), mixed]);
    let share = |from: f64, kind: u32| {
        let of_kind: Vec<_> = people.iter().filter(|person| person.kind == kind).copied().collect();
        within(&of_kind, from, from + 1.0) / within(&people, from, from + 1.0)
    };
    for (from, kind, expected) in
        [(0.0, 0, 0.75), (0.0, 1, 0.0), (0.0, 2, 0.25), (1.0, 0, 0.0), (1.0, 1, 0.5), (1.0, 2, 0.5)]
    {
        // Five standard deviations of a share of 10,000 are 0.025 at most, and nothing for those who never
        // come.
        let off = (share(from, kind) - expected).abs();
        assert!(off <= if expected == 0.0 { 0.0 } else { 0.025 }, "{from} {kind}: {off}");
    }
}

#[test]
fn a_mix_changes_nothing_else() {
    let plain = poisson(7, &[phase(Shape::Flat(1000.0), 4.0)]);
    let mixed = poisson(7, &[Phase { mix: vec![0.2, 0.3, 0.5], ..phase(Shape::Flat(1000.0), 4.0) }]);
    assert_ne!(plain, mixed);
    let but_kind = |people: &[Person]| people.iter().map(|p| (p.at, p.seed)).collect::<Vec<_>>();
    assert_eq!(but_kind(&plain), but_kind(&mixed));
    // Seeds do not hang on the times either.
    let later = poisson(7, &[phase(Shape::Ramp(1.0, 5000.0), 4.0)]);
    assert!(plain.iter().zip(&later).all(|(a, b)| a.seed == b.seed));
}

#[test]
fn seeds_are_all_different_and_even() {
    let people = poisson(1, &[phase(Shape::Flat(100_000.0), 1.0)]);
    let mut seeds: Vec<u64> = people.iter().map(|person| person.seed).collect();
    for bit in 0..64 {
        let ones = seeds.iter().filter(|seed| *seed >> bit & 1 == 1).count() as f64;
        let half = seeds.len() as f64 / 2.0;
        assert!((ones - half).abs() < 5.0 * (half / 2.0).sqrt(), "bit {bit}: {ones} of {}", seeds.len());
    }
    seeds.sort_unstable();
    assert!(seeds.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn an_endless_crowd_goes_on() {
    let endless = |rate| Phase { rate, lasts: Duration::MAX, mix: Vec::new() };
    for process in [Process::Poisson, Process::Constant] {
        let phases = [phase(Shape::Flat(0.0), 1.0), endless(Shape::Flat(100.0))];
        let mut people = crowd(3, process, &phases, 1);
        assert_eq!(people.size_hint_visitors(), None);
        let last = people.nth(99_999).expect("endless");
        assert!((last.at.as_secs_f64() - 1001.0).abs() < 20.0, "{:?}", last.at);
        let mut days = crowd(3, process, &[endless(day(0.0, 200.0, 10.0))], 1);
        let last = days.nth(99_999).expect("endless");
        assert!((last.at.as_secs_f64() - 1000.0).abs() < 20.0, "{:?}", last.at);
        // Nobody, for good: an end, not a search for one.
        assert_eq!(crowd(3, process, &[endless(Shape::Flat(0.0))], 1).next(), None);
        assert_eq!(crowd(3, process, &[endless(day(0.0, 0.0, 10.0))], 1).next(), None);
    }
}

#[test]
fn a_logs_crowd_keeps_its_times_and_its_pace() {
    let text = "{\"time\":100.5,\"path\":\"/a\"}\nx\n{\"time\":104.5,\"path\":\"/b\"}\n";
    let log = Log::read(text.as_bytes(), "a.log".as_ref(), &Kind::default(), 1).unwrap();
    let crowd = Crowd::replay(9, log, 2.0);
    assert_eq!(crowd.size_hint_visitors(), Some(2.0));
    assert_eq!(crowd.skipped().map(|skipped| skipped.lines), Some(1));
    let people: Vec<_> = crowd.map(|person| (person.at.as_secs_f64(), person.kind)).collect();
    assert_eq!(people, [(0.0, 1), (2.0, 2)]);
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let rate = prop_oneof![Just(0.0), 0.001..10.0f64, 10.0..3000.0f64];
    let both = (rate.clone(), rate.clone());
    prop_oneof![
        rate.prop_map(Shape::Flat),
        both.clone().prop_map(|(from, to)| Shape::Ramp(from, to)),
        (both, 0.01..100.0f64).prop_map(|((a, b), period)| day(a.min(b), a.max(b), period)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Sorted, inside the time, the same for the same seed, and as many as the rate says.
    #[test]
    fn any_crowd_keeps_its_promises(
        seed in any::<u64>(),
        even in any::<bool>(),
        shapes in prop::collection::vec((any_shape(), 0.000_001..3.0f64), 1..4),
        repeat in 1u32..4,
    ) {
        let process = if even { Process::Constant } else { Process::Poisson };
        let phases: Vec<_> = shapes.iter().map(|(shape, lasts)| phase(*shape, *lasts)).collect();
        let people: Vec<_> = crowd(seed, process, &phases, repeat).collect();
        let whole = phases.iter().map(|phase| phase.lasts).sum::<Duration>() * repeat;
        prop_assert!(people.is_sorted_by_key(|person| person.at));
        prop_assert!(people.last().is_none_or(|last| last.at < whole));
        prop_assert!(people.iter().all(|person| person.kind == 0 || person.kind == 2));
        prop_assert!(crowd(seed, process, &phases, repeat).eq(people.iter().copied()));
        let expected = crowd(seed, process, &phases, repeat).size_hint_visitors().unwrap();
        let of_phase = |p: &Phase| summed(p.rate, p.lasts.as_secs_f64(), p.lasts.as_secs_f64());
        let summed: f64 = phases.iter().map(of_phase).sum();
        prop_assert!((expected - summed * f64::from(repeat)).abs() <= 1e-3 + expected * 1e-6, "{expected} {summed}");
        // Six standard deviations and a few: two hundred cases are looked at in each run.
        let slack = if even { 0.501 } else { 6.0 * expected.sqrt() + 8.0 };
        prop_assert!((people.len() as f64 - expected).abs() <= slack, "{} of {expected}", people.len());
    }
}

#[test]
fn the_browsers_of_a_closed_loop_join_one_after_another() {
    let closed = ClosedLoop {
        browsers: 1000,
        join: 50.0,
        first: 0,
        hold: Duration::ZERO,
        settle: Duration::ZERO,
        lasts: Duration::from_secs(60),
        sessions: None,
    };
    let people: Vec<_> = Crowd::new(3, &Arrivals::Closed(closed), &WEIGHTS).collect();
    assert_eq!(people.len(), 1000);
    assert!(people.is_sorted_by_key(|person| person.at));
    for second in 0..20 {
        let (from, to) = (f64::from(second), f64::from(second + 1));
        assert_eq!(within(&people, from, to), 50.0, "second {second}");
    }
    let closed = ClosedLoop { first: 100, hold: Duration::from_secs(30), ..closed };
    let held: Vec<_> = Crowd::new(3, &Arrivals::Closed(closed), &WEIGHTS).collect();
    assert_eq!(held[..100], people[..100], "the first come as without the others");
    let later = |person: &Person| Person { at: person.at + Duration::from_secs(30), ..*person };
    assert_eq!(held[100..], people[100..].iter().map(later).collect::<Vec<_>>());
    assert_eq!(closed.measured_from(), Duration::from_secs(50));
    let of_first = people.iter().filter(|person| person.kind == 0).count() as f64 / 1000.0;
    // Five standard deviations of a share of 1,000 are 0.07.
    assert!((of_first - 0.75).abs() < 0.07 && people.iter().all(|person| person.kind != 1), "{of_first}");
}
