//! The published steps of the other algorithms, computed by hand, and the measurement of the throughput.

use std::time::Duration;

use tidegate_core::capacity::*;
use tidegate_core::units::{Cost, Timestamp};

use super::{CROWD, START, TICK, ms, sample};

fn failed(response_ms: u64, in_flight: u32) -> Sample {
    Sample { ok: false, ..sample(response_ms, in_flight) }
}

fn figure(estimator: &dyn Estimator, name: &str) -> f64 {
    let state = estimator.state();
    state.figures.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} in {state:?}")).1
}

/// Feeds samples one by one and compares a figure after each.
fn steps(estimator: &mut dyn Estimator, of: &str, table: &[(Sample, f64)]) {
    for (i, (sample, expected)) in table.iter().enumerate() {
        estimator.observe(sample);
        let got = figure(estimator, of);
        assert!((got - expected).abs() < 1e-9, "step {i}: {of} {got}, expected {expected}; {sample:?}");
    }
}

#[test]
fn aimd_steps_as_published() {
    let mut published = Aimd::new(AimdConfig::default(), None);
    let table = [
        (sample(100, 20), 21.0),
        // Not half used.
        (sample(100, 10), 21.0),
        (sample(100, 11), 22.0),
        // 19.8, but 20 at least.
        (failed(1, 22), 20.0),
        (sample(5_000, 20), 21.0),
        (sample(5_001, 20), 20.0),
    ];
    steps(&mut published, "limit", &table);
    for _ in 0..300 {
        published.observe(&sample(100, 200));
    }
    assert_eq!(figure(&published, "limit"), 200.0);

    let mut free = Aimd::new(AimdConfig { min_in_flight: 1, ..AimdConfig::default() }, None);
    // 18, 16.2, 14.4 ...: cut to whole requests each time.
    let table = [18.0, 16.0, 14.0, 12.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0];
    steps(&mut free, "limit", &table.map(|limit| (failed(1, 1), limit)));
}

#[test]
fn vegas_steps_as_published() {
    let mut vegas = Vegas::new(VegasConfig::default(), None);
    let table = [
        // The first one is the baseline.
        (sample(100, 20), 20.0),
        (sample(100, 20), 26.0),
        // q = ⌈26 · 0.2⌉ = 6: between 3 and 6.
        (sample(125, 26), 26.0),
        // q = ⌈26/3⌉ = 9.
        (sample(150, 26), 25.0),
        // q = ⌈2.27⌉ = 3.
        (sample(110, 25), 25.0),
        // q = ⌈1.19⌉ = 2.
        (sample(105, 25), 26.0),
        // Not half used.
        (sample(100, 12), 26.0),
        (failed(200, 12), 25.0),
        // A new baseline.
        (sample(50, 25), 25.0),
        // q = ⌈12.5⌉ = 13.
        (sample(100, 25), 24.0),
        // Skipped.
        (sample(0, 24), 24.0),
    ];
    steps(&mut vegas, "limit", &table);
    assert_eq!(figure(&vegas, "unloaded_ms"), 50.0);
}

#[test]
fn vegas_probes_after_thirty_limits_less_the_jitter() {
    let mut vegas = Vegas::new(VegasConfig::default(), None);
    // The first jitter is the least, one half: 300 requests at a limit of 20, of which less than half is
    // used.
    for _ in 0..299 {
        vegas.observe(&sample(100, 1));
    }
    assert_eq!(figure(&vegas, "unloaded_ms"), 100.0);
    vegas.observe(&sample(200, 1));
    assert_eq!((figure(&vegas, "unloaded_ms"), figure(&vegas, "limit")), (200.0, 20.0));
}

#[test]
fn gradient2_steps_as_published() {
    let mut gradient2 = Gradient2::new(Gradient2Config::default(), None);
    let table = [
        (sample(100, 20), 20.8),
        // Baseline 200 ms, g = 1.
        (sample(300, 20), 21.6),
        // Baseline 400 ms, g = 0.75.
        (sample(800, 20), 0.8 * 21.6 + 0.2 * (0.75 * 21.6 + 4.0)),
        // Not half used, but part of the baseline: 325 ms.
        (sample(100, 10), 21.32),
    ];
    steps(&mut gradient2, "limit", &table);
    // More than twice 100 ms, so the baseline falls by 5 %.
    let long_ms = figure(&gradient2, "long_ms");
    assert!((long_ms - 325.0 * 0.95).abs() < 1e-6, "{long_ms}");
    // A response time of zero counts as a microsecond.
    gradient2.observe(&sample(0, 10));
    let long_ms = figure(&gradient2, "long_ms");
    assert!((long_ms - (308.75 * 4.0 + 0.001) / 5.0 * 0.95).abs() < 1e-6, "{long_ms}");
    for _ in 0..2_000 {
        gradient2.observe(&sample(100, 200));
    }
    assert_eq!(figure(&gradient2, "limit"), 200.0);
}

#[test]
fn gradient_steps_as_published() {
    let mut gradient = Gradient::new(GradientConfig::default(), None);
    let mut now = START;
    assert_eq!(gradient.tick(&CROWD, now).max_in_flight, Some(3));
    // Sent before the measurement began, so it does not count.
    gradient.observe(&sample(5, 3));
    now = now + Duration::from_secs(10);
    let at = |now: Timestamp, response_ms: u64| Sample { ended: now, ..sample(response_ms, 3) };
    for i in 0..50 {
        assert_eq!(figure(&gradient, "unloaded_ms"), 0.0);
        // The 45th of fifty is 100 ms.
        gradient.observe(&at(now, if i < 45 { 100 } else { 900 }));
    }
    assert_eq!(figure(&gradient, "unloaded_ms"), 100.0);
    gradient.tick(&CROWD, now);
    let table = [
        // 3.75 + 1.94, 6.25 + 2.5, 10 + 3.16.
        (100, 5),
        (100, 8),
        (100, 13),
        // Half, with its root: 6.5 + 2.55, 4.5 + 2.12, 3 + 1.73, 2 + 1.41, then 1.5 + 1.22.
        (250, 9),
        (1_000, 6),
        (1_000, 4),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
        (1_000, 3),
    ];
    for (response_ms, limit) in table {
        // Sent after the measurement: requests of one second take ten ticks.
        now = now + ms(response_ms).max(TICK) + TICK;
        gradient.observe(&at(now, response_ms));
        assert_eq!(gradient.tick(&CROWD, now).max_in_flight, Some(limit), "{response_ms} ms");
    }
    // Five times in a row at the least limit: the unloaded response time is measured anew.
    assert!(!gradient.state().reason.contains("measures"));
    gradient.tick(&CROWD, now + TICK);
    assert!(gradient.state().reason.contains("measures"), "{:?}", gradient.state());
}

#[test]
fn gradient_measures_once_a_minute_and_returns_to_its_limit() {
    let mut gradient = Gradient::new(GradientConfig::default(), None);
    let mut estimate = gradient.tick(&CROWD, START);
    let mut pinned = Vec::new();
    for tick in 1..1_000_u64 {
        let now = START + TICK * tick as u32;
        for _ in 0..20 {
            gradient.observe(&Sample { ended: now, ..sample(100, 20) });
        }
        estimate = gradient.tick(&CROWD, now);
        if estimate.max_in_flight == Some(3) {
            pinned.push(tick);
        }
    }
    // The first jitter is zero: sixty seconds after the end of the first measurement, which took three ticks.
    assert_eq!(pinned, [1, 2, 3, 603, 604, 605]);
    assert_eq!(estimate.max_in_flight, Some(1000));
}

/// Two seconds and 250 requests, all alike; whether the interval then ends is the estimator's matter.
fn interval(cinnamon: &mut Cinnamon, now: &mut Timestamp, response_ms: u64, in_flight: u32) {
    cinnamon.observe(&Sample { count: 250, ..sample(response_ms, in_flight) });
    *now = *now + Duration::from_secs(2);
    cinnamon.tick(&CROWD, *now);
}

fn cinnamon(config: CinnamonConfig) -> (Cinnamon, Timestamp) {
    let mut cinnamon = Cinnamon::new(config, None);
    assert_eq!(cinnamon.tick(&CROWD, START).max_in_flight, Some(20));
    (cinnamon, START)
}

/// No filters, so that an interval's percentile is the response time.
const UNFILTERED: fn() -> CinnamonConfig =
    || CinnamonConfig { median_of: 1, smoothing: 1.0, ..CinnamonConfig::default() };

#[test]
fn cinnamon_steps_by_logarithms() {
    let (mut cinnamon, mut now) = cinnamon(UNFILTERED());
    let log = 20_f64.log10();
    let table = [
        // The first one is the target: no queue.
        (100, 20, 20.0 + log),
        // q = 21.30 / 3 = 7.1: between 3 and 6 times 1.33.
        (150, 20, 20.0 + log),
        // q = 21.30 · 0.4 = 8.5, more than 8.0.
        (167, 20, 20.0 + log - (20.0 + log).log10()),
        // Less than half used.
        (100, 9, 20.0 + log - (20.0 + log).log10()),
        (500, 9, 20.0 + log - (20.0 + log).log10()),
    ];
    for (response_ms, in_flight, limit) in table {
        interval(&mut cinnamon, &mut now, response_ms, in_flight);
        let got = figure(&cinnamon, "limit");
        assert!((got - limit).abs() < 1e-9, "{response_ms} ms, {in_flight} in flight: {got}, not {limit}");
    }
    assert_eq!(figure(&cinnamon, "target_ms"), 100.0);
    // A lower response time is a new target at once.
    interval(&mut cinnamon, &mut now, 80, 20);
    assert_eq!(figure(&cinnamon, "target_ms"), 80.0);
}

#[test]
fn cinnamon_ends_an_interval_by_requests_and_by_time() {
    let (mut cinnamon, now) = cinnamon(UNFILTERED());
    let served = |count: u64| Sample { count, ..sample(100, 20) };
    // Enough requests, but too early; failures never count.
    cinnamon.observe(&served(249));
    cinnamon.observe(&Sample { ok: false, count: 500, ..sample(1, 20) });
    cinnamon.tick(&CROWD, now + Duration::from_secs(29));
    assert_eq!(figure(&cinnamon, "response_ms"), 0.0);
    cinnamon.tick(&CROWD, now + Duration::from_secs(30));
    assert_eq!(figure(&cinnamon, "response_ms"), 100.0);
    cinnamon.observe(&Sample { count: 250, ..sample(200, 20) });
    cinnamon.tick(&CROWD, now + Duration::from_millis(31_900));
    assert_eq!(figure(&cinnamon, "response_ms"), 100.0);
    cinnamon.tick(&CROWD, now + Duration::from_secs(32));
    assert_eq!(figure(&cinnamon, "response_ms"), 200.0);
}

#[test]
fn cinnamon_takes_the_median_of_five_percentiles_and_smooths_it() {
    let (mut cinnamon, mut now) = cinnamon(CinnamonConfig::default());
    // Nine of ten are at most 100 ms; one interval of 900 ms among others is no signal.
    for response_ms in [100, 100, 900, 100] {
        cinnamon.observe(&Sample { count: 25, ..sample(900, 20) });
        interval(&mut cinnamon, &mut now, response_ms, 20);
    }
    let response_ms = figure(&cinnamon, "response_ms");
    assert!((response_ms - 100.0).abs() < 1e-9, "{response_ms}");
    // Of five intervals the middle one is 200 ms, and has a weight of 0.3.
    for response_ms in [900, 200] {
        interval(&mut cinnamon, &mut now, response_ms, 20);
    }
    let response_ms = figure(&cinnamon, "response_ms");
    assert!((response_ms - 130.0).abs() < 1e-9, "{response_ms}");
}

/// Intervals in which requests in flight go up and down; `throughput` is that at each number.
fn swing(cinnamon: &mut Cinnamon, now: &mut Timestamp, intervals: u32, throughput: fn(u32) -> f64) {
    for turn in 0..intervals {
        let in_flight = 20 + turn % 2 * 20;
        let response_ms = f64::from(in_flight) / throughput(in_flight) * 1e3;
        interval(cinnamon, now, response_ms as u64, in_flight);
    }
}

#[test]
fn cinnamon_lowers_the_limit_where_more_in_flight_bring_less_throughput() {
    // A queue of any length is welcome, so that only the covariance can lower the limit.
    let config = CinnamonConfig { alpha: 1000.0, beta: 1000.0, ..UNFILTERED() };
    let (mut contended, mut now) = cinnamon(config);
    swing(&mut contended, &mut now, 9, |in_flight| if in_flight == 20 { 100.0 } else { 80.0 });
    let before = figure(&contended, "limit");
    assert!(
        before > 20.0 && figure(&contended, "covariance") == 0.0,
        "nine intervals have no sign: {before}"
    );
    swing(&mut contended, &mut now, 6, |in_flight| if in_flight == 20 { 100.0 } else { 80.0 });
    let after = figure(&contended, "limit");
    assert!(after < before - 5.0 && figure(&contended, "covariance") < 0.0, "{before}, then {after}");

    let (mut scaling, mut now) = cinnamon(config);
    swing(&mut scaling, &mut now, 15, |in_flight| if in_flight == 20 { 100.0 } else { 120.0 });
    assert!(figure(&scaling, "limit") > before && figure(&scaling, "covariance") > 0.0);
}

#[test]
fn cinnamon_resets_its_target_only_where_more_in_flight_bring_more() {
    let slower_after_one = |throughput: fn(u32) -> f64| {
        let (mut cinnamon, mut now) = cinnamon(UNFILTERED());
        interval(&mut cinnamon, &mut now, 50, 20);
        swing(&mut cinnamon, &mut now, 50, throughput);
        assert_eq!(figure(&cinnamon, "target_ms"), 50.0, "not due before fifty intervals");
        swing(&mut cinnamon, &mut now, 2, throughput);
        figure(&cinnamon, "target_ms")
    };
    // 20 requests in 200 ms, 40 in 250 ms.
    assert_eq!(slower_after_one(|in_flight| if in_flight == 20 { 100.0 } else { 160.0 }), 200.0);
    // In an overload the target would drift up with the queue.
    assert_eq!(slower_after_one(|in_flight| if in_flight == 20 { 100.0 } else { 80.0 }), 50.0);
}

#[test]
fn breakwater_steps_as_published() {
    let mut breakwater = Breakwater::new(BreakwaterConfig::default(), None);
    let mut now = START;
    breakwater.tick(&CROWD, now);
    let table = [
        (sample(100, 20), 21.0),
        // A delay of 399 ms is below the target, 400 ms; at the target nothing is taken and nothing given.
        (sample(499, 21), 22.0),
        (sample(500, 22), 22.0),
        // Twice the target: 2 %.
        (sample(900, 22), 22.0 * 0.98),
        // Half of the credits are used, then less.
        (sample(100, 11), 22.56),
        (sample(100, 11), 22.56),
        // Failures have no queueing delay.
        (failed(9_000, 22), 22.56),
        // A hundred times the target: one half at most.
        (sample(40_100, 22), 11.28),
        // A new least response time: the target is 40 ms, the delay is 90 ms.
        (sample(10, 11), 12.28),
        (sample(100, 12), 12.28 * (1.0 - 0.02 * 1.25)),
    ];
    for (i, (sample, expected)) in table.iter().enumerate() {
        breakwater.observe(sample);
        now = now + Duration::from_secs(60);
        breakwater.tick(&CROWD, now);
        let got = figure(&breakwater, "limit");
        assert!((got - expected).abs() < 1e-9, "step {i}: {got}, expected {expected}; {sample:?}");
    }
}

#[test]
fn breakwater_steps_once_a_response_time_and_grows_with_its_clients() {
    let mut breakwater = Breakwater::new(BreakwaterConfig::default(), None);
    let mut now = START;
    let many = GateLoad { queued: 2_000, in_flight: 20, coming: 980, ..CROWD };
    let mut limits = Vec::new();
    for _ in 0..7 {
        breakwater.tick(&many, now);
        limits.push(figure(&breakwater, "limit"));
        breakwater.observe(&sample(300, 20));
        now = now + TICK;
    }
    assert_eq!(limits, [20.0, 20.0, 20.0, 23.0, 23.0, 23.0, 26.0], "a thousandth of 3,000 clients each time");
}

#[test]
fn throughput_is_measured_while_requests_wait() {
    let mut aimd = Aimd::new(AimdConfig::default(), None);
    let mut now = START;
    let mut second = |aimd: &mut Aimd, per_tick: u32, ok: bool, load: GateLoad| {
        let mut estimate = None;
        for _ in 0..10 {
            now = now + TICK;
            for _ in 0..per_tick {
                let cost = Cost::from_hundredths(200);
                let backlog = load.queued > 0;
                aimd.observe(&Sample { ended: now, cost, ok, backlog, ..sample(100, 20) });
            }
            estimate = Some(aimd.tick(&load, now));
        }
        estimate.expect("ten ticks")
    };
    let idle = GateLoad { room_waits: false, coming: 0, queued: 0, in_flight: 0, age: Duration::ZERO };
    let starved = GateLoad { room_waits: true, coming: 0, queued: 0, in_flight: 0, age: Duration::ZERO };
    // Without a measurement the capacity is low, and grows up to a bound while visitors wait for an idle
    // origin.
    let first = second(&mut aimd, 0, true, idle);
    assert_eq!((first.capacity.get(), first.phase, first.confidence), (100.0, Phase::Paused, 0.0));
    let grown = second(&mut aimd, 0, true, starved);
    assert!(grown.capacity.get() > 150.0 && grown.gain > 1.0 && grown.phase == Phase::Searching, "{grown:?}");
    for _ in 0..10 {
        assert!(second(&mut aimd, 0, true, starved).capacity.get() <= 400.0);
    }
    // Served without a backlog: at least twice the throughput.
    second(&mut aimd, 10, true, idle);
    let twice = second(&mut aimd, 10, true, idle);
    assert!((twice.capacity.get() - 400.0).abs() < 1.0, "{twice:?}");
    // Saturated: the throughput in cost units.
    second(&mut aimd, 6, true, CROWD);
    let known = second(&mut aimd, 6, true, CROWD);
    assert!((known.capacity.get() - 120.0).abs() < 1e-9 && known.gain == 1.0, "{known:?}");
    assert_eq!(known.phase, Phase::Settled);
    // Without a backlog, or with errors only, it holds and gives the reason.
    second(&mut aimd, 1, true, idle);
    second(&mut aimd, 1, true, idle);
    assert_eq!(second(&mut aimd, 1, true, idle).capacity, known.capacity);
    assert_eq!(aimd.state().reason, "nobody waits: holding");
    for _ in 0..5 {
        second(&mut aimd, 50, false, CROWD);
    }
    assert_eq!(second(&mut aimd, 50, false, CROWD).capacity, known.capacity);
    assert_eq!(aimd.state().reason, "errors only: holding");
    // A higher throughput without a backlog is a lower bound.
    for _ in 0..3 {
        second(&mut aimd, 20, true, starved);
    }
    assert!(second(&mut aimd, 20, true, starved).capacity.get() >= 400.0);
}
