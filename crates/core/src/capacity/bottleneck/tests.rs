//! The parts, each alone.
//!
//! Long because: one file of one thing's tests, each of a few lines.

use super::change::{Change, Changes, Onset};
use super::costs::Costs;
use super::curve::{Curve, Hinge};
use super::dispersion::{Dispersion, FLOOR};
use super::initial_estimate::InitialEstimate;
use super::long_lived::LongLived;
use super::meter::{Meter, Work};
use super::mix::Mix;
use super::pause::Pauses;
use super::plan::{self, Purpose};
use super::round::Round;
use super::{Bottleneck, BottleneckConfig};
use crate::capacity::{Estimator, GateLoad, Sample};
use crate::units::{ClassId, Cost, Timestamp};
use std::time::Duration;

fn hinge(base_s: f64, knee: f64, contention: f64) -> Hinge {
    Hinge { base_s, knee, contention, gain: 0.0, at_edge: false, headroom: 1.1 }
}

/// A curve that has seen exactly this at each level, 50 samples each.
fn seen(truth: &Hinge, levels: impl IntoIterator<Item = f64>) -> Curve {
    let mut curve = Curve::new();
    for n in levels {
        curve.add(n, 50.0, 1.0, truth.base_s * truth.slowdown(n));
    }
    curve
}

/// Numbers in 0..1 that look random.
fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
    }
}

fn exponential(seed: u64) -> impl FnMut() -> f64 {
    let mut uniform = uniform(seed);
    move || -uniform().ln()
}

#[track_caller]
fn close(got: f64, expected: f64, within: f64) {
    assert!((got / expected - 1.0).abs() < within, "{got}, expected {expected}");
}

#[test]
fn a_hinge_is_found_where_it_is() {
    for (base_s, knee, contention) in [
        (0.1, 10.0, 0.0),
        (0.1, 10.0, 0.3),
        (0.1, 10.0, 1.0),
        (0.004, 40.0, 0.0),
        (0.05, 700.0, 0.0),
        (2.0, 3.0, 0.0),
    ] {
        let truth = hinge(base_s, knee, contention);
        let levels = [0.4, 0.7, 1.0, 1.2, 1.6, 2.0, 2.6].map(|share| (share * knee).ceil());
        let found = seen(&truth, levels).fit(1.0).expect("samples");
        close(found.knee, knee, 0.03);
        close(found.base_s, base_s, 0.03);
        assert_eq!(found.contention, contention, "knee {knee}");
        assert!(found.gain > 6.0 && !found.at_edge, "{found:?}");
    }
}

#[test]
fn a_flat_curve_has_no_knee() {
    let flat = hinge(0.1, 1e9, 0.0);
    let found = seen(&flat, [2.0, 4.0, 8.0, 16.0]).fit(1.0).expect("samples");
    assert!(found.gain < 1e-6, "{found:?}");
    close(found.base_s, 0.1, 1e-9);
}

#[test]
fn a_knee_below_all_samples_is_said_to_be_at_the_edge() {
    let found = seen(&hinge(0.1, 3.0, 0.0), [6.0, 8.0, 12.0, 20.0]).fit(1.0).expect("samples");
    assert!(found.at_edge, "{found:?}");
    // Base and knee are unknown, their quotient is not.
    close(found.knee / found.base_s, 30.0, 0.02);
}

#[test]
fn nothing_seen_fits_nothing() {
    assert_eq!(Curve::new().fit(1.0), None);
    let mut one = Curve::new();
    one.add(4.0, 1.0, 1.0, 0.1);
    close(one.fit(1.0).expect("a sample").base_s, 0.1, 1e-9);
}

#[test]
fn failed_requests_take_their_time_from_the_throughput() {
    let mut curve = seen(&hinge(0.1, 10.0, 0.0), [10.0]);
    // Fifty served and fifty failed after as long: half the throughput.
    curve.add_failed(10.0, 50.0, 0.1);
    let work = curve.work_between(9.0, 11.0);
    close(work.units / work.time_s, 50.0, 1e-9);
}

#[test]
fn the_curve_forgets_on_the_side_where_new_samples_come() {
    let mut curve = seen(&hinge(0.1, 10.0, 0.0), [8.0, 20.0]);
    for _ in 0..100 {
        curve.add(20.0, 50.0, 1.0, 0.4);
        curve.fade(10.0, 600.0, 200.0);
    }
    close(curve.samples(), 250.0, 1e-9);
    let points: Vec<_> = curve.points().collect();
    close(points[0].1, 0.1, 1e-9);
    close(points[1].1, 0.4, 0.01);
    curve.clear_above(10.0);
    close(curve.samples(), 50.0, 1e-9);
}

#[test]
fn what_was_seen_at_another_speed_has_the_same_knee() {
    let mut curve = seen(&hinge(0.1, 10.0, 0.0), [5.0, 8.0, 10.0, 14.0, 20.0]);
    curve.scale_times(0.4);
    let found = curve.fit(1.0).expect("samples");
    close(found.knee, 10.0, 0.03);
    close(found.base_s, 0.04, 0.03);
}

#[test]
fn throughput_is_averaged_until_it_changes() {
    let (mut meter, mut draw) = (Meter::new(), exponential(1));
    let mut feed = |meter: &mut Meter, rate: f64, samples: u32| {
        for _ in 0..samples {
            let work = Work { count: 1.0, units: 1.0, cost: 1.0, time_s: draw() / rate };
            meter.add(&work, 16.0, 2500.0, 1.0);
        }
    };
    feed(&mut meter, 100.0, 2000);
    assert!(meter.total().count > 1500.0, "nothing changed, {} are left", meter.total().count);
    close(meter.rate().expect("samples"), 100.0, 0.06);
    feed(&mut meter, 50.0, 150);
    close(meter.rate().expect("samples"), 50.0, 0.25);
    assert!(meter.total().count < 400.0, "the old are dropped, {} are left", meter.total().count);
    feed(&mut meter, 50.0, 20_000);
    assert!(meter.total().count < 2700.0);
    close(meter.rate().expect("samples"), 50.0, 0.06);
}

#[test]
fn a_change_of_speed_is_noticed_and_noise_is_not() {
    let mut draw = exponential(7);
    let mut noticed = |factor: f64| {
        let mut changes = Changes::default();
        (1..=5000).find_map(|n| {
            let sample = Onset { count: 1.0, in_flight: 12.0, units: 1.0, response_s: 0.1 * factor * draw() };
            changes.add(&sample, 0.1, 1.0, 12.0);
            changes.fired(100.0).map(|(change, _)| (n, change))
        })
    };
    assert_eq!(noticed(1.0), None);
    let (slower, change) = noticed(2.0).expect("twice as slow");
    assert_eq!(change, Change::Slower);
    assert!(slower < 150, "{slower}");
    let (faster, change) = noticed(0.5).expect("twice as fast");
    assert_eq!(change, Change::Faster);
    assert!(faster < 150, "{faster}");
}

#[test]
fn those_beyond_the_knee_who_do_not_wait_are_noticed() {
    let mut changes = Changes::default();
    let round = Onset { count: 50.0, in_flight: 1000.0, units: 50.0, response_s: 5.0 };
    changes.add_round(&round, 1.0, 2.0, 1.0);
    assert!(changes.fired(100.0).is_none() && !changes.leans_up(), "they waited as expected");
    changes.add_round(&round, 0.5, 2.0, 1.0);
    assert!(changes.leans_up());
    changes.add_round(&round, 0.5, 2.0, 1.0);
    assert_eq!(changes.fired(100.0).map(|(change, _)| change), Some(Change::Unsaturated));
}

#[test]
fn dispersion_is_that_of_the_service() {
    let mut clock = Dispersion::new();
    let mut noisy = Dispersion::new();
    let mut draw = exponential(3);
    for _ in 0..2000 {
        clock.add(1.0, 0.1, 0.1, 24.0);
        noisy.add(1.0, 0.1 * draw(), 0.1, 24.0);
    }
    assert_eq!(clock.get(), FLOOR);
    close(noisy.get(), 1.0, 0.4);
}

#[test]
fn costs_of_classes_are_learned_and_their_mean_is_kept() {
    let (light, heavy) = (ClassId(0), ClassId(1));
    let (mut costs, mut draw) = (Costs::new(), exponential(5));
    for _ in 0..2000 {
        for (class, true_cost) in [(light, 0.5), (light, 0.5), (light, 0.5), (heavy, 2.5)] {
            costs.units(class, 1.0);
            costs.learn(class, 1.0, true_cost * draw());
        }
        costs.anchor();
    }
    let ratio = costs.units(heavy, 1.0) / costs.units(light, 1.0);
    close(ratio, 5.0, 0.15);
    close(0.75 * costs.units(light, 1.0) + 0.25 * costs.units(heavy, 1.0), 1.0, 1e-6);
    // Another configured cost scales what was learned.
    let before = costs.units(heavy, 1.0);
    close(costs.units(heavy, 3.0), 3.0 * before, 1e-9);
}

#[test]
fn a_single_class_costs_what_is_configured() {
    let mut costs = Costs::new();
    for _ in 0..100 {
        costs.units(ClassId(9), 2.0);
        costs.learn(ClassId(9), 1.0, 7.0);
    }
    costs.anchor();
    assert_eq!(costs.units(ClassId(9), 2.0), 2.0);
}

#[test]
fn a_shift_of_the_mix_is_noticed_within_some_dozens() {
    let mut mix = Mix::default();
    let mut draw = uniform(11);
    let mut request = |mix: &mut Mix, heavy: f64| {
        let units = if draw() < heavy { 3.0 } else { 0.5 };
        mix.add(1.0, units, 1.0)
    };
    assert!((0..20_000).filter(|_| request(&mut mix, 0.2)).count() <= 2, "chance is no shift");
    let after = (1..=500).find(|_| request(&mut mix, 0.7)).expect("a shift");
    assert!(after < 60, "{after}");
    (0..500).for_each(|_| {
        request(&mut mix, 0.7);
    });
    close(mix.units_per_request(), 0.3 * 0.5 + 0.7 * 3.0, 0.1);
}

#[test]
fn a_pause_is_forgiven_but_not_slowness() {
    let ms = Timestamp::from_millis;
    let expected = (100.0, 0.1);
    let mut pauses = Pauses::default();
    let mut paused_s = |sent: u64, ended: u64| pauses.forgives(ms(sent), ms(ended), 1.0, expected, 10.0);
    let mut forgiven = |sent: u64, ended: u64| paused_s(sent, ended).is_some();
    assert!((0..100).all(|i| !forgiven(10_000 + i * 10, 10_100 + i * 10)));
    // Half a second of nothing: those in flight are forgiven, those sent afterwards are not.
    assert!(forgiven(11_090, 11_600) && forgiven(11_095, 11_610));
    assert!(!forgiven(11_605, 11_700));
    // The next gap comes too soon to be another pause.
    assert!(!forgiven(11_610, 12_300));
    assert_eq!(pauses.count, 1);
    assert!(pauses.up_share() < 1.0);
}

#[test]
fn a_pause_is_told_by_a_quarter_more_than_a_response() {
    let ms = Timestamp::from_millis;
    for (gap_ms, is_pause) in [(120, false), (130, true)] {
        let mut pauses = Pauses::default();
        let mut paused_s =
            |sent: u64, ended: u64| pauses.forgives(ms(sent), ms(ended), 1.0, (200.0, 0.1), 10.0);
        assert!((0..100).all(|i| paused_s(10_000 + i * 5, 10_100 + i * 5).is_none()));
        let waited = paused_s(10_590, 10_595 + gap_ms);
        assert_eq!(waited, is_pause.then_some(gap_ms as f64 / 1e3));
    }
}

#[test]
fn requests_told_of_together_count_as_many_between_two_pauses() {
    let ms = Timestamp::from_millis;
    let mut pauses = Pauses::default();
    let mut paused_s = |count: f64, sent: u64, ended: u64| {
        pauses.forgives(ms(sent), ms(ended), count, (100.0, 0.1), 10.0).is_some()
    };
    assert!(!paused_s(10.0, 10_000, 10_100) && !paused_s(10.0, 10_100, 10_200));
    assert!(paused_s(1.0, 10_190, 10_800), "twenty since the beginning");
}

#[test]
fn who_waited_for_a_pause_did_not_stay() {
    let ms = Timestamp::from_millis;
    let sample = |sent: u64, ended: u64| Sample {
        class: ClassId(0),
        cost: Cost::ONE,
        count: 1,
        ended: ms(ended),
        response: ms(ended).since(ms(sent)),
        lingered: Duration::ZERO,
        in_flight: 4,
        ok: true,
        backlog: true,
    };
    let staying = |last: Sample| {
        let mut law = Bottleneck::new(BottleneckConfig::default(), None);
        let load = GateLoad { room_waits: true, queued: 9, in_flight: 4 };
        law.tick(&load, ms(10_000));
        (0..100).for_each(|i| law.observe(&sample(10_000 + i * 25, 10_100 + i * 25)));
        law.observe(&last);
        law.tick(&load, ms(15_000));
        law.standing.level() * 5.0
    };
    // After the last of the others, at 12.575 s, nothing for two seconds: twenty responses.
    assert_eq!(staying(sample(12_500, 14_575)), 0.0);
    // It had stayed for two seconds before, and those are told apart.
    let stayed_s = staying(sample(10_500, 14_575));
    assert!((1.9..2.1).contains(&stayed_s), "{stayed_s}");
    // What the gate knows to have lingered is counted whatever it is short beside.
    let lingered = Sample { lingered: Duration::from_millis(250), ..sample(12_500, 12_600) };
    assert!((staying(lingered) - 0.25).abs() < 1e-9);
}

#[test]
fn who_was_sent_while_places_were_free_tells_of_the_load() {
    let ms = Timestamp::from_millis;
    let judged = |in_flight: u32| {
        let mut law = Bottleneck::new(BottleneckConfig { start_in_flight: 20, ..Default::default() }, None);
        let load = GateLoad { room_waits: true, queued: 9, in_flight };
        law.tick(&load, ms(10_000));
        for i in 0..20 {
            law.observe(&Sample {
                class: ClassId(0),
                cost: Cost::ONE,
                count: 1,
                ended: ms(10_100 + i * 25),
                response: Duration::from_millis(90),
                lingered: Duration::ZERO,
                in_flight,
                ok: true,
                backlog: true,
            });
        }
        law.curve.samples()
    };
    assert_eq!([judged(20), judged(19), judged(18)], [20.0; 3]);
    assert_eq!([judged(17), judged(3)], [0.0; 2], "a burst came after it");
}

#[test]
fn what_stays_in_flight_is_counted_apart() {
    let mut standing = LongLived::default();
    // One stream of 10 s ends every second: ten are there at a time.
    for _ in 0..600 {
        for _ in 0..9 {
            assert_eq!(standing.split(1.0, 0.1, 0.1), 0.1);
            standing.tick(0.1);
        }
        assert_eq!(standing.split(1.0, 10.1, 0.1), 0.1);
        standing.tick(0.1);
    }
    close(standing.level(), 10.0, 0.1);
}

#[test]
fn the_guess_grows_while_people_wait_for_nothing() {
    let mut guess = InitialEstimate::new(None);
    let idle = GateLoad { room_waits: false, queued: 0, in_flight: 0 };
    (0..100).for_each(|_| guess.tick(&idle, 4, 0.1));
    assert_eq!(guess.rate(), super::initial_estimate::OPENING);
    guess.tick(&GateLoad { queued: 1, in_flight: 4, room_waits: true }, 4, 0.1);
    assert_eq!(guess.rate(), super::initial_estimate::FIRST, "an origin that is waited for");
    let starving = GateLoad { room_waits: true, ..idle };
    (0..10).for_each(|_| guess.tick(&starving, 4, 0.1));
    assert!(guess.rate() > 3.0 * super::initial_estimate::FIRST);
    // Full: not the room's fault.
    let before = guess.rate();
    guess.tick(&GateLoad { in_flight: 4, ..starving }, 4, 0.1);
    assert_eq!(guess.rate(), before);
    // At least twice what was served, told from the first tick on.
    let mut quick = InitialEstimate::new(None);
    quick.served(100.0);
    quick.tick(&idle, 4, 0.1);
    close(quick.rate(), 2000.0, 1.0);
    (0..50).for_each(|_| {
        guess.served(100.0);
        guess.tick(&idle, 4, 0.1);
    });
    assert!(guess.rate() > 1900.0);
}

#[test]
fn a_ramp_doubles_as_often_as_its_round_was_worth() {
    let growth = |trips| super::plan::ramp_growth(1.0, false, false, trips);
    for (trips, expected) in [(1.0, 2.0), (8.9, 2.0), (9.0, 4.0), (20.9, 4.0), (21.0, 8.0), (1e6, 8.0)] {
        assert_eq!(growth(trips), expected, "{trips} round trips");
    }
    // What is known of the knee counts for more.
    assert_eq!(super::plan::ramp_growth(1.0, true, false, 100.0), 1.0);
    assert!(super::plan::ramp_growth(1.3, false, false, 100.0) < 2.0);
    assert!(super::plan::ramp_growth(1.0, false, true, 100.0) < 2.0);
}

#[test]
fn a_round_counts_the_time_of_those_that_have_not_ended() {
    let ms = Timestamp::from_millis;
    let round_of = |responses: [f64; 6]| {
        let mut round = Round::new(ms(1000), 10, 0);
        round.pass(ms(1300));
        for response_s in responses {
            round.work.add(&Work { count: 1.0, units: 1.0, cost: 1.0, time_s: response_s / 10.0 });
            round.response_s += response_s;
            round.squares += response_s * response_s;
            round.ended_units += 1.0;
        }
        round
    };
    // Ten in flight for 300 ms are 3 s, of which 0.6 belong to those that ended.
    let constant = round_of([0.1; 6]);
    assert!(constant.censored_s() < 1e-9);
    close(constant.counted(), 20.0, 1e-9);
    let noisy = round_of([0.02, 0.02, 0.02, 0.02, 0.02, 0.5]);
    close(noisy.censored_s(), 0.6, 1e-6);
}

#[test]
fn a_ramp_lets_in_what_will_be_needed_when_who_is_called_comes() {
    let gain = |round_s| Purpose::Ramp.gain(round_s);
    assert_eq!(gain(None), 2.0, "nothing is known");
    assert!(gain(Some(5.0)) < 2.5, "in a second it does not double");
    assert!(gain(Some(0.5)) > 4.0 && gain(Some(0.5)) < gain(Some(0.3)));
    for round_s in [0.01, 0.0] {
        assert_eq!(gain(Some(round_s)), 12.0);
    }
    assert!(Purpose::Cruise.gain(Some(0.01)) < 1.1);
}

#[test]
fn a_quiet_origin_is_not_probed_deeper_than_tells() {
    let fallen = |ratio: f64, phi| plan::depth(plan::FALLEN / ratio, plan::FALLEN_CONTRAST, phi);
    // Half the workers or half the speed: with noise below the knee that would be left, without it is seen at once.
    close(fallen(2.0, 1.0), 0.45, 1e-9);
    assert!((0.65..0.75).contains(&fallen(2.0, FLOOR)), "{}", fallen(2.0, FLOOR));
    for (ratio, phi) in [(1.2, FLOOR), (4.0, FLOOR), (4.0, 20.0), (1.4, 0.3)] {
        assert!((plan::FALLEN / ratio..1.0).contains(&fallen(ratio, phi)), "{ratio} {phi}");
    }
    let down = |phi| plan::depth(plan::DOWN, plan::DOWN_CONTRAST, phi);
    assert!(down(1.0) == plan::DOWN && (0.85..0.9).contains(&down(FLOOR)), "{}", down(FLOOR));
}

#[test]
fn a_cruise_is_probed_on_both_sides() {
    let purposes: Vec<_> = (1..=300).map(|round| plan::after(round, false, 1.0)).collect();
    assert!(purposes.windows(12).all(|some| some.contains(&Purpose::Up)));
    assert!(purposes[..20].contains(&Purpose::Down) && purposes[100..].contains(&Purpose::Down));
    let contending = (1..=300).filter(|round| plan::after(*round, true, 1.0) == Purpose::Up).count();
    assert!(contending < purposes.iter().filter(|p| **p == Purpose::Up).count() / 2);
    let quiet = (1..=300).filter(|round| plan::after(*round, false, 0.1) == Purpose::Up).count();
    assert!(quiet > purposes.iter().filter(|p| **p == Purpose::Up).count(), "short probes come more often");
    let length = |phi| plan::round_length(Purpose::Up, 100.0, phi, 100.0);
    assert!(2.0 * length(0.1) < length(1.0) && plan::up(false, 0.1) < plan::up(false, 1.0));
    let next = plan::AT_NEW_SPEED + 1..plan::AT_NEW_SPEED + 8;
    let next: Vec<_> = next.map(|round| plan::after(round, false, 1.0)).collect();
    assert!(next.contains(&Purpose::Up) && next.contains(&Purpose::Down), "{next:?}");
    let most = Hinge { headroom: 1.6, ..hinge(0.1, 10.0, 0.0) };
    assert!(plan::headroom(&most, 0.2) <= 1.4 && plan::headroom(&hinge(0.1, 10.0, 1.0), 0.2) <= 1.2);
}
