//! Cinnamon: Uber's auto-tuner. Vegas by intervals, with a guard against a target that drifts upwards.
//!
//! ```text
//! interval      ends after 2 s and 250 requests, and after 30 s at the latest
//! R             90th percentile of its response times, median of the last five, exponentially smoothed (0.3)
//! N, X          mean requests in flight, and throughput N / mean response time (Little's law)
//! σ             covariance of N and X over the last 50 intervals
//! T ← R         where R < T; and after 50 intervals, if σ > 0
//! q = L (1 − T/R)               l = max(1, log10 L)
//! σ < 0 or q > 6 l              L ← L − l
//! else q < 3 l                  L ← L + l
//! ```
//! Nothing is done while fewer than L/2 are in flight; L within 1..1000. Only served requests count.
//!
//! Source: Gavrilenko, Thomsen, Nielsen and Smyth, "Cinnamon Auto-Tuner: Adaptive Concurrency in the Wild",
//! Uber Engineering, 7 December 2023. Their code is not public. Its opening and the captions of its figures
//! were read, the rest in notes by others that quote it.
//!
//! Published: a law after TCP Vegas that tolerates more delay the lower the limit is; the bounds of the
//! interval and its 250 requests; the percentile and both filters; X by Little's law; the 50 intervals; that
//! T is reset only while σ is positive, and that the limit is lowered while it is negative. The reason for
//! σ: a target that is measured anew during an overload contains the overload, so limit and target drive
//! each other up. Where more in flight does not mean more done, both must stop.
//!
//! Not published, and chosen here:
//! - thresholds and step of L: those of Netflix's Vegas, whose queue in log10 L has the published tolerance;
//! - five intervals for the median, and 0.3: about those of failsafe-go, whose author had help from
//!   Cinnamon's;
//! - T is the least R since it was reset, as in Vegas, and is due after as many intervals as σ covers, so
//!   that all of them belong to it;
//! - σ counts from ten intervals on, as in failsafe-go: two points always have a sign;
//! - the start, 20 as in the other rivals; and the least limit: theirs is the number of the service's cores,
//!   which a gateway does not know.
//!
//! Limits: one or two requests a step, and at least 2 s between steps: from 20 it takes a minute to 60.
//! Below 8 requests per second an interval takes 30 s. The first T is measured at the start: beyond the knee
//! it contains the queue, and σ is not known for ten intervals. With six in flight or fewer, q never exceeds
//! 6 l.

use std::collections::VecDeque;
use std::time::Duration;

use super::throughput::{MAX_SAMPLES, Throughput, repeats, take_percentile};
use super::{Estimate, Estimator, GateLoad, Sample, State};
use crate::units::{Rate, Timestamp};

/// Intervals from which on the sign of the covariance counts.
const LEAST_POINTS: usize = 10;

/// Parameters of [`Cinnamon`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CinnamonConfig {
    pub start_in_flight: u32,
    pub min_in_flight: u32,
    pub max_in_flight: u32,
    /// Queue below which the limit grows, in multiples of log10 of the limit.
    pub alpha: f64,
    /// Queue above which the limit shrinks, in the same unit.
    pub beta: f64,
    /// Quantile of an interval's response times, 0 to 1.
    pub percentile: f64,
    /// Least length of an interval.
    pub interval: Duration,
    /// Greatest length of an interval, where requests are few.
    pub max_interval: Duration,
    /// Requests that end an interval of at least [`Self::interval`].
    pub interval_requests: u32,
    /// Intervals of which the median percentile is taken.
    pub median_of: u32,
    /// Weight of a new median in the smoothed response time, 0 to 1.
    pub smoothing: f64,
    /// Intervals over which the covariance is taken, and after which the target is reset.
    pub window: u32,
}

impl Default for CinnamonConfig {
    fn default() -> Self {
        Self {
            start_in_flight: 20,
            min_in_flight: 1,
            max_in_flight: 1000,
            alpha: 3.0,
            beta: 6.0,
            percentile: 0.9,
            interval: Duration::from_secs(2),
            max_interval: Duration::from_secs(30),
            interval_requests: 250,
            median_of: 5,
            smoothing: 0.3,
            window: 50,
        }
    }
}

/// The requests that were served since the interval began.
#[derive(Clone, Default, Debug)]
struct Interval {
    /// `None` before the first tick.
    began: Option<Timestamp>,
    responses_us: Vec<u64>,
    served: u64,
    response_s: f64,
    in_flight: f64,
}

/// The estimator `cinnamon`: the limit follows an inferred queue, unless more in flight bring less done.
#[derive(Clone, Debug)]
pub struct Cinnamon {
    config: CinnamonConfig,
    limit: f64,
    interval: Interval,
    /// Percentiles of the last intervals, in seconds.
    percentiles_s: VecDeque<f64>,
    /// R in seconds; 0 before the first interval has ended.
    response_s: f64,
    /// T in seconds.
    target_s: Option<f64>,
    /// Intervals since the target was reset.
    since_reset: u32,
    /// Requests in flight and throughput of the last intervals.
    points: VecDeque<(f64, f64)>,
    covariance: f64,
    throughput: Throughput,
}

impl Cinnamon {
    /// An estimator that admits `start` cost units per second until it has measured the throughput.
    pub fn new(config: CinnamonConfig, start: Option<Rate>) -> Self {
        Self {
            config,
            limit: f64::from(config.start_in_flight.max(1)),
            interval: Interval::default(),
            percentiles_s: VecDeque::new(),
            response_s: 0.0,
            target_s: None,
            since_reset: 0,
            points: VecDeque::new(),
            covariance: 0.0,
            throughput: Throughput::new(start),
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        let (config, interval) = (&self.config, &self.interval);
        let lasted = interval.began.map_or(Duration::ZERO, |began| now.since(began));
        let enough = interval.served >= u64::from(config.interval_requests.max(1));
        interval.served > 0 && (lasted >= config.interval && enough || lasted >= config.max_interval)
    }

    /// Learns from the interval that is over, and makes a step.
    fn learn(&mut self) {
        let Some(percentile_us) = take_percentile(&mut self.interval.responses_us, self.config.percentile)
        else {
            return;
        };
        self.smooth(percentile_us as f64 / 1e6);
        let served = self.interval.served as f64;
        let in_flight = self.interval.in_flight / served;
        // The resolution of the clock, for answers in no time.
        let mean_s = (self.interval.response_s / served).max(1e-6);
        push(&mut self.points, (in_flight, in_flight / mean_s), self.config.window);
        self.covariance = covariance(&self.points);
        let target_s = self.follow_target();
        self.step(in_flight, target_s / self.response_s);
    }

    /// Sets the smoothed response time, R.
    fn smooth(&mut self, percentile_s: f64) {
        push(&mut self.percentiles_s, percentile_s, self.config.median_of);
        let mut sorted: Vec<f64> = self.percentiles_s.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let median_s = sorted.get(sorted.len() / 2).copied().unwrap_or(percentile_s);
        let is_first = self.response_s <= 0.0;
        let weight = if is_first { 1.0 } else { self.config.smoothing };
        self.response_s = (1.0 - weight) * self.response_s + weight * median_s;
    }

    /// The target, T, after this interval.
    fn follow_target(&mut self) -> f64 {
        self.since_reset = self.since_reset.saturating_add(1);
        let is_due = self.since_reset > self.config.window && self.covariance > 0.0;
        let target_s = self.target_s.filter(|target_s| *target_s <= self.response_s && !is_due);
        if target_s.is_none() {
            self.since_reset = 0;
        }
        *self.target_s.insert(target_s.unwrap_or(self.response_s))
    }

    /// One step; `ratio` is T/R.
    fn step(&mut self, in_flight: f64, ratio: f64) {
        let (config, limit) = (&self.config, self.limit);
        if in_flight * 2.0 < limit {
            return;
        }
        let queue = limit * (1.0 - ratio);
        let log = limit.log10().max(1.0);
        let wanted = if self.covariance < 0.0 || queue > config.beta * log {
            limit - log
        } else if queue < config.alpha * log {
            limit + log
        } else {
            limit
        };
        let (least, most) = (f64::from(config.min_in_flight.max(1)), f64::from(config.max_in_flight.max(1)));
        self.limit = wanted.min(most).max(least);
    }
}

/// Appends to the last `most`.
fn push<T>(to: &mut VecDeque<T>, one: T, most: u32) {
    to.push_back(one);
    while to.len() > most.max(1) as usize {
        to.pop_front();
    }
}

/// Their covariance; 0 while they are too few for a sign that means something.
fn covariance(points: &VecDeque<(f64, f64)>) -> f64 {
    if points.len() < LEAST_POINTS {
        return 0.0;
    }
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / count
}

impl Estimator for Cinnamon {
    fn observe(&mut self, sample: &Sample) {
        self.throughput.observe(sample);
        if !sample.ok {
            return;
        }
        let interval = &mut self.interval;
        let us = u64::try_from(sample.response.as_micros()).unwrap_or(u64::MAX);
        for _ in 0..repeats(sample) {
            interval.served += 1;
            interval.response_s += sample.response.as_secs_f64();
            interval.in_flight += f64::from(sample.in_flight);
            if interval.responses_us.len() < MAX_SAMPLES {
                interval.responses_us.push(us);
            }
        }
    }

    fn tick(&mut self, load: &GateLoad, now: Timestamp) -> Estimate {
        let over = self.is_over(now);
        if over {
            self.learn();
        }
        // A clock that was set back by an hour must not make the interval last for that hour.
        if over || self.interval.began.is_none_or(|began| now < began) {
            self.interval = Interval { began: Some(now), ..Interval::default() };
        }
        self.throughput.tick(self.limit as u32, load, now)
    }

    fn set(&mut self, capacity: Rate, _now: Timestamp) {
        self.throughput.set(capacity);
    }

    fn rediscover(&mut self, _now: Timestamp) {
        let mut throughput = std::mem::take(&mut self.throughput);
        throughput.rediscover();
        *self = Self { throughput, ..Self::new(self.config, None) };
    }

    fn state(&self) -> State {
        let mut state = self.throughput.state(vec![
            ("limit", self.limit),
            ("target_ms", self.target_s.unwrap_or(0.0) * 1e3),
            ("response_ms", self.response_s * 1e3),
            ("covariance", self.covariance),
        ]);
        state.points = self.points.iter().copied().collect();
        state
    }
}
