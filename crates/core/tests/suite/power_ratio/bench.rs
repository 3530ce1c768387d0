//! An estimator that is fed with hand-made epochs.

use std::time::Duration;

use tidegate_core::capacity::{Estimate, Estimator, GateLoad, PowerRatio, PowerRatioConfig};
use tidegate_core::units::{Rate, Timestamp};

use super::service::{BEGAN_US, sample};

/// Microseconds of an epoch.
const EPOCH_US: u64 = 8_000_000;

pub struct Bench {
    pub estimator: PowerRatio,
    pub now_us: u64,
    /// The last estimate.
    pub last: Estimate,
}

impl Bench {
    pub fn new(config: PowerRatioConfig, start: Option<f64>) -> Self {
        let start = start.and_then(Rate::per_second);
        let mut estimator = PowerRatio::new(config, start);
        let now_us = BEGAN_US;
        let last = estimator.tick(&waits(0), Timestamp::from_micros(now_us));
        Self { estimator, now_us, last }
    }

    pub fn load(&self) -> f64 {
        self.last.capacity.get()
    }

    /// Number of points of the fit.
    pub fn points(&self) -> usize {
        self.estimator.state().points.len()
    }

    pub fn reason(&self) -> String {
        self.estimator.state().reason
    }

    /// An epoch with waiting visitors, in which `per_s` requests are served in `response_s` each.
    pub fn epoch(&mut self, per_s: f64, response_s: f64) -> f64 {
        self.serve(per_s, response_s, true);
        self.end(&waits(0))
    }

    /// Adds requests to this epoch.
    pub fn serve(&mut self, per_s: f64, response_s: f64, ok: bool) {
        let count = (per_s * 8.0).round() as u64;
        let response_us = (response_s * 1e6) as u64;
        self.estimator.observe(&sample(self.now_us, response_us, 1, count, ok));
    }

    /// Ends the epoch at a load. Returns the new rate.
    pub fn end(&mut self, load: &GateLoad) -> f64 {
        self.now_us += EPOCH_US;
        self.tick(load)
    }

    pub fn tick(&mut self, load: &GateLoad) -> f64 {
        self.last = self.estimator.tick(load, Timestamp::from_micros(self.now_us));
        self.load()
    }

    /// Plays epochs that serve the rate at the response time of a curve. Returns the rates, the first
    /// included.
    pub fn follow(&mut self, epochs: usize, response_s: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut loads = vec![self.load()];
        for _ in 0..epochs {
            let load = self.load();
            loads.push(self.epoch(load, response_s(load)));
        }
        loads
    }
}

/// Visitors wait, with so many requests at the service.
pub fn waits(in_flight: u32) -> GateLoad {
    GateLoad { room_waits: true, coming: 0, queued: 0, in_flight, age: Duration::ZERO }
}

/// Nobody waits.
pub fn idle() -> GateLoad {
    GateLoad::default()
}

/// Mean response time in seconds of ten workers that take 0.1 s in the mean, at a load per second (Erlang's
/// C); two seconds in overload.
pub fn curve(load: f64) -> f64 {
    let offered = load * 0.1;
    if offered >= 9.9 {
        return 2.0;
    }
    // Erlang's B by its recursion, then C.
    let blocked = (1..=10).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let waits = blocked / (1.0 - offered / 10.0 * (1.0 - blocked));
    0.1 + waits / (100.0 - load)
}
