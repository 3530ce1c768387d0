//! A service of workers with one line, fed like by WebQ's schedule: in each second as many requests as the
//! rate allows, at random instants of that second.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_core::capacity::{Estimate, Estimator, GateLoad, Phase, Sample};
use tidegate_core::units::Timestamp;

use crate::samples::SERVED;

/// How long a request takes a worker.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Fixed,
    Exponential,
}

/// Microseconds of a tick.
const TICK_US: u64 = 100_000;
/// Start of the run; not zero, so that the clock can go back.
pub const BEGAN_US: u64 = 1_000_000_000;

/// Workers, a line, and future arrivals.
pub struct Service {
    pub workers: usize,
    pub work: Work,
    /// Mean work of a request, seconds.
    pub mean_s: f64,
    /// Factor of the quadratic slowdown by requests beyond the number of workers.
    pub contention: f64,
    /// Visitors per second; those that the rate does not admit wait in the room.
    pub offered: f64,
    rng: SmallRng,
    now_us: u64,
    crowd: f64,
    carry: f64,
    arrivals: VecDeque<u64>,
    line: VecDeque<(u64, u32)>,
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    busy: usize,
}

impl Service {
    pub fn new(work: Work, seed: u64) -> Self {
        Self {
            workers: 10,
            work,
            mean_s: 0.1,
            contention: 0.0,
            offered: f64::INFINITY,
            rng: SmallRng::seed_from_u64(seed),
            now_us: BEGAN_US,
            crowd: 0.0,
            carry: 0.0,
            arrivals: VecDeque::new(),
            line: VecDeque::new(),
            ends: BinaryHeap::new(),
            busy: 0,
        }
    }

    /// Runs until `until_s` seconds after the start, or until `each_tick` returns true. Returns the time in
    /// that case.
    pub fn run(
        &mut self,
        estimator: &mut dyn Estimator,
        until_s: f64,
        mut each_tick: impl FnMut(f64, &Estimate) -> bool,
    ) -> Option<f64> {
        let until_us = BEGAN_US + (until_s * 1e6) as u64;
        while self.now_us < until_us {
            let load = GateLoad {
                room_waits: self.crowd >= 1.0,
                coming: 0,
                queued: 0,
                in_flight: (self.busy + self.line.len()) as u32,
                age: Duration::ZERO,
            };
            let estimate = estimator.tick(&load, Timestamp::from_micros(self.now_us));
            let at_s = (self.now_us - BEGAN_US) as f64 / 1e6;
            if each_tick(at_s, &estimate) {
                return Some(at_s);
            }
            self.now_us += TICK_US;
            self.release(estimate.capacity.get());
            self.serve(estimator);
        }
        None
    }

    /// Once a second: draws the arrivals of the next second. Later changes of the rate do not affect them.
    fn release(&mut self, rate: f64) {
        if !(self.now_us - BEGAN_US - TICK_US).is_multiple_of(1_000_000) {
            return;
        }
        self.crowd += self.offered;
        let let_in = (rate + self.carry).min(self.crowd);
        let whole = let_in.floor();
        self.carry = if self.crowd > let_in { let_in - whole } else { 0.0 };
        self.crowd -= whole;
        let start = self.now_us - TICK_US;
        let mut second: Vec<u64> =
            (0..whole as u64).map(|_| start + self.rng.random_range(0..1_000_000)).collect();
        second.sort_unstable();
        self.arrivals.extend(second);
    }

    fn serve(&mut self, estimator: &mut dyn Estimator) {
        loop {
            let arrival = self.arrivals.front().copied().filter(|at| *at <= self.now_us);
            let end = self.ends.peek().map(|Reverse((at, ..))| *at).filter(|at| *at <= self.now_us);
            match (arrival, end) {
                (None, None) => return,
                (Some(at), end) if end.is_none_or(|end| at < end) => {
                    self.arrivals.pop_front();
                    let present = (self.busy + self.line.len() + 1) as u32;
                    self.line.push_back((at, present));
                    self.start(at);
                }
                _ => {
                    let Some(Reverse((at, arrived, in_flight))) = self.ends.pop() else { return };
                    self.busy -= 1;
                    estimator.observe(&sample(at, at - arrived, in_flight, 1, true));
                    self.start(at);
                }
            }
        }
    }

    fn start(&mut self, now_us: u64) {
        while self.busy < self.workers {
            let Some((arrived, in_flight)) = self.line.pop_front() else { return };
            self.busy += 1;
            let drawn = match self.work {
                Work::Fixed => 1.0,
                Work::Exponential => -(1.0 - self.rng.random::<f64>()).ln(),
            };
            let beyond = (self.busy + self.line.len()).saturating_sub(self.workers) as f64;
            let slower = 1.0 + self.contention * (beyond / self.workers as f64).powi(2);
            let end = now_us + (drawn * slower * self.mean_s * 1e6) as u64;
            self.ends.push(Reverse((end, arrived, in_flight)));
        }
    }
}

/// A sample of requests that ended at `ended_us`.
pub fn sample(ended_us: u64, response_us: u64, in_flight: u32, count: u64, ok: bool) -> Sample {
    let (ended, response) = (Timestamp::from_micros(ended_us), Duration::from_micros(response_us));
    Sample { count, ended, response, in_flight, ok, backlog: false, ..SERVED }
}

/// Whether the estimator holds a capacity.
pub fn is_settled(estimate: &Estimate) -> bool {
    estimate.phase == Phase::Settled
}
