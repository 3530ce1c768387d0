//! The parts of the estimator, each alone.

use super::change::{Change, Changes, Dispersion, Expected, FLOOR, Onset, Pauses};
use super::costs::{Costs, Mix};
use super::fit::{Curve, Hinge};
use super::initial_estimate::{self, InitialEstimate};
use super::long_lived::{Completions, LongLived};
use super::plan::{self, Purpose};
use super::work::{Round, Work};
use super::{Bottleneck, BottleneckConfig};
use crate::capacity::{Estimator, GateLoad, Sample};
use crate::units::{ClassId, Cost, Timestamp};
use std::time::Duration;

fn hinge(base_s: f64, knee: f64, contention: f64) -> Hinge {
    Hinge { base_s, knee, contention, gain: 0.0 }
}

/// A curve of 50 exact samples at each level.
fn seen(truth: &Hinge, levels: impl IntoIterator<Item = f64>) -> Curve {
    let mut curve = Curve::new();
    for n in levels {
        curve.add(n, 50.0, 1.0, truth.base_s * truth.slowdown(n));
    }
    curve
}

/// A request of cost 1 that was served while others waited.
fn sample(ended: Timestamp, response: Duration, in_flight: u32) -> Sample {
    let (class, cost, lingered) = (ClassId(0), Cost::ONE, Duration::ZERO);
    Sample { class, cost, count: 1, ended, response, lingered, in_flight, ok: true, backlog: true }
}

/// Pseudo-random numbers in 0..1.
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
fn the_fit_finds_knee_base_and_contention() {
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
        assert!(found.gain > 6.0, "{found:?}");
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
fn of_a_knee_below_all_samples_the_throughput_is_known() {
    let found = seen(&hinge(0.1, 3.0, 0.0), [6.0, 8.0, 12.0, 20.0]).fit(1.0).expect("samples");
    // Base and knee are unknown, their quotient is not.
    close(found.knee / found.base_s, 30.0, 0.02);
}

#[test]
fn there_is_no_fit_without_samples() {
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
        curve.fade(10.0, 200.0);
    }
    close(curve.samples(), 250.0, 1e-9);
    let points: Vec<_> = curve.points().collect();
    close(points[0].1, 0.1, 1e-9);
    close(points[1].1, 0.4, 0.01);
    curve.clear_above(10.0);
    close(curve.samples(), 50.0, 1e-9);
}

#[test]
fn throughput_is_averaged_over_so_many_requests() {
    let (mut work, mut draw) = (Work::default(), exponential(1));
    let mut feed = |rate: f64, samples: u32| {
        for _ in 0..samples {
            work.add(&Work { count: 1.0, units: 1.0, cost: 1.0, time_s: draw() / rate });
            work.fade(2500.0);
        }
        (work.count, work.rate().expect("samples"))
    };
    let (count, rate) = feed(100.0, 2000);
    close(count, 2000.0, 1e-9);
    close(rate, 100.0, 0.06);
    let (count, rate) = feed(50.0, 20_000);
    close(count, 2500.0, 1e-9);
    close(rate, 50.0, 0.06);
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
fn requests_beyond_the_knee_that_do_not_wait_are_noticed() {
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
fn thousands_of_samples_at_once_do_not_overshoot_the_dispersion() {
    let mut dispersion = Dispersion::new();
    for squared in [0.5, 1.5, 0.5, 1.5] {
        dispersion.learn(2000.0, squared);
        close(dispersion.get(), squared, 1e-9);
    }
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
fn a_class_that_takes_over_an_id_starts_from_its_own_cost() {
    let mut costs = Costs::new();
    let (costly, other) = (ClassId(0), ClassId(1));
    for _ in 0..500 {
        costs.units(other, 1.0);
        costs.learn(other, 1.0, 1.0);
        costs.units(costly, 1.0);
        costs.learn(costly, 1.0, 6.0);
    }
    assert!(costs.units(costly, 1.0) > 4.0);
    let kept = costs.units(other, 1.0);
    costs.forget(costly);
    costs.forget(ClassId(9));
    assert_eq!((costs.units(costly, 2.0), costs.units(other, 1.0)), (2.0, kept));
    costs.forget(costly);
    costs.forget(other);
    costs.anchor();
    assert_eq!((costs.range().least, costs.range().greatest), (1.0, 1.0));
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

/// The pause that requests sent and ended at these milliseconds have waited for, at a limit of 10.
fn pause_s(pauses: &mut Pauses, per_second: f64, count: f64, sent: u64, ended: u64) -> Option<f64> {
    let (sent, ended) = (Timestamp::from_millis(sent), Timestamp::from_millis(ended));
    pauses.paused_s(sent, ended, count, &Expected { per_second, response_s: 0.1 }, 10.0)
}

#[test]
fn a_pause_is_excused_but_slowness_is_not() {
    let mut pauses = Pauses::default();
    let mut waited = |sent, ended| pause_s(&mut pauses, 100.0, 1.0, sent, ended).is_some();
    assert!((0..100).all(|i| !waited(10_000 + i * 10, 10_100 + i * 10)));
    // Half a second without a completion: requests in flight have waited for it, later ones have not.
    assert!(waited(11_090, 11_600) && waited(11_095, 11_610));
    assert!(!waited(11_605, 11_700));
    // The next gap comes too soon to be another pause.
    assert!(!waited(11_610, 12_300));
    assert_eq!(pauses.count, 1);
    assert!(pauses.up_share() < 1.0);
}

#[test]
fn a_pause_is_a_quarter_longer_than_a_response() {
    for (gap_ms, is_pause) in [(120, false), (130, true)] {
        let mut pauses = Pauses::default();
        let mut paused_s = |sent, ended| pause_s(&mut pauses, 200.0, 1.0, sent, ended);
        assert!((0..100).all(|i| paused_s(10_000 + i * 5, 10_100 + i * 5).is_none()));
        assert_eq!(paused_s(10_590, 10_595 + gap_ms), is_pause.then_some(gap_ms as f64 / 1e3));
    }
}

#[test]
fn samples_of_several_requests_count_as_many_between_two_pauses() {
    let mut pauses = Pauses::default();
    let mut waited = |count, sent, ended| pause_s(&mut pauses, 100.0, count, sent, ended).is_some();
    assert!(!waited(10.0, 10_000, 10_100) && !waited(10.0, 10_100, 10_200));
    assert!(waited(1.0, 10_190, 10_800), "twenty since the beginning");
}

#[test]
fn waiting_for_a_pause_does_not_make_a_request_long_lived() {
    let ms = Timestamp::from_millis;
    let four = BottleneckConfig { min_in_flight: 4, max_in_flight: 4, ..BottleneckConfig::default() };
    let sample = |sent: u64, ended: u64| sample(ms(ended), ms(ended).since(ms(sent)), 4);
    let idle_s = |last: Sample| {
        let mut estimator = Bottleneck::new(four, None);
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: 4, age: Duration::ZERO };
        estimator.tick(&load, ms(10_000));
        for i in 0..100 {
            estimator.observe(&sample(10_000 + i * 25, 10_100 + i * 25));
            estimator.tick(&load, ms(10_100 + i * 25));
        }
        estimator.observe(&last);
        estimator.tick(&load, ms(15_000));
        estimator.long_lived.level * 5.0
    };
    // After the last of the others, at 12.575 s, no completion for two seconds: twenty response times.
    assert_eq!(idle_s(sample(12_500, 14_575)), 0.0);
    // This one was long-lived for two seconds before the pause, and these count.
    let long_lived_s = idle_s(sample(10_500, 14_575));
    assert!((1.9..2.1).contains(&long_lived_s), "{long_lived_s}");
    // Time lingered counts however short it is.
    let lingered = Sample { lingered: Duration::from_millis(250), ..sample(12_500, 12_600) };
    assert!((idle_s(lingered) - 0.25).abs() < 1e-9);
}

#[test]
fn samples_sent_while_slots_were_free_are_ignored() {
    let ms = Timestamp::from_millis;
    let judged = |in_flight: u32| {
        let mut estimator =
            Bottleneck::new(BottleneckConfig { min_in_flight: 20, ..Default::default() }, None);
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight, age: Duration::ZERO };
        estimator.tick(&load, ms(10_000));
        for i in 0..20 {
            estimator.observe(&sample(ms(10_100 + i * 25), Duration::from_millis(90), in_flight));
        }
        estimator.curves.likelier().samples()
    };
    assert_eq!([judged(20), judged(19), judged(18)], [20.0; 3]);
    assert_eq!([judged(17), judged(3)], [0.0; 2], "sent at the begin of a burst");
}

#[test]
fn long_lived_requests_are_counted_apart() {
    let mut long_lived = LongLived::default();
    // One stream of 10 s ends every second: ten are in flight.
    for _ in 0..600 {
        for _ in 0..9 {
            assert_eq!(long_lived.split(1.0, 0.1, 0.1, 1.0), 0.1);
            long_lived.tick(0.1);
        }
        assert_eq!(long_lived.split(1.0, 10.1, 0.1, 100.0), 0.1);
        long_lived.tick(0.1);
    }
    close(long_lived.level, 10.0, 0.1);
}

#[test]
fn a_slow_origin_does_not_make_its_requests_long_lived() {
    let mut long_lived = LongLived::default();
    // Twenty times as long as usual, and nobody overtook them.
    assert_eq!(long_lived.split(1.0, 2.0, 0.1, 1.0), 2.0);
    long_lived.tick(0.1);
    assert_eq!(long_lived.level, 0.0);
}

#[test]
fn completions_during_a_stay_are_counted_between_ticks_too() {
    let ms = Timestamp::from_millis;
    let mut completions = Completions::default();
    assert_eq!(completions.since(ms(0), ms(50)), 0.0);
    for tick in 1..=1000 {
        completions.tick(ms(tick * 100));
        completions.add(10.0);
    }
    close(completions.since(ms(99_050), ms(100_050)), 105.0, 0.01);
    close(completions.since(ms(100_025), ms(100_050)), 5.0, 0.01);
    // Earlier than the oldest tick remembered: at least so many.
    close(completions.since(ms(100), ms(100_050)), 6000.0, 0.01);
}

/// A ramp in which each of `n` in flight takes `response_ms(n)`, and each is followed by another. Returns the
/// limit after every tick.
fn ramp(ticks: u64, response_ms: impl Fn(u32) -> u64) -> Vec<u32> {
    let at = |ms: u64| Timestamp::from_millis(10_000 + ms);
    let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
    // When each ends, when it was sent, and among how many.
    let mut open: Vec<(u64, u64, u32)> = Vec::new();
    let mut limits = Vec::new();
    for now in (0..ticks).map(|tick| tick * 100) {
        loop {
            open.sort_unstable();
            let Some((ends, sent, among)) = open.first().copied().filter(|(ends, ..)| *ends <= now) else {
                break;
            };
            estimator.observe(&sample(at(ends), Duration::from_millis(ends - sent), among));
            let n = open.len() as u32;
            open[0] = (ends + response_ms(n), ends, n);
        }
        let in_flight = open.len() as u32;
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight, age: Duration::ZERO };
        let limit = estimator.tick(&load, at(now)).max_in_flight.expect("there is one");
        open.truncate(limit as usize);
        for n in in_flight + 1..=limit {
            open.push((now + response_ms(n), now, n));
        }
        limits.push(limit);
    }
    limits
}

#[test]
fn a_ramp_doubles_within_a_response_time_or_so() {
    let turn = std::cell::Cell::new(0);
    let limits = ramp(50, |_| {
        turn.set(turn.get() + 1);
        [350, 650, 450, 550][turn.get() % 4]
    });
    assert!(limits[9] <= 3, "nothing is concluded from one sample: {limits:?}");
    // In eight response times.
    assert!(limits[49] >= 16 * limits[9], "{limits:?}");
}

#[test]
fn a_ramp_grows_fourfold_at_most_in_a_tick() {
    let limits = ramp(6, |_| 5);
    assert!(limits.windows(2).all(|pair| pair[1] <= 4 * pair[0]), "{limits:?}");
    assert!(limits.contains(&4) && limits.contains(&16), "{limits:?}");
}

/// With contention among few workers a request takes dozens of times as long two levels beyond the knee.
#[test]
fn a_ramp_returns_where_requests_do_not_come_back() {
    let truth = hinge(0.2, 2.0, 1.0);
    let limits = ramp(150, |n| (1000.0 * truth.base_s * truth.slowdown(f64::from(n))) as u64);
    let most = limits.iter().max().copied().unwrap_or(0);
    assert!((5..20).contains(&most), "{limits:?}");
    assert!(limits.last().is_some_and(|last| *last <= 3), "{limits:?}");
}

/// An origin that serves all requests at once at the speed of `workers`. Returns the mean limit of the second
/// half of `ticks`.
fn shared(workers: f64, service_ms: f64, ticks: u32, seed: u64) -> f64 {
    let at = |ms: f64| Timestamp::from_micros(10_000_000 + (1000.0 * ms) as u64);
    let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
    let mut service = exponential(seed);
    // The work left of each, when it was sent, and among how many.
    let mut open: Vec<(f64, f64, u32)> = Vec::new();
    let (mut now, mut sum, mut limit) = (0.0, 0.0, 0);
    for tick in 0..ticks {
        let until = f64::from(100 * tick);
        loop {
            let speed = (workers / open.len() as f64).min(1.0);
            let first = (0..open.len()).min_by(|a, b| open[*a].0.total_cmp(&open[*b].0));
            let done = first.filter(|first| now + open[*first].0 / speed <= until);
            let passed = done.map_or(until - now, |done| open[done].0 / speed);
            now += passed;
            open.iter_mut().for_each(|(left, ..)| *left -= passed * speed);
            let Some(done) = done else { break };
            let (_, sent, among) = open.swap_remove(done);
            estimator.observe(&sample(at(now), Duration::from_secs_f64((now - sent) / 1e3), among));
            let n = open.len() as u32 + 1;
            if n <= limit {
                open.push((service_ms * service(), now, n));
            }
        }
        let in_flight = open.len() as u32;
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight, age: Duration::ZERO };
        limit = estimator.tick(&load, at(until)).max_in_flight.expect("there is one");
        open.extend((in_flight + 1..=limit).map(|n| (service_ms * service(), until, n)));
        sum += if 2 * tick >= ticks { f64::from(limit) } else { 0.0 };
    }
    2.0 * sum / f64::from(ticks)
}

/// With the number in flight when they were sent alone, the mean at one worker is 4.1.
#[test]
fn a_shared_origin_is_held_near_its_knee() {
    for (workers, most) in [(1.0, 3.0), (2.0, 3.0), (4.0, 5.0), (10.0, 12.5)] {
        let limits = (1..=100).map(|seed| shared(workers, 50.0, 1200, seed));
        let mean = limits.sum::<f64>() / 100.0;
        assert!((workers..most).contains(&mean), "{workers} workers: {mean}");
    }
}

/// Ten in flight after some at lower levels, of which nothing has been heard for 2 s.
#[test]
fn what_another_process_has_not_reported_yet_is_not_overdue() {
    let ms = Timestamp::from_millis;
    let limit_with = |reported: u64| {
        let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
        let mut limit = 1;
        for tick in 0..=10 {
            let now = 10_000 + 100 * tick;
            let sent = Duration::from_millis(100);
            (0..limit).for_each(|_| estimator.observe(&sample(ms(now), sent, limit)));
            let load =
                GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: limit, age: Duration::ZERO };
            limit = estimator.tick(&load, ms(now)).max_in_flight.expect("there is one");
            if limit > 10 {
                break;
            }
        }
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: limit, age: Duration::ZERO };
        estimator.tick(&load, ms(11_100));
        let age = Duration::from_millis(14_000 - reported);
        let load = GateLoad { room_waits: true, coming: 0, queued: 9, in_flight: limit, age };
        (limit, estimator.tick(&load, ms(14_000)).max_in_flight.expect("there is one"))
    };
    let (before, after) = limit_with(11_100);
    assert_eq!(before, after, "a report is on its way");
    let (before, after) = limit_with(14_000);
    assert!(after < before, "nothing has ended for seconds: {before} {after}");
}

#[test]
fn the_initial_estimate_grows_while_visitors_wait_for_an_idle_origin() {
    let mut estimate = InitialEstimate::new(None);
    let idle = GateLoad { room_waits: false, coming: 0, queued: 0, in_flight: 0, age: Duration::ZERO };
    (0..100).for_each(|_| estimate.tick(&idle, 4, 0.1));
    assert_eq!(estimate.rate, initial_estimate::FIRST);
    let starving = GateLoad { room_waits: true, ..idle };
    (0..10).for_each(|_| estimate.tick(&GateLoad { coming: 1, ..starving }, 4, 0.1));
    assert_eq!(estimate.rate, initial_estimate::FIRST, "somebody is on the way");
    (0..10).for_each(|_| estimate.tick(&starving, 4, 0.1));
    assert!(estimate.rate > 3.0 * initial_estimate::FIRST);
    // The origin is full.
    let before = estimate.rate;
    estimate.tick(&GateLoad { in_flight: 4, ..starving }, 4, 0.1);
    assert_eq!(estimate.rate, before);
    // At least twice what was served, from the first tick on.
    let mut quick = InitialEstimate::new(None);
    quick.ended += 100.0;
    quick.tick(&idle, 4, 0.1);
    close(quick.rate, 2000.0, 1.0);
    (0..50).for_each(|_| {
        estimate.ended += 100.0;
        estimate.tick(&idle, 4, 0.1);
    });
    assert!(estimate.rate > 1900.0);
}

#[test]
fn the_throughput_of_a_round_is_that_of_its_time_with_a_backlog() {
    let mut round = Round::new(Timestamp::from_millis(1000), 10);
    assert_eq!(round.units_per_s(), None);
    let backlog = GateLoad { queued: 1, ..GateLoad::default() };
    round.ended_units += 6.0;
    round.pass(&backlog, 0.3);
    round.pass(&GateLoad::default(), 5.0);
    close(round.units_per_s().expect("there was a backlog"), 20.0, 1e-9);
}

#[test]
fn a_ramp_lets_in_more_than_a_cruise_and_less_of_an_initial_estimate() {
    let gain = |purpose: Purpose| [purpose.gain(false), purpose.gain(true)];
    assert_eq!(gain(Purpose::Ramp), [2.0, 3.0]);
    assert_eq!(gain(Purpose::Cruise), [1.05, 1.05]);
}

#[test]
fn a_cruise_is_probed_on_both_sides() {
    let purposes: Vec<_> = (1..=300).map(|round| plan::after(round, 1.0)).collect();
    assert!(purposes.windows(12).all(|some| some.contains(&Purpose::Up)));
    assert!(purposes[..20].contains(&Purpose::Down) && purposes[100..].contains(&Purpose::Down));
    let quiet = (1..=300).filter(|round| plan::after(*round, 0.1) == Purpose::Up).count();
    assert!(quiet > purposes.iter().filter(|p| **p == Purpose::Up).count(), "short probes are more frequent");
    let length = |phi| plan::round_length(Purpose::Up, 100.0, phi);
    assert!(2.0 * length(0.1) < length(1.0) && plan::up(0.1) < plan::up(1.0));
    let next = plan::AT_NEW_SPEED + 1..plan::AT_NEW_SPEED + 8;
    let next: Vec<_> = next.map(|round| plan::after(round, 1.0)).collect();
    assert!(next.contains(&Purpose::Up) && next.contains(&Purpose::Down), "{next:?}");
}
