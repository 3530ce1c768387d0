//! The bottleneck estimator in a closed loop with a small origin: trajectories, and disturbances.
//!
//! The origin has workers and one line. The gate in front of it always has a backlog, unless a test states
//! otherwise. Service times come from a generator with a fixed seed, so that a trajectory is the same on
//! every run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_core::capacity::{
    Bottleneck, BottleneckConfig, Estimate, Estimator, GateLoad, Phase, Sample, Trust,
};
use tidegate_core::control::TICK;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use super::samples::SERVED;

const TICK_US: u64 = 100_000;
const START_US: u64 = 1_000_000_000;

/// How long a service takes, as a multiple of its mean.
#[derive(Clone, Copy, PartialEq)]
enum Service {
    Constant,
    Exponential,
}

/// Workers, a line, and the requests in service.
struct Origin {
    workers: usize,
    mean_us: f64,
    service: Service,
    busy: usize,
    /// When they were sent, and among how many.
    line: VecDeque<(u64, u32)>,
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// No service ends before this.
    paused_until: u64,
    random: u64,
    fails: bool,
}

impl Origin {
    fn new(workers: usize, mean_ms: f64, service: Service) -> Self {
        Self {
            workers,
            mean_us: mean_ms * 1e3,
            service,
            busy: 0,
            line: VecDeque::new(),
            ends: BinaryHeap::new(),
            paused_until: 0,
            random: 42,
            fails: false,
        }
    }

    fn in_flight(&self) -> u32 {
        (self.ends.len() + self.line.len()) as u32
    }

    fn send(&mut self, now: u64) {
        self.line.push_back((now, self.in_flight() + 1));
        self.serve(now);
    }

    fn serve(&mut self, now: u64) {
        while self.busy < self.workers
            && let Some((sent, among)) = self.line.pop_front()
        {
            self.busy += 1;
            let takes = (self.mean_us * self.draw()) as u64;
            self.ends.push(Reverse((now.max(self.paused_until) + takes.max(1), sent, among)));
        }
    }

    fn draw(&mut self) -> f64 {
        if self.service == Service::Constant {
            return 1.0;
        }
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        -(((self.random >> 33) as f64 + 0.5) / f64::from(1u32 << 31)).ln()
    }
}

/// An estimator and its origin.
struct Loop {
    origin: Origin,
    estimator: Bottleneck,
    now: u64,
    estimate: Estimate,
    served: u64,
    response_us: u64,
}

impl Loop {
    fn new(origin: Origin) -> Self {
        let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
        let load = GateLoad { room_waits: true, coming: 0, queued: 1, in_flight: 0, age: Duration::ZERO };
        let estimate = estimator.tick(&load, Timestamp::from_micros(START_US));
        Self { origin, estimator, now: START_US, estimate, served: 0, response_us: 0 }
    }

    fn limit(&self) -> u32 {
        self.estimate.max_in_flight.expect("it limits what is in flight")
    }

    fn capacity(&self) -> f64 {
        self.estimate.capacity.get()
    }

    /// Runs with a backlog; returns the requests served per second.
    fn run(&mut self, seconds: f64) -> f64 {
        let (before, ticks) = (self.served, (seconds * 10.0) as u64);
        (0..ticks).for_each(|_| self.tick(u32::MAX));
        (self.served - before) as f64 / seconds
    }

    /// One tick with at most `at_once` in flight; below the limit there is no backlog.
    fn tick(&mut self, at_once: u32) {
        let end = self.now + TICK_US;
        let (most, backlog) = (self.limit().min(at_once), at_once >= self.limit());
        loop {
            while self.origin.in_flight() < most {
                self.origin.send(self.now);
            }
            match self.origin.ends.peek() {
                Some(Reverse((at, ..))) if *at <= end => {}
                _ => break,
            }
            let Some(Reverse((at, sent, among))) = self.origin.ends.pop() else { break };
            self.now = self.now.max(at);
            self.origin.busy -= 1;
            self.origin.serve(self.now);
            self.served += u64::from(!self.origin.fails);
            self.response_us += at - sent;
            self.estimator.observe(&Sample { backlog, ok: !self.origin.fails, ..sample(sent, at, among) });
        }
        self.now = end;
        let queued = usize::from(backlog) * 20;
        let load = GateLoad {
            room_waits: false,
            coming: 0,
            queued,
            in_flight: self.origin.in_flight(),
            age: Duration::ZERO,
        };
        self.estimate = self.estimator.tick(&load, Timestamp::from_micros(end));
    }
}

fn sample(sent: u64, ended: u64, in_flight: u32) -> Sample {
    let (response, ended) = (Duration::from_micros(ended - sent), Timestamp::from_micros(ended));
    Sample { ended, response, in_flight, ..SERVED }
}

#[track_caller]
fn close(got: f64, expected: f64, within: f64) {
    assert!((got / expected - 1.0).abs() <= within, "{got}, expected {expected}");
}

#[test]
fn a_cold_start_ends_at_the_knee() {
    for (workers, mean_ms, service, seconds, within) in [
        (10, 100.0, Service::Constant, 10.0, 0.05),
        (10, 100.0, Service::Exponential, 20.0, 0.1),
        (40, 4.0, Service::Constant, 1.0, 0.05),
        (40, 4.0, Service::Exponential, 1.0, 0.06),
        (1, 20.0, Service::Exponential, 20.0, 0.12),
        (500, 50.0, Service::Exponential, 5.0, 0.05),
    ] {
        let mut it = Loop::new(Origin::new(workers, mean_ms, service));
        it.run(seconds);
        let truth = workers as f64 * 1e3 / mean_ms;
        close(it.capacity(), truth, within);
        assert_eq!(it.estimate.phase, Phase::Settled, "{workers} workers");
        // Probes go down to 0.7 of the knee and up to 1.5 of the cruise; a whole request more is the least.
        let (least, most) = (0.7 * workers as f64, 2.6 * workers as f64 + 1.0);
        let limit = f64::from(it.limit());
        assert!((least..=most).contains(&limit), "{limit} in flight for {workers} workers");
        close(it.run(10.0), truth, 0.1);
    }
}

/// Short requests end first. Where those that are open did not count in a cruise, the level and the fitted
/// knee pulled each other down, and 24 of these capacities were off by more than a twentieth; 8 are.
#[test]
fn the_capacity_of_many_workers_is_known_within_seconds() {
    let off = (1..=60).map(|seed| {
        let mut it = Loop::new(Origin::new(500, 50.0, Service::Exponential));
        it.origin.random = seed;
        it.run(5.0);
        (it.capacity() / 10_000.0 - 1.0).abs()
    });
    let mut off: Vec<f64> = off.collect();
    off.sort_by(f64::total_cmp);
    assert!(off[45] < 0.05 && off[59] < 0.15, "off by {off:.3?}");
}

/// The first answers of this seed take an eighth of the mean, so that a knee of one is found at first.
#[test]
fn a_search_ends_after_a_knee_that_was_refuted() {
    let mut it = Loop::new(Origin::new(10, 250.0, Service::Exponential));
    it.origin.random = 159;
    it.run(5.0);
    assert_eq!((it.estimate.phase, it.limit()), (Phase::Settled, 1), "a knee that is none");
    it.run(115.0);
    assert_eq!(it.estimate.phase, Phase::Settled);
    close(it.capacity(), 40.0, 0.2);
}

#[test]
fn response_times_stay_near_those_of_an_idle_origin() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Exponential));
    it.run(30.0);
    let mean_of = |it: &mut Loop, seconds: f64| {
        let (served, response) = (it.served, it.response_us);
        it.run(seconds);
        (it.response_us - response) as f64 / (it.served - served) as f64 / 1e5
    };
    let first = mean_of(&mut it, 300.0);
    it.run(3000.0);
    let hour = mean_of(&mut it, 300.0);
    assert!(first < 1.5 && hour < 1.5, "{first}, after an hour {hour}");
    assert!(hour < 1.1 * first, "it creeps: {first}, after an hour {hour}");
}

/// A search leaves few samples at one request at a time. Without a probe there, two at a time hold for good.
#[test]
fn a_single_worker_gets_one_request_at_a_time_in_the_end() {
    for mean_ms in [50.0, 200.0, 500.0] {
        for service in [Service::Constant, Service::Exponential] {
            let mut it = Loop::new(Origin::new(1, mean_ms, service));
            it.run(1500.0);
            let (served, response) = (it.served, it.response_us);
            it.run(900.0);
            let mean = (it.response_us - response) as f64 / (it.served - served) as f64 / it.origin.mean_us;
            assert!(mean < 1.5, "{mean_ms} ms: {mean} times the service time");
        }
    }
}

#[test]
fn a_fall_and_a_rise_of_the_speed_are_followed_within_seconds() {
    let mut it = Loop::new(Origin::new(10, 125.0, Service::Constant));
    it.run(20.0);
    close(it.capacity(), 80.0, 0.05);
    it.origin.mean_us = 250e3;
    it.run(5.0);
    close(it.capacity(), 40.0, 0.05);
    it.run(30.0);
    it.origin.mean_us = 125e3;
    it.run(10.0);
    close(it.capacity(), 80.0, 0.05);
}

/// In most runs: at most one in five may search for the knee again, reach twice the workers, or be off by a
/// tenth. Of these 60, 6 and 11 do; with the law before, 12 and 11 did.
#[test]
fn a_rise_of_the_speed_does_not_move_the_knee() {
    for factor in [0.5, 0.2] {
        let (mut most, mut off, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 1..=60 {
            let mut it = Loop::new(Origin::new(10, 250.0, Service::Exponential));
            it.origin.random = seed;
            it.run(60.0);
            let before = it.limit();
            it.origin.mean_us *= factor;
            let seen = (0..200).map(|_| {
                it.tick(u32::MAX);
                (it.limit(), it.estimate.phase)
            });
            let seen: Vec<_> = seen.collect();
            let settled =
                seen.iter().all(|(limit, phase)| *phase == Phase::Settled && *limit < 2 * before.max(10));
            most.extend(seen.iter().map(|(limit, _)| *limit).max());
            off.push((it.capacity() * factor / 40.0 - 1.0).abs());
            if !settled || off.last().is_some_and(|off| *off > 0.1) {
                moved.push(seed);
            }
        }
        most.sort_unstable();
        off.sort_by(f64::total_cmp);
        assert!(moved.len() <= 12, "the seeds {moved:?} of 60");
        assert!(off[30] < 0.05 && off[59] < 0.15, "capacities off by {off:.3?}");
        assert!(most[30] < 20 && most[45] < 24, "at times in flight: {most:?}");
    }
}

#[test]
fn a_fall_of_the_speed_is_probed_without_starving_a_quiet_origin() {
    let mut it = Loop::new(Origin::new(10, 125.0, Service::Constant));
    it.run(20.0);
    it.origin.mean_us = 250e3;
    let mut least = u32::MAX;
    for _ in 0..200 {
        it.tick(u32::MAX);
        least = least.min(it.limit());
    }
    assert!((6..10).contains(&least), "it probed down to {least}");
    close(it.capacity(), 40.0, 0.05);
}

#[test]
fn the_limit_follows_the_number_of_workers() {
    let mut it = Loop::new(Origin::new(8, 100.0, Service::Constant));
    it.run(20.0);
    it.origin.workers = 4;
    it.run(10.0);
    close(it.capacity(), 40.0, 0.06);
    assert!(it.limit() <= 8, "{}", it.limit());
    it.run(20.0);
    it.origin.workers = 8;
    it.run(10.0);
    close(it.capacity(), 80.0, 0.06);
    assert!(it.limit() >= 8, "{}", it.limit());
}

#[test]
fn pauses_do_not_look_like_slowness() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Exponential));
    it.run(20.0);
    for _ in 0..10 {
        it.origin.paused_until = it.now + 400_000;
        it.run(5.0);
        assert!((8..=26).contains(&it.limit()), "{}", it.limit());
    }
    // The origin pauses a twelfth of the time.
    close(it.capacity(), 92.0, 0.1);
}

#[test]
fn a_time_without_visitors_is_no_pause() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    let capacity = it.capacity();
    // No visitors for an hour, then a crowd at once.
    (0..36_000).for_each(|_| it.tick(0));
    it.run(1.0);
    close(it.capacity(), capacity, 0.05);
}

#[test]
fn a_knee_beyond_the_largest_limit_ends_the_search() {
    let mut it = Loop::new(Origin::new(60, 100.0, Service::Exponential));
    it.estimator =
        Bottleneck::new(BottleneckConfig { max_in_flight: 20, ..BottleneckConfig::default() }, None);
    it.run(60.0);
    assert_eq!((it.limit(), it.estimate.phase), (20, Phase::Settled), "{}", it.estimator.state().reason);
    close(it.capacity(), 200.0, 0.1);
    // Later changes of the origin are noticed.
    it.origin.workers = 5;
    it.run(60.0);
    close(it.capacity(), 50.0, 0.15);
}

#[test]
fn without_a_backlog_the_estimate_holds() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    let (capacity, limit) = (it.capacity(), it.limit());
    // Two at a time: a fifth of the capacity, for ten minutes.
    (0..6000).for_each(|_| it.tick(2));
    assert_eq!((it.capacity(), it.limit()), (capacity, limit));
    assert_eq!(it.estimate.phase, Phase::Paused);
    assert_eq!(it.estimator.state().reason, "nobody waits: holding");
    close(it.run(5.0), 100.0, 0.05);
}

#[test]
fn an_idle_origin_does_not_keep_visitors_waiting() {
    let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
    let load = GateLoad { room_waits: true, coming: 0, queued: 0, in_flight: 0, age: Duration::ZERO };
    let outflow = |tick: u64, estimator: &mut Bottleneck| {
        let estimate = estimator.tick(&load, Timestamp::from_micros(START_US + tick * TICK_US));
        estimate.capacity.get() * estimate.gain
    };
    let first = outflow(0, &mut estimator);
    let second_later = (1..=10).map(|tick| outflow(tick, &mut estimator)).last().expect("ticks");
    assert!(first >= 20.0 && second_later > 4.0 * first, "{first}, a second later {second_later}");
    assert_eq!(estimator.state().reason, "not saturated so far: waiting for load");
}

#[test]
fn errors_only_hold_the_estimate_and_are_the_reason() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    let (capacity, limit) = (it.capacity(), it.limit());
    it.origin.fails = true;
    it.run(60.0);
    assert_eq!(it.limit(), limit);
    close(it.capacity(), capacity, 0.1);
    assert_eq!(it.estimator.state().reason, "errors only: holding");
    it.origin.fails = false;
    it.run(20.0);
    close(it.capacity(), 100.0, 0.05);
}

#[test]
fn an_origin_that_has_always_failed_has_no_knee() {
    let mut it = Loop::new(Origin::new(10, 5.0, Service::Constant));
    it.origin.fails = true;
    it.run(60.0);
    assert_eq!(it.limit(), BottleneckConfig::default().min_in_flight);
    assert_eq!(it.estimator.state().reason, "errors only: holding");
    it.origin.fails = false;
    it.run(3.0);
    close(it.capacity(), 2000.0, 0.05);
}

#[test]
fn a_clock_that_runs_backwards_causes_no_delay() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    // Ten minutes back; the origin starts empty.
    it.origin.ends.clear();
    it.origin.line.clear();
    it.origin.busy = 0;
    it.now = START_US - 600_000_000;
    it.origin.mean_us = 50e3;
    it.run(10.0);
    close(it.capacity(), 200.0, 0.05);
}

#[test]
fn odd_samples_do_no_harm() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    for round in 0..300 {
        it.tick(u32::MAX);
        let plain = sample(it.now, it.now, 3);
        for odd in [
            Sample { count: 0, ..plain },
            Sample { response: Duration::ZERO, in_flight: 0, backlog: false, ..plain },
            Sample { response: Duration::MAX, backlog: round % 100 == 0, ..plain },
            Sample { cost: Cost::MAX, backlog: false, class: ClassId(255), ..plain },
            Sample { ended: Timestamp::from_micros(0), ok: false, ..plain },
        ] {
            it.estimator.observe(&odd);
        }
        let Estimate { capacity, gain, confidence, .. } = it.estimate;
        assert!(capacity.get().is_finite() && capacity.get() > 0.0, "{capacity:?}");
        assert!(gain.is_finite() && gain >= 1.0 && (0.0..=1.0).contains(&confidence));
    }
    it.run(60.0);
    assert!(it.limit() >= 8 && it.limit() < 200, "{}", it.limit());
    close(it.run(10.0), 100.0, 0.1);
}

#[test]
fn an_operator_may_request_a_rediscovery_or_set_the_capacity() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    it.estimator.rediscover(Timestamp::from_micros(it.now));
    it.run(0.1);
    assert_eq!(it.estimate.phase, Phase::Searching);
    assert_eq!(it.estimator.state().reason, "rediscovery requested");
    it.run(10.0);
    close(it.capacity(), 100.0, 0.05);
    it.estimator.set(Rate::per_second(500.0).expect("a rate"), Timestamp::from_micros(it.now));
    it.run(10.0);
    close(it.capacity(), 100.0, 0.05);
}

#[test]
fn the_state_shows_the_fit() {
    let mut it = Loop::new(Origin::new(10, 100.0, Service::Constant));
    it.run(20.0);
    let state = it.estimator.state();
    let figure = |name: &str| state.figures.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    close(figure("knee").expect("a knee"), 10.0, 0.1);
    close(figure("base_response_ms").expect("a base"), 100.0, 0.05);
    assert!(figure("dispersion").is_some_and(|phi| phi < 0.2));
    assert_eq!(state.reason, "holds the knee");
    assert!(state.samples > 500 && state.points.len() >= 4 && state.curve.len() == 40);
    let rises = |points: &[(f64, f64)]| points.windows(2).all(|two| two[0].0 < two[1].0);
    assert!(rises(&state.points) && rises(&state.curve));
}

/// A crowd arrives at an idle gate, at an origin that always answers in 50 ms and a queue that is never
/// empty.
#[test]
fn idle_time_before_a_crowd_does_not_lower_the_estimate() {
    for idle in [0, 1, 36_000] {
        let mut estimator = Bottleneck::new(BottleneckConfig::default(), None);
        let mut now = Timestamp::from_secs(1_795_000_000);
        let mut estimate = estimator.tick(&GateLoad::default(), now);
        for _ in 0..idle {
            now = now + TICK;
            estimate = estimator.tick(&GateLoad::default(), now);
        }
        for tick in 0..10 {
            now = now + TICK;
            let in_flight = estimate.max_in_flight.expect("a limit").min(16);
            let sample = Sample { ended: now, response: Duration::from_millis(50), in_flight, ..SERVED };
            (0..2 * in_flight).for_each(|_| estimator.observe(&sample));
            estimate = estimator.tick(
                &GateLoad { room_waits: true, coming: 0, queued: 50, in_flight, age: Duration::ZERO },
                now,
            );
            // Four at once in 50 ms each are 80/s; a quarter of that is the least.
            assert!(estimate.capacity.get() >= 20.0, "after {idle} idle ticks, tick {tick}: {estimate:?}");
        }
    }
}

/// A new estimator for the same origin, which begins from what the last one has learned.
fn restarted(before: &Loop, origin: Origin, trust: Trust) -> Loop {
    let learned = before.estimator.learned().expect("it has settled");
    let mut it = Loop::new(origin);
    it.estimator = Bottleneck::new(BottleneckConfig::default(), None);
    it.estimator.resume(&learned, trust, Timestamp::from_micros(START_US));
    let load = GateLoad { room_waits: true, coming: 0, queued: 1, in_flight: 0, age: Duration::ZERO };
    it.estimate = it.estimator.tick(&load, Timestamp::from_micros(START_US));
    it
}

#[test]
fn what_was_learned_survives_a_restart() {
    for service in [Service::Constant, Service::Exponential] {
        let origin = || Origin::new(40, 100.0, service);
        let mut before = Loop::new(origin());
        before.run(60.0);
        let (limit, capacity) = (f64::from(before.limit()), before.capacity());

        let mut trusted = restarted(&before, origin(), Trust::Trusted);
        assert_eq!(trusted.estimate.phase, Phase::Settled);
        close(trusted.capacity(), capacity, 0.05);
        close(f64::from(trusted.limit()), limit, 0.35);
        close(trusted.run(1.0), 400.0, 0.15);
        trusted.run(60.0);
        close(trusted.capacity(), 400.0, 0.08);

        let mut checked = restarted(&before, origin(), Trust::Checked);
        assert_eq!(checked.estimate.phase, Phase::Searching, "it begins there, and measures");
        close(checked.capacity(), capacity, 0.01);
        assert!(checked.limit() >= 20, "{}", checked.limit());
        checked.run(10.0);
        assert_eq!(checked.estimate.phase, Phase::Settled);
        close(checked.capacity(), 400.0, 0.08);

        let forgotten = restarted(&before, origin(), Trust::Forgotten);
        let new = Loop::new(origin());
        assert_eq!((forgotten.limit(), forgotten.capacity()), (new.limit(), new.capacity()));
    }
}

#[test]
fn an_origin_that_changed_over_a_restart_is_noticed() {
    let mut before = Loop::new(Origin::new(40, 100.0, Service::Exponential));
    before.run(60.0);
    for (workers, mean_ms) in [(10, 100.0), (40, 400.0), (40, 25.0), (120, 100.0)] {
        let mut it = restarted(&before, Origin::new(workers, mean_ms, Service::Exponential), Trust::Trusted);
        it.run(60.0);
        let truth = workers as f64 * 1e3 / mean_ms;
        close(it.capacity(), truth, 0.12);
        close(it.run(20.0), truth, 0.12);
    }
}
